//! Repair: a new database of what can be read of one that is damaged.
//!
//! ```text
//! keys ........ the keyring, copied as it is
//! catalogue ... the manifest as far as it goes; else the folders that are there
//! values ...... value files, copied as they are: pointers stay what they are
//! stores ...... each taken apart (`structure/salvage/`), merged, and written anew (`stores.rs`);
//!               archives and what they are of made to agree (`versions.rs`)
//! log ......... commits that no structure has, written to a new log (`log.rs`)
//! manifest .... last: from here on it is a database
//! open ........ as any other: the log is replayed, indexes are built again, all is checked
//! ```
//!
//! Invariants
//! - A1  The source is only read: its storage is an overlay, which keeps changes to itself.
//! - A2  What is missing, or may not be the newest, is in the report: of every piece of damage that
//!   was met, what it may have cost.
//! - A3  Until all of it is durable there is no manifest, and so no database.
//! - A4  Entries keep their stamps, kinds and pointers; commits theirs. So versions are of the
//!   moments that they were of.

mod catalogue;
mod log;
mod report;
mod stores;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use report::{CommitBehind, Loss, LossKind, RepairOptions, RepairReport};

use self::catalogue::Catalogue;
use self::log::{Has, LogCopy, LogSource, LoggedKeyspace, Taking};
use self::stores::{CopiedStore, CopyPlace, StoreCopy, keeps_versions};
use crate::base::{Error, GrowingTombstones, KeptStamps, Result, SeqNo};
use crate::cache::{Cache, MemoryBudget};
use crate::db::checkpoint::{expect_outside_databases, resolve_nearest};
use crate::db::core::{keyspace_dir, keyspaces_dir, merging_of};
use crate::db::encryption::{copy_keyring, keyring_path, take_keys};
use crate::db::open::{LOG_DIR, VALUES_DIR};
use crate::db::options::{Access, Builder, Sizes};
use crate::manifest::{KeyspaceRecord, Manifest};
use crate::storage::{
    Guard, GuardOptions, GuardedStorage, SealedStorage, Storage, StorageLock, lock_directory,
    make_directory, share_directory,
};
use crate::structure::salvage::{StoreState, salvage_store};
use crate::structure::{SharedStores, StorePlace, create_store, open_store};
use crate::value_log::{KeysInDoubt, ValueLog, copy_value_files};
use crate::wal::{Lsn, Wal, WalOptions, WalPlace};

/// Bytes of entries that are copied at once, at most; or this part of the budget.
const SLICE_BYTES_MAX: u64 = 16 << 20;
const SLICE_BYTES_MIN: u64 = 256 << 10;
const BUDGET_FRACTION: u64 = 32;
const LOCK_FILE: &str = "LOCK";

