//! What indexes must show: the oracle's own extractors, asked about rows that were read or are
//! known; and every way to read an index, compared with that.

use std::collections::BTreeMap;
use std::ops::Bound;

use lithedb::{
    Db, Error, Index, IndexEntry, IndexIter, IndexView, KeyRange, Keyspace, Snapshot,
    TransactionIndex, TransactionIndexIter,
};

use crate::extractors::keys_of;
use crate::finding::{Fault, Finding, Verdict};
use crate::ops::{IndexReading, Move, Spot};
use crate::readback::millis_of;
use crate::sample::shown;
use crate::session::Trouble;
use crate::timeline::{IndexState, Indexes, Row, Rows};

/// An index key, and the key of an entry that has it.
pub type Pair = (Vec<u8>, Vec<u8>);
/// What an index shows, and when that expires.
pub type Pairs = Vec<(Pair, Option<u64>)>;
/// One that is shown; it may not be told when it expires.
type Shown = (Pair, Option<Option<u64>>);
/// Entries of an index.
type Walk<'a> = Box<dyn DoubleEndedIterator<Item = Result<Shown, Error>> + 'a>;
/// Entries of an index, each with the value that it leads to.
type Led = Vec<(Pair, Option<Vec<u8>>)>;
/// A range of index keys.
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// An index, wherever it is read.
pub trait ShowsIndex {
    /// The entries with an index key.
    ///
    /// # Errors
    /// What reading returns; so with the others.
    fn get(&self, key: &[u8]) -> Result<Walk<'_>, Error>;
    /// The first of them.
    ///
    /// # Errors
    /// What reading returns.
    fn find(&self, key: &[u8]) -> Result<Option<Pair>, Error>;
    /// The entries with index keys in a range.
    ///
    /// # Errors
    /// What reading returns.
    fn range(&self, range: Range) -> Result<Walk<'_>, Error>;
    /// The entries whose index keys begin so.
    ///
    /// # Errors
    /// What reading returns.
    fn prefix(&self, prefix: &[u8]) -> Result<Walk<'_>, Error>;
    /// How many are in a range.
    ///
    /// # Errors
    /// What reading returns.
    fn count(&self, range: Range) -> Result<u64, Error>;
    /// All entries, with the values that they lead to.
    ///
    /// # Errors
    /// What reading returns.
    fn values(&self) -> Result<Led, Error>;
}

fn pair_of(entry: &IndexEntry) -> Pair {
    (entry.index_key().to_vec(), entry.primary_key().to_vec())
}

fn walk_of(iter: IndexIter) -> Walk<'static> {
    let shown = |entry: IndexEntry| (pair_of(&entry), Some(entry.expires_at().map(millis_of)));
    Box::new(iter.map(move |entry| entry.map(shown)))
}

fn values_of(iter: IndexIter) -> Result<Led, Error> {
    iter.map(|entry| {
        let entry = entry?;
        let (value, whole) = (entry.value()?, entry.entry()?);
        let is_same = value == whole.value && *whole.key == *entry.primary_key();
        Ok((pair_of(&entry), is_same.then(|| value.to_vec())))
    })
    .collect()
}

impl ShowsIndex for Index {
    fn get(&self, key: &[u8]) -> Result<Walk<'_>, Error> {
        Ok(walk_of(Index::get(self, key)))
    }

    fn find(&self, key: &[u8]) -> Result<Option<Pair>, Error> {
        let found = Index::find(self, key)?;
        if self.contains(key)? != found.is_some() {
            return Ok(None); // Which is not expected.
        }
        Ok(found.as_ref().map(pair_of))
    }

    fn range(&self, range: Range) -> Result<Walk<'_>, Error> {
        Ok(walk_of(Index::range(self, range)))
    }

    fn prefix(&self, prefix: &[u8]) -> Result<Walk<'_>, Error> {
        Ok(walk_of(Index::prefix(self, prefix)))
    }

    fn count(&self, range: Range) -> Result<u64, Error> {
        Index::count(self, range)
    }

    fn values(&self) -> Result<Led, Error> {
        values_of(self.iter())
    }
}

