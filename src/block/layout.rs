//! The bytes of a payload: how they are laid out, checked and decoded.
//!
//! ```text
//! payload := entries | stamps | table | trailer          (all integers little-endian)
//! ```
//!
//! Entries, keys strictly ascending. Lengths are varints; `kind` is `EntryKind` as two bits.
//!
//! | form   | entry                                                                         |
//! |--------|-------------------------------------------------------------------------------|
//! | whole  | `key_len << 2 \| kind`, key, value (up to where the next entry starts)        |
//! | shared | `shared`, `suffix_len`, `value_len << 2 \| kind`, suffix, value               |
//!
//! Restart interval 1 is the whole form: the table names every entry, so that an entry can be
//! found by number, and neither value lengths nor shared lengths are stored. With an interval n
//! above 1 the key of an entry is the first `shared` bytes of the key before it and `suffix`;
//! every n-th entry is a restart, whose `shared` is 0.
//!
//! Stamps: one a entry, `stamp_width` bytes each (0 to 8), all of one width so that they are
//! found by number: `(millis - base millis) << counter_bits | (counter - base counter)`. A block
//! of one commit spends nothing on them, one of an hour of commits about 4 bytes an entry.
//!
//! Table: the offset of each restart from the start of the entries, and then the length of the
//! entries. Two bytes each, or four when the entries take 64 KiB or more.
//!
//! Trailer, 18 bytes:
//!
//! | offset | size | field            | meaning                                             |
//! |--------|------|------------------|-----------------------------------------------------|
//! | 0      | 8    | base             | smallest millisecond and smallest counter, as stamp |
//! | 8      | 4    | entry_count      |                                                     |
//! | 12     | 2    | restart_interval | 1 = whole form                                      |
//! | 14     | 1    | counter_bits     | bits of the counter in a stored stamp, 0 to 16      |
//! | 15     | 1    | stamp_width      | bytes of a stored stamp, 0 to 8                     |
//! | 16     | 1    | table_item_len   | 2 or 4                                              |
//! | 17     | 1    | version          | 1                                                   |
//!
//! Invariants, all of them established by [`Layout::parse`] and [`Layout::check_entries`] before
//! anything else looks at the bytes, whatever the bytes are:
//! - B1  entries + stamps + table + trailer fill the payload exactly.
//! - B2  Restart offsets ascend from 0 to the length of the entries, and entries fill the room
//!   between them exactly.
//! - B3  Every kind is known, every key is at most [`KEY_LEN_MAX`] bytes.
//! - B4  No entry shares more bytes than the key before it has, and a restart shares none.
//!
//! Not established there: that keys ascend. A block that breaks that (only a defect or a forger
//! can make one) gives wrong entries, never a panic; `Block::check_order` tells.

use std::ops::Range;

use crate::base::EntryKind;
use crate::base::SeqNo;
use crate::base::format::PAYLOAD_VERSION;
use crate::base::varint;

/// Bytes of the longest key.
pub const KEY_LEN_MAX: usize = u16::MAX as usize;
/// Bytes of the longest payload: what a frame can hold, and restart offsets can reach. A value
/// may have that less the key and [`ENTRY_OVERHEAD_MAX`] and [`BLOCK_OVERHEAD_MAX`].
pub const PAYLOAD_LEN_MAX: usize = u32::MAX as usize - 64;
/// Bytes that an entry takes beyond key and value, in whichever form: its lengths (3 for
/// `shared`, 3 for `suffix_len`, 5 for the value), stamp and table item.
pub(super) const ENTRY_OVERHEAD_MAX: usize = 3 + 3 + 5 + 8 + 4;
/// Bytes that a block takes beyond its entries: the last table item and the trailer.
pub(super) const BLOCK_OVERHEAD_MAX: usize = 4 + TRAILER_LEN;

const TRAILER_LEN: usize = 18;
const VERSION: u8 = PAYLOAD_VERSION;
const NARROW: usize = 2;
const WIDE: usize = 4;
/// Bits of the kind in the varint that it shares with a length.
pub(super) const KIND_BITS: u32 = 2;
const KIND_MASK: usize = (1 << KIND_BITS) - 1;
const SEQNO_COUNTER_BITS: u32 = 16;

