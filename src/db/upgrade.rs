//! Bringing a database to the newest format: looking at what versions its files have, and writing
//! those anew that have an older one, while it is used.
//!
//! The manifest goes first: from then on a program that does not know the newer version refuses the
//! database there, with both numbers, and has changed nothing. The others follow in any order. This
//! program reads every version up to its own, so a database in the middle of it is one like others:
//! a crash takes nothing, and the next call goes on with what is older still. So far there is one
//! format; then nothing is older, and what can be written anew is everything, when it is asked for.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::base::format::{
    FILE_VERSION, FILE_VERSION_MAX, FILE_VERSION_SEALED, KEYRING_VERSION, version_found,
};
use crate::base::{Error, Result};
use crate::db::Db;
use crate::db::core::Core;
use crate::db::encryption::keyring_path;
use crate::db::rewrite::{RewriteFigures, kind_of_name};
use crate::seal::key_in_version;
use crate::structure::Stale;

/// How often what was being written meanwhile is gone after.
const PASSES_MAX: u32 = 4;
const KEYRING: &str = "keyring";

/// The version of a file, by its header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileVersion {
    /// The file.
    pub path: PathBuf,
    /// What it is: `manifest`, `index`, `log`, `segment`, `table`, `value file` or `keyring`.
    pub kind: &'static str,
    /// Its version.
    pub version: u32,
    /// The newest version of such a file.
    pub newest: u32,
    /// Whether its payloads are sealed.
    pub is_sealed: bool,
}

/// Which files are written anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rewrite {
    /// Those of an older version than the newest.
    #[default]
    Older,
    /// All but the keyring.
    Everything,
}

/// How far an upgrade is, or what it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpgradeReport {
    /// The files that there were, with their versions; log files that were never used have none.
    pub before: Vec<FileVersion>,
    /// How many of them were to be written anew. 0: there was nothing to be done.
    pub due: u64,
    /// Bytes of segments and tables that were written anew.
    pub bytes_written: u64,
    /// Bytes of segments and tables that are to be read for the pass at hand still, about.
    pub bytes_left: u64,
    /// Bytes of values that were moved.
    pub value_bytes_moved: u64,
    /// Files that were to be written anew and are there still.
    pub files_left: Vec<PathBuf>,
    /// Whether it was ended by the closure.
    pub is_cancelled: bool,
}

impl UpgradeReport {
    fn note(&mut self, figures: RewriteFigures) {
        self.bytes_written = figures.bytes_written;
        self.bytes_left = figures.bytes_left;
        self.value_bytes_moved = figures.value_bytes_moved;
    }
}

impl Db {
    /// The versions of the files of the database, by path. Reads their headers. What has no header
    /// yet, as a log file that is kept for later, is not among them.
    ///
    /// # Errors
    /// `FormatVersion` with the file for one that this program does not know; `Io`, `Closed`.
    pub fn file_versions(&self) -> Result<Vec<FileVersion>> {
        self.core().check_open()?;
        self.core().file_versions()
    }

    /// Brings the database to the newest format: what is in files of an older version is written
    /// anew, or with [`Rewrite::Everything`] what is in any, while others read and write. There is
    /// one format so far, [`FORMAT_VERSION`](crate::FORMAT_VERSION), so that no file is older.
    ///
    /// Costs reading the headers of all files, and reading and writing what is in those that are to
    /// be written anew once, in slices of 8 MiB. A crash in between, or an error, leaves a database
    /// of which some files have the newer version; calling this again goes on with it. Files that a
    /// snapshot or an iterator holds, a value that is written for long, and log files that are kept
    /// to be read stay: [`UpgradeReport::files_left`] has them.
    ///
    /// # Errors
    /// As [`Db::file_versions`], with nothing changed; `ReadOnly`; else as [`Db::compact`], and
    /// `Corruption` of what has to be read. What was done before stays so.
    pub fn upgrade(&self, rewrite: Rewrite) -> Result<UpgradeReport> {
        self.upgrade_while(rewrite, |_| ControlFlow::Continue(()))
    }

