//! Whether a history can have come from a serializable store.
//!
//! The store says in which order commits happened: by their stamps. So the judge runs them in that
//! order against a map, and each transaction must have read, at its place, what the map holds. It
//! must also have read what the map held when its snapshot was taken (that too for transactions
//! that came to nothing), and a snapshot must hold every commit that was over before the
//! transaction began. After a crash what is found must be what the map held at some commit, with
//! nothing missing that was durable.

use std::collections::BTreeMap;

use lithedb::SeqNo;

use super::history::{Action, Attempt, End, History, Identity, Model, Place, Scan};
use crate::finding::{Fault, Finding, Verdict};

/// What a history held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Transactions that committed writes.
    pub commits: u64,
    /// Transactions that were refused.
    pub conflicts: u64,
    /// Reads and scans.
    pub reads: u64,
}

/// What a transaction has written itself, by place.
type Own = BTreeMap<Place, Option<Identity>>;

/// When something is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Commit,
    View,
}

/// Judges a history.
///
/// # Errors
/// `Wrong` for an anomaly, `Lost` when something durable is gone.
pub fn judge(history: &History) -> Verdict<Seen> {
    check_real_time(&history.attempts)?;
    let mut seen = Seen::default();
    let mut events: Vec<(SeqNo, Moment, &Attempt)> = Vec::new();
    for attempt in &history.attempts {
        if let End::Committed { stamp, .. } = attempt.end {
            events.push((stamp, Moment::Commit, attempt));
        }
        if let Some(at) = attempt.at {
            events.push((at, Moment::View, attempt));
        }
        seen.conflicts += u64::from(attempt.end == End::Conflict);
    }
    // A snapshot at a stamp holds the commit of that stamp.
    events.sort_by_key(|(stamp, moment, _)| (*stamp, *moment));
    let mut model = history.start.clone();
    let mut recovered = None;
    let mut last = None;
    for (stamp, moment, attempt) in events {
        if stamp > history.recovered.up_to && recovered.is_none() {
            recovered = Some(model.clone());
        }
        let place = format!("{attempt:?} at {stamp}");
        let own = replay(attempt, &model, &mut seen.reads).map_err(|finding| finding.at(&place))?;
        if moment == Moment::Commit {
            if last == Some(stamp) {
                return Err(Finding::new(Fault::Wrong, "two commits with one stamp").at(&place));
            }
            last = Some(stamp);
            seen.commits += 1;
            apply(own, &mut model);
        }
    }
    check_recovered(history, &recovered.unwrap_or(model))?;
    Ok(seen)
}

/// What the commits of a sound history up to a stamp leave.
#[must_use]
pub fn model_at(history: &History, up_to: SeqNo) -> Model {
    let mut model = history.start.clone();
    let stamp = |attempt: &&Attempt| match attempt.end {
        End::Committed { stamp, .. } => stamp,
        End::ReadOnly | End::RolledBack | End::Conflict => SeqNo::MAX,
    };
    let mut commits: Vec<&Attempt> = history.attempts.iter().collect();
    commits.sort_by_key(stamp);
    for attempt in commits.into_iter().take_while(|attempt| stamp(attempt) <= up_to) {
        let own = replay(attempt, &model, &mut 0).unwrap_or_default();
        apply(own, &mut model);
    }
    model
}

/// Goes through what a transaction did: all that it read must be there. What it leaves.
fn replay(attempt: &Attempt, model: &Model, reads: &mut u64) -> Verdict<Own> {
    let mut own = Own::new();
    let mut marks = Vec::new();
    for action in &attempt.actions {
        match action {
            Action::Got(place, found) => {
                *reads += 1;
                let expected = own.get(place).copied().unwrap_or(model.get(place).copied());
                if *found != expected {
                    let what = format!("{place:?} was {found:?}, should be {expected:?}");
                    return Err(Finding::new(Fault::Wrong, what));
                }
            }
            Action::Scanned(scan) => {
                *reads += 1;
                let expected = rows_of(scan, model, &own);
                if scan.rows != expected {
                    let what = format!("{scan:?}, should be {expected:?}");
                    return Err(Finding::new(Fault::Wrong, what));
                }
            }
            Action::Wrote(place, value) => drop(own.insert(*place, *value)),
            Action::Erased { keyspace, from, to } => {
                let keys = (*from..*to).map(|key| Place { keyspace: *keyspace, key });
                own.extend(keys.map(|place| (place, None)));
            }
            Action::Marked => marks.push(own.clone()),
            Action::WentBack(index) => {
                marks.truncate(index + 1);
                own.clone_from(&marks[*index]);
            }
        }
    }
    Ok(own)
}

