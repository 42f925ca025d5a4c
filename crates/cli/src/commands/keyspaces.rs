//! `lithe keyspaces`: lists, creates, drops and renames keyspaces.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use lithedb::{Db, KeyspaceInfo, KeyspaceOptions};
use serde_json::{Value, json};

use crate::args::Globals;
use crate::database::{close, open_existing, open_or_create};
use crate::failure::{Failure, Outcome};
use crate::notation::parse_small_size;
use crate::notation::{bytes_text, exact_duration_text, parse_duration, parse_size};
use crate::output::{
    Columns, ListFormat, Notices, Row, RowFormat, RowWriter, Surface, Table, stdout,
};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe keyspaces
  lithe --db my.lithe keyspaces create users
  lithe --db my.lithe keyspaces create events --codec lz4 --interval-size 64KiB --pace 1.2
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
#[command(after_help = CREATE_EXAMPLES)]
pub struct CreateArgs {
    /// Its name
    pub name: String,

    /// How it stores its data
    #[arg(long, value_name = "STRUCTURE", default_value = "flex")]
    pub structure: Structure,

    /// How blocks are compressed [default: none]
    #[arg(long, value_name = "CODEC")]
    pub codec: Option<Codec>,

    /// What an interval aims at, 512B to 1MiB: smaller ones read less for a point read, larger ones
    /// take less memory and compress better [default: 16KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_size)]
    pub interval_size: Option<u32>,

    /// When a segment file is closed, 4KiB to 256MiB: space is given back by whole segments
    /// [default: 4MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_size)]
    pub segment_size: Option<u32>,

    /// How much dead data is tolerated against live data, 0.05 to 8: larger writes less and takes
    /// more space [default: 0.6]
    #[arg(long, value_name = "RATIO")]
    pub pace: Option<f32>,

    /// How many delta runs of an interval are merged among themselves, 2 to 64, or 0 for never:
    /// larger suits data that is large against the memtable [default: 8]
    #[arg(long, value_name = "RUNS")]
    pub fan_in: Option<u8>,

    /// When a memtable is sealed and flushed, 4KiB to 64GiB [default: an eighth of the memory
    /// budget, 64MiB at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memtable_size: Option<u64>,

    /// From what size on a value is stored in a value file and not again with every flush and
    /// consolidation, 64B to 1GiB, or `off` [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_separation)]
    pub value_separation: Option<Separation>,

    /// What `lithe merge` does to a value: counter (adds 64-bit numbers), append, min, max, or the
    /// name of an operator of another program [default: nothing can be merged]
    #[arg(long, value_name = "OPERATOR")]
    pub merge: Option<String>,

    /// How long what is put is there unless that is said, as in 90s, 10m, 36h, 7d
    /// [default: until it is deleted]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "merge")]
    pub ttl: Option<Duration>,
}

/// From what size on values are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separation {
    /// None is.
    Off,
    /// Of so many bytes or more.
    From(u32),
}

fn parse_separation(text: &str) -> Result<Separation, String> {
    match text {
        "off" => Ok(Separation::Off),
        size => parse_small_size(size).map(Separation::From),
    }
}

const CREATE_EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe keyspaces create users
  lithe --db my.lithe keyspaces create events --codec lz4 --interval-size 64KiB --pace 1.2
  lithe --db my.lithe keyspaces create visits --merge counter
  lithe --db my.lithe keyspaces create sessions --ttl 36h

The options stay with the keyspace; `lithe keyspaces` shows them.";

/// The storage structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Structure {
    /// Mixed reads and writes, fast scans, low write amplification
    Flex,
}

/// The codecs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Codec {
    /// Blocks as they are
    None,
    /// Fast, about half the size for text
    Lz4,
}

impl Codec {
    fn of_store(self) -> lithedb::Codec {
        match self {
            Codec::None => lithedb::Codec::None,
            Codec::Lz4 => lithedb::Codec::Lz4,
        }
    }
}

