//! The steps that change a layout, and their bytes in the journal.
//!
//! Pure: bytes in, values out. An operation of a caller is one step or a few; an edit of the index
//! holds whole operations.
//!
//! | kind | step | fields, varints |
//! |---|---|---|
//! | 1 | [`Op::Insert`] | offset, segment, offset in the segment, length |
//! | 2 | [`Op::Collapse`] | offset, length |
//! | 3 | [`Op::Overwrite`] | offset, segment, offset in the segment, length |
//! | 4 | [`Op::SetTag`] | offset, tag or 0 |
//! | 5 | [`Op::Extend`] | segment, bytes of data in it |
//! | 6 | [`Op::Count`] | bytes from callers, bytes written |

use super::extent::{Address, Tag};
use crate::base::varint;

/// The most bytes that [`Op::put`] appends.
pub(super) const OP_SIZE_MAX: usize = 1 + 4 * varint::LEN_MAX;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Bytes come in front of the one at `offset`.
    Insert { offset: u64, address: Address, len: u32 },
    /// Bytes go.
    Collapse { offset: u64, len: u64 },
    /// Bytes are elsewhere from now on; their tags stay.
    Overwrite { offset: u64, address: Address, len: u32 },
    /// The byte at `offset` has this tag, or none.
    SetTag { offset: u64, tag: Option<Tag> },
    /// The first `size` bytes of data of a segment are durable.
    Extend { segment: u32, size: u32 },
    /// So much was given by callers, and written for it, in all sessions.
    Count { user_bytes: u64, written_bytes: u64 },
}

impl Op {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, fields: &[u64]| {
            out.push(kind);
            fields.iter().for_each(|&field| varint::put(out, field));
        };
        let place = |address: Address| (u64::from(address.segment), u64::from(address.offset));
        match *self {
            Op::Insert { offset, address, len } => {
                let (segment, at) = place(address);
                put(1, &[offset, segment, at, u64::from(len)]);
            }
            Op::Collapse { offset, len } => put(2, &[offset, len]),
            Op::Overwrite { offset, address, len } => {
                let (segment, at) = place(address);
                put(3, &[offset, segment, at, u64::from(len)]);
            }
            Op::SetTag { offset, tag } => put(4, &[offset, tag.map_or(0, |tag| tag.get().into())]),
            Op::Extend { segment, size } => put(5, &[segment.into(), size.into()]),
            Op::Count { user_bytes, written_bytes } => put(6, &[user_bytes, written_bytes]),
        }
    }

    /// The step at `*pos`, which moves behind it; `None` when there is none of a known form.
    pub(super) fn take(bytes: &[u8], pos: &mut usize) -> Option<Op> {
        let kind = *bytes.get(*pos)?;
        *pos += 1;
        Some(match kind {
            1 => Op::Insert {
                offset: varint::take(bytes, pos)?,
                address: take_address(bytes, pos)?,
                len: take_u32(bytes, pos)?,
            },
            2 => Op::Collapse { offset: varint::take(bytes, pos)?, len: varint::take(bytes, pos)? },
            3 => Op::Overwrite {
                offset: varint::take(bytes, pos)?,
                address: take_address(bytes, pos)?,
                len: take_u32(bytes, pos)?,
            },
            4 => Op::SetTag {
                offset: varint::take(bytes, pos)?,
                tag: Tag::new(take_u32(bytes, pos)?),
            },
            5 => Op::Extend { segment: take_u32(bytes, pos)?, size: take_u32(bytes, pos)? },
            6 => Op::Count {
                user_bytes: varint::take(bytes, pos)?,
                written_bytes: varint::take(bytes, pos)?,
            },
            _ => return None,
        })
    }
}

pub(super) fn take_u32(bytes: &[u8], pos: &mut usize) -> Option<u32> {
    u32::try_from(varint::take(bytes, pos)?).ok()
}

pub(super) fn take_address(bytes: &[u8], pos: &mut usize) -> Option<Address> {
    Some(Address { segment: take_u32(bytes, pos)?, offset: take_u32(bytes, pos)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_round_trip() {
        let address = Address { segment: u32::MAX, offset: 5 };
        let steps = [
            Op::Insert { offset: u64::MAX, address, len: u32::MAX },
            Op::Insert { offset: 0, address: Address::ZEROS, len: 1 },
            Op::Collapse { offset: 300, len: 1 << 40 },
            Op::Overwrite { offset: 7, address, len: 9 },
            Op::SetTag { offset: 7, tag: Tag::new(12) },
            Op::SetTag { offset: 7, tag: None },
            Op::Extend { segment: 3, size: 4088 },
            Op::Count { user_bytes: 10, written_bytes: 4096 },
        ];
        let mut bytes = Vec::new();
        for step in &steps {
            let start = bytes.len();
            step.put(&mut bytes);
            assert!(bytes.len() - start <= OP_SIZE_MAX);
        }
        let mut pos = 0;
        for step in steps {
            assert_eq!(Op::take(&bytes, &mut pos), Some(step));
        }
        assert_eq!(pos, bytes.len());
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for bytes in [&[][..], &[0], &[7, 1, 1], &[1, 1, 1], &[5, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]]
        {
            assert_eq!(Op::take(bytes, &mut 0), None, "{bytes:?}");
        }
    }
}
