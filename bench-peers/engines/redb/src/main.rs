//! redb as an engine under test.
//!
//! Settings
//! - Memory: the whole budget is its cache (`set_cache_size`), which reads and writes share.
//! - Without sync, `Durability::None`: such commits are visible, and reach the file for good with
//!   the next durable one. A killed process loses them: redb offers nothing between this and
//!   a sync per commit. Hence it is not counted in tables of unsynced writes.
//! - With sync, `Durability::Immediate` (default): one fdatasync, by its one-phase commit.
//! - A get opens a read transaction and the table, as its API wants it; a view keeps both.
//! - Values are copied once out of the page. Range delete by `retain_in`, in one transaction.
//! - To compact it wants the database alone: hence the lock, which gets take only to begin.

use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk, wrong};
use peer::{About, Safety, version_of};
use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use std::marker::PhantomData;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

const FILE: &str = "store.redb";
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

fn main() -> ExitCode {
    peer::main::<Redb>(&About {
        version: version_of("redb"),
        structure: "B+-tree, copy on write",
        safety: Safety::Sync("Durability::None keeps commits in memory until the next durable one"),
        settings: &[
            "The cache is the whole budget.",
            "Without sync, Durability::None; with sync, Durability::Immediate (one-phase commit).",
        ],
    })
}

/// A database with one table.
struct Redb {
    db: RwLock<Database>,
}

struct RedbView<'a> {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    engine: PhantomData<&'a Redb>,
}

impl View for RedbView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.table.get(key)?;
        Ok(found.map(|value| out.extend_from_slice(value.value())).is_some())
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        let mut show =
            |(key, value): (redb::AccessGuard<'_, &[u8]>, redb::AccessGuard<'_, &[u8]>)| {
                visit(key.value(), value.value());
                count += 1;
            };
        match walk {
            Walk::Forward => {
                for entry in self.table.iter()? {
                    show(entry?);
                }
            }
            Walk::Reverse => {
                for entry in self.table.iter()?.rev() {
                    show(entry?);
                }
            }
            Walk::From { key, limit } => {
                for entry in self.table.range(key..)?.take(limit as usize) {
                    show(entry?);
                }
            }
        }
        Ok(count)
    }
}

impl Redb {
    fn db(&self) -> RwLockReadGuard<'_, Database> {
        self.db.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` in a transaction of its own.
    fn write(
        &self,
        commit: Commit,
        change: impl FnOnce(&WriteTransaction) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.db().begin_write()?;
        transaction.set_durability(match commit {
            Commit::Buffered => Durability::None,
            Commit::Durable => Durability::Immediate,
        })?;
        change(&transaction)?;
        Ok(transaction.commit()?)
    }
}

impl Engine for Redb {
    const NAME: &'static str = "redb";
    const BUFFERED_SURVIVES_KILL: bool = false;
    type View<'a> = RedbView<'a>;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        let mut builder = Builder::new();
        if let Memory::Bytes(bytes) = memory {
            builder.set_cache_size(bytes as usize);
        }
        let db = builder.create(dir.join(FILE))?;
        let engine = Redb { db: RwLock::new(db) };
        // Readers need the table. It is made once: to open must not cost a commit.
        let missing = engine.db().begin_read()?.open_table(TABLE).is_err();
        if missing {
            engine.write(Commit::Durable, |transaction| {
                transaction.open_table(TABLE)?;
                Ok(())
            })?;
        }
        Ok(engine)
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        self.write(commit, |transaction| {
            transaction.open_table(TABLE)?.insert(key, value)?;
            Ok(())
        })
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        self.write(commit, |transaction| {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in records.iter() {
                table.insert(key, value)?;
            }
            Ok(())
        })
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        self.write(commit, |transaction| {
            transaction.open_table(TABLE)?.remove(key)?;
            Ok(())
        })
    }

    fn delete_range(&self, from: &[u8], to: &[u8], commit: Commit) -> Result<Offered> {
        self.write(commit, |transaction| {
            Ok(transaction.open_table(TABLE)?.retain_in(from..to, |_, _| false)?)
        })?;
        Ok(Offered::Yes)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.db().begin_read()?;
        let found = transaction.open_table(TABLE)?.get(key)?;
        Ok(found.map(|value| out.extend_from_slice(value.value())).is_some())
    }

    fn view(&self) -> Result<RedbView<'_>> {
        let table = self.db().begin_read()?.open_table(TABLE)?;
        Ok(RedbView { table, engine: PhantomData })
    }

    /// A durable commit of nothing makes all before it durable.
    fn sync(&self) -> Result<()> {
        self.write(Commit::Durable, |_| Ok(()))
    }

    fn compact(&self) -> Result<Offered> {
        let Ok(mut db) = self.db.write() else {
            return wrong("a thread panicked while it wrote");
        };
        while db.compact()? {}
        Ok(Offered::Yes)
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}
