//! Transactions: reads and writes that happen at one moment, or not at all.
//!
//! A transaction reads its snapshot and its own writes, and remembers what it has read. At commit
//! it is checked, under the log's lock, against the commits since its snapshot: if one of them
//! wrote what it has read, it conflicts, and nothing has happened. So every transaction could have
//! run at the place of its commit in the log: it is serializable, in the order of the stamps. None
//! waits for another before its commit.
//!
//! | file | what it owns |
//! |---|---|
//! | `reads.rs` | the set of what was read |
//! | `writes.rs` | what will be written, as a batch and as something to read |
//! | `indexed.rs` | what that changes of indexes, and batches that become transactions for it |
//! | `walks.rs` | cursor and iterator that note what they read |
//! | `validate.rs` | whether what was read has changed |
//! | `register.rs` | which transactions are open, and memtables that are kept for them |
//!
//! Source: H. T. Kung, J. T. Robinson, "On Optimistic Methods for Concurrency Control" (1981),
//! with backward validation.

mod indexed;
mod reads;
mod register;
#[cfg(test)]
mod tests;
mod validate;
mod walks;
mod writes;

pub(super) use indexed::checked;
pub(super) use register::TransactionRegister;
pub(super) use validate::{Premise, Verdict};
use walks::Expiries;
pub use walks::{TransactionCursor, TransactionIter};

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Expiry, KeyRange, Lifetime, Result, SeqNo, Slice};
use crate::cache::{Charge, Part};
use crate::db::commit::Basis;
use crate::db::core::Core;
use crate::db::iter::{Cursor, Entry};
use crate::db::keyspace::Keyspace;
use crate::db::operation::Write;
use crate::db::options::{Background, Durability};
use crate::db::snapshot::Snapshot;
use crate::db::time::AsOf;
use crate::db::{Db, Handle};
use indexed::WrittenHeads;
use reads::Reads;
use register::{Ended, Registration};
use writes::{Mark, Onto, Writes, Written};

/// How often [`Db::update`] runs its closure before it gives up.
pub const UPDATE_TRY_COUNT: u32 = 64;
/// What a transaction waits before its third try, doubled for each further one.
const BACKOFF_MIN: Duration = Duration::from_micros(20);
const BACKOFF_DOUBLINGS_MAX: u32 = 8;

/// Reads and writes that happen at one moment, or not at all.
///
/// It sees the database as of its beginning, and its own writes. When it is committed, and another
/// commit has changed something that it has read (a key, or anything in a range that it walked,
/// also by adding to it), or something that it has seen has expired meanwhile, it fails with
/// `Conflict`, and nothing has happened. A transaction that
/// writes nothing never conflicts. When it is dropped without having been committed, nothing has
/// happened either.
///
/// Savepoints mark a moment of its writes to which it can go back.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let db = lithedb::Db::builder()
/// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
/// let accounts = db.keyspace_or_create("accounts")?;
/// accounts.put("ada", "10")?;
/// let mut transaction = db.begin_update();
/// let savings = transaction.get(&accounts, "ada")?;
/// transaction.put(&accounts, "ada", "0")?;
/// transaction.put(&accounts, "bob", savings.as_deref().unwrap_or(b"0"))?;
/// transaction.commit()?;
/// assert_eq!(accounts.get("bob")?.as_deref(), Some(&b"10"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    handle: Arc<Handle>,
    phase: Phase,
    /// The keyspaces that its commit was to write to.
    wrote: Vec<u32>,
}

/// What a transaction has come to.
enum Phase {
    Open(Box<Open>),
    Committed(SeqNo),
    /// Rolled back, by the caller or because its commit failed.
    RolledBack,
}

/// An open transaction.
struct Open {
    snapshot: Snapshot,
    reads: Reads,
    writes: Writes,
    /// Memory of the writes.
    charge: Charge,
    savepoints: Vec<(u64, Mark)>,
    savepoint_count: u64,
    /// Index keys that must not be there twice.
    heads: WrittenHeads,
    /// As of before it looked at which indexes there are.
    gate: u64,
    _registration: Registration,
}

