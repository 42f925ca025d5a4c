//! The names of a file system without an operating system: directories, files, and how the calls
//! of [`Storage`](super::Storage) change them and fail.
//!
//! Owns the mapping from names to node numbers. Must not know contents, durability or locks: memory
//! and simulation add those, and share these rules, so that both answer as POSIX does.
//!
//! Invariants
//! - N1  A directory has at most one name; a file has one for each link to it.
//! - N2  `places` and `directories` say the same: an entry exists in one exactly if in the other.
//! - N3  The root has no name and always exists. Relative paths start there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::{DirEntry, EntryType};

/// The number of a file or directory, never used again within one storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u64);

/// The directory that is always there.
pub(super) const ROOT: NodeId = NodeId(0);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) entry_type: EntryType,
}

/// Where a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) directory: NodeId,
    pub(super) name: Arc<OsStr>,
}

/// What a rename did.
#[derive(Clone, Debug)]
pub(super) struct Renamed {
    pub(super) node: Node,
    pub(super) from: Place,
    pub(super) to: Place,
    /// The node that had the new name before.
    pub(super) replaced: Option<Node>,
}

/// What an exchange did: `one` has the place `to` now, and `other` has `from`.
#[derive(Clone, Debug)]
pub(super) struct Exchanged {
    pub(super) one: Node,
    pub(super) other: Node,
    pub(super) from: Place,
    pub(super) to: Place,
}

/// Names of one storage.
#[derive(Clone, Debug)]
pub(super) struct Names {
    directories: BTreeMap<NodeId, BTreeMap<Arc<OsStr>, Node>>,
    /// The oldest first; none without a name.
    places: BTreeMap<NodeId, Vec<Place>>,
    next: u64,
}

impl Names {
    /// Only the root.
    pub(super) fn new() -> Names {
        Names {
            directories: BTreeMap::from([(ROOT, BTreeMap::new())]),
            places: BTreeMap::new(),
            next: ROOT.0 + 1,
        }
    }

