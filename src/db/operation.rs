//! What a batch does, operation by operation, in the form that the log stores.
//!
//! Layout of a commit record's payload:
//!
//! | size | field |
//! |---|---|
//! | 8 | stamp (little-endian) |
//! | varint | operation count |
//! | | operations, in order |
//!
//! The first operation may be the commit's payload: a put of the empty key into keyspace 0, which
//! is none. An operation is a varint of `keyspace << 2 | kind`, or, of a kind above 3, a byte 1 and
//! a varint of `keyspace << 4 | kind`; and then:
//!
//! | kind | | fields |
//! |---|---|---|
//! | 0 | put | key's length, value's length (varints), key, value |
//! | 1 | delete | key's length (varint), key |
//! | 2 | put a pointer | key's length (varint), key, pointer to the value |
//! | 3 | delete range | start's length, end's length + 1 or 0 for no end (varints), start, end |
//! | 4 | merge | key's length, operand's length (varints), key, operand |
//! | 5 | put that expires | key's length, value's length, lifetime (varints), key, value |
//! | 6 | put a pointer that expires | key's length, lifetime (varints), key, pointer to the value |
//!
//! A lifetime is twice the milliseconds since 1970 at which it ends, or twice the milliseconds from
//! the commit's stamp on, plus one.

use crate::base::{EntryKind, Lifetime, SeqNo, ValuePointer, varint};
use crate::db::{COMMIT_PAYLOAD_LEN_MAX, KEY_LEN_MAX, VALUE_LEN_MAX};

/// What begins a commit's payload among its operations: a put of the empty key into keyspace 0,
/// which is none.
pub(super) const PAYLOAD_OPERATION: [u8; 2] = [0, 0];
/// Bits of an operation's first number that are its kind.
pub(super) const KIND_BITS: u32 = 2;
/// Begins operations of the kinds that do not fit these: what would delete in keyspace 0.
pub(super) const EXTENDED: u64 = 1;
pub(super) const EXTENDED_KIND_BITS: u32 = 4;
/// The bounds of a range: a key, or the first one above it.
const BOUND_LEN_MAX: usize = KEY_LEN_MAX + 1;
/// Bytes of an operation before its key, at most.
pub(super) const OPERATION_HEAD_MAX: usize = 1 + 4 * varint::LEN_MAX;

/// What an operation is encoded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put = 0,
    Delete = 1,
    PutPointer = 2,
    DeleteRange = 3,
    Merge = 4,
    PutExpiring = 5,
    PutPointerExpiring = 6,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation<'a> {
    /// Where it ends among the bytes: rises from one to the next.
    pub offset: usize,
    pub keyspace: u32,
    pub write: Write<'a>,
}

impl<'a> Operation<'a> {
    /// The pointer that it puts, if it is a put of one.
    pub(super) fn pointer(&self) -> Option<&'a [u8]> {
        match self.write {
            Write::PutPointer { pointer, .. } | Write::PutPointerExpiring { pointer, .. } => {
                Some(pointer)
            }
            _ => None,
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write<'a> {
    Put {
        key: &'a [u8],
        value: &'a [u8],
    },
    /// A put whose value is, or will be, in the value log.
    PutPointer {
        key: &'a [u8],
        pointer: &'a [u8],
    },
    Delete {
        key: &'a [u8],
    },
    /// Deletes the keys from `start` to in front of `end`, or to the last.
    DeleteRange {
        start: &'a [u8],
        end: Option<&'a [u8]>,
    },
    /// Merges an operand into the value of `key`.
    Merge {
        key: &'a [u8],
        operand: &'a [u8],
    },
    /// A put of what expires.
    PutExpiring {
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Lifetime,
    },
    /// The same, whose value is, or will be, in the value log.
    PutPointerExpiring {
        key: &'a [u8],
        pointer: &'a [u8],
        lifetime: Lifetime,
    },
}

impl<'a> Write<'a> {
    /// Its kind, and key and value or the two bounds. No end is as an empty one, which none has.
    pub(super) fn fields(self) -> (Kind, &'a [u8], &'a [u8]) {
        match self {
            Write::Put { key, value } => (Kind::Put, key, value),
            Write::PutPointer { key, pointer } => (Kind::PutPointer, key, pointer),
            Write::Delete { key } => (Kind::Delete, key, &[]),
            Write::DeleteRange { start, end } => {
                (Kind::DeleteRange, start, end.unwrap_or_default())
            }
            Write::Merge { key, operand } => (Kind::Merge, key, operand),
            Write::PutExpiring { key, value, .. } => (Kind::PutExpiring, key, value),
            Write::PutPointerExpiring { key, pointer, .. } => {
                (Kind::PutPointerExpiring, key, pointer)
            }
        }
    }

