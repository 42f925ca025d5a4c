//! The commit: append, sync, insert, publish (D1).
//!
//! A writer appends its record under the log's lock and queues the commit there, so that the queue
//! has the order of the log. If it asked for durability, it then leads a sync, or waits for the
//! thread that does (`group/`); one sync covers everything appended before it, and while it runs,
//! others append. Whoever finds commits at the head of the queue that may be applied, applies
//! them, in order, for all threads that wait, and wakes these.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use crate::base::sync::{Mistake, is_planted};
use crate::base::{Error, Result, SeqNo, StampClock};
use crate::db::batch::{Target, WriteBatch};
use crate::db::core::{Core, lock};
use crate::db::feed::FeedSignal;
use crate::db::group::{Call, Caller, Gathering, GroupPolicy, Role, SyncTurn, WAIT_MAX};
use crate::db::indexes::is_index_name;
use crate::db::insert::{CommitPlace, Linking, insert_commit, insert_entries};
use crate::db::options::{Background, Durability};
use crate::db::state::{KeyspaceState, State};
use crate::db::transaction::{Premise, Verdict};
use crate::db::working::PoisonOnPanic;
use crate::storage::ReserveUse;
use crate::wal::{LogImage, Lsn, RecordReader, Wal};

/// The log and the commits on their way.
#[derive(Debug)]
pub(super) struct CommitLog {
    pub(super) log: Mutex<Log>,
    /// Commits that are appended and not yet wholly in memtables, in the order of the log. Only
    /// pushed to under the log's lock; only popped under the applier's.
    pub(super) queue: Mutex<VecDeque<Arc<Pending>>>,
    applier: Mutex<Applier>,
    /// Who waits for the next commit.
    pub(super) feeds: FeedSignal,
    /// That of the log, but for the hold.
    pub(super) gate: AtomicU64,
    /// Signalled when commits are not held any more.
    pub(super) unheld: Condvar,
    /// Held by the thread that makes a log file ready, which it does without the log's lock; and
    /// while the directory is read, which must not change then. Taken before the log's.
    preparing: Mutex<()>,
    /// Who syncs, and up to where the log is durable.
    sync_turn: SyncTurn,
    /// Up to where the log may be released, durably so.
    released: AtomicU64,
    log_end: AtomicU64,
    pub(super) commit_count: AtomicU64,
    /// Bytes of keys and values committed.
    pub(super) data_bytes: AtomicU64,
    /// The next log file should be made ready, and no worker was told yet.
    wants_file: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Log {
    pub(super) wal: Wal,
    stamps: StampClock,
    /// What stands in front of a record's operations, while it is appended.
    head: Vec<u8>,
    /// Changed by whatever commits have to look at before they are appended (`db/gate.rs`).
    pub(super) gate: u64,
}

/// What came of looking whether the next log file is to be made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preparing {
    Done,
    NotDue,
    /// Another thread is at it, or has it wait.
    Elsewhere,
}

/// What applying commits has come to. Guarded by its lock, which also seals.
#[derive(Debug)]
pub(super) struct Applier {
    /// Every commit in front of this position is applied.
    applied: Lsn,
}

/// A commit in the queue.
#[derive(Debug)]
pub(super) struct Pending {
    batch: WriteBatch,
    seqno: SeqNo,
    start: Lsn,
    end: Lsn,
    durability: Durability,
    /// The thread that waits for it.
    caller: Arc<Caller>,
}

impl CommitLog {
    pub(super) fn new(
        wal: Wal,
        stamps: StampClock,
        released: Lsn,
        background: Background,
    ) -> CommitLog {
        let end = wal.end();
        let gathering = match background {
            Background::Threads => Gathering::Adaptive,
            Background::Stepped => Gathering::Off,
        };
        CommitLog {
            sync_turn: SyncTurn::new(wal.durable_lsn(), GroupPolicy::new(gathering)),
            released: AtomicU64::new(released.as_u64()),
            log_end: AtomicU64::new(end.as_u64()),
            log: Mutex::new(Log { wal, stamps, head: Vec::new(), gate: 0 }),
            gate: AtomicU64::new(0),
            queue: Mutex::default(),
            applier: Mutex::new(Applier { applied: end }),
            preparing: Mutex::new(()),
            feeds: FeedSignal::default(),
            unheld: Condvar::new(),
            commit_count: AtomicU64::new(0),
            data_bytes: AtomicU64::new(0),
            wants_file: AtomicBool::new(false),
        }
    }

