//! `lithe load`: puts the records of a file or of standard input into a keyspace, or the pairs of a
//! dump into theirs.
//!
//! Invariants
//! - L1  A number of rows is acknowledged on standard output only after all of them are durable,
//!   and they are always the first rows of the input.
//! - L2  After an interruption or a bad record what was loaded so far is durable, and its number
//!   is said; with `--ingest` that is nothing.

mod dump;
mod table;

use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lithedb::{Codec, Db, Durability, KEY_LEN_MAX, Keyspace, WriteBatch};

use crate::args::Globals;
use crate::database::{close, open_or_create, open_or_create_keyspace};
use crate::dump::{self as dumps, DumpReader};
use crate::failure::{Failure, Outcome};
use crate::input::{
    Header, InputFormat, KeyField, RecordOptions, Records, Source, ValueField, open_source, records,
};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text, duration_text, parse_small_size, rate_text};
use crate::output::{Notices, stdout};
use crate::progress::{Done, Progress, megabytes_per_second};

/// A batch of large records is committed before it has `--batch` rows.
const BATCH_SIZE_MAX: usize = 8 << 20;

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe load words.txt
  find / -xdev | lithe --db my.lithe load --value line-number -
  lithe --db my.lithe --keyspace users load --format csv --key id --value email users.csv
  lithe --db my.lithe load --format ndjson --key id --value line events.ndjson
  lithe --db a.lithe scan --format jsonl | lithe --db b.lithe load --format ndjson --value value -
  lithe --db a.lithe dump --all | lithe --db b.lithe load -
  lithe load --table words.tbl --codec lz4 words.txt

