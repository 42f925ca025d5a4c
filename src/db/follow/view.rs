//! A view of a database that somebody else writes: opened by recovery in memory, and brought on by
//! the commits that come to the log.
//!
//! Invariants
//! - FV1  A view shows all commits up to its stamp, and no others. The catalogue is read first,
//!   then the indexes, then the log: what an index has, the log has had by then, up to the newest
//!   stamp there (D5); what it does not have, the log has from where the catalogue says, as nothing
//!   that was needed then goes (`storage/followers.rs`). Ingests, of which the log does not tell,
//!   are looked for behind the log: of one whose stamp the log has passed, the index says so by
//!   then (J2).
//! - FV2  What is inserted shows when that is known, or never: a view that is not brought on to the
//!   end gives way to another.
//! - FV3  Stamps of views rise, as a view has all that is durable as far as the log says; and where
//!   the log was read to by one, it has to be by the next.
//! - FV4  What a view has in memtables is bounded by those of the writer: it gives way before it
//!   takes more of the log that has been flushed there than a few of its own hold. As where the log
//!   is needed from does not tell that while one keyspace is behind the others, nor does it take
//!   more of the log at all than so many, when any keyspace was flushed meanwhile.
//! - FV5  What a commit refers to is read with the keys that there were when it was written, or
//!   later ones: that the keyring has not changed is seen behind the log.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{CaughtUp, FollowUpTo};
use crate::base::sync::{Arc, Mutex};
use crate::base::{Error, Result, SeqNo, StampClock};
use crate::db::Db;
use crate::db::commit::CommitLog;
use crate::db::core::{Core, Parts, lock};
use crate::db::encryption::{keyring_bytes, take_keys};
use crate::db::open::{LOG_DIR, Opening, guarded, no_database, no_manifest};
use crate::db::operation::decode_stamp;
use crate::db::options::{Access, Background, Builder, OpenExisting, Sizes};
use crate::db::replay::Replayer;
use crate::db::state::{KeyspaceState, Published, State};
use crate::manifest::{FollowedEdit, GoesOn, LogTail, Manifest};
use crate::seal::Keyring;
use crate::storage::{
    BesideStorage, Guard, MemoryStorage, Overlay, Registration, SealedStorage, Storage, StorageLock,
};
use crate::structure::Store;
use crate::wal::{FollowedLog, LogFollower, Lsn, Offered, RecordRef, Wal, WalOptions, WalPlace};

/// How often what fails is tried again, as the database changes while it is read.
pub(super) const ATTEMPT_COUNT_MAX: u32 = 16;
/// In front of each further one.
pub(super) const ATTEMPT_WAIT: Duration = Duration::from_millis(1);
/// Files that the writer has removed, and keeps for a view, take so many bytes before the view
/// gives way to one that needs none of them.
const HELD_BYTES_MAX: u64 = 256 << 20;
/// So many memtables of what the writer has flushed a view takes into memory (FV4): from the first
/// on it gives way when it can, from here on it has to.
const FLUSHED_MEMTABLES_MAX: u64 = 4;
/// A writer has at most four sealed memtables of a keyspace that wait to be flushed. With as many
/// as these, which may be small ones of many deleted ranges, a view gives way when it can, ..
const SEALED_COUNT_STALE: usize = 12;
/// .. and has to.
const SEALED_COUNT_MAX: usize = 64;
/// Why nothing is written.
const FOLLOWS: &str = "it follows somebody else who writes it";

/// What is followed, and how.
#[derive(Debug)]
pub(super) struct Order {
    pub builder: Builder,
    pub dir: PathBuf,
    pub up_to: FollowUpTo,
    /// The keyring that was read last, by its bytes: a passphrase takes long.
    keys: Mutex<Option<(Vec<u8>, Arc<Keyring>)>>,
}

