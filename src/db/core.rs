//! The core: what all handles and threads of one open database share.

use std::path::{Path, PathBuf};

use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use crate::base::{Clock, Entropy, Error, Result, SeqNo};
use crate::block::Block;
use crate::cache::{Cache, Charge, MemoryBudget, Part};
use crate::db::background::Workers;
use crate::db::cleaning::Cleaner;
use crate::db::commit::CommitLog;
use crate::db::control::Pauses;
use crate::db::dropped::DroppedRegister;
use crate::db::encryption::KeyringFile;
use crate::db::feed::Acknowledged;
use crate::db::full_disk::RoomMaking;
use crate::db::health::{Failures, HealthListener, Watcher};
use crate::db::options::{Access, Background, Builder, Durability, Sizes};
use crate::db::scrub::Scrubber;
use crate::db::snapshot::SnapshotRegister;
use crate::db::state::{KeyspaceState, MemtableMeter, Published};
use crate::db::stats::StallCounters;
use crate::db::time::Time;
use crate::db::transaction::TransactionRegister;
use crate::db::{Handle, KeyspaceInfo, RecoveryReport, VALUE_LEN_MAX};
use crate::extractor::Extractors;
use crate::jobs::{MergeThreads, Pacer, RateLimit};
use crate::manifest::{CatalogState, KeyspaceOptions, Manifest, Totals, TrailRecord};
use crate::memory::ProcessMark;
use crate::operator::{MergeLimits, Merging, Operators, Reducers};
use crate::storage::{Guard, Storage, StorageLock};
use crate::structure::{SharedStores, StorePlace};
use crate::value_log::ValueLog;
use crate::wal::{Lsn, RECORD_BUFFER_SIZE};

/// Memtables that are kept to check transactions against take up to the memory budget over this.
const KEPT_FRACTION: u64 = 4;

/// A key that has more bytes of operands than this, which cannot be merged, takes no more of them:
/// far below what a block holds, so that those that are in memtables by then do not reach that.
const STUCK_OPERANDS_SIZE: usize = 64 << 20;

/// How a keyspace with these options merges.
pub(super) fn merging_of(
    options: &KeyspaceOptions,
    operators: &Operators,
    dir: &Path,
) -> Arc<Merging> {
    let name = options.merge_operator.as_deref();
    let limits = MergeLimits { value_len: VALUE_LEN_MAX, stuck_size: STUCK_OPERANDS_SIZE };
    Arc::new(Merging::new(name, operators, limits, dir))
}

/// An open database.
#[derive(Debug)]
pub(super) struct Core {
    // Constant after opening.
    pub dir: PathBuf,
    pub storage: Arc<dyn Storage>,
    /// What the storage is looked after by.
    pub guard: Arc<Guard>,
    pub clock: Arc<dyn Clock>,
    /// What has expired is judged by this.
    pub time: Arc<Time>,
    pub entropy: Arc<dyn Entropy>,
    pub database: u64,
    /// Tells this opening from others, also of the same database.
    pub opening: u64,
    pub sizes: Sizes,
    pub durability: Durability,
    pub background: Background,
    pub access: Access,
    /// Whether it is read beside somebody who writes it: then its own log is none.
    pub follows: bool,
    /// The process that has it open.
    pub process: ProcessMark,
    pub budget: Arc<MemoryBudget>,
    pub meter: Arc<MemtableMeter>,
    pub cache: Arc<Cache<Block>>,
    pub values: Arc<ValueLog>,
    /// These two, and what else stores share.
    pub shared: SharedStores,
    pub operators: Operators,
    pub reducers: Reducers,
    pub extractors: Extractors,
    /// Bytes of a slice of a flush, if that was said.
    pub flush_slice_size: Option<u64>,
    /// Entries that a step of building an index reads, if that was said.
    pub index_step_entries: Option<usize>,
    /// What is told when the health changes.
    pub listener: Option<HealthListener>,
    pub recovery: RecoveryReport,
    /// Where the log ended when the database was closed in front of this opening, if nothing was
    /// changed since, and the newest commit in front of that.
    pub closed_at: Option<(Lsn, SeqNo)>,
    /// What was written before this opening.
    pub totals_before: Totals,
    /// Of the buffer that records of the log are put together in.
    _log_buffer: Charge,

