//! `lithe repair`: a new database of what can be read of a damaged one.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lithedb::{LossKind, RepairOptions, RepairReport};
use serde_json::json;

use crate::args::Globals;
use crate::database::{Purpose, builder};
use crate::failure::{Failure, Outcome};
use crate::notation::count_text;
use crate::output::{Notices, ReportFormat, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe repair damaged.lithe repaired.lithe
  lithe repair damaged.lithe repaired.lithe --format json > lost.json
  lithe repair damaged.lithe repaired.lithe --past-log-damage

The first is only read. The second must not be there, or be empty; it becomes a database of
everything that can be read. What cannot be is printed, a line each: what it costs, keyspace and
keys, file and offset, what was expected and what was found. `lost` keys may be missing, and what is
there is right; `doubtful` ones may be older than they were, or have been deleted; `commits` says
that the log has damage: what is behind it is not taken, but with --past-log-damage; `catalogue`,
that keyspaces, their names or options are not known. The exit code is 4 if anything is lost.";

/// Options of `lithe repair`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RepairArgs {
    /// Directory of the damaged database
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,

    /// Directory of the new one
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,

    /// Take commits behind damage to the log as well, as far as they can be read
    #[arg(long)]
    pub past_log_damage: bool,

    /// Leave out what may be older than what there was
    #[arg(long)]
    pub leave_doubtful: bool,

    /// How the report is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// Makes it and prints what was lost.
pub fn run(globals: &Globals, notices: Notices, args: &RepairArgs) -> Outcome {
    if globals.read_only {
        return Err(Failure::usage("a repair writes a new database: leave --read-only out"));
    }
    let builder = builder(globals, Purpose::Make)?;
    let options = RepairOptions::new(builder)
        .past_log_damage(args.past_log_damage)
        .leave_doubtful(args.leave_doubtful);
    let report = lithedb::repair(&args.source, &args.target, options)?;
    for index in &report.not_rebuilt {
        notices.say(index.clone());
    }
    for consumer in &report.consumers {
        notices.say(format!("the consumer {consumer:?} is not in the new database"));
    }
    write_report(&mut stdout(), &report, args.format)
}

fn write_report(out: &mut impl Write, report: &RepairReport, format: ReportFormat) -> Outcome {
    match format {
        ReportFormat::Table => write_table(out, report)?,
        ReportFormat::Json => writeln!(out, "{}", json_of(report))?,
    }
    out.flush()?;
    let lost = report.losses.iter().filter(|loss| loss.kind != LossKind::Nothing).count();
    match lost + report.problems.len() {
        0 if report.is_whole() => Ok(()),
        problem_count => Err(Failure::Repaired { problem_count: problem_count.max(1) }),
    }
}

fn write_table(out: &mut impl Write, report: &RepairReport) -> Outcome {
    for loss in &report.losses {
        writeln!(out, "{loss}")?;
    }
    for commit in &report.commits_behind {
        let (file, offset) = (commit.file.display(), commit.offset);
        let (seqno, count) = (commit.seqno, commit.operations);
        writeln!(out, "not taken: commit {seqno}, {count} operations; {file} at offset {offset}")?;
    }
    for problem in &report.problems {
        writeln!(out, "in the new database: {problem}")?;
    }
    let behind = match report.commits_behind_count {
        0 => String::new(),
        count => format!("; {} commits not taken", count_text(count)),
    };
    writeln!(
        out,
        "{} keyspaces, {} entries, {} commits of the log{behind}",
        count_text(report.keyspaces),
        count_text(report.entries),
        count_text(report.commits),
    )?;
    Ok(())
}

fn json_of(report: &RepairReport) -> serde_json::Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let losses = report.losses.iter().map(|loss| {
        json!({
            "kind": loss.kind.name(),
            "keyspace": loss.keyspace,
            "of_versions": loss.is_of_versions,
            "start_hex": hex(&loss.start),
            "end_hex": loss.end.as_ref().map(|end| hex(end)),
            "file": loss.file.display().to_string(),
            "offset": loss.offset,
            "what": loss.what,
        })
    });
    let behind = report.commits_behind.iter().map(|commit| {
        json!({
            "stamp": commit.seqno.as_u64(),
            "operations": commit.operations,
            "file": commit.file.display().to_string(),
            "offset": commit.offset,
        })
    });
    json!({
        "whole": report.is_whole(),
        "keyspaces": report.keyspaces,
        "entries": report.entries,
        "commits": report.commits,
        "loss_count": report.loss_count,
        "losses": losses.collect::<Vec<_>>(),
        "commits_behind_count": report.commits_behind_count,
        "commits_behind": behind.collect::<Vec<_>>(),
        "not_rebuilt": report.not_rebuilt,
        "consumers": report.consumers,
        "problems": report.problems,
    })
}
