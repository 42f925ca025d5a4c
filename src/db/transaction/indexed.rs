//! Writes to keyspaces with indexes: each changes the entries of these along with its key, in the
//! same batch. What the key had before is read for it, and so is part of the premise: what an index
//! loses is what was there at the place of the commit. Commits that are no transactions become one.
//!
//! When what was there expires is not part of it (R5): else a range in which something always
//! expires could not be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::walks::Expiries;
use super::writes::Mark;
use super::{Phase, Transaction, TransactionCursor};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, KeyRange, Lifetime, Result, SeqNo, Slice, ValuePointer, index_key};
use crate::db::KEY_LEN_MAX;
use crate::db::batch::WriteBatch;
use crate::db::core::Core;
use crate::db::indexes::{IndexOf, IndexSet};
use crate::db::keyspace::Keyspace;
use crate::db::operation::Write;
use crate::db::options::Durability;
use crate::db::state::State;
use crate::value_log::NO_FILE;

/// Index keys that a transaction has written to indexes in which each is to be there once, as what
/// their entries begin with; by index.
#[derive(Debug, Default)]
pub(super) struct WrittenHeads(BTreeMap<u32, (Arc<IndexOf>, BTreeSet<Vec<u8>>)>);

impl WrittenHeads {
    fn add(&mut self, index: &Arc<IndexOf>, head: &[u8]) {
        let of_index = || (Arc::clone(index), BTreeSet::new());
        let (_, heads) = self.0.entry(index.runtime.id).or_insert_with(of_index);
        if !heads.contains(head) {
            heads.insert(head.to_vec());
        }
    }
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It goes to the batch.
    Batch,
    /// The batch has it already: it is only to be read.
    Shown,
}

/// A value, and how long it is there; `None` if that is not known to be as long as anything.
type Lasting = (Slice, Option<Lifetime>);

/// A change of an index: an entry's key, and how long it is there, or that it goes.
type Change = (Arc<IndexOf>, Vec<u8>, Option<Lifetime>);

impl Transaction {
    /// Writes to one key of a keyspace with indexes. After an error nothing has changed.
    pub(super) fn write_indexed(
        &mut self,
        keyspace: &Keyspace,
        set: &IndexSet,
        write: Write<'_>,
    ) -> Result<()> {
        let write = match (write, keyspace.default_lifetime()) {
            (Write::Put { key, value }, lifetime) if lifetime != Lifetime::Forever => {
                Write::PutExpiring { key, value, lifetime }
            }
            (write, _) => write,
        };
        self.all_or_nothing(|transaction| {
            transaction.write_with_entries(keyspace, set, write, Place::Batch)
        })
    }

    /// Deletes a range of a keyspace with indexes. After an error nothing has changed.
    pub(super) fn delete_range_indexed(
        &mut self,
        keyspace: &Keyspace,
        set: &IndexSet,
        range: &KeyRange,
    ) -> Result<()> {
        self.all_or_nothing(|transaction| {
            transaction.delete_with_entries(keyspace, set, range, Place::Batch)
        })
    }

    fn all_or_nothing(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let mark: Mark = self.open()?.writes.mark();
        let done = run(self);
        if done.is_err() {
            let spares = Arc::clone(&self.handle.core.meter.spares);
            self.open_mut()?.writes.truncate(&mark, &spares);
        }
        done
    }

    fn write_with_entries(
        &mut self,
        keyspace: &Keyspace,
        set: &IndexSet,
        write: Write<'_>,
        place: Place,
    ) -> Result<()> {
        set.indexes.iter().try_for_each(|index| index.extraction.check())?;
        let key = write.key().expect("ranges are deleted otherwise");
        // What comes of it is the same when that has expired: what is merged into does not expire.
        let before = self.look_up(keyspace, key, Expiries::Passed)?;
        let is_own = self.open()?.writes.find(keyspace.id(), key).is_some();
        self.add_write(keyspace, write, place)?;
        let after: Option<Lasting> = match write {
            Write::Put { value, .. } => Some((Slice::from(value), Some(Lifetime::Forever))),
            Write::PutExpiring { value, lifetime, .. } => {
                Some((Slice::from(value), Some(lifetime)))
            }
            Write::Merge { .. } => {
                self.get(keyspace, key)?.map(|value| (value, Some(Lifetime::Forever)))
            }
            _ => None,
        };
        let before = before.map(|(value, until)| match until {
            None => (value, Some(Lifetime::Forever)),
            // A time from the commit on, which is not known yet, is shown as if it were now.
            Some(_) if is_own => (value, None),
            Some(until) => (value, Some(Lifetime::Until(until))),
        });
        for (index, key, lifetime) in changes(set, key, before.as_ref(), after.as_ref())? {
            self.write_entry(&index, &key, lifetime)?;
        }
        Ok(())
    }

