//! Transactions: they write, take back, read what they have written, and are committed or not.

use std::time::Duration;

use lithedb::{Error, SeqNo, Transaction};

use super::indexes::index_name;
use super::{Kind, Session, Trouble, absurd, expiry_of};
use crate::indexed::compare_index;
use crate::ops::{Edit, IndexReading, KeyEdit, Life, Slot, TransactionOp, Which};
use crate::readback::now_of;
use crate::timeline::{Change, Row, Rows, Until, rows_at};

impl Session {
    /// Runs a transaction.
    pub(super) fn transact(&self, op: &TransactionOp) -> Result<(), Trouble> {
        if self.keyspaces.is_empty() {
            return Ok(());
        }
        let now = now_of(&self.db);
        let mut transaction = self.db.begin_update();
        let mut issued = Vec::new();
        self.edit_in(&mut transaction, &mut issued, &op.edits)?;
        if let Some((slot, extent)) = &op.range
            && let Some(keyspace) = self.keyspace(*slot)
        {
            let range = extent.key_range();
            issued.extend(self.erasures(keyspace.id(), &range, &issued));
            transaction.delete_range(&keyspace, (range.start, range.end))?;
        }
        if !op.undone.is_empty() {
            let savepoint = transaction.savepoint()?;
            self.edit_in(&mut transaction, &mut issued.clone(), &op.undone)?;
            transaction.rollback_to(savepoint)?;
        }
        if !self.timeline().is_in_doubt() && !self.timeline().are_indexes_in_doubt() {
            for reading in &op.reads {
                self.read_in(&transaction, (&issued, now), reading)?;
            }
        }
        let Some(durability) = op.commit.filter(|_| !op.edits.is_empty()) else {
            transaction.rollback();
            return match transaction.commit() {
                Err(Error::TransactionEnded) => Ok(()),
                other => Err(absurd(format!("a transaction that was rolled back: {other:?}"))),
            };
        };
        match self.commit(issued, durability, |_| transaction.commit_with(durability)) {
            Err(Trouble::Refused(Error::Conflict)) => Ok(()), // Something that it read has expired.
            done => done,
        }
    }

    /// Makes edits in a transaction, and adds what they come to to what is issued.
    fn edit_in(
        &self,
        transaction: &mut Transaction,
        issued: &mut Vec<Change>,
        edits: &[KeyEdit],
    ) -> Result<(), Trouble> {
        for edit in edits {
            let Some(keyspace) = self.keyspace(edit.0) else { return Ok(()) };
            issued.push(self.change_of(&keyspace, *edit, issued));
            let (key, kind) = (edit.1.bytes(), self.kind_of(&keyspace));
            match (edit.2, kind) {
                (Edit::Delete, _) => transaction.delete(&keyspace, key)?,
                (Edit::Merge(operand), Kind::Merging) => {
                    transaction.merge(&keyspace, key, operand.bytes())?;
                }
                (Edit::PutExpiring(value, Life::For(millis)), Kind::Expiring(_)) => {
                    let ttl = Duration::from_millis(millis.into());
                    transaction.put_with_ttl(&keyspace, key, value.bytes(), ttl)?;
                }
                (Edit::PutExpiring(value, life), Kind::Expiring(_)) => {
                    let expiry = expiry_of(self.until_of(life));
                    transaction.put_until(&keyspace, key, value.bytes(), expiry)?;
                }
                (Edit::Put(value) | Edit::Merge(value) | Edit::PutExpiring(value, _), _) => {
                    transaction.put(&keyspace, key, value.bytes())?;
                }
            }
        }
        Ok(())
    }

    /// Reads an index in a transaction that has made these changes.
    fn read_in(
        &self,
        transaction: &Transaction,
        (issued, now): (&[Change], u64),
        (slot, which, reading): &(Slot, Which, IndexReading),
    ) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(*slot) else { return Ok(()) };
        let (id, name) = (keyspace.id(), index_name(*which));
        let state = self.timeline().indexes().get(&(id, name.to_owned())).cloned();
        let Some(state) = state else { return Ok(()) };
        let index = keyspace.index(name)?;
        let within = match transaction.index(&index) {
            Err(Error::IndexNotReady { .. }) if !state.is_ready => return Ok(()),
            Ok(_) if !state.is_ready => {
                return Err(absurd(format!("{name:?} is read, and is {state:?}")));
            }
            within => within?,
        };
        let mut rows = Rows::clone(&self.timeline().rows(id));
        for change in issued.iter().filter(|change| change.keyspace == id) {
            let until = change.until.of(now);
            // What ends with this moment may be shown or not.
            if until == Some(now) || change.until == Until::After(0) {
                return Ok(());
            }
            match &change.value {
                Some(value) => {
                    let row = Row { value: value.as_slice().into(), seqno: SeqNo::ZERO, until };
                    rows.insert(change.key.clone(), row);
                }
                None => drop(rows.remove(&change.key)),
            }
        }
        let rows = rows_at(&rows, now);
        let read = compare_index(&within, (&rows, &state.extractor), reading);
        // While somebody waited, time went on.
        if now_of(&self.db) == now { read } else { Ok(()) }
    }
}
