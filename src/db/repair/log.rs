//! The log of the new database: the commits of the old one that its structures do not have.
//!
//! A commit keeps its stamp, and of its operations those that are still to be done. So the new
//! database is opened as any other, and what the log says comes to memtables as ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::report::{CommitBehind, Loss, LossKind, RepairReport};
use super::stores::CopyPlace;
use crate::base::{GrowingTombstones, RangeTombstones, Result, SeqNo, successor, varint};
use crate::db::operation::{KIND_BITS, Kind, Operation, PAYLOAD_OPERATION, Write, decode_record};
use crate::db::replay::{missing, takes};
use crate::manifest::{KeyspaceOptions, Structure};
use crate::structure::salvage::{Damage, StoreState};
use crate::structure::{Store, Want};
use crate::wal::{Lsn, RecordPlace, RecordRef, SalvagedLog, Wal, WalPlace, salvage_log};

/// What a keyspace has of the log.
pub(super) struct LoggedKeyspace {
    pub name: String,
    pub options: KeyspaceOptions,
    pub has: Has,
}

/// How what a keyspace has is told from what it has not.
pub(super) enum Has {
    /// By how far its index says that it was.
    State(StoreState),
    /// By the stamps of its entries, as its index is lost. The ranges were deleted by commits of
    /// the log: what came behind that is all in the log.
    Stamps(Arc<dyn Store>, Box<GrowingTombstones>),
    /// Nothing of the log is wanted: it is made anew.
    Everything,
}

/// Where the log is, and what is known of it.
pub(super) struct LogSource<'a> {
    pub place: &'a WalPlace,
    /// Where it is needed from, if that is known.
    pub from: Option<Lsn>,
    /// It is known, by the manifest and by structures, to have been durable up to here.
    pub proven: u64,
    pub past_damage: bool,
}

/// Copies commits.
pub(super) struct LogCopy<'a> {
    pub place: &'a CopyPlace<'a>,
    pub keyspaces: BTreeMap<u32, LoggedKeyspace>,
    pub report: &'a mut RepairReport,
    pub wal: Wal,
    /// No keyspace that the catalogue knows has this id or a higher one.
    pub next_id: u32,
    /// Keyspaces that the log names and the catalogue has never known.
    pub unknown: BTreeSet<u32>,
    /// The newest commit that was taken.
    pub newest: SeqNo,
    /// The newest that there was, taken or not.
    pub highest: SeqNo,
    /// The log is known to have been durable up to here.
    pub durable_up_to: u64,
    pub taking: Taking,
}

/// Whether commits are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taking {
    /// They are, but for those that lie behind damage.
    InOrder,
    /// All that there are.
    All,
    /// None any more, and they are listed: something in front of them is no commit.
    Listing,
    /// None any more: what is there was never durable.
    Nothing,
}

/// What becomes of an operation.
enum Verdict {
    /// It stays, as it is.
    Same,
    Gone,
    Other(Vec<u8>),
}

