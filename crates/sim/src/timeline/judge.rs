//! Which moment was found, and whether it may be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use crate::digest::Digest;
use crate::finding::{Fault, Finding, Verdict};
use crate::sample::shown;
use crate::timeline::{Catalog, Indexes, Lane, Rows, Timeline};

/// Differences that are listed in a finding.
const DIFFERENCES_SHOWN_MAX: usize = 6;

/// What had to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// The process was killed: every acknowledged commit.
    Acknowledged,
    /// The machine lost power: every commit that was acknowledged as durable.
    Durable,
}

/// What was read back from a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Names and ids of the keyspaces.
    pub catalog: BTreeMap<String, u32>,
    /// Their indexes.
    pub indexes: Indexes,
    /// By when it was judged what has expired.
    pub now: u64,
    /// Digest of each keyspace, by id.
    pub digests: BTreeMap<u32, Digest>,
    /// The rows themselves, if they were kept.
    pub rows: BTreeMap<u32, Rows>,
}

/// Which moment was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Commits.
    pub commit: u64,
    /// Whether it is the one that was under way or in doubt.
    pub is_last_issued: bool,
}

impl Timeline {
    /// Finds the moment that `found` shows, if it is one that may be found.
    ///
    /// # Errors
    /// `Lost`, `Hole` or `Wrong`.
    pub fn judge(&self, found: &Found, survival: Survival) -> Verdict<Moment> {
        self.judge_catalog(found)?;
        self.judge_indexes(found)?;
        let least = match survival {
            Survival::Acknowledged => self.acknowledged,
            Survival::Durable => self.cut.as_ref().map_or(self.durable, |cut| cut.durable),
        };
        if let Some(commit) = self.latest_match(found, least..=self.issued) {
            return Ok(Moment { commit, is_last_issued: commit == self.issued });
        }
        let bounds = format!(
            "{least} to {} of {} commits must be there ({} acknowledged, {} durably)",
            self.issued, self.issued, self.acknowledged, self.durable
        );
        if let Some(commit) = self.latest_match(found, 0..=self.issued) {
            return Err(Finding::new(Fault::Lost, format!("only {commit} commits; {bounds}")));
        }
        Err(self.explain(found, &bounds))
    }

    /// The keyspaces must be those acknowledged, or those that were about to be.
    fn judge_catalog(&self, found: &Found) -> Verdict {
        let fits = |catalog: &Catalog| {
            catalog.len() == found.catalog.len()
                && catalog.iter().zip(&found.catalog).all(|((name, id), (found_name, found_id))| {
                    name == found_name && id.is_none_or(|id| id == *found_id)
                })
        };
        let least = self.cut.as_ref().map_or(self.catalog_durable, |cut| cut.catalog_durable);
        if self.catalogs[least..].iter().any(fits) {
            return Ok(());
        }
        let what = format!(
            "keyspaces {:?}; acknowledged were {:?}, and then {:?}",
            found.catalog,
            self.catalogs[least],
            &self.catalogs[least + 1..]
        );
        let was_once = self.catalogs.iter().any(fits);
        Err(Finding::new(if was_once { Fault::Lost } else { Fault::Wrong }, what))
    }

    fn latest_match(&self, found: &Found, moments: RangeInclusive<u64>) -> Option<u64> {
        moments.rev().find(|commit| {
            found
                .digests
                .iter()
                .all(|(id, digest)| self.lane_matches((*id, *digest), *commit, found.now))
        })
    }

    fn lane_matches(&self, (id, digest): (u32, Digest), commit: u64, now: u64) -> bool {
        match self.lanes.get(&id).and_then(|lane| lane.at(commit)) {
            Some(moment) if moment.is_stamped => moment.digest_at(now) == digest,
            Some(moment) => moment.digest_at(now).plain == digest.plain,
            // Before the keyspace was there, or while it is being made.
            None => digest == Digest::default(),
        }
    }

    fn explain(&self, found: &Found, bounds: &str) -> Finding {
        let mut fault = Fault::Hole;
        let mut what = format!("no moment; {bounds}");
        for (id, digest) in &found.digests {
            let moments: Vec<u64> = (0..=self.issued)
                .filter(|commit| self.lane_matches((*id, *digest), *commit, found.now))
                .collect();
            let seen = match (moments.first(), moments.last()) {
                (Some(first), Some(last)) => format!("as after {first}..={last} commits"),
                _ => {
                    fault = Fault::Wrong;
                    let lane = self.lanes.get(id);
                    differences(lane, found.rows.get(id), found.now)
                }
            };
            let _infallible = write!(what, "; keyspace {id} is {seen}");
        }
        Finding::new(fault, what)
    }
}

/// How the rows found differ from those that were acknowledged.
fn differences(lane: Option<&Lane>, found: Option<&Rows>, now: u64) -> String {
    let (Some(lane), Some(found)) = (lane, found) else { return "as never before".to_string() };
    let mut all = Vec::new();
    for (key, row) in lane.rows.iter().filter(|(_, row)| row.is_there(now)) {
        match found.get(key) {
            None => all.push(format!("{} is missing", shown(key))),
            Some(other) if other.value != row.value => all.push(format!(
                "{} is {} instead of {}",
                shown(key),
                shown(&other.value),
                shown(&row.value)
            )),
            Some(other) if other.seqno != row.seqno => all.push(format!(
                "{} has the stamp {} instead of {}",
                shown(key),
                other.seqno,
                row.seqno
            )),
            Some(other) if other.until != row.until => all.push(format!(
                "{} expires at {:?} instead of {:?}",
                shown(key),
                other.until,
                row.until
            )),
            Some(_) => {}
        }
    }
    let is_there = |key| lane.rows.get(key).is_some_and(|row| row.is_there(now));
    let extra = found.keys().filter(|key| !is_there(key.as_slice()));
    all.extend(extra.map(|key| format!("{} is there", shown(key))));
    let count = all.len();
    all.truncate(DIFFERENCES_SHOWN_MAX);
    format!(
        "as never before: {count} differences to the last acknowledged commit, among them {}",
        all.join(", ")
    )
}
