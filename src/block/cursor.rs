//! Walks the entries of one block.
//!
//! In the whole form every move reads two table items and one length, and the entry borrows from
//! the block. In the shared form a key is put together in the cursor's own buffer; moving back
//! puts all keys of the group together once and then takes them from there.
//!
//! Walks that merge blocks with something else, or end within a block, need not compare the key of
//! every entry: [`BlockCursor::slide_on`] moves and compares one number with a [`Reach`].
//!
//! Invariant
//! - C1  When `index` is that of an entry, `key_start`, `value_start`, `value_end` and `kind` are
//!   where and what it is and, in the shared form, `key` is its key.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::base::Cursor;
use crate::base::EntryKind;
use crate::base::EntryRef;
use crate::base::Expiring;
use crate::base::Result;
use crate::base::SeqNo;
use crate::base::expiring_in;
use crate::base::prefetch;
use crate::block::common_prefix_len;
use crate::block::layout;
use crate::block::layout::EntrySpan;
use crate::block::resident::Block;
use crate::block::search::Bound;
use crate::block::search::KeyMatch;
use crate::block::search::Reach;

/// Walks bring in what lies so many bytes further on: entries are taken faster than memory answers,
/// and the processor's own guess ends with each page.
const PREFETCH_DISTANCE: usize = 1 << 10;
/// The index of a cursor that is before the first entry; one more is 0.
const BEFORE_FIRST: usize = usize::MAX;

/// Walks a block. Never fails: the block was checked when it was made.
#[derive(Debug)]
pub struct BlockCursor {
    block: Arc<Block>,
    /// Index of the entry, [`BEFORE_FIRST`], or the number of entries when behind the last.
    index: usize,
    // Where the entry lies.
    key_start: usize,
    value_start: usize,
    value_end: usize,
    kind: EntryKind,
    /// The key at the position; used in the shared form only.
    key: Vec<u8>,
    /// The group that was last walked backwards.
    unrolled: UnrolledGroup,
}

/// The entries of one group of a block in the shared form, with their keys put together.
#[derive(Debug, Default)]
struct UnrolledGroup {
    /// The group; meaningless without entries.
    group: usize,
    /// Each entry, and where its key ends in `keys`.
    entries: Vec<(EntrySpan, usize)>,
    keys: Vec<u8>,
}

impl BlockCursor {
    /// A cursor before the first entry.
    #[must_use]
    pub fn new(block: Arc<Block>) -> BlockCursor {
        BlockCursor {
            block,
            index: BEFORE_FIRST,
            key_start: 0,
            value_start: 0,
            value_end: 0,
            kind: EntryKind::Value,
            key: Vec::new(),
            unrolled: UnrolledGroup::default(),
        }
    }

    /// Another cursor over the same block, before the first entry.
    #[must_use]
    pub fn afresh(&self) -> BlockCursor {
        BlockCursor::new(Arc::clone(&self.block))
    }

