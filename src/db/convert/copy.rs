//! Copying: what the old store has of a range of keys, entry by entry as it is.

use std::ops::Bound;
use std::sync::Arc;

use super::ConversionReport;
use super::job::{ConversionJob, Part, PartKind};
use crate::base::version_key::{VersionKind, behind_keys, put_head, put_tail};
use crate::base::{
    EntryKind, EntryRef, KeyRange, RangeTombstones, Result, SeqNo, Slice, ValuePointer, pointer_in,
};
use crate::block::{BlockBuilder, BlockCursor, RestartPolicy};
use crate::db::batch::check_archived_len;
use crate::db::core::{Core, lock};
use crate::db::state::KeyspaceState;
use crate::merge::MergeCursor;
use crate::structure::{FlushOrder, Store, Version};

/// Bytes of entries that are copied at once: so much memory it takes, and so long a flush that
/// becomes due may have to wait. Tables of half of that are large enough to stay as they are.
const SLICE_BYTES: u64 = 16 << 20;

/// Entries that were read to be copied.
struct Gathered {
    entries: MergeCursor<BlockCursor>,
    /// What an archive has of them.
    archived: Option<MergeCursor<BlockCursor>>,
    /// The first key behind them that is to be copied; `None` when there is none.
    next: Option<Slice>,
    count: u64,
    bytes: u64,
    value_bytes: u64,
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
        let mut gathered = self.gather(&keyspace.version, part, job.archive.is_some())?;
        let end = gathered.next.as_ref().or(part.end.as_ref());
        let order = order_of(store, self.time.now_if_used(), &gathered);
        if let (Some(archive), Some(archived)) = (&job.archive, &mut gathered.archived) {
            let mut deleted = RangeTombstones::default();
            if part.kind == PartKind::Stale {
                let (mut start, mut behind) = (Vec::new(), behind_keys());
                put_head(&mut start, &part.start);
                if let Some(end) = end {
                    put_head(&mut behind, end);
                }
                deleted.add(&start, Some(&behind), SeqNo::ZERO);
            }
            let _turn = lock(&archive.flushing);
            self.bring_to(archive, archived, &deleted, order)?;
        }
        let mut deleted = RangeTombstones::default();
        if part.kind == PartKind::Stale {
            // Of no stamp that is above those of the entries that come in its place.
            deleted.add(&part.start, end.map(|end| &**end), SeqNo::ZERO);
        }
        self.bring_to(&job.store, &mut gathered.entries, &deleted, order)?;
        report.entries += gathered.count;
        report.bytes += gathered.bytes;
        let of_part = gathered.next.as_ref().filter(|_| part.kind == PartKind::Fresh);
        report.entries_left = of_part.map_or(0, |next| {
            let version = &keyspace.version;
            version.entries_at_most().saturating_sub(version.entries_in_front(next))
        });
        job.note_copied(part, gathered.next);
        Ok(())
    }

    /// Reads entries of a part, from its first key on, until they are a slice.
    fn gather(
        &self,
        version: &Arc<dyn Version>,
        part: &Part,
        is_archived: bool,
    ) -> Result<Gathered> {
        let slice_bytes = self.flush_slice_size.unwrap_or(SLICE_BYTES) as usize;
        let bound = part.end.as_ref().map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
        let range = KeyRange { start: Bound::Included(part.start.to_vec()), end: bound };
        let mut cursor = version.cursor(&range);
        let mut builder = BlockBuilder::new(RestartPolicy::Whole);
        let mut archived = is_archived.then(|| BlockBuilder::new(RestartPolicy::Whole));
        let (mut next, mut key) = (None, Vec::new());
        let (mut count, mut bytes, mut value_bytes) = (0, 0, 0);
        cursor.seek(&part.start)?;
        while let Some(entry) = cursor.entry() {
            if part.end.as_deref().is_some_and(|end| entry.key >= end) {
                break;
            }
            if builder.estimated_size() >= slice_bytes && !builder.is_empty() {
                next = Some(Slice::from(entry.key));
                break;
            }
            if entry.kind != EntryKind::Tombstone {
                builder.add(entry)?;
                if let Some(archived) = &mut archived {
                    check_archived_len(entry.key)?;
                    put_head(&mut key, entry.key);
                    put_tail(&mut key, entry.seqno, VersionKind::Put);
                    archived.add(EntryRef { key: &key, ..entry })?;
                }
                count += 1;
                bytes += (entry.key.len() + entry.value.len()) as u64;
                let pointer = pointer_in(entry.kind, entry.value).and_then(ValuePointer::decode);
                value_bytes += pointer.map_or(0, |pointer| u64::from(pointer.len));
            }
            cursor.next()?;
        }
        let heap = self.budget.heap();
        let cursor_of = |mut builder: BlockBuilder| {
            let block = (!builder.is_empty()).then(|| Arc::new(builder.finish_block(heap)));
            MergeCursor::new(block.map(BlockCursor::new).into_iter().collect())
        };
        Ok(Gathered {
            entries: cursor_of(builder),
            archived: archived.map(cursor_of),
            next,
            count,
            bytes,
            value_bytes,
        })
    }
}

/// O1: what is copied stands for the same part of the log as what it is copied from.
fn order_of(old: &dyn Store, now: u64, gathered: &Gathered) -> FlushOrder {
    FlushOrder {
        memtable_bytes: gathered.bytes,
        value_bytes: gathered.value_bytes,
        log_end: old.log_end(),
        last_seqno: old.last_seqno(),
        now,
        slice_bytes: u64::MAX,
    }
}
