//! What a moment of the database is made of: memtables and versions, published together.

use std::collections::BTreeMap;

use crate::base::sync::ArcSwap;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{Arc, Mutex, PoisonError};
use crate::base::{KeptStamps, SeqNo, Slice, StripedCounters, ValuePointer};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::db::convert::ConversionJob;
use crate::db::history::Unarchived;
use crate::db::indexes::IndexSet;
use crate::db::no_room::NoRoom;
use crate::db::presence::Presence;
use crate::db::time::Time;
use crate::db::visible::Visible;
use crate::jobs::FlushRate;
use crate::manifest::KeyspaceOptions;
use crate::memtable::{Filtering, Memtable, MemtableConfig, SpareChunks};
use crate::structure::{Store, Version};
use crate::value_log::{ValueFile, ValueLog, record_len};

/// No commit has gone to the memtable yet.
const NO_LOG_START: u64 = u64::MAX;

/// Counts the memory of memtables: those that take part, and those that only readers still hold.
#[derive(Debug)]
pub(super) struct MemtableMeter {
    budget: Arc<MemoryBudget>,
    /// Memory for those to come.
    pub spares: Arc<SpareChunks>,
    /// Bytes of memtables that are flushed and still held.
    pinned: AtomicU64,
}

impl MemtableMeter {
    /// Keeps memory for one memtable of `memtable_size`.
    pub(super) fn new(budget: Arc<MemoryBudget>, memtable_size: u64) -> Arc<MemtableMeter> {
        let spares = SpareChunks::new(memtable_size, &budget);
        Arc::new(MemtableMeter { budget, spares, pinned: AtomicU64::new(0) })
    }

    /// Bytes of memtables that are flushed and still held.
    pub(super) fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Bytes of memtables that are written to or wait to be flushed. Sealing and waiting can do
    /// nothing about the others.
    pub(super) fn in_use(&self) -> u64 {
        let all = self.budget.usage(Part::Memtable) as u64;
        let others = self.pinned.load(Ordering::Relaxed) + self.spares.bytes() as u64;
        all.saturating_sub(others)
    }
}

/// A memtable with what the database knows about it.
#[derive(Debug)]
pub(super) struct Table {
    pub memtable: Arc<Memtable>,
    /// Where the first commit in it starts in the log.
    log_start: AtomicU64,
    /// Where the last commit in it ends in the log.
    log_end: AtomicU64,
    charge: Mutex<Charge>,
    /// Value files that its entries point into, each with the bytes of the records there.
    values: Mutex<BTreeMap<u64, (Arc<ValueFile>, u64)>>,
    /// What it changes about the number of keys, if that was asked for.
    pub presence: Presence,
    /// How many bytes of records it may point to before it is sealed.
    values_max: u64,
    /// How many more of them there may be.
    value_room: AtomicU64,
    meter: Arc<MemtableMeter>,
    /// Bytes counted as pinned: from when it was flushed until the last reader lets go.
    pinned: AtomicU64,
    /// Key and value bytes that are in the structure.
    flushed: AtomicU64,
    /// Whether all of its versions are in the keyspace's archive, durably (H2).
    is_archived: AtomicBool,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.meter.pinned.fetch_sub(*self.pinned.get_mut(), Ordering::Relaxed);
    }
}

impl Table {
    pub(super) fn new(meter: &Arc<MemtableMeter>, runtime: &Runtime) -> Arc<Table> {
        Table::expecting(runtime.memtable_size, meter, runtime)
    }

    /// One in which there will be about so many bytes of keys and values at first.
    pub(super) fn expecting(
        bytes: u64,
        meter: &Arc<MemtableMeter>,
        runtime: &Runtime,
    ) -> Arc<Table> {
        let expected_bytes = bytes.min(runtime.memtable_size) as usize;
        let (filtering, range_stamps) = (Filtering::Bloom, KeptStamps::All);
        let config = MemtableConfig { expected_bytes, filtering, range_stamps };
        let memtable = Arc::new(Memtable::new(config, &meter.spares));
        let values_max = runtime.values_max();
        let charge = Mutex::new(meter.budget.charge(Part::Memtable, memtable.memory_used()));
        Arc::new(Table {
            memtable,
            log_start: AtomicU64::new(NO_LOG_START),
            log_end: AtomicU64::new(0),
            charge,
            values: Mutex::default(),
            presence: Presence::default(),
            values_max,
            value_room: AtomicU64::new(values_max),
            meter: Arc::clone(meter),
            pinned: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            is_archived: AtomicBool::new(false),
        })
    }

