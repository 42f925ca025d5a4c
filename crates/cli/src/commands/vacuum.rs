//! `lithe vacuum`: gives back the room of what was overwritten and deleted.

use std::io::Write;
use std::ops::ControlFlow;

use clap::Args;
use lithedb::VacuumReport;
use serde_json::json;

use crate::args::Globals;
use crate::database::{close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text};
use crate::output::{ReportFormat, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe vacuum
  lithe --db my.lithe vacuum --format json
  lithe --db my.lithe --memory 64MiB vacuum

Everything is consolidated, and values are moved out of value files with garbage. The store does
most of it by itself; this does all of it, now. Ctrl-C ends it after the slice at hand, with what
was reclaimed until then and exit code 130; a second one ends it at once, which loses nothing.";

/// Options of `lithe vacuum`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VacuumArgs {
    /// How the report is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ReportFormat,
}

/// Does it and prints what came of it.
pub fn run(globals: &Globals, interrupt: &Interrupt, args: &VacuumArgs) -> Outcome {
    let db = open_existing(globals)?;
    interrupt.graceful();
    let report = db.vacuum_while(|_| match interrupt.is_raised() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })?;
    close(&db)?;
    let mut out = stdout();
    match args.format {
        ReportFormat::Table => writeln!(out, "{}", report_text(&report))?,
        ReportFormat::Json => {
            let object = json!({
                "reclaimed_bytes": report.bytes_reclaimed,
                "value_files_removed": report.value_files_removed,
                "values_moved": report.values_moved,
                "value_moved_bytes": report.value_bytes_moved,
                "cancelled": report.is_cancelled,
            });
            writeln!(out, "{object}")?;
        }
    }
    out.flush()?;
    if report.is_cancelled { Err(Failure::Interrupted) } else { Ok(()) }
}

/// `reclaimed 3.4 MiB; 12 values (1.0 MiB) moved, 2 value files removed`.
fn report_text(report: &VacuumReport) -> String {
    format!(
        "reclaimed {}; {} values ({}) moved, {} value files removed",
        bytes_text(report.bytes_reclaimed),
        count_text(report.values_moved),
        bytes_text(report.value_bytes_moved),
        count_text(report.value_files_removed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_was_gained_and_what_it_took() {
        let mut report = VacuumReport::default();
        (report.bytes_reclaimed, report.values_moved) = (3 << 20, 1200);
        let text = report_text(&report);
        assert_eq!(text, "reclaimed 3.0 MiB; 1,200 values (0 B) moved, 0 value files removed");
    }
}