    /// Wakes all who wait, to look for themselves.
    pub(super) fn wake_waiting(&self) {
        self.feeds.signal();
        self.sync_turn.call_all();
        for pending in &*lock(&self.queue) {
            pending.caller.call(Call::Look);
        }
    }

    /// Waits for whoever writes to the log now. Who comes later finds the database closed.
    pub(super) fn wait_for_writers(&self) {
        drop(lock(&self.log));
    }

    pub(super) fn commit_count(&self) -> u64 {
        self.commit_count.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values committed since opening.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn wal_stats(&self) -> crate::wal::WalStats {
        lock(&self.log).wal.stats()
    }

    /// A reader of all that the log has up to `end`.
    pub(super) fn reader(&self, end: Lsn) -> RecordReader {
        lock(&self.log).wal.reader(end)
    }

    /// Lets a reader go on up to `end`; `false` if files that it has not read are not kept.
    pub(super) fn extend(&self, reader: &mut RecordReader, end: Lsn) -> bool {
        lock(&self.log).wal.extend(reader, end)
    }

    /// Whether all commits behind this place, where one ends, are kept.
    pub(super) fn has_all_from(&self, place: Lsn) -> bool {
        lock(&self.log).wal.has_all_from(place)
    }

    /// Bytes of the largest file of the log, also of those that are kept.
    pub(super) fn largest_file(&self) -> u64 {
        lock(&self.log).wal.largest_file()
    }

    /// Has log files kept from here on.
    pub(super) fn hold_from(&self, from: Lsn) {
        lock(&self.log).wal.hold_from(from);
    }

    /// Where the log ends.
    pub(super) fn end(&self) -> u64 {
        self.log_end.load(Ordering::Relaxed)
    }

    /// Up to where the log is durable.
    pub(super) fn durable(&self) -> Lsn {
        self.sync_turn.durable()
    }

    /// Bytes of the log that are still needed.
    pub(super) fn live_bytes(&self) -> u64 {
        let end = self.log_end.load(Ordering::Relaxed);
        end.saturating_sub(self.released.load(Ordering::Relaxed))
    }

    pub(super) fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Gives the log in front of `up_to` back. The manifest must say so durably (D3).
    pub(super) fn release(&self, up_to: u64) {
        self.released.fetch_max(up_to, Ordering::Relaxed);
        lock(&self.log).wal.release(Lsn::from_u64(up_to));
    }

    /// Makes the next log file ready, if it is time.
    pub(super) fn prepare_file(&self) -> Result<Preparing> {
        let _turn = match self.preparing.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Preparing::Elsewhere),
        };
        let Some(order) = lock(&self.log).wal.order_next() else {
            return Ok(Preparing::NotDue);
        };
        let outcome = order.run();
        lock(&self.log).wal.finish_order(outcome)?;
        Ok(Preparing::Done)
    }

    /// Has the log go on in a new file: see [`Wal::begin_new_file`].
    pub(super) fn begin_new_file(&self) -> Result<()> {
        let _no_file_is_made = lock(&self.preparing);
        let (end, start) = lock(&self.log).wal.begin_new_file()?;
        // Nothing starts between the two: what is applied up to the one is so up to the other, and
        // the file of before is not needed for its end.
        let mut applier = self.lock_applier();
        if applier.applied == end {
            applier.applied = start;
        }
        Ok(())
    }

    /// The number of the data key that the file which is appended to is sealed with, or 0.
    pub(super) fn key_id(&self) -> u16 {
        lock(&self.log).wal.key_id()
    }

    /// A stamp for something that is not a commit; above all that were given.
    pub(super) fn next_stamp(&self, wall_millis: u64) -> SeqNo {
        lock(&self.log).stamps.next(wall_millis)
    }

    /// No stamp up to this one is given any more.
    pub(super) fn skip_stamps(&self, up_to: SeqNo) {
        lock(&self.log).stamps.skip_to(up_to);
    }

    /// Where the last commit ends, and a stamp above it that no later one is below.
    pub(super) fn mark(&self, wall_millis: u64) -> (Lsn, SeqNo) {
        let mut log = lock(&self.log);
        (log.wal.sync_target().target(), log.stamps.next(wall_millis))
    }

    /// Runs `read` while nothing is appended, and says where the log ends.
    pub(super) fn while_still<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
        let _no_file_is_made = lock(&self.preparing);
        let log = lock(&self.log);
        Ok((read()?, log.wal.sync_target().target().as_u64()))
    }

    /// Makes the log durable to its end, which is returned.
    pub(super) fn sync_for_close(&self) -> Result<u64> {
        let ticket = lock(&self.log).wal.sync_target();
        let synced = ticket.run()?;
        let mut log = lock(&self.log);
        log.wal.complete_sync(synced);
        Ok(synced.as_u64())
    }

    /// The stamp of the last commit that is in the log and was not applied; `None` if what is
    /// visible has all of it.
    pub(super) fn newest_appended(&self) -> Option<SeqNo> {
        let _none_is_being_applied = self.lock_applier();
        lock(&self.queue).back().map(|last| last.seqno)
    }

    /// Gives the log's files up that nothing needs.
    pub(super) fn give_up_spares(&self) {
        let _no_file_is_made = lock(&self.preparing);
        lock(&self.log).wal.give_up_spares();
    }

    pub(super) fn last_stamp(&self) -> SeqNo {
        lock(&self.log).stamps.last()
    }

    pub(super) fn lock_applier(&self) -> crate::base::sync::MutexGuard<'_, Applier> {
        // Should a commit's insertion panic, the database is poisoned; see `apply_ready`.
        lock(&self.applier)
    }

    fn is_ready(&self, pending: &Pending) -> bool {
        pending.durability == Durability::Buffered || pending.end <= self.sync_turn.durable()
    }
}

