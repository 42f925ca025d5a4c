//! `lithe inspect`: what is in a file of a database, piece by piece.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use lithedb::inspect::{Detail, Inspection, Piece, PieceEntry, PieceState, inspect, unlock};
use lithedb::storage::{OsStorage, Storage};
use serde_json::{Map, Value, json};

use crate::args::Globals;
use crate::failure::{Failure, Outcome};
use crate::keys::Ask;
use crate::notation::{bytes_text, count_text, write_escaped, write_hex};
use crate::output::{Notices, json_line, stdout, write_json_bytes};

/// Bytes on a line of a raw dump.
const RAW_LINE: usize = 16;
const RAW_READ: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  lithe inspect my.lithe/wal/00000002.wal
  lithe inspect my.lithe/keyspaces/00000001/seg-00000003 --block 4 --entries
  lithe inspect my.lithe/MANIFEST-00000001 --format jsonl
  lithe inspect my.lithe/values/val-00000001 --offset 4096 --raw

Logs, manifests, indexes, segments, value files, and the files of flexible spaces; none is written
to, and the database may be at work or damaged. Each line is a piece: its number, where it starts,
how long it is, what it is and what it says. What does not verify is shown as DAMAGED and passed
over. The exit code is 4 if there is any.";

/// Options of `lithe inspect`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct InspectArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Only the piece of this number, from 0
    #[arg(long, value_name = "NUMBER", conflicts_with = "offset")]
    pub block: Option<u64>,

    /// Only the piece that has the byte at this offset
    #[arg(long, value_name = "OFFSET")]
    pub offset: Option<u64>,

    /// Show what pieces consist of: operations, entries, intervals, extents, steps
    #[arg(long)]
    pub entries: bool,

    /// Show the bytes, in hexadecimal digits
    #[arg(long)]
    pub raw: bool,

    /// How pieces are written
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: InspectFormat,
}

/// How pieces are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// A line for each, and lines below it for what it consists of
    Text,
    /// One object per line
    Jsonl,
}

/// Shows the pieces.
pub fn run(globals: &Globals, notices: Notices, args: &InspectArgs) -> Outcome {
    let storage = storage_of(globals, &args.file)?;
    let mut out = stdout();
    let mut number = 0;
    let mut failed: Option<Failure> = None;
    let detail = if args.entries { Detail::Entries } else { Detail::Fields };
    let report = inspect(&*storage, &args.file, detail, |piece| {
        let this = number;
        number += 1;
        let is_wanted = match (args.block, args.offset) {
            (Some(block), _) => this == block,
            (None, Some(offset)) => (piece.offset..piece.offset + piece.len).contains(&offset),
            (None, None) => true,
        };
        if !is_wanted {
            return ControlFlow::Continue(());
        }
        if let Err(failure) = write_piece(&mut out, this, &piece, args) {
            failed = Some(failure);
            return ControlFlow::Break(());
        }
        match args.block.is_some() || args.offset.is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    out.flush()?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    notices.say(summary(&report));
    match report.damaged {
        0 => Ok(()),
        count => Err(Failure::Damaged { problem_count: count as usize }),
    }
}

/// The file's storage; with the keys of the database that it is in, if a key is named.
fn storage_of(globals: &Globals, file: &Path) -> Result<Arc<dyn Storage>, Failure> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new());
    let Some(encryption) = globals.encryption(Ask::Once)? else { return Ok(storage) };
    let dir = file.ancestors().skip(1).find(|dir| dir.join("KEYRING").exists());
    let dir = dir.ok_or_else(|| {
        let file = file.display();
        Failure::usage(format!("{file} is in no directory of an encrypted database"))
    })?;
    Ok(unlock(storage, dir, &encryption)?)
}

/// `Log, 64.0 KiB: 12 pieces, 0 damaged, 0 with something unknown`.
fn summary(report: &Inspection) -> String {
    format!(
        "{:?}, {}: {} pieces, {} damaged, {} with something unknown",
        report.kind,
        bytes_text(report.size),
        count_text(report.pieces),
        count_text(report.damaged),
        count_text(report.unknown)
    )
}

