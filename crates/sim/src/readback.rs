//! Reading a whole database back.

use std::ops::Bound;
use std::time::SystemTime;

use lithedb::{Db, Error, Expiry, KeyVersion, Keyspace, KeyspaceInfo, SeqNo, Snapshot};

use crate::digest::Digest;
use crate::finding::{Fault, Finding, Verdict};
use crate::histories::{Keys, expect_histories_ok};
use crate::indexed::{expect_indexes_right, indexes_of};
use crate::random::Random;
use crate::timeline::{Catalog, Found, Row, Rows, Timeline};

/// Whether rows are kept, or only their digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Digests.
    Digests,
    /// Digests and rows.
    Rows,
}

/// By when it is judged now what has expired.
#[must_use]
pub fn now_of(db: &Db) -> u64 {
    millis_of(db.snapshot().time())
}

/// In milliseconds since 1970.
#[must_use]
pub fn millis_of(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Reads every keyspace from front to back, and which indexes there are.
///
/// # Errors
/// The first error that a read returns.
pub fn read_all(db: &Db, detail: Detail) -> Result<Found, Error> {
    let mut found = Found { now: now_of(db), indexes: indexes_of(db)?, ..Found::default() };
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name)?;
        let mut digest = Digest::default();
        let mut rows = Rows::new();
        for entry in keyspace.iter() {
            let entry = entry?;
            let until = entry.expires_at().map(millis_of);
            digest.add(&entry.key, &entry.value, (entry.seqno, until));
            if detail == Detail::Rows {
                let row = Row { value: (*entry.value).into(), seqno: entry.seqno, until };
                rows.insert(entry.key.to_vec(), row);
            }
        }
        found.catalog.insert(info.name.clone(), info.id);
        found.digests.insert(info.id, digest);
        if detail == Detail::Rows {
            found.rows.insert(info.id, rows);
        }
    }
    Ok(found)
}

/// Moments of the past that are looked at, of each keyspace.
const PASTS_MAX: usize = 4;
/// Of so many times that these are looked at, versions by stamp are once.
const TOLD_ONCE_IN: u64 = 3;
/// Commits that changed a keyspace, of which versions by stamp tell, at most.
const TOLD_COMMITS_MAX: u64 = 100;

/// What there is to draw from of the past of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastChoice {
    /// How many moments.
    count: u64,
    /// Whether versions by stamp tell of it.
    is_told: bool,
}

/// Moments of the past that were drawn, by number.
struct PastDrawn {
    moments: [u64; PASTS_MAX],
    /// Two, of which the first leads to the other by stamp.
    told: Option<(u64, u64)>,
}

impl PastChoice {
    fn draw(self, random: &mut Random) -> PastDrawn {
        let moments = [(); PASTS_MAX].map(|()| random.below(self.count));
        let is_due = random.below(TOLD_ONCE_IN) == 0 && self.is_told;
        let told = is_due.then(|| {
            let first = random.below(self.count);
            (first, first + random.below((self.count - first).min(TOLD_COMMITS_MAX)))
        });
        PastDrawn { moments, told }
    }
}

/// Draws as [`expect_pasts`] did that returned these, and looks at nothing: so that what is drawn
/// behind it is the same.
pub fn pass_over_pasts(choices: &[PastChoice], random: &mut Random) {
    for choice in choices {
        choice.draw(random);
    }
}

