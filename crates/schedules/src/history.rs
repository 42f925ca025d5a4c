//! What threads did and saw, and whether any order of it allows that.
//!
//! Commits have stamps, so the order is known: what is left is to look. In real time: a commit that
//! was over before another began has the lower stamp. A view sees all commits up to its stamp and
//! no other, and its stamp lies between those that were over before it and those that began behind
//! it. A lookup sees what some moment between its beginning and its end allows. A transaction has
//! read what there was right in front of its stamp.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A key: of which keyspace, and which.
pub type Place = (u8, u8);
/// Which value a key has.
pub type Rows = BTreeMap<Place, u32>;

/// Since when, and until when, something went on.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Before it began.
    pub began: u64,
    /// After it ended.
    pub ended: u64,
}

/// A commit that was acknowledged.
#[derive(Clone, Debug)]
pub struct Written {
    /// When.
    pub span: Span,
    /// Its stamp.
    pub stamp: u64,
    /// Whether it was durable on return.
    pub is_durable: bool,
    /// The value that each key has from then on.
    pub changes: Vec<(Place, Option<u32>)>,
    /// What a transaction had read.
    pub premise: Vec<(Place, Option<u32>)>,
}

/// A lookup.
#[derive(Clone, Debug)]
struct Looked {
    span: Span,
    place: Place,
    found: Option<u32>,
}

/// All rows of some keyspaces, at a stamp.
#[derive(Clone, Debug)]
struct Viewed {
    /// Whether it has all that was over before it: somebody who follows has not.
    is_current: bool,
    span: Span,
    stamp: u64,
    rows: Rows,
}

#[derive(Debug, Default)]
struct Noted {
    tick: u64,
    written: Vec<Written>,
    looked: Vec<Looked>,
    viewed: Vec<Viewed>,
    next_value: u32,
}

/// What has happened so far. Its lock is held for no step of a schedule.
#[derive(Debug, Default)]
pub struct History(Mutex<Noted>);

impl History {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment.
    pub fn tick(&self) -> u64 {
        let mut noted = self.lock();
        noted.tick += 1;
        noted.tick
    }

    /// A value that no other has.
    pub fn next_value(&self) -> u32 {
        let mut noted = self.lock();
        noted.next_value += 1;
        noted.next_value
    }

    fn since(&self, began: u64) -> Span {
        Span { began, ended: self.tick() }
    }

    /// A commit was acknowledged.
    pub fn note_written(
        &self,
        began: u64,
        (stamp, is_durable): (u64, bool),
        changes: Vec<(Place, Option<u32>)>,
        premise: Vec<(Place, Option<u32>)>,
    ) {
        let span = self.since(began);
        self.lock().written.push(Written { span, stamp, is_durable, changes, premise });
    }

    /// A key was looked up.
    pub fn note_looked(&self, began: u64, place: Place, found: Option<u32>) {
        let span = self.since(began);
        self.lock().looked.push(Looked { span, place, found });
    }

    /// A snapshot was taken in this span, and had these rows.
    pub fn note_viewed(&self, span: Span, stamp: u64, rows: Rows) {
        self.lock().viewed.push(Viewed { is_current: true, span, stamp, rows });
    }

    /// Who follows showed these rows, having caught up in this span.
    pub fn note_followed(&self, span: Span, stamp: u64, rows: Rows) {
        self.lock().viewed.push(Viewed { is_current: false, span, stamp, rows });
    }

    /// The highest stamp of what is durable by now.
    pub fn durable(&self) -> u64 {
        let noted = self.lock();
        let durable = noted.written.iter().filter(|written| written.is_durable);
        durable.map(|written| written.stamp).max().unwrap_or(0)
    }