    /// The node at `path`.
    pub(super) fn find(&self, path: &Path) -> io::Result<Node> {
        if path.file_name().is_none() {
            let id = self.directory_at(path)?;
            return Ok(Node { id, entry_type: EntryType::Directory });
        }
        let place = self.place_at(path)?;
        self.node_at(&place).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The file at `path`.
    pub(super) fn find_file(&self, path: &Path) -> io::Result<NodeId> {
        let node = self.find(path)?;
        match node.entry_type {
            EntryType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            EntryType::File | EntryType::Other => Ok(node.id),
        }
    }

    /// The directory at `path`.
    pub(super) fn directory_at(&self, path: &Path) -> io::Result<NodeId> {
        let mut at = ROOT;
        for component in path.components() {
            match component {
                Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
                Component::ParentDir => {
                    at = self.place_of(at).map_or(ROOT, |place| place.directory);
                }
                Component::Normal(name) => {
                    let node = self.directories[&at].get(name);
                    let node = node.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                    if node.entry_type != EntryType::Directory {
                        return Err(io::ErrorKind::NotADirectory.into());
                    }
                    at = node.id;
                }
            }
        }
        Ok(at)
    }

    /// Whether there is anything at `path`.
    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.find(path) {
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Creates a file that must not exist.
    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<(Node, Place)> {
        let place = self.place_at(path)?;
        if self.node_at(&place).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = self.new_node(EntryType::File);
        self.add(node, place.clone());
        Ok((node, place))
    }

    /// Gives a file one more name, which nothing may have.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<(Node, Place)> {
        let node = self.find(from)?;
        let place = self.place_at(to)?;
        if self.node_at(&place).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if node.entry_type == EntryType::Directory {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.add(node, place.clone());
        Ok((node, place))
    }

    /// Creates a directory and its missing parents; puts into `created` what was created,
    /// outermost first, also when it fails half-way.
    pub(super) fn create_dir_all(
        &mut self,
        path: &Path,
        created: &mut Vec<(Node, Place)>,
    ) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let Some(name) = path.file_name() else {
            // "a/..": to leave a directory, it must exist.
            let ends_above = path.components().next_back() == Some(Component::ParentDir);
            return if ends_above { self.create_dir_all(parent, created) } else { Ok(()) };
        };
        match self.directory_at(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create_dir_all(parent, created)?;
            }
            found => {
                found?;
            }
        }
        let place = Place { directory: self.directory_at(parent)?, name: name.into() };
        match self.node_at(&place) {
            Some(node) if node.entry_type == EntryType::Directory => Ok(()),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                let node = self.new_node(EntryType::Directory);
                self.add(node, place.clone());
                created.push((node, place));
                Ok(())
            }
        }
    }

    /// Creates a directory that must not exist, in one that must.
    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<(Node, Place)> {
        if path.file_name().is_none() {
            self.directory_at(path)?;
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let place = self.place_at(path)?;
        if self.node_at(&place).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = self.new_node(EntryType::Directory);
        self.add(node, place.clone());
        Ok((node, place))
    }

    /// The path from the root on of what is there.
    pub(super) fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let node = self.find(path)?;
        match node.entry_type {
            EntryType::Directory => Ok(self.path_of(node.id)),
            // A file may have several names: this one.
            EntryType::File | EntryType::Other => {
                let place = self.place_at(path)?;
                Ok(self.path_of(place.directory).join(&*place.name))
            }
        }
    }

    /// Renames to a name that nothing has; `None` never.
    pub(super) fn rename_new(&mut self, from: &Path, to: &Path) -> io::Result<Option<Renamed>> {
        let (source, place) = (self.place_at(from)?, self.place_at(to)?);
        if self.node_at(&source).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.node_at(&place).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }

    /// Has two names change what they stand for; `None` when that is the same.
    pub(super) fn exchange(&mut self, from: &Path, to: &Path) -> io::Result<Option<Exchanged>> {
        let (from, to) = (self.place_at(from)?, self.place_at(to)?);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let one = self.node_at(&from).ok_or_else(missing)?;
        let other = self.node_at(&to).ok_or_else(missing)?;
        if self.is_within(to.directory, one.id) || self.is_within(from.directory, other.id) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if one.id == other.id {
            return Ok(None);
        }
        self.change_both((one, &from), (other, &to));
        Ok(Some(Exchanged { one, other, from, to }))
    }

    /// Gives each of two nodes the name of the other, as [`Names::change`] does.
    pub(super) fn change_both(&mut self, (one, from): (Node, &Place), (other, to): (Node, &Place)) {
        let has_it = self.node_at(to).is_some_and(|node| node.id == other.id);
        self.take(other.id, to); // So that it is not thought to be replaced.
        self.change(one, from, to.clone());
        match has_it {
            true => self.add(other, from.clone()), // Its other names are its own.
            false => self.change(other, to, from.clone()),
        }
    }

    /// Renames; `None` when both names are the same.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<Renamed>> {
        let from = self.place_at(from)?;
        let to = self.place_at(to)?;
        let node = self.node_at(&from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let replaced = self.node_at(&to);
        if self.is_within(to.directory, node.id) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if let Some(old) = replaced {
            if self.is_within(from.directory, old.id) {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            if old.id == node.id {
                return Ok(None);
            }
            match (node.entry_type, old.entry_type) {
                (EntryType::Directory, EntryType::Directory) if !self.is_empty(old.id) => {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                (EntryType::Directory, EntryType::Directory) => {}
                (EntryType::Directory, _) => return Err(io::ErrorKind::NotADirectory.into()),
                (_, EntryType::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
                _ => {}
            }
        }
        self.change(node, &from, to.clone());
        if let Some(old) = replaced {
            self.directories.remove(&old.id);
        }
        Ok(Some(Renamed { node, from, to, replaced }))
    }

    /// Removes the name of a file.
    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<(Node, Place)> {
        let id = self.find_file(path)?;
        let place = self.place_at(path)?;
        self.take(id, &place);
        Ok((Node { id, entry_type: EntryType::File }, place))
    }

    /// Removes an empty directory.
    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<(Node, Place)> {
        let node = self.find(path)?;
        if node.entry_type != EntryType::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if !self.is_empty(node.id) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let place = self.place_of(node.id).cloned();
        let place = place.ok_or_else(|| io::Error::from(io::ErrorKind::ResourceBusy))?; // N3.
        self.take(node.id, &place);
        self.directories.remove(&node.id);
        Ok((node, place))
    }

    /// The names in a directory, sorted.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = self.directories[&self.directory_at(path)?].iter();
        let entry = |(name, node): (&Arc<OsStr>, &Node)| DirEntry {
            name: name.to_string_lossy().into_owned(),
            entry_type: node.entry_type,
        };
        let mut entries: Vec<DirEntry> = entries.map(entry).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name)); // A lossy name may sort elsewhere.
        Ok(entries)
    }

    /// Gives a node a name, beside those that it has; the node that had this one loses it.
    pub(super) fn add(&mut self, node: Node, place: Place) {
        if let Some(replaced) = self.node_at(&place) {
            self.take(replaced.id, &place);
        }
        if node.entry_type == EntryType::Directory {
            self.entries_of(node.id);
        }
        self.entries_of(place.directory).insert(place.name.clone(), node);
        self.places.entry(node.id).or_default().push(place);
        self.next = self.next.max(node.id.0 + 1);
    }

    /// Gives a node the name `to` in place of `from`; or in place of its only one, where `from` is
    /// the name that it would have, had nothing been lost in a crash.
    pub(super) fn change(&mut self, node: Node, from: &Place, to: Place) {
        let places = self.places.get(&node.id).map(Vec::as_slice).unwrap_or_default();
        let old = match places {
            [only] => Some(only.clone()),
            several => several.iter().find(|place| *place == from).cloned(),
        };
        if let Some(old) = old {
            self.take(node.id, &old);
        }
        self.add(node, to);
    }

    /// Takes a name from a node, if the node has this one.
    pub(super) fn take(&mut self, id: NodeId, place: &Place) {
        let Some(places) = self.places.get_mut(&id) else { return };
        let count = places.len();
        places.retain(|its| its != place);
        let has_lost_it = places.len() < count;
        if places.is_empty() {
            self.places.remove(&id);
        }
        if has_lost_it {
            self.entries_of(place.directory).remove(&place.name);
        }
    }

    /// Whether the node has a name.
    pub(super) fn is_named(&self, id: NodeId) -> bool {
        self.places.contains_key(&id)
    }

    /// How many names the node has.
    pub(super) fn name_count(&self, id: NodeId) -> u64 {
        self.places.get(&id).map_or(0, |places| places.len() as u64)
    }

    /// A path of a node, as far as it hangs together.
    pub(super) fn path_of(&self, id: NodeId) -> PathBuf {
        let mut names = Vec::new();
        let mut at = id;
        // A node cannot be below itself, so there are no more steps than names.
        while let Some(place) = self.place_of(at).filter(|_| names.len() < self.places.len()) {
            names.push(&place.name);
            at = place.directory;
        }
        let mut path = PathBuf::from("/");
        path.extend(names.into_iter().rev().map(|name| &**name));
        path
    }

    /// Every file that the root leads to, in the order of the paths.
    pub(super) fn files(&self) -> Vec<(PathBuf, NodeId)> {
        let mut files = Vec::new();
        self.visit(|path, node| {
            if node.entry_type == EntryType::File {
                files.push((path.to_path_buf(), node.id));
            }
        });
        files.sort();
        files
    }

    /// Forgets whatever the root does not lead to.
    pub(super) fn drop_unreachable(&mut self) {
        let mut reachable: BTreeMap<NodeId, Vec<Place>> = BTreeMap::new();
        let mut directories = BTreeMap::new();
        let mut to_visit = vec![ROOT];
        while let Some(directory) = to_visit.pop() {
            let Some(entries) = self.directories.remove(&directory) else { continue };
            for (name, node) in &entries {
                let place = Place { directory, name: name.clone() };
                reachable.entry(node.id).or_default().push(place);
                if node.entry_type == EntryType::Directory {
                    to_visit.push(node.id);
                }
            }
            directories.insert(directory, entries);
        }
        self.directories = directories;
        self.places = reachable;
    }

    fn visit(&self, mut seen: impl FnMut(&Path, Node)) {
        let mut to_visit = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, directory)) = to_visit.pop() {
            for (name, node) in self.directories.get(&directory).into_iter().flatten() {
                let path = path.join(&**name);
                seen(&path, *node);
                if node.entry_type == EntryType::Directory {
                    to_visit.push((path, node.id));
                }
            }
        }
    }

    fn place_at(&self, path: &Path) -> io::Result<Place> {
        let Some(name) = path.file_name() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = self.directory_at(path.parent().unwrap_or(Path::new("")))?;
        Ok(Place { directory, name: name.into() })
    }

    /// The oldest name of a node: of a directory the only one (N1).
    fn place_of(&self, id: NodeId) -> Option<&Place> {
        self.places.get(&id)?.first()
    }

    fn node_at(&self, place: &Place) -> Option<Node> {
        self.directories.get(&place.directory)?.get(&place.name).copied()
    }

    fn entries_of(&mut self, directory: NodeId) -> &mut BTreeMap<Arc<OsStr>, Node> {
        self.directories.entry(directory).or_default()
    }

    fn is_empty(&self, directory: NodeId) -> bool {
        self.directories.get(&directory).is_none_or(BTreeMap::is_empty)
    }

    /// Whether `inner` is `outer` or lies below it.
    fn is_within(&self, inner: NodeId, outer: NodeId) -> bool {
        let mut at = Some(inner);
        while let Some(id) = at {
            if id == outer {
                return true;
            }
            at = self.place_of(id).map(|place| place.directory);
        }
        false
    }

    fn new_node(&mut self, entry_type: EntryType) -> Node {
        let id = NodeId(self.next);
        self.next += 1;
        Node { id, entry_type }
    }
}
