//! Every run, and what is in memory of it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::{Composite, Cursor, EntryKind, EntryRef, Expiring, ExpirySpan, Result, SeqNo};
use crate::base::{ValuePointer, expiring_in, hash_key, pointer_in};
use crate::block::{Block, BlockCursor};
use crate::merge::MergeCursor;
use crate::structure::flex::index::Index;
use crate::structure::flex::interval::{Interval, Run};
use crate::structure::flex::load::Loader;
use crate::structure::{CheckWalk, Findings, Site};
use crate::value_log::{ValueLog, Verify, record_len};

/// What runs are checked with.
#[derive(Clone, Copy)]
struct Checker<'a> {
    keyspace: u32,
    loader: &'a Loader,
    values: &'a ValueLog,
    /// No entry has a larger stamp.
    newest: SeqNo,
}

/// What a run is to its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPlace {
    Base,
    Delta,
}

/// A run, where it is.
#[derive(Clone, Copy)]
struct RunOf<'a> {
    run: &'a Run,
    place: RunPlace,
    interval: &'a Interval,
    /// The anchor of the next interval.
    limit: Option<&'a [u8]>,
}

/// Checks every run, every value that it points to, and what is in memory of it.
pub(in super::super) fn check_data(
    index: &Index,
    keyspace: u32,
    (loader, values): (&Loader, &ValueLog),
    findings: &mut Findings,
    walk: &mut dyn CheckWalk,
) {
    // Of flushes that are between two slices, some entries are there.
    let begun = index.begun.iter().map(|flush| flush.last_seqno);
    let newest = begun.fold(index.counters.last_seqno, SeqNo::max);
    let checker = Checker { keyspace, loader, values, newest };
    let first = index.tree.find_key(walk.start()).map_or(0, |(position, _)| position);
    for (position, interval) in index.tree.range(first..index.tree.len()).enumerate() {
        let limit = index.tree.get(first + position + 1).map(|next| &*next.anchor);
        findings.intervals += 1;
        if checker.check_interval(interval, limit, findings, walk).is_break() {
            return;
        }
        if let Some(next) = limit
            && walk.reached(findings, next).is_break()
        {
            return;
        }
    }
}

