//! Folding: what becomes of entries of operands on their way into runs and merged blocks.
//!
//! Operands go down with their key: through deltas, combined on the way, to where nothing older is
//! left. There they become a value, and that lies where a value of its size does. What cannot
//! become one stays operands, on what they were to be merged into: when the operator is missing or
//! fails, or damage keeps a value from being read.

use std::sync::Arc;

use crate::base::{EntryKind, EntryRef, MergeBase, Operands, Result, ValuePointer};
use crate::block::BlockBuilder;
use crate::operator::Merging;
use crate::structure::StorePlace;
use crate::value_log::{Mover, ValueLog};

/// A longer value does not stay in an entry with operands that could not be merged into it, even
/// where values are not separated: a block has no room for two that are near the limit.
const KEPT_VALUE_LEN_MAX: usize = 64 << 20;

/// Folds operands of one keyspace.
#[derive(Debug)]
pub(super) struct Folder {
    merging: Arc<Merging>,
    values: Arc<ValueLog>,
    keyspace: u32,
    /// Values of so many bytes go to the value log.
    separated_from: usize,
}

/// What an entry of operands has become.
#[derive(Debug)]
pub(super) struct Folded {
    kind: EntryKind,
    value: Vec<u8>,
}

impl Folded {
    /// The entry that it takes the place of, with this in it.
    pub(super) fn entry<'a>(&'a self, of: EntryRef<'a>) -> EntryRef<'a> {
        EntryRef { kind: self.kind, value: &self.value, ..of }
    }

    fn operands(value: Vec<u8>) -> Folded {
        Folded { kind: EntryKind::Composite, value }
    }
}

impl Folder {
    pub(super) fn new(place: &StorePlace) -> Folder {
        Folder {
            merging: Arc::clone(&place.merging),
            values: Arc::clone(&place.shared.values),
            keyspace: place.keyspace,
            separated_from: place.options.value_separation.map_or(usize::MAX, |from| from as usize),
        }
    }

    pub(super) fn merging(&self) -> &Arc<Merging> {
        &self.merging
    }

