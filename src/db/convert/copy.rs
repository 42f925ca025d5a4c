//! Copying: what the old store has of a range of keys, entry by entry as it is.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::ConversionReport;
use super::job::{ConversionJob, Part, PartKind};
use super::pace::Counts;
use crate::base::version_key::{VersionKind, put_head, put_tail};
use crate::base::{
    EntryKind, EntryRef, KeyRange, MergeBase, Operands, RangeTombstones, Result, SeqNo, Slice,
    ValuePointer, expiring_in, is_operands, pointer_in,
};
use crate::block::{BlockBuilder, BlockCursor, RestartPolicy};
use crate::cache::{Charge, Part as MemoryPart};
use crate::db::batch::check_archived_len;
use crate::db::core::{Core, lock};
use crate::db::state::KeyspaceState;
use crate::memory::Heap;
use crate::merge::MergeCursor;
use crate::structure::history::VersionAt;
use crate::structure::{FlushOrder, Store, StructureCursor, Version};

/// Bytes of entries that are copied at once: so much memory it takes, twice over while a block is
/// made of them, and so long a flush that becomes due may have to wait. Tables of half of that are
/// large enough to stay as they are.
const SLICE_BYTES: u64 = 16 << 20;
/// .. or this part of the memory budget, where that is less,
const BUDGET_FRACTION: u64 = 32;
/// .. but so many.
const SLICE_BYTES_MIN: u64 = 256 << 10;

/// Entries that were read to be copied.
struct Gathered {
    entries: MergeCursor<BlockCursor>,
    /// What an archive has of them.
    archived: Option<MergeCursor<BlockCursor>>,
    /// The first key behind them that is to be copied; `None` when there is none.
    next: Option<Slice>,
    counts: Counts,
    _memory: Charge,
}

/// Entries that are being read.
struct Gathering<'p> {
    end: Option<&'p [u8]>,
    slice_bytes: usize,
    entries: BlockBuilder,
    archive: Option<ForArchive<'p>>,
    counts: Counts,
}

impl Gathering<'_> {
    /// Takes entries from the cursor on; the first key that is to be copied behind them.
    fn fill(&mut self, cursor: &mut dyn StructureCursor) -> Result<Option<Slice>> {
        let end = self.end;
        loop {
            let entry = cursor.entry().filter(|entry| end.is_none_or(|end| entry.key < end));
            if entry.is_some_and(|entry| entry.kind == EntryKind::Tombstone) {
                cursor.next()?;
                continue;
            }
            let known = self.archive.as_ref().and_then(|archive| archive.known_key(end));
            let (order, key) = match (entry, known) {
                (None, None) => return Ok(None),
                (Some(entry), None) => (Ordering::Less, entry.key),
                (None, Some(known)) => (Ordering::Greater, known),
                (Some(entry), Some(known)) => (entry.key.cmp(known), entry.key.min(known)),
            };
            let taken = entry.filter(|_| order != Ordering::Greater);
            if self.is_full_for(taken.map_or(key.len(), len_of)) {
                return Ok(Some(Slice::from(key)));
            }
            match taken {
                Some(entry) => {
                    self.take(entry, order)?;
                    cursor.next()?;
                }
                None => self.archive.as_mut().map_or(Ok(()), ForArchive::add_known_as_gone)?,
            }
        }
    }

    /// Whether an entry of so many bytes does not belong to these any more. A large one comes
    /// alone: a block has no room for two that are near the limit.
    fn is_full_for(&self, len: usize) -> bool {
        let is_full = |builder: &BlockBuilder| {
            !builder.is_empty() && builder.estimated_size() + len > self.slice_bytes
        };
        is_full(&self.entries)
            || self.archive.as_ref().is_some_and(|archive| is_full(&archive.builder))
    }

    /// Takes an entry; `order` says whether the archive has a value of its key already.
    fn take(&mut self, entry: EntryRef<'_>, order: Ordering) -> Result<()> {
        let closed = closed_operands(entry);
        let entry = EntryRef { value: closed.as_deref().unwrap_or(entry.value), ..entry };
        self.entries.add(entry)?;
        if let Some(archive) = &mut self.archive {
            archive.add(entry)?;
            if order == Ordering::Equal {
                archive.known.next()?;
            }
        }
        self.counts.entries += 1;
        self.counts.bytes += len_of(entry) as u64;
        let pointer = pointer_in(entry.kind, entry.value).and_then(ValuePointer::decode);
        self.counts.value_bytes += pointer.map_or(0, |pointer| u64::from(pointer.len));
        Ok(())
    }
}