    // Each with its own lock inside. Order: a keyspace's turn to flush, the
    // manifest, the log or the applier (never both), a store's writer, the state.
    /// Held to change which indexes there are: not the manifest, while commits may be held.
    pub indexing: Mutex<()>,
    /// Who makes a backup, or clears away what is left of one. Taken before all other locks.
    pub backing_up: Mutex<()>,
    /// Who adds to the trail, begins one or ends it. The next in that order.
    pub trailing: Mutex<()>,
    /// Held shared by what changes the database otherwise than by commits, from where it ends the
    /// trail until it is there; alone by who begins a trail (G3). In front of the turn to flush.
    pub untold: RwLock<()>,
    pub manifest: Mutex<Manifest>,
    /// Of an encrypted database. Nothing else is taken while it is held.
    pub keyring: Mutex<Option<KeyringFile>>,
    pub log: CommitLog,
    pub published: Published,
    pub workers: Workers,
    pub watcher: Watcher,
    pub failures: Failures,
    pub scrubber: Scrubber,
    pub snapshots: SnapshotRegister,
    pub transactions: Arc<TransactionRegister>,
    pub stalls: StallCounters,
    pub pacer: Pacer,
    pub cleaning: Cleaner,
    pub room_making: RoomMaking,
    /// Of compaction in the background, and of consolidation.
    pub compaction_rate: RateLimit,
    pub pauses: Pauses,
    pub merge_threads: MergeThreads,
    pub dropped: DroppedRegister,
    /// Held shared while an ingest writes to files; closing waits for that.
    pub staging: RwLock<()>,
    /// What consumers of changes have said and the manifest does not say yet.
    pub acknowledged: Mutex<Acknowledged>,
    /// The trail, as the catalogue has it: for who only looks, and must not wait for an edit.
    pub trail: Mutex<Option<TrailRecord>>,
    lock: Mutex<Option<Box<dyn StorageLock>>>,
    /// Who keeps it open: for transactions that commits to keyspaces with indexes become.
    handle: OnceLock<Weak<Handle>>,

    // Atomic.
    /// Why nothing is written any more (D4).
    poison: OnceLock<String>,
    closed: AtomicBool,
    /// Whether something has gone since it was looked which keys can be destroyed.
    pub keys_due: AtomicBool,
    /// Whether the log could not be given back behind the last flush.
    pub log_due: AtomicBool,
    /// Flush failures for want of room since the last success.
    pub disk_full_count: AtomicU64,
    /// Bytes written to the manifest since opening.
    pub manifest_bytes: AtomicU64,
    /// Bytes that keyspaces had written that were dropped since opening, and stores that were
    /// replaced.
    pub gone_bytes: AtomicU64,
    /// How often a keyspace has begun to limit its keys to what an archive takes: counted behind
    /// its flag, which goes back when that comes to nothing, as this does not.
    pub key_limits_begun: AtomicU64,
    /// Signalled when a flush is complete, or none will be.
    flushed: (Mutex<u64>, Condvar),
}

/// What opening has put together, for [`Core::new`].
pub(super) struct Parts {
    pub dir: PathBuf,
    pub guard: Arc<Guard>,
    pub time: Arc<Time>,
    pub database: u64,
    pub opening: u64,
    pub sizes: Sizes,
    pub budget: Arc<MemoryBudget>,
    pub meter: Arc<MemtableMeter>,
    pub shared: SharedStores,
    pub recovery: RecoveryReport,
    pub totals_before: Totals,
    pub manifest: Manifest,
    pub keyring: Option<KeyringFile>,
    pub log: CommitLog,
    pub published: Published,
    pub lock: Box<dyn StorageLock>,
}

/// Where the log ended when the database was last closed, and its newest commit then.
fn closed_at(catalog: &CatalogState) -> Option<(Lsn, SeqNo)> {
    catalog.clean_log_end().map(|end| (Lsn::from_u64(end), catalog.newest_commit()))
}

