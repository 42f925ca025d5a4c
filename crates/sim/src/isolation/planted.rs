//! Anomalies put into histories that have none: a judge that misses one is of no use.

use std::collections::BTreeMap;

use lithedb::SeqNo;

use super::history::{Action, Attempt, End, History, Identity, Place};
use super::{IsolationRun, judge};
use crate::random::Random;

/// An anomaly.
#[derive(Clone, Copy)]
pub struct Planted {
    /// What it is called.
    pub name: &'static str,
    /// Puts it into a history; `None` if there is no place for it.
    plant: fn(History, &mut Random) -> Option<History>,
}

/// All of them.
pub const PLANTED: [Planted; 12] = [
    Planted { name: "dirty read", plant: dirty_read },
    Planted { name: "intermediate read", plant: intermediate_read },
    Planted { name: "stale read", plant: stale_read },
    Planted { name: "read of the future", plant: future_read },
    Planted { name: "unrepeatable read", plant: unrepeatable_read },
    Planted { name: "lost update", plant: lost_update },
    Planted { name: "write skew", plant: write_skew },
    Planted { name: "phantom", plant: phantom },
    Planted { name: "vanished row", plant: vanished_row },
    Planted { name: "snapshot behind real time", plant: late_snapshot },
    Planted { name: "torn commit", plant: torn_commit },
    Planted { name: "lost durable commit", plant: lost_commit },
];

impl Planted {
    /// Plants it into histories of runs from `seed` on until there is a place for it, and whether
    /// the judge finds it then; `None` when no history has a place.
    #[must_use]
    pub fn is_found(&self, seed: u64, runs: u64) -> Option<bool> {
        let mut verdict = None;
        for seed in seed..seed + runs {
            let run = IsolationRun { seed, transaction_count: 600 };
            let mut random = Random::new(seed);
            let looked = run.histories(|history| {
                if verdict.is_none()
                    && let Some(planted) = (self.plant)(history.clone(), &mut random)
                {
                    verdict = Some(judge::judge(&planted).is_err());
                }
                Ok(())
            });
            if verdict.is_some() || looked.is_err() {
                break;
            }
        }
        verdict
    }
}

/// What each place was given, by commits in order.
fn versions(history: &History) -> BTreeMap<Place, Vec<(SeqNo, Option<Identity>)>> {
    let mut versions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for attempt in &history.attempts {
        let End::Committed { stamp, .. } = attempt.end else { continue };
        for (place, value) in last_writes(attempt) {
            versions.entry(place).or_default().push((stamp, value));
        }
    }
    versions.values_mut().for_each(|versions| versions.sort_unstable());
    versions
}

/// What a transaction leaves behind, if it never went back and deleted no range.
fn last_writes(attempt: &Attempt) -> BTreeMap<Place, Option<Identity>> {
    let is_simple = !attempt
        .actions
        .iter()
        .any(|action| matches!(action, Action::WentBack(_) | Action::Erased { .. }));
    let actions = attempt.actions.iter().filter(|_| is_simple);
    let writes = actions.filter_map(|action| match action {
        Action::Wrote(place, value) => Some((*place, *value)),
        _ => None,
    });
    writes.collect()
}

