//! What transactions did and saw, as they tell it: the judge believes nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use lithedb::SeqNo;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the keyspace.
    pub keyspace: u8,
    /// Number of the key.
    pub key: u16,
}

/// Every value has an identity of its own, so that who reads it knows who wrote it.
pub type Identity = u64;

/// All values at one moment.
pub type Model = BTreeMap<Place, Identity>;

/// All transactions of one opening of a database.
#[derive(Clone, Debug)]
pub struct History {
    /// What was there before.
    pub start: Model,
    /// The transactions, in any order.
    pub attempts: Vec<Attempt>,
    /// What was there afterwards.
    pub recovered: Recovered,
}

/// What the next opening found.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Commits up to this stamp should be there, and no others.
    pub up_to: SeqNo,
    /// When the database was left without being closed, and whether with all that was not synced.
    pub crashed_at: Option<(u64, bool)>,
    /// What was there.
    pub found: Model,
}

/// One transaction, or something that works like one.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Before it was begun, and after it was over, on the clock that all threads share.
    pub began: u64,
    /// See `began`.
    pub ended: u64,
    /// The newest commit that it could see; none if it did not read.
    pub at: Option<SeqNo>,
    /// What became of it.
    pub end: End,
    /// What it did, in order.
    pub actions: Vec<Action>,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a commit.
    Committed {
        /// Its stamp.
        stamp: SeqNo,
        /// Whether it was durable when it was over.
        durable: bool,
    },
    /// It wrote nothing.
    ReadOnly,
    /// Rolled back by its own choice.
    RolledBack,
    /// Refused.
    Conflict,
}

/// One thing that a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It read a key, and found this.
    Got(Place, Option<Identity>),
    /// It walked the keys of a keyspace.
    Scanned(Scan),
    /// It gave a key a value, or deleted it.
    Wrote(Place, Option<Identity>),
    /// It deleted the keys of a keyspace from one to in front of another.
    Erased {
        /// Number of the keyspace.
        keyspace: u8,
        /// The first key.
        from: u16,
        /// The first key behind.
        to: u16,
    },
    /// It made a savepoint.
    Marked,
    /// It went back to its `n`-th living savepoint, which stays.
    WentBack(usize),
}

/// A walk, and what it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Number of the keyspace.
    pub keyspace: u8,
    /// Keys from here,
    pub from: u16,
    /// to in front of here.
    pub to: u16,
    /// From the end to the front.
    pub backward: bool,
    /// At most so many rows; it stopped when it had them.
    pub limit: usize,
    /// Key and value, in the order of the walk.
    pub rows: Vec<(u16, Identity)>,
}

/// A clock that all threads share: what is over before something else begins has a smaller number.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// The next number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// Waits until about `count` transactions are over, or nothing moves any more.
    pub(super) fn wait_for(&self, count: u64) {
        const STILL_MAX: u32 = 1000;
        let (mut last, mut still) = (0, 0);
        while last < 2 * count && still < STILL_MAX {
            std::thread::sleep(std::time::Duration::from_micros(100));
            let now = self.0.load(Ordering::SeqCst);
            still = if now == last { still + 1 } else { 0 };
            last = now;
        }
    }
}

const VALUE_PADDING: u8 = 0x5A;

/// The key with this number.
#[must_use]
pub fn key_of(number: u16) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// The number of a key.
///
/// # Panics
/// When it is none that a transaction has written.
#[must_use]
pub fn number_of_key(key: &[u8]) -> u16 {
    let digits = key.strip_prefix(b"key").and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).expect("a key that nobody wrote")
}

/// The value with this identity: its length follows from that.
#[must_use]
pub fn value_of(id: Identity) -> Vec<u8> {
    let mut value = id.to_le_bytes().to_vec();
    value.resize(8 + (crate::random::mix(id) % 90) as usize, VALUE_PADDING);
    value
}

/// The identity of a value.
///
/// # Panics
/// When it is none that a transaction has written.
#[must_use]
pub fn id_of_value(value: &[u8]) -> Identity {
    let head = value.first_chunk::<8>().expect("a value that nobody wrote");
    let id = u64::from_le_bytes(*head);
    assert_eq!(value, value_of(id), "a value that nobody wrote");
    id
}
