//! `lithe demo`: what the store does, shown on a real data set in about ten seconds.
//!
//! Every claim that it prints is checked while it runs; one that does not hold ends the demo with
//! an error.

mod claims;
mod commits;
mod costs;
mod dataset;
mod fill;
mod past;
mod reads;
mod screen;

use std::path::{Path, PathBuf};

use clap::Args;
use lithedb::base::{Clock, SystemClock};
use lithedb::{Db, Keyspace};

use crate::args::{Globals, Origin};
use crate::database::{self, Purpose};
use crate::failure::{Failure, Outcome};
use crate::notation::{count_text, duration_text};
use crate::output::Notices;
use claims::Claim;
use costs::Session;
use dataset::CHARACTER_COUNT;
use screen::Screen;

/// Where the demo's database goes when `--db` does not say. `LITHE_DB` is not asked: it names a
/// database that matters.
const PATH_DEFAULT: &str = "demo.lithe";

const EXAMPLES: &str = "\
Examples:
  lithe demo
  lithe demo --db /tmp/demo.lithe
  lithe demo --memory 16MiB

Loads the Unicode Character Database (34,924 characters; it comes with the program) into
./demo.lithe and shows reads, scans, batches, snapshots, time travel, reopening and costs. A second
run uses what is there.";

/// Options of `lithe demo`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {}

/// The open database of the demo.
struct Demo {
    clock: SystemClock,
    db: Db,
    /// Code point, six hexadecimal digits, to the fields of the character.
    characters: Keyspace,
    /// Name to code point.
    names: Keyspace,
    /// Code point to a number that the snapshot's writer counts up.
    visits: Keyspace,
}

impl Demo {
    fn of(db: Db) -> Result<Demo, Failure> {
        Ok(Demo {
            clock: SystemClock::new(),
            characters: db.keyspace_or_create("characters")?,
            names: db.keyspace_or_create("names")?,
            visits: db.keyspace_or_create("visits")?,
            db,
        })
    }
}

/// Runs the demo.
pub fn run(globals: &Globals, notices: Notices, _args: &DemoArgs) -> Outcome {
    let path = database_path(globals);
    let mut screen = Screen::new();
    screen.title(&format!(
        "LitheDB {}, a demonstration in {}",
        env!("CARGO_PKG_VERSION"),
        path.display()
    ))?;

    let demo = Demo::of(database::open(globals, &path, Purpose::Make)?.into_db())?;
    let at_start = demo.db.stats();
    screen.step("Load the Unicode Character Database")?;
    let mut given_bytes = fill::fill_or_find(&demo, &mut screen, notices)?;
    screen.step("Point reads")?;
    reads::point_reads(&demo, &mut screen)?;
    screen.step("Prefix and range scans")?;
    reads::scans(&demo, &mut screen)?;
    screen.step("One atomic batch over two keyspaces")?;
    given_bytes += commits::atomic_batch(&demo, &mut screen)?;
    screen.step("A snapshot stands still while writes go on")?;
    given_bytes += commits::snapshot(&demo, &mut screen)?;
    screen.step("Three structures in one transaction, and a deletion undone")?;
    given_bytes += past::show(&demo, &mut screen)?;
    screen.step("Close and reopen")?;
    let at_work = demo.db.stats();
    let (demo, at_end) = reopen(demo, globals, &path, &mut screen)?;
    let session = Session { at_start, at_work, at_end, given_bytes };
    screen.step("Check every checksum and structure")?;
    costs::check(&demo, &mut screen)?;
    screen.step("What it costs")?;
    costs::show(&demo, &session, &path, &mut screen)?;
    demo.db.close()?;
    screen.next_commands(&path)?;
    Ok(())
}

fn database_path(globals: &Globals) -> PathBuf {
    match (&globals.db, globals.db_origin) {
        (Some(path), Origin::CommandLine) => path.clone(),
        _ => PathBuf::from(PATH_DEFAULT),
    }
}

/// Closes and opens again; what the session that ended had done.
fn reopen(
    demo: Demo,
    globals: &Globals,
    path: &Path,
    screen: &mut Screen,
) -> Result<(Demo, lithedb::Stats), Failure> {
    let Demo { clock, db, .. } = demo;
    let start = clock.monotonic();
    let session = db.close()?;
    let closed = clock.monotonic();
    let db = database::open(globals, path, Purpose::Change)?;
    let opened = clock.monotonic();
    screen.fact("closed in", &duration_text(closed - start))?;
    let replayed = db.recovery().wal_records;
    let text = format!(
        "{}, {} log records replayed",
        duration_text(opened - closed),
        count_text(replayed)
    );
    screen.fact("reopened in", &text)?;
    let demo = Demo::of(db.into_db())?;
    let rows = reads::count_rows(&demo.characters)?;
    screen.fact("still there", &format!("{} characters", count_text(rows)))?;
    Claim("reopening finds every character").holds(rows == CHARACTER_COUNT)?;
    Ok((demo, session))
}
