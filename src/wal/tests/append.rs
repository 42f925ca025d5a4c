//! Appending, syncing and reading back.

use super::*;

#[test]
fn what_is_appended_reads_back_in_order() {
    let place = memory_place(1 << 20);
    let mut wal = Wal::create(place.clone()).unwrap();
    let mut expected = Records::new();
    for number in 0..300 {
        let payload = payload_of(number, number * 7 % 900);
        let appended = append(&mut wal, &payload);
        assert_eq!(appended.end, wal.end());
        expected.push((appended.start, payload));
        if number % 10 == 0 {
            sync(&mut wal);
            assert!(wal.durable_lsn() >= appended.end);
        }
    }
    assert_eq!(read(&place).unwrap(), expected);
    let (_, tail) = read_from(&place, expected[200].0).unwrap();
    assert_eq!(tail, expected[200..]);
}

#[test]
fn parts_are_joined_whatever_their_sizes() {
    let place = memory_place(8 << 20);
    let mut wal = Wal::create(place.clone()).unwrap();
    let large = payload_of(3, 700_001);
    let medium = payload_of(4, 200_000);
    let small = payload_of(5, 100);
    let shapes: [&[&[u8]]; 6] = [
        &[],
        &[b"", b"a", b""],
        &[&small, &large, &small, &medium],
        &[&medium, &medium, &small],
        &[&large],
        &[&small, &medium],
    ];
    for parts in shapes {
        wal.append(parts).unwrap();
    }
    let expected: Vec<Vec<u8>> = shapes.iter().map(|parts| parts.concat()).collect();
    assert_eq!(payloads(&read(&place).unwrap()), expected);
}

#[test]
fn a_ticket_covers_what_was_there_when_it_was_taken() {
    let place = memory_place(SMALL_CAPACITY);
    let mut wal = Wal::create(place).unwrap();
    assert_eq!(wal.sync_target().run().unwrap(), Lsn::ZERO);
    assert_eq!(wal.stats().sync_count, 0, "nothing was to be synced");

    let first = append(&mut wal, b"first");
    let ticket = wal.sync_target();
    let second = append(&mut wal, b"second");
    assert_eq!(ticket.target(), first.end);
    assert_eq!(ticket.run().unwrap(), first.end);
    wal.complete_sync(first.end);
    assert_eq!(wal.durable_lsn(), first.end);
    assert_eq!(wal.end(), second.end, "no mark while something is not synced");

    let (late, early) = (wal.sync_target(), wal.sync_target());
    assert_eq!(late.run().unwrap(), second.end);
    assert_eq!(early.run().unwrap(), second.end);
    assert_eq!(wal.stats().sync_count, 2, "the other ticket had covered it");
    wal.complete_sync(second.end);
    assert_eq!(wal.end(), second.end.plus(32), "a mark");
    wal.complete_sync(second.end);
    assert_eq!(wal.end(), second.end.plus(32), "no second mark");
    assert_eq!(wal.sync_target().run().unwrap(), second.end, "a mark needs no sync");
    assert_eq!(wal.stats().sync_count, 2);
}

#[test]
fn syncs_run_beside_appends() {
    let place = memory_place(64 << 10);
    let wal = std::sync::Mutex::new(Wal::create(place.clone()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3_usize {
            let wal = &wal;
            scope.spawn(move || {
                for number in 0..200 {
                    let payload = payload_of(thread * 1000 + number, 100);
                    let (appended, ticket) = {
                        let mut wal = wal.lock().unwrap();
                        let appended = wal.append(&[&payload]).unwrap();
                        (appended, wal.sync_target())
                    };
                    let synced = ticket.run().unwrap();
                    assert!(synced >= appended.end);
                    wal.lock().unwrap().complete_sync(synced);
                }
            });
        }
    });
    let mut numbers: Vec<u64> = Vec::new();
    for payload in payloads(&read(&place).unwrap()) {
        numbers.push(u64::from_le_bytes(payload[..8].try_into().unwrap()));
    }
    let by_thread = |thread: u64| -> Vec<u64> {
        numbers.iter().filter(|number| *number / 1000 == thread).copied().collect()
    };
    for thread in 0..3 {
        assert_eq!(by_thread(thread), (thread * 1000..thread * 1000 + 200).collect::<Vec<_>>());
    }
}

#[test]
fn creation_refuses_a_log_with_records_and_replaces_one_without() {
    let place = memory_place(SMALL_CAPACITY);
    drop(Wal::create(place.clone()).unwrap());
    let other = WalPlace { database_id: 1, ..place.clone() };
    assert!(matches!(Wal::create(other), Err(Error::InvalidArgument { .. })));
    let mut wal = Wal::create(place.clone()).unwrap();
    append(&mut wal, b"precious");
    drop(wal);
    assert!(matches!(Wal::create(place.clone()), Err(Error::InvalidArgument { .. })));
    assert_eq!(payloads(&read(&place).unwrap()), [b"precious"]);
}

#[test]
fn options_that_cannot_work_are_refused() {
    for capacity in [0, 4096, 4096 + 56, 5001] {
        let outcome = Wal::create(memory_place(capacity));
        assert!(matches!(outcome, Err(Error::InvalidArgument { .. })), "{capacity}");
    }
}
