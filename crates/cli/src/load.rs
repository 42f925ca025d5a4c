//! `lithe load`: puts the records of a file or of standard input into a keyspace.
//!
//! Invariants
//! - L1  A number of rows is acknowledged on standard output only after all of them are durable,
//!   and they are always the first rows of the input.
//! - L2  After an interruption or a bad record what was loaded so far is durable, and its number
//!   is said; with `--ingest` that is nothing.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lithedb::{Db, Durability, KEY_LEN_MAX, Keyspace, WriteBatch};

use crate::args::Globals;
use crate::database::{close, open_or_create_keyspace};
use crate::failure::{Failure, Outcome};
use crate::input::{
    Header, InputFormat, KeyField, RecordOptions, Records, ValueField, open_source, records,
};
use crate::interrupt::Interrupt;
use crate::notation::{bytes_text, count_text, duration_text, rate_text};
use crate::output::Notices;
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

Input is bytes, not text: nothing needs to be UTF-8. Later records replace earlier ones of the same
key. In NDJSON, {\"hex\": \"00ff\"} as the key or value stands for those bytes, as `scan --format
jsonl` writes them.

With --ingest, of input that is sorted by key (as bytes, each key once), all rows become visible
and durable together at the end, or none: they are written once, past log and memory. It is the
fastest way to load. `LC_ALL=C sort -u` sorts lines so.

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

    /// What the input looks like
    #[arg(long, value_name = "FORMAT", default_value = "lines")]
    pub format: InputFormat,

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

    /// Print the number of durable rows whenever it has grown
    #[arg(long)]
    pub ack: bool,
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
    let source = open_source(&args.file)?;
    let progress = Progress::start(notices, source.size());
    let mut records = records(source, &record_options(args))?;
    let (db, keyspace) = open_or_create_keyspace(globals)?;
    interrupt.graceful();
    let mut load = Load {
        db: &db,
        keyspace: &keyspace,
        args,
        batch: WriteBatch::new(),
        done: Done::default(),
        acknowledged: 0,
        progress,
    };
    let loaded = match args.ingest {
        true => load.ingest(records.as_mut(), interrupt),
        false => load.load(records.as_mut(), interrupt),
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

fn record_options(args: &LoadArgs) -> RecordOptions {
    RecordOptions {
        format: args.format,
        key: args.key.clone(),
        value: args.value.clone(),
        header: if args.no_header { Header::Absent } else { Header::Present },
    }
}

/// A load under way.
struct Load<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    args: &'a LoadArgs,
    batch: WriteBatch,
    /// What was committed.
    done: Done,
    /// The number printed last.
    acknowledged: u64,
    progress: Progress,
}

impl Load<'_> {
    /// Commits batch after batch until the input ends. A failure loses only the open batch.
    fn load(&mut self, records: &mut dyn Records, interrupt: &Interrupt) -> Outcome {
        let mut rows = self.done.rows;
        while let Some(record) = records.next()? {
            rows += 1;
            check_key(rows, record.key)?;
            self.batch.put(self.keyspace, record.key, record.value);
            if rows - self.done.rows >= self.args.batch.get() || self.batch.size() >= BATCH_SIZE_MAX
            {
                self.commit(Done { rows, bytes: records.bytes_read() })?;
                if interrupt.is_raised() {
                    return Err(Failure::Interrupted);
                }
            }
        }
        self.commit(Done { rows, bytes: records.bytes_read() })?;
        // Ctrl-C reaches the program at the other end of a pipe too: the input may be cut short.
        if interrupt.is_raised() { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Ingests all records, or none.
    fn ingest(&mut self, records: &mut dyn Records, interrupt: &Interrupt) -> Outcome {
        let mut ingest = self.keyspace.begin_ingest()?;
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
                if interrupt.is_raised() {
                    return Err(Failure::Interrupted);
                }
            }
        }
        // Ctrl-C reaches the program at the other end of a pipe too: the input may be cut short.
        if interrupt.is_raised() {
            return Err(Failure::Interrupted);
        }
        ingest.finish()?;
        self.done = Done { rows, bytes: records.bytes_read() };
        Ok(())
    }

    fn commit(&mut self, done: Done) -> Outcome {
        let durability = match self.args.sync {
            Sync::Each => Durability::Sync,
            Sync::End => Durability::Buffered,
        };
        self.db.write_with(std::mem::take(&mut self.batch), durability)?;
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
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", self.acknowledged)?;
        Ok(stdout.flush()?)
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
