//! Ingest of tables that were made outside of the database: see [`Keyspace::ingest_tables`].
//!
//! ```text
//! open ........ every file: whose it is, its version, its span; nothing may overlap
//! adopt ....... each gets a name in the keyspace's directory, or is copied there; is synced, and
//!               verified. Or its entries are added to an ingest, in a structure without tables
//! commit ...... as of any ingest (J1 to J4): one edit of the index, one stamp
//! remove ...... the names that were given, of files that were moved: the edit is durable
//! ```
//!
//! Invariant
//! - K1  Until the edit is durable the files that were given are there, under their names. So
//!   whatever fails, and whenever the power goes, they can be ingested again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Cursor as _, EntryKind, Error, Lifetime, Result, SeqNo, expiring_in};
use crate::db::ingest::Ingest;
use crate::db::keyspace::Keyspace;
use crate::db::table_writer::{TABLE_FILE_SIZE_MAX, TableWriter};
use crate::manifest::{KeyspaceOptions, Structure};
use crate::storage::Storage;
use crate::structure::lsm::{
    OutsideReader, OutsideTable, TableRecord, is_index_name, is_table_name,
};
use crate::structure::{Adopted, TableIngestMode, TableIngestOptions};

/// Tables that are ingested at once, at most.
const TABLE_COUNT_MAX: usize = 1 << 16;

/// What an ingest of tables has brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableIngestReport {
    /// The stamp of every entry and deletion; of the newest commit, if there were no tables.
    pub seqno: SeqNo,
    /// Tables.
    pub tables: u64,
    /// Those of them whose files became the keyspace's own; the others were copied, or read.
    pub linked: u64,
    /// Entries, deletions of single keys included.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Files that were to be moved, and could not be removed durably: their entries are in the
    /// keyspace. They must not be changed, as each may be a second name of a file of the database;
    /// to remove them is safe. One that has another file's contents by now is among them, and that
    /// was not ingested.
    pub not_removed: Vec<PathBuf>,
}

impl Keyspace {
    /// Begins a table for this keyspace, in the database's storage: written with its options, or,
    /// if it is of another structure than `Lsm`, with the defaults of that. What is written is in
    /// no way part of the keyspace before it is ingested; see [`TableWriter`].
    ///
    /// In an encrypted database it is sealed with the data key that all have: also for a keyspace
    /// that has one of its own, whose drop does not destroy it. It cannot be ingested any more when
    /// that key has gone: behind [`Db::rotate_data_key`](crate::Db::rotate_data_key), and also when
    /// a rotation that was left unfinished ends by a drop
    /// ([`Db::destroy_keys`](crate::Db::destroy_keys)).
    ///
    /// # Errors
    /// `Io`, also when there is a file of this name; `DiskFull`.
    pub fn table_writer(&self, path: impl AsRef<Path>) -> Result<TableWriter> {
        let core = &self.handle().core;
        core.check_process()?;
        let runtime = self.runtime();
        let own = &runtime.options;
        let options = match own.structure {
            Structure::Lsm => own.clone(),
            Structure::Flex | Structure::History => KeyspaceOptions::lsm(),
        };
        TableWriter::create_in(Arc::clone(&core.storage), &*core.entropy, path, &options)
    }

