//! Restoring: a database is made of a backup beside the place that it is for, read back, and put
//! there in the last step.
//!
//! ```text
//! write ....... every file, hashed as it comes, into a directory whose name says that it is
//!               unfinished; the manifest under another name
//! read back ... every file is what it was to be
//! manifest .... gets its name, durably: from here on it is a database (Q4)
//! forward ..... to a moment behind the backup, if that was asked for (`trail/restore.rs`)
//! open ........ if that was asked for: it is recovered and checked
//! exchange .... with what is at the target, as one step, or takes its name; made durable
//! remove ...... what was there
//! ```
//!
//! Where a storage cannot exchange two names, what is there gets the name with `.before-restore`
//! behind it, and then the new one the name that was asked for. A crash between the two leaves no
//! database under the name, and both beside it, whole. Opening does not make a new one there, but
//! says so: which of them gets the name is to be chosen.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{PIECE_LEN, read_all};
use super::list::{BackupList, Content};
use super::moment::{parent_of, remove_tree};
use super::stream::{BackupStream, StreamInfo, StreamStep};
use super::work::{BackupOptions, Work};
use super::writer::HashedWriter;
use super::{BackupInfo, BackupRepository, MARKER, info_of};
use crate::base::{Entropy, Error, Result, SeqNo, SystemEntropy};
use crate::db::{
    BEFORE_RESTORE, Builder, Db, OpenExisting, expect_outside_databases, is_trail_marker,
    resolve_nearest,
};
use crate::manifest::{Manifest, is_log_name};
use crate::storage::{
    EntryType, OpenMode, OsStorage, Storage, StorageLock, Zeros, let_go_of_unneeded,
    lock_directory, make_directory, refuse_followed,
};

/// What the name of a directory says in which a database is being made.
const UNFINISHED_RESTORE: &str = ".unfinished-restore-";
/// What a manifest has behind its name that is not to be opened yet.
const NOT_YET: &str = ".new";
/// What belongs to a database in its directory, beside manifests.
const OWN_DIRS: [&str; 3] = ["wal", "values", "keyspaces"];
/// Those of them that are there from the beginning.
const LASTING_DIRS: [&str; 2] = ["wal", "keyspaces"];
const OWN_FILES: [&str; 4] = ["LOCK", "KEYRING", "KEYRING.new", "RESERVE"];

/// What is done with what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    /// There must be nothing.
    Refused,
    /// A database that is there, and not open, gives way.
    Replaced,
}

/// How a backup is restored. Default: to where nothing is, in the storage of the operating system
/// or of the repository, verified by its hashes, and not opened.
#[must_use]
pub struct RestoreOptions<'w> {
    existing: Existing,
    storage: Option<Arc<dyn Storage>>,
    entropy: Arc<dyn Entropy>,
    opened_by: Option<Builder>,
    goes_on_with: Option<Builder>,
    database: Option<u64>,
    trail: Option<u64>,
    work: BackupOptions<'w>,
}

