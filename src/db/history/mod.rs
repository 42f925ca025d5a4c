//! Keyspaces that keep versions: reading them as of the past, and what happened to a key.
//!
//! A keyspace of the structure `History` has its present in a store as `Flex` has it, and beside it
//! an archive: a hidden keyspace of the structure `Lsm` with the versions by key and by stamp
//! (`structure/history.rs`, `base/version_key.rs`). The present costs what it costs in `Flex`. A
//! moment of the past is an ordinary snapshot: the memtables as of a stamp, and behind them the
//! archive as of that stamp in place of the structure.
//!
//! Invariants
//! - H1  A keyspace and its archive come and go by one edit of the manifest: the keyspace is
//!   created and dropped with it, or converted to what has one, or has none.
//! - H2  A memtable is in the archive whole, durably, before any of it is in the structure. So what
//!   is replayed is in the archive wholly, or not known to be: then it goes there again, and is the
//!   same.
//! - H3  A deletion is a version if there was a value in front of it that had not expired; a
//!   deletion with a range is one of each such key.
//! - H4  From where on an archive is whole is durable in the catalogue before a version goes that
//!   is seen as of a moment in front of it only. It is not behind what the structure has, and in
//!   front of all that memtables have, and of an ingest that is not archived: what is to come asks
//!   the archive for what there was before it.
//! - H5, H6  Ingests are archived behind their commits: `ingested.rs`.

mod difference;
mod entries;
mod flush;
mod ingested;
mod made;
mod restore;
mod retention;
mod versions;

#[cfg(test)]
mod tests;

pub use difference::{Difference, Differences};
pub(in crate::db) use flush::stamps_to_delete;
pub(in crate::db) use ingested::{Slices, Unarchived};
pub use restore::RestoreReport;
pub(in crate::db) use retention::TellKept;
pub use versions::{KeyVersion, Versions, VersionsByStamp};
pub(in crate::db) use versions::{MergedInto, PastChange, PastChanges};

use std::sync::Arc;
use std::time::SystemTime;

use crate::base::{EntryKind, Error, Result, SeqNo, Slice, is_operands};
use crate::db::core::Core;
use crate::db::keyspace::Keyspace;
use crate::db::snapshot::Snapshot;
use crate::db::state::{KeyspaceState, State};
use crate::db::time::AsOf;
use crate::db::{Db, Entry};
use crate::structure::Version as _;
use crate::structure::Want;
use crate::structure::history::VersionAt;

/// A moment of the past: a stamp, or a time, which is behind all commits of that millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointInTime {
    /// Behind the commit of this stamp, and all before it.
    Stamp(SeqNo),
    /// Behind all commits whose stamps are not above this time; see [`SeqNo::millis`].
    Time(SystemTime),
}

impl From<SeqNo> for PointInTime {
    fn from(stamp: SeqNo) -> PointInTime {
        PointInTime::Stamp(stamp)
    }
}

impl From<SystemTime> for PointInTime {
    fn from(time: SystemTime) -> PointInTime {
        PointInTime::Time(time)
    }
}

impl PointInTime {
    /// Its time, in milliseconds since 1970; of a time in front of that, 0.
    #[must_use]
    pub fn millis(self) -> u64 {
        match self {
            PointInTime::Stamp(stamp) => stamp.millis(),
            PointInTime::Time(time) => {
                let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
        }
    }

    /// The stamp that it is behind, and the now that is judged by there, where commits up to
    /// `visible` can be seen, and it is `now`.
    pub(in crate::db) fn resolve(self, visible: SeqNo, now: u64) -> Result<AsOf> {
        let (stamp, judged) = match self {
            PointInTime::Stamp(stamp) if stamp > visible => {
                let what = format!("stamp {stamp} is in the future: the newest is {visible}");
                return Err(Error::invalid(what));
            }
            PointInTime::Stamp(stamp) => (stamp, stamp.millis()),
            PointInTime::Time(_) => {
                let millis = self.millis();
                if millis > now.max(visible.millis()) {
                    let what = format!("{millis} ms since 1970 is in the future: it is {now}");
                    return Err(Error::invalid(what));
                }
                (SeqNo::from_parts(millis, u16::MAX).min(visible), millis)
            }
        };
        Ok(AsOf::of(stamp, judged.max(1)))
    }
}

impl KeyspaceState {
    /// As of a past moment, with what the archive says in place of the structure.
    pub(in crate::db) fn get_past(
        &self,
        version: VersionAt,
        key: &[u8],
        as_of: AsOf,
    ) -> Result<Option<Slice>> {
        if self.unarchived.is_some() {
            return self.at_moment(version, as_of.at).get(key, as_of);
        }
        self.runtime.gets.count(0);
        let found = match self.say_of(key, as_of.at) {
            Some(said) => said,
            None => version.find(key, Want::Value)?,
        };
        match found.filter(|found| found.kind != EntryKind::Tombstone) {
            Some(found) if is_operands(found.kind, &found.value) => {
                self.as_past(Arc::new(version)).led_to(key, as_of, found)
            }
            Some(found) if found.kind != EntryKind::Value => self.led_to(key, as_of, found),
            found => Ok(found.map(|found| found.value)),
        }
    }
}

impl Core {
    /// What the archive of a keyspace says as of a stamp, where `visible` is the newest commit.
    pub(in crate::db) fn past_version(
        &self,
        state: &State,
        keyspace: &KeyspaceState,
        (at, visible): (SeqNo, SeqNo),
    ) -> Result<VersionAt> {
        let name = keyspace.runtime.name.load();
        let Some(archive) = &keyspace.runtime.archive else {
            let structure = keyspace.runtime.options.structure.name();
            let what = format!("keyspace {name:?} keeps no versions: it is of {structure}");
            return Err(Error::invalid(what));
        };
        // Both are dropped at once.
        let found = state.find(archive.id).map(|archive| Arc::clone(&archive.version));
        let version = found.ok_or_else(|| Error::KeyspaceNotFound { name: name.to_string() })?;
        // Asked behind the state: what is missing there was noted before.
        let limit = self.limit_at(&keyspace.runtime, archive, (at, visible));
        Ok(VersionAt::new(version, at, self.budget.heap()).within(limit))
    }

