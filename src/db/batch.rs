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

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::base::{EntryKind, Error, KeyRange, Result, SeqNo, ValuePointer, varint};
use crate::db::{BATCH_SIZE_MAX, COMMIT_PAYLOAD_LEN_MAX, KEY_LEN_MAX, Keyspace, VALUE_LEN_MAX};
use crate::value_log::{NO_FILE, StagedMark, StagedValues, ValueFile, ValueLog};

/// What begins a commit's payload among its operations: a put of the empty key into keyspace 0,
/// which is none.
const PAYLOAD_OPERATION: [u8; 2] = [0, 0];
/// Bits of an operation's first number that are its kind.
const KIND_BITS: u32 = 2;
/// Begins operations of the kinds that do not fit these: what would delete in keyspace 0.
const EXTENDED: u64 = 1;
const EXTENDED_KIND_BITS: u32 = 4;
/// The bounds of a range: a key, or the first one above it.
const BOUND_LEN_MAX: usize = KEY_LEN_MAX + 1;
/// Bytes of an operation before its key, at most.
const OPERATION_HEAD_MAX: usize = 1 + 3 * varint::LEN_MAX;

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
    /// How many of them delete ranges, or merge.
    special_count: u64,
    /// Bytes of keys and values.
    data_bytes: u64,
    /// Values that go to the value log; none in most batches.
    separated: Option<Box<Separated>>,
    /// The keyspaces written to, each once: the first, and the others. Most batches write to one.
    first_keyspace: Option<Target>,
    more_keyspaces: Vec<Target>,
    /// What the user keeps with the commit.
    payload: Option<Arc<[u8]>>,
    /// Why the first operation that cannot be committed cannot.
    refused: Option<Refusal>,
}

/// Why an operation cannot be committed.
#[derive(Clone, Debug)]
enum Refusal {
    Invalid(String),
    OperatorMissing(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::MergeOperatorMissing { name } => Refusal::OperatorMissing(name),
            Error::InvalidArgument { what } => Refusal::Invalid(what),
            other => Refusal::Invalid(other.to_string()),
        }
    }
}

impl Refusal {
    fn error(&self) -> Error {
        match self {
            Refusal::Invalid(what) => Error::invalid(what.clone()),
            Refusal::OperatorMissing(name) => Error::MergeOperatorMissing { name: name.clone() },
        }
    }
}

/// What of a batch goes to the value log.
#[derive(Clone, Debug, Default)]
struct Separated {
    /// Values that were not written yet.
    staged: StagedValues,
    /// Where among the operations the pointer to each of these lies.
    places: Vec<usize>,
    /// Files of the values that were, held.
    files: Vec<Arc<ValueFile>>,
}

/// A value that lies in the value log, and its file, held.
pub(super) type Placed = (ValuePointer, Arc<ValueFile>);

/// How far a batch had come at some moment.
#[derive(Clone, Debug)]
pub(super) struct BatchMark {
    size: usize,
    count: u64,
    special_count: u64,
    data_bytes: u64,
    keyspace_count: usize,
    staged: Option<StagedMark>,
    payload: Option<Arc<[u8]>>,
}

/// A keyspace that a batch writes to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub opening: u64,
    pub id: u32,
    pub name: Arc<String>,
}

/// What an operation is encoded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put = 0,
    Delete = 1,
    PutPointer = 2,
    DeleteRange = 3,
    Merge = 4,
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
            Write::PutPointer { pointer, .. } => Some(pointer),
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
}

impl<'a> Write<'a> {
    /// Its kind, and key and value or the two bounds. No end is as an empty one, which none has.
    fn fields(self) -> (Kind, &'a [u8], &'a [u8]) {
        match self {
            Write::Put { key, value } => (Kind::Put, key, value),
            Write::PutPointer { key, pointer } => (Kind::PutPointer, key, pointer),
            Write::Delete { key } => (Kind::Delete, key, &[]),
            Write::DeleteRange { start, end } => {
                (Kind::DeleteRange, start, end.unwrap_or_default())
            }
            Write::Merge { key, operand } => (Kind::Merge, key, operand),
        }
    }

