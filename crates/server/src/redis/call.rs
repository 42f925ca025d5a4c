//! A command on keys while it is done: what it sees, what it writes, what it says.
//!
//! A command that reads sees a snapshot; one that writes, and each within `EXEC`, works in a
//! transaction, which is run again when it conflicts. So a command must not change anything but by
//! its [`Call`], and what it has said before it failed is taken back.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lithedb::{Entry, Error, Expiry, Iter, KeyRange, Keyspace, Slice, Snapshot, Transaction};
use lithedb::{SeqNo, TransactionIter, WriteBatch};

use super::databases::Handles;
use super::frame::Args;
use super::glob::Steps;
use super::reply::Reply;
use crate::server::Shared;

/// Entries that one command may go over.
pub const STEPS_MAX: u64 = 10_000_000;

pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const SYNTAX: &str = "ERR syntax error";
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub const OVERFLOW: &str = "ERR increment or decrement would overflow";
pub const NO_SUCH_KEY: &str = "ERR no such key";
pub const TOO_MUCH: &str = "ERR there is too much to go through for one command";

/// Why a command was not done.
#[derive(Debug)]
pub enum Failure {
    /// The client is told so.
    Say(Cow<'static, str>),
    Engine(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

pub type Done = Result<(), Failure>;

/// Fails with words for the client.
pub fn say<T>(text: impl Into<Cow<'static, str>>) -> Result<T, Failure> {
    Err(Failure::Say(text.into()))
}

/// What is said to a command that is given too little or too much.
pub fn wrong_arity<T>(command: &str) -> Result<T, Failure> {
    say(format!("ERR wrong number of arguments for '{command}' command"))
}

/// What a command sees, and whether it can write.
#[derive(Debug)]
pub enum View {
    Snapshot(Snapshot),
    Transaction { transaction: Transaction, written: Written },
}

/// What was written in a transaction so far, also what was overwritten in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub count: usize,
    pub bytes: usize,
}

/// Entries of a range.
pub enum Walk<'a> {
    Snapshot(Iter),
    Transaction(TransactionIter<'a>),
    Nothing,
}

impl Iterator for Walk<'_> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Result<Entry, Error>> {
        match self {
            Walk::Snapshot(iter) => iter.next(),
            Walk::Transaction(iter) => iter.next(),
            Walk::Nothing => None,
        }
    }

    /// In a snapshot, many are passed over by their number.
    fn nth(&mut self, count: usize) -> Option<Result<Entry, Error>> {
        match self {
            Walk::Snapshot(iter) => iter.nth(count),
            Walk::Transaction(iter) => iter.nth(count),
            Walk::Nothing => None,
        }
    }
}

impl DoubleEndedIterator for Walk<'_> {
    fn next_back(&mut self) -> Option<Result<Entry, Error>> {
        match self {
            Walk::Snapshot(iter) => iter.next_back(),
            Walk::Transaction(iter) => iter.next_back(),
            Walk::Nothing => None,
        }
    }
}

impl View {
    /// A transaction that begins now.
    pub fn transaction(db: &lithedb::Db) -> View {
        View::Transaction { transaction: db.begin_update(), written: Written::default() }
    }

    /// What was written in it.
    pub fn written(&self) -> Written {
        match self {
            View::Snapshot(_) => Written::default(),
            View::Transaction { written, .. } => *written,
        }
    }

    pub fn entry(&self, keyspace: Option<&Keyspace>, key: &[u8]) -> Result<Option<Entry>, Error> {
        let Some(keyspace) = keyspace else { return Ok(None) };
        match self {
            View::Snapshot(snapshot) => snapshot.get_entry(keyspace, key),
            View::Transaction { transaction, .. } => transaction.get_entry(keyspace, key),
        }
    }

    pub fn contains(&self, keyspace: Option<&Keyspace>, key: &[u8]) -> Result<bool, Error> {
        let Some(keyspace) = keyspace else { return Ok(false) };
        match self {
            View::Snapshot(snapshot) => snapshot.contains(keyspace, key),
            View::Transaction { transaction, .. } => transaction.contains(keyspace, key),
        }
    }

