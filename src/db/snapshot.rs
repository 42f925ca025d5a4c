//! Snapshots: one moment of the whole database, for as long as it is held.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeBounds;
use std::time::{Duration, SystemTime};

use crate::base::sync::{Arc, Mutex};
use crate::base::{Error, Expiry, KeyRange, Result, SeqNo, Slice};
use crate::db::Handle;
use crate::db::core::lock;
use crate::db::iter::{Cursor, Entry, Iter};
use crate::db::keyspace::Keyspace;
use crate::db::order::{OtherMoment, Selected, looked_up};
use crate::db::state::{KeyspaceState, State};
use crate::db::time::AsOf;
use crate::db::values::ValueReader;

/// One moment of all keyspaces: what was there when it was taken, and had not expired by then, is
/// there for as long as it is held. Cheap to clone. While it is held, memtables and files that only
/// it needs are kept (see [`crate::Stats`]); it slows nobody down.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let db = lithedb::Db::builder()
/// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
/// let counts = db.keyspace_or_create("counts")?;
/// counts.put("a", "1")?;
/// let before = db.snapshot();
/// counts.put("a", "2")?;
/// assert_eq!(before.get(&counts, "a")?.as_deref(), Some(&b"1"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    moment: Arc<Moment>,
}

struct Moment {
    handle: Arc<Handle>,
    state: Arc<State>,
    as_of: AsOf,
    /// Its number in the register.
    number: u64,
}

impl Moment {
    /// Whether it shows keyspaces as they were before the snapshot was taken.
    fn is_past(&self) -> bool {
        self.state.is_past
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let core = &self.handle.core;
        if core.is_forked() {
            std::mem::forget(Arc::clone(&self.state)); // As `Handle` does.
            return;
        }
        core.snapshots.remove(self.number);
        if !core.published.is_current(&self.state) {
            core.workers.wake(); // What only this snapshot kept can go.
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seqno", &self.seqno()).finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(super) fn new(handle: Arc<Handle>) -> Snapshot {
        let (state, as_of) = handle.core.moment();
        Snapshot::of(handle, state, as_of)
    }

    /// One of this state.
    pub(super) fn of(handle: Arc<Handle>, state: Arc<State>, as_of: AsOf) -> Snapshot {
        let number = handle.core.snapshots.add(handle.core.clock.monotonic());
        Snapshot { moment: Arc::new(Moment { handle, state, as_of, number }) }
    }

    /// The newest commit that it shows.
    #[must_use]
    pub fn seqno(&self) -> SeqNo {
        self.moment.as_of.at
    }

    /// The time that it shows: what expires later than that is there. While nothing in the
    /// database expires nobody looks at the clock, and it is that of the newest commit, or of the
    /// opening if that was later.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        let Moment { handle, as_of, .. } = &*self.moment;
        let now = match as_of.judged_now() {
            0 => as_of.at.millis().max(handle.core.time.began()),
            now => now.max(as_of.at.millis()),
        };
        SystemTime::UNIX_EPOCH + Duration::from_millis(now)
    }

    /// What its reads are as of.
    pub(super) fn as_of(&self) -> AsOf {
        self.moment.as_of
    }

    /// All keyspaces at that moment.
    pub(super) fn state(&self) -> &Arc<State> {
        &self.moment.state
    }

    /// What a keyspace was made of at that moment.
    pub(super) fn keyspace_state(&self, keyspace: &Keyspace) -> Result<&Arc<KeyspaceState>> {
        let core = &self.moment.handle.core;
        core.check_process()?;
        let same_database = keyspace.opening() == core.opening;
        let found = self.moment.state.find(keyspace.id()).filter(|_| same_database);
        match found {
            Some(found) => Ok(found),
            None if same_database && self.moment.is_past() && !keyspace.keeps_history() => {
                let name = keyspace.name();
                let what = format!("keyspace {name:?} keeps no versions: it has no past to show");
                Err(Error::invalid(what))
            }
            None => Err(keyspace.not_found()),
        }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `KeyspaceNotFound` when the keyspace was not there at that moment.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.keyspace_state(keyspace)?.get(key.as_ref(), self.moment.as_of)
    }

