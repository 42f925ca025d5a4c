//! Who reads a database beside whoever writes it, and what is kept for them.
//!
//! Owns the folder `followers/` of a database's directory. Who is about to read registers there: by
//! a file with a number, `f-00000007`, which it keeps locked, with the folder `held-00000007/`
//! beside it. Whoever removes a file of the database looks there first. While anybody is
//! registered, the file gets a name in `held-00000007/` in place of its own, by the newest number
//! that is registered; and nothing is destroyed in place that somebody may read
//! ([`Storage::followers`]). Must not know what the files mean.
//!
//! Invariants
//! - FO1  Who registers reads the manifest and the indexes behind that, and nothing that was read
//!   before. What is removed, punched or used again is dead by a durable edit, made before whoever
//!   does it has looked for who is registered. So who was not seen there reads that edit, and does
//!   not need what goes.
//! - FO2  Who is registered by a number finds every file that it needs by its own name, or in a
//!   `held-` folder of its own number or a higher one. A file has its name there before it loses
//!   the other.
//! - FO3  Two files that come to have one name there one after the other are not both needed: a
//!   number is given twice only where nothing durable ever referred to the first, and one of a
//!   value file, to which a log points that may be lost, not while a file of that name is held.
//! - FO4  A `held-` folder goes when nobody is registered by its number or a lower one. A number
//!   is above all that are there, so who comes later needs none of the folders. Who registers and
//!   who clears away do so one at a time, by the lock of a file: so a folder that is cleared away
//!   is not that of somebody who has come to have its number meanwhile.
//! - FO5  Who is gone, however that came about, has no lock any more. Its file is removed by
//!   whoever finds it. Nothing here needs to outlive the machine.
//! - FO6  The folder and what is in it belong to the owner of the database's directory, whoever
//!   registers, so that the writer can look. Whose file cannot be locked for want of rights is
//!   taken for one who is there.
//! - FO7  A file that cannot be put aside keeps its name, and the error says so ([`is_held_back`]):
//!   to be tried again later. That is no reason for an opening to fail.

use std::error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Clock, Error, Result};
use crate::memory::ProcessMark;

use super::{DirEntry, EntryType, NumberedNames, OpenMode, Storage, StorageLock, clear_directory};

/// In a database's directory, the folder of those who follow.
const FOLDER: &str = "followers";
const REGISTRATIONS: NumberedNames = NumberedNames("f-");
const HELD: NumberedNames = NumberedNames("held-");
/// Between the parts of the path that a file had, in its name in a `held-` folder.
const SEPARATOR: &str = "+";
/// Locked by who registers or clears away, for as long as that takes.
const TURN: &str = "LOCK";
/// How often somebody else may have the turn, or take the number that is about to be taken.
const REGISTER_ATTEMPTS_MAX: u32 = 256;
/// In front of each further attempt.
const REGISTER_WAIT: Duration = Duration::from_millis(1);

/// What is in the folder.
#[derive(Debug, Default)]
struct Folder {
    /// Numbers that were registered, rising.
    registrations: Vec<u64>,
    /// Numbers of the folders of what is held, rising.
    held: Vec<u64>,
}

/// What is kept for those who follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldFigures {
    /// How many are registered.
    pub followers: u64,
    /// Files that are kept for them.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

fn folder_of(root: &Path) -> PathBuf {
    root.join(FOLDER)
}

fn registration_path(root: &Path, number: u64) -> PathBuf {
    folder_of(root).join(REGISTRATIONS.name(number))
}

fn held_dir(root: &Path, number: u64) -> PathBuf {
    folder_of(root).join(HELD.name(number))
}

fn turn_path(root: &Path) -> PathBuf {
    folder_of(root).join(TURN)
}

