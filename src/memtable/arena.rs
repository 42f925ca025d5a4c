//! Entry arena: where keys and values lie until the memtable is dropped.
//!
//! Owns the chunks of memory and the form of an entry in them. Must not know nodes or order.
//! Readers go from an [`EntryId`] to the bytes in two loads; one [`EntryAppender`] writes.
//!
//! Invariants
//! - A1  An `EntryId` is made only by `EntryAppender::append`, after all bytes of its entry are
//!   written, and is looked up only in the arena that made it.
//! - A2  Bytes of an entry never change and are freed only by the drop of `Entries`.
//! - A3  A thread that has an `EntryId` got it through a release/acquire pair (a leaf's count, a
//!   node pointer) or is the writer, so it also sees the chunk slot and the bytes behind it.
//! - A4  There is one `EntryAppender` for an `Entries`.
//! - A5  A chunk slot is written once, and the segment that holds it is published before.
//!
//! Layout of an entry: offset, size, field (little-endian; entries start at multiples of 4).
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | seqno |
//! | 8 | 4 | value length |
//! | 12 | 4 | key length (24 bits) and kind (upper 8 bits) |
//! | 16 | key length | key |
//! | 16 + key length | value length | value |
//!
//! Layout of an id: 13 bits chunk, 19 bits offset in the chunk in units of 4 bytes.

#![expect(unsafe_code, reason = "entries are written while readers use their neighbours")]

use std::ptr;
use std::slice;

use super::chunk::{self, Chunk, HUGE_PAGE_SIZE, SpareChunks};
use crate::base::EntryKind;
use crate::base::EntryRef;
use crate::base::SeqNo;
use crate::base::limits::{BATCH_SIZE_MAX, MEMTABLE_SIZE_MAX};
use crate::base::prefetch;
use crate::base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::base::sync::{Arc, OnceLock};

/// The longest key that fits the 24 bits of its length.
pub(super) const KEY_LEN_MAX: usize = (1 << 24) - 1;
/// The longest value that fits the 32 bits of its length.
pub(super) const VALUE_LEN_MAX: usize = u32::MAX as usize;

const HEADER_SIZE: usize = 16;
/// Entries start at multiples of this.
const UNIT: usize = 4;
const OFFSET_BITS: u32 = 19;
const _: () = assert!(UNIT << OFFSET_BITS == HUGE_PAGE_SIZE, "every offset in a chunk fits");
/// Chunks are huge pages once so much is allocated: half of it may be unused then, later less.
const HUGE_FROM: usize = 2 * HUGE_PAGE_SIZE;
/// An entry above this fraction of a chunk gets a chunk of its own: what a chunk leaves unused at
/// its end is less than that.
const OWN_CHUNK_DIVISOR: usize = 3;
/// Chunks that are taken until chunks are huge pages, at most: each is a twenty-fourth of what is
/// allocated or more, or the third of the smallest one.
const SMALL_CHUNKS_MAX: usize = 256;
/// Bytes of keys and values that each chunk holds from then on, at least.
const CHUNK_PAYLOAD_MIN: usize = HUGE_PAGE_SIZE / OWN_CHUNK_DIVISOR - HEADER_SIZE - UNIT;

/// Lines of an entry that are worth to be brought in before it is known how long it is.
const PREFETCHED_LINES: usize = 2;

/// Chunk slots of the first directory segment; each further segment has twice as many.
const SEGMENT_SLOTS_FIRST: usize = 8;
const SEGMENT_COUNT: usize = 10;
/// 8 + 16 + .. + 4096: below 2^13, so that every chunk index fits an id.
const CHUNK_COUNT_MAX: usize = SEGMENT_SLOTS_FIRST * ((1 << SEGMENT_COUNT) - 1);
const _: () = assert!(CHUNK_COUNT_MAX < 1 << (u32::BITS - OFFSET_BITS));
/// With so many chunks an arena is full: there is room for the largest batch, and no more.
const FULL_CHUNK_COUNT: usize =
    CHUNK_COUNT_MAX - SMALL_CHUNKS_MAX - BATCH_SIZE_MAX.div_ceil(CHUNK_PAYLOAD_MIN);
const _: () = assert!(
    (FULL_CHUNK_COUNT - SMALL_CHUNKS_MAX) * CHUNK_PAYLOAD_MIN > MEMTABLE_SIZE_MAX as usize,
    "a memtable is as large as it may be before its arena is full"
);

/// Names an entry of one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct EntryId(u32);

