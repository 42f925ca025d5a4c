//! Checking a Flex keyspace: the index against itself, against its durable form, against every
//! byte of the segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::index::Index;
use super::interval::{Interval, Run};
use super::load::Loader;
use super::segment::{HEADER_LEN, SegmentPlace};
use crate::base::{Cursor, EntryKind, Operands, ValuePointer, pointer_in};
use crate::block::BlockCursor;
use crate::structure::Findings;
use crate::value_log::{ValueLog, Verify, record_len};

/// Checks the sizes in the tree, X1 for anchors, live bytes per segment, overlapping runs, and that
/// the durable index says the same.
pub(super) fn check_index(index: &Index, place: &Arc<SegmentPlace>, findings: &mut Findings) {
    let keyspace = place.keyspace;
    if let Err(what) = index.tree.check() {
        findings.note(format!("keyspace {keyspace}: the tree of intervals: {what}"));
    }
    check_anchors(index, place, findings);
    check_segments(index, place, findings);
    check_value_bytes(index, place, findings);
    check_durable_form(index, place, findings);
}

/// What runs are checked with.
#[derive(Clone, Copy)]
struct Readers<'a> {
    loader: &'a Loader,
    values: &'a ValueLog,
}

/// Checks every run: its checksum and order, X1 for its keys, X3; and every value that it points
/// to.
pub(super) fn check_data(
    index: &Index,
    loader: &Loader,
    values: &ValueLog,
    findings: &mut Findings,
) {
    let readers = Readers { loader, values };
    for (position, interval) in index.tree.iter().enumerate() {
        let limit = index.tree.get(position + 1).map(|next| &*next.anchor);
        findings.intervals += 1;
        check_interval(interval, limit, readers, findings);
    }
}

fn check_anchors(index: &Index, place: &SegmentPlace, findings: &mut Findings) {
    let keyspace = place.keyspace;
    let first = index.tree.get(0);
    if first.is_none_or(|first| !first.anchor.is_empty()) {
        findings.note(format!("keyspace {keyspace}: the first anchor is not the empty key"));
    }
    let anchors = index.tree.iter().map(|interval| &interval.anchor);
    if !anchors.is_sorted_by(|a, b| a < b) {
        findings.note(format!("keyspace {keyspace}: anchors do not ascend"));
    }
}

/// Files, headers, live bytes, and that no two runs share bytes.
fn check_segments(index: &Index, place: &SegmentPlace, findings: &mut Findings) {
    let mut runs: BTreeMap<u64, Vec<&Run>> = BTreeMap::new();
    for run in index.tree.iter().flat_map(|interval| interval.runs()) {
        runs.entry(run.segment.number).or_default().push(run);
    }
    for (number, state) in &index.segments {
        findings.files += 1;
        let path = state.segment.path.display();
        let mut here = runs.remove(number).unwrap_or_default();
        here.sort_by_key(|run| run.offset);
        let live: u64 = here.iter().map(|run| u64::from(run.len)).sum();
        if live != state.live_bytes {
            let counted = state.live_bytes;
            findings.note(format!("{path}: {counted} live bytes are counted, {live} are there"));
        }
        let mut end = HEADER_LEN;
        for run in here {
            if run.offset < end {
                findings.note(format!("{path} at offset {}: two runs overlap", run.offset));
            }
            end = run.offset + u64::from(run.len);
        }
        let file = state.segment.file();
        let checked = file.and_then(|file| {
            state.segment.check_header(&*file)?;
            file.size().map_err(|error| crate::base::Error::io("stat", &state.segment.path, error))
        });
        match checked {
            Ok(size) if size < state.end => {
                let expected = state.end;
                findings.note(format!(
                    "{path} at offset {size}: the file ends, {expected} bytes were written"
                ));
            }
            Ok(_) => {}
            Err(error) => findings.note(error.to_string()),
        }
    }
    for number in runs.keys() {
        let keyspace = place.keyspace;
        findings
            .note(format!("keyspace {keyspace}: runs in segment {number}, which is not listed"));
    }
}

/// X7: the sums by value file.
fn check_value_bytes(index: &Index, place: &SegmentPlace, findings: &mut Findings) {
    let keyspace = place.keyspace;
    let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for run in index.tree.iter().flat_map(|interval| interval.runs()) {
        for (file, of_run) in run.values() {
            *bytes.entry(file).or_default() += of_run;
        }
    }
    if bytes != index.value_bytes {
        let counted = &index.value_bytes;
        findings.note(format!(
            "keyspace {keyspace}: bytes in value files {counted:?} are counted, {bytes:?} are there"
        ));
    }
}