impl<'w> RestoreOptions<'w> {
    /// The default.
    pub fn new() -> RestoreOptions<'w> {
        RestoreOptions {
            existing: Existing::Refused,
            storage: None,
            entropy: Arc::new(SystemEntropy::default()),
            opened_by: None,
            goes_on_with: None,
            database: None,
            trail: None,
            work: BackupOptions::new(),
        }
    }

    /// Of a moment: what the database is opened with to go on from its backup. Default: with what
    /// is given to [`RestoreOptions::open_with`], else with defaults. Its key is needed, if it is
    /// encrypted; the storage of the builder, its clock but for waiting, and its durability do not
    /// count.
    pub fn go_on_with(mut self, builder: Builder) -> RestoreOptions<'w> {
        self.goes_on_with = Some(builder);
        self
    }

    /// Of a moment: which database it is of, by its id, where a repository has several.
    pub fn database(mut self, id: u64) -> RestoreOptions<'w> {
        self.database = Some(id);
        self
    }

    /// Of a moment: the trail that it is looked for on, by its id. Default: the one that was begun
    /// last of those that have it.
    pub fn trail(mut self, id: u64) -> RestoreOptions<'w> {
        self.trail = Some(id);
        self
    }

    /// Puts the restored database in the place of one that is there, which must not be open: as one
    /// step, where the file system can exchange two names. Then removes that one, but for what is
    /// in its directory and no part of a database.
    pub fn replace(mut self) -> RestoreOptions<'w> {
        self.existing = Existing::Replaced;
        self
    }

    /// The storage to restore to.
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> RestoreOptions<'w> {
        self.storage = Some(storage);
        self
    }

    /// Opens the restored database with this once, which replays its log, and checks it
    /// ([`Db::check`]) before it gets its name. For that its key is needed, if it is encrypted, and
    /// its merge operators and extractors. The storage of the builder does not count.
    pub fn open_with(mut self, builder: Builder) -> RestoreOptions<'w> {
        self.opened_by = Some(builder);
        self
    }

    /// How fast, and who is told.
    pub fn options(mut self, options: BackupOptions<'w>) -> RestoreOptions<'w> {
        self.work = options;
        self
    }

    /// Where the number in the name of an unfinished one comes from.
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> RestoreOptions<'w> {
        self.entropy = entropy;
        self
    }

    /// Where it is to be made, if that was said.
    pub(super) fn to_storage(&self) -> Option<Arc<dyn Storage>> {
        self.storage.clone()
    }

    /// What it is opened with to go on, if that was said.
    pub(super) fn builder(&self) -> Option<Builder> {
        self.goes_on_with.clone().or_else(|| self.opened_by.clone())
    }

    /// Whether it may be of this database.
    pub(super) fn asks_for_database(&self, database: u64) -> bool {
        self.database.is_none_or(|id| id == database)
    }

    /// Whether it may be on this trail.
    pub(super) fn asks_for_trail(&self, trail: u64) -> bool {
        self.trail.is_none_or(|id| id == trail)
    }
}

impl Default for RestoreOptions<'_> {
    fn default() -> Self {
        RestoreOptions::new()
    }
}

impl std::fmt::Debug for RestoreOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoreOptions").field("existing", &self.existing).finish_non_exhaustive()
    }
}

/// What came of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoredBackup {
    /// The id of the database.
    pub database: u64,
    /// The newest commit that it has.
    pub seqno: SeqNo,
    /// The number of the backup that it was made of; `None` of a stream.
    pub backup: Option<u64>,
    /// Files that the backup has.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Commits behind the backup that were done again ([`BackupRepository::restore_at`]).
    pub commits: u64,
    /// Where the rest is of a database that gave way and could not be removed, or had more in its
    /// directory than belongs to a database.
    pub left_behind: Option<PathBuf>,
}

impl BackupRepository {
    /// Makes a database of the backup of this number in the directory `target`. Durable on return.
    ///
    /// Every file is verified as it is read, and what was written of it is read back and verified.
    /// Nothing is opened unless that is asked for, so no key is needed. Costs reading the backup,
    /// writing it, and reading it again. In memory are 1 MiB and a hundred bytes a file.
    ///
    /// It is made in a directory beside `target` that has its name with `.unfinished-restore-` and
    /// a number behind it. Should the process end before it is renamed, this directory stays. It is
    /// no database, or a whole one: either the one that was to be restored, or the one that has
    /// given way to it. It can be removed.
    ///
    /// # Errors
    /// `InvalidArgument` when there is something at `target` and it was not asked to be replaced,
    /// or is no database, or `target` is within the directory of one or of backups, or there is no
    /// such backup; `Corruption` of the backup or of what was made of it; `Locked` when the
    /// database that is there is open, or somebody changes the repository; `DiskFull`, `Io`, and
    /// what opening says if it was asked for. What is at `target` is as it was, and what was made
    /// is removed as far as possible; but when the last step or its sync fails, `target` may be
    /// either, and the other one stays where this one was made (or, in two steps, where the one
    /// that gives way was put).
    pub fn restore(
        &self,
        number: u64,
        target: impl AsRef<Path>,
        options: RestoreOptions<'_>,
    ) -> Result<RestoredBackup> {
        let _lock = self.share()?;
        let list = self.read_list(number)?;
        let info: BackupInfo = info_of(list.head());
        let storage = options.storage.clone().unwrap_or_else(|| Arc::clone(&self.storage));
        let shown = StreamInfo::of(&info);
        let target = target.as_ref();
        let restored = restore_to(storage, target, options, &shown, None, |making, work| {
            self.write_all(&list, making, work)
        })?;
        Ok(RestoredBackup { backup: Some(number), ..restored })
    }

