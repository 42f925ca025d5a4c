//! `lithe check`: verifies the whole database.

use std::io::Write;

use clap::Args;
use lithedb::CheckReport;
use serde_json::json;

use crate::args::Globals;
use crate::database::open_existing;
use crate::failure::{Failure, Outcome};
use crate::notation::{bytes_text, count_text, shown};
use crate::output::{Notices, ReportFormat, json_line, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe check
  lithe --db my.lithe check --format json
  lithe --db my.lithe check && echo all is well

Prints `ok` with what was checked, or every problem with its file and offset; then the exit code
is 4.";

/// Options of `lithe check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// How the report is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// Checks and prints the report.
pub fn run(globals: &Globals, notices: Notices, args: &CheckArgs) -> Outcome {
    let report = open_existing(globals)?.check()?;
    for path in &report.orphans {
        notices.say(format!("{} belongs to nothing; opening removes it", path.display()));
    }
    for unchecked in &report.unchecked {
        notices.say(format!("not checked: {unchecked}"));
    }
    write_report(&mut stdout(), &report, args.format)
}

fn write_report(out: &mut impl Write, report: &CheckReport, format: ReportFormat) -> Outcome {
    match format {
        ReportFormat::Table if report.problems.is_empty() => writeln!(out, "{}", ok_text(report))?,
        ReportFormat::Table => {
            for problem in &report.problems {
                writeln!(out, "{}", shown(problem))?;
            }
        }
        ReportFormat::Json => {
            let object = json!({
                "ok": report.problems.is_empty(),
                "files": report.files,
                "bytes": report.bytes,
                "keyspaces": report.keyspaces,
                "intervals": report.intervals,
                "runs": report.runs,
                "entries": report.entries,
                "value_files": report.value_files,
                "values": report.values,
                "commits": report.commits,
                "problems": report.problems,
                "unchecked": report.unchecked,
                "orphans": report.orphans.iter().map(|path| path.display().to_string())
                    .collect::<Vec<String>>(),
            });
            writeln!(out, "{}", json_line(&object))?;
        }
    }
    out.flush()?;
    match report.problems.len() {
        0 => Ok(()),
        problem_count => Err(Failure::Damaged { problem_count }),
    }
}

/// `ok: 12 files (3.4 MiB), 2 keyspaces, 120 intervals, 340 runs, 34,924 entries`.
pub fn ok_text(report: &CheckReport) -> String {
    let counted = |count: u64, noun: &str| {
        format!("{} {noun}{}", count_text(count), if count == 1 { "" } else { "s" })
    };
    format!(
        "ok: {} ({}), {}, {}, {}, {} {}",
        counted(report.files, "file"),
        bytes_text(report.bytes),
        counted(report.keyspaces, "keyspace"),
        counted(report.intervals, "interval"),
        counted(report.runs, "run"),
        count_text(report.entries),
        if report.entries == 1 { "entry" } else { "entries" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(problems: &[&str]) -> CheckReport {
        let mut report = CheckReport::default();
        (report.files, report.bytes, report.keyspaces, report.entries) = (3, 4096, 1, 1000);
        report.problems = problems.iter().map(ToString::to_string).collect();
        report
    }

    #[test]
    fn a_sound_database_is_ok() {
        let mut out = Vec::new();
        write_report(&mut out, &report(&[]), ReportFormat::Table).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "ok: 3 files (4.0 KiB), 1 keyspace, 0 intervals, 0 runs, 1,000 entries\n");
    }

    #[test]
    fn every_problem_is_printed_and_the_exit_code_is_4() {
        let problems = ["a/1 is damaged at offset 7", "a/2 is damaged at offset 9"];
        for format in [ReportFormat::Table, ReportFormat::Json] {
            let mut out = Vec::new();
            let failure = write_report(&mut out, &report(&problems), format).unwrap_err();
            assert_eq!(failure.exit_code(), 4);
            let text = String::from_utf8(out).unwrap();
            assert!(problems.iter().all(|problem| text.contains(problem)), "{text}");
        }
    }
}
