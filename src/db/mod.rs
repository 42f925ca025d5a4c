//! The database: opening, committing, reading; what an application uses.
//!
//! The way of a commit is in `commit.rs` and `group/`, that of a read in `read.rs`; `state.rs` says
//! what a moment of the database is made of; `background.rs` runs flushes; `open.rs` recovers.
//!
//! Invariants
//! - D1  Append, sync (if asked for), insert into memtables, publish: in this order for every
//!   commit, and commits are inserted and published in the order of their stamps.
//! - D2  What a state holds in memtables and versions is everything up to the published stamp that
//!   was current with it; see [`state::Published`].
//! - D3  The log in front of the first commit of the oldest memtable that is not in its structure
//!   yet is not needed. Only that part is ever released, after the manifest says so durably.
//! - D4  After a failure that leaves doubt about what is durable, nothing is written any more.
//! - D5  The log is durable up to the last commit of a memtable before any of it is durable in a
//!   structure. So what is recovered is a prefix of the commits over all keyspaces, and no
//!   structure is ahead of the log.
//! - D6  Of one commit a key has one entry that counts (`insert.rs`), and an entry with operands
//!   says all that the commit did to its key.

mod atomic;
mod background;
mod batch;
mod catalogue;
mod check;
mod checkpoint;
mod cleaning;
mod commit;
mod commits;
mod compact;
mod control;
mod convert;
mod core;
mod describe;
mod dropped;
mod encryption;
mod feed;
mod follow;
mod full_disk;
mod gate;
mod group;
mod health;
mod history;
mod hold;
mod indexes;
mod ingest;
mod ingest_tables;
mod insert;
mod iter;
mod keyspace;
mod maintain;
mod merged;
mod no_room;
mod open;
mod operation;
mod options;
mod order;
mod presence;
mod read;
mod reduce;
mod repair;
mod replay;
mod rewrite;
mod room;
mod scrub;
mod snapshot;
mod state;
mod stats;
mod table_writer;
mod time;
mod trail;
mod transaction;
mod upgrade;
mod vacuum;
mod values;
mod visible;
mod walk;
mod working;

use std::path::Path;

pub use atomic::Swap;
pub use batch::WriteBatch;
pub use check::{CheckOptions, CheckPosition, CheckProgress, CheckReport};
pub use checkpoint::CheckpointReport;
pub(crate) use checkpoint::{expect_outside_databases, resolve_nearest};
pub use commits::{Commit, Commits};
pub use compact::CompactionReport;
pub use control::BackgroundPause;
pub use convert::{Conversion, ConversionReport};
pub(crate) use describe::explain_commit;
pub use encryption::{KeyDestructionReport, KeyRotationReport, unlock};
pub use feed::{
    Change, ChangeFeed, ChangeKind, CommitChanges, Consumer, ConsumerInfo, FeedOptions, Previous,
};
pub use follow::{CaughtUp, FollowUpTo, FollowedChanges, Follower, Followers, KeepingUp};
pub use health::{BackgroundFailure, BackgroundWork, Health, HealthState};
pub use history::{
    Difference, Differences, KeyVersion, PointInTime, RestoreReport, Versions, VersionsByStamp,
};
pub use indexes::{
    Index, IndexBuildReport, IndexEntry, IndexInfo, IndexIter, IndexOptions, IndexView,
    TransactionIndex, TransactionIndexEntry, TransactionIndexIter,
};
pub use ingest::{Ingest, IngestReport};
pub use ingest_tables::TableIngestReport;
pub use iter::{Cursor, Entry, Iter, Keys};
pub use keyspace::{Keyspace, KeyspaceInfo};
pub(crate) use open::BEFORE_RESTORE;
pub use open::RecoveryReport;
pub use options::{Access, Background, Builder, Cleaning, Durability, OpenExisting};
pub use repair::{CommitBehind, Loss, LossKind, RepairOptions, RepairReport, repair};
pub use scrub::{ScrubOptions, ScrubStatus};
pub use snapshot::Snapshot;
pub use stats::{BytesWritten, KeyspaceStats, Stats, ValueFileStats};
pub use table_writer::{TABLE_FILE_SIZE_MAX, TableSummary, TableWriter};
pub use trail::TrailStatus;
pub(crate) use trail::{
    NewTrail, NotReplayed, TrailCommit, TrailCut, TrailItem, TrailReplay, is_trail_marker,
};
pub use transaction::{
    Savepoint, Transaction, TransactionCursor, TransactionIter, UPDATE_TRY_COUNT,
};
pub use upgrade::{FileVersion, Rewrite, UpgradeReport};
pub use vacuum::VacuumReport;
pub use values::{ValueReader, ValueWriter};

pub use crate::base::limits::BATCH_SIZE_MAX;

use self::core::Core;
use crate::base::sync::{Arc, MutexGuard, Weak};
use crate::base::{Error, Result, SeqNo};
use crate::manifest::KeyspaceOptions;
use crate::storage::Storage;

