//! What the past of keyspaces says that were converted to `Structure::History` beside ingests of
//! tables, which delete past the memtables.

use std::ops::ControlFlow;
use std::path::Path;

use lithedb::storage::Storage;
use lithedb::{Db, Keyspace, KeyspaceOptions, TableIngestOptions, TableWriter};

use crate::conversion::{fill, key, open_in, opened, rows_in, targets};
use crate::support::{assert_sound, rows};

#[test]
fn what_tables_delete_meanwhile_is_not_in_the_past() {
    let (storage, _, db) = opened();
    let k = db.create_keyspace("k", targets()[1].clone()).unwrap();
    let mut model = fill(&k, 3000, 20);
    db.flush().unwrap();
    storage.create_dir_all(Path::new("/outside")).unwrap();
    let path = Path::new("/outside/table");
    let mut is_ingested = false;
    let report = k.convert_while(KeyspaceOptions::history(), |so_far| {
        if so_far.entries > 1500 && !is_ingested {
            is_ingested = true;
            // One that is not copied yet comes to the archive with its memtable.
            k.put(key(2900), "later").unwrap();
            db.flush().unwrap();
            let mut writer = k.table_writer(path).unwrap();
            writer.delete(key(10)).unwrap();
            writer.delete_range(key(20)..key(40)).unwrap();
            writer.put(key(50), "new").unwrap();
            writer.delete(key(2900)).unwrap();
            writer.finish().unwrap();
            k.ingest_tables([path], TableIngestOptions::copying()).unwrap();
            model.retain(|of, _| *of != key(10) && *of != key(2900));
            model.retain(|of, _| !(key(20)..key(40)).contains(of));
            model.insert(key(50), b"new".to_vec());
        }
        ControlFlow::Continue(())
    });
    let began = report.unwrap().begins_at.unwrap();
    assert!(is_ingested);
    assert_eq!(rows(&k), model);
    let check = |db: &Db, k: &Keyspace| {
        for gone in [10, 20, 39, 2900] {
            assert_eq!(k.get_at(key(gone), began).unwrap(), None, "{gone}");
        }
        assert_eq!(rows_in(&db.snapshot_at(began).unwrap(), k), model);
    };
    check(&db, &k);
    db.compact().unwrap();
    check(&db, &k);
    // What is deleted once more was not there.
    let seen = k.history(key(10), ..).unwrap().count();
    k.delete(key(10)).unwrap();
    db.flush().unwrap();
    assert_eq!(k.history(key(10), ..).unwrap().count(), seen);
    assert_sound(&db);
}

#[test]
fn what_is_put_behind_tables_that_delete_it_is_in_the_past() {
    for is_copied in [true, false] {
        let (storage, clock, db) = opened();
        let k = db.create_keyspace("k", targets()[1].clone()).unwrap();
        fill(&k, 3000, 20);
        db.flush().unwrap();
        storage.create_dir_all(Path::new("/outside")).unwrap();
        let path = Path::new("/outside/table");
        let number = if is_copied { 10 } else { 2900 };
        let ingest = |fill: &dyn Fn(&mut TableWriter)| {
            let mut writer = k.table_writer(path).unwrap();
            fill(&mut writer);
            writer.finish().unwrap();
            let stamp = k.ingest_tables([path], TableIngestOptions::copying()).unwrap();
            storage.remove_file(path).unwrap();
            stamp
        };
        let mut stamps = None;
        let report = k.convert_while(KeyspaceOptions::history(), |so_far| {
            if so_far.entries > 1500 && stamps.is_none() {
                // Else it comes to the archive with its memtable.
                k.put(key(number), "first").unwrap();
                db.flush().unwrap();
                ingest(&|writer| writer.delete(key(number)).unwrap());
                // In a memtable: the next ingest is of other keys, and newer.
                let put = k.put(key(number), "second").unwrap();
                ingest(&|writer| writer.put(key(number + 20), "x").unwrap());
                stamps = Some(put);
            }
            ControlFlow::Continue(())
        });
        let began = report.unwrap().begins_at.unwrap();
        assert!(began > stamps.unwrap());
        let check = |db: &Db, k: &Keyspace| {
            let moment = db.snapshot().seqno();
            for at in [began, moment] {
                assert_eq!(k.get_at(key(number), at).unwrap().as_deref(), Some(&b"second"[..]));
            }
            assert_eq!(rows_in(&db.snapshot_at(moment).unwrap(), k), rows(k));
        };
        check(&db, &k);
        db.flush().unwrap();
        check(&db, &k);
        let seen = k.history(key(number), ..).unwrap().count();
        k.delete(key(number)).unwrap();
        assert_eq!(k.history(key(number), ..).unwrap().count(), seen + 1);
        k.put(key(number), "second").unwrap();
        db.close().unwrap();
        drop((k, db));
        let db = open_in(&storage, &clock);
        check(&db, &db.keyspace("k").unwrap());
        assert_sound(&db);
    }
}
