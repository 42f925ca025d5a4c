//! Ingests into keyspaces that keep their versions: each entry is a version, with the stamp of the
//! ingest.
//!
//! ```text
//! commit ...... one edit of the index of the present, while commits wait (J1 to J4): the present
//!               has the ingest, the archive has nothing of it yet
//! archive ..... slice by slice, in place of flushes of the keyspace: its entries are read out of
//!               the present, and become tables of the archive that nothing refers to
//! install ..... one edit of the index of the archive: it has the ingest whole
//! ```
//!
//! Versions carry their stamps in their keys, and the stamp is not known before commits are held:
//! so the archive comes second, the other way round than with flushes (H2). In between nothing of
//! the keyspace is flushed, so that the present is what it was at the stamp, and what there is
//! behind that is in memtables: the past from the stamp on is read out of these two, the past in
//! front of it out of the archive.
//!
//! Invariants
//! - H5  While an ingest is not archived, nothing is flushed of its keyspace, no other ingest into
//!   it is committed, and nothing that expires leaves the present.
//! - H6  What is in the present and not in the archive is known by their newest stamps: that of the
//!   present is above that of the archive if, and only if, it is that of an ingest that is not
//!   archived. Where nothing of that stamp is found, the archive is damaged. Where there was no
//!   ingest, as the catalogue says, it is too, which `check` tells: nothing is refused for it, as
//!   there is nothing that it could be mistaken for.
//!
//! An archive that finds no room is given up, so that others have it, and begun anew: at once when
//! somebody asks for a flush; else the later, the longer it took to find that out, but within some
//! seconds: writers are told meanwhile that there is no room. So it is with one for which something
//! cannot be read or made; writers who wait for it are told what.

use std::path::Path;
use std::time::Duration;

use crate::base::sync::atomic::Ordering;
use crate::base::sync::{Arc, Mutex};
use crate::base::version_key::{INGESTED, VersionKind, put_by_stamp, put_head, put_tail};
use crate::base::{EntryKind, EntryRef, Error, KeyRange, Result, SeqNo, Slice};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::db::core::{Core, keyspace_dir, lock};
use crate::db::health::{changed_nothing, may_pass};
use crate::db::options::Background;
use crate::db::state::{KeyspaceState, Runtime, State};
use crate::manifest::Edit;
use crate::structure::history::VersionAt;
use crate::structure::{Found, KeySpan, Staged, Version, Want};

/// Bytes of entries that are read for the archive at once: so long somebody who wants the turn to
/// flush may have to wait.
const SLICE_BYTES: u64 = 8 << 20;
/// Archiving that found no room is not begun anew before so many times what it took has passed:
/// meanwhile others have the room that it would take ..
const RETRY_FACTOR: u32 = 16;
/// .. nor before so long,
const RETRY_WAIT_MIN: Duration = Duration::from_millis(100);
/// .. but then: so long writers may be told that there is no room, although there is some again.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);

/// An ingest that is in the present, and not in the archive yet.
#[derive(Debug)]
pub(in crate::db) struct Unarchived {
    stamp: SeqNo,
    /// The present as of the stamp.
    version: Arc<dyn Version>,
    /// Where its entries are, and perhaps others, ascending.
    spans: Vec<KeySpan>,
    progress: Mutex<Option<Archiving>>,
    put_off: Mutex<Option<PutOff>>,
    _memory: Charge,
}

/// That the last try found no room, or failed with what may pass.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    is_for_room: bool,
    /// When it is to be begun anew, of the clock that only rises.
    retry_at: Duration,
    /// Versions that it had taken by then.
    count: u64,
}

/// How far an ingest is.
#[derive(Debug)]
struct Archiving {
    staged: Box<dyn Staged>,
    /// When it was begun.
    began: Duration,
    order: Order,
    /// Whether all that there is was taken.
    is_taken: bool,
    /// The span at hand, and where it goes on in it.
    span: usize,
    from: Option<Slice>,
    /// Versions taken.
    count: u64,
    // A buffer.
    key: Vec<u8>,
}

/// In which order versions are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    ByKey,
    ByStamp,
}

/// What a slice has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::db) enum Slices {
    GoOn,
    Over,
}