impl Core {
    pub(super) fn new(builder: Builder, parts: Parts) -> Core {
        let cleaning = Cleaner::new(builder.cleaning_policy());
        let log_buffer = parts.budget.charge(Part::Buffer, RECORD_BUFFER_SIZE);
        let manifest_bytes = AtomicU64::new(parts.manifest.bytes_written());
        let trail = parts.manifest.state().trail().copied();
        let closed_at = closed_at(parts.manifest.state());
        Core {
            dir: parts.dir,
            storage: builder.storage,
            guard: parts.guard,
            clock: builder.clock,
            time: parts.time,
            entropy: builder.entropy,
            database: parts.database,
            opening: parts.opening,
            sizes: parts.sizes,
            durability: builder.durability,
            background: builder.background,
            access: builder.access,
            follows: builder.follows,
            process: ProcessMark::new(),
            budget: parts.budget,
            meter: parts.meter,
            cache: Arc::clone(&parts.shared.cache),
            values: Arc::clone(&parts.shared.values),
            shared: parts.shared,
            operators: builder.operators,
            reducers: builder.reducers,
            extractors: builder.extractors,
            flush_slice_size: builder.flush_slice_size,
            index_step_entries: builder.index_step_entries,
            listener: builder.listener,
            recovery: parts.recovery,
            closed_at,
            totals_before: parts.totals_before,
            _log_buffer: log_buffer,
            indexing: Mutex::new(()),
            backing_up: Mutex::new(()),
            trailing: Mutex::new(()),
            untold: RwLock::new(()),
            manifest: Mutex::new(parts.manifest),
            keyring: Mutex::new(parts.keyring),
            log: parts.log,
            published: parts.published,
            workers: Workers::default(),
            watcher: Watcher::default(),
            failures: Failures::default(),
            scrubber: Scrubber::new(builder.scrub),
            snapshots: SnapshotRegister::default(),
            transactions: TransactionRegister::new(parts.sizes.budget / KEPT_FRACTION),
            stalls: StallCounters::default(),
            pacer: Pacer::default(),
            cleaning,
            room_making: RoomMaking::default(),
            compaction_rate: RateLimit::new(builder.compaction_rate),
            pauses: Pauses::default(),
            merge_threads: MergeThreads::default(),
            dropped: DroppedRegister::default(),
            staging: RwLock::new(()),
            acknowledged: Mutex::default(),
            trail: Mutex::new(trail),
            lock: Mutex::new(Some(parts.lock)),
            handle: OnceLock::new(),
            poison: OnceLock::new(),
            closed: AtomicBool::new(false),
            keys_due: AtomicBool::new(false),
            log_due: AtomicBool::new(false),
            disk_full_count: AtomicU64::new(0),
            manifest_bytes,
            gone_bytes: AtomicU64::new(0),
            key_limits_begun: AtomicU64::new(0),
            flushed: (Mutex::new(0), Condvar::new()),
        }
    }

    /// Says who keeps it open.
    pub(super) fn set_handle(&self, handle: &Arc<Handle>) {
        let _only_once = self.handle.set(Arc::downgrade(handle));
    }

    /// Who keeps it open.
    pub(super) fn handle(&self) -> Result<Arc<Handle>> {
        self.handle.get().and_then(Weak::upgrade).ok_or(Error::Closed)
    }

    pub(super) fn default_durability(&self) -> Durability {
        self.durability
    }

