//! Backups: a directory that holds any number of databases as of one moment each, every file once;
//! and the same as streams.
//!
//! ```text
//! BACKUPS ...... what the directory is, and its id
//! LOCK ......... held by whoever adds or removes, shared by those who read
//! files/ ....... files of databases, each named by the hash of its bytes and their number
//! backups/ ..... a list for each backup: paths, lengths and hashes of its files
//! trails/ ...... the commits of databases behind backups
//! ```
//!
//! | file | what it owns |
//! |---|---|
//! | `list.rs` | the bytes of a list |
//! | `files.rs` | the files in `files/`: added once, verified whenever they are read |
//! | `moment.rs` | the files of an open database as of one moment |
//! | `create.rs` | adding a backup, of an open database or of a stream |
//! | `verify.rs` | reading everything back |
//! | `remove.rs` | removing backups, and what no other one needs |
//! | `restore.rs` | making a database of a backup |
//! | `stream/` | a backup as one stream |
//! | `trail/` | commits behind backups, and restoring a moment in between (Q5 to Q8) |
//! | `work.rs`, `writer.rs` | pace and progress; writing a file and its hash |
//!
//! Files of encrypted databases are copied as they are, sealed, and the keyring with them: nothing
//! here has a key, or needs one.
//!
//! Invariants
//! - Q1  A file has its name in `files/` only when it is whole and durable; so has a list. What is
//!   being made has another name, and is removed by the next who adds or removes.
//! - Q2  A list is there only when all files that it names are, durably. A file goes only when no
//!   list names it, durably.
//! - Q3  A file is the one that a list names if its bytes have the hash, and not otherwise: neither
//!   its number nor its name in the database nor its length say so. Numbers are used again when a
//!   database is restored.
//! - Q4  What a restore makes has a manifest, and so is a database, only when all of it was written
//!   durably and read back. It comes to its place, or to that of another database, in the last
//!   step, and that one goes only when this is durable.

mod create;
mod files;
mod list;
mod moment;
mod remove;
mod restore;
mod stream;
mod trail;
mod verify;
mod work;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::base::{Entropy, Error, Result, SeqNo, SystemEntropy};
use crate::db::{OpenExisting, expect_outside_databases};
use crate::storage::{
    EntryType, OpenMode, OsStorage, Storage, StorageLock, lock_directory, make_directory,
    share_directory,
};

use files::Files;
use list::{BackupList, Head};

pub(crate) use list::fuzz_list;
pub use remove::PruneReport;
pub use restore::{RestoreOptions, RestoredBackup};
pub(crate) use stream::fuzz_stream;
pub use stream::{BackupStream, StreamInfo};
pub(crate) use trail::fuzz_segment;
pub use trail::{
    FollowOptions, FollowStatus, TrailFollower, TrailInfo, TrailOptions, TrailProblem, TrailReport,
};
pub use verify::{BackupCheck, BackupProblem};
pub use work::{BackupOptions, BackupProgress};

/// What the file is called that says what the directory is.
const MARKER: &str = "BACKUPS";
const MARKER_MAGIC: &[u8; 8] = b"LITHEBKS";
/// The version of the directory, and the newest that is known.
const VERSION: u32 = 1;
/// Magic, version, four bytes of nothing, id, checksum.
const MARKER_LEN: usize = 32;
const LISTS_DIR: &str = "backups";
const FILES_DIR: &str = "files";
/// What names end with of what is not whole yet.
const UNFINISHED: &str = ".unfinished";

/// A directory with backups, of one database or of several.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = |name: &str| dir.path().join(name);
/// use lithedb::{BackupRepository, Db, RestoreOptions};
/// let db = Db::open(path("animals"))?;
/// let animals = db.keyspace_or_create("animals")?;
/// animals.put("otter", "swims")?;
/// let backups = BackupRepository::open_or_create(path("backups"))?;
/// let monday = backups.create(&db)?;
/// animals.put("otter", "sleeps")?;
/// let tuesday = backups.create(&db)?; // Only what is new is written.
/// assert!(tuesday.written_bytes <= tuesday.bytes);
/// backups.restore(monday.number, path("as-of-monday"), RestoreOptions::new())?;
/// let monday = Db::open(path("as-of-monday"))?.keyspace("animals")?.get("otter")?;
/// assert_eq!(monday.as_deref(), Some(&b"swims"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BackupRepository {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    id: u64,
}

