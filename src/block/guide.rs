//! Guides: what is kept of a frame in memory, so that one entry is found without reading the rest.
//!
//! A guide is made from a frame that was read whole and verified. It has two bytes of each key's
//! hash, in the order of the entries: they say that a key is not there, or which entry it can be.
//! The guide of a frame that was not compressed may also have a map: where each restart lies, and
//! a checksum of each page of the frame. Then a lookup reads the pages of one entry, verifies
//! them, and compares the key.
//!
//! Invariants
//! - U1  No byte that was read is looked into before the checksum of its page was compared.
//! - U2  A key that the frame holds is never denied.
//! - U3  `bytes` has the prints first; then, with a map, what the frame has from its table on, and
//!   the checksums of its pages: each in the length that entries and frame say.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::base::EntryKind;
use crate::base::Result;
use crate::base::SeqNo;
use crate::base::Slice;
use crate::base::checksum_seeded;
use crate::block::frame;
use crate::block::layout::EntrySpan;
use crate::block::layout::Layout;
use crate::block::layout::shared_entry;
use crate::block::layout::whole_entry;
use crate::block::resident::Block;
use crate::block::sealed::{self, SealedFrame};
use crate::block::search::KeyMatch;
use crate::memory::Buffer;
use crate::memory::Heap;

/// Bytes of a frame that are read and verified together.
const PAGE_LEN: usize = sealed::PAGE_LEN;
/// Entries that fit are read without an allocation.
const SMALL_READ_LEN: usize = 2 * PAGE_LEN;
/// Prints compared at once.
const LANES: usize = 16;
const PRINT_LEN: usize = 2;
const SUM_LEN: usize = 4;
/// What is smaller is allocated: a heap gives out multiples of it.
const IN_HEAP_FROM: usize = 256;
/// Bytes that the owner of a guide's buffer takes, about.
const OWNER_SIZE: usize = 64;
/// Pieces of a guide with a map, but for its bytes.
const MAPPED_SIZE: usize = size_of::<Guide>() + size_of::<FrameMap>() + OWNER_SIZE;

/// What is kept of a frame.
pub struct Guide {
    entry_count: usize,
    /// A print of each key, in order, filled up to a multiple of [`LANES`]; and what belongs to
    /// the map (U3). At once, so that what guides take is known: they come and go.
    bytes: Buffer,
    map: Option<Box<FrameMap>>,
}

/// Where the entries lie in a frame.
struct FrameMap {
    /// Of the frame, but with the table at the start of `tail`.
    layout: Layout,
    /// Where table and trailer of the payload are among the guide's bytes; the checksums of the
    /// pages are behind it.
    tail: Range<usize>,
    frame_len: usize,
    /// If it is sealed in the file.
    sealed: Option<Box<SealedFrame>>,
}

/// An entry found by a guide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuidedEntry {
    /// The entry's number in the frame.
    pub index: usize,
    /// Value or tombstone.
    pub kind: EntryKind,
    /// The value, copied.
    pub value: Slice,
}

/// Reads parts of the frame that a guide was made of.
pub trait FrameReader {
    /// Fills `out` with the bytes of the frame from `offset` on.
    ///
    /// # Errors
    /// What reading failed with.
    fn read(&mut self, offset: usize, out: &mut [u8]) -> Result<()>;

    /// As [`FrameReader::read`], of a frame that is sealed: the plain one is read from.
    ///
    /// # Errors
    /// What reading failed with; damage when it is not what was sealed.
    fn read_sealed(&mut self, frame: &SealedFrame, offset: usize, out: &mut [u8]) -> Result<()>;

    /// The error that says what is wrong with the frame.
    fn damaged(&self, what: String) -> crate::base::Error;
}

/// Whether a guide is to have a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuideKind {
    /// Prints only: for frames so small that reading them whole costs the same.
    Prints,
    /// Prints, and a map if the frame is not compressed.
    PrintsAndMap,
}

