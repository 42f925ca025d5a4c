//! One behaviour, three storages: whatever the operating system does with names and contents,
//! memory and simulation do as well.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    EntryType, MemoryStorage, OpenMode, OsStorage, Overlay, SimStorage, Storage, StorageFile,
    StorageLock,
};
use crate::base::{Entropy, SeededEntropy};

const STEP_COUNT: u64 = 400;
const SEED_COUNT: u64 = 60;
const HANDLES_MAX: usize = 6;
/// Some of them lie below others, so that files stand where directories are asked for.
const PATHS: [&str; 12] =
    ["a", "b", "c", "a/a", "a/b", "b/a", "b/c", "a/b/c", "c/a/b", "a/../b", "./c", "a/c"];

/// A storage below a directory, and what is open in it.
struct Subject {
    name: &'static str,
    storage: Arc<dyn Storage>,
    root: PathBuf,
    handles: Vec<Arc<dyn StorageFile>>,
    /// Whether files get more names.
    links: bool,
}

impl Subject {
    fn step(&mut self, random: &SeededEntropy) -> String {
        let below = |end: usize| (random.next_u64() % end as u64) as usize;
        let path = self.root.join(PATHS[below(PATHS.len())]);
        let other = self.root.join(PATHS[below(PATHS.len())]);
        let (choice, offset, size) = (below(25), below(20_000) as u64, below(9000));
        let fill = below(255) as u8 + 1;
        let handle = self.handles.get(below(HANDLES_MAX)).cloned();
        match choice {
            0..=4 => {
                let modes = [OpenMode::CreateNew, OpenMode::ReadWrite, OpenMode::ReadOnly];
                let opened = self.storage.open(&path, modes[below(3)]);
                told(opened.map(|file| {
                    if self.handles.len() == HANDLES_MAX {
                        self.handles.remove(below(HANDLES_MAX));
                    }
                    self.handles.push(file);
                }))
            }
            5 | 6 => told(self.storage.create_dir_all(&path)),
            7 | 8 => told(self.storage.rename(&path, &other)),
            9 => told(self.storage.remove_file(&path)),
            10 => told(self.storage.remove_dir(&path)),
            11 => told(self.storage.list_dir(&path)),
            12 => told(self.storage.sync_dir(&path)),
            13 => told(self.storage.exists(&path)),
            23 | 24 if !self.links => "no link".into(),
            23 | 24 => told(self.storage.link(&path, &other)),
            _ => handle.map_or("no file".into(), |file| match choice {
                14..=16 => told(file.write_at(&vec![fill; size], offset)),
                17 | 18 => {
                    let mut bytes = vec![0; size];
                    let count = file.read_at(&mut bytes, offset);
                    told(count.map(|count| bytes[..count].to_vec()))
                }
                19 => told(file.set_len(offset)),
                20 => told(file.preallocate(offset)),
                21 => told(file.punch_hole(offset, size as u64)),
                _ => told(file.sync().and_then(|()| file.size())),
            }),
        }
    }

    /// Every name and every byte.
    fn contents(&self) -> Vec<String> {
        let mut told = Vec::new();
        let mut to_visit = vec![self.root.clone()];
        while let Some(directory) = to_visit.pop() {
            for entry in self.storage.list_dir(&directory).unwrap() {
                let path = directory.join(&entry.name);
                let below_root = path.strip_prefix(&self.root).unwrap().display().to_string();
                if entry.entry_type == EntryType::Directory {
                    told.push(format!("{below_root}/"));
                    to_visit.push(path);
                } else {
                    let bytes = read_all(&*self.storage, &path);
                    told.push(format!("{below_root} {bytes:?}"));
                }
            }
        }
        told
    }
}

fn told<T: Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

