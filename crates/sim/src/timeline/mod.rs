//! The prefix oracle: every moment that a database may be found at after a crash.
//!
//! Owns the history of one opening: what was there, the commits since in their order, and which of
//! them were acknowledged, durably or not. Must not know how the database was run or crashed.
//!
//! Moments are numbered: 0 is what was there when the database was opened, `n` is that and the
//! first `n` commits. A keyspace is a *lane*: its rows now, and its digest at each moment that
//! changed it. Creating, dropping and renaming keyspaces makes *catalogs*, numbered likewise. Which
//! indexes there are is not a matter of commits either: each change of them is durable by itself.
//!
//! Rows that expire are not in digests, but kept one by one: which of them are there depends on
//! when it is looked.
//!
//! Invariants
//! - L1  Between `issue` and what ends it there is no other commit: commits come one at a time.
//! - L2  Only the last commit may have no stamp: it is under way, or its fate is unknown.
//! - L3  durable <= acknowledged <= issued.
//! - L4  Each change of a history is told to its listener, if it has one, before it is made; what
//!   hears it from the same beginning is the same history.

mod indexes;
mod judge;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;

use lithedb::{Durability, SeqNo};

use crate::checkpoints::{Beside, Checkpoint};
use crate::digest::Digest;

pub use indexes::{IndexState, Indexes};
pub use judge::{Found, Moment, Survival};
pub use told::{Listener, Told};

/// A value and the stamp of the commit that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The value.
    pub value: Arc<[u8]>,
    /// The stamp.
    pub seqno: SeqNo,
    /// When it expires, in milliseconds since 1970.
    pub until: Option<u64>,
}

impl Row {
    /// Whether it is there at this moment.
    #[must_use]
    pub fn is_there(&self, now: u64) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// The rows that are there at this moment.
#[must_use]
pub fn rows_at(rows: &Rows, now: u64) -> Rows {
    let there = rows.iter().filter(|(_, row)| row.is_there(now));
    there.map(|(key, row)| (key.clone(), row.clone())).collect()
}

/// What a commit makes of a key: its value, or none; and until when.
type Written = (Option<Vec<u8>>, Until);

/// When something that is put expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// Never.
    #[default]
    Never,
    /// At this moment, in milliseconds since 1970.
    At(u64),
    /// So many milliseconds after its stamp.
    After(u64),
}

impl Until {
    /// When, of what a commit with this stamp puts.
    #[must_use]
    pub fn of(self, stamp_millis: u64) -> Option<u64> {
        match self {
            Until::Never => None,
            Until::At(millis) => Some(millis.max(1)),
            Until::After(millis) => Some((stamp_millis + millis).max(1)),
        }
    }
}

/// The rows of a keyspace.
pub type Rows = BTreeMap<Vec<u8>, Row>;
/// Names of keyspaces and their ids; `None` while the keyspace is being created.
pub type Catalog = BTreeMap<String, Option<u32>>;

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Id of the keyspace.
    pub keyspace: u32,
    /// The key.
    pub key: Vec<u8>,
    /// The new value; `None` deletes.
    pub value: Option<Vec<u8>>,
    /// When that expires.
    pub until: Until,
}

/// The history of one opening of a database.
#[derive(Clone, Debug)]
pub struct Timeline {
    lanes: BTreeMap<u32, Lane>,
    catalogs: Vec<Catalog>,
    /// The catalog that was acknowledged last.
    catalog_durable: usize,
    /// The indexes as acknowledged, and behind that as they may become.
    indexes: Vec<Indexes>,
    issued: u64,
    acknowledged: u64,
    durable: u64,
    last_seqno: SeqNo,
    pending: Option<Pending>,
    /// Checkpoints that were asked for.
    pub checkpoints: Vec<Checkpoint>,
    /// The one that is open beside the database.
    pub beside: Option<Beside>,
    /// The numbers of the keys and passphrases of which one opens the database: that which it got
    /// last, and such as it was to get since. `None` where that is not known.
    pub keys: Option<Vec<u8>>,
    /// Who is told of changes.
    listener: Option<Listener>,
    /// What was acknowledged when the power went, if what came later is not counted.
    cut: Option<Cut>,
}

