//! `lithe indexes`, `lithe index`: secondary indexes of a keyspace.

use std::io::Write;
use std::ops::ControlFlow;

use clap::{Args, Subcommand, ValueEnum};
use lithedb::{
    Error, Index, IndexBuildReport, IndexEntry, IndexInfo, IndexOptions, KeyRange, Keyspace, Slice,
};
use serde_json::{Value, json};

use super::range::RangeArgs;
use crate::args::Globals;
use crate::database::{Opened, Purpose, close, open_keyspace, open_to_read};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::count_text;
use crate::output::{Notices, Table, json_line, stdout, write_json_bytes};

const LIST_EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe indexes
  lithe --db my.lithe indexes people
  lithe --db my.lithe indexes people --format jsonl

An index that is not ready is being built, or was when that was interrupted: `lithe index build`
goes on with it. Without its extractor an index can be read, and its keyspace not be written to.";

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe --keyspace people index create by_city --extractor field:,:2
  lithe --db my.lithe --keyspace people index scan by_city --prefix Lon
  lithe --db my.lithe --keyspace people index scan by_city --key London --values --limit 10
  lithe --db my.lithe --keyspace people index rebuild by_city
  lithe --db my.lithe --keyspace people index drop by_city

Extractors that need no code: `value`, the whole value; `value_prefix:N`, its first N bytes;
`field:SEPARATOR:N`, part N, counted from 1, of a value that is parted at each separator, in which
\\t is a tab. Programs register others.

Ctrl-C ends building an index: `create` and `rebuild` leave all as it was, what `build` has done
stays; the exit code is 130.";

/// Options of `lithe indexes`.
#[derive(Args, Debug)]
#[command(after_help = LIST_EXAMPLES)]
pub struct IndexesArgs {
    /// The keyspace; that of --keyspace when left away
    #[arg(value_name = "KEYSPACE")]
    pub name: Option<String>,

    /// How the list is written
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: IndexesFormat,
}

/// How the list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IndexesFormat {
    /// A table
    Table,
    /// One object per line: `name`, `extractor`, `has_extractor`, `unique`, `ready`, `entries`
    Jsonl,
}

/// Options of `lithe index`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct IndexArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with an index.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Create one, and fill it with what the keyspace has
    Create {
        /// Its name
        name: String,
        /// Which index keys an entry has
        #[arg(long, value_name = "NAME")]
        extractor: String,
        /// Refuse to have an index key twice
        #[arg(long)]
        unique: bool,
    },
    /// Drop one; the keyspace stays as it is
    Drop {
        /// Its name
        name: String,
    },
    /// Build one anew, beside the one there is
    Rebuild {
        /// Its name
        name: String,
    },
    /// Go on with building one where that was interrupted
    Build {
        /// Its name
        name: String,
    },
    /// Print index keys, and the keys of the entries that have them
    Scan(ScanArgs),
}

/// Options of `lithe index scan`.
#[derive(Args, Debug)]
pub struct ScanArgs {
    /// The index's name
    pub name: String,

    /// Only this index key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["prefix", "from", "to"])]
    pub key: Option<std::ffi::OsString>,

    /// The range of index keys.
    #[command(flatten)]
    pub range: RangeArgs,

    /// From the last index key to the first
    #[arg(long)]
    pub reverse: bool,

    /// At most so many rows
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<u64>,

    /// Print the values of the entries, too
    #[arg(long)]
    pub values: bool,

    /// How rows are written
    #[arg(long, value_name = "FORMAT", default_value = "escaped")]
    pub format: ScanFormat,
}

/// How rows of an index are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScanFormat {
    /// Index key, key and value with \xNN and \\, between tabs
    Escaped,
    /// Two hexadecimal digits per byte, between tabs
    Hex,
    /// One object per line: `index_key`, `key`, `value`
    Jsonl,
}

/// Prints the indexes.
pub fn run_list(globals: &Globals, args: &IndexesArgs) -> Outcome {
    let db = open_to_read(globals)?;
    let keyspace = db.keyspace(args.name.as_deref().unwrap_or(&globals.keyspace))?;
    let mut out = stdout();
    let mut listed = Vec::new();
    for info in keyspace.indexes()? {
        let entries = match info.is_ready {
            true => Some(keyspace.index(&info.name)?.count::<&[u8]>(..)?),
            false => None,
        };
        listed.push((info, entries));
    }
    match args.format {
        IndexesFormat::Table => write!(out, "{}", table_of(&listed))?,
        IndexesFormat::Jsonl => {
            for (info, entries) in &listed {
                writeln!(out, "{}", json_line(&json_of(info, *entries)))?;
            }
        }
    }
    Ok(out.flush()?)
}

fn table_of(listed: &[(IndexInfo, Option<u64>)]) -> Table {
    let mut table = Table::new(&["name", "extractor", ">entries", "keys", "state"]);
    for (info, entries) in listed {
        let state = match (info.is_ready, info.is_building, info.has_extractor) {
            (_, _, false) => "extractor missing",
            (true, false, true) => "ready",
            (true, true, true) => "ready, being rebuilt",
            (false, _, true) => "not ready",
        };
        table.row([
            info.name.escape_debug().to_string(),
            info.extractor.escape_debug().to_string(),
            entries.map_or_else(|| "-".to_owned(), count_text),
            if info.is_unique { "unique" } else { "any" }.to_owned(),
            state.to_owned(),
        ]);
    }
    table
}

