//! `lithe keyspaces`: lists, creates, drops and renames keyspaces.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use lithedb::{Db, KeyspaceInfo, KeyspaceOptions};
use serde_json::json;

use crate::args::Globals;
use crate::database::{close, open_existing, open_or_create};
use crate::failure::{Failure, Outcome};
use crate::output::{
    Columns, ListFormat, Notices, Row, RowFormat, RowWriter, Surface, Table, stdout,
};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe keyspaces
  lithe --db my.lithe keyspaces create users --structure flex
  lithe --db my.lithe keyspaces rename users people
  lithe --db my.lithe keyspaces drop people --yes";

/// Options of `lithe keyspaces`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct KeyspacesArgs {
    /// What to do with them; listed when left away.
    #[command(subcommand)]
    pub action: Option<Action>,

    /// How the list is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ListFormat,
}

/// What to do with keyspaces.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List them (the default)
    List,
    /// Create one, and the database if there is none
    Create(CreateArgs),
    /// Drop one and everything in it
    Drop {
        /// Its name
        name: String,
        /// Really do it
        #[arg(long)]
        yes: bool,
    },
    /// Give one another name
    Rename {
        /// Its name
        old: String,
        /// The name it shall have
        new: String,
    },
}

/// Options of `lithe keyspaces create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Its name
    pub name: String,

    /// How it stores its data
    #[arg(long, value_name = "STRUCTURE", default_value = "flex")]
    pub structure: Structure,
}

/// The storage structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Structure {
    /// Mixed reads and writes, fast scans, low write amplification
    Flex,
}

/// Does what was asked for.
pub fn run(globals: &Globals, notices: Notices, args: KeyspacesArgs) -> Outcome {
    match args.action.unwrap_or(Action::List) {
        Action::List => {
            let db = open_existing(globals)?;
            write_list(&mut stdout(), &db.keyspaces(), args.format, Surface::of_stdout())
        }
        Action::Create(create) => {
            let db = open_or_create(globals)?;
            db.create_keyspace(&create.name, options_of(&create))?;
            done(&db, notices, &format!("created keyspace {:?}", create.name))
        }
        Action::Drop { name, yes: false } => {
            let what = format!("this deletes keyspace {name:?} with all its data: add --yes");
            Err(Failure::usage(what))
        }
        Action::Drop { name, yes: true } => {
            let db = open_existing(globals)?;
            db.drop_keyspace(&name)?;
            done(&db, notices, &format!("dropped keyspace {name:?}"))
        }
        Action::Rename { old, new } => {
            let db = open_existing(globals)?;
            db.rename_keyspace(&old, &new)?;
            done(&db, notices, &format!("renamed keyspace {old:?} to {new:?}"))
        }
    }
}

fn done(db: &Db, notices: Notices, text: &str) -> Outcome {
    close(db)?;
    notices.say(text);
    Ok(())
}

fn options_of(create: &CreateArgs) -> KeyspaceOptions {
    match create.structure {
        Structure::Flex => KeyspaceOptions::flex(),
    }
}

fn write_list(
    out: &mut impl Write,
    keyspaces: &[KeyspaceInfo],
    format: ListFormat,
    surface: Surface,
) -> Outcome {
    let objects = keyspaces
        .iter()
        .map(|info| json!({ "name": info.name, "id": info.id, "structure": info.structure }));
    match format {
        ListFormat::Table => {
            let mut table = Table::new(&["name", ">id", "structure"]);
            for info in keyspaces {
                table.row([
                    info.name.escape_debug().to_string(),
                    info.id.to_string(),
                    info.structure.to_owned(),
                ]);
            }
            write!(out, "{table}")?;
        }
        ListFormat::Json => {
            let list: Vec<serde_json::Value> = objects.collect();
            writeln!(out, "{}", serde_json::Value::from(list))?;
        }
        ListFormat::Jsonl => {
            for object in objects {
                writeln!(out, "{object}")?;
            }
        }
        ListFormat::Csv => write_csv(out, keyspaces)?,
        ListFormat::Raw => {
            let names = Columns::default();
            let mut rows = RowWriter::new(&mut *out, RowFormat::Raw, names, surface);
            for info in keyspaces {
                rows.write(Row { key: info.name.as_bytes(), value: None, stamp: None })?;
            }
            rows.finish()?;
        }
    }
    Ok(out.flush()?)
}

fn write_csv(out: &mut impl Write, keyspaces: &[KeyspaceInfo]) -> Outcome {
    let failed = |error: csv::Error| Failure::Output(error.into());
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["name", "id", "structure"]).map_err(failed)?;
    for info in keyspaces {
        csv.write_record([&info.name, &info.id.to_string(), info.structure]).map_err(failed)?;
    }
    Ok(csv.flush()?)
}