impl EntryId {
    /// Fills unused places of arrays; is never looked up.
    pub(super) const UNUSED: EntryId = EntryId(u32::MAX);
}

/// The readers' side of the arena, and the owner of its memory.
pub(super) struct Entries {
    directory: [AtomicPtr<ChunkSlot>; SEGMENT_COUNT],
    allocated: AtomicUsize,
    chunk_count: AtomicUsize,
    spares: Arc<SpareChunks>,
}

/// Where a chunk lies: its first byte, for readers, and the chunk.
#[derive(Default)]
struct ChunkSlot {
    base: AtomicPtr<u8>,
    chunk: OnceLock<Chunk>,
}

/// The writer's side of the arena.
pub(super) struct EntryAppender {
    entries: Arc<Entries>,
    /// The chunk that is being filled; null before the first.
    base: *mut u8,
    chunk_index: usize,
    used: usize,
    size: usize,
    chunk_count: usize,
}

// SAFETY: `base` points into memory that `entries` owns, and only this appender writes there (A4);
// nothing about it is bound to a thread.
unsafe impl Send for EntryAppender {}

/// An arena: its readers' side and its one appender (A4).
pub(super) fn arena(spares: &Arc<SpareChunks>) -> (Arc<Entries>, EntryAppender) {
    let entries = Arc::new(Entries {
        directory: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENT_COUNT],
        allocated: AtomicUsize::new(0),
        chunk_count: AtomicUsize::new(0),
        spares: Arc::clone(spares),
    });
    let appender = EntryAppender {
        entries: Arc::clone(&entries),
        base: ptr::null_mut(),
        chunk_index: 0,
        used: 0,
        size: 0,
        chunk_count: 0,
    };
    (entries, appender)
}

/// Segment of the directory and slot in it for a chunk. Chunks 0..8 are in segment 0, 8..24 in
/// segment 1, 24..56 in segment 2: adding 8 makes the segment visible in the highest bit.
#[inline]
fn slot_place(chunk_index: usize) -> (usize, usize) {
    let shifted = chunk_index + SEGMENT_SLOTS_FIRST;
    let segment = (shifted.ilog2() - SEGMENT_SLOTS_FIRST.ilog2()) as usize;
    (segment, shifted - (SEGMENT_SLOTS_FIRST << segment))
}

impl Entries {
    /// Bytes of memory that the arena has taken.
    pub(super) fn allocated(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Whether only one more batch is sure to have room.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.chunk_count.load(Ordering::Relaxed) >= FULL_CHUNK_COUNT
    }

