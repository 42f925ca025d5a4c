//! What a record of the log says, for those who look at files.

use crate::base::{Lifetime, ValuePointer};
use crate::db::operation::{Operation, Write, decode_record};
use crate::pieces::{Detail, Explained, PieceEntry};

/// A commit as it is shown. Operations from the first one on that is not understood are left out,
/// and it is said so.
pub(crate) fn explain_commit(record: &[u8], detail: Detail) -> Explained {
    let Some(commit) = decode_record(record) else {
        return Explained::not_understood("the payload is not that of a commit");
    };
    let mut explained = Explained::default();
    explained.field("stamp", commit.seqno);
    explained.field("operations", commit.count);
    if let Some(payload) = commit.payload {
        explained.field("kept with it", payload.escape_ascii());
    }
    let (count, mut understood) = (commit.count, 0);
    for operation in commit.operations.map_while(|operation| operation) {
        understood += 1;
        if detail == Detail::Entries {
            explained.entries.push(entry_of(&operation));
        }
    }
    if understood != count {
        let what = format!("operation {} and those behind it", understood + 1);
        explained.unknown = Some(what);
    }
    explained
}

fn entry_of(operation: &Operation<'_>) -> PieceEntry {
    let entry = match operation.write {
        Write::Put { key, value } => PieceEntry::new("put", key, value),
        Write::PutPointer { key, pointer } => {
            PieceEntry::new("put of a large value", key, shown_pointer(pointer).as_bytes())
        }
        Write::PutExpiring { key, value, lifetime } => {
            PieceEntry::new(format!("put that expires {}", shown(lifetime)), key, value)
        }
        Write::PutPointerExpiring { key, pointer, lifetime } => {
            let what = format!("put of a large value that expires {}", shown(lifetime));
            PieceEntry::new(&what, key, shown_pointer(pointer).as_bytes())
        }
        Write::Delete { key } => PieceEntry::new("delete", key, &[]),
        Write::DeleteRange { start, end } => {
            PieceEntry::new("delete of a range", start, end.unwrap_or_default())
        }
        Write::Merge { key, operand } => PieceEntry::new("merge", key, operand),
    };
    PieceEntry { keyspace: Some(operation.keyspace), ..entry }
}

fn shown_pointer(pointer: &[u8]) -> String {
    ValuePointer::decode(pointer).map_or_else(
        || "a malformed pointer".to_owned(),
        |at| format!("{} bytes at {} of value file {}", at.len, at.offset, at.file),
    )
}

fn shown(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::Forever => "never".to_owned(),
        Lifetime::Until(millis) => format!("at {millis} ms since 1970"),
        Lifetime::For(millis) => format!("{millis} ms after its stamp"),
    }
}