    /// As [`Db::upgrade`]; asks `go_on` after each slice whether to go on.
    ///
    /// # Errors
    /// As [`Db::upgrade`].
    pub fn upgrade_while(
        &self,
        rewrite: Rewrite,
        mut go_on: impl FnMut(&UpgradeReport) -> ControlFlow<()>,
    ) -> Result<UpgradeReport> {
        let core = self.core();
        core.check_writable()?;
        let before = core.file_versions()?;
        let is_due = |file: &FileVersion| match rewrite {
            Rewrite::Older => file.version < file.newest,
            Rewrite::Everything => file.kind != KEYRING,
        };
        let due = before.iter().filter(|file| is_due(file)).map(|file| file.path.clone());
        let due: BTreeSet<PathBuf> = due.collect();
        let mut report = UpgradeReport { due: due.len() as u64, before, ..Default::default() };
        if due.is_empty() {
            return Ok(report);
        }
        core.log.give_up_spares(); // One could go on as a file of the log, by the name that it has.
        let mut figures = RewriteFigures::default();
        for _ in 0..PASSES_MAX {
            report.files_left = core.those_there(&due)?;
            if report.files_left.is_empty() {
                break;
            }
            let left: BTreeSet<PathBuf> = report.files_left.iter().cloned().collect();
            let flow = core.write_anew(Stale::Named(&left), &mut figures, &mut |figures| {
                report.note(figures);
                go_on(&report)
            })?;
            report.note(figures);
            report.files_left = core.those_there(&due)?;
            if flow.is_break() {
                report.is_cancelled = true;
                return Ok(report);
            }
            if report.files_left.len() == left.len() {
                break; // They are held, or kept: another pass would do nothing for them.
            }
        }
        core.workers.wake(); // They may have found a turn taken.
        Ok(report)
    }
}

impl Core {
    fn file_versions(&self) -> Result<Vec<FileVersion>> {
        let mut found = Vec::new();
        for dir in self.directories()? {
            for path in self.files_with_payloads(&dir)?.unwrap_or_default() {
                found.extend(self.file_version(path)?);
            }
        }
        let keyring = keyring_path(&self.dir);
        let exists = self.storage.exists(&keyring);
        if exists.map_err(|error| Error::io("look for", &keyring, error))? {
            found.extend(self.file_version(keyring)?);
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// None for a file that has no header yet, or has gone.
    fn file_version(&self, path: PathBuf) -> Result<Option<FileVersion>> {
        let fields = match self.version_fields(&path) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            fields => fields?,
        };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let kind = kind_of_name(name).unwrap_or(KEYRING);
        let mut newest_found = None;
        for field in fields {
            newest_found = newest_found.max(Some(version_in(field, kind, &path)?));
        }
        Ok(newest_found.map(|(version, newest)| {
            let is_sealed = kind == KEYRING || version == FILE_VERSION_SEALED;
            FileVersion { path, kind, version, newest, is_sealed }
        }))
    }

    /// Those of the files that are there.
    fn those_there(&self, paths: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>> {
        let mut there = Vec::new();
        for path in paths {
            let exists = self.storage.exists(path);
            if exists.map_err(|error| Error::io("look for", path, error))? {
                there.push(path.clone());
            }
        }
        Ok(there)
    }
}

/// The version that a field has, and the newest one of such a file.
fn version_in(field: u32, kind: &str, path: &Path) -> Result<(u32, u32)> {
    let unknown = |found, known| Error::FormatVersion { file: path.to_owned(), found, known };
    if kind == KEYRING {
        return match field {
            KEYRING_VERSION => Ok((field, KEYRING_VERSION)),
            found => Err(unknown(found, KEYRING_VERSION)),
        };
    }
    match key_in_version(field) {
        Some(0) => Ok((FILE_VERSION, FILE_VERSION)),
        Some(_) => Ok((FILE_VERSION_SEALED, FILE_VERSION_SEALED)),
        None => Err(unknown(version_found(field), FILE_VERSION_MAX)),
    }
}
