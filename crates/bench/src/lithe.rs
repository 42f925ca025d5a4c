//! LitheDB as an engine under test: one keyspace, with the default options of its structure.

use crate::data::values_repeat;
use crate::engine::{Commit, Engine, Memory, Offered, Result, View, Walk};
use crate::records::Records;
use lithedb::{
    Builder, Codec, Compaction, Cursor, Db, Durability, Encryption, Error, KeyRange, Keyspace,
    KeyspaceOptions, Leveled, Snapshot, WriteBatch,
};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

const KEYSPACE: &str = "bench";
/// Of encrypted stores, which keep no secrets. Of 32 bytes, so that opening does not take the time
/// of a passphrase.
const KEY: [u8; 32] = *b"a key for benchmarks, no secret.";

/// A structure under test.
pub trait Shape: fmt::Debug + Send + Sync + 'static {
    /// The name that results have.
    const NAME: &'static str;
    /// .. and those of the same, encrypted.
    const ENCRYPTED_NAME: &'static str;
    /// Whether databases are encrypted.
    const IS_ENCRYPTED: bool = false;
    /// Settings over which writing, reading and room are traded.
    const TRADES: &'static [f64];

    /// Its default options.
    fn options() -> KeyspaceOptions;

    /// Its options with a setting out of [`Shape::TRADES`].
    fn options_at(setting: f64) -> KeyspaceOptions;
}

/// The default structure.
#[derive(Debug)]
pub struct InFlex;

impl Shape for InFlex {
    const NAME: &'static str = "lithedb";
    const ENCRYPTED_NAME: &'static str = "lithedb-encrypted";
    /// Of `consolidation_pace`, whose default is 0.5.
    const TRADES: &'static [f64] = &[0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 4.0];

    fn options() -> KeyspaceOptions {
        KeyspaceOptions::flex()
    }

    fn options_at(setting: f64) -> KeyspaceOptions {
        KeyspaceOptions::flex().consolidation_pace(setting as f32)
    }
}

/// Tables in levels.
#[derive(Debug)]
pub struct InLsm;

impl Shape for InLsm {
    const NAME: &'static str = "lithedb-lsm";
    const ENCRYPTED_NAME: &'static str = "lithedb-lsm-encrypted";
    /// Of `level_ratio`, whose default is 10.
    const TRADES: &'static [f64] = &[3.0, 5.0, 8.0, 10.0, 15.0, 20.0];

    fn options() -> KeyspaceOptions {
        KeyspaceOptions::lsm()
    }

    fn options_at(setting: f64) -> KeyspaceOptions {
        let leveled = Leveled::new().level_ratio(setting as f32);
        KeyspaceOptions::lsm().compaction(Compaction::Leveled(leveled))
    }
}

/// The present and every version of it.
#[derive(Debug)]
pub struct InHistory;

impl Shape for InHistory {
    const NAME: &'static str = "lithedb-history";
    const ENCRYPTED_NAME: &'static str = "lithedb-history-encrypted";
    const TRADES: &'static [f64] = &[];

    fn options() -> KeyspaceOptions {
        KeyspaceOptions::history()
    }

    fn options_at(_setting: f64) -> KeyspaceOptions {
        KeyspaceOptions::history()
    }
}

/// The same in databases that are encrypted.
#[derive(Debug)]
pub struct Encrypted<S>(PhantomData<S>);

impl<S: Shape> Shape for Encrypted<S> {
    const NAME: &'static str = S::ENCRYPTED_NAME;
    const ENCRYPTED_NAME: &'static str = S::ENCRYPTED_NAME;
    const IS_ENCRYPTED: bool = true;
    const TRADES: &'static [f64] = S::TRADES;

    fn options() -> KeyspaceOptions {
        S::options()
    }

    fn options_at(setting: f64) -> KeyspaceOptions {
        S::options_at(setting)
    }
}

/// A database with one keyspace of the default structure.
pub type Lithe = LitheIn<InFlex>;
/// A database with one keyspace of tables in levels.
pub type LitheLsm = LitheIn<InLsm>;
/// A database with one keyspace that keeps every version.
pub type LitheHistory = LitheIn<InHistory>;

/// A database with one keyspace.
#[derive(Debug)]
pub struct LitheIn<S> {
    db: Db,
    keyspace: Keyspace,
    shape: PhantomData<S>,
}

impl<S: Shape> LitheIn<S> {
    fn with(memory: Memory, dir: &Path, options: KeyspaceOptions) -> Result<Self> {
        let builder = match S::IS_ENCRYPTED {
            true => builder(memory).encryption(Encryption::key(KEY)),
            false => builder(memory),
        };
        let db = builder.open(dir)?;
        let keyspace = match db.keyspace(KEYSPACE) {
            Err(Error::KeyspaceNotFound { .. }) => {
                let codec = if values_repeat() { Codec::Lz4 } else { Codec::None };
                db.create_keyspace(KEYSPACE, options.codec(codec))?
            }
            found => found?,
        };
        Ok(LitheIn { db, keyspace, shape: PhantomData })
    }
}