    pub(super) fn write_all(
        &self,
        list: &BackupList,
        making: &mut Making,
        work: &mut Work<'_>,
    ) -> Result<()> {
        let files = self.files();
        for entry in list.entries() {
            let mut writer = making.begin_file(entry.path, entry.content.len)?;
            let from = files.path_of(&entry.content);
            files.read(&entry.content, |piece| {
                work.advance(&from, piece.len())?;
                match writer.left() >= piece.len() as u64 {
                    true => writer.write(piece),
                    false => Err(Error::corruption(&from, 0, "it grows while it is read")),
                }
            })?;
            making.end_file(entry.path, writer, &entry.content)?;
            work.end_file(&from)?;
        }
        Ok(())
    }
}

impl<R: Read> BackupStream<R> {
    /// Makes a database of it in the directory `target`, as [`BackupRepository::restore`] does.
    /// Nothing behind the end of the stream is read.
    ///
    /// # Errors
    /// As [`BackupRepository::restore`]; `Corruption` of the stream, with the place in it.
    pub fn restore(
        mut self,
        target: impl AsRef<Path>,
        options: RestoreOptions<'_>,
    ) -> Result<RestoredBackup> {
        let storage = options.storage.clone().unwrap_or_else(|| Arc::new(OsStorage::new()));
        let info = *self.info();
        restore_to(storage, target.as_ref(), options, &info, None, |making, work| {
            while let Some((path, len)) = self.next_file()? {
                let mut writer = making.begin_file(&path, len)?;
                let content = loop {
                    match self.next_step()? {
                        StreamStep::Bytes(bytes) => {
                            writer.write(bytes)?;
                            work.advance(Path::new(&path), bytes.len())?;
                        }
                        StreamStep::Zeros(count) => {
                            writer.write_zeros(count)?;
                            work.advance(Path::new(&path), count as usize)?;
                        }
                        StreamStep::End(content) => break content,
                    }
                };
                making.end_file(&path, writer, &content)?;
                work.end_file(Path::new(&path))?;
            }
            Ok(())
        })
    }
}

/// Where a database has come to that went on from its backup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded {
    /// The newest commit.
    pub seqno: SeqNo,
    /// Commits that were done again.
    pub commits: u64,
}

/// Has a database go on from its backup, in a directory of a storage where nobody has it open.
pub(super) type Forward<'f> =
    Box<dyn FnOnce(&Arc<dyn Storage>, &Path, &mut Work<'_>) -> Result<Forwarded> + 'f>;

/// For who does that.
pub(super) fn forward_by<'f>(
    forward: impl FnOnce(&Arc<dyn Storage>, &Path, &mut Work<'_>) -> Result<Forwarded> + 'f,
) -> Option<Forward<'f>> {
    Some(Box::new(forward))
}

