//! One behaviour, three storages: whatever the operating system does with names and contents,
//! memory and simulation do as well.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    CopyShape, CrashMode, EntryType, MemoryStorage, OpenMode, OsStorage, Overlay, SimStorage,
    Storage, StorageFile, StorageLock, Zeros, copy_file, copy_into, is_shared,
};
use crate::base::{Entropy, Error, SeededEntropy};

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
        let (choice, offset, size) = (below(28), below(20_000) as u64, below(9000));
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
            25 => told(self.storage.create_dir(&path)),
            26 => told(self.storage.rename_new(&path, &other)),
            27 => told(self.storage.exchange(&path, &other)),
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

#[test]
fn a_file_says_how_many_names_it_has() {
    on_each_storage(|storage, path| {
        let file = storage.open(path, OpenMode::CreateNew).unwrap();
        assert_eq!(file.link_count().unwrap(), 1);
        let other = path.with_file_name("b");
        storage.link(path, &other).unwrap();
        let opened = storage.open(&other, OpenMode::ReadOnly).unwrap();
        assert_eq!((file.link_count().unwrap(), opened.link_count().unwrap()), (2, 2));
        assert!(is_shared(&*file) && is_shared(&*opened));
        storage.remove_file(path).unwrap();
        assert_eq!(file.link_count().unwrap(), 1);
        storage.rename(&other, path).unwrap();
        assert!(!is_shared(&*file));
        storage.remove_file(path).unwrap();
        assert_eq!(file.link_count().unwrap(), 0);
    });
}

fn copy_start(
    storage: &dyn Storage,
    source: (&dyn StorageFile, &Path),
    to: &Path,
    shape: &CopyShape<'_>,
) -> u64 {
    let target = storage.open(to, OpenMode::CreateNew).unwrap();
    copy_into(source, (&*target, to), shape).unwrap()
}