fn json_of(info: &IndexInfo, entries: Option<u64>) -> Value {
    json!({
        "name": info.name,
        "extractor": info.extractor,
        "has_extractor": info.has_extractor,
        "unique": info.is_unique,
        "ready": info.is_ready,
        "building": info.is_building,
        "entries": entries,
    })
}

/// Does what was asked for.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &IndexArgs,
) -> Outcome {
    let purpose = match args.action {
        Action::Scan(_) => Purpose::Read,
        _ => Purpose::Change,
    };
    let (db, keyspace) = open_keyspace(globals, purpose)?;
    match &args.action {
        Action::Create { name, extractor, unique } => {
            let options = match unique {
                true => IndexOptions::new().unique(),
                false => IndexOptions::new(),
            };
            let build =
                |go_on: GoOn<'_>| keyspace.create_index_while(name, extractor, options, go_on);
            let created = format!("created index {name:?}");
            built(&db, (notices, interrupt), &created, build).map_err(unknown_extractor)
        }
        Action::Rebuild { name } => {
            let build = |go_on: GoOn<'_>| keyspace.rebuild_index_while(name, go_on);
            built(&db, (notices, interrupt), &format!("rebuilt index {name:?}"), build)
        }
        Action::Build { name } => {
            let build = |go_on: GoOn<'_>| keyspace.build_index_while(name, go_on);
            built(&db, (notices, interrupt), &format!("built index {name:?}"), build)
        }
        Action::Drop { name } => {
            keyspace.drop_index(name)?;
            close(&db)?;
            notices.say(format!("dropped index {name:?}"));
            Ok(())
        }
        Action::Scan(args) => scan(&keyspace, args),
    }
}

/// Of an index that is not made yet, nobody has an extractor that this program does not have.
fn unknown_extractor(failure: Failure) -> Failure {
    match failure {
        Failure::Store(Error::ExtractorMissing { name }) => Failure::usage(format!(
            "there is no extractor {name:?}: there are `value`, `value_prefix:N` and \
             `field:SEPARATOR:N`, with N from 1 on; programs that have others make indexes of them"
        )),
        other => other,
    }
}

type GoOn<'a> = &'a mut dyn FnMut(&IndexBuildReport) -> ControlFlow<()>;

/// Builds an index until it is ready or the user has had enough.
fn built(
    db: &Opened,
    (notices, interrupt): (Notices, &Interrupt),
    done: &str,
    build: impl FnOnce(GoOn<'_>) -> lithedb::Result<IndexBuildReport>,
) -> Outcome {
    interrupt.graceful();
    let report = build(&mut |_| match interrupt.is_raised() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })?;
    close(db)?;
    if report.is_cancelled {
        return Err(Failure::Interrupted);
    }
    let (read, put) = (count_text(report.entries_read), count_text(report.entries_put));
    notices.say(format!("{done}: {read} entries read, {put} put into the index"));
    Ok(())
}

fn scan(keyspace: &Keyspace, args: &ScanArgs) -> Outcome {
    let index = keyspace.index(&args.name)?;
    let Some(entries) = entries_of(&index, args)? else { return Ok(()) };
    let limit = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let mut out = stdout();
    let entries: Box<dyn Iterator<Item = _>> = match args.reverse {
        true => Box::new(entries.rev()),
        false => Box::new(entries),
    };
    for entry in entries.take(limit) {
        let entry = entry?;
        let value = args.values.then(|| entry.value()).transpose()?;
        write_row(&mut out, &entry, value.as_ref(), args.format)?;
    }
    Ok(out.flush()?)
}

/// The entries that the options ask for; `None` when none can be.
fn entries_of(index: &Index, args: &ScanArgs) -> Result<Option<lithedb::IndexIter>, Failure> {
    if let Some(key) = &args.key {
        let key = args.range.key_format.parse(key);
        let key = key.map_err(|what| Failure::usage(format!("--key: {what}")))?;
        return Ok(Some(index.get(key)));
    }
    Ok(args.range.key_range()?.map(|KeyRange { start, end }| index.range((start, end))))
}

fn write_row(
    out: &mut impl Write,
    entry: &IndexEntry,
    value: Option<&Slice>,
    format: ScanFormat,
) -> Outcome {
    let parts = [Some(entry.index_key()), Some(entry.primary_key()), value.map(|value| &**value)];
    let parts = parts.into_iter().flatten().enumerate();
    match format {
        ScanFormat::Escaped | ScanFormat::Hex => {
            for (number, part) in parts {
                if number > 0 {
                    out.write_all(b"\t")?;
                }
                match format {
                    ScanFormat::Hex => crate::notation::write_hex(out, part)?,
                    _ => crate::notation::write_escaped(out, part)?,
                }
            }
        }
        ScanFormat::Jsonl => {
            for (number, part) in parts {
                let (open, name) = [("{", "index_key"), (",", "key"), (",", "value")][number];
                write!(out, "{open}\"{name}\":")?;
                write_json_bytes(out, part)?;
            }
            out.write_all(b"}")?;
        }
    }
    Ok(out.write_all(b"\n")?)
}
