//! The database as handlers use it.
//!
//! A look at a key or a small write is done where the request is: that takes microseconds, and
//! handing it to another thread takes longer. What goes through much, or waits (scans, backups,
//! large batches), is done on threads of its own, of which there is a limited number. When the
//! engine holds writers back, since its disk does not keep up, writes make room for other requests
//! before they begin, for a while: each else keeps a thread that could serve these.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lithedb::{Db, Error, Keyspace, SeqNo, WriteBatch};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::config::Durability;
use crate::sync::{NotSynced, Syncer};

/// The keyspace of calls that name none.
pub const DEFAULT_KEYSPACE: &str = "default";
/// A write that takes longer waits for the disk, whatever the engine knows of it. On busy
/// processors any write may take some milliseconds, and making room takes longer than writing.
const SLOW_FROM: Duration = Duration::from_millis(20);
/// For so long after one was held back others are expected to be.
const SLOW_FOR: Duration = Duration::from_millis(200);

/// Why a request of the store was not done, or may not have been.
#[derive(Debug)]
pub enum StoreError {
    /// What the engine says. Nothing was changed.
    Engine(Error),
    /// It was written, but is not known to be durable: it may be there after a restart, or not.
    Unknown(Arc<str>),
    /// There is too much to do already. Nothing was changed.
    Busy,
    /// The server is at fault: a handler has panicked.
    Panicked,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Engine(error) => error.fmt(f),
            StoreError::Unknown(why) => {
                write!(f, "whether this is durable is not known: {why}")
            }
            StoreError::Busy => f.write_str("there is too much to do at the moment"),
            StoreError::Panicked => f.write_str("the server could not do it"),
        }
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> StoreError {
        StoreError::Engine(error)
    }
}

impl From<NotSynced> for StoreError {
    fn from(NotSynced(why): NotSynced) -> StoreError {
        StoreError::Unknown(why)
    }
}

/// A database that is served.
#[derive(Debug)]
pub struct Store {
    db: Db,
    syncer: Syncer,
    durability: Durability,
    blocking: Arc<Semaphore>,
    began: Instant,
    /// Until when writes are expected to be slow, in nanoseconds since the start.
    slow_until: AtomicU64,
    /// What the engine has counted of writes that it held back, when that was last looked at.
    held_back: AtomicU64,
}

impl Store {
    /// Serves a database; makes its keyspace `default` if there is none and it can be written to.
    pub fn new(db: Db, durability: Durability, blocking: usize) -> Result<Store, Error> {
        match db.keyspace_or_create(DEFAULT_KEYSPACE) {
            Ok(_) | Err(Error::ReadOnly { .. }) => {}
            Err(error) => return Err(error),
        }
        let interval = (durability == Durability::EverySecond).then_some(Duration::from_secs(1));
        let syncer = Syncer::start(db.clone(), interval).map_err(|source| Error::Io {
            action: "start a thread",
            path: "lithe-sync".into(),
            source,
        })?;
        let blocking = Arc::new(Semaphore::new(blocking));
        let held_back = AtomicU64::new(db.writes_held_back());
        let (began, slow_until) = (Instant::now(), AtomicU64::new(0));
        Ok(Store { db, syncer, durability, blocking, began, slow_until, held_back })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// A keyspace that exists.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace, Error> {
        self.db.keyspace(name)
    }

    /// Since when it is served.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Does something that takes long on a thread of its own.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Store>,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.begin(work)?.await.map_err(|_| StoreError::Panicked)
    }

    /// A place among what takes long, for as long as it is held.
    pub fn permit(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        Arc::clone(&self.blocking).try_acquire_owned().map_err(|_| StoreError::Busy)
    }

    /// How many of these there are.
    pub fn permits_left(&self) -> usize {
        self.blocking.available_permits()
    }

    /// The same, without waiting for its end.
    pub fn begin<T: Send + 'static>(
        self: &Arc<Store>,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, StoreError> {
        let permit = self.permit()?;
        let store = Arc::clone(self);
        Ok(tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&store)
        }))
    }

    /// Commits a batch. On return it is as durable as asked for, or as the server was told (N1).
    pub async fn write(
        &self,
        batch: WriteBatch,
        durability: Option<Durability>,
    ) -> Result<SeqNo, StoreError> {
        let seqno = self.buffered(|| self.db.write_with(batch, lithedb::Durability::Buffered))?;
        self.settle(durability).await?;
        Ok(seqno)
    }

    /// Does a write that waits for no sync. It is to be followed by [`Store::settle`] before
    /// anybody is told of it: so several may be done with one sync.
    pub fn buffered<T>(&self, write: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let start = self.began.elapsed();
        let done = match self.expects_to_wait(start) {
            true => tokio::task::block_in_place(write),
            false => write(),
        };
        let end = self.began.elapsed();
        if end.saturating_sub(start) >= SLOW_FROM {
            self.expect_waits(end);
        }
        done
    }

    /// Whether a write is expected to be held back.
    fn expects_to_wait(&self, now: Duration) -> bool {
        let held_back = self.db.writes_held_back();
        // Without writing to it each time: all who write look at this.
        if self.held_back.load(Ordering::Relaxed) != held_back {
            self.held_back.store(held_back, Ordering::Relaxed);
            self.expect_waits(now);
        }
        nanos(now) < self.slow_until.load(Ordering::Relaxed)
    }

    fn expect_waits(&self, now: Duration) {
        self.slow_until.fetch_max(nanos(now + SLOW_FOR), Ordering::Relaxed);
    }

    /// Waits until what was written is as durable as asked for, or as the server was told.
    pub async fn settle(&self, durability: Option<Durability>) -> Result<(), NotSynced> {
        match durability.unwrap_or(self.durability) {
            Durability::Always => self.syncer.durable().await,
            Durability::EverySecond | Durability::Buffered => Ok(()),
        }
    }

    /// Ends the thread that syncs. The database is still open.
    pub fn close(&self) {
        self.syncer.close();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
