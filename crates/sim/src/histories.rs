//! What keyspaces that keep versions tell of the past, held against itself: the past of now is the
//! present, and what happened to a key is told alike both ways.
//!
//! Nobody commits while this looks; but background threads may be at work. Where not all versions
//! are kept, what is told of a key then becomes less, at its old end: memtables show all that they
//! have, and what a flush has brought to the archive is shown as far as it is kept. So of two walks
//! that come one behind the other, the second one may end earlier, down to what is kept. Nothing
//! else may differ.

use lithedb::{Db, Entry, Error, Expiry, KeyVersion, Keyspace, KeyspaceInfo, SeqNo, Versions};

use crate::finding::{Fault, Finding, Verdict};
use crate::random::Random;
use crate::readback::{keeps_all, millis_of};
use crate::sample::shown;

/// Keys whose histories are looked at, of each keyspace, about: the same ones each time.
const HISTORIES_SPREAD: usize = 8;
/// As many of one of many states that are nearly alike: others of each.
const HISTORIES_DRAWN: usize = 2;
/// Versions of each of these that are looked at: the newest.
const VERSIONS_MAX: usize = 128;
/// Moments that such a key is read as of.
const MOMENTS_MAX: u64 = 6;

/// The keys of a keyspace whose histories are looked at.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// All of them.
    All,
    /// Some, from one end to the other.
    Spread,
    /// Few, drawn.
    Drawn(Random),
}

impl Keys {
    /// The place of the first one, and how far it is from each to the next.
    fn places(&mut self, len: usize) -> (usize, usize) {
        let step = |count: usize| (len / count).max(1);
        match self {
            Keys::All => (0, 1),
            Keys::Spread => (0, step(HISTORIES_SPREAD)),
            Keys::Drawn(random) => {
                let step = step(HISTORIES_DRAWN);
                (random.index(step), step)
            }
        }
    }
}

/// Keyspaces that keep versions show them: of these keys.
///
/// # Errors
/// `CheckFailed`, `Wrong`.
pub(crate) fn expect_histories_ok(db: &Db, mut keys: Keys) -> Verdict {
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name).map_err(refused)?;
        if !keyspace.keeps_history() {
            continue;
        }
        let now = db.snapshot();
        let past = db.snapshot_at(now.time()).map_err(refused)?;
        let is: Result<Vec<Entry>, Error> = now.iter(&keyspace).collect();
        let was: Result<Vec<Entry>, Error> = past.iter(&keyspace).collect();
        let (is, was) = (is.map_err(refused)?, was.map_err(refused)?);
        if is != was {
            return Err(absurd(&info, "the past of now is not the present"));
        }
        let (first, step) = keys.places(is.len());
        for entry in is.iter().skip(first).step_by(step) {
            expect_history_ok(&keyspace, &info, entry)?;
        }
    }
    Ok(())
}

/// What happened to the key of an entry that is there.
fn expect_history_ok(keyspace: &Keyspace, info: &KeyspaceInfo, entry: &Entry) -> Verdict {
    let walks = Walks::take(keyspace, &entry.key).map_err(refused)?;
    let kept_from = keyspace.kept_from(); // Behind the walks: it only moves on.
    let newest = walks.first.first().map(|newest| newest.seqno);
    let are_stamped = walks.first.is_sorted_by(|newer, older| newer.seqno > older.seqno);
    let are_all = walks.first.len() < VERSIONS_MAX && keeps_all(info);
    let why = if newest != Some(entry.seqno) {
        Some("the newest version is another one")
    } else if !are_stamped {
        Some("stamps do not descend")
    } else if !walks.are_alike(kept_count(&walks.first, info, kept_from)) {
        Some("it is told in two ways")
    } else if are_idle(&walks.back, are_all) {
        Some("what was not there is deleted")
    } else {
        None
    };
    if let Some(why) = why {
        let (key, counts) = (shown(&entry.key), walks.counts());
        let what = format!("what happened to {key} is odd: {why}; versions told: {counts:?}");
        return Err(absurd(info, &what));
    }
    expect_moments(keyspace, &walks.first, &mut Random::new(entry.seqno.as_u64()))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: Error) -> Finding {
    Finding::new(Fault::CheckFailed, format!("the past: {error}"))
}

