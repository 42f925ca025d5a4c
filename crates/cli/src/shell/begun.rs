//! A transaction that was begun, and what it has done so far: so that all of it can be done again
//! behind a keyspace that was made for it, as a transaction sees none that is younger than itself.
//!
//! Takes as much memory again as what the transaction writes.

use std::time::Duration;

use lithedb::{Db, Error, Expiry, KeyRange, Keyspace, SeqNo, Transaction};

use crate::failure::Failure;

/// A transaction.
#[derive(Debug)]
pub struct Begun {
    transaction: Transaction,
    /// In their order.
    steps: Vec<Step>,
}

/// What a transaction has done.
#[derive(Debug)]
pub enum Step {
    /// Looked at a key.
    Read(Keyspace, Vec<u8>),
    /// Looked at a range, or at its beginning or end.
    Walk(Keyspace, KeyRange),
    /// Set a key to a value.
    Put(Keyspace, Vec<u8>, Vec<u8>, Lasting),
    /// Merged an operand into a value.
    Merge(Keyspace, Vec<u8>, Vec<u8>),
    /// Deleted a key.
    Delete(Keyspace, Vec<u8>),
    /// Deleted a range.
    DeleteRange(Keyspace, KeyRange),
    /// Said what is kept with the commit.
    Payload(Vec<u8>),
}

/// How long a value is there.
#[derive(Clone, Copy, Debug)]
pub enum Lasting {
    /// As the keyspace has it.
    AsUsual,
    /// So long, from the commit on.
    For(Duration),
    /// Until then.
    Until(Expiry),
}

impl Begun {
    /// One that has done nothing so far.
    pub fn new(db: &Db) -> Begun {
        Begun { transaction: db.begin_update(), steps: Vec::new() }
    }

    /// The transaction, to read by it what was [noted](Begun::note).
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// Whether it has come to nothing yet.
    pub fn is_open(&self) -> bool {
        self.transaction.is_open()
    }

    /// Does a step.
    pub fn take(&mut self, step: Step) -> Result<(), Error> {
        step.run(&mut self.transaction)?;
        self.steps.push(step);
        Ok(())
    }

    /// Notes that something is read.
    pub fn note(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Does all steps again in a transaction that begins now. It shows what this one has shown, or
    /// conflicts, as nothing may have been committed since this one began.
    pub fn begin_again(&mut self, db: &Db) -> Result<(), Failure> {
        let mut next = db.begin_update();
        if next.seqno()? != self.transaction.seqno()? && self.steps.iter().any(Step::is_read) {
            self.rollback();
            return Err(Failure::Conflict);
        }
        self.steps.iter().try_for_each(|step| step.run(&mut next))?;
        self.transaction = next;
        Ok(())
    }

    /// Commits it; `None` if it has written nothing.
    pub fn commit(&mut self) -> Result<Option<SeqNo>, Failure> {
        let has_written = !self.steps.iter().all(Step::is_read);
        match self.transaction.commit() {
            Err(Error::Conflict) => Err(Failure::Conflict),
            committed => Ok(has_written.then_some(committed?)),
        }
    }

    /// Ends it; nothing has happened.
    pub fn rollback(&mut self) {
        self.transaction.rollback();
    }
}

impl Step {
    fn is_read(&self) -> bool {
        matches!(self, Step::Read(..) | Step::Walk(..))
    }

    fn run(&self, transaction: &mut Transaction) -> Result<(), Error> {
        match self {
            Step::Read(keyspace, key) => transaction.get(keyspace, key).map(drop),
            Step::Walk(keyspace, range) => {
                let mut cursor = transaction.cursor(keyspace, range.clone())?;
                cursor.seek_first()?;
                while cursor.valid() {
                    cursor.next()?;
                }
                Ok(())
            }
            Step::Put(keyspace, key, value, lasting) => match *lasting {
                Lasting::AsUsual => transaction.put(keyspace, key, value),
                Lasting::For(ttl) => transaction.put_with_ttl(keyspace, key, value, ttl),
                Lasting::Until(expiry) => transaction.put_until(keyspace, key, value, expiry),
            },
            Step::Merge(keyspace, key, operand) => transaction.merge(keyspace, key, operand),
            Step::Delete(keyspace, key) => transaction.delete(keyspace, key),
            Step::DeleteRange(keyspace, range) => {
                transaction.delete_range(keyspace, (range.start.clone(), range.end.clone()))
            }
            Step::Payload(payload) => transaction.set_payload(payload.as_slice()),
        }
    }
}
