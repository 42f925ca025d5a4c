//! `lithe compact`: consolidates, and gives back what overwritten and deleted entries take.

use std::ops::ControlFlow;

use clap::Args;
use lithedb::{CompactionReport, Db, KeyRange, Stats};

use super::range::RangeArgs;
use crate::args::{Globals, Origin};
use crate::database::{close, open_existing};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, parse_size};
use crate::output::Notices;
use crate::pace::Pace;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe compact
  lithe --db my.lithe --keyspace users compact
  lithe --db my.lithe --keyspace users compact --prefix user:17:
  lithe --db my.lithe --memory 64MiB compact --from 2024-01 --to 2024-07
  lithe --db my.lithe compact --rate 50MiB

All keyspaces, unless one is named or a range; without a name the range is one of the keyspace
`default`. Costs up to reading and writing all of it once. What a range shares an interval or a
table with is compacted as well. Ctrl-C ends it after the slice at hand, with exit code 130: what
was finished stays so, what was begun is taken back. A second one ends it at once, which loses
nothing. With --rate it goes slice by slice (of 8 MiB), and waits in between.";

/// Options of `lithe compact`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompactArgs {
    /// The range.
    #[command(flatten)]
    pub range: RangeArgs,

    /// Write so many bytes a second at most, on average
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    pub rate: Option<u64>,
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("nothing is written at a rate of 0".to_owned()),
        rate => Ok(rate),
    }
}

/// What is to be compacted.
enum Extent {
    Everything,
    /// Of the keyspace that the command line names.
    Range(KeyRange),
    Nothing,
}

/// Compacts, and says what it brought.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &CompactArgs,
) -> Outcome {
    let extent = match args.range.key_range()? {
        _ if args.is_everything() && globals.keyspace_origin == Origin::Elsewhere => {
            Extent::Everything
        }
        Some(range) => Extent::Range(range),
        None => Extent::Nothing,
    };
    let db = open_existing(globals)?;
    interrupt.graceful();
    let before = bytes_of_keyspaces(&db.stats());
    let report = compact(&db, globals, &extent, (notices, interrupt, args.rate))?;
    let after = bytes_of_keyspaces(&db.stats());
    close(&db)?;
    let written = bytes_text(report.bytes_written);
    let sizes = format!("{} before, {} after", bytes_text(before), bytes_text(after));
    if report.is_cancelled {
        let left = bytes_text(report.bytes_left);
        notices.say(format!("{sizes}; {written} written, about {left} not compacted"));
        return Err(Failure::Interrupted);
    }
    notices.say(format!("{sizes}; {written} written"));
    Ok(())
}

fn compact(
    db: &Db,
    globals: &Globals,
    extent: &Extent,
    (notices, interrupt, rate): (Notices, &Interrupt, Option<u64>),
) -> Result<CompactionReport, Failure> {
    // Threads of the background would help, as fast as they can.
    let paced = rate.map(|rate| (Pace::start(rate), db.pause_background()));
    let mut progress = Progress::start(notices, None);
    let go_on = |so_far: &CompactionReport| {
        progress.update_work((so_far.bytes_read, so_far.bytes_written), so_far.bytes_left);
        if let Some((pace, _pause)) = &paced {
            pace.keep(so_far.bytes_written, interrupt);
        }
        match interrupt.is_raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let report = match extent {
        Extent::Everything => db.compact_while(go_on),
        Extent::Range(range) => {
            let keyspace = db.keyspace(&globals.keyspace)?;
            keyspace.compact_while((range.start.clone(), range.end.clone()), go_on)
        }
        Extent::Nothing => db.keyspace(&globals.keyspace).map(|_| CompactionReport::default()),
    };
    progress.finish();
    Ok(report?)
}

impl CompactArgs {
    fn is_everything(&self) -> bool {
        let RangeArgs { prefix, from, to, .. } = &self.range;
        prefix.is_none() && from.is_none() && to.is_none()
    }
}

/// Bytes that the files of all keyspaces take on disk.
fn bytes_of_keyspaces(stats: &Stats) -> u64 {
    let of_each = stats.keyspaces.iter();
    of_each.map(|keyspace| keyspace.bytes_on_disk).sum()
}
