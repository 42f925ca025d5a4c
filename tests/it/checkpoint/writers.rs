//! Checkpoints beside writers, conversions, indexes and ingests.

use super::*;

/// Commits the same number to two keyspaces of different structures, and to one that keeps all.
fn commit_numbers(db: &Db, keyspaces: &[Keyspace], numbers: &AtomicU64, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let written = db.update_with(Durability::Buffered, |transaction| {
            let last = transaction.get(&keyspaces[0], "last")?;
            let last = last.map_or(0, |bytes| u64::from_be_bytes((&*bytes).try_into().unwrap()));
            let next = (last + 1).to_be_bytes();
            for keyspace in keyspaces {
                transaction.put(keyspace, "last", next)?;
                let value = vec![last as u8; if last % 11 == 0 { 5000 } else { 40 }];
                transaction.put(keyspace, next, value)?;
            }
            Ok::<_, Error>(last + 1)
        });
        match written {
            Ok(last) => drop(numbers.fetch_max(last, Ordering::Relaxed)),
            Err(Error::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Conversions, indexes, keyspaces that come and go, flushes and vacuums.
fn disturb(db: &Db, converted: &Keyspace, is_over: &AtomicBool) {
    let mut round = 0u64;
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        let options = match round % 3 {
            0 => KeyspaceOptions::flex(),
            1 => KeyspaceOptions::lsm(),
            _ => KeyspaceOptions::flex().interval_size(4 << 10),
        };
        let mut left = 1 + round % 40;
        let cancel = |_: &lithedb::ConversionReport| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        converted.convert_while(Conversion::to(options), cancel).unwrap();
        match converted.create_index("parity", "value_prefix:1", IndexOptions::new()) {
            Ok(_) => converted.drop_index("parity").unwrap(),
            Err(error) => panic!("{error}"),
        }
        let name = format!("passing {round}");
        let passing = db.create_keyspace(&name, KeyspaceOptions::history()).unwrap();
        passing.ingest([("a", "1")]).unwrap();
        passing.put("key", vec![1; 9000]).unwrap();
        let loaded = db.create_keyspace(&format!("loaded {round}"), KeyspaceOptions::lsm());
        let loaded = loaded.unwrap();
        loaded.ingest((0..300u64).map(|key| (key.to_be_bytes(), "ingested"))).unwrap();
        db.flush().unwrap();
        db.vacuum().unwrap();
        db.drop_keyspace(&name).unwrap();
        db.drop_keyspace(&format!("loaded {round}")).unwrap();
    }
}

fn expect_consistent(copy: &Db, report: &lithedb::CheckpointReport, source: &Db) {
    let keyspaces = ["numbers", "twins", "all"].map(|name| copy.keyspace(name).unwrap());
    let [numbers, twins, all] = keyspaces.each_ref().map(rows);
    assert_eq!(numbers, twins);
    assert_eq!(numbers, all);
    let last = numbers
        .get(&b"last"[..])
        .map_or(0, |bytes| u64::from_be_bytes(bytes.as_slice().try_into().unwrap()));
    assert_eq!(numbers.len() as u64, last + u64::from(last > 0));
    // As of its stamp, in the keyspace that keeps every version.
    let then = source.snapshot_at(report.seqno).unwrap();
    let kept = source.keyspace("all").unwrap();
    let then: BTreeMap<Vec<u8>, Vec<u8>> = then
        .iter(&kept)
        .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).unwrap())
        .collect();
    assert_eq!(all, then);
    for info in copy.keyspaces() {
        let len = copy.keyspace(&info.name).unwrap().len().unwrap();
        assert!(!info.name.starts_with("loaded") || len == 0 || len == 300, "{}: {len}", info.name);
    }
    assert_sound(copy);
}

#[test]
fn checkpoints_beside_writers_conversions_indexes_and_ingests_have_whole_commits() {
    let dir = tempfile::tempdir().unwrap();
    let builder = || {
        let builder = Db::builder().memory_budget(8 << 20).memtable_size(64 << 10);
        builder.wal_file_size(256 << 10).value_file_size(256 << 10)
    };
    let db = builder().open(dir.path().join("db")).unwrap();
    let flex = KeyspaceOptions::flex().interval_size(2 << 10).segment_size(64 << 10);
    let options = [
        ("numbers", flex.clone()),
        ("twins", KeyspaceOptions::lsm().table_size(64 << 10)),
        ("all", KeyspaceOptions::history()),
    ];
    let keyspaces: Vec<Keyspace> =
        options.map(|(name, options)| db.create_keyspace(name, options).unwrap()).into();
    let converted = db.create_keyspace("converted", flex).unwrap();
    for number in 0..2000u64 {
        let value = vec![number as u8; 60];
        converted.put_with(number.to_be_bytes(), value, Durability::Buffered).unwrap();
    }
    let (numbers, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let made = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| commit_numbers(&db, &keyspaces, &numbers, &is_over));
        }
        scope.spawn(|| disturb(&db, &converted, &is_over));
        for number in 0..5 {
            let path = dir.path().join(format!("copy {number}"));
            let least = numbers.load(Ordering::Relaxed);
            let report = db.checkpoint(&path).unwrap();
            let copy = builder().background(Background::Threads).open(&path).unwrap();
            expect_consistent(&copy, &report, &db);
            let count = copy.keyspace("numbers").unwrap().len().unwrap();
            assert!(count >= least, "{count} entries behind {least} commits");
            assert_eq!(copy.keyspace("converted").unwrap().len().unwrap(), 2000);
            copy.vacuum().unwrap();
            copy.close().unwrap();
            made.lock().unwrap().push((path, report));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    db.compact().unwrap();
    db.vacuum().unwrap();
    assert_sound(&db);
    for (path, report) in made.into_inner().unwrap() {
        let copy = builder().open(&path).unwrap();
        expect_consistent(&copy, &report, &db);
    }
}