impl Unarchived {
    pub(in crate::db) fn new(
        stamp: SeqNo,
        version: &Arc<dyn Version>,
        spans: Vec<KeySpan>,
        budget: &Arc<MemoryBudget>,
    ) -> Arc<Unarchived> {
        let bytes = |span: &KeySpan| span.0.len() + span.1.as_ref().map_or(0, |end| end.len());
        let memory = spans.len() * size_of::<KeySpan>() + spans.iter().map(bytes).sum::<usize>();
        Arc::new(Unarchived {
            stamp,
            version: Arc::clone(version),
            spans,
            progress: Mutex::default(),
            put_off: Mutex::default(),
            _memory: budget.charge(Part::Buffer, memory),
        })
    }

    /// The one that opening a database finds, if there is one. Where its entries are is not known.
    pub(in crate::db) fn found(
        runtime: &Runtime,
        version: &Arc<dyn Version>,
    ) -> Option<Arc<Unarchived>> {
        let archive = runtime.archive.as_ref()?;
        let (stamp, archived_to) = (runtime.store.last_seqno(), archive.store.last_seqno());
        if stamp <= archived_to || !archive.options.has_ingests {
            return None; // H6
        }
        let anywhere = vec![(Slice::default(), None)];
        Some(Unarchived::new(stamp, version, anywhere, &runtime.budget))
    }

    /// The version that it is of this key, if it has one.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<Found>> {
        let found = self.version.find(key, Want::Stamp)?;
        Ok(found.filter(|found| found.seqno == Some(self.stamp)))
    }

    pub(super) fn stamp(&self) -> SeqNo {
        self.stamp
    }

    /// Whether the last try found no room, and none since has come further.
    pub(in crate::db) fn has_found_no_room(&self) -> bool {
        lock(&self.put_off).is_some_and(|put_off| put_off.is_for_room)
    }

    /// Whether it is too early, at that time, for another try that nobody asks for.
    pub(in crate::db) fn waits_for_room(&self, now: Duration) -> bool {
        lock(&self.put_off).is_some_and(|put_off| now < put_off.retry_at)
    }

    /// Begins anew, later: a try that began then has found no room by now, behind so many versions.
    pub(super) fn note_no_room(&self, times: (Duration, Duration), count: u64) {
        self.put_off(times, count);
        lock(&self.put_off).iter_mut().for_each(|put_off| put_off.is_for_room = true);
    }

    /// The same of one that has failed otherwise.
    fn put_off(&self, (began, now): (Duration, Duration), count: u64) {
        let wait = now.saturating_sub(began).saturating_mul(RETRY_FACTOR);
        let retry_at = now + wait.clamp(RETRY_WAIT_MIN, RETRY_WAIT_MAX);
        *lock(&self.put_off) = Some(PutOff { is_for_room: false, retry_at, count });
    }

    /// There was room for so many versions. Whether that is more than there was for the last try.
    pub(super) fn note_room(&self, count: u64) -> bool {
        let is_news = |put_off: &mut PutOff| count > put_off.count;
        lock(&self.put_off).take_if(is_news).is_some_and(|put_off| put_off.is_for_room)
    }

    /// Removes what was written for the archive, which nothing refers to.
    pub(in crate::db) fn give_up(&self) {
        let begun = lock(&self.progress).take();
        begun.into_iter().for_each(|begun| begun.staged.discard());
    }
}

/// What is said of an archive that lacks what its keyspace has.
#[cold]
fn behind(dir: &Path, archive: &Runtime, (stamp, archived_to): (SeqNo, SeqNo)) -> Error {
    let what = format!("the archive ends at {archived_to}, behind its keyspace, at {stamp}");
    Error::corruption(&keyspace_dir(dir, archive.store_id), 0, what)
}

impl Archiving {
    fn begin(archive: &Runtime, now: Duration) -> Archiving {
        Archiving {
            staged: Arc::clone(&archive.store).stage(),
            began: now,
            is_taken: false,
            order: Order::ByKey,
            span: 0,
            from: None,
            count: 0,
            key: Vec::new(),
        }
    }