    /// The key that it is on; none if it deletes a range.
    pub(super) fn key(self) -> Option<&'a [u8]> {
        match self {
            Write::Put { key, .. }
            | Write::PutPointer { key, .. }
            | Write::Delete { key }
            | Write::Merge { key, .. } => Some(key),
            Write::DeleteRange { .. } => None,
        }
    }

    /// The entry that it makes by itself; none if it deletes a range, or merges.
    #[inline]
    pub(super) fn entry(self) -> Option<(&'a [u8], EntryKind, &'a [u8])> {
        match self {
            Write::Put { key, value } => Some((key, EntryKind::Value, value)),
            Write::PutPointer { key, pointer } => Some((key, EntryKind::Pointer, pointer)),
            Write::Delete { key } => Some((key, EntryKind::Tombstone, &[])),
            Write::DeleteRange { .. } | Write::Merge { .. } => None,
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
        let (key, value) = (key.as_ref(), value.as_ref());
        if keyspace.separates(value.len()) {
            return self.put_separated(keyspace, key, value);
        }
        self.push(keyspace, Kind::Put, key, value);
    }

    /// Sets `key` to a value that will be written to the value log with the others of the batch.
    #[cold]
    fn put_separated(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
        if self.refusal_of(Kind::Put, key, value).is_some() {
            return self.push(keyspace, Kind::Put, key, value);
        }
        let separated = self.separated.get_or_insert_default();
        let pointer = separated.staged.push(keyspace.id(), value).encode();
        self.count += 1;
        self.push_allowed(keyspace, Kind::PutPointer, key, &pointer);
        self.data_bytes += (value.len() - pointer.len()) as u64;
        let place = self.operations.len() - pointer.len();
        self.separated.as_mut().expect("it was made above").places.push(place);
    }

    /// Sets `key` to a value that is in the value log.
    pub(super) fn put_placed(&mut self, keyspace: &Keyspace, key: &[u8], placed: Placed) {
        let (pointer, file) = placed;
        let len = u64::from(pointer.len);
        self.push(keyspace, Kind::PutPointer, key, &pointer.encode());
        self.data_bytes += len;
        self.separated.get_or_insert_default().files.push(file);
    }

    /// Merges `operand` into the value of `key`, by the keyspace's merge operator: see
    /// [`Keyspace::merge`]. Nothing is read. That the keyspace has an operator, and what this says
    /// about the operand, is told when the batch is committed, before anything changes.
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        if let Err(error) = keyspace.check_merge(key, operand) {
            self.refused.get_or_insert(error.into());
        }
        self.special_count += 1;
        self.push(keyspace, Kind::Merge, key, operand);
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Delete, key.as_ref(), &[]);
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
            self.special_count += 1;
            self.push(keyspace, Kind::DeleteRange, &start, &end.unwrap_or_default());
        }
    }

    /// Stores bytes with the commit, beside what it writes: who made it, or why. They take no part
    /// in any keyspace and are read by [`crate::Db::commits`], for as long as the log is kept (see
    /// [`crate::Builder::kept_log_size`]). Setting them again replaces them. At most
    /// [`crate::COMMIT_PAYLOAD_LEN_MAX`] bytes, which is checked when the batch is committed.
    pub fn set_payload(&mut self, payload: impl Into<Arc<[u8]>>) {
        let payload = payload.into();
        if let Some(refusal) = payload_refusal(&payload) {
            self.refused.get_or_insert(Refusal::Invalid(refusal));
            return;
        }
        self.payload = Some(payload);
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is nothing to commit: no operations and no payload.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.payload.is_none()
    }

    /// Bytes of keys and values and a few for each operation.
    #[must_use]
    pub fn size(&self) -> usize {
        let staged = self.separated.as_ref().map_or(0, |separated| separated.staged.value_bytes());
        let payload = self.payload.as_ref().map_or(0, |payload| payload.len());
        self.operations.len() + staged + payload
    }

    /// Bytes of what goes to log and memtables.
    pub(super) fn log_size(&self) -> usize {
        self.operations.len()
    }

    /// Forgets all operations; keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.operations.clear();
        (self.count, self.special_count) = (0, 0);
        self.data_bytes = 0;
        self.separated = None;
        self.first_keyspace = None;
        self.more_keyspaces.clear();
        self.payload = None;
        self.refused = None;
    }

    /// How far it has come.
    pub(super) fn mark(&self) -> BatchMark {
        BatchMark {
            size: self.operations.len(),
            count: self.count,
            special_count: self.special_count,
            data_bytes: self.data_bytes,
            keyspace_count: self.targets().count(),
            staged: self.separated.as_ref().map(|separated| separated.staged.mark()),
            payload: self.payload.clone(),
        }
    }

    /// Forgets the operations since `mark`, which nothing before it has undone.
    pub(super) fn truncate(&mut self, mark: &BatchMark) {
        self.operations.truncate(mark.size);
        (self.count, self.special_count) = (mark.count, mark.special_count);
        self.data_bytes = mark.data_bytes;
        self.payload.clone_from(&mark.payload);
        match (&mut self.separated, mark.staged) {
            (Some(separated), Some(mark)) => {
                separated.staged.truncate(mark);
                separated.places.truncate(separated.staged.count());
            }
            _ => self.separated = None,
        }
        if mark.keyspace_count == 0 {
            self.first_keyspace = None;
        }
        self.more_keyspaces.truncate(mark.keyspace_count.saturating_sub(1));
    }

    fn push(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        self.count += 1;
        if let Some(refusal) = self.refusal_of(kind, key, value) {
            self.refused.get_or_insert(Refusal::Invalid(refusal));
            return; // Nothing of such a batch is ever committed.
        }
        self.push_allowed(keyspace, kind, key, value);
    }

    /// Adds an operation that is within the limits.
    #[inline]
    fn push_allowed(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
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
        if kind == Kind::Merge {
            varint::put(out, EXTENDED);
            varint::put(out, u64::from(id) << EXTENDED_KIND_BITS | kind as u64);
        } else {
            varint::put(out, u64::from(id) << KIND_BITS | kind as u64);
        }
        varint::put(out, key.len() as u64);
        match kind {
            Kind::Put | Kind::Merge => varint::put(out, value.len() as u64),
            Kind::PutPointer | Kind::Delete => {}
            Kind::DeleteRange if value.is_empty() => varint::put(out, 0),
            Kind::DeleteRange => varint::put(out, value.len() as u64 + 1),
        }
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// Why this cannot be added, if so.
    pub(super) fn refusal(&self, write: Write<'_>) -> Option<String> {
        let (kind, key, value) = write.fields();
        self.refusal_of(kind, key, value)
    }

    #[inline]
    fn refusal_of(&self, kind: Kind, key: &[u8], value: &[u8]) -> Option<String> {
        let is_within_limits = key.len() <= KEY_LEN_MAX
            && value.len() <= VALUE_LEN_MAX
            && self.size_with(key, value) <= BATCH_SIZE_MAX;
        if is_within_limits && kind != Kind::DeleteRange {
            return None;
        }
        self.limit_exceeded(kind, key, value)
    }

    /// Bytes with one more operation, at most.
    fn size_with(&self, key: &[u8], value: &[u8]) -> usize {
        self.size() + key.len() + value.len() + OPERATION_HEAD_MAX
    }

    #[cold]
    fn limit_exceeded(&self, kind: Kind, key: &[u8], value: &[u8]) -> Option<String> {
        let longest_key = match kind {
            Kind::Put | Kind::PutPointer | Kind::Delete | Kind::Merge => key.len(),
            // One byte more is the first key above.
            Kind::DeleteRange => key.len().max(value.len()).saturating_sub(1),
        };
        if longest_key > KEY_LEN_MAX {
            let len = longest_key;
            return Some(format!("a key of {len} bytes: at most {KEY_LEN_MAX} are allowed"));
        }
        if value.len() > VALUE_LEN_MAX {
            let len = value.len();
            return Some(format!("a value of {len} bytes: at most {VALUE_LEN_MAX} are allowed"));
        }
        let size = self.size_with(key, value);
        (size > BATCH_SIZE_MAX)
            .then(|| format!("a batch of {size} bytes: at most {BATCH_SIZE_MAX} are allowed"))
    }

    /// Checks the limits, and that the keyspaces are of the database with this id.
    pub(super) fn validate(&self, opening: u64) -> Result<()> {
        if let Some(refusal) = &self.refused {
            return Err(refusal.error());
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

    /// Whether any value is still to be written to the value log.
    pub(super) fn has_staged(&self) -> bool {
        self.separated.as_ref().is_some_and(|separated| separated.staged.count() > 0)
    }

    /// The puts whose values are still to be written, in order: keyspace, key and what is known of
    /// the pointer.
    pub(super) fn staged_puts(&self) -> impl Iterator<Item = (u32, &[u8], ValuePointer)> {
        self.operations().filter_map(|Operation { keyspace, write, .. }| match write {
            Write::PutPointer { key, pointer } => {
                let pointer =
                    ValuePointer::decode(pointer).filter(|known| known.file == NO_FILE)?;
                Some((keyspace, key, pointer))
            }
            _ => None,
        })
    }

    /// The value of a staged put.
    pub(super) fn staged_value(&self, pointer: &ValuePointer) -> &[u8] {
        let separated = self.separated.as_ref().expect("a staged put is of this batch");
        separated.staged.value(pointer)
    }

    /// Writes the staged values, but for those that are there already: `known` has one for each.
    pub(super) fn place_values(
        &mut self,
        log: &ValueLog,
        known: Vec<Option<Placed>>,
    ) -> Result<()> {
        let Some(separated) = &mut self.separated else { return Ok(()) };
        let mut staged = std::mem::take(&mut separated.staged);
        staged.leave_out(|number| known[number].is_some());
        let appended = match staged.size() {
            0 => None,
            _ => Some(log.append(&mut staged)?),
        };
        for (number, (place, known)) in separated.places.iter().zip(known).enumerate() {
            let bytes = &mut self.operations[*place..*place + ValuePointer::SIZE];
            let staged_as = ValuePointer::decode(bytes).expect("the batch encoded it");
            let placed = match (known, &appended, staged.start(number)) {
                (Some((pointer, file)), _, _) => {
                    separated.files.push(file);
                    pointer
                }
                (None, Some(appended), Some(start)) => {
                    let (file, offset) = (appended.file.number(), appended.offset + start);
                    ValuePointer { file, offset, ..staged_as }
                }
                _ => unreachable!("what is not known was written"),
            };
            bytes.copy_from_slice(&placed.encode());
        }
        separated.places.clear();
        separated.files.extend(appended.map(|appended| appended.file));
        Ok(())
    }

    /// Takes the files, held, that its pointers lead into.
    pub(super) fn take_files(&mut self) -> Vec<Arc<ValueFile>> {
        self.separated.take().map(|separated| separated.files).unwrap_or_default()
    }

    /// Whether it neither deletes ranges nor merges, and all its values are in it.
    pub(super) fn is_plain(&self) -> bool {
        self.special_count == 0 && self.separated.is_none()
    }

    /// The keyspaces written to, each once.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> + Clone {
        self.first_keyspace.iter().chain(&self.more_keyspaces)
    }

    /// What stands in front of the operations in a commit record.
    pub(super) fn put_record_head(&self, out: &mut Vec<u8>, seqno: SeqNo) {
        out.clear();
        out.extend_from_slice(&seqno.as_u64().to_le_bytes());
        match &self.payload {
            None => varint::put(out, self.count),
            Some(payload) => {
                varint::put(out, self.count + 1);
                out.extend_from_slice(&PAYLOAD_OPERATION);
                varint::put(out, payload.len() as u64);
                out.extend_from_slice(payload);
            }
        }
    }

    /// The operations as bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.operations
    }

    /// The operations in order.
    pub(super) fn operations(&self) -> OwnOperations<'_> {
        OwnOperations(Operations { bytes: &self.operations, position: 0 })
    }
}

/// The operations of a batch.
#[derive(Debug)]
pub(super) struct OwnOperations<'a>(Operations<'a>);

/// Why decoding cannot fail.
const BATCH_ENCODED_IT: &str = "the batch encoded it";

impl<'a> OwnOperations<'a> {
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
        if packed & ((1 << EXTENDED_KIND_BITS) - 1) != Kind::Merge as u64 {
            return None;
        }
        let key_len = self.take_len(KEY_LEN_MAX)?;
        let operand_len = self.take_len(VALUE_LEN_MAX)?;
        let (key, operand) = (self.take_bytes(key_len)?, self.take_bytes(operand_len)?);
        let write = Write::Merge { key, operand };
        Some(Operation { offset: self.position, keyspace, write })
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

/// Why these bytes cannot be a commit's payload, if so.
pub(super) fn payload_refusal(payload: &[u8]) -> Option<String> {
    let len = payload.len();
    (len > COMMIT_PAYLOAD_LEN_MAX).then(|| {
        format!("a commit's payload of {len} bytes: at most {COMMIT_PAYLOAD_LEN_MAX} are allowed")
    })
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
