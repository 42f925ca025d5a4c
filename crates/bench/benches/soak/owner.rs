//! A thread that writes keys of its own, and knows what must be there.

use lithe_bench::{Dice, KeyShape, append_value};
use lithedb::{Durability, Error as StoreError, KeyRange, Keyspace, WriteBatch};

use super::{OWNERS, Result, Store};

/// Entries of a batch, gets in a row, entries of a scan.
const BATCH_LEN: usize = 100;
const SCAN_LEN: usize = 500;
/// Keys of a transaction.
const TRANSACTION_LEN: usize = 3;
const SMALL_LEN: usize = 100;
/// Bytes of the shortest large value, and how much longer one may be.
const LARGE_LEN_MIN: u64 = 4 << 10;
const LARGE_LEN_SPAN: u64 = 60 << 10;
/// A key that is not there.
const ABSENT: u8 = 0;

/// Keys of one keyspace whose index is `owner` modulo the number of owners.
struct Part {
    owner: u64,
    /// Of each key, its version; they go round.
    versions: Vec<u8>,
    len_of: fn(u64, u8) -> usize,
}

impl Part {
    fn index(&self, position: usize) -> u64 {
        position as u64 * OWNERS + self.owner
    }

    /// The position of a key with this index, if it is one of these.
    fn position(&self, index: u64) -> Option<usize> {
        (index % OWNERS == self.owner).then_some((index / OWNERS) as usize)
    }

    fn key(&self, position: usize) -> Vec<u8> {
        KeyShape::Random16.key(self.index(position))
    }

    fn value(&self, position: usize, version: u8) -> Vec<u8> {
        let index = self.index(position);
        let mut value = Vec::new();
        append_value(index, version.into(), (self.len_of)(index, version), &mut value);
        value
    }

    /// Whether what was found is what must be there.
    fn verify(&self, position: usize, found: Option<&[u8]>) -> Result<()> {
        let version = self.versions[position];
        let expected = (version != ABSENT).then(|| self.value(position, version));
        if expected.as_deref() == found {
            return Ok(());
        }
        let len = |value: Option<&[u8]>| value.map_or(-1, |value| value.len() as i64);
        Err(format!(
            "key {} in version {version}: {} bytes expected, {} found, or others",
            self.index(position),
            len(expected.as_deref()),
            len(found)
        )
        .into())
    }

    /// What comes after a version.
    fn next(&self, position: usize) -> u8 {
        self.versions[position].checked_add(1).unwrap_or(1)
    }
}

/// See the module.
pub struct Owner {
    dice: Dice,
    small: Part,
    large: Part,
}

impl Owner {
    pub fn new(number: u64, seed: u64, store: &Store) -> Owner {
        let part = |keys: u64, len_of| Part {
            owner: number,
            versions: vec![ABSENT; (keys / OWNERS) as usize],
            len_of,
        };
        Owner {
            dice: Dice(seed << 8 | number),
            small: part(store.small_keys, |_, _| SMALL_LEN),
            large: part(store.large_keys, |index, version| {
                let spread =
                    index.wrapping_mul(0x9E37_79B9).wrapping_add(u64::from(version) * 7919);
                (LARGE_LEN_MIN + spread % LARGE_LEN_SPAN) as usize
            }),
        }
    }

    /// Until it is over.
    pub fn run(mut self, store: &Store) -> Result<Owner> {
        while store.goes_on() {
            let operations = match self.dice.below(100) {
                0..40 => self.write(store)?,
                40..44 => self.delete(store)?,
                44..76 => self.read(store)?,
                76..82 => self.transact(store)?,
                82..89 => self.write_large(store)?,
                89..95 => self.read_large(store)?,
                95..99 => self.scan(store)?,
                _ => self.write_durably(store)?,
            };
            store.count(operations);
        }
        Ok(self)
    }

    fn pick(&mut self, count: usize) -> Vec<usize> {
        let len = self.small.versions.len() as u64;
        let mut picked: Vec<usize> = (0..count).map(|_| self.dice.below(len) as usize).collect();
        picked.sort_unstable();
        picked.dedup();
        picked
    }

