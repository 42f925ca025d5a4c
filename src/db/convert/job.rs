//! A conversion under way: how far it is, and what flushes bring to the store that is being made.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::pace::{AtWork, Counts, Debts, ROUNDS_BESIDE_INGESTS};
use crate::base::sync::{Arc, Mutex, Weak};
use crate::base::{Cursor, EntryRef, Error, Result, SeqNo, Slice, lost_its_place};
use crate::db::core::{Core, lock};
use crate::db::ingest::IngestRange;
use crate::db::state::{KeyspaceState, Runtime, Table};
use crate::memtable::{MemtableCursor, StackedCursor};
use crate::structure::FlushOrder;

/// A store that is being made for a keyspace.
#[derive(Debug)]
pub(in crate::db) struct ConversionJob {
    /// The store, as a keyspace that nobody is to see and that is in no catalogue.
    pub store: Arc<Runtime>,
    /// The archive that is made with it, if the keyspace comes to keep its versions.
    pub archive: Option<Arc<Runtime>>,
    pub(super) at_work: AtWork,
    progress: Mutex<Progress>,
}

/// Changed under the keyspace's turn to flush.
#[derive(Debug)]
struct Progress {
    copied: Copied,
    /// Ranges of what is copied in which the old store has changed since, other than by a flush:
    /// what the next round goes through. None touches another.
    stale: Vec<IngestRange>,
    /// What is left of those that this round goes through, the next one last.
    in_round: Vec<IngestRange>,
    /// Which round it is, counted from 1.
    round: u32,
    debts: Debts,
    ingested: Ingested,
    /// The last memtable that was brought to the new store: a flush that is tried again does not
    /// bring it twice (O2).
    brought: Weak<Table>,
    /// What bringing a memtable failed with: no reason for its flush to fail.
    failure: Option<Error>,
    has_failed: bool,
}

/// The stamp of the newest ingest over each key since the conversion began. An ingest finds nothing
/// of its range in memtables (J1), so what comes to an archive of these keys later is newer.
#[derive(Debug, Default)]
struct Ingested {
    /// Of keys from each of these on, in front of the next.
    from: BTreeMap<Vec<u8>, Option<SeqNo>>,
}

impl Ingested {
    fn add(&mut self, (start, end): &IngestRange, seqno: SeqNo) {
        let behind = end.as_ref().map(|end| (end.to_vec(), self.over(end)));
        let end = end.as_deref();
        let is_replaced =
            |from: &Vec<u8>| from[..] >= **start && end.is_none_or(|end| **from < *end);
        self.from.retain(|from, _| !is_replaced(from));
        self.from.insert(start.to_vec(), Some(seqno));
        self.from.extend(behind);
    }

    fn over(&self, key: &[u8]) -> Option<SeqNo> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        self.from.range::<[u8], _>(up_to).next_back().and_then(|(_, seqno)| *seqno)
    }
}

/// Up to where the keys of the old store are in the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Copied {
    Nothing,
    /// Those in front of this one.
    To(Slice),
    Everything,
}

/// The keys that a new store has as the old one has them.
#[derive(Debug)]
pub(in crate::db) struct CopiedKeys {
    copied: Copied,
    /// But for those in one of these.
    stale: Vec<IngestRange>,
}

impl CopiedKeys {
    /// Whether it is one of these.
    pub(in crate::db) fn has(&self, key: &[u8]) -> bool {
        let is_copied = match &self.copied {
            Copied::Nothing => false,
            Copied::To(to) => key < &**to,
            Copied::Everything => true,
        };
        let is_in = |(start, end): &IngestRange| {
            **start <= *key && end.as_ref().is_none_or(|end| key < &**end)
        };
        is_copied && !self.stale.iter().any(is_in)
    }
}

/// Keys that are to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub start: Slice,
    pub end: Option<Slice>,
    pub kind: PartKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// The new store has nothing of them.
    Fresh,
    /// What the new store has of them is not what the old one has by now.
    Stale,
}

impl ConversionJob {
    pub(super) fn new(store: Arc<Runtime>, archive: Option<Arc<Runtime>>) -> ConversionJob {
        let progress = Progress {
            copied: Copied::Nothing,
            stale: Vec::new(),
            in_round: Vec::new(),
            round: 1,
            debts: Debts::default(),
            ingested: Ingested::default(),
            brought: Weak::new(),
            failure: None,
            has_failed: false,
        };
        ConversionJob { store, archive, at_work: AtWork::default(), progress: Mutex::new(progress) }
    }

    /// The next keys to copy; `None` when the new store has everything.
    pub(super) fn next_part(&self) -> Option<Part> {
        let mut progress = lock(&self.progress);
        let start = match &progress.copied {
            Copied::Nothing => Slice::default(),
            Copied::To(to) => to.clone(),
            Copied::Everything => return progress.next_stale(),
        };
        Some(Part { start, end: None, kind: PartKind::Fresh })
    }