impl Checker<'_> {
    fn site<'r>(&self, run: &'r Run) -> Site<'r> {
        Site::of_keyspace(self.keyspace).at(&run.segment.path, run.offset)
    }

    /// Every run of an interval, and all of them together.
    fn check_interval(
        &self,
        interval: &Interval,
        limit: Option<&[u8]>,
        findings: &mut Findings,
        walk: &mut dyn CheckWalk,
    ) -> ControlFlow<()> {
        let mut blocks: Vec<Arc<Block>> = Vec::new();
        for (position, run) in interval.runs().enumerate() {
            findings.runs += 1;
            findings.bytes += u64::from(run.len);
            let place = match position == 0 && interval.base.is_some() {
                true => RunPlace::Base,
                false => RunPlace::Delta,
            };
            match self.loader.read_run(run) {
                Ok(block) => {
                    let run_of = RunOf { run, place, interval, limit };
                    match self.check_run(run_of, &block, findings, walk) {
                        Ok(going_on) => going_on?,
                        Err(error) => findings.note_error(self.site(run), &error),
                    }
                    blocks.push(block);
                }
                Err(error) => findings.note_error(self.site(run), &error),
            }
        }
        if blocks.len() == interval.run_count()
            && let Err(error) = self.check_together(interval, &blocks, findings)
        {
            findings.note_error(Site::of_keyspace(self.keyspace), &error);
        }
        ControlFlow::Continue(())
    }

    fn check_run(
        &self,
        run_of: RunOf<'_>,
        block: &Arc<Block>,
        findings: &mut Findings,
        walk: &mut dyn CheckWalk,
    ) -> Result<ControlFlow<()>> {
        let RunOf { run, place, interval, limit } = run_of;
        let site = self.site(run);
        if let Some(what) = block.check_order() {
            findings.note_at(site, "the order of keys", "rising ones", what);
        }
        if block.entry_count() != run.entry_count as usize {
            findings.note_at(site, "entries of the run", run.entry_count, block.entry_count());
        }
        let mut cursor = BlockCursor::new(Arc::clone(block));
        cursor.seek_first()?;
        let mut value_bytes: BTreeMap<u64, u64> = BTreeMap::new();
        let mut expiring: Option<ExpirySpan> = None;
        while let Some(entry) = cursor.entry() {
            findings.entries += 1;
            if entry.kind == EntryKind::Composite {
                self.check_composite(site, entry, findings);
            }
            if let Some(Expiring { until, .. }) = expiring_in(entry.kind, entry.value) {
                expiring = Some(ExpirySpan::with(expiring, until));
            }
            if let Some(pointer) = pointer_in(entry.kind, entry.value) {
                match ValuePointer::decode(pointer) {
                    Some(pointer) => {
                        let of_file = value_bytes.entry(pointer.file).or_default();
                        *of_file += record_len(u64::from(pointer.len));
                        self.check_value(&pointer, findings);
                        if walk.passed(findings).is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                    None => {
                        let found = format!("{} bytes", pointer.len());
                        findings.note_at(site, "a pointer", "one of 30 bytes", found);
                    }
                }
            }
            let key = || entry.key.escape_ascii().to_string();
            if entry.key < &*interval.anchor || limit.is_some_and(|limit| entry.key >= limit) {
                let anchor = interval.anchor.escape_ascii();
                let limit =
                    limit.map_or_else(String::new, |limit| limit.escape_ascii().to_string());
                let expected = format!("keys from {anchor} up to {limit}");
                findings.note_at(site, "a key of another interval", expected, key());
            }
            if place == RunPlace::Base && entry.kind == EntryKind::Tombstone {
                findings.note_at(site, "a tombstone in a base", "none", key());
            }
            if entry.seqno > self.newest {
                let found = format!("{} at {}", key(), entry.seqno);
                findings.note_at(site, "the newest stamp", self.newest, found);
            }
            if !self.loader.guide_admits(run, hash_key(entry.key)) {
                findings.note_at(site, "the guide in memory", key(), "a denial of it");
            }
            cursor.next()?;
        }
        if run.expiring.as_deref().copied() != expiring {
            let (expected, found) = (format!("{expiring:?}"), format!("{:?}", run.expiring));
            findings.note_at(site, "entries of the run that expire", expected, found);
        }
        if !run.values().eq(value_bytes.iter().map(|(file, bytes)| (*file, *bytes))) {
            let known: BTreeMap<u64, u64> = run.values().collect();
            let expected = format!("{value_bytes:?}");
            findings.note_at(site, "bytes by value file", expected, format!("{known:?}"));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// X2, and what is in memory of all runs as one. `blocks` are those of the runs, oldest first.
    fn check_together(
        &self,
        interval: &Interval,
        blocks: &[Arc<Block>],
        findings: &mut Findings,
    ) -> Result<()> {
        let Some(newest_run) = interval.runs().next_back() else { return Ok(()) };
        let site = self.site(newest_run);
        if blocks.len() > 1 {
            self.check_stamps(interval, blocks, findings)?;
        }
        self.check_counts(interval, site, blocks, findings)?;
        // The slot of a base that is all there is, is that of the base.
        let base = interval.base.as_ref().zip(blocks.first());
        if let Some((base, block)) = base
            && let Some(slot) = &base.slot
            && let Some(cached) = self.loader.cached(slot)
        {
            self.compare(self.site(base), &cached, block, findings)?;
        }
        if blocks.len() > 1
            && let Some(slot) = interval.slot_if_used()
            && let Some(cached) = self.loader.cached(slot)
        {
            let merged = Arc::new(self.loader.merged(blocks)?);
            self.compare(site, &cached, &merged, findings)?;
        }
        Ok(())
    }

    /// What was counted, and noted of what expires, against the entries that were read.
    fn check_counts(
        &self,
        interval: &Interval,
        site: Site<'_>,
        blocks: &[Arc<Block>],
        findings: &mut Findings,
    ) -> Result<()> {
        let (counted, noted) = (interval.live_count.get(), interval.expiries.get());
        if counted.is_none() && noted.is_none() {
            return Ok(());
        }
        let mut live = live_entries(blocks);
        live.seek_first()?;
        let (mut found, mut expiries) = (0, Vec::new());
        while let Some(entry) = live.entry() {
            found += u32::from(entry.kind != EntryKind::Tombstone);
            let expiring = expiring_in(entry.kind, entry.value);
            expiries.extend(expiring.map(|expiring| expiring.until));
            live.next()?;
        }
        expiries.sort_unstable();
        if let Some(count) = counted.filter(|count| **count != found) {
            findings.note_at(site, "live entries as counted in memory", found, count);
        }
        if let Some((noted, _)) = noted.map(|noted| &**noted).filter(|noted| noted.0 != expiries) {
            let (expected, found) = (format!("{expiries:?}"), format!("{noted:?}"));
            findings.note_at(site, "what expires as noted in memory", expected, found);
        }
        Ok(())
    }

    /// X2: what a newer run has of a key is newer.
    fn check_stamps(
        &self,
        interval: &Interval,
        blocks: &[Arc<Block>],
        findings: &mut Findings,
    ) -> Result<()> {
        let mut stamps: BTreeMap<Vec<u8>, SeqNo> = BTreeMap::new();
        for (run, block) in interval.runs().zip(blocks) {
            let mut cursor = BlockCursor::new(Arc::clone(block));
            cursor.seek_first()?;
            while let Some(entry) = cursor.entry() {
                let older = stamps.insert(entry.key.to_vec(), entry.seqno);
                if let Some(older) = older.filter(|older| *older >= entry.seqno) {
                    let expected = format!("{} above {older}", entry.key.escape_ascii());
                    findings.note_at(self.site(run), "the stamp of a key", expected, entry.seqno);
                }
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// A block in memory against what it should be by the entries that were read.
    fn compare(
        &self,
        site: Site<'_>,
        cached: &Arc<Block>,
        read: &Arc<Block>,
        findings: &mut Findings,
    ) -> Result<()> {
        let mut cached = BlockCursor::new(Arc::clone(cached));
        let mut read = BlockCursor::new(Arc::clone(read));
        cached.seek_first()?;
        read.seek_first()?;
        loop {
            match (cached.entry(), read.entry()) {
                (None, None) => return Ok(()),
                (Some(cached), Some(read)) if is_same(cached, read) => {}
                (cached, read) => {
                    findings.note_at(site, "a block in memory", shown(read), shown(cached));
                    return Ok(());
                }
            }
            cached.next()?;
            read.next()?;
        }
    }

    /// Whether an entry is of a known form, and of one that its keyspace may have.
    fn check_composite(&self, site: Site<'_>, entry: EntryRef<'_>, findings: &mut Findings) {
        let key = entry.key.escape_ascii();
        let has_operator = self.loader.folder().merging().has_operator();
        match (Composite::decode(entry.value), has_operator) {
            (Some(Composite::Operands(_)), true) | (Some(Composite::Expiring(_)), false) => {}
            (Some(Composite::Operands(_)), false) => {
                let expected = "none: the keyspace has no merge operator";
                findings.note_at(site, "an entry of operands", expected, key);
            }
            (Some(Composite::Expiring(_)), true) => {
                let expected = "none: the keyspace has a merge operator";
                findings.note_at(site, "an entry that expires", expected, key);
            }
            (Some(Composite::OnOlderVersion(_)), _) => {
                let expected = "none: it is no archive of versions";
                findings.note_at(site, "operands on an older version", expected, key);
            }
            (None, _) => {
                let found = format!("{} other bytes at {key}", entry.value.len());
                findings.note_at(site, "a composite entry", "operands, or what expires", found);
            }
        }
    }

    fn check_value(&self, pointer: &ValuePointer, findings: &mut Findings) {
        findings.values += 1;
        match self.values.verify(pointer, Verify::Hash) {
            Ok(bytes) => findings.bytes += bytes,
            Err(error) => findings.note_error(Site::of_keyspace(self.keyspace), &error),
        }
    }
}

/// The newest entry of each key.
fn live_entries(blocks: &[Arc<Block>]) -> MergeCursor<BlockCursor> {
    MergeCursor::new(blocks.iter().rev().map(|block| BlockCursor::new(Arc::clone(block))).collect())
}

fn is_same(a: EntryRef<'_>, b: EntryRef<'_>) -> bool {
    (a.key, a.seqno, a.kind, a.value) == (b.key, b.seqno, b.kind, b.value)
}

fn shown(entry: Option<EntryRef<'_>>) -> String {
    match entry {
        Some(entry) => format!("{} at {}", entry.key.escape_ascii(), entry.seqno),
        None => "the end".to_owned(),
    }
}
