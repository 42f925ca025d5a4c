//! fjall as an engine under test.
//!
//! Settings
//! - Memory: three quarters of the budget for the block cache, memtables of an eighth (fjall
//!   recommends 8 to 64 MiB): one that fills and one that is written out make the last quarter.
//! - No compression, or LZ4 at all levels where values repeat.
//! - Without sync, each write goes to the operating system before it returns (default); with sync,
//!   `PersistMode::SyncData`, which is fdatasync.
//! - Values apart (W10): `KvSeparationOptions`, its defaults but for the threshold.
//! - Everything else is default: leveled compaction, 4 KiB blocks, bloom filters, a worker per
//!   core.
//! - Gets return slices that share the block's or memtable's memory and are copied once.
//! - To flush and to compact there are only functions hidden from the documentation; they are used
//!   off the clock of the loads, for the sizes.

use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    Readable, Snapshot,
};
use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk, values_repeat};
use peer::{About, Safety, version_of};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const KEYSPACE: &str = "bench";
/// Of four parts of the budget.
const CACHE_QUARTERS: u64 = 3;
const MEMTABLE_SHARE: u64 = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    peer::main::<Fjall>(&About {
        version: version_of("fjall"),
        structure: "LSM tree",
        safety: Safety::Kill,
        settings: &[
            "Block cache of 3/4 of the budget, memtables of 1/8.",
            "No compression; with sync, SyncData (fdatasync).",
            "W10, values apart: KvSeparationOptions with its defaults.",
        ],
    })
}

/// A database with one keyspace.
struct Fjall {
    keyspace: Keyspace,
    db: Database,
}

struct FjallView<'a> {
    keyspace: &'a Keyspace,
    snapshot: Snapshot,
}

impl View for FjallView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.snapshot.get(self.keyspace, key)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        let mut show = |guard: fjall::Guard| {
            let (key, value) = guard.into_inner()?;
            visit(&key, &value);
            count += 1;
            Result::Ok(())
        };
        match walk {
            Walk::Forward => self.snapshot.iter(self.keyspace).try_for_each(&mut show)?,
            Walk::Reverse => self.snapshot.iter(self.keyspace).rev().try_for_each(&mut show)?,
            Walk::From { key, limit } => {
                let entries = self.snapshot.range(self.keyspace, key..);
                entries.take(limit as usize).try_for_each(&mut show)?;
            }
        }
        Ok(count)
    }
}

impl Fjall {
    fn open_with(dir: &Path, memory: Memory, apart: Option<KvSeparationOptions>) -> Result<Fjall> {
        let mut builder = Database::builder(dir);
        let codec = match values_repeat() {
            true => CompressionType::Lz4,
            false => CompressionType::None,
        };
        let mut options = KeyspaceCreateOptions::default()
            .data_block_compression_policy(CompressionPolicy::all(codec))
            .with_kv_separation(apart);
        if let Memory::Bytes(bytes) = memory {
            builder = builder.cache_size(bytes / 4 * CACHE_QUARTERS);
            options = options.max_memtable_size(bytes / MEMTABLE_SHARE);
        }
        let db = builder.open()?;
        let keyspace = db.keyspace(KEYSPACE, || options)?;
        Ok(Fjall { keyspace, db })
    }

    fn persist(&self, commit: Commit) -> Result<()> {
        match commit {
            Commit::Buffered => Ok(()), // Each write has reached the operating system already.
            Commit::Durable => Ok(self.db.persist(PersistMode::SyncData)?),
        }
    }
}

impl Engine for Fjall {
    const NAME: &'static str = "fjall";
    const BUFFERED_SURVIVES_KILL: bool = true;
    const VALUES_APART: Offered = Offered::Yes;
    type View<'a> = FjallView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        Fjall::open_with(dir, memory, None)
    }

    fn open_apart(dir: &Path, memory: Memory, from: u32) -> Result<Self> {
        let apart = KvSeparationOptions::default().separation_threshold(from);
        Fjall::open_with(dir, memory, Some(apart))
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        self.keyspace.insert(key, value)?;
        self.persist(commit)
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.db.clone(), records.len())
            .durability(Some(match commit {
                Commit::Buffered => PersistMode::Buffer,
                Commit::Durable => PersistMode::SyncData,
            }));
        for (key, value) in records.iter() {
            batch.insert(&self.keyspace, key, value);
        }
        Ok(batch.commit()?)
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        self.keyspace.remove(key)?;
        self.persist(commit)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.keyspace.get(key)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn view(&self) -> Result<FjallView<'_>> {
        Ok(FjallView { keyspace: &self.keyspace, snapshot: self.db.snapshot() })
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    /// The memtable to a table, and the compactions that this asks for.
    fn flush(&self) -> Result<Offered> {
        self.keyspace.rotate_memtable_and_wait()?;
        while self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0 {
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Offered::Yes)
    }

    fn compact(&self) -> Result<Offered> {
        self.keyspace.major_compact()?;
        Ok(Offered::Yes)
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![("journals", self.db.journal_count() as f64)]
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
