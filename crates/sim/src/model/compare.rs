//! What a keyspace or a snapshot shows, against sorted rows.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Bound;

use lithedb::{Cursor, Entry, Error, Iter, KeyRange, Keyspace, Slice, Snapshot, ValueReader};

use crate::finding::{Fault, Finding, Verdict};
use crate::ops::{Extent, Move, Reading, prefix_of};
use crate::readback::millis_of;
use crate::sample::shown;
use crate::timeline::{Row, Rows};

const NO_ROW: Option<(&[u8], &Row)> = None;

/// Where rows are read.
pub(super) enum View<'a> {
    /// A keyspace as it is.
    Now(&'a Keyspace),
    /// A keyspace as a snapshot shows it.
    Then(&'a Snapshot, &'a Keyspace),
}

impl View<'_> {
    fn value(&self, key: &[u8]) -> Result<Option<Slice>, Error> {
        match self {
            View::Now(keyspace) => keyspace.get(key),
            View::Then(snapshot, keyspace) => snapshot.get(keyspace, key),
        }
    }

    fn reader(&self, key: &[u8]) -> Result<Option<ValueReader>, Error> {
        match self {
            View::Now(keyspace) => keyspace.get_reader(key),
            View::Then(snapshot, keyspace) => snapshot.get_reader(keyspace, key),
        }
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        match self {
            View::Now(keyspace) => keyspace.get_entry(key),
            View::Then(snapshot, keyspace) => snapshot.get_entry(keyspace, key),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool, Error> {
        match self {
            View::Now(keyspace) => keyspace.contains(key),
            View::Then(snapshot, keyspace) => snapshot.contains(keyspace, key),
        }
    }

    fn values(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Slice>>, Error> {
        match self {
            View::Now(keyspace) => keyspace.multi_get(keys),
            View::Then(snapshot, keyspace) => snapshot.multi_get(keyspace, keys),
        }
    }

    fn ends(&self) -> Result<[Option<Entry>; 2], Error> {
        Ok(match self {
            View::Now(keyspace) => [keyspace.first()?, keyspace.last()?],
            View::Then(snapshot, keyspace) => [snapshot.first(keyspace)?, snapshot.last(keyspace)?],
        })
    }

    fn count(&self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Result<u64, Error> {
        match self {
            View::Now(keyspace) => keyspace.count(range),
            View::Then(snapshot, keyspace) => snapshot.count(keyspace, range),
        }
    }

    fn rank(&self, key: &[u8]) -> Result<u64, Error> {
        match self {
            View::Now(keyspace) => keyspace.rank(key),
            View::Then(snapshot, keyspace) => snapshot.rank(keyspace, key),
        }
    }

    fn select(&self, rank: u64) -> Result<Option<Entry>, Error> {
        match self {
            View::Now(keyspace) => keyspace.select(rank),
            View::Then(snapshot, keyspace) => snapshot.select(keyspace, rank),
        }
    }

    fn iter(&self) -> Iter {
        match self {
            View::Now(keyspace) => keyspace.iter(),
            View::Then(snapshot, keyspace) => snapshot.iter(keyspace),
        }
    }

    fn range(&self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Iter {
        match self {
            View::Now(keyspace) => keyspace.range(range),
            View::Then(snapshot, keyspace) => snapshot.range(keyspace, range),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> Iter {
        match self {
            View::Now(keyspace) => keyspace.prefix(prefix),
            View::Then(snapshot, keyspace) => snapshot.prefix(keyspace, prefix),
        }
    }

    fn cursor(&self, range: KeyRange) -> Cursor {
        match self {
            View::Now(keyspace) => keyspace.cursor(range),
            View::Then(snapshot, keyspace) => snapshot.cursor(keyspace, range),
        }
    }
}

/// Reads and compares.
pub(super) fn compare(view: &View<'_>, rows: &Rows, reading: &Reading) -> Verdict {
    match reading {
        Reading::Point(_, key) => compare_point(view, rows, &key.bytes()),
        Reading::Parts(_, key, offsets) => compare_parts(view, rows, &key.bytes(), offsets),
        Reading::Several(_, keys) => {
            let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.bytes()).collect();
            let values = view.values(&keys).map_err(refused)?;
            let expected = keys.iter().map(|key| rows.get(key).map(|row| &*row.value));
            let same = values.len() == keys.len()
                && values
                    .iter()
                    .zip(expected)
                    .all(|(value, expected)| value.as_deref() == expected);
            if same { Ok(()) } else { wrong(format!("multi_get of {keys:?}: {values:?}")) }
        }
        Reading::Ends(_) => {
            let [first, last] = view.ends().map_err(refused)?;
            expect_entry("first", first.as_ref(), rows.first_key_value())?;
            expect_entry("last", last.as_ref(), rows.last_key_value())
        }
        Reading::Order(_, extent, key) => compare_order(view, rows, extent, &key.bytes()),
        Reading::Walk(_, extent, moves) => {
            let range = extent.key_range();
            let iter = match extent {
                Extent::All => view.iter(),
                Extent::Range(..) => view.range((range.start.clone(), range.end.clone())),
                Extent::Prefix(key, len) => view.prefix(prefix_of(&key.bytes(), *len)),
            };
            walk(iter, &within(rows, &range), moves)
        }
        Reading::Cursor(_, extent, moves) => {
            let range = extent.key_range();
            let inside = within(rows, &range);
            move_cursor(view.cursor(range), &inside, moves)
        }
        Reading::Index(..) => Ok(()), // That is read elsewhere.
    }
}

/// A value from some offsets on.
fn compare_parts(view: &View<'_>, rows: &Rows, key: &[u8], offsets: &[u16]) -> Verdict {
    let reader = view.reader(key).map_err(refused)?;
    let (mut reader, row) = match (reader, rows.get(key)) {
        (None, None) => return Ok(()),
        (Some(reader), Some(row)) if reader.len() == row.value.len() as u64 => (reader, row),
        (reader, row) => {
            let expected = row.map(|row| shown(&row.value));
            return wrong(format!("a reader of {}: {reader:?}, not {expected:?}", shown(key)));
        }
    };
    let unreadable = |error: std::io::Error| Finding::new(Fault::Refused, error.to_string());
    for offset in offsets {
        let from = row.value.len() * usize::from(*offset) / 1000;
        let mut read = Vec::new();
        reader.seek(SeekFrom::Start(from as u64)).map_err(unreadable)?;
        reader.read_to_end(&mut read).map_err(unreadable)?;
        if read != row.value[from.min(row.value.len())..] {
            return wrong(format!("{} from {from} on: {}", shown(key), shown(&read)));
        }
    }
    Ok(())
}

/// A count, a rank, and what is at that rank.
fn compare_order(view: &View<'_>, rows: &Rows, extent: &Extent, key: &[u8]) -> Verdict {
    let range = extent.key_range();
    let expected = within(rows, &range).len() as u64;
    let count = view.count((range.start, range.end)).map_err(refused)?;
    if count != expected {
        return wrong(format!("count of {extent:?}: {count}, not {expected}"));
    }
    let below = rows.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).count();
    let rank = view.rank(key).map_err(refused)?;
    if rank != below as u64 {
        return wrong(format!("rank of {}: {rank}, not {below}", shown(key)));
    }
    let entry = view.select(rank).map_err(refused)?;
    expect_entry("select", entry.as_ref(), rows.iter().nth(below))
}

/// Everything, from both ends, and every row by its key.
pub(super) fn compare_all(view: &View<'_>, rows: &Rows) -> Verdict {
    let (mut forth, mut keys) = (view.iter(), view.iter().keys());
    let mut back = view.iter().rev();
    for (expected, reverse) in rows.iter().zip(rows.iter().rev()) {
        let entry = forth.next().transpose().map_err(refused)?;
        expect_entry("next", entry.as_ref(), Some(expected))?;
        let key = keys.next().transpose().map_err(refused)?;
        if key.as_deref() != Some(expected.0.as_slice()) {
            return wrong(format!("a walk over keys gives {key:?}, not {}", shown(expected.0)));
        }
        let entry = back.next().transpose().map_err(refused)?;
        expect_entry("next_back", entry.as_ref(), Some(reverse))?;
        compare_point(view, rows, expected.0)?;
    }
    let entry = forth.next().transpose().map_err(refused)?;
    expect_entry("next at the end", entry.as_ref(), NO_ROW)?;
    let entry = back.next().transpose().map_err(refused)?;
    expect_entry("next_back at the end", entry.as_ref(), NO_ROW)
}

fn compare_point(view: &View<'_>, rows: &Rows, key: &[u8]) -> Verdict {
    let row = rows.get(key);
    let entry = view.entry(key).map_err(refused)?;
    expect_entry("get_entry", entry.as_ref(), row.map(|row| (key, row)))?;
    let value = view.value(key).map_err(refused)?;
    if value.as_deref() != row.map(|row| &*row.value) {
        return wrong(format!("get of {}: {:?}", shown(key), value.as_deref().map(shown)));
    }
    let contains = view.contains(key).map_err(refused)?;
    if contains != row.is_some() {
        return wrong(format!("contains of {}: {contains}", shown(key)));
    }
    Ok(())
}

/// The rows of a range, in order.
fn within<'a>(rows: &'a Rows, range: &KeyRange) -> Vec<(&'a Vec<u8>, &'a Row)> {
    rows.iter().filter(|(key, _)| range.contains(key)).collect()
}

/// Moves an iterator. Its front and its back each give a row once, and stop where they meet;
/// a seek moves the front, and what was given may be given again.
fn walk(mut iter: Iter, rows: &[(&Vec<u8>, &Row)], moves: &[Move]) -> Verdict {
    let (mut front, mut back) = (0, rows.len());
    let mut have_met = false;
    for step in moves {
        match step {
            // What is left to the back once it has met the front is not defined.
            Move::Seek(_) if have_met => break,
            Move::Next(count) => {
                for _ in 0..*count {
                    let entry = iter.next().transpose().map_err(refused)?;
                    let expected = (front < back).then(|| rows[front]);
                    expect_entry("next", entry.as_ref(), expected)?;
                    front += usize::from(front < back);
                }
            }
            Move::Back(count) => {
                for _ in 0..*count {
                    let entry = iter.next_back().transpose().map_err(refused)?;
                    let expected = (front < back).then(|| rows[back - 1]);
                    expect_entry("next_back", entry.as_ref(), expected)?;
                    have_met |= expected.is_none();
                    back -= usize::from(front < back);
                }
            }
            Move::Seek(key) => {
                let key = key.bytes();
                iter.seek(&key);
                front = rows.partition_point(|(row, _)| **row < key);
            }
            Move::SeekForPrev(_) | Move::First | Move::Last => {}
        }
    }
    Ok(())
}

/// Where a cursor is: in front of the first row, on one, or behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Front,
    On(usize),
    Behind,
}

fn move_cursor(mut cursor: Cursor, rows: &[(&Vec<u8>, &Row)], moves: &[Move]) -> Verdict {
    let mut position = Position::Front;
    for step in moves {
        let count = match step {
            Move::Next(count) | Move::Back(count) => *count,
            _ => 1,
        };
        for _ in 0..count {
            let moved = match step {
                Move::Next(_) => cursor.next(),
                Move::Back(_) => cursor.prev(),
                Move::Seek(key) => cursor.seek(key.bytes()),
                Move::SeekForPrev(key) => cursor.seek_for_prev(key.bytes()),
                Move::First => cursor.seek_first(),
                Move::Last => cursor.seek_last(),
            };
            moved.map_err(refused)?;
            position = moved_model(position, rows, step);
            expect_position(&cursor, rows, position)
                .map_err(|finding| finding.at(&format!("{step:?} of {moves:?}")))?;
        }
    }
    Ok(())
}

fn moved_model(position: Position, rows: &[(&Vec<u8>, &Row)], step: &Move) -> Position {
    let at_or_behind = |index: usize| match index < rows.len() {
        true => Position::On(index),
        false => Position::Behind,
    };
    let before = |index: usize| index.checked_sub(1).map_or(Position::Front, Position::On);
    match (step, position) {
        (Move::Next(_), Position::Front) | (Move::First, _) => at_or_behind(0),
        (Move::Next(_), Position::On(index)) => at_or_behind(index + 1),
        (Move::Next(_), Position::Behind) => Position::Behind,
        (Move::Back(_), Position::Front) => Position::Front,
        (Move::Back(_), Position::On(index)) => before(index),
        (Move::Back(_), Position::Behind) | (Move::Last, _) => before(rows.len()),
        (Move::Seek(key), _) => {
            let key = key.bytes();
            at_or_behind(rows.partition_point(|(row, _)| **row < key))
        }
        (Move::SeekForPrev(key), _) => {
            let key = key.bytes();
            before(rows.partition_point(|(row, _)| **row <= key))
        }
    }
}

fn expect_position(cursor: &Cursor, rows: &[(&Vec<u8>, &Row)], position: Position) -> Verdict {
    let Position::On(index) = position else {
        return match cursor.valid() {
            true => wrong(format!("the cursor is on {}, not {position:?}", shown(cursor.key()))),
            false => Ok(()),
        };
    };
    let (key, row) = rows[index];
    if !cursor.valid() {
        return wrong(format!("the cursor is on nothing, not on {}", shown(key)));
    }
    let value = cursor.value().map_err(refused)?;
    let until = cursor.expires_at().map(millis_of);
    let is_same = *cursor.key() == **key && value == &*row.value;
    if !is_same || cursor.seqno() != row.seqno || until != row.until {
        return wrong(format!(
            "the cursor is on {} = {} at {}, not on {} = {} at {}",
            shown(cursor.key()),
            shown(value),
            cursor.seqno(),
            shown(key),
            shown(&row.value),
            row.seqno
        ));
    }
    Ok(())
}

fn expect_entry<K: AsRef<[u8]>>(
    call: &str,
    entry: Option<&Entry>,
    expected: Option<(K, &Row)>,
) -> Verdict {
    let same = match (entry, &expected) {
        (None, None) => true,
        (Some(entry), Some((key, row))) => {
            *entry.key == *key.as_ref()
                && *entry.value == *row.value
                && (entry.seqno, entry.expires_at().map(millis_of)) == (row.seqno, row.until)
        }
        _ => false,
    };
    if same {
        return Ok(());
    }
    let entry = entry.map(|entry| (shown(&entry.key), shown(&entry.value), entry.seqno));
    let expected = expected.map(|(key, row)| (shown(key.as_ref()), shown(&row.value), row.seqno));
    wrong(format!("{call} gives {entry:?} instead of {expected:?}"))
}

fn wrong(what: String) -> Verdict {
    Err(Finding::new(Fault::Wrong, what))
}

#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`")]
fn refused(error: Error) -> Finding {
    Finding::new(Fault::Refused, error.to_string())
}