impl ShowsIndex for IndexView {
    fn get(&self, key: &[u8]) -> Result<Walk<'_>, Error> {
        Ok(walk_of(IndexView::get(self, key)))
    }

    fn find(&self, key: &[u8]) -> Result<Option<Pair>, Error> {
        Ok(IndexView::find(self, key)?.as_ref().map(pair_of))
    }

    fn range(&self, range: Range) -> Result<Walk<'_>, Error> {
        Ok(walk_of(IndexView::range(self, range)))
    }

    fn prefix(&self, prefix: &[u8]) -> Result<Walk<'_>, Error> {
        Ok(walk_of(IndexView::prefix(self, prefix)))
    }

    fn count(&self, range: Range) -> Result<u64, Error> {
        IndexView::count(self, range)
    }

    fn values(&self) -> Result<Led, Error> {
        values_of(self.iter())
    }
}

fn walk_within(iter: TransactionIndexIter<'_>) -> Walk<'_> {
    Box::new(iter.map(|entry| {
        let entry = entry?;
        Ok(((entry.index_key().to_vec(), entry.primary_key().to_vec()), None))
    }))
}

impl ShowsIndex for TransactionIndex<'_> {
    fn get(&self, key: &[u8]) -> Result<Walk<'_>, Error> {
        Ok(walk_within(TransactionIndex::get(self, key)?))
    }

    fn find(&self, key: &[u8]) -> Result<Option<Pair>, Error> {
        let found = TransactionIndex::find(self, key)?;
        Ok(found.map(|entry| (entry.index_key().to_vec(), entry.primary_key().to_vec())))
    }

    fn range(&self, range: Range) -> Result<Walk<'_>, Error> {
        Ok(walk_within(TransactionIndex::range(self, range)?))
    }

    fn prefix(&self, prefix: &[u8]) -> Result<Walk<'_>, Error> {
        Ok(walk_within(TransactionIndex::prefix(self, prefix)?))
    }

    fn count(&self, range: Range) -> Result<u64, Error> {
        TransactionIndex::count(self, range)
    }

    fn values(&self) -> Result<Led, Error> {
        let entries = self.iter()?.map(|entry| {
            let entry = entry?;
            let pair = (entry.index_key().to_vec(), entry.primary_key().to_vec());
            Ok((pair, entry.value()?.map(|value| value.to_vec())))
        });
        entries.collect()
    }
}

/// What an index with this extractor has for one entry.
pub fn pairs_of_entry(extractor: &str, key: &[u8], value: &[u8]) -> impl Iterator<Item = Pair> {
    let key = key.to_vec();
    keys_of(extractor, value).into_iter().map(move |index_key| (index_key, key.clone()))
}

/// What an index with this extractor has for rows that are all there.
#[must_use]
pub fn pairs_of(extractor: &str, rows: &Rows) -> Pairs {
    let mut pairs = BTreeMap::new();
    for (key, Row { value, until, .. }) in rows {
        pairs.extend(pairs_of_entry(extractor, key, value).map(|pair| (pair, *until)));
    }
    pairs.into_iter().collect()
}

/// Whether several entries have the same index key.
#[must_use]
pub fn has_shared_key(pairs: &Pairs) -> bool {
    pairs.windows(2).any(|two| two[0].0.0 == two[1].0.0)
}

