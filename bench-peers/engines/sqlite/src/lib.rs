//! SQLite as an engine under test, by the crate `rusqlite` with the SQLite it brings along. Two
//! programs: with a table that is the tree of its keys (default), and with one of numbered rows and
//! an index of their keys.
//!
//! Settings
//! - One table `kv(k BLOB PRIMARY KEY, v BLOB)`, `WITHOUT ROWID` or with; journal mode WAL.
//! - Memory: half of the budget is the page cache of the one connection that writes, the other half
//!   is shared by two that read (one per thread that reads; more only while more read at once). No
//!   memory map: it would be memory outside of the budget.
//! - Without sync, `synchronous = NORMAL`: commits are written to the log and not synced. With
//!   sync, `synchronous = FULL`: a commit syncs the log.
//! - A checkpoint at a quarter of the budget of log, not at 4 MiB: a page that changes often is
//!   copied into the database once.
//! - Statements are prepared once per connection. A view is a read transaction.

mod pool;

use lithe_bench::{Commit, Engine, Memory, Offered, Records, Result, View, Walk};
use peer::{About, Safety};
use pool::{PAGE_SIZE, Pool};
use rusqlite::{Connection, Row, params};
use std::marker::PhantomData;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

const FILE: &str = "store.sqlite";
const MARK: &str = "CREATE TABLE IF NOT EXISTS mark(n INTEGER PRIMARY KEY);
    INSERT OR IGNORE INTO mark VALUES (1);";
const GET: &str = "SELECT v FROM kv WHERE k = ?1";
const PUT: &str = "REPLACE INTO kv VALUES (?1, ?2)";
const WRITER_CACHE_SHARE: u64 = 2;
const READER_CACHE_SHARE: u64 = 4;
const LOG_SHARE: u64 = 4;

/// How the table is stored.
pub trait Table: Send + Sync + 'static {
    /// How reports call it.
    const NAME: &'static str;
    /// Makes it.
    const SCHEMA: &'static str;
    /// What it is set to.
    const SETTING: &'static str;
}

/// The tree of keys has the values.
#[derive(Debug)]
pub struct WithoutRowid;
/// The tree of row numbers has keys and values, another one leads from keys to numbers.
#[derive(Debug)]
pub struct WithRowid;

impl Table for WithoutRowid {
    const NAME: &'static str = "sqlite";
    const SCHEMA: &'static str =
        "CREATE TABLE IF NOT EXISTS kv(k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID;";
    const SETTING: &'static str = "WITHOUT ROWID, WAL, pages of 4 KiB, no memory map.";
}

impl Table for WithRowid {
    const NAME: &'static str = "sqlite-rowid";
    const SCHEMA: &'static str =
        "CREATE TABLE IF NOT EXISTS kv(k BLOB PRIMARY KEY, v BLOB NOT NULL);";
    const SETTING: &'static str = "Rows with numbers, WAL, pages of 4 KiB, no memory map.";
}

/// The program with table `T`.
pub fn main<T: Table>() -> ExitCode {
    peer::main::<Sqlite<T>>(&About {
        version: rusqlite::version().to_owned(),
        structure: "B-tree with a log of pages",
        safety: Safety::Kill,
        settings: &[
            T::SETTING,
            "Page cache: 1/2 of the budget for the writer, 1/4 for each of two readers; a \
             checkpoint when the log has 1/4 of the budget.",
            "Without sync, synchronous = NORMAL; with sync, FULL.",
        ],
    })
}

/// One database file: a connection that writes, and those that read.
struct Sqlite<T> {
    writer: Mutex<Writer>,
    readers: Pool,
    table: PhantomData<T>,
}

struct Writer {
    connection: Connection,
    /// How `synchronous` is set.
    syncs: Commit,
}

/// A connection in a read transaction.
struct SqliteView<'a> {
    connection: Option<Connection>,
    readers: &'a Pool,
}

fn read(connection: &Connection, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
    let mut statement = connection.prepare_cached(GET)?;
    let mut rows = statement.query([key])?;
    Ok(match rows.next()? {
        Some(row) => {
            out.extend_from_slice(row.get_ref(0)?.as_blob()?);
            true
        }
        None => false,
    })
}

impl View for SqliteView<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        read(self.connection(), key, out)
    }

    fn scan(&mut self, walk: Walk<'_>, mut visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        let mut show = |row: &Row<'_>| {
            visit(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
            count += 1;
            Result::Ok(())
        };
        let sql = match walk {
            Walk::Forward => "SELECT k, v FROM kv ORDER BY k",
            Walk::Reverse => "SELECT k, v FROM kv ORDER BY k DESC",
            Walk::From { .. } => "SELECT k, v FROM kv WHERE k >= ?1 ORDER BY k LIMIT ?2",
        };
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows = match walk {
            Walk::Forward | Walk::Reverse => statement.query([])?,
            Walk::From { key, limit } => statement.query(params![key, limit as i64])?,
        };
        while let Some(row) = rows.next()? {
            show(row)?;
        }
        Ok(count)
    }
}

