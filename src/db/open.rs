//! Opening: the manifest, the structures' indexes, and the log behind what they hold.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::thread;
use crate::base::{Error, Result, SeqNo, StampClock, ValuePointer};
use crate::cache::{Cache, MemoryBudget};
use crate::db::background::Workers;
use crate::db::commit::CommitLog;
use crate::db::core::{Core, Parts, keyspace_dir, keyspaces_dir, merging_of};
use crate::db::encryption::{check_owners, let_go_of_unknown_owners, take_keys};
use crate::db::health::Watcher;
use crate::db::history::Unarchived;
use crate::db::maintain::runtime_of;
use crate::db::options::{Access, Background, Builder, OpenExisting, Sizes};
use crate::db::replay::{Replayer, Uncounted};
use crate::db::scrub::Scrubber;
use crate::db::state::{KeyspaceState, MemtableMeter, Published, Runtime, State, Table};
use crate::db::time::Time;
use crate::db::trail::markers_in;
use crate::manifest::{Edit, KeyspaceRecord, Manifest, Structure, Totals};
use crate::storage::{
    Guard, GuardOptions, GuardedStorage, ReserveUse, Storage, StorageLock,
    clear_directory_for_good, is_held_back, let_go_of_unneeded, lock_directory, make_directory,
    share_directory,
};
use crate::structure::{SharedStores, Store, StorePlace, open_store};
use crate::value_log::ValueLog;
use crate::wal::{Lsn, PartPlace, Parting, Replay, Wal, WalOptions, WalPlace, replay_in_parts};

/// What opening a database found and did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The database was created.
    pub created: bool,
    /// It had been closed; nothing had to be replayed.
    pub clean: bool,
    /// Commits replayed from the log.
    pub wal_records: u64,
    /// Bytes of the log that were read.
    pub wal_bytes: u64,
    /// Parts of the log that were replayed at once.
    pub wal_parts: usize,
    /// Bytes at the end of the log that had been written but never acknowledged as durable, and
    /// were cut off.
    pub wal_bytes_cut: u64,
    /// Leftovers of interrupted work that were removed.
    pub orphans_removed: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Where the log is, in the database's directory.
pub(super) const LOG_DIR: &str = "wal";
/// Where value files are, in the database's directory.
pub(super) const VALUES_DIR: &str = "values";
/// Why nothing is written.
const OPENED_FOR_READING: &str = "it was opened to be read";
/// What is behind the name of a database that has given way to one that was restored.
pub(crate) const BEFORE_RESTORE: &str = ".before-restore";
/// Log files that are kept to be overwritten.
const SPARE_LOG_FILES: usize = 2;
/// Bytes of the log that a part of it has at least: what takes some hundred times as long as
/// starting a thread.
const REPLAY_PART_SIZE: u64 = 32 << 20;
/// The same, for each keyspace: what one has in a part is worth a flush.
const REPLAY_PART_SIZE_PER_KEYSPACE: u64 = 256 << 10;
/// In how many parts it is replayed at once. Each leaves every keyspace one more memtable that is
/// to be flushed, for which there have to be filters, and with four of which writers would stop.
const REPLAY_PARTS_MAX: usize = 2;