/// Reads an index and compares.
///
/// # Errors
/// What reading returns, or that it is wrong.
pub fn compare_index(
    index: &dyn ShowsIndex,
    (rows, extractor): (&Rows, &str),
    reading: &IndexReading,
) -> Result<(), Trouble> {
    let pairs = pairs_of(extractor, rows);
    let within = |range: &KeyRange| -> Pairs {
        pairs.iter().filter(|((key, _), _)| range.contains(key)).cloned().collect()
    };
    let bound = |(kind, spot): (u8, Spot)| match kind % 3 {
        0 => Bound::Included(key_at(&pairs, spot)),
        1 => Bound::Excluded(key_at(&pairs, spot)),
        _ => Bound::Unbounded,
    };
    match reading {
        IndexReading::Point(spot) => {
            let key = key_at(&pairs, *spot);
            let expected: Pairs = pairs.iter().filter(|((of, _), _)| *of == key).cloned().collect();
            expect_pairs(|| index.get(&key), &expected)?;
            let found = index.find(&key)?;
            if found.as_ref() != expected.first().map(|(pair, _)| pair) {
                return wrong(format!("the index finds {found:?} for {}", shown(&key)));
            }
            Ok(())
        }
        IndexReading::Count(from, to) => {
            let range = KeyRange { start: bound(*from), end: bound(*to) };
            let expected = within(&range).len() as u64;
            match index.count((range.start, range.end))? {
                count if count == expected => Ok(()),
                count => wrong(format!("the index counts {count} entries, not {expected}")),
            }
        }
        IndexReading::Walk(from, to, moves) => {
            let range = KeyRange { start: bound(*from), end: bound(*to) };
            let expected = within(&range);
            walk(index.range((range.start, range.end))?, &expected, moves)
        }
        IndexReading::Prefix(spot, len, moves) => {
            let mut prefix = key_at(&pairs, *spot);
            prefix.truncate(usize::from(*len));
            let expected = within(&KeyRange::prefix(&prefix));
            walk(index.prefix(&prefix)?, &expected, moves)
        }
        IndexReading::Values => {
            let found = index.values()?;
            let expected = pairs.iter().map(|(pair, _)| {
                let value = rows.get(&pair.1).map(|row| row.value.to_vec());
                (pair.clone(), value)
            });
            match found.iter().cloned().eq(expected) {
                true => Ok(()),
                false => wrong(format!("{} index entries lead elsewhere", found.len())),
            }
        }
    }
}

/// An index shows exactly what these rows say, both ways, and leads to them.
///
/// # Errors
/// What reading returns, or that it is wrong.
pub fn expect_shows(
    index: &dyn ShowsIndex,
    (rows, extractor): (&Rows, &str),
) -> Result<(), Trouble> {
    let everything = || index.range((Bound::Unbounded, Bound::Unbounded));
    expect_pairs(everything, &pairs_of(extractor, rows))?;
    compare_index(index, (rows, extractor), &IndexReading::Values)
}

/// The index key at a spot, or right behind it.
fn key_at(pairs: &[(Pair, Option<u64>)], Spot(spot): Spot) -> Vec<u8> {
    let place = pairs.len() * usize::from(spot) / 1000;
    let mut key = pairs.get(place).map(|((key, _), _)| key.clone()).unwrap_or_default();
    if spot % 4 == 3 {
        key.push(0);
    }
    key
}

/// What an index shows must be this, from the front and from the back.
///
/// # Errors
/// What reading returns, or that it is wrong.
pub fn expect_pairs<'a>(
    mut show: impl FnMut() -> Result<Walk<'a>, Error>,
    expected: &Pairs,
) -> Result<(), Trouble> {
    let (mut forth, mut back) = (show()?, show()?);
    for number in 0..=expected.len() {
        expect_pair(forth.next(), expected.get(number))?;
        expect_pair(back.next_back(), expected.iter().rev().nth(number))?;
    }
    Ok(())
}