impl Guide {
    /// The guide of a frame that was read as `block`, in memory of `heap`, or of the allocator.
    /// Costs about 10 ns an entry.
    #[must_use]
    pub fn new(block: &Block, kind: GuideKind, heap: Option<&Arc<Heap>>) -> Guide {
        let entry_count = block.entry_count();
        let is_mapped = kind == GuideKind::PrintsAndMap && Guide::is_mappable(block);
        let prints_len = prints_len(entry_count);
        let map_len = if is_mapped { FrameMap::len_for(block) } else { 0 };
        let len = prints_len + map_len;
        let heap = heap.filter(|_| len >= IN_HEAP_FROM);
        let mut bytes = heap.map_or_else(|| Buffer::allocate(len), |heap| heap.take(len));
        let (prints, rest) = bytes.split_at_mut(prints_len);
        let mut places = prints.as_chunks_mut::<PRINT_LEN>().0.iter_mut();
        block.for_each_key(&mut |key| {
            let place = places.next().expect("one for each entry");
            *place = print_of(crate::base::hash_key(key)).to_le_bytes();
        });
        places.for_each(|place| *place = [0; PRINT_LEN]);
        let map = is_mapped.then(|| Box::new(FrameMap::new(block, prints_len, rest)));
        Guide { entry_count, bytes, map }
    }

    /// Whether there is a map of a frame that was read as `block`. Compressed frames were unpacked:
    /// their bytes are not those in the file.
    #[must_use]
    pub fn is_mappable(block: &Block) -> bool {
        let is_plain = block.layout().entries_start == frame::HEADER_LEN;
        is_plain && SealedFrame::is_not_or_whole(block.data(), block.layout().payload_end())
    }

    /// Whether the key with this hash can be in the frame. Wrong about one in 65536 over the
    /// number of entries (U2: never the other way).
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.candidate(0, print_of(hash)).is_some()
    }

    /// Whether [`Guide::find`] can be used.
    #[inline]
    #[must_use]
    pub fn has_map(&self) -> bool {
        self.map.is_some()
    }

    /// About as many bytes of memory as the guide of so many entries takes, in a frame of so many
    /// bytes.
    #[must_use]
    pub fn reckoned_size(entry_count: usize, frame_len: usize) -> usize {
        const TAIL_LEN: usize = 24;
        let item_len = if frame_len < 1 << 16 { 2 } else { 4 };
        let sums = frame_len.div_ceil(PAGE_LEN) * SUM_LEN;
        let bytes = prints_len(entry_count) + entry_count * item_len + TAIL_LEN + sums;
        with_unused(MAPPED_SIZE) + bytes.next_multiple_of(IN_HEAP_FROM)
    }

    /// Bytes of memory. What an allocator takes beside pieces of it is reckoned for the pieces;
    /// most is the heap's.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let pieces = self.map.as_ref().map_or(size_of::<Guide>() + OWNER_SIZE, |map| {
            MAPPED_SIZE + map.sealed.as_ref().map_or(0, |_| size_of::<SealedFrame>())
        });
        if self.bytes.len() < IN_HEAP_FROM {
            return with_unused(pieces + self.bytes.len());
        }
        with_unused(pieces) + self.bytes.len()
    }

    /// Looks for `key`, whose hash is `hash`, in the frame. Reads the pages of one entry; of two
    /// now and then.
    ///
    /// # Errors
    /// What `reader` fails with, and what it says about damage.
    ///
    /// # Panics
    /// Without a map.
    pub fn find(
        &self,
        key: &[u8],
        hash: u64,
        reader: &mut impl FrameReader,
    ) -> Result<Option<GuidedEntry>> {
        let map = self.map.as_ref().expect("the caller has asked");
        let print = print_of(hash);
        let mut from = 0;
        while let Some(index) = self.candidate(from, print) {
            if let Some(found) = map.compare(&self.bytes, index, key, reader)? {
                return Ok(Some(found));
            }
            from = index + 1;
        }
        Ok(None)
    }

    /// Where the pages lie in the frame, as it is in its file, that [`Guide::find`] reads first of
    /// all for a key with this hash; `None` when it reads nothing, or there is no map.
    #[must_use]
    pub fn first_pages(&self, hash: u64) -> Option<Range<usize>> {
        let map = self.map.as_ref()?;
        let index = self.candidate(0, print_of(hash))?;
        let pages = map.pages_around(map.place_of(&self.bytes, index));
        Some(map.sealed.as_ref().map_or(pages.clone(), |_| SealedFrame::place_of_pages(pages)))
    }

    /// The stamp of entry `index`.
    ///
    /// # Errors
    /// As [`Guide::find`].
    ///
    /// # Panics
    /// Without a map.
    pub fn stamp(&self, index: usize, reader: &mut impl FrameReader) -> Result<SeqNo> {
        let map = self.map.as_ref().expect("the caller has asked");
        let place = map.layout.stamp_place(index);
        map.with_bytes(&self.bytes, place, reader, |bytes| map.layout.decode_stamp(bytes))
    }

    /// The first entry from number `from` on whose key has that print.
    #[inline]
    fn candidate(&self, from: usize, print: u16) -> Option<usize> {
        let prints = &self.bytes[..prints_len(self.entry_count)]; // U3
        let chunks = prints.as_chunks::<PRINT_LEN>().0.as_chunks::<LANES>().0;
        let print = print.to_le_bytes();
        for (chunk_index, chunk) in chunks.iter().enumerate().skip(from / LANES) {
            // All lanes at once: nearly every chunk has none.
            if chunk.iter().fold(false, |any, other| any | (*other == print)) {
                let indices = chunk_index * LANES..;
                let mut hits = indices.zip(chunk).filter(|(_, other)| **other == print);
                let hit = hits.find(|(index, _)| (from..self.entry_count).contains(index));
                if let Some((index, _)) = hit {
                    return Some(index);
                }
            }
        }
        None
    }
}