/// Makes a new database in the directory `target`, which must not be there or be empty, of
/// everything that can be read of the one in `source`, and lists what cannot be. The source is
/// only read, however damaged; nobody may have it open for writing. Durable on return.
///
/// What it has: every keyspace with its name and options, all entries that can be read, the
/// versions that keyspaces keep with their stamps, and commits of the log up to damage to it.
/// Indexes are built again, if their extractors are registered. What it has not: consumers of
/// changes, and log that was only kept to be read. It has the id of the source: files of the two
/// must not be mixed.
///
/// | damaged | what is done |
/// |---|---|
/// | a block, a run, a table | newer entries are right; older ones show through: [`Doubtful`][d] |
/// | a value | its entry is left out; nothing older takes its place |
/// | the index of a keyspace | its files are searched, stamps say what is newest: all doubtful |
/// | the log | commits in front of the damage are taken, those behind it [listed][p] |
/// | the manifest | what it says up to the damage; folders that it does not know are keyspaces |
/// | the keyring | one of its two slots will do; without any there is nothing to be read |
///
/// Without the index of a keyspace, what was deleted may be there again. Folders of which the
/// manifest says nothing, as that part of it is lost, become keyspaces with default options, called
/// `recovered-` and their number.
///
/// [d]: LossKind::Doubtful
/// [p]: RepairOptions::past_log_damage
///
/// Time: everything is read twice and written once, indexes are built, and what came of it is
/// checked. Memory: the budget of the builder, what the index of one keyspace takes, and one block
/// of each file that overlaps in its keys with others.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # use std::sync::Arc;
/// # use lithedb::{Db, RepairOptions, storage::MemoryStorage};
/// # let storage = Arc::new(MemoryStorage::new());
/// # let builder = || Db::builder().storage(Arc::clone(&storage) as _);
/// # builder().open("/animals")?.keyspace_or_create("animals")?.put("otter", "swims")?;
/// let report = lithedb::repair("/animals", "/animals-again", RepairOptions::new(builder()))?;
/// for loss in &report.losses {
///     println!("{loss}");
/// }
/// assert!(report.is_whole());
/// let animals = builder().open("/animals-again")?.keyspace("animals")?;
/// assert_eq!(animals.get("otter")?.as_deref(), Some(&b"swims"[..]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `InvalidArgument` when there is anything in `target`, or it lies within `source` or another
/// database, whatever leads there; `Locked` when
/// the source is open for writing; `Io` (`NotFound`) when there is no database; `KeyNeeded`,
/// `WrongKey`, `NotEncrypted`, `VaultFailed`; `Corruption` when no key can be had of the keyring,
/// or nothing says which database it is; `FormatVersion` of a file that this program does not know;
/// `DiskFull`, `Io` of what is written. After an error `target` is no database; what was made there
/// can be removed. What opening and checking the new database meets is no error, as it is there by
/// then, and so is the report: that is among its [problems](RepairReport::problems).
pub fn repair(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: RepairOptions,
) -> Result<RepairReport> {
    let (source, target) = (source.as_ref(), target.as_ref());
    let mut report = RepairReport::default();
    let builder = options.builder.clone();
    let sizes = builder.sizes()?;
    let below = Arc::clone(&builder.storage);
    expect_apart(&*below, source, target)?;
    let lock = lock_source(&*below, source)?;
    let reading = take_source(builder.clone(), source)?;
    make_directory(&*below, target)?;
    let target_lock = lock_directory(&*below, target)?;
    expect_empty(&*below, target)?; // Nobody else has come first.
    let writing = make_target(&below, &reading, source, target)?;
    Repair::new(options, sizes, (source, reading), (target, writing)).run(&mut report)?;
    drop(target_lock);
    if let Err(error) = finish(builder, target, &mut report) {
        report.problems.push(format!("it could not be looked at: {error}"));
    }
    drop(lock);
    Ok(report)
}

/// Whether there is a database to be read, and room for another one.
fn expect_apart(storage: &dyn Storage, source: &Path, target: &Path) -> Result<()> {
    let exists =
        |path: &Path| storage.exists(path).map_err(|error| Error::io("look for", path, error));
    let parts = [LOG_DIR, "keyspaces"].map(|part| source.join(part));
    let is_there = exists(source)?
        && (Manifest::exists(storage, source)? || exists(&parts[0])? || exists(&parts[1])?);
    if !is_there {
        let error = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no database");
        return Err(Error::io("open", source, error));
    }
    // Whatever leads there.
    let resolve = |path: &Path| Ok::<_, Error>(resolve_nearest(storage, path)?.unwrap_or_default());
    if target.starts_with(source) || resolve(target)?.starts_with(resolve(source)?) {
        let (target, source) = (target.display(), source.display());
        return Err(Error::invalid(format!("{target} lies within {source}")));
    }
    expect_outside_databases(storage, target, target)?;
    if exists(target)? { expect_empty(storage, target) } else { Ok(()) }
}

/// Whether nothing is in the directory but the file by which it is locked.
fn expect_empty(storage: &dyn Storage, target: &Path) -> Result<()> {
    let names = storage.list_dir(target).map_err(|error| Error::io("list", target, error))?;
    match names.iter().all(|entry| entry.name == LOCK_FILE) {
        true => Ok(()),
        false => Err(Error::invalid(format!("there is something in {} already", target.display()))),
    }
}

/// A lock file is not made where there is none (A1).
fn lock_source(storage: &dyn Storage, source: &Path) -> Result<Option<Box<dyn StorageLock>>> {
    let path = source.join(LOCK_FILE);
    let is_there = storage.exists(&path).map_err(|error| Error::io("look for", &path, error))?;
    is_there.then(|| share_directory(storage, source)).transpose()
}