    /// Ingests tables that a [`TableWriter`] has written, all or none: their entries become visible
    /// together and durably, with one stamp, newer than all that the keyspace has. What was read
    /// before, and snapshots, do not see them. Files are read in the database's storage.
    ///
    /// The tables' spans must not overlap: from the first key, or the start of the first deleted
    /// range, to the last key or the end of the last range. In which order they are given does not
    /// matter. Entries expire when they say, whatever the keyspace's
    /// [`ttl`](crate::KeyspaceOptions::ttl).
    ///
    /// In a keyspace of the structure `Lsm` the files become tables as they are, in the deepest
    /// level that has room for them: nothing is written but the index, or copies of the files with
    /// [`TableIngestMode::Copy`]. Their values stay in them, however large, until something
    /// rewrites them. In memory is one block at a time, and 1 MiB to copy. In one of the structure
    /// `Flex` or `History` the entries are read and written as by [`Keyspace::ingest`]; it takes no
    /// deletions. So they are in one with a data key of its own, whatever its structure: no file of
    /// it has another key.
    ///
    /// With [`TableIngestMode::Move`] the paths belong to the call until it returns: nothing else
    /// may be written under them. Afterwards they are gone, durably. Whatever other names the files
    /// have, hard links for instance, must never be written through again, as they are files of the
    /// database; the same goes for the given ones when the call was interrupted, or failed with
    /// `Io` or `ReadOnly`: remove them, or ingest them once more.
    ///
    /// By default every byte of a file is verified first ([`TableIngestOptions::check()`]). What
    /// memtables have in the range of all tables is flushed, and commits of all keyspaces wait for
    /// about two syncs, as with [`Ingest::finish`](crate::Ingest::finish). A transaction that has
    /// read anything between the first and the last key, or in a deleted range, conflicts. Closing
    /// the database waits for the file at hand.
    ///
    /// See [`TableWriter`] for an example.
    ///
    /// # Errors
    /// `InvalidArgument` in a keyspace that has indexes, for a file that is no table, a table of a
    /// database, one that is not encrypted where the database is (those of
    /// [`Keyspace::table_writer`] are), one that overlaps another or is larger than
    /// [`TABLE_FILE_SIZE_MAX`](crate::TABLE_FILE_SIZE_MAX), one in the directory of a keyspace, one
    /// that was changed meanwhile, entries that expire where operands are merged, deletions but in
    /// `Lsm`, a codec that this program does not have, more than 65,536 files; `Corruption` and
    /// `FormatVersion` with the file; `DiskFull`, `KeyspaceNotFound`, `Closed`, `Conflict` when the
    /// keyspace is converted meanwhile: nothing has changed, and the files are where they were.
    /// `Io` when a file cannot be read, linked or synced: the same; one that could not be synced is
    /// to be written anew. `Io` and `ReadOnly` when the commit itself failed: whether the ingest
    /// survives is unknown then, the files are where they were, and nothing is written any more
    /// until the database is reopened.
    pub fn ingest_tables<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
        how: TableIngestOptions,
    ) -> Result<TableIngestReport> {
        let mut ingest = self.begin_ingest()?;
        let core = &self.handle().core;
        let reader = OutsideReader::new(&core.storage, &core.shared);
        let mut tables = Vec::new();
        for path in paths {
            let path = path.as_ref();
            if tables.len() == TABLE_COUNT_MAX {
                let what = format!("{TABLE_COUNT_MAX} tables are ingested at once at most");
                return Err(Error::invalid(what));
            }
            tables.push(reader.open(path)?);
        }
        self.check_tables(&mut tables)?;
        let mut report = TableIngestReport { tables: tables.len() as u64, ..Default::default() };
        for table in &tables {
            let TableRecord { entry_count, logical_bytes, .. } = table.record;
            report.entries = report.entries.saturating_add(entry_count);
            report.bytes = report.bytes.saturating_add(logical_bytes);
        }
        let Some((first, last)) = tables.first().zip(tables.last()) else {
            report.seqno = core.visible();
            return Ok(report);
        };
        let range = (first.record.first.clone(), last.record.end.clone());
        report.linked = match bring(&mut ingest, &tables, &how)? {
            Some(linked) => {
                report.seqno = ingest.commit(range, report.bytes)?;
                linked
            }
            None => {
                report.seqno = ingest.finish()?.seqno;
                0
            }
        };
        if how.mode == TableIngestMode::Move {
            // K1
            report.not_removed = remove_moved(&*core.storage, &reader, &tables);
        }
        Ok(report)
    }

    /// Whether the tables can be ingested together; sorts them.
    fn check_tables(&self, tables: &mut [OutsideTable]) -> Result<()> {
        let refuse = |table: &OutsideTable, what: &str| {
            Err(Error::invalid(format!("{} {what}", table.path.display())))
        };
        let mut dirs = BTreeSet::new();
        for table in tables.iter() {
            let record = &table.record;
            if record.size > TABLE_FILE_SIZE_MAX {
                let what = format!("has {} bytes: {TABLE_FILE_SIZE_MAX} are the most", record.size);
                return refuse(table, &what);
            }
            if !table.codec.is_available() {
                return Err(table.codec.missing());
            }
            if record.expiring.is_some() {
                self.check_takes_expiry()?;
            }
            // What else there is in such a directory is not the database's.
            let name = table.path.file_name().and_then(OsStr::to_str);
            let dir = directory_of(&table.path);
            let may_be_of_keyspace = name.is_some_and(is_table_name);
            if may_be_of_keyspace && dirs.insert(dir) && self.is_of_keyspace(dir)? {
                return refuse(table, "is in the directory of a keyspace");
            }
        }
        drop(dirs);
        tables.sort_by(|a, b| a.record.first.cmp(&b.record.first));
        for pair in tables.windows(2) {
            let (before, behind) = (&pair[0], &pair[1]);
            if !before.record.ends_by(&behind.record.first) {
                let mut what = format!("overlaps {}: it ends ", before.path.display());
                let _infallible = match &before.record.end {
                    Some(end) => write!(what, "in front of {}", end.escape_ascii()),
                    None => write!(what, "with the last of all keys"),
                };
                let first = behind.record.first.escape_ascii();
                return refuse(behind, &format!("{what}, and this begins with {first}"));
            }
        }
        Ok(())
    }

    /// Whether the index of a keyspace is in a directory: then files in it are not to be moved.
    fn is_of_keyspace(&self, dir: &Path) -> Result<bool> {
        let entries = self.handle().core.storage.list_dir(dir);
        let entries = entries.map_err(|error| Error::io("list", dir, error))?;
        Ok(entries.iter().any(|entry| is_index_name(&entry.name)))
    }
}

