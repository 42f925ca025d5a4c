//! Inserting commits into memtables: plain ones as they are; of others, what their operations come
//! to together.
//!
//! All entries of a commit have one stamp. So what a later operation of the commit does to an
//! earlier one is decided here: an entry that the commit itself deletes with a range is left out,
//! and what is merged into a key becomes one entry with what the commit did to the key before.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{
    EntryKind, Expiring, GrowingTombstones, KeptStamps, MergeBase, Operands, RangeTombstones, SeqNo,
};
use crate::db::operation::{Operation, Write};
use crate::db::state::Table;
use crate::memtable::Writer;
use crate::value_log::ValueLog;

/// Inserts one commit's entries for one keyspace.
pub(super) fn insert_entries<'a>(
    table: &Table,
    seqno: SeqNo,
    place: (u64, u64),
    entries: impl IntoIterator<Item = (&'a [u8], EntryKind, &'a [u8])>,
) {
    let mut writer = table.memtable.writer();
    if table.presence.is_on() {
        insert_noted(&mut writer, table, seqno, entries);
    } else {
        writer.insert_batch(seqno, entries);
    }
    drop(writer);
    table.note_commit(place.0, place.1);
}

/// Inserts entries of which counts are kept (P3).
#[cold]
fn insert_noted<'a>(
    writer: &mut Writer<'_>,
    table: &Table,
    seqno: SeqNo,
    entries: impl IntoIterator<Item = (&'a [u8], EntryKind, &'a [u8])>,
) {
    let entries: Vec<_> = entries.into_iter().collect();
    table.presence.note(seqno, entries.iter().map(|(key, ..)| *key));
    writer.insert_batch(seqno, entries);
}

/// From when on the entries of a commit can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linking {
    /// From now on.
    AtOnce,
    /// From when what is staged is linked ([`Table::link_staged`]).
    Later,
}

/// Which commit it is, and where the log has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitPlace {
    pub seqno: SeqNo,
    /// Where its record starts and ends.
    pub place: (u64, u64),
}

/// Inserts a commit that deletes ranges, merges, puts what expires, or has values in the value log:
/// all its operations, in their order. `find` says where those on a keyspace go, if it is still
/// there.
#[cold]
pub(super) fn insert_commit<'t>(
    commit: CommitPlace,
    linking: Linking,
    mut operations: Vec<Operation<'_>>,
    find: impl Fn(u32) -> Option<(&'t Table, &'t ValueLog)>,
) {
    operations.sort_by_key(|operation| operation.keyspace); // Stable: in order for each.
    for of_keyspace in operations.chunk_by(|a, b| a.keyspace == b.keyspace) {
        if let Some((table, values)) = find(of_keyspace[0].keyspace) {
            insert_operations(commit, linking, (table, values), of_keyspace);
        }
    }
}