    /// Says that a part was copied, up to in front of `next`, or whole.
    pub(super) fn note_copied(&self, part: &Part, next: Option<Slice>, counts: Counts) {
        let mut progress = lock(&self.progress);
        progress.debts.pay(counts);
        match (part.kind, next) {
            (PartKind::Fresh, Some(next)) => progress.copied = Copied::To(next),
            (PartKind::Fresh, None) => progress.copied = Copied::Everything,
            (PartKind::Stale, next) => {
                progress.in_round.pop();
                progress.in_round.extend(next.map(|next| (next, part.end.clone())));
            }
        }
    }

    /// Says that a memtable of so many bytes was flushed, by whomever.
    pub(in crate::db) fn note_flushed(&self, bytes: u64) {
        lock(&self.progress).debts.add_flushed(bytes);
    }

    /// Forgets what was flushed before the first slice: all of that is what there was.
    pub(super) fn forget_debts(&self) {
        lock(&self.progress).debts = Debts::default();
    }

    /// Whether a memtable may be flushed that is not in the way of copying.
    pub(super) fn allows_flush(&self) -> bool {
        lock(&self.progress).debts.allow_flush()
    }

    /// Whether an ingest may come now.
    pub(super) fn allows_ingest(&self) -> bool {
        let progress = lock(&self.progress);
        progress.round <= ROUNDS_BESIDE_INGESTS && progress.debts.allow_ingest()
    }

    /// Says that the old store has other entries in a range, which came past the memtables.
    pub(in crate::db) fn note_ingest(&self, range: &IngestRange, seqno: SeqNo, data_bytes: u64) {
        let mut progress = lock(&self.progress);
        progress.debts.add_ingested(data_bytes);
        progress.ingested.add(range, seqno);
        let (start, end) = range;
        let end = match &progress.copied {
            Copied::Nothing => return,
            Copied::To(to) if start >= to => return,
            Copied::To(to) => match end {
                Some(end) if end < to => Some(end.clone()),
                _ => Some(to.clone()),
            },
            Copied::Everything => end.clone(),
        };
        add_stale(&mut progress.stale, (start.clone(), end));
    }

    /// The stamp of the newest ingest over this key since the conversion began.
    pub(super) fn ingested_over(&self, key: &[u8]) -> Option<SeqNo> {
        lock(&self.progress).ingested.over(key)
    }

    /// Where what is copied ends, if this memtable has to be brought there. Nothing is to be done
    /// where nothing is copied: it comes with the copy.
    fn extent_for(&self, table: &Arc<Table>) -> Option<Copied> {
        let progress = lock(&self.progress);
        let is_due = progress.copied != Copied::Nothing
            && !progress.has_failed
            && !std::ptr::eq(progress.brought.as_ptr(), Arc::as_ptr(table));
        is_due.then(|| progress.copied.clone())
    }

    /// The keys that the new store has as the old one has them.
    fn copied_keys(&self) -> CopiedKeys {
        let progress = lock(&self.progress);
        let stale = progress.stale.iter().chain(&progress.in_round).cloned().collect();
        CopiedKeys { copied: progress.copied.clone(), stale }
    }

    /// Whether this memtable was brought, so that the new store may be ahead of the old one.
    pub(super) fn has(&self, table: &Arc<Table>) -> bool {
        std::ptr::eq(lock(&self.progress).brought.as_ptr(), Arc::as_ptr(table))
    }

    fn note_brought(&self, table: &Arc<Table>) {
        lock(&self.progress).brought = Arc::downgrade(table);
    }

    fn note_failure(&self, error: Error) {
        let mut progress = lock(&self.progress);
        progress.has_failed = true;
        progress.failure = Some(error);
    }

    /// Fails with what bringing a memtable has failed with.
    pub(super) fn check(&self) -> Result<()> {
        lock(&self.progress).failure.take().map_or(Ok(()), Err)
    }
}

impl Progress {
    /// The next stale keys, of this round or else of the next.
    fn next_stale(&mut self) -> Option<Part> {
        if self.in_round.is_empty() && !self.stale.is_empty() {
            self.in_round = std::mem::take(&mut self.stale);
            self.round += 1;
        }
        let (start, end) = self.in_round.last().cloned()?;
        Some(Part { start, end, kind: PartKind::Stale })
    }
}

/// Adds a range to some that do not touch one another, as one with those that it touches.
fn add_stale(stale: &mut Vec<IngestRange>, (mut start, mut end): IngestRange) {
    let reaches =
        |end: &Option<Slice>, start: &Slice| end.as_ref().is_none_or(|end| **end >= **start);
    stale.retain(|(its_start, its_end)| {
        let is_apart = !reaches(&end, its_start) || !reaches(its_end, &start);
        if !is_apart {
            if **its_start < *start {
                start = its_start.clone();
            }
            end = end.take().zip(its_end.clone()).map(|(end, its_end)| match *end < *its_end {
                true => its_end,
                false => end,
            });
        }
        is_apart
    });
    stale.push((start, end));
}

