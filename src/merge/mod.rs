//! Merge: several sorted sources seen as one, the newest entry of each key winning.
//!
//! Sources are cursors with at most one entry a key, given newest first. Knows nothing of what
//! the sources are.
//!
//! Invariants
//! - M1  The entry shown is the one of the first (newest) source that has its key; the other
//!   sources' entries of that key are never shown.
//! - M2  While moving forward, every source but the current one stands at its first entry whose
//!   key is not below the current key; while moving backward, at its last one not above.
//! - M3  After an error nothing is skipped: the cursor has to be sought again.

#[cfg(test)]
mod tests;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Cursor, EntryRef, Result, lost_its_place};

/// Which way a [`MergeCursor`] moved last; what M2 holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
    /// A source failed: M2 holds for neither way.
    Lost,
}

/// Walks several sources as one. Tombstones are shown as entries.
///
/// A step costs a comparison for each source but the current one; with one source it costs
/// nothing extra. Sources are few (memtables and one structure, or the runs of one interval), so
/// a linear search for the smallest key beats a heap or a loser tree here.
#[derive(Debug)]
pub struct MergeCursor<C> {
    /// Newest first.
    sources: Vec<C>,
    /// The source whose entry is shown; `None` off either end.
    current: Option<usize>,
    direction: Direction,
}

impl<C: Cursor> MergeCursor<C> {
    /// Merges `sources`, the newest first, wherever they stand. The cursor is before the first
    /// entry.
    pub fn new(sources: Vec<C>) -> MergeCursor<C> {
        MergeCursor { sources, current: None, direction: Direction::Backward }
    }

    /// Picks the source with the smallest key; the newest of those that share it.
    fn pick_smallest(&mut self) {
        self.direction = Direction::Forward;
        self.current = self.pick(|candidate, best| candidate < best);
    }

    /// Picks the source with the largest key; the newest of those that share it.
    fn pick_largest(&mut self) {
        self.direction = Direction::Backward;
        self.current = self.pick(|candidate, best| candidate > best);
    }

    #[inline]
    fn pick(&self, beats: impl Fn(&[u8], &[u8]) -> bool) -> Option<usize> {
        let mut best: Option<(usize, &[u8])> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            // A tie keeps the earlier source, which is the newer one (M1).
            let wins =
                |best: &[u8]| beats(key, best) || (key == best && is_seeded(Bug::OlderSourceWins));
            if best.is_none_or(|(_, best)| wins(best)) {
                best = Some((index, key));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Moves every other source that shows the current key past it, in the present direction.
    fn step_over_shadowed(&mut self, current: usize) -> Result<()> {
        let (before, rest) = self.sources.split_at_mut(current);
        let (winner, behind) = rest.split_first_mut().expect("the current source exists");
        let Some(shown) = winner.key() else { return Ok(()) };
        // Sources in front of the winner do not have its key, or they would have won (M1).
        debug_assert!(before.iter().all(|source| source.key() != Some(shown)));
        for source in behind {
            if source.key() == Some(shown) {
                match self.direction {
                    Direction::Backward => source.prev()?,
                    Direction::Forward | Direction::Lost => source.next()?,
                }
            }
        }
        Ok(())
    }

    /// Establishes M2 for moving forward from the current key.
    fn turn_forward(&mut self, current: usize) -> Result<()> {
        let Some(shown) = self.sources[current].entry() else { return Ok(()) };
        let key = shown.key.to_vec();
        for (index, source) in self.sources.iter_mut().enumerate() {
            if index != current {
                source.seek(&key)?;
            }
        }
        self.direction = Direction::Forward;
        Ok(())
    }

    /// Establishes M2 for moving backward from the current key.
    fn turn_backward(&mut self, current: usize) -> Result<()> {
        let Some(shown) = self.sources[current].entry() else { return Ok(()) };
        let key = shown.key.to_vec();
        for (index, source) in self.sources.iter_mut().enumerate() {
            if index != current {
                source.seek_for_prev(&key)?;
            }
        }
        self.direction = Direction::Backward;
        Ok(())
    }

    /// What the sources behind the one whose entry is shown have of its key, the newest first.
    pub fn shadowed(&self) -> impl Iterator<Item = EntryRef<'_>> {
        let key = self.key();
        let behind = self.current.map_or(self.sources.len(), |current| current + 1);
        // M2: those that have the key stand at it.
        let of_key = move |source: &&C| source.is_valid() && source.key() == key;
        self.sources[behind..].iter().filter(of_key).filter_map(Cursor::entry)
    }

    fn lose_place(&mut self) {
        self.current = None;
        self.direction = Direction::Lost;
    }

    /// Runs a move; when it fails, shows nothing until the next seek (M3).
    fn guarded(&mut self, moved: Result<()>) -> Result<()> {
        if moved.is_err() {
            self.lose_place();
        }
        moved
    }

    fn advance(&mut self, current: usize) -> Result<()> {
        if self.direction == Direction::Backward {
            self.turn_forward(current)?;
        }
        self.step_over_shadowed(current)?;
        self.sources[current].next()
    }

    fn retreat(&mut self, current: usize) -> Result<()> {
        if self.direction == Direction::Forward {
            self.turn_backward(current)?;
        }
        self.step_over_shadowed(current)?;
        self.sources[current].prev()
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    fn seek_first(&mut self) -> Result<()> {
        self.lose_place();
        self.sources.iter_mut().try_for_each(Cursor::seek_first)?;
        self.pick_smallest();
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.lose_place();
        self.sources.iter_mut().try_for_each(Cursor::seek_last)?;
        self.pick_largest();
        Ok(())
    }

    #[inline]
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.lose_place();
        self.sources.iter_mut().try_for_each(|source| source.seek(key))?;
        self.pick_smallest();
        Ok(())
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.lose_place();
        self.sources.iter_mut().try_for_each(|source| source.seek_for_prev(key))?;
        self.pick_largest();
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(current) = self.current else {
            // Off the end it stays there; off the start it goes to the first entry.
            return match self.direction {
                Direction::Forward => Ok(()),
                Direction::Backward => self.seek_first(),
                Direction::Lost => Err(lost_its_place()),
            };
        };
        if let [only] = self.sources.as_mut_slice() {
            let moved = only.next();
            self.current = only.is_valid().then_some(0);
            self.direction = Direction::Forward;
            return self.guarded(moved);
        }
        let moved = self.advance(current);
        self.guarded(moved)?;
        self.pick_smallest();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current else {
            return match self.direction {
                Direction::Forward => self.seek_last(),
                Direction::Backward => Ok(()),
                Direction::Lost => Err(lost_its_place()),
            };
        };
        if let [only] = self.sources.as_mut_slice() {
            let moved = only.prev();
            self.current = only.is_valid().then_some(0);
            self.direction = Direction::Backward;
            return self.guarded(moved);
        }
        let moved = self.retreat(current);
        self.guarded(moved)?;
        self.pick_largest();
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.sources[self.current?].entry()
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.sources[self.current?].key()
    }

    #[inline]
    fn value(&self) -> Option<&[u8]> {
        self.sources[self.current?].value()
    }

    #[inline]
    fn is_tombstone(&self) -> bool {
        self.current.is_some_and(|current| self.sources[current].is_tombstone())
    }
}
