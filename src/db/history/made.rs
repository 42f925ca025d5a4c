//! What operands come to on their way into an archive: values as of their versions.
//!
//! Operands of a memtable are versions of their own, each on the next older one. Made one by one,
//! each version's value would be written whole, and a key that has long been appended to would take
//! the square of its operands. So a version is made where that costs no more than some times what
//! has led to it: when the operands since the last one that was made take as much as that one's
//! value, or a sixteenth of it where it is large. The others go to the archive as operands on the
//! next older version. A key then takes some times what was merged into it, and to read a version
//! costs about what its value takes: a step past an operand costs more than copying its bytes.
//! Counters, and what else stays small, are made each time.
//!
//! What cannot be made, as the operator is missing or fails, stays operands. It is tried again when
//! twice as much has come, and twice that, whether in one memtable or in many.
//!
//! Invariants
//! - M1  What the archive has already of a key counts, and is not made again: behind a crash it may
//!   have less of what is older than it had, as compactions leave out what is not kept.
//! - M2  Of one key, values that wait to be shown take no more than some times its operands in the
//!   memtable, and one value; they, and what these are merged into, are charged.
//! - M3  Operands that follow one another as versions take no more than the value in front of them,
//!   nor than 64 KiB or a 16th of that, where that is more; but such as cannot be made.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::{EntryKind, EntryRef, MergeBase, Operands, Result, SeqNo, ValuePointer};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::db::state::Runtime;
use crate::operator::Merging;
use crate::structure::Found;
use crate::value_log::{Mover, ValueLog};

/// What a version of operands takes beside them, about.
const VERSION_COST: usize = 16;
/// Of a large value so much, and no more, is merged into it before it is made ..
const LARGE_FRACTION: usize = 16;
/// .. but this much, if that is not more than the value.
const OPERANDS_MIN: usize = 64 << 10;
/// Less of what cannot be made is tried again with every operand.
const RETRY_MIN: usize = 64;
/// The charge for memory changes by so much at least.
const CHARGE_STEP: usize = 16 << 10;

/// What the archive has of a key: up to which stamp, and what it is as of that.
pub(super) type Archived = Option<(SeqNo, Option<Found>)>;

/// What a key is in front of its next version.
#[derive(Debug)]
enum Before {
    /// What the archive says.
    Archived,
    Nothing,
    Value(Vec<u8>),
    Pointer(Vec<u8>),
    /// Operands, in [`Maker::stack`].
    Operands,
}

/// What a version of operands is written as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub kind: EntryKind,
    pub value: Vec<u8>,
}

/// Makes values of the operands of one memtable, key after key.
#[derive(Debug)]
pub(super) struct Maker {
    merging: Arc<Merging>,
    values: Arc<ValueLog>,
    /// Writes large values.
    mover: Mover,
    /// The store that they are written for.
    store: u32,
    /// Values of so many bytes go to the value log.
    separated_from: usize,
    memory: Charge,
    // Of the key at hand.
    before: Before,
    /// What there was when a value was last made or put, with the operands since.
    stack: Vec<u8>,
    /// What the operands since take.
    cost: usize,
    /// When they take this much, a value is made of them.
    make_at: usize,
    /// Of versions up to this one the archive has everything.
    archived_to: Option<SeqNo>,
    /// Values of versions, the newest last.
    made: Vec<(SeqNo, Made)>,
    made_bytes: usize,
}

impl Maker {
    /// Makes values of a keyspace for its archive.
    pub(super) fn new(keyspace: &Runtime, archive: &Runtime, budget: &Arc<MemoryBudget>) -> Maker {
        let separated_from = keyspace.options.value_separation;
        Maker {
            merging: Arc::clone(keyspace.store.merging()),
            values: Arc::clone(&keyspace.values),
            mover: Mover::new(&keyspace.values, BTreeSet::new()),
            store: archive.store_id,
            separated_from: separated_from.map_or(usize::MAX, |from| from as usize),
            memory: budget.charge(Part::Buffer, 0),
            before: Before::Archived,
            stack: Vec::new(),
            cost: 0,
            make_at: 0,
            archived_to: None,
            made: Vec::new(),
            made_bytes: 0,
        }
    }

