//! Bulk ingest: sorted entries go to the structure of a keyspace directly, past log and memtables,
//! and become visible at once.
//!
//! ```text
//! add ......... runs in segments that nothing refers to; large values to the value log
//! finish
//!   flush ..... what memtables have in the range of keys: it is older, and would hide what comes
//!   fit ....... the place of each run in the index; the segments are durable
//!   hold ...... commits that are on their way are applied, new ones wait. Has anything come to the
//!               range meanwhile: again from the flush on; after a few tries, while commits wait
//!   trail ..... the one that follows ends, durably, as it cannot tell what comes (G3)
//!   stamp, edit of the index (durable: this is the commit), version and stamp published as one
//!   archive ... where versions are kept: `history/ingested.rs`
//! ```
//!
//! Invariants
//! - J1  When the edit is made, no memtable of the keyspace has an entry or a deletion in the range
//!   of keys: so all of them that come later are newer.
//! - J2  Every commit of a lower stamp is durable before the edit is, and none of a higher stamp is
//!   in the log: what is recovered is a prefix of the commits, with this one among them (D5).
//! - J3  Who sees the stamp sees the version, and the other way round; transactions that began
//!   before know of the range (T3) from before that on.
//! - J4  Nothing is written to a file, made or removed after the database was closed: what does so
//!   has `Core::staging`, or the keyspace's turn to flush, for which closing waits, and looks
//!   behind that whether it is open.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::successor;
use crate::base::sync::{Arc, MutexGuard, PoisonError};
use crate::base::{
    Cursor as _, EntryKind, Error, Expiring, Expiry, Lifetime, Result, SeqNo, Slice,
};
use crate::db::batch::{WriteBatch, check_archived_len};
use crate::db::core::{Core, lock};
use crate::db::health::changed_nothing;
use crate::db::history::Unarchived;
use crate::db::keyspace::Keyspace;
use crate::db::operation::Write;
use crate::db::state::{KeyspaceState, Runtime, State, Table};
use crate::db::trail::Untold;
use crate::db::working::PoisonOnPanic;
use crate::manifest::TrailEndReason;
use crate::memtable::MemtableCursor;
use crate::structure::lsm::OutsideTable;
use crate::structure::{Adopted, Staged, TableIngestOptions};
use crate::value_log::ValueFile;

/// Large values that are written to the value log together, in bytes.
const VALUES_TOGETHER: usize = 256 << 10;
/// How often what others write to the range is flushed while they go on. Each time it is what came
/// in the time that the one before took.
const UNHELD_TRY_COUNT: u32 = 4;

/// The first key of an ingest, and the first one behind it; `None` if it has no end, as what
/// deletes all to the last key.
pub(super) type IngestRange = (Slice, Option<Slice>);

/// A bulk ingest: see [`Keyspace::begin_ingest`].
pub struct Ingest {
    keyspace: Keyspace,
    /// As it was when this began; entries are staged in its store.
    runtime: Arc<Runtime>,
    /// `None` when it is over.
    staged: Option<Box<dyn Staged>>,
    /// Entries from the first on that expires, or whose value is large and not written yet.
    waiting: WriteBatch,
    /// How long entries are there, unless that is said.
    lifetime: Lifetime,
    /// Files that entries point into, held.
    files: BTreeMap<u64, Arc<ValueFile>>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    report: IngestReport,
    has_failed: bool,
}

/// What an ingest has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IngestReport {
    /// The stamp of every entry; of the newest commit, if there were no entries.
    pub seqno: SeqNo,
    /// Number of entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// How a try to commit ended.
enum Tried {
    Committed(SeqNo),
    /// Something came to the range meanwhile.
    Again,
}

/// What is done when something has come to the range meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// So many times.
    TryAgain(u32),
    FlushWhileHeld,
}