pub(super) fn restore_to(
    storage: Arc<dyn Storage>,
    target: &Path,
    options: RestoreOptions<'_>,
    info: &StreamInfo,
    forward: Option<Forward<'_>>,
    write_all: impl FnOnce(&mut Making, &mut Work<'_>) -> Result<()>,
) -> Result<RestoredBackup> {
    let RestoreOptions { existing, entropy, opened_by, work, .. } = options;
    let mut work = Work::begin(work);
    work.expect(info.files, info.bytes);
    expect_outside_databases(&*storage, parent_of(target), target)?;
    expect_outside_repositories(&*storage, target)?;
    let mut making = Making::begin(storage, target, existing, entropy.next_u64())?;
    let mut reached = Forwarded { seqno: info.seqno, commits: 0 };
    let made = write_all(&mut making, &mut work)
        .and_then(|()| making.read_back(&mut work))
        .and_then(|()| making.become_database(info))
        .and_then(|()| match forward {
            Some(forward) => making.go_on(forward, &mut work).map(|to| reached = to),
            None => Ok(()),
        })
        .and_then(|()| opened_by.map_or(Ok(()), |builder| making.open(builder)))
        .and_then(|()| making.take_place());
    match made {
        Ok(left_behind) => Ok(RestoredBackup {
            database: info.database,
            seqno: reached.seqno,
            backup: None,
            files: info.files,
            bytes: info.bytes,
            commits: reached.commits,
            left_behind,
        }),
        Err(error) => {
            making.take_back();
            Err(error)
        }
    }
}

/// A database within a repository would be none of its files, and nobody would look for it there.
/// It goes by what is there, whatever leads to it.
///
/// # Errors
/// `InvalidArgument` for such a target; `Io`.
fn expect_outside_repositories(storage: &dyn Storage, target: &Path) -> Result<()> {
    let Some(resolved) = resolve_nearest(storage, parent_of(target))? else { return Ok(()) };
    for dir in resolved.ancestors() {
        if exists(storage, &dir.join(MARKER))? {
            let (target, dir) = (target.display(), dir.display());
            let what = format!("{target} is in a directory with backups, {dir}");
            return Err(Error::invalid(what));
        }
    }
    Ok(())
}

/// A database that is being made of a backup.
#[derive(Debug)]
pub(super) struct Making {
    storage: Arc<dyn Storage>,
    target: PathBuf,
    /// The directory that the target is in.
    parent: PathBuf,
    /// What the target is called.
    name: String,
    /// Where it is made.
    root: PathBuf,
    /// Whether that is ours.
    is_made: bool,
    /// Of the database that is to give way: held, so that nobody opens it.
    gives_way: Option<Box<dyn StorageLock>>,
    /// Its own: held until its name is durable, so that nobody writes to it before.
    own_lock: Option<Box<dyn StorageLock>>,
    dirs: BTreeSet<PathBuf>,
    files: Vec<(PathBuf, Content)>,
    /// Manifests, which have another name yet.
    manifests: Vec<PathBuf>,
}

impl Making {
    fn begin(
        storage: Arc<dyn Storage>,
        target: &Path,
        existing: Existing,
        drawn: u64,
    ) -> Result<Making> {
        let name = target.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::invalid(format!("{} is no name for a database", target.display()))
        })?;
        let name = name.to_owned();
        let parent = parent_of(target).to_owned();
        let gives_way = match (exists(&*storage, target)?, existing) {
            (false, _) => None,
            (true, Existing::Refused) => return Err(taken(target)),
            (true, Existing::Replaced) => {
                if is_elsewhere(&*storage, target)? {
                    let what = format!("{} is a link: name what it leads to", target.display());
                    return Err(Error::invalid(what));
                }
                if !Manifest::exists(&*storage, target)? {
                    let shown = target.display();
                    return Err(Error::invalid(format!("what is at {shown} is no database")));
                }
                let lock = lock_directory(&*storage, target)?;
                refuse_followed(&*storage, target)?;
                Some(lock)
            }
        };
        if !exists(&*storage, &parent)? {
            make_directory(&*storage, &parent)?;
        }
        let root = target.with_file_name(format!("{name}{UNFINISHED_RESTORE}{drawn:016x}"));
        let made = storage.create_dir(&root);
        // One that is there by chance is somebody else's.
        let is_made = !matches!(&made, Err(error) if error.kind() == ErrorKind::AlreadyExists);
        let mut making = Making {
            storage,
            target: target.to_owned(),
            parent,
            name,
            dirs: BTreeSet::from([root.clone()]),
            root,
            is_made,
            gives_way,
            own_lock: None,
            files: Vec::new(),
            manifests: Vec::new(),
        };
        made.map_err(|error| Error::io("create", &making.root, error))?;
        making.lock()?;
        Ok(making)
    }

    fn lock(&mut self) -> Result<()> {
        self.own_lock = Some(lock_directory(&*self.storage, &self.root)?);
        Ok(())
    }

    fn begin_file(&mut self, path: &str, len: u64) -> Result<HashedWriter> {
        let at = match Manifest::is_name(path) {
            true => {
                let at = self.root.join(path);
                self.manifests.push(at.clone());
                not_yet(&at)
            }
            false => self.root.join(path),
        };
        let above = at.ancestors().skip(1).take_while(|dir| **dir != *self.root);
        let above: Vec<PathBuf> = above.map(Path::to_owned).collect();
        above.into_iter().rev().try_for_each(|dir| self.have_dir(dir))?;
        HashedWriter::create(&*self.storage, at, len, zeros_of(path))
    }

    fn have_dir(&mut self, dir: PathBuf) -> Result<()> {
        if !self.dirs.contains(&dir) {
            let made = self.storage.create_dir(&dir);
            made.map_err(|error| Error::io("create", &dir, error))?;
            self.dirs.insert(dir);
        }
        Ok(())
    }

    fn end_file(&mut self, path: &str, writer: HashedWriter, expected: &Content) -> Result<()> {
        let at = writer.path().to_owned();
        if writer.left() > 0 || writer.finish()? != *expected {
            let what = format!("{path} was not written as it was read");
            return Err(Error::corruption(&at, 0, what));
        }
        self.files.push((at, *expected));
        Ok(())
    }

    /// Makes names durable, and looks whether files are what they were to be.
    fn read_back(&mut self, work: &mut Work<'_>) -> Result<()> {
        // Those that every database has durably, and that no file says.
        LASTING_DIRS.iter().try_for_each(|dir| self.have_dir(self.root.join(dir)))?;
        self.dirs.iter().try_for_each(|dir| self.sync_dir(dir))?;
        for (path, expected) in &self.files {
            let file = self.storage.open(path, OpenMode::ReadOnly);
            let file = file.map_err(|error| Error::io("open", path, error))?;
            let found = read_all(&*file, path, |piece| {
                debug_assert!(piece.len() <= PIECE_LEN);
                work.keep_pace(piece.len());
                Ok(())
            })?;
            if found != *expected {
                return Err(Error::corruption(path, 0, "it is not what was written"));
            }
        }
        Ok(())
    }

    /// Q4.
    fn become_database(&mut self, info: &StreamInfo) -> Result<()> {
        let wrong = |what: String| Err(Error::corruption(&self.root, 0, what));
        let [manifest] = &self.manifests[..] else {
            return wrong(format!("the backup has {} manifests", self.manifests.len()));
        };
        let unfinished = not_yet(manifest);
        let renamed = self.storage.rename_new(&unfinished, manifest);
        renamed.map_err(|error| Error::io("rename", &unfinished, error))?;
        self.sync_dir(&self.root)?;
        self.sync_dir(&self.parent)?; // What gives way must not go before this is there for good.
        let (found, expected) = (Manifest::database_in(&*self.storage, &self.root)?, info.database);
        if found != expected {
            return wrong(format!("it is the database {found:016x}, not {expected:016x}"));
        }
        Ok(())
    }

    fn go_on(&mut self, forward: Forward<'_>, work: &mut Work<'_>) -> Result<Forwarded> {
        self.own_lock = None;
        let reached = forward(&self.storage, &self.root, work)?;
        self.lock()?;
        Ok(reached)
    }

    fn open(&mut self, builder: Builder) -> Result<()> {
        self.own_lock = None;
        let builder = builder.storage(Arc::clone(&self.storage)).existing(OpenExisting::Only);
        let db: Db = builder.open(&self.root)?;
        let report = db.check();
        db.close()?;
        match report?.problems.first() {
            None => self.lock(),
            Some(problem) => {
                let what = format!("the restored database is not sound: {problem}");
                Err(Error::corruption(&self.root, 0, what))
            }
        }
    }

    /// Gives it the name that was asked for; what had it goes. Where there is a rest of that.
    fn take_place(&mut self) -> Result<Option<PathBuf>> {
        let Some(lock) = self.gives_way.take() else {
            self.rename(&self.root, &self.target)?;
            self.is_made = false;
            return self.sync_dir(&self.parent).map(|()| None);
        };
        // Who follows what gives way would be led to this. What is left of others is in the way.
        refuse_followed(&*self.storage, &self.target)?;
        let_go_of_unneeded(&*self.storage, &self.target)?;
        let exchanged = self.storage.exchange(&self.root, &self.target);
        let old = match exchanged {
            Ok(()) => self.root.clone(),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.rename_both().inspect_err(|_| {
                    // Unless the one that was there is there again, both stay.
                    self.is_made = exists(&*self.storage, &self.target).unwrap_or(false);
                })?
            }
            Err(error) => {
                // Else which of the two it is, is not known for certain.
                self.is_made = is_of_mount_point(&error);
                return Err(Error::io("exchange", &self.target, error));
            }
        };
        self.is_made = false; // It is what has given way.
        self.sync_dir(&self.parent)?;
        let is_gone = remove_database(&*self.storage, &old);
        drop(lock);
        Ok((!matches!(is_gone, Ok(true))).then_some(old))
    }

    /// In two steps. Where what has given way is.
    fn rename_both(&self) -> Result<PathBuf> {
        let before = self.target.with_file_name(format!("{}{BEFORE_RESTORE}", self.name));
        self.rename(&self.target, &before)?;
        if let Err(error) = self.rename(&self.root, &self.target) {
            if self.rename(&before, &self.target).is_ok() {
                let _it_is_there_all_the_same = self.sync_dir(&self.parent);
            }
            return Err(error);
        }
        Ok(before)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let Err(error) = self.storage.rename_new(from, to) else { return Ok(()) };
        match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory => {
                return Err(taken(to));
            }
            _ => {}
        }
        // Done, and the answer lost, as it happens with file systems that are elsewhere.
        let exists = |path| self.storage.exists(path).ok();
        match (exists(from), exists(to)) {
            (Some(false), Some(true)) => Ok(()),
            _ => Err(Error::io("rename", from, error)),
        }
    }

    /// As far as it goes: first that it could be taken for a database.
    fn take_back(&mut self) {
        self.own_lock = None;
        let is_made = std::mem::replace(&mut self.is_made, false);
        if is_made && remove_manifests(&*self.storage, &self.root).is_ok() {
            let _stays_if_it_fails = remove_tree(&*self.storage, &self.root);
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.storage.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))
    }
}

