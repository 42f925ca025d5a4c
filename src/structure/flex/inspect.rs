//! Showing a segment, and what a record of an index says; also of files that are damaged or in use.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::record::{ChangeRecord, Counters, Decoder, EditRecord, IntervalRecord, RunRecord};
use super::segment::{HEADER_LEN, SegmentIdentity, key_in_header};
use crate::base::{Codec, Composite, Cursor, EntryKind, Expiring, ExpirySpan, MergeBase, Result};
use crate::block::{Block, BlockCursor, Dictionary, FRAME_SEALED, FrameKind, FramePlace, frame};
use crate::manifest::Record;
use crate::memory::{Heap, SharedBytes};
use crate::pieces::{Detail, Explained, FileWindow, Piece, PieceEntry, Tail, Visit, Walk};

const FRAME_HEADER_LEN: u64 = frame::HEADER_LEN as u64;

/// Shows a segment. `known` is whose it is, if that is known otherwise than by the header.
pub fn inspect_segment(
    window: &mut FileWindow<'_>,
    known: Option<SegmentIdentity>,
    detail: Detail,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let header = window.bytes(0, HEADER_LEN)?;
    let found = header.and_then(SegmentIdentity::decode);
    let key = header.map_or(0, key_in_header);
    let header = found.map(|identity| {
        Piece::sound(0, HEADER_LEN, "file header")
            .field("database", format!("{:016x}", identity.database))
            .field("keyspace", identity.keyspace)
            .field("number", identity.number)
    });
    let header = header.map(|piece| match key {
        0 => piece,
        key => piece.field("sealed with key", key),
    });
    let header = header.ok_or_else(|| "the header does not verify".to_owned());
    if window.show_header(HEADER_LEN, header, visit).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let Some(identity) = found.or(known) else {
        return Ok(window.show_unverifiable(HEADER_LEN, visit));
    };
    let tag = identity.tag();
    window.find_key(key, &identity.file());
    let walk = Walk { start: HEADER_LEN, step: 1, tail: Tail::Nothing };
    let mut probe = |window: &mut FileWindow<'_>, offset: u64| {
        frame_at(window, tag, offset, (detail, None), |kind| {
            (kind == FrameKind::Entries as u8).then_some("run")
        })
    };
    walk.run(window, &mut probe, visit)
}

/// The frame at `offset`, if one verifies there. `name_of` names the kinds that are known.
pub(in crate::structure) fn frame_at(
    window: &mut FileWindow<'_>,
    tag: u64,
    offset: u64,
    (detail, dictionary): (Detail, Option<&Dictionary>),
    name_of: impl Fn(u8) -> Option<&'static str>,
) -> Result<Option<Piece>> {
    let path = window.path;
    let Some(header) = window.bytes(offset, FRAME_HEADER_LEN)? else { return Ok(None) };
    let stored_len = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    let (codec, kind, number) = (header[12], header[13] & !FRAME_SEALED, [header[14], header[15]]);
    let is_sealed = header[13] & FRAME_SEALED != 0;
    if !matches!(number, [0 | 1, 0]) || Codec::from_u8(codec).is_none() || kind == 0 {
        return Ok(None);
    }
    let sum = u64::from_le_bytes(header[..8].try_into().expect("eight bytes"));
    let len = FRAME_HEADER_LEN + u64::from(stored_len);
    let key = window.key.clone();
    let Some(bytes) = window.bytes(offset, len)? else { return Ok(None) };
    if crate::base::checksum(&bytes[8..], tag, offset) != sum {
        return Ok(None);
    }
    let codec_text = Codec::from_u8(codec).map_or("unknown", Codec::name);
    let piece = Piece::sound(offset, len, name_of(kind).unwrap_or("frame"))
        .field("checksum", format!("{sum:016x}"))
        .field("codec", codec_text);
    let piece = if number == [0, 0] { piece } else { piece.field("dictionary", number[0]) };
    if kind != FrameKind::Entries as u8 {
        let what = || Explained::not_understood(format!("a frame of kind {kind}"));
        let explained = name_of(kind).map_or_else(what, |_| Explained::default());
        return Ok(Some(piece.explained(explained)));
    }
    if is_sealed && key.is_none() {
        return Ok(Some(piece.explained(Explained::sealed())));
    }
    let place = FramePlace { file: path, file_tag: tag, offset, key: key.as_deref() };
    let unpacking = (dictionary, &Heap::new());
    let (bytes, entries) = (SharedBytes::from(bytes), FrameKind::Entries);
    let opened = frame::open_in(bytes, len as usize, entries, place, sum as u32, unpacking)
        .and_then(|payload| Block::parse(payload.data, payload.range, place));
    let explained = match opened {
        Ok(block) => explain_block(block, detail)?,
        Err(error) => Explained::not_understood(error.to_string()),
    };
    Ok(Some(piece.explained(explained)))
}

