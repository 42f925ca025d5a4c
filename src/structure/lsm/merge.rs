//! Several runs seen as one, the newest entry of each key first.
//!
//! Deleted ranges of the runs are kept together, with the rank of their run in place of a stamp:
//! the newest of `n` runs has rank `n`, the oldest 1. So an entry is hidden if a range with its key
//! has a higher rank (L3).
//!
//! Invariant
//! - M1  While moving forward, every run stands at its first entry whose key is not below the one
//!   shown; while moving backward, at its last one not above. Turning round is a seek.

use std::sync::Arc;

use super::index::Run;
use super::table::{ReadMode, RunCursor, Table, TableCaches};
use crate::base::{Cursor, EntryRef, RangeTombstones, Result, SeqNo};
use crate::block::BlockCursor;
use crate::structure::fold::Folder;

/// The rank of the run at `position` of `count`.
#[inline]
pub(super) fn rank_of(position: usize, count: usize) -> SeqNo {
    SeqNo::from_u64((count - position) as u64)
}

/// What the runs delete, each range with the rank of its run; `None` if that is nothing.
///
/// # Errors
/// `Corruption`, `Io`.
pub(super) fn deletions_of(
    runs: &[Run],
    caches: &TableCaches,
) -> Result<Option<Arc<RangeTombstones>>> {
    let mut all = RangeTombstones::default();
    for (position, run) in runs.iter().enumerate() {
        let rank = rank_of(position, runs.len());
        for table in run.tables.iter().filter(|table| deletes_ranges(table)) {
            let Some(deleted) = table.deleted(caches)? else { continue };
            deleted.iter().for_each(|range| all.add(range.start, range.end, rank));
        }
    }
    Ok((!all.is_empty()).then(|| Arc::new(all)))
}

/// Whether a table deletes ranges.
pub(super) fn deletes_ranges(table: &Table) -> bool {
    table.record.deleted_ranges > 0
}

/// Walks runs as one. Shows entries that a newer run's deleted range hides, too.
#[derive(Debug)]
pub(super) struct Merged {
    /// The newest first.
    runs: Vec<RunCursor>,
    deleted: Option<Arc<RangeTombstones>>,
    /// The newest run that has the key shown.
    current: Option<usize>,
}

impl Merged {
    /// How many runs it looks into.
    pub(super) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Merges `runs`, the newest first, that delete these ranges. Shows nothing before a seek.
    pub(super) fn new(
        runs: &[Run],
        deleted: Option<Arc<RangeTombstones>>,
        caches: &Arc<TableCaches>,
        mode: ReadMode,
    ) -> Merged {
        let cursor_of =
            |run: &Run| RunCursor::new(Arc::clone(&run.tables), Arc::clone(caches), mode);
        Merged { runs: runs.iter().map(cursor_of).collect(), deleted, current: None }
    }

    pub(super) fn seek_first(&mut self) -> Result<()> {
        self.current = None;
        self.runs.iter_mut().try_for_each(Cursor::seek_first)?;
        self.pick_smallest();
        Ok(())
    }

    pub(super) fn seek_last(&mut self) -> Result<()> {
        self.current = None;
        self.runs.iter_mut().try_for_each(Cursor::seek_last)?;
        self.pick_largest();
        Ok(())
    }