    /// Deletes a range, with the index entries of what is in it. All of a keyspace goes without
    /// being looked at.
    fn delete_with_entries(
        &mut self,
        keyspace: &Keyspace,
        set: &IndexSet,
        range: &KeyRange,
        place: Place,
    ) -> Result<()> {
        set.indexes.iter().try_for_each(|index| index.extraction.check())?;
        let (start, end) = range.half_open();
        let is_everything = start.is_empty() && end.is_none();
        let gone = if is_everything { Vec::new() } else { self.entries_of(keyspace, set, range)? };
        if place == Place::Batch {
            let spares = Arc::clone(&self.handle.core.meter.spares);
            self.open_mut()?.writes.delete_range(keyspace, range, &spares)?;
        } else {
            self.add_write(
                keyspace,
                Write::DeleteRange { start: &start, end: end.as_deref() },
                place,
            )?;
        }
        for (index, key, lifetime) in gone {
            self.write_entry(&index, &key, lifetime)?;
        }
        if is_everything {
            let spares = Arc::clone(&self.handle.core.meter.spares);
            for index in &set.indexes {
                let kept_in = Keyspace::of_index(Arc::clone(&self.handle), index);
                let all = index_key::range(&KeyRange::all());
                self.open_mut()?.writes.delete_range(&kept_in, &all, &spares)?;
            }
        }
        Ok(())
    }

    /// The index entries of what is in a range, to be deleted. Reads all of it.
    fn entries_of(
        &self,
        keyspace: &Keyspace,
        set: &IndexSet,
        range: &KeyRange,
    ) -> Result<Vec<Change>> {
        let mut found = Vec::new();
        let mut cursor = self.cursor(keyspace, range.clone())?.passing_expiries();
        cursor.seek_first()?;
        while cursor.valid() {
            let before = (Slice::from(cursor.value()?), None);
            found.extend(changes(set, cursor.key(), Some(&before), None)?);
            cursor.next()?;
        }
        Ok(found)
    }

    /// Writes an entry of an index, or deletes it.
    pub(in crate::db) fn write_entry(
        &mut self,
        index: &Arc<IndexOf>,
        key: &[u8],
        lifetime: Option<Lifetime>,
    ) -> Result<()> {
        let kept_in = Keyspace::of_index(Arc::clone(&self.handle), index);
        let write = match lifetime {
            None => Write::Delete { key },
            Some(Lifetime::Forever) => Write::Put { key, value: &[] },
            Some(lifetime) => Write::PutExpiring { key, value: &[], lifetime },
        };
        if index.is_unique && lifetime.is_some() {
            let head = index_key::head_len(key).expect("it is a key of an index");
            self.open_mut()?.heads.add(index, &key[..head]);
        }
        self.add_write(&kept_in, write, Place::Batch)
    }

    fn add_write(&mut self, keyspace: &Keyspace, write: Write<'_>, place: Place) -> Result<()> {
        let spares = Arc::clone(&self.handle.core.meter.spares);
        let open = self.open_mut()?;
        match place {
            Place::Batch => open.writes.add(keyspace, write, &spares)?,
            Place::Shown => open.writes.show(keyspace, write, &spares),
        }
        open.charge_writes();
        Ok(())
    }

    /// Whether each index key that it has written is there once, where it is to be. That others
    /// have none of them is then part of the premise.
    pub(super) fn check_unique(&mut self) -> Result<()> {
        let WrittenHeads(heads) = std::mem::take(&mut self.open_mut()?.heads);
        for (index, heads) in heads.into_values() {
            let kept_in = Keyspace::of_index(Arc::clone(&self.handle), &index);
            for head in heads {
                let cursor =
                    self.walk(&kept_in, KeyRange::prefix(&head), TransactionCursor::new)?;
                let mut cursor = cursor.passing_expiries(); // Fewer are no violation.
                cursor.seek_first()?;
                if cursor.valid() {
                    cursor.next()?;
                }
                if cursor.valid() {
                    let key = index_key::of_head(&head);
                    return Err(Error::UniqueViolation { index: index.name.to_string(), key });
                }
            }
        }
        Ok(())
    }

    /// Takes the place of the commit of a batch: with all that is in it, and the entries of indexes
    /// that this changes.
    fn take_batch(&mut self, batch: &WriteBatch) -> Result<()> {
        self.open_mut()?.writes.set_batch(batch.clone());
        for operation in batch.operations() {
            let Some((keyspace, set)) = self.indexed(operation.keyspace)? else { continue };
            let value;
            let write = match operation.write {
                Write::DeleteRange { start, end } => {
                    let range = KeyRange::from_half_open(start, end);
                    self.delete_with_entries(&keyspace, &set, &range, Place::Shown)?;
                    continue;
                }
                Write::PutPointer { key, pointer } => {
                    value = self.value_at(batch, pointer)?;
                    Write::Put { key, value: &value }
                }
                Write::PutPointerExpiring { key, pointer, lifetime } => {
                    value = self.value_at(batch, pointer)?;
                    Write::PutExpiring { key, value: &value, lifetime }
                }
                other => other,
            };
            self.write_with_entries(&keyspace, &set, write, Place::Shown)?;
        }
        Ok(())
    }

