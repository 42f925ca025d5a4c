//! What a commit has written, out of its record in the log.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Change, ChangeKind, CommitChanges, FeedOptions, Previous};
use crate::base::{Error, Lifetime, Result, SeqNo, Slice, ValuePointer};
use crate::db::core::Core;
use crate::db::operation::{DecodedCommit, Write};
use crate::db::state::{KeyspaceState, State};
use crate::db::time::AsOf;
use crate::memory::SharedBytes;
use crate::value_log::hash_value;

/// Of a record up to this size, all that is handed out is one copy: who keeps a part of it keeps so
/// much at most.
const SHARED_RECORD_LEN_MAX: usize = 1 << 20;

/// No operation of a commit takes less in its record.
const OPERATION_LEN_MIN: u64 = 2;

/// Names of keyspaces, as changes have them.
#[derive(Debug, Default)]
pub(in crate::db) struct Names(HashMap<u32, Arc<str>>);

impl Names {
    fn of(&mut self, keyspace: &KeyspaceState) -> Arc<str> {
        let runtime = &keyspace.runtime;
        let now = runtime.name.load();
        let name = self.0.entry(runtime.id).or_insert_with(|| Arc::from(now.as_str()));
        if **name != **now {
            *name = Arc::from(now.as_str());
        }
        Arc::clone(name)
    }
}

/// The changes of a commit that are asked for, out of its record; `None` if there are none. The
/// error is `None` when the record is none of a commit.
pub(in crate::db) fn changes_of(
    core: &Core,
    options: &FeedOptions,
    names: &mut Names,
    (record, commit): (&[u8], DecodedCommit<'_>),
) -> std::result::Result<Option<CommitChanges>, Option<Error>> {
    let DecodedCommit { seqno, payload, count, operations } = commit;
    let state = core.published.state();
    let bytes = RecordBytes { record, shared: None };
    let mut reading = Reading { core, options, names, state: &state, seqno, bytes };
    let all = count.min(record.len() as u64 / OPERATION_LEN_MIN) as usize;
    let mut changes = Vec::with_capacity(if options.keyspaces.is_none() { all } else { 0 });
    let mut is_of_indexes = false;
    let mut last: Option<Seat<'_>> = None;
    for operation in operations {
        let operation = operation.ok_or(None)?;
        let seat: &Seat<'_> = match &last {
            Some(seat) if seat.id == operation.keyspace => seat,
            _ => last.insert(reading.seat(operation.keyspace)),
        };
        if seat.is_of_index {
            is_of_indexes = true; // Made by what else is written, or by building one.
        } else if seat.is_asked_for {
            changes.push(reading.change(seat, operation.write).map_err(Some)?);
        }
    }
    let is_only_of_indexes = is_of_indexes && payload.is_none();
    if changes.is_empty() && (options.keyspaces.is_some() || is_only_of_indexes) {
        return Ok(None);
    }
    let payload = payload.map(<[u8]>::to_vec);
    Ok(Some(CommitChanges { seqno, payload, changes }))
}

/// Whether an error says that what a key was is not known, and will not be by asking again.
pub(super) fn is_unknown(error: &Error) -> bool {
    matches!(
        error,
        Error::BeyondRetention { .. }
            | Error::MergeOperatorMissing { .. }
            | Error::MergeFailed { .. }
    )
}

/// Bytes of a commit's record, to be handed out.
struct RecordBytes<'a> {
    record: &'a [u8],
    /// A copy of it that keys and values share, once one is needed.
    shared: Option<SharedBytes>,
}

impl RecordBytes<'_> {
    /// A part of the record.
    fn slice(&mut self, part: &[u8]) -> Slice {
        if part.len() <= Slice::INLINE_LEN_MAX || self.record.len() > SHARED_RECORD_LEN_MAX {
            return Slice::from(part);
        }
        let start = part.as_ptr().addr() - self.record.as_ptr().addr();
        let shared = self.shared.get_or_insert_with(|| SharedBytes::from(self.record));
        Slice::shared(shared, start..start + part.len())
    }
}

/// What all changes of one keyspace have in common.
struct Seat<'a> {
    id: u32,
    keyspace: Option<&'a Arc<KeyspaceState>>,
    name: Option<Arc<str>>,
    is_of_index: bool,
    is_asked_for: bool,
}

/// A commit that is read.
struct Reading<'a> {
    core: &'a Core,
    options: &'a FeedOptions,
    names: &'a mut Names,
    state: &'a State,
    seqno: SeqNo,
    bytes: RecordBytes<'a>,
}

