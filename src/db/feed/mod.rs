//! The change feed: the commits of the database, in order, with what each has written; and who
//! follows it by name.
//!
//! A feed reads the log behind the commits: what recovery needs of it, and the files in front that
//! are kept. It holds no lock while it reads, and costs a commit one look at whether somebody
//! waits. A feed that asks for more than the log has goes on from the versions of keyspaces of the
//! structure `History`, if it is of these alone; also one that was left behind while it was open.
//!
//! Invariants
//! - F1  Commits come in the order of their stamps, each once, and none is left out but those of
//!   which nothing is asked for: whoever goes on behind a stamp misses none and sees none twice, or
//!   is told that they are not kept.
//! - F2  The log is held from where the slowest consumer has durably said it is; a consumer may
//!   say so of what is durable alone. One that is further behind than it may is not waited for:
//!   reckoned from what it has durably said, with room for what it has said since, so that a crash
//!   makes nobody too far behind who was not.
//! - F3  A feed does not wait under the lock of its signal for another lock: who signals has the
//!   applier's.
//! - F4  Who asks for what is durable is told nothing else, from wherever it is told, and its
//!   position is in front of all that is not.

mod consumer;
mod decode;
mod past;
mod signal;

pub(super) use consumer::Acknowledged;
pub use consumer::{Consumer, ConsumerInfo};
pub(super) use decode::{Names, changes_of};
pub(super) use signal::FeedSignal;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use self::past::PastCommits;
use crate::base::{Error, Result, SeqNo, Slice};
use crate::db::commits::not_a_commit;
use crate::db::core::Core;
use crate::db::history::PointInTime;
use crate::db::keyspace::Keyspace;
use crate::db::operation::{decode_record, decode_stamp};
use crate::db::{Db, Handle};
use crate::wal::{Lsn, RecordReader, RecordRef};

/// What a feed is to show; see [`Db::changes`]. Default: every commit, as soon as it is visible,
/// without previous values.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct FeedOptions {
    /// Numbers of keyspaces; `None` for all.
    keyspaces: Option<BTreeSet<u32>>,
    previous: bool,
    pub(super) durable_only: bool,
}

impl FeedOptions {
    /// Every commit, as soon as it is visible, without previous values.
    pub fn new() -> FeedOptions {
        FeedOptions::default()
    }

    /// Only changes of these keyspaces, and only commits that have some.
    pub fn keyspaces<'k>(mut self, keyspaces: impl IntoIterator<Item = &'k Keyspace>) -> Self {
        self.keyspaces = Some(keyspaces.into_iter().map(Keyspace::id).collect());
        self
    }

    /// What keys had before, of keyspaces that keep it ([`crate::Structure::History`]). Costs a
    /// read of the past for each change there.
    pub fn previous_values(mut self, previous: bool) -> Self {
        self.previous = previous;
        self
    }

    /// Only commits that a loss of power cannot take any more: those written with
    /// [`crate::Durability::Buffered`] come with the next sync.
    pub fn durable_only(mut self, durable_only: bool) -> Self {
        self.durable_only = durable_only;
        self
    }

    fn asks_for(&self, keyspace: u32) -> bool {
        self.keyspaces.as_ref().is_none_or(|chosen| chosen.contains(&keyspace))
    }
}

/// A commit with what it has written. Keys and values share one copy of its record in the log, if
/// that has up to 1 MiB: who keeps one of them for long does better to copy it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitChanges {
    /// Its stamp.
    pub seqno: SeqNo,
    /// What was kept with it ([`crate::WriteBatch::set_payload`]); `None` also where the commit
    /// itself is not in the log any more, and its changes are known from versions.
    pub payload: Option<Vec<u8>>,
    /// What was written, in the order of the batch, of the keyspaces that were asked for. Of a
    /// commit that versions alone tell of, in the order of keys.
    pub changes: Vec<Change>,
}

/// Something that a commit has written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The number of the keyspace.
    pub keyspace_id: u32,
    /// Its name now; `None` if it was dropped since.
    pub keyspace: Option<Arc<str>>,
    /// What was done.
    pub kind: ChangeKind,
    /// What the key had in front of the commit.
    pub previous: Previous,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A value was put.
    Put {
        /// The key.
        key: Slice,
        /// The value; `None` if it was large and is gone: overwritten or deleted since, which a
        /// later change says, or expired, or its keyspace dropped.
        value: Option<Slice>,
        /// When it expires, in milliseconds since 1970.
        expires_at: Option<u64>,
    },
    /// The key was deleted, whether it was there or not.
    Delete {
        /// The key.
        key: Slice,
    },
    /// All keys of a range were deleted.
    DeleteRange {
        /// The first key.
        start: Slice,
        /// The first key behind; `None` for no end.
        end: Option<Slice>,
    },
    /// An operand was merged into the key's value.
    Merge {
        /// The key.
        key: Slice,
        /// The operand.
        operand: Slice,
    },
}