/// Opens the database in `dir`.
pub(super) fn open(builder: Builder, dir: &Path) -> Result<Arc<Core>> {
    let since = builder.clock.monotonic();
    let sizes = builder.sizes()?;
    builder.operators.validate()?;
    builder.reducers.validate()?;
    builder.extractors.validate()?;
    let (builder, guard) = guarded(builder, dir, &sizes);
    let (builder, lock) = take_directory(builder, dir)?;
    if builder.access == Access::ReadWrite {
        let _whoever_comes_next_does = let_go_of_unneeded(&*builder.storage, dir);
    }
    let reserve = ReserveOfOpening::take_up(&guard, builder.access);
    let _recovery_may_use_it = ReserveUse::of_all();
    // Another opening may have created it before the lock was ours.
    let is_there = Manifest::exists(&*builder.storage, dir)?;
    let (builder, mut keyring) = take_keys(builder, dir, is_there)?;
    let manifest = match is_there {
        true => Manifest::open(Arc::clone(&builder.storage), dir)?.0,
        false => {
            let storage = Arc::clone(&builder.storage);
            Manifest::create(storage, dir, &*builder.entropy, builder.clock.wall_millis())?
        }
    };
    check_owners(builder.storage.keyring(), manifest.state(), dir)?;
    if builder.access == Access::ReadWrite
        && let Some((file, in_use)) = keyring.as_mut().zip(builder.storage.keyring())
    {
        let_go_of_unknown_owners(file, in_use, manifest.state())?;
    }
    let mut opening = Opening::new(&builder, dir, sizes, manifest)?;
    opening.report.created = !is_there;
    opening.settle_trail()?;
    opening.remove_dropped()?;
    let Recovered { state, stamps, visible, log, totals } = opening.recover()?;
    opening.note_kept_log()?;
    let Opening { manifest, budget, meter, shared, time, mut report, .. } = opening;
    report.duration = builder.clock.monotonic().saturating_sub(since);
    time.note_opened(stamps.last());
    if state.keyspaces.iter().any(|keyspace| keyspace.may_expire()) {
        time.note_used();
    }
    let published = Published::new(state, visible);
    let released = Lsn::from_u64(manifest.state().log_start());
    let slow_after = builder.slow_disk_after;
    let parts = Parts {
        dir: dir.to_owned(),
        guard: Arc::clone(&guard),
        time,
        database: manifest.state().database(),
        opening: builder.entropy.next_u64(),
        sizes,
        budget,
        meter,
        shared,
        recovery: report,
        totals_before: totals,
        manifest,
        keyring,
        log: CommitLog::new(log, stamps, released, builder.background),
        published,
        lock,
    };
    let core = Arc::new(Core::new(builder, parts));
    core.hold_log(core.lock_manifest().state());
    if core.access == Access::ReadOnly {
        core.set_poison(OPENED_FOR_READING);
    }
    let started = Watcher::start(&core, slow_after).and_then(|()| Workers::start(&core));
    let started = started.and_then(|()| Scrubber::start(&core));
    started.inspect_err(|_| core.give_up_opening())?;
    reserve.keep();
    core.note_keys_due();
    core.destroy_keys_in_passing();
    core.workers.wake();
    Ok(core)
}

/// The reserve, until the database is open: if nothing comes of that, it is left as it was.
struct ReserveOfOpening<'g> {
    guard: &'g Guard,
    is_kept: bool,
}

impl<'g> ReserveOfOpening<'g> {
    fn take_up(guard: &'g Guard, access: Access) -> ReserveOfOpening<'g> {
        if access == Access::ReadWrite {
            guard.open_reserve();
        }
        ReserveOfOpening { guard, is_kept: false }
    }

    fn keep(mut self) {
        self.guard.note_recovered();
        self.is_kept = true;
    }
}

impl Drop for ReserveOfOpening<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.guard.abandon_reserve();
        }
    }
}

/// Has all calls to the storage looked after.
pub(super) fn guarded(builder: Builder, dir: &Path, sizes: &Sizes) -> (Builder, Arc<Guard>) {
    let options = GuardOptions { slow_after: builder.slow_disk_after, reserve: sizes.reserve };
    let guard = Arc::new(Guard::new(dir, Arc::clone(&builder.clock), options));
    let storage = GuardedStorage::new(Arc::clone(&builder.storage), Arc::clone(&guard));
    (Builder { storage: Arc::new(storage), ..builder }, guard)
}

/// What recovery has come to.
struct Recovered {
    state: State,
    /// Gives stamps above all that were ever given.
    stamps: StampClock,
    /// The newest commit that is there.
    visible: SeqNo,
    log: Wal,
    /// What was written before.
    totals: Totals,
}

/// What was read back from the log.
struct Replayed {
    state: State,
    /// The newest commit.
    newest: SeqNo,
    /// Values that are there, and may be so in the operating system's memory only.
    doubtful: Vec<ValuePointer>,
    /// Commits that the manifest's totals do not count.
    uncounted: Uncounted,
    /// How many parts of the log were replayed at once.
    parts: usize,
}