    /// To the first entry whose key is at least `key`; for moving forward.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.current = None;
        self.runs.iter_mut().try_for_each(|run| run.seek(key))?;
        self.pick_smallest();
        Ok(())
    }

    /// To the last entry whose key is at most `key`; for moving backward.
    pub(super) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.current = None;
        self.runs.iter_mut().try_for_each(|run| run.seek_for_prev(key))?;
        self.pick_largest();
        Ok(())
    }

    /// To the first entry whose key is above `key`; for moving forward.
    pub(super) fn seek_behind(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key)?;
        if self.key() == Some(key) { self.next() } else { Ok(()) }
    }

    /// To the last entry whose key is below `key`; for moving backward.
    pub(super) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek_for_prev(key)?;
        if self.key() == Some(key) { self.prev() } else { Ok(()) }
    }

    /// One key on. M1: after a move forward.
    #[inline]
    pub(super) fn next(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let (front, behind) = self.runs.split_at_mut(current + 1);
        let shown = &mut front[current];
        for run in behind {
            if run.key().is_some() && run.key() == shown.key() {
                run.next()?;
            }
        }
        shown.next()?;
        self.pick_smallest();
        Ok(())
    }

    /// One key back. M1: after a move backward.
    pub(super) fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let (front, behind) = self.runs.split_at_mut(current + 1);
        let shown = &mut front[current];
        for run in behind {
            if run.key().is_some() && run.key() == shown.key() {
                run.prev()?;
            }
        }
        shown.prev()?;
        self.pick_largest();
        Ok(())
    }

    fn pick_smallest(&mut self) {
        self.current = self.pick(|candidate, best| candidate < best);
    }

    fn pick_largest(&mut self) {
        self.current = self.pick(|candidate, best| candidate > best);
    }

    #[inline]
    fn pick(&self, beats: impl Fn(&[u8], &[u8]) -> bool) -> Option<usize> {
        let mut best: Option<(usize, &[u8])> = None;
        for (position, run) in self.runs.iter().enumerate() {
            let Some(key) = run.key() else { continue };
            // A tie keeps the one in front, which is newer.
            if best.is_none_or(|(_, best)| beats(key, best)) {
                best = Some((position, key));
            }
        }
        best.map(|(position, _)| position)
    }

    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.runs[self.current?].key()
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<EntryRef<'_>> {
        self.runs[self.current?].entry()
    }

    /// Whether a newer run has deleted a range with the key shown (L3).
    #[inline]
    pub(super) fn is_hidden(&self) -> bool {
        self.deleted.is_some() && self.is_in_newer_range()
    }

    #[cold]
    fn is_in_newer_range(&self) -> bool {
        self.current.is_some_and(|current| self.deletion_of_shown() > self.rank(current))
    }

    fn rank(&self, position: usize) -> SeqNo {
        rank_of(position, self.runs.len())
    }

    /// The rank of the newest deleted range with the key shown.
    fn deletion_of_shown(&self) -> SeqNo {
        let deleted = self.deleted.as_ref().zip(self.key());
        let range = deleted.and_then(|(deleted, key)| deleted.covering(key, SeqNo::MAX));
        range.map_or(SeqNo::ZERO, |range| range.seqno)
    }

    /// The entry shown, of operands, on top of what older runs have of its key (L9).
    ///
    /// # Errors
    /// `Corruption` when it holds no operands.
    #[cold]
    pub(super) fn stacked(&self, folder: &Folder) -> Result<Vec<u8>> {
        let Some((current, entry)) = self.current.zip(self.entry()) else { return Ok(Vec::new()) };
        let deletion = self.deletion_of_shown();
        let older = self.runs.iter().enumerate().skip(current + 1);
        let older = older
            .take_while(|(position, _)| self.rank(*position) >= deletion)
            .filter(|(_, run)| run.key() == Some(entry.key))
            .filter_map(|(_, run)| run.entry());
        folder.stacked(entry, older)
    }

    /// Hands out the block that the shown entry is in, if no other run has a key within it: for
    /// moving forward. With it a key that is not below any of it, and below all behind it.
    pub(super) fn take_block_forward(&mut self) -> Option<(BlockCursor, Vec<u8>)> {
        let current = self.current.filter(|_| self.deleted.is_none())?;
        let (block, last) = self.runs[current].block().zip(self.runs[current].last_key_bound())?;
        let is_alone = self.runs.len() == 1
            || block.is_first() && self.other_keys(current).all(|key| key > last);
        if !is_alone {
            return None;
        }
        let last = last.to_vec();
        Some((self.runs[current].take_block()?, last))
    }

    /// The same for moving backward. With it a key that is not below any of it, and below all that
    /// was shown before.
    pub(super) fn take_block_backward(&mut self) -> Option<(BlockCursor, Vec<u8>)> {
        let current = self.current.filter(|_| self.deleted.is_none())?;
        let (block, last) = self.runs[current].block().zip(self.runs[current].last_key_bound())?;
        let is_last = block.is_last();
        let first = block.block().first_key()?;
        let is_alone =
            self.runs.len() == 1 || is_last && self.other_keys(current).all(|key| key < first);
        if !is_alone {
            return None;
        }
        let last = if is_last { block.key_here() } else { last }.to_vec();
        Some((self.runs[current].take_block()?, last))
    }

    fn other_keys(&self, current: usize) -> impl Iterator<Item = &[u8]> {
        let others = self.runs.iter().enumerate().filter(move |(position, _)| *position != current);
        others.filter_map(|(_, run)| run.key())
    }

    /// Moves on from the block that was taken of the run shown.
    pub(super) fn next_block(&mut self) -> Result<()> {
        if let Some(current) = self.current.take() {
            self.runs[current].next()?;
        }
        self.pick_smallest();
        Ok(())
    }

    /// Moves back from the block that was taken of the run shown.
    pub(super) fn prev_block(&mut self) -> Result<()> {
        if let Some(current) = self.current.take() {
            self.runs[current].prev()?;
        }
        self.pick_largest();
        Ok(())
    }
}