/// Where the pieces of one payload lie, and how to read them. Positions count from the start of
/// the bytes that the payload is part of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) entries_start: usize,
    pub(super) stamps_start: usize,
    table_start: usize,
    pub(super) entry_count: usize,
    pub(super) restart_count: usize,
    pub(super) restart_interval: usize,
    /// Entries that can be found by number: all in the whole form, none in the shared form.
    pub(super) whole_count: usize,
    /// Log2 of the length of a table item, and the bits of a four-byte load that belong to it:
    /// one load for both widths, without a branch. It never leaves the payload: the trailer
    /// follows.
    table_shift: u32,
    table_mask: u32,
    stamps: StampCode,
    stamp_mask: u64,
}

/// Where one entry lies; `shared` bytes of its key are those of the key before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntrySpan {
    pub(super) shared: usize,
    /// Start of the key, or of its suffix.
    pub(super) key_start: usize,
    /// End of the key and start of the value.
    pub(super) value_start: usize,
    pub(super) value_end: usize,
    pub(super) kind: EntryKind,
}

impl Layout {
    /// Reads the trailer and places the pieces (B1). The error says what is wrong.
    pub(super) fn parse(data: &[u8], payload: Range<usize>) -> Result<Layout, &'static str> {
        let len = data.get(payload.clone()).ok_or("payload outside of what was read")?.len();
        if len < TRAILER_LEN {
            return Err("payload shorter than its trailer");
        }
        let trailer_start = payload.end - TRAILER_LEN;
        let base = SeqNo::from_u64(u64::from_le_bytes(array_at(data, trailer_start)));
        let entry_count = u32::from_le_bytes(array_at(data, trailer_start + 8)) as usize;
        let restart_interval = usize::from(u16::from_le_bytes(array_at(data, trailer_start + 12)));
        let [counter_bits, stamp_width, item_len, version] = array_at(data, trailer_start + 14);
        if version != VERSION {
            return Err("unknown version of the block format");
        }
        if restart_interval == 0 || u32::from(counter_bits) > SEQNO_COUNTER_BITS || stamp_width > 8
        {
            return Err("trailer field out of range");
        }
        let (table_shift, table_mask) = match usize::from(item_len) {
            NARROW => (1, u32::from(u16::MAX)),
            WIDE => (2, u32::MAX),
            _ => return Err("trailer field out of range"),
        };
        let stamps = StampCode {
            base,
            counter_bits: u32::from(counter_bits),
            width: usize::from(stamp_width),
        };
        let restart_count = entry_count.div_ceil(restart_interval);
        // 64-bit arithmetic: neither product can overflow (2^32 * 4 and 2^32 * 8).
        let tail_len =
            ((restart_count as u64 + 1) << table_shift) + entry_count as u64 * stamps.width as u64;
        let before_trailer = (len - TRAILER_LEN) as u64;
        let entries_len =
            before_trailer.checked_sub(tail_len).ok_or("table and stamps exceed the payload")?;
        let stamps_start = payload.start + entries_len as usize;
        let layout = Layout {
            entries_start: payload.start,
            stamps_start,
            table_start: stamps_start + entry_count * stamps.width,
            entry_count,
            restart_count,
            restart_interval,
            whole_count: if restart_interval == 1 { entry_count } else { 0 },
            table_shift,
            table_mask,
            stamps,
            stamp_mask: low_bits(stamps.width as u32 * 8),
        };
        if layout.restart(data, 0) != layout.entries_start
            || layout.restart(data, restart_count) != stamps_start
        {
            return Err("restart table does not span the entries");
        }
        Ok(layout)
    }

    /// Walks all entries once (B2, B3, B4): 1 to 3 ns each. After this, decoding cannot fail.
    pub(super) fn check_entries(&self, data: &[u8]) -> Result<(), &'static str> {
        if self.is_whole() { self.check_whole(data) } else { self.check_shared(data) }
            .ok_or("entry exceeds its room")
    }

    fn check_whole(&self, data: &[u8]) -> Option<()> {
        let mut start = self.entries_start;
        for index in 0..self.entry_count {
            let end = self.restart(data, index + 1);
            // Refuses an end before the start. The last end is where the stamps start, so that no
            // other can be behind it.
            whole_entry(data, start, end)?;
            start = end;
        }
        Some(())
    }

    fn check_shared(&self, data: &[u8]) -> Option<()> {
        let mut pos = self.entries_start;
        let mut left = self.entry_count;
        for group in 0..self.restart_count {
            if self.restart(data, group) != pos {
                return None;
            }
            let mut key_len = 0;
            for _ in 0..left.min(self.restart_interval) {
                let entry = shared_entry(data, pos, self.stamps_start)?;
                if entry.shared > key_len {
                    return None; // also what a restart shares: nothing is before it
                }
                key_len = entry.key_len();
                if key_len > KEY_LEN_MAX {
                    return None;
                }
                pos = entry.value_end;
            }
            left -= left.min(self.restart_interval);
        }
        (pos == self.stamps_start).then_some(())
    }

    /// Whether every key is whole and every entry in the table.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.restart_interval == 1
    }

    /// Where restart `index` starts; for `restart_count`, where the entries end.
    #[inline]
    pub(super) fn restart(&self, data: &[u8], index: usize) -> usize {
        let item =
            u32::from_le_bytes(array_at(data, self.table_start + (index << self.table_shift)));
        self.entries_start + (item & self.table_mask) as usize
    }

    /// The stamp of entry `index`.
    #[inline]
    pub(super) fn stamp(&self, data: &[u8], index: usize) -> SeqNo {
        // Eight bytes whatever the width: table and trailer follow.
        let bytes = array_at(data, self.stamps_start + index * self.stamps.width);
        self.stamps.decode(u64::from_le_bytes(bytes) & self.stamp_mask)
    }

    /// The same layout, of entries that all have one stamp, which is to be this one.
    pub(super) fn stamped(&self, stamp: SeqNo) -> Layout {
        Layout { stamps: StampCode { base: stamp, ..self.stamps }, ..*self }
    }

    /// Where the stamp of entry `index` lies.
    pub(super) fn stamp_place(&self, index: usize) -> Range<usize> {
        let start = self.stamps_start + index * self.stamps.width;
        start..start + self.stamps.width
    }

    /// The stamp whose bytes are `bytes`, those of [`Self::stamp_place`].
    pub(super) fn decode_stamp(&self, bytes: &[u8]) -> SeqNo {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        self.stamps.decode(u64::from_le_bytes(padded))
    }

    /// Where the payload ends.
    pub(super) fn payload_end(&self) -> usize {
        self.table_start + ((self.restart_count + 1) << self.table_shift) + TRAILER_LEN
    }

    /// The same layout for whoever keeps only the table and what is behind it, which are returned
    /// as well: [`Self::restart`] is to be called with those.
    pub(super) fn with_table_apart<'a>(&self, data: &'a [u8]) -> (Layout, &'a [u8]) {
        let tail = &data[self.table_start..self.payload_end()];
        (Layout { table_start: 0, ..*self }, tail)
    }

    /// Entry `index` of a block in the whole form. Always inline: handing the span back through
    /// memory costs more (9 ns) than decoding it.
    #[inline(always)]
    pub(super) fn whole(&self, data: &[u8], index: usize) -> EntrySpan {
        whole_entry(data, self.restart(data, index), self.restart(data, index + 1))
            .expect("B2: checked before")
    }

    /// As [`Layout::restart`], without a way to panic: `None` outside of the data.
    #[inline(always)]
    pub(super) fn restart_if_there(&self, data: &[u8], index: usize) -> Option<usize> {
        let item = data.get(self.table_start + (index << self.table_shift)..)?.first_chunk()?;
        Some(self.entries_start + (u32::from_le_bytes(*item) & self.table_mask) as usize)
    }

    /// The entry at `start` of a block in the shared form. Always inline, as [`Layout::whole`].
    #[inline(always)]
    pub(super) fn shared(&self, data: &[u8], start: usize) -> EntrySpan {
        shared_entry(data, start, self.stamps_start).expect("B2: checked before")
    }

    /// The whole key of a restart.
    #[inline]
    pub(super) fn restart_key<'a>(&self, data: &'a [u8], index: usize) -> &'a [u8] {
        let (start, len) = self.restart_key_place(data, index);
        &data[start..start + len]
    }

    /// Where the key of a restart starts, and its length.
    #[inline(always)]
    pub(super) fn restart_key_place(&self, data: &[u8], index: usize) -> (usize, usize) {
        let start = self.restart(data, index);
        if self.is_whole() {
            let mut pos = start;
            let head = take_short(data, &mut pos).expect("B2: checked before");
            return (pos, head >> KIND_BITS);
        }
        let entry = self.shared(data, start);
        (entry.key_start, entry.key_len())
    }
}

