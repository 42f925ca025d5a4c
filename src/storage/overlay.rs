//! Another storage's directory, changed in memory alone: for a database that is opened to be read.
//!
//! Opening has much to put right after a crash: logs to cut, files to remove, edits to note. Above
//! an overlay it does so as ever, and what is below stays as it was, to the byte: files are opened
//! for reading there, whatever for, and nothing else is asked of it but names. Owns the
//! names below one directory, as they were when it was made, and the pages that were changed since.
//! Above a directory that somebody writes to ([`Overlay::beside`]), names are looked for when they
//! are asked for, and those of directories no more from [`Overlay::let_names_stand`] on. Must not
//! know what the files are.
//!
//! Invariants
//! - O1  Nothing below is changed.
//! - O2  Whoever has a file open has the same [`Changed`]: changes are seen by all.
//! - O3  A file with several names below is several files above: none is changed below, so only
//!   who changes it by one name and reads it by another could tell.
//! - O4  A file that nobody has changed above is what it is below at the time, its length too.
//!   Once it was changed, or [its front was kept](StorageFile::keep_front), it has the length that
//!   it had then, and what comes to be behind that front below does not show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::content::check_range;
use super::names::{Names, NodeId};
use super::{DirEntry, EntryType, OpenMode, Storage, StorageFile, StorageLock, not_writable};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// What is changed is kept in such pages.
const PAGE_SIZE: usize = 4096;
const PAGE: u64 = PAGE_SIZE as u64;

/// Levels of directories that are listed behind a link: what a database has in one of its own.
const LEVELS_BEHIND_LINKS: usize = 2;

type Page = Box<[u8; PAGE_SIZE]>;

/// A directory of another storage, with changes in memory.
pub(crate) struct Overlay {
    below: Arc<dyn Storage>,
    root: PathBuf,
    /// Whether somebody else changes what is below.
    is_beside: bool,
    /// Whether what is new in a directory below does not show there any more.
    names_stand: AtomicBool,
    tree: Mutex<Tree>,
}

/// What there is, by its number.
struct Tree {
    names: Names,
    /// What was removed here, and may still be below.
    removed: BTreeSet<PathBuf>,
    /// Where a file is that was there from the beginning.
    below: BTreeMap<NodeId, PathBuf>,
    /// What was opened to be changed.
    changed: BTreeMap<NodeId, Arc<Changed>>,
    /// What was only read so far: as long as somebody has it open, as those below may not be many.
    read: BTreeMap<NodeId, Weak<Changed>>,
}

/// Whether it can be listed, by whoever follows links.
fn is_directory(below: &dyn Storage, path: &Path) -> bool {
    below.list_dir(path).is_ok()
}

impl Overlay {
    /// Above the directory `root` of a storage, as its names are now: nobody may be changing them.
    /// A link to a directory shows as one, with what is in it and in its directories, but no
    /// further: it may lead anywhere.
    ///
    /// # Errors
    /// What listing the directories gives.
    pub(crate) fn new(below: Arc<dyn Storage>, root: &Path) -> io::Result<Overlay> {
        let mut tree = Tree::new();
        // With how many levels there are still to be listed.
        let mut to_visit = vec![(PathBuf::new(), usize::MAX)];
        while let Some((directory, levels)) = to_visit.pop() {
            let is_behind_link = levels <= LEVELS_BEHIND_LINKS;
            for DirEntry { name, entry_type } in below.list_dir(&root.join(&directory))? {
                let path = directory.join(name);
                let levels = match entry_type {
                    EntryType::File => 0,
                    EntryType::Directory => levels - 1,
                    EntryType::Other if is_behind_link => 0,
                    EntryType::Other => LEVELS_BEHIND_LINKS,
                };
                // What cannot be listed behind a link need not be the database's.
                let is_sure = entry_type == EntryType::Directory && !is_behind_link;
                if levels > 0 && (is_sure || is_directory(&*below, &root.join(&path))) {
                    tree.names.create_dir_all(&path, &mut Vec::new())?;
                    to_visit.push((path, levels));
                } else {
                    tree.take_up(root, &path)?;
                }
            }
        }
        Ok(Overlay {
            below,
            root: root.to_path_buf(),
            is_beside: false,
            names_stand: AtomicBool::new(true),
            tree: Mutex::new(tree),
        })
    }

    /// Above the directory `root` of a storage, to which somebody else writes.
    pub(crate) fn beside(below: Arc<dyn Storage>, root: &Path) -> Overlay {
        Overlay {
            below,
            root: root.to_path_buf(),
            is_beside: true,
            names_stand: AtomicBool::new(false),
            tree: Mutex::new(Tree::new()),
        }
    }

