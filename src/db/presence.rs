//! What each memtable changes about the number of keys, kept from one count to the next.
//!
//! The change of a key in a memtable is 1 if its newest entry there brings it, -1 if that takes it
//! away, and 0 if the key is there, or not there, either way. Finding it out costs a lookup below
//! the memtable. It is done for all keys of a memtable when one is first counted that has many in
//! the range, and from then on for keys that are written, by the next count; so each key that is
//! written costs at most one lookup, however often is counted.
//!
//! Invariants
//! - P1  The change of a key is against what older memtables have, or else the structure: so it
//!   stays as it is when those are flushed or consolidated, and when anything is ingested (J1).
//!   What has expired is not there, whether it still takes room or not; so it changes by itself
//!   when time passes, and only then.
//! - P2  The keys of the structure, and the changes of all memtables, make the number of keys.
//!   While the oldest memtable is flushed, its changes up to where that has come are in the
//!   structure.
//! - P3  Once counted, a memtable notes every key that is inserted, before that is visible. No
//!   changes are kept of memtables that delete ranges.
//! - P4  What is kept is as of a now. It has the keys, by moment, whose change may be another one
//!   then: the memtable's entry expires, or that below it.

use std::collections::BTreeSet;

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Arc, Mutex};
use crate::base::{Cursor as _, EntryKind, EntryRef, Result, SeqNo, Slice, expiring_in};
use crate::cache::{Charge, MemoryBudget, Part};
use crate::db::core::lock;
use crate::db::state::Table;
use crate::db::time::AsOf;
use crate::memtable::MemtableCursor;
use crate::structure::Version;
use crate::structure::Want;
use crate::structure::flex::tree::{FlexTree, Item, KeyGuide, Keyed};

/// Keys that wait to be looked up. Who writes so much and does not count has no use for it.
const NOTED_COUNT_MAX: usize = 64 << 10;
/// Bytes of a key's place in a tree, about.
const CHANGE_BYTES: usize = 64;

/// What is kept about one memtable.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Whether keys are noted (P3).
    is_on: AtomicBool,
    noted: Mutex<Vec<(SeqNo, Vec<u8>)>>,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Keys of commits above this stamp are noted.
    noted_since: SeqNo,
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    changes: FlexTree<KeyChange>,
    /// What was committed up to here is in it.
    up_to: SeqNo,
    /// What has expired by then is not there (P4).
    now: u64,
    /// Moments, and the keys that have to be looked up again from then on.
    due: BTreeSet<(u64, Slice)>,
    /// Changes below this key are not in it: the structure had them.
    from: Slice,
    charge: Charge,
}

/// A key that the memtable brings or takes away.
#[derive(Clone, Debug)]
pub(super) struct KeyChange {
    key: Slice,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Brought,
    TakenAway,
}

impl Item for KeyChange {
    /// Keys brought, and keys taken away.
    type Size = (u64, u64);
    type Guide = KeyGuide;

    fn size(&self) -> (u64, u64) {
        match self.change {
            Change::Brought => (1, 0),
            Change::TakenAway => (0, 1),
        }
    }
}

impl Keyed for KeyChange {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Change {
    fn between(was_there: bool, is_there: bool) -> Option<Change> {
        match (was_there, is_there) {
            (false, true) => Some(Change::Brought),
            (true, false) => Some(Change::TakenAway),
            (false, false) | (true, true) => None,
        }
    }
}

/// The changes of one memtable from a key on.
#[derive(Debug)]
pub(super) struct TableChanges {
    changes: FlexTree<KeyChange>,
    from: Slice,
}

impl TableChanges {
    /// The sum of the changes from `start` to in front of `end`.
    pub(super) fn between(&self, start: &[u8], end: Option<&[u8]>) -> i64 {
        let start = start.max(&self.from);
        if end.is_some_and(|end| end <= start) {
            return 0;
        }
        let (brought, taken) = match end {
            Some(end) => self.below(end),
            None => self.changes.size(),
        };
        let (brought_before, taken_before) = self.below(start);
        (brought - brought_before) as i64 - (taken - taken_before) as i64
    }

