//! Replaying the log: commits that are not in their structures yet go to memtables again.
//!
//! Nobody reads these meanwhile: entries are staged in them, and linked when there are many, when a
//! memtable is sealed, and at the end. A long log is replayed in parts at once, each into memtables
//! of its own, which then lie behind one another as if they had been sealed where parts meet.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result, SeqNo, ValuePointer};
use crate::db::insert::{CommitPlace, Linking, insert_commit};
use crate::db::operation::{DecodedCommit, Operation, Write, decode_record};
use crate::db::state::{KeyspaceState, MemtableMeter, State, Table};
use crate::jobs::RANGE_COUNT_MAX;
use crate::manifest::{KeyspaceOptions, Totals};
use crate::structure::BegunFlush;
use crate::value_log::{ValueLog, Verify};
use crate::wal::{Lsn, RecordRef, RecordVisitor};

/// Operations whose entries are staged in memtables, of all keyspaces, until they are linked: many,
/// so that several belong to one leaf, and little memory, [`STAGED_SIZE`] each.
const STAGED_MAX: u64 = 1 << 18;
/// Bytes for a staged entry.
const STAGED_SIZE: u64 = 16;

/// What is wrong with a commit that is out of order.
const NOT_ABOVE: &str = "its stamp is not above the one before it";

/// Commits in the log that came after the manifest's totals were written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uncounted {
    /// Where they begin.
    from: u64,
    commits: u64,
    data: u64,
}

impl Uncounted {
    /// None yet.
    pub(super) fn behind(totals: &Totals) -> Uncounted {
        Uncounted { from: totals.log_end, ..Uncounted::default() }
    }

    fn note(&mut self, lsn: Lsn, operations: &[Operation<'_>]) {
        if lsn.as_u64() < self.from {
            return;
        }
        self.commits += 1;
        self.data += operations.iter().map(|operation| data_bytes(&operation.write)).sum::<u64>();
    }

    /// The totals with these commits, and the log up to its end.
    pub(super) fn added_to(&self, totals: &Totals, log_end: Lsn) -> Totals {
        let mut totals = totals.clone();
        totals.commits += self.commits;
        totals.data += self.data;
        totals.wal += log_end.as_u64().saturating_sub(self.from);
        totals.log_end = totals.log_end.max(log_end.as_u64());
        totals
    }
}

/// Bytes of key and value.
fn data_bytes(write: &Write<'_>) -> u64 {
    match *write {
        Write::Put { key, value } => (key.len() + value.len()) as u64,
        Write::Merge { key, operand } => (key.len() + operand.len()) as u64,
        Write::PutExpiring { key, value, .. } => (key.len() + value.len()) as u64,
        Write::PutPointer { key, pointer } | Write::PutPointerExpiring { key, pointer, .. } => {
            let value_len = ValuePointer::decode(pointer).map_or(0, |pointer| pointer.len);
            key.len() as u64 + u64::from(value_len)
        }
        Write::Delete { key } => key.len() as u64,
        Write::DeleteRange { start, end } => (start.len() + end.unwrap_or_default().len()) as u64,
    }
}

/// Takes records of the log, or of a part of it, in order.
pub(super) struct Replayer<'a> {
    keyspaces: HashMap<u32, Replayed>,
    meter: &'a Arc<MemtableMeter>,
    values: &'a ValueLog,
    /// Pointers that were inserted, or that a trail is to be told of, with the positions of their
    /// records: of those that are not known to have been durable.
    doubtful: VecDeque<(Lsn, ValuePointer)>,
    /// A trail is to be told of commits behind this, also of what was dropped since: no value file
    /// that they need has gone.
    told: Option<SeqNo>,
    /// No keyspace has this id or a larger one.
    next_id: u32,
    newest: SeqNo,
    /// The first commit that was taken: where it is, and its stamp.
    first: Option<(RecordPlace, SeqNo)>,
    uncounted: Uncounted,
    /// Operations whose entries are staged, and how many may be.
    staged: u64,
    staged_max: u64,
}