/// A view, and where it goes on.
#[derive(Debug)]
pub(super) struct View {
    pub db: Db,
    pub core: Arc<Core>,
    /// Where files are that others write, and the registration for that.
    beside: Arc<BesideStorage>,
    /// The same with the keys.
    pub live: Arc<dyn Storage>,
    /// These, as bytes.
    keyring: Option<Vec<u8>>,
    log: LogFollower,
    manifest: LogTail,
    /// Where the log was needed from when it was opened, and where it is now.
    opened_from: u64,
    needed_from: u64,
    /// Bytes of the log that it has taken since.
    taken_bytes: u64,
    /// Files that were held when their bytes were last looked at.
    held_files: u64,
    held_bytes: u64,
    /// FV2.
    is_spoilt: bool,
}

/// How far a view was brought on.
#[derive(Debug)]
pub(super) enum Progress {
    ToEnd(CaughtUp),
    /// It has to give way to another.
    Spoilt,
}

/// Held by a core in place of a lock: nobody is kept out.
#[derive(Debug)]
struct BesideWriter;

impl StorageLock for BesideWriter {}

/// What the view showed that gives way to another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// Which database it is of, if there was one.
    database: Option<u64>,
    stamp: SeqNo,
    /// Up to where it had read the log.
    log_read_to: Lsn,
}

/// The keys of a database, if it is encrypted, and what they were read from.
type Keys = (Option<Arc<Keyring>>, Option<Vec<u8>>);

/// What is the same for all attempts to open a view.
struct Place<'a> {
    order: &'a Order,
    builder: Builder,
    guard: Arc<Guard>,
    sizes: Sizes,
    beside: Arc<BesideStorage>,
}

/// Which commits are taken.
#[derive(Clone, Copy, Debug)]
struct Limits {
    up_to: FollowUpTo,
    /// Those up to here are durable, as indexes say.
    durable: SeqNo,
}

/// What structures have.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// The newest stamp.
    stamp: SeqNo,
    /// The newest of a memtable of which a part is there.
    begun: SeqNo,
    /// Where in the log the last commit ends that is there whole.
    log_end: u64,
}

impl Reach {
    fn of(state: &State) -> Reach {
        let mut reach = Reach { stamp: SeqNo::ZERO, begun: SeqNo::ZERO, log_end: 0 };
        for keyspace in &state.keyspaces {
            let store = &keyspace.runtime.store;
            let begun = store.begun_flushes().into_iter().map(|flush| flush.last_seqno);
            reach.begun = begun.fold(reach.begun, SeqNo::max);
            reach.stamp = reach.stamp.max(store.last_seqno());
            reach.log_end = reach.log_end.max(store.log_end());
        }
        reach
    }

    /// D5: the log goes as far.
    fn check(&self, log: &LogFollower, newest: SeqNo) -> Result<()> {
        let end = log.position();
        if end.as_u64() >= self.log_end && newest >= self.begun {
            return Ok(());
        }
        let Reach { log_end, begun, .. } = *self;
        let what = format!(
            "the log can be read up to {end} and stamp {newest}, and structures have of it what \
             lies in front of {log_end}, and stamps up to {begun}"
        );
        Err(Error::corruption(log.dir(), end.as_u64(), what))
    }
}

impl Order {
    pub(super) fn new(builder: Builder, dir: &Path, up_to: FollowUpTo) -> Order {
        Order { builder, dir: dir.to_owned(), up_to, keys: Mutex::default() }
    }
}

/// Opens a view, with what opening took from the log; one that goes on from `before`.
///
/// # Errors
/// As [`Builder::follow`].
pub(super) fn open_view(order: &Order, before: Before) -> Result<(View, FollowedLog)> {
    let sizes = order.builder.sizes()?;
    let (builder, guard) = guarded(order.builder.clone(), &order.dir, &sizes);
    let beside = registered(order, &builder)?;
    let mut place = Place { order, builder, guard, sizes, beside };
    let mut attempt = 1;
    loop {
        let opened = try_open(&place, before);
        let in_place = place.beside.is_registered();
        let in_place = in_place.map_err(|error| Error::io("look for", &order.dir, error))?;
        if !in_place {
            // Another directory has come to have its name: nothing was kept of what was read.
            place.beside = registered(order, &place.builder)?;
        }
        match opened {
            Ok(Some(opened)) if in_place => return Ok(opened),
            Ok(_) if attempt == ATTEMPT_COUNT_MAX => {
                let what = "it changes faster than it is read";
                let source = io::Error::new(io::ErrorKind::TimedOut, what);
                return Err(Error::io("follow", &order.dir, source));
            }
            Err(error) if attempt == ATTEMPT_COUNT_MAX || !may_be_of_the_moment(&error) => {
                return Err(error);
            }
            Ok(_) | Err(_) => order.builder.clock.sleep(ATTEMPT_WAIT),
        }
        attempt += 1;
    }
}

