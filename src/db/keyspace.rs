//! Keyspaces: named ordered maps, as handles.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Expiry, KeyRange, Lifetime, Result, SeqNo, Slice};
use crate::db::Handle;
use crate::db::batch::WriteBatch;
use crate::db::core::Core;
use crate::db::indexes::IndexOf;
use crate::db::iter::{Cursor, Entry, Iter, Keys};
use crate::db::options::Durability;
use crate::db::order::{OtherMoment, Selected};
use crate::db::state::{KeyspaceState, Runtime, Seat};
use crate::db::time::{AsOf, Time};
use crate::manifest::KeyspaceOptions;
use crate::operator::Merging;
use crate::structure::TableInfo;

/// How often a count is tried as of now before it is done for its moment alone.
const MOMENTS_TRIED_MAX: u32 = 8;

/// What there is to know about a keyspace without opening it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyspaceInfo {
    /// Its number; never used twice in a database.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its storage structure: `flex` or `lsm`.
    pub structure: &'static str,
    /// Its options.
    pub options: KeyspaceOptions,
    /// Whether it has a data key of its own; see
    /// [`Db::create_keyspace_with_own_key`](crate::Db::create_keyspace_with_own_key).
    pub has_own_key: bool,
}

/// A named ordered map of byte strings. Cheap to clone; may be used from any thread.
///
/// Reads see every commit that returned before they began. After the keyspace is dropped, every
/// call answers `KeyspaceNotFound`.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let db = lithedb::Db::builder()
/// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
/// let words = db.keyspace_or_create("words")?;
/// words.put("one", "1")?;
/// words.put("two", "2")?;
/// let keys: Result<Vec<_>, _> = words.range("o".."p").map(|entry| Ok(entry?.key)).collect();
/// assert_eq!(keys?, [lithedb::Slice::from(&b"one"[..])]);
/// # Ok::<(), lithedb::Error>(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keyspace {
    handle: Arc<Handle>,
    id: u32,
    seat: Arc<Seat>,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Keyspace {
    pub(super) fn new(handle: Arc<Handle>, keyspace: &KeyspaceState) -> Keyspace {
        Keyspace { handle, id: keyspace.runtime.id, seat: Arc::clone(&keyspace.seat) }
    }

    /// One in which an index is kept.
    pub(super) fn of_index(handle: Arc<Handle>, index: &IndexOf) -> Keyspace {
        Keyspace { handle, id: index.runtime.id, seat: Arc::clone(&index.seat) }
    }

    /// What it has now: another, once it is converted.
    pub(super) fn runtime(&self) -> Arc<Runtime> {
        self.seat.load_full()
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Whether a value of so many bytes goes to the value log.
    #[inline]
    pub(super) fn separates(&self, value_len: usize) -> bool {
        let from = self.seat.load().options.value_separation;
        from.is_some_and(|from| value_len >= from as usize)
    }

    /// Whether a value of so many bytes is put as it is: it does not go to the value log, nor does
    /// it expire unless that is said.
    #[inline]
    pub(super) fn puts_as_it_is(&self, value_len: usize) -> bool {
        value_len < self.seat.plain_below()
    }

    /// The tables of a keyspace of [`Structure::Lsm`](crate::Structure::Lsm), as of now: level by
    /// level, in level 0 the newest run first, each run in the order of keys. Empty in another
    /// structure. Reads nothing from disk.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        self.seat.load().store.tables()
    }

    /// What has expired is judged by this.
    pub(super) fn time(&self) -> &Time {
        &self.handle.core.time
    }

    /// How long what is put is there, unless that is said.
    pub(super) fn default_lifetime(&self) -> Lifetime {
        self.seat.load().options.ttl.map_or(Lifetime::Forever, Lifetime::from)
    }

    /// Checks that entries may expire in it, of which one is about to be put.
    pub(super) fn check_takes_expiry(&self) -> Result<()> {
        if let Some(operator) = &self.seat.load().options.merge_operator {
            let what = format!(
                "keyspace {:?} has the merge operator {operator:?}: nothing in it can expire",
                self.name()
            );
            return Err(Error::invalid(what));
        }
        self.core().time.note_used();
        Ok(())
    }

    /// Whether its keys have to be such as an archive of versions takes.
    #[inline]
    pub(super) fn limits_archived_keys(&self) -> bool {
        self.seat.limits_archived_keys()
    }

    /// Says whether they have to.
    pub(super) fn limit_archived_keys(&self, limit: bool) {
        self.seat.limit_archived_keys(limit);
    }

    /// How often keyspaces have begun to.
    #[inline]
    pub(super) fn key_limits_begun(&self) -> u64 {
        self.handle.core.key_limits_begun.load(Ordering::Acquire)
    }

    /// How operands are merged in it.
    pub(super) fn merging(&self) -> Arc<Merging> {
        Arc::clone(self.seat.load().store.merging())
    }

    /// Whether `operand` may be merged into `key`. Reads only what could not be merged before.
    pub(super) fn check_merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.merging().check(operand)?;
        if self.merging().is_stuck(key) {
            return self.check_stuck(key);
        }
        Ok(())
    }

    #[cold]
    fn check_stuck(&self, key: &[u8]) -> Result<()> {
        match self.get(key) {
            Ok(_) => self.merging().note_read(key),
            // Reading it has noted it again, if it is still so.
            Err(error @ Error::MergeFailed { .. }) if self.merging().is_stuck(key) => {
                return Err(Error::invalid(format!(
                    "the key takes no more operands: those that it has cannot be merged: {error}"
                )));
            }
            Err(_) => {} // The commit tells what it is.
        }
        Ok(())
    }

    pub(super) fn core(&self) -> &Core {
        &self.handle.core
    }

    /// Its name now; it may be renamed.
    #[must_use]
    pub fn name(&self) -> String {
        self.seat.name().load().to_string()
    }

    /// [`Keyspace::name`] without a copy.
    pub(super) fn shared_name(&self) -> Arc<String> {
        self.seat.name().load_full()
    }

    /// Its number, which stays when it is renamed or converted.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Which opening of which database it belongs to.
    pub(super) fn opening(&self) -> u64 {
        self.core().opening
    }

    pub(super) fn not_found(&self) -> Error {
        Error::KeyspaceNotFound { name: self.name() }
    }

    /// Sets `key` to `value` with the database's default durability; returns the commit's stamp. In
    /// a keyspace with a [`ttl`](KeyspaceOptions::ttl) it expires after that, counted from the
    /// stamp.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.put_with(key, value, self.core().default_durability())
    }

    /// Sets `key` to `value`; returns the commit's stamp.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`].
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.put(self, key, value);
        self.core().commit(batch, durability)
    }

    /// Sets `key` to `value`, which expires when `ttl` has passed since the commit's stamp, with
    /// the database's default durability. From then on the key is not there, as if it had been
    /// deleted, for every read that begins then; its room is given back later. Overwriting the key,
    /// or deleting it, ends that: the later write counts.
    ///
    /// Counted in milliseconds, rounded up. With a `ttl` of zero the key is not there at once. One
    /// that would end behind the year 10889 ends there.
    ///
    /// Time is that of the clock, but never goes back while the database is open, and when it is
    /// opened again it is not before the newest stamp (nor, if it was closed, before any moment
    /// that was judged by): what has expired by then stays so. A clock that is set back beyond that
    /// shows it again, if its room was not given back; a clock that is far ahead makes everything
    /// expire.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use std::{sync::Arc, time::Duration};
    /// # use lithedb::{Db, base::ManualClock, storage::MemoryStorage};
    /// # let clock = Arc::new(ManualClock::at_millis(1_700_000_000_000));
    /// # let builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
    /// # let db = builder.clock(Arc::clone(&clock) as Arc<_>).open("/db")?;
    /// let sessions = db.keyspace_or_create("sessions")?;
    /// sessions.put_with_ttl("ada", "token", Duration::from_secs(60))?;
    /// assert!(sessions.contains("ada")?);
    /// # clock.advance(Duration::from_secs(60)); // a minute later
    /// assert!(!sessions.contains("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when the keyspace has a merge operator; as [`crate::Db::write_with`].
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.put_with_ttl(self, key, value, ttl);
        self.core().commit(batch, self.core().default_durability())
    }

    /// Sets `key` to `value`, which expires then, as [`Keyspace::put_with_ttl`] does; a time that
    /// is past already says that the key is not there. [`Expiry::Never`] makes one that does not
    /// expire, also where the keyspace has a [`ttl`](KeyspaceOptions::ttl).
    ///
    /// # Errors
    /// As [`Keyspace::put_with_ttl`].
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.put_until(self, key, value, expiry);
        self.core().commit(batch, self.core().default_durability())
    }

    /// Merges `operand` into the value of `key`, with the database's default durability; returns
    /// the commit's stamp. What that makes of the value is up to the keyspace's merge operator
    /// ([`KeyspaceOptions::merge_operator`]). The key is there from then on, with that stamp.
    ///
    /// Nothing is read, unless the keyspace has indexes: it costs what a [`Keyspace::put`] of the
    /// operand costs. Who reads the key merges; flushes and consolidation leave the value behind.
    /// Where that is in the value log, each consolidation that has operands for it reads and writes
    /// it whole.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{Db, KeyspaceOptions, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let options = KeyspaceOptions::flex().merge_operator("counter");
    /// let visits = db.create_keyspace("visits", options)?;
    /// visits.merge("home", 2u64.to_le_bytes())?;
    /// visits.merge("home", 3u64.to_le_bytes())?;
    /// assert_eq!(visits.get("home")?.as_deref(), Some(&5u64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when the keyspace has no merge operator, or the operator refuses the
    /// operand, or `key` has so many operands that it fails at that no more are taken (more than
    /// 64 MiB, as far as they were read or flushed); `MergeOperatorMissing`. Nothing has changed.
    /// Else as [`crate::Db::write_with`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.merge_with(key, operand, self.core().default_durability())
    }

    /// As [`Keyspace::merge`], with a durability.
    ///
    /// # Errors
    /// As [`Keyspace::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.merge(self, key, operand);
        self.core().commit(batch, durability)
    }

    /// Deletes `key`, whether it is there or not, with the database's default durability.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.delete_with(key, self.core().default_durability())
    }

    /// Deletes `key`, whether it is there or not.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.delete(self, key);
        self.core().commit(batch, durability)
    }

    /// Deletes all keys in `range`, with the database's default durability. Costs the same however
    /// many there are; their room is given back when the memtable is flushed, without reading them.
    /// In a keyspace with indexes all of them are read, and their index entries deleted one by one,
    /// in memory until it is committed: so large ranges are to be deleted in parts there, but for
    /// everything; and it is tried again for as long as others write into the range meanwhile.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`].
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.delete_range(self, range);
        self.core().commit(batch, self.core().default_durability())
    }

    /// Deletes all keys that start with `prefix`, as [`Keyspace::delete_range`] does.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        batch.delete_prefix(self, prefix);
        self.core().commit(batch, self.core().default_durability())
    }

    /// Deletes everything, as [`Keyspace::delete_range`] does.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`].
    pub fn clear(&self) -> Result<SeqNo> {
        self.delete_prefix(b"")
    }

    /// The value of `key`. At most one interval is read from disk, and one large value.
    ///
    /// # Errors
    /// `Io`, or `Corruption` with file and offset, when what should hold the key cannot be read;
    /// `MergeOperatorMissing`, `MergeFailed` when something was merged into the value and it cannot
    /// be told what that makes; `KeyspaceNotFound`, `Closed`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read(|state, as_of| state.get(key.as_ref(), as_of))
    }

    /// Key, value, stamp and expiry of `key`.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        self.read(|state, as_of| state.get_entry(key.as_ref(), as_of))
    }

    /// When `key` expires; `None` if it is not there. No value is read from the value log.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let found = self.read(|state, as_of| state.expiry(key.as_ref(), as_of))?;
        Ok(found.map(Expiry::from_moment))
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.read(|state, as_of| state.contains(key.as_ref(), as_of))
    }

    /// The values of `keys`, in their order, all as of one moment.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.core().check_open()?;
        let (keyspace, as_of) = self.core().moment_of(self.id()).ok_or_else(|| self.not_found())?;
        keyspace.multi_get(keys, as_of)
    }

    /// Number of keys in `range`, exactly, and without walking over them: O(log n), microseconds,
    /// and two blocks are read.
    ///
    /// What is still in memtables is looked up: keys in the range, if they are few; else all that
    /// the memtables hold, once, which takes some 0.5 to 1 us each (more if it has to be read from
    /// disk), is kept, and brought up to date by later counts for the keys that were written since.
    /// While memtables delete ranges nothing is kept, and each count looks up all keys in its range
    /// that they hold. Intervals with changes that were not consolidated yet are read the first
    /// time.
    ///
    /// What has expired is not counted. While it takes room, each interval that has some costs a
    /// search, and is read the first time: consolidation sees to it that they do not become many.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn count<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        let range = KeyRange::new(&range);
        self.count_at_some_moment(|state, as_of, other| state.count(&range, as_of, other))
    }

    /// Number of keys, exactly; see [`Keyspace::count`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn len(&self) -> Result<u64> {
        self.count::<&[u8]>(..)
    }

    /// Whether there are no keys. No value is read for it.
    ///
    /// # Errors
    /// As [`Keyspace::count`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.iter().keys().next().transpose()?.is_none())
    }

    /// Number of keys below `key`, whether it is there or not; see [`Keyspace::count`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn rank(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.count_at_some_moment(|state, as_of, other| state.rank(key.as_ref(), as_of, other))
    }

    /// The entry with `rank` keys below it: of rank 0 the first, of rank 1 the second; see
    /// [`Keyspace::count`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn select(&self, rank: u64) -> Result<Option<Entry>> {
        let found =
            self.count_at_some_moment(|state, as_of, other| state.select(rank, as_of, other));
        found.map(|Selected(entry)| entry)
    }

    /// Keys that part `range` into up to `count` ranges of about as many entries each, ascending:
    /// to work on them side by side. Each key begins a part; the first part begins with the range.
    /// Fewer, if there are few intervals; what is in memtables is not looked at, and what is
    /// overwritten or deleted counts until it is consolidated. Reads nothing, takes microseconds.
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `Closed`.
    pub fn split<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        count: usize,
    ) -> Result<Vec<Vec<u8>>> {
        self.read(|state, _| Ok(state.split_keys(&KeyRange::new(&range), count)))
    }

    /// Up to `count` entries with keys in `range`, drawn at random, each with the same chance and
    /// once, in order. Costs a [`Keyspace::select`] for each.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn sample<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        count: usize,
    ) -> Result<Vec<Entry>> {
        let (range, entropy) = (KeyRange::new(&range), &*self.core().entropy);
        self.count_at_some_moment(|state, as_of, other| {
            state.sample(&range, count, entropy, (as_of, other))
        })
    }

    /// Counts as of now. Another thread may have counted as of a later moment than the one that is
    /// counted here: then as of that, or a later one still.
    fn count_at_some_moment<T>(
        &self,
        count: impl Fn(&Arc<KeyspaceState>, AsOf, OtherMoment) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            self.core().check_open()?;
            let moment = self.core().moment_of(self.id());
            let (keyspace, as_of) = moment.ok_or_else(|| self.not_found())?;
            let is_last = tries == MOMENTS_TRIED_MAX;
            let other = if is_last { OtherMoment::LookUp } else { OtherMoment::Refuse };
            if let Some(found) = count(&keyspace, as_of, other)? {
                return Ok(found);
            }
            tries += 1;
            crate::base::sync::thread::yield_now(); // What was counted elsewhere becomes visible.
        }
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn first(&self) -> Result<Option<Entry>> {
        self.iter().next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn last(&self) -> Result<Option<Entry>> {
        self.iter().next_back().transpose()
    }

    /// All entries, as of now.
    #[must_use]
    pub fn iter(&self) -> Iter {
        Iter::new(self.cursor(KeyRange::all()))
    }

    /// The entries with keys in `range`, as of now.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        Iter::new(self.cursor(KeyRange::new(&range)))
    }

    /// The entries whose keys start with `prefix`, as of now.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self.cursor(KeyRange::prefix(prefix.as_ref())))
    }

    /// The keys in `range`, as of now: no value is read from the value log.
    #[must_use]
    pub fn keys<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Keys {
        self.range(range).keys()
    }

    /// A cursor over the entries with keys in `range`, as of now: the fastest way to walk. Errors,
    /// also that the keyspace is gone, are told when it moves.
    #[must_use]
    pub fn cursor(&self, range: KeyRange) -> Cursor {
        if let Err(error) = self.core().check_open() {
            return Cursor::refusing(error);
        }
        match self.core().moment_of(self.id()) {
            Some((keyspace, as_of)) => Cursor::new(keyspace, as_of, range),
            None => Cursor::refusing(self.not_found()),
        }
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&KeyspaceState, AsOf) -> Result<T>,
    ) -> Result<T> {
        self.core().check_open()?;
        self.core().published.with(|state, at| match state.find(self.id()) {
            Some(keyspace) => read(keyspace, AsOf::newest(at)),
            None => Err(self.not_found()),
        })
    }
}