/// What a walk should have found.
fn rows_of(scan: &Scan, model: &Model, own: &Own) -> Vec<(u16, Identity)> {
    let place = |key| Place { keyspace: scan.keyspace, key };
    if scan.from >= scan.to {
        return Vec::new();
    }
    let range = place(scan.from)..place(scan.to);
    let mut rows: BTreeMap<u16, Identity> =
        model.range(range.clone()).map(|(place, id)| (place.key, *id)).collect();
    for (place, written) in own.range(range) {
        match written {
            Some(id) => drop(rows.insert(place.key, *id)),
            None => drop(rows.remove(&place.key)),
        }
    }
    let rows = rows.into_iter();
    match scan.backward {
        false => rows.take(scan.limit).collect(),
        true => rows.rev().take(scan.limit).collect(),
    }
}

fn apply(own: Own, model: &mut Model) {
    for (place, written) in own {
        match written {
            Some(id) => drop(model.insert(place, id)),
            None => drop(model.remove(&place)),
        }
    }
}

/// Whatever was over before a transaction began is in its snapshot, and before its commit.
fn check_real_time(attempts: &[Attempt]) -> Verdict {
    let mut ends: Vec<(u64, SeqNo)> = Vec::new();
    for attempt in attempts {
        if let End::Committed { stamp, .. } = attempt.end {
            ends.push((attempt.ended, stamp));
        }
    }
    ends.sort_unstable();
    let mut by_begin: Vec<&Attempt> = attempts.iter().collect();
    by_begin.sort_unstable_by_key(|attempt| attempt.began);
    let (mut newest, mut ends) = (SeqNo::ZERO, ends.into_iter().peekable());
    for attempt in by_begin {
        while let Some((_, stamp)) = ends.next_if(|(ended, _)| *ended < attempt.began) {
            newest = newest.max(stamp);
        }
        let own = match attempt.end {
            End::Committed { stamp, .. } => Some(stamp),
            End::ReadOnly | End::RolledBack | End::Conflict => None,
        };
        let is_behind = attempt.at.is_some_and(|at| at < newest);
        if is_behind || own.is_some_and(|own| own <= newest) {
            let what = format!("{attempt:?} began after the commit {newest} was over");
            return Err(Finding::new(Fault::Wrong, what));
        }
        if own.zip(attempt.at).is_some_and(|(own, at)| own <= at) {
            let what = format!("{attempt:?} has seen what is behind its own commit");
            return Err(Finding::new(Fault::Wrong, what));
        }
    }
    Ok(())
}

fn check_recovered(history: &History, expected: &Model) -> Verdict {
    let recovered = &history.recovered;
    for attempt in &history.attempts {
        let End::Committed { stamp, durable } = attempt.end else { continue };
        if stamp <= recovered.up_to {
            continue;
        }
        let must_be_there = match recovered.crashed_at {
            None => true,
            // A process that dies takes no commit with it that was over; a power cut may.
            Some((at, is_power_cut)) => attempt.ended < at && (durable || !is_power_cut),
        };
        if must_be_there {
            let what = format!("{attempt:?} is behind {}, up to which it is", recovered.up_to);
            return Err(Finding::new(Fault::Lost, what));
        }
    }
    if recovered.found != *expected {
        let only_in = |one: &Model, other: &Model| -> Model {
            let missing = one.iter().filter(|(place, id)| other.get(place) != Some(id));
            missing.map(|(place, id)| (*place, *id)).collect()
        };
        let what = format!(
            "at {}: found {:?} instead of {:?}",
            recovered.up_to,
            only_in(&recovered.found, expected),
            only_in(expected, &recovered.found)
        );
        return Err(Finding::new(Fault::Hole, what));
    }
    Ok(())
}
