//! A batch: operations, encoded once in the form that the log stores.
//!
//! Layout of a commit record's payload:
//!
//! | size | field |
//! |---|---|
//! | 8 | stamp (little-endian) |
//! | varint | operation count |
//! | | operations, in order |
//!
//! An operation is a varint of `keyspace << 2 | kind`, and then:
//!
//! | kind | | fields |
//! |---|---|---|
//! | 0 | put | key's length, value's length (varints), key, value |
//! | 1 | delete | key's length (varint), key |
//! | 3 | delete range | start's length, end's length + 1 or 0 for no end (varints), start, end |

use std::sync::Arc;

use std::ops::RangeBounds;

use crate::base::{Error, KeyRange, Result, SeqNo, varint};
use crate::db::{BATCH_SIZE_MAX, KEY_LEN_MAX, Keyspace, VALUE_LEN_MAX};

/// Bits of an operation's first number that are its kind.
const KIND_BITS: u32 = 2;
const KIND_PUT: u64 = 0;
const KIND_DELETE: u64 = 1;
const KIND_DELETE_RANGE: u64 = 3;
/// The bounds of a range: a key, or the first one above it.
const BOUND_LEN_MAX: usize = KEY_LEN_MAX + 1;
/// Bytes of an operation before its key, at most.
const OPERATION_HEAD_MAX: usize = 3 * varint::LEN_MAX;

/// Writes that are committed together: all or nothing, over any number of keyspaces. Of two
/// writes to one key the later wins.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # use lithedb::{Db, WriteBatch, storage::MemoryStorage};
/// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
/// let (users, names) = (db.keyspace_or_create("users")?, db.keyspace_or_create("names")?);
/// let mut batch = WriteBatch::new();
/// batch.put(&users, "17", "Ada");
/// batch.put(&names, "Ada", "17");
/// db.write(batch)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    operations: Vec<u8>,
    count: u64,
    /// How many of them delete ranges.
    range_count: u64,
    /// Bytes of keys and values.
    data_bytes: u64,
    /// The keyspaces written to, each once: the first, and the others. Most batches write to one.
    first_keyspace: Option<Target>,
    more_keyspaces: Vec<Target>,
    /// The first operation that was over a limit.
    refused: Option<String>,
}

/// How far a batch had come at some moment.
#[derive(Clone, Debug)]
pub(super) struct BatchMark {
    size: usize,
    count: u64,
    range_count: u64,
    data_bytes: u64,
    keyspace_count: usize,
}

/// A keyspace that a batch writes to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub opening: u64,
    pub id: u32,
    pub name: Arc<String>,
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation<'a> {
    pub keyspace: u32,
    pub write: Write<'a>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write<'a> {
    Put {
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        key: &'a [u8],
    },
    /// Deletes the keys from `start` to in front of `end`, or to the last.
    DeleteRange {
        start: &'a [u8],
        end: Option<&'a [u8]>,
    },
}

