//! The vector that a space is compared with: a byte and a tag for each offset.

use std::ops::Range;

/// A byte and its tag; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The byte.
    pub byte: u8,
    /// Its tag.
    pub tag: u32,
}

/// What a space holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    cells: Vec<Cell>,
}

impl Model {
    /// The model with these bytes and tags.
    #[must_use]
    pub fn of(bytes: &[u8], tags: impl IntoIterator<Item = (u64, u32)>) -> Model {
        let mut cells: Vec<Cell> = bytes.iter().map(|&byte| Cell { byte, tag: 0 }).collect();
        for (offset, tag) in tags {
            cells[offset as usize].tag = tag;
        }
        Model { cells }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The bytes of a range.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        self.cells[range].iter().map(|cell| cell.byte).collect()
    }

    /// The tags of a range, with their offsets.
    #[must_use]
    pub fn tags(&self, range: Range<usize>) -> Vec<(u64, u32)> {
        let tagged = self.cells[range.clone()].iter().zip(range);
        let tagged = tagged.filter(|(cell, _)| cell.tag != 0);
        tagged.map(|(cell, offset)| (offset as u64, cell.tag)).collect()
    }

    /// The cells of a range.
    #[must_use]
    pub fn cells(&self, range: Range<usize>) -> &[Cell] {
        &self.cells[range]
    }

    pub(super) fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.cells.splice(at..at, bytes.iter().map(|&byte| Cell { byte, tag: 0 }));
    }

    pub(super) fn collapse(&mut self, range: Range<usize>) {
        self.cells.drain(range);
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        if !bytes.is_empty() && self.cells.len() < at + bytes.len() {
            self.cells.resize(at + bytes.len(), Cell::default());
        }
        for (cell, &byte) in self.cells.iter_mut().skip(at).zip(bytes) {
            cell.byte = byte;
        }
    }

    pub(super) fn update(&mut self, range: Range<usize>, bytes: &[u8]) {
        let tag = self.cells[range.clone()].first().map_or(0, |cell| cell.tag);
        self.collapse(range.clone());
        self.insert(range.start, bytes);
        if !bytes.is_empty() && tag != 0 {
            self.cells[range.start].tag = tag;
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.cells.resize(len, Cell::default());
    }

    pub(super) fn set_tag(&mut self, at: usize, tag: u32) {
        self.cells[at].tag = tag;
    }
}
