//! Repositories with damage: it is found wherever it is, and never restored.

use super::*;

/// A repository with two backups of a small database.
fn small() -> SimStorage {
    let storage = SimStorage::new(3);
    let db = builder(&storage).open(PATH).unwrap();
    let backups = repository(&storage);
    for round in 0..2 {
        fill(&db, round * 10..round * 10 + 20, round);
        backups.create(&db).unwrap();
    }
    db.close().unwrap();
    storage
}

pub(super) fn flip(storage: &SimStorage, path: &Path, offset: u64, bits: u8) {
    let file = storage.open(path, OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ bits], offset).unwrap();
}

fn size_of(storage: &SimStorage, path: &Path) -> u64 {
    storage.open(path, OpenMode::ReadOnly).unwrap().size().unwrap()
}

/// Every byte of what says what the repository is and has.
#[test]
fn every_flip_in_marker_and_lists_is_found() {
    let storage = small();
    let marker = Path::new(REPOSITORY).join("BACKUPS");
    for offset in 0..size_of(&storage, &marker) {
        flip(&storage, &marker, offset, 0x10);
        let opened =
            BackupRepository::open_in(Arc::new(storage.clone()), REPOSITORY, OpenExisting::Only);
        assert!(opened.unwrap_err().is_corruption(), "{offset}");
        flip(&storage, &marker, offset, 0x10);
    }
    let backups = repository(&storage);
    for (index, list) in files_of(&storage, "backups").iter().enumerate() {
        let number = index as u64 + 1;
        for offset in 0..size_of(&storage, list) {
            flip(&storage, list, offset, 0x10);
            assert!(backups.list().unwrap_err().is_corruption(), "{offset}");
            let restored = backups.restore(number, TARGET, RestoreOptions::new());
            assert!(restored.unwrap_err().is_corruption(), "{offset}");
            flip(&storage, list, offset, 0x10);
        }
        flip(&storage, list, 90, 1);
        let check = backups.verify(None, BackupOptions::new()).unwrap();
        let [problem] = &check.problems[..] else { panic!("{check:?}") };
        assert_eq!((&problem.file, &problem.backups[..]), (list, &[number][..]));
        assert!(backups.prune(2).unwrap_err().is_corruption(), "what it names is not known");
        flip(&storage, list, 90, 1);
    }
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
    // One of the other backup, or of another repository, is none.
    let lists = files_of(&storage, "backups");
    let first = storage.read_file(&lists[0]).unwrap();
    let file = storage.open(&lists[1], OpenMode::ReadWrite).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(&first, 0).unwrap();
    assert!(backups.list().unwrap_err().is_corruption());
    // A damaged one can be removed, and the other one is as it was.
    backups.remove(2).unwrap();
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
}

#[test]
fn damage_in_files_is_found_named_and_never_restored() {
    let storage = small();
    let backups = repository(&storage);
    let found = |path: &Path, place: &str| {
        let check = backups.verify(None, BackupOptions::new()).unwrap();
        let [problem] = &check.problems[..] else { panic!("{place}: {check:?}") };
        assert_eq!(problem.file, path, "{place}");
        problem.backups[0]
    };
    let expect = |path: &Path, place: &str| {
        let number = found(path, place);
        let restored = backups.restore(number, TARGET, RestoreOptions::new());
        assert!(restored.unwrap_err().is_corruption(), "{place}");
        let exported = backups.export(number, std::io::sink(), BackupOptions::new());
        assert!(exported.unwrap_err().is_corruption(), "{place}");
        assert_eq!(names(&storage), ["backups", "db"], "{place}");
    };
    for path in files_of(&storage, "files") {
        let size = size_of(&storage, &path);
        for offset in [0, size - 1] {
            flip(&storage, &path, offset, 4);
            found(&path, &format!("{path:?} {offset}"));
            flip(&storage, &path, offset, 4);
        }
        flip(&storage, &path, size / 2, 4);
        expect(&path, &format!("{path:?} in the middle"));
        flip(&storage, &path, size / 2, 4);
        let whole = storage.read_file(&path).unwrap();
        let file = storage.open(&path, OpenMode::ReadWrite).unwrap();
        for len in [0, size - 1, size + 1] {
            file.set_len(len).unwrap();
            found(&path, &format!("{path:?} cut to {len}"));
            file.write_all_at(&whole, 0).unwrap();
            file.set_len(size).unwrap();
        }
        drop(file);
        storage.remove_file(&path).unwrap();
        expect(&path, &format!("{path:?} removed"));
        storage.open(&path, OpenMode::CreateNew).unwrap().write_all_at(&whole, 0).unwrap();
    }
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
}