/// The index in memory against the one on disk.
fn check_durable_form(index: &Index, place: &Arc<SegmentPlace>, findings: &mut Findings) {
    let keyspace = place.keyspace;
    findings.files += 1;
    let durable = match Index::read(place) {
        Ok(durable) => durable,
        Err(error) => return findings.note(error.to_string()),
    };
    if durable.counters != index.counters {
        let (memory, disk) = (index.counters, durable.counters);
        findings
            .note(format!("keyspace {keyspace}: counters {memory:?} in memory, {disk:?} on disk"));
    }
    if durable.tree.len() != index.tree.len() {
        let (memory, disk) = (index.tree.len(), durable.tree.len());
        findings.note(format!("keyspace {keyspace}: {memory} intervals in memory, {disk} on disk"));
        return;
    }
    let differs = |(a, b): &(&Arc<Interval>, &Arc<Interval>)| {
        a.anchor != b.anchor
            || a.run_count() != b.run_count()
            || !a.runs().zip(b.runs()).all(|(a, b)| a.is_same_run(b))
    };
    if let Some((interval, _)) = index.tree.iter().zip(durable.tree.iter()).find(differs) {
        let anchor = &interval.anchor;
        findings.note(format!(
            "keyspace {keyspace}: the interval at {anchor:?} is another one on disk"
        ));
    }
}

/// What a run is to its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPlace {
    Base,
    Delta,
}

/// Every run of an interval: readable, ordered, within the interval, as many entries as counted.
fn check_interval(
    interval: &Interval,
    limit: Option<&[u8]>,
    readers: Readers<'_>,
    findings: &mut Findings,
) {
    for (position, run) in interval.runs().enumerate() {
        findings.runs += 1;
        findings.bytes += u64::from(run.len);
        let place = match position == 0 && interval.base.is_some() {
            true => RunPlace::Base,
            false => RunPlace::Delta,
        };
        if let Err(error) = check_run(interval, limit, run, readers, place, findings) {
            findings.note(error.to_string());
        }
    }
}

fn check_run(
    interval: &Interval,
    limit: Option<&[u8]>,
    run: &Run,
    readers: Readers<'_>,
    place: RunPlace,
    findings: &mut Findings,
) -> crate::base::Result<()> {
    let (path, offset) = (run.segment.path.display(), run.offset);
    let block = readers.loader.read_run(run)?;
    if let Some(what) = block.check_order() {
        findings.note(format!("{path} at offset {offset}: {what}"));
    }
    if block.entry_count() != run.entry_count as usize {
        let (found, counted) = (block.entry_count(), run.entry_count);
        findings.note(format!("{path} at offset {offset}: {found} entries, {counted} are counted"));
    }
    let mut cursor = BlockCursor::new(block);
    cursor.seek_first()?;
    let mut value_bytes: BTreeMap<u64, u64> = BTreeMap::new();
    while let Some(entry) = cursor.entry() {
        findings.entries += 1;
        if entry.kind == EntryKind::Merge && Operands::decode(entry.value).is_none() {
            findings.note(format!("{path} at offset {offset}: malformed operands"));
        }
        if let Some(pointer) = pointer_in(entry.kind, entry.value) {
            match ValuePointer::decode(pointer) {
                Some(pointer) => {
                    let of_file = value_bytes.entry(pointer.file).or_default();
                    *of_file += record_len(u64::from(pointer.len));
                    check_value(&pointer, readers.values, findings);
                }
                None => findings.note(format!("{path} at offset {offset}: a malformed pointer")),
            }
        }
        let key = entry.key.escape_ascii();
        if entry.key < &*interval.anchor || limit.is_some_and(|limit| entry.key >= limit) {
            findings
                .note(format!("{path} at offset {offset}: the key {key} is of another interval"));
        }
        if place == RunPlace::Base && entry.kind == EntryKind::Tombstone {
            findings.note(format!("{path} at offset {offset}: a tombstone of {key} in a base run"));
        }
        cursor.next()?;
    }
    if !run.values().eq(value_bytes.iter().map(|(file, bytes)| (*file, *bytes))) {
        findings.note(format!(
            "{path} at offset {offset}: entries point to {value_bytes:?} bytes of value files, the \
             index says otherwise"
        ));
    }
    Ok(())
}

fn check_value(pointer: &ValuePointer, values: &ValueLog, findings: &mut Findings) {
    findings.values += 1;
    match values.verify(pointer, Verify::Hash) {
        Ok(bytes) => findings.bytes += bytes,
        Err(error) => findings.note(error.to_string()),
    }
}
