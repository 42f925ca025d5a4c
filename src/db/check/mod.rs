//! Checking the whole database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Cursor as _, EntryKind, Error, Result, SeqNo, ValuePointer};
use crate::db::batch::decode_record;
use crate::db::core::{Core, keyspaces_dir};
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
    /// Commits in the part of the log that recovery would read.
    pub commits: u64,
    /// What is wrong, a sentence each: keyspace, file and offset where there are any, what was
    /// expected, and what was found. Empty when all is well.
    pub problems: Vec<String>,
    /// Files that nothing refers to, of the names that the store gives: what a removal that failed
    /// left behind. They take room, no more; opening removes them.
    pub orphans: Vec<PathBuf>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Core {
    /// Checks the manifest, the log with its commits, and every keyspace: index against itself, its
    /// durable form and the files that are there; checksums, order, stamps, anchors, sizes, live
    /// bytes; large values against their hashes; memtables; and what is in memory of blocks against
    /// what is on disk.
    pub(super) fn check(&self) -> Result<CheckReport> {
        self.check_open()?;
        let mut findings = Findings::default();
        self.check_manifest(&mut findings);
        self.check_log(&mut findings);
        let state = self.published.state();
        self.find_orphans(&mut findings);
        for keyspace in &state.keyspaces {
            // A flush would change the index between its halves of the check.
            let turn = crate::db::core::lock(&keyspace.runtime.flushing);
            let data = keyspace.runtime.store.check_index(&mut findings);
            drop(turn);
            data.check_data(&mut findings);
            self.check_memtables(keyspace, &mut findings);
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
            commits: findings.commits,
            problems: findings.problems,
            orphans: findings.orphans,
        })
    }

    /// The order of memtables, and the values that their newest entries point to.
    fn check_memtables(&self, keyspace: &KeyspaceState, findings: &mut Findings) {
        let id = keyspace.runtime.id;
        for table in keyspace.tables() {
            let mut cursor = MemtableCursor::new(Arc::clone(&table.memtable), SeqNo::MAX);
            let mut moved = cursor.seek_first();
            let mut before: Option<Vec<u8>> = None;
            while let (Ok(()), Some(entry)) = (&moved, cursor.entry()) {
                if let Some(before) = before.filter(|before| before.as_slice() >= entry.key) {
                    let (above, found) = (before.escape_ascii(), entry.key.escape_ascii());
                    findings.note(format!(
                        "keyspace {id}: a memtable: expected a key above {above}, found {found}"
                    ));
                }
                before = Some(entry.key.to_vec());
                if entry.kind == EntryKind::Pointer
                    && let Some(pointer) = ValuePointer::decode(entry.value)
                {
                    findings.values += 1;
                    match self.values.verify(&pointer, Verify::Hash) {
                        Ok(bytes) => findings.bytes += bytes,
                        Err(error) => findings.note(format!("keyspace {id}: {error}")),
                    }
                }
                moved = cursor.next();
            }
        }
    }

    /// Files of the store's names that nothing refers to, but for segments, which their keyspaces
    /// look for.
    fn find_orphans(&self, findings: &mut Findings) {
        {
            // Under the lock no keyspace comes or goes.
            let manifest = self.lock_manifest();
            let (newest, state) = (manifest.path().to_owned(), manifest.state());
            let older = |name: &str| name.starts_with("MANIFEST-") && !newest.ends_with(name);
            self.list(&self.dir, findings, |path, name| older(name).then_some(path));
            let ids = state.keyspaces().map(|record| record.id).chain(state.dropped());
            let ids: BTreeSet<u32> = ids.collect();
            self.list(&keyspaces_dir(&self.dir), findings, |path, name| {
                let id = name.parse::<u32>().ok().filter(|id| name == format!("{id:08}"))?;
                (!ids.contains(&id)).then_some(path)
            });
        }
        match self.values.orphans() {
            Ok(orphans) => findings.orphans.extend(orphans),
            Err(error) => findings.note(error.to_string()),
        }
    }

    /// Notes what `is_orphan` says of the names in a directory, if it is there.
    fn list(
        &self,
        dir: &Path,
        findings: &mut Findings,
        is_orphan: impl Fn(PathBuf, &str) -> Option<PathBuf>,
    ) {
        if !matches!(self.storage.exists(dir), Ok(true)) {
            return;
        }
        match self.storage.list_dir(dir) {
            Ok(entries) => {
                let found = entries.iter();
                let found = found.filter_map(|entry| is_orphan(dir.join(&entry.name), &entry.name));
                findings.orphans.extend(found);
            }
            Err(error) => findings.note(Error::io("list", dir, error).to_string()),
        }
    }

    fn check_manifest(&self, findings: &mut Findings) {
        findings.files += 1;
        let manifest = self.lock_manifest();
        match Manifest::read(&*self.storage, &self.dir) {
            Ok((durable, _)) if durable == *manifest.state() => {}
            Ok((durable, _)) => {
                let path = manifest.path().display();
                let (memory, disk) = (manifest.state(), durable);
                findings.note(format!(
                    "{path}: the catalogue on disk: expected {memory:?}, found {disk:?}"
                ));
            }
            Err(error) => findings.note(error.to_string()),
        }
    }

    /// Reads the part of the log that is needed. The manifest's lock keeps it from being released.
    fn check_log(&self, findings: &mut Findings) {
        let _kept = self.lock_manifest();
        let place = WalPlace {
            storage: Arc::clone(&self.storage),
            dir: self.dir.join(LOG_DIR),
            database_id: self.database,
            options: WalOptions {
                file_capacity: self.sizes.wal_file,
                spare_files_max: 0,
                kept_bytes_max: 0,
            },
        };
        let from = Lsn::from_u64(self.log.released());
        let mut commits = CommitCheck { dir: place.dir.clone(), ..CommitCheck::default() };
        let read = self.log.while_still(|| {
            replay(&place, from, &mut |record| {
                commits.take(record.lsn, record.payload);
                Ok(())
            })
        });
        findings.commits += commits.count;
        commits.problems.into_iter().for_each(|problem| findings.note(problem));
        match read {
            Ok((log, end)) => {
                let found = log.recovered();
                findings.files += found.files.len() as u64;
                findings.bytes += found.end.bytes_since(from);
                if found.end.as_u64() < end {
                    let dir = place.dir.display();
                    findings.note(format!(
                        "{dir}: the end of the log: expected {end}, found {}",
                        found.end
                    ));
                }
                self.check_positions(found.end, &place.dir, findings);
            }
            Err(error) => findings.note(error.to_string()),
        }
        self.check_kept_log(from, findings);
    }

    /// What structures and manifest know of the log, and the manifest of indexes.
    fn check_positions(&self, log_end: Lsn, log_dir: &Path, findings: &mut Findings) {
        for keyspace in &self.published.state().keyspaces {
            let (id, store) = (keyspace.runtime.id, &keyspace.runtime.store);
            if store.log_end() > log_end.as_u64() {
                let (dir, flushed) = (log_dir.display(), store.log_end());
                findings.note(format!(
                    "keyspace {id}: {dir}: the end of the log: expected {flushed}, up to where it \
                     was flushed, or behind, found {log_end}"
                ));
            }
        }
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
                    let dir = dir.display();
                    findings.note(format!(
                        "{dir}: the record at {lsn}: expected a commit, found other bytes"
                    ));
                }
                Ok(None) => break,
                Err(error) => return findings.note(error.to_string()),
            }
        }
        findings.bytes += needed_from.bytes_since(kept_from.min(needed_from));
    }
}

/// Looks at commits in the log.
#[derive(Debug, Default)]
struct CommitCheck {
    dir: PathBuf,
    count: u64,
    newest: SeqNo,
    problems: Vec<String>,
}

impl CommitCheck {
    /// Takes the next record, which verifies.
    fn take(&mut self, lsn: Lsn, payload: &[u8]) {
        self.count += 1;
        let dir = self.dir.display();
        let site = format!("{dir}: the record at {lsn}");
        let Some(commit) = decode_record(payload) else {
            self.problems.push(format!("{site}: expected a commit, found other bytes"));
            return;
        };
        if commit.seqno <= self.newest {
            let (newest, found) = (self.newest, commit.seqno);
            self.problems.push(format!("{site}: expected a stamp above {newest}, found {found}"));
        }
        self.newest = self.newest.max(commit.seqno);
        let (mut found, mut malformed) = (0, 0);
        commit.operations.for_each(|operation| match operation {
            Some(_) => found += 1,
            None => malformed += 1,
        });
        let expected = commit.count;
        if malformed > 0 || found != expected {
            self.problems.push(format!(
                "{site}: expected {expected} operations, found {found} and {malformed} malformed"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