/// The storage of the source, which changes nothing below it, with its keys.
fn take_source(builder: Builder, source: &Path) -> Result<Arc<dyn Storage>> {
    let builder = Builder { access: Access::ReadOnly, ..builder };
    let (storage, path) = (Arc::clone(&builder.storage), keyring_path(source));
    let has_keyring = storage.exists(&path).map_err(|error| Error::io("look for", &path, error))?;
    let has_manifest = Manifest::exists(&*storage, source)?;
    if builder.encryption.is_some() && !has_keyring && !has_manifest {
        return Err(Error::corruption(&path, 0, "the keyring is missing"));
    }
    // Reads that fail as disks do now and then are tried again.
    let options = GuardOptions { slow_after: builder.slow_disk_after, reserve: 0 };
    let guard = Arc::new(Guard::new(source, Arc::clone(&builder.clock), options));
    let storage: Arc<dyn Storage> = Arc::new(GuardedStorage::new(storage, guard));
    let builder = Builder { storage, ..builder }.for_reading(source)?;
    if !has_keyring && !has_manifest {
        return Ok(builder.storage);
    }
    take_keys(builder, source, true).map(|(builder, _)| builder.storage)
}

/// The directory of the new database with the keyring, and its storage.
fn make_target(
    below: &Arc<dyn Storage>,
    reading: &Arc<dyn Storage>,
    source: &Path,
    target: &Path,
) -> Result<Arc<dyn Storage>> {
    for dir in [target.join(LOG_DIR), target.join(VALUES_DIR), keyspaces_dir(target)] {
        below.create_dir_all(&dir).map_err(|error| Error::io("create", &dir, error))?;
    }
    let Some(keyring) = reading.keyring() else { return Ok(Arc::clone(below)) };
    copy_keyring(&**below, source, target)?;
    Ok(Arc::new(SealedStorage::new(Arc::clone(below), Arc::clone(keyring))))
}

/// What is told of an archive whose newest stamp lies in front of that of its keyspace.
fn versions_behind(archive: Option<SeqNo>, keyspace: Option<SeqNo>) -> String {
    let [archive, keyspace] = [archive, keyspace].map(|newest| newest.unwrap_or(SeqNo::ZERO));
    format!("expected versions up to {keyspace}, as its keyspace has, found them up to {archive}")
}

/// Where the folder of a keyspace's store is, in the source.
fn keyspace_path(place: &CopyPlace<'_>, record: &KeyspaceRecord) -> PathBuf {
    keyspace_dir(place.source, record.store)
}

struct Repair<'a> {
    options: RepairOptions,
    source: &'a Path,
    reading: Arc<dyn Storage>,
    target: &'a Path,
    writing: Arc<dyn Storage>,
    sizes: Sizes,
    budget: Arc<MemoryBudget>,
}