/// What comes to an archive of the entries that are copied.
struct ForArchive<'p> {
    builder: BlockBuilder,
    /// Keys that it has a value of already: memtables come to it whole, and what is copied again
    /// was copied before.
    known: Box<dyn StructureCursor>,
    /// Knows which ingest deleted a key.
    job: &'p ConversionJob,
    /// What has expired by then the old store may have left out.
    now: u64,
    // A buffer.
    key: Vec<u8>,
}

impl<'p> ForArchive<'p> {
    /// Of what `archive` is to have of `range`.
    fn new(
        archive: Arc<dyn Version>,
        (range, start): (&KeyRange, &[u8]),
        (job, now): (&'p ConversionJob, u64),
        heap: &Arc<Heap>,
    ) -> Result<ForArchive<'p>> {
        let mut known = VersionAt::new(archive, SeqNo::MAX, heap).cursor(range);
        known.seek(start)?;
        let builder = BlockBuilder::new(RestartPolicy::Whole);
        Ok(ForArchive { builder, known, job, now, key: Vec::new() })
    }

    /// The next key that it has a value of, in the range.
    fn known_key(&self, end: Option<&[u8]>) -> Option<&[u8]> {
        self.known.key().filter(|key| end.is_none_or(|end| *key < end))
    }

    /// Adds an entry as the version that it is.
    fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        check_archived_len(entry.key)?;
        put_head(&mut self.key, entry.key);
        put_tail(&mut self.key, entry.seqno, VersionKind::Put);
        self.builder.add(EntryRef { key: &self.key, ..entry })
    }

    /// Adds that the next known key is gone. That may not have come with a memtable: an ingest of
    /// tables deletes past these, and what is merged into keys that are not copied yet is left to
    /// the copy, with what comes behind it.
    ///
    /// It is gone as of that ingest, or behind the version that is known, and as of no later stamp:
    /// memtables may have a newer value.
    fn add_known_as_gone(&mut self) -> Result<()> {
        let Some(known) = self.known.entry() else { return Ok(()) };
        let behind = SeqNo::from_u64(known.seqno.as_u64() + 1);
        let by_ingest = self.job.ingested_over(known.key).filter(|seqno| *seqno >= behind);
        let has_expired =
            expiring_in(known.kind, known.value).is_some_and(|of| of.until <= self.now);
        // That it has expired is no version (H3).
        if by_ingest.is_some() || !has_expired {
            let seqno = by_ingest.unwrap_or(behind);
            put_head(&mut self.key, known.key);
            put_tail(&mut self.key, seqno, VersionKind::Deleted);
            let kind = EntryKind::Value;
            self.builder.add(EntryRef { key: &self.key, seqno, kind, value: &[] })?;
        }
        self.known.next()
    }
}

