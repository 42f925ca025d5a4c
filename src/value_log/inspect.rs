//! Showing a value file, also one that is damaged or in use.

use std::ops::ControlFlow;

use super::format::{
    CHUNK_LEN, FILE_HEADER_LEN, Form, RECORD_ALIGNMENT, RECORD_HEADER_LEN, RecordHeader,
    RecordLayout, chunk_count, chunk_offset, decode_file_header, file_tag, shortened, u64_at,
};
use crate::base::{Result, checksum};
use crate::pieces::{Detail, FileWindow, Piece, PieceEntry, PieceState, Tail, Visit, Walk};

/// Shows a value file. `known` is its database and number, if they are known otherwise than by the
/// header.
pub fn inspect_values(
    window: &mut FileWindow<'_>,
    known: Option<(u64, u64)>,
    detail: Detail,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let found = window.bytes(0, FILE_HEADER_LEN)?.and_then(decode_file_header);
    let header = found.map(|(database, number, key)| {
        let piece = Piece::sound(0, FILE_HEADER_LEN, "file header")
            .field("database", format!("{database:016x}"))
            .field("number", number);
        match key {
            0 => piece,
            key => piece.field("sealed with key", key),
        }
    });
    let header = header.ok_or_else(|| "the header does not verify".to_owned());
    if window.show_header(FILE_HEADER_LEN, header, visit).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let form = found.map_or(Form::Plain, |(_, _, key)| Form::of_key(key));
    let found = found.map(|(database, number, _)| (database, number));
    let Some((database, number)) = found.or(known) else {
        return Ok(window.show_unverifiable(FILE_HEADER_LEN, visit));
    };
    let tag = file_tag(database, number);
    // A value that is being streamed has no header yet: it may be what is last.
    let walk = Walk { start: FILE_HEADER_LEN, step: RECORD_ALIGNMENT, tail: Tail::Room };
    let mut probe =
        |window: &mut FileWindow<'_>, offset: u64| record_at(window, tag, offset, (form, detail));
    walk.run(window, &mut probe, visit)
}

/// The record whose header verifies at `offset`; its value is verified chunk by chunk. One that is
/// sealed opens only for who has the pointer to it.
fn record_at(
    window: &mut FileWindow<'_>,
    tag: u64,
    offset: u64,
    (form, detail): (Form, Detail),
) -> Result<Option<Piece>> {
    let Some(bytes) = window.bytes(offset, RECORD_HEADER_LEN as u64)? else { return Ok(None) };
    let bytes: &[u8; RECORD_HEADER_LEN] = bytes.try_into().expect("a header's bytes");
    let Some(header) = RecordHeader::decode(bytes, tag, offset) else { return Ok(None) };
    let Some(layout) = RecordLayout::of(header.len, form) else { return Ok(None) };
    let hash: String = header.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let len = layout.end.min(window.size - offset);
    let mut piece = Piece::sound(offset, len, "value")
        .field("length", header.len)
        .field("keyspace", header.keyspace);
    piece = match form {
        Form::Plain => piece.field("hash", hash),
        Form::Sealed => piece.field("sealed", "and not opened: its hash is where it is used"),
    };
    let damaged = |what: &str, at: u64| PieceState::Damaged(format!("{what} at offset {at}"));
    let value_start = offset + RECORD_HEADER_LEN as u64;
    let table_start = offset + layout.value_end;
    let table_len = layout.table_end - layout.value_end;
    let Some(table) = window.bytes(table_start, table_len)? else {
        piece.state = damaged("the file ends within the value", window.size);
        return Ok(Some(piece));
    };
    if table_len > 0 && checksum(table, tag, table_start) != header.sum {
        piece.state = damaged("the table of checksums does not verify", table_start);
        return Ok(Some(piece));
    }
    let sums: Vec<u64> = match table_len {
        0 => vec![header.sum],
        _ => {
            (0..chunk_count(header.len)).map(|number| u64_at(table, form.sum_at(number))).collect()
        }
    };
    let mut hasher = blake3::Hasher::new();
    for (number, sum) in sums.iter().enumerate() {
        let start = chunk_offset(value_start, number);
        let chunk_len = (offset + layout.value_end - start).min(CHUNK_LEN as u64);
        let Some(chunk) = window.bytes(start, chunk_len)? else {
            piece.state = damaged("the file ends within the value", window.size);
            return Ok(Some(piece));
        };
        if checksum(chunk, tag, start) != *sum {
            piece.state = damaged("a piece of the value does not verify", start);
            return Ok(Some(piece));
        }
        hasher.update(chunk);
        if number == 0 && detail == Detail::Entries && form == Form::Plain {
            piece.entries.push(PieceEntry::new("begins with", &[], &chunk[..chunk.len().min(64)]));
        }
    }
    if form == Form::Plain && shortened(&hasher.finalize()) != header.hash {
        piece.state = damaged("the value does not have its hash", offset);
    }
    Ok(Some(piece))
}
