//! Looking into files: what is in a log, a manifest, an index, a segment, a value file, piece by
//! piece, also when the file is damaged or a database is at work on it. Nothing is ever written.
//!
//! Which kind of file it is, is told by its first bytes, or by its name where these are damaged.
//! Each piece is verified against its checksum at its place. Bytes that do not verify are shown as
//! such, and passed over: the file is searched for the next piece that does. Where the header of a
//! file is damaged, the rest is verified by what the name of the file and the manifest beside it
//! say, as far as these are there.
//!
//! What a database writes to meanwhile may be shown as being half there.
//!
//! ```
//! # use std::ops::ControlFlow;
//! # use lithedb::{Db, inspect};
//! # use lithedb::storage::{MemoryStorage, Storage};
//! # fn main() -> lithedb::Result<()> {
//! # let storage: std::sync::Arc<dyn Storage> = std::sync::Arc::new(MemoryStorage::new());
//! # let db = Db::builder().storage(storage.clone()).open("/db")?;
//! # db.keyspace_or_create("words")?.put("key", "value")?;
//! let path = "/db/wal/00000001.wal";
//! let report = inspect::inspect(&*storage, path, inspect::Detail::Entries, |piece| {
//!     println!("{} at {}: {:?}", piece.kind, piece.offset, piece.state);
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!((report.kind, report.damaged), (inspect::FileKind::Log, 0));
//! # Ok(())
//! # }
//! ```

use std::ops::ControlFlow;
use std::path::Path;

pub use crate::db::unlock;
pub use crate::pieces::{Detail, Piece, PieceEntry, PieceState};

use crate::base::{Error, Result};
use crate::db::explain_commit;
use crate::flex_space::{explain_space_index, inspect_space_segment};
use crate::manifest::{Record, explain_manifest, inspect_edit_log, newest_database};
use crate::pieces::{Explained, FileWindow, Visit};
use crate::seal::{SLOT_SIZE, Slot, SlotState};
use crate::storage::{Storage, open_named};
use crate::structure::flex::{SegmentIdentity, explain_index, inspect_segment};
use crate::structure::lsm::{TableIdentity, explain_tables, inspect_table};
use crate::value_log::inspect_values;
use crate::wal::inspect_log;

const MAGIC_LEN: u64 = 8;
const MANIFEST_STEM: &str = "MANIFEST";
// Kinds of edit logs.
const KIND_MANIFEST: u32 = 1;
const KIND_INDEX: u32 = 2;
const KIND_SPACE: u32 = 3;
const KIND_TABLES: u32 = 4;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A file of the commit log.
    Log,
    /// A manifest, or an index of a keyspace or of a flexible space.
    EditLog,
    /// A segment of a keyspace.
    Segment,
    /// A table of a keyspace.
    Table,
    /// A value file.
    Values,
    /// A segment of a flexible space.
    SpaceSegment,
    /// The keyring of an encrypted database.
    Keyring,
}

/// What an inspection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// What the file is.
    pub kind: FileKind,
    /// Its size when the inspection began.
    pub size: u64,
    /// Pieces that were shown.
    pub pieces: u64,
    /// Those of them that are damaged.
    pub damaged: u64,
    /// Those of them that have something that this program does not know.
    pub unknown: u64,
}

/// Shows the pieces of the file at `path`, in order, until `visit` breaks off. Costs reading the
/// file once; where nothing verifies, a look at each place where a piece could begin. In memory are
/// the piece at hand and a window of 256 KiB.
///
/// # Errors
/// `InvalidArgument` for a file that is none of a database or space; `Io`. Damage is none: it is
/// shown.
pub fn inspect(
    storage: &dyn Storage,
    path: impl AsRef<Path>,
    detail: Detail,
    mut visit: impl FnMut(Piece) -> ControlFlow<()>,
) -> Result<Inspection> {
    let path = path.as_ref();
    let opened = open_named(storage, path);
    let (file, _) = opened.map_err(|error| Error::io("open", path, error))?;
    let mut window = FileWindow::new(&*file, path, storage.keyring().cloned())?;
    let kind = kind_of(&mut window)?;
    let size = window.size;
    let (mut pieces, mut damaged, mut unknown) = (0, 0, 0);
    let mut counted = |piece: Piece| {
        pieces += 1;
        damaged += u64::from(matches!(piece.state, PieceState::Damaged(_)));
        unknown += u64::from(matches!(piece.state, PieceState::Unknown(_)));
        visit(piece)
    };
    show(storage, &mut window, kind, detail, &mut counted)?;
    Ok(Inspection { kind, size, pieces, damaged, unknown })
}

