//! What is in memory of a table that was read: the index of its partitions with their slots, and
//! the ranges that it deletes. Stays as long as the table is held.

use std::fmt;

use super::caches::TableCaches;
use super::format::{FOOTER_LEN, FOOTER_LEN_MAX, Footer, FramePointer, HEADER_LEN};
use super::index::{Index, Target};
use super::partition::Partition;
use super::place::TableFile;
use super::properties::Properties;
use super::ranges;
use super::record::TableRecord;
use crate::base::sync::{Arc, OnceLock};
use crate::base::{Codec, DICTIONARY_SIZE_MAX, RangeTombstones, Result};
use crate::block::{Dictionary, FRAME_HEADER_LEN, FrameKind};
use crate::cache::{Charge, Part, Slot};
use crate::seal::SEAL_LEN;

/// What a partition's slot takes: itself, its counts, and its place.
const SLOT_SIZE: usize = size_of::<Slot<Partition>>() + 16 + size_of::<usize>();

/// A partition that stays in memory, and what it is charged.
type Pinned = (Arc<Partition>, Charge);

/// A table's footer, and what that points to.
pub(super) struct Opened {
    pub footer: Footer,
    top: Index,
    slots: Box<[Arc<Slot<Partition>>]>,
    /// Partitions that stay in memory, each with its charge, once they were read; none where all
    /// may be evicted.
    pinned: Box<[OnceLock<Pinned>]>,
    pub deleted: Option<Arc<RangeTombstones>>,
    pub dictionary: Option<Dictionary>,
    _charge: Charge,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("partitions", &self.top.len()).finish_non_exhaustive()
    }
}

impl Opened {
    /// Reads it.
    pub(super) fn read(
        file: &Arc<TableFile>,
        record: &TableRecord,
        caches: &TableCaches,
    ) -> Result<Opened> {
        let footer = read_footer(file, record)?;
        let payload = caches.read_frame(file, footer.top, FrameKind::Top)?;
        let place = file.place_at(footer.top.offset);
        let top = Index::parse(payload.data, payload.range, 0, place)?;
        let deleted = match footer.ranges {
            Some(pointer) => Some(Arc::new(read_ranges(file, pointer, caches)?)),
            None => None,
        };
        let range_count = deleted.as_ref().map_or(0, |ranges| ranges.fragment_count());
        if range_count != record.deleted_ranges as usize {
            let expected = record.deleted_ranges;
            let what = format!("{range_count} deleted ranges where {expected} were written");
            return Err(file.damaged(record.size - FOOTER_LEN, what));
        }
        let dictionary = match footer.dictionary {
            Some(pointer) => Some(read_dictionary(file, pointer, caches)?),
            None => None,
        };
        let dictionary_size = dictionary.as_ref().map_or(0, Dictionary::memory_size);
        let slots: Box<[_]> = (0..top.len()).map(|_| Slot::new()).collect();
        let pinned_count = if file.place().pins_indexes() { top.len() } else { 0 };
        let pinned = (0..pinned_count).map(|_| OnceLock::new()).collect();
        let ranges_size = deleted.as_ref().map_or(0, |ranges| ranges.memory_size());
        let size = size_of::<Opened>() + top.memory_size() + slots.len() * SLOT_SIZE + ranges_size;
        let size = size + dictionary_size;
        let charge = caches.budget().charge(Part::Index, size);
        Ok(Opened { footer, top, slots, pinned, deleted, dictionary, _charge: charge })
    }

    /// Number of partitions.
    #[inline]
    pub(super) fn partition_count(&self) -> usize {
        self.slots.len()
    }

    /// The partition that has `key` if any has: their number if all are in front of it.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> usize {
        self.top.find(key)
    }

    #[inline]
    pub(super) fn slot(&self, partition: usize) -> Option<&Arc<Slot<Partition>>> {
        self.slots.get(partition)
    }

    /// A partition that stays in memory, if it was read.
    pub(super) fn pinned(&self, partition: usize) -> Option<&Arc<Partition>> {
        Some(&self.pinned.get(partition)?.get()?.0)
    }

    /// Has a partition stay in memory, if that is wanted: whether it does.
    pub(super) fn pin(
        &self,
        index: usize,
        partition: &Arc<Partition>,
        caches: &TableCaches,
    ) -> bool {
        let Some(place) = self.pinned.get(index) else { return false };
        place.get_or_init(|| {
            let charge = caches.budget().charge(Part::Index, partition.memory_size());
            (Arc::clone(partition), charge)
        });
        true
    }

    /// Where a partition lies.
    pub(super) fn target(&self, partition: usize) -> Option<Target> {
        self.top.target(partition)
    }

    pub(super) fn top(&self) -> &Index {
        &self.top
    }
}

/// Reads the footer, which the record points to.
pub(super) fn read_footer(file: &Arc<TableFile>, record: &TableRecord) -> Result<Footer> {
    let offset = record.size.checked_sub(FOOTER_LEN).filter(|offset| *offset >= HEADER_LEN);
    let Some(offset) = offset else {
        return Err(file.damaged(0, format!("a table of {} bytes is none", record.size)));
    };
    let mut found = [0; FOOTER_LEN_MAX as usize];
    // The extension, if it has one, and else the end of the last frame.
    let start = record.size.saturating_sub(FOOTER_LEN_MAX);
    let found = &mut found[..(record.size - start) as usize];
    file.read_exact(&*file.open()?, found, start)?;
    Footer::decode(found, &file.path, file.tag, offset, record.checksum)
}

/// Reads the dictionary.
fn read_dictionary(
    file: &Arc<TableFile>,
    pointer: FramePointer,
    caches: &TableCaches,
) -> Result<Dictionary> {
    if pointer.len as usize > FRAME_HEADER_LEN + DICTIONARY_SIZE_MAX + SEAL_LEN {
        return Err(file.damaged(pointer.offset, "a dictionary that is too large"));
    }
    let payload = caches.read_frame(file, pointer, FrameKind::Dictionary)?;
    let codec = Codec::zstd();
    if !codec.is_available() {
        return Err(codec.missing());
    }
    let dictionary = Dictionary::new(&payload.data[payload.range]);
    dictionary.ok_or_else(|| file.damaged(pointer.offset, "a dictionary that is none"))
}

/// Reads the properties.
pub(super) fn read_properties(
    file: &Arc<TableFile>,
    pointer: FramePointer,
    caches: &TableCaches,
) -> Result<Properties> {
    let payload = caches.read_frame(file, pointer, FrameKind::Properties)?;
    let properties = Properties::decode(&payload.data[payload.range]);
    properties.ok_or_else(|| file.damaged(pointer.offset, "properties that are none"))
}

/// Reads the deleted ranges.
pub(super) fn read_ranges(
    file: &Arc<TableFile>,
    pointer: FramePointer,
    caches: &TableCaches,
) -> Result<RangeTombstones> {
    let payload = caches.read_frame(file, pointer, FrameKind::DeletedRanges)?;
    let ranges = ranges::decode(&payload.data[payload.range]);
    ranges.ok_or_else(|| file.damaged(pointer.offset, "deleted ranges that are none"))
}