    /// Goes through about so many bytes of entries, and takes those of the ingest.
    fn take(&mut self, of: &Unarchived, archive: &Runtime, bytes: u64) -> Result<()> {
        let mut left = bytes;
        let mut cursor = of.version.cursor(&KeyRange::all());
        loop {
            let Some((start, end)) = of.spans.get(self.span) else {
                self.is_taken = self.order == Order::ByStamp || !archive.options.keeps_stamps();
                if self.is_taken {
                    return Ok(());
                }
                (self.order, self.span) = (Order::ByStamp, 0);
                continue;
            };
            let from = self.from.take();
            cursor.seek(from.as_deref().unwrap_or(&**start))?;
            while let Some(entry) = cursor.entry() {
                if end.as_ref().is_some_and(|end| entry.key >= &**end) {
                    break;
                }
                if left == 0 {
                    self.from = Some(Slice::from(entry.key));
                    return Ok(());
                }
                left = left.saturating_sub((entry.key.len() + entry.value.len()) as u64);
                if entry.seqno == of.stamp && entry.kind != EntryKind::Tombstone {
                    self.add(entry)?;
                }
                cursor.next()?;
            }
            self.span += 1;
        }
    }

    fn add(&mut self, EntryRef { key, seqno, kind, value }: EntryRef<'_>) -> Result<()> {
        self.count += 1;
        match self.order {
            Order::ByKey => {
                put_head(&mut self.key, key);
                put_tail(&mut self.key, seqno, VersionKind::Put);
                self.staged.add(&self.key, kind, value)
            }
            Order::ByStamp => {
                put_by_stamp(&mut self.key, seqno, key);
                self.staged.add(&self.key, EntryKind::Value, &INGESTED)
            }
        }
    }
}

impl KeyspaceState {
    /// The keyspace as it was at a stamp that `version`, of its archive, is of.
    pub(in crate::db) fn at_moment(&self, version: VersionAt, at: SeqNo) -> KeyspaceState {
        match self.unarchived.as_ref().filter(|of| of.stamp <= at) {
            // Nothing was flushed since (H5).
            Some(of) if version.check_walk().is_ok() => self.as_past(Arc::clone(&of.version)),
            _ => self.as_past(Arc::new(version)),
        }
    }
}

impl Core {
    /// Does a slice of archiving what was ingested into a keyspace; `None` if nothing was that is
    /// not archived. The caller has the keyspace's turn to flush.
    pub(in crate::db) fn archive_ingested(
        &self,
        keyspace: &KeyspaceState,
    ) -> Result<Option<Slices>> {
        let runtime = &keyspace.runtime;
        let both = keyspace.unarchived.as_ref().zip(runtime.archive.as_ref());
        let Some((of, archive)) = both else { return Ok(None) };
        let began = self.clock.monotonic();
        let slices = self.archive_slice(runtime, of, archive)?;
        if !keyspace.sealed.is_empty() {
            // Writers are held to what flushes and this come to together.
            let took = self.clock.monotonic().saturating_sub(began);
            runtime.flush_rate.note_more(took);
        }
        if slices == Slices::Over {
            self.give_back_unreferenced(archive);
            self.workers.note_leftovers();
            self.workers.wake(); // There may be tables to merge.
        }
        Ok(Some(slices))
    }

    fn archive_slice(
        &self,
        keyspace: &Runtime,
        of: &Unarchived,
        archive: &Arc<Runtime>,
    ) -> Result<Slices> {
        let mut progress = lock(&of.progress);
        let now = self.clock.monotonic();
        let mut archiving = progress.take().unwrap_or_else(|| Archiving::begin(archive, now));
        let (began, count) = (archiving.began, archiving.count);
        let slice_bytes = self.flush_slice_size.unwrap_or(SLICE_BYTES);
        let done = match archiving.is_taken {
            false => archiving.take(of, archive, slice_bytes).map(|()| Slices::GoOn),
            true => archiving.staged.fit().map(|()| Slices::Over),
        };
        let done = match done {
            Ok(Slices::GoOn) => {
                if of.note_room(count) {
                    self.disk_full_count.store(0, Ordering::Relaxed);
                }
                *progress = Some(archiving);
                return Ok(Slices::GoOn);
            }
            Ok(Slices::Over) => self.install_ingested(keyspace, (of, archive), archiving),
            Err(error) => {
                archiving.staged.discard(); // It begins anew.
                Err(error)
            }
        };
        match &done {
            Err(Error::DiskFull { .. }) => {
                of.note_no_room((began, self.clock.monotonic()), count);
            }
            Err(error) if may_pass(error) => of.put_off((began, self.clock.monotonic()), count),
            _ => {}
        }
        done.map(|()| Slices::Over)
    }