fn show(
    storage: &dyn Storage,
    window: &mut FileWindow<'_>,
    kind: FileKind,
    detail: Detail,
    visit: Visit<'_>,
) -> Result<()> {
    let path = window.path;
    let (name, parent) = (name_of(path), path.parent().unwrap_or(Path::new("")));
    // The manifest of the database whose folder is so many levels up.
    let database = |levels: usize| {
        let dir = path.ancestors().nth(levels + 1)?;
        newest_database(storage, dir, MANIFEST_STEM).ok()
    };
    let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<u64>().ok();
    let _whether_all = match kind {
        FileKind::Log => {
            let number = name.strip_suffix(".wal").and_then(|digits| digits.parse().ok());
            let explain = |payload: &[u8]| explain_commit(payload, detail);
            inspect_log(window, number, database(1), &explain, visit)?
        }
        FileKind::EditLog => {
            let explain = |kind: u32, record: Record<'_>| explain_record(kind, record, detail);
            inspect_edit_log(window, &explain, visit)?
        }
        FileKind::Segment => {
            let keyspace = name_of(parent).parse::<u32>().ok();
            let known = database(2).zip(keyspace).zip(number("seg-"));
            let known = known.map(|((database, keyspace), number)| SegmentIdentity {
                database,
                keyspace,
                number,
            });
            inspect_segment(window, known, detail, visit)?
        }
        FileKind::Table => {
            let keyspace = name_of(parent).parse::<u32>().ok();
            let known = database(2).zip(keyspace).zip(number("tbl-"));
            let known = known.map(|((database, keyspace), number)| TableIdentity {
                database,
                keyspace,
                number,
            });
            inspect_table(window, known, detail, visit)?
        }
        FileKind::Values => inspect_values(window, database(1).zip(number("val-")), detail, visit)?,
        FileKind::SpaceSegment => inspect_space_segment(window, visit)?,
        FileKind::Keyring => inspect_keyring(window, visit)?,
    };
    Ok(())
}

/// Shows a keyring: what a slot says in the clear. No key is needed for that.
fn inspect_keyring(window: &mut FileWindow<'_>, visit: Visit<'_>) -> Result<ControlFlow<()>> {
    let slot_size = SLOT_SIZE as u64;
    let mut offset = 0;
    while offset < window.size {
        let len = slot_size.min(window.size - offset);
        let found = match window.bytes(offset, slot_size)? {
            Some(bytes) => Slot::decode((offset / slot_size) as usize, bytes),
            None => SlotState::Damaged("the file ends within it"),
        };
        let state = match &found {
            SlotState::Whole(_) => PieceState::Sound,
            SlotState::Unknown(version) => PieceState::Unknown(format!("version {version}")),
            SlotState::Damaged(what) => PieceState::Damaged((*what).to_owned()),
        };
        let piece = Piece::new(offset, len, "slot of a keyring", state);
        let piece = match &found {
            SlotState::Whole(slot) => piece
                .field("generation", slot.generation)
                .field("opened by", slot.recipe_name())
                .field("cipher", slot.cipher()),
            SlotState::Unknown(_) | SlotState::Damaged(_) => piece,
        };
        if visit(piece).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        offset += len;
    }
    Ok(ControlFlow::Continue(()))
}

fn explain_record(kind: u32, record: Record<'_>, detail: Detail) -> Explained {
    match kind {
        KIND_MANIFEST => explain_manifest(record),
        KIND_INDEX => explain_index(record, detail),
        KIND_SPACE => explain_space_index(record, detail),
        KIND_TABLES => explain_tables(record, detail),
        other => Explained::not_understood(format!("a log of kind {other}")),
    }
}

/// By the first bytes, else by the name.
fn kind_of(window: &mut FileWindow<'_>) -> Result<FileKind> {
    let (path, len) = (window.path, MAGIC_LEN.min(window.size));
    let magic = window.bytes(0, len)?.unwrap_or_default();
    let by_magic = match magic {
        b"LitheWAL" => Some(FileKind::Log),
        b"LITHELOG" => Some(FileKind::EditLog),
        b"LITHESEG" => Some(FileKind::Segment),
        b"LITHETBL" => Some(FileKind::Table),
        b"LITHEVAL" => Some(FileKind::Values),
        b"LITHESPC" => Some(FileKind::SpaceSegment),
        b"LITHEKEY" => Some(FileKind::Keyring),
        _ => None,
    };
    let name = name_of(path);
    let by_name = || {
        let stems = ["MANIFEST-", "index-", "space-", "tables-"];
        if Path::new(name).extension().is_some_and(|end| end == "wal") {
            Some(FileKind::Log)
        } else if stems.iter().any(|stem| name.starts_with(stem)) {
            Some(FileKind::EditLog)
        } else if name.starts_with("seg-") {
            Some(FileKind::Segment)
        } else if name.starts_with("tbl-") {
            Some(FileKind::Table)
        } else if name.starts_with("val-") {
            Some(FileKind::Values)
        } else if name == "KEYRING" {
            Some(FileKind::Keyring)
        } else {
            None
        }
    };
    by_magic.or_else(by_name).ok_or_else(|| {
        let path = path.display();
        match name {
            "LOCK" | "RESERVE" => Error::invalid(format!("{path} has nothing in it that is read")),
            _ => Error::invalid(format!(
                "{path} is no file of a database, by its first bytes and its name"
            )),
        }
    })
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