/// A backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number: rising, from 1 on. That of the newest one is given again when it is removed.
    pub number: u64,
    /// The id of the database.
    pub database: u64,
    /// The newest commit that it has.
    pub seqno: SeqNo,
    /// When it was made, in milliseconds since 1970, by the clock of the database.
    pub created_millis: u64,
    /// Files of it.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Those of the bytes that were not in the repository yet.
    pub written_bytes: u64,
    /// The id of the trail that it is on, if it is on one: moments behind it can be restored.
    pub trail: Option<u64>,
    /// It has everything up to this stamp, and nothing behind it: that of the newest commit, or on
    /// a trail one behind that.
    pub as_of: SeqNo,
}

impl BackupInfo {
    /// When it was made, by the clock of the database.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        let since = Duration::from_millis(self.created_millis);
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl BackupRepository {
    /// Opens the repository in the directory `dir`.
    ///
    /// # Errors
    /// `InvalidArgument` when there is none; `Corruption`, `FormatVersion`, `Io`.
    pub fn open(dir: impl AsRef<Path>) -> Result<BackupRepository> {
        BackupRepository::open_in(Arc::new(OsStorage::new()), dir, OpenExisting::Only)
    }

    /// Opens the repository in the directory `dir`, or makes one where there is nothing.
    ///
    /// # Errors
    /// `InvalidArgument` when there is something else, or it would be within the directory of a
    /// database; `Corruption`, `FormatVersion`, `DiskFull`,
    /// `Io`, `Locked`.
    pub fn open_or_create(dir: impl AsRef<Path>) -> Result<BackupRepository> {
        BackupRepository::open_in(Arc::new(OsStorage::new()), dir, OpenExisting::OrCreate)
    }

    /// As the other two, in a storage that is given, which need not be that of the databases.
    ///
    /// # Errors
    /// As these.
    pub fn open_in(
        storage: Arc<dyn Storage>,
        dir: impl AsRef<Path>,
        existing: OpenExisting,
    ) -> Result<BackupRepository> {
        BackupRepository::open_simulated(storage, dir, existing, &SystemEntropy::default())
    }

    /// The same with a source of randomness, for what is to be run again. Not part of the API.
    ///
    /// # Errors
    /// As these.
    #[doc(hidden)]
    pub fn open_simulated(
        storage: Arc<dyn Storage>,
        dir: impl AsRef<Path>,
        existing: OpenExisting,
        entropy: &dyn Entropy,
    ) -> Result<BackupRepository> {
        let dir = dir.as_ref().to_owned();
        let marker = dir.join(MARKER);
        let is_there =
            |path: &Path| storage.exists(path).map_err(|error| Error::io("look for", path, error));
        if !is_there(&marker)? {
            if existing == OpenExisting::Only {
                let what = format!("{} is no directory with backups", dir.display());
                return Err(Error::invalid(what));
            }
            expect_outside_databases(&*storage, &dir, &dir)?;
            create_repository(&*storage, &dir, entropy)?;
        }
        let id = read_marker(&*storage, &marker)?;
        Ok(BackupRepository { storage, dir, id })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The backups, by number.
    ///
    /// # Errors
    /// `Corruption` of a list, `FormatVersion`, `Io`, `Locked` while somebody changes it.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let _lock = self.share()?;
        let numbers = self.numbers()?;
        numbers.into_iter().map(|number| Ok(info_of(self.read_list(number)?.head()))).collect()
    }

    fn lock(&self) -> Result<Box<dyn StorageLock>> {
        lock_directory(&*self.storage, &self.dir)
    }

    /// For those who change nothing.
    fn share(&self) -> Result<Box<dyn StorageLock>> {
        share_directory(&*self.storage, &self.dir)
    }

    fn files(&self) -> Files<'_> {
        Files::new(&*self.storage, self.dir.join(FILES_DIR))
    }

    fn list_path(&self, number: u64) -> PathBuf {
        self.dir.join(LISTS_DIR).join(list_name(number))
    }

