//! `lithe upgrade`: which versions the files of a database have, and bringing older ones to the
//! newest.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use lithedb::{Db, FORMAT_VERSION, FileVersion, Rewrite, UpgradeReport};
use serde_json::{Value, json};

use crate::args::Globals;
use crate::database::{Purpose, close, database_path, open};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text, shown};
use crate::output::{Notices, ReportFormat, Table, json_line, stdout};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  lithe upgrade my.lithe
  lithe --read-only upgrade my.lithe
  lithe --db my.lithe --key-file key upgrade --everything

Verifies the database, says which versions its files have, and writes those anew that have an older
one than the newest. There is one format so far, so that none has: `--everything` writes all anew,
whatever its version, which costs reading and writing all data once. Ctrl-C ends it after the slice
at hand; whenever it is ended, by whatever, nothing is lost, and the next one goes on. With
`--read-only` nothing is written. A database of a newer version is refused, with both versions and
the file. Make a checkpoint first: what is upgraded is not opened by older programs any more.";

/// Options of `lithe upgrade`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct UpgradeArgs {
    /// Directory of the database, if not that of `--db`
    #[arg(value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,

    /// Write all files anew, not only those of an older version
    #[arg(long)]
    pub everything: bool,

    /// How the report is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// Verifies, upgrades, and says what there is now.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &UpgradeArgs,
) -> Outcome {
    if globals.read_only && args.everything {
        return Err(Failure::usage("`--everything` writes, and `--read-only` says not to"));
    }
    let path = match &args.directory {
        Some(directory) => directory,
        None => database_path(globals)?,
    };
    let db = open(globals, path, Purpose::Change)?;
    let before = db.file_versions()?; // A newer one is refused before anything else.
    verify(&db)?;
    let report = match globals.read_only {
        true => None,
        false => {
            let report = upgrade(&db, args, (notices, interrupt))?;
            if report.due > 0 {
                verify(&db)?;
            }
            Some(report)
        }
    };
    let now = db.file_versions()?;
    close(&db)?;
    let mut out = stdout();
    match args.format {
        ReportFormat::Table => {
            write!(out, "{}", versions_table(&now))?;
            writeln!(out, "{}", conclusion(&before, report.as_ref()))?;
        }
        ReportFormat::Json => {
            writeln!(out, "{}", json_line(&report_json(&now, report.as_ref())))?;
        }
    }
    out.flush()?;
    match report {
        Some(report) if report.is_cancelled => Err(Failure::Interrupted),
        _ => Ok(()),
    }
}

/// Nothing is written anew out of what is damaged.
fn verify(db: &Db) -> Outcome {
    let report = db.check()?;
    if report.is_ok() {
        return Ok(());
    }
    let mut out = stdout();
    for problem in &report.problems {
        writeln!(out, "{}", shown(problem))?;
    }
    out.flush()?;
    Err(Failure::Damaged { problem_count: report.problems.len() })
}

fn upgrade(
    db: &Db,
    args: &UpgradeArgs,
    (notices, interrupt): (Notices, &Interrupt),
) -> Result<UpgradeReport, Failure> {
    interrupt.graceful();
    let rewrite = if args.everything { Rewrite::Everything } else { Rewrite::Older };
    let mut progress = Progress::start(notices, None);
    let report = db.upgrade_while(rewrite, |so_far| {
        let written = so_far.bytes_written + so_far.value_bytes_moved;
        progress.update_work((written, written), so_far.bytes_left);
        match interrupt.is_raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    progress.finish();
    Ok(report?)
}

/// How many files there are of each kind and version.
fn counted(files: &[FileVersion]) -> BTreeMap<(&'static str, u32, u32, bool), u64> {
    let mut counts = BTreeMap::new();
    for file in files {
        let of = (file.kind, file.version, file.newest, file.is_sealed);
        *counts.entry(of).or_default() += 1;
    }
    counts
}

fn versions_table(files: &[FileVersion]) -> Table {
    let mut table = Table::new(&["kind", ">version", ">newest", "sealed", ">files"]);
    for ((kind, version, newest, is_sealed), count) in counted(files) {
        table.row([
            kind.to_owned(),
            version.to_string(),
            newest.to_string(),
            if is_sealed { "yes" } else { "no" }.to_owned(),
            count_text(count),
        ]);
    }
    table
}

/// What was done, or that there was nothing to do.
fn conclusion(before: &[FileVersion], report: Option<&UpgradeReport>) -> String {
    let older = before.iter().filter(|file| file.version < file.newest).count() as u64;
    let newest = format!("format {FORMAT_VERSION}, the newest");
    let Some(report) = report else {
        return match older {
            0 => format!("{newest}: nothing to be done"),
            count => format!("{} files of an older version", count_text(count)),
        };
    };
    if report.due == 0 {
        return format!("{newest}: nothing to be done");
    }
    let written = bytes_text(report.bytes_written + report.value_bytes_moved);
    let done = report.due - report.files_left.len() as u64;
    let done = format!("{newest}: {} files written anew ({written})", count_text(done));
    match report.files_left.len() {
        0 => done,
        left => format!("{done}, {} still there", count_text(left as u64)),
    }
}

fn report_json(now: &[FileVersion], report: Option<&UpgradeReport>) -> Value {
    let files: Vec<Value> = counted(now)
        .into_iter()
        .map(|((kind, version, newest, is_sealed), count)| {
            json!({
                "kind": kind,
                "version": version,
                "newest": newest,
                "sealed": is_sealed,
                "files": count,
            })
        })
        .collect();
    let left = report.map(|report| &report.files_left[..]).unwrap_or_default();
    json!({
        "format": FORMAT_VERSION,
        "versions": files,
        "due_files": report.map(|report| report.due),
        "written_bytes": report.map(|report| report.bytes_written + report.value_bytes_moved),
        "files_left": left.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "cancelled": report.is_some_and(|report| report.is_cancelled),
    })
}
