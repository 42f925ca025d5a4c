//! Showing a file of an edit log, also one that is damaged or in use.

use std::ops::ControlFlow;

use super::format::{
    ALIGNMENT, EditLogId, FileHeader, HEADER_LEN, MARK_SLOT_LEN, RECORD_HEADER_LEN, RecordHeader,
    RecordKind, RecordPlace, file_tag, identity, is_interrupted_mark, sealed_place,
};
use super::read::Record;
use crate::base::Result;
use crate::pieces::{Explained, FileWindow, NOT_WHAT_WAS_SEALED, Piece, PieceState, Tail};
use crate::pieces::{Visit, Walk, explain_sealed};

/// Shows the file. `explain` gets the kind that the header names, and each payload.
pub fn inspect_edit_log(
    window: &mut FileWindow<'_>,
    explain: &dyn Fn(u32, Record<'_>) -> Explained,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let path = window.path;
    let header = match window.bytes(0, HEADER_LEN)? {
        Some(bytes) => FileHeader::decode(bytes.try_into().expect("a header's bytes"), path),
        None => Err(crate::base::Error::corruption(path, 0, "the file ends within its header")),
    };
    let piece = match &header {
        Ok(header) => Ok(header_piece(header)),
        Err(error) => Err(error.to_string()),
    };
    if window.show_header(HEADER_LEN, piece, visit).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let Ok(header) = header else { return Ok(window.show_unverifiable(HEADER_LEN, visit)) };
    let kind = header.kind;
    let id = EditLogId { stem: "", kind, database: header.database, owner: header.owner };
    let tag = file_tag(&id, header.number);
    window.find_key(header.key, &identity(&id, header.number));
    let is_sealed = header.key != 0;
    let walk = Walk { start: HEADER_LEN, step: ALIGNMENT, tail: Tail::Room };
    // Where the mark of the record in front belongs.
    let mut slot: Option<RecordPlace> = None;
    let mut probe = |window: &mut FileWindow<'_>, offset: u64| {
        let of_mark = slot.filter(|slot| slot.offset == offset);
        match header_at(window, tag, offset)? {
            None => of_mark.map_or(Ok(None), |slot| mark_at(window, slot)),
            Some(header) => {
                let (end, previous) = (offset + header.record_len(), header.checksum);
                let has_mark = matches!(header.kind, RecordKind::SnapshotEnd | RecordKind::Edit);
                slot = has_mark.then_some(RecordPlace { tag, offset: end, previous });
                let place = RecordPlace { tag, offset, previous: header.previous };
                let explain = |record: Record<'_>| explain(kind, record);
                record_at(window, place, header, is_sealed, &explain)
            }
        }
    };
    walk.run(window, &mut probe, visit)
}

fn header_piece(header: &FileHeader) -> Piece {
    let piece = Piece::sound(0, HEADER_LEN, "file header")
        .field("log", kind_name(header.kind))
        .field("database", format!("{:016x}", header.database))
        .field("owner", header.owner)
        .field("number", header.number)
        .field("capacity", header.capacity);
    match header.key {
        0 => piece,
        key => piece.field("sealed with key", key),
    }
}

fn kind_name(kind: u32) -> String {
    match kind {
        1 => "manifest".to_owned(),
        2 => "index of a keyspace".to_owned(),
        3 => "index of a flexible space".to_owned(),
        other => format!("unknown kind {other}"),
    }
}

/// The header at `offset`, if one verifies there.
fn header_at(window: &mut FileWindow<'_>, tag: u64, offset: u64) -> Result<Option<RecordHeader>> {
    let size = window.size;
    let bytes = window.bytes(offset, RECORD_HEADER_LEN)?;
    Ok(bytes.and_then(|bytes| RecordHeader::decode(bytes, tag, offset, size)))
}

/// What a slot without a valid mark holds, if it holds anything.
fn mark_at(window: &mut FileWindow<'_>, slot: RecordPlace) -> Result<Option<Piece>> {
    let Some(bytes) = window.bytes(slot.offset, MARK_SLOT_LEN)? else { return Ok(None) };
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let state = match is_interrupted_mark(bytes, slot) {
        true => PieceState::Unused("was being written when the machine stopped".to_owned()),
        false => PieceState::Damaged("this is not the mark of the record in front".to_owned()),
    };
    Ok(Some(Piece::new(slot.offset, MARK_SLOT_LEN, "mark", state)))
}

/// The record with this header at `offset`.
fn record_at(
    window: &mut FileWindow<'_>,
    place: RecordPlace,
    header: RecordHeader,
    is_sealed: bool,
    explain: &dyn Fn(Record<'_>) -> Explained,
) -> Result<Option<Piece>> {
    let RecordPlace { tag, offset, .. } = place;
    let len = header.record_len();
    let padded = len - RECORD_HEADER_LEN;
    let name = match header.kind {
        RecordKind::SnapshotPart => "snapshot part",
        RecordKind::SnapshotEnd => "snapshot end",
        RecordKind::Edit => "edit",
        RecordKind::Mark => "mark",
    };
    let piece = Piece::sound(offset, len, name)
        .field("payload", format!("{} bytes", header.length))
        .field("behind", format!("{:016x}", header.previous));
    let key = window.key.clone();
    let Some(payload) = window.bytes(offset + RECORD_HEADER_LEN, padded)? else {
        return Ok(None);
    };
    if !header.covers(payload, tag, offset) {
        let what = "the header verifies, the payload does not".to_owned();
        return Ok(Some(Piece { state: PieceState::Damaged(what), ..piece }));
    }
    let payload = &payload[..header.length as usize];
    let explain_payload = |payload: &[u8]| match header.kind {
        RecordKind::SnapshotPart => explain(Record::SnapshotPart(payload)),
        RecordKind::Edit => explain(Record::Edit(payload)),
        RecordKind::SnapshotEnd | RecordKind::Mark => Explained::default(),
    };
    let sealed = (is_sealed && header.kind != RecordKind::Mark, key.as_deref());
    let bound_to = sealed_place(header.kind, header.length, place);
    Ok(Some(match explain_sealed(sealed, &bound_to, payload, &explain_payload) {
        Some(explained) => piece.explained(explained),
        None => Piece { state: PieceState::Damaged(NOT_WHAT_WAS_SEALED.to_owned()), ..piece },
    }))
}