impl Meanwhile {
    fn next(self) -> Meanwhile {
        match self {
            Meanwhile::TryAgain(count @ 1..) => Meanwhile::TryAgain(count - 1),
            _ => Meanwhile::FlushWhileHeld,
        }
    }
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingest").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Begins a bulk ingest: sorted entries are written to the structure directly, once, and become
    /// visible together, with one stamp, when it is finished. Faster than batches, and nothing goes
    /// through the log or a memtable; for loads, not for single entries.
    ///
    /// Where versions are kept ([`Structure::History`](crate::Structure::History)) each entry is
    /// one, of the stamp of the ingest. For that it is read once more, and written by key; and,
    /// unless [`KeyspaceOptions::keep_versions`](crate::KeyspaceOptions::keep_versions) alone says
    /// what is kept, read again, and its keys are written by stamp.
    ///
    /// Any number may be under way, beside other reads and writes. In memory are a run of 16 KiB,
    /// large values of 256 KiB, and about 200 bytes for each run, which is some one part in 80 of
    /// what was added. The room on disk is that of the entries.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # let db = lithedb::Db::builder()
    /// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
    /// let squares = db.keyspace_or_create("squares")?;
    /// let mut ingest = squares.begin_ingest()?;
    /// for number in 0..1000u64 {
    ///     ingest.add(number.to_be_bytes(), (number * number).to_string())?;
    /// }
    /// assert!(squares.is_empty()?);
    /// let report = ingest.finish()?;
    /// assert_eq!(report.entries, 1000);
    /// assert_eq!(squares.get(30u64.to_be_bytes())?.as_deref(), Some(&b"900"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` in a keyspace that has indexes; `KeyspaceNotFound`, `ReadOnly`, `Closed`.
    pub fn begin_ingest(&self) -> Result<Ingest> {
        self.handle().core.check_writable()?;
        self.read(|_, _| Ok(()))?;
        let runtime = self.runtime(); // Once: it may be converted meanwhile.
        self.core().check_takes_ingest(&runtime)?;
        Ok(Ingest {
            staged: Some(Arc::clone(&runtime.store).stage()),
            runtime,
            lifetime: self.default_lifetime(),
            keyspace: self.clone(),
            waiting: WriteBatch::new(),
            files: BTreeMap::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
            report: IngestReport::default(),
            has_failed: false,
        })
    }

    /// Ingests `entries`, whose keys must ascend: see [`Keyspace::begin_ingest`]. All or nothing.
    ///
    /// # Errors
    /// As [`Ingest::add`] and [`Ingest::finish`]; nothing has changed.
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<IngestReport> {
        self.try_ingest(entries.into_iter().map(Ok))
    }

    /// As [`Keyspace::ingest`], of entries that may fail to come.
    ///
    /// # Errors
    /// The first error among the entries; as [`Keyspace::ingest`]. Nothing has changed.
    pub fn try_ingest<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &self,
        entries: impl IntoIterator<Item = std::result::Result<(K, V), E>>,
    ) -> std::result::Result<IngestReport, E> {
        let mut ingest = self.begin_ingest()?;
        for entry in entries {
            let (key, value) = entry?;
            ingest.add(key, value)?;
        }
        Ok(ingest.finish()?)
    }
}

