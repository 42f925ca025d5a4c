//! Faults, planted one by one, that the check has to name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{IndexLog, check_data, check_index, find_orphans};
use crate::base::{EntryKind, EntryRef, Expiring, ExpirySpan, Operands, RangeTombstones};
use crate::base::{SeededEntropy, SeqNo, Slice};
use crate::block::{Block, BlockBuilder, BlockCursor, Guide, GuideKind, RestartPolicy};
use crate::cache::{Admission, Part};
use crate::storage::OpenMode;
use crate::structure::flex::index::Index;
use crate::structure::flex::interval::{Interval, RunGuide};
use crate::structure::flex::load::Loader;
use crate::structure::flex::tests::{Bench, random_changes, small_options};
use crate::structure::{BegunFlush, Store, WholeCheck};
use crate::structure::{Findings, FlushOrder};

/// A store with deltas, and its index to plant faults in.
struct Planted {
    bench: Bench,
    index: Index,
}

impl Planted {
    fn new() -> Planted {
        let mut bench = Bench::new(small_options().consolidation_pace(8.0));
        let random = SeededEntropy::new(5);
        for _ in 0..6 {
            bench.flush(random_changes(&random, 200, 2000));
        }
        let index = bench.store.lock_writer().index.clone();
        let planted = Planted { bench, index };
        assert_eq!(planted.findings().problems, Vec::<String>::new(), "sound so far");
        planted
    }

    /// The same, where every third key expires.
    fn expiring() -> Planted {
        let mut planted = Planted::new();
        let expiring = (0..700u64).map(|number| {
            let until = 1000 + number * 7 % 900;
            let held = Expiring { until, kind: EntryKind::Value, value: b"soon" };
            (format!("key{:05}", number * 3).into_bytes(), EntryKind::Composite, held.encode())
        });
        planted.bench.flush_entries(expiring.collect());
        planted.bench.store.consolidate(1 << 30, 0).unwrap();
        planted.index = planted.bench.store.lock_writer().index.clone();
        assert_eq!(planted.findings().problems, Vec::<String>::new(), "sound so far");
        planted
    }

    fn loader(&self) -> &Loader {
        &self.bench.store.loader
    }

    fn findings(&self) -> Findings {
        let store = &self.bench.store;
        let mut findings = Findings::default();
        let log = IndexLog::of(&store.lock_writer().log);
        check_index(&self.index, &log, &store.segments, &mut findings);
        find_orphans(&self.index, &log, &store.segments, &mut findings);
        let with = (&*store.loader, &*store.segments.values);
        check_data(&self.index, 1, with, &mut findings, &mut WholeCheck);
        findings
    }

    /// Something is wrong, all of it is told in full, and `what` is part of it.
    #[track_caller]
    fn is_named(&self, what: &str) {
        let problems = self.findings().problems;
        assert!(problems.iter().any(|problem| problem.contains(what)), "{what}: {problems:?}");
        for problem in &problems {
            for part in ["keyspace 1: /keyspace/", " at offset ", ": expected ", ", found "] {
                assert!(problem.contains(part), "{part}: {problem}");
            }
        }
    }

    /// The first interval with a base and so many deltas, and its place.
    fn interval(&self, deltas: usize) -> (usize, Arc<Interval>) {
        let fits = |interval: &Interval| interval.base.is_some() && interval.deltas.len() >= deltas;
        let place = self.index.tree.iter().position(|interval| fits(interval)).unwrap();
        (place, Arc::clone(self.index.tree.get(place).unwrap()))
    }

    fn replace(&mut self, place: usize, by: Vec<Arc<Interval>>) {
        self.index.tree.rewrite(vec![(place..place + 1, by)]);
    }
}

fn block_of(loader: &Loader, keys: &[&[u8]]) -> Block {
    let mut builder = BlockBuilder::new(RestartPolicy::Whole);
    for key in keys {
        let (seqno, kind) = (SeqNo::from_u64(1), EntryKind::Value);
        builder.add(EntryRef { key, seqno, kind, value: b"v" }).unwrap();
    }
    builder.finish_block(loader.heap())
}

