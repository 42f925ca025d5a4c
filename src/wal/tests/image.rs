//! A log that is in two places: what it was, and what goes on, with files in common.

use super::*;
use crate::storage::{CopyShape, CrashMode, SimStorage, copy_into};

/// Makes the log of an image in a directory of its own.
fn place_image(place: &WalPlace, image: &LogImage) -> WalPlace {
    let storage = Arc::clone(&place.storage);
    let dir = PathBuf::from("/copy");
    storage.create_dir_all(&dir).unwrap();
    for LogFileImage { file, path, size, head, .. } in &image.files {
        let to = dir.join(path.file_name().unwrap());
        match head {
            None => storage.link(path, &to).unwrap(),
            Some(head) => {
                let shape = CopyShape { size: *size, head, ..CopyShape::default() };
                let target = storage.open(&to, OpenMode::CreateNew).unwrap();
                copy_into((&**file, path), (&*target, &to), &shape).unwrap();
            }
        }
    }
    WalPlace { storage, dir, ..place.clone() }
}

fn write_on(wal: &mut Wal, written: &mut Records, count: usize) {
    for _ in 0..count {
        let payload = payload_of(written.len(), 8 + written.len() * 13 % 120);
        let appended = append(wal, &payload);
        written.push((appended.start, payload));
        if let Some(order) = wal.order_next() {
            wal.finish_order(order.run()).unwrap();
        }
    }
    sync(wal);
}

#[test]
fn an_image_is_the_log_as_it_was_and_shares_nothing_that_changes() {
    for count in [0, 1, 3, 4, 5, 30, 61] {
        let storage = SimStorage::new(count as u64);
        let place = place_in(Arc::new(storage.clone()), SMALL_CAPACITY);
        let mut wal = Wal::create(place.clone()).unwrap();
        let mut written = Records::new();
        write_on(&mut wal, &mut written, count);
        let image = wal.image().unwrap();
        let copy = place_image(&place, &image);
        drop(image);
        let before = contents(&copy);
        let then = written.clone();
        // It goes on, and gives up everything that the copy has.
        for _ in 0..4 {
            write_on(&mut wal, &mut written, 20);
            wal.release(wal.end());
        }
        assert_eq!(contents(&copy), before, "{count}");
        assert_eq!(read(&copy).unwrap(), then, "{count}");
        // And so does the copy, which is recovered as any log.
        let (mut copied, records) = recover(&copy, Lsn::ZERO).unwrap();
        assert_eq!(records, then);
        let mut written_there = then.clone();
        for _ in 0..4 {
            write_on(&mut copied, &mut written_there, 20);
            copied.release(copied.end());
        }
        let end = copied.end();
        assert!(copied.stats().spare_count <= 3);
        drop(copied);
        let from = written_there.last().unwrap().0;
        let (_, records) = recover(&copy, from).unwrap();
        assert_eq!((records.len(), end), (1, records[0].0.plus(end.bytes_since(from))));
        let last = written.last().unwrap().clone();
        drop(wal);
        assert_eq!(recover(&place, last.0).unwrap().1, [last]);
        assert_eq!(storage.violations(), [""; 0]);
    }
}

#[test]
fn files_are_there_for_as_long_as_an_image_is() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 30);
    let image = wal.image().unwrap();
    assert!(image.files.len() > 3);
    let before = contents(&place);
    for _ in 0..4 {
        write_on(&mut wal, &mut written, 20);
        wal.release(wal.end());
    }
    for file in &image.files {
        let (_, bytes) = before.iter().find(|(path, _)| **path == *file.path).unwrap();
        let mut now = vec![0; file.size as usize];
        file.file.read_exact_at(&mut now, 0).unwrap();
        // What is at the start of the last one is not taken from there.
        let from = file.head.as_ref().map_or(0, Vec::len);
        assert!(now[from..] == bytes[from..now.len()], "{}", file.path.display());
        assert!(place.storage.exists(&file.path).unwrap());
    }
    let kept = contents(&place).len();
    drop(image);
    write_on(&mut wal, &mut written, 20);
    wal.release(wal.end());
    assert!(contents(&place).len() < kept);
}

