//! Hashes, sets, sorted sets and lists on ordered keys.
//!
//! In the second keyspace of a database, numbers with the most significant byte first:
//!
//! | key | value | what |
//! |---|---|---|
//! | `r` key | 1, type (1), id (8), count (8), head (8) | a collection; expires with it |
//! | `m` id (8) member | of a hash the value, of a sorted set the score (8) | a member |
//! | `m` id (8) index (8) | the element | of a list |
//! | `s` id (8) score (8) member | | the same by score |
//! | `e` millis (8) id (8) | key | a collection that expires then |
//!
//! Invariants
//! - C1  An id is that of one collection, for good: a member of one is never one of another.
//! - C2  `count` is the number of members; a collection without members is not there.
//! - C3  Whatever changes a collection writes its record: so who has read the record conflicts, and
//!   its stamp says whether it has changed.
//! - C4  A collection that expires has its `e`, and no other. When it has expired its record is not
//!   there, and its members are of no collection: they are swept by that entry.

use lithedb::{Entry, Expiry, KeyRange};

use super::call::{Call, Done, Failure, Until, View, WRONG_TYPE, millis_of, moment, say};
use super::number::{from_ordered, ordered};

const RECORD_VERSION: u8 = 1;
const RECORD_SIZE: usize = 26;
const ID_END: usize = 9;
/// Members up to so many are deleted one by one: a deleted range costs every memtable more.
const DELETED_SINGLY_MAX: u64 = 64;
/// Collections that are swept at a time.
const SWEPT_MAX: usize = 256;

/// What a key can have besides a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hash = 1,
    Set = 2,
    Sorted = 3,
    List = 4,
}

impl Kind {
    /// As `TYPE` says it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::Set => "set",
            Kind::Sorted => "zset",
            Kind::List => "list",
        }
    }
}

/// A collection as its record says.
#[derive(Clone, Debug)]
pub struct Collection {
    pub kind: Kind,
    pub id: u64,
    pub count: u64,
    /// The index of the first element of a list.
    pub head: i64,
    pub expiry: Expiry,
}

/// What a key has.
#[derive(Debug)]
pub enum Found {
    Nothing,
    Text(Entry),
    Collection(Collection),
}

/// The same, but for the value of a string.
#[derive(Debug)]
pub enum Looked {
    Nothing,
    Text,
    Collection(Collection),
}

pub fn record_key(key: &[u8]) -> Vec<u8> {
    [b"r", key].concat()
}

/// The key of a record.
pub fn key_of_record(record: &[u8]) -> &[u8] {
    &record[1..]
}

fn prefixed(letter: u8, id: u64, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(ID_END + rest.len());
    key.push(letter);
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(rest);
    key
}

fn expiry_key(at: std::time::SystemTime, id: u64) -> Vec<u8> {
    prefixed(b'e', u64::try_from(millis_of(at)).unwrap_or(0), &id.to_be_bytes())
}

/// The `e` of collections that have not expired as of a moment.
pub fn expiring(now: std::time::SystemTime) -> std::ops::Range<Vec<u8>> {
    // What expires in this millisecond has.
    expiry_key(now + std::time::Duration::from_millis(1), 0)..b"f".to_vec()
}

impl Collection {
    fn decode(entry: &Entry) -> Result<Collection, Failure> {
        let value = <[u8; RECORD_SIZE]>::try_from(&*entry.value).ok();
        let kind = |byte| match byte {
            1 => Some(Kind::Hash),
            2 => Some(Kind::Set),
            3 => Some(Kind::Sorted),
            4 => Some(Kind::List),
            _ => None,
        };
        let read = value.filter(|value| value[0] == RECORD_VERSION).and_then(|value| {
            let number = |at: usize| value[at..at + 8].try_into().map(u64::from_be_bytes).ok();
            Some(Collection {
                kind: kind(value[1])?,
                id: number(2)?,
                count: number(10)?,
                head: number(18)? as i64,
                expiry: entry.expiry,
            })
        });
        read.map_or_else(|| say("ERR the record of a collection is not one"), Ok)
    }

    fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut value = [0; RECORD_SIZE];
        (value[0], value[1]) = (RECORD_VERSION, self.kind as u8);
        value[2..10].copy_from_slice(&self.id.to_be_bytes());
        value[10..18].copy_from_slice(&self.count.to_be_bytes());
        value[18..].copy_from_slice(&self.head.to_be_bytes());
        value
    }

    pub fn member_key(&self, member: &[u8]) -> Vec<u8> {
        prefixed(b'm', self.id, member)
    }

    /// The key of an element of a list, by its place.
    pub fn element_key(&self, place: u64) -> Vec<u8> {
        let index = self.head.wrapping_add(place as i64);
        let ordered = (index as u64) ^ 1 << 63;
        self.member_key(&ordered.to_be_bytes())
    }

    pub fn score_key(&self, score: f64, member: &[u8]) -> Vec<u8> {
        let mut key = prefixed(b's', self.id, &ordered(score));
        key.extend_from_slice(member);
        key
    }

    pub fn members(&self) -> KeyRange {
        KeyRange::prefix(&prefixed(b'm', self.id, &[]))
    }

    pub fn scores(&self) -> KeyRange {
        KeyRange::prefix(&prefixed(b's', self.id, &[]))
    }
}