#[test]
fn a_copy_has_the_start_of_a_file_and_is_durable() {
    on_each_storage(|storage, path| {
        let file = storage.open(path, OpenMode::CreateNew).unwrap();
        let bytes: Vec<u8> = (0..3 << 20).map(|i| (i % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let to = |name: &str| path.with_file_name(name);
        copy_file(storage, path, &to("whole"), 3 << 20).unwrap();
        assert_eq!(read_all(storage, &to("whole")), bytes);
        let too_long = copy_file(storage, path, &to("long"), (3 << 20) + 1).unwrap_err();
        assert!(matches!(too_long, Error::Io { action: "read", .. }), "{too_long}");
        let (size, len) = ((1 << 20) + 7, 2 << 20);
        let shape = CopyShape { size, len, head: b"head", ..CopyShape::default() };
        let copied = copy_start(storage, (&*file, path), &to("start"), &shape);
        assert_eq!(copied, (1 << 20) + 7);
        let found = read_all(storage, &to("start"));
        assert_eq!((found.len(), &found[..4]), (2 << 20, &b"head"[..]));
        assert_eq!(found[4..(1 << 20) + 7], bytes[4..(1 << 20) + 7]);
        assert!(found[(1 << 20) + 7..].iter().all(|byte| *byte == 0));
        // Of a file that ends before that: all that there is.
        let shape = CopyShape { size: 9 << 20, ..CopyShape::default() };
        assert_eq!(copy_start(storage, (&*file, path), &to("less"), &shape), 3 << 20);
        copy_file(storage, path, &to("less"), 3).unwrap_err();
    });
    let sim = SimStorage::new(1);
    sim.open(Path::new("a"), OpenMode::CreateNew).unwrap().write_all_at(b"hello", 0).unwrap();
    copy_file(&sim, Path::new("a"), Path::new("b"), 5).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    let after = sim.crash(CrashMode::DropAll, 1);
    assert_eq!(read_all(&after, Path::new("b")), b"hello");
}

#[test]
fn a_copy_leaves_out_what_is_zero_where_it_may() {
    let sim = SimStorage::new(1);
    let len = 3 << 20;
    let mut bytes = vec![0; len];
    for at in [0, 5000, 1 << 20, (2 << 20) + 4095, len - 1] {
        bytes[at] = 7;
    }
    let path = Path::new("/from");
    let file = sim.open(path, OpenMode::CreateNew).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    let copied_with = |zeros, name: &str, size| {
        let before = sim.allocated_bytes();
        let shape = CopyShape { size, zeros, ..CopyShape::default() };
        let copied = copy_start(&sim, (&*file, path), Path::new(name), &shape);
        assert_eq!(copied, size.min(len as u64));
        assert!(read_all(&sim, Path::new(name)) == bytes, "{name}");
        sim.allocated_bytes() - before
    };
    assert!(copied_with(Zeros::LeftOut, "/sparse", len as u64) < 64 << 10);
    assert!(copied_with(Zeros::Written, "/full", len as u64) >= len as u64);
    assert!(copied_with(Zeros::LeftOut, "/short", 9 << 20) < 64 << 10);
    assert_eq!(sim.violations(), [""; 0]);
    let after = sim.crash(CrashMode::KeepAll, 0);
    assert!(read_all(&after, Path::new("/sparse")) == bytes);
}

#[test]
fn what_is_there_is_neither_made_again_nor_replaced() {
    on_each_storage(|storage, path| {
        let to = |name: &str| path.with_file_name(name);
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        let taken = io::ErrorKind::AlreadyExists;
        storage.create_dir(&to("dir")).unwrap();
        storage.create_dir(&to("dir/inner")).unwrap();
        storage.create_dir(&to("empty")).unwrap();
        storage.open(&to("file"), OpenMode::CreateNew).unwrap();
        for name in ["dir", "empty", "file"] {
            assert_eq!(kind(storage.create_dir(&to(name))), taken, "{name}");
            assert_eq!(kind(storage.rename_new(&to("dir"), &to(name))), taken, "{name}");
            assert_eq!(kind(storage.rename_new(&to("file"), &to(name))), taken, "{name}");
        }
        let missing = io::ErrorKind::NotFound;
        assert_eq!(kind(storage.create_dir(&to("missing/inner"))), missing);
        assert_eq!(kind(storage.rename_new(&to("missing"), &to("other"))), missing);
        storage.rename_new(&to("dir"), &to("other")).unwrap();
        storage.rename_new(&to("file"), &to("other/inner/file")).unwrap();
        assert!(!storage.exists(&to("dir")).unwrap() && !storage.exists(&to("file")).unwrap());
        assert!(storage.exists(&to("empty")).unwrap());
        assert!(storage.exists(&to("other/inner/file")).unwrap());
    });
}

#[test]
fn two_names_are_exchanged_as_one_step() {
    on_each_storage(|storage, path| {
        let to = |name: &str| path.with_file_name(name);
        storage.create_dir(&to("one")).unwrap();
        storage.open(&to("one/first"), OpenMode::CreateNew).unwrap();
        storage.create_dir(&to("other")).unwrap();
        storage.open(&to("other/second"), OpenMode::CreateNew).unwrap();
        storage.exchange(&to("one"), &to("other")).unwrap();
        let exists = |name: &str| storage.exists(&to(name)).unwrap();
        assert!(exists("one/second") && exists("other/first"));
        assert!(!exists("one/first") && !exists("other/second"));
        let missing = storage.exchange(&to("one"), &to("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(storage.exchange(&to("one"), &to("one/second")).is_err());
        assert!(exists("one/second"));
    });
}

#[test]
fn a_power_cut_leaves_both_names_exchanged_or_none() {
    let sim = SimStorage::new(1);
    for (dir, file) in [("/one", "/one/first"), ("/other", "/other/second")] {
        sim.create_dir(Path::new(dir)).unwrap();
        sim.open(Path::new(file), OpenMode::CreateNew).unwrap();
        sim.sync_dir(Path::new(dir)).unwrap();
    }
    sim.sync_dir(Path::new("/")).unwrap();
    sim.exchange(Path::new("/one"), Path::new("/other")).unwrap();
    let exists = |sim: &SimStorage, path: &str| sim.exists(Path::new(path)).unwrap();
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        for mode in CrashMode::ALL {
            let left = sim.crash(mode, seed);
            let is_done = exists(&left, "/one/second");
            assert_eq!(is_done, exists(&left, "/other/first"), "{mode:?} {seed}");
            assert_eq!(is_done, !exists(&left, "/one/first"), "{mode:?} {seed}");
            assert_eq!(is_done, !exists(&left, "/other/second"), "{mode:?} {seed}");
            outcomes.insert(is_done);
        }
    }
    assert_eq!(outcomes.len(), 2);
    sim.sync_dir(Path::new("/")).unwrap();
    assert!(exists(&sim.crash(CrashMode::DropAll, 1), "/one/second"));
}

#[test]
fn a_path_is_resolved_to_where_it_leads() {
    let missing = |result: io::Result<PathBuf>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::NotFound);
    };
    on_each_storage(|storage, path| {
        let resolve = |path: &Path| storage.resolve(path).unwrap();
        storage.create_dir_all(&path.join("b")).unwrap();
        storage.create_dir(&path.with_file_name("c")).unwrap();
        let there = resolve(&path.join("b"));
        assert!(there.is_absolute() && there.ends_with("a/b"), "{there:?}");
        assert_eq!(resolve(&path.join("../c/./../a/b")), there);
        storage.open(&path.join("b/file"), OpenMode::CreateNew).unwrap();
        assert_eq!(resolve(&path.join("b/../b/file")), there.join("file"));
        missing(storage.resolve(&path.join("b/d")));
    });
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let os = OsStorage::new();
    os.create_dir_all(&path("a/b")).unwrap();
    std::os::unix::fs::symlink("a/b", path("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
    assert_eq!(os.resolve(&path("link")).unwrap(), os.resolve(&path("a/b")).unwrap());
    assert_eq!(os.resolve(&path("link/..")).unwrap(), os.resolve(&path("a")).unwrap());
    missing(os.resolve(&path("dangling")));
}

#[test]
fn an_overlay_beside_a_writer_shows_what_comes_and_keeps_what_it_has_changed() {
    let below: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let root = Path::new("/db");
    let put = |path: &str, bytes: &[u8]| {
        let path = Path::new(path);
        below.create_dir_all(path.parent().unwrap()).unwrap();
        let file = below.open(path, OpenMode::CreateNew).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    };
    let names = |overlay: &Overlay, dir: &str| {
        let entries = overlay.list_dir(Path::new(dir)).unwrap();
        entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    let growing = put("/db/a/growing", b"one");
    let overlay = Overlay::beside(Arc::clone(&below), root);
    let read = overlay.open(Path::new("/db/a/growing"), OpenMode::ReadOnly).unwrap();
    let changed = overlay.open(Path::new("/db/a/growing"), OpenMode::ReadWrite).unwrap();
    growing.write_all_at(b" two", 3).unwrap();
    assert_eq!(read.size().unwrap(), 7, "it is what it is below");
    changed.keep_front(5).unwrap();
    growing.write_all_at(b"1 2 three", 0).unwrap();
    let mut bytes = [9; 8];
    assert_eq!((read.size().unwrap(), read.read_at(&mut bytes, 0).unwrap()), (7, 7));
    assert_eq!(&bytes, b"1 2 t\0\0\x09", "behind what was kept are zeros");
    put("/db/a/late", b"");
    assert_eq!(names(&overlay, "/db/a"), ["growing", "late"]);
    overlay.remove_file(Path::new("/db/a/late")).unwrap();
    assert_eq!(names(&overlay, "/db/a"), ["growing"]);
    assert!(!overlay.exists(Path::new("/db/a/late")).unwrap());
    overlay.let_names_stand();
    put("/db/b/later", b"");
    assert_eq!(names(&overlay, "/db"), ["a"]);
    for path in ["/db/a/late", "/db/b/later"] {
        overlay.open(Path::new(path), OpenMode::ReadOnly).unwrap();
    }
    assert!(below.exists(Path::new("/db/a/late")).unwrap());
}
