//! `lithe checkpoint`: a copy of the whole database, which shares its files where it can.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lithedb::CheckpointReport;
use serde_json::json;

use crate::args::Globals;
use crate::database::{close, open_existing};
use crate::failure::Outcome;
use crate::notation::{bytes_text, count_text};
use crate::output::{ReportFormat, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe checkpoint my-monday.lithe
  lithe --db my.lithe checkpoint /mnt/copies/my.lithe --format json
  lithe --db my-monday.lithe check

What is made is a database of its own. On the same file system it shares the files that do not
change any more, so that it takes seconds and little room; elsewhere everything is copied. There
must be nothing at the place yet, which must not be within the directory of a database. If it is
interrupted, a directory stays there whose name has `.unfinished-checkpoint-` in it; it can be
removed, and keeps the room of what it has until then.";

/// Options of `lithe checkpoint`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckpointArgs {
    /// Directory to be made
    #[arg(value_name = "DIRECTORY")]
    pub target: PathBuf,

    /// How the report is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// Makes it and prints what came of it.
pub fn run(globals: &Globals, args: &CheckpointArgs) -> Outcome {
    let db = open_existing(globals)?;
    let report = db.checkpoint(&args.target)?;
    close(&db)?;
    let mut out = stdout();
    match args.format {
        ReportFormat::Table => writeln!(out, "{}", report_text(&report))?,
        ReportFormat::Json => {
            let object = json!({
                "stamp": report.seqno.as_u64(),
                "files": report.files,
                "bytes": report.bytes,
                "linked_files": report.linked_files,
                "copied_bytes": report.copied_bytes,
            });
            writeln!(out, "{object}")?;
        }
    }
    out.flush()?;
    Ok(())
}

/// `120 files (3.4 GiB) as of 7f...: 110 of them linked, 2.1 MiB copied`.
fn report_text(report: &CheckpointReport) -> String {
    format!(
        "{} files ({}) as of {}: {} of them linked, {} copied",
        count_text(report.files),
        bytes_text(report.bytes),
        report.seqno,
        count_text(report.linked_files),
        bytes_text(report.copied_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_was_linked_and_what_was_copied() {
        let mut report = CheckpointReport::default();
        (report.files, report.bytes, report.linked_files) = (1200, 3 << 20, 1100);
        report.copied_bytes = 5 << 10;
        let text = report_text(&report);
        let expected = "1,200 files (3.0 MiB) as of 0: 1,100 of them linked, 5.0 KiB copied";
        assert_eq!(text.replace(&report.seqno.to_string(), "0"), expected);
    }
}