impl EntrySpan {
    /// Length of the whole key.
    #[inline]
    pub(super) fn key_len(&self) -> usize {
        self.shared + (self.value_start - self.key_start)
    }
}

/// Decodes an entry in the whole form that must end at `end`.
#[inline(always)]
pub(super) fn whole_entry(data: &[u8], start: usize, end: usize) -> Option<EntrySpan> {
    let mut pos = start;
    let head = take_short(data, &mut pos)?;
    let key_len = head >> KIND_BITS;
    let kind = EntryKind::from_u8((head & KIND_MASK) as u8)?;
    if key_len > KEY_LEN_MAX || pos + key_len > end {
        return None;
    }
    Some(EntrySpan { shared: 0, key_start: pos, value_start: pos + key_len, value_end: end, kind })
}

/// Decodes what nearly every entry in the whole form is: a value with a key below 4 KiB. `None` is
/// no verdict on another one. For walks: has no way to panic and calls nothing, so that all stays
/// in registers.
#[inline(always)]
pub(super) fn plain_entry(data: &[u8], start: usize, end: usize) -> Option<EntrySpan> {
    let &[low, high] = data.get(start..)?.first_chunk()?;
    let (head, key_start) = match (usize::from(low), usize::from(high)) {
        (low @ ..0x80, _) => (low, start + 1),
        (low, high @ 1..0x80) => (low & 0x7F | high << 7, start + 2),
        _ => return None,
    };
    let value_start = key_start + (head >> KIND_BITS);
    if head & KIND_MASK != EntryKind::Value as usize || value_start > end {
        return None;
    }
    Some(EntrySpan { shared: 0, key_start, value_start, value_end: end, kind: EntryKind::Value })
}