/// What a key had in front of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Previous {
    /// It was not asked for, its keyspace keeps no versions, or not that one any more, its operands
    /// cannot be merged, or it is a range's.
    Unknown,
    /// Nothing.
    Absent,
    /// This.
    Value(Slice),
}

/// Commits behind a stamp, as far as there are any, and those to come; see [`Db::changes`].
///
/// As an iterator it ends where there are no more commits for now, and goes on when there are.
/// An item is an error when the log is damaged (`Corruption` with file and offset) or cannot be
/// read (`Io`), when commits that it has not come to are not kept any more (`CommitsNotKept`), nor
/// told by versions (for which keyspaces are flushed, as by [`Db::changes`], with the errors of
/// that), or the database was closed (`Closed`); asked again, it tries again. Holds the log files
/// that it knew of when it last looked and has not come to the end of, and memory for 256 KiB of
/// log, or one commit where that is larger.
#[derive(Debug)]
pub struct ChangeFeed {
    handle: Arc<Handle>,
    options: FeedOptions,
    /// Whether versions tell what the log has not any more, if they can.
    may_ask_versions: bool,
    /// Commits in front of what the log has are told by versions, up to this stamp.
    past_to: Option<SeqNo>,
    /// Where that is, once begun.
    past: Option<PastCommits>,
    reader: RecordReader,
    /// Everything up to this stamp was shown, or is not asked for.
    position: SeqNo,
    /// Where the last record that was read ends.
    lsn: Lsn,
    names: Names,
}

/// What a look for the next commit has come to.
#[derive(Debug)]
enum Look {
    Commit(CommitChanges),
    /// There may be more by now.
    Again,
    Nothing,
}

impl Db {
    /// The commits behind a moment, in their order, with what each has written: behind a stamp
    /// ([`SeqNo::ZERO`] for all), or behind the commits up to a time. Who stores the stamp of the
    /// commit that was worked off last goes on there, and misses none and sees none twice.
    ///
    /// The log has a commit until it is flushed, then for as long as
    /// [`crate::Builder::kept_log_size`] keeps its file, or a [`Consumer`] does. Older ones can be
    /// shown if all keyspaces that are asked for ([`FeedOptions::keyspaces`]) keep their versions:
    /// then each deleted range is a deletion of each key that it deleted, and what was merged into
    /// a key is a put of the value that it made, or the merges where that cannot be made.
    ///
    /// After a crash a stored stamp may be that of a commit which the crash took, and is refused:
    /// who copies commits to elsewhere asks for durable ones alone ([`FeedOptions::durable_only`]).
    ///
    /// Costs some reads to find the first commit, and reading the log from the beginning of its
    /// file on; behind that the log is read once. Names of keyspaces are those of now; that
    /// keyspaces were created, renamed or dropped is no change here, and what a bulk ingest brings
    /// ([`Keyspace::begin_ingest`]) does not go through the log, and is none.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{ChangeKind, Db, FeedOptions, SeqNo, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let fruit = db.keyspace_or_create("fruit")?;
    /// let mut feed = db.changes(SeqNo::ZERO, FeedOptions::new())?;
    /// let stamp = fruit.put("apple", "red")?;
    /// let commit = feed.next().expect("there was a commit")?;
    /// assert_eq!(commit.seqno, stamp);
    /// let ChangeKind::Put { key, value, .. } = &commit.changes[0].kind else { panic!() };
    /// assert_eq!((&**key, value.as_deref()), (&b"apple"[..], Some(&b"red"[..])));
    /// assert!(feed.next().is_none(), "there is no other yet");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a moment in the future, and for what a follower shows, which has
    /// [`crate::Follower::changes`]. `CommitsNotKept` when commits behind the moment may be gone
    /// from the log, and versions do not tell of them. Where versions do, the keyspaces are flushed
    /// first, with the errors of [`Db::flush`]: so in a database that is opened for reading alone
    /// `ReadOnly` when there is something to be flushed, or an ingest that is not archived.
    /// `Corruption`, `Io`, `Closed`.
    pub fn changes(
        &self,
        since: impl Into<PointInTime>,
        options: FeedOptions,
    ) -> Result<ChangeFeed> {
        let core = self.core();
        let since = since.into().resolve(core.visible(), core.time.latest())?.at;
        ChangeFeed::open(&self.handle, since, options)
    }
}

