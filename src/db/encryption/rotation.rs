//! Another data key: new files get it at once, what is in older ones is written anew, and when no
//! file has an older key, these are gone from the keyring.
//!
//! ```text
//! key ......... a new one in the keyring, durable (R3); not if there are several already: then an
//!               earlier rotation is gone on with
//! passes ...... what is in files with an older key is written anew (`db/rewrite.rs`)
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

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::db::Db;
use crate::db::core::{Core, lock};
use crate::db::rewrite::{RewriteFigures, is_log_file};
use crate::seal::{Keyring, key_in_version};
use crate::structure::Stale;

/// How often what was being written meanwhile is gone after.
const PASSES_MAX: u32 = 4;

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

impl KeyRotationReport {
    fn note(&mut self, figures: RewriteFigures) {
        self.bytes_written = figures.bytes_written;
        self.bytes_left = figures.bytes_left;
        self.value_bytes_moved = figures.value_bytes_moved;
    }
}

impl Db {
    /// Has everything be sealed with a new data key: files that are made from now on, and, by
    /// writing it anew, all that there is. Then older keys are removed from the keyring. Others may
    /// read and write meanwhile.
    ///
    /// Costs reading and writing all data once, in slices of 8 MiB. A crash in between, or an
    /// error, leaves a database whose files have one key or the other; calling this again goes on
    /// with it. So it does when something holds files with the older key:
    /// [`KeyRotationReport::files_left`] has those that are held by a snapshot or an iterator, by
    /// a value that is written for long, as part of the log that is kept to be read, or for a trail
    /// that was not told of them; and value files with damaged values.
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
        let mut figures = RewriteFigures::default();
        for _ in 0..PASSES_MAX {
            let stale = Stale::OtherKey(report.key);
            let flow = core.write_anew(stale, &mut figures, &mut |figures| {
                report.note(figures);
                go_on(&report)
            })?;
            report.note(figures);
            if flow.is_break() {
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
        if left.is_empty() || is_seeded(Bug::OldKeyLetGoEarly) {
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

    /// The files of the database whose headers do not say that they have this key.
    fn files_with_other_keys(&self, key: u16) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for dir in self.directories()? {
            let Some(paths) = self.files_with_payloads(&dir)? else { continue };
            for path in paths {
                if self.has_other_key(&path, key)? {
                    found.push(path);
                }
            }
            // Else a power cut could bring back a file that nobody has the key of any more: one
            // that went before it was looked for, or in between.
            self.storage.sync_dir(&dir).map_err(|error| Error::io("sync", &dir, error))?;
        }
        Ok(found)
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
    pub(in crate::db) fn keys_of(&self, path: &Path) -> Result<Vec<u16>> {
        Ok(self.version_fields(path)?.into_iter().filter_map(key_in_version).collect())
    }
}