impl Ingest {
    /// Number of entries added.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.report.entries
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.report.entries == 0
    }

    /// Adds an entry. Its key must be above the one before it. In a keyspace with a
    /// [`ttl`](crate::KeyspaceOptions::ttl) it expires after that, counted from now, and not from
    /// when the ingest is finished: it is written before that is known.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is not above the one before it, or a key or value over the
    /// limits; `DiskFull`, `Io`, `ReadOnly`, `Closed`. After an error it cannot be finished.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let lifetime = self.lifetime;
        self.add_for(key.as_ref(), value.as_ref(), lifetime)
    }

    /// Adds an entry that expires then, or never, whatever the keyspace's `ttl`; see
    /// [`Keyspace::put_until`].
    ///
    /// # Errors
    /// As [`Ingest::add`]; `InvalidArgument` when the keyspace has a merge operator.
    pub fn add_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        self.add_for(key.as_ref(), value.as_ref(), expiry.into().into())
    }

    #[inline]
    pub(super) fn add_for(&mut self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<()> {
        let added = self.try_add(key, value, lifetime);
        if added.is_err() {
            self.has_failed = true;
        }
        added
    }

    /// Makes all entries visible, durably and at once. Entries that their keys had before are
    /// overwritten; reads and snapshots that began before do not see any of it.
    ///
    /// First flushes what memtables have in the range from the first key to the last. Commits, of
    /// all keyspaces, wait while the index is changed durably: for about two syncs; longer if
    /// others keep writing to the very range. A transaction that has read anything in the range
    /// conflicts. Without entries nothing happens.
    ///
    /// Where versions are kept, an ingest into the same keyspace that others have finished is
    /// archived first, whole. Then this is committed, and archived before this returns; until that
    /// is done, memtables of the keyspace are not flushed, so that who writes much to it is slowed
    /// down. The ingest is durable and visible by then, in the past as well, and what archiving
    /// fails with is no error of it: it is done again with the next flush, or behind the next
    /// opening; and in the background, where it found no room, some time later. While it finds
    /// none, writers whose memtables are full are told `DiskFull`.
    ///
    /// # Errors
    /// `DiskFull`, `Corruption` of what had to be read, `KeyspaceNotFound`, `Closed`; `Conflict`
    /// when the keyspace was converted since the ingest began; `InvalidArgument` when
    /// [`Ingest::add`] has failed, or the keyspace has got an index meanwhile: nothing has changed.
    /// `Io` and `ReadOnly` when a write or sync failed: whether the ingest survives is unknown
    /// then, and nothing is written any more until the database is reopened.
    pub fn finish(mut self) -> Result<IngestReport> {
        self.core().check_open()?;
        if self.has_failed {
            return Err(Error::invalid("an entry could not be added to the ingest"));
        }
        if self.report.entries == 0 {
            self.report.seqno = self.core().visible();
            return Ok(self.report);
        }
        self.place_waiting()?;
        self.report.seqno = self.commit(self.range(), self.report.bytes)?;
        Ok(self.report)
    }

    /// As [`Ingest::finish`], of some entries; but that it is left to others to archive them.
    #[cfg(test)]
    pub(super) fn finish_unarchived(mut self) -> Result<SeqNo> {
        self.place_waiting()?;
        self.commit_to_present(self.range(), self.report.bytes)
    }

    /// From its first key to its last, of some.
    fn range(&self) -> IngestRange {
        (Slice::from(&*self.first_key), Some(Slice::from(successor(&self.last_key))))
    }

    /// Makes what is staged, in a range of keys, visible; its stamp.
    pub(super) fn commit(&mut self, range: IngestRange, data_bytes: u64) -> Result<SeqNo> {
        let seqno = self.commit_to_present(range, data_bytes)?;
        let _a_flush_does_it_else = self.core().settle_ingest(&self.runtime);
        Ok(seqno)
    }

    fn commit_to_present(&mut self, range: IngestRange, data_bytes: u64) -> Result<SeqNo> {
        let core = Arc::clone(&self.keyspace.handle().core);
        let runtime = Arc::clone(&self.runtime);
        let order = Order { runtime: &runtime, range, data_bytes };
        let staged = self.staged.as_mut().expect("it is there until it is over");
        let seqno = core.commit_ingest(&order, &mut **staged)?;
        self.staged = None; // The index has its files.
        let _open = core.staging.read().unwrap_or_else(PoisonError::into_inner); // J4
        if core.check_writable().is_ok() {
            core.give_back_unreferenced(&runtime);
        }
        Ok(seqno)
    }

    /// Takes a table as it is, above all that came before.
    pub(super) fn adopt(
        &mut self,
        table: &OutsideTable,
        how: &TableIngestOptions,
    ) -> Result<Adopted> {
        let core = &self.keyspace.handle().core;
        let _open = core.staging.read().unwrap_or_else(PoisonError::into_inner); // J4
        core.check_writable()?;
        self.staged.as_mut().expect("it is there until it is over").adopt(table, how)
    }

    fn core(&self) -> &Core {
        &self.keyspace.handle().core
    }

    fn separates(&self, value: &[u8]) -> bool {
        self.keyspace.separates(value.len())
    }

    #[inline]
    fn try_add(&mut self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<()> {
        self.core().check_writable()?; // What is in memory still would never be written (J4).
        if self.report.entries > 0 && key <= self.last_key.as_slice() || self.has_failed {
            return Err(self.out_of_order(key));
        }
        let lifetime = match lifetime {
            Lifetime::Forever => lifetime,
            lifetime => {
                self.keyspace.check_takes_expiry()?;
                lifetime.counted_from(self.core().time.now()) // It may wait long to be staged.
            }
        };
        if self.runtime.archive.is_some() {
            check_archived_len(key)?;
        }
        let write = Write::Put { key, value };
        if let Some(refusal) = self.waiting.refusal(write) {
            return Err(Error::invalid(refusal));
        }
        if self.report.entries == 0 {
            self.first_key.extend_from_slice(key);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.report.entries += 1;
        self.report.bytes += (key.len() + value.len()) as u64;
        if !self.waiting.is_empty() || lifetime != Lifetime::Forever || self.separates(value) {
            self.waiting.put_for(&self.keyspace, key, value, lifetime);
            return match self.waiting.size() >= VALUES_TOGETHER {
                true => self.place_waiting(),
                false => Ok(()),
            };
        }
        self.stage(key, EntryKind::Value, value)
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        if self.has_failed {
            return Error::invalid("an entry could not be added to the ingest");
        }
        let (key, before) = (key.escape_ascii(), self.last_key.escape_ascii());
        Error::invalid(format!("the key {key} is not above the one before it, {before}"))
    }

    #[inline]
    fn stage(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        let staged = self.staged.as_mut().expect("it is there until it is over");
        match staged.is_full_for(key, value.len()) {
            true => self.stage_in_next(key, kind, value),
            false => staged.add(key, kind, value), // In memory.
        }
    }

    /// Stages an entry in front of which the part at hand ends: both may write to files.
    fn stage_in_next(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        let core = &self.keyspace.handle().core;
        let _open = core.staging.read().unwrap_or_else(PoisonError::into_inner); // J4
        core.check_writable()?;
        let staged = self.staged.as_mut().expect("it is there until it is over");
        staged.end_part(key)?;
        staged.add(key, kind, value)
    }

    /// Writes the large values that wait, and stages the entries.
    #[cold]
    fn place_waiting(&mut self) -> Result<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        {
            let core = &self.keyspace.handle().core;
            let _open = core.staging.read().unwrap_or_else(PoisonError::into_inner); // J4
            core.check_writable()?;
            if waiting.has_staged() {
                core.place_values(&mut waiting)?;
            }
        }
        for operation in waiting.operations() {
            match (operation.write.entry(), operation.write.expiring()) {
                (Some((key, kind, value)), _) => self.stage(key, kind, value)?,
                (None, Some((key, kind, value, lifetime))) => {
                    let until = lifetime.end_from(0).expect("it expires, at a moment");
                    let bytes = Expiring { until, kind, value }.encode();
                    self.stage(key, EntryKind::Composite, &bytes)?;
                }
                (None, None) => unreachable!("only puts are waiting"),
            }
        }
        let files = waiting.take_files().into_iter();
        self.files.extend(files.map(|file| (file.number(), file)));
        waiting.clear();
        self.waiting = waiting;
        Ok(())
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        let Some(staged) = self.staged.take() else { return };
        let core = &self.keyspace.handle().core;
        if core.is_forked() {
            return std::mem::forget(staged); // Its files are the other process's.
        }
        let _open = core.staging.read().unwrap_or_else(PoisonError::into_inner); // J4
        // After a failure that leaves doubt, the index may refer to the files.
        if core.check_writable().is_ok() {
            staged.discard();
        }
    }
}

/// What is to be committed, and where.
struct Order<'a> {
    runtime: &'a Arc<Runtime>,
    range: IngestRange,
    data_bytes: u64,
}

