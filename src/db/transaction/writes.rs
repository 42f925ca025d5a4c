//! What a transaction will write: a batch, and for each keyspace a memtable of the same, which its
//! reads look into. Large values lie in that memtable as well: nothing of a transaction is on disk
//! before it is committed.

use std::sync::Arc;

use crate::base::ValuePointer;
use crate::base::{EntryKind, Error, Expiring, KeptStamps, KeyRange, Lifetime, Operands};
use crate::base::{Result, SeqNo, Slice};
use crate::db::batch::{BatchMark, WriteBatch, check_archived_len, payload_refusal};
use crate::db::keyspace::Keyspace;
use crate::db::operation::Write;
use crate::memtable::{Filtering, Memtable, MemtableConfig, SpareChunks};

/// Bytes that the memtable of a transaction is made for: few transactions write more.
const EXPECTED_BYTES: usize = 64 << 10;
/// The writes of a transaction have stamps of their own while it is open: above every commit's, and
/// rising, so that what is deleted with a range is older than what is written behind that.
const STAMP_FIRST: u64 = u64::MAX - (1 << 40);

/// The stamp of an entry, as it is told: one that is not committed has none yet.
pub(super) fn told_stamp(seqno: SeqNo) -> SeqNo {
    if seqno.as_u64() >= STAMP_FIRST { SeqNo::MAX } else { seqno }
}

/// The writes so far.
#[derive(Debug, Default)]
pub(super) struct Writes {
    batch: WriteBatch,
    /// By keyspace; a handful.
    memtables: Vec<(u32, Arc<Memtable>)>,
    /// How many operations went to memtables, ever.
    stamp_count: u64,
    /// The now of the transaction: what expires some time after the commit is shown as if that were
    /// at once. 0 while nothing expires.
    now: u64,
}

/// What was written to a key last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// A value, and when it expires.
    Value(Slice, Option<u64>),
    Deleted,
    /// Operands were merged into it; whether into what it had before the transaction.
    Merged(Onto),
}

/// What the transaction has merged operands into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onto {
    Own,
    Others,
}

/// A moment to which the writes can go back.
#[derive(Clone, Debug)]
pub(super) struct Mark(BatchMark);

impl Writes {
    /// None so far, of a transaction that judges by this now.
    pub(super) fn new(now: u64) -> Writes {
        Writes { now, ..Writes::default() }
    }

    /// The now that the transaction's own writes are judged by.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Bytes of memory taken.
    pub(super) fn memory_used(&self) -> usize {
        let memtables = self.memtables.iter().map(|(_, memtable)| memtable.memory_used());
        self.batch.size() + memtables.sum::<usize>()
    }

    /// The keyspaces that were written to.
    pub(super) fn keyspaces(&self) -> Vec<u32> {
        self.memtables.iter().map(|(id, _)| *id).collect()
    }

    /// What was written to a keyspace, if anything.
    pub(super) fn memtable(&self, keyspace: u32) -> Option<Arc<Memtable>> {
        let found = self.memtables.iter().find(|(id, _)| *id == keyspace);
        found.map(|(_, memtable)| Arc::clone(memtable))
    }

    /// What was written to `key`.
    pub(super) fn find(&self, keyspace: u32, key: &[u8]) -> Option<Written> {
        let (_, memtable) = self.memtables.iter().find(|(id, _)| *id == keyspace)?;
        let entry = memtable.get(key, SeqNo::MAX);
        let deleted = memtable.range_deletion_of(key, SeqNo::MAX);
        match entry {
            Some(entry) if deleted.is_none_or(|deleted| deleted < entry.seqno) => Some(match entry
                .kind
            {
                EntryKind::Tombstone => Written::Deleted,
                EntryKind::Value | EntryKind::Pointer => {
                    Written::Value(Slice::from(entry.value), None)
                }
                EntryKind::Composite => {
                    if let Some(Expiring { until, value, .. }) = Expiring::decode(entry.value) {
                        let value = Written::Value(Slice::from(value), Some(until));
                        return Some(if until <= self.now { Written::Deleted } else { value });
                    }
                    let bytes = memtable.stacked(entry);
                    let operands = Operands::decode(&bytes).expect("they were just put together");
                    Written::Merged(if operands.is_open() { Onto::Others } else { Onto::Own })
                }
            }),
            _ => deleted.map(|_| Written::Deleted),
        }
    }

    /// Adds a value, a deletion, or an operand.
    pub(super) fn add(
        &mut self,
        keyspace: &Keyspace,
        write: Write<'_>,
        spares: &Arc<SpareChunks>,
    ) -> Result<()> {
        if let Some(refusal) = self.batch.refusal(write) {
            return Err(Error::invalid(refusal));
        }
        if keyspace.limits_archived_keys() {
            write.key().map_or(Ok(()), check_archived_len)?;
        }
        match write {
            Write::Put { key, value } => {
                let lifetime = keyspace.default_lifetime();
                if lifetime != Lifetime::Forever {
                    let write = Write::PutExpiring { key, value, lifetime };
                    return self.add(keyspace, write, spares);
                }
                self.batch.put(keyspace, key, value);
            }
            Write::PutExpiring { key, value, lifetime } => {
                if lifetime != Lifetime::Forever {
                    keyspace.check_takes_expiry()?;
                    if self.now == 0 {
                        self.now = keyspace.time().now();
                    }
                }
                self.batch.put_for(keyspace, key, value, lifetime);
            }
            Write::Delete { key } => self.batch.delete(keyspace, key),
            Write::Merge { key, operand } => {
                keyspace.check_merge(key, operand)?;
                self.batch.merge(keyspace, key, operand);
            }
            Write::PutPointer { .. }
            | Write::PutPointerExpiring { .. }
            | Write::DeleteRange { .. } => unreachable!("of one key"),
        }
        self.apply(keyspace.id(), write, spares);
        Ok(())
    }

