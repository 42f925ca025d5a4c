//! One block in memory: immutable, searched as the bytes that it is.
//!
//! The bytes were checked once when the block was made (invariants B1 to B4 of `layout.rs`), so
//! nothing after that can fail or leave them.

use std::cmp::Ordering;
use std::fmt;
use std::mem;
use std::ops::Range;

use crate::base::EntryRef;
use crate::base::Error;
use crate::base::Result;
use crate::base::SeqNo;
use crate::base::Slice;
use crate::base::prefetch;
use crate::block::common_prefix_len;
use crate::block::frame::FramePlace;
use crate::block::layout::EntrySpan;
use crate::block::layout::Layout;
use crate::block::search;
use crate::block::search::Bound;
use crate::block::search::Fingerprints;
use crate::block::search::KeyMatch;
use crate::block::search::Reach;
use crate::memory::SharedBytes;

/// Bytes that come from memory together.
const LINE_LEN: usize = 64;

/// Sorted entries in memory.
pub struct Block {
    /// The payload, perhaps the frame around it, and perhaps room behind.
    data: SharedBytes,
    layout: Layout,
    /// Where lies what all keys have in common at their start.
    common: Range<usize>,
    fingerprints: Fingerprints,
}

impl Block {
    /// Takes the payload that lies at `payload` of `data`. Costs 1 to 3 ns an entry.
    ///
    /// # Errors
    /// [`Error::Corruption`] at `place` when the bytes are not a payload.
    pub fn parse(data: SharedBytes, payload: Range<usize>, place: FramePlace<'_>) -> Result<Block> {
        let layout = Layout::parse(&data, payload).and_then(|layout| {
            layout.check_entries(&data)?;
            Ok(layout)
        });
        let layout = layout.map_err(|what| Error::corruption(place.file, place.offset, what))?;
        Ok(Block::with_layout(data, layout))
    }

    /// The same entries, which all have one stamp, with this one: of a block that was written
    /// before it was known.
    #[must_use]
    pub fn stamped(self, stamp: SeqNo) -> Block {
        Block { layout: self.layout.stamped(stamp), ..self }
    }

    /// Takes a payload of `len` bytes that the builder has just made.
    pub(super) fn from_encoded(data: SharedBytes, len: usize) -> Block {
        let layout = Layout::parse(&data, 0..len).expect("the builder made it");
        debug_assert_eq!(layout.check_entries(&data), Ok(()));
        Block::with_layout(data, layout)
    }

    fn with_layout(data: SharedBytes, layout: Layout) -> Block {
        let fingerprints = Fingerprints::default();
        let mut block = Block { data, layout, common: 0..0, fingerprints };
        block.common = block.find_common();
        block
    }

    /// Where lies what the first and the last key have in common.
    fn find_common(&self) -> Range<usize> {
        let Some(last) = self.layout.restart_count.checked_sub(1) else {
            return 0..0;
        };
        let (start, first_len) = self.layout.restart_key_place(&self.data, 0);
        let first_key = &self.data[start..start + first_len];
        if self.layout.is_whole() {
            let last_key = self.layout.restart_key(&self.data, last);
            return start..start + common_prefix_len(first_key, last_key);
        }
        let mut matching = KeyMatch::new(first_key);
        self.walk_group(last, |_, entry| {
            matching.compare(entry.shared, &self.data[entry.key_start..entry.value_start]);
            None::<()>
        });
        start..start + matching.matched()
    }

