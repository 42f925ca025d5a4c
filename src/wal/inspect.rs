//! Showing a log file, also one that is damaged or in use.

use std::ops::ControlFlow;

use super::directory::identity;
use super::header::{FileHeader, HEADER_BLOCK_SIZE, HeaderCopy};
use super::record::{
    CHECKED_FROM, RECORD_ALIGNMENT, RECORD_HEADER_SIZE, RecordHeader, RecordKind, file_tag,
};
use crate::base::{ChecksumStream, Result};
use crate::pieces::{Explained, FileWindow, NOT_WHAT_WAS_SEALED, Piece, PieceState, Tail};
use crate::pieces::{Visit, Walk, explain_sealed};

/// Payloads up to this size are read whole and explained.
const EXPLAINED_MAX: u64 = 64 << 20;
const PART_LEN: u64 = 256 << 10;

/// Shows the file of the number `number`, as its name says, of the database `database`, if that is
/// known otherwise than by the header. `explain` knows what is in commits.
pub fn inspect_log(
    window: &mut FileWindow<'_>,
    number: Option<u64>,
    database: Option<u64>,
    explain: &dyn Fn(&[u8]) -> Explained,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let block_len = HEADER_BLOCK_SIZE.min(window.size);
    let copies: Vec<HeaderCopy> = match window.bytes(0, block_len)? {
        Some(block) => FileHeader::copies(block),
        None => Vec::new(),
    };
    let header = copies.iter().find_map(|copy| copy.header);
    for copy in &copies {
        if visit(header_piece(copy)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    let shown = copies.last().map_or(0, |copy| copy.offset + copy.len);
    if shown < block_len {
        let what = "the file ends within its header".to_owned();
        let state = PieceState::Damaged(what);
        let piece = Piece::new(shown, block_len - shown, "file header", state);
        if visit(piece).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    let number = header.map(|header| header.number).or(number);
    let database = header.map(|header| header.database_id).or(database);
    let (Some(number), Some(database)) = (number, database) else {
        return Ok(window.show_unverifiable(block_len, visit));
    };
    let tag = file_tag(database, number);
    let identity = identity(database, number);
    window.find_key(header.map_or(0, |header| header.key), &identity);
    let walk = Walk { start: HEADER_BLOCK_SIZE, step: RECORD_ALIGNMENT, tail: Tail::Room };
    let mut probe = |window: &mut FileWindow<'_>, offset: u64| {
        record_at(window, tag, header.as_ref(), offset, explain)
    };
    walk.run(window, &mut probe, visit)
}

fn header_piece(copy: &HeaderCopy) -> Piece {
    let state = match (&copy.header, copy.is_zero) {
        (Some(_), _) => PieceState::Sound,
        (None, true) => PieceState::Unused("zeros: the file was never in use".to_owned()),
        (None, false) => PieceState::Damaged("this copy of the header does not verify".to_owned()),
    };
    let piece = Piece::new(copy.offset, copy.len, "file header", state);
    let Some(header) = copy.header else { return piece };
    let piece = piece
        .field("database", format!("{:016x}", header.database_id))
        .field("number", header.number)
        .field("start", header.start)
        .field("capacity", header.capacity)
        .field("durable up to", header.durable_up_to);
    let piece = match header.key {
        0 => piece,
        key => piece.field("sealed with key", key),
    };
    match header.previous {
        Some(previous) => {
            let text = format!("number {} from {}", previous.number, previous.start);
            piece.field("comes from", text)
        }
        None => piece,
    }
}

/// The record at `offset`, if one verifies there.
fn record_at(
    window: &mut FileWindow<'_>,
    tag: u64,
    file: Option<&FileHeader>,
    offset: u64,
    explain: &dyn Fn(&[u8]) -> Explained,
) -> Result<Option<Piece>> {
    let Some(bytes) = window.bytes(offset, RECORD_HEADER_SIZE)? else { return Ok(None) };
    let Some(header) = RecordHeader::plausible(bytes) else { return Ok(None) };
    let head: [u8; RECORD_HEADER_SIZE as usize] = bytes.try_into().expect("a header's bytes");
    if file.is_some_and(|file| header.lsn < file.start || file.offset_of(header.lsn) != offset) {
        return Ok(None);
    }
    if offset + header.size() > window.size.next_multiple_of(RECORD_ALIGNMENT) {
        return Ok(None);
    }
    let mut sum = ChecksumStream::new(tag, offset);
    sum.update(&head[CHECKED_FROM..]);
    let payload_start = offset + RECORD_HEADER_SIZE;
    let mut explained = Some(Explained::default());
    let key = window.key.clone();
    let sealed = (file.is_some_and(|file| file.key != 0), key.as_deref());
    if header.length <= EXPLAINED_MAX {
        let Some(payload) = window.bytes(payload_start, header.length)? else { return Ok(None) };
        sum.update(payload);
        if sum.finish().to_le_bytes() == head[..CHECKED_FROM] && header.kind == RecordKind::Commit {
            explained = explain_sealed(sealed, &header.sealed_place(), payload, explain);
        }
    } else {
        let mut done = 0;
        while done < header.length {
            let len = (header.length - done).min(PART_LEN);
            let Some(part) = window.bytes(payload_start + done, len)? else { return Ok(None) };
            sum.update(part);
            done += len;
        }
        explained = Some(Explained::not_understood("too long to be shown"));
    }
    if sum.finish().to_le_bytes() != head[..CHECKED_FROM] {
        return Ok(None);
    }
    let kind = match header.kind {
        RecordKind::Commit => "commit",
        RecordKind::Mark => "mark",
    };
    let len = header.size().min(window.size - offset);
    let piece = Piece::sound(offset, len, kind)
        .field("position", header.lsn)
        .field("durable up to", header.durable_up_to)
        .field("payload", format!("{} bytes", header.length));
    Ok(Some(match explained {
        Some(explained) => piece.explained(explained),
        None => Piece { state: PieceState::Damaged(NOT_WHAT_WAS_SEALED.to_owned()), ..piece },
    }))
}