impl KeyspaceState {
    /// Whether this is the store that is being made for it.
    pub(in crate::db) fn is_converted_to(&self, runtime: &Runtime) -> bool {
        let job = self.runtime.conversion();
        job.is_some_and(|job| job.store.store_id == runtime.store_id)
    }
}

impl Core {
    /// Brings what a sealed memtable has of the keys that are copied to the store that is being
    /// made for its keyspace, if there is one, before any of it is in the old store. The caller has
    /// the keyspace's turn to flush. What fails ends the conversion, and nothing else.
    pub(in crate::db) fn bring_to_conversion(
        &self,
        keyspace: &KeyspaceState,
        table: &Arc<Table>,
        order: FlushOrder,
    ) {
        let Some(job) = keyspace.runtime.conversion() else { return };
        let Some(copied) = job.extent_for(table) else { return };
        match self.bring_table(&job, (&keyspace.runtime, table), (&copied, order)) {
            Ok(()) => job.note_brought(table),
            Err(error) => job.note_failure(error),
        }
    }

    fn bring_table(
        &self,
        job: &ConversionJob,
        (runtime, table): (&Runtime, &Arc<Table>),
        (copied, order): (&Copied, FlushOrder),
    ) -> Result<()> {
        if let Some(archive) = &job.archive {
            // Whole: what it has of other keys is the same when that is copied (O4), and what it
            // has merged into these comes then.
            self.archive_to(archive, (runtime, table), Some(job.copied_keys()), order)?;
        }
        let end = match copied {
            Copied::To(end) => Some(end.clone()),
            Copied::Nothing | Copied::Everything => None,
        };
        let deleted = table.memtable.ranges().unwrap_or_default();
        let in_front = end.as_ref().map(|end| deleted.in_front_of(end));
        let cursor = MemtableCursor::new(Arc::clone(&table.memtable), SeqNo::MAX);
        let mut entries = EntriesInFront { cursor: StackedCursor::new(cursor), end };
        self.bring_to(&job.store, &mut entries, in_front.as_ref().unwrap_or(&deleted), order)
    }
}

/// The entries of a memtable in front of a key. Forward alone: a flush needs no more, and another
/// move is an error.
struct EntriesInFront {
    cursor: StackedCursor,
    end: Option<Slice>,
}

impl Cursor for EntriesInFront {
    fn seek_first(&mut self) -> Result<()> {
        self.cursor.seek_first()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek(key)
    }

    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        let entry = self.cursor.entry()?;
        self.end.as_deref().is_none_or(|end| entry.key < end).then_some(entry)
    }

    fn seek_last(&mut self) -> Result<()> {
        Err(lost_its_place())
    }

    fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
        Err(lost_its_place())
    }

    fn prev(&mut self) -> Result<()> {
        Err(lost_its_place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_ranges_that_touch_become_one() {
        let mut seed = 3u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let slice = |number: u64| Slice::from(&[number as u8][..]);
        for _ in 0..300 {
            let (mut stale, mut is_stale) = (Vec::new(), [false; 40]);
            for _ in 0..draw(8) {
                let (start, count) = (draw(40), 1 + draw(9));
                let end = (start + count < 40).then(|| slice(start + count));
                add_stale(&mut stale, (slice(start), end));
                is_stale[start as usize..(start + count).min(40) as usize].fill(true);
            }
            let keys = CopiedKeys { copied: Copied::Everything, stale: stale.clone() };
            let found: Vec<_> = (0..40).map(|key: u8| !keys.has(&[key])).collect();
            assert_eq!(found, is_stale);
            let begins = |key: usize| is_stale[key] && (key == 0 || !is_stale[key - 1]);
            assert_eq!(stale.len(), (0..40).filter(|key| begins(*key)).count());
        }
    }

    #[test]
    fn the_newest_ingest_over_each_key_is_known() {
        let mut seed = 7u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let slice = |number: u64| Slice::from(&[number as u8][..]);
        for _ in 0..200 {
            let mut ingested = Ingested::default();
            let mut over = [None; 40];
            for n in 1..12 {
                let (start, count) = (draw(40), 1 + draw(12));
                let end = (start + count < 40).then(|| slice(start + count));
                let seqno = SeqNo::from_parts(n, 0);
                ingested.add(&(slice(start), end), seqno);
                over[start as usize..(start + count).min(40) as usize].fill(Some(seqno));
            }
            let found: Vec<_> = (0..40).map(|key: u8| ingested.over(&[key])).collect();
            assert_eq!(found, over);
            assert!(ingested.from.len() <= 2 * 11);
        }
    }
}