impl Core {
    /// Commits staged runs; returns their stamp.
    fn commit_ingest(&self, order: &Order<'_>, staged: &mut dyn Staged) -> Result<SeqNo> {
        let mut meanwhile = Meanwhile::TryAgain(UNHELD_TRY_COUNT);
        loop {
            self.wait_to_ingest(order.runtime)?; // O6
            match self.try_commit_ingest(order, staged, meanwhile)? {
                Tried::Committed(seqno) => return Ok(seqno),
                Tried::Again => meanwhile = meanwhile.next(),
            }
        }
    }

    fn try_commit_ingest(
        &self,
        order: &Order<'_>,
        staged: &mut dyn Staged,
        meanwhile: Meanwhile,
    ) -> Result<Tried> {
        let runtime = order.runtime;
        if self.has_in_range(order)? || self.has_waiting_flush(runtime) {
            self.flush_keyspace(runtime)?;
        }
        self.settle_ingest(runtime)?;
        let untold = self.begin_untold(); // In front of the turn, which others wait for.
        let turn = lock(&runtime.flushing);
        self.check_writable()?; // Under the turn, which closing waits for (J4).
        self.check_has_store(runtime)?;
        if self.unarchived(runtime).is_some() {
            return Ok(Tried::Again); // H5
        }
        if runtime.conversion().is_some_and(|job| job.holds_ingests()) {
            return Ok(Tried::Again); // O6: another one was faster, or a round has begun.
        }
        if self.has_waiting_flush(runtime) && meanwhile != Meanwhile::FlushWhileHeld {
            // H5: what waits for a flush is not to wait for one ingest after the other.
            return Ok(Tried::Again);
        }
        self.commit_under_turn(order, staged, (meanwhile, &turn, &untold))
    }