/// Makes a directory in one that is there, if it is not there.
fn make_dir(storage: &dyn Storage, dir: &Path) -> io::Result<()> {
    match storage.create_dir(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The turn to register or to clear away (FO4); `None` while somebody else has it, or there is no
/// folder.
fn take_turn(storage: &dyn Storage, root: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
    match storage.lock(&turn_path(root)) {
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        },
        Ok(lock) => Ok(Some(lock)),
    }
}

/// Why a file could not be put aside (FO7).
#[derive(Debug)]
struct HeldBack(io::Error);

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it could not be put aside for who reads the database beside: {}", self.0)
    }
}

impl error::Error for HeldBack {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Whether a file could not be removed since it could not be put aside for who reads beside: then
/// it is nothing that a database cannot do without (FO7).
pub(crate) fn is_held_back(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => {
            source.get_ref().and_then(|inner| inner.downcast_ref::<HeldBack>()).is_some()
        }
        _ => false,
    }
}

/// Whether a file that was to be removed is not there any more.
pub(crate) fn is_gone(removed: &io::Result<()>) -> bool {
    removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) || removed.is_ok()
}

/// What a removal came to, with those that are held back passed over: for openings.
///
/// # Errors
/// Whatever else it came to.
pub(crate) fn unless_held_back(removed: Result<()>) -> Result<()> {
    removed.or_else(|error| if is_held_back(&error) { Ok(()) } else { Err(error) })
}

/// Lists the folder; `None` if there is none.
fn list(storage: &dyn Storage, root: &Path) -> io::Result<Option<Folder>> {
    let entries = match storage.list_dir(&folder_of(root)) {
        Err(error) => match error.kind() {
            // What else has the name was not put there by anybody who registers.
            ErrorKind::NotFound | ErrorKind::NotADirectory => return Ok(None),
            _ => return Err(error),
        },
        Ok(listed) => listed,
    };
    let mut folder = Folder::default();
    for DirEntry { name, entry_type } in entries {
        match entry_type {
            EntryType::File => folder.registrations.extend(REGISTRATIONS.number_of(&name)),
            EntryType::Directory => folder.held.extend(HELD.number_of(&name)),
            EntryType::Other => {}
        }
    }
    folder.registrations.sort_unstable();
    folder.held.sort_unstable();
    Ok(Some(folder))
}

/// Whether somebody is registered by this number. If not, the file of one who is gone goes (FO5).
fn is_live(storage: &dyn Storage, root: &Path, number: u64) -> io::Result<bool> {
    let path = registration_path(root, number);
    match storage.lock(&path) {
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::PermissionDenied => Ok(true), // FO6
            ErrorKind::NotFound => Ok(false),                                // So is the folder.
            _ => Err(error),
        },
        Ok(lock) => {
            let _whoever_comes_next_does = storage.remove_file(&path);
            drop(lock);
            Ok(false)
        }
    }
}

impl Folder {
    /// The highest number by which somebody is registered.
    fn newest_live(&self, storage: &dyn Storage, root: &Path) -> io::Result<Option<u64>> {
        for number in self.registrations.iter().rev() {
            if is_live(storage, root, *number)? {
                return Ok(Some(*number));
            }
        }
        Ok(None)
    }

    /// The lowest number by which somebody is registered.
    fn oldest_live(&self, storage: &dyn Storage, root: &Path) -> io::Result<Option<u64>> {
        for number in &self.registrations {
            if is_live(storage, root, *number)? {
                return Ok(Some(*number));
            }
        }
        Ok(None)
    }
}

/// The lowest and the highest number by which anybody follows the database in `root`.
///
/// # Errors
/// Whatever the system says.
pub(crate) fn followers_of(storage: &dyn Storage, root: &Path) -> io::Result<Option<(u64, u64)>> {
    let Some(folder) = list(storage, root)? else { return Ok(None) };
    let Some(newest) = folder.newest_live(storage, root)? else { return Ok(None) };
    let oldest = folder.oldest_live(storage, root)?;
    Ok(Some((oldest.unwrap_or(newest).min(newest), newest)))
}

