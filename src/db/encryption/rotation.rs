//! Another data key: new files get it at once, what is in older ones is written anew, and when no
//! file has an older key, these are gone from the keyring.
//!
//! ```text
//! key ......... a new one in the keyring, durable (R3); not if there are several already: then an
//!               earlier rotation is gone on with
//! new files ... manifest, log, indexes, segments, value files: all go on in new ones; log files
//!               that would be used again go
//! rounds ...... runs and tables in files with an older key are written anew, slice by slice
//! values ...... are moved out of files with an older key
//! proof ....... names that are gone are gone durably, and the header of every file of the database
//!               is looked at; what was being written meanwhile takes another pass
//! end ......... the keyring has the newest key only, in both slots (R2)
//! ```
//!
//! Each file says which key it has, so that any of this may be interrupted, and be gone on with.
//!
//! Invariants
//! - R5  A file of the database that is made when there is a newer key has that: all writers ask
//!   for the key when the file has its name, which the proof then finds.
//! - R6  A table that was made outside has the key of when it was made. None is adopted between
//!   proof and end; and adopting opens it, for which its key has to be there still.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::base::{Error, Result};
use crate::db::Db;
use crate::db::cleaning::Cleaned;
use crate::db::core::{Core, keyspaces_dir, lock};
use crate::db::open::{LOG_DIR, VALUES_DIR};
use crate::jobs::Aim;
use crate::seal::{Keyring, key_in_version};
use crate::storage::{DirEntry, EntryType, OpenMode};

/// How often what was being written meanwhile is gone after.
const PASSES_MAX: u32 = 4;
/// Bytes of a file that are looked at.
const LOOKED_AT_LEN: usize = 4 << 10;
/// Where headers of log files may be, and where in these the version is.
const LOG_HEADERS: (&[usize], usize) = (&[0, 2 << 10], 16);
/// The same of other files.
const HEADERS: (&[usize], usize) = (&[0], 8);
/// What headers begin with.
const MAGICS: [&[u8; 8]; 5] = [b"LitheWAL", b"LITHELOG", b"LITHESEG", b"LITHETBL", b"LITHEVAL"];

/// How far a rotation of the data key is, or what it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyRotationReport {
    /// The number of the key that files are sealed with from now on.
    pub key: u16,
    /// Bytes of segments and tables that were written anew.
    pub bytes_written: u64,
    /// Bytes of segments and tables that are to be read for the pass at hand still, about.
    pub bytes_left: u64,
    /// Bytes of values that were moved.
    pub value_bytes_moved: u64,
    /// Files that have an older key still. As long as there are any, the keyring has that key.
    pub files_left: Vec<PathBuf>,
    /// Whether no file has an older key, and the keyring has none.
    pub is_complete: bool,
    /// Whether it was ended by the closure.
    pub is_cancelled: bool,
}

type GoOn<'a> = &'a mut dyn FnMut(&KeyRotationReport) -> ControlFlow<()>;

impl Db {
    /// Has everything be sealed with a new data key: files that are made from now on, and, by
    /// writing it anew, all that there is. Then older keys are removed from the keyring. Others may
    /// read and write meanwhile.
    ///
    /// Costs reading and writing all data once, in slices of 8 MiB. A crash in between, or an
    /// error, leaves a database whose files have one key or the other; calling this again goes on
    /// with it. So it does when something holds files with the older key:
    /// [`KeyRotationReport::files_left`] has those that are held by a snapshot or an iterator, by
    /// a value that is written for long, or as part of the log that is kept to be read; and value
    /// files with damaged values.
    ///
    /// Not touched are checkpoints, which have their own keyrings, and tables that were made
    /// outside by [`Keyspace::table_writer`](crate::Keyspace::table_writer) and are not ingested
    /// yet: these cannot be, behind it.
    ///
    /// # Errors
    /// `NotEncrypted`; `InvalidArgument` when 65,535 keys were used; else as [`Db::compact`], and
    /// `Corruption` of what has to be read. What was done before stays so.
    pub fn rotate_data_key(&self) -> Result<KeyRotationReport> {
        self.rotate_data_key_while(|_| ControlFlow::Continue(()))
    }

    /// Whether a rotation of the data key was begun and is not over: files have an older key, and
    /// so has the keyring. [`Db::rotate_data_key`] goes on with it. Costs nothing.
    #[must_use]
    pub fn is_data_key_rotating(&self) -> bool {
        let keyring = self.core().storage.keyring();
        keyring.is_some_and(|keyring| keyring.contents().numbers().len() > 1)
    }