/// Keyspaces that keep versions must show what they were behind commits up to that of the number
/// `last`, or say that they do not know it: some of them, drawn at random. What was drawn from.
///
/// # Errors
/// `Wrong`, `Refused`.
pub fn expect_pasts(
    db: &Db,
    timeline: &Timeline,
    last: u64,
    random: &mut Random,
) -> Verdict<Vec<PastChoice>> {
    let refused = |error: Error| Finding::new(Fault::Refused, format!("the past: {error}"));
    let mut choices = Vec::new();
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name).map_err(refused)?;
        let pasts = timeline.pasts(info.id, last);
        if !keyspace.keeps_history() || pasts.is_empty() {
            continue;
        }
        // By number alone, there are none by stamp.
        let is_told = info.options.keep_versions.is_none() || info.options.keep_for.is_some();
        let choice = PastChoice { count: pasts.len() as u64, is_told };
        choices.push(choice);
        let drawn = choice.draw(random);
        for number in drawn.moments {
            let (at, expected) = pasts[number as usize];
            if at > db.snapshot().seqno() {
                continue; // A commit that changed nothing, of those that were lost.
            }
            let past = db.snapshot_at(at).map_err(refused)?;
            let found = match digest_of(&past, &keyspace) {
                Err(Error::BeyondRetention { .. }) if !promises(&info, &keyspace, at) => continue,
                found => found.map_err(refused)?,
            };
            if found != expected {
                let what = format!("keyspace {} as of {at} is not what it was", info.id);
                return Err(Finding::new(Fault::Wrong, what));
            }
        }
        if let Some((first, last)) = drawn.told {
            let (first, last) = (pasts[first as usize], pasts[last as usize]);
            expect_told_by_stamp(db, (&info, &keyspace), first, last)?;
        }
    }
    Ok(choices)
}

/// What versions by stamp tell must lead from one of these moments to a later one.
fn expect_told_by_stamp(
    db: &Db,
    (info, keyspace): (&KeyspaceInfo, &Keyspace),
    (from, _): (SeqNo, Digest),
    (to, expected): (SeqNo, Digest),
) -> Verdict {
    if to > db.snapshot().seqno() {
        return Ok(()); // A commit that changed nothing, of those that were lost.
    }
    let found = match rows_by_stamp(db, keyspace, (from, to)) {
        Err(Error::BeyondRetention { .. }) if !promises(info, keyspace, from) => return Ok(()),
        found => found.map_err(|error| {
            Finding::new(Fault::Refused, format!("versions from {from} to {to}: {error}"))
        })?,
    };
    match found == expected {
        true => Ok(()),
        false => {
            let what = format!("what versions from {from} to {to} tell of {} is not it", info.id);
            Err(Finding::new(Fault::Wrong, what))
        }
    }
}

/// What there was as of the first stamp, and what versions make of that up to the second one.
fn rows_by_stamp(
    db: &Db,
    keyspace: &Keyspace,
    (from, to): (SeqNo, SeqNo),
) -> Result<Digest, Error> {
    let mut rows = Rows::new();
    for entry in db.snapshot_at(from)?.iter(keyspace) {
        let entry = entry?;
        let until = entry.expires_at().map(millis_of);
        let row = Row { value: (*entry.value).into(), seqno: entry.seqno, until };
        rows.insert(entry.key.to_vec(), row);
    }
    for version in keyspace.versions_by_stamp((Bound::Excluded(from), Bound::Included(to)))? {
        let KeyVersion { key, seqno, value, expiry, .. } = version?;
        let until = match expiry {
            Expiry::At(at) => Some(millis_of(at)),
            Expiry::Never => None,
        };
        match value {
            Some(value) => rows.insert(key.to_vec(), Row { value: (*value).into(), seqno, until }),
            None => rows.remove(&*key),
        };
    }
    let mut digest = Digest::default();
    for (key, row) in rows.iter().filter(|(_, row)| row.is_there(to.millis())) {
        digest.add(key, &row.value, (row.seqno, row.until));
    }
    Ok(digest)
}

/// Whether a keyspace knows all that it was then. Who was refused asks behind that: where it is
/// known from moves on.
fn promises(info: &KeyspaceInfo, keyspace: &Keyspace, at: SeqNo) -> bool {
    keyspace.kept_from().map_or(keeps_all(info), |from| at >= from)
}

