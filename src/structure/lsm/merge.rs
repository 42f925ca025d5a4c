//! Several runs seen as one, the newest entry of each key first.
//!
//! Deleted ranges of the runs are kept together, with the rank of their run in place of a stamp:
//! the newest of `n` runs has rank `n`, the oldest 1. So an entry is hidden if a range with its key
//! has a higher rank (L3).
//!
//! Invariant
//! - M1  While moving forward, every run stands at its first entry whose key is not below the one
//!   shown; while moving backward, at its last one not above. Turning round is a seek.
//! - M2  With several runs, the tournament has been played with the keys that they stand at.

use std::sync::Arc;

use super::index::Run;
use super::table::{ReadMode, RunCursor, Table, TableCaches};
use super::tournament::{Order, Tournament};
use crate::base::{Cursor, EntryRef, RangeTombstones, Result, SeqNo, Slice};
use crate::block::{BlockCursor, common_prefix_len};
use crate::structure::fold::Folder;

/// The rank of the run at `position` of `count`.
#[inline]
pub(super) fn rank_of(position: usize, count: usize) -> SeqNo {
    SeqNo::from_u64((count - position) as u64)
}

/// What the runs delete, each range with the rank of its run; `None` if that is nothing. Those of a
/// run ascend, as its tables do: each run is a set, and the sets are gone through once.
///
/// # Errors
/// `Corruption`, `Io`.
pub(super) fn deletions_of(
    runs: &[Run],
    caches: &TableCaches,
) -> Result<Option<Arc<RangeTombstones>>> {
    let mut sets = Vec::new();
    for (position, run) in runs.iter().enumerate() {
        let rank = rank_of(position, runs.len());
        let mut of_run = RangeTombstones::default();
        for table in run.tables.iter().filter(|table| deletes_ranges(table)) {
            let Some(deleted) = table.deleted(caches)? else { continue };
            // Of a damaged table they may lie anywhere.
            if deleted.first_from(&[]).is_some_and(|first| !of_run.ends_by(first.start)) {
                sets.push((Arc::new(std::mem::take(&mut of_run)), SeqNo::MAX));
            }
            deleted.iter().for_each(|range| of_run.append(range.start, range.end, rank));
        }
        if !of_run.is_empty() {
            sets.push((Arc::new(of_run), SeqNo::MAX));
        }
    }
    Ok(RangeTombstones::together(sets))
}

/// Whether a table deletes ranges.
pub(super) fn deletes_ranges(table: &Table) -> bool {
    table.record.deleted_ranges > 0
}

/// The run whose entry is shown.
#[inline]
fn shown_of(tournament: &Tournament, runs: &[RunCursor]) -> Option<usize> {
    tournament.first().filter(|run| runs[*run].key().is_some())
}

/// Walks runs as one. Shows entries that a newer run's deleted range hides, too.
#[derive(Debug)]
pub(super) struct Merged {
    /// The newest first.
    runs: Vec<RunCursor>,
    deleted: Option<Arc<RangeTombstones>>,
    tournament: Tournament,
    /// The newest run that has the key shown.
    current: Option<usize>,
    /// Room for the others that have it.
    tied: Vec<usize>,
}

/// How many bytes all keys of these runs share at their start, at least.
fn shared_prefix_len(runs: &[Run]) -> usize {
    let first = runs.iter().filter_map(|run| run.tables.first()).map(|table| &table.record.first);
    let last = runs.iter().filter_map(|run| run.tables.last()).map(|table| &table.record.end);
    // Those without an end are above all others.
    let last = last.max_by_key(|end| (end.is_none(), end.as_ref()));
    match (first.min(), last) {
        (Some(first), Some(Some(end))) => common_prefix_len(first, end),
        _ => 0,
    }
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
        Merged {
            tournament: Tournament::new(runs.len(), shared_prefix_len(runs)),
            runs: runs.iter().map(cursor_of).collect(),
            deleted,
            current: None,
            tied: Vec::new(),
        }
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

    /// As [`Merged::seek`], from where it stands; not back. M1: after a move forward.
    pub(super) fn leap(&mut self, key: &[u8], newest: SeqNo) -> Result<()> {
        while self.key().is_some_and(|shown| shown < key) {
            self.move_shown_alone(|run| run.leap(key, newest))?;
        }
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
        self.move_from_shown(Cursor::next)
    }

    /// One key back. M1: after a move backward.
    pub(super) fn prev(&mut self) -> Result<()> {
        self.move_from_shown(Cursor::prev)
    }

    /// Moves every run that stands at the key shown.
    #[inline]
    fn move_from_shown(&mut self, step: impl Fn(&mut RunCursor) -> Result<()>) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let Merged { runs, tournament, tied, .. } = self;
        if let [only] = runs.as_mut_slice() {
            step(only)?;
            self.current = only.key().is_some().then_some(0);
            return Ok(());
        }
        tied.clear();
        tournament.tied(current, |run| runs[run].key(), tied);
        for &run in tied.iter().chain([&current]) {
            step(&mut runs[run])?;
        }
        for &run in tied.iter().chain([&current]) {
            tournament.replay(run, |run| runs[run].key());
        }
        self.current = shown_of(tournament, runs);
        Ok(())
    }

    fn pick_smallest(&mut self) {
        self.play(Order::Ascending);
    }

    fn pick_largest(&mut self) {
        self.play(Order::Descending);
    }

    fn play(&mut self, order: Order) {
        let runs = &self.runs;
        self.tournament.play(order, |run| runs[run].key());
        self.current = shown_of(&self.tournament, runs);
    }

    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.runs[self.current?].key()
    }

    #[inline]
    pub(super) fn entry(&self) -> Option<EntryRef<'_>> {
        self.runs[self.current?].entry()
    }

    /// Whether what is shown is a tombstone; `None` if nothing is.
    #[inline]
    pub(super) fn shows_tombstone(&self) -> Option<bool> {
        self.current.map(|current| self.runs[current].is_tombstone())
    }

    /// Bytes of the entry shown, shared with its block.
    pub(super) fn share(&self, bytes: &[u8]) -> Slice {
        let block = self.current.and_then(|current| self.runs[current].block());
        block.map_or_else(|| Slice::from(bytes), |block| block.block().share(bytes))
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
        self.move_shown_alone(Cursor::next)
    }

    /// Moves back from the block that was taken of the run shown.
    pub(super) fn prev_block(&mut self) -> Result<()> {
        self.move_shown_alone(Cursor::prev)
    }

    fn move_shown_alone(&mut self, step: impl Fn(&mut RunCursor) -> Result<()>) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        step(&mut self.runs[current])?;
        if let [only] = self.runs.as_slice() {
            self.current = only.key().is_some().then_some(0);
            return Ok(());
        }
        let runs = &self.runs;
        self.tournament.replay(current, |run| runs[run].key());
        self.current = shown_of(&self.tournament, runs);
        Ok(())
    }
}