    /// Commits staged runs, unless something is in the way. The caller has the turn to flush, and
    /// no trail begins.
    fn commit_under_turn(
        &self,
        order: &Order<'_>,
        staged: &mut dyn Staged,
        (meanwhile, _turn, untold): (Meanwhile, &MutexGuard<'_, ()>, &Untold<'_>),
    ) -> Result<Tried> {
        let Order { runtime, range, .. } = order;
        self.note_ingests(runtime)?;
        self.finish_begun_flush(runtime)?;
        staged.fit()?;
        self.sync_values()?;
        let hold = self.hold_commits()?; // J2
        if self.has_in_range(order)? {
            if meanwhile != Meanwhile::FlushWhileHeld {
                return Ok(Tried::Again);
            }
            let flushed = self.flush_under_turn(runtime);
            flushed.inspect_err(|error| self.note_work_failure(error))?;
            staged.fit()?;
        }
        self.check_takes_ingest(runtime)?; // No index comes while commits are held.
        self.check_has_store(runtime)?;
        // Only now: it may come to nothing by all that is above, or be tried again.
        let ending = self.end_trail_before(untold, &hold, TrailEndReason::Ingested)?;
        let seqno = hold.next_stamp(self.time.wall_for_stamp());
        self.transactions.note_ingest(runtime.id, range.clone(), seqno); // J3
        let committed = self.ingest_held(order, staged, seqno);
        self.transactions.note_ingest_over(seqno);
        match committed {
            Ok(()) => drop(ending),
            Err(error) => {
                // Else the index may have it.
                if changed_nothing(&error) {
                    ending.take_back();
                }
                return Err(error);
            }
        }
        hold.note_commit(order.data_bytes);
        Ok(Tried::Committed(seqno))
    }

    /// Whether a keyspace takes ingests: it takes none while it has indexes, which they bypass.
    fn check_takes_ingest(&self, runtime: &Runtime) -> Result<()> {
        let state = self.published.state();
        match state.find(runtime.id).and_then(|keyspace| keyspace.index_set()) {
            None => Ok(()),
            Some(_) => Err(Error::invalid(format!(
                "keyspace {:?} has indexes: it takes no ingest; drop them first and create them \
                 again behind it, or write batches",
                runtime.name.load()
            ))),
        }
    }

    /// Makes staged runs part of the index, and visible. Commits are held.
    fn ingest_held(&self, order: &Order<'_>, staged: &mut dyn Staged, seqno: SeqNo) -> Result<()> {
        let runtime = order.runtime;
        let _guard = PoisonOnPanic::new(self, "an ingest");
        if let Some(conversion) = runtime.conversion() {
            // Also if it fails: it is copied again.
            conversion.note_ingest(&order.range, seqno, order.data_bytes);
        }
        let spans = runtime.archive.as_ref().map(|_| staged.spans());
        let version = match is_seeded(Bug::IngestStampWrong) {
            true => staged.commit(self.visible()),
            false => staged.commit(seqno),
        };
        let version = version.inspect_err(|error| self.note_failure(error))?; // D4
        let unarchived = spans.map(|spans| Unarchived::new(seqno, &version, spans, &self.budget));
        let with_version = |state: &State| {
            let next = state.with_version(runtime.store_id, &version);
            match (next.find(runtime.id), &unarchived) {
                (Some(now), Some(_)) => {
                    let unarchived = unarchived.clone();
                    next.with(KeyspaceState { unarchived, ..KeyspaceState::clone(now) })
                }
                _ => next,
            }
        };
        self.published.replace_and_publish(with_version, seqno); // J3
        Ok(())
    }

