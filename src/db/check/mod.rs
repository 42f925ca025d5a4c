//! Checking the whole database. What is found is told with keyspace, file and offset, as far as it
//! has them, what was expected and what was found.
//!
//! | check | of |
//! |---|---|
//! | the catalogue in memory against the one on disk; marks | the manifest (`manifest.rs`) |
//! | stamps, operations and keyspaces of commits; where the log ends | the log (`log.rs`) |
//! | order of keys; large values against their hashes | memtables |
//! | newest stamps of keyspaces against those of their archives | keyspaces that keep versions |
//! | entries of keyspaces against those of their indexes | indexes (`indexes.rs`) |
//! | everything else | `structure/flex/check/` |

mod indexes;
mod keys;
mod log;
mod manifest;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(in crate::db) use walk::Throttle;
pub use walk::{CheckOptions, CheckPosition, CheckProgress};

use self::walk::PacedWalk;
use crate::base::{Cursor, Error, Result, SeqNo, ValuePointer, pointer_in};
use crate::db::core::{Core, keyspaces_dir};
use crate::db::state::{KeyspaceState, Runtime};
use crate::db::stats::shown_name;
use crate::memtable::{MemtableCursor, StackedCursor};
use crate::structure::{Findings, Site};
use crate::value_log::Verify;

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
    /// What could not be checked, a sentence each: indexes whose extractor is not registered, of
    /// which only what they are kept in was; the log of a database that is followed.
    pub unchecked: Vec<String>,
    /// Files that nothing refers to, of the names that the store gives: what a removal that failed
    /// left behind. They take room, no more; opening removes them.
    pub orphans: Vec<PathBuf>,
    /// Where a check was broken off: what is behind that was not looked at, nor were indexes.
    pub stopped_at: Option<CheckPosition>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Core {
    /// Checks the manifest, the log with its commits, which keys files have, and every keyspace:
    /// index against itself, its durable form and the files that are there; checksums, order,
    /// stamps, anchors, sizes, live bytes; large values against their hashes; memtables; and what
    /// is in memory of blocks against what is on disk; indexes against what they are of.
    pub(super) fn check(&self) -> Result<CheckReport> {
        self.check_with(&CheckOptions::default(), &mut |_| ControlFlow::Continue(()))
    }

    /// The same, as the options say, for as long as `go_on` says so.
    fn check_with(
        &self,
        options: &CheckOptions,
        go_on: &mut dyn FnMut(&CheckProgress<'_>) -> ControlFlow<()>,
    ) -> Result<CheckReport> {
        self.check_open()?;
        let from = self.position_of(options)?;
        let mut findings = Findings { names: self.names(), ..Findings::default() };
        self.check_manifest(&mut findings);
        if !self.follows {
            self.check_log(&mut findings);
        }
        self.check_keys(&mut findings);
        let state = self.published.state();
        self.find_orphans(&mut findings);
        let mut walk = PacedWalk::new(self, options.rate, go_on);
        let mut keyspaces: Vec<&Arc<KeyspaceState>> = state.keyspaces.iter().collect();
        // A keyspace that comes later has a higher number.
        keyspaces.sort_by_key(|keyspace| keyspace.runtime.store_id);
        for keyspace in keyspaces {
            let number = keyspace.runtime.store_id;
            if number < from.store || walk.stopped_at.is_some() {
                continue;
            }
            // A flush would change the index between its halves of the check.
            let turn = crate::db::core::lock(&keyspace.runtime.flushing);
            let data = keyspace.runtime.store.check_index(&mut findings);
            self.check_archived(&keyspace.runtime, &mut findings);
            drop(turn);
            walk.enter(number, if number == from.store { &from.place } else { &[] });
            data.check_data(&mut findings, &mut walk);
            self.check_memtables(keyspace, &mut findings);
        }
        let stopped_at = walk.stopped_at;
        let mut unchecked = match &stopped_at {
            None => self.check_indexes(&mut findings),
            Some(_) => Vec::new(),
        };
        if self.follows {
            unchecked.push("the log: it is for whoever writes the database to check".to_owned());
        }
        let value_files = self.values.files().len() as u64;
        let keyspaces = state.keyspaces.iter().filter(|other| !other.runtime.is_hidden());
        Ok(CheckReport {
            files: findings.files + value_files,
            bytes: findings.bytes,
            keyspaces: keyspaces.count() as u64,
            intervals: findings.intervals,
            runs: findings.runs,
            entries: findings.entries,
            value_files,
            values: findings.values,
            commits: findings.commits,
            problems: findings.problems,
            unchecked,
            // Beside a writer, what it is about to name is none.
            orphans: if self.follows { Vec::new() } else { findings.orphans },
            stopped_at,
        })
    }

    /// What keyspaces are called now, by their numbers and those of their stores.
    pub(super) fn names(&self) -> BTreeMap<u32, String> {
        let state = self.published.state();
        let mut names = BTreeMap::new();
        for KeyspaceState { runtime, .. } in state.keyspaces.iter().map(|keyspace| &**keyspace) {
            let name = shown_name(&state, runtime);
            names.extend([(runtime.id, name.clone()), (runtime.store_id, name)]);
        }
        names
    }

    /// Where a check begins: in front of everything, or where one was broken off; what that was in
    /// may have been dropped since, but something must be behind it.
    fn position_of(&self, options: &CheckOptions) -> Result<CheckPosition> {
        let Some(from) = &options.from else { return Ok(CheckPosition::beginning()) };
        let state = self.published.state();
        let is_left = state.keyspaces.iter().any(|other| other.runtime.store_id >= from.store);
        if *from != CheckPosition::beginning() && !is_left {
            let what = format!("the position {from} is behind all keyspaces of this database");
            return Err(Error::invalid(what));
        }
        Ok(from.clone())
    }

    /// H6: that nothing but an ingest that is to be archived is in a keyspace and not in its
    /// archive. The caller has the keyspace's turn to flush.
    pub(super) fn check_archived(&self, runtime: &Runtime, findings: &mut Findings) {
        let Some(archive) = &runtime.archive else { return };
        if self.unarchived(runtime).is_some() {
            return;
        }
        let newest = runtime.store.last_seqno();
        let archived_to = archive.store.last_seqno();
        if archived_to < newest {
            let site = Site::of_keyspace(archive.id);
            let expected = format!("{newest} or above, as its keyspace has");
            findings.note_at(site, "the newest stamp of an archive", expected, archived_to);
        }
    }

    /// The memtables of a keyspace.
    fn check_memtables(&self, keyspace: &KeyspaceState, findings: &mut Findings) {
        for (position, table) in keyspace.tables().enumerate() {
            let name = match position {
                0 => "the active memtable".to_owned(),
                sealed => format!("sealed memtable {sealed}"),
            };
            let table_of = TableOf { keyspace: keyspace.runtime.id, name };
            let cursor = MemtableCursor::new(Arc::clone(&table.memtable), SeqNo::MAX);
            let mut cursor = StackedCursor::new(cursor);
            let verify = |pointer: &ValuePointer| self.values.verify(pointer, Verify::Hash);
            if let Err(error) = table_of.check(&mut cursor, verify, findings) {
                findings.note_error(table_of.site(), &error);
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
            let ids = state.keyspaces().map(|record| record.store).chain(state.dropped());
            let ids: BTreeSet<u32> = ids.collect();
            self.list(&keyspaces_dir(&self.dir), findings, |path, name| {
                let id = name.parse::<u32>().ok().filter(|id| name == format!("{id:08}"))?;
                (!ids.contains(&id)).then_some(path)
            });
        }
        match self.values.orphans() {
            Ok(orphans) => findings.orphans.extend(orphans),
            Err(error) => findings.note_error(Site::default(), &error),
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
            Err(error) => {
                findings.note_error(Site::default(), &Error::io("list", dir, error));
            }
        }
    }
}

/// Whose memtable it is, and which of them.
#[derive(Debug)]
struct TableOf {
    keyspace: u32,
    name: String,
}

impl TableOf {
    /// It is in no file.
    fn site(&self) -> Site<'static> {
        Site::of_keyspace(self.keyspace)
    }

    /// The order of a memtable's keys, and the values that its newest entries point to.
    fn check(
        &self,
        cursor: &mut impl Cursor,
        verify: impl Fn(&ValuePointer) -> Result<u64>,
        findings: &mut Findings,
    ) -> Result<()> {
        let (site, name) = (self.site(), &self.name);
        let mut before: Option<Vec<u8>> = None;
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            let key = entry.key.escape_ascii();
            if let Some(before) = before.filter(|before| before.as_slice() >= entry.key) {
                let expected = format!("one above {}", before.escape_ascii());
                findings.note_at(site, &format!("{name}: a key"), expected, &key);
            }
            before = Some(entry.key.to_vec());
            if let Some(pointer) = pointer_in(entry.kind, entry.value) {
                findings.values += 1;
                match ValuePointer::decode(pointer).map(|pointer| verify(&pointer)) {
                    Some(Ok(bytes)) => findings.bytes += bytes,
                    Some(Err(error)) => findings.note_error(site, &error),
                    None => {
                        let (what, bytes) = (format!("{name}: the pointer of {key}"), pointer);
                        let found = format!("{} bytes", bytes.len());
                        findings.note_at(site, &what, "one of 30 bytes", found);
                    }
                }
            }
            cursor.next()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