    /// Has the batch be this one. What in it is to be read is then to be shown.
    pub(super) fn set_batch(&mut self, batch: WriteBatch) {
        self.batch = batch;
    }

    /// Has reads see an operation that the batch has.
    pub(super) fn show(
        &mut self,
        keyspace: &Keyspace,
        write: Write<'_>,
        spares: &Arc<SpareChunks>,
    ) {
        if matches!(write, Write::PutExpiring { .. }) && self.now == 0 {
            self.now = keyspace.time().now();
        }
        self.apply(keyspace.id(), write, spares);
    }

    /// Deletes a range.
    pub(super) fn delete_range(
        &mut self,
        keyspace: &Keyspace,
        range: &KeyRange,
        spares: &Arc<SpareChunks>,
    ) -> Result<()> {
        let (start, end) = range.half_open();
        if end.as_ref().is_some_and(|end| *end <= start) {
            return Ok(());
        }
        let write = Write::DeleteRange { start: &start, end: end.as_deref() };
        if let Some(refusal) = self.batch.refusal(write) {
            return Err(Error::invalid(refusal));
        }
        self.batch.delete_key_range(keyspace, range);
        self.apply(keyspace.id(), write, spares);
        Ok(())
    }

    /// Keeps bytes with the commit.
    pub(super) fn set_payload(&mut self, payload: Arc<[u8]>) -> Result<()> {
        if let Some(refusal) = payload_refusal(&payload) {
            return Err(Error::invalid(refusal));
        }
        self.batch.set_payload(payload);
        Ok(())
    }

    /// This moment.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.batch.mark())
    }

    /// Goes back to a moment.
    pub(super) fn truncate(&mut self, mark: &Mark, spares: &Arc<SpareChunks>) {
        self.batch.truncate(&mark.0);
        self.memtables.clear();
        let batch = std::mem::take(&mut self.batch);
        for operation in batch.operations() {
            let write = match operation.write {
                Write::PutPointer { key, pointer } => {
                    Write::Put { key, value: staged_value(&batch, pointer) }
                }
                Write::PutPointerExpiring { key, pointer, lifetime } => {
                    Write::PutExpiring { key, value: staged_value(&batch, pointer), lifetime }
                }
                other => other,
            };
            self.apply(operation.keyspace, write, spares);
        }
        self.batch = batch;
    }

    pub(super) fn into_batch(self) -> WriteBatch {
        self.batch
    }

    /// Puts an operation into the memtable of its keyspace.
    fn apply(&mut self, keyspace: u32, write: Write<'_>, spares: &Arc<SpareChunks>) {
        let known = self.memtables.iter().position(|(id, _)| *id == keyspace);
        let index = known.unwrap_or_else(|| {
            let filtering = Filtering::Bloom;
            // Reads see all that was written so far: no older deletion counts.
            let range_stamps = KeptStamps::Newest;
            let config = MemtableConfig { expected_bytes: EXPECTED_BYTES, filtering, range_stamps };
            self.memtables.push((keyspace, Arc::new(Memtable::new(config, spares))));
            self.memtables.len() - 1
        });
        let seqno = SeqNo::from_u64(STAMP_FIRST + self.stamp_count);
        self.stamp_count += 1;
        let mut writer = self.memtables[index].1.writer();
        match write {
            Write::Put { key, value } => {
                writer.insert_batch(seqno, [(key, EntryKind::Value, value)]);
            }
            Write::PutExpiring { key, value, lifetime } => match lifetime.end_from(self.now) {
                None => writer.insert_batch(seqno, [(key, EntryKind::Value, value)]),
                Some(until) => {
                    let kind = EntryKind::Value;
                    let bytes = Expiring { until, kind, value }.encode();
                    self.memtables[index].1.note_expiring();
                    writer.insert_batch(seqno, [(key, EntryKind::Composite, &*bytes)]);
                }
            },
            Write::PutPointer { .. } | Write::PutPointerExpiring { .. } => {
                unreachable!("a transaction knows its values")
            }
            Write::Delete { key } => {
                writer.insert_batch(seqno, [(key, EntryKind::Tombstone, &[][..])]);
            }
            Write::DeleteRange { start, end } => writer.delete_ranges(seqno, [(start, end)]),
            Write::Merge { key, operand } => {
                writer
                    .insert_batch(seqno, [(key, EntryKind::Composite, &*Operands::open(operand))]);
            }
        }
    }
}

fn staged_value<'b>(batch: &'b WriteBatch, pointer: &[u8]) -> &'b [u8] {
    let pointer = ValuePointer::decode(pointer).expect("the batch encoded it");
    batch.staged_value(&pointer)
}
