//! `lithe tables`: the tables of a keyspace of the structure Lsm, level by level.

use std::io::Write;

use clap::{Args, ValueEnum};
use lithedb::TableInfo;
use serde_json::{Value, json};

use crate::args::Globals;
use crate::database::{Purpose, close, open_keyspace};
use crate::failure::Outcome;
use crate::notation::bytes_text;
use crate::output::{Table, json_line, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe --keyspace events tables
  lithe --db my.lithe --keyspace events tables --levels
  lithe --db my.lithe --keyspace events tables --format jsonl

A keyspace of the structure flex has none: `lithe stats` shows what it has.";

/// Options of `lithe tables`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TablesArgs {
    /// A line for each sorted run instead of each table
    #[arg(long)]
    pub levels: bool,

    /// How the list is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: TablesFormat,
}

/// How tables are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TablesFormat {
    /// Columns
    Table,
    /// One JSON object a line
    Jsonl,
}

/// Sums of a sorted run.
#[derive(Clone, Copy, Debug, Default)]
struct RunSums {
    level: u8,
    run: u64,
    tables: u64,
    bytes: u64,
    entries: u64,
    tombstones: u64,
    deleted_ranges: u64,
}

/// Lists the tables of a keyspace.
pub fn run(globals: &Globals, args: &TablesArgs) -> Outcome {
    let (db, keyspace) = open_keyspace(globals, Purpose::Read)?;
    let tables = keyspace.tables();
    let mut out = stdout();
    match (args.levels, args.format) {
        (false, TablesFormat::Table) => write!(out, "{}", tables_table(&tables))?,
        (false, TablesFormat::Jsonl) => {
            for table in &tables {
                writeln!(out, "{}", json_line(&table_json(table)))?;
            }
        }
        (true, TablesFormat::Table) => write!(out, "{}", runs_table(&runs_of(&tables)))?,
        (true, TablesFormat::Jsonl) => {
            for run in runs_of(&tables) {
                writeln!(out, "{}", run_json(&run))?;
            }
        }
    }
    out.flush()?;
    close(&db)
}

fn tables_table(tables: &[TableInfo]) -> Table {
    let mut list = Table::new(&[
        ">level",
        ">run",
        ">table",
        ">size",
        ">entries",
        ">tombstones",
        ">ranges",
        ">expiring",
        "first key",
        "below",
    ]);
    for table in tables {
        let below = table.end.as_ref().map(|end| end.escape_ascii().to_string());
        list.row([
            table.level.to_string(),
            table.run.to_string(),
            table.number.to_string(),
            bytes_text(table.bytes),
            table.entries.to_string(),
            table.tombstones.to_string(),
            table.deleted_ranges.to_string(),
            table.expiring.to_string(),
            table.first.escape_ascii().to_string(),
            below.unwrap_or_else(|| "no end".to_owned()),
        ]);
    }
    list
}

/// Of a table that deletes to the end of the keys, `below` is null. Keys are escaped.
fn table_json(table: &TableInfo) -> Value {
    json!({
        "level": table.level,
        "run": table.run,
        "table": table.number,
        "bytes": table.bytes,
        "logical_bytes": table.logical_bytes,
        "entries": table.entries,
        "tombstones": table.tombstones,
        "deleted_ranges": table.deleted_ranges,
        "expiring": table.expiring,
        "first": table.first.escape_ascii().to_string(),
        "below": table.end.as_ref().map(|end| end.escape_ascii().to_string()),
    })
}

fn runs_of(tables: &[TableInfo]) -> Vec<RunSums> {
    let mut runs: Vec<RunSums> = Vec::new();
    for table in tables {
        let is_of = |run: &RunSums| (run.level, run.run) == (table.level, table.run);
        if !runs.last().is_some_and(is_of) {
            runs.push(RunSums { level: table.level, run: table.run, ..RunSums::default() });
        }
        let run = runs.last_mut().expect("there is one now");
        run.tables += 1;
        run.bytes += table.bytes;
        run.entries += table.entries;
        run.tombstones += table.tombstones;
        run.deleted_ranges += u64::from(table.deleted_ranges);
    }
    runs
}

fn runs_table(runs: &[RunSums]) -> Table {
    let titles =
        [">level", ">run", ">tables", ">size", ">entries", ">tombstones", ">deleted ranges"];
    let mut list = Table::new(&titles);
    for run in runs {
        list.row([
            run.level.to_string(),
            run.run.to_string(),
            run.tables.to_string(),
            bytes_text(run.bytes),
            run.entries.to_string(),
            run.tombstones.to_string(),
            run.deleted_ranges.to_string(),
        ]);
    }
    list
}

fn run_json(run: &RunSums) -> Value {
    json!({
        "level": run.level,
        "run": run.run,
        "tables": run.tables,
        "bytes": run.bytes,
        "entries": run.entries,
        "tombstones": run.tombstones,
        "deleted_ranges": run.deleted_ranges,
    })
}