    /// The block that is walked.
    #[inline]
    #[must_use]
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Whether it is on the first entry.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.index == 0 && self.is_on_entry()
    }

    /// Whether it is on the last entry.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.index.wrapping_add(1) == self.block.entry_count() && self.is_on_entry()
    }

    #[inline]
    fn is_on_entry(&self) -> bool {
        self.index < self.block.entry_count() // BEFORE_FIRST is above any count
    }

    /// C1, but for `key`.
    #[inline]
    fn settle(&mut self, entry: &EntrySpan) {
        self.key_start = entry.key_start;
        self.value_start = entry.value_start;
        self.value_end = entry.value_end;
        self.kind = entry.kind;
    }

    /// Moves to entry `index` of a block in the whole form, or off either end.
    #[inline]
    fn go_to_whole(&mut self, index: usize) {
        self.index = index;
        if self.is_on_entry() {
            let entry = self.block.layout().whole(self.block.data(), index);
            self.settle(&entry);
        }
    }

    /// Moves to entry `index` of a block in the shared form, or off either end.
    fn go_to_shared(&mut self, index: usize) {
        self.index = index;
        if !self.is_on_entry() {
            return;
        }
        let group = index / self.block.layout().restart_interval;
        let first = group * self.block.layout().restart_interval;
        if index == first {
            self.start_group(group);
            return;
        }
        if self.unrolled.group != group || self.unrolled.entries.is_empty() {
            self.unrolled.unroll(&self.block, group);
        }
        let (entry, key) = self.unrolled.entry(index - first);
        self.key.clear();
        self.key.extend_from_slice(key);
        self.settle(&entry);
    }

    /// Moves to restart `group` of a block in the shared form.
    fn start_group(&mut self, group: usize) {
        let layout = self.block.layout();
        self.index = group * layout.restart_interval;
        let entry = layout.shared(self.block.data(), layout.restart(self.block.data(), group));
        self.block.extend_key(&mut self.key, &entry);
        self.settle(&entry);
    }

    /// Moves one entry on in a block in the shared form, unless behind the last. Not inline, so
    /// that `next` is small enough to be so.
    #[inline(never)]
    fn step_shared(&mut self) {
        if self.index == BEFORE_FIRST {
            self.go_to_shared(0);
            return;
        }
        self.index += 1;
        if self.is_on_entry() {
            let entry = self.block.layout().shared(self.block.data(), self.value_end);
            self.block.extend_key(&mut self.key, &entry);
            self.settle(&entry);
        }
    }

    #[inline]
    fn go_to(&mut self, index: usize) {
        if self.block.layout().is_whole() {
            self.go_to_whole(index);
        } else {
            self.go_to_shared(index);
        }
    }

    /// Moves to the first entry at or above `key`; whether it is at `key`.
    fn seek_lower_bound(&mut self, key: &[u8]) -> Ordering {
        if self.block.layout().is_whole() {
            self.go_to_whole(self.block.restarts_below(key, Bound::Below));
            return self.compare_with(key);
        }
        let Some(group) = self.block.restarts_below(key, Bound::UpTo).checked_sub(1) else {
            self.go_to_shared(0); // every key is above, or there is none
            return Ordering::Greater;
        };
        self.start_group(group);
        // Ends within the group or on the restart behind it, which is above `key`.
        while self.compare_with(key) == Ordering::Less {
            self.step_shared();
        }
        self.compare_with(key)
    }

    /// As [`Cursor::seek`], from the entry that it is on, and not back. Costs least where that is
    /// near, and puts no keys together of what it goes past.
    fn leap_on(&mut self, key: &[u8], newest: SeqNo) {
        if !self.is_on_entry() {
            if self.index == BEFORE_FIRST {
                self.seek_lower_bound(key);
            }
            return;
        }
        if self.key_here() >= key {
            return;
        }
        if self.block.layout().is_whole() {
            self.leap_whole(key, newest);
        } else {
            self.leap_shared(key);
        }
    }

    /// To where the stamps, which lie close together, let one expect it; else by steps that become
    /// longer, and bisection of the last one. The entry at hand is below.
    fn leap_whole(&mut self, key: &[u8], newest: SeqNo) {
        let (layout, data) = (self.block.layout(), self.block.data());
        let is_below = |index: usize| layout.restart_key(data, index) < key;
        let near = self.block.descent_to(self.index, newest);
        let is_beyond = near < layout.entry_count && is_below(near);
        if !is_beyond && (near - 1 == self.index || is_below(near - 1)) {
            self.go_to_whole(near);
            return;
        }
        let (mut below, mut step) = (if is_beyond { near } else { self.index }, 1);
        let mut high = loop {
            let next = below + step;
            if next >= layout.entry_count {
                break layout.entry_count;
            }
            if !is_below(next) {
                break next;
            }
            (below, step) = (next, 2 * step);
        };
        while high - below > 1 {
            let middle = below.midpoint(high);
            match is_below(middle) {
                true => below = middle,
                false => high = middle,
            }
        }
        self.go_to_whole(high);
    }

    /// Entry by entry within the group, of which it is enough to know what they have in common with
    /// `key`; else as any seek. The entry at hand is below.
    fn leap_shared(&mut self, key: &[u8]) {
        let (layout, data) = (self.block.layout(), self.block.data());
        let behind = self.index / layout.restart_interval + 1;
        if behind < layout.restart_count && layout.restart_key(data, behind) <= key {
            self.seek_lower_bound(key);
            return;
        }
        let mut matching = KeyMatch::from_below(key, common_prefix_len(&self.key, key));
        let (mut index, mut start) = (self.index + 1, self.value_end);
        while index < layout.entry_count {
            let entry = layout.shared(data, start);
            let suffix = &data[entry.key_start..entry.value_start];
            if matching.compare(entry.shared, suffix) != Ordering::Less {
                // What it shares with the one before it, that one has in common with `key`.
                self.key.clear();
                self.key.extend_from_slice(&key[..entry.shared]);
                self.key.extend_from_slice(suffix);
                self.index = index;
                self.settle(&entry);
                return;
            }
            (index, start) = (index + 1, entry.value_end);
        }
        self.index = layout.entry_count;
    }

    /// Moves one entry on if that is on a value within `reach`; else it may stay, and
    /// [`BlockCursor::next_within`] knows. In a block in the whole form it stays rarely.
    #[inline]
    pub fn slide_on(&mut self, reach: Reach) -> bool {
        let Some((index, entry)) = self.plain_next() else { return false };
        if !reach.is_everything() && !reach.holds_below(self.block.head_or_higher(&entry)) {
            return false;
        }
        prefetch(self.block.data().as_ptr().wrapping_add(entry.value_end + PREFETCH_DISTANCE));
        self.index = index;
        self.settle(&entry);
        true
    }

    /// Moves one entry back if that is on a value within `reach`; else it may stay, and
    /// [`BlockCursor::prev_within`] knows.
    #[inline]
    pub fn slide_back(&mut self, reach: Reach) -> bool {
        let Some((index, entry)) = self.plain_prev() else { return false };
        if !reach.is_everything() && !reach.holds_above(self.block.head_of_entry(&entry)) {
            return false;
        }
        prefetch(
            self.block
                .data()
                .as_ptr()
                .wrapping_add(entry.key_start)
                .wrapping_sub(PREFETCH_DISTANCE),
        );
        self.index = index;
        self.settle(&entry);
        true
    }

    /// Moves one entry on. Whether it is on a value within `reach` then; otherwise it may be on one
    /// that is not, on a tombstone, or behind the last entry.
    pub fn next_within(&mut self, reach: Reach) -> bool {
        self.next().is_ok() && self.is_within_ahead(reach)
    }

    /// Moves one entry back. Whether it is on a value within `reach` then; otherwise it may be on
    /// one that is not, on a tombstone, or before the first entry.
    pub fn prev_within(&mut self, reach: Reach) -> bool {
        self.prev().is_ok() && self.is_within_behind(reach)
    }

    /// Whether it is on a value within `reach`, which is one for moving on.
    #[inline]
    #[must_use]
    pub fn is_within_ahead(&self, reach: Reach) -> bool {
        self.is_value() && self.key().is_some_and(|key| reach.holds_below(self.block.head_of(key)))
    }

    /// Whether it is on a value within `reach`, which is one for moving back.
    #[inline]
    #[must_use]
    pub fn is_within_behind(&self, reach: Reach) -> bool {
        self.is_value() && self.key().is_some_and(|key| reach.holds_above(self.block.head_of(key)))
    }

    /// The entry behind an entry, if both are there and whole, and it is a plain one.
    #[inline(always)]
    fn plain_next(&self) -> Option<(usize, EntrySpan)> {
        let layout = self.block.layout();
        let index = self.index.saturating_add(1); // BEFORE_FIRST stays: `value_end` is no start
        if index >= layout.whole_count {
            return None;
        }
        let data = self.block.data();
        let end = layout.restart_if_there(data, index + 1)?;
        Some((index, layout::plain_entry(data, self.value_end, end)?))
    }

    /// The entry before an entry or the end, if there is one and whole, and it is a plain one.
    #[inline(always)]
    fn plain_prev(&self) -> Option<(usize, EntrySpan)> {
        let layout = self.block.layout();
        let index = self.index.wrapping_sub(1); // of 0 and BEFORE_FIRST: above any count
        if index >= layout.whole_count {
            return None;
        }
        let data = self.block.data();
        let start = layout.restart_if_there(data, index)?;
        let end = layout.restart_if_there(data, index + 1)?;
        Some((index, layout::plain_entry(data, start, end)?))
    }

    /// The key of the entry that it is known to be on.
    #[inline]
    #[must_use]
    pub fn key_here(&self) -> &[u8] {
        match self.block.layout().is_whole() {
            true => &self.block.data()[self.key_start..self.value_start],
            false => self.key.as_slice(),
        }
    }

    /// The value, or what is in its place, of the entry that it is known to be on.
    #[inline]
    #[must_use]
    pub fn value_here(&self) -> &[u8] {
        &self.block.data()[self.value_start..self.value_end]
    }

    #[inline]
    fn is_value(&self) -> bool {
        self.is_on_entry() && self.kind == EntryKind::Value
    }

    /// What lies below `key`.
    #[inline]
    #[must_use]
    pub fn reach_below(&self, key: &[u8]) -> Reach {
        self.block.reach_below(key)
    }

    /// What lies above `key`.
    #[inline]
    #[must_use]
    pub fn reach_above(&self, key: &[u8]) -> Reach {
        self.block.reach_above(key)
    }

    /// Whether the entry at the position leads to its value, by a pointer or as a composite entry.
    #[inline]
    #[must_use]
    pub fn leads_to_value(&self) -> bool {
        self.is_on_entry() && matches!(self.kind, EntryKind::Pointer | EntryKind::Composite)
    }

    /// What the entry at the position holds that expires, if it does.
    #[inline]
    #[must_use]
    pub fn expiring(&self) -> Option<Expiring<'_>> {
        if !self.is_on_entry() {
            return None;
        }
        expiring_in(self.kind, self.value_here())
    }

    /// How the key at the position compares with `key`; behind the last entry is above all.
    #[inline]
    fn compare_with(&self, key: &[u8]) -> Ordering {
        self.entry().map_or(Ordering::Greater, |entry| entry.key.cmp(key))
    }
}

