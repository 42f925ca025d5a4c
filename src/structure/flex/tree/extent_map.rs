//! `ExtentMap`: an address space whose bytes can be inserted and removed in the middle.
//!
//! Logical offsets run from 0 to `len` without gaps; each lies in one extent, which says where
//! its bytes are physically. Insert-range and collapse-range shift all that is behind them, at
//! O(log n). What an address means is the caller's business.
//!
//! Invariants
//! - X1  No extent is empty.
//! - X2  Neighbours never continue each other in both spaces: they would be one extent.
//!
//! So a map has one form only, however it came about.

use std::fmt::Debug;
use std::ops::Range;

use super::item::{Item, NoGuide};
use super::{Cursor, FlexTree, LEAF_CAPACITY};

/// What an extent map holds: a stretch of the address space that can be cut and joined.
pub trait MapExtent: Item<Guide = NoGuide> + Copy + Debug {
    /// Logical bytes.
    fn len(&self) -> u64;
    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The logical bytes in a sum of sizes.
    fn len_in(size: &Self::Size) -> u64;
    /// The first `len` bytes.
    #[must_use]
    fn head(self, len: u64) -> Self;
    /// All but the first `len` bytes; all of them for 0.
    #[must_use]
    fn tail(self, len: u64) -> Self;
    /// Both as one extent, if `next` continues this one.
    fn joined(self, next: Self) -> Option<Self>;
}

/// `len` bytes from physical address `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where the first byte is.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl Item for Extent {
    type Size = u64;
    type Guide = NoGuide;

    #[inline]
    fn size(&self) -> u64 {
        self.len
    }
}

impl MapExtent for Extent {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn len_in(size: &u64) -> u64 {
        *size
    }

    #[inline]
    fn head(self, len: u64) -> Extent {
        Extent { address: self.address, len }
    }

    /// # Panics
    /// When the address of the rest is beyond 64 bits.
    #[inline]
    fn tail(self, len: u64) -> Extent {
        let address = self.address.checked_add(len).expect("extents end within 64 bits");
        Extent { address, len: self.len - len }
    }

    #[inline]
    fn joined(self, next: Extent) -> Option<Extent> {
        let is_followed = self.address.checked_add(self.len) == Some(next.address);
        is_followed.then(|| Extent { address: self.address, len: self.len + next.len })
    }
}

/// Extents that take the place of others: at most the part before the edit, the inserted extent,
/// and the part behind it; contiguous ones merged (X2).
struct Pieces<E> {
    extents: [Option<E>; 3],
    count: usize,
}

impl<E: MapExtent> Pieces<E> {
    fn new() -> Self {
        Pieces { extents: [None; 3], count: 0 }
    }

    fn push(&mut self, extent: E) {
        if extent.is_empty() {
            return; // X1
        }
        if let Some(last) = self.count.checked_sub(1).and_then(|at| self.extents[at].as_mut())
            && let Some(joined) = last.joined(extent)
        {
            *last = joined;
            return;
        }
        self.extents[self.count] = Some(extent);
        self.count += 1;
    }
}

impl<E> IntoIterator for Pieces<E> {
    type Item = E;
    type IntoIter = PieceIter<E>;

    fn into_iter(self) -> PieceIter<E> {
        PieceIter(self.extents.into_iter().take(self.count))
    }
}

/// Knows how many there are: a splice that does not know allocates.
struct PieceIter<E>(std::iter::Take<std::array::IntoIter<Option<E>, 3>>);

impl<E> Iterator for PieceIter<E> {
    type Item = E;

