//! Salvage: reading what is left of a store whose files are damaged or gone.
//!
//! A store is taken apart into *layers*: sources of entries with rising keys, which are merged. A
//! piece of one that cannot be read is a *gap* in a range of keys. What lies in layers that are
//! newer than a gap is right; what shows through from older ones is *doubtful*: the lost piece may
//! have said something else, or that the key is gone.
//!
//! | file | what |
//! |---|---|
//! | `file.rs` | frames of a file, found past damage |
//! | `merge.rs` | layers as one sequence of entries, and what it could not tell |
//! | `fuzz.rs` | both, of frames that say anything |
//! | `../flex/salvage.rs`, `../lsm/salvage.rs` | the layers of a store |
//!
//! Invariants
//! - Z1  Nothing is taken whose checksum does not hold at its place in the file that it must be in.
//! - Z2  Whatever entry is given as right is the newest of its key that the store had.
//! - Z3  In memory are one block of each layer that has the key at hand, and what says where the
//!   others lie.
//! - Z4  Bytes that verify may be made on purpose: what they say is what a layer can have, or it is
//!   damage. Searching takes time in proportion to what there is.

mod file;
mod fuzz;
mod merge;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{BegunFlush, StorePlace};
use crate::base::{Error, RangeTombstones, Result, SeqNo, Slice};
use crate::block::Block;
use crate::manifest::{LogPosition, Structure};

pub(in crate::structure) use file::{FoundFrame, Owner, Passed, SalvageFile};
pub(crate) use fuzz::fuzz_file;
pub(in crate::structure) use merge::OnePiece;
pub use merge::{Merged, SalvageMerge};

/// What could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What was expected there and what was found.
    pub what: String,
}

impl Damage {
    /// Something about a file.
    #[must_use]
    pub fn new(file: &Path, offset: u64, what: impl Into<String>) -> Damage {
        Damage { file: file.to_owned(), offset, what: what.into() }
    }

    /// What an error says; `otherwise` is the file where it names none.
    #[must_use]
    pub fn of(error: &Error, otherwise: &Path) -> Damage {
        match error {
            Error::Corruption { file, offset, what } => Damage::new(file, *offset, what.clone()),
            Error::Io { path, action, source } => {
                Damage::new(path, 0, format!("could not {action} it: {source}"))
            }
            other => Damage::new(otherwise, 0, other.to_string()),
        }
    }
}

/// A range of keys of a layer that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first key that may have been in it.
    pub start: Slice,
    /// None from this key on; `None` if it has no end.
    pub end: Option<Slice>,
    /// Why.
    pub damage: Damage,
}

impl Gap {
    /// Whether the key lies in it.
    #[must_use]
    pub fn covers(&self, key: &[u8]) -> bool {
        *self.start <= *key && !self.is_behind(key)
    }

    /// Whether it ends in front of the key.
    fn is_behind(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| **end <= *key)
    }
}

/// What a layer has next.
#[derive(Debug)]
pub enum Piece {
    /// Entries, behind all before.
    Block(Arc<Block>),
    /// Something that cannot be read.
    Gap(Gap),
    /// Something that cannot be read, and that no entry depends on.
    Harmless(Damage),
}

/// A source of entries with rising keys.
pub trait Layer: fmt::Debug {
    /// The next piece; `None` at the end.
    fn next_piece(&mut self) -> Option<Piece>;

    /// File and offset of the block that it gave last.
    fn place(&self) -> (&Path, u64);

    /// The ranges that it deletes in older layers.
    fn deleted(&self) -> Option<&RangeTombstones> {
        None
    }
}

/// A layer that is not looked at yet.
pub struct LayerPlan {
    /// None of its keys is in front of this one, or is to be looked at.
    pub first: Slice,
    /// Nor from this one on.
    pub end: Option<Slice>,
    /// The lower, the newer, where layers are ordered by that.
    pub rank: u64,
    /// Looks at it. Damage is in what it gives; what it fails with ends the walk.
    pub open: Box<dyn FnOnce() -> Result<Box<dyn Layer>>>,
}

impl fmt::Debug for LayerPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerPlan").field("first", &self.first).finish_non_exhaustive()
    }
}

/// What says which of two entries of a key is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The layers that they are in: the index says which is newer.
    Ranks,
    /// Their stamps, for the index is lost. Nothing says what was deleted and is there still; all
    /// of it is doubtful.
    Stamps,
}

/// How far a store was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// The log in front of this position is in it.
    pub log_end: u64,
    /// The newest stamp in it.
    pub last_seqno: SeqNo,
    /// Memtables that are in it in part.
    pub begun: Vec<BegunFlush>,
}

/// A store, taken apart.
#[derive(Debug)]
pub struct SalvagedStore {
    /// How far it was, if its index could be read.
    pub state: Option<StoreState>,
    /// What orders its layers.
    pub order: Order,
    /// By their first keys.
    pub layers: Vec<LayerPlan>,
    /// What could not be read and is in no layer: the index; parts of files where the index does
    /// not say what was in them.
    pub damage: Vec<Damage>,
}

/// Takes a store apart. Reads its index; where that is damaged, or does not reach `required`, all
/// of its files. Nothing is written.
///
/// # Errors
/// `FormatVersion` of what this program does not know; `KeyNeeded`. Damage is none.
pub fn salvage_store(place: &StorePlace, required: Option<LogPosition>) -> Result<SalvagedStore> {
    match place.options.structure {
        Structure::Flex | Structure::History => super::flex::salvage(place, required),
        Structure::Lsm => super::lsm::salvage(place, required),
    }
}

/// Whether it is about what is on disk, which salvaging goes past.
pub(in crate::structure) fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corruption { .. } | Error::Io { .. })
}