    /// Has directories show what they have shown up to now. Files below are still found by their
    /// names.
    pub(crate) fn let_names_stand(&self) {
        self.names_stand.store(true, Ordering::Release);
    }

    /// Takes up what is new in a directory below, if that is to show.
    fn look_into(&self, directory: &Path) -> io::Result<()> {
        if !self.is_beside || self.names_stand.load(Ordering::Acquire) {
            return Ok(());
        }
        let listed = match self.below.list_dir(&self.root.join(directory)) {
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => return Ok(()),
                _ => return Err(error),
            },
            Ok(listed) => listed,
        };
        let mut tree = self.tree();
        if !tree.removed.contains(directory) {
            tree.names.create_dir_all(directory, &mut Vec::new())?;
        }
        if tree.names.directory_at(directory).is_err() {
            return Ok(());
        }
        for DirEntry { name, entry_type } in listed {
            let path = directory.join(name);
            if tree.removed.contains(&path) || tree.names.exists(&path)? {
                continue;
            }
            let shows_as_directory = match entry_type {
                EntryType::Directory => true,
                EntryType::File => false,
                EntryType::Other => is_directory(&*self.below, &self.root.join(&path)),
            };
            if shows_as_directory {
                tree.names.create_dir_all(&path, &mut Vec::new())?;
            } else {
                tree.take_up(&self.root, &path)?;
            }
        }
        Ok(())
    }

    /// Takes up a file below that is asked for by its name, also if it was removed here: who asks
    /// for it knows that it is needed.
    fn look_for(&self, own: &Path) -> io::Result<()> {
        if !self.is_beside || !self.below.exists(&self.root.join(own))? {
            return Ok(());
        }
        let mut tree = self.tree();
        if !tree.names.exists(own)? {
            let directory = own.parent().unwrap_or(Path::new(""));
            tree.names.create_dir_all(directory, &mut Vec::new())?;
            tree.take_up(&self.root, own)?;
        }
        tree.removed.remove(own);
        Ok(())
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // The tree is whole between any two statements that can panic.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A path as the names have it; none for what is not below the root.
    fn own<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.root).ok()
    }

    /// As [`Overlay::own`], for what changes something.
    fn own_to_change<'p>(&self, path: &'p Path) -> io::Result<&'p Path> {
        self.own(path).ok_or_else(not_writable)
    }
}

impl Tree {
    fn new() -> Tree {
        Tree {
            names: Names::new(),
            removed: BTreeSet::new(),
            below: BTreeMap::new(),
            changed: BTreeMap::new(),
            read: BTreeMap::new(),
        }
    }

    /// Has a file below show by its name.
    fn take_up(&mut self, root: &Path, own: &Path) -> io::Result<()> {
        let (node, _) = self.names.create_file(own)?;
        self.below.insert(node.id, root.join(own));
        Ok(())
    }

    /// The file of this number, opened.
    fn opened(
        &mut self,
        below: &dyn Storage,
        id: NodeId,
        mode: OpenMode,
    ) -> io::Result<Arc<Changed>> {
        if let Some(changed) = self.changed.get(&id) {
            return Ok(Arc::clone(changed));
        }
        let file = match self.read.get(&id).and_then(Weak::upgrade) {
            Some(file) => file,
            None => Arc::new(Changed::of(self.below.get(&id), below)?),
        };
        match mode {
            OpenMode::ReadOnly => drop(self.read.insert(id, Arc::downgrade(&file))),
            OpenMode::CreateNew | OpenMode::ReadWrite => {
                self.read.remove(&id);
                self.changed.insert(id, Arc::clone(&file));
            }
        }
        Ok(file)
    }

    /// Forgets a file that has lost its last name; who has it open keeps it.
    fn release(&mut self, id: NodeId) {
        if !self.names.is_named(id) {
            self.below.remove(&id);
            self.changed.remove(&id);
            self.read.remove(&id);
        }
    }
}