    /// Begins with the versions of a key, which come the oldest first.
    pub(super) fn begin_key(&mut self) {
        self.before = Before::Archived;
        self.stack.clear();
        self.archived_to = None;
        self.made.clear();
        self.made_bytes = 0;
    }

    /// The key was deleted.
    pub(super) fn note_deleted(&mut self) {
        self.before = Before::Nothing;
    }

    /// The key was put, as this entry says.
    pub(super) fn note_put(&mut self, entry: EntryRef<'_>, more: More) {
        if more == More::Nothing {
            return; // Nobody merges into it.
        }
        self.before = match entry.kind {
            EntryKind::Pointer => Before::Pointer(entry.value.to_vec()),
            _ => Before::Value(entry.value.to_vec()),
        };
        self.charge_held();
    }

    /// Something was merged into the key. `archived` asks what the archive has of it. Whether the
    /// version is not there yet.
    ///
    /// # Errors
    /// What reading failed with, or writing a large value.
    pub(super) fn take(
        &mut self,
        entry: EntryRef<'_>,
        base: MergeBase<'_>,
        archived: impl FnOnce() -> Result<Archived>,
    ) -> Result<bool> {
        let EntryRef { key, seqno, value, .. } = entry;
        let merging = Arc::clone(&self.merging);
        let operands = merging.decode(value)?;
        if matches!(self.before, Before::Archived) && base == MergeBase::Below {
            self.begin_with(archived()?)?;
        }
        if self.archived_to.is_some_and(|to| seqno <= to) {
            return Ok(false); // M1
        }
        self.push(&operands, base);
        if self.cost >= self.make_at {
            self.make(key, seqno)?;
        }
        self.charge_held();
        Ok(true)
    }

    /// Charges what is held of the key at hand; twice what is merged into, of which there is a copy
    /// while a value is made.
    fn charge_held(&mut self) {
        let before = match &self.before {
            Before::Value(bytes) | Before::Pointer(bytes) => bytes.len(),
            Before::Archived | Before::Nothing | Before::Operands => 0,
        };
        let made = self.made_bytes + self.made.len() * size_of::<(SeqNo, Made)>();
        let held = (made + 2 * (self.stack.len() + before)).next_multiple_of(CHARGE_STEP);
        if held != self.memory.bytes() {
            self.memory.resize(held);
        }
    }

    /// Whether the archive has this version already.
    pub(super) fn has_archived(&self, stamp: SeqNo) -> bool {
        self.archived_to.is_some_and(|to| stamp <= to)
    }

    /// Goes on from what the archive has.
    fn begin_with(&mut self, archived: Archived) -> Result<()> {
        let Some((stamp, found)) = archived else {
            self.before = Before::Nothing;
            return Ok(());
        };
        self.archived_to = Some(stamp);
        let Some(Found { kind, value, .. }) = found else {
            self.before = Before::Nothing;
            return Ok(());
        };
        self.before = match kind {
            EntryKind::Tombstone => Before::Nothing,
            EntryKind::Value => Before::Value(value.to_vec()),
            EntryKind::Pointer => Before::Pointer(value.to_vec()),
            EntryKind::Composite => {
                let operands = self.merging.decode(&value)?;
                self.cost = operands.size() + VERSION_COST * operands.iter().count();
                self.make_at = make_at(len_of(operands.base));
                if self.cost >= self.make_at {
                    // It could not be made then.
                    self.make_at = retry_at(self.make_at, self.cost);
                }
                self.stack = value.to_vec();
                Before::Operands
            }
        };
        Ok(())
    }

    /// Puts operands on top of what there is, or on a base of their own.
    fn push(&mut self, operands: &Operands<'_>, base: MergeBase<'_>) {
        if base != MergeBase::Below {
            self.restart(base);
        } else {
            match std::mem::replace(&mut self.before, Before::Operands) {
                Before::Archived | Before::Nothing => self.restart(MergeBase::Nothing),
                Before::Value(value) => self.restart(MergeBase::Value(&value)),
                Before::Pointer(pointer) => self.restart(MergeBase::Pointer(&pointer)),
                Before::Operands => {}
            }
        }
        Operands::extend(&mut self.stack, operands);
        self.cost += operands.size() + VERSION_COST;
        self.before = Before::Operands;
    }