impl Cursor for BlockCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.go_to(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.go_to(self.block.entry_count().wrapping_sub(1)); // BEFORE_FIRST when empty
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_lower_bound(key);
        Ok(())
    }

    fn leap(&mut self, key: &[u8], newest: SeqNo) -> Result<()> {
        self.leap_on(key, newest);
        Ok(())
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.seek_lower_bound(key) == Ordering::Greater {
            self.prev()?;
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.slide_on(Reach::EVERYTHING) || self.index == self.block.entry_count() {
            return Ok(());
        }
        if self.block.layout().is_whole() {
            self.go_to_whole(self.index.wrapping_add(1));
        } else {
            self.step_shared();
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.slide_back(Reach::EVERYTHING) && self.index != BEFORE_FIRST {
            self.go_to(self.index.wrapping_sub(1));
        }
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        if !self.is_on_entry() {
            return None;
        }
        let key = self.key()?;
        let value = self.value()?;
        Some(EntryRef { key, seqno: self.block.seqno(self.index), kind: self.kind, value })
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.is_on_entry()
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.is_on_entry().then(|| self.key_here())
    }

    #[inline]
    fn value(&self) -> Option<&[u8]> {
        self.is_on_entry().then(|| self.value_here())
    }

    #[inline]
    fn is_tombstone(&self) -> bool {
        self.is_on_entry() && self.kind == EntryKind::Tombstone
    }
}

impl UnrolledGroup {
    fn unroll(&mut self, block: &Block, group: usize) {
        self.group = group;
        self.entries.clear();
        self.keys.clear();
        let mut key_start = 0;
        block.walk_group(group, |_, entry| {
            let key_end = self.keys.len() + entry.key_len();
            self.keys.extend_from_within(key_start..key_start + entry.shared);
            self.keys.extend_from_slice(&block.data()[entry.key_start..entry.value_start]);
            key_start = key_end - entry.key_len();
            self.entries.push((*entry, key_end));
            None::<()>
        });
    }

    /// Entry `index` of the group, and its key.
    #[inline]
    fn entry(&self, index: usize) -> (EntrySpan, &[u8]) {
        let (entry, key_end) = self.entries[index];
        (entry, &self.keys[key_end - entry.key_len()..key_end])
    }
}