/// A moment of a transaction's writes; see [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    number: u64,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Transaction");
        match &self.phase {
            Phase::Open(open) => shown.field("at", &open.snapshot.seqno()),
            Phase::Committed(seqno) => shown.field("committed", seqno),
            Phase::RolledBack => shown.field("rolled_back", &true),
        };
        shown.finish_non_exhaustive()
    }
}

impl Transaction {
    pub(super) fn begin(handle: &Arc<Handle>) -> Transaction {
        let core = &handle.core;
        let gate = core.log.gate();
        // Before the snapshot: what it will need to be checked against is kept from here on.
        let registration = core.transactions.enter(&core.published);
        let snapshot = Snapshot::new(Arc::clone(handle));
        let now = snapshot.as_of().judged_now();
        let charge = || core.budget.charge(Part::Transaction, 0);
        let open = Open {
            snapshot,
            reads: Reads::new(charge()),
            writes: Writes::new(now),
            charge: charge(),
            savepoints: Vec::new(),
            savepoint_count: 0,
            heads: WrittenHeads::default(),
            gate,
            _registration: registration,
        };
        let phase = Phase::Open(Box::new(open));
        Transaction { handle: Arc::clone(handle), phase, wrote: Vec::new() }
    }

    /// Whether it was neither committed nor rolled back.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    fn open(&self) -> Result<&Open> {
        self.handle.core.check_open()?;
        match &self.phase {
            Phase::Open(open) => Ok(open),
            Phase::Committed(_) | Phase::RolledBack => Err(Error::TransactionEnded),
        }
    }

    fn open_mut(&mut self) -> Result<&mut Open> {
        self.open()?;
        match &mut self.phase {
            Phase::Open(open) => Ok(open),
            Phase::Committed(_) | Phase::RolledBack => Err(Error::TransactionEnded),
        }
    }

    /// The newest commit that it sees.
    ///
    /// # Errors
    /// `TransactionEnded`, `Closed`.
    pub fn seqno(&self) -> Result<SeqNo> {
        Ok(self.open()?.snapshot.seqno())
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; `TransactionEnded`.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        Ok(self.get_with_expiry(keyspace, key.as_ref())?.map(|(value, _)| value))
    }

    /// The value of `key`, and when it expires.
    pub(super) fn get_with_expiry(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
    ) -> Result<Option<(Slice, Option<u64>)>> {
        self.look_up(keyspace, key, Expiries::Noted)
    }

    fn look_up(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        expiries: Expiries,
    ) -> Result<Option<(Slice, Option<u64>)>> {
        let open = self.open()?;
        match open.written(keyspace, key)? {
            Some(Written::Value(value, until)) => Ok(Some((value, until))),
            Some(Written::Deleted) => Ok(None),
            Some(Written::Merged(_)) => Ok(Some((open.merged_value(keyspace, key)?, None))),
            None => {
                let state = open.snapshot.keyspace_state(keyspace)?;
                let found = state.get_with_expiry(key, open.snapshot.as_of())?;
                if expiries == Expiries::Noted {
                    open.note_expiry(found.as_ref().and_then(|(_, until)| *until));
                }
                Ok(found)
            }
        }
    }

    /// When `key` expires; `None` if it is not there. What this transaction puts to expire some
    /// time after its commit, does so as if it were committed when it began.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn expiry(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let (open, key) = (self.open()?, key.as_ref());
        let until = match open.written(keyspace, key)? {
            Some(Written::Value(_, until)) => Some(until),
            Some(Written::Deleted) => None,
            Some(Written::Merged(_)) => Some(None),
            None => {
                let state = open.snapshot.keyspace_state(keyspace)?;
                let found = state.expiry(key, open.snapshot.as_of())?;
                open.note_expiry(found.flatten());
                found
            }
        };
        Ok(until.map(Expiry::from_moment))
    }

    /// Key, value and stamp of `key`. An entry that this transaction has written has the stamp
    /// [`SeqNo::MAX`]: it has none yet.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_entry(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let open = self.open()?;
        let key = key.as_ref();
        match open.written(keyspace, key)? {
            Some(Written::Value(value, until)) => {
                let (key, expiry) = (Slice::from(key), Expiry::from_moment(until));
                Ok(Some(Entry { key, value, seqno: SeqNo::MAX, expiry }))
            }
            Some(Written::Deleted) => Ok(None),
            Some(Written::Merged(_)) => {
                let value = open.merged_value(keyspace, key)?;
                let (key, expiry) = (Slice::from(key), Expiry::Never);
                Ok(Some(Entry { key, value, seqno: SeqNo::MAX, expiry }))
            }
            None => {
                let state = open.snapshot.keyspace_state(keyspace)?;
                let found = state.get_entry(key, open.snapshot.as_of())?;
                open.note_expiry(found.as_ref().and_then(|found| moment_of(found.expiry)));
                Ok(found)
            }
        }
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.expiry(keyspace, key)?.is_some())
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|&a, &b| keys[a].as_ref().cmp(keys[b].as_ref()));
        let mut values = vec![None; keys.len()];
        for index in order {
            values[index] = self.get(keyspace, &keys[index])?;
        }
        Ok(values)
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn first(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.iter(keyspace)?.next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn last(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.iter(keyspace)?.next_back().transpose()
    }

    /// All entries.
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `TransactionEnded`, `Closed`.
    pub fn iter(&self, keyspace: &Keyspace) -> Result<TransactionIter<'_>> {
        self.walk(keyspace, KeyRange::all(), TransactionIter::new)
    }

    /// The entries with keys in `range`.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<TransactionIter<'_>> {
        self.walk(keyspace, KeyRange::new(&range), TransactionIter::new)
    }

    /// The entries whose keys start with `prefix`.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn prefix(
        &self,
        keyspace: &Keyspace,
        prefix: impl AsRef<[u8]>,
    ) -> Result<TransactionIter<'_>> {
        self.walk(keyspace, KeyRange::prefix(prefix.as_ref()), TransactionIter::new)
    }

    /// A cursor over the entries with keys in `range`.
    ///
    /// # Errors
    /// As [`Transaction::iter`].
    pub fn cursor(&self, keyspace: &Keyspace, range: KeyRange) -> Result<TransactionCursor<'_>> {
        self.walk(keyspace, range, TransactionCursor::new)
    }

    fn walk<'t, W>(
        &'t self,
        keyspace: &Keyspace,
        range: KeyRange,
        walk: impl FnOnce(&'t Reads, u32, KeyRange, Cursor) -> W,
    ) -> Result<W> {
        let open = self.open()?;
        let state = open.snapshot.keyspace_state(keyspace)?;
        let own = open.writes.memtable(keyspace.id());
        let cursor = Cursor::over(Arc::clone(state), open.as_of(), range.clone(), own);
        Ok(walk(&open.reads, keyspace.id(), range, cursor))
    }

    /// Sets `key` to `value` when the transaction is committed.
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value over the limits or a keyspace of another database;
    /// `KeyspaceNotFound`, `TransactionEnded`, `Closed`. Nothing has changed.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write(keyspace, Write::Put { key: key.as_ref(), value: value.as_ref() })
    }

    /// Sets `key` to `value` when the transaction is committed, which expires when `ttl` has passed
    /// since the commit's stamp; see [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument` when the keyspace has a merge operator.
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_for(keyspace, key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Sets `key` to `value` when the transaction is committed, which expires then, or never; see
    /// [`Keyspace::put_until`].
    ///
    /// # Errors
    /// As [`Transaction::put_with_ttl`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        self.put_for(keyspace, key.as_ref(), value.as_ref(), expiry.into().into())
    }

    fn put_for(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<()> {
        self.write(keyspace, Write::PutExpiring { key, value, lifetime })
    }

    /// Merges `operand` into the value of `key` when the transaction is committed; see
    /// [`Keyspace::merge`]. The key does not count as read by that: a commit that changes it
    /// meanwhile is merged into. Once the transaction reads what it has merged into, it does.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument`, `MergeOperatorMissing` as [`Keyspace::merge`].
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let write = Write::Merge { key: key.as_ref(), operand: operand.as_ref() };
        self.write(keyspace, write)
    }

    /// Deletes `key` when the transaction is committed.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, Write::Delete { key: key.as_ref() })
    }

    /// Deletes `key` when the transaction is committed; returns the value it has.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`].
    pub fn take(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let key = key.as_ref();
        let value = self.get(keyspace, key)?;
        if value.is_some() {
            self.delete(keyspace, key)?;
        }
        Ok(value)
    }

    /// Deletes all keys in `range` when the transaction is committed: those that are there then,
    /// and those that it has written so far. Costs the same however many there are, and reads none.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.delete_key_range(keyspace, &KeyRange::new(&range))
    }

    /// Deletes all keys that start with `prefix`, as [`Transaction::delete_range`] does.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_key_range(keyspace, &KeyRange::prefix(prefix.as_ref()))
    }

    fn delete_key_range(&mut self, keyspace: &Keyspace, range: &KeyRange) -> Result<()> {
        let spares = Arc::clone(&self.handle.core.meter.spares);
        let open = self.open_mut()?;
        if let Some(set) = open.snapshot.keyspace_state(keyspace)?.index_set() {
            let set = Arc::clone(set);
            return self.delete_range_indexed(keyspace, &set, range);
        }
        open.writes.delete_range(keyspace, range, &spares)?;
        open.charge_writes();
        Ok(())
    }

    fn write(&mut self, keyspace: &Keyspace, write: Write<'_>) -> Result<()> {
        let spares = Arc::clone(&self.handle.core.meter.spares);
        let open = self.open_mut()?;
        if let Some(set) = open.snapshot.keyspace_state(keyspace)?.index_set() {
            let set = Arc::clone(set);
            return self.write_indexed(keyspace, &set, write);
        }
        open.writes.add(keyspace, write, &spares)?;
        open.charge_writes();
        Ok(())
    }

    /// Stores bytes with the commit; see [`crate::WriteBatch::set_payload`].
    ///
    /// # Errors
    /// `InvalidArgument` for more than [`crate::COMMIT_PAYLOAD_LEN_MAX`] bytes; `TransactionEnded`,
    /// `Closed`. Nothing has changed.
    pub fn set_payload(&mut self, payload: impl Into<Arc<[u8]>>) -> Result<()> {
        let open = self.open_mut()?;
        open.writes.set_payload(payload.into())?;
        open.charge_writes();
        Ok(())
    }

    /// Counts `key` as read: the transaction conflicts if another commit writes it.
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `TransactionEnded`, `Closed`.
    pub fn watch(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        let open = self.open()?;
        open.snapshot.keyspace_state(keyspace)?;
        open.reads.change(|set| set.add_key(keyspace.id(), key.as_ref()));
        Ok(())
    }

    /// Marks this moment of the transaction's writes.
    ///
    /// # Errors
    /// `TransactionEnded`, `Closed`.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let open = self.open_mut()?;
        open.savepoint_count += 1;
        open.savepoints.push((open.savepoint_count, open.writes.mark()));
        Ok(Savepoint { number: open.savepoint_count })
    }

    /// Undoes what was written since `savepoint`, which stays; later savepoints are gone. What was
    /// read since counts as read. Costs as much as writing anew what was written before it.
    ///
    /// # Errors
    /// `InvalidArgument` when the savepoint is gone, or not of this transaction;
    /// `TransactionEnded`, `Closed`. Nothing has changed.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let spares = Arc::clone(&self.handle.core.meter.spares);
        let open = self.open_mut()?;
        let found = open.savepoints.iter().position(|(number, _)| *number == savepoint.number);
        let Some(index) = found else {
            return Err(Error::invalid("the savepoint is not of this transaction, or was undone"));
        };
        open.savepoints.truncate(index + 1);
        let (_, mark) = &open.savepoints[index];
        open.writes.truncate(mark, &spares);
        open.charge_writes();
        Ok(())
    }

    /// Commits with the database's default durability; returns the commit's stamp. One that has
    /// written nothing commits nothing, and returns the stamp of what it has seen. Committing again
    /// returns the stamp again.
    ///
    /// # Errors
    /// As [`Transaction::commit_with`].
    pub fn commit(&mut self) -> Result<SeqNo> {
        self.commit_with(self.handle.core.default_durability())
    }

    /// Commits. On return the writes are visible to new reads and, with [`Durability::Sync`],
    /// durable. The transaction is over, whether this succeeds or not.
    ///
    /// # Errors
    /// `Conflict` when something that it has read was changed, or has expired, since it began (or
    /// it is open for so long that this is not known any more; or an index of a keyspace that it
    /// writes to has come or gone): nothing has happened; run it again, what it conflicts with is
    /// visible by then. That may take as long as the sync of another. `UniqueViolation` when an
    /// index that is to have each key once would have one twice.
    /// Else as [`Db::write_with`]; `TransactionEnded` when it was rolled back.
    pub fn commit_with(&mut self, durability: Durability) -> Result<SeqNo> {
        match &self.phase {
            Phase::Committed(seqno) => return Ok(*seqno),
            Phase::RolledBack => return Err(Error::TransactionEnded),
            Phase::Open(_) => {}
        }
        if let Err(error) = self.check_unique() {
            self.rollback();
            return Err(error);
        }
        let Phase::Open(open) = std::mem::replace(&mut self.phase, Phase::RolledBack) else {
            unreachable!("it was just looked at");
        };
        self.wrote = open.writes.keyspaces();
        let seqno = self.commit_open(*open, durability)?;
        self.phase = Phase::Committed(seqno);
        Ok(seqno)
    }

    fn commit_open(&self, open: Open, durability: Durability) -> Result<SeqNo> {
        let core = &self.handle.core;
        let at = open.snapshot.seqno();
        if open.writes.is_empty() {
            core.check_open()?;
            return Ok(at);
        }
        let (reads, _charge) = open.reads.into_set();
        let batch = open.writes.into_batch();
        let premise = (!reads.is_empty()).then_some(Premise { reads: &reads, at });
        let committed =
            core.commit_on(batch, durability, Basis::Transaction { gate: open.gate, premise });
        match &committed {
            Ok(_) => core.transactions.count(Ended::Committed),
            Err(Error::Conflict) => core.transactions.count(Ended::InConflict),
            Err(_) => {}
        }
        committed
    }

    /// Ends it; nothing has happened. Does nothing when it is over already.
    pub fn rollback(&mut self) {
        if self.is_open() {
            self.phase = Phase::RolledBack;
        }
    }
}