/// What was acknowledged at some moment.
#[derive(Clone, Debug)]
struct Cut {
    durable: u64,
    catalog_durable: usize,
    /// The indexes as acknowledged then, and as they may have become since.
    indexes: Vec<Indexes>,
}

/// One keyspace. Its rows are those of the last acknowledged commit.
#[derive(Clone, Debug, Default)]
struct Lane {
    rows: Arc<Rows>,
    /// Of the rows that do not expire.
    digest: Digest,
    /// The others.
    expiring: Arc<Rows>,
    /// Its digest from each of these moments on; the first is moment 0 or its creation.
    moments: Vec<LaneMoment>,
}

#[derive(Clone, Debug)]
struct LaneMoment {
    commit: u64,
    digest: Digest,
    expiring: Arc<Rows>,
    /// Whether `digest.stamped` is known (L2).
    is_stamped: bool,
    /// The stamp of the commit, if it was acknowledged.
    seqno: Option<SeqNo>,
}

/// The commit that is under way, each key once.
#[derive(Clone, Debug)]
struct Pending {
    changes: BTreeMap<(u32, Vec<u8>), Written>,
}

impl Timeline {
    /// Of a database without keyspaces.
    #[must_use]
    pub fn new() -> Timeline {
        Timeline::starting_with(BTreeMap::new(), Catalog::new(), SeqNo::ZERO)
    }

    /// Of a database that was opened and found so.
    #[must_use]
    pub fn starting_with(
        rows: BTreeMap<u32, Rows>,
        catalog: Catalog,
        last_seqno: SeqNo,
    ) -> Timeline {
        let lanes = rows.into_iter().map(|(id, rows)| (id, Lane::starting_with(rows, 0)));
        Timeline {
            lanes: lanes.collect(),
            catalogs: vec![catalog],
            catalog_durable: 0,
            indexes: vec![Indexes::new()],
            issued: 0,
            acknowledged: 0,
            durable: 0,
            last_seqno,
            pending: None,
            checkpoints: Vec::new(),
            beside: None,
            keys: None,
            listener: None,
            cut: None,
        }
    }

    /// The same as it is now, also of what is beside the database.
    #[must_use]
    pub fn still(&self) -> Timeline {
        Timeline { beside: self.beside.as_ref().map(Beside::still), ..self.clone() }
    }

    /// The same, and these indexes.
    #[must_use]
    pub fn with_indexes(mut self, indexes: Indexes) -> Timeline {
        self.indexes = vec![indexes];
        self
    }

    /// The rows of a keyspace after the last acknowledged commit, also those that have expired
    /// since.
    #[must_use]
    pub fn rows(&self, keyspace: u32) -> Arc<Rows> {
        self.lanes.get(&keyspace).map(|lane| Arc::clone(&lane.rows)).unwrap_or_default()
    }