/// The storage, with a registration of its own.
fn registered(order: &Order, builder: &Builder) -> Result<Arc<BesideStorage>> {
    if !Manifest::exists(&*builder.storage, &order.dir)? {
        return Err(no_manifest(&*builder.storage, &order.dir)); // And nothing is made there.
    }
    let storage = &order.builder.storage;
    let registration = Registration::new(storage, &order.dir, &*builder.clock)?;
    Ok(Arc::new(BesideStorage::new(Arc::clone(&builder.storage), registration)))
}

/// Whether an error may have come of reading what is being written: then it is not there the next
/// time.
pub(super) fn may_be_of_the_moment(error: &Error) -> bool {
    match error {
        Error::Corruption { .. } => true,
        Error::Io { source, .. } => {
            matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

/// `None` where something has come that the indexes did not have yet when they were read.
fn try_open(place: &Place<'_>, before: Before) -> Result<Option<(View, FollowedLog)>> {
    let dir = &*place.order.dir;
    let (keyring, keyring_read) = keyring_of(place)?;
    let with_keys = |storage: Arc<dyn Storage>| -> Arc<dyn Storage> {
        match &keyring {
            Some(keyring) => Arc::new(SealedStorage::new(storage, Arc::clone(keyring))),
            None => storage,
        }
    };
    let beside: Arc<dyn Storage> = Arc::<BesideStorage>::clone(&place.beside);
    let overlay = Arc::new(Overlay::beside(Arc::clone(&beside), dir));
    let live = with_keys(beside);
    let above: Arc<dyn Storage> = Arc::<Overlay>::clone(&overlay);
    let builder = reading(&place.builder, with_keys(above));
    let manifest = Manifest::open(Arc::clone(&builder.storage), dir)?.0;
    let database = manifest.state().database();
    if before.database.is_some_and(|known| known != database) {
        let shown = dir.display();
        return Err(Error::invalid(format!("another database is at {shown} than was followed")));
    }
    if manifest.state().last_seqno() == SeqNo::ZERO {
        return Err(no_database(dir)); // It is being created.
    }
    let (tail, from) = (manifest.found().cloned(), manifest.state().log_start());
    let tail = tail.expect("it was opened, not made");
    let mut opening = Opening::new(&builder, dir, place.sizes, manifest)?;
    opening.remove_dropped()?;
    let state = opening.open_keyspaces()?;
    let stores: Vec<Arc<dyn Store>> = ingested(&state).map(Arc::clone).collect();
    let in_stores = Reach::of(&state);
    let mut log = LogFollower::new(log_place(&live, dir, database), Lsn::from_u64(from));
    let known_stamp = in_stores.stamp.max(opening.manifest.state().newest_commit());
    let known_stamp = known_stamp.max(before.stamp);
    let limits = Limits { up_to: place.order.up_to, durable: known_stamp };
    let next_id = opening.manifest.state().next_keyspace_id();
    let values = Arc::clone(&opening.shared.values);
    let mut replayer = Replayer::new(state, &opening.meter, &values, next_id);
    let read = take_commits(&mut log, &mut replayer, limits)?;
    let (state, newest) = replayer.finish();
    in_stores.check(&log, newest)?;
    check_goes_on(&log, before.log_read_to)?; // FV3
    values.check_held()?;
    // FV1, FV5
    if has_ingest(&stores, &live)? || keyring_bytes(&*live, dir)? != keyring_read {
        return Ok(None);
    }
    values.finish_opening()?;
    overlay.let_names_stand();
    let given = opening.manifest.state().last_seqno();
    let visible = match read.bytes_left {
        // All commits up to that stamp were in the log when the catalogue said so. It may be that
        // of an ingest into what is gone.
        0 => known_stamp.max(newest).max(given),
        _ => known_stamp.max(newest), // FV3
    };
    opening.report.wal_records = read.records;
    opening.report.wal_parts = 1;
    opening.report.wal_bytes = read.bytes;
    let core = core_of(place, builder.clone(), opening, (state, visible))?;
    let mut view = View {
        db: Db::from_core(Arc::clone(&core)),
        core,
        beside: Arc::clone(&place.beside),
        live,
        keyring: keyring_read,
        log,
        manifest: tail,
        opened_from: from,
        needed_from: from,
        taken_bytes: 0,
        held_files: 0,
        held_bytes: 0,
        is_spoilt: false,
    };
    // A keyspace that came meanwhile may have had an ingest.
    Ok(if view.has_other_catalog()? { None } else { Some((view, read)) })
}

/// The log has to go as far as it was read to before.
fn check_goes_on(log: &LogFollower, read_to: Lsn) -> Result<()> {
    let found = log.position();
    if found >= read_to {
        return Ok(());
    }
    let what = format!("the log can be read up to {found}, and was read up to {read_to} before");
    Err(Error::corruption(log.dir(), found.as_u64(), what))
}

/// The keys of the database as they are now, if it is encrypted, and what they were read from.
fn keyring_of(place: &Place<'_>) -> Result<Keys> {
    let (order, beside) = (place.order, Arc::<BesideStorage>::clone(&place.beside));
    let bytes = keyring_bytes(&*beside, &order.dir)?;
    let mut keys = lock(&order.keys);
    if let (Some((known, keyring)), Some(found)) = (&*keys, &bytes)
        && known == found
    {
        return Ok((Some(Arc::clone(keyring)), bytes));
    }
    let (builder, _) = take_keys(reading(&place.builder, beside), &order.dir, true)?;
    let keyring = builder.storage.keyring().cloned();
    // The bytes that were read are not newer than the keys: if they are older, that is seen.
    *keys = bytes.clone().zip(keyring.clone());
    Ok((keyring, bytes))
}

/// The options for reading alone, in this storage.
fn reading(builder: &Builder, storage: Arc<dyn Storage>) -> Builder {
    Builder {
        storage,
        access: Access::ReadOnly,
        follows: true,
        existing: OpenExisting::Only,
        background: Background::Stepped,
        kept_log_size: None,
        scrub: None,
        ..builder.clone()
    }
}

fn log_place(storage: &Arc<dyn Storage>, dir: &Path, database: u64) -> WalPlace {
    WalPlace {
        storage: Arc::clone(storage),
        dir: dir.join(LOG_DIR),
        database_id: database,
        options: WalOptions::default(),
    }
}

/// Has the replayer take what comes in the log, as far as it is to be shown.
fn take_commits(
    log: &mut LogFollower,
    replayer: &mut Replayer<'_>,
    limits: Limits,
) -> Result<FollowedLog> {
    log.read_on(Lsn::MAX, &mut |record| {
        let stamp = decode_stamp(record.payload).unwrap_or(SeqNo::ZERO); // Refused below.
        let is_durable = record.end <= record.durable_up_to || stamp <= limits.durable;
        let is_shown = is_durable
            || (limits.up_to == FollowUpTo::Written && replayer.has_values_of(&record)?);
        if !is_shown {
            return Ok(Offered::Left);
        }
        replayer.take(&record)?;
        Ok(Offered::Taken)
    })
}

/// The stores of keyspaces that ingests go to; archives get theirs behind these.
fn ingested(state: &State) -> impl Iterator<Item = &Arc<dyn Store>> {
    let keyspaces = state.keyspaces.iter().map(|keyspace| &keyspace.runtime);
    let keyspaces = keyspaces.filter(|runtime| runtime.options.archive_of.is_none());
    keyspaces.map(|runtime| &runtime.store)
}

fn has_ingest(stores: &[Arc<dyn Store>], live: &Arc<dyn Storage>) -> Result<bool> {
    for store in stores {
        if store.has_ingest_beside(&**live)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The core of a view.
fn core_of(
    place: &Place<'_>,
    builder: Builder,
    opening: Opening<'_>,
    (state, visible): (State, SeqNo),
) -> Result<Arc<Core>> {
    let Opening { manifest, budget, meter, shared, time, report, .. } = opening;
    time.note_opened(visible);
    if state.keyspaces.iter().any(|keyspace| keyspace.may_expire()) {
        time.note_used();
    }
    let database = manifest.state().database();
    let stamps = StampClock::after(visible.max(manifest.state().last_seqno()));
    let parts = Parts {
        dir: place.order.dir.clone(),
        guard: Arc::clone(&place.guard),
        time,
        database,
        opening: builder.entropy.next_u64(),
        sizes: place.sizes,
        budget,
        meter,
        shared,
        recovery: report,
        totals_before: manifest.state().totals().clone(),
        manifest,
        keyring: None,
        log: CommitLog::new(no_log(database)?, stamps, Lsn::ZERO, Background::Stepped),
        published: Published::new(state, visible),
        lock: Box::new(BesideWriter),
    };
    let core = Arc::new(Core::new(builder, parts));
    core.set_poison(FOLLOWS);
    Ok(core)
}

/// A log in memory that nothing is written to, for a core whose log is somebody else's.
fn no_log(database_id: u64) -> Result<Wal> {
    const FILE_CAPACITY: u64 = 16 << 10;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dir = Path::new("/").join(LOG_DIR);
    storage.create_dir_all(&dir).map_err(|error| Error::io("create", &dir, error))?;
    let options =
        WalOptions { file_capacity: FILE_CAPACITY, spare_files_max: 0, ..WalOptions::default() };
    Wal::create(WalPlace { storage, dir, database_id, options })
}

impl View {
    /// What the one that comes next goes on from.
    pub(super) fn shown(&self) -> Before {
        let (database, stamp) = (Some(self.core.database), self.stamp());
        Before { database, stamp, log_read_to: self.log.position() }
    }

    /// A log follower of its own for who reads commits beside the view, behind those of which
    /// `is_in_front` says yes: see [`LogFollower::behind`].
    pub(super) fn log_behind(
        &self,
        is_in_front: &mut dyn FnMut(RecordRef<'_>) -> Result<bool>,
    ) -> Result<LogFollower> {
        let place = log_place(&self.live, &self.core.dir, self.core.database);
        LogFollower::behind(place, self.log_read_to(), is_in_front)
    }

    /// Up to here it has read the log.
    pub(super) fn log_read_to(&self) -> Lsn {
        self.log.position()
    }

    /// From here on all of the log is kept for it (FO1).
    pub(super) fn log_kept_from(&self) -> Lsn {
        Lsn::from_u64(self.opened_from)
    }

    /// Up to which stamp it shows commits.
    pub(super) fn stamp(&self) -> SeqNo {
        self.core.visible()
    }

    /// Whether what it shows is still part of the log, as far as that can be told.
    ///
    /// # Errors
    /// [`Error::WentBack`].
    pub(super) fn check_place(&self) -> Result<()> {
        match self.log.check_place() {
            Err(error) if matches!(error, Error::WentBack { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Brings it on to what there is now.
    ///
    /// # Errors
    /// As [`super::Follower::catch_up`]. What shows has not changed.
    pub(super) fn read_on(&mut self, up_to: FollowUpTo) -> Result<Progress> {
        if self.is_spoilt {
            return Ok(Progress::Spoilt);
        }
        match self.try_read_on(up_to) {
            Err(error) if matches!(error, Error::WentBack { .. }) => Err(error),
            Err(error) => {
                self.is_spoilt = true; // FV2
                if may_be_of_the_moment(&error) { Ok(Progress::Spoilt) } else { Err(error) }
            }
            progress => progress,
        }
    }

    fn try_read_on(&mut self, up_to: FollowUpTo) -> Result<Progress> {
        // In front of the log, of which there may be any amount.
        let has_other_catalog = self.has_other_catalog()?;
        let flushed_max = FLUSHED_MEMTABLES_MAX.saturating_mul(self.core.sizes.memtable);
        let taken_max = flushed_max.saturating_mul(2); // From once that it may give way.
        let is_full = self.flushed_since() >= flushed_max
            || self.has_taken(taken_max)
            || self.has_memtables(SEALED_COUNT_MAX);
        if has_other_catalog || is_full {
            self.is_spoilt = true; // FV2, FV4
            return Ok(Progress::Spoilt);
        }
        let core = Arc::clone(&self.core);
        let (state, visible) = core.published.load();
        let next_id = core.lock_manifest().state().next_keyspace_id();
        let replayer = Replayer::new(State::clone(&state), &core.meter, &core.values, next_id);
        let mut replayer = replayer.behind(visible);
        let limits = Limits { up_to, durable: SeqNo::ZERO };
        let read = take_commits(&mut self.log, &mut replayer, limits)?;
        let (next, newest) = replayer.finish();
        let stores: Vec<Arc<dyn Store>> = ingested(&state).map(Arc::clone).collect();
        // FV1, FV5: in this order behind the log.
        if has_ingest(&stores, &self.live)? || self.has_other_catalog()? || self.has_other_keys()? {
            self.is_spoilt = true; // FV2
            return Ok(Progress::Spoilt);
        }
        self.taken_bytes += read.bytes;
        if read.records > 0 {
            let may_expire = |keyspace: &Arc<KeyspaceState>| keyspace.may_expire();
            if next.keyspaces.iter().any(may_expire) {
                core.time.note_used(); // In front of what expires.
            }
            core.time.note_stamp(newest);
            core.published.replace_and_publish(|_| next, newest);
            if core.budget.has_grown(0) {
                core.shared.trim(); // As commits do it.
            }
        }
        Ok(Progress::ToEnd(CaughtUp {
            stamp: core.visible(),
            commits: read.records,
            log_bytes: read.bytes,
            log_bytes_behind: read.bytes_left,
            opened_anew: false,
            is_overdue: false,
        }))
    }

    /// Whether the catalogue has changed, or may have. Learns from where on the log is needed.
    fn has_other_catalog(&mut self) -> Result<bool> {
        let (mut has_changed, mut needed_from) = (false, self.needed_from);
        let goes_on = Manifest::follow(&mut self.manifest, &*self.live, &mut |edit| match edit {
            FollowedEdit::Catalog => has_changed = true,
            FollowedEdit::LogNeededFrom(place) => needed_from = needed_from.max(place),
            FollowedEdit::Nothing => {}
        })?;
        self.needed_from = needed_from;
        Ok(has_changed || goes_on != GoesOn::Here)
    }

    /// Whether there are other keys than the view has.
    fn has_other_keys(&self) -> Result<bool> {
        let is_encrypted = self.keyring.is_some();
        Ok(is_encrypted && keyring_bytes(&*self.live, &self.core.dir)? != self.keyring)
    }

    /// Whether another view would hold much less: what this one has in memtables is in structures
    /// by now, or the writer keeps files for it.
    pub(super) fn is_out_of_date(&mut self) -> bool {
        let (files, bytes) = self.beside.held_since(self.held_files, self.held_bytes);
        (self.held_files, self.held_bytes) = (files, bytes);
        let taken_max = FLUSHED_MEMTABLES_MAX.saturating_mul(self.core.sizes.memtable);
        self.flushed_since() >= self.core.sizes.memtable
            || self.has_taken(taken_max)
            || self.has_memtables(SEALED_COUNT_STALE)
            || bytes > HELD_BYTES_MAX
    }

    /// Whether a keyspace has so many sealed memtables. The writer has flushed some of them then.
    fn has_memtables(&self, count: usize) -> bool {
        let state = self.core.published.load().0;
        state.keyspaces.iter().any(|keyspace| keyspace.sealed.len() >= count)
    }

    /// Whether it has taken so much of the log, of which some is flushed.
    fn has_taken(&self, bytes: u64) -> bool {
        let is_flushed = || {
            let state = self.core.published.load().0;
            ingested(&state).any(|store| store.flushes_beside() > 0)
        };
        self.taken_bytes >= bytes && is_flushed()
    }

    /// Bytes of the log that the writer has flushed since the view was opened.
    fn flushed_since(&self) -> u64 {
        self.needed_from.saturating_sub(self.opened_from)
    }
}