/// Removes files whose entries are durably in the keyspace. Which of them are still there, or may
/// be after a power cut.
fn remove_moved(
    storage: &dyn Storage,
    reader: &OutsideReader,
    tables: &[OutsideTable],
) -> Vec<PathBuf> {
    let mut not_removed = Vec::new();
    let mut removed: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for OutsideTable { path, record, .. } in tables {
        let is_gone = match reader.open(path) {
            Ok(found) if found.record == *record => storage.remove_file(path).is_ok(),
            Ok(_) => false, // Somebody has put another file there.
            Err(Error::Io { source, .. }) => source.kind() == ErrorKind::NotFound,
            Err(_) => false,
        };
        match is_gone {
            true => removed.entry(directory_of(path)).or_default().push(path),
            false => not_removed.push(path.clone()),
        }
    }
    for (dir, paths) in removed {
        if storage.sync_dir(dir).is_err() {
            not_removed.extend(paths.into_iter().map(Path::to_owned));
        }
    }
    not_removed
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))
}

/// Brings all tables into an ingest. How many files it has linked; `None` if it has read entries.
fn bring(
    ingest: &mut Ingest,
    tables: &[OutsideTable],
    how: &TableIngestOptions,
) -> Result<Option<u64>> {
    let mut linked = 0;
    for table in tables {
        match ingest.adopt(table, how)? {
            Adopted::Linked => linked += 1,
            Adopted::Copied => {}
            Adopted::NotHere => {
                tables.iter().try_for_each(|table| add_entries(ingest, table))?;
                return Ok(None);
            }
        }
    }
    Ok(Some(linked))
}

/// Adds the entries of a table, each verified as it is read.
fn add_entries(ingest: &mut Ingest, table: &OutsideTable) -> Result<()> {
    let (record, path) = (&table.record, table.path.display());
    if record.tombstones > 0 || record.deleted_ranges > 0 {
        let (keys, ranges) = (record.tombstones, record.deleted_ranges);
        return Err(Error::invalid(format!(
            "{path} deletes {keys} keys and {ranges} ranges, which a keyspace does not ingest that \
             has the structure flex or history, or a key of its own"
        )));
    }
    let foreign = || Error::invalid(format!("{path} has an entry that is no value"));
    let mut cursor = table.cursor();
    cursor.seek_first()?;
    let mut count = 0;
    while let Some(entry) = cursor.entry() {
        let expiring = expiring_in(entry.kind, entry.value);
        match (entry.kind, expiring) {
            (EntryKind::Value, _) => {
                ingest.add_for(entry.key, entry.value, Lifetime::Forever)?;
            }
            (_, Some(expiring)) if expiring.kind == EntryKind::Value => {
                ingest.add_for(entry.key, expiring.value, Lifetime::Until(expiring.until))?;
            }
            _ => return Err(foreign()),
        }
        count += 1;
        cursor.next()?;
    }
    if count != record.entry_count {
        let what = format!("{count} entries where {} were written", record.entry_count);
        return Err(Error::corruption(&table.path, 0, what));
    }
    Ok(())
}