    /// Checks that the keyspace is there, and has the store that entries were staged in.
    fn check_has_store(&self, runtime: &Runtime) -> Result<()> {
        match self.published.state().find(runtime.id) {
            Some(found) if found.runtime.store_id == runtime.store_id => Ok(()),
            Some(_) => Err(Error::Conflict),
            None => Err(Error::KeyspaceNotFound { name: runtime.name.load().to_string() }),
        }
    }

    /// Flushes everything that a keyspace has in memtables; the caller has its turn.
    fn flush_under_turn(&self, runtime: &Runtime) -> Result<()> {
        {
            let applier = self.log.lock_applier();
            self.seal(runtime.id, &applier);
        }
        while self.flush_oldest(runtime.id)? {}
        Ok(())
    }

    /// Where versions are kept: flushes the rest of a memtable that is partly in the structure.
    /// What the present is as of the ingest is read with memtables on top (H5), and of these
    /// nothing is to be in it already, as operands would count twice. The caller has the turn to
    /// flush.
    fn finish_begun_flush(&self, runtime: &Runtime) -> Result<()> {
        let is_begun = || {
            let state = self.published.state();
            state.find(runtime.id).is_some_and(|keyspace| !keyspace.flushed_to.is_empty())
        };
        while runtime.archive.is_some() && is_begun() {
            let flushed = self.flush_oldest(runtime.id);
            flushed.inspect_err(|error| self.note_work_failure(error))?;
        }
        Ok(())
    }

    /// Whether a memtable of a keyspace that keeps its versions waits to be flushed.
    fn has_waiting_flush(&self, runtime: &Runtime) -> bool {
        let state = self.published.state();
        let has_sealed = |keyspace: &Arc<KeyspaceState>| !keyspace.sealed.is_empty();
        runtime.archive.is_some() && state.find(runtime.id).is_some_and(has_sealed)
    }