    pub fn value(&self, keyspace: Option<&Keyspace>, key: &[u8]) -> Result<Option<Slice>, Error> {
        let Some(keyspace) = keyspace else { return Ok(None) };
        match self {
            View::Snapshot(snapshot) => snapshot.get(keyspace, key),
            View::Transaction { transaction, .. } => transaction.get(keyspace, key),
        }
    }

    pub fn walk(&self, keyspace: Option<&Keyspace>, range: KeyRange) -> Result<Walk<'_>, Error> {
        let keyspace = keyspace.filter(|_| !is_reversed(&range));
        let Some(keyspace) = keyspace else { return Ok(Walk::Nothing) };
        let bounds: (_, _) = (range.start, range.end);
        match self {
            View::Snapshot(snapshot) => {
                Ok(Walk::Snapshot(snapshot.range::<Vec<u8>>(keyspace, bounds)))
            }
            View::Transaction { transaction, .. } => {
                Ok(Walk::Transaction(transaction.range::<Vec<u8>>(keyspace, bounds)?))
            }
        }
    }

    /// How many there are in a range. A snapshot knows without going over them.
    pub fn count(&self, keyspace: Option<&Keyspace>, range: KeyRange) -> Result<u64, Failure> {
        let Some(found) = keyspace.filter(|_| !is_reversed(&range)) else { return Ok(0) };
        if let View::Snapshot(snapshot) = self {
            return Ok(snapshot.count::<Vec<u8>>(found, (range.start, range.end))?);
        }
        let mut steps = Steps(STEPS_MAX);
        let mut count = 0;
        for entry in self.walk(keyspace, range)? {
            entry?;
            count += 1;
            if !steps.take() {
                return say(TOO_MUCH);
            }
        }
        Ok(count)
    }

    fn writer(&mut self, bytes: usize) -> Result<&mut Transaction, Failure> {
        match self {
            View::Transaction { transaction, written } => {
                written.count += 1;
                written.bytes += bytes;
                Ok(transaction)
            }
            // The table of commands says that it only reads.
            View::Snapshot(_) => say("ERR the command cannot write"),
        }
    }
}

/// Whether a range ends in front of its start: a client may ask for such.
fn is_reversed(range: &KeyRange) -> bool {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    match (&range.start, &range.end) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start), Included(end)) => start > end,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start >= end,
    }
}

/// When what is put expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// As its keyspace says: most never.
    Default,
    /// As something that was there.
    As(Expiry),
    /// So long after the commit.
    For(Duration),
}

impl Until {
    /// At a moment, in milliseconds since 1970.
    pub fn at_millis(millis: i64) -> Until {
        Until::As(Expiry::At(moment(millis)))
    }
}

/// The last millisecond at which something can expire: later ones are this one, for the engine too.
const MOMENT_MAX: u64 = (1 << 48) - 1;

/// The time of so many milliseconds since 1970.
pub fn moment(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0).min(MOMENT_MAX))
}