fn read_all(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    let file = storage.open(path, OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn memory_and_simulation_do_what_the_operating_system_does() {
    for seed in 0..SEED_COUNT {
        let directory = tempfile::tempdir().unwrap();
        let mut subjects = [
            Subject {
                name: "os",
                storage: Arc::new(OsStorage::new()),
                root: directory.path().to_path_buf(),
                handles: Vec::new(),
                links: true,
            },
            Subject {
                name: "memory",
                storage: Arc::new(MemoryStorage::new()),
                root: PathBuf::from("/"),
                handles: Vec::new(),
                links: true,
            },
            Subject {
                name: "simulation",
                storage: Arc::new(SimStorage::new(seed)),
                root: PathBuf::from("/"),
                handles: Vec::new(),
                links: true,
            },
        ];
        for step in 0..STEP_COUNT {
            let outcomes = subjects.each_mut().map(|subject| {
                let outcome = subject.step(&SeededEntropy::new(seed << 32 | step));
                (subject.name, outcome)
            });
            for (name, outcome) in &outcomes[1..] {
                assert_eq!(*outcome, outcomes[0].1, "{name}, seed {seed}, step {step}");
            }
        }
        let contents = subjects.each_ref().map(Subject::contents);
        assert_eq!(contents[0], contents[1], "memory, seed {seed}");
        assert_eq!(contents[0], contents[2], "simulation, seed {seed}");
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    for storage in [&MemoryStorage::new() as &dyn Storage, &SimStorage::new(0)] {
        let file = storage.open(Path::new("a"), OpenMode::CreateNew).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        storage.open(Path::new("b"), OpenMode::CreateNew).unwrap();
        storage.rename(Path::new("b"), Path::new("a")).unwrap();
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"first");
        assert!(read_all(storage, Path::new("a")).is_empty());
    }
}

/// Each storage, with a path at which there is nothing.
fn on_each_storage(test: impl Fn(&dyn Storage, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    test(&OsStorage::new(), &directory.path().join("a"));
    test(&MemoryStorage::new(), Path::new("a"));
    test(&SimStorage::new(0), Path::new("a"));
}

#[test]
fn a_lock_has_one_holder_at_a_time() {
    on_each_storage(|storage, path| {
        let lock = storage.lock(path).unwrap();
        assert_eq!(storage.lock(path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        let _again = storage.lock(path).unwrap();
    });
}

#[test]
fn a_file_opened_for_reading_refuses_changes() {
    on_each_storage(|storage, path| {
        storage.open(path, OpenMode::CreateNew).unwrap();
        let file = storage.open(path, OpenMode::ReadOnly).unwrap();
        for result in [
            file.write_at(b"x", 0).map(|_| ()),
            file.set_len(9),
            file.preallocate(9),
            file.punch_hole(0, 9),
        ] {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(file.size().unwrap(), 0);
    });
}

/// Copies of a tree of files, one of them below an overlay, go through the same changes.
#[test]
fn an_overlay_changes_as_files_do_and_leaves_those_below_it_alone() {
    for seed in 0..SEED_COUNT {
        let [below, mut plain] = [(); 2].map(|()| {
            let mut subject = Subject {
                name: "memory",
                storage: Arc::new(MemoryStorage::new()),
                root: PathBuf::from("/root"),
                handles: Vec::new(),
                links: false,
            };
            subject.storage.create_dir_all(&subject.root).unwrap();
            for step in 0..STEP_COUNT / 4 {
                subject.step(&SeededEntropy::new(seed << 32 | step));
            }
            subject.handles.clear();
            subject
        });
        let before = below.contents();
        let below = below.storage;
        let root = PathBuf::from("/root");
        let overlay = Overlay::new(Arc::clone(&below), &root).unwrap();
        let (name, handles) = ("overlay", Vec::new());
        let mut above = Subject { name, storage: Arc::new(overlay), root, handles, links: true };
        plain.links = true;
        for step in STEP_COUNT / 4..STEP_COUNT {
            let random = || SeededEntropy::new(seed << 32 | step);
            let outcomes = [above.step(&random()), plain.step(&random())];
            assert_eq!(outcomes[0], outcomes[1], "seed {seed}, step {step}");
        }
        assert_eq!(above.contents(), plain.contents(), "seed {seed}");
        let root = PathBuf::from("/root");
        let name = "below";
        let (storage, handles) = (Arc::clone(&below), Vec::new());
        let left = Subject { name, storage, root, handles, links: true };
        assert_eq!(left.contents(), before, "seed {seed}");
    }
}

#[test]
fn a_shared_lock_keeps_out_who_wants_it_alone() {
    on_each_storage(|storage, path| {
        let refused = |lock: io::Result<Box<dyn StorageLock>>| {
            assert_eq!(lock.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        };
        let readers = [storage.lock_shared(path).unwrap(), storage.lock_shared(path).unwrap()];
        refused(storage.lock(path));
        let [first, second] = readers;
        drop(first);
        refused(storage.lock(path));
        drop(second);
        let alone = storage.lock(path).unwrap();
        refused(storage.lock_shared(path));
        drop(alone);
        drop(storage.lock_shared(path).unwrap());
    });
}
