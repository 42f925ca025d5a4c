//! The one writer: puts entries into leaves and keeps the tree in shape.
//!
//! Owns what only the writer changes. Readers see each change through one store: the counts of a
//! leaf, a pointer in an inner node, or the root.
//!
//! Invariants
//! - W1  An entry is whole in the arena before a leaf names it.
//! - W2  New nodes are whole before the one store that leads to them; nodes are retired after the
//!   store that unlinks them.

use std::sync::Arc;

use super::Memtable;
use super::arena::{EntryAppender, EntryId};
use super::filter::{FilterFill, Sizes};
use super::node::{Append, NodePtr, Nodes, WIDTH};
use super::order::{self, Bound, Fit};
use super::run::{Run, TailPlace};
use super::staged::Staged;
use super::tree;
use crate::base::EntryKind;
use crate::base::EntryRef;
use crate::base::GrowingTombstones;
use crate::base::RangeTombstones;
use crate::base::SeqNo;
use crate::base::hash_key;
use crate::base::sync::MutexGuard;
use crate::base::sync::atomic::Ordering::{Relaxed, Release};

/// A leaf's tail is merged when it has so many entries. A search looks at half of them on average.
const TAIL_LEN_MAX: usize = 16;
/// A merged leaf has at least so much room, or is split.
const ROOM_AFTER_MERGE_MIN: usize = 8;
/// When entries come in order, a split leaves the part where none are expected this full.
const FULL_SIDE_LEN: usize = WIDTH - ROOM_AFTER_MERGE_MIN;
/// So much of a batch is sorted before it is inserted: enough for the gain, little memory.
const SORTED_LEN_MAX: usize = 1024;
/// Inserts whose cache misses overlap.
pub(super) const GROUP_LEN: usize = 8;

/// What only the writer uses.
pub(super) struct WriterState {
    appender: EntryAppender,
    nodes: Nodes,
    fill: FilterFill,
    /// Changes of inner nodes and of the root: what was found before one may be out of date.
    splits: u64,
    edge: Option<Edge>,
    path: Vec<(NodePtr, usize)>,
    run: Box<Run>,
    pub(super) staged: Staged,
}

impl WriterState {
    pub(super) fn new(appender: EntryAppender, nodes: Nodes, fill: FilterFill) -> WriterState {
        let run = Box::new(Run::empty());
        let (path, staged) = (Vec::new(), Staged::default());
        WriterState { appender, nodes, fill, splits: 0, edge: None, path, run, staged }
    }
}

/// The right to write to a memtable, of one thread at a time.
pub(crate) struct Writer<'m> {
    pub(super) memtable: &'m Memtable,
    pub(super) state: MutexGuard<'m, WriterState>,
}

/// An entry in the arena that is about to be linked.
#[derive(Clone, Copy)]
pub(super) struct Pending<'e> {
    pub(super) key: &'e [u8],
    pub(super) seqno: SeqNo,
    pub(super) id: EntryId,
    /// For the filter; unused if there is none.
    pub(super) hash: u64,
    pub(super) data_size: usize,
}

/// Where an entry goes, while `splits` stays the same.
#[derive(Clone, Copy)]
struct Place {
    leaf: NodePtr,
    /// The inner node above and the index in it; none if the leaf is the root.
    above: Option<(NodePtr, usize)>,
    known: usize,
    /// Whether no leaf is behind it.
    is_last: bool,
}

/// The last leaf and the last entry, of which entries in ascending order need no descent to know
/// that they belong behind it.
#[derive(Clone, Copy)]
struct Edge {
    place: Place,
    last: EntryId,
    /// When this was found: it holds as long as the count is the same.
    splits: u64,
}

/// Why an entry could not be appended to a leaf.
enum Obstacle {
    /// Its key does not have the leaf's prefix.
    Prefix,
    /// The tail is as long as it may be.
    Tail,
    /// The leaf is full, and the entry belongs behind all others.
    FullInOrder,
}

