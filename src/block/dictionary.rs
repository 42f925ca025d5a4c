//! Dictionaries: what the blocks of one file have in common, so that each is packed smaller than it
//! could be alone. They are of Zstandard, and trained from some of the blocks.
//!
//! Without the feature `zstd` there are none: the types are there, and nothing of them.

use std::fmt;

/// A dictionary as blocks are packed with it, at the level that it was made for.
pub struct PackingDictionary(pub(super) prepared::Packing);

/// A dictionary as blocks are unpacked with it.
pub struct Dictionary(pub(super) prepared::Unpacking);

impl PackingDictionary {
    /// Prepares a dictionary; `None` when this program has none.
    #[must_use]
    pub fn new(bytes: &[u8], level: u8) -> Option<PackingDictionary> {
        prepared::packing(bytes, level).map(PackingDictionary)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        prepared::packing_size(&self.0)
    }
}

impl Dictionary {
    /// Prepares a dictionary; `None` when this program has none, or the bytes are none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Dictionary> {
        prepared::unpacking(bytes).map(Dictionary)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        prepared::unpacking_size(&self.0)
    }
}

impl fmt::Debug for PackingDictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackingDictionary").finish_non_exhaustive()
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").finish_non_exhaustive()
    }
}

/// A dictionary of up to `size_max` bytes for what is like `samples`, which lie one behind the
/// other with these sizes; `None` when they do not come to one.
#[must_use]
pub fn train(samples: &[u8], sizes: &[usize], size_max: usize) -> Option<Vec<u8>> {
    prepared::train(samples, sizes, size_max)
}

#[cfg(feature = "zstd")]
mod prepared {
    use zstd::zstd_safe::{CDict, DDict, MAGIC_DICTIONARY};

    const MAGIC: [u8; 4] = MAGIC_DICTIONARY.to_le_bytes();

    pub type Packing = CDict<'static>;
    pub type Unpacking = DDict<'static>;

    pub fn packing(bytes: &[u8], level: u8) -> Option<Packing> {
        CDict::try_create(bytes, i32::from(level))
    }

    pub fn packing_size(packing: &Packing) -> usize {
        packing.sizeof()
    }

    pub fn unpacking(bytes: &[u8]) -> Option<Unpacking> {
        // Other bytes would be taken for what is in front of every block.
        bytes.starts_with(&MAGIC).then_some(())?;
        DDict::try_create(bytes)
    }

    pub fn unpacking_size(unpacking: &Unpacking) -> usize {
        unpacking.sizeof()
    }

    pub fn train(samples: &[u8], sizes: &[usize], size_max: usize) -> Option<Vec<u8>> {
        zstd::dict::from_continuous(samples, sizes, size_max).ok()
    }
}

#[cfg(not(feature = "zstd"))]
mod prepared {
    use std::convert::Infallible;

    pub type Packing = Infallible;
    pub type Unpacking = Infallible;

    pub fn packing(_: &[u8], _: u8) -> Option<Packing> {
        None
    }

    pub fn packing_size(packing: &Packing) -> usize {
        match *packing {}
    }

    pub fn unpacking(_: &[u8]) -> Option<Unpacking> {
        None
    }

    pub fn unpacking_size(unpacking: &Unpacking) -> usize {
        match *unpacking {}
    }

    pub fn train(_: &[u8], _: &[usize], _: usize) -> Option<Vec<u8>> {
        None
    }
}
