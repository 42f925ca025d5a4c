//! Showing a table, and what a record of an index says; also of files that are damaged or in use.

use std::ops::ControlFlow;

use super::record::{Counters, Decoder, EditRecord, PlacedTable};
use super::table::{EXTENSION_LEN, FOOTER_LEN, FooterView, HEADER_LEN, TableIdentity};
use crate::base::Result;
use crate::block::{Dictionary, FrameKind, FramePlace, frame};
use crate::manifest::Record;
use crate::memory::SharedBytes;
use crate::pieces::{Detail, Explained, FileWindow, Piece, PieceEntry, Tail, Visit, Walk};
use crate::structure::flex::{frame_at, key_in_header};

/// Shows a table. `known` is whose it is, if that is known otherwise than by the header.
pub fn inspect_table(
    window: &mut FileWindow<'_>,
    known: Option<TableIdentity>,
    detail: Detail,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let header = window.bytes(0, HEADER_LEN)?;
    let found = header.and_then(TableIdentity::decode);
    let key = header.map_or(0, key_in_header);
    let header = found.map(|identity| {
        let piece = Piece::sound(0, HEADER_LEN, "file header");
        match identity.origin() {
            Some(origin) => piece.field("made outside, with the origin", format!("{origin:016x}")),
            None => piece
                .field("database", format!("{:016x}", identity.database))
                .field("keyspace", identity.keyspace)
                .field("number", identity.number),
        }
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
    let footer = footer_of(window, tag)?;
    let dictionary = match footer.and_then(|footer| footer.dictionary) {
        Some(place) => dictionary_at(window, tag, place)?,
        None => None,
    };
    let mut probe = |window: &mut FileWindow<'_>, offset: u64| match footer {
        Some(footer) if footer.start == offset => Ok(Some(show_footer(&footer, window.size))),
        _ => frame_at(window, tag, offset, (detail, dictionary.as_ref()), name_of),
    };
    walk.run(window, &mut probe, visit)
}

/// What the frames of a table are.
fn name_of(kind: u8) -> Option<&'static str> {
    const NAMES: [(FrameKind, &str); 6] = [
        (FrameKind::Entries, "block"),
        (FrameKind::Partition, "partition"),
        (FrameKind::Top, "top"),
        (FrameKind::DeletedRanges, "deleted ranges"),
        (FrameKind::Properties, "properties"),
        (FrameKind::Dictionary, "dictionary"),
    ];
    NAMES.iter().find(|(known, _)| *known as u8 == kind).map(|(_, name)| *name)
}

/// The footer, if it verifies.
fn footer_of(window: &mut FileWindow<'_>, tag: u64) -> Result<Option<FooterView>> {
    let size = window.size;
    // With what may be in front of it, or without where there is less.
    for len in [FOOTER_LEN + EXTENSION_LEN, FOOTER_LEN] {
        let Some(start) = size.checked_sub(len) else { continue };
        let Some(end) = window.bytes(start, len)? else { continue };
        if let Some(footer) = FooterView::of(end, tag, size) {
            return Ok(Some(footer));
        }
    }
    Ok(None)
}

fn show_footer(footer: &FooterView, size: u64) -> Piece {
    let piece = Piece::sound(footer.start, size - footer.start, "footer")
        .field("top at", footer.top)
        .field("properties at", footer.properties);
    let piece = match footer.ranges {
        Some(offset) => piece.field("deleted ranges at", offset),
        None => piece,
    };
    match footer.dictionary {
        Some((offset, ..)) => piece.field("dictionary at", offset),
        None => piece,
    }
}

/// The dictionary, if it verifies and this program has any.
fn dictionary_at(
    window: &mut FileWindow<'_>,
    tag: u64,
    (offset, len, sum): (u64, u64, u32),
) -> Result<Option<Dictionary>> {
    let (path, key) = (window.path, window.key.clone());
    let Some(bytes) = window.bytes(offset, len)? else { return Ok(None) };
    let place = FramePlace { file: path, file_tag: tag, offset, key: key.as_deref() };
    let opened = frame::open(SharedBytes::from(bytes), FrameKind::Dictionary, place, sum);
    Ok(opened.ok().and_then(|payload| Dictionary::new(&payload.data[payload.range])))
}

/// What a record of a keyspace's index says.
pub fn explain_tables(record: Record<'_>, detail: Detail) -> Explained {
    let not_understood = || Explained::not_understood("the record is not understood");
    match record {
        Record::SnapshotPart(bytes) => {
            if let Some(tables) = Decoder::tables(bytes) {
                let mut explained = Explained::default();
                explain_placed(&mut explained, &tables, detail);
                return explained;
            }
            Decoder::header(bytes).map_or_else(not_understood, |counters| {
                let mut explained = Explained::default();
                explain_counters(&mut explained, &counters);
                explained
            })
        }
        Record::Edit(bytes) => match Decoder::edit(bytes) {
            Some(edit) => explain_edit(&edit, detail),
            None => not_understood(),
        },
        Record::SnapshotEnd => Explained::default(),
    }
}

fn explain_counters(explained: &mut Explained, counters: &Counters) {
    let Counters {
        flush_count,
        log_end,
        last_seqno,
        next_table,
        next_run,
        logical_bytes,
        table_bytes,
    } = *counters;
    explained.field("flushes", flush_count);
    explained.field("log end", log_end);
    explained.field("last stamp", last_seqno);
    explained.field("next table", next_table);
    explained.field("next run", next_run);
    explained.field("logical bytes", logical_bytes);
    explained.field("table bytes", table_bytes);
}

fn explain_edit(edit: &EditRecord, detail: Detail) -> Explained {
    let mut explained = Explained::default();
    explain_counters(&mut explained, &edit.counters);
    if !edit.removed.is_empty() {
        explained.field("removed", list(&edit.removed));
    }
    explain_placed(&mut explained, &edit.added, detail);
    explained
}

fn explain_placed(explained: &mut Explained, tables: &[PlacedTable], detail: Detail) {
    explained.field("tables", tables.len());
    if detail != Detail::Entries {
        return;
    }
    for PlacedTable { run, table } in tables {
        let end = match &table.end {
            Some(end) => end.escape_ascii().to_string(),
            None => "without end".to_owned(),
        };
        let what = format!(
            "table {} in level {} run {}, {} bytes, {} entries, up to {end}",
            table.number, run.level, run.id, table.size, table.entry_count
        );
        explained.entries.push(PieceEntry::new(what, &table.first, &[]));
    }
}

fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    numbers.join(" ")
}
