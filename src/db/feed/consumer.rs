//! Consumers: who follows the changes by a name, and has the log kept meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{ChangeFeed, CommitChanges, FeedOptions, first_stamp};
use crate::base::{Error, Result, SeqNo};
use crate::db::core::{Core, lock};
use crate::db::{Db, Handle};
use crate::manifest::{CatalogState, ConsumerRecord, Edit, Manifest};
use crate::wal::Lsn;

/// How far consumers have said that they are, where the manifest does not have it yet.
pub(in crate::db) type Acknowledged = BTreeMap<String, (SeqNo, u64)>;

/// Bytes of log between places that a consumer remembers for what it has shown.
const MARK_BYTES: u64 = 64 << 10;

/// A consumer of changes, as [`Db::consumers`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// It is done with the commits up to this stamp.
    pub done: SeqNo,
    /// Bytes of the log behind that: so far it is behind, and so much is kept for it.
    pub bytes_behind: u64,
    /// Bytes of the log that are kept for it, at most, but for a file.
    pub log_max: u64,
    /// Whether it was further behind than that, and commits that it has not seen are gone.
    pub is_lost: bool,
}

/// Somebody who follows the changes by a name: a [`ChangeFeed`] behind what it has acknowledged,
/// and the log is kept from there on. Made by [`Db::consumer`].
#[derive(Debug)]
pub struct Consumer {
    feed: ChangeFeed,
    handle: Arc<Handle>,
    name: String,
    /// Stamps that were shown, and where in the log what follows them begins; not of each commit.
    marks: VecDeque<(SeqNo, Lsn)>,
}

impl Db {
    /// Adds a consumer: commits behind the call are kept for it, in up to `log_max` bytes of the
    /// log and a file more, until it says that it is done with them. The file is for what it has
    /// said and is not durable yet ([`Consumer::acknowledge`]): however small `log_max` is, a crash
    /// does not take it its place. Durable on return. Costs an edit of the manifest, and a sync of
    /// the log. One that is open and in the middle of the log holds what it knew of also beyond
    /// that, as every [`ChangeFeed`] does.
    ///
    /// What is kept are log files; a large value that is overwritten or deleted may be gone all
    /// the same ([`crate::ChangeKind::Put`]).
    ///
    /// # Errors
    /// `ConsumerExists`; `InvalidArgument` for a name that is empty or longer than 255 bytes.
    /// `DiskFull`: nothing happened. `Io`, `ReadOnly`, `Closed`.
    pub fn create_consumer(&self, name: &str, log_max: u64) -> Result<()> {
        let core = self.core();
        let mut manifest = core.lock_manifest_for_edit()?;
        if manifest.state().consumers().contains_key(name) {
            return Err(Error::ConsumerExists { name: name.to_owned() });
        }
        // Under the lock, without which the log is not given up.
        let (done, log_position) = core.log_place();
        core.sync_to(log_position)?; // F2
        lock(&core.acknowledged).remove(name);
        let consumer = ConsumerRecord { done, log_position: log_position.as_u64(), log_max };
        let edit = Edit::SetConsumer { name: name.to_owned(), consumer };
        core.apply_edit(&mut manifest, &edit)?;
        core.hold_log(manifest.state());
        Ok(())
    }

    /// Goes on as the consumer of this name, behind what it has said it is done with. What it has
    /// seen of that and not acknowledged, it sees again; who stored the stamp that it has come to
    /// skips up to that with [`Consumer::acknowledge`].
    ///
    /// # Errors
    /// `ConsumerNotFound`; `CommitsNotKept` when it was further behind than is kept for it: then
    /// it has to be removed, and to begin anew with a snapshot. `Corruption`, `Io`, `Closed`.
    pub fn consumer(&self, name: &str, options: FeedOptions) -> Result<Consumer> {
        let core = self.core();
        core.check_open()?;
        let consumer = core.consumer_record(name)?;
        let from = Lsn::from_u64(consumer.log_position);
        let handle = Arc::clone(&self.handle);
        let reader = core.log_behind(consumer.done)?;
        if !core.log.has_all_from(from) {
            return Err(Error::CommitsNotKept { oldest: first_stamp(&reader)? });
        }
        // It asks no versions: what it says that it is done with is a place in the log.
        let mut feed = ChangeFeed::from_log(&handle, consumer.done, options, reader);
        feed.lsn = feed.lsn.max(from);
        let marks = VecDeque::from([(consumer.done, feed.lsn)]);
        Ok(Consumer { feed, handle, name: name.to_owned(), marks })
    }

