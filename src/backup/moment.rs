//! The database as of one moment, to be read at leisure: a checkpoint beside it, which costs links,
//! and is removed again.
//!
//! What is left of one when the process ends has a name that says what it is, and is cleared away
//! by the next backup of the database. A database is open once, and who makes a backup of it holds
//! a lock of its own: so what is there then belongs to nobody; or to a backup whose database was
//! closed meanwhile, which finds files missing then, and fails.

use std::path::{Path, PathBuf};

use crate::base::sync::{Arc, MutexGuard};
use crate::base::{Error, Result, SeqNo};
use crate::db::{CheckpointReport, Db};
use crate::storage::{EntryType, OpenMode, Storage, StorageFile};

/// What the name of the directory says, in front of a number, behind the name of the database.
const BEING_BACKED_UP: &str = ".being-backed-up-";
/// Digits of that number, in base 16.
const NUMBER_DIGITS: usize = 16;
/// Bytes of the database's name at most: file systems mostly take 255, of which what says that it
/// is being backed up, and that it is unfinished, need 72.
const NAME_LEN_MAX: usize = 180;
/// Directories within one another in a database, at most.
const DEPTH_MAX: usize = 4;

/// A file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MomentFile {
    /// In the database's directory, with `/` between names.
    pub path: String,
    pub len: u64,
}

/// The database as of one moment.
#[derive(Debug)]
pub(super) struct Moment<'d> {
    storage: Arc<dyn Storage>,
    root: PathBuf,
    pub seqno: SeqNo,
    /// It has everything up to this stamp, and nothing behind it.
    pub as_of: SeqNo,
    is_there: bool,
    _alone: MutexGuard<'d, ()>,
}

impl<'d> Moment<'d> {
    /// # Errors
    /// As [`Db::checkpoint`]; `InvalidArgument` for a database whose directory has no name.
    pub(super) fn take(db: &'d Db) -> Result<Moment<'d>> {
        let alone = db.lock_for_backup()?;
        let (storage, dir) = db.place();
        // Beside where it is, not beside a link to it: there it may be on another file system.
        let dir = &storage.resolve(dir).unwrap_or_else(|_| dir.to_owned());
        let name = dir.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            let what = format!("{} has no name to put one beside it", dir.display());
            Error::invalid(what)
        })?;
        let prefix = prefix_of(name);
        remove_left_over(&**storage, parent_of(dir), &prefix)?;
        let root = dir.with_file_name(format!("{prefix}{:0NUMBER_DIGITS$x}", db.draw()));
        let report = db.checkpoint(&root)?;
        let storage = Arc::clone(storage);
        let CheckpointReport { seqno, as_of, .. } = report;
        Ok(Moment { storage, root, seqno, as_of, is_there: true, _alone: alone })
    }

    /// Its files, by rising path.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn files(&self) -> Result<Vec<MomentFile>> {
        let paths = files_below(&*self.storage, &self.root)?;
        let sized = paths.into_iter().map(|path| {
            let (file, at) = self.open(&path)?;
            let len = file.size().map_err(|error| Error::io("read", &at, error))?;
            Ok(MomentFile { path, len })
        });
        sized.collect()
    }

    /// A file of it, and where that is.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn open(&self, path: &str) -> Result<(Arc<dyn StorageFile>, PathBuf)> {
        let at = self.root.join(path);
        let file = self.storage.open(&at, OpenMode::ReadOnly);
        Ok((file.map_err(|error| Error::io("open", &at, error))?, at))
    }

    /// Removes it.
    ///
    /// # Errors
    /// `Io`: it would go on to keep room, until the next backup of the database.
    pub(super) fn remove(mut self) -> Result<()> {
        self.is_there = false;
        remove_tree(&*self.storage, &self.root)
    }
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        if self.is_there {
            let _stays_if_it_fails = remove_tree(&*self.storage, &self.root);
        }
    }
}