/// What a commit was made on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Basis<'p> {
    /// Nothing that it has read: what has indexes among its keyspaces is for others to see to.
    Nothing,
    /// A transaction, which has written to indexes as well.
    Transaction {
        /// As of before it looked at what indexes there are.
        gate: u64,
        premise: Option<Premise<'p>>,
    },
}

/// What a batch writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Targets {
    Plain,
    /// A keyspace with indexes is among them.
    Indexed,
}

/// A premise that holds against every commit up to a stamp.
struct Checked<'p> {
    premise: Premise<'p>,
    up_to: SeqNo,
}

/// The lead of a sync; given up when it is dropped without having been passed on.
struct Lead<'t> {
    turn: &'t SyncTurn,
}

impl Lead<'_> {
    #[inline]
    fn pass_on(self, durable: Lsn, took: Duration, now: Duration) -> Vec<Arc<Caller>> {
        let served = self.turn.pass_on(durable, took, now);
        std::mem::forget(self);
        served
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.turn.give_up();
    }
}

/// What is said of a commit to a keyspace that is not there. An index may come and go.
pub(super) fn gone(target: &Target) -> Error {
    match is_index_name(&target.name) {
        true => Error::Conflict,
        false => Error::KeyspaceNotFound { name: target.name.to_string() },
    }
}

impl Applier {
    /// Everything in front of this position is in memtables or structures.
    pub(super) fn applied(&self) -> Lsn {
        self.applied
    }
}

impl Core {
    /// Commits a batch; returns its stamp.
    pub(super) fn commit(&self, batch: WriteBatch, durability: Durability) -> Result<SeqNo> {
        self.commit_on(batch, durability, Basis::Nothing)
    }

    /// Commits a batch, if what it was made on holds in front of it.
    pub(super) fn commit_on(
        &self,
        batch: WriteBatch,
        durability: Durability,
        basis: Basis<'_>,
    ) -> Result<SeqNo> {
        let committed = self.commit_if(batch, durability, basis);
        if let Basis::Transaction { premise: Some(premise), .. } = basis
            && matches!(committed, Err(Error::Conflict))
        {
            self.show_conflicting(&premise);
        }
        committed
    }

