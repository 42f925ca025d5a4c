//! Figures: what was written, by what for, in a session and since creation, and in how much memory.

use std::sync::Arc;

use lithedb::storage::{CrashMode, MemoryStorage, SimStorage, Storage};
use lithedb::{Background, Builder, BytesWritten, Db, Durability, Keyspace, KeyspaceOptions};

use crate::support::assert_sound;

fn builder(storage: &Arc<dyn Storage>) -> Builder {
    let builder = Db::builder().storage(Arc::clone(storage)).background(Background::Stepped);
    builder.memory_budget(4 << 20).value_file_size(64 << 10).wal_file_size(64 << 10)
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn keyspace_of(db: &Db) -> Keyspace {
    let options = KeyspaceOptions::flex()
        .value_separation(Some(1000))
        .interval_size(512)
        .memtable_size(16 << 10);
    db.keyspace("k").unwrap_or_else(|_| db.create_keyspace("k", options).unwrap())
}

/// Overwrites small values in all of the keyspace, and large ones.
fn work(db: &Db, keyspace: &Keyspace, rounds: u32) {
    for round in 0..rounds {
        for key in 0..500u32 {
            let key = key.wrapping_mul(2_654_435_761) % 500;
            keyspace.put(key.to_be_bytes(), [round as u8; 40]).unwrap();
        }
        for key in 0..20u32 {
            let key = [b"large", &key.to_be_bytes()[..]].concat();
            keyspace.put(key, vec![round as u8; 3000]).unwrap();
        }
        while db.step().unwrap() {}
    }
}

fn sums_up(written: &BytesWritten) {
    let parts: u64 = written.parts().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(parts, written.total());
    assert!((written.write_amplification() - parts as f64 / written.data as f64).abs() < 1e-9);
}

#[test]
fn bytes_written_are_told_by_what_they_were_written_for() {
    let storage = memory();
    let db = builder(&storage).open("/db").unwrap();
    let keyspace = keyspace_of(&db);
    work(&db, &keyspace, 8);
    db.vacuum().unwrap();
    keyspace
        .ingest((0..2000u32).map(|key| ([b"z", &key.to_be_bytes()[..]].concat(), "v")))
        .unwrap();
    let stats = db.stats();
    let written = stats.session;
    for (part, bytes) in written.parts() {
        assert_eq!(bytes == 0, part == "dropped", "{part}: {bytes}");
    }
    sums_up(&written);
    assert_eq!(written.data, stats.data_bytes_written);
    assert_eq!(stats.lifetime.total(), written.total(), "it is the first session");
    assert!(stats.cleanings > 0 && stats.lifetime_cleanings == stats.cleanings);
    let of_keyspace = &stats.keyspaces[0];
    sums_up(&of_keyspace.session);
    let segments = of_keyspace.session.total() - of_keyspace.session.index;
    assert_eq!(segments, of_keyspace.structure_bytes_since_open);
    // With the values in value files, which the keyspace's own figures leave out.
    assert!(of_keyspace.session.write_amplification() > 1.0);
    assert!(of_keyspace.space_amplification() >= 1.0);
    let free = stats.bytes_free() + stats.bytes_pinned() + stats.bytes_live();
    assert!(free <= stats.bytes_on_disk());
    assert_sound(&db);
}

#[test]
fn totals_outlive_sessions_and_keyspaces() {
    let storage = memory();
    let (mut commits, mut data, mut total) = (0, 0, 0);
    for session in 0..3 {
        let db = builder(&storage).open("/db").unwrap();
        let stats = db.stats();
        assert_eq!((stats.lifetime_commits, stats.lifetime.data), (commits, data), "{session}");
        // But for the edit of the manifest that they were written with.
        assert!(stats.lifetime.total() + 1000 >= total && stats.commits == 0);
        work(&db, &keyspace_of(&db), 2);
        let stats = db.close().unwrap();
        (commits, data) = (stats.lifetime_commits, stats.lifetime.data);
        total = stats.lifetime.total();
        assert_eq!(commits, 1040 * (session + 1));
        sums_up(&stats.lifetime);
        assert!(stats.lifetime.write_amplification() > 1.5);
    }
    let db = builder(&storage).open("/db").unwrap();
    let before = db.stats();
    let of_keyspace = before.keyspaces[0].lifetime.total();
    db.drop_keyspace("k").unwrap();
    while db.step().unwrap() {}
    assert_eq!(db.stats().lifetime.dropped, of_keyspace);
    db.close().unwrap();
    let after = builder(&storage).open("/db").unwrap().stats();
    assert_eq!(after.lifetime.dropped, of_keyspace);
    assert!(after.lifetime.total() >= before.lifetime.total());
}

#[test]
fn a_crash_takes_no_commits_out_of_the_totals() {
    for seed in 0..20 {
        let disk = SimStorage::new(seed);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let db = builder(&storage).open("/db").unwrap();
        let keyspace = keyspace_of(&db);
        work(&db, &keyspace, 1 + seed as u32 % 3);
        keyspace.put_with("last", "of all", Durability::Sync).unwrap();
        let stats = db.stats();
        let crashed: Arc<dyn Storage> = Arc::new(disk.crash(CrashMode::RandomSectors, seed));
        drop(db);
        let db = builder(&crashed).open("/db").unwrap();
        let found = db.stats();
        assert_eq!(found.lifetime_commits, stats.lifetime_commits, "{seed}");
        assert_eq!(found.lifetime.data, stats.lifetime.data, "{seed}");
        assert!(found.lifetime.wal >= stats.wal_bytes_written, "{seed}");
        let written = |stats: &lithedb::Stats| stats.keyspaces[0].structure_bytes_written;
        assert_eq!(written(&found), written(&stats), "the index knows these");
        assert_sound(&db);
    }
}

#[test]
fn every_part_of_the_memory_is_counted() {
    let storage = memory();
    let db = builder(&storage).open("/db").unwrap();
    let keyspace = keyspace_of(&db);
    let idle = db.stats();
    let mut writer = keyspace.put_writer("stream").unwrap();
    std::io::Write::write_all(&mut writer, &[1; 300_000]).unwrap();
    let streaming = db.stats();
    assert!(streaming.memory_buffers >= idle.memory_buffers + (64 << 10));
    writer.commit().unwrap();
    assert!(db.stats().memory_buffers <= idle.memory_buffers + (64 << 10));
    let reader = keyspace.get_reader("stream").unwrap();
    assert!(db.stats().memory_buffers >= idle.memory_buffers + (64 << 10));
    drop(reader);

    work(&db, &keyspace, 1);
    db.flush().unwrap();
    let mut ingest = keyspace.begin_ingest().unwrap();
    let before = db.stats().memory_buffers;
    for key in 0..20_000u32 {
        ingest.add([b"z", &key.to_be_bytes()[..]].concat(), [7; 20]).unwrap();
    }
    assert!(db.stats().memory_buffers > before + (64 << 10), "runs that wait for their edit");
    drop(ingest);

    let mut walk = keyspace.iter();
    walk.next().unwrap().unwrap();
    let stats = db.stats();
    assert!(stats.memory_readers + stats.memory_cache > 0, "a walk holds its block");
    let parts = [
        stats.memory_memtable,
        stats.memory_cache,
        stats.memory_index,
        stats.memory_transaction,
        stats.memory_buffers,
        stats.memory_readers,
        stats.memory_unused,
    ];
    assert_eq!(stats.memory_used(), parts.iter().sum::<u64>());
}

#[test]
fn indexes_over_their_share_of_the_budget_have_fewer_runs() {
    let runs_with = |budget: u64| {
        let storage = memory();
        let db = builder(&storage).memory_budget(budget).open("/db").unwrap();
        let options = KeyspaceOptions::flex().interval_size(512).memtable_size(32 << 10);
        let keyspace = db.create_keyspace("many", options.consolidation_pace(8.0)).unwrap();
        for number in 0..60_000u32 {
            let key = number.wrapping_mul(2_654_435_761);
            keyspace.put_with(key.to_be_bytes(), [0; 30], Durability::Buffered).unwrap();
            if number % 2000 == 0 {
                db.flush().unwrap(); // Without what is done when there is nothing to do.
            }
        }
        db.flush().unwrap();
        assert_sound(&db);
        let stats = db.stats();
        (stats.keyspaces[0].runs as f64 / stats.keyspaces[0].intervals as f64, stats.memory_index)
    };
    let ((roomy, _), (tight, index)) = (runs_with(64 << 20), runs_with(1 << 20));
    assert!(index > 1 << 19, "the budget is tight for the index: {index}");
    assert!(tight < roomy * 0.75, "{tight} runs an interval, {roomy} with room");
}