    /// The keyspaces there are, as far as acknowledged.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalogs[self.catalog_durable]
    }

    /// The stamp of the last acknowledged commit.
    #[must_use]
    pub fn last_seqno(&self) -> SeqNo {
        self.last_seqno
    }

    /// How many commits were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many commits were acknowledged as durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// A commit is about to be made, at a moment that is about this: of what expires some time
    /// after the stamp, which is not known yet, it decides.
    ///
    /// # Panics
    /// When called out of turn (L1).
    pub fn issue(&mut self, now: u64, changes: impl IntoIterator<Item = Change>) {
        assert!(self.pending.is_none(), "L1: a commit is under way already");
        let mut last_of_each = BTreeMap::new();
        for change in changes {
            last_of_each.insert((change.keyspace, change.key), (change.value, change.until));
        }
        self.tell(|| {
            let change = |((keyspace, key), (value, until)): (&(u32, Vec<u8>), &Written)| Change {
                keyspace: *keyspace,
                key: key.clone(),
                value: value.clone(),
                until: *until,
            };
            Told::Issued { now, changes: last_of_each.iter().map(change).collect() }
        });
        self.issued += 1;
        let commit = self.issued;
        for ((keyspace, key), (value, until)) in &last_of_each {
            let lane = self.lanes.entry(*keyspace).or_default();
            let before = lane.moment_of(commit);
            let mut digest = before.map_or(lane.digest, |moment| moment.digest);
            let mut expiring = Arc::clone(before.map_or(&lane.expiring, |moment| &moment.expiring));
            let row = value.as_deref().map(|value| Row {
                value: value.into(),
                seqno: SeqNo::ZERO,
                until: until.of(now),
            });
            lane.change((&mut digest, &mut expiring), key, row.as_ref());
            lane.set_moment(LaneMoment {
                commit,
                digest,
                expiring,
                is_stamped: false,
                seqno: None,
            });
        }
        self.pending = Some(Pending { changes: last_of_each });
    }

    /// The commit under way was acknowledged.
    ///
    /// # Panics
    /// When called out of turn (L1).
    pub fn acknowledge(&mut self, seqno: SeqNo, durability: Durability) {
        self.tell(|| Told::Acknowledged(seqno, durability));
        let Pending { changes } = self.pending.take().expect("L1: a commit was issued");
        let commit = self.issued;
        for ((keyspace, key), (value, until)) in changes {
            let lane = self.lanes.get_mut(&keyspace).expect("`issue` made a lane");
            let until = until.of(seqno.millis());
            let row = value.map(|value| Row { value: value.into(), seqno, until });
            let (mut digest, mut expiring) = (lane.digest, Arc::clone(&lane.expiring));
            lane.change((&mut digest, &mut expiring), &key, row.as_ref());
            (lane.digest, lane.expiring) = (digest, Arc::clone(&expiring));
            let rows = Arc::make_mut(&mut lane.rows);
            match row {
                Some(row) => rows.insert(key, row),
                None => rows.remove(&key),
            };
            let (is_stamped, seqno) = (true, Some(seqno));
            lane.set_moment(LaneMoment { commit, digest, expiring, is_stamped, seqno });
        }
        self.acknowledged = commit;
        self.last_seqno = self.last_seqno.max(seqno);
        if durability == Durability::Sync {
            self.durable = commit;
        }
    }

    /// The commit under way failed with the promise that nothing has changed.
    ///
    /// # Panics
    /// When called out of turn (L1).
    pub fn take_back(&mut self) {
        self.tell(|| Told::TakenBack);
        let Pending { changes } = self.pending.take().expect("L1: a commit was issued");
        for (keyspace, _) in changes.into_keys() {
            if let Some(lane) = self.lanes.get_mut(&keyspace) {
                lane.moments.retain(|moment| moment.commit != self.issued);
            }
        }
        self.issued -= 1;
    }

    /// What a keyspace was behind each acknowledged commit that changed it, up to that of the
    /// number `last`: their stamps, and digests of what was there then.
    #[must_use]
    pub fn pasts(&self, keyspace: u32, last: u64) -> Vec<(SeqNo, Digest)> {
        let moments = self.lanes.get(&keyspace).into_iter().flat_map(|lane| &lane.moments);
        let moments = moments.filter(|moment| moment.is_stamped && moment.commit <= last);
        let digest_of = |moment: &LaneMoment| {
            let seqno = moment.seqno?;
            Some((seqno, moment.digest_at(seqno.millis())))
        };
        moments.filter_map(digest_of).collect()
    }

    /// Whether the fate of the last commit is unknown.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether no change of the keyspaces has an unknown fate.
    #[must_use]
    pub fn is_catalog_certain(&self) -> bool {
        self.catalogs.len() == self.catalog_durable + 1
    }

    /// Everything acknowledged so far is durable.
    pub fn mark_durable(&mut self) {
        self.tell(|| Told::Durable);
        self.durable = self.acknowledged;
    }

    /// The keyspaces are about to become these.
    pub fn issue_catalog(&mut self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = self.catalog().clone();
        change(&mut catalog);
        self.tell(|| Told::CatalogIssued(catalog.clone()));
        self.catalogs.push(catalog);
    }

    /// The change of keyspaces was acknowledged; `created` is the id of a new one.
    pub fn acknowledge_catalog(&mut self, created: Option<u32>) {
        self.tell(|| Told::CatalogAcknowledged(created));
        self.catalog_durable = self.catalogs.len() - 1;
        self.forget_indexes_of_gone();
        let Some(id) = created else { return };
        for entry in self.catalogs[self.catalog_durable].values_mut() {
            entry.get_or_insert(id);
        }
        self.lanes.insert(id, Lane::starting_with(Rows::new(), self.issued));
    }

    /// The change of keyspaces failed with the promise that nothing has changed.
    ///
    /// # Panics
    /// When called out of turn (L1).
    pub fn take_back_catalog(&mut self) {
        self.tell(|| Told::CatalogTakenBack);
        assert!(self.catalogs.len() > self.catalog_durable + 1, "a change was issued");
        self.catalogs.pop();
    }
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline::new()
    }
}