impl<'a> Repair<'a> {
    fn new(
        options: RepairOptions,
        sizes: Sizes,
        (source, reading): (&'a Path, Arc<dyn Storage>),
        (target, writing): (&'a Path, Arc<dyn Storage>),
    ) -> Repair<'a> {
        let budget = MemoryBudget::new(usize::try_from(sizes.budget).unwrap_or(usize::MAX));
        Repair { options, source, reading, target, writing, sizes, budget }
    }

    fn run(&self, report: &mut RepairReport) -> Result<()> {
        let log_place = |storage: &Arc<dyn Storage>, dir: &Path, database_id| WalPlace {
            storage: Arc::clone(storage),
            dir: dir.join(LOG_DIR),
            database_id,
            options: WalOptions {
                file_capacity: self.sizes.wal_file,
                spare_files_max: 0,
                kept_bytes_max: 0,
                held_from: Lsn::MAX,
            },
        };
        let source_log = log_place(&self.reading, self.source, 0);
        let catalogue = Catalogue::read(&*self.reading, self.source, &source_log, report)?;
        let database = catalogue.state.database();
        let values_dirs = (self.source.join(VALUES_DIR), self.target.join(VALUES_DIR));
        let from = (&self.reading, &*values_dirs.0);
        let to = (&self.writing, &*values_dirs.1);
        let (damage, in_doubt) = copy_value_files(from, to, database)?;
        for damage in damage {
            report.note(Loss {
                kind: LossKind::Nothing, // What is lost shows when pointers are followed.
                keyspace: None,
                is_of_versions: false,
                start: Vec::new(),
                end: None,
                file: damage.file,
                offset: damage.offset,
                what: damage.what,
            });
        }
        let shared = self.shared_stores(&values_dirs.1, database, &catalogue)?;
        let place = self.copy_place(&shared, &in_doubt);
        let copied = self.copy_stores(&catalogue, (&place, &shared), report)?;
        let source_log = WalPlace { database_id: database, ..source_log };
        let target_log = log_place(&self.writing, self.target, database);
        let highest =
            self.copy_log(&catalogue, &copied, &place, (source_log, target_log), report)?;
        let given = (highest, shared.values.newest_number());
        self.make_manifest(&catalogue, &copied, given, report)
    }

    /// What stores share, with the value files of the new database.
    fn shared_stores(
        &self,
        values_dir: &Path,
        database: u64,
        catalogue: &Catalogue,
    ) -> Result<SharedStores> {
        let options = self.options.builder.value_log_options(&self.sizes);
        let (storage, budget) = (Arc::clone(&self.writing), &self.budget);
        let dir = values_dir.to_owned();
        let values = ValueLog::open(storage, dir, database, options, Arc::clone(budget))?;
        values.skip(catalogue.state.totals().value_files);
        Ok(SharedStores {
            cache: Arc::new(Cache::new(Arc::clone(budget))),
            partitions: Arc::new(Cache::for_indexes(Arc::clone(budget))),
            guides: Arc::new(Cache::for_guides(Arc::clone(budget))),
            open_segments: Arc::default(),
            open_tables: Arc::default(),
            values: Arc::new(values),
            memtable_size: self.sizes.memtable,
        })
    }

    fn copy_place<'p>(
        &'p self,
        shared: &'p SharedStores,
        keys_in_doubt: &'p KeysInDoubt,
    ) -> CopyPlace<'p> {
        let slice_bytes = self.sizes.budget / BUDGET_FRACTION;
        CopyPlace {
            source: self.source,
            target: self.target,
            values: &shared.values,
            keys_in_doubt,
            heap: self.budget.heap(),
            slice_bytes: slice_bytes.clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX) as usize,
            leave_doubtful: self.options.leave_doubtful,
        }
    }

    fn store_place(
        &self,
        (storage, dir): (&Arc<dyn Storage>, &Path),
        (database, record): (u64, &KeyspaceRecord),
        shared: &SharedStores,
    ) -> StorePlace {
        let dir = keyspace_dir(dir, record.store);
        StorePlace {
            storage: Arc::clone(storage),
            database,
            keyspace: record.store,
            shared: shared.clone(),
            options: record.options.clone(),
            merging: merging_of(&record.options, &self.options.builder.operators, &dir),
            dir,
        }
    }

    /// All stores, by the ids of their keyspaces.
    fn copy_stores(
        &self,
        catalogue: &Catalogue,
        (place, shared): (&CopyPlace<'_>, &SharedStores),
        report: &mut RepairReport,
    ) -> Result<BTreeMap<u32, CopiedStore>> {
        let database = catalogue.state.database();
        let mut copied: BTreeMap<u32, CopiedStore> = BTreeMap::new();
        for record in &catalogue.keyspaces {
            let to = (&self.writing, self.target);
            let to = self.store_place(to, (database, record), shared);
            let created = self.writing.create_dir_all(&to.dir);
            created.map_err(|error| Error::io("create", &to.dir, error))?;
            create_store(&to)?;
            let store = open_store(&to, None)?;
            if record.options.index.is_some() {
                let state = None; // It is built again.
                copied.insert(record.id, CopiedStore { store, state, is_short: false });
                continue;
            }
            let from = (&self.reading, self.source);
            let from = self.store_place(from, (database, record), shared);
            let salvaged = salvage_store(&from, record.journal)?;
            let name = catalogue.name_of(record);
            let (is_short, chain) = (false, Vec::new());
            let mut copy = StoreCopy { place, record, name, report: &mut *report, is_short, chain };
            copied.insert(record.id, copy.run(salvaged, store)?);
        }
        for record in catalogue.keyspaces.iter().filter(|record| keeps_versions(record)) {
            let archive = catalogue.archive_of(record.id);
            let Some((archive, keyspace)) = archive.zip(copied.get(&record.id)) else { continue };
            let Some(of_archive) = copied.get(&archive.id) else { continue };
            let newest = |copy: &CopiedStore| copy.state.as_ref().map(|state| state.last_seqno);
            let (of_versions, of_rows) = (newest(of_archive), newest(keyspace));
            let is_unknown = of_versions.is_none() || of_rows.is_none();
            // A flush comes to the archive first: this index of it was put back.
            let is_behind = of_versions < of_rows;
            if is_behind && !is_unknown {
                report.note(Loss {
                    kind: LossKind::Lost,
                    keyspace: Some(record.name.clone()),
                    is_of_versions: true,
                    start: Vec::new(),
                    end: None,
                    file: keyspace_dir(self.source, archive.store),
                    offset: 0,
                    what: versions_behind(of_versions, of_rows),
                });
            }
            if of_archive.is_short || is_unknown || is_behind {
                versions::mend(place, (&of_archive.store, &archive.options), &keyspace.store)?;
            }
        }
        Ok(copied)
    }

    /// The newest stamp that the log has, whether its commit was taken or not.
    fn copy_log(
        &self,
        catalogue: &Catalogue,
        copied: &BTreeMap<u32, CopiedStore>,
        place: &CopyPlace<'_>,
        (from, to): (WalPlace, WalPlace),
        report: &mut RepairReport,
    ) -> Result<SeqNo> {
        let mut keyspaces = BTreeMap::new();
        let mut proven = catalogue.state.clean_log_end().unwrap_or(0);
        for record in &catalogue.keyspaces {
            let Some(CopiedStore { store, state, .. }) = copied.get(&record.id) else { continue };
            proven = proven.max(state.as_ref().map_or(0, |state| state.log_end));
            let has = match state {
                _ if record.options.index.is_some() => Has::Everything,
                Some(state) => Has::State(StoreState::clone(state)),
                None => {
                    let deleted = GrowingTombstones::new(KeptStamps::Newest);
                    Has::Stamps(Arc::clone(store), Box::new(deleted))
                }
            };
            let (name, options) = (record.name.clone(), record.options.clone());
            keyspaces.insert(record.id, LoggedKeyspace { name, options, has });
        }
        let wal = Wal::create(to)?;
        let mut copy = LogCopy {
            place,
            keyspaces,
            report,
            wal,
            next_id: catalogue.state.next_keyspace_id(),
            unknown: BTreeSet::new(),
            newest: SeqNo::ZERO,
            highest: SeqNo::ZERO,
            durable_up_to: 0,
            taking: Taking::InOrder,
        };
        let log_start = Lsn::from_u64(catalogue.state.log_start());
        copy.run(&LogSource {
            place: &from,
            from: catalogue.is_whole.then_some(log_start),
            proven,
            past_damage: self.options.past_log_damage,
        })?;
        Ok(copy.highest)
    }

    /// A3: what makes a database of it.
    fn make_manifest(
        &self,
        catalogue: &Catalogue,
        copied: &BTreeMap<u32, CopiedStore>,
        (highest, value_files): (SeqNo, u64),
        report: &mut RepairReport,
    ) -> Result<()> {
        let (mut records, mut last_seqno) = (Vec::new(), highest.max(SeqNo::from_u64(1)));
        for record in &catalogue.keyspaces {
            let mut record = record.clone();
            if let Some(index) = &mut record.options.index {
                index.is_ready = false;
            }
            if let Some(CopiedStore { store, .. }) = copied.get(&record.id) {
                store.settle()?;
                record.journal = Some(store.log_position());
                last_seqno = last_seqno.max(store.last_seqno());
                let dir = keyspace_dir(self.target, record.store);
                self.sync_dir(&dir)?;
            }
            last_seqno = last_seqno.max(record.created);
            records.push(record);
        }
        for dir in [self.target.join(LOG_DIR), keyspaces_dir(self.target)] {
            self.sync_dir(&dir)?;
        }
        self.sync_dir(self.target)?;
        let hidden = |record: &&KeyspaceRecord| {
            record.options.archive_of.is_some() || record.options.index.is_some()
        };
        report.keyspaces = records.iter().filter(|record| !hidden(record)).count() as u64;
        report.consumers.extend(catalogue.state.consumers().keys().cloned());
        let state = catalogue.state.rebuilt(records, last_seqno, value_files);
        Manifest::create_with(Arc::clone(&self.writing), self.target, &state)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.writing.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))
    }
}

/// Opens the new database, builds its indexes, and looks whether it is sound.
fn finish(builder: Builder, target: &Path, report: &mut RepairReport) -> Result<()> {
    let db = Builder { access: Access::ReadWrite, scrub: None, ..builder }.open(target)?;
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name)?;
        for index in keyspace.indexes()? {
            match keyspace.build_index(&index.name) {
                Ok(_) => {}
                Err(error) => report.not_rebuilt.push(format!(
                    "index {:?} of keyspace {:?} is to be built again: {error}",
                    index.name, info.name
                )),
            }
        }
    }
    report.problems = db.check()?.problems;
    db.close().map(drop)
}
