//! What a commit has written, out of its record in the log.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Change, ChangeKind, CommitChanges, FeedOptions, Previous};
use crate::base::{Error, Lifetime, Result, SeqNo, Slice, ValuePointer};
use crate::db::core::Core;
use crate::db::operation::{DecodedCommit, Write};
use crate::db::state::{KeyspaceState, State};
use crate::db::time::AsOf;
use crate::value_log::hash_value;

/// Names of keyspaces, as changes have them.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<u32, Arc<str>>);

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

/// The changes of a commit that are asked for; `None` if there are none. The error is `None` when
/// the record is none of a commit.
pub(super) fn changes_of(
    core: &Core,
    options: &FeedOptions,
    names: &mut Names,
    commit: DecodedCommit<'_>,
) -> std::result::Result<Option<CommitChanges>, Option<Error>> {
    let DecodedCommit { seqno, payload, operations, .. } = commit;
    let state = core.published.state();
    let mut reading = Reading { core, options, names, state: &state, seqno };
    let (mut changes, mut is_of_indexes) = (Vec::new(), false);
    for operation in operations {
        let operation = operation.ok_or(None)?;
        if core.is_of_index(&state, operation.keyspace) {
            is_of_indexes = true; // Made by what else is written, or by building one.
        } else if options.asks_for(operation.keyspace) {
            changes.push(reading.change(operation.keyspace, operation.write).map_err(Some)?);
        }
    }
    let is_only_of_indexes = is_of_indexes && payload.is_none();
    if changes.is_empty() && (options.keyspaces.is_some() || is_only_of_indexes) {
        return Ok(None);
    }
    let payload = payload.map(<[u8]>::to_vec);
    Ok(Some(CommitChanges { seqno, payload, changes }))
}

/// A commit that is read.
struct Reading<'a> {
    core: &'a Core,
    options: &'a FeedOptions,
    names: &'a mut Names,
    state: &'a State,
    seqno: SeqNo,
}

impl Reading<'_> {
    fn change(&mut self, keyspace_id: u32, write: Write<'_>) -> Result<Change> {
        let keyspace = self.state.find(keyspace_id);
        let of_key = |key: &[u8]| self.previous(keyspace, key);
        let (kind, previous) = match write {
            Write::Put { key, value } => (put(key, Some(Slice::from(value)), None), of_key(key)?),
            Write::PutExpiring { key, value, lifetime } => {
                (put(key, Some(Slice::from(value)), self.end_of(lifetime)), of_key(key)?)
            }
            Write::PutPointer { key, pointer } => {
                (put(key, self.value(keyspace, key, pointer)?, None), of_key(key)?)
            }
            Write::PutPointerExpiring { key, pointer, lifetime } => {
                let value = self.value(keyspace, key, pointer)?;
                (put(key, value, self.end_of(lifetime)), of_key(key)?)
            }
            Write::Delete { key } => (ChangeKind::Delete { key: Slice::from(key) }, of_key(key)?),
            Write::Merge { key, operand } => {
                let (key, operand) = (Slice::from(key), Slice::from(operand));
                (ChangeKind::Merge { key, operand }, Previous::Unknown)
            }
            Write::DeleteRange { start, end } => {
                let (start, end) = (Slice::from(start), end.map(Slice::from));
                (ChangeKind::DeleteRange { start, end }, Previous::Unknown)
            }
        };
        let keyspace = keyspace.map(|keyspace| self.names.of(keyspace));
        Ok(Change { keyspace_id, keyspace, kind, previous })
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
            Err(Error::BeyondRetention { .. }) => Ok(Previous::Unknown),
            Err(error) => Err(error),
        }
    }

    fn as_of(&self, keyspace: &KeyspaceState, key: &[u8], at: SeqNo) -> Result<Option<Slice>> {
        let asked = (at, self.core.visible());
        let version = self.core.past_version(self.state, keyspace, asked)?;
        version.check_walk()?;
        keyspace.get_past(&version, key, AsOf::of(at, at.millis().max(1)))
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
            let found = self.as_of(keyspace, key, self.seqno)?;
            // The same commit may have put another behind it.
            let is_it = |value: &Slice| value.len() == len as usize && hash_value(value) == hash;
            return Ok(found.filter(is_it));
        }
        let is_it = |now: &ValuePointer| now.len == len && now.hash == hash;
        match keyspace.pointer(key, SeqNo::MAX).filter(is_it) {
            Some(now) => values.read(&now.encode()).map(Some),
            None => Ok(None),
        }
    }
}

fn put(key: &[u8], value: Option<Slice>, expires_at: Option<u64>) -> ChangeKind {
    ChangeKind::Put { key: Slice::from(key), value, expires_at }
}