    /// A slice of a flush has taken so many bytes of keys and values; how much memory that stands
    /// for.
    pub(super) fn note_slice(&self, bytes: u64) -> u64 {
        self.flushed.fetch_add(bytes, Ordering::Relaxed);
        (bytes as f64 * self.memory_per_byte()) as u64
    }

    /// The memory that stands for what is still to be flushed.
    pub(super) fn unflushed(&self) -> u64 {
        let data = self.memtable.data_size() as u64;
        let left = data.saturating_sub(self.flushed.load(Ordering::Relaxed));
        (left as f64 * self.memory_per_byte()) as u64
    }

    fn memory_per_byte(&self) -> f64 {
        self.memtable.memory_used() as f64 / self.memtable.data_size().max(1) as f64
    }

    /// Says that its versions are in the archive.
    pub(super) fn note_archived(&self) {
        self.is_archived.store(true, Ordering::Relaxed);
    }

    /// Whether its versions are in the archive. Under the keyspace's turn to flush.
    pub(super) fn is_archived(&self) -> bool {
        self.is_archived.load(Ordering::Relaxed)
    }

    /// Says that it is flushed, or its keyspace dropped: from now on only readers hold it.
    pub(super) fn note_flushed(&self) {
        let bytes = self.memtable.memory_used() as u64;
        let first = self.pinned.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.meter.pinned.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Accounts for a commit that was inserted and that lies at this place of the log.
    pub(super) fn note_commit(&self, log_start: u64, log_end: u64) {
        self.log_start.fetch_min(log_start, Ordering::Relaxed);
        self.log_end.fetch_max(log_end, Ordering::Relaxed);
        self.note_memory();
    }

    /// Links what was staged in the memtable, and accounts for it.
    pub(super) fn link_staged(&self) {
        self.memtable.writer().link_staged();
        self.note_memory();
    }

    fn note_memory(&self) {
        let used = self.memtable.memory_used();
        let mut charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
        if charge.bytes() != used {
            charge.resize(used);
        }
    }

    /// Holds the files that these pointers, which were inserted and not published yet, lead to.
    pub(super) fn hold_values(&self, log: &ValueLog, pointers: &[&[u8]]) {
        let mut held = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        for pointer in pointers.iter().filter_map(|bytes| ValuePointer::decode(bytes)) {
            let file = held.entry(pointer.file).or_insert_with(|| (log.hold(pointer.file), 0));
            let bytes = record_len(u64::from(pointer.len));
            file.1 += bytes;
            // Only who applies commits takes from it.
            let room = self.value_room.load(Ordering::Relaxed);
            self.value_room.store(room.saturating_sub(bytes), Ordering::Relaxed);
        }
    }

    /// Bytes of values that may still be put before it is sealed: what is overwritten in it cannot
    /// be given back before it is flushed.
    pub(super) fn value_room(&self) -> u64 {
        self.value_room.load(Ordering::Relaxed)
    }

    /// Bytes of values that it may refer to.
    pub(super) fn values_max(&self) -> u64 {
        self.values_max
    }

    /// Bytes of values that were put to it, as far as they count for its room.
    pub(super) fn values_put(&self) -> u64 {
        self.values_max - self.value_room()
    }

    /// Those of them that are not flushed yet, about: a flush makes room for others bit by bit.
    pub(super) fn values_unflushed(&self) -> u64 {
        let (put, flushed) = (self.values_put(), self.flushed.load(Ordering::Relaxed));
        if put == 0 || flushed == 0 {
            return put;
        }
        let data = self.memtable.data_size().max(1) as f64;
        (put as f64 * (1.0 - flushed as f64 / data).max(0.0)) as u64
    }

    /// Adds the bytes that its entries point to, by value file.
    pub(super) fn add_value_bytes(&self, sums: &mut BTreeMap<u64, u64>) {
        let held = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, (_, bytes)) in &*held {
            *sums.entry(*number).or_default() += bytes;
        }
    }