    /// The key that it is on; none if it deletes a range.
    pub(super) fn key(self) -> Option<&'a [u8]> {
        match self {
            Write::Put { key, .. }
            | Write::PutPointer { key, .. }
            | Write::Delete { key }
            | Write::Merge { key, .. }
            | Write::PutExpiring { key, .. }
            | Write::PutPointerExpiring { key, .. } => Some(key),
            Write::DeleteRange { .. } => None,
        }
    }

    /// The entry that it makes whatever the stamp of its commit; none if it deletes a range,
    /// merges, or puts what expires.
    #[inline]
    pub(super) fn entry(self) -> Option<(&'a [u8], EntryKind, &'a [u8])> {
        match self {
            Write::Put { key, value } => Some((key, EntryKind::Value, value)),
            Write::PutPointer { key, pointer } => Some((key, EntryKind::Pointer, pointer)),
            Write::Delete { key } => Some((key, EntryKind::Tombstone, &[])),
            Write::DeleteRange { .. }
            | Write::Merge { .. }
            | Write::PutExpiring { .. }
            | Write::PutPointerExpiring { .. } => None,
        }
    }

    /// What it puts that expires: key, kind of what is put, that, and how long it is there.
    pub(super) fn expiring(self) -> Option<(&'a [u8], EntryKind, &'a [u8], Lifetime)> {
        match self {
            Write::PutExpiring { key, value, lifetime } => {
                Some((key, EntryKind::Value, value, lifetime))
            }
            Write::PutPointerExpiring { key, pointer, lifetime } => {
                Some((key, EntryKind::Pointer, pointer, lifetime))
            }
            _ => None,
        }
    }
}

/// The operations of a batch.
#[derive(Debug)]
pub(super) struct OwnOperations<'a>(Operations<'a>);

/// Why decoding cannot fail.
const BATCH_ENCODED_IT: &str = "the batch encoded it";

impl<'a> OwnOperations<'a> {
    /// Those of a batch, as it has encoded them.
    pub(super) fn of(bytes: &'a [u8]) -> OwnOperations<'a> {
        OwnOperations(Operations { bytes, position: 0 })
    }

    /// The keyspace of the next one, in a batch that is plain.
    #[inline]
    pub(super) fn next_keyspace(&self) -> Option<u32> {
        let Operations { bytes, mut position } = self.0;
        if position == bytes.len() {
            return None;
        }
        let packed = varint::take(bytes, &mut position).expect(BATCH_ENCODED_IT);
        debug_assert!(packed != EXTENDED, "of plain batches only");
        Some((packed >> KIND_BITS) as u32)
    }

    /// The next one, if it is on this keyspace.
    #[inline]
    pub(super) fn next_on(&mut self, keyspace: u32) -> Option<Operation<'a>> {
        if self.next_keyspace() == Some(keyspace) { self.next() } else { None }
    }
}

impl<'a> Iterator for OwnOperations<'a> {
    type Item = Operation<'a>;

    #[inline]
    fn next(&mut self) -> Option<Operation<'a>> {
        self.0.next().map(|next| next.expect(BATCH_ENCODED_IT))
    }
}

/// Decodes operations of any origin. An item is `None` where the bytes are not an operation.
#[derive(Debug)]
pub(super) struct Operations<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Iterator for Operations<'a> {
    type Item = Option<Operation<'a>>;

    fn next(&mut self) -> Option<Option<Operation<'a>>> {
        if self.position == self.bytes.len() {
            return None;
        }
        let operation = self.decode();
        if operation.is_none() {
            self.position = self.bytes.len();
        }
        Some(operation)
    }
}

