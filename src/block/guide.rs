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

use std::fmt;
use std::ops::Range;

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

/// Bytes of a frame that are read and verified together.
const PAGE_LEN: usize = sealed::PAGE_LEN;
/// Entries that fit are read without an allocation.
const SMALL_READ_LEN: usize = 2 * PAGE_LEN;
/// Prints compared at once.
const LANES: usize = 16;

/// What is kept of a frame.
pub struct Guide {
    entry_count: usize,
    /// Of each key, in order; filled up to a multiple of [`LANES`].
    prints: Box<[u16]>,
    map: Option<Box<FrameMap>>,
}

/// Where the entries lie in a frame.
struct FrameMap {
    /// Of the frame, but with the table at the start of `tail`.
    layout: Layout,
    /// Table and trailer of the payload.
    tail: Box<[u8]>,
    page_sums: Box<[u32]>,
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
    /// The guide of a frame that was read as `block`. Costs about 10 ns an entry.
    #[must_use]
    pub fn new(block: &Block, kind: GuideKind) -> Guide {
        let entry_count = block.entry_count();
        let mut prints = Vec::with_capacity(entry_count.next_multiple_of(LANES));
        block.for_each_key(&mut |key| prints.push(print_of(crate::base::hash_key(key))));
        prints.resize(entry_count.next_multiple_of(LANES), 0);
        // Compressed frames were unpacked: their bytes are not those in the file.
        let is_plain = block.layout().entries_start == frame::HEADER_LEN;
        let is_mappable =
            is_plain && SealedFrame::is_not_or_whole(block.data(), block.layout().payload_end());
        let map = (kind == GuideKind::PrintsAndMap && is_mappable)
            .then(|| Box::new(FrameMap::new(block)));
        Guide { entry_count, prints: prints.into_boxed_slice(), map }
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

    /// Bytes of memory.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let map = self.map.as_ref().map_or(0, |map| {
            let sealed = map.sealed.as_ref().map_or(0, |_| size_of::<SealedFrame>());
            size_of::<FrameMap>() + map.tail.len() + size_of_val(&*map.page_sums) + sealed
        });
        size_of::<Guide>() + size_of_val(&*self.prints) + map
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
            if let Some(found) = map.compare(index, key, reader)? {
                return Ok(Some(found));
            }
            from = index + 1;
        }
        Ok(None)
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
        map.with_bytes(place.clone(), reader, |bytes| map.layout.decode_stamp(bytes))
    }

    /// The first entry from number `from` on whose key has that print.
    #[inline]
    fn candidate(&self, from: usize, print: u16) -> Option<usize> {
        let chunks = self.prints.as_chunks::<LANES>().0;
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
    fn new(block: &Block) -> FrameMap {
        let data = &block.data()[..block.layout().payload_end()]; // the whole frame
        let (layout, tail) = block.layout().with_table_apart(data);
        let page_sums = data.chunks(PAGE_LEN).enumerate().map(|(page, bytes)| sum_of(page, bytes));
        FrameMap {
            layout,
            tail: tail.into(),
            page_sums: page_sums.collect(),
            frame_len: data.len(),
            sealed: SealedFrame::found(block.data(), data.len()).map(Box::new),
        }
    }

    /// Entry `index` if its key is `key`.
    fn compare(
        &self,
        index: usize,
        key: &[u8],
        reader: &mut impl FrameReader,
    ) -> Result<Option<GuidedEntry>> {
        let restart = index / self.layout.restart_interval;
        let range =
            self.layout.restart(&self.tail, restart)..self.layout.restart(&self.tail, restart + 1);
        let within = index % self.layout.restart_interval;
        self.with_bytes(range, reader, |bytes| {
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

    /// Applies `look` to a part of the frame, read and verified.
    fn with_bytes<T>(
        &self,
        range: Range<usize>,
        reader: &mut impl FrameReader,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let start = range.start / PAGE_LEN * PAGE_LEN;
        let end = range.end.next_multiple_of(PAGE_LEN).min(self.frame_len);
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
            let (found, expected) = (sum_of(page, bytes), self.page_sums[page]);
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
                let guide = Guide::new(&block, GuideKind::PrintsAndMap);
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
        let guide = Guide::new(&block, GuideKind::PrintsAndMap);
        // Asked for with the hash of another: every candidate is compared with the key itself.
        let found = guide.find(b"absent", hash_key(&key_of(17)), &mut memory).unwrap();
        assert_eq!(found, None);
    }

    #[test]
    fn absent_keys_are_denied_nearly_always() {
        let (block, _) = frame_of(333, RestartPolicy::Whole, Codec::None);
        let guide = Guide::new(&block, GuideKind::Prints);
        assert!(!guide.has_map());
        let absent = (0..10_000u32).map(|number| hash_key(&number.to_le_bytes()));
        let admitted = absent.filter(|&hash| guide.may_contain(hash)).count();
        assert!(admitted < 200, "333 / 65536 of 10,000 are 51; here {admitted}");
    }

    #[test]
    fn a_changed_byte_is_told_and_never_returned() {
        for policy in POLICIES {
            let (block, memory) = frame_of(60, policy, Codec::None);
            let guide = Guide::new(&block, GuideKind::PrintsAndMap);
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
        let guide = Guide::new(&block, GuideKind::PrintsAndMap);
        assert!(!guide.has_map());
        assert!((0..200).all(|number| guide.may_contain(hash_key(&key_of(number)))));
    }
}
