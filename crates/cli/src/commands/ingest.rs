//! `lithe ingest`: makes table files part of a keyspace.

use std::path::PathBuf;

use clap::Args;
use lithedb::{TableCheck, TableIngestMode, TableIngestOptions};

use crate::args::Globals;
use crate::database::{close, open_or_create_keyspace};
use crate::failure::{Failure, Outcome};
use crate::notation::{bytes_text, count_text};
use crate::output::Notices;

const EXAMPLES: &str = "\
Examples:
  lithe load --table words.tbl words.txt
  lithe --db my.lithe keyspaces create words --structure lsm
  lithe --db my.lithe --keyspace words ingest words.tbl
  lithe --db my.lithe --keyspace words ingest --move part-*.tbl

All rows of all files become visible and durable together, over what was there, or none. Keys of
the files must not overlap. In a keyspace of the structure lsm the files become tables as they are;
in one of the structure flex, which is what is created when there is none, or history, where each
row is a version, their rows are read and written.

With --move a file is given to the keyspace, which costs nothing where both are on one file system.
A file must not be changed by others while it is read; one that was moved never again, under any
other name that it has.";

/// Options of `lithe ingest`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct IngestArgs {
    /// Table files, as `lithe load --table` writes them
    #[arg(value_name = "TABLE", required = true)]
    pub tables: Vec<PathBuf>,

    /// The files become the keyspace's own
    #[arg(long = "move")]
    pub moves: bool,

    /// Verify only what the files say of themselves, and not every byte of them
    #[arg(long)]
    pub trust: bool,
}

/// Ingests the tables.
pub fn run(globals: &Globals, notices: Notices, args: &IngestArgs) -> Outcome {
    // A wrong name creates nothing.
    for path in &args.tables {
        let failed = |source| Failure::Input { path: path.clone(), source };
        path.metadata().map_err(failed)?;
    }
    let (db, keyspace) = open_or_create_keyspace(globals)?;
    let mode = if args.moves { TableIngestMode::Move } else { TableIngestMode::Copy };
    let check = if args.trust { TableCheck::Metadata } else { TableCheck::Everything };
    let how = TableIngestOptions::copying().mode(mode).check(check);
    let report = keyspace.ingest_tables(&args.tables, how)?;
    close(&db)?;
    let (entries, bytes) = (count_text(report.entries), bytes_text(report.bytes));
    let tables = count_text(report.tables);
    notices.say(format!("ingested {entries} entries, {bytes}, of {tables} tables"));
    for path in &report.not_removed {
        let path = path.display();
        notices.say(format!("{path} could not be removed: it is not needed any more"));
    }
    Ok(())
}