    /// The keyspaces that keep their versions, as they were at that moment.
    pub(in crate::db) fn past_moment(&self, at: PointInTime) -> Result<(Arc<State>, AsOf)> {
        let (state, visible) = self.published.load();
        let as_of = at.resolve(visible, self.time.latest())?;
        let mut past = State::default();
        for keyspace in &state.keyspaces {
            if keyspace.keeps_history() {
                let version = self.past_version(&state, keyspace, (as_of.at, visible))?;
                past = past.with(keyspace.at_moment(version, as_of.at));
            }
        }
        past.is_past = true;
        Ok((Arc::new(past), as_of))
    }
}

impl Db {
    /// A moment of the past of all keyspaces of [`Structure::History`](crate::Structure::History):
    /// what they were then, for as long as the snapshot is held. Reading other keyspaces with it is
    /// `InvalidArgument`; one that was created later is empty.
    ///
    /// What expires is there if it had not expired at that moment. What a keyspace does not keep as
    /// of that moment any more, when the snapshot is taken, is [`Error::BeyondRetention`] for who
    /// reads it; what it does keep then stays for as long as the snapshot is held.
    ///
    /// Costs a few reference counts for each of those keyspaces. A read of a key costs a search of
    /// the archive; walking costs going past all versions of each key, and a count of keys walks.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{Db, KeyspaceOptions, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let prices = db.create_keyspace("prices", KeyspaceOptions::history())?;
    /// let first = prices.put("bread", "3.10")?;
    /// prices.put("bread", "3.40")?;
    /// let then = db.snapshot_at(first)?;
    /// assert_eq!(then.get(&prices, "bread")?.as_deref(), Some(&b"3.10"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a moment in the future; `Closed`.
    pub fn snapshot_at(&self, at: impl Into<PointInTime>) -> Result<Snapshot> {
        self.core().check_open()?;
        let (state, as_of) = self.core().past_moment(at.into())?;
        Ok(Snapshot::of(Arc::clone(&self.handle), state, as_of))
    }
}

impl Keyspace {
    /// Whether it keeps versions: [`Structure::History`](crate::Structure::History).
    #[must_use]
    #[inline]
    pub fn keeps_history(&self) -> bool {
        self.runtime().archive.is_some()
    }

    /// The value that `key` had then.
    ///
    /// # Errors
    /// `InvalidArgument` for a moment in the future, and where no versions are kept;
    /// [`Error::BeyondRetention`] for one that the key is not kept as of any more; else as
    /// [`Keyspace::get`].
    pub fn get_at(
        &self,
        key: impl AsRef<[u8]>,
        at: impl Into<PointInTime>,
    ) -> Result<Option<Slice>> {
        let core = self.core();
        core.check_open()?;
        let now = core.time.latest();
        core.published.with(|state, visible| {
            let keyspace = state.find(self.id()).ok_or_else(|| self.not_found())?;
            let as_of = at.into().resolve(visible, now)?;
            let version = core.past_version(state, keyspace, (as_of.at, visible))?;
            version.check_walk()?;
            keyspace.get_past(version, key.as_ref(), as_of)
        })
    }

    /// Key, value, stamp and expiry that `key` had then: see [`Keyspace::get_at`].
    ///
    /// # Errors
    /// As [`Keyspace::get_at`].
    pub fn get_entry_at(
        &self,
        key: impl AsRef<[u8]>,
        at: impl Into<PointInTime>,
    ) -> Result<Option<Entry>> {
        let (keyspace, as_of) = self.past(at.into())?;
        keyspace.get_entry(key.as_ref(), as_of)
    }

    /// The keyspace as it was.
    pub(in crate::db) fn past(&self, at: PointInTime) -> Result<(Arc<KeyspaceState>, AsOf)> {
        let core = self.core();
        core.check_open()?;
        let (state, visible) = core.published.load();
        let keyspace = state.find(self.id()).ok_or_else(|| self.not_found())?;
        let as_of = at.resolve(visible, core.time.latest())?;
        let version = core.past_version(&state, keyspace, (as_of.at, visible))?;
        version.check_walk()?;
        Ok((Arc::new(keyspace.at_moment(version, as_of.at)), as_of))
    }
}