/// Decodes an entry in the shared form that must end by `limit`.
#[inline(always)]
pub(super) fn shared_entry(data: &[u8], start: usize, limit: usize) -> Option<EntrySpan> {
    let mut pos = start;
    let shared = take_short(data, &mut pos)?;
    let suffix_len = take_short(data, &mut pos)?;
    let head = take_short(data, &mut pos)?;
    let value_len = head >> KIND_BITS;
    let kind = EntryKind::from_u8((head & KIND_MASK) as u8)?;
    let room = limit.checked_sub(pos)?;
    if shared > KEY_LEN_MAX || suffix_len > room || value_len > room - suffix_len {
        return None;
    }
    let value_start = pos + suffix_len;
    Some(EntrySpan {
        shared,
        key_start: pos,
        value_start,
        value_end: value_start + value_len,
        kind,
    })
}

/// As `varint::take_usize`, with the two shortest forms inline: nearly all lengths have them.
#[inline(always)]
fn take_short(data: &[u8], pos: &mut usize) -> Option<usize> {
    if let Some(&[low, high]) = data.get(*pos..)?.first_chunk() {
        if low < 0x80 {
            *pos += 1;
            return Some(usize::from(low));
        }
        if high < 0x80 && high != 0 {
            *pos += 2;
            return Some(usize::from(low & 0x7F) | (usize::from(high) << 7));
        }
    }
    take_long(data, pos)
}

#[cold]
fn take_long(data: &[u8], pos: &mut usize) -> Option<usize> {
    varint::take_usize(data, pos)
}