Input is bytes, not text: nothing needs to be UTF-8. Later records replace earlier ones of the same
key. In NDJSON, {\"hex\": \"00ff\"} as the key or value stands for those bytes, as `scan --format
jsonl` writes them.

A dump is known by its first line. Its pairs go to the keyspaces that it names, which are created
with its options when they are not there, or to the one that --keyspace names, if it has only one.

With --ingest, of input that is sorted by key (as bytes, each key once), all rows become visible
and durable together at the end, or none: they are written once, past log and memory. It is the
fastest way to load. `LC_ALL=C sort -u` sorts lines so.

With --table, such input becomes a table file and no database is needed: `lithe ingest` makes it,
with others, part of a keyspace. For an encrypted one, name database and key: the table is sealed.

With --sync end (the default) everything becomes durable together at the end; with --sync each,
batch by batch. --ack prints on standard output, whenever more has become durable, how many of
the first rows of the input now are.";

/// Options of `lithe load`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LoadArgs {
    /// What to load; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What the input looks like [default: a dump if it begins like one, else lines]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<LoadFormat>,

    /// Field that is the key, by name or number [default: the first; in NDJSON `key`]
    #[arg(long, value_name = "FIELD")]
    pub key: Option<KeyField>,

    /// What the value is: none, line-number, line (the whole record), or a field by name or
    /// number (field:NAME if the name is one of these words) [default: none for lines, else line]
    #[arg(long, value_name = "WHAT")]
    pub value: Option<ValueField>,

    /// The first record of CSV or TSV is data: fields are numbers
    #[arg(long)]
    pub no_header: bool,

    /// Rows in one commit
    #[arg(long, value_name = "ROWS", default_value = "1000")]
    pub batch: NonZeroU64,

    /// When rows become durable
    #[arg(long, value_name = "WHEN", default_value = "end")]
    pub sync: Sync,

    /// Load all or nothing, of input that is sorted by key: the fastest way
    #[arg(long, conflicts_with_all = ["batch", "sync"])]
    pub ingest: bool,

    /// Write the rows, sorted by key, to this new table file and to no database
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["batch", "sync", "ingest", "ack"])]
    pub table: Option<PathBuf>,

    /// How blocks of the table are compressed: none, lz4, snappy, zstd, or zstd:1 to zstd:22
    #[arg(long, value_name = "CODEC", requires = "table", value_parser = parse_codec)]
    pub codec: Option<Codec>,

    /// Size of a dictionary for the table's blocks, with --codec zstd, 256 bytes to 256KiB
    /// [default: none]
    #[arg(long, value_name = "SIZE", requires = "table", value_parser = parse_small_size)]
    pub dictionary_size: Option<u32>,

    /// Print the number of durable rows whenever it has grown
    #[arg(long)]
    pub ack: bool,
}

/// What the input looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// Every line is a key; the value is empty unless --value says otherwise
    Lines,
    /// Comma-separated with quotes (RFC 4180); the first record names the fields
    Csv,
    /// Fields between tabs, no quotes; the first line names the fields
    Tsv,
    /// One JSON object per line
    Ndjson,
    /// What `lithe dump` writes
    Dump,
}

/// When rows become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sync {
    /// Every batch, before the next one is begun
    Each,
    /// All together at the end
    End,
}

/// Loads the input.
pub fn run(globals: &Globals, notices: Notices, interrupt: &Interrupt, args: &LoadArgs) -> Outcome {
    let mut source = open_source(&args.file)?;
    let format = match args.format {
        Some(format) => format,
        None if source.begins_with(dumps::MAGIC.as_bytes())? => LoadFormat::Dump,
        None => LoadFormat::Lines,
    };
    let progress = Progress::start(notices, source.size());
    let input = open_input(source, format, args)?;
    if let Some(path) = &args.table {
        // Of a keyspace that is encrypted, its own is sealed with its database's key.
        let keyspace = match globals.key_source()? {
            Some(_) => Some(open_or_create_keyspace(globals)?),
            None => None,
        };
        let keyspace = keyspace.as_ref().map(|(_, keyspace)| keyspace);
        return table::write(input, (path, keyspace), args, (notices, interrupt), progress);
    }
    let (db, keyspace) = match &input {
        Input::Records(_) => open_or_create_keyspace(globals).map(|(db, it)| (db, Some(it)))?,
        Input::Dump(_) => (open_or_create(globals)?, None),
    };
    interrupt.graceful();
    let (batch, done) = (WriteBatch::new(), Done::default());
    let mut load = Load { db: &db, args, interrupt, batch, done, acknowledged: 0, progress };
    let loaded = match (input, keyspace) {
        (Input::Records(mut records), Some(keyspace)) => match args.ingest {
            true => load.ingest(&keyspace, records.as_mut()),
            false => load.load(&keyspace, records.as_mut()),
        },
        (Input::Dump(dump), _) => dump::load(&mut load, *dump, globals, notices),
        (Input::Records(_), None) => unreachable!("records have a keyspace"),
    };
    let durable = load.finish();
    let (done, elapsed) = (load.done, load.progress.elapsed());
    // Of an ingest that failed, nothing was loaded.
    if durable.is_ok() && (loaded.is_ok() || !args.ingest) {
        let stats = db.stats();
        let waited = stats.stall_time + stats.slowdown_time;
        notices.say(summary(done, elapsed) + &waiting(waited, elapsed));
    }
    // The first failure is the cause; a store that failed would fail to close for the same reason.
    loaded.and(durable).and_then(|()| close(&db))
}

fn parse_codec(text: &str) -> Result<Codec, String> {
    text.parse().map_err(|error: lithedb::Error| error.to_string())
}

/// An input, opened and found to make sense so far.
enum Input {
    Records(Box<dyn Records>),
    Dump(Box<DumpReader>),
}

fn open_input(source: Source, format: LoadFormat, args: &LoadArgs) -> Result<Input, Failure> {
    let format = match format {
        LoadFormat::Lines => InputFormat::Lines,
        LoadFormat::Csv => InputFormat::Csv,
        LoadFormat::Tsv => InputFormat::Tsv,
        LoadFormat::Ndjson => InputFormat::Ndjson,
        LoadFormat::Dump => {
            let fields = args.key.is_some() || args.value.is_some() || args.no_header;
            if fields || args.ingest || args.table.is_some() {
                let what = "a dump takes no --key, --value, --no-header, --ingest and --table";
                return Err(Failure::usage(what));
            }
            return Ok(Input::Dump(Box::new(DumpReader::new(source)?)));
        }
    };
    let options = RecordOptions {
        format,
        key: args.key.clone(),
        value: args.value.clone(),
        header: if args.no_header { Header::Absent } else { Header::Present },
    };
    Ok(Input::Records(records(source, &options)?))
}

/// A load under way.
struct Load<'a> {
    db: &'a Db,
    args: &'a LoadArgs,
    interrupt: &'a Interrupt,
    batch: WriteBatch,
    /// What was committed.
    done: Done,
    /// The number printed last.
    acknowledged: u64,
    progress: Progress,
}

impl Load<'_> {
    /// Commits batch after batch until the input ends, or a record cannot be read: those in front
    /// of it are loaded.
    fn load(&mut self, keyspace: &Keyspace, records: &mut dyn Records) -> Outcome {
        let loaded = self.load_records(keyspace, records);
        self.commit_rest(records.bytes_read(), loaded)
    }

    fn load_records(&mut self, keyspace: &Keyspace, records: &mut dyn Records) -> Outcome {
        let mut rows = self.done.rows;
        while let Some(record) = records.next()? {
            rows += 1;
            check_key(rows, record.key)?;
            self.batch.put(keyspace, record.key, record.value);
            if self.is_batch_full(rows) {
                self.commit(Done { rows, bytes: records.bytes_read() })?;
                self.go_on()?;
            }
        }
        self.commit(Done { rows, bytes: records.bytes_read() })?;
        // Ctrl-C reaches the program at the other end of a pipe too: the input may be cut short.
        self.go_on()
    }

    /// Commits what stands in front of a record that could not be read.
    fn commit_rest(&mut self, bytes: u64, loaded: Outcome) -> Outcome {
        if let Err(Failure::Usage { .. } | Failure::Input { .. }) = loaded {
            let rows = self.done.rows + self.batch.len() as u64;
            self.commit(Done { rows, bytes })?;
        }
        loaded
    }

    /// Whether what was read, with `rows` rows, is to be committed now.
    fn is_batch_full(&self, rows: u64) -> bool {
        rows - self.done.rows >= self.args.batch.get() || self.batch.size() >= BATCH_SIZE_MAX
    }

    /// Unless the user pressed Ctrl-C.
    fn go_on(&self) -> Outcome {
        if self.interrupt.is_raised() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Ingests all records, or none.
    fn ingest(&mut self, keyspace: &Keyspace, records: &mut dyn Records) -> Outcome {
        let mut ingest = keyspace.begin_ingest()?;
        let mut rows = 0;
        while let Some(record) = records.next()? {
            rows += 1;
            check_key(rows, record.key)?;
            ingest.add(record.key, record.value).map_err(|error| match error {
                lithedb::Error::InvalidArgument { what } => {
                    Failure::usage(format!("record {rows}: {what}; nothing was loaded"))
                }
                other => other.into(),
            })?;
            if rows % self.args.batch.get() == 0 {
                self.progress.update(Done { rows, bytes: records.bytes_read() });
                self.go_on()?;
            }
        }
        // Ctrl-C reaches the program at the other end of a pipe too: the input may be cut short.
        self.go_on()?;
        ingest.finish()?;
        self.done = Done { rows, bytes: records.bytes_read() };
        Ok(())
    }

    fn durability(&self) -> Durability {
        match self.args.sync {
            Sync::Each => Durability::Sync,
            Sync::End => Durability::Buffered,
        }
    }

    fn commit(&mut self, done: Done) -> Outcome {
        self.db.write_with(std::mem::take(&mut self.batch), self.durability())?;
        self.committed(done)
    }

    /// Notes what was committed.
    fn committed(&mut self, done: Done) -> Outcome {
        self.done = done;
        if self.args.sync == Sync::Each {
            self.acknowledge()?;
        }
        self.progress.update(done);
        Ok(())
    }

    /// Makes durable what was committed (L2).
    fn finish(&mut self) -> Outcome {
        self.progress.finish();
        self.db.sync()?;
        self.acknowledge()
    }

    /// L1: called only when every row of `done` is durable.
    fn acknowledge(&mut self) -> Outcome {
        if !self.args.ack || self.acknowledged == self.done.rows {
            return Ok(());
        }
        self.acknowledged = self.done.rows;
        let mut out = stdout();
        writeln!(out, "{}", self.acknowledged)?;
        Ok(out.flush()?)
    }
}

fn check_key(row: u64, key: &[u8]) -> Outcome {
    if key.len() <= KEY_LEN_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "record {row}: its key has {} bytes, a key has {KEY_LEN_MAX} at most",
        key.len()
    )))
}

/// `loaded 5,000,000 rows in 6.20 s: 806,451 rows/s, 412.0 MiB of input, 69.7 MB/s`.
fn summary(done: Done, elapsed: Duration) -> String {
    format!(
        "loaded {} rows in {}: {} rows/s, {} of input, {}",
        count_text(done.rows),
        duration_text(elapsed),
        rate_text(done.rows, elapsed),
        bytes_text(done.bytes),
        megabytes_per_second(done.bytes, elapsed)
    )
}

/// `, waited 2.10 s for flushes`, or nothing when that is not worth a word.
fn waiting(waited: Duration, elapsed: Duration) -> String {
    const WORTH_A_WORD: f64 = 0.1;
    if waited.as_secs_f64() < elapsed.as_secs_f64() * WORTH_A_WORD {
        return String::new();
    }
    format!(", waited {} for flushes", duration_text(waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_rows_bytes_and_their_rates() {
        let done = Done { rows: 5_000_000, bytes: 400_000_000 };
        let text = summary(done, Duration::from_secs(8));
        assert_eq!(
            text,
            "loaded 5,000,000 rows in 8.00 s: 625,000 rows/s, 381.5 MiB of input, 50.0 MB/s"
        );
    }

    #[test]
    fn waiting_is_told_when_it_took_a_good_part_of_the_time() {
        let load = Duration::from_secs(10);
        assert_eq!(waiting(Duration::from_millis(900), load), "");
        assert_eq!(waiting(Duration::from_millis(2500), load), ", waited 2.50 s for flushes");
    }
}