    #[inline]
    fn next(&mut self) -> Option<E> {
        self.0.next().flatten()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// Children of an inner node of a map, at most. Twice those of other trees: at 10^6 extents and
/// more that saves a level, and an insert waits for memory once less. Measured side by side: a
/// fifth more random inserts than with 64 up to 10^6 extents, a seventh more up to 10^7; with 256
/// fewer than with 128. A path that is copied, because a snapshot has it too, costs up to twice
/// as much.
const FAN: usize = 128;

/// The extents of a map, in logical order.
pub type ExtentTree<E = Extent> = FlexTree<E, LEAF_CAPACITY, FAN>;
/// Walks the extents of a map.
pub type ExtentCursor<'a, E = Extent> = Cursor<'a, E, LEAF_CAPACITY, FAN>;

/// A map from logical offsets to extents; see the module.
#[derive(Clone, Debug)]
pub struct ExtentMap<E: MapExtent = Extent> {
    tree: ExtentTree<E>,
}

impl<E: MapExtent> Default for ExtentMap<E> {
    fn default() -> Self {
        ExtentMap { tree: ExtentTree::new() }
    }
}

impl<E: MapExtent> From<ExtentTree<E>> for ExtentMap<E> {
    /// The map of these extents, of which X1 and X2 hold: see [`ExtentMap::check`].
    fn from(tree: ExtentTree<E>) -> Self {
        ExtentMap { tree }
    }
}

impl ExtentMap {
    /// An empty address space.
    #[must_use]
    pub fn new() -> ExtentMap {
        ExtentMap::default()
    }
}

impl<E: MapExtent> ExtentMap<E> {
    /// An empty address space of extents of this kind.
    #[must_use]
    pub fn empty() -> Self {
        ExtentMap::default()
    }

    /// Logical bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        E::len_in(&self.tree.size())
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// The extents, in logical order.
    #[must_use]
    pub fn extents(&self) -> &ExtentTree<E> {
        &self.tree
    }

    /// The physical run that starts at logical `offset`, to the end of its extent.
    #[must_use]
    pub fn lookup(&self, offset: u64) -> Option<E> {
        let (_, within, extent) = self.tree.find_by(E::len_in, offset)?;
        Some(extent.tail(within))
    }

    /// Inserts `extent` at logical `offset`; what was there and behind moves up by its length.
    ///
    /// # Panics
    /// When `offset` is beyond the end, or a sum of lengths or the extent's end beyond 64 bits.
    pub fn insert(&mut self, offset: u64, extent: E) {
        let _ends_within_64_bits = extent.tail(extent.len());
        assert!(self.len().checked_add(extent.len()).is_some(), "the map ends beyond 64 bits");
        let done = self.tree.edit_around(E::len_in, offset, |near, position, within| {
            // Contiguity at the beginning of the leaf is decided with the leaf before it.
            if within == 0 && position == 0 && !near.is_empty() {
                return None;
            }
            Some(insertion(near, position, within, extent))
        });
        if !done {
            let before = offset.checked_sub(1).and_then(|last| self.tree.find_by(E::len_in, last));
            if before.is_none_or(|(_, _, before)| before.joined(extent).is_none()) {
                self.tree.edit_around(E::len_in, offset, |near, position, within| {
                    Some(insertion(near, position, within, extent))
                });
                return;
            }
            let (index, _, _) = self.tree.find_by(E::len_in, offset).expect("a leaf had items");
            let start = index.saturating_sub(1);
            let near: Vec<E> = self.tree.range(start..=index).copied().collect();
            let (range, pieces) = insertion(&near, index - start, 0, extent);
            self.tree.splice(range.start + start..range.end + start, pieces);
        }
    }

    /// Changes the extent that holds `offset` from there on, by `change`, which keeps the length;
    /// what is before `offset` stays an extent of its own unless the two are contiguous. The caller
    /// sees to X2 at the borders to the neighbours.
    ///
    /// # Panics
    /// When `offset` is not before the end.
    pub fn change_at(&mut self, offset: u64, change: impl FnOnce(E) -> E) {
        assert!(offset < self.len(), "offset {offset} is not before the end at {}", self.len());
        let plan = |near: &[E], position: usize, within: u64| {
            let mut pieces = Pieces::new();
            if within > 0 {
                pieces.push(near[position].head(within));
            }
            pieces.push(change(near[position].tail(within)));
            Some((position..position + 1, pieces))
        };
        self.tree.edit_around(E::len_in, offset, plan);
    }

    /// Removes `len` bytes from logical `offset` on; what is behind moves down.
    ///
    /// # Panics
    /// When the bytes are not all within the map.
    pub fn collapse(&mut self, offset: u64, len: u64) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len()),
            "{len} bytes from {offset} on are not within {}",
            self.len()
        );
        if len == 0 {
            return;
        }
        let done = self.tree.edit_around(E::len_in, offset, |near, position, within| {
            // What remains at either side must be in this leaf: it may have become contiguous.
            let mut behind = position;
            let mut left = within + len;
            while behind < near.len() && left >= near[behind].len() {
                left -= near[behind].len();
                behind += 1;
            }
            if behind == near.len() || (within == 0 && position == 0) {
                return None;
            }
            Some(removal(near, position..behind, within, left))
        });
        if !done {
            self.collapse_across(offset, len);
        }
    }

    /// As `collapse`, when the leaf at `offset` does not show all that matters.
    fn collapse_across(&mut self, offset: u64, len: u64) {
        let (first, within, &extent) =
            self.tree.find_by(E::len_in, offset).expect("the bytes are within the map");
        let before = if within > 0 {
            Some(extent.head(within))
        } else {
            first.checked_sub(1).and_then(|index| self.tree.get(index)).copied()
        };
        let start = if within > 0 { first } else { first.saturating_sub(1) };
        let found = self.tree.find_by(E::len_in, offset + len);
        let end = found.map_or(self.tree.len(), |(index, _, _)| index + 1);
        let behind = found.map(|(_, left, extent)| extent.tail(left));
        let mut pieces = Pieces::new();
        before.into_iter().chain(behind).for_each(|piece| pieces.push(piece));
        self.tree.splice(start..end, pieces);
    }

    /// Verifies the tree, X1 and X2.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.tree.check()?;
        let mut before: Option<E> = None;
        for (index, &extent) in self.tree.iter().enumerate() {
            if extent.is_empty() {
                return Err(format!("X1: the extent {index} is empty"));
            }
            if before.is_some_and(|before| before.joined(extent).is_some()) {
                return Err(format!("X2: the extent {index} continues the one before"));
            }
            before = Some(extent);
        }
        Ok(())
    }
}