/// Milliseconds since 1970.
pub fn millis_of(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A command on keys.
pub struct Call<'a> {
    /// The name of the command is the first.
    pub args: Args<'a>,
    pub out: &'a mut Reply,
    pub view: &'a mut View,
    /// Taken before the view: a keyspace that the view does not have was dropped meanwhile.
    pub handles: &'a Handles,
    pub shared: &'a Shared,
    /// The number of the database.
    pub database: usize,
    /// Of the other database that it writes to, if it does.
    pub other: Option<(usize, &'a Handles)>,
    pub steps: Steps,
}

impl<'a> Call<'a> {
    /// The same in the database of this number: its own, or the other one that it writes to.
    pub fn in_database(&mut self, number: usize) -> Result<Call<'_>, Failure> {
        let handles = match self.other {
            _ if number == self.database => self.handles,
            Some((other, handles)) if number == other => handles,
            _ => return say("ERR the database is not there"),
        };
        Ok(Call {
            args: self.args,
            out: &mut *self.out,
            view: &mut *self.view,
            handles,
            shared: self.shared,
            database: number,
            other: None,
            steps: Steps(STEPS_MAX),
        })
    }

    pub fn strings(&self) -> Option<&'a Keyspace> {
        self.handles.strings.as_ref()
    }

    pub fn second(&self) -> Option<&'a Keyspace> {
        self.handles.second.as_ref()
    }

    /// The keyspace of strings, to be written to.
    pub fn strings_to_write(&self) -> Result<&'a Keyspace, Failure> {
        self.strings().map_or_else(|| say("ERR the database is not there"), Ok)
    }

    pub fn second_to_write(&self) -> Result<&'a Keyspace, Failure> {
        self.second().map_or_else(|| say("ERR the database has no collections"), Ok)
    }

    /// An argument as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, Failure> {
        let number = self.args.get(index).and_then(super::number::integer);
        number.map_or_else(|| say(NOT_AN_INTEGER), Ok)
    }

    pub fn float(&self, index: usize) -> Result<f64, Failure> {
        let number = self.args.get(index).and_then(super::number::float);
        number.map_or_else(|| say(NOT_A_FLOAT), Ok)
    }

    /// Now, by the clock of the engine, in milliseconds since 1970.
    pub fn now(&self) -> i64 {
        let time = match &*self.view {
            View::Snapshot(snapshot) => snapshot.time(),
            View::Transaction { .. } => {
                // A database in which nothing expires does not look at its clock. Who is about to
                // put something that does makes it look: this batch says so, and is dropped.
                if let Some(strings) = self.strings() {
                    WriteBatch::new().put_with_ttl(strings, b"", b"", Duration::ZERO);
                }
                self.shared.store.db().snapshot().time()
            }
        };
        millis_of(time)
    }

    /// Counts something that is gone over.
    pub fn step(&mut self) -> Done {
        if self.steps.take() { Ok(()) } else { say(TOO_MUCH) }
    }

    /// Fails when more was said than may be.
    pub fn check_size(&self) -> Done {
        self.check_bytes(self.out.bytes.len())
    }

    /// Fails when so much cannot be said.
    pub fn check_bytes(&self, bytes: usize) -> Done {
        match bytes > self.shared.limits.output_size {
            true => say("ERR the reply is larger than replies may be"),
            false => Ok(()),
        }
    }

    /// Checks a key or value that is to be written.
    pub fn check_value(&self, len: usize) -> Done {
        match len as u64 > self.shared.limits.value_size {
            true => say("ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
            false => Ok(()),
        }
    }

    /// Sets a key of a keyspace.
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8], until: Until) -> Done {
        let transaction = self.view.writer(key.len() + value.len())?;
        match until {
            Until::Default => transaction.put(keyspace, key, value)?,
            Until::As(expiry) => transaction.put_until(keyspace, key, value, expiry)?,
            Until::For(time) => transaction.put_with_ttl(keyspace, key, value, time)?,
        }
        Ok(())
    }

    pub fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Done {
        Ok(self.view.writer(key.len())?.delete(keyspace, key)?)
    }

    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: &[u8]) -> Done {
        Ok(self.view.writer(prefix.len())?.delete_prefix(keyspace, prefix)?)
    }

    /// The stamp of what a key has, whatever that is: what `WATCH` looks at.
    pub fn stamp(&self, key: &[u8]) -> Result<Option<SeqNo>, Failure> {
        if let Some(entry) = self.view.entry(self.strings(), key)? {
            return Ok(Some(entry.seqno));
        }
        let record = super::collection::record_key(key);
        Ok(self.view.entry(self.second(), &record)?.map(|entry| entry.seqno))
    }

    /// Sets a string, whatever the key had.
    pub fn put_string(&mut self, key: &[u8], value: &[u8], until: Until) -> Done {
        self.check_value(value.len())?;
        let strings = self.strings_to_write()?;
        self.put(strings, key, value, until)
    }
}
