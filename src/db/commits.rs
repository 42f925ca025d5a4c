//! Reading the commits that the log still has: the part that recovery needs, and the files in front
//! of it that are kept for this. A reader ends at the commit that was applied when it was made, so
//! that it never looks at bytes that are being written.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::base::{Error, Result, SeqNo};
use crate::db::core::Core;
use crate::db::operation::{DecodedCommit, decode_record, decode_stamp};
use crate::db::{Db, Handle};
use crate::wal::{Lsn, RecordReader, RecordRef};

/// A commit as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// Its stamp.
    pub seqno: SeqNo,
    /// Writes in it, of all keyspaces; a range that was deleted is one.
    pub operations: u64,
    /// What was kept with it ([`crate::WriteBatch::set_payload`]).
    pub payload: Option<Vec<u8>>,
}

/// The commits of a range of stamps, in their order; made by [`Db::commits`].
///
/// Ends behind the last commit there was when it was made. An item is an error when the log is
/// damaged (`Corruption` with file and offset) or cannot be read (`Io`), or the database was closed
/// (`Closed`); it is the last one. Keeps log files that it has not passed yet from being given up.
#[derive(Debug)]
pub struct Commits {
    handle: Arc<Handle>,
    reader: RecordReader,
    range: (Bound<SeqNo>, Bound<SeqNo>),
    /// A commit that was read while looking where the log starts.
    ahead: Option<Commit>,
    has_ended: bool,
}

impl Db {
    /// The commits whose stamps are in `range`, in their order. Without a start, from the first one
    /// that is there. An ingest is none of them. Each is there until it is flushed, and then for as
    /// long as [`crate::Builder::kept_log_size`] keeps its log file.
    ///
    /// Costs some reads to find the first one, and reading the log from the beginning of a file on.
    /// Memory: 256 KiB, or one commit where that is larger.
    ///
    /// # Errors
    /// `CommitsNotKept` when the range begins before the first commit that is there, so that others
    /// in it may be gone. `InvalidArgument` for what a follower shows, which has
    /// [`crate::Follower::changes`]. `Corruption`, `Io`, `Closed`.
    pub fn commits(&self, range: impl RangeBounds<SeqNo>) -> Result<Commits> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        Commits::open(&self.handle, range)
    }

    /// The commit with this stamp; `None` when no commit has it. Costs reading up to one log file,
    /// 8 MiB unless said otherwise.
    ///
    /// # Errors
    /// As [`Db::commits`].
    pub fn commit_at(&self, seqno: SeqNo) -> Result<Option<Commit>> {
        self.commits(seqno..=seqno)?.next().transpose()
    }
}

impl Core {
    /// A reader of all that the log has of commits that are visible.
    pub(super) fn log_reader(&self) -> RecordReader {
        let applied = self.log.lock_applier().applied();
        self.log.reader(applied)
    }

    /// Whether a log has every commit behind `since`. `first` is the first commit that it has, or a
    /// later one that is not behind `since`; `has_all_from` says whether it has all from a place on
    /// where a commit ends. Between the first one that is there and a moment
    /// before it there may have been others; not where no stamp lies between, nor where what is
    /// there begins behind the closing of the database, whose newest commit is known.
    pub(super) fn has_commits_behind(
        &self,
        since: SeqNo,
        first: Option<SeqNo>,
        has_all_from: impl Fn(Lsn) -> bool,
    ) -> bool {
        let follows_at_once = |first: SeqNo| first.as_u64() <= since.as_u64().saturating_add(1);
        let is_behind_closing = |(end, newest)| since >= newest && has_all_from(end);
        since >= self.visible()
            || first.is_some_and(follows_at_once)
            || self.closed_at.is_some_and(is_behind_closing)
    }
}

impl Commits {
    fn open(handle: &Arc<Handle>, range: (Bound<SeqNo>, Bound<SeqNo>)) -> Result<Commits> {
        handle.core.check_open()?;
        handle.core.check_has_log()?;
        let mut reader = handle.core.log_reader();
        let is_from_birth = reader.position() == Lsn::ZERO;
        let lower = range.0;
        reader.skip_files(&mut |record| {
            let seqno = decode_stamp(record.payload).ok_or_else(|| not_a_commit(record))?;
            Ok(match lower {
                Bound::Included(from) => seqno <= from,
                Bound::Excluded(from) => seqno <= from,
                Bound::Unbounded => false,
            })
        })?;
        let handle = Arc::clone(handle);
        let mut commits = Commits { handle, reader, range, ahead: None, has_ended: false };
        if is_from_birth {
            return Ok(commits);
        }
        let since = match lower {
            Bound::Included(from) => SeqNo::from_u64(from.as_u64().saturating_sub(1)),
            Bound::Excluded(from) => from,
            Bound::Unbounded => return Ok(commits),
        };
        commits.ahead = commits.read()?;
        let first = commits.ahead.as_ref().map(|commit| commit.seqno);
        let core = &commits.handle.core;
        match core.has_commits_behind(since, first, |place| core.log.has_all_from(place)) {
            true => Ok(commits),
            false => Err(Error::CommitsNotKept { oldest: first }),
        }
    }

    /// The next commit of the log.
    fn read(&mut self) -> Result<Option<Commit>> {
        let core = &self.handle.core;
        core.check_open()?; // Else the files may be another opening's.
        let record = self.reader.next_record();
        // Closed in between, it may be another opening that wrote where this one read.
        let record = record.or_else(|error| core.check_open().and(Err(error)))?;
        let Some(record) = record else { return Ok(None) };
        let decoded = decode_record(record.payload);
        let Some(DecodedCommit { seqno, payload, count, .. }) = decoded else {
            return Err(not_a_commit(&record));
        };
        let payload = payload.map(<[u8]>::to_vec);
        Ok(Some(Commit { seqno, operations: count, payload }))
    }
}

impl Iterator for Commits {
    type Item = Result<Commit>;

    fn next(&mut self) -> Option<Result<Commit>> {
        while !self.has_ended {
            let commit = match self.ahead.take() {
                Some(commit) => commit,
                None => match self.read() {
                    Ok(Some(commit)) => commit,
                    Ok(None) => break,
                    Err(error) => {
                        self.has_ended = true;
                        return Some(Err(error));
                    }
                },
            };
            let is_above = match self.range.1 {
                Bound::Included(to) => commit.seqno > to,
                Bound::Excluded(to) => commit.seqno >= to,
                Bound::Unbounded => false,
            };
            if is_above {
                break;
            }
            if self.range.contains(&commit.seqno) {
                return Some(Ok(commit));
            }
        }
        self.has_ended = true;
        None
    }
}

/// A record whose bytes verify, and that no store has written.
pub(super) fn not_a_commit(record: &RecordRef<'_>) -> Error {
    let what = format!("the record at position {} is not a commit", record.lsn);
    Error::corruption(record.file, record.offset, what)
}
