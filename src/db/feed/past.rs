//! Commits that the log does not have any more, out of the versions of keyspaces that keep them.

use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use super::decode::is_unknown;
use super::{Change, ChangeKind, CommitChanges, FeedOptions, Previous};
use crate::base::{Error, Expiry, Result, SeqNo, Slice};
use crate::db::Handle;
use crate::db::history::{MergedInto, PastChange, PastChanges};
use crate::db::keyspace::Keyspace;

/// The commits of a range of stamps, as versions tell of them.
#[derive(Debug)]
pub(super) struct PastCommits {
    keyspaces: Vec<(Keyspace, Peekable<PastChanges>)>,
    previous: bool,
}

impl PastCommits {
    /// Those behind `since`, up to `end`; `None` if not all that is asked for keeps versions of all
    /// of these.
    pub(super) fn open(
        handle: &Arc<Handle>,
        options: &FeedOptions,
        since: SeqNo,
        end: SeqNo,
    ) -> Result<Option<PastCommits>> {
        let Some(chosen) = options.keyspaces.as_ref().filter(|chosen| !chosen.is_empty()) else {
            return Ok(None);
        };
        let state = handle.core.published.state();
        let mut keyspaces = Vec::new();
        for id in chosen {
            // One that was dropped has no versions.
            let Some(found) = state.find(*id).filter(|found| found.keeps_history()) else {
                return Ok(None);
            };
            let keyspace = Keyspace::new(Arc::clone(handle), found);
            let stamps = (Bound::Excluded(since), Bound::Included(end));
            if !found.runtime.options.keeps_stamps() {
                return Ok(None);
            }
            let versions = match keyspace.versions_by_stamp(stamps) {
                // What a bulk ingest brings is no commit, and of any size.
                Ok(versions) => versions.changes_of_commits().peekable(),
                Err(Error::BeyondRetention { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            keyspaces.push((keyspace, versions));
        }
        let previous = options.previous;
        Ok(Some(PastCommits { keyspaces, previous }))
    }

    /// The next commit. After an error, which may come in the middle of one, it is of no use.
    pub(super) fn next_commit(&mut self) -> Result<Option<CommitChanges>> {
        let mut first = None;
        for (_, versions) in &mut self.keyspaces {
            match versions.peek() {
                None => {}
                Some(Ok(change)) => first = Some(first.unwrap_or(SeqNo::MAX).min(change.seqno())),
                Some(Err(_)) => return Err(failure_of(versions)),
            }
        }
        let Some(seqno) = first else { return Ok(None) };
        let mut changes = Vec::new();
        let previous_asked = self.previous;
        for (keyspace, versions) in &mut self.keyspaces {
            let is_of_it = |next: &Result<PastChange>| {
                next.as_ref().is_ok_and(|change| change.seqno() == seqno)
            };
            while let Some(change) = versions.next_if(is_of_it).transpose()? {
                let (key, kinds) = kinds_of(change);
                let previous = match previous_asked {
                    true => previous_of(keyspace, &key, seqno)?,
                    false => Previous::Unknown,
                };
                let name: Option<Arc<str>> = Some(keyspace.name().into());
                changes.extend(kinds.into_iter().map(|kind| Change {
                    keyspace_id: keyspace.id(),
                    keyspace: name.clone(),
                    kind,
                    previous: previous.clone(),
                }));
            }
            if matches!(versions.peek(), Some(Err(_))) {
                return Err(failure_of(versions)); // It may be of this commit.
            }
        }
        Ok(Some(CommitChanges { seqno, payload: None, changes }))
    }
}

/// What a commit did to a key, and that key.
fn kinds_of(change: PastChange) -> (Slice, Vec<ChangeKind>) {
    let (key, into, operands) = match change {
        PastChange::Version(version) => {
            let (key, expires_at) = (version.key.clone(), millis_of(version.expiry));
            let kind = match version.value {
                Some(value) => ChangeKind::Put { key, value: Some(value), expires_at },
                None => ChangeKind::Delete { key },
            };
            return (version.key, vec![kind]);
        }
        PastChange::Merge { key, into, operands, .. } => (key, into, operands),
    };
    let mut kinds = match into {
        MergedInto::Older => Vec::new(),
        MergedInto::Nothing => vec![ChangeKind::Delete { key: key.clone() }],
        MergedInto::Value(value) => {
            vec![ChangeKind::Put { key: key.clone(), value: Some(value), expires_at: None }]
        }
    };
    let merge = |operand| ChangeKind::Merge { key: key.clone(), operand };
    kinds.extend(operands.into_iter().map(merge));
    (key, kinds)
}

/// The failure that is next.
fn failure_of(versions: &mut Peekable<PastChanges>) -> Error {
    match versions.next() {
        Some(Err(error)) => error,
        _ => Error::invalid("a version that was there is gone"),
    }
}

fn previous_of(keyspace: &Keyspace, key: &[u8], seqno: SeqNo) -> Result<Previous> {
    let before = SeqNo::from_u64(seqno.as_u64().saturating_sub(1));
    match keyspace.get_at(key, before) {
        Ok(value) => Ok(value.map_or(Previous::Absent, Previous::Value)),
        Err(error) if is_unknown(&error) => Ok(Previous::Unknown),
        // It was converted to what keeps none since.
        Err(Error::InvalidArgument { .. }) if !keyspace.keeps_history() => Ok(Previous::Unknown),
        Err(error) => Err(error),
    }
}

fn millis_of(expiry: Expiry) -> Option<u64> {
    let Expiry::At(time) = expiry else { return None };
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
