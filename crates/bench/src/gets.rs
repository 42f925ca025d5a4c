//! Point reads: what W4, W8 and W10 have in common.
//!
//! Keys are made before, and values are checked after, each chunk of reads: the clock runs only
//! while the engine reads (and copies the value out).

use crate::clock::Stopwatch;
use crate::data::{KeyShape, MISS_FIRST, VERSION_LOAD, ValueChecker, operation, pick};
use crate::engine::{Engine, Result, View, wrong};
use crate::threads::on_threads;
use crate::zipf::Zipf;
use std::time::Duration;

/// Reads between two looks at the clock, and the bytes of values that they may copy.
const CHUNK_LEN: u64 = 256;
const CHUNK_SIZE: u64 = 64 << 10;

/// Which keys are read.
#[derive(Clone, Copy, Debug)]
pub enum Choice<'a> {
    /// Each equally often.
    Uniform,
    /// Popular ones more often.
    Zipf(&'a Zipf),
    /// Keys that are not there.
    Misses,
}

/// Where they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The newest state, each read by itself.
    Newest,
    /// One snapshot per thread.
    OneView,
}

/// A number of reads.
#[derive(Clone, Copy, Debug)]
pub struct Gets<'a> {
    /// Names the sequence of random choices.
    pub stream: u64,
    /// Reads of all threads together.
    pub count: u64,
    /// Threads.
    pub threads: u64,
    /// The store holds keys `0..keys`.
    pub keys: u64,
    /// Bytes of a value.
    pub value_len: usize,
    /// Versions that a value may be of.
    pub versions: &'a [u64],
    /// Which keys.
    pub choice: Choice<'a>,
    /// Where.
    pub source: Source,
}

/// What reading took.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Reads of all threads.
    pub count: u64,
    /// Time in the engine of the busiest thread.
    pub busy: Duration,
    /// Sum of the last bytes of all values.
    pub checksum: u64,
}

impl<'a> Gets<'a> {
    /// Uniform reads of the newest state, on one thread, of a store as a load leaves it.
    pub fn uniform(stream: u64, count: u64, keys: u64, value_len: usize) -> Gets<'a> {
        Gets {
            stream,
            count,
            threads: 1,
            keys,
            value_len,
            versions: &[VERSION_LOAD],
            choice: Choice::Uniform,
            source: Source::Newest,
        }
    }
}

impl Gets<'_> {
    /// Reads, and checks each value.
    ///
    /// # Errors
    /// If a value is missing, wrong or should not be there; or whatever the engine reports.
    pub fn run<E: Engine>(&self, engine: &E) -> Result<Read> {
        let (threads, _) = on_threads(self.threads, |thread| match self.source {
            Source::Newest => self.run_thread(thread, |key, out| engine.get(key, out)),
            Source::OneView => {
                let mut view = engine.view()?;
                self.run_thread(thread, |key, out| view.get(key, out))
            }
        })?;
        let mut all = Read { count: 0, busy: Duration::ZERO, checksum: 0 };
        for read in threads {
            all.count += read.count;
            all.busy = all.busy.max(read.busy);
            all.checksum = all.checksum.wrapping_add(read.checksum);
        }
        Ok(all)
    }

    fn run_thread(
        &self,
        thread: u64,
        mut get: impl FnMut(&[u8], &mut Vec<u8>) -> Result<bool>,
    ) -> Result<Read> {
        let count = self.count.div_ceil(self.threads);
        let chunk_len = (CHUNK_SIZE / self.value_len.max(1) as u64).clamp(1, CHUNK_LEN);
        let mut watch = Stopwatch::default();
        let mut chunk = Chunk::default();
        let mut done = 0;
        while done < count {
            let end = count.min(done + chunk_len);
            chunk.prepare((done..end).map(|j| self.index(operation(self.stream, thread, j))));
            watch.time(|| chunk.read(&mut get))?;
            chunk.check(self)?;
            done = end;
        }
        Ok(Read { count, busy: watch.total(), checksum: chunk.checksum })
    }

    fn index(&self, x: u64) -> u64 {
        match self.choice {
            Choice::Uniform => pick(x, self.keys),
            Choice::Zipf(zipf) => zipf.index(x),
            Choice::Misses => MISS_FIRST + pick(x, self.keys),
        }
    }
}

/// A few reads: keys before, values after.
#[derive(Debug, Default)]
struct Chunk {
    indexes: Vec<u64>,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Where each value ends; `None` for a key that was not found.
    ends: Vec<Option<usize>>,
    checker: ValueChecker,
    checksum: u64,
}

impl Chunk {
    fn prepare(&mut self, indexes: impl Iterator<Item = u64>) {
        self.indexes.clear();
        self.keys.clear();
        self.values.clear();
        self.ends.clear();
        for index in indexes {
            self.indexes.push(index);
            KeyShape::Random16.append(index, &mut self.keys);
        }
    }

    #[inline]
    fn read(&mut self, get: &mut impl FnMut(&[u8], &mut Vec<u8>) -> Result<bool>) -> Result<()> {
        for key in self.keys.chunks_exact(KeyShape::Random16.key_len()) {
            let found = get(key, &mut self.values)?;
            self.ends.push(found.then_some(self.values.len()));
        }
        Ok(())
    }

    fn check(&mut self, gets: &Gets<'_>) -> Result<()> {
        let mut start = 0;
        for (&index, &end) in self.indexes.iter().zip(&self.ends) {
            match (gets.choice, end) {
                (Choice::Misses, None) => {}
                (Choice::Misses, Some(_)) => return wrong(format!("key {index}: found a miss")),
                (_, None) => return wrong(format!("key {index}: not found")),
                (_, Some(end)) => {
                    let value = &self.values[start..end];
                    let version = self.checker.version_of(index, value, gets.versions);
                    if value.len() != gets.value_len || version.is_none() {
                        return wrong(format!("key {index}: wrong value"));
                    }
                    let last = value.last().copied().unwrap_or(0);
                    self.checksum = self.checksum.wrapping_add(u64::from(last));
                    start = end;
                }
            }
        }
        Ok(())
    }
}