/// A snapshot, and the cursor on it once something was scanned.
#[derive(Debug)]
pub struct LitheView<'a> {
    keyspace: &'a Keyspace,
    snapshot: Snapshot,
    cursor: Option<Cursor>,
}

fn builder(memory: Memory) -> Builder {
    match memory {
        Memory::EngineDefault => Db::builder(),
        Memory::Bytes(bytes) => Db::builder().memory_budget(bytes),
    }
}

fn durability(commit: Commit) -> Durability {
    match commit {
        Commit::Buffered => Durability::Buffered,
        Commit::Durable => Durability::Sync,
    }
}

impl View for LitheView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.snapshot.get(self.keyspace, key)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn get_many(
        &mut self,
        keys: &[Vec<u8>],
        values: &mut Vec<u8>,
        ends: &mut Vec<Option<usize>>,
    ) -> Result<()> {
        for found in self.snapshot.multi_get(self.keyspace, keys)? {
            ends.push(found.map(|value| {
                values.extend_from_slice(&value);
                values.len()
            }));
        }
        Ok(())
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let cursor =
            self.cursor.get_or_insert_with(|| self.snapshot.cursor(self.keyspace, KeyRange::all()));
        let mut count = 0;
        match walk {
            Walk::Forward => {
                cursor.seek_first()?;
                while cursor.valid() {
                    visit(cursor.key(), cursor.value()?);
                    count += 1;
                    cursor.next()?;
                }
            }
            Walk::Reverse => {
                cursor.seek_last()?;
                while cursor.valid() {
                    visit(cursor.key(), cursor.value()?);
                    count += 1;
                    cursor.prev()?;
                }
            }
            Walk::From { key, limit } => {
                cursor.seek(key)?;
                while cursor.valid() && count < limit {
                    visit(cursor.key(), cursor.value()?);
                    count += 1;
                    cursor.next()?;
                }
            }
        }
        Ok(count)
    }
}

impl<S: Shape> Engine for LitheIn<S> {
    const NAME: &'static str = S::NAME;
    const BUFFERED_SURVIVES_KILL: bool = true;
    const TRADES: &'static [f64] = S::TRADES;
    const VALUES_APART: Offered = Offered::Yes;
    type View<'a> = LitheView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        LitheIn::with(memory, dir, S::options())
    }

    fn open_at(dir: &Path, memory: Memory, setting: f64) -> Result<Self> {
        LitheIn::with(memory, dir, S::options_at(setting))
    }

    fn open_apart(dir: &Path, memory: Memory, from: u32) -> Result<Self> {
        LitheIn::with(memory, dir, S::options().value_separation(Some(from)))
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        self.keyspace.put_with(key, value, durability(commit))?;
        Ok(())
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in records.iter() {
            batch.put(&self.keyspace, key, value);
        }
        self.db.write_with(batch, durability(commit))?;
        Ok(())
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        self.keyspace.delete_with(key, durability(commit))?;
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.keyspace.get(key)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn view(&self) -> Result<LitheView<'_>> {
        let snapshot = self.db.snapshot();
        Ok(LitheView { keyspace: &self.keyspace, snapshot, cursor: None })
    }

    fn delete_range(&self, from: &[u8], to: &[u8], commit: Commit) -> Result<Offered> {
        let mut batch = WriteBatch::new();
        batch.delete_range(&self.keyspace, from..to);
        self.db.write_with(batch, durability(commit))?;
        Ok(Offered::Yes)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.sync()?)
    }

    fn flush(&self) -> Result<Offered> {
        self.db.flush()?;
        Ok(Offered::Yes)
    }

    fn compact(&self) -> Result<Offered> {
        self.db.compact()?;
        Ok(Offered::Yes)
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let stats = self.db.stats();
        vec![
            ("own_write_amplification", stats.write_amplification()),
            ("own_space_amplification", stats.space_amplification()),
            ("stalls", stats.stalls as f64),
            ("stall_s", stats.stall_time.as_secs_f64()),
            ("slowdown_s", stats.slowdown_time.as_secs_f64()),
            ("wal_syncs", stats.wal_syncs as f64),
            ("memory_memtable", stats.memory_memtable as f64),
            ("memory_cache", stats.memory_cache as f64),
            ("memory_index", stats.memory_index as f64),
        ]
    }

    fn close(self) -> Result<()> {
        self.db.close()?;
        Ok(())
    }
}