impl LaneMoment {
    /// The digest of what is there at this moment of time.
    fn digest_at(&self, now: u64) -> Digest {
        let mut digest = self.digest;
        for (key, row) in self.expiring.iter().filter(|(_, row)| row.is_there(now)) {
            digest.add(key, &row.value, (row.seqno, row.until));
        }
        digest
    }
}

impl Lane {
    fn starting_with(rows: Rows, commit: u64) -> Lane {
        let (mut digest, mut expiring) = (Digest::default(), Rows::new());
        for (key, row) in &rows {
            match row.until {
                Some(_) => drop(expiring.insert(key.clone(), row.clone())),
                None => digest.add(key, &row.value, (row.seqno, None)),
            }
        }
        let expiring = Arc::new(expiring);
        let of_lane = Arc::clone(&expiring);
        let start = LaneMoment { commit, digest, expiring: of_lane, is_stamped: true, seqno: None };
        Lane { rows: Arc::new(rows), digest, expiring, moments: vec![start] }
    }

    /// Changes digest and expiring rows as setting `key` changes the rows.
    fn change(
        &self,
        (digest, expiring): (&mut Digest, &mut Arc<Rows>),
        key: &[u8],
        row: Option<&Row>,
    ) {
        if let Some(old) = self.rows.get(key).filter(|old| old.until.is_none()) {
            digest.remove(key, &old.value, (old.seqno, None));
        }
        if expiring.contains_key(key) {
            Arc::make_mut(expiring).remove(key);
        }
        match row {
            Some(row) if row.until.is_some() => {
                Arc::make_mut(expiring).insert(key.to_vec(), row.clone());
            }
            Some(row) => digest.add(key, &row.value, (row.seqno, None)),
            None => {}
        }
    }

    fn moment_of(&self, commit: u64) -> Option<&LaneMoment> {
        self.moments.last().filter(|moment| moment.commit == commit)
    }

    fn set_moment(&mut self, moment: LaneMoment) {
        match self.moments.last_mut() {
            Some(last) if last.commit == moment.commit => *last = moment,
            _ => self.moments.push(moment),
        }
    }

    /// How the lane was at this moment.
    fn at(&self, commit: u64) -> Option<&LaneMoment> {
        let after = self.moments.partition_point(|moment| moment.commit <= commit);
        after.checked_sub(1).map(|index| &self.moments[index])
    }
}
