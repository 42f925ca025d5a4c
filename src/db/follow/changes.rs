//! What somebody else writes to a database, commit by commit, beside what a follower shows.
//!
//! Invariants
//! - FC1  Commits come in the order of their stamps, each once, and none is left out of which
//!   something is asked for; none comes before the follower shows it, so that what its changes
//!   refer to can be read there.
//! - FC2  The log is read in the storage of a view, which keeps what the writer removes. It goes on
//!   in that of a later one once it is past what is not kept for that. It is not read further than
//!   the view has read it: with other keys than those of the view it could not be.
//! - FC3  What is in front of what is kept for the view may be gone: of log files that the writer
//!   had done with before somebody followed, and with the keys that they need. Then it is told that
//!   commits are not kept, and nothing is left out without a word.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Follower;
use super::view::{ATTEMPT_COUNT_MAX, ATTEMPT_WAIT, may_be_of_the_moment};
use crate::base::{Error, Result, SeqNo};
use crate::db::commits::not_a_commit;
use crate::db::core::lock;
use crate::db::feed::{
    Change, ChangeKind, CommitChanges, FeedOptions, Names, Previous, changes_of,
};
use crate::db::history::PointInTime;
use crate::db::operation::{decode_record, decode_stamp};
use crate::wal::{LogFollower, Lsn, Offered};

/// Bytes of records, with the large values in them, that are read at once and not shown yet, about.
const AHEAD_BYTES_MAX: usize = 256 << 10;
/// How often who waits looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The commits behind a moment of a database that somebody else writes, and those to come; made by
/// [`Follower::changes`].
///
/// As an iterator it ends behind the last commit that the follower shows, and goes on when that has
/// caught up. An item is an error when the log cannot be read (`Io`), is damaged (`Corruption`), or
/// is not that any more which it was (`WentBack`), when commits that it has not come to are not
/// kept any more (`CommitsNotKept`), or the follower was closed (`Closed`); asked again, it tries
/// again. Memory: 256 KiB of commits, or one where that is larger.
///
/// As long as it lives, the writer keeps for it what it has not come to, as it does for the
/// follower. Not kept are files of the log that the writer had done with before anybody followed,
/// and the keys of what it has not come to, in an encrypted database whose data key is rotated.
#[derive(Debug)]
pub struct FollowedChanges {
    follower: Follower,
    options: FeedOptions,
    log: LogFollower,
    names: Names,
    /// Read, and not shown yet.
    ahead: VecDeque<CommitChanges>,
    /// Up to here commits were read.
    read_to: SeqNo,
    position: SeqNo,
}

impl Follower {
    /// The commits behind a moment, in their order, with what each has written: as
    /// [`Db::changes`](crate::Db::changes), of a database that somebody else writes. They show as
    /// far as the follower shows them; [`FollowedChanges::wait`] has it catch up. With
    /// [`FeedOptions::durable_only`] they come when they are durable.
    ///
    /// The log has a commit until the writer has flushed it, then for as long as the writer keeps
    /// its file. Versions are not looked into for older ones. Names of keyspaces are those that the
    /// follower shows.
    ///
    /// Costs a look at each file of the log down to the one that has the moment, and reading that
    /// from its beginning on; then the log is read once more beside the follower.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// use lithedb::{ChangeKind, Db, FeedOptions, FollowUpTo, SeqNo, storage::MemoryStorage};
    /// # let storage = std::sync::Arc::new(MemoryStorage::new());
    /// let writer = Db::builder().storage(storage.clone()).open("/db")?;
    /// let counts = writer.keyspace_or_create("counts")?;
    ///
    /// let follower = Db::builder().storage(storage).follow("/db", FollowUpTo::Written)?;
    /// let mut changes = follower.changes(SeqNo::ZERO, FeedOptions::new())?;
    /// let stamp = counts.put("a", "1")?;
    /// let commit = changes.wait(std::time::Duration::from_secs(9))?.expect("there is one");
    /// assert_eq!(commit.seqno, stamp);
    /// assert!(matches!(&commit.changes[0].kind, ChangeKind::Put { key, .. } if **key == *b"a"));
    /// # drop(changes);
    /// # follower.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a moment in the future. `CommitsNotKept` when commits behind the
    /// moment may be gone from the log. `WentBack`, `Corruption`, `Io`, `KeyNeeded`, `Closed`.
    pub fn changes(
        &self,
        since: impl Into<PointInTime>,
        options: FeedOptions,
    ) -> Result<FollowedChanges> {
        self.check_process()?;
        let view = lock(&self.shared.view);
        self.check_open()?;
        let core = &view.core;
        let since = since.into().resolve(core.visible(), core.time.latest())?.at;
        let (log, first) = self.patiently(|| {
            let mut first = None;
            let log = view.log_behind(&mut |record| {
                let stamp = decode_stamp(record.payload).ok_or_else(|| not_a_commit(&record))?;
                first = Some(stamp);
                Ok(stamp <= since)
            })?;
            Ok((log, first))
        })?;
        let is_from_birth = log.position() == Lsn::ZERO;
        if !is_from_birth && !core.has_commits_behind(since, first, |end| log.is_by(end)) {
            return Err(Error::CommitsNotKept { oldest: first });
        }
        Ok(FollowedChanges {
            follower: self.clone(),
            options,
            log,
            names: Names::default(),
            ahead: VecDeque::new(),
            read_to: since,
            position: since,
        })
    }

