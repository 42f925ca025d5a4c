//! Reading intervals: entries and runs from segments, and what of them is kept in memory.
//!
//! A lookup goes through the runs of its interval, newest first. A run's guide says that it does
//! not have the key, or where its entry lies: then only that is read. Walks need all entries in
//! order: they read the runs whole, merge them into one block, and keep it in the interval's slot.

use std::sync::Arc;

use super::interval::{Interval, Run, RunGuide};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::base::{Cursor, EntryKind, Error, Result, Slice, hash_key, is_operands};
use crate::block::{Block, BlockBuilder, BlockCursor, FrameKind, FramePlace, RestartPolicy, frame};
use crate::block::{FrameReader, Guide, GuideKind, SealedFrame};
use crate::cache::{Admission, Cache, FillOutcome, MemoryBudget, Part, Slot};
use crate::memory::Heap;
use crate::merge::MergeCursor;
use crate::storage::StorageFile;
use crate::structure::fold::Folder;
use crate::structure::{Found, SharedStores, Want};

/// Lookups in the file after which a run is put into a full cache, at the cost of what it displaces
/// there. A lookup in the file costs about a fifth of reading the whole run; so what is not wanted
/// much more than the rest costs little more for being kept out.
const LOOKUPS_BEFORE_FILL: u8 = 16;
/// The same for seeks, which read the run whole each time.
const SEEKS_BEFORE_FILL: u8 = 4;
/// The same for walks that pass: a long one would displace everything, and come back too late.
const PASSES_BEFORE_FILL: u8 = 16;
/// The same for guides: reads of a run for which there is no room for a guide, until one displaces
/// another. Making it costs a third of reading the run, which is done anyhow; the one that goes may
/// be of a run that is wanted as much.
const READS_BEFORE_GUIDE: u8 = 4;
/// Deltas below this are read whole: their guides have no map.
const MAPPED_DELTA_LEN_MIN: u32 = 4 << 10;

/// What came of looking into a guide.
enum ByGuide {
    Found(Option<Found>),
    /// The run is to be read whole.
    IsToBeRead,
}

/// Reads intervals of one keyspace through the cache.
#[derive(Debug)]
pub(super) struct Loader {
    cache: Arc<Cache<Block>>,
    guides: Arc<Cache<Guide>>,
    folder: Folder,
    blocks_read: AtomicU64,
    block_bytes_read: AtomicU64,
}

impl Loader {
    pub(super) fn new(shared: &SharedStores, folder: Folder) -> Loader {
        let (cache, guides) = (Arc::clone(&shared.cache), Arc::clone(&shared.guides));
        let (blocks_read, block_bytes_read) = (AtomicU64::new(0), AtomicU64::new(0));
        Loader { cache, guides, folder, blocks_read, block_bytes_read }
    }