    #[inline]
    fn commit_if(
        &self,
        mut batch: WriteBatch,
        durability: Durability,
        basis: Basis<'_>,
    ) -> Result<SeqNo> {
        self.check_writable()?;
        let durability = match is_seeded(Bug::AcknowledgedEarly) {
            true => Durability::Buffered,
            false => durability,
        };
        batch.validate(self.opening)?;
        if batch.is_empty() {
            return Ok(self.visible());
        }
        if self.guard.refuses_writes() {
            self.check_disk(&batch)?;
        }
        let (gate, premise) = match basis {
            Basis::Nothing => (self.log.gate(), None),
            Basis::Transaction { gate, premise } => (gate, premise),
        };
        let targets = self.check_targets(&batch)?;
        let is_bare = matches!(basis, Basis::Nothing);
        if targets == Targets::Indexed && is_bare {
            return self.commit_indexed(&batch, durability);
        }
        self.make_room(&batch)?;
        // Without the lock: what remains to be looked at under it is what comes meanwhile.
        let premise = premise.map(|premise| self.check_premise(premise)).transpose()?;
        if batch.has_staged() {
            // The key of a keyspace that was dropped meanwhile may be destroyed.
            let placed = self.place_values(&mut batch);
            placed.or_else(|error| self.check_targets(&batch).and(Err(error)))?;
        }
        let log = match self.enter_log(&batch, gate) {
            Err(Error::Conflict) if is_bare => return self.commit_indexed(&batch, durability),
            log => log?,
        };
        let (seqno, caller) = self.append(log, batch, durability, premise.as_ref())?;
        if durability == Durability::Sync {
            self.sync_for(&caller)?;
        }
        self.apply_until(&caller)?;
        if self.log.wants_file.load(Ordering::Relaxed)
            && self.log.wants_file.swap(false, Ordering::Relaxed)
        {
            self.workers.wake();
        }
        Ok(seqno)
    }

    /// Commits what was committed before, elsewhere, with the stamp that it had; buffered. Nobody
    /// else commits, and what indexes there are is as it was then.
    pub(super) fn commit_again(&self, batch: WriteBatch, seqno: SeqNo) -> Result<()> {
        self.check_writable()?;
        batch.validate(self.opening)?;
        self.make_room(&batch)?;
        let mut log = self.enter_log(&batch, self.log.gate())?;
        log.stamps.skip_to(SeqNo::from_u64(seqno.as_u64().saturating_sub(1)));
        let (given, caller) = self.append(log, batch, Durability::Buffered, None)?;
        self.apply_until(&caller)?;
        if self.log.wants_file.swap(false, Ordering::Relaxed) {
            self.workers.wake();
        }
        match given == seqno {
            true => Ok(()),
            false => Err(Error::invalid(format!("the commit {seqno} has become {given}"))),
        }
    }

    fn check_targets(&self, batch: &WriteBatch) -> Result<Targets> {
        self.published.with(|state, _| {
            let mut found = Targets::Plain;
            for target in batch.targets() {
                match state.find(target.id) {
                    Some(keyspace) if keyspace.index_set().is_none() => {}
                    Some(_) => found = Targets::Indexed,
                    None => return Err(gone(target)),
                }
            }
            Ok(found)
        })
    }

