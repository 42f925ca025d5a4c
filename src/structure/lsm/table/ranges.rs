//! Deleted ranges of a table. They hide what is older than the table, never its own entries; so
//! nothing has to be known of when they were deleted.
//!
//! Layout of the payload; numbers are varints (`base::varint`):
//!
//! | field | meaning |
//! |---|---|
//! | count | one at least |
//! | for each: length, bytes | where it starts |
//! | length + 1, bytes | the first key behind it; 0 if it has no end |
//!
//! Ranges ascend, none is empty, and no two of them touch.

use crate::base::{DeletedRange, RangeTombstones, SeqNo, varint};

/// The stamp that all deleted ranges of tables have in memory.
pub(super) const RANGE_STAMP: SeqNo = SeqNo::ZERO;

/// The payload.
pub(super) fn encode(ranges: &RangeTombstones) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, ranges.fragment_count() as u64);
    for DeletedRange { start, end, .. } in ranges.iter() {
        varint::put(&mut out, start.len() as u64);
        out.extend_from_slice(start);
        varint::put(&mut out, end.map_or(0, |end| end.len() as u64 + 1));
        out.extend_from_slice(end.unwrap_or_default());
    }
    out
}

/// The ranges of a payload; `None` if it is none.
pub(in crate::structure::lsm) fn decode(bytes: &[u8]) -> Option<RangeTombstones> {
    let mut position = 0;
    let count = varint::take(bytes, &mut position)?;
    let mut ranges = RangeTombstones::default();
    // Where the last one ended; `None` once one had no end.
    let mut reached: Option<&[u8]> = Some(&[]);
    for number in 0..count {
        let start_len = varint::take_usize(bytes, &mut position)?;
        let start = take(bytes, &mut position, start_len)?;
        let behind = reached.is_some_and(|reached| reached < start || number == 0);
        let end = match varint::take_usize(bytes, &mut position)?.checked_sub(1) {
            None => None,
            Some(end_len) => Some(take(bytes, &mut position, end_len)?),
        };
        if !behind || end.is_some_and(|end| end <= start) {
            return None;
        }
        ranges.append(start, end, RANGE_STAMP);
        reached = end;
    }
    (position == bytes.len() && count > 0).then_some(ranges)
}

fn take<'a>(bytes: &'a [u8], position: &mut usize, len: usize) -> Option<&'a [u8]> {
    let taken = bytes.get(*position..)?.get(..len)?;
    *position += len;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_round_trip_and_others_are_refused() {
        let mut ranges = RangeTombstones::default();
        for (start, end) in [("", Some("a")), ("b", Some("bb")), ("x", None)] {
            ranges.append(start.as_bytes(), end.map(str::as_bytes), RANGE_STAMP);
        }
        let bytes = encode(&ranges);
        assert_eq!(decode(&bytes), Some(ranges));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        for (case, bytes) in [
            ("none", &[0][..]),
            ("empty", &[1, 1, b'b', 2, b'b']),
            ("backward", &[1, 1, b'b', 2, b'a']),
            ("touching", &[2, 1, b'b', 2, b'c', 1, b'c', 2, b'd']),
            ("overlapping", &[2, 1, b'b', 2, b'd', 1, b'c', 0]),
            ("behind one without end", &[2, 1, b'b', 0, 1, b'c', 0]),
            ("long", &[1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]),
        ] {
            assert_eq!(decode(bytes), None, "{case}");
        }
    }
}
