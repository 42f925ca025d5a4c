//! Small things that several tests use.

pub mod hints;

use std::collections::BTreeMap;
use std::sync::Arc;

use lithe_sim::setup::Setup;
use lithedb::storage::{SimStorage, Storage};
use lithedb::{Background, Builder, Compaction, Db, Keyspace, KeyspaceOptions, Leveled, Tiered};

/// Where every test database is.
pub const PATH: &str = "/db";

/// A builder for the smallest of everything, stepped, in `storage`.
pub fn tiny(storage: &SimStorage) -> Builder {
    Setup::tiny(1).builder(Arc::new(storage.clone()), Arc::default(), 0)
}

/// Opens the smallest of everything, stepped, in `storage`.
pub fn open_tiny(storage: &SimStorage) -> Db {
    tiny(storage).open(PATH).unwrap()
}

/// Opens the smallest of everything, with threads, in `storage`.
pub fn open_tiny_with_threads(storage: Arc<dyn Storage>) -> Db {
    let builder = Setup::tiny(1).builder(storage, Arc::default(), 0);
    builder.background(Background::Threads).open(PATH).unwrap()
}

/// A keyspace with intervals and segments of the smallest size.
pub fn create_tiny(db: &Db, name: &str) -> Keyspace {
    db.create_keyspace(name, Setup::tiny(1).keyspace_options(0)).unwrap()
}

/// Options for the smallest of everything, of each structure and shape there is.
pub fn tiny_structures() -> [KeyspaceOptions; 3] {
    let leveled = Leveled::new().level0_trigger(2).level_ratio(3.0);
    let tiered = Tiered::new().threshold(3).run_count_max(6);
    let lsm =
        |shape| KeyspaceOptions::lsm().compaction(shape).table_size(16 << 10).block_size(1 << 10);
    [
        Setup::tiny(1).keyspace_options(0),
        lsm(Compaction::Leveled(leveled)),
        lsm(Compaction::Tiered(tiered)),
    ]
}

/// Keys and values, from front to back.
pub fn rows(keyspace: &Keyspace) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = keyspace.iter().map(|entry| {
        let entry = entry.unwrap();
        (entry.key.to_vec(), entry.value.to_vec())
    });
    entries.collect()
}

/// Does background work until there is none.
pub fn step_to_rest(db: &Db) {
    while db.step().unwrap() {}
}

/// The check finds nothing.
pub fn assert_sound(db: &Db) {
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
}