    /// Number of entries.
    #[inline]
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.layout.entry_count
    }

    /// Bytes of memory that the block takes, with the fingerprints that it may get.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.data.len() + self.layout.entry_count + mem::size_of::<Block>()
    }

    /// The first key; `None` in an empty block.
    #[must_use]
    pub fn first_key(&self) -> Option<&[u8]> {
        (self.layout.restart_count > 0).then(|| self.layout.restart_key(&self.data, 0))
    }

    /// The last key; `None` in an empty block. Not copied when it is whole.
    #[cfg(test)]
    pub fn last_key(&self) -> Option<Slice> {
        let last = self.layout.entry_count.checked_sub(1)?;
        if self.layout.is_whole() {
            let entry = self.layout.whole(&self.data, last);
            return Some(Slice::shared(&self.data, entry.key_start..entry.value_start));
        }
        let mut key = Vec::new();
        let group = self.layout.restart_count - 1;
        self.walk_group(group, |_, entry| {
            self.extend_key(&mut key, entry);
            None::<()>
        });
        Some(Slice::from(key))
    }

    /// The entry of `key`. Its key borrows from the argument, its value from the block.
    #[inline]
    #[must_use]
    pub fn get<'a>(&'a self, key: &'a [u8]) -> Option<EntryRef<'a>> {
        let prints = self
            .fingerprints
            .when_worthwhile(self.layout.entry_count, |each| self.for_each_key(each));
        let (index, entry) = match prints {
            Some(prints) => search::find_print(prints, search::fingerprint(key), |index| {
                Some((index, self.entry_if_key(index, key)?))
            }),
            None => self.find(key),
        }?;
        let value = &self.data[entry.value_start..entry.value_end];
        Some(EntryRef { key, seqno: self.seqno(index), kind: entry.kind, value })
    }

    /// The first entry whose key is not below `key`. `buffer` is for its own key, where that is not
    /// whole.
    #[must_use]
    pub fn first_from<'a>(&'a self, key: &[u8], buffer: &'a mut Vec<u8>) -> Option<EntryRef<'a>> {
        if self.layout.is_whole() {
            return self.nth(self.restarts_below(key, Bound::Below));
        }
        let (index, entry) = match self.restarts_below(key, Bound::UpTo).checked_sub(1) {
            None => self.restart_entry(0)?,
            Some(group) => {
                let mut matching = KeyMatch::new(key);
                let found = self.walk_group(group, |index, entry| {
                    let suffix = &self.data[entry.key_start..entry.value_start];
                    let is_below = matching.compare(entry.shared, suffix) == Ordering::Less;
                    (!is_below).then_some((index, *entry))
                });
                match found {
                    Some(found) => found,
                    None => self.restart_entry(group + 1)?,
                }
            }
        };
        // What it shares with the one before it, that one has in common with `key`.
        buffer.clear();
        buffer.extend_from_slice(&key[..entry.shared]);
        buffer.extend_from_slice(&self.data[entry.key_start..entry.value_start]);
        let value = &self.data[entry.value_start..entry.value_end];
        Some(EntryRef { key: buffer, seqno: self.seqno(index), kind: entry.kind, value })
    }

    /// The entry of a restart, if there is one, and its index.
    fn restart_entry(&self, group: usize) -> Option<(usize, EntrySpan)> {
        (group < self.layout.restart_count).then(|| {
            let entry = self.layout.shared(&self.data, self.layout.restart(&self.data, group));
            (group * self.layout.restart_interval, entry)
        })
    }

    /// The first entry behind this one that is not newer than `newest`, or not older than the one
    /// in front of it; or their number.
    pub(super) fn descent_to(&self, index: usize, newest: SeqNo) -> usize {
        let mut before = self.seqno(index);
        for index in index + 1..self.layout.entry_count {
            let stamp = self.seqno(index);
            if stamp <= newest || stamp >= before {
                return index;
            }
            before = stamp;
        }
        self.layout.entry_count
    }

    /// Has what a search looks at first brought in.
    pub fn prefetch(&self) {
        let Layout { entries_start, stamps_start, .. } = self.layout;
        let end = self.layout.payload_end();
        for at in (stamps_start..end).step_by(LINE_LEN).chain([entries_start, end]) {
            prefetch(self.data.as_ptr().wrapping_add(at));
        }
    }

    /// Number of entries whose keys are below `key`. Logarithmic.
    #[must_use]
    pub fn count_below(&self, key: &[u8]) -> usize {
        let restarts = self.restarts_below(key, Bound::Below);
        if self.layout.is_whole() {
            return restarts;
        }
        let Some(group) = restarts.checked_sub(1) else { return 0 };
        let mut matching = KeyMatch::new(key);
        let found = self.walk_group(group, |index, entry| {
            let suffix = &self.data[entry.key_start..entry.value_start];
            (matching.compare(entry.shared, suffix) != Ordering::Less).then_some(index)
        });
        found.unwrap_or_else(|| {
            ((group + 1) * self.layout.restart_interval).min(self.layout.entry_count)
        })
    }

    /// Whether every key is whole, so that entries are found by number.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.layout.is_whole()
    }

    /// Entry `index`; `None` behind the last, and in a block whose keys are not whole.
    #[inline]
    #[must_use]
    pub fn nth(&self, index: usize) -> Option<EntryRef<'_>> {
        if index >= self.layout.whole_count {
            return None;
        }
        let EntrySpan { key_start, value_start, value_end, kind, .. } =
            self.layout.whole(&self.data, index);
        let (key, value) = (&self.data[key_start..value_start], &self.data[value_start..value_end]);
        Some(EntryRef { key, seqno: self.seqno(index), kind, value })
    }

    /// `bytes` as a slice of its own: shared with the block if they lie in it, as the values and
    /// whole keys of its entries do, else copied.
    #[inline]
    #[must_use]
    pub fn share(&self, bytes: &[u8]) -> Slice {
        let start = bytes.as_ptr().addr().wrapping_sub(self.data.as_ptr().addr());
        match start.checked_add(bytes.len()) {
            Some(end) if end <= self.data.len() => Slice::shared(&self.data, start..end),
            _ => Slice::from(bytes),
        }
    }

    /// Says where the order of keys is broken, if it is. Reads all keys; for `check`.
    #[must_use]
    pub fn check_order(&self) -> Option<String> {
        let mut before: Option<Vec<u8>> = None;
        let mut index = 0;
        let mut found = None;
        self.for_each_key(&mut |key| {
            if before.as_deref().is_some_and(|before| before >= key) && found.is_none() {
                found = Some(format!("key of entry {index} is not above the one before it"));
            }
            before = Some(key.to_vec());
            index += 1;
        });
        found
    }

    #[inline]
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    #[inline]
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline]
    pub(super) fn seqno(&self, index: usize) -> SeqNo {
        self.layout.stamp(&self.data, index)
    }

    /// Number of restarts with a key below `key`, or up to it.
    #[inline]
    pub(super) fn restarts_below(&self, key: &[u8], bound: Bound) -> usize {
        search::restarts_below(&self.layout, &self.data, self.common.clone(), key, bound)
    }

    /// The head of a key of this block; see [`Reach`].
    #[inline]
    pub(super) fn head_of(&self, key: &[u8]) -> u64 {
        search::head_at(key, self.common.len())
    }

    /// The head of the key of an entry that is whole, or a higher one if the key is short: then
    /// bytes behind it are taken for its own.
    #[inline(always)]
    pub(super) fn head_or_higher(&self, entry: &EntrySpan) -> u64 {
        let start = entry.key_start + self.common.len();
        match self.data.get(start..).and_then(<[u8]>::first_chunk) {
            Some(head) => u64::from_be_bytes(*head),
            None => u64::MAX, // only in a block that no builder made
        }
    }

    /// The head of the key of an entry that is whole.
    #[inline(always)]
    pub(super) fn head_of_entry(&self, entry: &EntrySpan) -> u64 {
        let own_len = (entry.value_start - entry.key_start).saturating_sub(self.common.len());
        if own_len >= size_of::<u64>() {
            return self.head_or_higher(entry);
        }
        self.head_of(&self.data[entry.key_start..entry.value_start])
    }

    /// The entries below `key`, for moving on.
    #[inline]
    pub(super) fn reach_below(&self, key: &[u8]) -> Reach {
        match search::order_of_start(key, &self.data[self.common.clone()]) {
            Ordering::Less => Reach::NOTHING,
            Ordering::Equal => Reach::below(self.head_of(key)),
            Ordering::Greater => Reach::EVERYTHING,
        }
    }

    /// The entries above `key`, for moving back.
    #[inline]
    pub(super) fn reach_above(&self, key: &[u8]) -> Reach {
        match search::order_of_start(key, &self.data[self.common.clone()]) {
            Ordering::Less => Reach::EVERYTHING,
            Ordering::Equal => Reach::above(self.head_of(key)),
            Ordering::Greater => Reach::NOTHING,
        }
    }

    /// Makes the key of `entry` out of the key before it.
    #[inline]
    pub(super) fn extend_key(&self, key: &mut Vec<u8>, entry: &EntrySpan) {
        key.truncate(entry.shared);
        key.extend_from_slice(&self.data[entry.key_start..entry.value_start]);
    }

    /// The entry of `key`, found by order, and its index.
    fn find(&self, key: &[u8]) -> Option<(usize, EntrySpan)> {
        // The last restart that is not above the key holds it or starts the group that does.
        let restart = self.restarts_below(key, Bound::UpTo).checked_sub(1)?;
        if self.layout.is_whole() {
            return Some((restart, self.entry_if_key(restart, key)?));
        }
        let mut matching = KeyMatch::new(key);
        self.walk_group(restart, |index, entry| {
            let suffix = &self.data[entry.key_start..entry.value_start];
            match matching.compare(entry.shared, suffix) {
                Ordering::Less => None,
                Ordering::Equal => Some(Some((index, *entry))),
                Ordering::Greater => Some(None),
            }
        })?
    }

    /// Entry `index` if its key is `key`.
    #[inline]
    fn entry_if_key(&self, index: usize, key: &[u8]) -> Option<EntrySpan> {
        if index >= self.layout.entry_count {
            return None;
        }
        if self.layout.is_whole() {
            let entry = self.layout.whole(&self.data, index);
            return (self.data[entry.key_start..entry.value_start] == *key).then_some(entry);
        }
        let mut matching = KeyMatch::new(key);
        self.walk_group(index / self.layout.restart_interval, |at, entry| {
            let suffix = &self.data[entry.key_start..entry.value_start];
            let ordering = matching.compare(entry.shared, suffix);
            (at == index).then_some((ordering == Ordering::Equal).then_some(*entry))
        })?
    }

    /// Hands the entries from restart `group` to the next one to `visit`, until that returns
    /// something.
    #[inline]
    pub(super) fn walk_group<T>(
        &self,
        group: usize,
        mut visit: impl FnMut(usize, &EntrySpan) -> Option<T>,
    ) -> Option<T> {
        let first = group * self.layout.restart_interval;
        let end = (first + self.layout.restart_interval).min(self.layout.entry_count);
        let mut pos = self.layout.restart(&self.data, group);
        for index in first..end {
            let entry = self.layout.shared(&self.data, pos);
            if let Some(found) = visit(index, &entry) {
                return Some(found);
            }
            pos = entry.value_end;
        }
        None
    }

    pub(super) fn for_each_key(&self, visit: &mut dyn FnMut(&[u8])) {
        if self.layout.is_whole() {
            for index in 0..self.layout.entry_count {
                visit(self.layout.restart_key(&self.data, index));
            }
            return;
        }
        let mut key = Vec::new();
        for group in 0..self.layout.restart_count {
            self.walk_group(group, |_, entry| {
                self.extend_key(&mut key, entry);
                visit(&key);
                None::<()>
            });
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("entries", &self.layout.entry_count)
            .field("restart_interval", &self.layout.restart_interval)
            .field("bytes", &self.data.len())
            .finish_non_exhaustive()
    }
}