    /// Stage 1: the record reaches the operating system and the commit its place in the order.
    fn append(
        &self,
        mut log: MutexGuard<'_, Log>,
        batch: WriteBatch,
        durability: Durability,
        premise: Option<&Checked<'_>>,
    ) -> Result<(SeqNo, Arc<Caller>)> {
        if let Some(Checked { premise, up_to }) = premise
            && log.stamps.last() > *up_to
            && !is_planted(Mistake::PremiseCheckedOnce)
        {
            self.verify(premise)?;
        }
        let limits_begun = self.key_limits_begun.load(Ordering::Acquire);
        if batch.may_have_archived_keys_unchecked(limits_begun) {
            self.check_archived_keys(&batch, limits_begun)?;
        }
        let Log { wal, stamps, head, .. } = &mut *log;
        let seqno = stamps.next(self.time.wall_for_stamp()); // E1
        if premise.is_some_and(|checked| !checked.premise.holds_at(seqno)) {
            // Nobody has seen the stamp. But it may be ahead of the clock, as one that was given in
            // vain before: who tries again has to judge by it, or would meet the same again.
            self.time.note_stamp(seqno);
            return Err(Error::Conflict);
        }
        batch.put_record_head(head, seqno);
        let appended = {
            let _guard = PoisonOnPanic::new(self, "appending to the log");
            match wal.append(&[head, batch.bytes()]) {
                Err(Error::DiskFull { .. }) if batch.only_deletes() => {
                    let _may = ReserveUse::of_all();
                    wal.append(&[head, batch.bytes()])
                }
                appended => appended,
            }
        };
        let appended = appended.map_err(|error| self.judge(error))?;
        self.log.log_end.store(appended.end.as_u64(), Ordering::Relaxed);
        let caller = Caller::new(appended.end);
        let pending = Arc::new(Pending {
            batch,
            seqno,
            start: appended.start,
            end: appended.end,
            durability,
            caller: Arc::clone(&caller),
        });
        if log.wal.wants_next() {
            self.log.wants_file.store(true, Ordering::Relaxed);
        }
        lock(&self.log.queue).push_back(pending);
        Ok((seqno, caller))
    }

    /// Checks keys of a batch that was begun before its keyspace came to keep versions. Under the
    /// log's lock: who has it limit its keys takes that behind it.
    #[cold]
    fn check_archived_keys(&self, batch: &WriteBatch, limits_begun: u64) -> Result<()> {
        let state = self.published.state();
        let limits = |found: &Arc<KeyspaceState>| found.seat.limits_archived_keys();
        batch.check_archived_keys(limits_begun, |id| state.find(id).is_some_and(limits))
    }

