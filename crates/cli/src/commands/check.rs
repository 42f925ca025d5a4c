//! `lithe check`: verifies the whole database.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lithedb::{CheckOptions, CheckPosition, CheckReport, Error};
use serde_json::json;

use crate::args::Globals;
use crate::database::open_to_read;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text, parse_size, shown};
use crate::output::{Notices, ReportFormat, json_line, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe check
  lithe --db my.lithe check --format json
  lithe --db my.lithe check && echo all is well
  lithe --db my.lithe check --rate 100MiB --resume check.position

Prints `ok` with what was checked, or every problem with its file and offset; then the exit code
is 4. With --resume, Ctrl-C writes to that file how far it was and what it has found, and the next
check of the same database with the same file goes on from there, and says so; one that has come to
its end removes it.";

/// Options of `lithe check`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Read so many bytes a second at most, on average
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub rate: Option<u64>,

    /// Go on where a check with this file was interrupted
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,

    /// How the report is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// Checks and prints the report.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &CheckArgs,
) -> Outcome {
    let earlier = args.resume.as_deref().map_or(Ok(None), Earlier::read)?;
    let db = open_to_read(globals)?;
    let mut options = CheckOptions::new();
    if let Some(rate) = args.rate {
        options = options.rate(rate);
    }
    if let (Some(earlier), Some(file)) = (&earlier, &args.resume) {
        earlier.check_database(db.id(), file)?;
        notices.say(format!("going on from {}", earlier.position));
        options = options.resume(earlier.position.clone());
    }
    if args.resume.is_some() {
        interrupt.graceful();
    }
    let report = db.check_with(&options, |_| match interrupt.is_raised() {
        true if args.resume.is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let mut report = report.map_err(|error| match (error, &args.resume) {
        (Error::InvalidArgument { what }, Some(file)) if earlier.is_some() => {
            Failure::usage(format!("{what}: remove {} to check all", file.display()))
        }
        (error, _) => error.into(),
    })?;
    for path in &report.orphans {
        notices.say(format!("{} belongs to nothing; opening removes it", path.display()));
    }
    for unchecked in &report.unchecked {
        notices.say(format!("not checked: {unchecked}"));
    }
    let from = earlier.as_ref().map(|earlier| earlier.position.clone());
    if let Some(earlier) = earlier {
        // Manifest and log are looked at each time.
        report.problems.retain(|problem| !earlier.problems.contains(problem));
        report.problems.splice(0..0, earlier.problems);
    }
    if let Some(file) = &args.resume {
        if let Some(position) = report.stopped_at.take() {
            Earlier { database: db.id(), position, problems: report.problems }.write(file)?;
            return Err(Failure::Interrupted);
        }
        Earlier::remove(file)?;
    }
    write_report(&mut stdout(), &report, from.as_ref(), args.format)
}

/// What the first line of a file begins with; then come database and position.
const MAGIC: &str = "lithe-check 1";

/// A check that was interrupted: a file with its database and position in the first line, and what
/// it has found in the others. For its owner alone, as keys are in it.
struct Earlier {
    database: u64,
    position: CheckPosition,
    problems: Vec<String>,
}

impl Earlier {
    /// `None` if there is no such file.
    fn read(file: &Path) -> Result<Option<Earlier>, Failure> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Failure::Input { path: file.to_owned(), source }),
        };
        let mut lines = text.lines();
        let Some((database, position)) = lines.next().and_then(first_line) else {
            let what = format!("{} was not written by a check: remove it", file.display());
            return Err(Failure::usage(what));
        };
        let problems = lines.map(ToOwned::to_owned).collect();
        Ok(Some(Earlier { database, position, problems }))
    }

    /// Refuses to go on with another database.
    fn check_database(&self, database: u64, file: &Path) -> Outcome {
        if self.database == database {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{} is of a check of the database {:016x}, and this is {database:016x}",
            file.display(),
            self.database
        )))
    }

    fn write(&self, file: &Path) -> Outcome {
        let mut text = format!("{MAGIC} {:016x} {}\n", self.database, self.position);
        for problem in &self.problems {
            text.push_str(&problem.replace('\n', " "));
            text.push('\n');
        }
        let mut options = OpenOptions::new();
        let made = options.write(true).create(true).truncate(true).mode(0o600).open(file);
        let written = made.and_then(|mut made| made.write_all(text.as_bytes()));
        written.map_err(|error| Error::io("write", file, error).into())
    }

    fn remove(file: &Path) -> Outcome {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::io("remove", file, error).into())
            }
            _ => Ok(()),
        }
    }
}

fn first_line(line: &str) -> Option<(u64, CheckPosition)> {
    let (database, position) = line.strip_prefix(MAGIC)?.strip_prefix(' ')?.split_once(' ')?;
    Some((u64::from_str_radix(database, 16).ok()?, position.parse().ok()?))
}

/// Writes what was found, and `from` where what was read now began.
fn write_report(
    out: &mut impl Write,
    report: &CheckReport,
    from: Option<&CheckPosition>,
    format: ReportFormat,
) -> Outcome {
    match format {
        ReportFormat::Table if report.problems.is_empty() => {
            let part = from.map(|from| format!("; read now from {from} on, the rest before"));
            writeln!(out, "{}{}", ok_text(report), part.unwrap_or_default())?;
        }
        ReportFormat::Table => {
            for problem in &report.problems {
                writeln!(out, "{}", shown(problem))?;
            }
        }
        ReportFormat::Json => {
            let object = json!({
                "ok": report.problems.is_empty(),
                "read_from": from.map(ToString::to_string),
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
        write_report(&mut out, &report(&[]), None, ReportFormat::Table).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "ok: 3 files (4.0 KiB), 1 keyspace, 0 intervals, 0 runs, 1,000 entries\n");
        let (from, mut out) = ("3:6f74".parse().unwrap(), Vec::new());
        write_report(&mut out, &report(&[]), Some(&from), ReportFormat::Table).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("1,000 entries; read now from 3:6f74 on, the rest before\n"));
    }

    #[test]
    fn every_problem_is_printed_and_the_exit_code_is_4() {
        let problems = ["a/1 is damaged at offset 7", "a/2 is damaged at offset 9"];
        for format in [ReportFormat::Table, ReportFormat::Json] {
            let mut out = Vec::new();
            let failure = write_report(&mut out, &report(&problems), None, format).unwrap_err();
            assert_eq!(failure.exit_code(), 4);
            let text = String::from_utf8(out).unwrap();
            assert!(problems.iter().all(|problem| text.contains(problem)), "{text}");
        }
    }
}