fn absurd(info: &KeyspaceInfo, what: &str) -> Finding {
    Finding::new(Fault::Wrong, format!("keyspace {}: {what}", info.id))
}

/// Three walks through the newest versions of a key, in this order; the newest first, each.
struct Walks {
    first: Vec<KeyVersion>,
    /// From the oldest on, and then turned round.
    back: Vec<KeyVersion>,
    last: Vec<KeyVersion>,
}

impl Walks {
    fn take(keyspace: &Keyspace, key: &[u8]) -> Result<Walks, Error> {
        let told = |versions: Versions| {
            versions.take(VERSIONS_MAX).collect::<Result<Vec<KeyVersion>, Error>>()
        };
        let first = keyspace.history(key, ..).and_then(told)?;
        let oldest = first.last().filter(|_| first.len() == VERSIONS_MAX);
        let from = oldest.map_or(SeqNo::ZERO, |oldest| oldest.seqno);
        let mut back = keyspace.history_from_oldest(key, from..).and_then(told)?;
        back.reverse();
        let last = keyspace.history(key, ..).and_then(told)?;
        Ok(Walks { first, back, last })
    }

    /// Whether none tells anything that one in front of it does not, none leaves out anything but
    /// the oldest, and the last one tells so many at least. Where nothing has gone from the first
    /// one to the last, all three are the same.
    fn are_alike(&self, least: usize) -> bool {
        self.first.starts_with(&self.back)
            && self.back.starts_with(&self.last)
            && self.last.len() >= least
    }

    fn counts(&self) -> [usize; 3] {
        [self.first.len(), self.back.len(), self.last.len()]
    }
}

/// How many of these versions, the newest first, a keyspace has to tell of that is whole from
/// `kept_from` on (decision 0037).
fn kept_count(versions: &[KeyVersion], info: &KeyspaceInfo, kept_from: Option<SeqNo>) -> usize {
    if keeps_all(info) {
        return versions.len();
    }
    let by_time = kept_from.filter(|_| info.options.keep_for.is_some());
    let by_number = info.options.keep_versions.map_or(0, |count| count as usize);
    let is_kept = |(number, version): &(usize, &KeyVersion)| {
        if *number < by_number {
            return true;
        }
        let newer = number.checked_sub(1).map(|newer| versions[newer].seqno);
        let is_seen = |from: SeqNo| newer.is_none_or(|newer| newer > from);
        let is_over = |from: SeqNo| version.seqno < from && gone_at(version) <= from.millis();
        // The newest is there, whatever is kept, unless it says that there is nothing.
        match by_time {
            Some(from) => is_seen(from) && !is_over(from),
            None => newer.is_none(),
        }
    };
    versions.iter().enumerate().take_while(is_kept).count()
}

/// From then on, in milliseconds since 1970, a version says that there is nothing.
fn gone_at(version: &KeyVersion) -> u64 {
    match (&version.value, version.expiry) {
        (None, _) => 0,
        (Some(_), Expiry::At(at)) => millis_of(at),
        (Some(_), Expiry::Never) => u64::MAX,
    }
}

/// Whether one of these, the newest first, deletes what was not there. What the oldest deletes may
/// not be kept any more.
fn are_idle(versions: &[KeyVersion], are_all: bool) -> bool {
    let mut was_there = !are_all;
    versions.iter().rev().any(|version| {
        let is_there = version.value.is_some();
        !std::mem::replace(&mut was_there, is_there) && !is_there
    })
}

