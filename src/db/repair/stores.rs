//! Copying what is left of a store into a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::report::{Loss, LossKind, RepairReport};
use crate::base::version_key::{behind_keys, by_key_head, key_in_front};
use crate::base::{
    EntryKind, EntryRef, Error, RangeTombstones, Result, SeqNo, ValuePointer, expiring_in,
    is_operands, pointer_in, successor, version_operands,
};
use crate::block::{BlockBuilder, BlockCursor, RestartPolicy};
use crate::manifest::{KeyspaceRecord, Structure};
use crate::memory::Heap;
use crate::merge::MergeCursor;
use crate::structure::salvage::{Damage, Merged, Order, SalvageMerge, SalvagedStore, StoreState};
use crate::structure::{Compacted, FlushOrder, FlushProgress, Store};
use crate::value_log::{KeysInDoubt, ValueLog, Verify};

/// Runs of new entries that may come together before they are put in shape.
const FRESH_RUNS_MAX: usize = 8;

/// A store that was made anew.
#[derive(Debug)]
pub(super) struct CopiedStore {
    pub store: Arc<dyn Store>,
    /// How far the old one was, if its index could be read.
    pub state: Option<StoreState>,
    /// Whether anything is missing in it.
    pub is_short: bool,
}

/// What the copies of all stores have in common.
#[derive(Debug)]
pub(super) struct CopyPlace<'a> {
    pub source: &'a Path,
    pub target: &'a Path,
    /// The value files of the new database.
    pub values: &'a ValueLog,
    /// Those of them of which it is not known what they are sealed with.
    pub keys_in_doubt: &'a KeysInDoubt,
    pub heap: &'a Arc<Heap>,
    /// Bytes of entries that are in memory at once.
    pub slice_bytes: usize,
    pub leave_doubtful: bool,
}

impl CopyPlace<'_> {
    /// A path as the damaged database has it.
    pub(super) fn in_source(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(self.target) {
            Ok(rest) => self.source.join(rest),
            Err(_) => path.to_owned(),
        }
    }

    /// Whether the value that an entry points to can be read.
    pub(super) fn verify(&self, pointer: &[u8]) -> std::result::Result<(), Damage> {
        let found = match ValuePointer::decode(pointer) {
            Some(pointer) => {
                let settled = self.keys_in_doubt.settle(&pointer);
                settled.and_then(|()| self.values.verify(&pointer, Verify::Checksums))
            }
            None => Err(Error::corruption(self.source, 0, "a pointer that is none")),
        };
        found.map(drop).map_err(|error| {
            let damage = Damage::of(&error, self.source);
            Damage { file: self.in_source(&damage.file), ..damage }
        })
    }
}

/// Writes entries with rising keys to a store, a slice at a time.
#[derive(Debug)]
pub(super) struct StoreWriter {
    store: Arc<dyn Store>,
    heap: Arc<Heap>,
    slice_bytes: usize,
    builder: BlockBuilder,
    bytes: u64,
    value_bytes: u64,
    last_seqno: SeqNo,
}

impl StoreWriter {
    pub(super) fn new(
        store: &Arc<dyn Store>,
        (heap, slice_bytes): (&Arc<Heap>, usize),
        last_seqno: SeqNo,
    ) -> StoreWriter {
        StoreWriter {
            store: Arc::clone(store),
            heap: Arc::clone(heap),
            slice_bytes,
            builder: BlockBuilder::new(RestartPolicy::Whole),
            bytes: 0,
            value_bytes: 0,
            last_seqno,
        }
    }

    pub(super) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let len = entry.key.len() + entry.value.len();
        let is_full = self.builder.estimated_size() + len > self.slice_bytes;
        if is_full && !self.builder.is_empty() {
            self.flush()?;
        }
        self.builder.add(entry)?;
        self.bytes += len as u64;
        let pointer = pointer_in(entry.kind, entry.value).and_then(ValuePointer::decode);
        self.value_bytes += pointer.map_or(0, |pointer| u64::from(pointer.len));
        self.last_seqno = self.last_seqno.max(entry.seqno);
        Ok(())
    }

    /// Brings what was added to the store, and the newest stamp.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.builder.is_empty() && self.store.last_seqno() >= self.last_seqno {
            return Ok(());
        }
        let order = FlushOrder {
            memtable_bytes: std::mem::take(&mut self.bytes),
            value_bytes: std::mem::take(&mut self.value_bytes),
            log_end: 0,
            last_seqno: self.last_seqno,
            now: 0, // Nothing has expired for a copy.
            slice_bytes: u64::MAX,
        };
        let block = (!self.builder.is_empty())
            .then(|| BlockCursor::new(Arc::new(self.builder.finish_block(&self.heap))));
        let mut entries = MergeCursor::new(block.into_iter().collect());
        let none = RangeTombstones::default();
        while self.store.flush(&mut entries, &none, order)?.progress != FlushProgress::Complete {}
        if self.store.debt().fresh_runs > FRESH_RUNS_MAX {
            self.put_in_shape()?;
        }
        self.store.remove_unreferenced();
        Ok(())
    }

    fn put_in_shape(&self) -> Result<()> {
        loop {
            let is_ready = match self.store.compact(self.slice_bytes as u64, 0)? {
                Compacted::Nothing => return Ok(()),
                Compacted::Ready => true,
                Compacted::Slice { is_ready, .. } => is_ready,
            };
            if is_ready {
                self.store.install()?;
            }
        }
    }
}