impl LogCopy<'_> {
    /// Copies all commits, durably.
    pub(super) fn run(&mut self, source: &LogSource<'_>) -> Result<()> {
        let LogSource { place, from, proven, past_damage } = *source;
        self.taking = if past_damage { Taking::All } else { Taking::InOrder };
        let found = salvage_log(place, from, &mut |_, _| Ok(()))?;
        self.durable_up_to = found.durable_up_to.as_u64().max(proven);
        self.note_damage(&found, source);
        salvage_log(place, from, &mut |record, at| match (self.taking, at) {
            (Taking::All, _) | (Taking::InOrder, RecordPlace::InOrder) => self.take(&record),
            (Taking::Nothing, _) => Ok(()),
            (Taking::InOrder | Taking::Listing, _) => {
                self.pass(&record);
                Ok(())
            }
        })?;
        let ticket = self.wal.sync_target();
        let synced = ticket.run()?;
        self.wal.complete_sync(synced);
        Ok(())
    }

    fn note_damage(&mut self, found: &SalvagedLog, source: &LogSource<'_>) {
        let mut breaks = false;
        for damage in &found.damage {
            breaks |= damage.breaks;
            let kind = if damage.breaks { LossKind::Commits } else { LossKind::Nothing };
            let damage = Damage::new(&damage.file, damage.offset, damage.what.clone());
            self.note(kind, None, (Vec::new(), None), damage);
        }
        if !breaks && found.end.as_u64() < source.proven {
            let what = format!(
                "expected the log up to position {}, as the manifest or a structure knows it, \
                 found that it ends at {}",
                source.proven, found.end
            );
            let damage = Damage::new(&source.place.dir, 0, what);
            self.note(LossKind::Commits, None, (Vec::new(), None), damage);
        }
    }

    /// Lists a commit that is not taken.
    fn pass(&mut self, record: &RecordRef<'_>) {
        if let Some(commit) = decode_record(record.payload) {
            self.highest = self.highest.max(commit.seqno);
            self.report.note_behind(CommitBehind {
                seqno: commit.seqno,
                operations: commit.count,
                file: record.file.to_owned(),
                offset: record.offset,
            });
        }
    }

    fn take(&mut self, record: &RecordRef<'_>) -> Result<()> {
        let payload = record.payload;
        let whole = decode_record(payload).filter(|commit| commit.seqno > self.newest);
        let Some(mut commit) = whole else {
            self.end_at(record, "expected a commit above the one in front of it");
            return Ok(());
        };
        let (mut kept, mut count, mut is_same) = (Vec::new(), 0, true);
        let mut start = commit.operations.position();
        let mut decoded = 0;
        for operation in commit.operations.by_ref() {
            let Some(operation) = operation else {
                self.end_at(record, "expected an operation, found other bytes");
                return Ok(());
            };
            let bytes = &payload[start..operation.offset];
            (start, decoded) = (operation.offset, decoded + 1);
            match self.judge(operation, commit.seqno, record)? {
                Some(Verdict::Same) => kept.extend_from_slice(bytes),
                Some(Verdict::Gone) => {
                    is_same = false;
                    continue;
                }
                Some(Verdict::Other(bytes)) => {
                    is_same = false;
                    kept.extend_from_slice(&bytes);
                }
                None => return Ok(()), // It was never durable.
            }
            count += 1;
        }
        if decoded != commit.count {
            self.end_at(record, "expected as many operations as it says, found others");
            return Ok(());
        }
        self.newest = commit.seqno;
        self.highest = self.highest.max(commit.seqno);
        if count == 0 && commit.payload.is_none() && decoded > 0 {
            return Ok(());
        }
        self.report.commits += 1;
        if is_same {
            return self.wal.append(&[payload]).map(drop);
        }
        let mut head = commit.seqno.as_u64().to_le_bytes().to_vec();
        varint::put(&mut head, count + u64::from(commit.payload.is_some()));
        if let Some(user) = commit.payload {
            head.extend_from_slice(&PAYLOAD_OPERATION);
            varint::put(&mut head, user.len() as u64);
        }
        self.wal.append(&[&head, commit.payload.unwrap_or_default(), &kept]).map(drop)
    }

    /// Says that this record is none, and takes nothing from it on, unless all is wanted.
    fn end_at(&mut self, record: &RecordRef<'_>, what: &str) {
        if self.taking == Taking::InOrder {
            self.taking = Taking::Listing;
        }
        let damage = Damage::new(record.file, record.offset, what);
        self.note(LossKind::Commits, None, (Vec::new(), None), damage);
    }

    /// Says that the log names a keyspace that the catalogue does not know: of one that was
    /// dropped it would.
    fn note_unknown(&mut self, keyspace: u32, record: &RecordRef<'_>) {
        if keyspace < self.next_id || !self.unknown.insert(keyspace) {
            return;
        }
        let what = format!(
            "expected commits to keyspaces of which the manifest knows, found some to number \
             {keyspace}: the manifest is an older one, or a part of it is lost; they are left out"
        );
        let damage = Damage::new(record.file, record.offset, what);
        self.note(LossKind::Catalogue, None, (Vec::new(), None), damage);
    }

    /// What becomes of an operation; `None` if its commit was never durable.
    fn judge(
        &mut self,
        operation: Operation<'_>,
        seqno: SeqNo,
        record: &RecordRef<'_>,
    ) -> Result<Option<Verdict>> {
        let Some(keyspace) = self.keyspaces.get_mut(&operation.keyspace) else {
            self.note_unknown(operation.keyspace, record);
            return Ok(Some(Verdict::Gone));
        };
        let whole = operation.write;
        let left = match &mut keyspace.has {
            Has::Everything => None,
            Has::State(state) if record.lsn.as_u64() < state.log_end => None,
            Has::State(state) => missing(&state.begun, operation, seqno),
            Has::Stamps(store, deleted) => {
                is_missing(&**store, deleted, whole, seqno)?.then_some(operation)
            }
        };
        let Some(left) = left else { return Ok(Some(Verdict::Gone)) };
        let key = left.write.key().map(<[u8]>::to_vec);
        let of_key = || {
            let key = key.clone().unwrap_or_default();
            let behind = successor(&key);
            (key, Some(behind))
        };
        let name = Some(keyspace.name.clone());
        if !takes(&keyspace.options, &left.write) {
            let what = "expected an operation that the keyspace takes, found one of merging or \
                        expiry that it does not";
            let damage = Damage::new(record.file, record.offset, what);
            self.note(LossKind::Doubtful, name, of_key(), damage);
            return Ok(Some(Verdict::Gone));
        }
        if let Some(pointer) = left.pointer()
            && let Err(damage) = self.place.verify(pointer)
        {
            if record.lsn.as_u64() >= self.durable_up_to {
                self.taking = Taking::Nothing;
                return Ok(None);
            }
            // What comes is merged into another value, or is a version behind a deletion that there
            // was not.
            let options = &keyspace.options;
            let is_wrong =
                options.merge_operator.is_some() || options.structure == Structure::History;
            let kind = if is_wrong { LossKind::Doubtful } else { LossKind::Lost };
            self.note(kind, name, of_key(), damage);
            let key = key.unwrap_or_default();
            // What it was to take the place of must not show through.
            return Ok(Some(Verdict::Other(encode(
                operation.keyspace,
                Write::Delete { key: &key },
            ))));
        }
        Ok(Some(match left.write == whole {
            true => Verdict::Same,
            false => Verdict::Other(encode(operation.keyspace, left.write)),
        }))
    }

    fn note(
        &mut self,
        kind: LossKind,
        keyspace: Option<String>,
        (start, end): (Vec<u8>, Option<Vec<u8>>),
        damage: Damage,
    ) {
        let Damage { file, offset, what } = damage;
        let is_of_versions = false;
        self.report.note(Loss { kind, keyspace, is_of_versions, start, end, file, offset, what });
    }
}

