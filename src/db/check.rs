//! Checking the whole database.

use crate::base::{Cursor as _, Result, SeqNo, ValuePointer, pointer_in};
use crate::db::batch::decode_record;
use crate::db::core::Core;
use crate::db::open::LOG_DIR;
use crate::db::state::KeyspaceState;
use crate::manifest::Manifest;
use crate::memtable::MemtableCursor;
use crate::structure::Findings;
use crate::value_log::Verify;
use crate::wal::{Lsn, WalOptions, WalPlace, replay};

/// What [`crate::Db::check`] looked at and found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Files looked at.
    pub files: u64,
    /// Bytes read and verified.
    pub bytes: u64,
    /// Keyspaces.
    pub keyspaces: u64,
    /// Intervals of the key space.
    pub intervals: u64,
    /// Runs of entries.
    pub runs: u64,
    /// Entries in runs, overwritten ones included.
    pub entries: u64,
    /// Value files.
    pub value_files: u64,
    /// Values in value files that entries point to, read and compared with their hashes.
    pub values: u64,
    /// What is wrong, a sentence each, with file and offset where there is one; empty when all is
    /// well.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Core {
    /// Checks the manifest, the log, and every keyspace: index against itself and its durable
    /// form, checksums, order, anchors, sizes, live bytes, and large values against their hashes.
    pub(super) fn check(&self) -> Result<CheckReport> {
        self.check_open()?;
        let mut findings = Findings::default();
        self.check_manifest(&mut findings);
        self.check_log(&mut findings);
        let state = self.published.state();
        for keyspace in &state.keyspaces {
            // A flush would change the index between its halves of the check.
            let turn = crate::db::core::lock(&keyspace.runtime.flushing);
            let data = keyspace.runtime.store.check_index(&mut findings);
            drop(turn);
            data.check_data(&mut findings);
            self.check_values_of_memtables(keyspace, &mut findings);
        }
        let value_files = self.values.files().len() as u64;
        Ok(CheckReport {
            files: findings.files + value_files,
            bytes: findings.bytes,
            keyspaces: state.keyspaces.len() as u64,
            intervals: findings.intervals,
            runs: findings.runs,
            entries: findings.entries,
            value_files,
            values: findings.values,
            problems: findings.problems,
        })
    }

    /// Reads the values that the newest entries of memtables point to.
    fn check_values_of_memtables(&self, keyspace: &KeyspaceState, findings: &mut Findings) {
        for table in keyspace.tables() {
            let table = std::sync::Arc::clone(&table.memtable);
            let mut cursor = MemtableCursor::new(table, SeqNo::MAX);
            let mut moved = cursor.seek_first();
            while let (Ok(()), Some(entry)) = (&moved, cursor.entry()) {
                if let Some(pointer) = pointer_in(entry.kind, entry.value)
                    && let Some(pointer) = ValuePointer::decode(pointer)
                {
                    findings.values += 1;
                    match self.values.verify(&pointer, Verify::Hash) {
                        Ok(bytes) => findings.bytes += bytes,
                        Err(error) => findings.note(error.to_string()),
                    }
                }
                moved = cursor.next();
            }
        }
    }

    fn check_manifest(&self, findings: &mut Findings) {
        findings.files += 1;
        let manifest = self.lock_manifest();
        match Manifest::read(&*self.storage, &self.dir) {
            Ok((durable, _)) if durable == *manifest.state() => {}
            Ok(_) => {
                let path = manifest.path().display();
                findings.note(format!("{path}: the catalogue on disk is not the one in memory"));
            }
            Err(error) => findings.note(error.to_string()),
        }
    }

    /// Reads the part of the log that is needed. The manifest's lock keeps it from being released.
    fn check_log(&self, findings: &mut Findings) {
        let _kept = self.lock_manifest();
        let place = WalPlace {
            storage: std::sync::Arc::clone(&self.storage),
            dir: self.dir.join(LOG_DIR),
            database_id: self.database,
            options: WalOptions {
                file_capacity: self.sizes.wal_file,
                spare_files_max: 0,
                kept_bytes_max: 0,
            },
        };
        let from = Lsn::from_u64(self.log.released());
        match self.log.while_still(|| replay(&place, from, &mut |_| Ok(()))) {
            Ok((log, end)) => {
                let found = log.recovered();
                findings.files += found.files.len() as u64;
                findings.bytes += found.end.bytes_since(from);
                if found.end.as_u64() < end {
                    let dir = place.dir.display();
                    findings.note(format!("{dir}: the log ends at {}, not at {end}", found.end));
                }
            }
            Err(error) => findings.note(error.to_string()),
        }
        self.check_kept_log(from, findings);
    }

    /// Reads the part of the log that is only kept to be read.
    fn check_kept_log(&self, needed_from: Lsn, findings: &mut Findings) {
        let mut reader = self.log_reader();
        let kept_from = reader.position();
        while reader.position() < needed_from {
            match reader.next_record() {
                Ok(Some(record)) if decode_record(record.payload).is_some() => {}
                Ok(Some(record)) => {
                    let (dir, lsn) = (self.dir.join(LOG_DIR), record.lsn);
                    findings.note(format!("{}: the record at {lsn} is no commit", dir.display()));
                }
                Ok(None) => break,
                Err(error) => return findings.note(error.to_string()),
            }
        }
        findings.bytes += needed_from.bytes_since(kept_from.min(needed_from));
    }
}