/// The names of files of the directory `dir` of the database in `root` that are held for anybody.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn held_names(storage: &dyn Storage, root: &Path, dir: &Path) -> Result<Vec<String>> {
    let folder = list(storage, root).map_err(|error| Error::io("list", &folder_of(root), error))?;
    let Some(folder) = folder else { return Ok(Vec::new()) };
    let Some(own) = dir.strip_prefix(root).ok().and_then(joined) else { return Ok(Vec::new()) };
    let (front, mut names) = (own + SEPARATOR, Vec::new());
    for number in folder.held {
        let dir = held_dir(root, number);
        let entries = match storage.list_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue, // It was cleared away.
            listed => listed.map_err(|error| Error::io("list", &dir, error))?,
        };
        let of_dir = entries.iter().filter_map(|entry| entry.name.strip_prefix(&front));
        names.extend(of_dir.map(ToOwned::to_owned));
    }
    Ok(names)
}

/// Refuses a database that is followed, for who puts another in its place: paths would lead
/// followers to that.
///
/// # Errors
/// [`Error::Locked`] by a follower, [`Error::Io`].
pub(crate) fn refuse_followed(storage: &dyn Storage, root: &Path) -> Result<()> {
    let io = |error| Error::io("look for followers of", root, error);
    let Some(folder) = list(storage, root).map_err(io)? else { return Ok(()) };
    match folder.newest_live(storage, root).map_err(io)? {
        None => Ok(()),
        Some(number) => Err(Error::Locked {
            path: registration_path(root, number),
            owner: "somebody who follows the database".to_owned(),
        }),
    }
}

/// Removes a file of the database in `root`, or puts it aside for those who follow (FO2).
///
/// # Errors
/// Whatever the system says; the file still has its name (FO7).
pub(crate) fn remove_or_hold(storage: &dyn Storage, root: &Path, path: &Path) -> io::Result<()> {
    let Some(name) = held_name(root, path) else { return storage.remove_file(path) };
    let newest = newest_follower(storage, root).map_err(held_back)?;
    let Some(newest) = newest else { return storage.remove_file(path) };
    let held = held_dir(root, newest).join(name);
    match put_aside(storage, path, &held) {
        // So says the system also when it is the file that is not there.
        Err(error) if error.kind() == ErrorKind::NotFound && storage.exists(path)? => {
            // Whoever made the folder has gone, or it was somebody who did not make any.
            let made = storage.create_dir_all(&held_dir(root, newest));
            made.and_then(|()| put_aside(storage, path, &held)).map_err(held_back)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
        done => done.map_err(held_back),
    }
}

/// As it was, with why.
fn held_back(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), HeldBack(error))
}

/// The highest number by which somebody is registered. Clears away what is left over.
fn newest_follower(storage: &dyn Storage, root: &Path) -> io::Result<Option<u64>> {
    let Some(folder) = list(storage, root)? else { return Ok(None) };
    let newest = folder.newest_live(storage, root)?;
    let is_left_over = |held: &u64| newest.is_none_or(|newest| *held < newest);
    if folder.held.first().is_some_and(is_left_over) {
        let _whoever_comes_next_does = let_go_of_unneeded(storage, root);
    }
    Ok(newest)
}

fn put_aside(storage: &dyn Storage, from: &Path, to: &Path) -> io::Result<()> {
    let linked = match storage.link(from, to) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            storage.remove_file(to)?; // FO3
            storage.link(from, to)
        }
        linked => linked,
    };
    match linked {
        Ok(()) => storage.remove_file(from),
        Err(error) => match error.kind() {
            ErrorKind::CrossesDevices
            | ErrorKind::PermissionDenied
            | ErrorKind::TooManyLinks
            | ErrorKind::Unsupported
            | ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::InvalidInput => storage.rename(from, to),
            _ => Err(error),
        },
    }
}