impl FrameMap {
    /// Bytes that belong to the map of a frame.
    fn len_for(block: &Block) -> usize {
        let data = &block.data()[..block.layout().payload_end()];
        let (_, tail) = block.layout().with_table_apart(data);
        tail.len() + data.len().div_ceil(PAGE_LEN) * SUM_LEN
    }

    /// The map of a frame; what belongs to it goes to the start of `room`, which is from `start` on
    /// of the guide's bytes.
    fn new(block: &Block, start: usize, room: &mut [u8]) -> FrameMap {
        let data = &block.data()[..block.layout().payload_end()]; // the whole frame
        let (layout, tail) = block.layout().with_table_apart(data);
        let (tail_room, sums_room) = room.split_at_mut(tail.len());
        tail_room.copy_from_slice(tail);
        let sums = sums_room.as_chunks_mut::<SUM_LEN>().0.iter_mut();
        for (page, (bytes, sum)) in data.chunks(PAGE_LEN).zip(sums).enumerate() {
            *sum = sum_of(page, bytes).to_le_bytes();
        }
        FrameMap {
            layout,
            tail: start..start + tail.len(),
            frame_len: data.len(),
            sealed: SealedFrame::found(block.data(), data.len()).map(Box::new),
        }
    }

    /// The checksum of a page, of those among `bytes`.
    fn page_sum(&self, bytes: &[u8], page: usize) -> u32 {
        let sums = bytes[self.tail.end..].as_chunks::<SUM_LEN>().0;
        u32::from_le_bytes(sums[page])
    }

    /// Where in the frame entry `index` is, with those that share its restart. `bytes` are the
    /// guide's.
    fn place_of(&self, bytes: &[u8], index: usize) -> Range<usize> {
        let restart = index / self.layout.restart_interval;
        let tail = &bytes[self.tail.clone()];
        self.layout.restart(tail, restart)..self.layout.restart(tail, restart + 1)
    }

    /// The pages that have a part of the frame.
    fn pages_around(&self, range: Range<usize>) -> Range<usize> {
        let start = range.start / PAGE_LEN * PAGE_LEN;
        start..range.end.next_multiple_of(PAGE_LEN).min(self.frame_len)
    }

    /// Entry `index` if its key is `key`. `bytes` are the guide's.
    fn compare(
        &self,
        bytes: &[u8],
        index: usize,
        key: &[u8],
        reader: &mut impl FrameReader,
    ) -> Result<Option<GuidedEntry>> {
        let within = index % self.layout.restart_interval;
        self.with_bytes(bytes, self.place_of(bytes, index), reader, |bytes| {
            let entry = match self.layout.is_whole() {
                true => whole_if_key(bytes, key),
                false => shared_if_key(bytes, within, key),
            };
            entry.map(|entry| GuidedEntry {
                index,
                kind: entry.kind,
                value: Slice::from(&bytes[entry.value_start..entry.value_end]),
            })
        })
    }