    /// The consumers there are, by name.
    ///
    /// # Errors
    /// `Closed`.
    pub fn consumers(&self) -> Result<Vec<ConsumerInfo>> {
        let core = self.core();
        core.check_open()?;
        let (visible, end) = core.log_place();
        let records = core.lock_manifest().state().consumers().clone();
        let consumers = records.into_iter().map(|(name, record)| {
            let record = core.as_acknowledged(&name, record);
            let at = Lsn::from_u64(record.log_position);
            // Behind the last commit there may be a mark.
            let is_done = record.done >= visible;
            ConsumerInfo {
                done: record.done,
                bytes_behind: if is_done { 0 } else { end.bytes_since(at) },
                log_max: record.log_max,
                is_lost: !core.log.has_all_from(at),
                name,
            }
        });
        Ok(consumers.collect())
    }

    /// Removes a consumer; nothing is kept for it any more. Durable on return.
    ///
    /// # Errors
    /// `ConsumerNotFound`. `DiskFull`: nothing happened. `Io`, `ReadOnly`, `Closed`.
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        let core = self.core();
        core.check_writable()?;
        let mut manifest = core.lock_manifest_for_edit()?;
        let edit = Edit::RemoveConsumer { name: name.to_owned() };
        core.apply_edit(&mut manifest, &edit)?;
        lock(&core.acknowledged).remove(name);
        core.hold_log(manifest.state());
        Ok(())
    }
}

impl Consumer {
    /// The next commit; `None` when none comes within `timeout`: see [`ChangeFeed::wait`].
    ///
    /// # Errors
    /// As [`ChangeFeed::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<CommitChanges>> {
        let commit = self.feed.wait(timeout)?;
        self.note_shown();
        Ok(commit)
    }

    /// Everything up to this stamp was shown, or is not asked for.
    #[must_use]
    pub fn position(&self) -> SeqNo {
        self.feed.position()
    }

    /// Says that it is done with the commits up to `done`: they are not kept for it any more, and
    /// not shown again. What is in front of what it has said changes nothing. Who follows some
    /// keyspaces alone says [`Consumer::position`] now and then, that it is not behind because
    /// nothing of theirs comes.
    ///
    /// Costs little; once a log file is passed, an edit of the manifest, with a sync of the log
    /// where that is not durable. Durable by then, or when the database is closed: after a crash
    /// it may be back at what it said a log file before.
    ///
    /// # Errors
    /// `InvalidArgument` for a stamp that is above all commits; `ConsumerNotFound` when it was
    /// removed. `Io`, `ReadOnly`, `Closed`; the next call says it again.
    pub fn acknowledge(&mut self, done: SeqNo) -> Result<()> {
        let core = &self.handle.core;
        let visible = core.visible();
        if done > visible {
            let what = format!("stamp {done} is in the future: the newest is {visible}");
            return Err(Error::invalid(what));
        }
        let is_passed = |(stamp, _): &(SeqNo, Lsn)| *stamp <= done;
        if done >= self.feed.position {
            self.marks = VecDeque::from([(done, self.feed.lsn)]);
            self.feed.position = done;
        }
        while self.marks.get(1).is_some_and(is_passed) {
            self.marks.pop_front();
        }
        match self.marks.front().filter(|mark| is_passed(mark)) {
            Some(&(_, at)) => core.acknowledge(&self.name, done, at),
            None => Ok(()),
        }
    }

    /// Remembers where the commits behind the last one begin, if that is far from the last such.
    fn note_shown(&mut self) {
        let (position, lsn) = (self.feed.position, self.feed.lsn);
        let (_, last) = self.marks.back().copied().unwrap_or_default();
        if lsn.bytes_since(last) >= MARK_BYTES {
            self.marks.push_back((position, lsn));
        }
    }
}