/// What a crash leaves of a log whose files have other names is written again only where it has to.
#[test]
fn recovery_writes_to_no_file_that_has_another_name() {
    let storage = SimStorage::new(9);
    let place = place_in(Arc::new(storage.clone()), SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 30);
    let copy = place_image(&place, &wal.image().unwrap());
    let shared: Vec<PathBuf> = contents(&copy).into_iter().map(|(path, _)| path).collect();
    let is_shared =
        |path: &PathBuf| storage.open(path, OpenMode::ReadOnly).unwrap().link_count().unwrap() > 1;
    let shared: Vec<PathBuf> = shared.into_iter().filter(is_shared).collect();
    assert!(shared.len() > 3);
    storage.sync_dir(Path::new("/")).unwrap();
    storage.sync_dir(Path::new("/copy")).unwrap();
    let unsynced = storage.unsynced_count();
    assert_eq!(recover(&copy, Lsn::ZERO).unwrap().1, written);
    assert!(storage.unsynced_count() <= unsynced + 2, "names that were removed");
    assert_eq!(storage.violations(), [""; 0]);
}

/// Who synced last has not come to say so: that the log was durable to its end has to be in what is
/// made of the image all the same.
#[test]
fn damage_to_the_last_record_of_an_image_is_no_torn_tail() {
    for count in [0, 1, 3, 4, 5, 11] {
        let place = memory_place(SMALL_CAPACITY);
        let mut wal = Wal::create(place.clone()).unwrap();
        let mut written = Records::new();
        write_on(&mut wal, &mut written, count);
        let payload = payload_of(count, 50);
        let last = append(&mut wal, &payload);
        written.push((last.start, payload));
        let synced = wal.sync_target().run().unwrap();
        let image = wal.image().unwrap();
        let end = wal.end();
        wal.complete_sync(synced);
        assert_eq!(wal.end(), end, "it has been said");
        let copy = place_image(&place, &image);
        assert_eq!(read(&copy).unwrap(), written);
        let header = wal.files.back().unwrap().header;
        let offset = header.offset_of(last.start);
        for offset in offset..offset + 32 + 50 {
            for bit in 0..8 {
                flip(&copy, header.number, offset, bit);
                let error = read(&copy).unwrap_err();
                assert!(error.is_corruption(), "{offset}: {error}");
                flip(&copy, header.number, offset, bit);
            }
        }
        assert_eq!(read(&copy).unwrap(), written);
        // And the log goes on behind the mark.
        write_on(&mut wal, &mut written, 3);
        assert_eq!(read(&place).unwrap(), written);
    }
}

/// A power cut takes the mark of the last sync, so that records in a file that has two names are
/// not known to be durable; they are.
#[test]
fn recovery_behind_a_crash_writes_to_no_file_that_has_another_name() {
    let storage = SimStorage::new(11);
    let place = place_in(Arc::new(storage.clone()), SMALL_CAPACITY);
    storage.sync_dir(Path::new("/")).unwrap();
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut written = Records::new();
    write_on(&mut wal, &mut written, 3);
    let file_count = wal.stats().file_count;
    while wal.stats().file_count < file_count + 2 {
        let payload = payload_of(written.len(), 60);
        written.push((append(&mut wal, &payload).start, payload));
    }
    sync(&mut wal);
    let copy = place_image(&place, &wal.image().unwrap());
    storage.sync_dir(Path::new("/")).unwrap();
    storage.sync_dir(&copy.dir).unwrap();
    drop(wal);
    let mut left = storage.crash(CrashMode::DropAll, 0);
    for _ in 0..3 {
        for dir in [&place.dir, &copy.dir] {
            let place =
                WalPlace { storage: Arc::new(left.clone()), dir: dir.clone(), ..place.clone() };
            assert_eq!(recover(&place, Lsn::ZERO).unwrap().1, written, "{}", dir.display());
        }
        assert_eq!(left.violations(), [""; 0]);
        left = left.crash(CrashMode::DropAll, 1);
    }
}
