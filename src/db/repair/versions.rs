//! Archives of which something is lost: both of their orders, and the keyspaces that they are of,
//! are to say the same again.
//!
//! Versions are what is found by key. A version that is not found by its stamp is put there again;
//! what is found by its stamp alone is left out when it is copied. What a keyspace has and its
//! archive has not becomes a version again.

use std::ops::Bound;
use std::sync::Arc;

use super::stores::{CopyPlace, OwnEntry, StoreWriter};
use crate::base::version_key::{
    VersionKey, VersionKind, behind_keys, put_by_stamp, put_head, put_tail,
};
use crate::base::{
    EntryKind, EntryRef, KeyRange, MergeBase, Operands, Result, SeqNo, Slice, is_operands,
};
use crate::manifest::KeyspaceOptions;
use crate::structure::{Store, Version, Want};

/// Entries that are put in order before they are written.
const BATCH_COUNT: usize = 16 << 10;

/// Whether what an archive has by a stamp is there by its key as well.
pub(super) fn has_by_key(archive: &dyn Version, entry: EntryRef<'_>) -> Result<bool> {
    let Some(VersionKey::ByStamp { stamp, key }) = VersionKey::decode(entry.key) else {
        return Ok(false);
    };
    let kind = entry.value.first().copied().and_then(VersionKind::from_u8);
    let Some(kind) = kind else { return Ok(false) };
    let mut by_key = Vec::new();
    put_head(&mut by_key, &key);
    put_tail(&mut by_key, stamp, kind);
    is_there(archive, &by_key)
}

fn is_there(version: &dyn Version, key: &[u8]) -> Result<bool> {
    let found = version.find(key, Want::Value)?;
    Ok(found.is_some_and(|found| found.kind != EntryKind::Tombstone))
}

/// Entries that are to come to a store, in any order.
struct Batch<'a> {
    place: &'a CopyPlace<'a>,
    store: &'a Arc<dyn Store>,
    last_seqno: SeqNo,
    entries: Vec<OwnEntry>,
    bytes: usize,
}

impl Batch<'_> {
    fn add(&mut self, key: &[u8], seqno: SeqNo, (kind, value): (EntryKind, &[u8])) -> Result<()> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.bytes += key.len() + value.len();
        self.entries.push(OwnEntry { key, seqno, kind, value });
        match self.entries.len() < BATCH_COUNT && self.bytes < self.place.slice_bytes {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn write(&mut self) -> Result<()> {
        self.bytes = 0;
        self.entries.sort_by(|a, b| a.key.cmp(&b.key));
        self.entries.dedup_by(|a, b| a.key == b.key);
        let of_heap = (self.place.heap, self.place.slice_bytes);
        let mut writer = StoreWriter::new(self.store, of_heap, self.last_seqno);
        self.entries.drain(..).try_for_each(|entry| writer.add(entry.entry()))?;
        writer.flush()
    }
}

/// Whether an archive with these options has the version of a stamp by that as well.
fn is_kept_by_stamp(options: &KeyspaceOptions, stamp: SeqNo) -> bool {
    let by_count_alone = options.keep_versions.is_some() && options.keep_for.is_none();
    !by_count_alone && stamp >= options.kept_from
}

/// Makes an archive, and what its keyspace is now, say the same.
pub(super) fn mend(
    place: &CopyPlace<'_>,
    (archive, options): (&Arc<dyn Store>, &KeyspaceOptions),
    keyspace: &Arc<dyn Store>,
) -> Result<()> {
    let last_seqno = archive.last_seqno().max(keyspace.last_seqno());
    let mut batch = Batch { place, store: archive, last_seqno, entries: Vec::new(), bytes: 0 };
    let version = archive.version();
    // In front of the entries by stamp lie those by key.
    let end = Bound::Excluded(behind_keys());
    let range = KeyRange { start: Bound::Unbounded, end };
    let mut by_stamp = Vec::new();
    walk(&*version, &range, &mut |entry| {
        let Some(VersionKey::ByKey { key, stamp, kind }) = VersionKey::decode(entry.key) else {
            return Ok(());
        };
        put_by_stamp(&mut by_stamp, stamp, &key);
        if is_kept_by_stamp(options, stamp) && !is_there(&*version, &by_stamp)? {
            batch.add(&by_stamp, stamp, (EntryKind::Value, &[kind as u8]))?;
        }
        Ok(())
    })?;
    let everything = KeyRange { start: Bound::Unbounded, end: Bound::Unbounded };
    let mut by_key = Vec::new();
    walk(&*keyspace.version(), &everything, &mut |entry| {
        if entry.kind == EntryKind::Tombstone {
            return Ok(());
        }
        put_head(&mut by_key, entry.key);
        put_tail(&mut by_key, entry.seqno, VersionKind::Put);
        if is_there(&*version, &by_key)? {
            return Ok(());
        }
        // Nothing is below what is open; in an archive there might be.
        let open = Operands::decode(entry.value)
            .filter(|operands| is_operands(entry.kind, entry.value) && operands.is_open());
        let closed = open.map(|operands| operands.on(MergeBase::Nothing));
        let value = closed.as_deref().unwrap_or(entry.value);
        batch.add(&by_key, entry.seqno, (entry.kind, value))?;
        put_by_stamp(&mut by_stamp, entry.seqno, entry.key);
        if is_kept_by_stamp(options, entry.seqno) {
            let put = [VersionKind::Put as u8];
            batch.add(&by_stamp, entry.seqno, (EntryKind::Value, &put))?;
        }
        Ok(())
    })?;
    batch.write()
}

fn walk(
    version: &dyn Version,
    range: &KeyRange,
    take: &mut dyn FnMut(EntryRef<'_>) -> Result<()>,
) -> Result<()> {
    let mut cursor = version.cursor(range);
    let start = match &range.start {
        Bound::Included(start) | Bound::Excluded(start) => start.clone(),
        Bound::Unbounded => Vec::new(),
    };
    cursor.seek(&start)?;
    while let Some(entry) = cursor.entry() {
        if let Bound::Excluded(end) = &range.end
            && *entry.key >= **end
        {
            return Ok(());
        }
        let (key, value) = (Slice::from(entry.key), Slice::from(entry.value));
        take(EntryRef { key: &key, value: &value, ..entry })?;
        cursor.next()?;
    }
    Ok(())
}
