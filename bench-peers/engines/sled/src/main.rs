//! sled (the rewrite that will be 1.0) as an engine under test.
//!
//! Settings
//! - Memory: the whole budget is its cache (`cache_capacity_bytes`).
//! - Without sync, changes wait in memory for the flush that runs every 200 ms (default): a killed
//!   process loses what was written since. Hence it is not counted in tables of unsynced writes.
//! - With sync, `flush` after the write: threads that wait share one.
//! - Leaves of 128 entries (`LEAF_FANOUT`; its documentation uses 1024): a leaf is read and written
//!   as a whole.
//! - Compression cannot be turned off: zstd runs at its fastest level.
//! - There are no snapshots: a view is the tree itself. No range delete, no compaction to call.

use lithe_bench::{Commit, Engine, Memory, Records, Result, View, Walk};
use peer::{About, Safety, version_of};
use sled::{Batch, Config, Db};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use thread_local::ThreadLocal;

const LEAF_FANOUT: usize = 128;
/// The least that zstd takes: next to no work.
const ZSTD_LEVEL: i32 = -131_072;

fn main() -> ExitCode {
    peer::main::<Sled>(&About {
        version: version_of("sled"),
        structure: "B+-tree in memory over a heap of pages",
        safety: Safety::Sync("changes wait in memory for the flush every 200 ms"),
        settings: &[
            "The cache is the whole budget; leaves of 128 entries.",
            "zstd cannot be turned off: it runs at its fastest level.",
            "A view is not a snapshot: sled has none.",
        ],
    })
}

/// A database with its default tree. Its handle is for one thread, and others clone it.
struct Sled {
    handles: ThreadLocal<Db<LEAF_FANOUT>>,
    first: Mutex<Db<LEAF_FANOUT>>,
}

struct SledView<'a> {
    db: &'a Db<LEAF_FANOUT>,
}

impl View for SledView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.db.get(key)?.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        let mut show = |entry: io::Result<(sled::InlineArray, sled::InlineArray)>| {
            let (key, value) = entry?;
            visit(&key, &value);
            count += 1;
            Result::Ok(())
        };
        match walk {
            Walk::Forward => self.db.iter().try_for_each(&mut show)?,
            Walk::Reverse => self.db.iter().rev().try_for_each(&mut show)?,
            Walk::From { key, limit } => {
                self.db.range(key..).take(limit as usize).try_for_each(&mut show)?;
            }
        }
        Ok(count)
    }
}

impl Sled {
    /// The handle of this thread.
    fn db(&self) -> &Db<LEAF_FANOUT> {
        let first = || self.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.handles.get_or(first)
    }

    fn finish(&self, commit: Commit) -> Result<()> {
        match commit {
            Commit::Buffered => Ok(()),
            Commit::Durable => self.sync(),
        }
    }
}

impl Engine for Sled {
    const NAME: &'static str = "sled";
    const BUFFERED_SURVIVES_KILL: bool = false;
    type View<'a> = SledView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        let mut config = Config::new().path(dir).zstd_compression_level(ZSTD_LEVEL);
        if let Memory::Bytes(bytes) = memory {
            config = config.cache_capacity_bytes(bytes as usize);
        }
        Ok(Sled { handles: ThreadLocal::new(), first: Mutex::new(config.open()?) })
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        self.db().insert(key, value)?;
        self.finish(commit)
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        let mut batch = Batch::default();
        for (key, value) in records.iter() {
            batch.insert(key, value);
        }
        self.db().apply_batch(batch)?;
        self.finish(commit)
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        self.db().remove(key)?;
        self.finish(commit)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.db().get(key)?.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn view(&self) -> Result<SledView<'_>> {
        Ok(SledView { db: self.db() })
    }

    fn sync(&self) -> Result<()> {
        self.db().flush()?;
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.sync()
    }
}