    /// The entry named `id`.
    #[inline]
    pub(super) fn entry(&self, id: EntryId) -> EntryRef<'_> {
        let (header, bytes) = self.header_and_bytes(id);
        let (key, value) = bytes.split_at(header.key_len);
        EntryRef { key, seqno: header.seqno, kind: header.kind, value }
    }

    /// The key of the entry named `id`.
    #[inline]
    pub(super) fn key(&self, id: EntryId) -> &[u8] {
        let (header, bytes) = self.header_and_bytes(id);
        &bytes[..header.key_len]
    }

    /// The seqno of the entry named `id`.
    #[inline]
    pub(super) fn seqno(&self, id: EntryId) -> SeqNo {
        self.header_and_bytes(id).0.seqno
    }

    /// What the entry named `id` says.
    #[inline]
    pub(super) fn kind(&self, id: EntryId) -> EntryKind {
        self.header_and_bytes(id).0.kind
    }

    /// Brings in the first lines of the entry named `id`.
    #[inline]
    pub(super) fn prefetch(&self, id: EntryId) {
        let start = self.start_of(id);
        for line in 0..PREFETCHED_LINES {
            prefetch(start.wrapping_add(line * chunk::LINE_SIZE));
        }
    }

    #[inline]
    fn header_and_bytes(&self, id: EntryId) -> (Header, &[u8]) {
        let start = self.start_of(id);
        // SAFETY: the first 16 bytes of the entry are initialised and frozen (A1, A2, A3); any
        // address is aligned for bytes, and the lifetime is that of `self`, which frees them.
        let header = unsafe { &*start.cast::<[u8; HEADER_SIZE]>() };
        let header = Header::decode(header);
        // SAFETY: the entry goes on with so many bytes in the same chunk (A1).
        let tail = unsafe { start.add(HEADER_SIZE) };
        // SAFETY: those bytes are initialised and frozen (A1, A2, A3) and live as long as `self`.
        let bytes = unsafe { slice::from_raw_parts(tail, header.key_len + header.value_len) };
        (header, bytes)
    }

    /// Address of the first byte of the entry.
    #[inline]
    fn start_of(&self, id: EntryId) -> *const u8 {
        let slot = self.slot((id.0 >> OFFSET_BITS) as usize);
        // Relaxed: A3 orders this load after the store of the slot.
        let base = slot.base.load(Ordering::Relaxed);
        let offset = (id.0 & ((1 << OFFSET_BITS) - 1)) as usize * UNIT;
        // SAFETY: the offset was inside this chunk when the id was made (A1).
        unsafe { base.add(offset) }
    }

    #[inline]
    fn slot(&self, chunk_index: usize) -> &ChunkSlot {
        let (segment, slot) = slot_place(chunk_index);
        // Relaxed: A3 orders this load after the store of the segment.
        let slots = self.directory[segment].load(Ordering::Relaxed);
        // SAFETY: the segment was published before any id of a chunk in it (A1, A5) and has
        // `SEGMENT_SLOTS_FIRST << segment` slots, more than `slot`.
        let slot = unsafe { slots.add(slot) };
        // SAFETY: slots are initialised when their segment is made and live as long as `self`.
        unsafe { &*slot }
    }

    /// Allocates the chunk with this index. Called by the appender only, indexes ascending.
    fn add_chunk(&self, chunk_index: usize, size: usize) -> *mut u8 {
        assert!(chunk_index < CHUNK_COUNT_MAX, "a full memtable is sealed before the next batch");
        let (segment, _) = slot_place(chunk_index);
        let mut taken = size;
        if self.directory[segment].load(Ordering::Relaxed).is_null() {
            let slots: Box<[ChunkSlot]> =
                (0..SEGMENT_SLOTS_FIRST << segment).map(|_| ChunkSlot::default()).collect();
            taken += size_of_val(&*slots);
            self.directory[segment].store(Box::into_raw(slots).cast(), Ordering::Release); // A5
        }
        let slot = self.slot(chunk_index);
        let chunk = slot.chunk.get_or_init(|| Chunk::allocate(size, &self.spares));
        let base = chunk.start().as_ptr();
        slot.base.store(base, Ordering::Release);
        self.allocated.fetch_add(taken, Ordering::Relaxed);
        self.chunk_count.store(chunk_index + 1, Ordering::Relaxed);
        base
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        for (segment, slots) in self.directory.iter_mut().enumerate() {
            let slots = *slots.get_mut();
            if slots.is_null() {
                continue;
            }
            let count = SEGMENT_SLOTS_FIRST << segment;
            // SAFETY: `add_chunk` made this segment from a boxed slice of that many slots, it is
            // taken back only here, and no borrow of an entry outlives `self`.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(slots, count)) });
        }
    }
}

struct Header {
    seqno: SeqNo,
    key_len: usize,
    value_len: usize,
    kind: EntryKind,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let key_len_and_kind = self.key_len as u32 | (u32::from(self.kind as u8) << 24);
        bytes[..8].copy_from_slice(&self.seqno.as_u64().to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.value_len as u32).to_le_bytes());
        bytes[12..].copy_from_slice(&key_len_and_kind.to_le_bytes());
        bytes
    }

    #[inline]
    fn decode(bytes: &[u8; HEADER_SIZE]) -> Header {
        let (low, high) = bytes.split_at(8);
        let seqno = u64::from_le_bytes(low.try_into().expect("split at 8 bytes"));
        let lengths = u64::from_le_bytes(high.try_into().expect("8 bytes are left of 16"));
        Header {
            seqno: SeqNo::from_u64(seqno),
            value_len: (lengths & 0xFFFF_FFFF) as usize,
            key_len: (lengths >> 32 & 0xFF_FFFF) as usize,
            kind: EntryKind::from_u8((lengths >> 56) as u8).expect("an appended kind (A1)"),
        }
    }
}

impl EntryAppender {
    /// Copies an entry into the arena.
    ///
    /// # Panics
    /// When the key or the value is longer than its maximum, or more than one of the largest
    /// batches came behind [`Entries::is_full`].
    pub(super) fn append(&mut self, entry: &EntryRef<'_>) -> EntryId {
        assert!(entry.key.len() <= KEY_LEN_MAX, "the caller limits keys");
        assert!(entry.value.len() <= VALUE_LEN_MAX, "the caller limits values");
        let size = HEADER_SIZE + entry.key.len() + entry.value.len();
        let (id, start) = self.make_room(size.next_multiple_of(UNIT));
        let header = Header {
            seqno: entry.seqno,
            key_len: entry.key.len(),
            value_len: entry.value.len(),
            kind: entry.kind,
        };
        let mut end = start;
        for piece in [&header.encode()[..], entry.key, entry.value] {
            // SAFETY: `make_room` gave `size` bytes at `start` that nobody else knows yet (A4),
            // the pieces add up to `size`, and they lie outside of the fresh room.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), end, piece.len()) };
            // SAFETY: the pieces up to here end inside the room or right behind it.
            end = unsafe { end.add(piece.len()) };
        }
        id
    }