impl ChangeFeed {
    fn open(handle: &Arc<Handle>, since: SeqNo, options: FeedOptions) -> Result<ChangeFeed> {
        let core = &handle.core;
        let reader = core.log_behind(since)?;
        let is_from_birth = reader.position() == Lsn::ZERO;
        let first = if is_from_birth { None } else { first_stamp(&reader)? };
        let mut feed = ChangeFeed::from_log(handle, since, options, reader);
        feed.may_ask_versions = true;
        // What was visible before that is in the log from there on, or in structures.
        let (visible, end) = core.log_place();
        let has_all_from = |place| core.log.has_all_from(place);
        if is_from_birth || core.has_commits_behind(since, first, has_all_from) {
            return Ok(feed);
        }
        // Of the two, the log knows more of a commit.
        let to = first.map_or(visible, |first| SeqNo::from_u64(first.as_u64() - 1));
        feed.past = PastCommits::open(handle, &feed.options, since, to)?;
        if feed.past.is_none() {
            return Err(Error::CommitsNotKept { oldest: first });
        }
        if feed.options.durable_only {
            core.sync_to(end)?; // F4: the position comes to be `to`, whatever was flushed for it.
        }
        feed.past_to = Some(to);
        Ok(feed)
    }

    /// A feed of what the log has of commits behind a stamp, read by this reader.
    fn from_log(
        handle: &Arc<Handle>,
        since: SeqNo,
        options: FeedOptions,
        mut reader: RecordReader,
    ) -> ChangeFeed {
        let lsn = reader.position();
        if options.durable_only {
            reader.end_at(handle.core.log.durable()); // F4
        }
        ChangeFeed {
            handle: Arc::clone(handle),
            options,
            may_ask_versions: false,
            past_to: None,
            past: None,
            reader,
            position: since,
            lsn,
            names: Names::default(),
        }
    }

    /// Everything up to this stamp was shown, or is not asked for: a feed that is opened behind it
    /// goes on where this one is.
    #[must_use]
    pub fn position(&self) -> SeqNo {
        self.position
    }