/// What a file of the database is called in a `held-` folder; `None` for what nobody who follows
/// reads, or that is not of the database.
fn held_name(root: &Path, path: &Path) -> Option<String> {
    let own = path.strip_prefix(root).ok()?;
    let name = joined(own)?;
    let first = own.components().next()?;
    let Component::Normal(first) = first else { return None };
    let first = first.to_str()?;
    let is_below = own.components().count() > 1;
    let is_read = match is_below {
        true => matches!(first, "wal" | "values" | "keyspaces"),
        false => first.starts_with("MANIFEST-"),
    };
    (is_read && !name.ends_with(".new")).then_some(name)
}

/// The parts of a path in one name; `None` for a path that is not made of names.
fn joined(own: &Path) -> Option<String> {
    let parts = own.components().map(|component| match component {
        Component::Normal(name) => name.to_str().filter(|name| !name.contains(SEPARATOR)),
        _ => None,
    });
    let parts: Option<Vec<&str>> = parts.collect();
    Some(parts?.join(SEPARATOR))
}

/// Removes what is held for nobody any more, and the folder if it is empty then (FO4). Nothing
/// while somebody else does that, or registers.
///
/// # Errors
/// [`Error::Io`]; what is still there, whoever comes next finds.
pub(crate) fn let_go_of_unneeded(storage: &dyn Storage, root: &Path) -> Result<()> {
    let io = |error| Error::io("look for followers of", root, error);
    if list(storage, root).map_err(io)?.is_none() {
        return Ok(());
    }
    let Some(turn) = take_turn(storage, root).map_err(io)? else { return Ok(()) };
    let _others_may_not_take_it_then = storage.give_owner(&turn_path(root), root); // FO6
    if clear_away(storage, root)?.is_none() {
        let _it_is_empty_then = storage.remove_file(&turn_path(root));
        // Not if somebody has registered meanwhile.
        let _not_empty = storage.remove_dir(&folder_of(root));
    }
    drop(turn);
    Ok(())
}

/// By who has the turn: removes what is held for nobody any more. The lowest number by which
/// somebody is registered.
fn clear_away(storage: &dyn Storage, root: &Path) -> Result<Option<u64>> {
    let io = |error| Error::io("look for followers of", root, error);
    let folder = list(storage, root).map_err(io)?.unwrap_or_default();
    let oldest = folder.oldest_live(storage, root).map_err(io)?;
    for number in &folder.held {
        if oldest.is_none_or(|oldest| *number < oldest) {
            clear_directory(storage, &held_dir(root, *number))?;
        }
    }
    Ok(oldest)
}

/// Who follows the database in `root`, and what is kept for them; as far as that can be read.
pub(crate) fn held_figures(storage: &dyn Storage, root: &Path) -> HeldFigures {
    let mut figures = HeldFigures::default();
    let Ok(Some(folder)) = list(storage, root) else { return figures };
    for number in &folder.registrations {
        figures.followers += u64::from(is_live(storage, root, *number).unwrap_or(true));
    }
    for number in &folder.held {
        let dir = held_dir(root, *number);
        for entry in storage.list_dir(&dir).unwrap_or_default() {
            figures.files += 1;
            figures.bytes += size_of_file(storage, &dir.join(&entry.name));
        }
    }
    figures
}

/// Bytes of a file, as far as that can be told.
fn size_of_file(storage: &dyn Storage, path: &Path) -> u64 {
    let file = storage.open(path, OpenMode::ReadOnly);
    file.and_then(|file| file.size()).unwrap_or(0)
}

/// Somebody who reads a database beside its writer, until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    storage: Arc<dyn Storage>,
    root: PathBuf,
    number: u64,
    lock: Option<Box<dyn StorageLock>>,
    /// Whose it is: not that of a process that is forked from this one.
    process: ProcessMark,
}