    fn restart(&mut self, base: MergeBase<'_>) {
        self.stack = Operands::begin(base);
        (self.cost, self.make_at) = (0, make_at(len_of(base)));
    }

    /// Makes the value of the version of this stamp, if that can be.
    fn make(&mut self, key: &[u8], stamp: SeqNo) -> Result<()> {
        self.make_at = retry_at(self.make_at, self.cost);
        let operands = self.merging.decode(&self.stack)?;
        let existing = match operands.base {
            MergeBase::Below | MergeBase::Nothing => None,
            MergeBase::Value(value) => Some(value.to_vec()),
            MergeBase::Pointer(pointer) => match self.values.read(pointer) {
                Ok(value) => Some(value.to_vec()),
                // Who reads the version is told.
                Err(error) if error.is_corruption() => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        let Ok(value) = self.merging.value_of_version(key, existing, &operands) else {
            return Ok(());
        };
        let made = match value.len() < self.separated_from {
            true => Made { kind: EntryKind::Value, value: value.clone() },
            false => {
                let placed = self.mover.place(self.store, &value)?;
                Made { kind: EntryKind::Pointer, value: placed.encode().to_vec() }
            }
        };
        self.restart(MergeBase::Value(&value));
        self.made_bytes += made.value.len();
        self.made.push((stamp, made));
        Ok(())
    }

    /// What the version of this stamp was made to, if it was made; asked the newest first.
    pub(super) fn take_made(&mut self, stamp: SeqNo) -> Option<Made> {
        let (_, made) = self.made.pop_if(|(of, _)| *of == stamp)?;
        self.made_bytes -= made.value.len();
        Some(made)
    }

    /// Makes large values durable, in front of what points to them (X7).
    pub(super) fn finish(&mut self) -> Result<()> {
        self.memory.resize(0);
        match self.mover.bytes() {
            0 => Ok(()),
            _ => self.mover.finish_slice(),
        }
    }

    /// What has written large values, to be told what became of them.
    pub(super) fn into_mover(self) -> Mover {
        self.mover
    }
}

/// How much operands on a value of so many bytes take when a value is made of them (M3).
fn make_at(base_len: usize) -> usize {
    base_len.min(OPERANDS_MIN.max(base_len / LARGE_FRACTION))
}

/// How much operands take when they are tried again, of which nothing could be made at `failed`, or
/// twice that, and so on, up to `cost`: twice as much each time, also where the next memtable finds
/// them in the archive.
fn retry_at(failed: usize, cost: usize) -> usize {
    let mut at = failed.max(RETRY_MIN);
    while at <= cost {
        at = at.saturating_mul(2);
    }
    at
}

/// Whether a key has versions behind the one at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    Nothing,
    Versions,
}

/// Bytes of the value that is merged into.
fn len_of(base: MergeBase<'_>) -> usize {
    match base {
        MergeBase::Below | MergeBase::Nothing => 0,
        MergeBase::Value(value) => value.len(),
        MergeBase::Pointer(pointer) => {
            ValuePointer::decode(pointer).map_or(0, |pointer| pointer.len as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_when_as_much_was_merged_or_a_part_of_what_is_large() {
        const MIB: usize = 1 << 20;
        for (base, at) in [
            (0, 0),
            (100, 100),
            (64 << 10, 64 << 10),
            (MIB, 64 << 10),
            (2 * MIB, 128 << 10),
            (64 * MIB, 4 * MIB),
        ] {
            assert_eq!(make_at(base), at, "{base}");
        }
    }

    #[test]
    fn what_fails_is_tried_again_with_twice_as_much_whoever_finds_it() {
        for failed in [0, 25, 1000, 70_000] {
            let (mut tries, mut at) = (0, failed);
            for cost in (25..10_000_000).step_by(25) {
                // As if each operand came with a memtable of its own.
                let found = if cost - 25 >= failed { retry_at(failed, cost - 25) } else { failed };
                assert!(found >= at || failed == 0, "{found} and {at} of {failed}");
                at = found;
                tries += u32::from(cost >= at);
            }
            assert!(tries <= 20, "{tries} tries of {failed}");
        }
    }
}