    fn below(&self, key: &[u8]) -> (u64, u64) {
        let Some((index, found)) = self.changes.find_key(key) else { return (0, 0) };
        self.changes.prefix_size(index + usize::from(&*found.key < key))
    }
}

/// Whether an entry stands for something that is there, as of some now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub is_there: bool,
    /// From then on it is not.
    until: Option<u64>,
}

impl Standing {
    const NOTHING: Standing = Standing { is_there: false, until: None };

    pub(super) fn of(kind: EntryKind, value: &[u8], now: u64) -> Standing {
        match (kind, expiring_in(kind, value)) {
            (EntryKind::Tombstone, _) => Standing::NOTHING,
            (_, Some(expiring)) if expiring.until <= now => Standing::NOTHING,
            (_, expiring) => {
                Standing { is_there: true, until: expiring.map(|expiring| expiring.until) }
            }
        }
    }
}

/// How far a key has to be looked up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The memtable may have something new; what is below is as it was.
    Own,
    /// What is below may have expired.
    Below,
}

/// What lies below a memtable.
pub(super) struct Below<'a> {
    /// Older memtables, newest first.
    pub tables: &'a [Arc<Table>],
    pub version: &'a dyn Version,
}

impl Below<'_> {
    fn standing(&self, key: &[u8], now: u64) -> Result<Standing> {
        for table in self.tables {
            if let Some(entry) = table.memtable.get(key, SeqNo::MAX) {
                return Ok(Standing::of(entry.kind, entry.value, now));
            }
        }
        let found = self.version.find(key, Want::Value)?;
        let standing = found.map(|found| Standing::of(found.kind, &found.value, now));
        Ok(standing.unwrap_or(Standing::NOTHING))
    }
}

impl Presence {
    /// Whether inserted keys are to be noted. To be asked by who has the memtable's writer.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Notes keys of a commit that is about to be inserted (P3).
    #[cold]
    pub(super) fn note<'k>(&self, seqno: SeqNo, keys: impl Iterator<Item = &'k [u8]>) {
        let mut noted = lock(&self.noted);
        noted.extend(keys.map(|key| (seqno, key.to_vec())));
        if noted.len() > NOTED_COUNT_MAX {
            self.turn_off(&mut noted);
        }
    }

    /// The next count begins anew.
    fn turn_off(&self, noted: &mut Vec<(SeqNo, Vec<u8>)>) {
        self.is_on.store(false, Ordering::Relaxed);
        *noted = Vec::new();
    }

    /// The keys noted up to the stamp `at`; `None` if some were forgotten.
    fn take_noted(&self, at: SeqNo) -> Option<Vec<(SeqNo, Vec<u8>)>> {
        let mut noted = lock(&self.noted);
        let count = noted.partition_point(|(seqno, _)| *seqno <= at);
        self.is_on().then(|| noted.drain(..count).collect())
    }
}

