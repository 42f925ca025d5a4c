//! One thread of transactions, and what they do.

use lithedb::{
    Db, Durability, Entry, Error, KeyRange, Keyspace, SeqNo, Swap, Transaction, WriteBatch,
};

use super::KEYSPACE_COUNT;
use super::history::{
    Action, Attempt, End, Identity, Place, Scan, Ticks, id_of_value, key_of, number_of_key,
    value_of,
};
use super::refused;
use crate::finding::{Fault, Finding, Verdict};
use crate::random::Random;

/// Bits of a value's identity that count the writes of one thread.
const COUNT_BITS: u32 = 40;
/// What one transaction does at most.
const ACTIONS_MAX: u64 = 8;

/// What all threads share.
pub(super) struct Clients<'d> {
    pub db: &'d Db,
    pub keyspaces: &'d [Keyspace],
    pub ticks: Ticks,
    /// Keys of each keyspace.
    pub key_count: u64,
}

/// One thread.
pub(super) struct Client<'d> {
    shared: &'d Clients<'d>,
    random: Random,
    /// Of the next value that it writes.
    next_id: Identity,
    attempts: Vec<Attempt>,
}

/// How a transaction is told: when it began, and what it did so far.
struct Story {
    began: u64,
    at: Option<SeqNo>,
    actions: Vec<Action>,
}