/// Appends stamps, table and trailer to the entries, which are all that `out` holds.
pub(super) fn put_tail(
    out: &mut Vec<u8>,
    restarts: &[u32],
    seqnos: &[SeqNo],
    stamps: StampCode,
    restart_interval: u16,
) {
    let entries_len = out.len();
    stamps.put_all(out, seqnos);
    let item_len = table_item_len(entries_len);
    let table_start = out.len();
    out.resize(table_start + (restarts.len() + 1) * item_len, 0);
    let items = restarts.iter().copied().chain([entries_len as u32]);
    if item_len == NARROW {
        for (bytes, item) in out[table_start..].as_chunks_mut::<NARROW>().0.iter_mut().zip(items) {
            *bytes = (item as u16).to_le_bytes();
        }
    } else {
        for (bytes, item) in out[table_start..].as_chunks_mut::<WIDE>().0.iter_mut().zip(items) {
            *bytes = item.to_le_bytes();
        }
    }
    out.extend_from_slice(&stamps.base.as_u64().to_le_bytes());
    out.extend_from_slice(&(seqnos.len() as u32).to_le_bytes());
    out.extend_from_slice(&restart_interval.to_le_bytes());
    out.extend_from_slice(&[
        stamps.counter_bits as u8,
        stamps.width as u8,
        item_len as u8,
        VERSION,
    ]);
}

/// Bytes of all that [`put_tail`] appends.
pub(super) fn tail_len(
    entries_len: usize,
    restart_count: usize,
    stamps: StampCode,
    entry_count: usize,
) -> usize {
    entry_count * stamps.width + (restart_count + 1) * table_item_len(entries_len) + TRAILER_LEN
}

fn table_item_len(entries_len: usize) -> usize {
    if entries_len <= usize::from(u16::MAX) { NARROW } else { WIDE }
}

/// How the stamps of one block are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StampCode {
    base: SeqNo,
    counter_bits: u32,
    width: usize,
}

/// What must be known of a block's stamps to choose their code; gathered one at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct StampRange {
    millis_min: u64,
    millis_max: u64,
    counter_min: u16,
    counter_max: u16,
}

impl StampRange {
    /// The range of no stamps.
    pub(super) const EMPTY: StampRange =
        StampRange { millis_min: u64::MAX, millis_max: 0, counter_min: u16::MAX, counter_max: 0 };

    #[inline]
    pub(super) fn extend(&mut self, seqno: SeqNo) {
        self.millis_min = self.millis_min.min(seqno.millis());
        self.millis_max = self.millis_max.max(seqno.millis());
        self.counter_min = self.counter_min.min(seqno.counter());
        self.counter_max = self.counter_max.max(seqno.counter());
    }

    /// The narrowest code that holds every stamp of the range.
    #[inline]
    pub(super) fn code(&self) -> StampCode {
        if self.millis_min > self.millis_max {
            return StampCode { base: SeqNo::ZERO, counter_bits: 0, width: 0 };
        }
        let counter_bits = u16::BITS - (self.counter_max - self.counter_min).leading_zeros();
        let millis_bits = u64::BITS - (self.millis_max - self.millis_min).leading_zeros();
        let width = (counter_bits + millis_bits).div_ceil(8) as usize;
        let base = SeqNo::from_parts(self.millis_min, self.counter_min);
        StampCode { base, counter_bits, width }
    }
}

impl StampCode {
    #[inline]
    fn encode(self, seqno: SeqNo) -> u64 {
        let millis = seqno.millis() - self.base.millis();
        let counter = seqno.counter() - self.base.counter();
        (millis << self.counter_bits) | u64::from(counter)
    }

    /// Wraps for bytes that no encoder wrote.
    #[inline]
    fn decode(self, stored: u64) -> SeqNo {
        let millis = (stored >> self.counter_bits) << SEQNO_COUNTER_BITS;
        let counter = stored & low_bits(self.counter_bits);
        SeqNo::from_u64(self.base.as_u64().wrapping_add(millis).wrapping_add(counter))
    }

    fn put_all(self, out: &mut Vec<u8>, seqnos: &[SeqNo]) {
        if self.width == 0 {
            return;
        }
        // Each store writes eight bytes and the next one overwrites those that are too many.
        let start = out.len();
        let end = start + seqnos.len() * self.width;
        out.resize(end + 8, 0);
        for (index, &seqno) in seqnos.iter().enumerate() {
            let pos = start + index * self.width;
            out[pos..pos + 8].copy_from_slice(&self.encode(seqno).to_le_bytes());
        }
        out.truncate(end);
    }
}

#[inline]
fn low_bits(count: u32) -> u64 {
    if count >= u64::BITS { u64::MAX } else { (1 << count) - 1 }
}

/// `N` bytes at `start`.
#[inline]
fn array_at<const N: usize>(data: &[u8], start: usize) -> [u8; N] {
    *data[start..].first_chunk().expect("B1: within the payload")
}