/// The longest key, in bytes. In keyspaces of [`Structure::History`](crate::Structure::History) it
/// is 12 less, and each zero byte of the key counts twice; a commit with a longer one is refused.
pub const KEY_LEN_MAX: usize = 65_535;
/// The longest value, in bytes: 4 GiB less room for what a memtable and a block put around it.
pub const VALUE_LEN_MAX: usize = BATCH_SIZE_MAX - KEY_LEN_MAX - 64;
/// The longest payload that is kept with a commit, in bytes.
pub const COMMIT_PAYLOAD_LEN_MAX: usize = 16 << 20;

/// Decodes a commit record's payload, for fuzzers.
pub(crate) fn fuzz_commit_record(payload: &[u8]) {
    if let Some(commit) = operation::decode_record(payload) {
        let seqno = commit.seqno;
        let count = commit.operations.inspect(|operation| {
            let write = operation.map(|operation| operation.write);
            if let Some((.., lifetime)) = write.and_then(operation::Write::expiring) {
                assert!(lifetime.end(seqno).is_some(), "it expires");
            }
        });
        assert!(count.count() <= payload.len(), "every operation takes some bytes");
    }
}

/// A database, open. Cheap to clone; all clones are the same database. When the last clone, and
/// the last [`Keyspace`] and [`Snapshot`] taken from it, are dropped, it is closed as by
/// [`Db::close`], except that an error cannot be told.
///
/// A process that is forked from this one has no part in it: see [`Error::Forked`].
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("animals.lithe");
/// let db = lithedb::Db::open(&path)?;
/// let animals = db.keyspace_or_create("animals")?;
/// animals.put("otter", "swims")?; // durable on return
/// assert_eq!(animals.get("otter")?.as_deref(), Some(&b"swims"[..]));
/// for entry in animals.prefix("ot") {
///     println!("{:?}", entry?.key);
/// }
/// db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Db {
    handle: Arc<Handle>,
}

/// Closes the database when the last user of it is gone.
#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _nobody_left_to_tell = self.core.close();
        if self.core.is_forked() {
            // What is dropped with it would clear away in files and wait for threads of another
            // process.
            std::mem::forget(Arc::clone(&self.core));
        }
    }
}

/// A database that is open as long as others keep it so.
#[derive(Clone, Debug)]
pub(crate) struct WeakDb {
    handle: Weak<Handle>,
}

impl WeakDb {
    /// The database, if it is open still.
    pub(crate) fn upgrade(&self) -> Option<Db> {
        self.handle.upgrade().map(|handle| Db { handle })
    }
}