impl Core {
    /// Copies a slice of a part. The caller has the keyspace's turn to flush; no flush is between
    /// two slices, and no memtable is in the new store and not wholly in the old one (O3).
    pub(super) fn copy_part(
        &self,
        job: &ConversionJob,
        (keyspace, part): (&KeyspaceState, &Part),
        report: &mut ConversionReport,
    ) -> Result<()> {
        let store = &*keyspace.runtime.store;
        let mut gathered = self.gather(job, keyspace, part)?;
        let end = gathered.next.as_ref().or(part.end.as_ref());
        let order = order_of(store, self.time.now_if_used(), &gathered);
        if let (Some(archive), Some(archived)) = (&job.archive, &mut gathered.archived) {
            let _turn = lock(&archive.flushing);
            self.bring_to(archive, archived, &RangeTombstones::default(), order)?;
        }
        let mut deleted = RangeTombstones::default();
        if part.kind == PartKind::Stale {
            // Of no stamp that is above those of the entries that come in its place.
            deleted = RangeTombstones::of([(&*part.start, end.map(|end| &**end))], SeqNo::ZERO);
        }
        self.bring_to(&job.store, &mut gathered.entries, &deleted, order)?;
        report.entries += gathered.counts.entries;
        report.bytes += gathered.counts.bytes;
        let of_part = gathered.next.as_ref().filter(|_| part.kind == PartKind::Fresh);
        report.entries_left = of_part.map_or(0, |next| {
            let version = &keyspace.version;
            version.entries_at_most().saturating_sub(version.entries_in_front(next))
        });
        job.note_copied(part, gathered.next, gathered.counts);
        Ok(())
    }

    /// Reads entries of a part, from its first key on, until they are a slice.
    fn gather(
        &self,
        job: &ConversionJob,
        keyspace: &KeyspaceState,
        part: &Part,
    ) -> Result<Gathered> {
        let slice_bytes = self.copied_at_once();
        let builder_count = 1 + usize::from(job.archive.is_some());
        let memory = self.budget.charge(MemoryPart::Buffer, 2 * builder_count * slice_bytes);
        let (start, end) = (&*part.start, part.end.as_deref());
        let bound = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
        let range = KeyRange { start: Bound::Included(start.to_vec()), end: bound };
        let heap = self.budget.heap();
        let of_job = (job, self.time.now_if_used());
        let archive = job
            .archive
            .as_ref()
            .map(|archive| ForArchive::new(archive.store.version(), (&range, start), of_job, heap));
        let mut gathering = Gathering {
            end,
            slice_bytes,
            entries: BlockBuilder::new(RestartPolicy::Whole),
            archive: archive.transpose()?,
            counts: Counts::default(),
        };
        let mut cursor = keyspace.version.cursor(&range);
        cursor.seek(start)?;
        let next = gathering.fill(&mut *cursor)?;
        let Gathering { entries, archive, counts, .. } = gathering;
        Ok(Gathered {
            entries: walk_of(entries, heap),
            archived: archive.map(|archive| walk_of(archive.builder, heap)),
            next,
            counts,
            _memory: memory,
        })
    }

    /// Bytes of entries that are copied at once.
    fn copied_at_once(&self) -> usize {
        let of_budget = self.sizes.budget / BUDGET_FRACTION;
        let by_budget = of_budget.clamp(SLICE_BYTES_MIN, SLICE_BYTES);
        self.flush_slice_size.unwrap_or(by_budget) as usize
    }
}

fn len_of(entry: EntryRef<'_>) -> usize {
    entry.key.len() + entry.value.len()
}

/// A walk over what was added.
fn walk_of(mut builder: BlockBuilder, heap: &Arc<Heap>) -> MergeCursor<BlockCursor> {
    let block = (!builder.is_empty()).then(|| Arc::new(builder.finish_block(heap)));
    MergeCursor::new(block.map(BlockCursor::new).into_iter().collect())
}

/// Open operands, which nothing in the old store is below (X9, L9), as what they are: in the new
/// one there may be something, where it is copied again.
fn closed_operands(entry: EntryRef<'_>) -> Option<Vec<u8>> {
    if !is_operands(entry.kind, entry.value) {
        return None;
    }
    let operands = Operands::decode(entry.value)?;
    operands.is_open().then(|| operands.on(MergeBase::Nothing))
}

/// O1: what is copied stands for the same part of the log as what it is copied from.
fn order_of(old: &dyn Store, now: u64, gathered: &Gathered) -> FlushOrder {
    FlushOrder {
        memtable_bytes: gathered.counts.bytes,
        value_bytes: gathered.counts.value_bytes,
        log_end: old.log_end(),
        last_seqno: old.last_seqno(),
        now,
        slice_bytes: u64::MAX,
    }
}