/// Locks the directory, for what the opening may do with it.
fn take_directory(builder: Builder, dir: &Path) -> Result<(Builder, Box<dyn StorageLock>)> {
    let is_there = Manifest::exists(&*builder.storage, dir)?;
    if builder.access == Access::ReadOnly {
        if !is_there {
            refuse_interrupted_restore(&builder, dir)?;
            return Err(no_manifest(&*builder.storage, dir)); // Not even a lock file is made.
        }
        let lock = share_directory(&*builder.storage, dir)?;
        let builder = builder.for_reading(dir)?; // Names as they are under the lock.
        if !Manifest::exists(&*builder.storage, dir)? {
            return Err(no_manifest(&*builder.storage, dir)); // It went before the lock was ours.
        }
        return Ok((builder, lock));
    }
    if !is_there {
        prepare_directory(&builder, dir)?;
    }
    let lock = lock_directory(&*builder.storage, dir)?;
    Ok((builder, lock))
}

pub(super) fn no_database(dir: &Path) -> Error {
    not_there(dir, "there is no database")
}

/// The same where there is no manifest: other parts of a database may be there, as a checkpoint
/// that was interrupted leaves them, too.
pub(super) fn no_manifest(storage: &dyn Storage, dir: &Path) -> Error {
    let parts = [dir.join(LOG_DIR), keyspaces_dir(dir)];
    match parts.iter().any(|part| matches!(storage.exists(part), Ok(true))) {
        true => not_there(
            dir,
            "there is no manifest, but other parts of a database: of a copy that was interrupted, \
             or of one that has lost it, which a repair can read",
        ),
        false => no_database(dir),
    }
}

fn not_there(dir: &Path, what: &str) -> Error {
    Error::io("open", dir, io::Error::new(ErrorKind::NotFound, what))
}

/// A restore that was interrupted between its last two steps leaves no database in `dir`, and two
/// beside it: neither is passed over.
fn refuse_interrupted_restore(builder: &Builder, dir: &Path) -> Result<()> {
    let Some(name) = dir.file_name() else { return Ok(()) };
    let mut before = name.to_owned();
    before.push(BEFORE_RESTORE);
    let before = dir.with_file_name(before);
    match Manifest::exists(&*builder.storage, &before) {
        Ok(true) => {}
        Ok(false) => return Ok(()), // What is left of one that was being removed is none either.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => return Ok(()),
        Err(error) => return Err(error),
    }
    let (shown, before) = (dir.display(), before.display());
    Err(Error::invalid(format!(
        "there is no database at {shown}: one that was there has given way to a restore, and is at \
         {before}; what was to take its place may be beside it. Give one of them the name"
    )))
}

/// Sees to it that a database can be created in `dir`.
fn prepare_directory(builder: &Builder, dir: &Path) -> Result<()> {
    refuse_interrupted_restore(builder, dir)?;
    if builder.existing == OpenExisting::Only {
        return Err(no_manifest(&*builder.storage, dir));
    }
    let storage = &*builder.storage;
    let look =
        |path: &Path| storage.exists(path).map_err(|error| Error::io("look for", path, error));
    let was_there = look(dir)?;
    // The manifest is the first thing that a creation makes.
    if was_there && (look(&dir.join(LOG_DIR))? || look(&keyspaces_dir(dir))?) {
        let path = dir.join("MANIFEST-00000001");
        return Err(Error::corruption(
            &path,
            0,
            "no manifest is there, but the rest of a database",
        ));
    }
    make_directory(storage, dir)
}

/// A database that is being opened.
pub(super) struct Opening<'a> {
    builder: &'a Builder,
    dir: &'a Path,
    sizes: Sizes,
    pub manifest: Manifest,
    pub budget: Arc<MemoryBudget>,
    pub meter: Arc<MemtableMeter>,
    pub shared: SharedStores,
    pub time: Arc<Time>,
    pub report: RecoveryReport,
}

