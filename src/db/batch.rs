//! A batch: operations, encoded once in the form that the log stores (`operation.rs`).

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use crate::base::version_key::archived_len;
use crate::base::{Error, Expiry, KeyRange, Lifetime, Result, SeqNo, ValuePointer, varint};
use crate::db::operation::{
    EXTENDED, EXTENDED_KIND_BITS, KIND_BITS, Kind, OPERATION_HEAD_MAX, OwnOperations,
    PAYLOAD_OPERATION, Write,
};
use crate::db::{BATCH_SIZE_MAX, COMMIT_PAYLOAD_LEN_MAX, KEY_LEN_MAX, Keyspace, VALUE_LEN_MAX};
use crate::value_log::{NO_FILE, StagedMark, StagedValues, ValueFile, ValueLog};

/// Bytes that an entry of a memtable takes beyond those of its operation, at most.
const MEMORY_HEAD_MORE: usize = 16;

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
    /// How many of them delete ranges, merge, or put what expires.
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
    refused: Option<Refusal>,
}

/// Checks that an archive of versions takes a key, which is within the limit of others.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn check_archived_len(key: &[u8]) -> Result<()> {
    let len = archived_len(key);
    if len <= KEY_LEN_MAX || key.len() > KEY_LEN_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a key that takes {len} bytes with its stamp: at most {KEY_LEN_MAX} are allowed where \
         versions are kept"
    )))
}

