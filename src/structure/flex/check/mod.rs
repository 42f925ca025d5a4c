//! Checking a Flex keyspace: the index against itself, against its durable form, against the files
//! that are there; and every byte of the segments (`data.rs`), against what is in memory of them.
//!
//! | check | of |
//! |---|---|
//! | sums in the nodes of the tree, order of anchors, the empty first one | X1, the tree |
//! | live bytes of each segment, runs that share bytes, runs in unlisted segments | the index |
//! | sums by value file | X7 |
//! | intervals with what expires, and the order of that | X10 |
//! | header and size of each segment file; numbers below the next one | files |
//! | counters, begun flushes, segments, intervals and runs as on disk | the index log, X8 |
//! | checksum, order and number of entries of each run; no key twice | data |
//! | keys within their interval; no tombstone in a base; operands that are some | X1, X3 |
//! | stamps not above the newest; rising from older to newer runs | X2 |
//! | values against hash and length; bytes by value file | value log |
//! | how many entries of a run expire, and when | X10 |
//! | guides, counted entries and cached blocks against what was read | memory |

mod data;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::index::{FirstExpiry, Index};
use super::interval::{Interval, Run};
use super::segment::{HEADER_LEN, SegmentPlace};
use super::tree::Keyed;
use crate::base::Error;
use crate::manifest::EditLog;
use crate::structure::{Findings, Site};

pub(super) use data::check_data;

/// What a check looks at of the index's log.
#[derive(Debug)]
pub(super) struct IndexLog {
    /// The newest file.
    pub path: PathBuf,
    /// See [`EditLog::mended_mark`].
    pub mended_mark: Option<(PathBuf, u64)>,
}

impl IndexLog {
    pub(super) fn of(log: &EditLog) -> IndexLog {
        IndexLog { path: log.path().to_owned(), mended_mark: log.mended_mark().cloned() }
    }
}

/// Checks the index.
pub(super) fn check_index(
    index: &Index,
    log: &IndexLog,
    place: &Arc<SegmentPlace>,
    findings: &mut Findings,
) {
    let site = Site::of_keyspace(place.keyspace).at(&log.path, 0);
    if let Err(what) = index.tree.check() {
        findings.note_at(site, "the tree of intervals", "sound sums and order", what);
    }
    check_anchors(index, site, findings);
    check_segments(index, site, findings);
    check_value_bytes(index, site, findings);
    check_expiries(index, site, findings);
    check_durable_form(index, log, site, place, findings);
}

/// Files of the index before the newest, and segments that nothing in use or on its way refers to.
pub(super) fn find_orphans(
    index: &Index,
    log: &IndexLog,
    place: &SegmentPlace,
    findings: &mut Findings,
) {
    let older = |name: &str| name.starts_with("index-") && !log.path.ends_with(name);
    if let Ok(entries) = place.storage.list_dir(&place.dir) {
        let older = entries.iter().filter(|entry| older(&entry.name));
        findings.orphans.extend(older.map(|entry| place.dir.join(&entry.name)));
    }
    // Looked at in this order: what comes to be known meanwhile was not there before.
    let numbers: BTreeSet<u64> = match place.numbers() {
        Ok(numbers) => numbers.into_iter().collect(),
        Err(error) => return findings.note_error(Site::of_keyspace(place.keyspace), &error),
    };
    let unknown = numbers
        .into_iter()
        .filter(|number| !index.segments.contains_key(number) && !place.is_known(*number));
    findings.orphans.extend(unknown.map(|number| place.path_of(number)));
}

fn check_anchors(index: &Index, site: Site<'_>, findings: &mut Findings) {
    let first = index.tree.get(0).map(|first| &first.anchor);
    if first.is_none_or(|first| !first.is_empty()) {
        findings.note_at(site, "the first anchor", "the empty key", format!("{first:?}"));
    }
    let mut before: Option<&Arc<Interval>> = None;
    for interval in &index.tree {
        if let Some(before) = before.filter(|before| before.anchor >= interval.anchor) {
            let (above, found) = (before.anchor.escape_ascii(), interval.anchor.escape_ascii());
            findings.note_at(site, "anchors", format!("one above {above}"), found);
        }
        before = Some(interval);
    }
}