    /// Applies `look` to a part of the frame, read and verified. `guide_bytes` are the guide's.
    fn with_bytes<T>(
        &self,
        guide_bytes: &[u8],
        range: Range<usize>,
        reader: &mut impl FrameReader,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let Range { start, end } = self.pages_around(range.clone());
        let mut small = [0; SMALL_READ_LEN];
        let mut large = Vec::new();
        let bytes = match small.get_mut(..end - start) {
            Some(bytes) => bytes,
            None => {
                large.resize(end - start, 0);
                large.as_mut_slice()
            }
        };
        match &self.sealed {
            None => reader.read(start, bytes)?,
            Some(sealed) => reader.read_sealed(sealed, start, bytes)?,
        }
        for (page, bytes) in (start / PAGE_LEN..).zip(bytes.chunks(PAGE_LEN)) {
            let (found, expected) = (sum_of(page, bytes), self.page_sum(guide_bytes, page));
            if found != expected {
                let at = page * PAGE_LEN;
                return Err(reader.damaged(format!(
                    "page at {at} of the frame: checksum {found:08x} where it was {expected:08x}"
                ))); // U1
            }
        }
        Ok(look(&bytes[range.start - start..range.end - start]))
    }
}

/// The entry that `bytes` are, in the whole form, if its key is `key`.
fn whole_if_key(bytes: &[u8], key: &[u8]) -> Option<EntrySpan> {
    let entry = whole_entry(bytes, 0, bytes.len())?;
    (bytes[entry.key_start..entry.value_start] == *key).then_some(entry)
}

/// The entry that is number `within` of a group in the shared form, if its key is `key`.
fn shared_if_key(bytes: &[u8], within: usize, key: &[u8]) -> Option<EntrySpan> {
    let mut matching = KeyMatch::new(key);
    let mut start = 0;
    for number in 0.. {
        let entry = shared_entry(bytes, start, bytes.len())?;
        let suffix = &bytes[entry.key_start..entry.value_start];
        let ordering = matching.compare(entry.shared, suffix);
        if number == within {
            return ordering.is_eq().then_some(entry);
        }
        start = entry.value_end;
    }
    None
}

/// What an allocator takes for so many bytes, about (decision 0034).
const fn with_unused(bytes: usize) -> usize {
    bytes + bytes / 3
}

/// Bytes of the prints of so many entries.
fn prints_len(entry_count: usize) -> usize {
    entry_count.next_multiple_of(LANES) * PRINT_LEN
}

#[inline]
fn print_of(hash: u64) -> u16 {
    (hash >> 48) as u16
}