impl<'a> Reading<'a> {
    fn seat(&mut self, id: u32) -> Seat<'a> {
        let keyspace = self.state.find(id);
        Seat {
            id,
            keyspace,
            name: keyspace.map(|keyspace| self.names.of(keyspace)),
            is_of_index: self.core.is_of_index(self.state, id),
            is_asked_for: self.options.asks_for(id),
        }
    }

    fn change(&mut self, seat: &Seat<'_>, write: Write<'_>) -> Result<Change> {
        let keyspace = seat.keyspace;
        let (kind, previous) = match write {
            Write::Put { key, value } => {
                let value = self.bytes.slice(value);
                (self.put(key, Some(value), None), self.previous(keyspace, key)?)
            }
            Write::PutExpiring { key, value, lifetime } => {
                let value = self.bytes.slice(value);
                let ends = self.end_of(lifetime);
                (self.put(key, Some(value), ends), self.previous(keyspace, key)?)
            }
            Write::PutPointer { key, pointer } => {
                let value = self.value(keyspace, key, pointer)?;
                (self.put(key, value, None), self.previous(keyspace, key)?)
            }
            Write::PutPointerExpiring { key, pointer, lifetime } => {
                let value = self.value(keyspace, key, pointer)?;
                let ends = self.end_of(lifetime);
                (self.put(key, value, ends), self.previous(keyspace, key)?)
            }
            Write::Delete { key } => {
                let previous = self.previous(keyspace, key)?;
                (ChangeKind::Delete { key: self.bytes.slice(key) }, previous)
            }
            Write::Merge { key, operand } => {
                let previous = self.previous(keyspace, key)?;
                let (key, operand) = (self.bytes.slice(key), self.bytes.slice(operand));
                (ChangeKind::Merge { key, operand }, previous)
            }
            Write::DeleteRange { start, end } => {
                let start = self.bytes.slice(start);
                let end = end.map(|end| self.bytes.slice(end));
                (ChangeKind::DeleteRange { start, end }, Previous::Unknown)
            }
        };
        Ok(Change { keyspace_id: seat.id, keyspace: seat.name.clone(), kind, previous })
    }

    fn put(&mut self, key: &[u8], value: Option<Slice>, expires_at: Option<u64>) -> ChangeKind {
        ChangeKind::Put { key: self.bytes.slice(key), value, expires_at }
    }

    fn end_of(&self, lifetime: Lifetime) -> Option<u64> {
        lifetime.end(self.seqno)
    }

    /// What the key had in front of the commit.
    fn previous(&self, keyspace: Option<&Arc<KeyspaceState>>, key: &[u8]) -> Result<Previous> {
        let keyspace =
            keyspace.filter(|keyspace| self.options.previous && keyspace.keeps_history());
        let Some(keyspace) = keyspace else { return Ok(Previous::Unknown) };
        let before = SeqNo::from_u64(self.seqno.as_u64().saturating_sub(1));
        match self.as_of(keyspace, key, before) {
            Ok(value) => Ok(value.map_or(Previous::Absent, Previous::Value)),
            Err(error) if is_unknown(&error) => Ok(Previous::Unknown),
            Err(error) => Err(error),
        }
    }

    fn as_of(&self, keyspace: &KeyspaceState, key: &[u8], at: SeqNo) -> Result<Option<Slice>> {
        let asked = (at, self.core.visible());
        let version = self.core.past_version(self.state, keyspace, asked)?;
        version.check_walk()?;
        keyspace.get_past(version, key, AsOf::of(at, at.millis().max(1)))
    }

    /// The large value that the commit has put; `None` if it is gone.
    fn value(
        &self,
        keyspace: Option<&Arc<KeyspaceState>>,
        key: &[u8],
        pointer: &[u8],
    ) -> Result<Option<Slice>> {
        let values = &self.core.values;
        let ValuePointer { file, len, hash, .. } = values.decode(pointer)?;
        // Held while it is read; a file that is there has all that was ever written to it.
        if let Some(_held) = values.find(file).filter(|file| file.is_there()) {
            return values.read(pointer).map(Some);
        }
        // Cleaning has moved it, or nobody needs it any more.
        let Some(keyspace) = keyspace else { return Ok(None) };
        if keyspace.keeps_history() {
            let found = match self.as_of(keyspace, key, self.seqno) {
                Err(error) if is_unknown(&error) => None,
                found => found?,
            };
            // The same commit may have put another behind it.
            let is_it = |value: &Slice| value.len() == len as usize && hash_value(value) == hash;
            if let Some(found) = found.filter(is_it) {
                return Ok(Some(found));
            }
        }
        // Also where that moment is not kept: what the key has now is there all the same.
        let is_it = |now: &ValuePointer| now.len == len && now.hash == hash;
        match keyspace.newest_pointer(key)?.filter(is_it) {
            Some(now) => values.read(&now.encode()).map(Some),
            None => Ok(None),
        }
    }
}