    /// The value of `key`, to be read in parts; see [`Keyspace::get_reader`]. It outlives the
    /// snapshot.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_reader(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<ValueReader>> {
        let value = self.keyspace_state(keyspace)?.open_value(key.as_ref(), self.moment.as_of)?;
        Ok(value.map(ValueReader::new))
    }

    /// Key, value and stamp of `key`.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_entry(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        self.keyspace_state(keyspace)?.get_entry(key.as_ref(), self.moment.as_of)
    }

    /// When `key` expires; `None` if it is not there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn expiry(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let found = self.keyspace_state(keyspace)?.expiry(key.as_ref(), self.moment.as_of)?;
        Ok(found.map(Expiry::from_moment))
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.keyspace_state(keyspace)?.contains(key.as_ref(), self.moment.as_of)
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        self.keyspace_state(keyspace)?.multi_get(keys, self.moment.as_of)
    }

    /// Number of keys in `range`; see [`Keyspace::count`]. When the keyspace was counted as of
    /// later moments, each count looks up all keys in its range that the memtables held.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn count<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<u64> {
        let (state, as_of) = (self.keyspace_state(keyspace)?, self.moment.as_of);
        looked_up(state.count(&KeyRange::new(&range), as_of, OtherMoment::LookUp))
    }

    /// Number of keys below `key`; see [`Keyspace::rank`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn rank(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<u64> {
        let (state, as_of) = (self.keyspace_state(keyspace)?, self.moment.as_of);
        looked_up(state.rank(key.as_ref(), as_of, OtherMoment::LookUp))
    }

    /// The entry with `rank` keys below it; see [`Keyspace::select`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn select(&self, keyspace: &Keyspace, rank: u64) -> Result<Option<Entry>> {
        let (state, as_of) = (self.keyspace_state(keyspace)?, self.moment.as_of);
        looked_up(state.select(rank, as_of, OtherMoment::LookUp)).map(|Selected(entry)| entry)
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn first(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.iter(keyspace).next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn last(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.iter(keyspace).next_back().transpose()
    }

    /// All entries.
    #[must_use]
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        Iter::new(self.cursor(keyspace, KeyRange::all()))
    }

    /// The entries with keys in `range`.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        Iter::new(self.cursor(keyspace, KeyRange::new(&range)))
    }

    /// The entries whose keys start with `prefix`.
    #[must_use]
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self.cursor(keyspace, KeyRange::prefix(prefix.as_ref())))
    }

    /// A cursor over the entries with keys in `range`. Errors are told when it moves.
    #[must_use]
    pub fn cursor(&self, keyspace: &Keyspace, range: KeyRange) -> Cursor {
        match self.keyspace_state(keyspace) {
            Ok(found) => Cursor::new(Arc::clone(found), self.moment.as_of, range),
            Err(error) => Cursor::refusing(error),
        }
    }
}

/// The snapshots that are held, for `stats`.
#[derive(Debug, Default)]
pub(super) struct SnapshotRegister {
    held: Mutex<(u64, BTreeMap<u64, Duration>)>,
}

impl SnapshotRegister {
    fn add(&self, now: Duration) -> u64 {
        let mut held = lock(&self.held);
        held.0 += 1;
        let number = held.0;
        held.1.insert(number, now);
        number
    }

    fn remove(&self, number: u64) {
        lock(&self.held).1.remove(&number);
    }

    /// How many there are, and how old the oldest is.
    pub(super) fn summary(&self, now: Duration) -> (u64, Option<Duration>) {
        let held = lock(&self.held);
        let oldest = held.1.values().next().map(|taken| now.saturating_sub(*taken));
        (held.1.len() as u64, oldest)
    }
}