/// What is told of a key is what is read of it as of some of these versions, drawn at random.
fn expect_moments(keyspace: &Keyspace, versions: &[KeyVersion], random: &mut Random) -> Verdict {
    let drawn = (0..MOMENTS_MAX.min(versions.len() as u64))
        .map(|_| &versions[random.below(versions.len() as u64) as usize]);
    for KeyVersion { key, seqno, value, .. } in drawn.filter(|of| of.expiry == Expiry::Never) {
        match keyspace.get_at(key, *seqno) {
            Ok(found) if found == *value => {}
            Err(Error::BeyondRetention { .. }) => {}
            other => {
                let (key, value) = (shown(key), value.as_deref().map(shown));
                let what = format!("{key} as of {seqno} is {other:?} and was {value:?}");
                return Err(Finding::new(Fault::Wrong, what));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lithedb::storage::MemoryStorage;
    use lithedb::{Background, KeyspaceOptions};

    use super::*;
    use crate::clock::SimClock;

    const KEY: &[u8] = b"k";

    /// A database whose keyspace has five versions of a key in its memtable, all but the newest of
    /// which it does not have to keep by now; unless it keeps all.
    fn five_versions(options: KeyspaceOptions) -> (Db, Keyspace, KeyspaceInfo) {
        let clock = Arc::new(SimClock::default());
        let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
        let builder = builder.clock(Arc::clone(&clock) as _).background(Background::Stepped);
        let db = builder.open("/db").unwrap();
        let keyspace = db.create_keyspace("k", options).unwrap();
        for value in ["1", "2", "3", "4", "5"] {
            clock.jump(10);
            keyspace.put(KEY, value).unwrap();
        }
        clock.jump(30_000);
        let info = db.keyspaces().into_iter().find(|info| info.id == keyspace.id()).unwrap();
        (db, keyspace, info)
    }

    /// A flush on another thread, behind the first of three walks: what used to be found odd.
    #[test]
    fn what_a_flush_takes_from_the_old_end_between_two_walks_is_not_odd() {
        let five_seconds = Duration::from_secs(5);
        for (options, left) in [
            (KeyspaceOptions::history().keep_for(five_seconds), 1),
            (KeyspaceOptions::history().keep_versions(2), 2),
            (KeyspaceOptions::history().keep_for(five_seconds).keep_versions(3), 3),
            (KeyspaceOptions::history(), 5),
        ] {
            let (db, keyspace, info) = five_versions(options);
            let before = Walks::take(&keyspace, KEY).unwrap();
            assert_eq!(before.counts(), [5; 3]);
            expect_histories_ok(&db, Keys::All).unwrap();
            db.flush().unwrap();
            let after = Walks::take(&keyspace, KEY).unwrap();
            assert_eq!(after.counts(), [left; 3]);
            expect_histories_ok(&db, Keys::All).unwrap();
            let least = kept_count(&before.first, &info, keyspace.kept_from());
            assert_eq!(least, left);
            let beside = |first: &Walks, back: &Walks, last: &Walks| Walks {
                first: first.first.clone(),
                back: back.back.clone(),
                last: last.last.clone(),
            };
            assert!(beside(&before, &after, &after).are_alike(least));
            assert!(beside(&before, &before, &after).are_alike(least));
            // The other way round it would be.
            assert_eq!(beside(&after, &before, &after).are_alike(least), left == 5);
            assert_eq!(beside(&after, &after, &before).are_alike(least), left == 5);
        }
    }

    #[test]
    fn other_differences_are_odd() {
        let (_db, keyspace, info) = five_versions(KeyspaceOptions::history());
        let told = || Walks::take(&keyspace, KEY).unwrap();
        let least = kept_count(&told().first, &info, keyspace.kept_from());
        assert!(told().are_alike(least));
        let mut short = told();
        short.last.pop();
        assert!(!short.are_alike(least), "one that is kept is not told");
        let mut gap = told();
        gap.back.remove(2);
        gap.last.remove(2);
        assert!(!gap.are_alike(0), "one is left out in the middle");
        let mut other = told();
        other.back[3].value = None;
        assert!(!other.are_alike(0), "one is told in two ways");
        let mut late = told();
        late.first.remove(0);
        assert!(!late.are_alike(0), "the newest comes later");
    }
}