    /// All keyspaces as it sees them, of which this has to be one.
    pub(in crate::db) fn state_for(&self, keyspace: &Keyspace) -> Result<&State> {
        let open = self.open()?;
        open.snapshot.keyspace_state(keyspace)?;
        Ok(open.snapshot.state())
    }

    /// A keyspace with the indexes that it has as of the transaction; `None` if it has none.
    fn indexed(&self, id: u32) -> Result<Option<(Keyspace, Arc<IndexSet>)>> {
        let found = self.open()?.snapshot.state().find(id);
        let found = found.and_then(|state| Some((state, state.index_set()?)));
        Ok(found.map(|(state, set)| {
            let keyspace = Keyspace::new(Arc::clone(&self.handle), state);
            (keyspace, Arc::clone(set))
        }))
    }

    /// A large value of a batch: with it, or in the value log already.
    fn value_at(&self, batch: &WriteBatch, pointer: &[u8]) -> Result<Slice> {
        let values = &self.handle.core.values;
        let decoded: ValuePointer = values.decode(pointer)?;
        match decoded.file == NO_FILE {
            true => Ok(Slice::from(batch.staged_value(&decoded))),
            false => values.read(pointer),
        }
    }
}

/// What becomes of the index entries of a key whose value changes. All of it is known before any
/// of it is done.
fn changes(
    set: &IndexSet,
    key: &[u8],
    before: Option<&Lasting>,
    after: Option<&Lasting>,
) -> Result<Vec<Change>> {
    if before == after {
        return Ok(Vec::new()); // A time from the commit on is another one each time.
    }
    let lifetime = |lasting: Option<&Lasting>| lasting.and_then(|(_, lifetime)| *lifetime);
    let is_as_long = lifetime(before) == lifetime(after);
    let mut found = Vec::new();
    for index in &set.indexes {
        let keys_of = |lasting: Option<&Lasting>| match lasting {
            Some((value, _)) => index.extraction.keys(key, value),
            None => Ok(Vec::new()),
        };
        let (old, new) = (keys_of(before)?, keys_of(after)?);
        for gone in old.iter().filter(|gone| new.binary_search(gone).is_err()) {
            if is_seeded(Bug::IndexEntryLeft) {
                continue;
            }
            found.push((Arc::clone(index), index_key::encode(gone, key), None));
        }
        for come in &new {
            if is_as_long && old.binary_search(come).is_ok() {
                continue;
            }
            let entry = checked(index, index_key::encode(come, key))?;
            found.push((Arc::clone(index), entry, lifetime(after)));
        }
    }
    Ok(found)
}

/// The key of an entry of an index, if it is not too long for one.
pub(in crate::db) fn checked(index: &IndexOf, key: Vec<u8>) -> Result<Vec<u8>> {
    let len = key.len();
    if len <= KEY_LEN_MAX {
        return Ok(key);
    }
    Err(Error::invalid(format!(
        "an entry of the index {:?} takes {len} bytes, with index key and primary key: at most \
         {KEY_LEN_MAX} are allowed",
        index.name
    )))
}

impl Core {
    /// Whether all that a batch writes to is there, be it what an index is kept in.
    fn check_are_there(&self, batch: &WriteBatch) -> Result<()> {
        let state = self.published.state();
        match batch.targets().find(|target| state.find(target.id).is_none()) {
            Some(gone) => Err(Error::KeyspaceNotFound { name: gone.name.to_string() }),
            None => Ok(()),
        }
    }

    /// Commits a batch that writes to keyspaces with indexes, together with the entries of these.
    /// Tried again whenever others have changed what it has to know.
    #[cold]
    pub(in crate::db) fn commit_indexed(
        &self,
        batch: &WriteBatch,
        durability: Durability,
    ) -> Result<SeqNo> {
        let handle = self.handle()?;
        let mut conflicts = 0;
        loop {
            let mut transaction = Transaction::begin(&handle);
            transaction.take_batch(batch)?;
            match transaction.commit_with(durability) {
                Err(Error::Conflict) => conflicts += 1,
                committed => return committed,
            }
            self.check_are_there(batch)?;
            debug_assert!(matches!(transaction.phase, Phase::RolledBack), "it is over");
            self.make_room_in(&transaction.wrote.iter().copied(), 0)?;
            drop(transaction);
            self.back_off(conflicts);
        }
    }
}
