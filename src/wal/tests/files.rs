//! Changing files, reusing them, and opening again.

use super::*;

#[test]
fn a_log_over_many_files_reads_back_from_anywhere() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut expected = Records::new();
    for number in 0..60 {
        let payload = payload_of(number, 8 + number * 13 % 120);
        expected.push((append(&mut wal, &payload).start, payload));
    }
    assert!(wal.stats().file_count > 5);
    assert_eq!(read(&place).unwrap(), expected);
    for from in 0..60 {
        let (replay, records) = read_from(&place, expected[from].0).unwrap();
        assert_eq!(records, expected[from..]);
        assert_eq!(replay.recovered().end, wal.end());
    }
    let (replay, records) = read_from(&place, wal.end()).unwrap();
    assert_eq!((records.len(), replay.recovered().files.len()), (0, 1));
}

#[test]
fn a_record_that_leaves_just_the_room_of_a_mark_stays_in_the_file() {
    // 512 bytes: 32 for the mark, 32 for the record's header.
    for (len, file_count) in [(448, 1), (449, 2), (440, 1)] {
        let place = memory_place(SMALL_CAPACITY);
        let mut wal = Wal::create(place.clone()).unwrap();
        append(&mut wal, &payload_of(1, len));
        assert_eq!(wal.stats().file_count, file_count, "{len}");
        sync(&mut wal);
        append(&mut wal, b"next");
        sync(&mut wal);
        let expected = [payload_of(1, len), b"next".to_vec()];
        assert_eq!(payloads(&read(&place).unwrap()), expected);
        let (_, records) = recover(&place, Lsn::ZERO).unwrap();
        assert_eq!(payloads(&records), expected);
    }
}

#[test]
fn a_record_larger_than_a_file_gets_its_own() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut expected = Vec::new();
    for len in [10, 1_000_000, 20, 5000, 6000, 30] {
        expected.push(payload_of(expected.len(), len));
        append(&mut wal, expected.last().unwrap());
        if let Some(order) = wal.order_next() {
            wal.finish_order(order.run()).unwrap(); // Is overtaken by the large one.
        }
    }
    sync(&mut wal);
    assert_eq!(payloads(&read(&place).unwrap()), expected);

    let end = wal.end();
    wal.release(end);
    append(&mut wal, &payload_of(9, 400));
    append(&mut wal, &payload_of(10, 400));
    sync(&mut wal);
    let sizes = contents(&place).into_iter().map(|(_, bytes)| bytes.len() as u64);
    assert!(sizes.max().unwrap() <= 12288, "large files are not kept");
}

#[test]
fn released_files_are_reused_and_bounded() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut tail = Vec::new();
    for number in 0..500 {
        let payload = payload_of(number, 100);
        let appended = append(&mut wal, &payload);
        if let Some(order) = wal.order_next() {
            wal.finish_order(order.run()).unwrap();
        }
        if number % 2 == 0 {
            sync(&mut wal);
        }
        tail.push((appended.start, payload));
        if number >= 3 {
            let needed_from = tail[tail.len() - 3].0;
            wal.release(needed_from);
            let (_, records) = read_from(&place, needed_from).unwrap();
            assert_eq!(records, tail[tail.len() - 3..]);
        }
        let stats = wal.stats();
        assert!(stats.spare_count <= 3 && stats.file_count <= 4, "{stats:?}");
        assert_eq!(contents(&place).len(), stats.spare_count + stats.file_count);
        assert_eq!(stats.disk_bytes, contents(&place).len() as u64 * SMALL_CAPACITY);
    }
    let newest = place.numbers().unwrap().pop().unwrap();
    assert!(newest > 150, "numbers are never used again");
}