    /// Makes what was taken of an ingest part of the archive, and says so.
    fn install_ingested(
        &self,
        keyspace: &Runtime,
        (of, archive): (&Unarchived, &Arc<Runtime>),
        archiving: Archiving,
    ) -> Result<()> {
        // Until it is published: what others install behind it must not be published before.
        let _turn = lock(&archive.flushing);
        let Archiving { mut staged, count, .. } = archiving;
        if count == 0 {
            staged.discard();
            // An ingest has an entry (H6).
            let known = (of.stamp, archive.store.last_seqno());
            return Err(behind(&self.dir, archive, known));
        }
        let version = match staged.commit(of.stamp) {
            Ok(version) => version,
            Err(error) => {
                // Else the index may refer to what was written.
                if changed_nothing(&error) {
                    staged.discard();
                }
                return Err(error);
            }
        };
        self.published.replace(|state: &State| {
            let next = state.with_version(archive.store_id, &version);
            match next.find(keyspace.id) {
                Some(now) => {
                    next.with(KeyspaceState { unarchived: None, ..KeyspaceState::clone(now) })
                }
                None => next,
            }
        });
        if let Some(newest) = self.runtime_with_store(archive.store_id) {
            newest.note_version();
        }
        Ok(())
    }

    /// Has what was ingested into a keyspace until now be in its archive. The turn to flush goes
    /// round in between.
    pub(in crate::db) fn settle_ingest(&self, runtime: &Runtime) -> Result<()> {
        // By its stamp: whoever holds it holds the files that only it needs.
        let stamp_of_it = || self.unarchived(runtime).map(|of| of.stamp);
        let Some(stamp) = stamp_of_it() else { return Ok(()) };
        loop {
            let turn = lock(&runtime.flushing);
            let flushed = self.flush_oldest(runtime.id);
            drop(turn);
            flushed.inspect_err(|error| self.note_work_failure(error))?;
            if stamp_of_it() != Some(stamp) {
                return Ok(());
            }
            self.let_others_have_the_turn();
        }
    }

    /// Whether a keyspace waits for room that the last try to flush it, or to archive what was
    /// ingested, did not find, and nobody is to try yet who does not wait for it.
    pub(in crate::db) fn waits_for_room(&self, keyspace: &KeyspaceState) -> bool {
        let waits = |now| match &keyspace.unarchived {
            Some(of) => of.waits_for_room(now),
            None => keyspace.runtime.no_room.is_waited_for(now),
        };
        self.background == Background::Threads && waits(self.clock.monotonic())
    }

    /// What was ingested into a keyspace and is not archived yet.
    pub(in crate::db) fn unarchived(&self, runtime: &Runtime) -> Option<Arc<Unarchived>> {
        runtime.archive.as_ref()?;
        self.published.state().find(runtime.id)?.unarchived.clone()
    }

    /// By when it is judged what has expired in a keyspace, for what would leave its structure: not
    /// while that is to be archived (H5). Under its turn to flush.
    pub(in crate::db) fn now_for(&self, runtime: &Runtime) -> u64 {
        match self.unarchived(runtime) {
            Some(_) => 0,
            None => self.time.now_if_used(),
        }
    }

    /// Notes durably that there are ingests in a keyspace that keeps its versions: programs that do
    /// not know what is to be archived must not open it.
    pub(in crate::db) fn note_ingests(&self, keyspace: &Runtime) -> Result<()> {
        let Some(archive) = &keyspace.archive else { return Ok(()) };
        let mut manifest = self.lock_manifest_for_edit()?;
        let record = manifest.state().keyspace(archive.id);
        let Some(mut options) = record.map(|record| record.options.clone()) else {
            return Ok(()); // It was dropped.
        };
        if options.has_ingests {
            return Ok(());
        }
        options.has_ingests = true;
        self.apply_edit(&mut manifest, &Edit::SetOptions { id: archive.id, options })?;
        // The edit may be the last one that the manifest takes: no error of what follows may say
        // that nothing has changed.
        self.check_writable()
    }
}
