//! A crash at every write, and what is found then: the index of a keyspace that is opened again is
//! ready and right, or says that it is not ready, and is when it was built on.

use lithedb::storage::{CrashMode, SimStorage};
use lithedb::{Db, Error, IndexOptions, KeyspaceOptions, WriteBatch};

use super::builder_at;
use crate::support::{PATH, assert_sound, step_to_rest};

const INDEX: &str = "by_word";

/// What had been acknowledged when the crash came.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    /// Puts.
    puts: usize,
    /// The index was ready.
    is_created: bool,
    /// The index was dropped.
    is_dropped: bool,
}

/// Creates an index on what is there, writes, builds it anew, flushes and drops it, until a crash.
fn work(db: &Db, done: &mut Acknowledged) -> Result<(), Error> {
    let k = db.create_keyspace("k", KeyspaceOptions::flex().memtable_size(4 << 10))?;
    let put = |done: &mut Acknowledged| {
        let number = done.puts;
        k.put(format!("p{:02}", number % 30), format!("w{} all", number % 7))?;
        done.puts += 1;
        Ok::<(), Error>(())
    };
    for _ in 0..20 {
        put(done)?;
    }
    k.create_index(INDEX, "words", IndexOptions::new())?;
    done.is_created = true;
    for _ in 0..20 {
        put(done)?;
    }
    db.flush()?;
    step_to_rest_or_crash(db)?;
    let mut batch = WriteBatch::new();
    batch.delete_range(&k, "p10".."p12");
    batch.put(&k, "p10", "w0 all");
    batch.put(&k, "p11", "w0 all");
    db.write(batch)?;
    k.rebuild_index(INDEX)?;
    for _ in 0..5 {
        put(done)?;
    }
    db.flush()?;
    k.drop_index(INDEX)?;
    done.is_dropped = true;
    put(done)
}

fn step_to_rest_or_crash(db: &Db) -> Result<(), Error> {
    while db.step()? {}
    Ok(())
}

/// Opens what a crash has left, and looks at it.
fn look(storage: &SimStorage, done: Acknowledged, context: &str) {
    let db = builder_at(storage).open(PATH).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_sound(&db);
    let k = match db.keyspace("k") {
        Ok(k) => k,
        Err(_) => return assert_eq!(done.puts, 0, "{context}"),
    };
    let len = k.len().unwrap();
    assert!(len >= done.puts.min(30) as u64, "{context}: {len} entries, {done:?}");
    let Ok(index) = k.index(INDEX) else {
        return assert!(!done.is_created || done.puts >= 45, "{context}: {done:?}");
    };
    let info = index.info().unwrap();
    assert!(!done.is_dropped, "{context}: {done:?} {info:?}");
    assert!(info.is_ready || !done.is_created, "{context}: {done:?} {info:?}");
    if !info.is_ready {
        assert!(matches!(index.view(), Err(Error::IndexNotReady { .. })), "{context}");
    }
    // Not built on yet, it goes on being kept.
    k.put("late", "w1 all").unwrap();
    assert_sound(&db);
    k.build_index(INDEX).unwrap();
    let info = index.info().unwrap();
    assert!(info.is_ready && !info.is_building, "{context}: {info:?}");
    assert_eq!(index.count("all"..="all").unwrap(), k.len().unwrap(), "{context}");
    assert_sound(&db);
    k.drop_index(INDEX).unwrap();
    step_to_rest(&db);
    assert_sound(&db);
}

#[test]
fn after_a_crash_anywhere_an_index_is_right_or_says_that_it_is_not_ready() {
    let rehearsal = SimStorage::new(7);
    let db = builder_at(&rehearsal).open(PATH).unwrap();
    work(&db, &mut Acknowledged::default()).unwrap();
    drop(db);
    let mutations = rehearsal.mutation_count();
    assert!(mutations > 200, "{mutations}");
    for point in (0..mutations).step_by(3) {
        let storage = SimStorage::new(7);
        match point % 2 {
            0 => storage.crash_at(point),
            _ => storage.crash_inside(point),
        }
        let mut done = Acknowledged::default();
        if let Ok(db) = builder_at(&storage).open(PATH) {
            let _crashed = work(&db, &mut done);
        }
        let mode = CrashMode::ALL[point as usize % CrashMode::ALL.len()];
        let context = format!("crash at {point}, {mode:?}");
        look(&storage.crash(mode, point), done, &context);
    }
}