fn explain_block(block: Block, detail: Detail) -> Result<Explained> {
    let mut explained = Explained::default();
    explained.field("entries", block.entry_count());
    let mut cursor = BlockCursor::new(Arc::new(block));
    cursor.seek_first()?;
    if let Some(first) = cursor.entry() {
        explained.field("first key", first.key.escape_ascii());
    }
    cursor.seek_last()?;
    if let Some(last) = cursor.entry() {
        explained.field("last key", last.key.escape_ascii());
    }
    if detail == Detail::Entries {
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            let (kind, value) = shown_entry(entry.kind, entry.value);
            let seqno = Some(entry.seqno);
            let shown = PieceEntry::new(kind, entry.key, value);
            explained.entries.push(PieceEntry { seqno, ..shown });
            cursor.next()?;
        }
    }
    Ok(explained)
}

/// What an entry is (of operands, also what they are merged into; of what expires, when), and what
/// it holds.
fn shown_entry(kind: EntryKind, value: &[u8]) -> (String, &[u8]) {
    let name = match (kind, Composite::decode(value)) {
        (EntryKind::Value, _) => "value",
        (EntryKind::Tombstone, _) => "tombstone",
        (EntryKind::Pointer, _) => "pointer",
        (EntryKind::Composite, Some(Composite::Expiring(Expiring { until, kind, value }))) => {
            let (name, value) = shown_entry(kind, value);
            return (format!("{name} until {until} ms since 1970"), value);
        }
        (EntryKind::Composite, Some(Composite::Operands(operands))) => match operands.base {
            MergeBase::Below => "operands on older entries",
            MergeBase::Nothing => "operands on nothing",
            MergeBase::Value(_) => "operands on a value",
            MergeBase::Pointer(_) => "operands on a pointer",
        },
        (EntryKind::Composite, Some(Composite::OnOlderVersion(_))) => {
            "operands on an older version"
        }
        (EntryKind::Composite, None) => "composite of an unknown form",
    };
    (name.to_owned(), value)
}

/// What a record of a keyspace's index says.
pub fn explain_index(record: Record<'_>, detail: Detail) -> Explained {
    let not_understood = || Explained::not_understood("the record is not understood");
    match record {
        Record::SnapshotPart(bytes) => {
            if let Some(intervals) = Decoder::intervals(bytes) {
                return explain_intervals(&intervals, detail);
            }
            Decoder::header(bytes).map_or_else(not_understood, |header| explain_state(&header))
        }
        Record::Edit(bytes) => match Decoder::edit(bytes) {
            Some(edit) => explain_edit(&edit, detail),
            None => not_understood(),
        },
        Record::SnapshotEnd => Explained::default(),
    }
}

fn explain_state(state: &EditRecord) -> Explained {
    let mut explained = Explained::default();
    let Counters { flush_count, log_end, last_seqno, next_segment, logical_bytes, segment_bytes } =
        state.counters;
    explained.field("flushes", flush_count);
    explained.field("log end", log_end);
    explained.field("last stamp", last_seqno);
    explained.field("next segment", next_segment);
    explained.field("logical bytes", logical_bytes);
    explained.field("segment bytes", segment_bytes);
    let begun: Vec<String> = state
        .begun
        .iter()
        .map(|flush| format!("below {} up to {}", flush.to.escape_ascii(), flush.last_seqno))
        .collect();
    explained.field("begun flushes", begun.join(", "));
    let segments: Vec<String> =
        state.segments.iter().map(|(number, end)| format!("{number} up to {end}")).collect();
    explained.field("segments", segments.join(", "));
    explained
}

fn explain_intervals(intervals: &[IntervalRecord], detail: Detail) -> Explained {
    let mut explained = Explained::default();
    explained.field("intervals", intervals.len());
    if detail == Detail::Entries {
        explained.entries.extend(intervals.iter().map(interval_entry));
    }
    explained
}

fn interval_entry(interval: &IntervalRecord) -> PieceEntry {
    let runs = interval.base.iter().chain(&interval.deltas);
    let runs: Vec<String> = runs.map(shown_run).collect();
    PieceEntry::new("interval", &interval.anchor, runs.join(", ").as_bytes())
}

fn shown_run(run: &RunRecord) -> String {
    let place = format!("{} bytes at {} of segment {}", run.len, run.offset, run.segment);
    match run.expiring {
        None => place,
        Some(ExpirySpan { count, first, last }) => {
            format!("{place}, {count} entries expire from {first} to {last} ms since 1970")
        }
    }
}

fn explain_edit(edit: &EditRecord, detail: Detail) -> Explained {
    let mut explained = explain_state(edit);
    explained.field("changes", edit.changes.len());
    if detail == Detail::Fields {
        return explained;
    }
    for change in &edit.changes {
        let range = change.range();
        let place = format!("intervals {} up to {}", range.start, range.end);
        match change {
            ChangeRecord::Delta { replaced, run, .. } => {
                let text = format!("{}, for {replaced} deltas", shown_run(run));
                explained.entries.push(PieceEntry::new("delta", place.as_bytes(), text.as_bytes()));
            }
            ChangeRecord::Replace { intervals, .. } => {
                let text = format!("{} intervals", intervals.len());
                let entry = PieceEntry::new("replace", place.as_bytes(), text.as_bytes());
                explained.entries.push(entry);
            }
            ChangeRecord::Insert { intervals, .. } => {
                let text = format!("{} intervals", intervals.len());
                let entry = PieceEntry::new("insert", place.as_bytes(), text.as_bytes());
                explained.entries.push(entry);
                explained.entries.extend(intervals.iter().map(interval_entry));
            }
        }
    }
    explained
}
