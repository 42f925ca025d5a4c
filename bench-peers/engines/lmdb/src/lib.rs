//! LMDB as an engine under test, by the crate `heed`. Two programs: with the file mapped for
//! reading (default), and with `MDB_WRITEMAP`.
//!
//! Settings
//! - Memory: LMDB has no cache of its own and cannot be told: it uses the page cache.
//! - Without sync, `MDB_NOSYNC`: a commit writes its pages and the meta page to the page cache, so
//!   it survives the process; only a sync of all (`mdb_env_sync`) makes it durable.
//! - With sync, the flag is taken away, and LMDB syncs as by default: the pages, then the meta
//!   page. (With the flag and one sync after the commit it would be faster, and a power failure
//!   between the two could destroy the file.) The flag changes under a mutex that writers hold
//!   anyway.
//! - With `MDB_WRITEMAP`, changes are made in the mapped file: faster, but a stray write of
//!   the program destroys the file. Shown, not counted.
//! - Readers use thread-local slots: the cheaper way to begin a read transaction. A view keeps one.
//! - Values are copied once, out of the map. A scan uses one cursor. Range delete in one
//!   transaction.

#![expect(
    unsafe_code,
    reason = "an LMDB environment is opened, and its flags set, by unsafe calls"
)]

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, RoTxn, RwTxn, WithTls};
use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk};
use peer::{About, Safety};
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// Address space, not memory: room for the largest store of the benchmarks.
const MAP_SIZE: usize = 64 << 30;

type Map = Database<Bytes, Bytes>;

/// How the file is mapped.
pub trait Mapping: Send + Sync + 'static {
    /// How reports call it.
    const NAME: &'static str;
    /// What it is set to.
    const FLAGS: EnvFlags;
}

/// For reading: changes are written by `pwrite`.
#[derive(Debug)]
pub struct ReadMap;
/// For writing.
#[derive(Debug)]
pub struct WriteMap;

impl Mapping for ReadMap {
    const NAME: &'static str = "lmdb";
    const FLAGS: EnvFlags = EnvFlags::empty();
}

impl Mapping for WriteMap {
    const NAME: &'static str = "lmdb-writemap";
    const FLAGS: EnvFlags = EnvFlags::WRITE_MAP;
}

/// The program with mapping `M`.
pub fn main<M: Mapping>(safety: Safety) -> ExitCode {
    let version = heed::lmdb_version();
    peer::main::<Lmdb<M>>(&About {
        version: format!("{}.{}.{}", version.major, version.minor, version.patch),
        structure: "B+-tree, copy on write, in mapped memory",
        safety,
        settings: &[
            "Uses the page cache without bound: it has no cache of its own.",
            "Without sync, NOSYNC (pages are written, not synced); with sync, its default: the \
             pages, then the meta page.",
        ],
    })
}

/// An environment with its unnamed database.
#[derive(Debug)]
pub struct Lmdb<M> {
    env: Env<WithTls>,
    map: Map,
    /// How the flags are set: LMDB knows `MDB_NOSYNC` only for the environment.
    syncs: Mutex<Commit>,
    mapping: PhantomData<M>,
}

/// A read transaction.
pub struct LmdbView<'a> {
    map: Map,
    transaction: RoTxn<'a, WithTls>,
}

impl View for LmdbView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.map.get(&self.transaction, key)?;
        Ok(found.map(|value| out.extend_from_slice(value)).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        let mut show = |(key, value): (&[u8], &[u8])| {
            visit(key, value);
            count += 1;
        };
        match walk {
            Walk::Forward => {
                for entry in self.map.iter(&self.transaction)? {
                    show(entry?);
                }
            }
            Walk::Reverse => {
                for entry in self.map.rev_iter(&self.transaction)? {
                    show(entry?);
                }
            }
            Walk::From { key, limit } => {
                for entry in self
                    .map
                    .range(&self.transaction, &(Bound::Included(key), Bound::Unbounded))?
                    .take(limit as usize)
                {
                    show(entry?);
                }
            }
        }
        Ok(count)
    }
}

impl<M: Mapping> Lmdb<M> {
    /// Runs `change` in a transaction of its own.
    fn write(
        &self,
        commit: Commit,
        change: impl FnOnce(&mut RwTxn<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut syncs = self.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        if *syncs != commit {
            let mode = match commit {
                Commit::Buffered => FlagSetMode::Enable,
                Commit::Durable => FlagSetMode::Disable,
            };
            // SAFETY: one thread at a time may do this: all do it here, under the mutex. Losing
            // unsynced commits with the machine is what `Commit::Buffered` means.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
            *syncs = commit;
        }
        let mut transaction = self.env.write_txn()?;
        change(&mut transaction)?;
        Ok(transaction.commit()?)
    }
}

impl<M: Mapping> Engine for Lmdb<M> {
    const NAME: &'static str = M::NAME;
    const BUFFERED_SURVIVES_KILL: bool = true;
    type View<'a> = LmdbView<'a>;

    fn open(dir: &Path, _memory: Memory) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_SIZE);
        // SAFETY: as for `set_flags` above; what a stray write does to a map that can be written is
        // known, and said in the reports.
        unsafe { options.flags(EnvFlags::NO_SYNC | M::FLAGS) };
        // SAFETY: the directory is the benchmark's own: nobody else changes the file, and this
        // process opens it once at a time.
        let env = unsafe { options.open(dir)? };
        let mut transaction = env.write_txn()?;
        let map = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { env, map, syncs: Mutex::new(Commit::Buffered), mapping: PhantomData })
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        self.write(commit, |transaction| Ok(self.map.put(transaction, key, value)?))
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        self.write(commit, |transaction| {
            for (key, value) in records.iter() {
                self.map.put(transaction, key, value)?;
            }
            Ok(())
        })
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        self.write(commit, |transaction| {
            self.map.delete(transaction, key)?;
            Ok(())
        })
    }

    fn delete_range(&self, from: &[u8], to: &[u8], commit: Commit) -> Result<Offered> {
        self.write(commit, |transaction| {
            self.map.delete_range(transaction, &(Bound::Included(from), Bound::Excluded(to)))?;
            Ok(())
        })?;
        Ok(Offered::Yes)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.env.read_txn()?;
        let found = self.map.get(&transaction, key)?;
        Ok(found.map(|value| out.extend_from_slice(value)).is_some())
    }

    fn view(&self) -> Result<LmdbView<'_>> {
        Ok(LmdbView { map: self.map, transaction: self.env.read_txn()? })
    }

    fn sync(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn close(self) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