/// The directory that one is in.
pub(super) fn parent_of(dir: &Path) -> &Path {
    let parent = dir.parent().filter(|parent| *parent != Path::new(""));
    parent.unwrap_or(Path::new("."))
}

/// What its name begins with, for a database of this name.
fn prefix_of(name: &str) -> String {
    match name.len() <= NAME_LEN_MAX {
        true => format!("{name}{BEING_BACKED_UP}"),
        false => format!("{}{BEING_BACKED_UP}", blake3::hash(name.as_bytes()).to_hex()),
    }
}

/// Removes what a process that has ended has left.
fn remove_left_over(storage: &dyn Storage, parent: &Path, prefix: &str) -> Result<()> {
    let entries = storage.list_dir(parent).map_err(|error| Error::io("list", parent, error))?;
    for entry in entries.iter().filter(|entry| entry.entry_type == EntryType::Directory) {
        if entry.name.strip_prefix(prefix).is_some_and(is_ours) {
            remove_tree(storage, &parent.join(&entry.name))?;
        }
    }
    Ok(())
}

/// Whether that is what follows the prefix: a number, and of one that was not whole yet a second
/// one.
fn is_ours(ending: &str) -> bool {
    let is_number = |digits: &str| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        digits.len() == NUMBER_DIGITS && digits.bytes().all(is_digit)
    };
    match ending.split_once(".unfinished-checkpoint-") {
        None => is_number(ending),
        Some((number, other)) => is_number(number) && is_number(other),
    }
}

/// Paths of all files below a directory, rising, with `/` between names.
fn files_below(storage: &dyn Storage, root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut to_visit = vec![(String::new(), 0)];
    while let Some((dir, depth)) = to_visit.pop() {
        let at = root.join(&dir);
        let entries = storage.list_dir(&at).map_err(|error| Error::io("list", &at, error))?;
        for entry in entries {
            let path = match dir.is_empty() {
                true => entry.name,
                false => format!("{dir}/{}", entry.name),
            };
            match entry.entry_type {
                EntryType::File => paths.push(path),
                EntryType::Directory if depth < DEPTH_MAX => to_visit.push((path, depth + 1)),
                _ => return Err(Error::invalid(format!("{path} is no file of a database"))),
            }
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Removes a directory with all that is in it.
///
/// # Errors
/// `Io`: some of it may be gone.
pub(super) fn remove_tree(storage: &dyn Storage, root: &Path) -> Result<()> {
    let mut dirs: Vec<PathBuf> = vec![root.to_owned()];
    let mut next = 0;
    while let Some(dir) = dirs.get(next).cloned() {
        let entries = storage.list_dir(&dir).map_err(|error| Error::io("list", &dir, error))?;
        for entry in entries {
            let path = dir.join(&entry.name);
            if entry.entry_type == EntryType::Directory {
                dirs.push(path);
                continue;
            }
            storage.remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        next += 1;
    }
    for dir in dirs.iter().rev() {
        storage.remove_dir(dir).map_err(|error| Error::io("remove", dir, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_backup_leaves_is_cleared_away() {
        let number = "0123456789abcdef";
        assert!(is_ours(number));
        assert!(is_ours(&format!("{number}.unfinished-checkpoint-{number}")));
        let others = ["", "0123", "0123456789ABCDEF", "0123456789abcdeg"];
        for other in others {
            assert!(
                !is_ours(other) && !is_ours(&format!("{number}.unfinished-checkpoint-{other}"))
            );
        }
        assert!(!is_ours(&format!("{number}.db")));
    }

    #[test]
    fn names_of_any_length_have_room() {
        assert_eq!(prefix_of("my.lithe"), "my.lithe.being-backed-up-");
        let of_len = |len: usize| prefix_of(&"n".repeat(len));
        let room = 255 - (NUMBER_DIGITS + ".unfinished-checkpoint-".len() + NUMBER_DIGITS);
        assert!((1..=255).all(|len| of_len(len).len() <= room));
        assert_ne!(of_len(254), of_len(255));
    }
}