#[test]
fn stamps_above_the_newest_are_named() {
    let mut planted = Planted::new();
    planted.index.counters.last_seqno = SeqNo::from_u64(2);
    planted.is_named("the newest stamp: expected 0.2, found ");
    planted.is_named("counters on disk");
}

#[test]
fn a_segment_number_that_would_be_given_again_is_named() {
    let mut planted = Planted::new();
    planted.index.counters.next_segment = 1;
    planted.is_named("the next segment: expected a number above ");
}

#[test]
fn begun_flushes_that_are_others_on_disk_are_named() {
    let mut planted = Planted::new();
    let (to, last_seqno) = (Slice::from(&b"m"[..]), SeqNo::from_u64(2));
    planted.index.begun.push(BegunFlush { to, last_seqno });
    planted.is_named("begun flushes on disk: expected [BegunFlush");
}

#[test]
fn operands_in_a_keyspace_without_an_operator_are_named() {
    let mut planted = Planted::new();
    let seqno = SeqNo::from_u64(100);
    let mut builder = BlockBuilder::new(RestartPolicy::Whole);
    let (kind, value) = (EntryKind::Composite, &*Operands::open(b"operand"));
    builder.add(EntryRef { key: b"key-000001", seqno, kind, value }).unwrap();
    let block = builder.finish_block(planted.loader().heap());
    let mut entries = BlockCursor::new(Arc::new(block));
    let order = FlushOrder {
        memtable_bytes: 100,
        value_bytes: 0,
        log_end: 10_000,
        last_seqno: seqno,
        slice_bytes: 1 << 20,
        now: 0,
    };
    let store = &planted.bench.store;
    store.flush(&mut entries, &RangeTombstones::default(), order).unwrap();
    planted.index = store.lock_writer().index.clone();
    planted.is_named("an entry of operands: expected none: the keyspace has no merge operator");
}

#[test]
fn segments_that_are_others_on_disk_are_named() {
    let mut planted = Planted::new();
    let state = planted.index.segments.values_mut().find(|state| state.live_bytes > 0).unwrap();
    state.end -= 1;
    planted.is_named("segments on disk (number, end, live bytes)");
    let state = planted.index.segments.values_mut().find(|state| state.live_bytes > 0).unwrap();
    state.live_bytes += 7;
    planted.is_named("live bytes in the index");
}

#[test]
fn runs_that_share_bytes_are_named() {
    let mut planted = Planted::new();
    let (place, interval) = planted.interval(1);
    let deltas = [&interval.deltas[..], &interval.deltas[..1]].concat();
    let twice = Interval::new(None, interval.anchor.clone(), interval.base.clone(), deltas);
    planted.replace(place, vec![twice]);
    planted.is_named("two runs overlap");
    planted.is_named("the stamp of a key");
}

#[test]
fn runs_in_the_wrong_order_are_named() {
    let mut planted = Planted::new();
    // Of several intervals, one at least has a key in two of its deltas.
    for place in 0..planted.index.tree.len() {
        let interval = Arc::clone(planted.index.tree.get(place).unwrap());
        let deltas = interval.deltas.iter().rev().cloned().collect();
        let turned = Interval::new(None, interval.anchor.clone(), interval.base.clone(), deltas);
        planted.replace(place, vec![turned]);
    }
    planted.is_named("the stamp of a key: expected ");
    planted.is_named("an interval on disk");
}

#[test]
fn anchors_out_of_order_and_keys_of_other_intervals_are_named() {
    let mut planted = Planted::new();
    let (place, interval) = planted.interval(0);
    let next = Arc::clone(planted.index.tree.get(place + 1).unwrap());
    let moved =
        Interval::new(None, next.anchor.clone(), interval.base.clone(), interval.deltas.clone());
    planted.replace(place, vec![moved]);
    planted.is_named("anchors: expected one above ");
    planted.is_named("a key of another interval: expected keys from ");
}

#[test]
fn a_guide_that_denies_keys_is_named() {
    let planted = Planted::new();
    let (_, interval) = planted.interval(0);
    let run = interval.base.as_ref().unwrap();
    let block = block_of(planted.loader(), &[b"another"]);
    let guide = Guide::new(&block, GuideKind::Prints, None);
    let charge = planted.loader().budget().charge(Part::Index, 1);
    assert!(run.memory.guide.set(RunGuide::Kept(Box::new((guide, charge)))).is_ok());
    planted.is_named("the guide in memory: expected ");
}