    /// Tries again what fails because of what is being written at that moment.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 1..ATTEMPT_COUNT_MAX {
            match attempt() {
                Err(error) if may_be_of_the_moment(&error) => {
                    self.shared.order.builder.clock.sleep(ATTEMPT_WAIT);
                }
                done => return done,
            }
        }
        attempt()
    }
}

impl FollowedChanges {
    /// Everything up to this stamp was shown, or is not asked for: who goes on behind it misses
    /// nothing and sees nothing twice.
    #[must_use]
    pub fn position(&self) -> SeqNo {
        self.position
    }

    /// The next commit; `None` when none comes within `timeout`. Has the follower catch up, a
    /// hundred times a second while it waits.
    ///
    /// # Errors
    /// As those of the iterator, and of [`Follower::catch_up`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<CommitChanges>> {
        let clock = Arc::clone(&self.follower.shared.order.builder.clock);
        let mut left = timeout;
        loop {
            let began = clock.monotonic();
            match self.next_commit() {
                Ok(None) => {}
                // The view may be older than what it reads.
                Err(error) if may_be_of_the_moment(&error) => {}
                found => return found,
            }
            self.follower.catch_up()?;
            if let Some(commit) = self.next_commit()? {
                return Ok(Some(commit));
            }
            if left.is_zero() {
                return Ok(None);
            }
            clock.sleep(LOOK_EVERY.min(left));
            left = left.saturating_sub(clock.monotonic().saturating_sub(began));
        }
    }

    /// The next commit that the follower shows.
    fn next_commit(&mut self) -> Result<Option<CommitChanges>> {
        loop {
            if let Some(commit) = self.ahead.pop_front() {
                self.position = commit.seqno;
                return Ok(Some(commit));
            }
            let before = self.log.position();
            let follower = self.follower.clone();
            follower.patiently(|| self.read_on()).map_err(|error| self.judged(error))?;
            if self.ahead.is_empty() {
                self.position = self.position.max(self.read_to);
                if self.log.position() == before {
                    return Ok(None);
                }
            }
        }
    }

    /// Reads some of the log, as far as the follower shows it.
    fn read_on(&mut self) -> Result<()> {
        self.follower.check_open()?;
        let (core, until) = {
            let view = lock(&self.follower.shared.view);
            self.log.go_on_in(&view.live, view.log_kept_from()); // FC2
            (Arc::clone(&view.core), view.log_read_to())
        };
        let (shown, mut bytes) = (core.visible(), 0);
        let (options, names, ahead) = (&self.options, &mut self.names, &mut self.ahead);
        let read_to = &mut self.read_to;
        let read = self.log.read_on(until, &mut |record| {
            let commit = decode_record(record.payload).ok_or_else(|| not_a_commit(&record))?;
            let stamp = commit.seqno;
            let is_durable = record.end <= record.durable_up_to;
            let is_to_wait = options.durable_only && !is_durable;
            if stamp > shown || is_to_wait || bytes >= AHEAD_BYTES_MAX {
                return Ok(Offered::Left); // FC1
            }
            if stamp > *read_to {
                let commit = (record.payload, commit);
                let found = changes_of(&core, options, names, commit);
                let found =
                    found.map_err(|error| error.unwrap_or_else(|| not_a_commit(&record)))?;
                bytes += record.payload.len() + found.as_ref().map_or(0, values_len);
                ahead.extend(found);
                *read_to = stamp;
            }
            Ok(Offered::Taken)
        });
        match read {
            // It comes again behind what was read in front of it.
            Err(_) if !self.ahead.is_empty() => Ok(()),
            read => read.map(drop),
        }
    }
}

impl FollowedChanges {
    /// What an error that stays says (FC3).
    fn judged(&self, error: Error) -> Error {
        let view = lock(&self.follower.shared.view);
        if !may_be_of_the_moment(&error) || self.log.position() >= view.log_kept_from() {
            return error;
        }
        let mut oldest = None;
        let looked = view.log_behind(&mut |record| {
            oldest = decode_stamp(record.payload);
            Ok(record.lsn <= view.log_kept_from())
        });
        Error::CommitsNotKept { oldest: looked.ok().and(oldest) }
    }
}

/// Bytes of values, beside what is in the record.
fn values_len(commit: &CommitChanges) -> usize {
    let of_change = |change: &Change| {
        let value = match &change.kind {
            ChangeKind::Put { value: Some(value), .. } => value.len(),
            _ => 0,
        };
        let previous = match &change.previous {
            Previous::Value(value) => value.len(),
            Previous::Unknown | Previous::Absent => 0,
        };
        value + previous
    };
    commit.changes.iter().map(of_change).sum()
}

impl Iterator for FollowedChanges {
    type Item = Result<CommitChanges>;

    fn next(&mut self) -> Option<Result<CommitChanges>> {
        self.next_commit().transpose()
    }
}
