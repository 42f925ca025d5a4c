//! Entries of many commits that are linked together: those of a log that is replayed.
//!
//! What an insert waits for is memory, most of all that of the leaf where its entry belongs. Of
//! many entries in the order of their keys, several belong to one leaf, and the nodes above it are
//! those of the entry before. So entries are staged first, in the arena alone, and linked when
//! there are many or when somebody is about to read.
//!
//! Invariants
//! - G1  A staged entry is whole in the arena, counted, and in the filter (F1); no leaf names it.
//! - G2  Of two staged entries with one key and seqno, the later is linked later (M1). The entries
//!   of one seqno are staged or inserted, not some of them this way and some that way.

use super::Writer;
use super::arena::{Entries, EntryId};
use super::order;
use super::writer::{GROUP_LEN, Pending};
use crate::base::{EntryKind, EntryRef, SeqNo};

/// Groups whose entries are brought in ahead of the one that is linked.
const GROUPS_AHEAD: usize = 2;

/// Entries that wait to be linked, in the order in which they came.
#[derive(Default)]
pub(super) struct Staged {
    list: Vec<StagedEntry>,
    /// Leading bytes that all their keys share.
    shared: usize,
}

#[derive(Clone, Copy)]
struct StagedEntry {
    /// The head of its key behind what all share; made when it is sorted.
    head: u64,
    /// How many came before.
    number: u32,
    id: EntryId,
}

impl Staged {
    fn push(&mut self, entries: &Entries, pending: &Pending<'_>) {
        let key = pending.key;
        self.shared = match self.list.first() {
            None => key.len(),
            Some(first) => order::shared_bytes(&entries.key(first.id)[..self.shared], key),
        };
        let number = u32::try_from(self.list.len()).expect("an arena has fewer entries");
        self.list.push(StagedEntry { head: 0, number, id: pending.id });
    }

    /// Sorts them roughly by key: of equal heads in the order in which they came (G2).
    fn sort(&mut self, entries: &Entries) {
        for entry in &mut self.list {
            entry.head = order::head_of(entries.key(entry.id), self.shared);
        }
        self.list.sort_unstable_by_key(|entry| (entry.head, entry.number));
    }
}

impl Writer<'_> {
    /// Adds the entries of one commit, in their order, as [`Writer::insert_batch`] does. But nobody
    /// finds them before [`Writer::link_staged`].
    ///
    /// # Panics
    /// As [`Writer::insert_batch`].
    pub(crate) fn stage<'e>(
        &mut self,
        seqno: SeqNo,
        batch: impl IntoIterator<Item = (&'e [u8], EntryKind, &'e [u8])>,
    ) {
        let entry = |(key, kind, value)| EntryRef { key, seqno, kind, value };
        let mut batch = batch.into_iter().map(entry);
        loop {
            let mut group = [None; GROUP_LEN];
            for (slot, entry) in group.iter_mut().zip(&mut batch) {
                *slot = Some(self.append(&entry));
            }
            for pending in group.iter().flatten() {
                self.add_to_filter(pending); // G1
                self.state.staged.push(&self.memtable.entries, pending);
            }
            if group.last().is_none_or(Option::is_none) {
                return;
            }
        }
    }

    /// Links what is staged: every reader that begins after the call finds it.
    pub(crate) fn link_staged(&mut self) {
        let mut staged = std::mem::take(&mut self.state.staged);
        let entries = &self.memtable.entries;
        staged.sort(entries);
        for (index, part) in staged.list.chunks(GROUP_LEN).enumerate() {
            let ahead = staged.list.get((index + GROUPS_AHEAD) * GROUP_LEN..).unwrap_or(&[]);
            for entry in ahead.iter().take(GROUP_LEN) {
                entries.prefetch(entry.id);
            }
            let mut group = [None; GROUP_LEN];
            for (slot, StagedEntry { id, .. }) in group.iter_mut().zip(part) {
                let EntryRef { key, seqno, .. } = entries.entry(*id);
                // Unused: it is in the filter (G1).
                let (hash, data_size) = (0, 0);
                *slot = Some(Pending { key, seqno, id: *id, hash, data_size });
            }
            self.link_group(&group);
        }
        self.publish_memory();
    }
}