impl Writer<'_> {
    /// Adds a version of `key`. Visible to every reader that begins after the call.
    ///
    /// # Panics
    /// When the key has 16 MiB or the value 4 GiB, or when more than one of the largest batches
    /// came since [`Memtable::is_full`]: the caller seals it then, and refuses larger entries.
    #[cfg(test)]
    pub(crate) fn insert(&mut self, key: &[u8], seqno: SeqNo, kind: EntryKind, value: &[u8]) {
        self.insert_one(&EntryRef { key, seqno, kind, value });
        self.publish_memory();
    }

    /// Adds the entries of one commit, in their order: of two with one key, the later wins.
    /// Faster than single inserts, because cache misses of neighbours overlap. The entries become
    /// visible one by one.
    ///
    /// # Panics
    /// As [`Writer::insert`].
    pub(crate) fn insert_batch<'e>(
        &mut self,
        seqno: SeqNo,
        batch: impl IntoIterator<Item = (&'e [u8], EntryKind, &'e [u8])>,
    ) {
        let entry = |(key, kind, value)| EntryRef { key, seqno, kind, value };
        let mut batch = batch.into_iter().map(entry);
        let Some(first) = batch.next() else { return };
        let Some(second) = batch.next() else {
            // Nothing to sort or to overlap.
            self.insert_one(&first);
            self.publish_memory();
            return;
        };
        let mut part: Vec<EntryRef<'e>> = vec![first, second];
        loop {
            let room = SORTED_LEN_MAX - part.len();
            part.extend(batch.by_ref().take(room));
            if part.is_empty() {
                break;
            }
            let order = insertion_order(&part);
            for indexes in order.chunks(GROUP_LEN) {
                let mut group = [None; GROUP_LEN];
                for (slot, &(_, index)) in group.iter_mut().zip(indexes) {
                    *slot = Some(self.append(&part[index as usize]));
                }
                for pending in group.iter().flatten() {
                    self.add_to_filter(pending);
                }
                self.link_group(&group);
            }
            part.clear();
        }
        self.publish_memory();
    }

    /// Deletes ranges, each from its start to in front of its end, as far as they were written
    /// before the commit `seqno`. Visible, all at once, to every reader that begins after the call.
    /// For `n` ranges O(n log n), and copies of a few of those deleted before: O(log) over many
    /// calls.
    pub(crate) fn delete_ranges<'k>(
        &mut self,
        seqno: SeqNo,
        ranges: impl IntoIterator<Item = (&'k [u8], Option<&'k [u8]>)>,
    ) {
        let mut size = 0;
        let ranges = ranges.into_iter().inspect(|(start, end)| {
            size += start.len() + end.map_or(0, <[u8]>::len);
        });
        let added = RangeTombstones::of(ranges, seqno);
        if added.is_empty() {
            return; // There were none, or they were.
        }
        let mut all = match &*self.memtable.ranges.load() {
            Some(ranges) => GrowingTombstones::clone(ranges),
            None => GrowingTombstones::new(self.memtable.config.range_stamps),
        };
        all.add(added);
        self.note_seqno(seqno);
        let totals = &self.memtable.totals;
        totals.data_size.store(totals.data_size.load(Relaxed) + size, Relaxed);
        let (memory, cost) = (all.memory_size(), all.cost());
        self.memtable.ranges.store(Some(Arc::new(all)));
        totals.range_memory.store(memory, Relaxed);
        totals.range_cost.store(cost, Relaxed);
        self.memtable.has_ranges.store(true, Release); // Who sees that there are some finds them.
    }

    /// Adds one entry; what it has to wait for in memory is fetched at the same time.
    fn insert_one(&mut self, entry: &EntryRef<'_>) {
        let pending = self.append(entry);
        let place = self.place_of(&pending);
        self.add_to_filter(&pending);
        if self.append_to_leaf(&place, &pending).is_err() {
            self.link(&pending);
        }
    }

    /// Copies an entry into the arena and counts it. The filter's line for it is on its way.
    pub(super) fn append<'e>(&mut self, entry: &EntryRef<'e>) -> Pending<'e> {
        let filters = &self.memtable.filters;
        let hash = filters.hash_and_prefetch(&self.state.fill, || hash_key(entry.key));
        let id = self.state.appender.append(entry); // W1
        let totals = &self.memtable.totals;
        self.note_seqno(entry.seqno);
        let data_size = totals.data_size.load(Relaxed) + entry.key.len() + entry.value.len();
        totals.data_size.store(data_size, Relaxed);
        // Last, and `Release`: who sees that there are entries sees a range of seqnos.
        totals.entry_count.store(totals.entry_count.load(Relaxed) + 1, Release);
        if !self.memtable.has_entries.load(Relaxed) {
            self.memtable.has_entries.store(true, Release);
        }
        Pending { key: entry.key, seqno: entry.seqno, id, hash, data_size }
    }

    /// The one writer changes the totals, so load and store need not be one step.
    fn note_seqno(&self, seqno: SeqNo) {
        let (totals, seqno) = (&self.memtable.totals, seqno.as_u64());
        totals.seqno_min.store(totals.seqno_min.load(Relaxed).min(seqno), Relaxed);
        totals.seqno_max.store(totals.seqno_max.load(Relaxed).max(seqno), Relaxed);
    }

    /// To be done before the entry is linked (F1).
    pub(super) fn add_to_filter(&mut self, pending: &Pending<'_>) {
        let Memtable { filters, config, .. } = self.memtable;
        let sizes = Sizes { expected_bytes: config.expected_bytes, data_size: pending.data_size };
        filters.add(&mut self.state.fill, pending.hash, &sizes);
    }

    pub(super) fn publish_memory(&self) {
        self.memtable.totals.node_memory.store(self.state.nodes.allocated(), Relaxed);
    }

    /// Links the entries of a group, each step for all of them before the next, so that the
    /// processor fetches their leaves at the same time.
    pub(super) fn link_group(&mut self, group: &[Option<Pending<'_>>; GROUP_LEN]) {
        let places = group.map(|pending| pending.map(|pending| self.place_of(&pending)));
        for place in places.iter().flatten() {
            self.state.nodes.leaf(place.leaf).prefetch_slot();
        }
        let splits = self.state.splits;
        for (pending, place) in group.iter().flatten().zip(places.iter().flatten()) {
            let mut place = *place;
            if self.state.splits != splits {
                self.link(pending);
                continue;
            }
            if let Some((inner, index)) = place.above {
                // An entry of this group may have made the leaf be merged.
                place.leaf = self.state.nodes.inner(inner).child_ptr(index);
            }
            if self.append_to_leaf(&place, pending).is_err() {
                self.link(pending);
            }
        }
    }

    /// Links one entry, making room as often as it takes: at most for a shorter prefix, a merge
    /// and a split.
    fn link(&mut self, pending: &Pending<'_>) {
        loop {
            let place = self.place_of(pending);
            match self.append_to_leaf(&place, pending) {
                Ok(()) => return,
                Err(obstacle) => {
                    if self.make_way(&obstacle, pending) == Way::Linked {
                        return;
                    }
                }
            }
        }
    }

    fn place_of(&self, pending: &Pending<'_>) -> Place {
        if let Some(place) = self.place_at_edge(pending.key) {
            return place;
        }
        let mut above = None;
        let bound = Bound::Before(pending.key, pending.seqno);
        let Memtable { root, entries, .. } = self.memtable;
        let landing = tree::descend(root, &self.state.nodes, entries, &bound, |inner, index| {
            above = Some((inner.name(), index));
        });
        let is_last = landing.fence.is_none();
        Place { leaf: landing.leaf.name(), above, known: landing.known, is_last }
    }

    /// The last leaf, if the key is above that of the last entry.
    fn place_at_edge(&self, key: &[u8]) -> Option<Place> {
        let WriterState { edge, splits, nodes, .. } = &*self.state;
        let edge = edge.filter(|edge| edge.splits == *splits)?;
        if key <= self.memtable.entries.key(edge.last) {
            return None;
        }
        let mut place = edge.place;
        if let Some((inner, index)) = place.above {
            place.leaf = nodes.inner(inner).child_ptr(index); // It may have been merged.
        }
        Some(place)
    }

    fn append_to_leaf(&mut self, place: &Place, pending: &Pending<'_>) -> Result<(), Obstacle> {
        let entries = &self.memtable.entries;
        let view = self.state.nodes.leaf(place.leaf).view();
        let Fit::Head(head) = view.sorted.fit(entries, pending.key, place.known) else {
            return Err(Obstacle::Prefix);
        };
        let sorted_len = view.sorted.len();
        let tail_len = view.tail_ids.len();
        let in_order = tail_len == 0
            && match view.sorted.heads.last() {
                Some(&last) if last == head => {
                    let bound = Bound::Before(pending.key, pending.seqno);
                    view.sorted.rank_of_head(entries, &bound, head) == sorted_len
                }
                Some(&last) => last < head,
                None => true,
            };
        if sorted_len + tail_len == WIDTH {
            return Err(if in_order { Obstacle::FullInOrder } else { Obstacle::Tail });
        }
        if tail_len == TAIL_LEN_MAX {
            return Err(Obstacle::Tail);
        }
        let how = if in_order { Append::InOrder } else { Append::Unordered };
        self.state.nodes.append(place.leaf, head, pending.id, how);
        if how == Append::InOrder && place.is_last {
            let splits = self.state.splits;
            self.state.edge = Some(Edge { place: *place, last: pending.id, splits });
        }
        Ok(())
    }

    /// Rebuilds the leaf where the entry belongs so that it can take it, or one more obstacle is
    /// out of the way.
    fn make_way(&mut self, obstacle: &Obstacle, pending: &Pending<'_>) -> Way {
        let Memtable { root, entries, readers, .. } = self.memtable;
        let WriterState { nodes, path, run, .. } = &mut *self.state;
        path.clear();
        let bound = Bound::Before(pending.key, pending.seqno);
        let landing = tree::descend(root, nodes, entries, &bound, |inner, index| {
            path.push((inner.name(), index));
        });
        let old = landing.leaf.name();
        let tail_place = run.merge_from(entries, &landing.leaf.view());
        let mut way = Way::Cleared;
        match obstacle {
            Obstacle::Prefix => {
                run.admit(entries, pending.key);
                let merged = nodes.new_leaf(run.keys());
                self.replace(merged);
            }
            Obstacle::Tail if run.len() + ROOM_AFTER_MERGE_MIN <= WIDTH => {
                run.sharpen(entries);
                let merged = nodes.new_leaf(run.keys());
                self.replace(merged);
            }
            Obstacle::Tail => {
                let mut right = run.split_off(split_index(run.len(), tail_place));
                run.sharpen(entries);
                right.sharpen(entries);
                let left = nodes.new_leaf(run.keys());
                let separator = right.first();
                let right = nodes.new_leaf(right.keys());
                self.insert_separator(left, separator, right);
            }
            Obstacle::FullInOrder => {
                // The full leaf stays full; the next one begins with the new entry.
                run.sharpen(entries);
                let right = Run::beside(run, entries, pending.id);
                let left = nodes.new_leaf(run.keys());
                let right = nodes.new_leaf(right.keys());
                self.insert_separator(left, pending.id, right);
                way = Way::Linked;
            }
        }
        self.state.nodes.retire_leaf(old); // W2
        self.state.nodes.collect(readers);
        way
    }

    /// Puts `new` where the last node of the path leads.
    fn replace(&mut self, new: NodePtr) {
        match self.state.path.last() {
            Some(&(above, index)) => self.state.nodes.replace_child(above, index, new),
            None => {
                self.memtable.root.store(new);
                self.state.splits += 1; // No inner node leads to the new leaf.
            }
        }
    }

    /// Puts two nodes where the path leads to one. Inner nodes on the way up are copied; the
    /// topmost new one is linked when all below it are whole (W2).
    fn insert_separator(&mut self, left: NodePtr, separator: EntryId, right: NodePtr) {
        let entries = &self.memtable.entries;
        let (mut left, mut separator, mut right) = (left, separator, right);
        let mut level = 1;
        let mut replaced = Vec::new();
        self.state.splits += 1;
        loop {
            let Some((above, index)) = self.state.path.pop() else {
                let mut top = Run::empty();
                top.insert(0, entries.key(separator), separator);
                let top = self.state.nodes.new_inner(level, top.keys(), &[left, right]);
                self.memtable.root.store(top);
                break;
            };
            replaced.push(above);
            let WriterState { nodes, run, .. } = &mut *self.state;
            let inner = nodes.inner(above);
            run.copy_from(&inner.keys());
            let mut children: Vec<NodePtr> =
                (0..=run.len()).map(|index| inner.child_ptr(index)).collect();
            let key = entries.key(separator);
            run.admit(entries, key);
            run.insert(index, key, separator);
            children[index] = left;
            children.insert(index + 1, right);
            if run.len() <= WIDTH {
                run.sharpen(entries);
                let copy = nodes.new_inner(level, run.keys(), &children);
                self.replace(copy);
                break;
            }
            let at_end = index + 1 == run.len();
            let middle = if at_end { FULL_SIDE_LEN } else { run.len() / 2 };
            let mut right_run = run.split_off(middle);
            let right_children = children.split_off(middle + 1);
            separator = right_run.pop_first();
            run.sharpen(entries);
            right_run.sharpen(entries);
            left = nodes.new_inner(level, run.keys(), &children);
            right = nodes.new_inner(level, right_run.keys(), &right_children);
            level += 1;
        }
        for inner in replaced {
            self.state.nodes.retire_inner(inner);
        }
    }
}

/// In which order to insert a part of a batch: roughly by key, so that entries that a scan meets
/// together lie together. Of one key, in the order given: the later must be inserted later.
fn insertion_order(part: &[EntryRef<'_>]) -> Vec<(u64, u32)> {
    let first = part[0].key;
    let skipped = part
        .iter()
        .fold(first.len(), |shared, entry| order::shared_bytes(&first[..shared], entry.key));
    // Equal keys have equal heads, so their indexes decide.
    let heads = part.iter().map(|entry| order::head_of(entry.key, skipped));
    let mut order: Vec<(u64, u32)> = heads.zip(0..).collect();
    order.sort_unstable();
    order
}

/// What came of making way for an entry.
#[derive(PartialEq, Eq)]
enum Way {
    /// An obstacle is gone.
    Cleared,
    /// The entry is in the tree already.
    Linked,
}

/// Where a full leaf is split: in the middle, or near the end where the new entries come.
fn split_index(len: usize, tail: TailPlace) -> usize {
    match tail {
        TailPlace::Front => len - FULL_SIDE_LEN.min(len - 1),
        TailPlace::Back => FULL_SIDE_LEN.min(len - 1),
        TailPlace::Spread => len / 2,
    }
}