fn write_piece(out: &mut impl Write, number: u64, piece: &Piece, args: &InspectArgs) -> Outcome {
    match args.format {
        InspectFormat::Text => write_text(out, number, piece)?,
        InspectFormat::Jsonl => write_json(out, number, piece)?,
    }
    if args.raw {
        write_raw(out, &args.file, piece)?;
    }
    Ok(())
}

/// `3  offset 4136  len 48  commit  stamp=1795250864285.0 operations=2`.
fn write_text(out: &mut impl Write, number: u64, piece: &Piece) -> io::Result<()> {
    write!(out, "{number}  offset {}  len {}  {}", piece.offset, piece.len, piece.kind)?;
    match state(&piece.state) {
        ("sound", _) => {}
        ("damaged", what) => write!(out, "  DAMAGED: {what}")?,
        (name, what) => write!(out, "  {name}: {what}")?,
    }
    for (name, text) in &piece.fields {
        write!(out, "  {name}=")?;
        write_escaped(out, text.as_bytes())?;
    }
    out.write_all(b"\n")?;
    for entry in &piece.entries {
        write_entry(out, entry)?;
    }
    Ok(())
}

fn write_entry(out: &mut impl Write, entry: &PieceEntry) -> io::Result<()> {
    write!(out, "\t{}", entry.kind)?;
    if let Some(keyspace) = entry.keyspace {
        write!(out, "\tkeyspace {keyspace}")?;
    }
    for bytes in [&entry.key, &entry.value] {
        out.write_all(b"\t")?;
        write_escaped(out, bytes)?;
    }
    if let Some(seqno) = entry.seqno {
        write!(out, "\t{seqno}")?;
    }
    out.write_all(b"\n")
}

fn state(state: &PieceState) -> (&'static str, &str) {
    match state {
        PieceState::Sound => ("sound", ""),
        PieceState::Unknown(what) => ("unknown", what),
        PieceState::Damaged(what) => ("damaged", what),
        PieceState::Unused(what) => ("unused", what),
        _ => ("of another kind", ""), // The library may learn one before this program does.
    }
}

fn write_json(out: &mut impl Write, number: u64, piece: &Piece) -> io::Result<()> {
    let fields: Map<String, Value> =
        piece.fields.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
    let (state, what) = state(&piece.state);
    let head = json!({
        "number": number,
        "offset": piece.offset,
        "len": piece.len,
        "kind": piece.kind,
        "state": state,
        "what": what,
        "fields": fields,
    });
    let head = json_line(&head);
    // Entries go into the same object: their bytes are not text.
    out.write_all(head.strip_suffix('}').unwrap_or(&head).as_bytes())?;
    if !piece.entries.is_empty() {
        out.write_all(b",\"entries\":[")?;
        for (index, entry) in piece.entries.iter().enumerate() {
            out.write_all(if index == 0 { b"" } else { b"," })?;
            write!(out, "{{\"kind\":{}", json!(entry.kind))?;
            if let Some(keyspace) = entry.keyspace {
                write!(out, ",\"keyspace\":{keyspace}")?;
            }
            out.write_all(b",\"key\":")?;
            write_json_bytes(out, &entry.key)?;
            out.write_all(b",\"value\":")?;
            write_json_bytes(out, &entry.value)?;
            if let Some(seqno) = entry.seqno {
                write!(out, ",\"stamp\":\"{seqno}\"")?;
            }
            out.write_all(b"}")?;
        }
        out.write_all(b"]")?;
    }
    out.write_all(b"}\n")
}

/// The bytes of a piece, sixteen on a line behind their offset.
#[expect(clippy::disallowed_methods, reason = "the file is only read, as any file of the user's")]
fn write_raw(out: &mut impl Write, path: &Path, piece: &Piece) -> Outcome {
    let failed = |source| Failure::Input { path: path.to_owned(), source };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(piece.offset)).map_err(failed)?;
    let mut rest = file.take(piece.len);
    let mut buffer = vec![0; RAW_READ];
    let mut offset = piece.offset;
    loop {
        let len = read_full(&mut rest, &mut buffer).map_err(failed)?;
        if len == 0 {
            return Ok(());
        }
        for line in buffer[..len].chunks(RAW_LINE) {
            write!(out, "\t{offset:08x}\t")?;
            write_hex(out, line)?;
            out.write_all(b"\n")?;
            offset += line.len() as u64;
        }
    }
}

/// Reads until the buffer is full or the source at its end.
fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match source.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