/// Files, headers, live bytes, and that no two runs share bytes.
fn check_segments(index: &Index, site: Site<'_>, findings: &mut Findings) {
    let mut runs: BTreeMap<u64, Vec<&Run>> = BTreeMap::new();
    for run in index.tree.iter().flat_map(|interval| interval.runs()) {
        runs.entry(run.segment.number).or_default().push(run);
    }
    if let Some((number, _)) = index.segments.last_key_value()
        && *number >= index.counters.next_segment
    {
        let expected = format!("a number above {number}");
        findings.note_at(site, "the next segment", expected, index.counters.next_segment);
    }
    for (number, state) in &index.segments {
        findings.files += 1;
        let in_file = |offset| site.at(&state.segment.path, offset);
        let mut here = runs.remove(number).unwrap_or_default();
        here.sort_by_key(|run| run.offset);
        let live: u64 = here.iter().map(|run| u64::from(run.len)).sum();
        if live != state.live_bytes {
            findings.note_at(in_file(0), "live bytes in the index", live, state.live_bytes);
        }
        let mut end = HEADER_LEN;
        for run in here {
            if run.offset < end {
                let (what, expected) = ("two runs overlap", format!("one from {end} on"));
                findings.note_at(in_file(run.offset), what, expected, run.offset);
            }
            end = run.offset + u64::from(run.len);
        }
        let file = state.segment.file();
        let checked = file.and_then(|file| {
            state.segment.check_header(&*file)?;
            file.size().map_err(|error| Error::io("stat", &state.segment.path, error))
        });
        match checked {
            Ok(size) if size < state.end => {
                findings.note_at(in_file(size), "the file ends: bytes", state.end, size);
            }
            Ok(_) => {}
            Err(error) => findings.note_error(in_file(0), &error),
        }
    }
    for number in runs.keys() {
        findings.note_at(site, "segments of runs", "listed ones", format!("segment {number}"));
    }
}

/// X7: the sums by value file.
fn check_value_bytes(index: &Index, site: Site<'_>, findings: &mut Findings) {
    let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for run in index.tree.iter().flat_map(|interval| interval.runs()) {
        for (file, of_run) in run.values() {
            *bytes.entry(file).or_default() += of_run;
        }
    }
    if bytes != index.value_bytes {
        let counted = format!("{:?}", index.value_bytes);
        findings.note_at(site, "bytes by value file", format!("{bytes:?}"), counted);
    }
}

/// X10: the intervals with entries that expire.
fn check_expiries(index: &Index, site: Site<'_>, findings: &mut Findings) {
    if let Err(what) = index.by_expiry.check() {
        findings.note_at(site, "the tree of what expires", "sound order", what);
    }
    let of = |interval: &Arc<Interval>| FirstExpiry::of(interval);
    let mut expected: Vec<FirstExpiry> = index.tree.iter().filter_map(of).collect();
    expected.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    if !index.by_expiry.iter().eq(&expected) {
        let shown = |first: Option<&FirstExpiry>| match first {
            Some(first) => format!("{} at {}", first.anchor().escape_ascii(), first.until()),
            None => "the end".to_owned(),
        };
        let first = expected.iter().zip(&index.by_expiry).position(|(a, b)| a != b);
        let place = first.unwrap_or(expected.len().min(index.by_expiry.len()));
        let (expected, found) = (shown(expected.get(place)), shown(index.by_expiry.get(place)));
        findings.note_at(site, "intervals by expiry", expected, found);
    }
}

/// The index in memory against the one on disk.
fn check_durable_form(
    index: &Index,
    log: &IndexLog,
    site: Site<'_>,
    place: &Arc<SegmentPlace>,
    findings: &mut Findings,
) {
    findings.files += 1;
    let durable = match Index::read(place) {
        Ok((durable, report)) => {
            findings.note_marks(site, &report, log.mended_mark.as_ref());
            durable
        }
        Err(error) => return findings.note_error(site, &error),
    };
    if durable.counters != index.counters {
        let (memory, disk) = (index.counters, durable.counters);
        findings.note_at(site, "counters on disk", format!("{memory:?}"), format!("{disk:?}"));
    }
    if durable.begun != index.begun {
        let (memory, disk) = (&index.begun, &durable.begun);
        findings.note_at(site, "begun flushes on disk", format!("{memory:?}"), format!("{disk:?}"));
    }
    let segments = |index: &Index| -> Vec<(u64, u64, u64)> {
        let of = index.segments.iter();
        // Those that are written to are kept when nothing in them is live, in memory only.
        let live = of.filter(|(_, state)| state.live_bytes > 0);
        live.map(|(number, state)| (*number, state.end, state.live_bytes)).collect()
    };
    let (memory, disk) = (segments(index), segments(&durable));
    if memory != disk {
        let first = memory.iter().zip(&disk).find(|(a, b)| a != b);
        let lens = || (format!("{} segments", memory.len()), disk.len().to_string());
        let (expected, found) =
            first.map_or_else(lens, |(a, b)| (format!("{a:?}"), format!("{b:?}")));
        findings.note_at(site, "segments on disk (number, end, live bytes)", expected, found);
    }
    if durable.tree.len() != index.tree.len() {
        findings.note_at(site, "intervals on disk", index.tree.len(), durable.tree.len());
        return;
    }
    let differs = |(a, b): &(&Arc<Interval>, &Arc<Interval>)| {
        a.anchor != b.anchor
            || a.run_count() != b.run_count()
            || !a.runs().zip(b.runs()).all(|(a, b)| a.is_same_run(b))
    };
    if let Some((interval, other)) = index.tree.iter().zip(durable.tree.iter()).find(differs) {
        let shown = |interval: &Interval| {
            let runs: Vec<(u64, u64)> =
                interval.runs().map(|run| (run.segment.number, run.offset)).collect();
            format!("{} with runs at {runs:?}", interval.anchor.escape_ascii())
        };
        findings.note_at(site, "an interval on disk", shown(interval), shown(other));
    }
}