/// A keyspace that a batch writes to.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub opening: u64,
    pub id: u32,
    pub name: Arc<String>,
    /// Of [`Keyspace::key_limits_begun`], from before the first of its keys was looked at.
    pub key_limits: u64,
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value`; in a keyspace with a [`ttl`](crate::KeyspaceOptions::ttl) it expires
    /// after that. Limits are checked when the batch is committed, before anything changes.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        if !keyspace.puts_as_it_is(value.len()) {
            return self.put_for(keyspace, key, value, keyspace.default_lifetime());
        }
        self.push(keyspace, Kind::Put, key, value);
    }

    /// Sets `key` to `value`, which expires when `ttl` has passed since the stamp of the commit;
    /// see [`Keyspace::put_with_ttl`].
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) {
        self.put_for(keyspace, key.as_ref(), value.as_ref(), ttl.into());
    }

    /// Sets `key` to `value`, which expires then, or never; see [`Keyspace::put_until`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) {
        self.put_for(keyspace, key.as_ref(), value.as_ref(), expiry.into().into());
    }

    /// Sets `key` to `value` for so long, whatever the keyspace's `ttl`.
    pub(super) fn put_for(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        lifetime: Lifetime,
    ) {
        self.note_lifetime(keyspace, lifetime);
        if keyspace.separates(value.len()) && self.refusal_of(Kind::Put, key, value).is_none() {
            return self.put_separated(keyspace, key, value, lifetime);
        }
        match lifetime {
            Lifetime::Forever => self.push(keyspace, Kind::Put, key, value),
            lifetime => self.push_expiring(keyspace, (Kind::PutExpiring, lifetime), key, value),
        }
    }

    /// Counts a put that expires, which must be possible.
    fn note_lifetime(&mut self, keyspace: &Keyspace, lifetime: Lifetime) {
        if lifetime == Lifetime::Forever {
            return;
        }
        self.special_count += 1;
        if let Err(error) = keyspace.check_takes_expiry() {
            self.refused.get_or_insert(error.into());
        }
    }

    /// Sets `key` to a value that will be written to the value log with the others of the batch.
    #[cold]
    fn put_separated(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8], lifetime: Lifetime) {
        let separated = self.separated.get_or_insert_default();
        let pointer = separated.staged.push(keyspace.id(), value).encode();
        self.count += 1;
        self.push_pointer(keyspace, key, &pointer, lifetime);
        self.data_bytes += (value.len() - pointer.len()) as u64;
        let place = self.operations.len() - pointer.len();
        self.separated.as_mut().expect("it was made above").places.push(place);
    }

    fn push_pointer(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        pointer: &[u8],
        lifetime: Lifetime,
    ) {
        match lifetime {
            Lifetime::Forever => self.push_allowed(keyspace, Kind::PutPointer, key, pointer),
            lifetime => {
                let kind = (Kind::PutPointerExpiring, lifetime);
                self.push_expiring_allowed(keyspace, kind, key, pointer);
            }
        }
    }

    /// Sets `key` to a value that is in the value log.
    pub(super) fn put_placed(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        placed: Placed,
        lifetime: Lifetime,
    ) {
        let (pointer, file) = placed;
        let (len, pointer) = (u64::from(pointer.len), pointer.encode());
        self.note_lifetime(keyspace, lifetime);
        let refusal = self.refusal_of(Kind::PutPointer, key, &pointer);
        self.count += 1;
        if let Some(refusal) = refusal {
            self.refused.get_or_insert(Refusal::Invalid(refusal));
            return;
        }
        self.push_pointer(keyspace, key, &pointer, lifetime);
        self.data_bytes += len;
        self.separated.get_or_insert_default().files.push(file);
    }

    /// Adds an operation as a commit had it before, which has passed all that is looked at
    /// otherwise; merge operators need not be there. A large value is `placed`.
    pub(super) fn push_again(
        &mut self,
        keyspace: &Keyspace,
        write: Write<'_>,
        placed: Option<Placed>,
    ) {
        match (write, placed) {
            (Write::PutPointer { key, .. }, Some(placed)) => {
                self.put_placed(keyspace, key, placed, Lifetime::Forever);
            }
            (Write::PutPointerExpiring { key, lifetime, .. }, Some(placed)) => {
                self.put_placed(keyspace, key, placed, lifetime);
            }
            (Write::PutPointer { .. } | Write::PutPointerExpiring { .. }, None) => {
                let what = "a large value is not there".to_owned();
                self.refused.get_or_insert(Refusal::Invalid(what));
            }
            (Write::PutExpiring { key, value, lifetime }, _) => {
                self.note_lifetime(keyspace, lifetime);
                self.count += 1;
                self.push_expiring_allowed(keyspace, (Kind::PutExpiring, lifetime), key, value);
            }
            (Write::Merge { key, operand }, _) => {
                (self.count, self.special_count) = (self.count + 1, self.special_count + 1);
                self.push_operand(keyspace, key, operand);
            }
            (write, _) => {
                let (kind, key, value) = write.fields();
                self.special_count += u64::from(kind == Kind::DeleteRange);
                self.count += 1;
                self.push_allowed(keyspace, kind, key, value);
            }
        }
    }

    /// Merges `operand` into the value of `key`, by the keyspace's merge operator: see
    /// [`Keyspace::merge`]. Nothing is read. That the keyspace has an operator, and what this says
    /// about the operand, is told when the batch is committed, before anything changes.
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        if let Err(error) = keyspace.check_merge(key, operand) {
            self.refused.get_or_insert(error.into());
        }
        (self.count, self.special_count) = (self.count + 1, self.special_count + 1);
        match self.refusal_of(Kind::Merge, key, operand) {
            Some(refusal) => {
                self.refused.get_or_insert(Refusal::Invalid(refusal));
            }
            None => self.push_operand(keyspace, key, operand),
        }
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
            refused: self.refused.clone(),
        }
    }

    /// Forgets the operations since `mark`, which nothing before it has undone.
    pub(super) fn truncate(&mut self, mark: &BatchMark) {
        self.operations.truncate(mark.size);
        (self.count, self.special_count) = (mark.count, mark.special_count);
        self.data_bytes = mark.data_bytes;
        self.payload.clone_from(&mark.payload);
        self.refused.clone_from(&mark.refused);
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
        let refusal = self.refusal_of(kind, key, value);
        self.count += 1;
        if let Some(refusal) = refusal {
            self.refused.get_or_insert(Refusal::Invalid(refusal));
            return; // Nothing of such a batch is ever committed.
        }
        self.push_allowed(keyspace, kind, key, value);
    }

    #[cold]
    fn push_expiring(
        &mut self,
        keyspace: &Keyspace,
        kind: (Kind, Lifetime),
        key: &[u8],
        value: &[u8],
    ) {
        let refusal = self.refusal_of(kind.0, key, value);
        self.count += 1;
        if let Some(refusal) = refusal {
            self.refused.get_or_insert(Refusal::Invalid(refusal));
            return; // Nothing of such a batch is ever committed.
        }
        self.push_expiring_allowed(keyspace, kind, key, value);
    }

    /// Adds an operation that is within the limits, and neither a merge nor what expires.
    #[inline]
    fn push_allowed(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        self.note_target(keyspace, key, value);
        if kind != Kind::DeleteRange && keyspace.limits_archived_keys() {
            self.check_archived_len(key); // Bounds of ranges are not stored.
        }
        let out = &mut self.operations;
        out.reserve(OPERATION_HEAD_MAX + key.len() + value.len());
        varint::put(out, u64::from(keyspace.id()) << KIND_BITS | kind as u64);
        varint::put(out, key.len() as u64);
        match kind {
            Kind::Put => varint::put(out, value.len() as u64),
            Kind::PutPointer | Kind::Delete => {}
            Kind::DeleteRange if value.is_empty() => varint::put(out, 0),
            Kind::DeleteRange => varint::put(out, value.len() as u64 + 1),
            Kind::Merge | Kind::PutExpiring | Kind::PutPointerExpiring => {
                unreachable!("they have forms of their own")
            }
        }
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// The same for an operand.
    #[cold]
    fn push_operand(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) {
        self.note_target(keyspace, key, operand);
        if keyspace.limits_archived_keys() {
            self.check_archived_len(key);
        }
        let out = &mut self.operations;
        varint::put(out, EXTENDED);
        varint::put(out, u64::from(keyspace.id()) << EXTENDED_KIND_BITS | Kind::Merge as u64);
        varint::put(out, key.len() as u64);
        varint::put(out, operand.len() as u64);
        out.extend_from_slice(key);
        out.extend_from_slice(operand);
    }

    /// The same for a put of what expires.
    #[cold]
    fn push_expiring_allowed(
        &mut self,
        keyspace: &Keyspace,
        (kind, lifetime): (Kind, Lifetime),
        key: &[u8],
        value: &[u8],
    ) {
        self.note_target(keyspace, key, value);
        if keyspace.limits_archived_keys() {
            self.check_archived_len(key);
        }
        let out = &mut self.operations;
        varint::put(out, EXTENDED);
        varint::put(out, u64::from(keyspace.id()) << EXTENDED_KIND_BITS | kind as u64);
        varint::put(out, key.len() as u64);
        if kind == Kind::PutExpiring {
            varint::put(out, value.len() as u64);
        }
        varint::put(out, lifetime.to_number().expect("it ends"));
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }

    /// In front of a look at the key: limits that begin in between are seen by the commit.
    #[inline]
    fn note_target(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
        self.data_bytes += (key.len() + value.len()) as u64;
        let id = keyspace.id();
        let is_known =
            self.targets().any(|target| target.id == id && target.opening == keyspace.opening());
        if !is_known {
            let target = Target {
                opening: keyspace.opening(),
                id,
                name: keyspace.shared_name(),
                key_limits: keyspace.key_limits_begun(),
            };
            match self.first_keyspace {
                None => self.first_keyspace = Some(target),
                Some(_) => self.more_keyspaces.push(target),
            }
        }
    }

    /// Refuses what an archive of versions cannot take as a key.
    #[inline(never)]
    fn check_archived_len(&mut self, key: &[u8]) {
        if let Err(error) = check_archived_len(key) {
            self.refused.get_or_insert(error.into());
        }
    }

    /// Whether a keyspace has begun to limit its keys since this was begun, as of `begun`.
    #[inline]
    pub(super) fn may_have_archived_keys_unchecked(&self, begun: u64) -> bool {
        self.targets().any(|target| target.key_limits != begun)
    }

    /// Checks the keys of the keyspaces that `limit` them, and may have begun to do so, as of
    /// `begun`, since this was begun.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn check_archived_keys(
        &self,
        begun: u64,
        limit: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let is_due = |target: &&Target| target.key_limits != begun && limit(target.id);
        for target in self.targets().filter(is_due) {
            for operation in self.operations().filter(|operation| operation.keyspace == target.id) {
                operation.write.key().map_or(Ok(()), check_archived_len)?;
            }
        }
        Ok(())
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

    /// Bytes with one more operation, which is not counted yet, at most: in the log, or in
    /// memtables.
    fn size_with(&self, key: &[u8], value: &[u8]) -> usize {
        let heads = (self.count as usize + 1) * MEMORY_HEAD_MORE + OPERATION_HEAD_MAX;
        self.size() + heads + key.len() + value.len()
    }

    #[cold]
    fn limit_exceeded(&self, kind: Kind, key: &[u8], value: &[u8]) -> Option<String> {
        let longest_key = match kind {
            // One byte more is the first key above.
            Kind::DeleteRange => key.len().max(value.len()).saturating_sub(1),
            _ => key.len(),
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
    #[inline]
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
        self.operations().filter_map(|operation| {
            let pointer = ValuePointer::decode(operation.pointer()?);
            let pointer = pointer.filter(|known| known.file == NO_FILE)?;
            Some((operation.keyspace, operation.write.key()?, pointer))
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
        let mut placed: Vec<Option<(u64, u64)>> = vec![None; staged.count()];
        let parts = match log.has_own_keys() {
            true => staged.parted(|keyspace| log.key_of(keyspace)),
            false => staged.whole(),
        };
        for (mut part, numbers) in parts.into_iter().filter(|(part, _)| part.size() > 0) {
            let appended = log.append(&mut part)?;
            let file = appended.file.number();
            for (within, number) in numbers.into_iter().enumerate() {
                placed[number] = part.start(within).map(|start| (file, appended.offset + start));
            }
            separated.files.push(appended.file);
        }
        for (number, (place, known)) in separated.places.iter().zip(known).enumerate() {
            let bytes = &mut self.operations[*place..*place + ValuePointer::SIZE];
            let staged_as = ValuePointer::decode(bytes).expect("the batch encoded it");
            let pointer = match (known, placed[number]) {
                (Some((pointer, file)), _) => {
                    separated.files.push(file);
                    pointer
                }
                (None, Some((file, offset))) => ValuePointer { file, offset, ..staged_as },
                (None, None) => unreachable!("what is not known was written"),
            };
            bytes.copy_from_slice(&pointer.encode());
        }
        separated.places.clear();
        Ok(())
    }

    /// Takes the files, held, that its pointers lead into.
    pub(super) fn take_files(&mut self) -> Vec<Arc<ValueFile>> {
        self.separated.take().map(|separated| separated.files).unwrap_or_default()
    }

    /// Whether it neither deletes ranges nor merges, nothing in it expires, and all its values are
    /// in it.
    pub(super) fn is_plain(&self) -> bool {
        self.special_count == 0 && self.separated.is_none()
    }

    /// Whether it does nothing but delete. Time: linear in its operations.
    pub(super) fn only_deletes(&self) -> bool {
        let deletes = |write| matches!(write, Write::Delete { .. } | Write::DeleteRange { .. });
        self.payload.is_none() && self.operations().all(|operation| deletes(operation.write))
    }

    /// The keyspaces written to, each once.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> + Clone {
        self.first_keyspace.iter().chain(&self.more_keyspaces)
    }

    /// What stands in front of the operations in a commit record.
    #[inline]
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
        OwnOperations::of(&self.operations)
    }
}

/// Why these bytes cannot be a commit's payload, if so.
pub(super) fn payload_refusal(payload: &[u8]) -> Option<String> {
    let len = payload.len();
    (len > COMMIT_PAYLOAD_LEN_MAX).then(|| {
        format!("a commit's payload of {len} bytes: at most {COMMIT_PAYLOAD_LEN_MAX} are allowed")
    })
}