    /// Numbers of the lists, rising.
    fn numbers(&self) -> Result<Vec<u64>> {
        let dir = self.dir.join(LISTS_DIR);
        let entries =
            self.storage.list_dir(&dir).map_err(|error| Error::io("list", &dir, error))?;
        let names = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
        let mut numbers: Vec<u64> = names.filter_map(|entry| number_of_list(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The number of the next backup.
    fn next_number(&self) -> Result<u64> {
        let newest = self.numbers()?.last().copied().unwrap_or(0);
        newest.checked_add(1).ok_or_else(|| Error::invalid("there are no more numbers"))
    }

    fn read_list(&self, number: u64) -> Result<BackupList> {
        let path = self.list_path(number);
        let opened = self.storage.open(&path, OpenMode::ReadOnly);
        let file = opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => self.no_such(number),
            _ => Error::io("open", &path, error),
        })?;
        BackupList::read(&*file, &path, (self.id, number))
    }

    fn no_such(&self, number: u64) -> Error {
        Error::invalid(format!("{} has no backup {number}", self.dir.display()))
    }

    /// Q1.
    fn clear_unfinished(&self) -> Result<()> {
        self.remove_unfinished(&self.dir.join(LISTS_DIR))?;
        self.remove_unfinished(&self.dir.join(FILES_DIR))
    }

    fn remove_unfinished(&self, dir: &Path) -> Result<()> {
        let entries = self.storage.list_dir(dir).map_err(|error| Error::io("list", dir, error))?;
        let files = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
        for entry in files.filter(|entry| entry.name.ends_with(UNFINISHED)) {
            let path = dir.join(&entry.name);
            let removed = self.storage.remove_file(&path);
            removed.map_err(|error| Error::io("remove", &path, error))?;
        }
        Ok(())
    }
}

fn info_of(head: &Head) -> BackupInfo {
    BackupInfo {
        number: head.number,
        database: head.database,
        seqno: head.seqno,
        created_millis: head.created_millis,
        files: head.file_count,
        bytes: head.bytes,
        written_bytes: head.written_bytes,
        trail: head.on_trail.map(|on| on.trail),
        as_of: head.on_trail.map_or(head.seqno, |on| on.as_of),
    }
}

fn list_name(number: u64) -> String {
    format!("backup-{number:08}")
}

fn number_of_list(name: &str) -> Option<u64> {
    let number = name.strip_prefix("backup-")?.parse().ok()?;
    (list_name(number) == name && number > 0).then_some(number)
}

/// Makes an empty repository where there is nothing, or a part of one.
fn create_repository(storage: &dyn Storage, dir: &Path, entropy: &dyn Entropy) -> Result<()> {
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |error| Error::io(action, &path, error)
    };
    if storage.exists(dir).map_err(io("look for", dir))? {
        let entries = storage.list_dir(dir).map_err(io("list", dir))?;
        // What a creation makes in front of the marker.
        let own = ["LOCK", LISTS_DIR, FILES_DIR, &format!("{MARKER}{UNFINISHED}")];
        if let Some(other) = entries.iter().find(|entry| !own.contains(&&*entry.name)) {
            let (shown, name) = (dir.display(), &other.name);
            return Err(Error::invalid(format!("{shown} has {name}, and no backups")));
        }
    }
    make_directory(storage, dir)?;
    let _lock = lock_directory(storage, dir)?;
    if storage.exists(&dir.join(MARKER)).map_err(io("look for", dir))? {
        return Ok(()); // Somebody else has made it meanwhile.
    }
    for name in [LISTS_DIR, FILES_DIR] {
        storage.create_dir_all(&dir.join(name)).map_err(io("create", dir))?;
    }
    storage.sync_dir(dir).map_err(io("sync", dir))?; // What has a marker has these.
    let mut marker = [0; MARKER_LEN];
    marker[..8].copy_from_slice(MARKER_MAGIC);
    marker[8..12].copy_from_slice(&VERSION.to_le_bytes());
    marker[16..24].copy_from_slice(&entropy.next_u64().max(1).to_le_bytes());
    let sum = crate::base::checksum(&marker[..24], 0, 0);
    marker[24..].copy_from_slice(&sum.to_le_bytes());
    let unfinished = dir.join(format!("{MARKER}{UNFINISHED}"));
    let named = dir.join(MARKER);
    files::put_whole(storage, (&unfinished, &named), &marker)?;
    storage.sync_dir(dir).map_err(|error| {
        // Who comes next must not take it for durable.
        let _stays_if_it_fails = storage.remove_file(&named);
        Error::io("sync", dir, error)
    })
}

fn read_marker(storage: &dyn Storage, path: &Path) -> Result<u64> {
    let file = storage.open(path, OpenMode::ReadOnly);
    let file = file.map_err(|error| Error::io("open", path, error))?;
    let mut marker = [0; MARKER_LEN];
    file.read_exact_at(&mut marker, 0).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::corruption(path, 0, "the file is too short"),
        _ => Error::io("read", path, error),
    })?;
    let word = |at: usize| u64::from_le_bytes(marker[at..at + 8].try_into().expect("eight bytes"));
    if marker[..8] != *MARKER_MAGIC || word(24) != crate::base::checksum(&marker[..24], 0, 0) {
        return Err(Error::corruption(path, 0, "it does not verify"));
    }
    match u32::from_le_bytes(marker[8..12].try_into().expect("four bytes")) {
        VERSION => Ok(word(16)),
        found => Err(Error::FormatVersion { file: path.into(), found, known: VERSION }),
    }
}