impl<'a> Write<'a> {
    /// Key and value, or the two bounds.
    fn fields(self) -> (&'a [u8], &'a [u8]) {
        match self {
            Write::Put { key, value } => (key, value),
            Write::Delete { key } => (key, &[]),
            Write::DeleteRange { start, end } => (start, end.unwrap_or_default()),
        }
    }
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value`. Limits are checked when the batch is committed, before anything
    /// changes.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(keyspace, Write::Put { key: key.as_ref(), value: value.as_ref() });
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, Write::Delete { key: key.as_ref() });
    }

    /// Deletes all keys in `range`: those that were there before, and those that this batch has
    /// written so far. Costs the same however many there are.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) {
        self.delete_key_range(keyspace, &KeyRange::new(&range));
    }

    /// Deletes all keys that start with `prefix`, as [`WriteBatch::delete_range`] does.
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) {
        self.delete_key_range(keyspace, &KeyRange::prefix(prefix.as_ref()));
    }

    pub(super) fn delete_key_range(&mut self, keyspace: &Keyspace, range: &KeyRange) {
        let (start, end) = range.half_open();
        if end.as_ref().is_none_or(|end| *end > start) {
            self.push(keyspace, Write::DeleteRange { start: &start, end: end.as_deref() });
        }
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of keys and values and a few for each operation.
    #[must_use]
    pub fn size(&self) -> usize {
        self.operations.len()
    }

    /// Forgets all operations; keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.operations.clear();
        (self.count, self.range_count) = (0, 0);
        self.data_bytes = 0;
        self.first_keyspace = None;
        self.more_keyspaces.clear();
        self.refused = None;
    }

    /// How far it has come.
    pub(super) fn mark(&self) -> BatchMark {
        BatchMark {
            size: self.operations.len(),
            count: self.count,
            range_count: self.range_count,
            data_bytes: self.data_bytes,
            keyspace_count: self.targets().count(),
        }
    }

    /// Forgets the operations since `mark`, which nothing before it has undone.
    pub(super) fn truncate(&mut self, mark: &BatchMark) {
        self.operations.truncate(mark.size);
        (self.count, self.range_count) = (mark.count, mark.range_count);
        self.data_bytes = mark.data_bytes;
        if mark.keyspace_count == 0 {
            self.first_keyspace = None;
        }
        self.more_keyspaces.truncate(mark.keyspace_count.saturating_sub(1));
    }

    fn push(&mut self, keyspace: &Keyspace, write: Write<'_>) {
        let (key, value) = write.fields();
        self.count += 1;
        if let Some(refusal) = self.refusal(write) {
            self.refused.get_or_insert(refusal);
            return; // Nothing of such a batch is ever committed.
        }
        self.range_count += u64::from(matches!(write, Write::DeleteRange { .. }));
        self.data_bytes += (key.len() + value.len()) as u64;
        let id = keyspace.id();
        let is_known =
            self.targets().any(|target| target.id == id && target.opening == keyspace.opening());
        if !is_known {
            let target = Target { opening: keyspace.opening(), id, name: keyspace.shared_name() };
            match self.first_keyspace {
                None => self.first_keyspace = Some(target),
                Some(_) => self.more_keyspaces.push(target),
            }
        }
        let out = &mut self.operations;
        out.reserve(OPERATION_HEAD_MAX + key.len() + value.len());
        let (kind, second_len) = match write {
            Write::Put { value, .. } => (KIND_PUT, Some(value.len() as u64)),
            Write::Delete { .. } => (KIND_DELETE, None),
            Write::DeleteRange { end, .. } => {
                (KIND_DELETE_RANGE, Some(end.map_or(0, |end| end.len() as u64 + 1)))
            }
        };
        varint::put(out, u64::from(id) << KIND_BITS | kind);
        varint::put(out, key.len() as u64);
        if let Some(len) = second_len {
            varint::put(out, len);
        }
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// Why this cannot be added, if so.
    pub(super) fn refusal(&self, write: Write<'_>) -> Option<String> {
        let (key, value) = write.fields();
        let (key_len, value_len) = (key.len(), value.len());
        let longest_key = match write {
            Write::Put { .. } | Write::Delete { .. } => key_len,
            // One byte more is the first key above.
            Write::DeleteRange { .. } => key_len.max(value_len).saturating_sub(1),
        };
        if longest_key > KEY_LEN_MAX {
            let len = longest_key;
            return Some(format!("a key of {len} bytes: at most {KEY_LEN_MAX} are allowed"));
        }
        if value_len > VALUE_LEN_MAX {
            return Some(format!(
                "a value of {value_len} bytes: at most {VALUE_LEN_MAX} are allowed"
            ));
        }
        let size = self.operations.len() + key_len + value_len + OPERATION_HEAD_MAX;
        (size > BATCH_SIZE_MAX)
            .then(|| format!("a batch of {size} bytes: at most {BATCH_SIZE_MAX} are allowed"))
    }

    /// Checks the limits, and that the keyspaces are of the database with this id.
    pub(super) fn validate(&self, opening: u64) -> Result<()> {
        if let Some(refusal) = &self.refused {
            return Err(Error::invalid(refusal.clone()));
        }
        match self.targets().find(|target| target.opening != opening) {
            Some(foreign) => {
                let name = &foreign.name;
                Err(Error::invalid(format!("keyspace {name:?} is of another open database")))
            }
            None => Ok(()),
        }
    }

    /// Bytes of keys and values.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Whether any operation deletes a range.
    pub(super) fn deletes_ranges(&self) -> bool {
        self.range_count > 0
    }

    /// The keyspaces written to, each once.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> + Clone {
        self.first_keyspace.iter().chain(&self.more_keyspaces)
    }

    /// What stands in front of the operations in a commit record.
    pub(super) fn put_record_head(&self, out: &mut Vec<u8>, seqno: SeqNo) {
        out.clear();
        out.extend_from_slice(&seqno.as_u64().to_le_bytes());
        varint::put(out, self.count);
    }

    /// The operations as bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.operations
    }

    /// The operations in order.
    pub(super) fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let mut decoder = Operations { bytes: &self.operations, position: 0 };
        std::iter::from_fn(move || decoder.next().map(|next| next.expect("the batch encoded it")))
    }
}

/// Decodes operations. An item is `None` where the bytes are not an operation.
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
    fn decode(&mut self) -> Option<Operation<'a>> {
        let packed = varint::take(self.bytes, &mut self.position)?;
        let keyspace = u32::try_from(packed >> KIND_BITS).ok()?;
        let write = match packed & ((1 << KIND_BITS) - 1) {
            KIND_PUT => {
                let key_len = self.take_len(KEY_LEN_MAX)?;
                let value_len = self.take_len(VALUE_LEN_MAX)?;
                Write::Put { key: self.take(key_len)?, value: self.take(value_len)? }
            }
            KIND_DELETE => {
                let key_len = self.take_len(KEY_LEN_MAX)?;
                Write::Delete { key: self.take(key_len)? }
            }
            KIND_DELETE_RANGE => self.decode_range()?,
            _ => return None,
        };
        Some(Operation { keyspace, write })
    }

    fn decode_range(&mut self) -> Option<Write<'a>> {
        let start_len = self.take_len(BOUND_LEN_MAX)?;
        let end_len = self.take_len(BOUND_LEN_MAX + 1)?.checked_sub(1);
        let start = self.take(start_len)?;
        let end = match end_len {
            Some(len) => Some(self.take(len)?),
            None => None,
        };
        end.is_none_or(|end| end > start).then_some(Write::DeleteRange { start, end })
    }

    fn take_len(&mut self, max: usize) -> Option<usize> {
        varint::take_usize(self.bytes, &mut self.position).filter(|len| *len <= max)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(len)?;
        let bytes = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(bytes)
    }
}

/// A commit record's payload, read back: its stamp, how many operations, and these.
pub(super) fn decode_record(payload: &[u8]) -> Option<(SeqNo, u64, Operations<'_>)> {
    let (stamp, _) = payload.split_first_chunk::<8>()?;
    let mut position = 8;
    let count = varint::take(payload, &mut position)?;
    let seqno = SeqNo::from_u64(u64::from_le_bytes(*stamp));
    Some((seqno, count, Operations { bytes: payload, position }))
}