    /// What makes values of operands.
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// What memory is charged to.
    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        self.cache.budget()
    }

    /// Has guides and blocks give way to what is charged, as the index has changed.
    pub(super) fn make_room(&self) {
        self.budget().ease();
        self.trim();
    }

    /// Has guides and blocks fit what the others leave them.
    pub(super) fn trim(&self) {
        self.guides.trim();
        self.cache.trim();
    }

    /// Whether the run's guide, if there is one, lets a key be there; for a check.
    pub(super) fn guide_admits(&self, run: &Run, hash: u64) -> bool {
        self.glance_at_guide(run, |guide| guide.may_contain(hash)).unwrap_or(true)
    }

    /// Looks into the run's guide, if there is one. Does not count as a use.
    pub(super) fn glance_at_guide<R>(
        &self,
        run: &Run,
        look: impl FnOnce(&Guide) -> R,
    ) -> Option<R> {
        match run.memory.guide.get()? {
            RunGuide::Kept(kept) => Some(look(&kept.0)),
            RunGuide::Cached(slot) => self.guides.glance(slot).map(|guide| look(&guide)),
        }
    }

    /// What is in a slot, for a check.
    pub(super) fn cached(&self, slot: &Slot<Block>) -> Option<Arc<Block>> {
        self.cache.load(slot, Admission::OnceRead)
    }

    /// Where blocks live.
    pub(super) fn heap(&self) -> &Arc<Heap> {
        self.cache.budget().heap()
    }

    /// Reads and bytes read so far.
    pub(super) fn reads(&self) -> (u64, u64) {
        (self.blocks_read.load(Ordering::Relaxed), self.block_bytes_read.load(Ordering::Relaxed))
    }

    /// The interval's newest entry of `key`; may be a tombstone. Operands are given with all that
    /// older runs have of the key: what is open has nothing below it (X9).
    #[inline]
    pub(super) fn find(
        &self,
        interval: &Interval,
        key: &[u8],
        want: Want,
    ) -> Result<Option<Found>> {
        if let Some(run) = interval.only_base() {
            return self.find_in_run(run, key, || hash_key(key), want);
        }
        if let Some(slot) = interval.slot_if_used()
            && let Some(block) = self.cache.borrow_if_filled(slot)
        {
            return Ok(Found::in_block(&block, key));
        }
        self.find_in_runs(interval, key, want)
    }

    #[inline(never)]
    fn find_in_runs(&self, interval: &Interval, key: &[u8], want: Want) -> Result<Option<Found>> {
        let hash = hash_key(key);
        let mut runs = interval.runs().rev();
        while let Some(run) = runs.next() {
            if let Some(found) = self.find_in_run(run, key, || hash, want)? {
                if is_operands(found.kind, &found.value) {
                    return self.stack_over(&found, runs, key, hash).map(Some);
                }
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Operands that were found, on top of what older runs have of the key.
    #[cold]
    fn stack_over<'r>(
        &self,
        newest: &Found,
        older: impl Iterator<Item = &'r Run>,
        key: &[u8],
        hash: u64,
    ) -> Result<Found> {
        let mut bytes = newest.value.to_vec();
        for run in older {
            if !self.folder.decode(&bytes)?.is_open() {
                break;
            }
            if let Some(found) = self.find_in_run(run, key, || hash, Want::Value)? {
                bytes = self.folder.over(&bytes, found.kind, &found.value)?;
            }
        }
        Ok(Found { value: Slice::from(bytes), ..*newest })
    }

    #[inline]
    fn find_in_run(
        &self,
        run: &Run,
        key: &[u8],
        hash: impl FnOnce() -> u64,
        want: Want,
    ) -> Result<Option<Found>> {
        // Takes no reference count, which readers on several cores would contend for.
        if let Some(slot) = &run.slot
            && let Some(block) = self.cache.borrow(slot, Admission::Normal)
        {
            return Ok(Found::in_block(&block, key));
        }
        self.find_outside_memory(run, key, hash(), want)
    }

    fn find_outside_memory(
        &self,
        run: &Run,
        key: &[u8],
        hash: u64,
        want: Want,
    ) -> Result<Option<Found>> {
        let by_guide = match run.memory.guide.get() {
            None => ByGuide::IsToBeRead,
            Some(RunGuide::Kept(kept)) => self.look_into(run, &kept.0, key, hash, want)?,
            Some(RunGuide::Cached(slot)) => match self.guides.borrow_if_filled(slot) {
                None => ByGuide::IsToBeRead,
                // On loan while pages are read: should it be evicted, it goes behind that.
                Some(guide) => self.look_into(run, &guide, key, hash, want)?,
            },
        };
        if let ByGuide::Found(found) = by_guide {
            return Ok(found);
        }
        let block = match self.read_run(run) {
            Err(_) if is_seeded(Bug::ReadErrorIsAbsence) => return Ok(None),
            block => block?,
        };
        self.keep(run, &block);
        Ok(Found::copied_from(&block, key))
    }

    /// Reads a run whole for several keys. That does not displace what is read more.
    pub(super) fn read_for_several(&self, run: &Run) -> Result<Arc<Block>> {
        let block = self.read_run(run)?;
        let is_mapped = self.glance_at_guide(run, Guide::has_map).unwrap_or(false);
        if !is_mapped || self.is_to_be_filled(run, LOOKUPS_BEFORE_FILL) {
            self.keep(run, &block);
        }
        Ok(block)
    }

    /// Looks for a key of a run that is not in memory.
    #[inline]
    fn look_into(
        &self,
        run: &Run,
        guide: &Guide,
        key: &[u8],
        hash: u64,
        want: Want,
    ) -> Result<ByGuide> {
        if !guide.may_contain(hash) {
            return Ok(ByGuide::Found(None));
        }
        if !guide.has_map() || self.is_to_be_filled(run, LOOKUPS_BEFORE_FILL) {
            return Ok(ByGuide::IsToBeRead);
        }
        self.find_by_guide(run, guide, key, hash, want).map(ByGuide::Found)
    }

    fn find_by_guide(
        &self,
        run: &Run,
        guide: &Guide,
        key: &[u8],
        hash: u64,
        want: Want,
    ) -> Result<Option<Found>> {
        let file = run.segment.file()?;
        let mut reader = RunReader { loader: self, run, file: &*file };
        let Some(entry) = guide.find(key, hash, &mut reader)? else { return Ok(None) };
        let seqno = match want {
            Want::Value => None,
            Want::Stamp => Some(guide.stamp(entry.index, &mut reader)?),
        };
        Ok(Some(Found { seqno, kind: entry.kind, value: entry.value }))
    }

    /// Counts a use that goes to the file; whether the run is now to be put into the cache: when
    /// there is room, or it is the use number `due_at`.
    fn is_to_be_filled(&self, run: &Run, due_at: u8) -> bool {
        if run.slot.is_none() {
            return false;
        }
        count_use(&run.memory.misses, due_at, || self.cache.has_lasting_room(run.len as usize, 1))
    }

    /// Keeps what is worth it of a run that a lookup has read whole.
    fn keep(&self, run: &Run, block: &Arc<Block>) {
        let had_guide = match run.memory.guide.get() {
            None => false,
            Some(RunGuide::Kept(_)) => true,
            Some(RunGuide::Cached(slot)) => slot.is_filled(),
        };
        let has_guide = had_guide || self.make_guide(run, block);
        let Some(slot) = &run.slot else { return };
        let weight = block.memory_size();
        // The first to come get the room; then those that are asked for again.
        if had_guide || !has_guide || self.cache.has_lasting_room(weight, 1) {
            self.cache.fill(slot, Arc::clone(block), weight, Admission::Normal);
        }
        self.guides.trim(); // They give way to what nobody else trims them for.
    }

    /// Whether the run has a guide now.
    fn make_guide(&self, run: &Run, block: &Block) -> bool {
        let is_mapped = run.slot.is_some() || run.len >= MAPPED_DELTA_LEN_MIN;
        let kind = if is_mapped { GuideKind::PrintsAndMap } else { GuideKind::Prints };
        // Before the work of making it.
        let reckoned = Guide::reckoned_size(run.entry_count as usize, run.len as usize);
        if !self.guides.admits(reckoned) {
            return false;
        }
        if run.memory.guide.get().is_none() && self.budget().admits_in_reserve(reckoned) {
            run.memory.guide.get_or_init(|| {
                let guide = Guide::new(block, kind, None);
                let charge = self.budget().charge(Part::Index, guide.memory_size());
                RunGuide::Kept(Box::new((guide, charge)))
            });
            return true;
        }
        // One without a map tells what is absent, and saves no reading of what is there.
        let is_of_half_use = run.slot.is_some() && !Guide::is_mappable(block);
        let (due_at, parts) = if is_of_half_use { (u8::MAX, 2) } else { (READS_BEFORE_GUIDE, 1) };
        let has_room = || self.guides.has_lasting_room(reckoned, parts);
        if !count_use(&run.memory.unguided, due_at, has_room) {
            return false;
        }
        let cached = run.memory.guide.get_or_init(|| RunGuide::Cached(Slot::new()));
        let RunGuide::Cached(slot) = cached else { return true };
        let guide = Arc::new(Guide::new(block, kind, Some(self.budget().guide_heap())));
        let weight = guide.memory_size();
        let filled = self.guides.fill(slot, guide, weight, Admission::Normal);
        self.cache.trim(); // Blocks give way.
        filled != FillOutcome::TooLarge
    }

    /// The interval's entries, merged.
    pub(super) fn block(&self, interval: &Interval, admission: Admission) -> Result<Arc<Block>> {
        let slot = interval.slot();
        if let Some(block) = self.cache.load(slot, admission) {
            return Ok(block);
        }
        let block = self.merge_runs(interval)?;
        let due_at = match admission {
            Admission::Normal => SEEKS_BEFORE_FILL,
            Admission::OnceRead => PASSES_BEFORE_FILL,
        };
        // What was merged has cost more than what it displaces.
        let is_kept = match &interval.base {
            Some(base) if interval.deltas.is_empty() => self.is_to_be_filled(base, due_at),
            _ => true,
        };
        if is_kept {
            self.cache.fill(slot, Arc::clone(&block), block.memory_size(), admission);
        }
        Ok(block)
    }

    /// As [`Self::block`] for maintenance: uses what is in memory, keeps nothing new there.
    pub(super) fn block_in_passing(&self, interval: &Interval) -> Result<Arc<Block>> {
        let slot = interval.slot_if_used();
        match slot.and_then(|slot| self.cache.load(slot, Admission::OnceRead)) {
            Some(block) => Ok(block),
            None => self.merge_runs(interval),
        }
    }

    fn merge_runs(&self, interval: &Interval) -> Result<Arc<Block>> {
        if interval.run_count() == 1 {
            let run = interval.runs().next().expect("there is one");
            return self.read_run(run);
        }
        let runs = interval.runs().map(|run| self.run_in_passing(run));
        let merged = self.merged(&runs.collect::<Result<Vec<_>>>()?)?;
        Ok(Arc::new(merged))
    }

    /// The entries of an interval as one block. `runs` are all that it has, oldest first.
    pub(super) fn merged(&self, runs: &[Arc<Block>]) -> Result<Block> {
        let newest_first = runs.iter().rev();
        let cursors = newest_first.map(|block| BlockCursor::new(Arc::clone(block))).collect();
        // All runs of the interval are here, so a tombstone has nothing left to hide.
        let mut builder = BlockBuilder::new(RestartPolicy::Whole);
        let mut merged = MergeCursor::new(cursors);
        merged.seek_first()?;
        while let Some(entry) = merged.entry() {
            match entry.kind {
                EntryKind::Tombstone => {}
                EntryKind::Composite if is_operands(entry.kind, entry.value) => {
                    let bytes = self.folder.stacked(entry, merged.shadowed())?;
                    builder.add(self.folder.fold_in_memory(entry.key, &bytes)?.entry(entry))?;
                }
                // What has expired stays: a snapshot may be of before that.
                _ => builder.add(entry)?,
            }
            merged.next()?;
        }
        Ok(builder.finish_block(self.heap()))
    }

    fn run_in_passing(&self, run: &Run) -> Result<Arc<Block>> {
        let slot = run.slot.as_ref();
        match slot.and_then(|slot| self.cache.load(slot, Admission::OnceRead)) {
            Some(block) => Ok(block),
            None => self.read_run(run),
        }
    }

    /// Reads and checks one run.
    pub(super) fn read_run(&self, run: &Run) -> Result<Arc<Block>> {
        let file = run.segment.file()?;
        let place = place_of(run);
        let (len, kind) = (run.len as usize, FrameKind::Entries);
        let payload = frame::read(&*file, len, kind, place, run.checksum, (None, self.heap()))?;
        self.count_read(run.len as usize);
        let frame::Payload { data, range } = payload;
        let block = Block::parse(data, range, place)?;
        Ok(Arc::new(match run.stamp {
            Some(stamp) => block.stamped(stamp),
            None => block,
        }))
    }

    fn count_read(&self, bytes: usize) {
        self.blocks_read.fetch_add(1, Ordering::Relaxed);
        self.block_bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Counts a use that goes to the file; whether more of the run is to be kept now: when there is
/// room, or it is the use number `due_at`.
fn count_use(uses: &AtomicU8, due_at: u8, has_room: impl FnOnce() -> bool) -> bool {
    // Two at once may count as one.
    let count = uses.load(Ordering::Relaxed).saturating_add(1);
    let is_due = count >= due_at || has_room();
    uses.store(if is_due { 0 } else { count }, Ordering::Relaxed);
    is_due
}

fn place_of(run: &Run) -> FramePlace<'_> {
    let segment = &run.segment;
    let (file, file_tag, key) = (&*segment.path, segment.file_tag, segment.key());
    FramePlace { file, file_tag, offset: run.offset, key }
}

/// Reads parts of a run's frame.
struct RunReader<'a> {
    loader: &'a Loader,
    run: &'a Run,
    file: &'a dyn StorageFile,
}

impl FrameReader for RunReader<'_> {
    fn read(&mut self, offset: usize, out: &mut [u8]) -> Result<()> {
        let at = self.run.offset + offset as u64;
        self.file.read_exact_at(out, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged("the file ends".to_owned()),
            _ => Error::io("read", &self.run.segment.path, error),
        })?;
        self.loader.count_read(out.len());
        Ok(())
    }

    fn read_sealed(&mut self, frame: &SealedFrame, offset: usize, out: &mut [u8]) -> Result<()> {
        let run = self.run;
        let opened = run.segment.key().map_or(Ok(false), |key| {
            frame.read(key, run.offset, offset, out, |at, bytes| self.read(at, bytes))
        })?;
        match opened {
            true => Ok(()),
            false => Err(self.damaged("a page is not what was sealed there".to_owned())),
        }
    }

    fn damaged(&self, what: String) -> Error {
        Error::corruption(&self.run.segment.path, self.run.offset, what)
    }
}