impl Storage for Overlay {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let Some(own) = self.own(path) else {
            return match mode {
                OpenMode::ReadOnly => self.below.open(path, mode),
                OpenMode::CreateNew | OpenMode::ReadWrite => Err(not_writable()),
            };
        };
        let is_known = mode == OpenMode::CreateNew || self.tree().names.exists(own)?;
        if !is_known {
            self.look_for(own)?;
        }
        let mut tree = self.tree();
        let id = match mode {
            OpenMode::CreateNew => tree.names.create_file(own)?.0.id,
            OpenMode::ReadWrite | OpenMode::ReadOnly => tree.names.find_file(own)?,
        };
        Ok(Arc::new(OverlayFile { changed: tree.opened(&*self.below, id, mode)?, mode }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.tree().names.create_dir_all(self.own_to_change(path)?, &mut Vec::new())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.tree().names.create_dir(self.own_to_change(path)?).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.tree();
        let renamed = tree.names.rename(self.own_to_change(from)?, self.own_to_change(to)?)?;
        if let Some(replaced) = renamed.and_then(|renamed| renamed.replaced) {
            tree.release(replaced.id);
        }
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.own_to_change(from)?, self.own_to_change(to)?);
        self.tree().names.rename_new(from, to).map(drop)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let (one, other) = (self.own_to_change(one)?, self.own_to_change(other)?);
        self.tree().names.exchange(one, other).map(drop)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.own_to_change(from)?, self.own_to_change(to)?);
        self.tree().names.link(from, to).map(drop)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let own = self.own_to_change(path)?;
        if !self.tree().names.exists(own)? {
            self.look_for(own)?;
        }
        let mut tree = self.tree();
        let (node, _) = tree.names.remove_file(own)?;
        tree.release(node.id);
        if self.is_beside {
            tree.removed.insert(own.to_owned());
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let own = self.own_to_change(path)?;
        let mut tree = self.tree();
        tree.names.remove_dir(own)?;
        if self.is_beside {
            tree.removed.insert(own.to_owned());
        }
        Ok(())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        match self.own(path) {
            Some(own) => {
                self.look_into(own)?;
                self.tree().names.list(own)
            }
            None => self.below.list_dir(path),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match self.own(path) {
            Some(own) => self.tree().names.directory_at(own).map(drop),
            None => Ok(()),
        }
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn StorageLock>> {
        Err(not_writable())
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn StorageLock>> {
        self.below.lock_shared(path)
    }

    fn is_beside(&self) -> bool {
        self.is_beside
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.own(path) {
            Some(own) => {
                let tree = self.tree();
                let is_here = tree.names.exists(own)?;
                if is_here || !self.is_beside || tree.removed.contains(own) {
                    return Ok(is_here);
                }
                drop(tree);
                self.below.exists(path)
            }
            None => self.below.exists(path),
        }
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        match self.own(path) {
            Some(own) => self.tree().names.resolve(own).map(|_| path.to_owned()),
            None => self.below.resolve(path),
        }
    }

    fn room(&self, path: &Path) -> io::Result<Option<u64>> {
        match self.own(path) {
            Some(_) => Ok(None), // It is in memory.
            None => self.below.room(path),
        }
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.tree().changed.len();
        f.debug_struct("Overlay").field("root", &self.root).field("changed", &changed).finish()
    }
}

/// A file that may have been changed.
struct Changed {
    /// None for one that was made above.
    below: Option<Arc<dyn StorageFile>>,
    state: RwLock<State>,
}

/// How it differs from what is below.
struct State {
    /// Whether it does not differ: then this is of no account.
    is_as_below: bool,
    len: u64,
    /// So many bytes of what is below are still part of it, where no page lies on them; at most
    /// `len`.
    shown: u64,
    pages: BTreeMap<u64, Page>,
}

impl Changed {
    /// A file that is as it is below, or empty.
    fn of(path: Option<&PathBuf>, below: &dyn Storage) -> io::Result<Changed> {
        let file = path.map(|path| below.open(path, OpenMode::ReadOnly)).transpose()?;
        let len = file.as_ref().map_or(Ok(0), |file| file.size())?;
        let is_as_below = file.is_some();
        let state = RwLock::new(State { is_as_below, len, shown: len, pages: BTreeMap::new() });
        Ok(Changed { below: file, state })
    }

    /// The file below, as long as this is no other (O4).
    fn as_below(&self, state: &State) -> Option<&Arc<dyn StorageFile>> {
        self.below.as_ref().filter(|_| state.is_as_below)
    }

    /// Has it differ from now on (O4).
    fn begin_changing(&self, state: &mut State) -> io::Result<()> {
        if let Some(below) = self.as_below(state) {
            let len = below.size()?;
            (state.len, state.shown, state.is_as_below) = (len, len, false);
        }
        Ok(())
    }

    /// Reads what there is of `buffer.len()` bytes at `offset`.
    fn read(&self, state: &State, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(below) = self.as_below(state) {
            return below.read_at(buffer, offset);
        }
        let available = state.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..available];
        let shown = state.shown.saturating_sub(offset).min(available as u64) as usize;
        let end = offset + available as u64;
        let touched = offset / PAGE..end.div_ceil(PAGE);
        let pages = || state.pages.range(touched.clone());
        if let Some(below) = self.below.as_ref().filter(|_| shown > 0) {
            let needed = touched.start..(offset + shown as u64).div_ceil(PAGE);
            let is_covered =
                state.pages.range(needed.clone()).count() as u64 == needed.end - needed.start;
            if !is_covered {
                below.read_exact_at(&mut buffer[..shown], offset)?;
            }
        }
        buffer[shown..].fill(0);
        for (&index, page) in pages() {
            let start = (index * PAGE).max(offset);
            let stop = ((index + 1) * PAGE).min(end);
            let of_page = (start - index * PAGE) as usize..(stop - index * PAGE) as usize;
            let of_buffer = (start - offset) as usize..(stop - offset) as usize;
            buffer[of_buffer].copy_from_slice(&page[of_page]);
        }
        Ok(available)
    }

    /// Writes at `offset`, extending the file if need be. In each page, from a function that is
    /// given what is there and where the bytes of the page begin in all that is written.
    fn change(&self, offset: u64, size: usize, fill: impl Fn(&mut [u8], usize)) -> io::Result<()> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        self.begin_changing(&mut state)?;
        let end = offset + size as u64;
        let mut at = offset;
        while at < end {
            let index = at / PAGE;
            let stop = ((index + 1) * PAGE).min(end);
            if !state.pages.contains_key(&index) {
                let mut page: Page = Box::new([0; PAGE_SIZE]);
                self.read(&state, &mut page[..], index * PAGE)?;
                state.pages.insert(index, page);
            }
            let page = state.pages.get_mut(&index).expect("it was put there if it was not");
            let of_page = (at - index * PAGE) as usize..(stop - index * PAGE) as usize;
            fill(&mut page[of_page], (at - offset) as usize);
            at = stop;
        }
        if size > 0 {
            state.len = state.len.max(end);
        }
        Ok(())
    }
}

impl State {
    /// Cuts, or extends with zeros.
    fn set_len(&mut self, len: u64) {
        self.shown = self.shown.min(len);
        self.len = len;
        drop(self.pages.split_off(&len.div_ceil(PAGE)));
        let used = (len % PAGE) as usize;
        if used > 0
            && let Some(page) = self.pages.get_mut(&(len / PAGE))
        {
            page[used..].fill(0);
        }
    }
}

/// A file that may have been changed, opened.
struct OverlayFile {
    changed: Arc<Changed>,
    mode: OpenMode,
}

impl OverlayFile {
    fn check_writable(&self) -> io::Result<()> {
        match self.mode {
            OpenMode::ReadOnly => Err(not_writable()),
            OpenMode::CreateNew | OpenMode::ReadWrite => Ok(()),
        }
    }

    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.changed.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_len_to(&self, new: impl FnOnce(u64) -> u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.changed.state.write().unwrap_or_else(PoisonError::into_inner);
        self.changed.begin_changing(&mut state)?;
        let len = new(state.len);
        state.set_len(len);
        Ok(())
    }
}

impl fmt::Debug for OverlayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.look(|state| state.len);
        f.debug_struct("OverlayFile").field("size", &size).field("mode", &self.mode).finish()
    }
}