/// The checksum of a page: bound to its number, so that pages cannot stand in for each other.
fn sum_of(page: usize, bytes: &[u8]) -> u32 {
    // Without a seed, which would cost as much again as the checksum of a page.
    (checksum_seeded(bytes, 0) as u32) ^ page as u32
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide")
            .field("entries", &self.entry_count)
            .field("map", &self.map.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::Codec;
    use crate::base::EntryRef;
    use crate::base::Error;
    use crate::base::hash_key;
    use crate::block::BlockBuilder;
    use crate::block::FrameKind;
    use crate::block::FramePlace;
    use crate::block::RestartPolicy;
    use crate::memory::SharedBytes;

    struct Memory(Vec<u8>);

    impl FrameReader for Memory {
        fn read(&mut self, offset: usize, out: &mut [u8]) -> Result<()> {
            out.copy_from_slice(&self.0[offset..offset + out.len()]);
            Ok(())
        }

        fn read_sealed(&mut self, _: &SealedFrame, _: usize, _: &mut [u8]) -> Result<()> {
            unreachable!("it is not sealed")
        }

        fn damaged(&self, what: String) -> Error {
            Error::corruption(Path::new("frame"), 40, what)
        }
    }

    fn key_of(number: usize) -> Vec<u8> {
        format!("key/{:06}/{}", number * 2, "x".repeat(number % 7)).into_bytes()
    }

    fn value_of(number: usize) -> Vec<u8> {
        // One in fifty is longer than what is read without an allocation.
        let len = if number % 50 == 49 { 3 * PAGE_LEN } else { number % 150 };
        vec![number as u8; len]
    }

    fn kind_of(number: usize) -> EntryKind {
        if number.is_multiple_of(11) { EntryKind::Tombstone } else { EntryKind::Value }
    }

    fn frame_of(count: usize, policy: RestartPolicy, codec: Codec) -> (Block, Memory) {
        let mut builder = BlockBuilder::new(policy);
        for number in 0..count {
            let (key, value) = (key_of(number), value_of(number));
            let seqno = SeqNo::from_parts(1000 + number as u64, number as u16);
            let kind = kind_of(number);
            builder.add(EntryRef { key: &key, seqno, kind, value: &value }).unwrap();
        }
        let (mut payload, mut bytes) = (Vec::new(), Vec::new());
        builder.finish(&mut payload);
        let place = FramePlace { file: Path::new("frame"), file_tag: 7, offset: 40, key: None };
        let sum = frame::seal(&payload, codec, FrameKind::Entries, place, &mut bytes).unwrap();
        let data = SharedBytes::from(bytes.as_slice());
        let opened = frame::open(data, FrameKind::Entries, place, sum as u32);
        let frame::Payload { data, range } = opened.unwrap();
        (Block::parse(data, range, place).unwrap(), Memory(bytes))
    }

    const POLICIES: [RestartPolicy; 3] =
        [RestartPolicy::Whole, RestartPolicy::Every(16), RestartPolicy::Every(3)];

    #[test]
    fn every_entry_is_found_with_its_stamp_and_no_other() {
        for policy in POLICIES {
            for count in [0, 1, 15, 16, 17, 333] {
                let (block, mut memory) = frame_of(count, policy, Codec::None);
                let guide = Guide::new(&block, GuideKind::PrintsAndMap, None);
                assert!(guide.has_map());
                for number in 0..count {
                    let key = key_of(number);
                    assert!(guide.may_contain(hash_key(&key)), "U2");
                    let found = guide.find(&key, hash_key(&key), &mut memory).unwrap().unwrap();
                    assert_eq!((found.index, found.kind), (number, kind_of(number)));
                    assert_eq!(&*found.value, value_of(number));
                    let stamp = guide.stamp(number, &mut memory).unwrap();
                    assert_eq!(stamp, SeqNo::from_parts(1000 + number as u64, number as u16));
                }
                for absent in 0..1000 {
                    let key = format!("key/{:06}/", 2 * absent + 1).into_bytes();
                    assert_eq!(guide.find(&key, hash_key(&key), &mut memory).unwrap(), None);
                }
            }
        }
    }

    #[test]
    fn a_print_that_is_shared_is_not_taken_for_the_key() {
        let (block, mut memory) = frame_of(40, RestartPolicy::Whole, Codec::None);
        let guide = Guide::new(&block, GuideKind::PrintsAndMap, None);
        // Asked for with the hash of another: every candidate is compared with the key itself.
        let found = guide.find(b"absent", hash_key(&key_of(17)), &mut memory).unwrap();
        assert_eq!(found, None);
    }

    #[test]
    fn absent_keys_are_denied_nearly_always() {
        let (block, _) = frame_of(333, RestartPolicy::Whole, Codec::None);
        let guide = Guide::new(&block, GuideKind::Prints, None);
        assert!(!guide.has_map());
        let absent = (0..10_000u32).map(|number| hash_key(&number.to_le_bytes()));
        let admitted = absent.filter(|&hash| guide.may_contain(hash)).count();
        assert!(admitted < 200, "333 / 65536 of 10,000 are 51; here {admitted}");
    }

    #[test]
    fn a_changed_byte_is_told_and_never_returned() {
        for policy in POLICIES {
            let (block, memory) = frame_of(60, policy, Codec::None);
            let guide = Guide::new(&block, GuideKind::PrintsAndMap, Some(&Heap::new()));
            for at in 0..memory.0.len() {
                let mut damaged = Memory(memory.0.clone());
                damaged.0[at] ^= 1;
                let number = at % 60;
                let key = key_of(number);
                match guide.find(&key, hash_key(&key), &mut damaged) {
                    Ok(found) => assert_eq!(&*found.unwrap().value, value_of(number)),
                    Err(error) => assert!(matches!(error, Error::Corruption { .. }), "{error}"),
                }
            }
        }
    }

    #[test]
    fn a_compressed_frame_has_prints_but_no_map() {
        let (block, _) = frame_of(200, RestartPolicy::Whole, Codec::Lz4);
        let guide = Guide::new(&block, GuideKind::PrintsAndMap, Some(&Heap::new()));
        assert!(!guide.has_map());
        assert!((0..200).all(|number| guide.may_contain(hash_key(&key_of(number)))));
    }
}