impl Table {
    /// The changes of this memtable, from the key `from` on. `None` if the moment is too long ago:
    /// it was counted as of a later stamp or now, or by somebody who knew the structure to be
    /// further, or keys of later commits were not noted. Then a later moment will do.
    pub(super) fn changes(
        &self,
        below: &Below<'_>,
        from: &Slice,
        as_of: AsOf,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Option<TableChanges>> {
        let (at, now) = (as_of.at, as_of.judged_now());
        let mut counted = lock(&self.presence.counted);
        if !self.presence.is_on() {
            *counted = Counted { noted_since: self.begin_noting(), kept: None };
        }
        if at < counted.noted_since {
            return Ok(None);
        }
        counted.noted_since = at; // Those of before are taken.
        // Not put back after an error: it would be neither as before nor up to date.
        let mut kept = match counted.kept.take() {
            Some(kept) => kept,
            None => self.gather(below, from, as_of, budget)?,
        };
        let is_of_before = kept.up_to <= at && kept.from <= *from && kept.now <= now;
        let is_up_to_date = is_of_before && self.catch_up(&mut kept, below, (from, as_of))?;
        let changes = kept.changes.clone();
        counted.kept = Some(kept);
        Ok(is_up_to_date.then(|| TableChanges { changes, from: from.clone() }))
    }

    /// From here on keys are noted; the stamp of the last commit whose keys were not. It may not be
    /// visible yet (P3).
    fn begin_noting(&self) -> SeqNo {
        let writer = self.memtable.writer(); // No commit is half inserted while this is held.
        lock(&self.presence.noted).clear();
        self.presence.is_on.store(true, Ordering::Relaxed);
        let newest = self.newest();
        drop(writer);
        newest
    }

    /// Looks all keys from `from` on up.
    fn gather(
        &self,
        below: &Below<'_>,
        from: &Slice,
        as_of: AsOf,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Kept> {
        let (at, now) = (as_of.at, as_of.judged_now());
        let mut cursor = MemtableCursor::new(Arc::clone(&self.memtable), at);
        cursor.seek(from)?;
        let (mut found, mut due) = (Vec::new(), BTreeSet::new());
        while let Some(EntryRef { key, kind, value, .. }) = cursor.entry() {
            let (own, older) = (Standing::of(kind, value, now), below.standing(key, now)?);
            let moments = own.until.into_iter().chain(older.until);
            due.extend(moments.map(|until| (until, Slice::from(key))));
            if let Some(change) = Change::between(older.is_there, own.is_there) {
                found.push(KeyChange { key: Slice::from(key), change });
            }
            cursor.next()?;
        }
        let changes = FlexTree::from_sorted(found);
        let charge = budget.charge(Part::Index, (changes.len() + due.len()) * CHANGE_BYTES);
        Ok(Kept { changes, up_to: at, now, due, from: from.clone(), charge })
    }

    /// Looks the keys up that were written since, and those for which the time has come. `false` if
    /// some of these were forgotten.
    fn catch_up(
        &self,
        kept: &mut Kept,
        below: &Below<'_>,
        (from, as_of): (&Slice, AsOf),
    ) -> Result<bool> {
        let (at, now) = (as_of.at, as_of.judged_now());
        let Some(noted) = self.presence.take_noted(at) else { return Ok(false) };
        let is_new = |(seqno, _): &&(SeqNo, Vec<u8>)| *seqno > kept.up_to;
        let mut keys: Vec<&[u8]> = noted.iter().filter(is_new).map(|(_, key)| &**key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.update(kept, key, below, (as_of, Look::Own))?;
        }
        while kept.due.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = kept.due.pop_first() else { break };
            self.update(kept, &key, below, (as_of, Look::Below))?;
        }
        (kept.up_to, kept.now) = (at, now);
        // What is in front of it was looked up in a structure that may have had it.
        kept.from = kept.from.clone().max(from.clone());
        kept.charge.resize((kept.changes.len() + kept.due.len()) * CHANGE_BYTES);
        Ok(true)
    }

    fn update(
        &self,
        kept: &mut Kept,
        key: &[u8],
        below: &Below<'_>,
        (as_of, look): (AsOf, Look),
    ) -> Result<()> {
        let now = as_of.judged_now();
        let entry = self.memtable.get(key, as_of.at);
        let own = entry.map(|entry| Standing::of(entry.kind, entry.value, now));
        let own = own.unwrap_or(Standing::NOTHING);
        let (place, known) = match kept.changes.find_key(key) {
            Some((index, item)) if &*item.key == key => (index, Some(item.change)),
            Some((index, _)) => (index + 1, None),
            None => (0, None),
        };
        let was_there = match known {
            Some(change) if look == Look::Own => change == Change::TakenAway,
            _ => {
                let older = below.standing(key, now)?;
                kept.due.extend(older.until.map(|until| (until, Slice::from(key))));
                older.is_there
            }
        };
        kept.due.extend(own.until.map(|until| (until, Slice::from(key))));
        let change = Change::between(was_there, own.is_there);
        let item = change.map(|change| KeyChange { key: Slice::from(key), change });
        kept.changes.splice(place..place + usize::from(known.is_some()), item);
        Ok(())
    }
}
