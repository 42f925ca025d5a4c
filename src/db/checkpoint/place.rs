//! Placing: a cut becomes files in a directory of their own, by links where that can be.
//!
//! First everything is linked that can be, which takes no time to speak of; what is linked nobody
//! has to hold any more. Then the rest is copied, and each log file, store and value file is let go
//! when its own turn is over: a copy may take hours, and must not hold the log, or what compaction
//! replaces meanwhile, for longer than it has to.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cut::{Cut, StoreCut, ValueCut};
use super::target::Place;
use super::{CheckpointReport, exists_already};
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};
use crate::db::core::{Core, keyspace_dir, keyspaces_dir};
use crate::db::encryption::keyring_path;
use crate::db::open::{LOG_DIR, VALUES_DIR};
use crate::manifest::EditLogImage;
use crate::storage::{
    CopyShape, OpenMode, StorageFile, Zeros, copy_into, is_shared, make_directory, try_link,
};
use crate::structure::{FileImage, Held, Store};
use crate::wal::{LogFileImage, LogImage};

/// How many numbers are tried for the directory that it is made in.
const ATTEMPTS_MAX: u32 = 16;

/// Whether files get another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Links {
    /// It is not known yet.
    Untried,
    Made,
    /// The storage makes them and does not say how many names a file has: the database would not
    /// know what it must leave alone (P4).
    Unaccounted,
}

/// A checkpoint that is being made.
#[derive(Debug)]
pub(super) struct Placing<'c> {
    core: &'c Core,
    place: Place,
    /// The directory that it is made in.
    root: PathBuf,
    links: Links,
    /// What was made, in this order (P5).
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    pub report: CheckpointReport,
}

/// What is to be copied of a store.
#[derive(Debug)]
struct StoreRest {
    number: u32,
    index: EditLogImage,
    files: Vec<FileImage>,
    /// What keeps the files, if there are any.
    _held: Option<(Box<dyn Held>, Arc<dyn Store>)>,
}