    /// Adds the value files that its entries point into.
    pub(super) fn add_value_files(&self, files: &mut BTreeMap<u64, Arc<ValueFile>>) {
        let held = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, (file, _)) in &*held {
            files.entry(*number).or_insert_with(|| Arc::clone(file));
        }
    }

    /// Bytes that its entries point to.
    pub(super) fn value_bytes(&self) -> u64 {
        let held = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        held.values().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes of values that about so many of its bytes of keys and values point to.
    pub(super) fn value_bytes_of(&self, bytes: u64) -> u64 {
        let part = bytes as f64 / self.memtable.data_size().max(1) as f64;
        (self.value_bytes() as f64 * part) as u64
    }

    /// Its newest commit.
    pub(super) fn newest(&self) -> SeqNo {
        self.memtable.seqno_range().map_or(SeqNo::ZERO, |(_, newest)| newest)
    }

    /// Where the log is needed from on account of this memtable.
    pub(super) fn log_start(&self) -> Option<u64> {
        let start = self.log_start.load(Ordering::Relaxed);
        (start != NO_LOG_START).then_some(start)
    }

    pub(super) fn log_end(&self) -> u64 {
        self.log_end.load(Ordering::Relaxed)
    }
}

/// What does not change about a keyspace while it is open and has the same store, and its counters.
#[derive(Debug)]
pub(super) struct Runtime {
    pub id: u32,
    /// The number of its store, by which its folder is named.
    pub store_id: u32,
    /// Where all versions go, of a keyspace that keeps them (`db/history/`).
    pub archive: Option<Arc<Runtime>>,
    /// Changes when the keyspace is renamed. Stays when it is converted.
    pub name: Arc<ArcSwap<String>>,
    pub options: KeyspaceOptions,
    pub store: Arc<dyn Store>,
    /// Where its large values are.
    pub values: Arc<ValueLog>,
    /// What has expired is judged by this.
    pub time: Arc<Time>,
    /// What the memory of its counts is charged to.
    pub budget: Arc<MemoryBudget>,
    /// Bytes at which a memtable is sealed.
    pub memtable_size: u64,
    /// Values of fewer bytes are put as they are: they neither go to the value log nor expire.
    pub plain_below: usize,
    /// Whether the keyspace was dropped, or has another store by now.
    pub dropped: AtomicBool,
    /// Held while a memtable of the keyspace is flushed. Stays when it is converted, and is that of
    /// the store that is being made meanwhile as well.
    pub flushing: Arc<Mutex<()>>,
    /// Making another store for it, while that is under way.
    pub conversion: Mutex<Option<Arc<ConversionJob>>>,
    /// Counted before it was converted.
    pub gets_before: u64,
    pub gets: StripedCounters<1>,
    pub flush_rate: FlushRate,
    /// Whether there was none for the last try of its flush.
    pub no_room: NoRoom,
    /// Of [`Store::debt`], as of the newest version.
    pub fresh_runs: AtomicUsize,
    /// Of an archive: it has no entries by stamp in front of this one.
    pub stamps_gone_to: AtomicU64,
}

impl Runtime {
    /// Whether nobody is to see it: it is the archive of another keyspace, an index of one is kept
    /// in it, or it is a store that is being made for one.
    pub(super) fn is_hidden(&self) -> bool {
        let is_named_so = || is_hidden_name(&self.name.load());
        self.options.archive_of.is_some() || self.is_index() || is_named_so()
    }

    /// Whether an index of another keyspace is kept in it.
    pub(super) fn is_index(&self) -> bool {
        self.options.index.is_some()
    }

    /// The conversion that is under way.
    pub(super) fn conversion(&self) -> Option<Arc<ConversionJob>> {
        self.conversion.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// New runs that wait to be merged, in its structure or its archive: the more of the two.
    #[inline]
    pub(super) fn fresh_runs_of_both(&self) -> usize {
        let own = self.fresh_runs.load(Ordering::Relaxed);
        let archive = self.archive.as_ref();
        own.max(archive.map_or(0, |archive| archive.fresh_runs.load(Ordering::Relaxed)))
    }

    /// Says that the structure has a new version.
    pub(super) fn note_version(&self) {
        self.fresh_runs.store(self.store.debt().fresh_runs, Ordering::Relaxed);
    }

    /// Bytes of values that a memtable may refer to: a file, or a part of what is live, but not of
    /// more than some files: cleaning waits for the flush of all of it, and writers then for that.
    fn values_max(&self) -> u64 {
        const LIVE_FRACTION: u64 = 16;
        const FILE_COUNT_MAX: u64 = 4;
        let live: u64 = self.store.value_bytes().values().sum();
        let file_size = self.values.file_size();
        (live / LIVE_FRACTION).clamp(file_size, FILE_COUNT_MAX.saturating_mul(file_size))
    }
}

/// What the names of keyspaces that nobody is to see begin with, and no other's.
const HIDDEN_NAME_START: char = '\0';

/// Whether a keyspace of this name is one that nobody is to see.
pub(super) fn is_hidden_name(name: &str) -> bool {
    name.starts_with(HIDDEN_NAME_START)
}

/// The name of the archive of the keyspace of this number.
pub(super) fn archive_name(parent: u32) -> String {
    format!("{HIDDEN_NAME_START}versions of #{parent}")
}

/// The name, in no catalogue, of the store that is made for the keyspace of this number.
pub(super) fn conversion_name(parent: u32) -> String {
    format!("{HIDDEN_NAME_START}conversion of #{parent}")
}

/// What handles to a keyspace hold: they find its newest runtime there. What each put asks for lies
/// beside that, where it costs no more than a look.
#[derive(Debug)]
pub(super) struct Seat {
    runtime: ArcSwap<Runtime>,
    /// Of all runtimes.
    name: Arc<ArcSwap<String>>,
    /// Of the newest.
    plain_below: AtomicUsize,
    /// Whether commits are refused keys that an archive cannot take.
    limits_archived_keys: AtomicBool,
}

impl Seat {
    pub(super) fn new(runtime: Arc<Runtime>) -> Seat {
        Seat {
            name: Arc::clone(&runtime.name),
            plain_below: AtomicUsize::new(runtime.plain_below),
            limits_archived_keys: AtomicBool::new(runtime.archive.is_some()),
            runtime: ArcSwap::new(runtime),
        }
    }