    /// As [`Db::rotate_data_key`]; asks `go_on` after each slice whether to go on.
    ///
    /// # Errors
    /// As [`Db::rotate_data_key`].
    pub fn rotate_data_key_while(
        &self,
        mut go_on: impl FnMut(&KeyRotationReport) -> ControlFlow<()>,
    ) -> Result<KeyRotationReport> {
        let core = self.core();
        core.check_writable()?;
        let mut report = KeyRotationReport { key: core.begin_rotation()?, ..Default::default() };
        for _ in 0..PASSES_MAX {
            if core.reseal(&mut report, &mut go_on)?.is_break() {
                report.is_cancelled = true;
                return Ok(report);
            }
            report.files_left = core.prove_and_end(report.key)?;
            if report.files_left.is_empty() {
                report.is_complete = true;
                break;
            }
        }
        core.workers.wake(); // They may have found a turn taken.
        Ok(report)
    }
}

impl Core {
    fn keyring(&self) -> Result<&Arc<Keyring>> {
        let not_encrypted = || Error::NotEncrypted { path: self.dir.clone() };
        self.storage.keyring().ok_or_else(not_encrypted)
    }

    /// A new key, or the newest one where there are several. Its number.
    fn begin_rotation(&self) -> Result<u16> {
        let keyring = self.keyring()?;
        let mut file = lock(&self.keyring);
        let file = file.as_mut().ok_or(Error::Closed)?;
        if keyring.contents().numbers().len() == 1 {
            let contents = keyring.with_new_key()?;
            file.change(file.master.clone(), &contents)?;
            keyring.replace(contents); // R3
        }
        Ok(keyring.current())
    }

    /// Ends the rotation if no file has another key than this one; else those that have.
    fn prove_and_end(&self, key: u16) -> Result<Vec<PathBuf>> {
        // R6: no table is adopted meanwhile; and no store is made.
        let _staging = self.staging.write().unwrap_or_else(PoisonError::into_inner);
        let _manifest = self.lock_manifest_for_edit()?;
        let left = self.files_with_other_keys(key)?;
        if left.is_empty() {
            self.end_rotation(key)?;
        }
        Ok(left)
    }

    /// No file has another key than this one, and none is made with another.
    fn end_rotation(&self, key: u16) -> Result<()> {
        let keyring = self.keyring()?;
        let mut file = lock(&self.keyring);
        let file = file.as_mut().ok_or(Error::Closed)?;
        if keyring.current() != key || keyring.contents().numbers().len() == 1 {
            return Ok(()); // Another rotation has done it, or gone on behind it.
        }
        let contents = keyring.with_current_key_only();
        let changed = file.change(file.master.clone(), &contents);
        // Also if that failed: the file may be without the others already (R6).
        keyring.replace(contents);
        changed
    }

    /// One pass: everything that is in files now which have another key.
    fn reseal(&self, report: &mut KeyRotationReport, go_on: GoOn<'_>) -> Result<ControlFlow<()>> {
        self.begin_new_files()?;
        self.flush_all()?;
        let before = report.bytes_written;
        let rounds = self.rounds_of_resealing(report.key)?;
        let (flow, figures) = self.work_through(rounds, &mut |figures| {
            report.bytes_written = before + figures.bytes_written;
            report.bytes_left = figures.bytes_left;
            go_on(report)
        })?;
        report.bytes_written = before + figures.bytes_written;
        report.bytes_left = figures.bytes_left;
        if flow.is_break() || self.move_all_values(report, go_on)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        self.flush_all()?;
        self.log.release(self.log.released()); // Files of before the new one, if not done yet.
        self.log.give_up_spares();
        self.runtimes().iter().for_each(|runtime| runtime.store.remove_unreferenced());
        self.remove_unreferenced_values();
        Ok(ControlFlow::Continue(()))
    }

    fn begin_new_files(&self) -> Result<()> {
        self.values.close_files();
        self.begin_new_manifest_file()?;
        self.begin_new_log_file()?;
        for runtime in self.runtimes() {
            let _turn = lock(&runtime.flushing);
            self.check_writable()?; // Under the turn, which closing waits for.
            let begun = runtime.store.begin_new_files();
            begun.inspect_err(|error| self.note_failure(error))?;
        }
        Ok(())
    }

    fn begin_new_manifest_file(&self) -> Result<()> {
        let mut manifest = self.lock_manifest_for_edit()?;
        let begun = manifest.begin_new_file();
        if let Some(why) = manifest.failure() {
            self.set_poison(&format!("the manifest: {why}"));
        }
        begun
    }