impl StorageFile for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        check_range(offset, buffer.len() as u64)?;
        self.look(|state| self.changed.read(state, buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        check_range(offset, bytes.len() as u64)?;
        self.check_writable()?;
        self.changed.change(offset, bytes.len(), |page, from| {
            page.copy_from_slice(&bytes[from..from + page.len()]);
        })?;
        Ok(bytes.len())
    }

    fn size(&self) -> io::Result<u64> {
        self.look(|state| match self.changed.as_below(state) {
            Some(below) => below.size(),
            None => Ok(state.len),
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        check_range(0, len)?;
        self.set_len_to(|_| len)
    }

    /// There is nothing to reserve.
    fn preallocate(&self, len: u64) -> io::Result<()> {
        check_range(0, len)?;
        self.set_len_to(|now| now.max(len))
    }

    fn punch_hole(&self, offset: u64, size: u64) -> io::Result<()> {
        check_range(offset, size)?;
        self.check_writable()?;
        let end = self.size()?.min(offset + size);
        let size = end.saturating_sub(offset) as usize;
        self.changed.change(offset, size, |page, _| page.fill(0))
    }

    fn begin_read(&self, offset: u64, size: u64) {
        if let Some(below) = &self.changed.below {
            below.begin_read(offset, size);
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn keep_front(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.changed.state.write().unwrap_or_else(PoisonError::into_inner);
        self.changed.begin_changing(&mut state)?;
        let whole = state.len;
        state.set_len(len.min(whole));
        state.len = whole; // And zeros behind that.
        Ok(())
    }
}