impl<'d> Client<'d> {
    /// `number` is that of no other thread, in any opening.
    pub(super) fn new(shared: &'d Clients<'d>, seed: u64, number: u64) -> Client<'d> {
        let next_id = (number + 1) << COUNT_BITS;
        Client { shared, random: Random::new(seed), next_id, attempts: Vec::new() }
    }

    /// Runs `count` transactions.
    pub(super) fn run(mut self, count: u64) -> Verdict<Vec<Attempt>> {
        for _ in 0..count {
            match self.random.below(100) {
                0..=9 => self.write_batch()?,
                10..=19 => self.swap()?,
                20..=29 => self.view()?,
                30..=33 => self.ingest()?,
                _ => self.transact()?,
            }
        }
        Ok(self.attempts)
    }

    fn keyspace(&self, number: u8) -> &'d Keyspace {
        &self.shared.keyspaces[usize::from(number)]
    }

    fn begin(&self) -> Story {
        Story { began: self.shared.ticks.next(), at: None, actions: Vec::new() }
    }

    fn end(&mut self, story: Story, end: End) {
        let Story { began, at, actions } = story;
        let ended = self.shared.ticks.next();
        self.attempts.push(Attempt { began, ended, at, end, actions });
    }

    fn draw_place(&mut self) -> Place {
        let keyspace = self.random.below(u64::from(KEYSPACE_COUNT)) as u8;
        // Some keys are in everybody's way.
        let key_count = if self.random.chance(300) { 3 } else { self.shared.key_count };
        Place { keyspace, key: self.random.below(key_count) as u16 }
    }

    fn draw_value(&mut self) -> Option<Identity> {
        self.next_id += 1;
        (!self.random.chance(250)).then_some(self.next_id)
    }

    fn draw_durability(&mut self) -> Durability {
        if self.random.chance(200) { Durability::Sync } else { Durability::Buffered }
    }

    /// Several writes that read nothing.
    fn write_batch(&mut self) -> Verdict {
        let (mut story, durability) = (self.begin(), self.draw_durability());
        let mut batch = WriteBatch::new();
        for _ in 0..1 + self.random.below(4) {
            let (place, value) = (self.draw_place(), self.draw_value());
            if self.random.chance(60) {
                let (from, to) = (place.key, place.key + self.random.below(6) as u16);
                let keyspace = place.keyspace;
                batch.delete_range(self.keyspace(keyspace), key_of(from)..key_of(to));
                story.actions.push(Action::Erased { keyspace, from, to });
                continue;
            }
            match value {
                Some(id) => {
                    batch.put(self.keyspace(place.keyspace), key_of(place.key), value_of(id));
                }
                None => batch.delete(self.keyspace(place.keyspace), key_of(place.key)),
            }
            story.actions.push(Action::Wrote(place, value));
        }
        if batch.is_empty() {
            return Ok(()); // Empty ranges.
        }
        let stamp = self.shared.db.write_with(batch, durability).map_err(refused)?;
        self.end(story, End::Committed { stamp, durable: durability == Durability::Sync });
        Ok(())
    }

    /// Writes that read nothing, as an ingest.
    fn ingest(&mut self) -> Verdict {
        let Place { keyspace, key } = self.draw_place();
        if self.keyspace(keyspace).keeps_history() {
            return Ok(()); // It takes none.
        }
        let mut story = self.begin();
        let step = 1 + self.random.below(3) as u16;
        let entries: Vec<(u16, Identity)> = (0..1 + self.random.below(6) as u16)
            .map(|number| {
                self.next_id += 1;
                (key + number * step, self.next_id)
            })
            .collect();
        let rows = entries.iter().map(|(key, id)| (key_of(*key), value_of(*id)));
        let report = self.keyspace(keyspace).ingest(rows).map_err(refused)?;
        let wrote =
            |(key, id): &(u16, Identity)| Action::Wrote(Place { keyspace, key: *key }, Some(*id));
        story.actions.extend(entries.iter().map(wrote));
        self.end(story, End::Committed { stamp: report.seqno, durable: true });
        Ok(())
    }

    /// Reads a key, and changes it if it is still as it was.
    fn swap(&mut self) -> Verdict {
        let place = self.draw_place();
        let keyspace = self.keyspace(place.keyspace);
        let key = key_of(place.key);
        let seen = keyspace.get(&key).map_err(refused)?;
        let mut story = self.begin();
        let value = self.draw_value();
        let new = value.map(value_of);
        let swapped = keyspace.compare_and_swap(&key, seen.as_deref(), new.as_deref());
        match swapped.map_err(refused) {
            Ok(Swap::Done(stamp)) => {
                story.actions.push(Action::Got(place, seen.as_deref().map(id_of_value)));
                story.actions.push(Action::Wrote(place, value));
                self.end(story, End::Committed { stamp, durable: true });
            }
            Ok(Swap::Differs(found)) => {
                let found = found.map(|entry| entry.value);
                if found == seen {
                    return Err(Finding::new(
                        Fault::Wrong,
                        format!("{found:?} differs from itself"),
                    ));
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads that write nothing, in a snapshot.
    fn view(&mut self) -> Verdict {
        let mut story = self.begin();
        let snapshot = self.shared.db.snapshot();
        story.at = Some(snapshot.seqno());
        for _ in 0..1 + self.random.below(ACTIONS_MAX) {
            let place = self.draw_place();
            let keyspace = self.keyspace(place.keyspace);
            if self.random.chance(600) {
                let found = snapshot.get(keyspace, key_of(place.key)).map_err(refused)?;
                story.actions.push(Action::Got(place, found.as_deref().map(id_of_value)));
                continue;
            }
            let mut scan = self.draw_scan(place);
            let walk = snapshot.range(keyspace, key_of(scan.from)..key_of(scan.to));
            scan.rows = take_rows(walk, &scan)?;
            story.actions.push(Action::Scanned(scan));
        }
        self.end(story, End::ReadOnly);
        Ok(())
    }

    fn draw_scan(&mut self, from: Place) -> Scan {
        let length = self.random.below(12) as u16;
        Scan {
            keyspace: from.keyspace,
            from: from.key,
            to: from.key + length,
            backward: self.random.chance(300),
            limit: self.random.pick(&[1, 3, usize::MAX]),
            rows: Vec::new(),
        }
    }

    fn transact(&mut self) -> Verdict {
        let mut story = self.begin();
        let mut transaction = self.shared.db.begin_update();
        story.at = Some(transaction.seqno().map_err(refused)?);
        let mut marks = Vec::new();
        for _ in 0..1 + self.random.below(ACTIONS_MAX) {
            self.act(&mut transaction, &mut marks, &mut story.actions)?;
        }
        if self.random.chance(50) {
            transaction.rollback();
            self.end(story, End::RolledBack);
            return Ok(());
        }
        let durability = self.draw_durability();
        match transaction.commit_with(durability) {
            Ok(stamp) if Some(stamp) == story.at => self.end(story, End::ReadOnly),
            Ok(stamp) => {
                let durable = durability == Durability::Sync;
                self.end(story, End::Committed { stamp, durable });
            }
            Err(Error::Conflict) => self.end(story, End::Conflict),
            Err(error) => return Err(refused(error)),
        }
        Ok(())
    }

    /// One thing that a transaction does.
    fn act(
        &mut self,
        transaction: &mut Transaction,
        marks: &mut Vec<lithedb::Savepoint>,
        actions: &mut Vec<Action>,
    ) -> Verdict {
        let place = self.draw_place();
        let (keyspace, key) = (self.keyspace(place.keyspace), key_of(place.key));
        match self.random.below(100) {
            0..=34 => {
                let found = transaction.get(keyspace, key).map_err(refused)?;
                actions.push(Action::Got(place, found.as_deref().map(id_of_value)));
            }
            35..=49 => {
                let mut scan = self.draw_scan(place);
                let range = key_of(scan.from)..key_of(scan.to);
                let walk = transaction.range(keyspace, range).map_err(refused)?;
                scan.rows = take_rows(walk, &scan)?;
                actions.push(Action::Scanned(scan));
            }
            50..=56 => actions.push(Action::Scanned(self.walk(transaction, place)?)),
            57..=60 => {
                let (from, to) = (place.key, place.key + self.random.below(6) as u16);
                let range = key_of(from)..key_of(to);
                transaction.delete_range(keyspace, range).map_err(refused)?;
                actions.push(Action::Erased { keyspace: place.keyspace, from, to });
            }
            61..=89 => {
                let value = self.draw_value();
                let done = match value {
                    Some(id) => transaction.put(keyspace, key, value_of(id)),
                    None => transaction.delete(keyspace, key),
                };
                done.map_err(refused)?;
                actions.push(Action::Wrote(place, value));
            }
            90..=93 => {
                marks.push(transaction.savepoint().map_err(refused)?);
                actions.push(Action::Marked);
            }
            94..=96 if !marks.is_empty() => {
                let index = self.random.index(marks.len());
                marks.truncate(index + 1);
                transaction.rollback_to(marks[index]).map_err(refused)?;
                actions.push(Action::WentBack(index));
            }
            _ => std::thread::yield_now(),
        }
        Ok(())
    }

    /// A walk with a cursor that turns on its way.
    fn walk(&mut self, transaction: &Transaction, from: Place) -> Verdict<Scan> {
        let mut scan = self.draw_scan(from);
        (scan.backward, scan.limit) = (false, usize::MAX);
        let keyspace = self.keyspace(from.keyspace);
        let range = KeyRange::new(&(key_of(scan.from)..key_of(scan.to)));
        let mut cursor = transaction.cursor(keyspace, range).map_err(refused)?;
        cursor.seek_first().map_err(refused)?;
        while cursor.valid() {
            let value = cursor.value().map_err(refused)?;
            let row = (number_of_key(cursor.key()), id_of_value(value));
            scan.rows.push(row);
            if scan.rows.len() > 1 && self.random.chance(300) {
                // Back and forth again.
                cursor.prev().map_err(refused)?;
                let value = cursor.value().map_err(refused)?;
                let before = (number_of_key(cursor.key()), id_of_value(value));
                if before != scan.rows[scan.rows.len() - 2] {
                    return Err(Finding::new(Fault::Wrong, format!("{before:?} before {row:?}")));
                }
                cursor.next().map_err(refused)?;
            }
            cursor.next().map_err(refused)?;
        }
        Ok(scan)
    }
}

/// The rows that a walk asks for.
fn take_rows(
    walk: impl DoubleEndedIterator<Item = Result<Entry, Error>>,
    scan: &Scan,
) -> Verdict<Vec<(u16, Identity)>> {
    let row = |entry: Result<Entry, Error>| {
        entry.map(|entry| (number_of_key(&entry.key), id_of_value(&entry.value))).map_err(refused)
    };
    match scan.backward {
        false => walk.take(scan.limit).map(row).collect(),
        true => walk.rev().take(scan.limit).map(row).collect(),
    }
}