fn insert_operations(
    commit: CommitPlace,
    linking: Linking,
    (table, values): (&Table, &ValueLog),
    operations: &[Operation<'_>],
) {
    let CommitPlace { seqno, place } = commit;
    let entries = entries_of(operations, seqno);
    if operations.iter().any(|operation| operation.write.expiring().is_some()) {
        table.memtable.note_expiring(); // In front of the entries: who sees these has to know.
    }
    let entries = entries.iter().map(|(key, kind, value)| (*key, *kind, &**value));
    let mut writer = table.memtable.writer();
    if table.presence.is_on() {
        table.presence.note(seqno, entries.clone().map(|(key, ..)| key)); // P3
    }
    match linking {
        Linking::AtOnce => writer.insert_batch(seqno, entries),
        Linking::Later => writer.stage(seqno, entries),
    }
    writer.delete_ranges(seqno, deletions_in(operations).map(|(_, range)| range));
    drop(writer);
    let pointers: Vec<&[u8]> = operations.iter().filter_map(Operation::pointer).collect();
    if !pointers.is_empty() {
        table.hold_values(values, &pointers);
    }
    table.note_commit(place.0, place.1);
}

type Entry<'a> = (&'a [u8], EntryKind, Cow<'a, [u8]>);

/// The entries that operations on one keyspace come to. Of two on one key the later counts, as the
/// memtable has it. In a memtable, an entry of the commit that deletes a range stays: those are
/// left out that the commit has written before the deletion.
///
/// What expires does so counted from the stamp of the commit, so that replaying the log comes to
/// the same.
fn entries_of<'a>(operations: &[Operation<'a>], seqno: SeqNo) -> Vec<Entry<'a>> {
    let deleted = later_deletions(operations);
    let is_deleted = |operation: &Operation<'_>, key: &[u8]| {
        let last = deleted.covering(key, SeqNo::MAX);
        last.is_some_and(|range| range.seqno.as_u64() > operation.offset as u64)
    };
    let merges = operations.iter().any(|operation| matches!(operation.write, Write::Merge { .. }));
    let mut entries: Vec<Entry<'a>> = Vec::with_capacity(operations.len());
    let mut newest: BTreeMap<&[u8], usize> = BTreeMap::new();
    for operation in operations {
        let Some(key) = operation.write.key().filter(|key| !is_deleted(operation, key)) else {
            continue;
        };
        let known = newest.get(key).copied().filter(|_| merges);
        match (known.map(|index| &mut entries[index]), operation.write) {
            (Some(entry), Write::Merge { operand, .. }) => merge_into(entry, operand),
            (Some(entry), other) => {
                let Some((kind, value)) = entry_of(other, seqno) else { continue };
                (entry.1, entry.2) = (kind, value);
            }
            (None, write) => {
                let entry = match write {
                    Write::Merge { operand, .. } => {
                        (key, EntryKind::Composite, Cow::Owned(Operands::open(operand)))
                    }
                    other => {
                        let Some((kind, value)) = entry_of(other, seqno) else { continue };
                        (key, kind, value)
                    }
                };
                if merges {
                    newest.insert(key, entries.len());
                }
                entries.push(entry);
            }
        }
    }
    entries
}

/// Puts an operand on top of what the commit did to the key before. O(n) in its bytes alone where
/// that has operands, so that a commit with many on one key is not quadratic.
fn merge_into((_, kind, value): &mut Entry<'_>, operand: &[u8]) {
    let base = match *kind {
        EntryKind::Composite => return Operands::push(value.to_mut(), operand),
        EntryKind::Value => MergeBase::Value(value),
        EntryKind::Pointer => MergeBase::Pointer(value),
        EntryKind::Tombstone => MergeBase::Nothing,
    };
    let bytes = Operands::single(base, operand);
    (*kind, *value) = (EntryKind::Composite, Cow::Owned(bytes));
}

/// The entry that a write of one key makes by itself; none if it merges.
fn entry_of(write: Write<'_>, seqno: SeqNo) -> Option<(EntryKind, Cow<'_, [u8]>)> {
    let Some((_, kind, value, lifetime)) = write.expiring() else {
        return write.entry().map(|(_, kind, value)| (kind, Cow::Borrowed(value)));
    };
    Some(match lifetime.end(seqno) {
        Some(until) => (EntryKind::Composite, Cow::Owned(Expiring { until, kind, value }.encode())),
        None => (kind, Cow::Borrowed(value)),
    })
}

/// The ranges that operations delete, each with the offset of its operation in place of a stamp.
fn later_deletions(operations: &[Operation<'_>]) -> Arc<RangeTombstones> {
    let mut found = GrowingTombstones::new(KeptStamps::Newest);
    for (offset, range) in deletions_in(operations) {
        found.add(RangeTombstones::of([range], SeqNo::from_u64(offset as u64)));
    }
    found.whole()
}

/// The ranges that operations delete, each with the offset of its operation.
fn deletions_in<'a>(
    operations: &[Operation<'a>],
) -> impl Iterator<Item = (usize, (&'a [u8], Option<&'a [u8]>))> {
    operations.iter().filter_map(|Operation { offset, write, .. }| match *write {
        Write::DeleteRange { start, end } => Some((*offset, (start, end))),
        _ => None,
    })
}