    pub(super) fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Operands<'a>> {
        self.merging.decode(bytes)
    }

    /// Open operands on top of an older entry.
    pub(super) fn over(&self, bytes: &[u8], kind: EntryKind, older: &[u8]) -> Result<Vec<u8>> {
        let stacked = self.decode(bytes)?.over(kind, older);
        stacked.ok_or_else(|| self.merging.malformed())
    }

    /// An entry of operands on top of `older` entries of its key, the newest first, as far as those
    /// have a say.
    #[cold]
    pub(super) fn stacked<'e>(
        &self,
        entry: EntryRef<'_>,
        older: impl Iterator<Item = EntryRef<'e>>,
    ) -> Result<Vec<u8>> {
        let mut bytes = entry.value.to_vec();
        for older in older {
            if !self.decode(&bytes)?.is_open() {
                break;
            }
            bytes = self.over(&bytes, older.kind, older.value)?;
        }
        Ok(bytes)
    }

    /// Adds an entry of operands to a delta run, below which others may have a say.
    #[cold]
    pub(super) fn add_to_delta(&self, delta: &mut BlockBuilder, entry: EntryRef<'_>) -> Result<()> {
        delta.add(self.folded_over_older(entry.key, entry.value)?.entry(entry))
    }

    /// An entry of operands, with as little as may be in it, where older entries may have a say.
    #[cold]
    pub(super) fn folded_over_older(&self, key: &[u8], bytes: &[u8]) -> Result<Folded> {
        let operands = self.decode(bytes)?;
        Ok(match operands.base {
            MergeBase::Below => Folded::operands(self.merging.combined(key, &operands)),
            base => self.fold_unplaced(key, &operands, base),
        })
    }

    /// As [`Self::folded_over_older`], and a large value that the operands are on is moved if it is
    /// to be: nothing older has a say about it.
    ///
    /// # Errors
    /// `Corruption` when it holds no operands; `Io`, `DiskFull`, `Closed`.
    #[cold]
    pub(super) fn moved_over_older(
        &self,
        mover: &mut Mover,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<Folded> {
        let operands = self.decode(bytes)?;
        match operands.base {
            MergeBase::Pointer(_) => self.kept_with_moved_base(mover, key, &operands),
            _ => self.folded_over_older(key, bytes),
        }
    }

    /// As [`Self::fold_into`], for a block in memory: what would go to the value log, or has to be
    /// read from there, stays operands.
    #[cold]
    pub(super) fn fold_in_memory(&self, key: &[u8], bytes: &[u8]) -> Result<Folded> {
        let operands = self.decode(bytes)?;
        let base = match operands.base {
            MergeBase::Below => MergeBase::Nothing, // X9
            base => base,
        };
        Ok(self.fold_unplaced(key, &operands, base))
    }

    fn fold_unplaced(&self, key: &[u8], operands: &Operands<'_>, base: MergeBase<'_>) -> Folded {
        let existing = match base {
            MergeBase::Value(value) => Some(value.to_vec()),
            MergeBase::Nothing => None,
            MergeBase::Below | MergeBase::Pointer(_) => return self.kept(key, operands, base),
        };
        match self.merging.value(key, existing, operands) {
            Ok(value) if value.len() < self.separated_from => {
                Folded { kind: EntryKind::Value, value }
            }
            _ => self.kept(key, operands, base),
        }
    }

    /// The value that an entry of operands makes where nothing is below it, placed in the value log
    /// if it is large.
    ///
    /// # Errors
    /// `Corruption` when it holds no operands; `Io`, `DiskFull`, `Closed`.
    #[cold]
    pub(super) fn fold_into(&self, mover: &mut Mover, key: &[u8], bytes: &[u8]) -> Result<Folded> {
        let operands = self.decode(bytes)?;
        if !self.merging.has_operator() {
            // An archive of versions: who reads them makes their values.
            return self.kept_with_moved_base(mover, key, &operands);
        }
        let existing = match operands.base {
            MergeBase::Below | MergeBase::Nothing => None, // X9
            MergeBase::Value(value) => Some(value.to_vec()),
            MergeBase::Pointer(pointer) => match self.values.read(pointer) {
                Ok(value) => Some(value.to_vec()),
                // It stays where it is, for those who read it to be told.
                Err(error) if error.is_corruption() => {
                    return Ok(self.kept(key, &operands, operands.base));
                }
                Err(error) => return Err(error),
            },
        };
        let Ok(value) = self.merging.value(key, existing, &operands) else {
            return self.kept_with_moved_base(mover, key, &operands);
        };
        if value.len() < self.separated_from {
            return Ok(Folded { kind: EntryKind::Value, value });
        }
        let placed = mover.place(self.keyspace, &value)?;
        Ok(Folded { kind: EntryKind::Pointer, value: placed.encode().to_vec() })
    }

    fn kept_with_moved_base(
        &self,
        mover: &mut Mover,
        key: &[u8],
        operands: &Operands<'_>,
    ) -> Result<Folded> {
        let moved = match operands.base {
            MergeBase::Pointer(bytes) => match ValuePointer::decode(bytes) {
                Some(pointer) => mover.moved(&pointer)?,
                None => None,
            },
            MergeBase::Value(value) if value.len() >= KEPT_VALUE_LEN_MAX => {
                Some(mover.place(self.keyspace, value)?)
            }
            _ => None,
        };
        Ok(match moved {
            Some(moved) => self.kept(key, operands, MergeBase::Pointer(&moved.encode())),
            None => self.kept(key, operands, operands.base),
        })
    }

    /// Operands that stay, as few as may be.
    fn kept(&self, key: &[u8], operands: &Operands<'_>, base: MergeBase<'_>) -> Folded {
        let bytes = operands.on(base);
        let again = Operands::decode(&bytes).expect("they were just encoded");
        Folded::operands(self.merging.combined(key, &again))
    }
}