/// A disk that does not give a file: that is told of the file, and the others are looked at too.
#[test]
fn files_that_cannot_be_read_are_told_and_written_again() {
    let storage = small();
    let db = open(&storage, PATH);
    let backups = repository(&storage);
    backups.create(&db).unwrap();
    let files = files_of(&storage, "files");
    let names: Vec<String> =
        files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let unreadable = |names: &[String]| {
        let rule = |name: &String| {
            let failing = FaultRule::new(FaultEffect::Error(ErrorKind::Other));
            failing.on(&[Operation::Read]).path(name).lasting()
        };
        names.iter().map(rule).fold(FaultPlan::new(), FaultPlan::rule)
    };
    storage.arm(unreadable(&names[..3]));
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert_eq!((check.problems.len(), check.files), (3, files.len() as u64), "{check:?}");
    for problem in &check.problems {
        assert!(files[..3].contains(&problem.file) && !problem.backups.is_empty(), "{problem:?}");
    }
    // None of them can be: all that the next backup has is written again.
    storage.arm(unreadable(&names));
    let verifying = BackupOptions::new().verify_shared();
    let again = backups.create_with(&db, verifying).unwrap();
    storage.disarm();
    assert_eq!(again.written_bytes, again.bytes);
    assert!(backups.verify(None, BackupOptions::new()).unwrap().is_ok());
}

/// Every byte of a file, of one of each kind.
#[test]
fn every_flip_in_a_file_is_found() {
    let storage = small();
    let backups = repository(&storage);
    backups.remove(1).unwrap();
    let files = files_of(&storage, "files");
    let mut sized: Vec<_> = files.iter().map(|path| (size_of(&storage, path), path)).collect();
    sized.sort();
    // Only these two are left, so that each verification reads them alone.
    let (smallest, largest) = (sized[0].1, sized[sized.len() - 1].1);
    let others = files.iter().filter(|path| ![smallest, largest].contains(path));
    others.for_each(|path| storage.remove_file(path).unwrap());
    let missing = files.len() - 2;
    for path in [smallest, largest] {
        let size = size_of(&storage, path);
        for offset in (0..size).step_by(1 + size as usize / 2000) {
            flip(&storage, path, offset, 0x80);
            let check = backups.verify(None, BackupOptions::new()).unwrap();
            assert_eq!(check.problems.len(), missing + 1, "{offset}");
            flip(&storage, path, offset, 0x80);
        }
    }
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert_eq!(check.problems.len(), missing);
}

/// What the repository has is trusted, unless it is asked to be read; then it is made whole.
#[test]
fn a_backup_that_reads_what_it_shares_makes_the_others_whole() {
    let storage = small();
    let backups = repository(&storage);
    let db = open(&storage, PATH);
    let info = backups.create(&db).unwrap(); // Of the database as it was opened now.
    let check = backups.verify(None, BackupOptions::new()).unwrap();
    assert!(check.is_ok());
    let files = files_of(&storage, "files");
    for (index, path) in files.iter().enumerate() {
        match index % 3 {
            0 => flip(&storage, path, size_of(&storage, path) / 2, 1),
            1 => storage.remove_file(path).unwrap(),
            _ => {}
        }
    }
    let damaged = backups.verify(Some(info.number), BackupOptions::new()).unwrap();
    assert!(!damaged.is_ok());
    let whole = backups.create_with(&db, BackupOptions::new().verify_shared()).unwrap();
    assert!(whole.written_bytes > 0);
    let expected = contents(&db);
    assert!(backups.verify(Some(whole.number), BackupOptions::new()).unwrap().is_ok());
    let left = backups.verify(Some(info.number), BackupOptions::new()).unwrap();
    assert!(left.problems.len() < damaged.problems.len(), "{left:?}");
    backups.restore(whole.number, TARGET, RestoreOptions::new()).unwrap();
    assert_eq!(contents(&open(&storage, TARGET)), expected);
}

/// What is written is read back, so that a disk that does not keep it is found out.
#[test]
fn what_was_not_written_as_it_was_read_does_not_get_its_name() {
    let whole = small();
    let mut found = 0;
    for skip in 0..120 {
        let storage = whole.duplicate();
        let rule = FaultRule::new(FaultEffect::CorruptRead).path("unfinished-restore").skip(skip);
        storage.arm(FaultPlan::new().rule(rule));
        let restored = repository(&storage).restore(1, TARGET, RestoreOptions::new());
        let is_struck = storage.fault_count() > 0;
        storage.disarm();
        match restored {
            // Nothing can be flipped where a file has ended.
            Ok(_) => assert!(!contents(&open(&storage, TARGET)).is_empty()),
            Err(error) => {
                assert!(error.is_corruption() && is_struck, "{error}");
                assert_eq!(names(&storage), ["backups", "db"]);
                found += 1;
            }
        }
    }
    assert!(found > 20, "{found}");
}