    /// Moves the values out of the files that have another key.
    fn move_all_values(
        &self,
        report: &mut KeyRotationReport,
        go_on: GoOn<'_>,
    ) -> Result<ControlFlow<()>> {
        self.cleaning.give_up();
        self.values.close_files();
        self.remove_unreferenced_values();
        let victims = self.values_with_other_keys(report.key)?;
        let Some(mut round) = self.begin_emptying(victims, Aim::Thorough) else {
            return Ok(ControlFlow::Continue(()));
        };
        let before = report.value_bytes_moved;
        loop {
            self.check_writable()?;
            match self.clean_slice(&mut round)? {
                Cleaned::Everything => return Ok(ControlFlow::Continue(())),
                Cleaned::ReadOn { .. } | Cleaned::Slice { .. } => {}
                Cleaned::Busy => self.finish_flush(&round)?,
            }
            report.value_bytes_moved = before + round.mover.moved_bytes();
            if go_on(report).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn values_with_other_keys(&self, key: u16) -> Result<BTreeSet<u64>> {
        let mut others = BTreeSet::new();
        for file in self.values.files() {
            let is_idle = !file.is_written_to() && !file.is_damaged() && file.is_there();
            if is_idle && self.keys_of(file.path())? != [key] {
                others.insert(file.number());
            }
        }
        Ok(others)
    }

    /// The files of the database whose headers do not say that they have this key.
    fn files_with_other_keys(&self, key: u16) -> Result<Vec<PathBuf>> {
        let stores = keyspaces_dir(&self.dir);
        let mut to_visit = vec![self.dir.clone(), stores.clone()];
        for part in [LOG_DIR, VALUES_DIR] {
            to_visit.push(self.dir.join(part));
        }
        for entry in self.names_in(&stores)?.unwrap_or_default() {
            if entry.entry_type != EntryType::File {
                to_visit.push(stores.join(entry.name));
            }
        }
        let mut found = Vec::new();
        for dir in to_visit {
            let Some(names) = self.names_in(&dir)? else { continue };
            for entry in names {
                let path = dir.join(&entry.name);
                let is_ours = entry.entry_type == EntryType::File && is_sealed_name(&entry.name);
                if is_ours && self.has_other_key(&path, key)? {
                    found.push(path);
                }
            }
            // Else a power cut could bring back a file that nobody has the key of any more: one
            // that went before it was looked for, or in between.
            self.storage.sync_dir(&dir).map_err(|error| Error::io("sync", &dir, error))?;
        }
        Ok(found)
    }

    /// What is in a directory; `None` if there is no such.
    fn names_in(&self, dir: &Path) -> Result<Option<Vec<DirEntry>>> {
        let exists = self.storage.exists(dir);
        if !exists.map_err(|error| Error::io("look for", dir, error))? {
            return Ok(None);
        }
        self.storage.list_dir(dir).map(Some).map_err(|error| Error::io("list", dir, error))
    }

    pub(super) fn has_other_key(&self, path: &Path, key: u16) -> Result<bool> {
        match self.keys_of(path) {
            // A log file that was made ready has no header: it gets one with the newest key.
            Ok(found) if found.is_empty() => Ok(!is_log_file(path)),
            Ok(found) => Ok(found.iter().any(|found| *found != key)),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(false) // It went meanwhile.
            }
            Err(error) => Err(error),
        }
    }

    /// The numbers of the data keys that the header of a file names, each copy of it, whether it
    /// verifies or not; none if it has no header yet.
    fn keys_of(&self, path: &Path) -> Result<Vec<u16>> {
        let file = self.storage.open(path, OpenMode::ReadOnly);
        let file = file.map_err(|error| Error::io("open", path, error))?;
        let size = file.size().map_err(|error| Error::io("stat", path, error))?;
        let mut start = vec![0; LOOKED_AT_LEN.min(usize::try_from(size).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut start, 0).map_err(|error| Error::io("read", path, error))?;
        let (places, version_at) = if is_log_file(path) { LOG_HEADERS } else { HEADERS };
        let key_at = |place: &usize| {
            let header = start.get(*place..)?;
            let is_header = MAGICS.iter().any(|magic| header.starts_with(*magic));
            let field = header.get(version_at..)?.first_chunk().filter(|_| is_header)?;
            key_in_version(u32::from_le_bytes(*field))
        };
        Ok(places.iter().filter_map(key_at).collect())
    }
}

fn is_log_file(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "wal")
}

/// Whether it is how a file is called that payloads lie in.
fn is_sealed_name(name: &str) -> bool {
    let stems = ["MANIFEST-", "index-", "tables-", "seg-", "tbl-", "val-"];
    name.ends_with(".wal") || stems.iter().any(|stem| name.starts_with(stem))
}