    #[inline]
    fn make_room(&mut self, size: usize) -> (EntryId, *mut u8) {
        if self.size - self.used < size {
            let shared_size = chunk::next_size(self.entries.allocated(), HUGE_FROM);
            if size > shared_size / OWN_CHUNK_DIVISOR {
                let index = self.chunk_count;
                let base = self.entries.add_chunk(index, size);
                self.chunk_count += 1;
                return (entry_id(index, 0), base);
            }
            self.base = self.entries.add_chunk(self.chunk_count, shared_size);
            self.chunk_index = self.chunk_count;
            self.chunk_count += 1;
            self.used = 0;
            self.size = shared_size;
        }
        let offset = self.used;
        self.used += size;
        // SAFETY: `offset + size <= self.size`, the size of the chunk at `base`.
        (entry_id(self.chunk_index, offset), unsafe { self.base.add(offset) })
    }
}

fn entry_id(chunk_index: usize, offset: usize) -> EntryId {
    EntryId((chunk_index as u32) << OFFSET_BITS | (offset / UNIT) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::MemoryBudget;

    #[test]
    fn entries_of_any_size_read_back_and_little_is_allocated() {
        let (entries, mut appender) = arena(&SpareChunks::new(0, &MemoryBudget::new(0)));
        let mut ids = Vec::new();
        let mut payload = 0;
        for number in 0..600usize {
            let key = vec![number as u8; number % 40];
            let value = vec![!number as u8; if number % 50 == 0 { 9000 } else { number % 70 }];
            let seqno = SeqNo::from_u64(number as u64);
            let kind = EntryKind::from_u8((number % 3) as u8).unwrap();
            payload += HEADER_SIZE + key.len() + value.len();
            let entry = EntryRef { key: &key, seqno, kind, value: &value };
            ids.push((appender.append(&entry), key.clone(), value.clone(), seqno, kind));
        }
        for (id, key, value, seqno, kind) in &ids {
            assert_eq!(entries.entry(*id), EntryRef { key, seqno: *seqno, kind: *kind, value });
        }
        assert!(entries.allocated() < payload * 3 / 2 + chunk::CHUNK_SIZE_MIN, "{payload}");
    }

    #[test]
    fn few_chunks_are_taken_until_they_are_huge_pages() {
        // For entries that just get a chunk of their own, or just not.
        for more in [0, UNIT] {
            let (mut allocated, mut count) = (0, 0);
            while allocated < HUGE_FROM {
                let shared = chunk::next_size(allocated, HUGE_FROM);
                let entry = (shared / OWN_CHUNK_DIVISOR).next_multiple_of(UNIT) + more;
                allocated += if entry > shared / OWN_CHUNK_DIVISOR { entry } else { shared };
                count += 1;
            }
            assert!(count < SMALL_CHUNKS_MAX, "{count}");
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))] // Memory that is not written to is none there.
    fn an_arena_is_full_while_there_is_room_for_a_batch() {
        let (entries, mut appender) = arena(&SpareChunks::new(0, &MemoryBudget::new(0)));
        // Each takes a chunk of its own.
        let least = HUGE_PAGE_SIZE / OWN_CHUNK_DIVISOR + UNIT;
        let mut taken = 0;
        while !entries.is_full() {
            let _room = appender.make_room(least);
            taken += least;
        }
        assert!(taken > MEMTABLE_SIZE_MAX as usize, "it was sealed before, by its size");
        let mut left = BATCH_SIZE_MAX;
        while left > least {
            let _room = appender.make_room(least);
            left -= least;
        }
        assert!(appender.chunk_count <= CHUNK_COUNT_MAX);
    }

    #[test]
    fn chunk_slots_are_numbered_without_gaps() {
        let mut expected = (0, 0);
        for chunk_index in 0..CHUNK_COUNT_MAX {
            assert_eq!(slot_place(chunk_index), expected);
            expected.1 += 1;
            if expected.1 == SEGMENT_SLOTS_FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(expected, (SEGMENT_COUNT, 0));
    }
}
