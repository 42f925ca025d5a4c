//! The transactions that are open, and the memtables that are kept to check them against.
//!
//! A transaction is checked against the commits since it began. Those are in memtables; one that
//! was flushed meanwhile is kept here until no transaction is open that began before its last
//! commit, or too much is kept: then transactions that would need it conflict.
//!
//! Invariants
//! - T1  A memtable that leaves the state while a transaction is open that began before the
//!   memtable's last commit is kept, or its keyspace's `forgotten` is at least that commit.
//! - T2  It is kept before it leaves the state; so who looks at the state first and here
//!   afterwards misses none.
//! - T3  What an ingest brings is in no memtable: its range of keys is noted here, from before it
//!   is visible until no transaction is open that began before it.

use std::collections::{BTreeSet, HashMap};

use crate::base::sync::{Arc, Mutex};
use crate::base::{SeqNo, Slice};
use crate::db::core::lock;
use crate::db::ingest::IngestRange;
use crate::db::state::{Published, Table};
use crate::memory::ProcessMark;

/// The open transactions that write.
#[derive(Debug)]
pub(in crate::db) struct TransactionRegister {
    /// Bytes of memtables that are kept at most.
    bytes_max: u64,
    /// Where its transactions are.
    process: ProcessMark,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    count: u64,
    /// When each began, and its number.
    open: BTreeSet<(SeqNo, u64)>,
    /// Oldest first.
    kept: Vec<(u32, Arc<Table>)>,
    /// Of each keyspace, the newest commit in a memtable that was not kept.
    forgotten: HashMap<u32, SeqNo>,
    ingests: Vec<IngestNote>,
    commits: u64,
    conflicts: u64,
}

/// The keys of an ingest: each from the first to in front of the end may have changed (T3).
#[derive(Clone, Debug)]
struct IngestNote {
    keyspace: u32,
    first: Slice,
    /// Behind the last; `None` if there is no end.
    end: Option<Slice>,
    seqno: SeqNo,
    /// Until then transactions may begin that do not see it.
    is_over: bool,
}

/// A transaction's place in the register, until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    register: Arc<TransactionRegister>,
    place: (SeqNo, u64),
}

/// What there is to know, for `stats`.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::db) struct TransactionSummary {
    pub open: u64,
    pub kept_bytes: u64,
    pub commits: u64,
    pub conflicts: u64,
}

/// How a transaction ended that wrote something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Committed,
    InConflict,
}

impl TransactionRegister {
    /// Keeps up to `bytes_max` of flushed memtables.
    pub(in crate::db) fn new(bytes_max: u64) -> Arc<TransactionRegister> {
        let process = ProcessMark::new();
        Arc::new(TransactionRegister { bytes_max, process, held: Mutex::default() })
    }

    /// Enters a transaction that is about to take its snapshot. From here on T1 holds for it: what
    /// it will see is not older than what is visible now.
    pub(super) fn enter(self: &Arc<Self>, published: &Published) -> Registration {
        let mut held = lock(&self.held);
        held.count += 1;
        let place = (published.visible(), held.count);
        held.open.insert(place);
        Registration { register: Arc::clone(self), place }
    }

    /// A memtable is about to leave the state (T2).
    pub(in crate::db) fn note_flushed(&self, keyspace: u32, table: &Arc<Table>) {
        let mut held = lock(&self.held);
        if held.open.first().is_some_and(|(oldest, _)| *oldest < table.newest()) {
            held.kept.push((keyspace, Arc::clone(table)));
            held.forget_beyond(self.bytes_max);
        }
    }

    /// An ingest into a range of keys is about to become visible (T3).
    pub(in crate::db) fn note_ingest(&self, keyspace: u32, range: IngestRange, seqno: SeqNo) {
        let (first, end) = range;
        let note = IngestNote { keyspace, first, end, seqno, is_over: false };
        lock(&self.held).ingests.push(note);
    }

    /// The ingest of this stamp is visible, or has failed: who begins now does not need the note.
    pub(in crate::db) fn note_ingest_over(&self, seqno: SeqNo) {
        let mut held = lock(&self.held);
        for note in held.ingests.iter_mut().filter(|note| note.seqno == seqno) {
            note.is_over = true;
        }
        held.release_ingests();
    }

    /// Whether `overlaps` says of any ingest into a keyspace since `since` that it matters.
    pub(super) fn has_ingest(
        &self,
        keyspace: u32,
        since: SeqNo,
        overlaps: impl Fn(&[u8], Option<&[u8]>) -> bool,
    ) -> bool {
        let held = lock(&self.held);
        let mut notes = held.ingests.iter().filter(|note| note.keyspace == keyspace);
        notes.any(|note| note.seqno > since && overlaps(&note.first, note.end.as_deref()))
    }

    /// The memtables of a keyspace that are kept; `None` if some with commits above `since` are
    /// not.
    pub(super) fn kept(&self, keyspace: u32, since: SeqNo) -> Option<Vec<Arc<Table>>> {
        let held = lock(&self.held);
        if held.forgotten.get(&keyspace).is_some_and(|newest| *newest > since) {
            return None;
        }
        let of_keyspace = held.kept.iter().filter(|(id, _)| *id == keyspace);
        Some(of_keyspace.map(|(_, table)| Arc::clone(table)).collect())
    }

    pub(super) fn count(&self, ended: Ended) {
        let mut held = lock(&self.held);
        match ended {
            Ended::Committed => held.commits += 1,
            Ended::InConflict => held.conflicts += 1,
        }
    }

    pub(in crate::db) fn summary(&self) -> TransactionSummary {
        let held = lock(&self.held);
        TransactionSummary {
            open: held.open.len() as u64,
            kept_bytes: held.kept_bytes(),
            commits: held.commits,
            conflicts: held.conflicts,
        }
    }
}

impl Held {
    fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|(_, table)| table.memtable.memory_used() as u64).sum()
    }

    /// Lets the oldest memtables go until the rest fits.
    fn forget_beyond(&mut self, bytes_max: u64) {
        while self.kept_bytes() > bytes_max {
            let (keyspace, table) = self.kept.remove(0);
            let forgotten = self.forgotten.entry(keyspace).or_insert(SeqNo::ZERO);
            *forgotten = table.newest().max(*forgotten);
        }
    }

    /// T3.
    fn release_ingests(&mut self) {
        let oldest = self.open.first().map(|(oldest, _)| *oldest);
        self.ingests
            .retain(|note| !note.is_over || oldest.is_some_and(|oldest| note.seqno > oldest));
    }

    /// Lets go what no open transaction needs.
    fn release(&mut self) -> Vec<(u32, Arc<Table>)> {
        self.release_ingests();
        let Some((oldest, _)) = self.open.first().copied() else {
            self.forgotten.clear();
            return std::mem::take(&mut self.kept);
        };
        self.forgotten.retain(|_, newest| *newest > oldest);
        self.kept.extract_if(.., |(_, table)| table.newest() <= oldest).collect()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.register.process.is_here() {
            return; // A thread that is not in this process may hold the lock.
        }
        let released = {
            let mut held = lock(&self.register.held);
            held.open.remove(&self.place);
            held.release()
        };
        drop(released); // Not under the lock: a memtable takes some time to go.
    }
}
