//! Another data key, and another one for each keyspace that has one of its own, and for the log:
//! new files get them at once, what is in older ones is written anew, and when no file has an older
//! key, these are gone from the keyring.
//!
//! ```text
//! keys ........ new ones in the keyring, durable (R3); not if there are older ones already: then
//!               an earlier rotation is gone on with
//! passes ...... what is in files with an older key is written anew (`db/rewrite.rs`)
//! proof ....... names that are gone are gone durably, and the header of every file of the database
//!               is looked at; what was being written meanwhile takes another pass
//! end ......... the keyring has the newest keys only, in both slots (R2)
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
use std::sync::PoisonError;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::db::Db;
use crate::db::core::{Core, keyspaces_dir, lock};
use crate::db::rewrite::{RewriteFigures, is_log_file};
use crate::seal::key_in_version;
use crate::structure::Stale;

/// How often what was being written meanwhile is gone after.
const PASSES_MAX: u32 = 4;

/// How far a rotation of the data key is, or what it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyRotationReport {
    /// The number of the key that files are sealed with from now on, but for those of keyspaces
    /// that have a key of their own.
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

/// What was found out about keys in headers.
#[derive(Debug, Default)]
pub(super) struct FilesWithKeys {
    pub paths: Vec<PathBuf>,
    /// The numbers that they name, or may name.
    pub keys: BTreeSet<u16>,
    /// Whether any may name one that has no header yet.
    pub is_unsettled: bool,
}

impl Db {
    /// Has everything be sealed with a new data key: files that are made from now on, and, by
    /// writing it anew, all that there is. Then older keys are removed from the keyring. Others may
    /// read and write meanwhile. Keyspaces that have a key of their own get another one each.
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
    /// yet: these cannot be, behind it. A rotation that was begun and left is ended by
    /// [`Db::destroy_keys`] and [`Db::drop_keyspace`] as well, where keyspaces have keys of their
    /// own, if no file has an older key by then.
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
        keyring.is_some_and(|keyring| !keyring.contents().older().is_empty())
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
        let contents = core.keyring_in_use()?.contents();
        let (older, stale) = (contents.older(), contents.replaced());
        let mut figures = RewriteFigures::default();
        for _ in 0..PASSES_MAX {
            let flow = core.write_anew(Stale::Keys(&stale), &mut figures, &mut |figures| {
                report.note(figures);
                go_on(&report)
            })?;
            report.note(figures);
            if flow.is_break() {
                report.is_cancelled = true;
                return Ok(report);
            }
            report.files_left = core.prove_and_end(&older)?;
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
    /// Another key for everything that is written from now on, unless some keys were replaced
    /// before and files have them still. The number of the one of those who have none of their own.
    fn begin_rotation(&self) -> Result<u16> {
        self.change_keys(|keyring| match keyring.contents().older().is_empty() {
            true => keyring.with_new_keys().map(Some),
            false => Ok(None),
        })?;
        Ok(self.keyring_in_use()?.current())
    }

    /// Takes the keys of these numbers, which no new file gets, from the keyring if no file has
    /// any of them; else the files that have.
    fn prove_and_end(&self, older: &BTreeSet<u16>) -> Result<Vec<PathBuf>> {
        // R6: no table is adopted meanwhile; and no store is made.
        let _staging = self.staging.write().unwrap_or_else(PoisonError::into_inner);
        let _manifest = self.lock_manifest_for_edit()?;
        let found = self.files_with_keys(older)?;
        if found.paths.is_empty() || is_seeded(Bug::OldKeyLetGoEarly) {
            self.remove_keys(older)?;
        }
        Ok(found.paths)
    }

    /// No file has these keys, and none is made with them.
    pub(super) fn remove_keys(&self, numbers: &BTreeSet<u16>) -> Result<()> {
        let keyring = self.keyring_in_use()?;
        let mut file = lock(&self.keyring);
        let file = file.as_mut().ok_or(Error::Closed)?;
        let contents = keyring.without_keys(numbers);
        if contents.numbers() == keyring.contents().numbers() {
            return Ok(()); // Another one has done it.
        }
        file.check()?;
        let changed = file.change(file.master.clone(), &contents);
        match &changed {
            Ok(()) => keyring.replace(contents),
            // They stay keys that are to go. But the file may be without them, and no table is to
            // be adopted with one (R6).
            Err(_) => keyring.note_in_doubt(numbers),
        }
        changed
    }

    /// The files of the database whose headers name keys of these numbers, or nothing yet.
    pub(super) fn files_with_keys(&self, numbers: &BTreeSet<u16>) -> Result<FilesWithKeys> {
        let mut found = FilesWithKeys::default();
        for dir in self.directories()? {
            let Some(paths) = self.files_with_payloads(&dir)? else { continue };
            for path in paths {
                let (named, is_unsettled) = self.keys_named(&dir, &path, numbers)?;
                if !named.is_empty() {
                    found.is_unsettled |= is_unsettled;
                    found.paths.push(path);
                    found.keys.extend(named);
                }
            }
            // Else a power cut could bring back a file that nobody has the key of any more: one
            // that went before it was looked for, or in between.
            self.storage.sync_dir(&dir).map_err(|error| Error::io("sync", &dir, error))?;
        }
        Ok(found)
    }

    /// Those of the keys that a file's header names; if it has none yet, those that it may get, and
    /// that it is so.
    pub(super) fn keys_named(
        &self,
        dir: &Path,
        path: &Path,
        numbers: &BTreeSet<u16>,
    ) -> Result<(BTreeSet<u16>, bool)> {
        let named = match self.keys_of(path) {
            Ok(named) => named,
            // It went meanwhile.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok((BTreeSet::new(), false));
            }
            Err(error) => return Err(error),
        };
        // A log file that was made ready has no header: it gets one with the newest key.
        let is_unsettled = named.is_empty() && !is_log_file(path);
        let named: BTreeSet<u16> = match is_unsettled {
            true => self.keys_for_unfinished(dir, numbers)?,
            false => named.into_iter().collect(),
        };
        Ok((named.intersection(numbers).copied().collect(), is_unsettled))
    }

    /// The keys that a file in this directory may have which has no header yet.
    fn keys_for_unfinished(&self, dir: &Path, all: &BTreeSet<u16>) -> Result<BTreeSet<u16>> {
        let keyring = self.keyring_in_use()?;
        if *dir == self.dir {
            return Ok(keyring.numbers_for_unfinished(0)); // The manifest.
        }
        let name = dir.file_name().and_then(|name| name.to_str()).filter(|_| {
            dir.parent() == Some(&*keyspaces_dir(&self.dir)) // Else anybody's.
        });
        let store = name.and_then(|name| name.parse::<u32>().ok());
        Ok(match store {
            Some(store) => keyring.numbers_for_unfinished(store.into()),
            None => all.clone(),
        })
    }

    /// The numbers of the data keys that the header of a file names, each copy of it, whether it
    /// verifies or not; none if it has no header yet.
    pub(in crate::db) fn keys_of(&self, path: &Path) -> Result<Vec<u16>> {
        Ok(self.version_fields(path)?.into_iter().filter_map(key_in_version).collect())
    }
}