/// Also when whoever is told of the progress panics.
impl Drop for Making {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Whether a name cannot be another's since something is mounted there: nothing has changed.
fn is_of_mount_point(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ResourceBusy | ErrorKind::CrossesDevices)
}

/// What a manifest is called that is not to be opened yet.
fn not_yet(manifest: &Path) -> PathBuf {
    let mut name = manifest.as_os_str().to_owned();
    name.push(NOT_YET);
    PathBuf::from(name)
}

/// Runs, tables and values have holes where nothing is any more. All else is made as it was, with
/// room for what is written there later.
fn zeros_of(path: &str) -> Zeros {
    let Some((dir, name)) = path.rsplit_once('/') else { return Zeros::Written };
    let is_log = || is_log_name("index", name) || is_log_name("tables", name);
    match dir == "values" || (dir.starts_with("keyspaces/") && !is_log()) {
        true => Zeros::LeftOut,
        false => Zeros::Written,
    }
}

/// Whether the last part of the path leads somewhere else: then the name is not the directory.
fn is_elsewhere(storage: &dyn Storage, path: &Path) -> Result<bool> {
    let resolve = |path: &Path| {
        let resolved = storage.resolve(path);
        resolved.map_err(|error| Error::io("look for", path, error))
    };
    let (found, parent) = (resolve(path)?, resolve(parent_of(path))?);
    Ok(path.file_name().is_some_and(|name| found != parent.join(name)))
}