/// Moves from both ends; each gives an entry once, and they stop where they meet.
fn walk(mut walk: Walk<'_>, expected: &Pairs, moves: &[Move]) -> Result<(), Trouble> {
    let (mut front, mut back) = (0, expected.len());
    for step in moves {
        match step {
            Move::Next(count) => {
                for _ in 0..*count {
                    expect_pair(walk.next(), (front < back).then(|| &expected[front]))?;
                    front += usize::from(front < back);
                }
            }
            Move::Back(count) => {
                for _ in 0..*count {
                    expect_pair(walk.next_back(), (front < back).then(|| &expected[back - 1]))?;
                    back -= usize::from(front < back);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn expect_pair(
    found: Option<Result<Shown, Error>>,
    wanted: Option<&(Pair, Option<u64>)>,
) -> Result<(), Trouble> {
    let found = found.transpose()?;
    let is_same = match (&found, wanted) {
        (None, None) => true,
        (Some((pair, until)), Some((wanted, wanted_until))) => {
            pair == wanted && until.is_none_or(|until| until == *wanted_until)
        }
        _ => false,
    };
    if is_same {
        return Ok(());
    }
    let told = |pair: Option<(&Pair, Option<u64>)>| match pair {
        Some(((key, primary), until)) => {
            format!("{} for {} until {until:?}", shown(key), shown(primary))
        }
        None => "nothing".to_owned(),
    };
    let found = told(found.as_ref().map(|(pair, until)| (pair, until.flatten())));
    let wanted = told(wanted.map(|(pair, until)| (pair, *until)));
    wrong(format!("the index has {found} instead of {wanted}"))
}

fn wrong(what: String) -> Result<(), Trouble> {
    Err(Finding::new(Fault::Wrong, what).into())
}

/// The indexes that a database says there are.
///
/// # Errors
/// What listing them returns.
pub fn indexes_of(db: &Db) -> Result<Indexes, Error> {
    let mut found = Indexes::new();
    for keyspace in db.keyspaces() {
        for info in db.keyspace(&keyspace.name)?.indexes()? {
            let state = IndexState {
                extractor: info.extractor,
                is_unique: info.is_unique,
                is_ready: info.is_ready,
                is_building: info.is_building,
            };
            found.insert((keyspace.id, info.name), state);
        }
    }
    Ok(found)
}

/// Each index that is ready shows what its keyspace has; the others say that they are not ready.
///
/// # Errors
/// `Wrong`, `Refused`.
pub fn expect_indexes_right(db: &Db) -> Verdict {
    expect_right(db).map_err(|trouble| trouble.into_finding().at("indexes"))
}

fn expect_right(db: &Db) -> Result<(), Trouble> {
    let snapshot = db.snapshot();
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name)?;
        for index in keyspace.indexes()? {
            let view = match keyspace.index(&index.name)?.at(&snapshot) {
                Err(Error::IndexNotReady { .. }) if !index.is_ready => continue,
                view => view?,
            };
            let expected = derived(&snapshot, &keyspace, &index.extractor)?;
            expect_pairs(|| Ok(walk_of(view.iter())), &expected)?;
            if index.is_unique && has_shared_key(&expected) {
                wrong(format!("an index key of {:?} is there twice", index.name))?;
            }
        }
    }
    Ok(())
}

/// What an index with this extractor has to show, by what its keyspace has.
fn derived(snapshot: &Snapshot, keyspace: &Keyspace, extractor: &str) -> Result<Pairs, Error> {
    let mut pairs = BTreeMap::new();
    for entry in snapshot.iter(keyspace) {
        let entry = entry?;
        let until = entry.expires_at().map(millis_of);
        let of_entry = pairs_of_entry(extractor, &entry.key, &entry.value);
        pairs.extend(of_entry.map(|pair| (pair, until)));
    }
    Ok(pairs.into_iter().collect())
}

/// What was being built when the database was left can be built on; unless an index key is there
/// twice that is to be there once, which is told. How many were.
///
/// # Errors
/// `Wrong`, `Refused`.
pub fn expect_building_goes_on(db: &Db) -> Verdict<u64> {
    build_on(db).map_err(|trouble| trouble.into_finding().at("built on"))
}

fn build_on(db: &Db) -> Result<u64, Trouble> {
    let mut built = 0;
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name)?;
        let unfinished = indexes_of(db)?.into_iter();
        let unfinished = unfinished.filter(|((id, _), state)| *id == info.id && state.is_building);
        for (which, state) in unfinished {
            let outcome = keyspace.build_index(&which.1);
            let pairs = derived(&db.snapshot(), &keyspace, &state.extractor)?;
            let is_refused = state.is_unique && has_shared_key(&pairs);
            match &outcome {
                Ok(_) if !is_refused => {}
                Err(Error::UniqueViolation { .. }) if is_refused => {}
                _ => wrong(format!("{which:?}, {state:?}: {outcome:?}"))?,
            }
            let wanted = if outcome.is_ok() { state.finished() } else { state };
            let now = indexes_of(db)?.remove(&which);
            if now.as_ref() != Some(&wanted) {
                wrong(format!("{which:?} is {now:?}, not {wanted:?}"))?;
            }
            built += 1;
        }
    }
    expect_right(db)?;
    Ok(built)
}