#[test]
fn cached_blocks_that_are_not_what_is_on_disk_are_named() {
    for deltas in [0, 1] {
        let planted = Planted::new();
        let (_, interval) = planted.interval(deltas);
        let slot = match deltas {
            0 => interval.base.as_ref().unwrap().slot.as_ref().unwrap(),
            _ => interval.slot(),
        };
        let other = Arc::new(block_of(planted.loader(), &[b"another"]));
        planted.bench.place.shared.cache.fill(slot, other, 100, Admission::Normal);
        planted.is_named("a block in memory: expected ");
    }
}

#[test]
fn a_count_that_wrounded_and_is_wrong_is_named() {
    let planted = Planted::new();
    let (_, interval) = planted.interval(1);
    interval.live_count.set(100_000).unwrap();
    planted.is_named("live entries as counted in memory: expected ");
}

#[test]
fn what_is_noted_of_expiries_and_is_wrong_is_named() {
    let planted = Planted::expiring();
    let (_, interval) = planted.interval(0);
    let charge = planted.loader().budget().charge(Part::Index, 1);
    assert!(interval.expiries.set(Box::new((vec![7], charge))).is_ok());
    planted.is_named("what expires as noted in memory: expected ");
}

#[test]
fn a_run_that_says_too_little_about_what_expires_is_named() {
    let wrong: [fn(&mut ExpirySpan); 3] =
        [|span| span.count += 1, |span| span.first += 1, |span| span.last -= 1];
    for change in wrong {
        let mut planted = Planted::expiring();
        let fits = |interval: &Arc<Interval>| {
            let span = interval.base.as_ref().and_then(|base| base.expiring.as_deref());
            span.is_some_and(|span| span.count > 1 && span.first < span.last)
        };
        let place = planted.index.tree.iter().position(fits).unwrap();
        let interval = Arc::clone(planted.index.tree.get(place).unwrap());
        let mut base = interval.base.clone().unwrap();
        let mut span = *base.expiring.unwrap();
        change(&mut span);
        base.expiring = Some(Arc::new(span));
        let deltas = interval.deltas.clone();
        let other = Interval::new(None, interval.anchor.clone(), Some(base), deltas);
        planted.replace(place, vec![other]);
        planted.is_named("entries of the run that expire: expected Some(ExpirySpan");
        planted.is_named("an interval on disk");
    }
}

#[test]
fn intervals_that_are_not_known_to_expire_are_named() {
    let mut planted = Planted::expiring();
    planted.index.by_expiry.remove(0);
    planted.is_named("intervals by expiry: expected ");
}

#[test]
fn bytes_by_value_file_that_do_not_add_up_are_named() {
    let mut planted = Planted::new();
    planted.index.value_bytes = BTreeMap::from([(9, 100)]);
    planted.is_named("bytes by value file: expected {}, found {9: 100}");
}

#[test]
fn files_that_nothing_refers_to_are_orphans_and_no_problems() {
    let planted = Planted::new();
    let (storage, dir) = (&planted.bench.place.storage, &planted.bench.place.dir);
    let names = ["seg-00000900", "index-00000000", "seg-900", "notes"];
    for name in names {
        storage.open(&dir.join(name), OpenMode::CreateNew).unwrap();
    }
    let findings = planted.findings();
    assert_eq!(findings.problems, Vec::<String>::new());
    let mut orphans = findings.orphans;
    orphans.sort();
    assert_eq!(orphans, [Path::new("/keyspace").join(names[1]), dir.join(names[0])]);
    // Segments of a version that is held, and those that are written to, are none.
    let version = planted.bench.store.version();
    let Planted { mut bench, .. } = planted;
    bench.flush(random_changes(&SeededEntropy::new(9), 2000, 2000));
    bench.store.consolidate(1 << 30, 0).unwrap();
    let index = bench.store.lock_writer().index.clone();
    let planted = Planted { bench, index };
    assert_eq!(planted.findings().orphans.len(), 2);
    drop(version);
}