/// Whether a store that is known by its stamps alone lacks what a commit does.
fn is_missing(
    store: &dyn Store,
    deleted: &mut GrowingTombstones,
    write: Write<'_>,
    seqno: SeqNo,
) -> Result<bool> {
    let key = match write {
        Write::DeleteRange { start, end } => {
            deleted.add(RangeTombstones::of([(start, end)], seqno));
            return Ok(true);
        }
        other => other.key().unwrap_or_default(),
    };
    if deleted.newest_of(key, SeqNo::MAX).is_some() {
        return Ok(true);
    }
    let found = store.version().find(key, Want::Stamp)?;
    Ok(found.and_then(|found| found.seqno).is_none_or(|stamp| stamp < seqno))
}

/// The bytes of a deletion.
fn encode(keyspace: u32, write: Write<'_>) -> Vec<u8> {
    let (kind, key, end) = write.fields();
    debug_assert!(matches!(kind, Kind::Delete | Kind::DeleteRange));
    let mut bytes = Vec::new();
    varint::put(&mut bytes, u64::from(keyspace) << KIND_BITS | kind as u64);
    varint::put(&mut bytes, key.len() as u64);
    if kind == Kind::DeleteRange {
        varint::put(&mut bytes, if end.is_empty() { 0 } else { end.len() as u64 + 1 });
    }
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(end);
    bytes
}
