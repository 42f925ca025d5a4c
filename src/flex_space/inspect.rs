//! Showing the files of a space, also when they are damaged or in use: a segment, and what the
//! records of the index say.

use std::ops::ControlFlow;

use super::block::{BLOCK_SIZE, SegmentId, decode_header, open};
use super::extent::{Address, Tag};
use super::index::{EXTENTS, HEAD, SEGMENTS, take_extent, take_head, take_segment};
use super::op::Op;
use crate::base::{Result, varint};
use crate::manifest::Record;
use crate::pieces::{Detail, Explained, FileWindow, Piece, PieceEntry, Tail, Visit, Walk};

const BLOCK_LEN: u64 = BLOCK_SIZE as u64;

/// Shows a segment: its blocks, those that verify and those that do not.
pub fn inspect_space_segment(
    window: &mut FileWindow<'_>,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let path = window.path;
    let id: Option<SegmentId> = window.bytes(0, BLOCK_LEN)?.and_then(decode_header);
    let header = id.map(|id| {
        Piece::sound(0, BLOCK_LEN, "file header")
            .field("space", format!("{:016x}", id.space))
            .field("number", id.number)
    });
    let header = header.ok_or_else(|| "the header does not verify".to_owned());
    if window.show_header(BLOCK_LEN, header, visit).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let Some(id) = id else { return Ok(window.show_unverifiable(BLOCK_LEN, visit)) };
    let walk = Walk { start: BLOCK_LEN, step: BLOCK_LEN, tail: Tail::Room };
    let mut probe = |window: &mut FileWindow<'_>, offset: u64| -> Result<Option<Piece>> {
        let Some(block) = window.bytes(offset, BLOCK_LEN)? else { return Ok(None) };
        let verifies = open(block, id.tag(), offset, path).is_ok();
        Ok(verifies.then(|| Piece::sound(offset, BLOCK_LEN, "block")))
    };
    walk.run(window, &mut probe, visit)
}

/// What a record of a space's index says: a part of the checkpoint, or an edit of the journal.
pub fn explain_space_index(record: Record<'_>, detail: Detail) -> Explained {
    match record {
        Record::SnapshotPart(part) => explain_part(part, detail),
        Record::SnapshotEnd => Explained::default(),
        Record::Edit(edit) => explain_edit(edit, detail),
    }
}

fn explain_part(part: &[u8], detail: Detail) -> Explained {
    let mut explained = Explained::default();
    match part.first() {
        Some(&HEAD) => explain_head(part, &mut explained),
        Some(&SEGMENTS) => {
            let mut list = List::behind(1, "segments", detail);
            list.take_all(part, &mut explained, |pos| {
                let (number, size) = take_segment(part, pos)?;
                Some(entry("segment", &number.to_string(), &format!("{size} bytes of data")))
            });
        }
        Some(&EXTENTS) => {
            let (mut bytes, mut tags) = (0, 0);
            let mut list = List::behind(1, "extents", detail);
            list.take_all(part, &mut explained, |pos| {
                let extent = take_extent(part, pos)?;
                bytes += u64::from(extent.len);
                tags += u64::from(extent.tag.is_some());
                let mut place = shown(extent.address);
                if let Some(tag) = extent.tag {
                    place = format!("{place}, tag {tag}");
                }
                Some(entry("extent", &format!("{} bytes", extent.len), &place))
            });
            explained.field("bytes", bytes);
            explained.field("tags", tags);
        }
        Some(other) => explained.unknown = Some(format!("a part of kind {other}")),
        None => explained.unknown = Some("an empty part".to_owned()),
    }
    explained
}

fn explain_head(part: &[u8], explained: &mut Explained) {
    let mut pos = 1;
    let Some(version) = varint::take(part, &mut pos) else {
        explained.unknown = Some("the head of a checkpoint without a version".to_owned());
        return;
    };
    explained.field("version", version);
    match take_head(part, &mut pos) {
        Some((next_segment, counters)) => {
            explained.field("next segment", next_segment);
            explained.field("bytes given", counters.user_bytes);
            explained.field("bytes written", counters.written_bytes);
        }
        None => explained.unknown = Some("the head of a checkpoint of another form".to_owned()),
    }
}

fn explain_edit(edit: &[u8], detail: Detail) -> Explained {
    let mut explained = Explained::default();
    let mut list = List::behind(0, "steps", detail);
    list.take_all(edit, &mut explained, |pos| Op::take(edit, pos).map(step_entry));
    explained
}

fn step_entry(step: Op) -> PieceEntry {
    let at = |offset: u64| format!("at {offset}");
    let from = |len: u32, address: Address| format!("{len} bytes {}", shown(address));
    match step {
        Op::Insert { offset, address, len } => entry("insert", &at(offset), &from(len, address)),
        Op::Collapse { offset, len } => entry("collapse", &at(offset), &format!("{len} bytes")),
        Op::Overwrite { offset, address, len } => {
            entry("overwrite", &at(offset), &from(len, address))
        }
        Op::SetTag { offset, tag } => {
            let tag = tag.map_or_else(|| "none".to_owned(), |tag: Tag| tag.to_string());
            entry("set tag", &at(offset), &tag)
        }
        Op::Extend { segment, size } => {
            entry("extend", &format!("segment {segment}"), &format!("{size} bytes of data"))
        }
        Op::Count { user_bytes, written_bytes } => {
            entry("count", &format!("{user_bytes} given"), &format!("{written_bytes} written"))
        }
    }
}

fn shown(address: Address) -> String {
    match address.is_zeros() {
        true => "of zeros".to_owned(),
        false => format!("at {} of segment {}", address.offset, address.segment),
    }
}

fn entry(kind: &str, key: &str, value: &str) -> PieceEntry {
    PieceEntry::new(kind, key.as_bytes(), value.as_bytes())
}

/// A payload of one thing behind the other.
struct List {
    pos: usize,
    name: &'static str,
    detail: Detail,
}

impl List {
    fn behind(pos: usize, name: &'static str, detail: Detail) -> List {
        List { pos, name, detail }
    }

    /// Takes them until one is not understood, and says how many there are.
    fn take_all(
        &mut self,
        payload: &[u8],
        explained: &mut Explained,
        mut take: impl FnMut(&mut usize) -> Option<PieceEntry>,
    ) {
        let mut count = 0;
        while self.pos < payload.len() {
            let Some(entry) = take(&mut self.pos) else {
                let what = format!("number {} of the {} and those behind it", count + 1, self.name);
                explained.unknown = Some(what);
                break;
            };
            count += 1;
            if self.detail == Detail::Entries {
                explained.entries.push(entry);
            }
        }
        explained.field(self.name, count);
    }
}