    /// The highest stamp but one of what is durable by now.
    pub fn durable_before_last(&self) -> u64 {
        let noted = self.lock();
        let durable = noted.written.iter().filter(|written| written.is_durable);
        let mut stamps: Vec<u64> = durable.map(|written| written.stamp).collect();
        stamps.sort_unstable();
        stamps.iter().rev().nth(1).copied().unwrap_or(0)
    }

    /// The highest stamp that is acknowledged by now.
    pub fn acknowledged(&self) -> u64 {
        self.lock().written.iter().map(|written| written.stamp).max().unwrap_or(0)
    }

    /// The rows up to a stamp.
    pub fn rows_at(&self, stamp: u64) -> Rows {
        rows_at(&self.lock().written, |written| written.stamp <= stamp)
    }

    /// Judges everything.
    ///
    /// # Panics
    /// If no order allows it.
    pub fn judge(&self) {
        let noted = self.lock();
        let Noted { written, looked, viewed, .. } = &*noted;
        for commit in written {
            judge_commit(written, commit);
        }
        for view in viewed {
            judge_view(written, view);
        }
        for look in looked {
            judge_look(written, look);
        }
    }
}

fn rows_at(written: &[Written], is_in: impl Fn(&Written) -> bool) -> Rows {
    let mut seen: Vec<&Written> = written.iter().filter(|written| is_in(written)).collect();
    seen.sort_by_key(|written| written.stamp);
    let mut rows = Rows::new();
    for (place, value) in seen.iter().flat_map(|written| &written.changes) {
        match value {
            Some(value) => drop(rows.insert(*place, *value)),
            None => drop(rows.remove(place)),
        }
    }
    rows
}

fn judge_commit(written: &[Written], commit: &Written) {
    for other in written {
        let is_same = std::ptr::eq(other, commit);
        assert!(is_same || other.stamp != commit.stamp, "one stamp twice: {other:?}, {commit:?}");
        let was_before = other.span.ended < commit.span.began;
        assert!(!was_before || other.stamp < commit.stamp, "out of order: {other:?}, {commit:?}");
    }
    if commit.premise.is_empty() {
        return;
    }
    let rows = rows_at(written, |other| other.stamp < commit.stamp);
    for (place, read) in &commit.premise {
        let there = rows.get(place).copied();
        assert_eq!(there, *read, "{commit:?} has read {place:?} as it was not");
    }
}

fn judge_view(written: &[Written], view: &Viewed) {
    for commit in written {
        let is_behind = commit.span.began > view.span.ended;
        let was_before = view.is_current && commit.span.ended < view.span.began;
        assert!(!was_before || commit.stamp <= view.stamp, "{view:?} misses {commit:?}");
        assert!(!is_behind || commit.stamp > view.stamp, "{view:?} foresees {commit:?}");
    }
    let expected = rows_at(written, |commit| commit.stamp <= view.stamp);
    assert_eq!(view.rows, expected, "a view at {} of {written:#?}", view.stamp);
}

fn judge_look(written: &[Written], look: &Looked) {
    let value_of = |commit: &Written| {
        let mut changes = commit.changes.iter().rev();
        changes.find(|(place, _)| *place == look.place).map(|(_, value)| *value)
    };
    let of_key: Vec<(&Written, Option<u32>)> =
        written.iter().filter_map(|commit| Some((commit, value_of(commit)?))).collect();
    // The newest of those that were over before: it, or something newer, was there.
    let before = of_key.iter().filter(|(commit, _)| commit.span.ended < look.span.began);
    let least = before.map(|(commit, _)| commit.stamp).max();
    let mut allowed: Vec<Option<u32>> = of_key
        .iter()
        .filter(|(commit, _)| commit.span.began < look.span.ended)
        .filter(|(commit, _)| least.is_none_or(|least| commit.stamp >= least))
        .map(|(_, value)| *value)
        .collect();
    if least.is_none() {
        allowed.push(None);
    }
    assert!(
        allowed.contains(&look.found),
        "{look:?}, but {allowed:?} could be there: {written:#?}"
    );
}