impl SqliteView<'_> {
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it is given back only when the view is dropped")
    }
}

impl Drop for SqliteView<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // A connection that cannot end its transaction must not be used again.
            if connection.execute_batch("COMMIT").is_ok() {
                self.readers.put_back(connection);
            }
        }
    }
}

impl<T> Sqlite<T> {
    /// The connection that writes, set to `commit`.
    fn writer(&self, commit: Commit) -> Result<MutexGuard<'_, Writer>> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.syncs != commit {
            writer.connection.execute_batch(match commit {
                Commit::Buffered => "PRAGMA synchronous = NORMAL",
                Commit::Durable => "PRAGMA synchronous = FULL",
            })?;
            writer.syncs = commit;
        }
        Ok(writer)
    }

    fn put_all(connection: &Connection, records: &Records) -> Result<()> {
        let mut statement = connection.prepare_cached(PUT)?;
        for (key, value) in records.iter() {
            statement.execute([key, value])?;
        }
        Ok(())
    }
}

impl<T: Table> Engine for Sqlite<T> {
    const NAME: &'static str = T::NAME;
    const BUFFERED_SURVIVES_KILL: bool = true;
    type View<'a>
        = SqliteView<'a>
    where
        T: 'a;

    fn open(dir: &Path, memory: Memory) -> Result<Self> {
        let file = dir.join(FILE);
        let cache = |share| match memory {
            Memory::EngineDefault => None,
            Memory::Bytes(bytes) => Some(bytes / share),
        };
        let connection = pool::connect(&file, cache(WRITER_CACHE_SHARE))?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")?;
        if let Some(log) = cache(LOG_SHARE) {
            connection
                .execute_batch(&format!("PRAGMA wal_autocheckpoint = {}", log / PAGE_SIZE))?;
        }
        let missing = !connection.table_exists(None, "mark")?;
        if missing {
            connection.execute_batch(T::SCHEMA)?;
            connection.execute_batch(MARK)?;
        }
        let writer = Mutex::new(Writer { connection, syncs: Commit::Buffered });
        let readers = Pool::new(file, cache(READER_CACHE_SHARE));
        Ok(Sqlite { writer, readers, table: PhantomData })
    }

    fn put(&self, key: &[u8], value: &[u8], commit: Commit) -> Result<()> {
        self.writer(commit)?.connection.prepare_cached(PUT)?.execute([key, value])?;
        Ok(())
    }

    fn put_batch(&self, records: &Records, commit: Commit) -> Result<()> {
        let mut writer = self.writer(commit)?;
        let transaction = writer.connection.transaction()?;
        Self::put_all(&transaction, records)?;
        Ok(transaction.commit()?)
    }

    fn delete(&self, key: &[u8], commit: Commit) -> Result<()> {
        let writer = self.writer(commit)?;
        writer.connection.prepare_cached("DELETE FROM kv WHERE k = ?1")?.execute([key])?;
        Ok(())
    }

    fn delete_range(&self, from: &[u8], to: &[u8], commit: Commit) -> Result<Offered> {
        let writer = self.writer(commit)?;
        writer.connection.execute("DELETE FROM kv WHERE k >= ?1 AND k < ?2", [from, to])?;
        Ok(Offered::Yes)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let connection = self.readers.take()?;
        let found = read(&connection, key, out)?;
        self.readers.put_back(connection);
        Ok(found)
    }

    fn view(&self) -> Result<SqliteView<'_>> {
        let connection = self.readers.take()?;
        connection.execute_batch("BEGIN")?;
        Ok(SqliteView { connection: Some(connection), readers: &self.readers })
    }

    /// A commit that syncs the log makes all before it durable. It must change something.
    fn sync(&self) -> Result<()> {
        let writer = self.writer(Commit::Durable)?;
        writer.connection.execute("UPDATE mark SET n = n + 1", [])?;
        Ok(())
    }

    /// A checkpoint: the log into the database file.
    fn flush(&self) -> Result<Offered> {
        let writer = self.writer(Commit::Buffered)?;
        writer.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(Offered::Yes)
    }

    fn compact(&self) -> Result<Offered> {
        self.writer(Commit::Buffered)?.connection.execute_batch("VACUUM")?;
        self.flush()
    }

    fn close(self) -> Result<()> {
        drop(self.readers);
        let writer = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.connection.flush_prepared_statement_cache();
        writer.connection.close().map_err(|(_, error)| error.into())
    }
}