fn exists(storage: &dyn Storage, path: &Path) -> Result<bool> {
    storage.exists(path).map_err(|error| Error::io("look for", path, error))
}

fn taken(path: &Path) -> Error {
    Error::invalid(format!("there is something at {} already", path.display()))
}

fn is_own_file(name: &str) -> bool {
    OWN_FILES.contains(&name) || is_trail_marker(name)
}

/// Removes what belongs to a database, its manifest first and durably, so that no part of it looks
/// like one. Whether nothing is left.
///
/// # Errors
/// `Io`: some of it may be gone.
fn remove_database(storage: &dyn Storage, root: &Path) -> Result<bool> {
    remove_manifests(storage, root)?;
    let mut is_all = true;
    for entry in storage.list_dir(root).map_err(|error| Error::io("list", root, error))? {
        let path = root.join(&entry.name);
        match entry.entry_type {
            EntryType::Directory if OWN_DIRS.contains(&&*entry.name) => {
                remove_tree(storage, &path)?;
            }
            EntryType::File if is_own_file(&entry.name) => {
                let removed = storage.remove_file(&path);
                removed.map_err(|error| Error::io("remove", &path, error))?;
            }
            _ => is_all = false,
        }
    }
    if is_all {
        storage.remove_dir(root).map_err(|error| Error::io("remove", root, error))?;
    }
    Ok(is_all)
}

/// Durable on return.
fn remove_manifests(storage: &dyn Storage, root: &Path) -> Result<()> {
    let is_manifest = |name: &str| Manifest::is_name(name.strip_suffix(NOT_YET).unwrap_or(name));
    for entry in storage.list_dir(root).map_err(|error| Error::io("list", root, error))? {
        if is_manifest(&entry.name) {
            let path = root.join(&entry.name);
            let removed = storage.remove_file(&path);
            removed.map_err(|error| Error::io("remove", &path, error))?;
        }
    }
    storage.sync_dir(root).map_err(|error| Error::io("sync", root, error))
}