/// Copies a store.
pub(super) struct StoreCopy<'a> {
    pub place: &'a CopyPlace<'a>,
    pub record: &'a KeyspaceRecord,
    /// The keyspace's name; of an archive, that of the keyspace whose versions it has.
    pub name: &'a str,
    pub report: &'a mut RepairReport,
    pub is_short: bool,
    /// Versions that hold operands on the next older version of their key, which is to come.
    pub chain: Vec<OwnEntry>,
}

/// An entry that is kept.
#[derive(Clone, Debug)]
pub(super) struct OwnEntry {
    pub key: Vec<u8>,
    pub seqno: SeqNo,
    pub kind: EntryKind,
    pub value: Vec<u8>,
}

impl OwnEntry {
    pub(super) fn of(entry: EntryRef<'_>) -> OwnEntry {
        let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
        OwnEntry { key, seqno: entry.seqno, kind: entry.kind, value }
    }

    pub(super) fn entry(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, seqno: self.seqno, kind: self.kind, value: &self.value }
    }
}

impl StoreCopy<'_> {
    /// Copies what is left of `salvaged` to `store`, which is empty.
    pub(super) fn run(
        &mut self,
        mut salvaged: SalvagedStore,
        store: Arc<dyn Store>,
    ) -> Result<CopiedStore> {
        let (state, order) = (salvaged.state.take(), salvaged.order);
        for (index, damage) in std::mem::take(&mut salvaged.damage).into_iter().enumerate() {
            // What the log merges into what is left out makes other values.
            let is_doubtful = self.merges() || !self.place.leave_doubtful;
            let kind = match (order, index) {
                (Order::Ranks, _) => LossKind::Nothing,
                (Order::Stamps, 0) if is_doubtful => LossKind::Doubtful,
                (Order::Stamps, _) => LossKind::Lost,
            };
            self.note(kind, (Vec::new(), None), damage);
        }
        let last_seqno = state.as_ref().map_or(SeqNo::ZERO, |state| state.last_seqno);
        let of_heap = (self.place.heap, self.place.slice_bytes);
        let mut writer = StoreWriter::new(&store, of_heap, last_seqno);
        let mut merge = SalvageMerge::new(salvaged);
        if self.is_archive() {
            self.copy_archive(&mut merge, &mut writer, &store)?;
        } else {
            merge.run_to(None, &mut |merged| self.take(merged, &mut writer))?;
        }
        writer.flush()?;
        self.is_short |= merge.has_gaps();
        Ok(CopiedStore { store, state, is_short: self.is_short })
    }

    /// Versions by key, and then by stamp those of them that are there by key.
    fn copy_archive(
        &mut self,
        merge: &mut SalvageMerge,
        writer: &mut StoreWriter,
        store: &Arc<dyn Store>,
    ) -> Result<()> {
        merge.run_to(Some(&behind_keys()), &mut |merged| self.take(merged, writer))?;
        if merge.may_lack_up_to(&behind_keys()) {
            self.break_chain();
        }
        self.end_chain(writer)?;
        writer.flush()?;
        self.is_short |= merge.has_gaps();
        let (by_key, is_short) = (store.version(), self.is_short);
        merge.run_to(None, &mut |merged| {
            if is_short
                && let Merged::Entry { entry, .. } = &merged
                && !super::versions::has_by_key(&*by_key, *entry)?
            {
                return Ok(());
            }
            self.take(merged, writer)
        })
    }

    fn is_archive(&self) -> bool {
        self.record.options.archive_of.is_some()
    }

    /// Whether what the log merges into a lost value makes another one.
    fn merges(&self) -> bool {
        self.record.options.merge_operator.is_some() && !self.is_archive()
    }

    fn take(&mut self, merged: Merged<'_>, writer: &mut StoreWriter) -> Result<()> {
        match merged {
            Merged::Unknown { key, damage } => {
                let damage = damage.cloned().unwrap_or_else(|| {
                    let what = "expected what operands are merged into, found that it is lost";
                    Damage::new(&super::keyspace_path(self.place, self.record), 0, what)
                });
                self.lose(key, damage);
            }
            Merged::Entry { is_doubtful: true, entry, .. } if self.place.leave_doubtful => {
                self.is_short = true;
                self.break_chain_of(entry.key);
            }
            Merged::Entry { entry, is_behind_gap, .. } => {
                if is_behind_gap {
                    self.break_chain();
                }
                self.take_entry(entry, writer)?;
            }
            Merged::Gap(met) => {
                let shows_older = met.shows_older && !self.place.leave_doubtful || self.merges();
                let kind = if shows_older { LossKind::Doubtful } else { LossKind::Lost };
                let span = (met.gap.start.to_vec(), met.gap.end.map(|end| end.to_vec()));
                self.note(kind, span, met.gap.damage);
            }
            Merged::Harmless(damage) => self.note(LossKind::Nothing, (Vec::new(), None), damage),
        }
        Ok(())
    }

    /// Why an entry cannot be one of this keyspace, if so.
    fn why_not(&self, entry: EntryRef<'_>) -> Option<&'static str> {
        let EntryRef { kind, value, .. } = entry;
        let merges = self.record.options.merge_operator.is_some();
        let is_archive = self.is_archive();
        if is_operands(kind, value) && !is_archive && !merges {
            return Some(
                "expected a merge operator, found operands in a keyspace of which none is known",
            );
        }
        if version_operands(kind, value).is_some() && !is_archive {
            return Some("expected an entry of a keyspace, found one of an archive of versions");
        }
        if expiring_in(kind, value).is_some() && merges {
            return Some(
                "expected what does not expire in a keyspace that merges, found an expiry",
            );
        }
        None
    }

    fn take_entry(&mut self, entry: EntryRef<'_>, writer: &mut StoreWriter) -> Result<()> {
        if let Some(what) = self.why_not(entry) {
            let path = super::keyspace_path(self.place, self.record);
            self.lose(entry.key, Damage::new(&path, 0, what));
            return Ok(());
        }
        if let Some(pointer) = pointer_in(entry.kind, entry.value)
            && let Err(damage) = self.place.verify(pointer)
        {
            self.lose(entry.key, damage);
            return Ok(());
        }
        self.report.entries += 1;
        if !self.is_archive() {
            return writer.add(entry);
        }
        if !self.chain_is_of(entry.key) {
            self.end_chain(writer)?;
        }
        if version_operands(entry.kind, entry.value).is_some() {
            self.chain.push(OwnEntry::of(entry));
            return Ok(());
        }
        self.end_chain(writer)?;
        writer.add(entry)
    }

    /// Whether the versions that wait are of the key of this version.
    fn chain_is_of(&self, version: &[u8]) -> bool {
        let head = by_key_head(version);
        self.chain.first().is_some_and(|first| by_key_head(&first.key) == head)
    }

    /// Writes versions whose older ones are there.
    fn end_chain(&mut self, writer: &mut StoreWriter) -> Result<()> {
        self.chain.drain(..).try_for_each(|version| writer.add(version.entry()))
    }

    /// Gives up versions whose older ones are lost.
    fn break_chain(&mut self) {
        for version in std::mem::take(&mut self.chain) {
            self.report.entries -= 1;
            let what = "expected the version that operands are merged into, found that it is lost";
            let damage = Damage::new(&super::keyspace_path(self.place, self.record), 0, what);
            self.lose_key(&version.key, damage);
        }
    }

    /// The same, if they wait for this one.
    fn break_chain_of(&mut self, version: &[u8]) {
        if self.chain_is_of(version) {
            self.break_chain();
        }
    }

    /// Leaves a key out, and what needs it.
    fn lose(&mut self, key: &[u8], damage: Damage) {
        self.lose_key(key, damage);
        self.break_chain_of(key);
    }

    fn lose_key(&mut self, key: &[u8], damage: Damage) {
        self.is_short = true;
        let kind = if self.merges() { LossKind::Doubtful } else { LossKind::Lost };
        self.note(kind, (key.to_vec(), Some(successor(key))), damage);
    }

    fn note(&mut self, kind: LossKind, (start, end): (Vec<u8>, Option<Vec<u8>>), damage: Damage) {
        // Entries by stamp say again what those by key say.
        let is_made_anew = self.is_archive() && *start >= *behind_keys();
        let kind = if is_made_anew { LossKind::Nothing } else { kind };
        let (start, end) =
            if self.is_archive() { keys_of(&start, end.as_deref()) } else { (start, end) };
        let Damage { file, offset, what } = damage;
        self.report.note(Loss {
            kind,
            keyspace: Some(self.name.to_owned()),
            is_of_versions: self.is_archive(),
            start,
            end,
            file,
            offset,
            what,
        });
    }
}

/// The range of keys that a range of an archive concerns.
fn keys_of(start: &[u8], end: Option<&[u8]>) -> (Vec<u8>, Option<Vec<u8>>) {
    let last = end.and_then(key_in_front).map(|key| successor(&key));
    (key_in_front(start).unwrap_or_default(), last)
}

/// Whether a keyspace keeps versions.
pub(super) fn keeps_versions(record: &KeyspaceRecord) -> bool {
    record.options.structure == Structure::History
}
