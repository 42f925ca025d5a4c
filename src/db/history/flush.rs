//! Flushing to the archive: what a memtable has goes there whole, in front of the structure.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::sync::atomic::Ordering;
use crate::base::version_key::put_by_stamp;
use crate::base::{Cursor, Error, KeyRange, RangeTombstones, Result, SeqNo};
use crate::block::BlockCursor;
use crate::cache::Part;
use crate::db::convert::CopiedKeys;
use crate::db::core::{Core, lock};
use crate::db::health::changed_nothing;
use crate::db::history::entries::ArchiveEntries;
use crate::db::history::made::Maker;
use crate::db::history::retention::TellKept;
use crate::db::state::{KeyspaceState, Runtime, Table};
use crate::merge::MergeCursor;
use crate::structure::{FlushOrder, FlushProgress, Version};

/// Bytes that are kept beside the memtable for each of its entries while it is flushed: its stamp
/// and place, and half as much again while they are sorted.
const BUFFERED_PER_ENTRY: usize = 24;

impl Core {
    /// Brings what a sealed memtable has to the keyspace's archive, if it has one and not all of
    /// that yet. The caller has the keyspace's turn to flush, and the log is durable up to the
    /// memtable's end.
    pub(in crate::db) fn archive(
        &self,
        keyspace: &KeyspaceState,
        table: &Table,
        order: FlushOrder,
    ) -> Result<()> {
        let Some(archive) = keyspace.runtime.archive.as_ref().filter(|_| !table.is_archived())
        else {
            return Ok(());
        };
        self.archive_to(archive, (&keyspace.runtime, table), None, order)?;
        table.note_archived();
        self.workers.note_leftovers();
        self.workers.wake(); // There may be tables to merge.
        Ok(())
    }

    /// Brings all versions that a sealed memtable of a keyspace has to an archive; to one that is
    /// still being made, with `copied` saying what it has.
    pub(in crate::db) fn archive_to(
        &self,
        archive: &Arc<Runtime>,
        (keyspace, table): (&Runtime, &Table),
        copied: Option<CopiedKeys>,
        order: FlushOrder,
    ) -> Result<()> {
        let _turn = lock(&archive.flushing);
        let (memtable, heap) = (&table.memtable, self.budget.heap());
        let buffers = memtable.entry_count() * BUFFERED_PER_ENTRY;
        let _buffers = self.budget.charge(Part::Buffer, buffers);
        let mut entries = ArchiveEntries::new(memtable, archive.store.version(), heap);
        if !archive.options.keeps_stamps() {
            entries.leave_stamps_out();
        }
        if keyspace.options.merge_operator.is_some() {
            entries.make_values(Maker::new(keyspace, archive, &self.budget));
        }
        copied.into_iter().for_each(|copied| entries.copied(copied));
        let kept_from = archive.store.kept_from();
        let deleted = stamps_to_delete(archive, kept_from)?;
        let brought = self.bring_to(archive, &mut entries, &deleted, order);
        if let Some(mut mover) = entries.into_maker().map(Maker::into_mover) {
            match &brought {
                Ok(()) => mover.note_held(),
                Err(error) if changed_nothing(error) => mover.take_back(),
                Err(_) => {} // The index may refer to what was written.
            }
        }
        brought?;
        archive.stamps_gone_to.store(kept_from.as_u64(), Ordering::Relaxed);
        Ok(())
    }

    /// Brings entries and deleted ranges to a store whole; the caller has its turn to flush.
    pub(in crate::db) fn bring_to(
        &self,
        runtime: &Arc<Runtime>,
        entries: &mut dyn Cursor,
        deleted: &RangeTombstones,
        order: FlushOrder,
    ) -> Result<()> {
        loop {
            let outcome = runtime.store.flush(entries, deleted, order)?;
            self.publish_version(runtime, &outcome.version);
            if outcome.progress == FlushProgress::Complete {
                return Ok(());
            }
        }
    }

    /// Has what the keyspace does not keep any more go when it is compacted next. Where there is no
    /// room to say so, that is what it did not keep before: compacting makes room.
    pub(in crate::db) fn let_old_go(&self, keyspace: &Runtime) -> Result<()> {
        match self.note_old(keyspace) {
            Err(Error::DiskFull { .. }) => Ok(()),
            outcome => outcome.inspect_err(|error| self.note_work_failure(error)),
        }
    }

    fn note_old(&self, keyspace: &Runtime) -> Result<()> {
        let Some(archive) = &keyspace.archive else { return Ok(()) };
        let _turn = lock(&keyspace.flushing);
        self.check_writable()?; // Under the turn, which closing waits for.
        if keyspace.dropped.load(Ordering::Acquire) {
            return Ok(());
        }
        self.note_kept(keyspace, TellKept::Always)?;
        let _archive_turn = lock(&archive.flushing);
        let store = &archive.store;
        let kept_from = store.kept_from();
        let deleted = stamps_to_delete(archive, kept_from)?;
        if deleted.is_empty() {
            return Ok(());
        }
        let order = FlushOrder {
            memtable_bytes: 0,
            value_bytes: 0,
            log_end: store.log_end(),
            last_seqno: store.last_seqno(),
            now: 0,
            slice_bytes: u64::MAX,
        };
        let mut nothing = MergeCursor::<BlockCursor>::new(Vec::new());
        self.in_work("a flush", || self.bring_to(archive, &mut nothing, &deleted, order))?;
        archive.stamps_gone_to.store(kept_from.as_u64(), Ordering::Relaxed);
        Ok(())
    }
}

/// Entries by stamp in front of that one, to be deleted with the range, if an archive has any.
pub(in crate::db) fn stamps_to_delete(archive: &Runtime, stamp: SeqNo) -> Result<RangeTombstones> {
    let mut deleted = RangeTombstones::default();
    if stamp.as_u64() <= archive.stamps_gone_to.load(Ordering::Relaxed) {
        return Ok(deleted);
    }
    let (mut start, mut end) = (Vec::new(), Vec::new());
    put_by_stamp(&mut start, SeqNo::ZERO, &[]);
    put_by_stamp(&mut end, stamp, &[]);
    let bounds = (Bound::Included(start.clone()), Bound::Excluded(end.clone()));
    let range = KeyRange { start: bounds.0, end: bounds.1 };
    let mut found = archive.store.version().cursor(&range);
    found.seek(&start)?;
    if found.entry().is_some_and(|entry| *entry.key < *end) {
        deleted.append(&start, Some(&end), stamp);
    }
    Ok(deleted)
}

impl KeyspaceState {
    /// Whether versions of its keys are kept.
    pub(in crate::db) fn keeps_history(&self) -> bool {
        self.runtime.archive.is_some()
    }

    /// The keyspace as it was, out of its memtables and what there was behind these.
    pub(in crate::db) fn as_past(&self, version: Arc<dyn Version>) -> Self {
        KeyspaceState { version, is_past: true, ..self.clone() }
    }
}
