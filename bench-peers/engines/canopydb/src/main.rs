//! canopydb as an engine under test.
//!
//! Settings
//! - Memory: half of the budget for the page cache; changes that wait for a checkpoint may take the
//!   other half before writers stall (a checkpoint begins at a quarter: 64 MiB of 256, its
//!   default).
//! - Without sync, a commit writes the log and does not sync it (default); with sync,
//!   `commit_with(true)`.
//! - Exclusive write transactions: they cannot fail by conflict, and cost less than concurrent
//!   ones.
//! - No compression of large values. Page checksums are off, as by default.
//! - A get opens a read transaction and the tree, as its API wants it; a view keeps both.

use canopydb::{Bytes, Database, DbOptions, EnvOptions, ReadTransaction, Tree, TreeOptions};
use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk, wrong};
use peer::{About, Safety, version_of};
use self_cell::self_cell;
use std::marker::PhantomData;
use std::path::Path;
use std::process::ExitCode;

const TREE: &[u8] = b"bench";
const PAGE_CACHE_SHARE: u64 = 2;
const STALL_SHARE: u64 = 2;
const CHECKPOINT_SHARE: u64 = 4;

fn main() -> ExitCode {
    peer::main::<Canopy>(&About {
        version: version_of("canopydb"),
        structure: "B+-tree with a log and checkpoints",
        safety: Safety::Kill,
        settings: &[
            "Page cache of 1/2 of the budget; changes since the last checkpoint up to 1/2, a \
             checkpoint from 1/4 on.",
            "Exclusive write transactions; with sync, commit_with(true).",
            "No compression, no page checksums (default).",
        ],
    })
}

/// A database with one tree.
struct Canopy {
    db: Database,
}

self_cell!(
    /// A read transaction and its tree.
    struct Reader {
        owner: ReadTransaction,
        #[not_covariant]
        dependent: Tree,
    }
);

struct CanopyView<'a> {
    reader: Reader,
    engine: PhantomData<&'a Canopy>,
}

impl View for CanopyView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.reader.with_dependent(|_, tree| tree.get(key))?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        self.reader.with_dependent(|_, tree| {
            let mut count = 0;
            let mut show = |entry: std::result::Result<(Bytes, Bytes), canopydb::Error>| {
                let (key, value) = entry?;
                visit(&key, &value);
                count += 1;
                Result::Ok(())
            };
            match walk {
                Walk::Forward => tree.iter()?.try_for_each(&mut show)?,
                Walk::Reverse => tree.iter()?.rev().try_for_each(&mut show)?,
                Walk::From { key, limit } => {
                    tree.range(key..)?.take(limit as usize).try_for_each(&mut show)?;
                }
            }
            Ok(count)
        })
    }
}

impl Canopy {
    /// Runs `change` in a transaction of its own.
    fn write(
        &self,
        commit: Commit,
        change: impl FnOnce(&mut Tree<'_>) -> Result<()>,
    ) -> Result<()> {
        let transaction = self.db.begin_write()?;
        {
            let Some(mut tree) = transaction.get_tree(TREE)? else {
                return wrong("the tree is gone");
            };
            change(&mut tree)?;
        }
        transaction.commit_with(commit == Commit::Durable)?;
        Ok(())
    }

    fn create_tree(&self) -> Result<()> {
        let transaction = self.db.begin_write()?;
        let mut options = TreeOptions::new();
        options.compress_overflow_values = None;
        drop(transaction.get_or_create_tree_with(TREE, options)?);
        transaction.commit_with(true)?;
        Ok(())
    }
}

impl Engine for Canopy {
    const NAME: &'static str = "canopydb";
    const BUFFERED_SURVIVES_KILL: bool = true;
    type View<'a> = CanopyView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        let (mut environment, mut options) = (EnvOptions::new(dir), DbOptions::new());
        if let Memory::Bytes(bytes) = memory {
            let bytes = bytes as usize;
            environment.page_cache_size = bytes / PAGE_CACHE_SHARE as usize;
            options.checkpoint_target_size = bytes / CHECKPOINT_SHARE as usize;
            options.write_txn_memory_limit = bytes / CHECKPOINT_SHARE as usize;
            options.throttle_memory_limit = bytes / STALL_SHARE as usize;
            options.stall_memory_limit = bytes / STALL_SHARE as usize;
        }
        let engine = Canopy { db: Database::with_options(environment, options)? };
        // To open must not cost a commit.
        let missing = engine.db.begin_read()?.get_tree(TREE)?.is_none();
        if missing {
            engine.create_tree()?;
        }
        Ok(engine)
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        self.write(commit, |tree| Ok(tree.insert(key, value)?))
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        self.write(commit, |tree| {
            for (key, value) in records.iter() {
                tree.insert(key, value)?;
            }
            Ok(())
        })
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        self.write(commit, |tree| {
            tree.delete(key)?;
            Ok(())
        })
    }

    fn delete_range(&self, from: &[u8], to: &[u8], commit: Commit) -> Result<Offered> {
        self.write(commit, |tree| Ok(tree.delete_range(from..to)?))?;
        Ok(Offered::Yes)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.db.begin_read()?;
        let Some(tree) = transaction.get_tree(TREE)? else {
            return wrong("the tree is gone");
        };
        let found = tree.get(key)?;
        Ok(found.map(|value| out.extend_from_slice(&value)).is_some())
    }

    fn view(&self) -> Result<CanopyView<'_>> {
        let reader = Reader::try_new(self.db.begin_read()?, |transaction| {
            match transaction.get_tree(TREE)? {
                Some(tree) => Result::Ok(tree),
                None => wrong("the tree is gone"),
            }
        })?;
        Ok(CanopyView { reader, engine: PhantomData })
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.sync()?)
    }

    /// A checkpoint: all changes to the database file.
    fn flush(&self) -> Result<Offered> {
        self.db.checkpoint()?;
        Ok(Offered::Yes)
    }

    fn compact(&self) -> Result<Offered> {
        self.db.compact()?;
        Ok(Offered::Yes)
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