    /// Verifies a premise against the commits that are visible now, at least.
    fn check_premise<'p>(&self, premise: Premise<'p>) -> Result<Checked<'p>> {
        let up_to = self.visible();
        self.verify(&premise)?;
        Ok(Checked { premise, up_to })
    }

    /// `Conflict` unless the premise holds against every commit that was appended before the call.
    fn verify(&self, premise: &Premise<'_>) -> Result<()> {
        if is_seeded(Bug::PremiseUnchecked) {
            return Ok(());
        }
        // The queue first: what has left it by then is in memtables.
        let pending: Vec<Arc<Pending>> = lock(&self.log.queue).iter().cloned().collect();
        for commit in pending {
            if is_seeded(Bug::CommitsUnderWayIgnored) {
                break;
            }
            if premise.against_commit(commit.batch.operations()) == Verdict::Changed {
                return Err(Error::Conflict);
            }
        }
        match premise.against_memtables(&self.published, &self.transactions)? {
            Verdict::Holds => Ok(()),
            Verdict::Changed => Err(Error::Conflict),
        }
    }

    /// Has what `premise` conflicts with be visible: it may wait for a sync, or be an ingest, and
    /// who tries again meanwhile would meet it again, as often as it tries. Does what a commit
    /// waits for, as that does itself. If that fails, nothing will be visible, and who tries again
    /// finds out.
    #[cold]
    fn show_conflicting(&self, premise: &Premise<'_>) {
        if is_planted(Mistake::ConflictUnseen) {
            return;
        }
        // An ingest is noted in front of its commit, and holds all others until it is visible.
        drop(self.wait_while_held(lock(&self.log.log))); // It may be closed, too.
        let pending: Vec<Arc<Pending>> = lock(&self.log.queue).iter().cloned().collect();
        let last = pending
            .into_iter()
            .rev()
            .find(|commit| premise.against_commit(commit.batch.operations()) == Verdict::Changed);
        // What has left the queue by now is published when the applier's lock is free.
        let own = Caller::new(last.as_ref().map_or(Lsn::ZERO, |last| last.end));
        self.apply_ready(&own);
        if let Some(last) = last.filter(|last| !last.caller.is_done())
            && self.sync_to(last.end).is_ok()
        {
            self.apply_ready(&own); // It, or one in front of it, waited for that.
        }
    }

    /// D4: a log that fails otherwise than for want of room leaves doubt.
    fn judge(&self, error: Error) -> Error {
        if matches!(error, Error::DiskFull { .. }) && is_seeded(Bug::FullDiskPoisons) {
            self.set_poison(&error.to_string());
        }
        if matches!(error, Error::DiskFull { .. } | Error::InvalidArgument { .. }) {
            return error;
        }
        // A file that could not be made ready leaves none: the log says whether it goes on.
        if let Error::ReadOnly { why } = &error {
            self.set_poison(why);
        } else if matches!(error, Error::Io { action: "write" | "sync", .. }) {
            self.set_poison(&error.to_string());
        }
        error
    }

    /// Makes the log durable up to `end`, if it is not.
    pub(super) fn sync_to(&self, end: Lsn) -> Result<()> {
        if self.log.sync_turn.durable() >= end { Ok(()) } else { self.sync_for(&Caller::new(end)) }
    }

    /// Makes the log durable when a file of it, or of values, is not: a flush begins with a sync of
    /// all that its memtable holds, and a durable commit has to wait for whatever was written
    /// before it. Done bit by bit, neither takes long. Whether it was due.
    pub(super) fn sync_ahead(&self) -> Result<bool> {
        let target = {
            let log = lock(&self.log.log);
            let target = log.wal.sync_target().target();
            let unsynced = target.bytes_since(log.wal.durable_lsn().min(target));
            let is_due = unsynced >= self.sizes.wal_file
                || (unsynced > 0 && self.values.unsynced_bytes() >= self.sizes.value_file);
            is_due.then_some(target)
        };
        let Some(target) = target else { return Ok(false) };
        self.sync_to(target)?;
        Ok(true)
    }

    /// Makes everything appended so far durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.check_writable()?;
        let end = lock(&self.log.log).wal.sync_target().target();
        self.sync_to(end)
    }

    /// The log as it is, when all of it is durable.
    pub(super) fn image_log(&self) -> Result<LogImage> {
        lock(&self.log.log).wal.image().map_err(|error| self.judge(error))
    }

    /// Has the log go on in a new file, whose header is durable on return.
    pub(super) fn begin_new_log_file(&self) -> Result<()> {
        self.check_writable()?;
        self.log.begin_new_file().map_err(|error| self.judge(error))
    }

    /// Stage 2: waits until the log is durable for `caller`, or syncs.
    fn sync_for(&self, caller: &Arc<Caller>) -> Result<()> {
        let turn = &self.log.sync_turn;
        let mut role = turn.arrive(caller, self.clock.monotonic());
        loop {
            match role {
                Role::Served => return Ok(()),
                Role::Lead => return self.lead_sync(caller),
                Role::Wait(longest) => {
                    // Who came behind the call of all who wait would not be called any more.
                    self.check_waiting(caller).inspect_err(|_| turn.leave(caller))?;
                    let call = caller.wait(longest);
                    if call != Call::Lead {
                        if caller.is_done() {
                            return Ok(());
                        }
                        self.check_writable().inspect_err(|_| turn.leave(caller))?;
                    }
                    role = turn.come_back(caller, call, self.clock.monotonic());
                }
            }
        }
    }

    /// Syncs for all that have appended, and goes on with what this was in the way of: the next
    /// sync, and the commits that are durable now.
    fn lead_sync(&self, own: &Caller) -> Result<()> {
        let lead = Lead { turn: &self.log.sync_turn };
        let _guard = PoisonOnPanic::new(self, "a sync");
        let ticket = {
            let mut log = lock(&self.log.log);
            self.check_writable()?; // Under the lock: closing takes it before the files are let go.
            log.wal.write_zeros_ahead();
            log.wal.sync_target()
        };
        let began = self.clock.monotonic();
        let values = match is_seeded(Bug::ValuesNotSynced) {
            true => Ok(()),
            false => self.values.sync(),
        };
        let synced = values.and_then(|()| ticket.run()); // V2: in this order
        let synced = synced.inspect_err(|error| self.set_poison(&error.to_string()))?;
        let ended = self.clock.monotonic();
        let served = lead.pass_on(synced, ended.saturating_sub(began), ended);
        self.apply_ready(own);
        for caller in served {
            if !caller.is_done() {
                caller.call(Call::Look); // It wanted nothing but the sync.
            }
        }
        // After the others are on their way: those who append now make a mark needless.
        let mut log = lock(&self.log.log);
        if !self.is_closed() {
            log.wal.complete_sync(synced); // Else the files may be another opening's.
        }
        Ok(())
    }

    /// Stages 3 and 4: waits until this commit is inserted and published, doing it if it is next.
    fn apply_until(&self, caller: &Caller) -> Result<()> {
        while !caller.is_done() {
            self.apply_ready(caller);
            if caller.is_done() {
                break;
            }
            // Nobody calls who came to the queue behind the call of all that were in it.
            self.check_waiting(caller)?;
            // An earlier commit waits for its sync: whoever syncs it applies this one as well.
            caller.wait(WAIT_MAX);
            self.check_waiting(caller)?;
        }
        Ok(())
    }

    /// Whether who waits may still be served: not when the database has failed or was closed,
    /// unless its commit is applied.
    fn check_waiting(&self, caller: &Caller) -> Result<()> {
        self.check_writable().or_else(|error| if caller.is_done() { Ok(()) } else { Err(error) })
    }

    /// Applies the commits at the head of the queue that may be, and wakes the threads that wait
    /// for them, each as soon as its commit is applied.
    pub(super) fn apply_ready(&self, own: &Caller) {
        while let Some(other) = self.apply_to_next_other(own) {
            other.call(Call::Look); // Without the lock: waking is slow, and may cost the processor.
        }
    }

    /// Applies commits up to and with the next one of another thread, which is returned; `None`
    /// when there are no more that may be applied.
    fn apply_to_next_other(&self, own: &Caller) -> Option<Arc<Caller>> {
        let mut applier = self.log.lock_applier();
        // Dropped in front of the lock: nobody else may go on behind half a commit.
        let _guard = PoisonOnPanic::new(self, "applying a commit");
        loop {
            let pending = {
                let queue = lock(&self.log.queue);
                match queue.front() {
                    Some(front) if self.log.is_ready(front) && self.poison().is_none() => {
                        Some(Arc::clone(front))
                    }
                    _ => None,
                }
            }?;
            let state = self.published.state();
            if is_planted(Mistake::PublishBeforeInsert) {
                self.published.publish(pending.seqno);
            }
            self.insert(&pending, &state);
            // Only now: who looks for commits finds each in the queue or in memtables.
            lock(&self.log.queue).pop_front();
            applier.applied = pending.end;
            self.published.publish(pending.seqno);
            self.log.feeds.signal_commit();
            self.log.commit_count.fetch_add(1, Ordering::Relaxed);
            self.log.data_bytes.fetch_add(pending.batch.data_bytes(), Ordering::Relaxed);
            pending.caller.set_done();
            self.seal_if_due(&pending.batch, &state, &applier);
            if self.meter.spares.has_run_short() {
                self.workers.wake();
            }
            if !std::ptr::eq(&*pending.caller, own) {
                return Some(Arc::clone(&pending.caller));
            }
        }
    }

    /// Inserts a commit into the memtables of the keyspaces that still exist.
    fn insert(&self, pending: &Pending, state: &State) {
        let place = (pending.start.as_u64(), pending.end.as_u64());
        let batch = &pending.batch;
        if !batch.is_plain() {
            let commit = CommitPlace { seqno: pending.seqno, place };
            return insert_commit(commit, Linking::AtOnce, batch.operations().collect(), |id| {
                state.find(id).map(|keyspace| (&*keyspace.active, &*self.values))
            });
        }
        let mut operations = batch.operations();
        while let Some(id) = operations.next_keyspace() {
            let of_keyspace = std::iter::from_fn(|| operations.next_on(id));
            match state.find(id) {
                Some(keyspace) => {
                    let entries = of_keyspace.map_while(|operation| operation.write.entry());
                    insert_entries(&keyspace.active, pending.seqno, place, entries);
                }
                None => of_keyspace.for_each(drop), // dropped after the commit was accepted
            }
        }
    }
}