impl Open {
    /// What the transaction itself has written to `key`; if that does not say it all, `key` counts
    /// as read.
    fn written(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Written>> {
        self.snapshot.keyspace_state(keyspace)?;
        let written = self.writes.find(keyspace.id(), key);
        if matches!(written, None | Some(Written::Merged(Onto::Others))) {
            self.reads.change(|set| set.add_key(keyspace.id(), key));
        }
        Ok(written)
    }

    /// The value of a key that the transaction has merged operands into.
    fn merged_value(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Slice> {
        let state = self.snapshot.keyspace_state(keyspace)?;
        let own = self.writes.memtable(keyspace.id());
        state.merged_value(key, self.snapshot.seqno(), own.as_deref())
    }

    /// What its walks are as of. Where only its own writes expire, it is their now.
    fn as_of(&self) -> AsOf {
        let AsOf { at, .. } = self.snapshot.as_of();
        AsOf::of(at, self.snapshot.as_of().judged_now().max(self.writes.now()))
    }

    /// What was seen is not there from then on (R4).
    fn note_expiry(&self, until: Option<u64>) {
        if let Some(until) = until {
            self.reads.change(|set| set.note_expiry(until));
        }
    }

    /// Charges what the writes have come to; reads are charged as they are noted.
    fn charge_writes(&mut self) {
        self.charge.resize(self.writes.memory_used());
    }
}

/// When that is, as reads have it.
fn moment_of(expiry: Expiry) -> Option<u64> {
    match Lifetime::from(expiry) {
        Lifetime::Until(until) => Some(until),
        Lifetime::Forever | Lifetime::For(_) => None,
    }
}

impl Db {
    /// Runs `read` on a snapshot: all that it reads is of one moment.
    ///
    /// # Errors
    /// What `read` returns.
    pub fn view<T, E>(
        &self,
        read: impl FnOnce(&Snapshot) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        read(&self.snapshot())
    }

    /// Begins a transaction. It has to be committed; see [`Db::update`] for one that is run again
    /// when it conflicts.
    #[must_use]
    pub fn begin_update(&self) -> Transaction {
        Transaction::begin(&self.handle)
    }

    /// Runs `run` in a transaction and commits it with the default durability. After a conflict it
    /// is run again on a new snapshot, up to [`UPDATE_TRY_COUNT`] times, so it should change
    /// nothing outside of the transaction that matters. When it returns an error, or rolls the
    /// transaction back, nothing has happened.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # let db = lithedb::Db::builder()
    /// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
    /// let visits = db.keyspace_or_create("visits")?;
    /// let count = db.update(|transaction| {
    ///     let seen = transaction.get(&visits, "home")?;
    ///     let count = seen.map_or(0, |count| count[0]) + 1;
    ///     transaction.put(&visits, "home", [count])?;
    ///     Ok::<_, lithedb::Error>(count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `run` returns; `Conflict` when every try met one; else as [`Transaction::commit_with`].
    pub fn update<T, E: From<Error>>(
        &self,
        run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.update_with(self.core().default_durability(), run)
    }

    /// As [`Db::update`], with a durability.
    ///
    /// # Errors
    /// As [`Db::update`].
    pub fn update_with<T, E: From<Error>>(
        &self,
        durability: Durability,
        run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.update_stamped(durability, UPDATE_TRY_COUNT, run).map(|(value, _)| value)
    }

    /// As [`Db::update_with`], up to `try_count` times; with the stamp of the commit, or of what
    /// was seen if nothing was written; none if `run` itself has ended the transaction.
    pub(super) fn update_stamped<T, E: From<Error>>(
        &self,
        durability: Durability,
        try_count: u32,
        mut run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<(T, Option<SeqNo>), E> {
        let mut conflicts = 0;
        loop {
            let mut transaction = self.begin_update();
            let value = run(&mut transaction)?;
            if !transaction.is_open() {
                return Ok((value, None));
            }
            match transaction.commit_with(durability) {
                Ok(seqno) => return Ok((value, Some(seqno))),
                Err(Error::Conflict) if conflicts + 1 < try_count => conflicts += 1,
                Err(error) => return Err(error.into()),
            }
            // Now, and not between what the next try reads and its commit.
            self.core().make_room_in(&transaction.wrote.iter().copied(), 0)?;
            self.core().back_off(conflicts);
        }
    }
}

impl Core {
    /// Gives others time to finish, the more the more often there was a conflict.
    pub(super) fn back_off(&self, conflicts: u32) {
        if conflicts > 1 && self.background == Background::Threads {
            let doublings = (conflicts - 2).min(BACKOFF_DOUBLINGS_MAX);
            self.clock.sleep(BACKOFF_MIN * (1 << doublings));
        }
    }
}
