//! Connections that read: a thread takes one and puts it back, with its page cache and its prepared
//! statements.

use lithe_bench::Result;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Of the database; SQLite's default.
pub const PAGE_SIZE: u64 = 4096;
const KIB: u64 = 1024;
/// Readers wait for a writer only while the log starts anew.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(60);

/// Opens the file, with a page cache of `cache` bytes if it is to be told.
///
/// # Errors
/// Whatever SQLite reports.
pub fn connect(file: &Path, cache: Option<u64>) -> Result<Connection> {
    // Each connection is used by one thread at a time: SQLite need not lock it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(BUSY_WAIT_MAX)?;
    if let Some(bytes) = cache {
        // Negative: KiB, not pages.
        connection.execute_batch(&format!("PRAGMA cache_size = -{}", bytes / KIB))?;
    }
    Ok(connection)
}

/// Connections that nobody uses at the moment.
#[derive(Debug)]
pub struct Pool {
    file: PathBuf,
    cache: Option<u64>,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    /// Opens connections when they are needed.
    pub fn new(file: PathBuf, cache: Option<u64>) -> Pool {
        Pool { file, cache, idle: Mutex::default() }
    }

    /// The connection that was put back last, whose cache is the warmest; a new one if all are
    /// used.
    ///
    /// # Errors
    /// Whatever SQLite reports.
    pub fn take(&self) -> Result<Connection> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| connect(&self.file, self.cache), Ok)
    }

    /// Keeps it for the next one.
    pub fn put_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}