/// Where a record is, to be told of when it is wrong.
struct RecordPlace {
    lsn: Lsn,
    file: PathBuf,
    offset: u64,
}

impl RecordPlace {
    fn of(record: &RecordRef<'_>) -> RecordPlace {
        RecordPlace { lsn: record.lsn, file: record.file.to_owned(), offset: record.offset }
    }

    fn refuse(&self, what: &str) -> Error {
        let what = format!("the record at position {}: {what}", self.lsn);
        Error::corruption(&self.file, self.offset, what)
    }
}

/// A keyspace that is being replayed.
struct Replayed {
    state: KeyspaceState,
    /// The log in front of this position is in the structure.
    flushed: u64,
    /// What else is, of memtables whose flush was interrupted (X8).
    begun: Vec<BegunFlush>,
}

impl Replayed {
    fn takes(&self, write: &Write<'_>) -> bool {
        takes(&self.state.runtime.options, write)
    }
}

/// Whether a keyspace can have been written to so: what merges and what expires does not go
/// together.
pub(super) fn takes(options: &KeyspaceOptions, write: &Write<'_>) -> bool {
    let merges = options.merge_operator.is_some();
    match write {
        Write::Merge { .. } => merges,
        Write::PutExpiring { .. } | Write::PutPointerExpiring { .. } => !merges,
        _ => true,
    }
}

/// What a structure in which these flushes were begun does not have yet of a commit's operation.
pub(super) fn missing<'o>(
    begun: &'o [BegunFlush],
    operation: Operation<'o>,
    seqno: SeqNo,
) -> Option<Operation<'o>> {
    let of_commit = begun.iter().filter(|flush| seqno <= flush.last_seqno);
    let Some(to) = of_commit.map(|flush| &*flush.to).max() else { return Some(operation) };
    let write = match operation.write {
        // Below, the structure may have later entries.
        Write::DeleteRange { start, end } if end.is_none_or(|end| end > to) => {
            Write::DeleteRange { start: start.max(to), end }
        }
        other => {
            other.key().filter(|key| *key >= to)?;
            other
        }
    };
    Some(Operation { write, ..operation })
}