/// Whether a keyspace keeps every version.
pub(crate) fn keeps_all(KeyspaceInfo { options, .. }: &KeyspaceInfo) -> bool {
    options.keep_for.is_none() && options.keep_versions.is_none()
}

fn digest_of(past: &Snapshot, keyspace: &Keyspace) -> Result<Digest, Error> {
    let mut digest = Digest::default();
    for entry in past.iter(keyspace) {
        let entry = entry?;
        let until = entry.expires_at().map(millis_of);
        digest.add(&entry.key, &entry.value, (entry.seqno, until));
    }
    Ok(digest)
}

/// The history of a database that was just opened and found so.
#[must_use]
pub fn timeline_of(found: Found) -> Timeline {
    let catalog: Catalog = found.catalog.into_iter().map(|(name, id)| (name, Some(id))).collect();
    let stamps = found.rows.values().flat_map(|rows| rows.values().map(|row| row.seqno));
    let last_seqno = stamps.max().unwrap_or_default();
    Timeline::starting_with(found.rows, catalog, last_seqno).with_indexes(found.indexes)
}

/// What is kept with a batch of so many operations: it says how many. The commit may have more:
/// what it changes of indexes.
#[must_use]
pub fn payload_for(operations: usize) -> Vec<u8> {
    (operations as u64).to_le_bytes().repeat(operations % 5)
}

/// Whether this is what is kept with a batch that so many operations came of.
fn is_payload_of(operations: u64, payload: &[u8]) -> bool {
    let Some(first) = payload.first_chunk() else { return payload.is_empty() };
    let own = u64::from_le_bytes(*first);
    own <= operations && payload_for(own as usize) == payload
}

/// What the log has of commits can be read, their stamps rise, and each has its own payload.
fn expect_commits_ok(db: &Db) -> Verdict {
    let refused = |error: Error| Finding::new(Fault::CheckFailed, error.to_string());
    let absurd = |what: String| Err(Finding::new(Fault::Wrong, what));
    let mut last = SeqNo::ZERO;
    for commit in db.commits(..).map_err(refused)? {
        let commit = commit.map_err(refused)?;
        if last >= commit.seqno {
            return absurd(format!("the commit {} in the log is not above {last}", commit.seqno));
        }
        let is_others = |payload: Vec<u8>| !is_payload_of(commit.operations, &payload);
        if commit.payload.is_some_and(is_others) {
            return absurd(format!("the commit {} has another one's payload", commit.seqno));
        }
        last = commit.seqno;
    }
    Ok(())
}

/// The database's own check must find nothing.
///
/// # Errors
/// `CheckFailed` with the first problems.
pub fn expect_check_ok(db: &Db) -> Verdict {
    expect_sound(db, Keys::Spread)
}

/// The same of one of many states that are nearly alike: of the keys whose histories are looked at
/// few are, which are drawn. It draws from a copy: what comes next is what it was to be.
///
/// # Errors
/// `CheckFailed` with the first problems.
pub fn expect_state_ok(db: &Db, random: &Random) -> Verdict {
    expect_sound(db, Keys::Drawn(random.clone()))
}

/// Every key of the keyspaces that keep versions has a history that holds together.
///
/// # Errors
/// `CheckFailed`, `Wrong`.
pub fn expect_all_histories_ok(db: &Db) -> Verdict {
    expect_histories_ok(db, Keys::All)
}

fn expect_sound(db: &Db, keys: Keys) -> Verdict {
    const PROBLEMS_SHOWN_MAX: usize = 4;
    let report = db.check().map_err(|error| Finding::new(Fault::CheckFailed, error.to_string()))?;
    if report.is_ok() {
        expect_histories_ok(db, keys)?;
        expect_indexes_right(db)?;
        return expect_commits_ok(db);
    }
    let shown = &report.problems[..report.problems.len().min(PROBLEMS_SHOWN_MAX)];
    let what = format!("{} problems: {}", report.problems.len(), shown.join("; "));
    Err(Finding::new(Fault::CheckFailed, what))
}