    pub(super) fn load(&self) -> crate::base::sync::Guard<Arc<Runtime>> {
        self.runtime.load()
    }

    pub(super) fn load_full(&self) -> Arc<Runtime> {
        self.runtime.load_full()
    }

    /// Has handles find this runtime, which has the same name.
    pub(super) fn store(&self, runtime: Arc<Runtime>) {
        self.plain_below.store(runtime.plain_below, Ordering::Release);
        self.limit_archived_keys(runtime.archive.is_some());
        self.runtime.store(runtime);
    }

    /// Values of fewer bytes are put as they are: see [`Runtime::plain_below`].
    #[inline]
    pub(super) fn plain_below(&self) -> usize {
        self.plain_below.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn limits_archived_keys(&self) -> bool {
        self.limits_archived_keys.load(Ordering::Acquire)
    }

    pub(super) fn limit_archived_keys(&self, limit: bool) {
        self.limits_archived_keys.store(limit, Ordering::Release);
    }

    #[inline]
    pub(super) fn name(&self) -> &ArcSwap<String> {
        &self.name
    }
}

/// One keyspace at one moment.
#[derive(Clone, Debug)]
pub(super) struct KeyspaceState {
    pub runtime: Arc<Runtime>,
    pub seat: Arc<Seat>,
    pub active: Arc<Table>,
    /// Newest first.
    pub sealed: Vec<Arc<Table>>,
    pub version: Arc<dyn Version>,
    /// Up to in front of this key, the oldest sealed memtable is in the version: a flush of it is
    /// under way. Empty when none is.
    pub flushed_to: Slice,
    /// Its secondary indexes; `None` if it has none.
    pub indexes: Option<Arc<IndexSet>>,
    /// What was ingested and is not in its archive yet, if it keeps versions.
    pub unarchived: Option<Arc<Unarchived>>,
    /// Whether the version is what the archive says as of a moment that is past: then nothing is
    /// kept with the memtables about it.
    pub is_past: bool,
}

impl KeyspaceState {
    /// With one memtable.
    pub(super) fn new(
        runtime: Arc<Runtime>,
        active: Arc<Table>,
        version: Arc<dyn Version>,
    ) -> KeyspaceState {
        let (sealed, flushed_to, indexes) = (Vec::new(), Slice::default(), None);
        let seat = Arc::new(Seat::new(Arc::clone(&runtime)));
        KeyspaceState {
            runtime,
            seat,
            active,
            sealed,
            version,
            flushed_to,
            indexes,
            unarchived: None,
            is_past: false,
        }
    }

    /// Its secondary indexes, if it has any.
    #[inline]
    pub(super) fn index_set(&self) -> Option<&Arc<IndexSet>> {
        self.indexes.as_ref().filter(|set| !set.indexes.is_empty())
    }

    /// All memtables, newest first.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

/// All keyspaces at one moment, ascending by id.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Counts the states.
    generation: u64,
    pub keyspaces: Vec<Arc<KeyspaceState>>,
    /// Whether these are keyspaces as they were, put together for a snapshot.
    pub is_past: bool,
}

impl State {
    fn position(&self, id: u32) -> Result<usize, usize> {
        self.keyspaces.binary_search_by_key(&id, |keyspace| keyspace.runtime.id)
    }

