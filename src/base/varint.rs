//! LEB128 variable-length integers: seven bits a byte, lowest first, high bit set on all but the
//! last. At most [`LEN_MAX`] bytes; longer or overflowing encodings are refused when read.

/// Bytes of the longest encoding: ceil(64 / 7).
pub const LEN_MAX: usize = 10;

/// Appends `value`.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put`] appends for `value`.
#[inline]
#[must_use]
pub fn len(value: u64) -> usize {
    // 1 + floor(log2(value) / 7); `| 1` makes zero take one byte.
    (63 - (value | 1).leading_zeros() as usize) / 7 + 1
}

/// Reads a value from `bytes` at `*pos` and moves `*pos` behind it. `None` when the bytes end
/// early or the encoding is over-long; `*pos` is then unspecified.
#[inline]
pub fn take(bytes: &[u8], pos: &mut usize) -> Option<u64> {
    let first = *bytes.get(*pos)?;
    *pos += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    take_long(bytes, pos, first)
}

fn take_long(bytes: &[u8], pos: &mut usize, first: u8) -> Option<u64> {
    let mut value = u64::from(first & 0x7F);
    let mut shift = 7;
    loop {
        let byte = *bytes.get(*pos)?;
        *pos += 1;
        if shift == 63 && byte > 1 {
            return None; // bits beyond the 64th
        }
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            // A zero last byte means that a shorter encoding exists: refuse, so that each value
            // has exactly one form.
            return (byte != 0).then_some(value);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// As [`take`], for a length or count that must fit `usize`.
#[inline]
pub fn take_usize(bytes: &[u8], pos: &mut usize) -> Option<usize> {
    usize::try_from(take(bytes, pos)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_in_len_bytes() {
        let edges = (0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + 1, u64::MAX - power]
        });
        for value in edges {
            let mut out = vec![0xAA];
            put(&mut out, value);
            assert_eq!(out.len() - 1, len(value), "{value}");
            let mut pos = 1;
            assert_eq!(take(&out, &mut pos), Some(value));
            assert_eq!(pos, out.len());
            for cut in 1..out.len() {
                assert_eq!(take(&out[..cut], &mut 1), None, "{value} cut at {cut}");
            }
        }
    }

    #[test]
    fn over_long_and_overflowing_encodings_are_refused() {
        assert_eq!(take(&[0x80, 0x00], &mut 0), None);
        assert_eq!(take(&[0xFF; 10], &mut 0), None);
        let mut too_big = [0xFF; 10];
        too_big[9] = 0x02;
        assert_eq!(take(&too_big, &mut 0), None);
    }
}