#[test]
fn a_file_is_kept_until_the_next_one_is_durable() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place).unwrap();
    append(&mut wal, &payload_of(1, 400));
    sync(&mut wal);
    let second = append(&mut wal, &payload_of(2, 400));
    wal.release(second.start);
    assert_eq!(wal.stats().file_count, 2, "the second file's header may get lost");
    sync(&mut wal);
    assert_eq!(wal.stats().file_count, 1);
}

#[test]
fn what_is_closed_has_no_files_that_nothing_needs() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut last = Lsn::ZERO;
    for number in 0..40 {
        last = append(&mut wal, &payload_of(number, 300)).start;
    }
    sync(&mut wal);
    wal.release(last);
    let order = wal.order_next().expect("the file is more than half full");
    wal.finish_order(order.run()).unwrap();
    let stats = wal.stats();
    assert!(stats.spare_count > 1, "{stats:?}");
    wal.give_up_spares();
    let files = |wal: &Wal| (wal.stats().file_count, wal.stats().spare_count);
    assert_eq!(files(&wal), (stats.file_count, 0));
    assert_eq!(contents(&place).len(), stats.file_count);
    drop(wal);
    let (mut wal, records) = recover(&place, last).unwrap();
    assert_eq!(payloads(&records), [payload_of(39, 300)]);
    // It takes the next number, and goes on.
    let later = append(&mut wal, &payload_of(40, 300));
    sync(&mut wal);
    wal.release(later.start);
    drop(wal);
    assert_eq!(payloads(&recover(&place, later.start).unwrap().1), [payload_of(40, 300)]);
}

#[test]
fn an_order_that_is_overtaken_becomes_a_spare() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, &payload_of(0, 300));
    let order = wal.order_next().expect("the file is more than half full");
    assert!(wal.order_next().is_none());
    append(&mut wal, &payload_of(1, 300));
    let outcome = order.run();
    wal.finish_order(outcome).unwrap();
    append(&mut wal, &payload_of(2, 300));
    let expected = [0, 1, 2].map(|number| payload_of(number, 300));
    assert_eq!(payloads(&read(&place).unwrap()), expected);
    assert_eq!(place.numbers().unwrap(), [1, 3, 4], "2 was renamed to 4");
}

#[test]
fn opening_again_and_again_adds_no_files() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, b"one");
    sync(&mut wal);
    drop(wal);
    for _ in 0..10 {
        let (wal, records) = recover(&place, Lsn::ZERO).unwrap();
        assert_eq!(payloads(&records), [b"one"]);
        drop(wal);
        assert_eq!(place.numbers().unwrap().len(), 2);
    }
    let (mut wal, _) = recover(&place, Lsn::ZERO).unwrap();
    append(&mut wal, b"two");
    drop(wal);
    let (wal, records) = recover(&place, Lsn::ZERO).unwrap();
    assert_eq!(payloads(&records), [b"one", b"two"]);
    assert_eq!(wal.durable_lsn(), wal.end());
}

#[test]
fn a_start_behind_the_end_of_the_log_is_where_it_goes_on() {
    // What was not synced can be lost although a flush has made the same commits durable.
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, b"one");
    sync(&mut wal);
    drop(wal);
    let flushed = Lsn::from_u64(100_000);
    let (mut wal, records) = recover(&place, flushed).unwrap();
    assert!(records.is_empty());
    let appended = append(&mut wal, b"two");
    assert_eq!(appended.start, flushed);
    sync(&mut wal);
    drop(wal);
    let (_, records) = recover(&place, flushed).unwrap();
    assert_eq!(records, [(flushed, b"two".to_vec())]);
}

#[test]
fn other_files_in_the_directory_are_left_alone() {
    let place = memory_place(SMALL_CAPACITY);
    drop(Wal::create(place.clone()).unwrap());
    write_file(&place, &place.dir.join("notes.txt"), b"mine");
    let (wal, _) = recover(&place, Lsn::ZERO).unwrap();
    drop(wal);
    assert!(contents(&place).iter().any(|(_, bytes)| bytes == b"mine"));
}