    pub(super) fn find(&self, id: u32) -> Option<&Arc<KeyspaceState>> {
        self.position(id).ok().map(|position| &self.keyspaces[position])
    }

    /// This state with one keyspace changed or added.
    pub(super) fn with(&self, keyspace: KeyspaceState) -> State {
        let mut keyspaces = self.keyspaces.clone();
        let id = keyspace.runtime.id;
        match self.position(id) {
            Ok(position) => keyspaces[position] = Arc::new(keyspace),
            Err(position) => keyspaces.insert(position, Arc::new(keyspace)),
        }
        State { keyspaces, ..State::default() }
    }

    /// The keyspace that has this store.
    pub(super) fn with_store(&self, store_id: u32) -> Option<&Arc<KeyspaceState>> {
        self.keyspaces.iter().find(|keyspace| keyspace.runtime.store_id == store_id)
    }

    /// This state with another version of the store of this number, if a keyspace has that: one
    /// that was replaced concerns nobody.
    pub(super) fn with_version(&self, store_id: u32, version: &Arc<dyn Version>) -> State {
        let Some(keyspace) = self.with_store(store_id) else { return self.clone() };
        self.with(KeyspaceState { version: Arc::clone(version), ..KeyspaceState::clone(keyspace) })
    }

    /// This state without one keyspace.
    pub(super) fn without(&self, id: u32) -> State {
        let keyspaces = self.keyspaces.iter().filter(|keyspace| keyspace.runtime.id != id);
        State { keyspaces: keyspaces.cloned().collect(), ..State::default() }
    }
}

/// The current state and the stamp up to which commits are visible.
///
/// D2: a reader takes both so that they belong together. A commit is inserted into the state that
/// is current and then published; a state is replaced only between commits. So if the state was
/// the same before and after the stamp was read, it holds every commit up to that stamp, and its
/// versions hold none above it.
#[derive(Debug)]
pub(super) struct Published {
    state: ArcSwap<State>,
    visible: Visible,
    /// Held to replace the state.
    replacing: Mutex<()>,
}

impl Published {
    pub(super) fn new(state: State, visible: SeqNo) -> Published {
        Published {
            visible: Visible::new(state.generation, visible.as_u64()),
            state: ArcSwap::from_pointee(state),
            replacing: Mutex::new(()),
        }
    }

    /// State and stamp of this moment.
    pub(super) fn load(&self) -> (Arc<State>, SeqNo) {
        loop {
            let state = self.state.load_full();
            if let Some(visible) = self.visible_in(&state) {
                return (state, visible);
            }
        }
    }

    /// As [`Published::load`], for a read that is over soon: takes no reference count.
    #[inline]
    pub(super) fn with<T>(&self, read: impl FnOnce(&State, SeqNo) -> T) -> T {
        loop {
            let state = self.state.load();
            if let Some(visible) = self.visible_in(&state) {
                return read(&state, visible);
            }
        }
    }

    /// The stamp up to which `state` holds every commit; `None` if a flush or a seal has replaced
    /// it, which is rare (D2: see `visible.rs`).
    #[inline]
    fn visible_in(&self, state: &State) -> Option<SeqNo> {
        self.visible.in_state(state.generation).map(SeqNo::from_u64)
    }

    /// The newest state; for those who do not read data at a stamp.
    pub(super) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Whether `state` is the newest.
    pub(super) fn is_current(&self, state: &Arc<State>) -> bool {
        Arc::ptr_eq(state, &self.state.load())
    }

    pub(super) fn visible(&self) -> SeqNo {
        SeqNo::from_u64(self.visible.stamp())
    }

    /// Makes commits up to `seqno` visible.
    pub(super) fn publish(&self, seqno: SeqNo) {
        self.visible.publish(seqno.as_u64());
    }

    /// Replaces the state by one with a commit in its versions, and publishes that commit: as one,
    /// for readers (D2). In between, which is a few stores, they look again until it is done. No
    /// other commit may be published meanwhile.
    pub(super) fn replace_and_publish(&self, change: impl FnOnce(&State) -> State, seqno: SeqNo) {
        let _turn = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.state.load();
        let generation = current.generation + 1;
        let next = Arc::new(State { generation, ..change(&current) });
        self.visible.announce(generation, seqno.as_u64());
        self.state.store(next);
    }

    /// Replaces the state by what `change` makes of it.
    pub(super) fn replace(&self, change: impl FnOnce(&State) -> State) {
        let _turn = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.state.load();
        let generation = current.generation + 1;
        let next = State { generation, ..change(&current) };
        self.state.store(Arc::new(next));
        self.visible.note_replaced(generation);
    }
}