    #[inline]
    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(self.why_closed()) } else { Ok(()) }
    }

    #[cold]
    pub(super) fn why_closed(&self) -> Error {
        match self.closed.load(Ordering::Acquire) {
            true => Error::Closed,
            false => Error::Forked { opener: self.process.number() },
        }
    }

    /// Whether this process is a fork of the one that has it open.
    #[inline]
    pub(super) fn is_forked(&self) -> bool {
        !self.process.is_here()
    }

    /// Refuses what a fork has no part in, where a closed database does not.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(self.why_closed()) } else { Ok(()) }
    }

    /// Refuses what reads the log, where that is somebody else's.
    pub(super) fn check_has_log(&self) -> Result<()> {
        match self.follows {
            false => Ok(()),
            true => Err(Error::invalid(
                "a follower reads commits and changes with `Follower::changes` alone",
            )),
        }
    }

    /// Whether writing is still allowed.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.poison.get() {
            Some(why) => Err(Error::ReadOnly { why: why.clone() }),
            None if self.guard.has_failed_dir_sync() => Err(self.why_names_are_in_doubt()),
            None => Ok(()),
        }
    }

    #[cold]
    fn why_names_are_in_doubt(&self) -> Error {
        Error::ReadOnly { why: self.guard.failed_dir_sync().unwrap_or_default() }
    }

    /// Why nothing is written any more, if so.
    pub(super) fn poison(&self) -> Option<&String> {
        self.poison.get()
    }

    /// D4: from now on every write says why there are none.
    pub(super) fn set_poison(&self, why: &str) {
        let _first_reason_stays = self.poison.set(why.to_owned());
        self.signal_flushed();
        self.log.wake_waiting();
    }

    /// D4, where a sync of a directory has failed, whoever asked for it and whatever that came to
    /// (U4). Not in [`Core::check_writable`], which has refused writes since: this takes locks.
    pub(super) fn heed_failed_sync(&self) {
        if self.poison.get().is_none()
            && let Some(why) = self.guard.failed_dir_sync()
        {
            self.set_poison(&why);
        }
    }

    /// Marks the database closed; whether this call did it.
    pub(super) fn set_closed(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether nothing is done with it any more: it was closed, or this process is a fork of the
    /// one that has it open.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.is_forked()
    }

    pub(super) fn unlock_directory(&self) {
        drop(lock(&self.lock).take());
    }

    /// Counts flushes; [`Core::wait_for_flush`] waits for the count to change.
    pub(super) fn flush_count(&self) -> u64 {
        *lock(&self.flushed.0)
    }

    pub(super) fn signal_flushed(&self) {
        *lock(&self.flushed.0) += 1;
        self.flushed.1.notify_all();
    }

    /// Waits until the count is above `seen`, or for a while: memory also comes back without a
    /// signal, from a reader that was the last to hold a memtable.
    pub(super) fn wait_for_flush(&self, seen: u64) {
        const WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(10);
        let guard = lock(&self.flushed.0);
        let unchanged = |count: &mut u64| *count == seen;
        let waited = self.flushed.1.wait_timeout_while(guard, WAIT_MAX, unchanged);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn lock_manifest(&self) -> MutexGuard<'_, Manifest> {
        // The manifest applies an edit in memory only after it is durable, in one step.
        lock(&self.manifest)
    }

    /// The manifest, for an edit. Closing takes this lock after it has marked the database closed,
    /// so an edit comes before the last one or not at all: the directory is another opening's then.
    pub(super) fn lock_manifest_for_edit(&self) -> Result<MutexGuard<'_, Manifest>> {
        let manifest = self.lock_manifest();
        self.check_writable()?;
        Ok(manifest)
    }

    pub(super) fn store_place(&self, store_id: u32, options: &KeyspaceOptions) -> StorePlace {
        StorePlace {
            storage: Arc::clone(&self.storage),
            dir: keyspace_dir(&self.dir, store_id),
            database: self.database,
            keyspace: store_id,
            shared: self.shared.clone(),
            options: options.clone(),
            merging: merging_of(options, &self.operators, &keyspace_dir(&self.dir, store_id)),
        }
    }

    pub(super) fn find_keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        self.check_open()?;
        let state = self.published.state();
        let mut keyspaces = state.keyspaces.iter().filter(|other| !other.runtime.is_hidden());
        let found = keyspaces.find(|keyspace| **keyspace.runtime.name.load() == name);
        found.cloned().ok_or_else(|| Error::KeyspaceNotFound { name: name.to_owned() })
    }

    pub(super) fn keyspace_infos(&self) -> Vec<KeyspaceInfo> {
        let state = self.published.state();
        let keyspaces = state.keyspaces.iter().filter(|other| !other.runtime.is_hidden());
        let mut infos: Vec<KeyspaceInfo> = keyspaces.map(|keyspace| info_of(keyspace)).collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    /// The newest stamp that reads see.
    pub(super) fn visible(&self) -> SeqNo {
        self.published.visible()
    }
}

fn info_of(keyspace: &KeyspaceState) -> KeyspaceInfo {
    let runtime = &keyspace.runtime;
    KeyspaceInfo {
        id: runtime.id,
        name: runtime.name.load().to_string(),
        structure: runtime.options.structure.name(),
        // What it says of the key is none that can be given.
        options: KeyspaceOptions { own_key: false, ..runtime.options.clone() },
        has_own_key: runtime.options.own_key,
    }
}

/// The directory of all keyspaces.
pub(super) fn keyspaces_dir(database: &std::path::Path) -> PathBuf {
    database.join("keyspaces")
}

/// The directory of a keyspace: by the number of its store, because names are data.
pub(super) fn keyspace_dir(database: &std::path::Path, id: u32) -> PathBuf {
    keyspaces_dir(database).join(format!("{id:08}"))
}

/// Locks a mutex whose data stays consistent whatever panicked while it was held.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
