//! Writing in batches: what loads and overwrites have in common.

use crate::clock::{Stopwatch, now};
use crate::data::{KeyShape, VERSION_LOAD};
use crate::engine::{Commit, Engine, Result};
use crate::records::Records;
use std::time::Duration;

/// Entries of a batch where a workload does not say otherwise.
pub const BATCH_LEN: u64 = 1000;
/// Bytes of a value of the W3 store.
pub const VALUE_LEN: usize = 100;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    /// Keys.
    pub shape: KeyShape,
    /// Bytes of a value.
    pub value_len: usize,
    /// Version of the values.
    pub version: u64,
    /// Entries of a batch.
    pub batch_len: u64,
}

impl Writes {
    /// Like W3: 100 bytes a value, load version, batches of 1000.
    pub fn load(shape: KeyShape) -> Writes {
        Writes { shape, value_len: VALUE_LEN, version: VERSION_LOAD, batch_len: BATCH_LEN }
    }

    /// Bytes of an entry.
    pub fn entry_size(&self) -> u64 {
        (self.shape.key_len() + self.value_len) as u64
    }

    /// Writes operations `0..count` in unsynced batches, operation `j` to the key with index
    /// `index_of(j)`, then syncs once. After each batch `between` learns, off the clock, how many
    /// operations are done.
    ///
    /// # Errors
    /// Whatever the engine or `between` reports.
    pub fn run<E: Engine>(
        &self,
        engine: &E,
        count: u64,
        index_of: impl Fn(u64) -> u64,
        mut between: impl FnMut(u64) -> Result<()>,
    ) -> Result<Written> {
        let (start, mut watch, mut sync) = (now(), Stopwatch::default(), Stopwatch::default());
        let mut records = Records::default();
        let mut done = 0;
        while done < count {
            let end = count.min(done + self.batch_len);
            records.refill(self.shape, (done..end).map(&index_of), self.value_len, self.version);
            watch.time(|| engine.put_batch(&records, Commit::Buffered))?;
            done = end;
            between(done)?;
        }
        sync.time(|| engine.sync())?;
        Ok(Written {
            busy: watch.total() + sync.total(),
            sync: sync.total(),
            wall: start.elapsed(),
        })
    }

    /// Writes entries `0..count` in the order of their indexes.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn run_in_order<E: Engine>(&self, engine: &E, count: u64) -> Result<Written> {
        self.run(engine, count, |index| index, |_| Ok(()))
    }
}

/// How long writing took.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// In the engine, with the sync at the end.
    pub busy: Duration,
    /// The sync at the end.
    pub sync: Duration,
    /// From begin to end, with making the data and what happened between batches.
    pub wall: Duration,
}
