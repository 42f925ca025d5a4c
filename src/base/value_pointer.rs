//! Pointers to values that lie in the value log: what an entry of kind `Pointer` holds.
//!
//! Layout (little-endian):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 5 | number of the value file |
//! | 5 | 5 | offset of the record in it |
//! | 10 | 4 | length of the value |
//! | 14 | 16 | the first bytes of the value's BLAKE3 hash |
//!
//! 30 bytes: a [`Slice`](crate::base::Slice) holds so many itself.

/// The first 16 bytes of a value's BLAKE3 hash: two values that have it in common are the same.
pub type ValueHash = [u8; 16];

/// Where a value lies, and which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuePointer {
    /// Number of the value file.
    pub file: u64,
    /// Where the value's record starts.
    pub offset: u64,
    /// Bytes of the value.
    pub len: u32,
    /// The value's hash.
    pub hash: ValueHash,
}

/// Bytes of a file's number, and of an offset.
const PLACE_SIZE: usize = 5;
const LEN_AT: usize = 2 * PLACE_SIZE;
const HASH_AT: usize = LEN_AT + size_of::<u32>();

impl ValuePointer {
    /// Bytes of every pointer.
    pub const SIZE: usize = HASH_AT + size_of::<ValueHash>();
    /// The largest number of a file, and the largest offset.
    pub const PLACE_MAX: u64 = (1 << (8 * PLACE_SIZE)) - 1;

    /// The pointer as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ValuePointer::SIZE] {
        debug_assert!(self.file <= Self::PLACE_MAX && self.offset <= Self::PLACE_MAX);
        let mut bytes = [0; ValuePointer::SIZE];
        bytes[..PLACE_SIZE].copy_from_slice(&self.file.to_le_bytes()[..PLACE_SIZE]);
        bytes[PLACE_SIZE..LEN_AT].copy_from_slice(&self.offset.to_le_bytes()[..PLACE_SIZE]);
        bytes[LEN_AT..HASH_AT].copy_from_slice(&self.len.to_le_bytes());
        bytes[HASH_AT..].copy_from_slice(&self.hash);
        bytes
    }

    /// The pointer that these bytes are; `None` if they are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<ValuePointer> {
        let bytes: &[u8; ValuePointer::SIZE] = bytes.try_into().ok()?;
        let place = |at: usize| {
            let mut number = [0; size_of::<u64>()];
            number[..PLACE_SIZE].copy_from_slice(&bytes[at..at + PLACE_SIZE]);
            u64::from_le_bytes(number)
        };
        Some(ValuePointer {
            file: place(0),
            offset: place(PLACE_SIZE),
            len: u32::from_le_bytes(bytes[LEN_AT..HASH_AT].try_into().ok()?),
            hash: bytes[HASH_AT..].try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_round_trips_and_other_lengths_are_none() {
        let pointer = ValuePointer { file: 1 << 39, offset: 40, len: u32::MAX, hash: [7; 16] };
        let bytes = pointer.encode();
        assert_eq!(ValuePointer::decode(&bytes), Some(pointer));
        assert_eq!(ValuePointer::decode(&bytes[1..]), None);
        assert_eq!(ValuePointer::decode(&[&bytes[..], b"x"].concat()), None);
    }
}
