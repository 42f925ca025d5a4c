//! Backups as streams: from a database and from a repository, to a database and to a repository.

use std::io::{self, Read, Write};

use lithedb::{Access, BackupStream};

use super::*;

fn sent(db: &Db) -> Vec<u8> {
    let mut sent = Vec::new();
    db.backup_to(&mut sent, BackupOptions::new()).unwrap();
    sent
}

fn restore(storage: &SimStorage, sent: &[u8], options: RestoreOptions<'_>) -> Result<(), Error> {
    let options = options.storage(Arc::new(storage.clone()));
    BackupStream::open(sent)?.restore(TARGET, options).map(drop)
}

#[test]
fn a_stream_is_what_the_database_was() {
    let storage = SimStorage::new(1);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..100, 0);
    let expected = contents(&db);
    let mut bytes = Vec::new();
    let info = db.backup_to(&mut bytes, BackupOptions::new()).unwrap();
    assert_eq!(info.seqno, db.snapshot().seqno());
    // 80 bytes for each file, beside its path, 24 for each record, and what is around them.
    let (paths, records) = (64 * info.files, info.files + info.bytes / (64 << 10));
    let most = info.bytes + 80 * info.files + paths + 24 * records + 136;
    assert!(bytes.len() as u64 <= most, "{} of {most}: {info:?}", bytes.len());
    fill(&db, 0..100, 5);
    let stream = BackupStream::open(&*bytes).unwrap();
    assert_eq!(*stream.info(), info);
    assert_eq!(stream.verify(BackupOptions::new()).unwrap(), info);
    restore(&storage, &bytes, RestoreOptions::new()).unwrap();
    let restored = open(&storage, TARGET);
    assert_eq!(contents(&restored), expected);
    assert_sound(&restored);
    drop(restored);
    // As with repositories, what is there gives way only where that is asked for.
    assert!(is_invalid(&restore(&storage, &bytes, RestoreOptions::new())));
    restore(&storage, &bytes, RestoreOptions::new().replace()).unwrap();
    assert_eq!(contents(&open(&storage, TARGET)), expected);
    assert_eq!(names(&storage), ["db", "restored"]);
    assert_eq!(storage.violations(), [""; 0]);
}

#[test]
fn streams_go_into_repositories_and_out_of_them() {
    let storage = SimStorage::new(2);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..100, 0);
    let expected = contents(&db);
    let backups = repository(&storage);
    let first = backups.create(&db).unwrap();
    let mut exported = Vec::new();
    let info = backups.export(1, &mut exported, BackupOptions::new()).unwrap();
    assert_eq!((info.files, info.bytes, info.seqno), (first.files, first.bytes, first.seqno));
    // What it has already is not kept twice.
    let again = backups.import(BackupStream::open(&*exported).unwrap(), BackupOptions::new());
    let again = again.unwrap();
    assert_eq!((again.number, again.written_bytes), (2, 0));
    assert_eq!((again.seqno, again.created_millis), (first.seqno, first.created_millis));
    let other = SimStorage::new(3);
    let info = repository(&other)
        .import(BackupStream::open(&*exported).unwrap(), BackupOptions::new())
        .unwrap();
    assert!(info.written_bytes <= info.bytes && info.written_bytes > 0);
    repository(&other).restore(1, TARGET, RestoreOptions::new()).unwrap();
    assert_eq!(contents(&open(&other, TARGET)), expected);
    assert!(is_invalid(&backups.export(9, Vec::new(), BackupOptions::new())));
    // A damaged file is replaced, if it is asked to be looked at.
    let damaged = files_of(&other, "files").remove(0);
    other.remove_file(&damaged).unwrap();
    let verifying = BackupOptions::new().verify_shared();
    let healed = repository(&other).import(BackupStream::open(&*exported).unwrap(), verifying);
    assert!(healed.unwrap().written_bytes > 0);
    assert!(repository(&other).verify(None, BackupOptions::new()).unwrap().is_ok());
    assert_eq!([storage.violations(), other.violations()], [vec![], Vec::<String>::new()]);
}

/// Reads and writes come in pieces of any size from pipes.
#[test]
fn streams_pass_through_narrow_pipes() {
    struct Narrow<T>(T, usize);
    impl<T> Narrow<T> {
        fn room(&mut self, len: usize) -> usize {
            self.1 = self.1 * 7 % 101 + 1;
            len.min(self.1)
        }
    }
    impl<T: Read> Read for Narrow<T> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let room = self.room(bytes.len());
            self.0.read(&mut bytes[..room])
        }
    }
    impl<T: Write> Write for Narrow<T> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room(bytes.len());
            self.0.write(&bytes[..room])
        }
        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }
    let storage = SimStorage::new(4);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..20, 0);
    let mut bytes = Vec::new();
    db.backup_to(Narrow(&mut bytes, 5), BackupOptions::new()).unwrap();
    let stream = BackupStream::open(Narrow(&*bytes, 9)).unwrap();
    let options = RestoreOptions::new().storage(Arc::new(storage.clone()));
    stream.restore(TARGET, options).unwrap();
    assert_eq!(contents(&open(&storage, TARGET)), contents(&db));
}

#[test]
fn what_was_cut_or_changed_is_never_restored() {
    let storage = SimStorage::new(5);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..20, 0);
    let bytes = sent(&db);
    let backups = repository(&storage);
    for place in (0..bytes.len()).step_by(bytes.len() / 80).chain([bytes.len() - 1]) {
        let mut flipped = bytes.clone();
        flipped[place] ^= 0x20;
        for wrong in [&bytes[..place], &flipped[..]] {
            let error = restore(&storage, wrong, RestoreOptions::new()).unwrap_err();
            assert!(error.is_corruption(), "{place}: {error}");
            let imported = BackupStream::open(wrong)
                .and_then(|stream| backups.import(stream, BackupOptions::new()));
            assert!(imported.unwrap_err().is_corruption(), "{place}");
        }
    }
    assert_eq!(names(&storage), ["backups", "db"]);
    assert_eq!(backups.list().unwrap(), []);
    backups.prune(0).unwrap();
    assert!(files_of(&storage, "files").is_empty());
    // What is behind the end is somebody else's.
    let mut longer = bytes.clone();
    longer.extend(b"something else");
    let mut rest = &*longer;
    BackupStream::open(&mut rest).unwrap().verify(BackupOptions::new()).unwrap();
    assert_eq!(rest, b"something else");
}

#[test]
fn a_writer_that_fails_is_told_and_the_database_is_as_it_was() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.0);
            self.0 -= written;
            match written {
                0 => Err(ErrorKind::StorageFull.into()),
                written => Ok(written),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let storage = SimStorage::new(6);
    let db = builder(&storage).open(PATH).unwrap();
    fill(&db, 0..20, 0);
    let expected = contents(&db);
    let len = sent(&db).len();
    for room in [0, 79, 80, 200, len / 2, len - 500] {
        let written = db.backup_to(Full(room), BackupOptions::new());
        assert!(matches!(written, Err(Error::Io { .. } | Error::DiskFull { .. })), "{written:?}");
        assert_eq!(names(&storage), ["db"]);
    }
    assert_eq!(contents(&db), expected);
    assert_sound(&db);
    drop(db);
    // One that is opened to be read makes none: that takes a checkpoint.
    let db = builder(&storage).access(Access::ReadOnly).open(PATH).unwrap();
    let refused = db.backup_to(Vec::new(), BackupOptions::new()).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    assert_eq!(names(&storage), ["db"]);
}
