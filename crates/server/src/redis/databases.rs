//! The databases that clients select: keyspaces, and beside each one for what is no string.
//!
//! Database 0 is the keyspace `default`, database `n` is `redis-n`: a string is the value of its
//! key, so that HTTP and the Redis protocol see the same. Hashes, sets, sorted sets and lists lie
//! in a keyspace of their own, `default.redis` or `redis-n.redis`, which is made with the first.
//! That one belongs to its database: rights on the database's name are rights on both.
//!
//! Invariants
//! - D1  A key is a string or a collection. A string is shown where there are both, which only
//!   those can bring about who write past this protocol (HTTP).
//! - D2  Who finds no second keyspace finds no collections, and a plain `SET` costs no look for
//!   one.
//!
//! D1 and D2 hold under concurrency by stripes, locks of which each key has one:
//! 1. Whoever writes to a key holds its stripe from before it looks for the second keyspace until
//!    its commit has returned.
//! 2. Whoever makes the second keyspace shows it first, and then takes each stripe once. All that
//!    had not seen it have let their stripes go by then, so their commits are in front of the
//!    transaction that begins now, which reads the key's string; all that take a stripe later see
//!    it.
//! 3. With the second keyspace there, a `SET` looks for a collection and commits while it holds the
//!    stripe, and so does whoever makes a collection: one of both is first, and the other sees it.
//! 4. Writers that take no stripes (HTTP) write strings alone. Whoever makes a collection in a
//!    transaction has read that there is no string, so it conflicts with them if they were in
//!    between.
//!
//! Without a stripe too a transaction conflicts as it should: stripes are there for writes that are
//! not transactions, and so that those who count on one key wait instead of trying again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use lithedb::{Db, Error, Keyspace};

use crate::store::DEFAULT_KEYSPACE;

/// Databases, as Redis has them.
pub const DATABASE_COUNT: usize = 16;
const STRIPE_COUNT: usize = 1 << 10;
/// How often a stripe is tried before it is waited for.
const SPIN_COUNT: usize = 100;

/// All databases.
#[derive(Debug)]
pub struct Databases {
    all: Vec<Database>,
    stripes: Vec<Mutex<()>>,
    /// The id of the next collection.
    next_id: AtomicU64,
    /// How often keyspaces were looked up again, because they may have other names.
    lookups: AtomicU64,
}

/// One of them.
#[derive(Debug)]
pub struct Database {
    db: Db,
    /// Of its keyspace: rights are by this.
    pub name: String,
    second_name: String,
    strings: RwLock<Option<Keyspace>>,
    second: RwLock<Option<Keyspace>>,
    /// Whether there is a second keyspace (D2).
    has_second: AtomicBool,
}

/// The keyspaces of a database, as far as there are any.
#[derive(Clone, Debug, Default)]
pub struct Handles {
    pub strings: Option<Keyspace>,
    /// Of collections.
    pub second: Option<Keyspace>,
}

/// Stripes that are held.
#[derive(Debug, Default)]
pub struct Held<'a> {
    guards: Vec<(usize, MutexGuard<'a, ()>)>,
}

impl Databases {
    pub fn open(db: &Db) -> Databases {
        let all = (0..DATABASE_COUNT).map(|number| {
            let name = match number {
                0 => DEFAULT_KEYSPACE.to_owned(),
                number => format!("redis-{number}"),
            };
            let second_name = format!("{name}.redis");
            let second = db.keyspace(&second_name).ok();
            Database {
                db: db.clone(),
                strings: RwLock::new(db.keyspace(&name).ok()),
                has_second: AtomicBool::new(second.is_some()),
                second: RwLock::new(second),
                name,
                second_name,
            }
        });
        // Above those of all collections there are: an id was above the stamps then, and in a
        // millisecond not so many collections are made as a stamp has room for.
        let millis = db.snapshot().time().duration_since(std::time::UNIX_EPOCH);
        let millis = millis.map_or(0, |since| since.as_millis() as u64);
        let newest = db.snapshot().seqno().millis().max(millis) + 1;
        Databases {
            all: all.collect(),
            stripes: (0..STRIPE_COUNT).map(|_| Mutex::default()).collect(),
            next_id: AtomicU64::new(newest << 16),
            lookups: AtomicU64::new(0),
        }
    }

    /// Looks all keyspaces up again: a handle is one of its keyspace whatever that is called, and
    /// rights are by names. On return everybody sees those that have their names now.
    pub fn look_up_again(&self, db: &Db) {
        self.all.iter().for_each(|database| database.refresh(db));
        self.lookups.fetch_add(1, Ordering::Release);
    }