/// Does what was asked for.
pub fn run(globals: &Globals, notices: Notices, args: KeyspacesArgs) -> Outcome {
    match args.action.unwrap_or(Action::List) {
        Action::List => {
            let db = open_existing(globals)?;
            write_list(&mut stdout(), &db.keyspaces(), args.format, Surface::of_stdout())
        }
        Action::Create(create) => {
            let options = options_of(&create);
            options.validate()?; // Before a database is created for a keyspace that cannot be.
            let db = open_or_create(globals)?;
            db.create_keyspace(&create.name, options)?;
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

/// The defaults of the structure, but for what was said.
fn options_of(create: &CreateArgs) -> KeyspaceOptions {
    let mut options = match create.structure {
        Structure::Flex => KeyspaceOptions::flex(),
    };
    if let Some(codec) = create.codec {
        options = options.codec(codec.of_store());
    }
    if let Some(bytes) = create.interval_size {
        options = options.interval_size(bytes);
    }
    if let Some(bytes) = create.segment_size {
        options = options.segment_size(bytes);
    }
    if let Some(pace) = create.pace {
        options = options.consolidation_pace(pace);
    }
    if let Some(count) = create.fan_in {
        options = options.delta_fan_in(count);
    }
    if let Some(bytes) = create.memtable_size {
        options = options.memtable_size(bytes);
    }
    match create.value_separation {
        None => {}
        Some(Separation::Off) => options = options.value_separation(None),
        Some(Separation::From(bytes)) => options = options.value_separation(Some(bytes)),
    }
    if let Some(operator) = &create.merge {
        options = options.merge_operator(operator);
    }
    if let Some(ttl) = create.ttl {
        options = options.ttl(ttl);
    }
    options
}

fn codec_text(codec: lithedb::Codec) -> &'static str {
    match codec {
        lithedb::Codec::None => "none",
        lithedb::Codec::Lz4 => "lz4",
        _ => "another", // The library may learn one before this program does.
    }
}

fn write_list(
    out: &mut impl Write,
    keyspaces: &[KeyspaceInfo],
    format: ListFormat,
    surface: Surface,
) -> Outcome {
    match format {
        ListFormat::Table => write!(out, "{}", list_table(keyspaces))?,
        ListFormat::Json => {
            let list: Vec<Value> = keyspaces.iter().map(info_json).collect();
            writeln!(out, "{}", Value::from(list))?;
        }
        ListFormat::Jsonl => {
            for info in keyspaces {
                writeln!(out, "{}", info_json(info))?;
            }
        }
        ListFormat::Csv => write_csv(out, keyspaces)?,
        ListFormat::Raw => {
            let names = Columns::default();
            let mut rows = RowWriter::new(&mut *out, RowFormat::Raw, names, surface);
            for info in keyspaces {
                let key = info.name.as_bytes();
                rows.write(Row { key, value: None, stamp: None, expiry: None })?;
            }
            rows.finish()?;
        }
    }
    Ok(out.flush()?)
}

fn list_table(keyspaces: &[KeyspaceInfo]) -> Table {
    let mut table = Table::new(&[
        "name",
        ">id",
        "structure",
        "codec",
        ">interval",
        ">segment",
        ">pace",
        ">fan-in",
        ">memtable",
        ">separated from",
        "merge",
        ">ttl",
    ]);
    for info in keyspaces {
        let options = &info.options;
        table.row([
            info.name.escape_debug().to_string(),
            info.id.to_string(),
            info.structure.to_owned(),
            codec_text(options.codec).to_owned(),
            bytes_text(u64::from(options.interval_size)),
            bytes_text(u64::from(options.segment_size)),
            options.consolidation_pace.to_string(),
            options.delta_fan_in.to_string(),
            options.memtable_size.map_or_else(|| "by budget".to_owned(), bytes_text),
            separation_text(options.value_separation),
            options.merge_operator.as_deref().unwrap_or("-").escape_debug().to_string(),
            options.ttl.map_or_else(|| "-".to_owned(), exact_duration_text),
        ]);
    }
    table
}

fn separation_text(from: Option<u32>) -> String {
    from.map_or_else(|| "off".to_owned(), |bytes| bytes_text(u64::from(bytes)))
}

/// Sizes are in bytes; of a separation of null, no value is separated; a memtable size of null is
/// decided by the memory budget; with a merge operator of null, nothing can be merged; with a ttl
/// of null, what is put does not expire.
fn info_json(info: &KeyspaceInfo) -> Value {
    let options = &info.options;
    json!({
        "name": info.name,
        "id": info.id,
        "structure": info.structure,
        "codec": codec_text(options.codec),
        "interval_size": options.interval_size,
        "segment_size": options.segment_size,
        // By way of text: 0.6 as an f64 has digits that nobody asked for.
        "consolidation_pace": options.consolidation_pace.to_string().parse::<f64>().ok(),
        "delta_fan_in": options.delta_fan_in,
        "memtable_size": options.memtable_size,
        "value_separation": options.value_separation,
        "merge_operator": options.merge_operator,
        "ttl_millis": options.ttl.map(|ttl| ttl.as_millis() as u64),
    })
}

fn write_csv(out: &mut impl Write, keyspaces: &[KeyspaceInfo]) -> Outcome {
    const TITLES: [&str; 12] = [
        "name",
        "id",
        "structure",
        "codec",
        "interval_size",
        "segment_size",
        "consolidation_pace",
        "delta_fan_in",
        "memtable_size",
        "value_separation",
        "merge_operator",
        "ttl_millis",
    ];
    let failed = |error: csv::Error| Failure::Output(error.into());
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(TITLES).map_err(failed)?;
    for info in keyspaces {
        let options = &info.options;
        let record: [&str; TITLES.len()] = [
            &info.name,
            &info.id.to_string(),
            info.structure,
            codec_text(options.codec),
            &options.interval_size.to_string(),
            &options.segment_size.to_string(),
            &options.consolidation_pace.to_string(),
            &options.delta_fan_in.to_string(),
            &options.memtable_size.map(|bytes| bytes.to_string()).unwrap_or_default(),
            &options.value_separation.map(|bytes| bytes.to_string()).unwrap_or_default(),
            options.merge_operator.as_deref().unwrap_or_default(),
            &options.ttl.map(|ttl| ttl.as_millis().to_string()).unwrap_or_default(),
        ];
        csv.write_record(record).map_err(failed)?;
    }
    Ok(csv.flush()?)
}