/// The member that a key of it has.
pub fn member_of(key: &[u8]) -> &[u8] {
    &key[ID_END.min(key.len())..]
}

/// Score and member of a key by score.
pub fn score_and_member(key: &[u8]) -> (f64, &[u8]) {
    let rest = member_of(key);
    match rest.split_first_chunk() {
        Some((score, member)) => (from_ordered(*score), member),
        None => (0.0, rest),
    }
}

impl Call<'_> {
    /// What a key has.
    pub fn find(&self, key: &[u8]) -> Result<Found, Failure> {
        let found = match self.view.entry(self.strings(), key)? {
            Some(entry) => Found::Text(entry),
            None => self.find_record(key)?.map_or(Found::Nothing, Found::Collection),
        };
        if let View::Snapshot(_) = &*self.view {
            self.shared.redis.looks.note(!matches!(found, Found::Nothing));
        }
        Ok(found)
    }

    /// What a key has, but for the value of a string, which may be large.
    pub fn look(&self, key: &[u8]) -> Result<Looked, Failure> {
        let looked = match self.view.contains(self.strings(), key)? {
            true => Looked::Text,
            false => self.find_record(key)?.map_or(Looked::Nothing, Looked::Collection),
        };
        if let View::Snapshot(_) = &*self.view {
            self.shared.redis.looks.note(!matches!(looked, Looked::Nothing));
        }
        Ok(looked)
    }

    /// Whether a key has nothing.
    pub fn is_free(&self, key: &[u8]) -> Result<bool, Failure> {
        Ok(matches!(self.look(key)?, Looked::Nothing))
    }

    fn find_record(&self, key: &[u8]) -> Result<Option<Collection>, Failure> {
        let Some(second) = self.second() else { return Ok(None) };
        let record = self.view.entry(Some(second), &record_key(key))?;
        record.as_ref().map(Collection::decode).transpose()
    }

    /// The string of a key.
    pub fn string(&self, key: &[u8]) -> Result<Option<Entry>, Failure> {
        match self.find(key)? {
            Found::Nothing => Ok(None),
            Found::Text(entry) => Ok(Some(entry)),
            Found::Collection(_) => say(WRONG_TYPE),
        }
    }

    /// The collection of a key.
    pub fn collection(&self, key: &[u8], kind: Kind) -> Result<Option<Collection>, Failure> {
        match self.look(key)? {
            Looked::Nothing => Ok(None),
            Looked::Collection(collection) if collection.kind == kind => Ok(Some(collection)),
            Looked::Text | Looked::Collection(_) => say(WRONG_TYPE),
        }
    }

    /// The same, or one that is saved when it has members.
    pub fn collection_or_new(&self, key: &[u8], kind: Kind) -> Result<Collection, Failure> {
        Ok(self.collection(key, kind)?.unwrap_or_else(|| self.new_collection(kind)))
    }

    pub fn new_collection(&self, kind: Kind) -> Collection {
        let id = self.shared.redis.databases.next_id();
        Collection { kind, id, count: 0, head: 0, expiry: Expiry::Never }
    }

    /// Writes the record of a collection that has changed (C3).
    pub fn save(&mut self, key: &[u8], collection: &Collection) -> Done {
        let second = self.second_to_write()?;
        if collection.count == 0 {
            self.delete(second, &record_key(key))?;
            return self.forget_expiry(collection);
        }
        let until = Until::As(collection.expiry);
        self.put(second, &record_key(key), &collection.encode(), until)
    }

    fn forget_expiry(&mut self, collection: &Collection) -> Done {
        match collection.expiry {
            Expiry::At(at) => {
                let second = self.second_to_write()?;
                self.delete(second, &expiry_key(at, collection.id))
            }
            Expiry::Never => Ok(()),
        }
    }

    /// Says when a collection expires (C4).
    pub fn set_expiry(&mut self, key: &[u8], collection: &mut Collection, expiry: Expiry) -> Done {
        let second = self.second_to_write()?;
        self.forget_expiry(collection)?;
        collection.expiry = expiry;
        if let Expiry::At(at) = expiry {
            self.put(second, &expiry_key(at, collection.id), key, Until::As(Expiry::Never))?;
        }
        self.save(key, collection)
    }

    /// Deletes a collection. Many members are one deleted range.
    pub fn remove_collection(&mut self, key: &[u8], collection: &Collection) -> Done {
        let second = self.second_to_write()?;
        self.delete(second, &record_key(key))?;
        self.forget_expiry(collection)?;
        if collection.count > DELETED_SINGLY_MAX {
            self.delete_prefix(second, &prefixed(b'm', collection.id, &[]))?;
            if collection.kind == Kind::Sorted {
                self.delete_prefix(second, &prefixed(b's', collection.id, &[]))?;
            }
            return Ok(());
        }
        let mut keys = self.keys_in(collection.members())?;
        if collection.kind == Kind::Sorted {
            keys.extend(self.keys_in(collection.scores())?);
        }
        keys.iter().try_for_each(|key| self.delete(second, key))
    }

    fn keys_in(&self, range: KeyRange) -> Result<Vec<lithedb::Slice>, Failure> {
        let walk = self.view.walk(self.second(), range)?;
        Ok(walk.map(|entry| entry.map(|entry| entry.key)).collect::<Result<_, _>>()?)
    }

    /// Deletes whatever a key has; says whether it had something.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let found = self.find(key)?;
        match &found {
            Found::Nothing => return Ok(false),
            Found::Collection(collection) => self.remove_collection(key, collection)?,
            Found::Text(_) => {
                let strings = self.strings_to_write()?;
                self.delete(strings, key)?;
                // One that the string hid (D1).
                if let Some(hidden) = self.find_record(key)? {
                    self.remove_collection(key, &hidden)?;
                }
            }
        }
        Ok(true)
    }

    /// Makes room for something else at a key whose string, if it has one, is overwritten.
    pub fn make_way(&mut self, key: &[u8], found: &Found) -> Done {
        match found {
            Found::Collection(collection) => self.remove_collection(key, collection),
            Found::Text(_) | Found::Nothing => Ok(()),
        }
    }

    /// Whether something is a member.
    pub fn is_member(&self, collection: &Collection, member: &[u8]) -> Result<bool, Failure> {
        Ok(self.view.value(self.second(), &collection.member_key(member))?.is_some())
    }

    /// All members, with what they have. Fails when that is more than a reply may have.
    pub fn entries(&mut self, range: KeyRange) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let second = self.second();
        for entry in self.view.walk(second, range)? {
            let entry = entry?;
            bytes += entry.key.len() + entry.value.len() + 16;
            if bytes > self.shared.limits.output_size || !self.steps.take() {
                return say("ERR the collection is too large for one reply");
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Deletes members of collections that have expired, some at a time (C4). Says whether there
    /// may be more of them.
    pub fn sweep(&mut self) -> Result<bool, Failure> {
        let Some(second) = self.second() else { return Ok(false) };
        let now = moment(self.now());
        let end = expiry_key(now, 0);
        let range = KeyRange {
            start: std::ops::Bound::Included(b"e".to_vec()),
            end: std::ops::Bound::Excluded(end),
        };
        let due = self.view.walk(Some(second), range)?.take(SWEPT_MAX);
        let due: Vec<Entry> = due.collect::<Result<_, _>>()?;
        let is_over = due.len() < SWEPT_MAX;
        for entry in due {
            let Some((_, id)) = entry.key.split_last_chunk::<8>() else { continue };
            let id = u64::from_be_bytes(*id);
            match self.find_record(&entry.value)? {
                // It is there with this id only if somebody has set the clock back.
                Some(found) if found.id == id => continue,
                Some(_) => {}
                // Whoever has seen the collection a moment ago, and gives it another time now, has
                // read this: they are not to have a record whose members are gone (C2).
                None => self.delete(second, &record_key(&entry.value))?,
            }
            self.delete(second, &entry.key)?;
            self.delete_all(&prefixed(b'm', id, &[]))?;
            self.delete_all(&prefixed(b's', id, &[]))?;
        }
        Ok(!is_over)
    }

    /// Deletes all that begins so: some one by one, many as a range.
    fn delete_all(&mut self, prefix: &[u8]) -> Done {
        let second = self.second_to_write()?;
        let walk = self.view.walk(Some(second), KeyRange::prefix(prefix))?;
        let few = walk.take(DELETED_SINGLY_MAX as usize + 1).map(|entry| Ok(entry?.key));
        let few = few.collect::<Result<Vec<lithedb::Slice>, Failure>>()?;
        match few.len() as u64 > DELETED_SINGLY_MAX {
            true => self.delete_prefix(second, prefix),
            false => few.iter().try_for_each(|key| self.delete(second, key)),
        }
    }

    /// Whether it is in a transaction, where nothing is known by number.
    pub fn is_in_transaction(&self) -> bool {
        matches!(self.view, View::Transaction { .. })
    }
}