impl<'c> Placing<'c> {
    /// Makes the directory.
    ///
    /// # Errors
    /// `InvalidArgument`, `DiskFull`, `Io`: nothing was made but directories above it.
    pub(super) fn begin(core: &'c Core, place: Place) -> Result<Placing<'c>> {
        let parent = place.parent();
        let is_there = core.storage.exists(parent);
        if !is_there.map_err(|error| Error::io("look for", parent, error))? {
            make_directory(&*core.storage, parent)?;
            place.expect_outside_databases(core)?; // Now there is no doubt about where it is.
        }
        let (root, report) = (PathBuf::new(), CheckpointReport::default());
        let (files, dirs, links) = (Vec::new(), Vec::new(), Links::Untried);
        let mut placing = Placing { core, place, root, links, files, dirs, report };
        match placing.make_root() {
            Ok(()) => Ok(placing),
            Err(error) => {
                placing.take_back();
                Err(error)
            }
        }
    }

    /// Makes all files, durably, in the directory that says that it is unfinished.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Closed`.
    pub(super) fn place(&mut self, cut: Cut) -> Result<()> {
        let Cut { seqno, as_of, manifest, keyring, stores, values, log } = cut;
        (self.report.seqno, self.report.as_of) = (seqno, as_of);
        let root = self.root.clone();
        let (log_dir, values_dir) = (root.join(LOG_DIR), root.join(VALUES_DIR));
        self.make_dir(&log_dir)?;
        self.make_dir(&keyspaces_dir(&root))?;
        stores.iter().try_for_each(|store| self.make_dir(&keyspace_dir(&root, store.number)))?;
        if !values.is_empty() {
            self.make_dir(&values_dir)?;
        }
        let log = self.link_log(log, &log_dir)?;
        let linked = stores.into_iter().map(|store| self.link_store(store, &root));
        let stores = linked.collect::<Result<Vec<StoreRest>>>()?;
        let values = self.link_values(values, &values_dir)?;
        // By value: each is let go behind its turn.
        log.into_iter().try_for_each(|file| self.copy_log_file(&file, &log_dir))?;
        stores.into_iter().try_for_each(|store| self.copy_store(&store, &root))?;
        values.into_iter().try_for_each(|file| self.copy_values(&file, &values_dir))?;
        keyring.map_or(Ok(()), |bytes| self.write_keyring(&bytes))?;
        for dir in self.dirs.iter().rev().filter(|_| !is_seeded(Bug::CheckpointNamesNotSynced)) {
            self.sync_dir(dir)?;
        }
        self.place_manifest(&manifest)
    }

    /// P6: it gets its name when all of it is durable, as everything else is.
    fn place_manifest(&mut self, log: &EditLogImage) -> Result<()> {
        let (unfinished, named) =
            (self.root.join(log.unfinished_name()), self.name_in(&self.root, &log.path)?);
        self.copy_edits(log, &unfinished)?;
        let renamed = self.core.storage.rename_new(&unfinished, &named);
        if has_perhaps_made(&renamed) {
            self.files.push(named);
        }
        renamed.map_err(|error| Error::io("rename", &unfinished, error))?;
        self.sync_dir(&self.root)
    }

    /// Gives what is whole and durable the name that was asked for.
    ///
    /// # Errors
    /// As [`Self::place`]; `InvalidArgument` when there is something of that name by now. `Io` of a
    /// sync: it has the name.
    pub(super) fn give_name(&mut self) -> Result<()> {
        let (root, target) = (&self.root, self.place.target());
        // What was linked and copied behind that may be another opening's.
        self.core.check_open()?;
        match self.core.storage.rename_new(root, target) {
            Ok(()) => {}
            Err(error) => match error.kind() {
                ErrorKind::AlreadyExists
                | ErrorKind::DirectoryNotEmpty
                | ErrorKind::NotADirectory => return Err(exists_already(target)),
                // Done, and the answer lost, as it happens with file systems that are elsewhere.
                _ if self.has_name() => {}
                _ => return Err(Error::io("rename", root, error)),
            },
        }
        (self.files, self.dirs) = (Vec::new(), Vec::new()); // They are not ours any more.
        self.sync_dir(self.place.parent())
    }

    /// Whether it is known to have the name that was asked for.
    fn has_name(&self) -> bool {
        let exists = |path| self.core.storage.exists(path).ok();
        exists(&*self.root) == Some(false) && exists(self.place.target()) == Some(true)
    }

    /// P5: removes what was made, as far as that is possible.
    pub(super) fn take_back(&mut self) {
        let storage = &*self.core.storage;
        for path in self.files.drain(..).rev() {
            let _stays_if_it_fails = storage.remove_file(&path);
        }
        for dir in self.dirs.drain(..).rev() {
            let _stays_if_it_fails = storage.remove_dir(&dir);
        }
    }

    /// One that is there by chance is somebody else's.
    fn make_root(&mut self) -> Result<()> {
        let mut made = Ok(());
        for _ in 0..ATTEMPTS_MAX {
            self.root = self.place.unfinished(self.core.entropy.next_u64());
            made = self.core.storage.create_dir(&self.root);
            if has_perhaps_made(&made) {
                self.dirs.push(self.root.clone());
                break;
            }
        }
        made.map_err(|error| Error::io("create", &self.root, error))
    }

    fn make_dir(&mut self, dir: &Path) -> Result<()> {
        let made = self.core.storage.create_dir(dir);
        if has_perhaps_made(&made) {
            self.dirs.push(dir.to_owned());
        }
        made.map_err(|error| Error::io("create", dir, error))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let synced = self.core.storage.sync_dir(dir);
        synced.map_err(|error| Error::io("sync", dir, error))
    }

    /// What the file is called in this directory.
    fn name_in(&self, dir: &Path, file: &Path) -> Result<PathBuf> {
        self.core.check_open()?; // What is read from here on may be another opening's.
        let name = file.file_name().ok_or_else(|| {
            let what = format!("{} has no name", file.display());
            Error::invalid(what)
        })?;
        Ok(dir.join(name))
    }

    /// The files that are to be copied.
    fn link_log(&mut self, log: LogImage, dir: &Path) -> Result<Vec<LogFileImage>> {
        let mut rest = Vec::new();
        for file in log.files {
            match file.head {
                None if self.link(&file.path, dir, file.size)? => {} // It may be given up (W10).
                _ => rest.push(file),
            }
        }
        Ok(rest)
    }

    fn link_store(&mut self, store: StoreCut, root: &Path) -> Result<StoreRest> {
        let StoreCut { number, image, store } = store;
        let (dir, mut files) = (keyspace_dir(root, number), Vec::new());
        for file in image.files {
            if file.is_written_to || !self.link(&file.path, &dir, file.size)? {
                files.push(file);
            }
        }
        let held = Some((image.held, store)).filter(|_| !files.is_empty());
        Ok(StoreRest { number, index: image.index, files, _held: held })
    }

    /// Those that are to be copied: what a sync may have lost is durable only when it is written
    /// again.
    fn link_values(&mut self, values: Vec<ValueCut>, dir: &Path) -> Result<Vec<ValueCut>> {
        if self.core.values.has_failed() {
            return Ok(values);
        }
        let mut rest = Vec::new();
        for cut in values {
            if cut.file.is_written_to() || !self.link(cut.file.path(), dir, cut.size)? {
                rest.push(cut);
            }
        }
        Ok(rest)
    }

    fn copy_log_file(&mut self, image: &LogFileImage, dir: &Path) -> Result<()> {
        let LogFileImage { file, path, size, head, .. } = image;
        let head = head.as_deref().unwrap_or_default();
        let shape = CopyShape { size: *size, head, ..CopyShape::default() };
        let to = self.name_in(dir, path)?;
        self.copy_whole((&**file, path), &to, &shape)
    }

    fn copy_store(&mut self, store: &StoreRest, root: &Path) -> Result<()> {
        let dir = keyspace_dir(root, store.number);
        for FileImage { path, size, .. } in &store.files {
            let source = self.open(path)?;
            let (size, zeros) = (*size, Zeros::LeftOut);
            let shape = CopyShape { size, zeros, ..CopyShape::default() };
            let to = self.name_in(&dir, path)?;
            self.copy_whole((&*source, path), &to, &shape)?;
        }
        let to = self.name_in(&dir, &store.index.path)?;
        self.copy_edits(&store.index, &to)
    }

    fn copy_values(&mut self, cut: &ValueCut, dir: &Path) -> Result<()> {
        let (path, size) = (cut.file.path(), cut.size);
        let source = self.open(path)?;
        let shape = CopyShape { size, zeros: Zeros::LeftOut, ..CopyShape::default() };
        let to = self.name_in(dir, path)?;
        let copied = self.copy((&*source, path), &to, &shape)?;
        // Its writer may have cut it meanwhile, behind all that anything points to, and written on
        // since: then it has at least what it is said to have (which is asked first).
        let said = size.min(cut.file.size());
        let is_cut_short =
            copied < said && source.size().map_err(|error| Error::io("read", path, error))? < said;
        if is_cut_short {
            return Err(Error::io("read", path, ErrorKind::UnexpectedEof.into()));
        }
        self.report.bytes += copied;
        Ok(())
    }

    fn write_keyring(&mut self, bytes: &[u8]) -> Result<()> {
        self.core.check_open()?;
        let to = keyring_path(&self.root);
        let made = self.core.storage.open(&to, OpenMode::CreateNew);
        if has_perhaps_made(&made) {
            self.files.push(to.clone());
        }
        let io = |action| {
            let to = &to;
            move |error| Error::io(action, to, error)
        };
        let file = made.map_err(io("create"))?;
        file.write_all_at(bytes, 0).map_err(io("write"))?;
        file.sync().map_err(io("sync"))?;
        let size = bytes.len() as u64;
        self.report.files += 1;
        self.report.bytes += size;
        self.report.copied_bytes += size;
        Ok(())
    }

    fn copy_edits(&mut self, log: &EditLogImage, to: &Path) -> Result<()> {
        let shape = CopyShape { size: log.size, len: log.capacity, ..CopyShape::default() };
        self.copy_whole((&*log.file, &log.path), to, &shape)
    }

    fn copy_whole(
        &mut self,
        (source, from): (&dyn StorageFile, &Path),
        to: &Path,
        shape: &CopyShape<'_>,
    ) -> Result<()> {
        if self.copy((source, from), to, shape)? < shape.size {
            return Err(Error::io("read", from, ErrorKind::UnexpectedEof.into()));
        }
        self.report.bytes += shape.size.max(shape.len);
        Ok(())
    }

    /// Makes a file of another; how many bytes were copied.
    fn copy(
        &mut self,
        (source, from): (&dyn StorageFile, &Path),
        to: &Path,
        shape: &CopyShape<'_>,
    ) -> Result<u64> {
        let made = self.core.storage.open(to, OpenMode::CreateNew);
        if has_perhaps_made(&made) {
            self.files.push(to.to_owned());
        }
        let target = made.map_err(|error| Error::io("create", to, error))?;
        let copied = copy_into((source, from), (&*target, to), shape)?;
        self.report.files += 1;
        self.report.copied_bytes += copied;
        Ok(copied)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn StorageFile>> {
        let opened = self.core.storage.open(path, OpenMode::ReadOnly);
        opened.map_err(|error| Error::io("open", path, error))
    }

    /// Gives a file of so many bytes a name in `dir`, if that can be, and the database will know of
    /// it (P4).
    fn link(&mut self, from: &Path, dir: &Path, size: u64) -> Result<bool> {
        let to = self.name_in(dir, from)?;
        if self.links == Links::Unaccounted || !self.make_link(from, &to)? {
            return Ok(false);
        }
        if self.links == Links::Untried {
            self.links = match is_shared(&*self.open(&to)?) {
                true => Links::Made,
                false => Links::Unaccounted,
            };
        }
        if self.links == Links::Unaccounted {
            let removed = self.core.storage.remove_file(&to);
            removed.map_err(|error| Error::io("remove", &to, error))?;
            self.files.pop();
            return Ok(false);
        }
        self.report.files += 1;
        self.report.linked_files += 1;
        self.report.bytes += size;
        Ok(true)
    }

    fn make_link(&mut self, from: &Path, to: &Path) -> Result<bool> {
        let made = try_link(&*self.core.storage, from, to);
        match &made {
            Ok(false) => {}
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
            _ => self.files.push(to.to_owned()),
        }
        made
    }
}

/// P5: whether a call has made what it was to make, as far as anybody knows. What was there already
/// is not ours.
fn has_perhaps_made<T>(made: &io::Result<T>) -> bool {
    !matches!(made, Err(error) if error.kind() == ErrorKind::AlreadyExists)
}
