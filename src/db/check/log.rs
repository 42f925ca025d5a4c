//! The log: that it can be read, that its records are commits, and that it goes as far as it must.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::base::SeqNo;
use crate::db::core::Core;
use crate::db::open::LOG_DIR;
use crate::db::operation::decode_record;
use crate::structure::{Findings, Site};
use crate::wal::{Lsn, RecordRef, WalOptions, WalPlace, replay};

impl Core {
    /// Reads the part of the log that is needed: by what the manifest says, whose lock keeps that
    /// from being released. What is in front may be going right now (D3).
    pub(super) fn check_log(&self, findings: &mut Findings) {
        let manifest = self.lock_manifest();
        let place = WalPlace {
            storage: Arc::clone(&self.storage),
            dir: self.dir.join(LOG_DIR),
            database_id: self.database,
            options: WalOptions {
                file_capacity: self.sizes.wal_file,
                spare_files_max: 0,
                kept_bytes_max: 0,
                held_from: Lsn::MAX,
            },
        };
        let from = Lsn::from_u64(manifest.state().log_start());
        let next_keyspace = manifest.state().next_keyspace_id();
        // Before the log is read: a flush that comes behind that goes further.
        let state = self.published.state();
        let flushed = state.keyspaces.iter().map(|keyspace| &keyspace.runtime);
        let flushed: Vec<_> =
            flushed.map(|runtime| (runtime.id, runtime.store.log_end())).collect();
        let mut commits = CommitCheck { newest: SeqNo::ZERO, next_keyspace, findings };
        let read = self.log.while_still(|| {
            replay(&place, from, &mut |record| {
                commits.take(&record);
                Ok(())
            })
        });
        match read {
            Ok((log, written_end)) => {
                let found = log.recovered();
                findings.files += found.files.len() as u64;
                findings.bytes += found.end.bytes_since(from);
                let (file, offset) = &found.end_place;
                let site = Site::default().at(file, *offset);
                if found.end.as_u64() < written_end {
                    findings.note_at(site, "the end of the log", written_end, found.end);
                }
                check_flushed(&flushed, found.end, site, findings);
            }
            Err(error) => findings.note_error(Site::default().in_file(&place.dir), &error),
        }
        self.check_kept_log(from, &place.dir, findings);
    }

    /// Reads the part of the log that is only kept to be read.
    fn check_kept_log(&self, needed_from: Lsn, dir: &Path, findings: &mut Findings) {
        let mut reader = self.log_reader();
        let kept_from = reader.position();
        while reader.position() < needed_from {
            match reader.next_record() {
                Ok(Some(record)) if decode_record(record.payload).is_some() => {}
                Ok(Some(record)) => note_other_bytes(&record, findings),
                Ok(None) => break,
                Err(error) => {
                    return findings.note_error(Site::default().in_file(dir), &error);
                }
            }
        }
        findings.bytes += needed_from.bytes_since(kept_from.min(needed_from));
    }
}

/// The log must go as far as what structures have of it. `site` is where it ends.
fn check_flushed(flushed: &[(u32, u64)], log_end: Lsn, site: Site<'_>, findings: &mut Findings) {
    for &(keyspace, flushed) in flushed {
        if flushed > log_end.as_u64() {
            let site = Site { keyspace: Some(keyspace), ..site };
            let expected = format!("{flushed} or behind, up to where it was flushed");
            findings.note_at(site, "the end of the log", expected, log_end);
        }
    }
}

fn site_of<'r>(record: &RecordRef<'r>) -> Site<'r> {
    Site::default().at(record.file, record.offset)
}

fn note_other_bytes(record: &RecordRef<'_>, findings: &mut Findings) {
    let what = format!("the record at position {}", record.lsn);
    let found = format!("{} other bytes", record.payload.len());
    findings.note_at(site_of(record), &what, "a commit", found);
}

/// Looks at commits in the log.
#[derive(Debug)]
pub(super) struct CommitCheck<'a> {
    /// The newest stamp so far.
    pub newest: SeqNo,
    /// No keyspace has this id or a larger one.
    pub next_keyspace: u32,
    pub findings: &'a mut Findings,
}

impl CommitCheck<'_> {
    /// Takes the next record, which verifies.
    pub(super) fn take(&mut self, record: &RecordRef<'_>) {
        self.findings.commits += 1;
        let Some(commit) = decode_record(record.payload) else {
            return note_other_bytes(record, self.findings);
        };
        let site = site_of(record);
        let of_commit = |what: &str| format!("{what} of the commit at position {}", record.lsn);
        if commit.seqno <= self.newest {
            let expected = format!("one above {}", self.newest);
            self.findings.note_at(site, &of_commit("the stamp"), expected, commit.seqno);
        }
        self.newest = self.newest.max(commit.seqno);
        let (mut found, mut malformed) = (0, 0);
        let mut strangers = BTreeSet::new();
        commit.operations.for_each(|operation| match operation {
            Some(operation) => {
                found += 1;
                if !(1..self.next_keyspace).contains(&operation.keyspace) {
                    strangers.insert(operation.keyspace);
                }
            }
            None => malformed += 1,
        });
        let expected = commit.count;
        if malformed > 0 || found != expected {
            let found = format!("{found} and {malformed} malformed");
            self.findings.note_at(site, &of_commit("operations"), expected, found);
        }
        for keyspace in strangers {
            let site = Site { keyspace: Some(keyspace), ..site };
            let expected = format!("one that was created, below {}", self.next_keyspace);
            self.findings.note_at(site, &of_commit("the keyspace"), expected, keyspace);
        }
    }
}