    /// Whether memtables have an entry, or delete anything, in the range (J1).
    fn has_in_range(&self, order: &Order<'_>) -> Result<bool> {
        let name = || order.runtime.name.load().to_string();
        let state = self.published.state();
        let keyspace = state.find(order.runtime.id);
        let keyspace = keyspace.ok_or_else(|| Error::KeyspaceNotFound { name: name() })?;
        let (first, end) = &order.range;
        if is_seeded(Bug::IngestBelowMemtables) {
            return Ok(false);
        }
        for table in keyspace.tables() {
            if has_between(table, first, end.as_deref())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes what was appended to the value log durable (X7).
    pub(super) fn sync_values(&self) -> Result<()> {
        self.values.sync().inspect_err(|error| self.set_poison(&error.to_string()))
    }
}

fn has_between(table: &Table, first: &[u8], end: Option<&[u8]>) -> Result<bool> {
    let deleted = table.memtable.ranges();
    if deleted.is_some_and(|ranges| ranges.has_newer(first, end, SeqNo::ZERO)) {
        return Ok(true);
    }
    let mut cursor = MemtableCursor::new(Arc::clone(&table.memtable), SeqNo::MAX);
    cursor.seek(first)?;
    Ok(cursor.entry().is_some_and(|entry| end.is_none_or(|end| entry.key < end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Background, Builder, Db, Durability};
    use crate::manifest::KeyspaceOptions;
    use crate::storage::{CrashMode, SimStorage};

    fn open(storage: &SimStorage) -> Db {
        let builder = Builder::default().storage(Arc::new(storage.clone()));
        let builder = builder.background(Background::Stepped).durability(Durability::Buffered);
        builder.memory_budget(8 << 20).flush_slice_size(600).open("/db").unwrap()
    }

    fn options() -> KeyspaceOptions {
        let options = KeyspaceOptions::history().interval_size(1024).segment_size(16 << 10);
        options.merge_operator("append")
    }

    fn key(number: u32) -> String {
        format!("key{number:03}")
    }

    /// Seals a memtable of a keyspace.
    fn seal(core: &Core, keyspace: &Keyspace) {
        core.seal(keyspace.id(), &core.log.lock_applier());
    }

    fn sealed_count(core: &Core, keyspace: &Keyspace) -> usize {
        core.published.state().find(keyspace.id()).unwrap().sealed.len()
    }

    /// Ingests rows as whoever finds that others have written meanwhile, for the last time.
    fn ingest_at_last(keyspace: &Keyspace, rows: &[(String, &str)]) -> SeqNo {
        let mut ingest = keyspace.begin_ingest().unwrap();
        rows.iter().for_each(|(key, value)| ingest.add(key, value).unwrap());
        let (core, range) = (Arc::clone(&keyspace.handle().core), ingest.range());
        let runtime = Arc::clone(&ingest.runtime);
        let mut staged = ingest.staged.take().unwrap();
        let order = Order { runtime: &runtime, range, data_bytes: 0 };
        let (turn, untold) = (lock(&runtime.flushing), core.begin_untold());
        let tried = (Meanwhile::FlushWhileHeld, &turn, &untold);
        match core.commit_under_turn(&order, &mut *staged, tried).unwrap() {
            Tried::Committed(seqno) => seqno,
            Tried::Again => panic!("it is the last time"),
        }
    }

    /// Commits are not held while other keys' memtables are flushed: these stay, and everything
    /// is found above and below the ingest, and behind a crash.
    #[test]
    fn an_ingest_does_not_flush_memtables_of_other_keys() {
        let storage = SimStorage::new(1);
        let mut db = open(&storage);
        let mut k = db.create_keyspace("k", options()).unwrap();
        let mut past = vec![(k.merge("z", "1").unwrap(), "1")];
        db.flush().unwrap();
        for value in ["12", "123"] {
            past.push((k.merge("z", &value[value.len() - 1..]).unwrap(), value));
            seal(db.core(), &k);
        }
        past.push((k.merge("z", "4").unwrap(), "1234"));
        assert_eq!(sealed_count(db.core(), &k), 2);
        let rows = [("a".to_owned(), "x"), ("b".to_owned(), "y")];
        let ingested = ingest_at_last(&k, &rows);
        assert_eq!(sealed_count(db.core(), &k), 2, "they wait for the ingest alone");
        past.push((k.merge("z", "5").unwrap(), "12345"));
        for round in 0..4 {
            assert_eq!(k.get_at("z", ingested).unwrap().as_deref(), Some(&b"1234"[..]));
            assert_eq!(k.get("b").unwrap().as_deref(), Some(&b"y"[..]));
            for (at, value) in &past {
                assert_eq!(k.get_at("z", *at).unwrap().as_deref(), Some(value.as_bytes()));
            }
            let told = k.history_from_oldest("z", ..).unwrap();
            let told: Vec<SeqNo> = told.map(|version| version.unwrap().seqno).collect();
            assert!(told.iter().eq(past.iter().map(|(at, _)| at)), "in round {round}: {told:?}");
            match round {
                0 => {
                    db.sync().unwrap();
                    let crashed = storage.crash(CrashMode::KeepAll, 1);
                    drop((db, k));
                    db = open(&crashed);
                    k = db.keyspace("k").unwrap();
                }
                1 => assert!(db.step().unwrap()),
                2 => db.flush().unwrap(),
                _ => assert!(db.check().unwrap().is_ok()),
            }
        }
        let by_stamp = k.versions_by_stamp(..).unwrap().map(|version| version.unwrap().seqno);
        let mut expected: Vec<SeqNo> = past.iter().map(|(at, _)| *at).collect();
        expected.extend([ingested; 2]);
        expected.sort();
        assert!(by_stamp.eq(expected));
    }

    /// What the present is as of an ingest is read with memtables on top, of which no part is in
    /// the present already: operands would count twice.
    #[test]
    fn an_ingest_does_not_come_between_the_slices_of_a_flush() {
        let storage = SimStorage::new(1);
        let db = open(&storage);
        let k = db.create_keyspace("k", options()).unwrap();
        let merge = |operand: &str| {
            for number in 0..900 {
                k.merge(key(number), operand).unwrap();
            }
        };
        merge("1");
        db.flush().unwrap();
        merge("2");
        seal(db.core(), &k);
        {
            let runtime = k.runtime();
            let _turn = lock(&runtime.flushing);
            assert!(db.core().flush_oldest(k.id()).unwrap());
        }
        let is_begun = || {
            let state = db.core().published.state();
            !state.find(k.id()).unwrap().flushed_to.is_empty()
        };
        assert!(is_begun(), "the flush has some slices");
        let ingested = ingest_at_last(&k, &[("zz".to_owned(), "x")]);
        assert!(!is_begun());
        for number in 0..900 {
            let found = k.get_at(key(number), ingested).unwrap();
            assert_eq!(found.as_deref(), Some(&b"12"[..]), "{number}");
        }
    }
}