    /// Changes when handles that were taken before are no longer those of the names.
    pub fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Acquire)
    }

    pub fn at(&self, number: usize) -> &Database {
        &self.all[number]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Database> {
        self.all.iter()
    }

    /// An id that no collection has had.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a stripe. Most are free in a moment; behind that, whoever waits gives the other
    /// connections of its thread away: a stripe may be held for as long as a large command takes.
    fn lock(&self, stripe: usize) -> MutexGuard<'_, ()> {
        let stripe = &self.stripes[stripe];
        for _ in 0..SPIN_COUNT {
            match stripe.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        tokio::task::block_in_place(|| stripe.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the stripes of these, in order, waiting for each.
    pub fn hold(&self, mut stripes: Vec<usize>) -> Held<'_> {
        stripes.sort_unstable();
        stripes.dedup();
        let guards = stripes.into_iter().map(|stripe| (stripe, self.lock(stripe))).collect();
        Held { guards }
    }

    /// Takes one more stripe, if nobody else has it: who holds some must not wait.
    pub fn hold_more<'a>(&'a self, held: &mut Held<'a>, stripe: usize) -> bool {
        if held.guards.iter().any(|(known, _)| *known == stripe) {
            return true;
        }
        let guard = match self.stripes[stripe].try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if held.guards.is_empty() => self.lock(stripe),
            Err(TryLockError::WouldBlock) => return false,
        };
        held.guards.push((stripe, guard));
        true
    }

    /// What there is of a database, for who writes: its keyspace is made if there is none.
    pub fn for_writing(&self, db: &Db, number: usize) -> Result<(), Error> {
        let database = self.at(number);
        if database.strings().is_none() {
            let made = db.keyspace_or_create(&database.name)?;
            *database.strings.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
        }
        Ok(())
    }

    /// The same for who makes a collection. Not to be called with stripes held.
    pub fn for_collections(&self, db: &Db, number: usize) -> Result<(), Error> {
        self.for_writing(db, number)?;
        let database = self.at(number);
        if database.has_second.load(Ordering::Acquire) {
            return Ok(());
        }
        {
            let mut second = database.second.write().unwrap_or_else(PoisonError::into_inner);
            if second.is_none() {
                *second = Some(db.keyspace_or_create(&database.second_name)?);
            }
        }
        database.has_second.store(true, Ordering::Release);
        // See the module's text, 2.
        (0..STRIPE_COUNT).for_each(|stripe| drop(self.lock(stripe)));
        Ok(())
    }
}

impl Databases {
    /// What there has to be of a database for who brings something there from another one.
    pub fn for_what_comes_from(&self, db: &Db, from: usize, to: usize) -> Result<(), Error> {
        match self.at(from).has_second() {
            true => self.for_collections(db, to),
            false => self.for_writing(db, to),
        }
    }
}

impl Held<'_> {
    /// Lets all go.
    pub fn clear(&mut self) {
        self.guards.clear();
    }
}

impl Database {
    fn strings(&self) -> Option<Keyspace> {
        let known = self.strings.read().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_some() {
            return known;
        }
        // It may have been made past this.
        let found = self.db.keyspace(&self.name).ok()?;
        *self.strings.write().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Some(found)
    }

    /// The keyspaces there are. Who writes holds the stripes of its keys already.
    pub fn handles(&self) -> Handles {
        let second = self.has_second.load(Ordering::Acquire);
        let second =
            second.then(|| self.second.read().unwrap_or_else(PoisonError::into_inner).clone());
        Handles { strings: self.strings(), second: second.flatten() }
    }

    /// Whether collections are possible.
    pub fn has_second(&self) -> bool {
        self.has_second.load(Ordering::Acquire)
    }

    /// Looks keyspaces up again: one was made or dropped past this.
    pub fn refresh(&self, db: &Db) {
        *self.strings.write().unwrap_or_else(PoisonError::into_inner) =
            db.keyspace(&self.name).ok();
        let mut second = self.second.write().unwrap_or_else(PoisonError::into_inner);
        if self.has_second() {
            *second = db.keyspace(&self.second_name).ok();
            self.has_second.store(second.is_some(), Ordering::Release);
        }
    }
}

/// The stripe of a key of a database.
pub fn stripe_of(database: usize, key: &[u8]) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ database as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    (hash >> 40) as usize % STRIPE_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithedb::storage::MemoryStorage;
    use std::sync::Arc;

    #[test]
    fn stripes_are_taken_once_and_never_waited_for_with_others_held() {
        let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap();
        let databases = Databases::open(&db);
        let held = databases.hold(vec![3, 1, 3]);
        assert_eq!(held.guards.len(), 2);
        let mut more = Held::default();
        assert!(databases.hold_more(&mut more, 7));
        assert!(databases.hold_more(&mut more, 7));
        assert!(!databases.hold_more(&mut more, 3));
        drop(held);
        assert!(databases.hold_more(&mut more, 3));
    }

    #[test]
    fn the_second_keyspace_is_made_once_and_found_again() {
        let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap();
        let databases = Databases::open(&db);
        assert!(databases.at(3).handles().strings.is_none());
        databases.for_collections(&db, 3).unwrap();
        assert!(databases.at(3).handles().second.is_some());
        assert!(Databases::open(&db).at(3).has_second());
        db.drop_keyspace("redis-3.redis").unwrap();
        databases.at(3).refresh(&db);
        assert!(!databases.at(3).has_second());
        let first = databases.next_id();
        assert!(Databases::open(&db).next_id() >> 16 >= first >> 16);
    }
}
