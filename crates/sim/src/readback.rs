//! Reading a whole database back.

use std::time::SystemTime;

use lithedb::{Db, Error, SeqNo};

use crate::digest::Digest;
use crate::finding::{Fault, Finding, Verdict};
use crate::timeline::{Catalog, Found, Row, Rows, Timeline};

/// Whether rows are kept, or only their digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Digests.
    Digests,
    /// Digests and rows.
    Rows,
}

/// By when it is judged now what has expired.
#[must_use]
pub fn now_of(db: &Db) -> u64 {
    millis_of(db.snapshot().time())
}

/// In milliseconds since 1970.
#[must_use]
pub fn millis_of(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Reads every keyspace from front to back.
///
/// # Errors
/// The first error that a read returns.
pub fn read_all(db: &Db, detail: Detail) -> Result<Found, Error> {
    let mut found = Found { now: now_of(db), ..Found::default() };
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name)?;
        let mut digest = Digest::default();
        let mut rows = Rows::new();
        for entry in keyspace.iter() {
            let entry = entry?;
            let until = entry.expires_at().map(millis_of);
            digest.add(&entry.key, &entry.value, (entry.seqno, until));
            if detail == Detail::Rows {
                let row = Row { value: (*entry.value).into(), seqno: entry.seqno, until };
                rows.insert(entry.key.to_vec(), row);
            }
        }
        found.catalog.insert(info.name.clone(), info.id);
        found.digests.insert(info.id, digest);
        if detail == Detail::Rows {
            found.rows.insert(info.id, rows);
        }
    }
    Ok(found)
}

/// The history of a database that was just opened and found so.
#[must_use]
pub fn timeline_of(found: Found) -> Timeline {
    let catalog: Catalog = found.catalog.into_iter().map(|(name, id)| (name, Some(id))).collect();
    let stamps = found.rows.values().flat_map(|rows| rows.values().map(|row| row.seqno));
    let last_seqno = stamps.max().unwrap_or_default();
    Timeline::starting_with(found.rows, catalog, last_seqno)
}

/// What is kept with a batch of so many operations: it says how many.
#[must_use]
pub fn payload_for(operations: usize) -> Vec<u8> {
    (operations as u64).to_le_bytes().repeat(operations % 5)
}

/// What the log has of commits can be read, their stamps rise, and each has its own payload.
fn expect_commits_ok(db: &Db) -> Verdict {
    let refused = |error: Error| Finding::new(Fault::CheckFailed, error.to_string());
    let absurd = |what: String| Err(Finding::new(Fault::Wrong, what));
    let mut last = SeqNo::ZERO;
    for commit in db.commits(..).map_err(refused)? {
        let commit = commit.map_err(refused)?;
        if last >= commit.seqno {
            return absurd(format!("the commit {} in the log is not above {last}", commit.seqno));
        }
        let expected = payload_for(commit.operations as usize);
        if commit.payload.is_some_and(|payload| payload != expected) {
            return absurd(format!("the commit {} has another one's payload", commit.seqno));
        }
        last = commit.seqno;
    }
    Ok(())
}

/// The database's own check must find nothing.
///
/// # Errors
/// `CheckFailed` with the first problems.
pub fn expect_check_ok(db: &Db) -> Verdict {
    const PROBLEMS_SHOWN_MAX: usize = 4;
    let report = db.check().map_err(|error| Finding::new(Fault::CheckFailed, error.to_string()))?;
    if report.is_ok() {
        return expect_commits_ok(db);
    }
    let shown = &report.problems[..report.problems.len().min(PROBLEMS_SHOWN_MAX)];
    let what = format!("{} problems: {}", report.problems.len(), shown.join("; "));
    Err(Finding::new(Fault::CheckFailed, what))
}
