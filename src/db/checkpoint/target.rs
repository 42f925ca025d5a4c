//! Where a checkpoint is to be, and what cannot be such a place.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::exists_already;
use crate::base::{Error, Result};
use crate::db::core::Core;
use crate::db::open::LOG_DIR;
use crate::manifest::Manifest;
use crate::storage::Storage;

/// What the name of an unfinished one says, in front of a number.
const UNFINISHED: &str = ".unfinished-checkpoint-";
/// Digits of that number, in base 16.
const NUMBER_DIGITS: usize = 16;
/// Bytes of a name, of most file systems.
const NAME_LEN_MAX: usize = 255;

/// Where a checkpoint is to be.
#[derive(Debug)]
pub(super) struct Place {
    target: PathBuf,
    /// The directory that the target is in.
    parent: PathBuf,
    /// What the name of an unfinished one begins with.
    name: OsString,
}

impl Place {
    /// # Errors
    /// `InvalidArgument` when the target is there, or cannot be one; `Io`.
    pub(super) fn for_checkpoint(core: &Core, target: &Path) -> Result<Place> {
        let Some(name) = target.file_name() else {
            return Err(Error::invalid(format!("{} is no name for a directory", target.display())));
        };
        let is_there = core.storage.exists(target);
        if is_there.map_err(|error| Error::io("look for", target, error))? {
            return Err(exists_already(target));
        }
        let parent = or_here(target.parent().unwrap_or(Path::new(""))).to_owned();
        let place = Place { target: target.to_owned(), parent, name: shortened(name) };
        place.expect_outside_databases(core)?;
        Ok(place)
    }

    /// The name that was asked for.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// The directory that the target is in.
    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    /// Where it is made, with this number: in the same directory.
    pub(super) fn unfinished(&self, number: u64) -> PathBuf {
        let mut name = self.name.clone();
        name.push(format!("{UNFINISHED}{number:0NUMBER_DIGITS$x}"));
        self.parent.join(name)
    }

    /// A place that is within the directory of a database, this one or another, would be cleared
    /// away with files of its own. It goes by what is there, whatever leads to it: links, `..`,
    /// other spellings.
    ///
    /// # Errors
    /// `InvalidArgument` for such a one; `Io`.
    pub(super) fn expect_outside_databases(&self, core: &Core) -> Result<()> {
        expect_outside_databases(&*core.storage, &self.parent, &self.target)
    }
}

/// A directory in which `target` is to be made must not be within that of a database, nor that
/// itself. It need not be there yet.
///
/// # Errors
/// `InvalidArgument` if it is; `Io`.
pub(crate) fn expect_outside_databases(
    storage: &dyn Storage,
    parent: &Path,
    target: &Path,
) -> Result<()> {
    match resolve_nearest(storage, parent)? {
        Some(resolved) => expect_none_above(storage, &resolved, target),
        None => Ok(()),
    }
}

/// Where a directory is, or is to be made: the nearest one that is there, whatever leads to it.
///
/// # Errors
/// `Io`.
pub(crate) fn resolve_nearest(storage: &dyn Storage, dir: &Path) -> Result<Option<PathBuf>> {
    for dir in dir.ancestors().map(or_here) {
        match storage.resolve(dir) {
            Ok(resolved) => return Ok(Some(resolved)),
            // What is not there yet is made in what is.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(Error::io("look for", dir, error)),
        }
    }
    Ok(None)
}

fn expect_none_above(storage: &dyn Storage, resolved: &Path, target: &Path) -> Result<()> {
    for dir in resolved.ancestors().map(or_here) {
        let log = dir.join(LOG_DIR);
        // That first: who may make something below a directory may not be allowed to list it.
        let has_log = storage.exists(&log);
        if has_log.map_err(|error| Error::io("look for", &log, error))?
            && Manifest::exists(storage, dir)?
        {
            let (target, dir) = (target.display(), dir.display());
            let what = format!("{target} is in the directory of a database, {dir}");
            return Err(Error::invalid(what));
        }
    }
    Ok(())
}

/// The name, or so much of it that there is room for what comes behind it.
fn shortened(name: &OsStr) -> OsString {
    let room = NAME_LEN_MAX - UNFINISHED.len() - NUMBER_DIGITS;
    if name.len() <= room {
        return name.to_owned();
    }
    let shown = name.to_string_lossy();
    OsString::from(&shown[..shown.floor_char_boundary(room)])
}

fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