impl<'a> Opening<'a> {
    pub(super) fn new(
        builder: &'a Builder,
        dir: &'a Path,
        sizes: Sizes,
        manifest: Manifest,
    ) -> Result<Opening<'a>> {
        let budget = MemoryBudget::new(usize::try_from(sizes.budget).unwrap_or(usize::MAX));
        let cache = Arc::new(Cache::new(Arc::clone(&budget)));
        let meter = MemtableMeter::new(Arc::clone(&budget), sizes.memtable);
        let report = RecoveryReport::default();
        let (storage, database) = (Arc::clone(&builder.storage), manifest.state().database());
        let options = builder.value_log_options(&sizes);
        let values_dir = dir.join(VALUES_DIR);
        let values = ValueLog::open(storage, values_dir, database, options, Arc::clone(&budget))?;
        values.skip(manifest.state().totals().value_files);
        Ok(Opening {
            builder,
            dir,
            sizes,
            manifest,
            meter,
            shared: SharedStores {
                cache,
                partitions: Arc::new(Cache::for_indexes(Arc::clone(&budget))),
                guides: Arc::new(Cache::for_guides(Arc::clone(&budget))),
                open_segments: Arc::default(),
                open_tables: Arc::default(),
                values: Arc::new(values),
                memtable_size: sizes.memtable,
            },
            budget,
            time: Time::new(Arc::clone(&builder.clock)),
            report,
        })
    }

    /// The trail that the catalogue tells of follows the database of which this is a copy, unless
    /// there is its marker. Markers of others are what is left of beginning and ending one.
    fn settle_trail(&mut self) -> Result<()> {
        let storage = &*self.builder.storage;
        let followed = self.manifest.state().trail().map(|trail| trail.id);
        let (own, others): (Vec<_>, Vec<_>) =
            markers_in(storage, self.dir)?.into_iter().partition(|(id, _)| Some(*id) == followed);
        if followed.is_some() && own.is_empty() {
            self.manifest.apply(&Edit::RemoveTrail)?;
        }
        for (_, path) in others {
            storage.remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        if self.manifest.state().trail().is_some_and(|trail| !trail.is_over()) {
            self.shared.values.keep_files(); // Before what nobody holds goes.
        }
        Ok(())
    }

    /// Removes what is left of keyspaces that were dropped, of stores that were replaced, and of
    /// such as were being made.
    pub(super) fn remove_dropped(&mut self) -> Result<()> {
        let dropped: Vec<u32> = self.manifest.state().dropped().collect();
        for id in dropped {
            let dir = keyspace_dir(self.dir, id);
            match clear_directory_for_good(&*self.builder.storage, &dir) {
                Err(error) if is_held_back(&error) => continue, // FO7
                cleared => cleared?,
            }
            self.manifest.apply(&Edit::ForgetDropped { id })?;
            self.report.orphans_removed += 1;
        }
        Ok(())
    }

    /// Opens the structures, replays the log and resumes it.
    fn recover(&mut self) -> Result<Recovered> {
        let state = self.open_keyspaces()?;
        let stores = state.keyspaces.iter().map(|keyspace| keyspace.runtime.store.last_seqno());
        let in_stores = stores.max().unwrap_or(SeqNo::ZERO);
        let created = self.manifest.state().keyspaces().map(|record| record.created);
        // Stamps that were given, also to commits that a crash has taken.
        let given = created.max().unwrap_or(SeqNo::ZERO).max(self.manifest.state().last_seqno());
        let place = self.wal_place();
        if self.manifest.state().last_seqno() == SeqNo::ZERO {
            self.shared.values.finish_opening()?;
            return self.begin_log(state, place);
        }
        let required = Lsn::from_u64(self.manifest.state().log_start());
        let (replayed, log) = self.replay(&state, &place, required)?;
        let found = log.recovered();
        if let Some(clean_end) = self.manifest.state().clean_log_end()
            && found.end.as_u64() < clean_end
        {
            let (file, offset) = &found.end_place;
            let what = format!("the log ends at {}, it was closed at {clean_end}", found.end);
            return Err(Error::corruption(file, *offset, what));
        }
        self.check_structures(&state, &log)?;
        drop(state);
        self.shared.values.check_held()?;
        self.report.wal_records = found.record_count;
        self.report.wal_parts = replayed.parts;
        self.report.wal_bytes = found.end.bytes_since(required);
        self.report.wal_bytes_cut = found.truncated_bytes;
        self.report.clean = self.manifest.state().clean_log_end().is_some();
        // V2: before the log that points there.
        self.shared.values.make_durable(&replayed.doubtful)?;
        let wal = Wal::resume(place, &log)?;
        self.report.orphans_removed += self.shared.values.finish_opening()?.files;
        let Replayed { state, newest, uncounted, .. } = replayed;
        let totals = uncounted.added_to(self.manifest.state().totals(), found.end);
        // Neither need have a commit to a keyspace that was dropped.
        let visible = in_stores.max(newest).max(self.manifest.state().newest_commit());
        let stamps = StampClock::after(visible.max(given));
        Ok(Recovered { state, stamps, visible, log: wal, totals })
    }

    /// Reads the log from `required` on into memtables. A record that may never have been durable,
    /// and points to a value that is not there, is taken for a torn one: the log ends in front.
    fn replay(
        &self,
        stores: &State,
        place: &WalPlace,
        required: Lsn,
    ) -> Result<(Replayed, Replay)> {
        let catalog = self.manifest.state();
        let flushed = stores.keyspaces.iter().map(|keyspace| keyspace.runtime.store.log_end());
        // D5, and what closing says.
        let proven = flushed.chain(catalog.clean_log_end()).max().unwrap_or(0);
        let mut limit = Lsn::MAX;
        loop {
            let (parting, records) = (self.parting(stores), required..limit);
            let (log, parts) = replay_in_parts(place, records, parting, &|part| {
                let state = self.with_fresh_memtables(stores, &part);
                let next_id = catalog.next_keyspace_id();
                let uncounted = Uncounted::behind(catalog.totals());
                let told = catalog.trail().filter(|trail| !trail.is_over()).map(|trail| trail.done);
                let replayer = Replayer::new(state, &self.meter, &self.shared.values, next_id);
                replayer.counting(uncounted).telling(told).staging_up_to(parting.part_size)
            })?;
            let part_count = parts.len();
            let mut replayer = Replayer::joined(parts)?;
            let durable_up_to = log.durable_up_to().max(required).max(Lsn::from_u64(proven));
            match replayer.first_without_value(durable_up_to)? {
                Some(lsn) => limit = lsn,
                None => {
                    let (doubtful, uncounted) = (replayer.doubtful(), replayer.uncounted());
                    let (state, newest) = replayer.finish();
                    let parts = part_count;
                    return Ok((Replayed { state, newest, doubtful, uncounted, parts }, log));
                }
            }
        }
    }

    /// A long log is replayed by two threads, if they can go on at once.
    fn parting(&self, stores: &State) -> Parting {
        let asked = self.builder.replay_part_size;
        let least = stores.keyspaces.len() as u64 * REPLAY_PART_SIZE_PER_KEYSPACE;
        let part_size = asked.unwrap_or(REPLAY_PART_SIZE.max(least));
        let threads = match self.builder.background {
            Background::Stepped => 1,
            Background::Threads => thread::available_parallelism().map_or(1, usize::from),
        };
        let is_parted = threads > 1 || asked.is_some();
        Parting { part_size, threads, parts_max: if is_parted { REPLAY_PARTS_MAX } else { 1 } }
    }

    /// Memtables for what will be replayed of a part of the log.
    fn with_fresh_memtables(&self, stores: &State, part: &PartPlace) -> State {
        // Others come behind it, or whatever is written then.
        let expected = if part.is_last { u64::MAX } else { part.bytes };
        stores.keyspaces.iter().fold(State::default(), |state, keyspace| {
            let runtime = Arc::clone(&keyspace.runtime);
            let active = Table::expecting(expected, &self.meter, &runtime);
            let version = Arc::clone(&keyspace.version);
            let (indexes, unarchived) = (keyspace.indexes.clone(), keyspace.unarchived.clone());
            let fresh = KeyspaceState::new(runtime, active, version);
            state.with(KeyspaceState { indexes, unarchived, ..fresh })
        })
    }

    /// D5: a structure that is ahead of the log says that a durable part of the log is lost.
    fn check_structures(&self, state: &State, log: &Replay) -> Result<()> {
        let (log_end, (file, offset)) = (log.recovered().end, &log.recovered().end_place);
        let ahead = state
            .keyspaces
            .iter()
            .find(|keyspace| keyspace.runtime.store.log_end() > log_end.as_u64());
        let Some(keyspace) = ahead else { return Ok(()) };
        let (id, known) = (keyspace.runtime.id, keyspace.runtime.store.log_end());
        let what = format!("the log ends at {log_end}; keyspace {id} holds commits up to {known}");
        Err(Error::corruption(file, *offset, what))
    }

    /// The log of a new database. That it exists is noted in the manifest by a first stamp: until
    /// then there can be no commits, and a creation that was interrupted is done again.
    fn begin_log(&mut self, state: State, place: WalPlace) -> Result<Recovered> {
        let storage = &*self.builder.storage;
        for dir in [&place.dir, &keyspaces_dir(self.dir)] {
            storage.create_dir_all(dir).map_err(|error| Error::io("create", dir, error))?;
        }
        storage.sync_dir(self.dir).map_err(|error| Error::io("sync", self.dir, error))?;
        let wal = Wal::create(place)?;
        let mut stamps = StampClock::after(SeqNo::ZERO);
        let first = stamps.next(self.builder.clock.wall_millis());
        let start = wal.end().as_u64();
        let edit = Edit::AdvanceLog { log_start: start, journals: Vec::new(), last_seqno: first };
        self.manifest.apply(&edit)?;
        let totals = self.manifest.state().totals().clone();
        Ok(Recovered { state, visible: stamps.last(), stamps, log: wal, totals })
    }

    /// Opens the stores, those of keyspaces in front of their archives: where somebody else writes
    /// them meanwhile, an archive is ahead of its keyspace then, never behind (H2).
    fn open_stores(&self) -> Result<Vec<(&KeyspaceRecord, Arc<dyn Store>)>> {
        let catalog = self.manifest.state();
        let is_archive = |record: &&KeyspaceRecord| record.options.archive_of.is_some();
        let archives = catalog.keyspaces().filter(is_archive);
        let others = catalog.keyspaces().filter(|record| !is_archive(record));
        let opened = others.chain(archives).map(|record| {
            let dir = keyspace_dir(self.dir, record.store);
            let place = StorePlace {
                storage: Arc::clone(&self.builder.storage),
                merging: merging_of(&record.options, &self.builder.operators, &dir),
                dir,
                database: catalog.database(),
                keyspace: record.store,
                shared: self.shared.clone(),
                options: record.options.clone(),
            };
            Ok((record, open_store(&place, record.journal)?))
        });
        opened.collect()
    }

    pub(super) fn open_keyspaces(&self) -> Result<State> {
        let mut state = State::default();
        // Archives first: keyspaces know theirs.
        for (record, store) in self.open_stores()?.into_iter().rev() {
            let sizes = (self.sizes.memtable, &self.time);
            let archive = self.archive_of(record, &state)?;
            let runtime =
                runtime_of(record, store, &self.shared.values, &self.budget, sizes, archive);
            let active = Table::new(&self.meter, &runtime);
            let version = runtime.store.version();
            let unarchived = Unarchived::found(&runtime, &version);
            let keyspace = KeyspaceState::new(runtime, active, version);
            state = state.with(KeyspaceState { unarchived, ..keyspace });
        }
        Ok(state.with_indexes_of_runtimes(&self.builder.extractors))
    }

    /// The archive of a keyspace that keeps versions; it was opened before.
    fn archive_of(&self, record: &KeyspaceRecord, state: &State) -> Result<Option<Arc<Runtime>>> {
        if record.options.structure != Structure::History {
            return Ok(None);
        }
        let archive = self.manifest.state().archive_of(record.id);
        match archive.and_then(|archive| state.find(archive.id)) {
            Some(archive) => Ok(Some(Arc::clone(&archive.runtime))),
            None => {
                let what = format!("the catalogue has no archive of keyspace {}", record.id);
                Err(Error::corruption(&keyspace_dir(self.dir, record.store), 0, what))
            }
        }
    }

    /// Bytes of the log to keep when it is not needed.
    fn kept_log(&self) -> u64 {
        self.builder.kept_log_size.unwrap_or(self.manifest.state().kept_log())
    }

    /// Remembers it; when the log is there.
    fn note_kept_log(&mut self) -> Result<()> {
        let bytes = self.kept_log();
        if bytes == self.manifest.state().kept_log() {
            return Ok(());
        }
        self.manifest.apply(&Edit::KeepLog { bytes })
    }

    fn wal_place(&self) -> WalPlace {
        WalPlace {
            storage: Arc::clone(&self.builder.storage),
            dir: self.dir.join(LOG_DIR),
            database_id: self.manifest.state().database(),
            options: WalOptions {
                file_capacity: self.sizes.wal_file,
                spare_files_max: SPARE_LOG_FILES,
                kept_bytes_max: self.kept_log(),
                held_from: self.manifest.state().held_log().map_or(Lsn::MAX, Lsn::from_u64),
            },
        }
    }
}