/// Changes the first read of others' writes for which `change` has another value.
fn change_read(
    mut history: History,
    mut change: impl FnMut(&Attempt, Place, Option<Identity>) -> Option<Option<Identity>>,
) -> Option<History> {
    for index in 0..history.attempts.len() {
        let attempt = &history.attempts[index];
        let mut own = Vec::new();
        for (number, action) in attempt.actions.iter().enumerate() {
            match action {
                Action::Wrote(place, _) => own.push(*place),
                Action::Erased { .. } => break,
                Action::Got(place, found) if !own.contains(place) => {
                    let other = change(attempt, *place, *found).filter(|other| other != found);
                    if let Some(other) = other {
                        let action = Action::Got(*place, other);
                        history.attempts[index].actions[number] = action;
                        return Some(history);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

fn dirty_read(history: History, _: &mut Random) -> Option<History> {
    let refused: Vec<_> = history
        .attempts
        .iter()
        .filter(|attempt| matches!(attempt.end, End::Conflict | End::RolledBack))
        .flat_map(last_writes)
        .filter(|(_, value)| value.is_some())
        .collect();
    change_read(history, |_, place, _| {
        refused.iter().find(|(other, _)| *other == place).map(|(_, value)| *value)
    })
}

fn intermediate_read(history: History, _: &mut Random) -> Option<History> {
    let mut overwritten = Vec::new();
    for attempt in &history.attempts {
        let last = last_writes(attempt);
        for action in &attempt.actions {
            if let Action::Wrote(place, value @ Some(_)) = action
                && last.get(place).is_some_and(|last| last != value)
            {
                overwritten.push((*place, *value));
            }
        }
    }
    change_read(history, |_, place, _| {
        overwritten.iter().find(|(other, _)| *other == place).map(|(_, value)| *value)
    })
}

fn stale_read(history: History, _: &mut Random) -> Option<History> {
    let versions = versions(&history);
    change_read(history, |_, place, found| {
        let versions = versions.get(&place)?;
        let seen = versions.iter().position(|(_, value)| *value == found && found.is_some())?;
        Some(versions[seen.checked_sub(1)?].1)
    })
}

fn future_read(history: History, _: &mut Random) -> Option<History> {
    let versions = versions(&history);
    change_read(history, |attempt, place, _| {
        let at = attempt.at?;
        let mut later = versions.get(&place)?.iter().filter(|(stamp, _)| *stamp > at);
        later.find(|(_, value)| value.is_some()).map(|(_, value)| *value)
    })
}

/// Of two reads of one key in one transaction, the second finds something else.
fn unrepeatable_read(mut history: History, _: &mut Random) -> Option<History> {
    for attempt in &mut history.attempts {
        let mut seen = Vec::new();
        for action in &mut attempt.actions {
            match action {
                Action::Wrote(place, _) => seen.retain(|other| other != place),
                Action::Erased { .. } | Action::WentBack(_) => seen.clear(),
                Action::Got(place, found) if seen.contains(place) => {
                    *found = match found {
                        Some(_) => None,
                        None => Some(1),
                    };
                    return Some(history);
                }
                Action::Got(place, _) => seen.push(*place),
                _ => {}
            }
        }
    }
    None
}

/// Of two transactions that read and wrote one key, the second has read what the first did.
fn lost_update(history: History, _: &mut Random) -> Option<History> {
    let read_and_wrote = |attempt: &Attempt| {
        let End::Committed { stamp, .. } = attempt.end else { return None };
        let mut got = attempt.actions.iter().filter_map(|action| match action {
            Action::Got(place, found) => Some((*place, *found)),
            _ => None,
        });
        let writes = last_writes(attempt);
        got.find(|(place, _)| writes.contains_key(place))
            .map(|(place, found)| (stamp, place, found))
    };
    let mut updates: Vec<_> = history.attempts.iter().filter_map(read_and_wrote).collect();
    updates.sort_unstable();
    change_read(history, |attempt, place, _| {
        let (stamp, ..) = read_and_wrote(attempt).filter(|(_, other, _)| *other == place)?;
        let mut earlier = updates.iter().rev().filter(|update| update.0 < stamp);
        earlier.find(|update| update.1 == place).map(|(_, _, found)| *found)
    })
}

/// A commit comes between the snapshot of a transaction and its commit, and writes what that read.
fn write_skew(mut history: History, random: &mut Random) -> Option<History> {
    let stamps: Vec<SeqNo> = history.attempts.iter().filter_map(stamp_of).collect();
    let found = history.attempts.iter().find_map(|attempt| {
        let (at, stamp) = (attempt.at?, stamp_of(attempt)?);
        let between = SeqNo::from_u64(stamp.as_u64().checked_sub(1)?);
        let is_free = between > at && !stamps.contains(&between);
        let first_is_read = match attempt.actions.first()? {
            Action::Got(place, _) => Some(*place),
            _ => None,
        }?;
        is_free.then_some((between, first_is_read, attempt.began, attempt.ended))
    })?;
    let (stamp, place, began, ended) = found;
    let actions = vec![Action::Wrote(place, Some(random.draw()))];
    let end = End::Committed { stamp, durable: false };
    history.attempts.push(Attempt { began, ended, at: None, end, actions });
    Some(history)
}

fn stamp_of(attempt: &Attempt) -> Option<SeqNo> {
    match attempt.end {
        End::Committed { stamp, .. } => Some(stamp),
        _ => None,
    }
}

/// A walk has a row more.
fn phantom(mut history: History, random: &mut Random) -> Option<History> {
    for action in history.attempts.iter_mut().flat_map(|attempt| &mut attempt.actions) {
        if let Action::Scanned(scan) = action
            && scan.rows.is_empty()
            && scan.from < scan.to
        {
            scan.rows.push((scan.from, random.draw()));
            return Some(history);
        }
    }
    None
}

/// A walk misses a row.
fn vanished_row(mut history: History, random: &mut Random) -> Option<History> {
    for action in history.attempts.iter_mut().flat_map(|attempt| &mut attempt.actions) {
        if let Action::Scanned(scan) = action
            && scan.rows.len() > 1
        {
            let index = random.index(scan.rows.len());
            scan.rows.remove(index);
            return Some(history);
        }
    }
    None
}

/// A snapshot does not have a commit that was over before it was taken.
fn late_snapshot(mut history: History, _: &mut Random) -> Option<History> {
    let ends: Vec<_> = history
        .attempts
        .iter()
        .filter_map(|attempt| Some((attempt.ended, stamp_of(attempt)?)))
        .collect();
    let view = history.attempts.iter_mut().find(|attempt| {
        attempt.end == End::ReadOnly && ends.iter().any(|(ended, _)| *ended < attempt.began)
    })?;
    let newest = ends.iter().filter(|(ended, _)| *ended < view.began).map(|(_, stamp)| *stamp);
    view.at = Some(SeqNo::from_u64(newest.max()?.as_u64() - 1));
    Some(history)
}

/// Of a commit that was recovered, one write is not there.
fn torn_commit(mut history: History, _: &mut Random) -> Option<History> {
    let place = *history.recovered.found.keys().next()?;
    history.recovered.found.remove(&place);
    Some(history)
}

/// What was durable before a crash is not there, with everything behind it.
fn lost_commit(mut history: History, _: &mut Random) -> Option<History> {
    let crashed_at = history.recovered.crashed_at.map(|(at, _)| at);
    let durable = history.attempts.iter().filter(|attempt| {
        matches!(attempt.end, End::Committed { durable: true, .. })
            && crashed_at.is_none_or(|at| attempt.ended < at)
    });
    let lost = durable.filter_map(stamp_of).max()?;
    let up_to = SeqNo::from_u64(lost.as_u64() - 1);
    let found = judge::model_at(&history, up_to);
    history.recovered.up_to = up_to;
    history.recovered.found = found;
    Some(history)
}