impl<'a> Replayer<'a> {
    pub(super) fn new(
        state: State,
        meter: &'a Arc<MemtableMeter>,
        values: &'a ValueLog,
        next_id: u32,
    ) -> Replayer<'a> {
        let keyspaces = state.keyspaces.into_iter().map(|keyspace| {
            let flushed = keyspace.runtime.store.log_end();
            let begun = keyspace.runtime.store.begun_flushes();
            let state = KeyspaceState::clone(&keyspace);
            (state.runtime.id, Replayed { state, flushed, begun })
        });
        Replayer {
            keyspaces: keyspaces.collect(),
            meter,
            values,
            doubtful: VecDeque::new(),
            told: None,
            next_id,
            newest: SeqNo::ZERO,
            first: None,
            uncounted: Uncounted::default(),
            staged: 0,
            staged_max: STAGED_MAX,
        }
    }

    /// Stages no more than takes so many bytes.
    pub(super) fn staging_up_to(self, bytes: u64) -> Replayer<'a> {
        Replayer { staged_max: STAGED_MAX.min(bytes / STAGED_SIZE), ..self }
    }

    /// Goes on behind this stamp.
    pub(super) fn behind(self, newest: SeqNo) -> Replayer<'a> {
        Replayer { newest, ..self }
    }

    /// Counts commits as well.
    pub(super) fn counting(self, uncounted: Uncounted) -> Replayer<'a> {
        Replayer { uncounted, ..self }
    }

    /// Sees to it that a trail can be told of all commits behind this, too.
    pub(super) fn telling(self, told: Option<SeqNo>) -> Replayer<'a> {
        Replayer { told, ..self }
    }

    /// What was counted.
    pub(super) fn uncounted(&self) -> Uncounted {
        self.uncounted
    }

    /// Takes one record. A record that is in place and yet not a commit was never written by the
    /// store: its bytes verify, so the position in the log is what can be said about it.
    pub(super) fn take(&mut self, record: &RecordRef<'_>) -> Result<()> {
        let lsn = record.lsn;
        let refuse = |what: &str| RecordPlace::of(record).refuse(what);
        let Some(commit) = decode_record(record.payload) else {
            return Err(refuse("it is not a commit"));
        };
        let DecodedCommit { seqno, count, operations, .. } = commit;
        if seqno <= self.newest {
            return Err(refuse(NOT_ABOVE));
        }
        let operations: Option<Vec<_>> = operations.collect();
        let operations = operations.ok_or_else(|| refuse("an operation is malformed"))?;
        if operations.len() as u64 != count {
            return Err(refuse("operations are missing"));
        }
        self.uncounted.note(lsn, &operations);
        let is_durable = |(lsn, _): &mut (Lsn, ValuePointer)| *lsn < record.durable_up_to;
        while self.doubtful.pop_front_if(is_durable).is_some() {}
        let mut left = Vec::with_capacity(operations.len());
        for operation in operations {
            let pointer = operation.pointer().and_then(ValuePointer::decode);
            let doubtful = pointer.map(|pointer| (lsn, pointer));
            let Some(keyspace) = self.keyspaces.get(&operation.keyspace) else {
                if (1..self.next_id).contains(&operation.keyspace) {
                    // It was dropped since.
                    let is_told = self.told.is_some_and(|told| seqno > told);
                    self.doubtful.extend(doubtful.filter(|_| is_told));
                    continue;
                }
                return Err(refuse("it names a keyspace that never was"));
            };
            if !keyspace.takes(&operation.write) {
                return Err(refuse("an operation is of a kind that its keyspace does not take"));
            }
            if record.lsn.as_u64() < keyspace.flushed && !is_seeded(Bug::ReplayedTwice) {
                continue;
            }
            let Some(operation) = missing(&keyspace.begun, operation, seqno) else { continue };
            self.doubtful.extend(doubtful);
            left.push(operation);
        }
        let place = (record.lsn.as_u64(), record.end.as_u64());
        self.staged += left.len() as u64;
        insert_commit(CommitPlace { seqno, place }, Linking::Later, left, |id| {
            let keyspace = self.keyspaces.get(&id)?;
            Some((&*keyspace.state.active, self.values))
        });
        self.newest = seqno;
        if self.first.is_none() {
            self.first = Some((RecordPlace::of(record), seqno));
        }
        self.seal_full();
        if self.staged >= self.staged_max {
            self.link_staged();
        }
        Ok(())
    }

    /// Links what was inserted: from here on it is found.
    fn link_staged(&mut self) {
        for keyspace in self.keyspaces.values() {
            keyspace.state.active.link_staged();
        }
        self.staged = 0;
    }

    fn seal_full(&mut self) {
        for keyspace in self.keyspaces.values_mut().map(|replayed| &mut replayed.state) {
            let (active, size) = (&keyspace.active, keyspace.runtime.memtable_size);
            let is_large = active.memtable.memory_used() as u64 >= size;
            let has_many_ranges = active.memtable.range_cost() > RANGE_COUNT_MAX;
            let is_full = active.memtable.is_full() || active.value_room() == 0;
            if is_large || has_many_ranges || is_full {
                active.link_staged();
                let fresh = Table::new(self.meter, &keyspace.runtime);
                keyspace.sealed.insert(0, std::mem::replace(&mut keyspace.active, fresh));
            }
        }
    }

    /// Whether the values are there that a record points to which is not known to be durable (V2),
    /// as far as it would be inserted: of what structures have, and of what was dropped, the values
    /// may be gone. Of one that is no commit that is said when it is taken.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn has_values_of(&self, record: &RecordRef<'_>) -> Result<bool> {
        let Some(commit) = decode_record(record.payload) else { return Ok(true) };
        for operation in commit.operations.map_while(|operation| operation) {
            let Some(pointer) = operation.pointer().and_then(ValuePointer::decode) else {
                continue;
            };
            let keyspace = self.keyspaces.get(&operation.keyspace);
            let keyspace = keyspace.filter(|keyspace| record.lsn.as_u64() >= keyspace.flushed);
            let Some(keyspace) = keyspace else { continue };
            if missing(&keyspace.begun, operation, commit.seqno).is_none() {
                continue;
            }
            let _held_meanwhile = self.values.hold(pointer.file);
            match self.values.verify(&pointer, Verify::Checksums) {
                Ok(_) => {}
                Err(error) if error.is_corruption() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Looks at the values of records from `durable_up_to` on, which may not have reached the disk
    /// although the records did (V2). The first record that points to a value that is not there;
    /// it, and all behind it, were never durable.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn first_without_value(&mut self, durable_up_to: Lsn) -> Result<Option<Lsn>> {
        self.doubtful.retain(|(lsn, _)| *lsn >= durable_up_to);
        for (lsn, pointer) in &self.doubtful {
            match self.values.verify(pointer, Verify::Checksums) {
                Ok(_) => {}
                Err(error) if error.is_corruption() => return Ok(Some(*lsn)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The pointers of records that are not known to have been durable.
    pub(super) fn doubtful(&self) -> Vec<ValuePointer> {
        self.doubtful.iter().map(|(_, pointer)| *pointer).collect()
    }

    /// One for all parts of the log, of those that took a part each, in their order; one at least.
    ///
    /// # Errors
    /// `Corruption` if a part does not begin with a later stamp than the one before it ended with.
    pub(super) fn joined(parts: Vec<Replayer<'a>>) -> Result<Replayer<'a>> {
        let mut parts = parts.into_iter();
        let first = parts.next().expect("one part at least");
        parts.try_fold(first, Replayer::followed_by)
    }

    fn followed_by(mut self, mut later: Replayer<'a>) -> Result<Replayer<'a>> {
        let Some((place, seqno)) = &later.first else { return Ok(self) };
        if *seqno <= self.newest {
            return Err(place.refuse(NOT_ABOVE));
        }
        self.newest = later.newest;
        self.first = self.first.or(later.first);
        self.doubtful.append(&mut later.doubtful);
        self.uncounted.commits += later.uncounted.commits;
        self.uncounted.data += later.uncounted.data;
        self.staged += later.staged;
        for (id, Replayed { state: later, .. }) in later.keyspaces {
            let before = self.keyspaces.get_mut(&id).expect("parts are of the same keyspaces");
            let state = &mut before.state;
            if later.sealed.is_empty() && later.active.memtable.is_empty() {
                continue; // Nothing came behind.
            }
            let before = std::mem::replace(&mut state.active, later.active);
            if !before.memtable.is_empty() {
                before.link_staged();
                state.sealed.insert(0, before);
            }
            state.sealed.splice(0..0, later.sealed);
        }
        Ok(self)
    }

    /// The state with everything replayed, and the newest stamp in the log.
    pub(super) fn finish(mut self) -> (State, SeqNo) {
        self.link_staged();
        let keyspaces = self.keyspaces.into_values().map(|replayed| replayed.state);
        let state = keyspaces.fold(State::default(), |state, keyspace| state.with(keyspace));
        (state, self.newest)
    }
}

impl RecordVisitor for Replayer<'_> {
    fn take(&mut self, record: &RecordRef<'_>) -> Result<()> {
        Replayer::take(self, record)
    }

    fn end(&mut self) {
        self.link_staged();
    }
}