    /// The next commit; `None` when none comes within `timeout`. Does not use the processor while
    /// it waits, but with [`FeedOptions::durable_only`] for a sync, for which it looks a hundred
    /// times a second. Keeps the database open while it waits: [`Db::close`] ends that.
    ///
    /// # Errors
    /// As those of the iterator; `Closed` also when the database is closed meanwhile.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<CommitChanges>> {
        const LOOK_FOR_SYNC: Duration = Duration::from_millis(10);
        let handle = Arc::clone(&self.handle);
        let core = &handle.core;
        let mut left = timeout;
        // What is there when the time is over is looked through once.
        let mut is_last_look = false;
        loop {
            let began = core.clock.monotonic();
            // In front of the look: what comes behind it is signalled.
            let ticket = core.log.await_commit(self.reader.end());
            match (self.look()?, ticket) {
                (Look::Commit(commit), _) => return Ok(Some(commit)),
                (Look::Nothing, _) if left.is_zero() => return Ok(None),
                (Look::Again, _) if is_last_look => return Ok(None),
                (Look::Again, _) => is_last_look = left.is_zero(),
                (Look::Nothing, Some(ticket)) => {
                    if core.log.feeds.wait(ticket, left) {
                        left = Duration::ZERO; // Whatever the clock says.
                    }
                }
                (Look::Nothing, None) if self.options.durable_only => {
                    crate::base::sync::thread::sleep(LOOK_FOR_SYNC.min(left));
                    left = left.saturating_sub(LOOK_FOR_SYNC);
                    continue;
                }
                (Look::Nothing, None) => {} // Something came meanwhile.
            }
            left = left.saturating_sub(core.clock.monotonic().saturating_sub(began));
        }
    }

    /// The next commit that is there.
    fn next_commit(&mut self) -> Result<Option<CommitChanges>> {
        loop {
            match self.look()? {
                Look::Commit(commit) => return Ok(Some(commit)),
                Look::Again => {}
                Look::Nothing => return Ok(None),
            }
        }
    }

    /// Looks for the next commit: through all that is known of, and then for what else there is.
    fn look(&mut self) -> Result<Look> {
        self.handle.core.check_open()?; // Else the files may be another opening's.
        if let Some(commit) = self.next_of_past()? {
            return Ok(Look::Commit(commit));
        }
        match self.read()? {
            Some(commit) => Ok(Look::Commit(commit)),
            None => Ok(if self.go_on()? { Look::Again } else { Look::Nothing }),
        }
    }

    /// The next commit of those that versions tell of.
    fn next_of_past(&mut self) -> Result<Option<CommitChanges>> {
        let Some(to) = self.past_to else { return Ok(None) };
        let begun = match self.past.take() {
            Some(begun) => Some(begun),
            None => PastCommits::open(&self.handle, &self.options, self.position, to)?,
        };
        let Some(mut past) = begun else {
            // A keyspace was dropped, or keeps them no longer.
            return Err(self.not_kept()?);
        };
        // Behind an error, where some of a commit may have been read, it is begun again.
        let commit = past.next_commit()?;
        match &commit {
            Some(commit) => {
                self.position = commit.seqno;
                self.past = Some(past);
            }
            None => {
                self.position = self.position.max(to);
                self.past_to = None;
            }
        }
        Ok(commit)
    }

    /// What is said of commits that nothing tells of any more: with the first one behind them that
    /// there is, from which on a feed can begin.
    fn not_kept(&self) -> Result<Error> {
        let oldest = first_stamp(&self.handle.core.log_behind(self.position)?)?;
        Ok(Error::CommitsNotKept { oldest })
    }

    /// Looks for what was committed since; whether there is something.
    fn go_on(&mut self) -> Result<bool> {
        let core = &self.handle.core;
        let mut end = core.log.lock_applier().applied();
        if self.options.durable_only {
            end = end.min(core.log.durable());
        }
        if end <= self.reader.end() {
            return Ok(false);
        }
        if core.log.extend(&mut self.reader, end) {
            return Ok(true);
        }
        if !self.may_ask_versions {
            return Err(self.not_kept()?);
        }
        // The log went on without it: as who comes anew behind what it has come to.
        let anew = ChangeFeed::open(&self.handle, self.position, self.options.clone())?;
        *self = ChangeFeed { names: std::mem::take(&mut self.names), ..anew };
        Ok(true)
    }

    /// The next commit of the log that has something that is asked for.
    fn read(&mut self) -> Result<Option<CommitChanges>> {
        let handle = Arc::clone(&self.handle);
        // Closed in between, it may be another opening that wrote where this one read.
        let judged = |error| match handle.core.check_open() {
            Ok(()) => error,
            Err(closed) => closed,
        };
        loop {
            let Some(record) = self.reader.next_record().map_err(judged)? else {
                return Ok(None);
            };
            let (lsn, end) = (record.lsn, record.end);
            let (options, names) = (&self.options, &mut self.names);
            let read = match decode_record(record.payload) {
                None => Err(not_a_commit(&record)),
                Some(commit) if commit.seqno <= self.position => Ok((commit.seqno, None)),
                Some(commit) => {
                    let seqno = commit.seqno;
                    let commit = (record.payload, commit);
                    let changes = changes_of(&handle.core, options, names, commit);
                    let changes = changes.map(|changes| (seqno, changes));
                    changes.map_err(|error| error.unwrap_or_else(|| not_a_commit(&record)))
                }
            };
            let (seqno, found) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.reader.go_back(lsn); // F1: it was not shown.
                    return Err(judged(error));
                }
            };
            self.lsn = end;
            self.position = self.position.max(seqno);
            if found.is_some() {
                return Ok(found);
            }
        }
    }
}

impl Core {
    /// A reader of what the log has of commits behind a stamp; it may begin with some of before.
    fn log_behind(&self, since: SeqNo) -> Result<RecordReader> {
        self.check_open()?;
        self.check_has_log()?;
        let mut reader = self.log_reader();
        reader.skip_files(&mut |record| {
            let stamp = decode_stamp(record.payload).ok_or_else(|| not_a_commit(record))?;
            Ok(stamp <= since)
        })?;
        Ok(reader)
    }
}

/// The stamp of the first commit from the beginning of the file on in which the reader is.
fn first_stamp(reader: &RecordReader) -> Result<Option<SeqNo>> {
    let mut reader = reader.start_of_file();
    let stamp =
        |first: RecordRef<'_>| decode_stamp(first.payload).ok_or_else(|| not_a_commit(&first));
    reader.next_record()?.map(stamp).transpose()
}

impl Iterator for ChangeFeed {
    type Item = Result<CommitChanges>;

    fn next(&mut self) -> Option<Result<CommitChanges>> {
        self.next_commit().transpose()
    }
}
