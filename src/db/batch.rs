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
//! An operation is a varint of `keyspace << 2 | kind` (kind 0 put, 1 delete), the key's length, a
//! put's value's length (varints), the key, the value.

use std::sync::Arc;

use crate::base::{EntryKind, Error, Result, SeqNo, varint};
use crate::db::{BATCH_SIZE_MAX, KEY_LEN_MAX, Keyspace, VALUE_LEN_MAX};

/// Bits of an operation's first number that are its kind.
const KIND_BITS: u32 = 2;
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
    /// Bytes of keys and values.
    data_bytes: u64,
    /// The keyspaces written to, each once: the first, and the others. Most batches write to one.
    first_keyspace: Option<Target>,
    more_keyspaces: Vec<Target>,
    /// The first operation that was over a limit.
    refused: Option<String>,
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
    pub kind: EntryKind,
    pub key: &'a [u8],
    pub value: &'a [u8],
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
        self.push(keyspace, EntryKind::Value, key.as_ref(), value.as_ref());
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, EntryKind::Tombstone, key.as_ref(), &[]);
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
        self.count = 0;
        self.data_bytes = 0;
        self.first_keyspace = None;
        self.more_keyspaces.clear();
        self.refused = None;
    }

    fn push(&mut self, keyspace: &Keyspace, kind: EntryKind, key: &[u8], value: &[u8]) {
        self.count += 1;
        if let Some(refusal) = self.refusal(key, value) {
            self.refused.get_or_insert(refusal);
            return; // Nothing of such a batch is ever committed.
        }
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
        varint::put(out, u64::from(id) << KIND_BITS | u64::from(kind as u8));
        varint::put(out, key.len() as u64);
        if kind == EntryKind::Value {
            varint::put(out, value.len() as u64);
        }
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    fn refusal(&self, key: &[u8], value: &[u8]) -> Option<String> {
        let (key_len, value_len) = (key.len(), value.len());
        if key_len > KEY_LEN_MAX {
            return Some(format!("a key of {key_len} bytes: at most {KEY_LEN_MAX} are allowed"));
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

    /// The keyspaces written to, each once.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
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
        let kind = match packed & ((1 << KIND_BITS) - 1) {
            0 => EntryKind::Value,
            1 => EntryKind::Tombstone,
            _ => return None,
        };
        let key_len = varint::take_usize(self.bytes, &mut self.position)?;
        let value_len = match kind {
            EntryKind::Value => varint::take_usize(self.bytes, &mut self.position)?,
            _ => 0,
        };
        let key = self.take(key_len)?;
        let value = self.take(value_len)?;
        (key_len <= KEY_LEN_MAX && value_len <= VALUE_LEN_MAX).then_some(Operation {
            keyspace,
            kind,
            key,
            value,
        })
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