impl Iterator for Consumer {
    type Item = Result<CommitChanges>;

    fn next(&mut self) -> Option<Result<CommitChanges>> {
        let next = self.feed.next();
        self.note_shown();
        next
    }
}

impl Core {
    /// The newest commit, and where the log goes on behind it.
    pub(super) fn log_place(&self) -> (SeqNo, Lsn) {
        let applier = self.log.lock_applier();
        (self.visible(), applier.applied())
    }

    fn consumer_record(&self, name: &str) -> Result<ConsumerRecord> {
        let record = self.lock_manifest().state().consumers().get(name).copied();
        let record = record.ok_or_else(|| Error::ConsumerNotFound { name: name.to_owned() })?;
        Ok(self.as_acknowledged(name, record))
    }

    /// With what was said and the manifest does not have yet.
    fn as_acknowledged(&self, name: &str, record: ConsumerRecord) -> ConsumerRecord {
        match lock(&self.acknowledged).get(name) {
            Some(&(done, at)) if done > record.done => {
                ConsumerRecord { done, log_position: at.max(record.log_position), ..record }
            }
            _ => record,
        }
    }

    /// A consumer is done with the commits up to a stamp; those behind begin here, or further on.
    fn acknowledge(&self, name: &str, done: SeqNo, at: Lsn) -> Result<()> {
        self.check_writable()?;
        let record = self.consumer_record(name)?;
        if done <= record.done {
            return Ok(());
        }
        let durable_at = self.lock_manifest().state().consumers().get(name).copied();
        let durable_at = durable_at.map_or(0, |record| record.log_position);
        lock(&self.acknowledged).insert(name.to_owned(), (done, at.as_u64()));
        if at.as_u64().saturating_sub(durable_at) < self.sizes.wal_file {
            return Ok(());
        }
        let said = self.consumer_record(name)?;
        self.sync_to(self.log_place().1)?; // F2: what it has said is in front of that.
        let mut manifest = self.lock_manifest_for_edit()?;
        self.write_acknowledged(&mut manifest, name, said)?;
        self.hold_log(manifest.state());
        Ok(())
    }

    /// Has the manifest say how far a consumer is; that is durable.
    fn write_acknowledged(
        &self,
        manifest: &mut Manifest,
        name: &str,
        said: ConsumerRecord,
    ) -> Result<()> {
        let record = manifest.state().consumers().get(name).copied();
        // It may have been removed, or said by another thread.
        if record.is_some_and(|record| record.done < said.done) {
            let edit = Edit::SetConsumer { name: name.to_owned(), consumer: said };
            self.apply_edit(manifest, &edit)?;
        }
        lock(&self.acknowledged).retain(|other, (done, _)| other != name || *done > said.done);
        Ok(())
    }

    /// Has the manifest say what all consumers have said; the log is durable.
    pub(in crate::db) fn write_all_acknowledged(&self, manifest: &mut Manifest) -> Result<()> {
        let consumers = manifest.state().consumers().clone();
        consumers.into_iter().try_for_each(|(name, record)| {
            let said = self.as_acknowledged(&name, record);
            self.write_acknowledged(manifest, &name, said)
        })
    }

    /// Has the log kept from where the slowest consumer is, or the trail, but for those that are
    /// further behind than they may be (F2).
    pub(in crate::db) fn hold_log(&self, catalog: &CatalogState) {
        let end = self.log.end();
        // By what the manifest says, which is what there is after a crash: so that takes nobody
        // its place. It is behind what was said by less than a log file of the size that there was
        // then; the file in which that is, is held.
        let unsaid_max = self.log.largest_file();
        let may_be = |record: &&ConsumerRecord| {
            let behind = end.saturating_sub(record.log_position);
            behind <= record.log_max.saturating_add(unsaid_max)
        };
        let held = catalog.consumers().values().filter(may_be).map(|record| record.log_position);
        let slowest = held.chain(self.held_for_trail(catalog)).min();
        self.log.hold_from(slowest.map_or(Lsn::MAX, Lsn::from_u64));
        self.note_keys_due();
    }
}