/// Which of the extents in `near` an insertion replaces, and by what. It comes `within` bytes into
/// the one at `position`, or behind the last.
fn insertion<E: MapExtent>(
    near: &[E],
    position: usize,
    within: u64,
    extent: E,
) -> (Range<usize>, Pieces<E>) {
    let mut pieces = Pieces::new();
    if within > 0 {
        pieces.push(near[position].head(within));
        pieces.push(extent);
        pieces.push(near[position].tail(within));
        return (position..position + 1, pieces);
    }
    let start = position.saturating_sub(1);
    let end = near.len().min(position + 1);
    near[start..position].iter().for_each(|&before| pieces.push(before));
    pieces.push(extent);
    near[position..end].iter().for_each(|&behind| pieces.push(behind));
    (start..end, pieces)
}

/// Which of the extents in `near` a removal replaces, and by what. It goes from `within` bytes into
/// the first of `removed` to `left` bytes into the one behind them.
fn removal<E: MapExtent>(
    near: &[E],
    removed: Range<usize>,
    within: u64,
    left: u64,
) -> (Range<usize>, Pieces<E>) {
    let mut pieces = Pieces::new();
    let mut start = removed.start;
    if within > 0 {
        pieces.push(near[start].head(within));
    } else {
        start -= 1;
        pieces.push(near[start]);
    }
    pieces.push(near[removed.end].tail(left));
    (start..removed.end + 1, pieces)
}