impl Db {
    /// Opens the database in the directory `path`, or creates it, with default options. Time: the
    /// indexes are read, and the part of the log that was not flushed; never the data.
    ///
    /// # Errors
    /// `Locked` when it is open already, `Corruption` and `FormatVersion` with the file, `Io`,
    /// `DiskFull`.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::builder().open(path)
    }

    /// Options for opening.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn from_core(core: Arc<Core>) -> Db {
        let handle = Arc::new(Handle { core });
        handle.core.set_handle(&handle);
        Db { handle }
    }

    fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// The same, without keeping it open.
    pub(crate) fn downgrade(&self) -> WeakDb {
        WeakDb { handle: Arc::downgrade(&self.handle) }
    }

    /// In which storage it is, and where.
    pub(crate) fn place(&self) -> (&Arc<dyn Storage>, &Path) {
        (&self.core().storage, &self.core().dir)
    }

    /// Held by who makes a backup of it.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`.
    pub(crate) fn lock_for_backup(&self) -> Result<MutexGuard<'_, ()>> {
        self.core().check_writable()?;
        Ok(self::core::lock(&self.core().backing_up))
    }

    /// Its id, drawn when it was created, which its checkpoints and what is restored from its
    /// backups have as well.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.core().database
    }

    /// Now, by its clock, in milliseconds since 1970.
    pub(crate) fn wall_millis(&self) -> u64 {
        self.core().clock.wall_millis()
    }

    /// A number of its source of randomness.
    pub(crate) fn draw(&self) -> u64 {
        self.core().entropy.next_u64()
    }

    /// The keyspace of this name.
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `Closed`.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let found = self.core().find_keyspace(name)?;
        Ok(Keyspace::new(Arc::clone(&self.handle), &found))
    }

    /// Creates a keyspace. Durable on return.
    ///
    /// # Errors
    /// `KeyspaceExists`, `InvalidArgument` for the name or the options, `ReadOnly`, `DiskFull`,
    /// `Io`, `Closed`.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let created = self.core().create_keyspace(name, options)?;
        Ok(Keyspace::new(Arc::clone(&self.handle), &created))
    }

    /// The keyspace of this name, created with default options if there is none.
    ///
    /// # Errors
    /// As [`Db::create_keyspace`], but for `KeyspaceExists`.
    pub fn keyspace_or_create(&self, name: &str) -> Result<Keyspace> {
        match self.keyspace(name) {
            Err(Error::KeyspaceNotFound { .. }) => {}
            other => return other,
        }
        match self.create_keyspace(name, KeyspaceOptions::flex()) {
            // Another thread was faster.
            Err(Error::KeyspaceExists { .. }) => self.keyspace(name),
            other => other,
        }
    }

    /// Drops a keyspace and everything in it. Durable on return. Handles to it answer
    /// `KeyspaceNotFound` from then on; snapshots taken before keep showing it. One that has a data
    /// key of its own loses that as soon as nothing needs it: commits wait for a sync, everything
    /// is flushed, and the headers of all files are read. What holds the key back, and whether
    /// destroying it has failed, says [`Db::destroy_keys`], as does what becomes of a rotation of
    /// the data key that is not over: a drop that finds no file with an older key ends it.
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `ReadOnly`, `Io`, `Closed`.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.core().drop_keyspace(name)
    }

    /// Gives a keyspace another name. Durable on return; handles stay valid.
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `KeyspaceExists`, `InvalidArgument`, `ReadOnly`, `Io`, `Closed`.
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        self.core().rename_keyspace(from, to)
    }

    /// The keyspaces there are, by name.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        self.core().keyspace_infos()
    }

    /// Commits a batch with the default durability: all of it or nothing, in one stamp, which is
    /// returned. An empty batch commits nothing and returns the last stamp.
    ///
    /// # Errors
    /// As [`Db::write_with`].
    pub fn write(&self, batch: WriteBatch) -> Result<SeqNo> {
        let durability = self.core().default_durability();
        self.write_with(batch, durability)
    }

    /// Commits a batch. On return it is visible to new reads and, with [`Durability::Sync`],
    /// durable.
    ///
    /// # Errors
    /// `InvalidArgument` for a key, value or batch over the limits or a keyspace of another
    /// database; `KeyspaceNotFound`; `DiskFull`; where there are indexes ([`Index`])
    /// `ExtractorMissing`, `ExtractorFailed`, `UniqueViolation`: nothing has changed. `Io` and
    /// `ReadOnly` when the log failed: whether this commit survives is unknown, and nothing is
    /// written any more until the database is reopened. `Closed`: when the database was closed
    /// meanwhile, the commit may be found when it is opened again.
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<SeqNo> {
        self.core().commit(batch, durability)
    }

    /// Makes every commit that has returned durable.
    ///
    /// # Errors
    /// `Io` when the sync fails, `ReadOnly` when an earlier one did, `Closed`.
    pub fn sync(&self) -> Result<()> {
        self.core().sync()
    }

    /// Moves everything in memtables into the structures, durably. The log is then short. Cleans
    /// value files if [`Cleaning`] says so.
    ///
    /// # Errors
    /// `DiskFull`: try again when there is room. `Io`, `Corruption`, `ReadOnly`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        self.core().flush_and_clean()
    }

    /// This moment of all keyspaces. Costs a few reference counts and looks at the clock, however
    /// large the database.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.handle))
    }

    /// Reads and verifies everything: see [`CheckReport`]. Commits wait while the log is read, and
    /// flushes of a keyspace while its index is; the data is read beside them.
    ///
    /// # Errors
    /// `Closed`. What is wrong with the data is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        self.core().check()
    }

    /// Figures, as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core().stats()
    }

    /// How often writers have begun to wait since the database was opened: slowed down or stopped
    /// to let background work catch up, or held while something else is made visible. Who goes on
    /// waiting is counted again, at least every 50 ms. One look at a counter, unlike [`Db::stats`],
    /// which says how long they waited. While it grows, whoever has threads to keep free had better
    /// not commit on them.
    #[must_use]
    pub fn writes_held_back(&self) -> u64 {
        self.core().stalls.begun()
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.core().recovery
    }

    /// With [`Background::Stepped`]: does one piece of background work; `false` when none is due.
    /// Looks after the health first: what has changed is told to the listener.
    ///
    /// # Errors
    /// What the work failed with; see [`Db::flush`].
    pub fn step(&self) -> Result<bool> {
        self.core().step_or_consolidate()
    }

    /// Flushes and syncs everything and closes. All handles answer `Closed` from then on;
    /// snapshots and iterators that exist can be read on. Closing again does nothing.
    ///
    /// It waits for calls to the storage as long as they take, those under way among them: there is
    /// no taking back of one that the system has. What does not come back is told to the listener
    /// meanwhile ([`Builder::on_health`]), and shown by [`Db::health`] to other threads. Who cannot
    /// wait can end the process: nothing that is durable is lost by that.
    ///
    /// # Errors
    /// As [`Db::flush`]. The database is closed nevertheless; what was durable stays so. `Forked`:
    /// it is open where it was opened.
    pub fn close(&self) -> Result<Stats> {
        self.core().close()
    }
}