    fn write(&mut self, store: &Store) -> Result<u64> {
        let picked = self.pick(BATCH_LEN);
        let mut batch = WriteBatch::new();
        for &at in &picked {
            batch.put(&store.small, self.small.key(at), self.small.value(at, self.small.next(at)));
        }
        store.db.write_with(batch, Durability::Buffered)?;
        for &at in &picked {
            self.small.versions[at] = self.small.next(at);
        }
        Ok(picked.len() as u64)
    }

    fn delete(&mut self, store: &Store) -> Result<u64> {
        let picked = self.pick(BATCH_LEN);
        let mut batch = WriteBatch::new();
        for &at in &picked {
            batch.delete(&store.small, self.small.key(at));
        }
        store.db.write_with(batch, Durability::Buffered)?;
        for &at in &picked {
            self.small.versions[at] = ABSENT;
        }
        Ok(picked.len() as u64)
    }

    fn read(&mut self, store: &Store) -> Result<u64> {
        let picked = self.pick(BATCH_LEN);
        for &at in &picked {
            let found = store.small.get(self.small.key(at))?;
            self.small.verify(at, found.as_deref())?;
        }
        Ok(picked.len() as u64)
    }

    fn transact(&mut self, store: &Store) -> Result<u64> {
        let picked = self.pick(TRANSACTION_LEN);
        let part = &self.small;
        // The keys are its own, so it never conflicts, and sees what it has written.
        let found = store.db.update_with(Durability::Buffered, |transaction| {
            let mut found = Vec::new();
            for &at in &picked {
                found.push(transaction.get(&store.small, part.key(at))?);
                transaction.put(&store.small, part.key(at), part.value(at, part.next(at)))?;
            }
            Ok::<_, StoreError>(found)
        })?;
        for (&at, found) in picked.iter().zip(found) {
            self.small.verify(at, found.as_deref())?;
            self.small.versions[at] = self.small.next(at);
        }
        Ok(picked.len() as u64)
    }

    fn write_durably(&mut self, store: &Store) -> Result<u64> {
        let at = self.pick(1)[0];
        let value = self.small.value(at, self.small.next(at));
        store.small.put_with(self.small.key(at), value, Durability::Sync)?;
        self.small.versions[at] = self.small.next(at);
        Ok(1)
    }

    fn write_large(&mut self, store: &Store) -> Result<u64> {
        let at = self.dice.below(self.large.versions.len() as u64) as usize;
        let value = self.large.value(at, self.large.next(at));
        store.large.put_with(self.large.key(at), value, Durability::Buffered)?;
        self.large.versions[at] = self.large.next(at);
        Ok(1)
    }

    fn read_large(&mut self, store: &Store) -> Result<u64> {
        let at = self.dice.below(self.large.versions.len() as u64) as usize;
        let found = store.large.get(self.large.key(at))?;
        self.large.verify(at, found.as_deref())?;
        Ok(1)
    }

    /// From a random key on: keys ascend, none of its own is missing or wrong.
    fn scan(&mut self, store: &Store) -> Result<u64> {
        let at = self.pick(1)[0];
        let from = self.small.key(at);
        let mut cursor = store.small.cursor(KeyRange::all());
        cursor.seek(&from)?;
        let mut last: Option<Vec<u8>> = None;
        for seen in 0..SCAN_LEN {
            if !cursor.valid() {
                return Ok(seen as u64);
            }
            let key = cursor.key();
            if last.as_deref().is_some_and(|last| last >= key) {
                return Err("keys of a scan do not ascend".into());
            }
            let index = KeyShape::Random16.index_of(key).ok_or("a key that nobody wrote")?;
            if let Some(at) = self.small.position(index) {
                self.small.verify(at, Some(cursor.value()?))?;
            }
            last = Some(key.to_vec());
            cursor.next()?;
        }
        Ok(SCAN_LEN as u64)
    }

    /// Compares all keys; how many are there.
    pub fn verify_all(&mut self, store: &Store) -> Result<u64> {
        let verify = |part: &Part, keyspace: &Keyspace| -> Result<u64> {
            for at in 0..part.versions.len() {
                let found = keyspace.get(part.key(at))?;
                part.verify(at, found.as_deref())?;
            }
            Ok(part.versions.iter().filter(|version| **version != ABSENT).count() as u64)
        };
        Ok(verify(&self.small, &store.small)? + verify(&self.large, &store.large)?)
    }
}