impl<'a> Operations<'a> {
    /// Where the next one begins among the bytes.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn decode(&mut self) -> Option<Operation<'a>> {
        let packed = varint::take(self.bytes, &mut self.position)?;
        if packed == EXTENDED {
            return self.decode_extended();
        }
        let keyspace = u32::try_from(packed >> KIND_BITS).ok()?;
        let write = match packed & ((1 << KIND_BITS) - 1) {
            kind if kind == Kind::Put as u64 => {
                let key_len = self.take_len(KEY_LEN_MAX)?;
                let value_len = self.take_len(VALUE_LEN_MAX)?;
                Write::Put { key: self.take_bytes(key_len)?, value: self.take_bytes(value_len)? }
            }
            kind if kind == Kind::Delete as u64 => {
                let key_len = self.take_len(KEY_LEN_MAX)?;
                Write::Delete { key: self.take_bytes(key_len)? }
            }
            kind if kind == Kind::PutPointer as u64 => {
                let key_len = self.take_len(KEY_LEN_MAX)?;
                let (key, pointer) =
                    (self.take_bytes(key_len)?, self.take_bytes(ValuePointer::SIZE)?);
                Write::PutPointer { key, pointer }
            }
            kind if kind == Kind::DeleteRange as u64 => self.decode_range()?,
            _ => return None,
        };
        Some(Operation { offset: self.position, keyspace, write })
    }

    #[cold]
    fn decode_extended(&mut self) -> Option<Operation<'a>> {
        let packed = varint::take(self.bytes, &mut self.position)?;
        let keyspace = u32::try_from(packed >> EXTENDED_KIND_BITS).ok()?;
        let kind = packed & ((1 << EXTENDED_KIND_BITS) - 1);
        let key_len = self.take_len(KEY_LEN_MAX)?;
        let write = if kind == Kind::Merge as u64 {
            let operand_len = self.take_len(VALUE_LEN_MAX)?;
            let (key, operand) = (self.take_bytes(key_len)?, self.take_bytes(operand_len)?);
            Write::Merge { key, operand }
        } else if kind == Kind::PutExpiring as u64 {
            let value_len = self.take_len(VALUE_LEN_MAX)?;
            let lifetime = self.take_lifetime()?;
            let (key, value) = (self.take_bytes(key_len)?, self.take_bytes(value_len)?);
            Write::PutExpiring { key, value, lifetime }
        } else if kind == Kind::PutPointerExpiring as u64 {
            let lifetime = self.take_lifetime()?;
            let (key, pointer) = (self.take_bytes(key_len)?, self.take_bytes(ValuePointer::SIZE)?);
            Write::PutPointerExpiring { key, pointer, lifetime }
        } else {
            return None;
        };
        Some(Operation { offset: self.position, keyspace, write })
    }

    fn take_lifetime(&mut self) -> Option<Lifetime> {
        Lifetime::from_number(varint::take(self.bytes, &mut self.position)?)
    }

    fn decode_range(&mut self) -> Option<Write<'a>> {
        let start_len = self.take_len(BOUND_LEN_MAX)?;
        let end_len = self.take_len(BOUND_LEN_MAX + 1)?.checked_sub(1);
        let start = self.take_bytes(start_len)?;
        let end = match end_len {
            Some(len) => Some(self.take_bytes(len)?),
            None => None,
        };
        end.is_none_or(|end| end > start).then_some(Write::DeleteRange { start, end })
    }

    fn take_len(&mut self, max: usize) -> Option<usize> {
        varint::take_usize(self.bytes, &mut self.position).filter(|len| *len <= max)
    }

    fn take_bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(len)?;
        let bytes = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(bytes)
    }
}

/// A commit as the log has it.
#[derive(Debug)]
pub(super) struct DecodedCommit<'a> {
    pub seqno: SeqNo,
    /// What the user kept with it.
    pub payload: Option<&'a [u8]>,
    /// How many operations there have to be.
    pub count: u64,
    pub operations: Operations<'a>,
}

/// The stamp at the front of a commit record's payload.
pub(super) fn decode_stamp(record: &[u8]) -> Option<SeqNo> {
    let (stamp, _) = record.split_first_chunk::<8>()?;
    Some(SeqNo::from_u64(u64::from_le_bytes(*stamp)))
}

/// A commit record's payload, read back.
pub(super) fn decode_record(record: &[u8]) -> Option<DecodedCommit<'_>> {
    let seqno = decode_stamp(record)?;
    let mut position = 8;
    let count = varint::take(record, &mut position)?;
    let mut operations = Operations { bytes: record, position };
    if !record[position..].starts_with(&PAYLOAD_OPERATION) {
        return Some(DecodedCommit { seqno, payload: None, count, operations });
    }
    operations.position += PAYLOAD_OPERATION.len();
    let len = operations.take_len(COMMIT_PAYLOAD_LEN_MAX)?;
    let payload = Some(operations.take_bytes(len)?);
    Some(DecodedCommit { seqno, payload, count: count.checked_sub(1)?, operations })
}