impl Registration {
    /// Registers with the database in `root`, which is there.
    ///
    /// # Errors
    /// [`Error::Io`], also when what is made cannot be given to the owner of the directory (FO6);
    /// [`Error::DiskFull`]; [`Error::InvalidArgument`] when there are no numbers left;
    /// [`Error::Locked`] when others register all the time. Nothing is left then.
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        root: &Path,
        clock: &dyn Clock,
    ) -> Result<Registration> {
        let registered = Registration::try_new(storage, root, clock);
        registered.inspect_err(|_| {
            let _what_stays_the_next_one_removes = let_go_of_unneeded(&**storage, root);
            let _if_it_could_not_be_locked = storage.remove_dir(&folder_of(root));
        })
    }

    fn try_new(storage: &Arc<dyn Storage>, root: &Path, clock: &dyn Clock) -> Result<Registration> {
        let dir = folder_of(root);
        let io = |action| {
            let dir = &dir;
            move |error| Error::io(action, dir, error)
        };
        for _ in 0..REGISTER_ATTEMPTS_MAX {
            make_dir(&**storage, &dir).map_err(io("create"))?;
            let Some(_turn) = take_turn(&**storage, root).map_err(io("lock"))? else {
                clock.sleep(REGISTER_WAIT);
                continue;
            };
            let _only_to_give_room_back = clear_away(&**storage, root);
            let folder = list(&**storage, root).map_err(io("list"))?.unwrap_or_default();
            let taken = folder.registrations.last().max(folder.held.last());
            let number = taken.map_or(Some(1), |taken| taken.checked_add(1)); // FO4
            let Some(number) = number else {
                let what = format!("{} has the highest number that there is", dir.display());
                return Err(Error::invalid(what));
            };
            match storage.lock(&registration_path(root, number)) {
                Ok(lock) => {
                    let (storage, root) = (Arc::clone(storage), root.to_owned());
                    let (lock, process) = (Some(lock), ProcessMark::new());
                    let own = Registration { storage, root, number, lock, process };
                    // If it fails, dropping it removes what is there.
                    own.make_folder().map_err(io("register in"))?;
                    return Ok(own);
                }
                Err(error) => match error.kind() {
                    // Somebody was faster, or has just removed the folder.
                    ErrorKind::WouldBlock | ErrorKind::NotFound => {}
                    _ => return Err(io("register in")(error)),
                },
            }
        }
        Err(Error::Locked { path: dir, owner: "others who register".to_owned() })
    }

    /// Makes the folder that the writer puts files aside in, which may have no room for one, and
    /// gives it all to the owner of the database (FO6).
    fn make_folder(&self) -> io::Result<()> {
        let held = held_dir(&self.root, self.number);
        make_dir(&*self.storage, &held)?;
        let own = [folder_of(&self.root), turn_path(&self.root), held, self.path()];
        own.iter().try_for_each(|path| self.storage.give_owner(path, &self.root))
    }

    fn path(&self) -> PathBuf {
        registration_path(&self.root, self.number)
    }

    /// Whether it is where the writer looks for it: if another directory has come to have the
    /// database's name, it is not.
    ///
    /// # Errors
    /// Whatever the system says.
    pub(super) fn is_in_place(&self) -> io::Result<bool> {
        if !self.storage.exists(&self.path())? {
            return Ok(false);
        }
        match self.storage.lock(&self.path()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true), // By this one.
            Err(error) => Err(error),
            Ok(_lock) => Ok(false),
        }
    }

    /// The folders of what was put aside since, the newest first.
    fn held_dirs(&self) -> io::Result<Vec<PathBuf>> {
        let folder = list(&*self.storage, &self.root)?.unwrap_or_default();
        let held = folder.held.into_iter().rev().filter(|number| *number >= self.number); // FO2
        Ok(held.map(|number| held_dir(&self.root, number)).collect())
    }

    /// Where a file is now that has lost its name, if it was put aside.
    ///
    /// # Errors
    /// Whatever the system says.
    pub(super) fn find_held(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let Some(name) = held_name(&self.root, path) else { return Ok(None) };
        for dir in self.held_dirs()? {
            let held = dir.join(&name);
            if self.storage.exists(&held)? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// The names in a directory of the database that were put aside.
    ///
    /// # Errors
    /// Whatever the system says.
    pub(super) fn held_in(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let own = dir.strip_prefix(&self.root).ok().and_then(joined);
        let Some(own) = own else { return Ok(Vec::new()) };
        let front = if own.is_empty() { own } else { own + SEPARATOR };
        let mut found = Vec::new();
        for dir in self.held_dirs()? {
            for DirEntry { name, .. } in self.storage.list_dir(&dir)? {
                let Some(rest) = name.strip_prefix(&front) else { continue };
                let (name, entry_type) = match rest.split_once(SEPARATOR) {
                    Some((folder, _)) => (folder, EntryType::Directory),
                    None => (rest, EntryType::File),
                };
                found.push(DirEntry { name: name.to_owned(), entry_type });
            }
        }
        Ok(found)
    }

    /// The files that were put aside since, as far as they can be listed.
    fn held_files(&self) -> Vec<PathBuf> {
        let dirs = self.held_dirs().unwrap_or_default().into_iter();
        let files = dirs.flat_map(|dir| {
            let entries = self.storage.list_dir(&dir).unwrap_or_default();
            entries.into_iter().map(move |entry| dir.join(entry.name))
        });
        files.collect()
    }

    /// How many they are.
    pub(super) fn held_count(&self) -> u64 {
        self.held_files().len() as u64
    }

    /// Bytes of them.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_files().iter().map(|path| size_of_file(&*self.storage, path)).sum()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.process.is_here() {
            return;
        }
        drop(self.lock.take());
        // By the lock: another directory may be there by now, and the file be somebody else's.
        let _whoever_comes_next_does = is_live(&*self.storage, &self.root, self.number);
        let _whoever_comes_next_does = let_go_of_unneeded(&*self.storage, &self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::SystemClock;
    use crate::storage::MemoryStorage;

    const ROOT: &str = "/db";

    fn file(storage: &dyn Storage, path: &str, bytes: &[u8]) {
        let path = Path::new(path);
        storage.create_dir_all(path.parent().unwrap()).unwrap();
        storage.open(path, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    }

    fn register(storage: &Arc<dyn Storage>) -> Registration {
        Registration::new(storage, Path::new(ROOT), &SystemClock::new()).unwrap()
    }

    fn remove(storage: &dyn Storage, path: &str) {
        remove_or_hold(storage, Path::new(ROOT), Path::new(path)).unwrap();
    }

    fn figures(storage: &dyn Storage) -> HeldFigures {
        held_figures(storage, Path::new(ROOT))
    }

    #[test]
    fn what_is_removed_is_kept_for_who_was_registered_before() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let (root, path) = (Path::new(ROOT), "/db/keyspaces/00000001/seg-00000007");
        file(&*storage, path, b"first");
        remove(&*storage, path);
        assert_eq!(figures(&*storage), HeldFigures::default(), "nobody is there");
        let early = register(&storage);
        file(&*storage, path, b"second");
        remove(&*storage, path);
        assert!(!storage.exists(Path::new(path)).unwrap());
        assert_eq!(figures(&*storage), HeldFigures { followers: 1, files: 1, bytes: 6 });
        let late = register(&storage);
        assert_eq!(late.find_held(Path::new(path)).unwrap(), None, "it came later");
        let held = early.find_held(Path::new(path)).unwrap().unwrap();
        assert_eq!(storage.open(&held, OpenMode::ReadOnly).unwrap().size().unwrap(), 6);
        let names = early.held_in(Path::new("/db/keyspaces/00000001")).unwrap();
        assert_eq!((names.len(), names[0].name.as_str()), (1, "seg-00000007"));
        let dirs = early.held_in(root).unwrap();
        let (name, entry_type) = (dirs[0].name.as_str(), dirs[0].entry_type);
        assert_eq!((name, entry_type), ("keyspaces", EntryType::Directory));
        drop(early);
        assert_eq!(figures(&*storage), HeldFigures { followers: 1, files: 0, bytes: 0 });
        drop(late);
        assert!(!storage.exists(&folder_of(root)).unwrap());
    }

    #[test]
    fn the_newer_of_two_files_of_one_name_is_kept() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let path = "/db/wal/00000009.wal";
        file(&*storage, "/db/MANIFEST-00000001", b"m");
        let reader = register(&storage);
        for bytes in [&b"unused"[..], b"used"] {
            file(&*storage, path, bytes);
            remove(&*storage, path);
        }
        let held = reader.find_held(Path::new(path)).unwrap().unwrap();
        assert_eq!(storage.open(&held, OpenMode::ReadOnly).unwrap().size().unwrap(), 4);
        assert_eq!((reader.held_count(), reader.held_bytes()), (1, 4));
    }

    #[test]
    fn what_nobody_follows_is_removed_though_others_are_registered() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        file(&*storage, "/db/MANIFEST-00000002.new", b"m");
        let _reader = register(&storage);
        remove(&*storage, "/db/MANIFEST-00000002.new");
        assert_eq!(figures(&*storage).files, 0);
        for foreign in ["/elsewhere/wal/00000001.wal", "/db/RESERVE", "/db/followers/f-00000001"] {
            assert_eq!(held_name(Path::new(ROOT), Path::new(foreign)), None, "{foreign}");
        }
    }

    #[test]
    fn many_register_and_clear_away_at_once() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        file(&*storage, "/db/MANIFEST-00000001", b"m");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let storage = Arc::clone(&storage);
                scope.spawn(move || {
                    for round in 0..60 {
                        let own = register(&storage);
                        assert!(own.is_in_place().unwrap());
                        let path = format!("/db/values/val-{thread}{round:07}");
                        file(&*storage, &path, b"value");
                        remove(&*storage, &path);
                        let held = own.find_held(Path::new(&path)).unwrap();
                        assert!(held.is_some(), "it is kept for who is registered");
                        let _whoever_comes_next_does =
                            let_go_of_unneeded(&*storage, Path::new(ROOT));
                        assert!(own.is_in_place().unwrap());
                        assert_eq!(own.find_held(Path::new(&path)).unwrap(), held);
                    }
                });
            }
        });
        let_go_of_unneeded(&*storage, Path::new(ROOT)).unwrap();
        assert!(!storage.exists(&folder_of(Path::new(ROOT))).unwrap());
    }

    /// To be seen by who may give files to others alone.
    #[test]
    fn what_is_made_belongs_to_the_owner_of_the_database() {
        use std::os::unix::fs::{MetadataExt, chown};
        const SOMEBODY: u32 = 54_321;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        if chown(root, Some(SOMEBODY), Some(SOMEBODY)).is_err() {
            return;
        }
        let storage: Arc<dyn Storage> = Arc::new(crate::storage::OsStorage::new());
        let own = Registration::new(&storage, root, &SystemClock::new()).unwrap();
        let held = held_dir(root, own.number);
        for path in [folder_of(root), turn_path(root), own.path(), held] {
            let found = std::fs::symlink_metadata(&path).unwrap();
            assert_eq!((found.uid(), found.gid()), (SOMEBODY, SOMEBODY), "{}", path.display());
        }
        drop(own);
        assert!(!folder_of(root).exists());
    }

    #[test]
    fn who_is_gone_without_a_word_is_found_out() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let (root, path) = (Path::new(ROOT), "/db/values/val-00000003");
        file(&*storage, path, b"value");
        let mut gone = register(&storage);
        remove(&*storage, path);
        drop(gone.lock.take()); // Its process was killed.
        std::mem::forget(gone);
        assert_eq!(followers_of(&*storage, root).unwrap(), None);
        let_go_of_unneeded(&*storage, root).unwrap();
        assert_eq!(figures(&*storage), HeldFigures::default());
        assert!(refuse_followed(&*storage, root).is_ok());
        let _reader = register(&storage);
        assert!(matches!(refuse_followed(&*storage, root), Err(Error::Locked { .. })));
    }
}
