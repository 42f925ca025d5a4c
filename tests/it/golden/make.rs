//! What the golden databases are made of. The same bytes each time: clock and identities are given,
//! work in the background is done in steps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lithedb::base::{Codec, ManualClock, SeededEntropy};
use lithedb::flex_space::{FlexSpace, Tag};
use lithedb::storage::SimStorage;
use lithedb::{
    Compaction, Conversion, Db, FeedOptions, IndexOptions, KeyspaceOptions, TableWriter, Tiered,
    WriteBatch,
};

use super::{PATH, builder};

/// Contents of files, by their names in the directory.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Everything that is made.
pub const MADE: [&str; 6] = ["closed", "killed", "sealed", "passphrase", "space", "table"];
pub const SPACE: &str = "/space";
pub const TABLE: &str = "words.tbl";
/// When they are made: 2023-11-14.
const START_MILLIS: u64 = 1_700_000_000_000;
/// When they are looked at: some of what expires has by then.
pub const LOOKED_AT_MILLIS: u64 = START_MILLIS + 5 * HOUR_MILLIS;
const HOUR_MILLIS: u64 = 3_600_000;
const ROWS: u32 = 90;
/// Of two chunks.
const LONG_VALUE_LEN: usize = 70_000;

/// The files of what has this name.
pub fn files(name: &str) -> Files {
    match name {
        "space" => space(),
        "table" => table(),
        database => self::database(database),
    }
}

/// The files of the database of this name, as they were left.
pub fn database(name: &str) -> Files {
    let storage = SimStorage::new(1);
    if name == "passphrase" {
        let clock = Arc::new(ManualClock::at_millis(START_MILLIS));
        let db = builder(Arc::new(storage.clone()), name, START_MILLIS, 0).clock(clock);
        let db = db.open(PATH).unwrap();
        let words = db.create_keyspace("words", KeyspaceOptions::lsm()).unwrap();
        words.put("otter", "swims").unwrap();
        words.put("marten", "climbs").unwrap();
        db.close().unwrap();
        return files_in(&storage, PATH);
    }
    first_session(&storage, name);
    let clock = Arc::new(ManualClock::at_millis(START_MILLIS + 2 * HOUR_MILLIS));
    let db = builder(Arc::new(storage.clone()), name, START_MILLIS, 1).clock(clock.clone());
    let db = db.open(PATH).unwrap();
    second_session(&db, &clock);
    if name == "sealed" {
        // Some files have the newer key then, some the older.
        let report = db.rotate_data_key_while(|_| ControlFlow::Break(())).unwrap();
        assert!(report.is_cancelled, "{report:?}");
    }
    last_writes(&db);
    match name {
        "closed" => {
            db.close().unwrap();
            files_in(&storage, PATH)
        }
        // As if the process had been killed: what was written is there, nothing was finished.
        _ => files_in(&storage.duplicate(), PATH),
    }
}

fn files_in(storage: &SimStorage, dir: &str) -> Files {
    let name_of = |path: &std::path::Path| path.strip_prefix(dir).unwrap().display().to_string();
    let files = storage.files().into_iter();
    files.map(|(path, _)| (name_of(&path), storage.read_file(&path).unwrap())).collect()
}

pub fn key(number: u32) -> String {
    format!("key-{number:04}")
}

fn value(kind: &str, number: u32) -> Vec<u8> {
    let len = if number % 9 == 4 { 400 } else { 24 };
    let mut value = format!("{kind},{},{number} ", ["red", "green", "blue"][number as usize % 3]);
    while value.len() < len {
        value = value.clone() + &value;
    }
    value.truncate(len);
    value.into_bytes()
}

fn keyspaces() -> Vec<(&'static str, KeyspaceOptions)> {
    let flex = || KeyspaceOptions::flex().interval_size(512).segment_size(4096);
    let lsm = || KeyspaceOptions::lsm().table_size(16 << 10).block_size(512);
    let tiered = Tiered::new().threshold(3);
    vec![
        ("flex", flex().value_separation(Some(300))),
        ("packed", flex().codec(Codec::Lz4).value_separation(None)),
        ("lsm", lsm().codec(Codec::Snappy).value_separation(Some(300))),
        ("tiered", lsm().compaction(Compaction::Tiered(tiered)).filter_prefix_len(3)),
        ("history", KeyspaceOptions::history().value_separation(Some(300))),
        ("kept", KeyspaceOptions::history().keep_versions(2)),
        ("visits", flex().merge_operator("counter")),
        ("notes", lsm().merge_operator("append")),
        ("past notes", KeyspaceOptions::history().merge_operator("append")),
        ("sessions", flex().ttl(Duration::from_secs(3600))),
        ("converted", flex()),
        ("old name", lsm()),
        ("dropped", flex()),
        ("empty", lsm()),
    ]
}

fn first_session(storage: &SimStorage, name: &str) {
    let clock = Arc::new(ManualClock::at_millis(START_MILLIS));
    let builder = builder(Arc::new(storage.clone()), name, START_MILLIS, 0);
    let db = builder.clock(clock.clone()).kept_log_size(48 << 10).open(PATH).unwrap();
    for (name, options) in keyspaces() {
        db.create_keyspace(name, options).unwrap();
    }
    let of = |name: &str| db.keyspace(name).unwrap();
    of("flex").create_index("by color", "field:,:2", IndexOptions::new()).unwrap();
    let unique = IndexOptions::new().unique();
    of("tiered").create_index("by value", "value", unique).unwrap();
    for number in 0..ROWS {
        for kind in ["flex", "packed", "lsm", "tiered", "history", "kept", "converted", "dropped"] {
            of(kind).put(key(number), value(kind, number)).unwrap();
        }
        if number % 30 == 0 {
            clock.advance(Duration::from_millis(500));
            db.flush().unwrap();
        }
    }
    of("flex").put("long", vec![b'x'; LONG_VALUE_LEN]).unwrap();
    for (number, by) in [(1_u64, 5_u64), (2, 7), (1, 30)] {
        of("visits").merge(format!("page {number}"), by.to_le_bytes()).unwrap();
        of("notes").merge("list", format!("{by};")).unwrap();
        of("past notes").merge("list", format!("{by};")).unwrap();
    }
    of("old name").put("k", "v").unwrap();
    of("packed").ingest((0..40).map(|n| (format!("lot-{n:03}"), value("lot", n)))).unwrap();
    of("history").ingest([("lot-1", "ingested"), ("lot-2", "ingested too")]).unwrap();
    db.flush().unwrap();
    of("flex").compact::<&[u8]>(..).unwrap();
    db.create_consumer("mirror", 1 << 20).unwrap();
    db.rename_keyspace("old name", "new name").unwrap();
    db.drop_keyspace("dropped").unwrap();
    let options = KeyspaceOptions::lsm().codec(Codec::Lz4);
    of("converted").convert(Conversion::to(options)).unwrap();
    db.close().unwrap();
}

/// What lies above what was flushed before.
fn second_session(db: &Db, clock: &ManualClock) {
    let of = |name: &str| db.keyspace(name).unwrap();
    for number in (0..ROWS).step_by(4) {
        for kind in ["flex", "lsm", "tiered", "history", "kept"] {
            of(kind).put(key(number), value("newer", number + 1000)).unwrap();
        }
    }
    for kind in ["flex", "packed", "lsm", "history", "kept", "converted"] {
        let keyspace = of(kind);
        keyspace.delete(key(7)).unwrap();
        keyspace.delete_range(key(20)..key(26)).unwrap();
        keyspace.delete_prefix("key-003").unwrap();
    }
    clock.advance(Duration::from_secs(60));
    db.flush().unwrap();
    for number in 0..5 {
        of("kept").put("often", format!("version {number}")).unwrap();
    }
    of("past notes").put("list", "begun anew;").unwrap();
    of("past notes").merge("list", "and on;").unwrap();
    of("history").delete(key(8)).unwrap();
}

fn at(hours: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(START_MILLIS + hours * HOUR_MILLIS)
}

/// What is in the log alone, where it is not closed.
fn last_writes(db: &Db) {
    let of = |name: &str| db.keyspace(name).unwrap();
    let mut consumer = db.consumer("mirror", FeedOptions::new()).unwrap();
    let first = consumer.next().unwrap().unwrap();
    consumer.acknowledge(first.seqno).unwrap();
    drop(consumer);
    of("sessions").put("gone by then", "x").unwrap();
    of("flex").put_until("expires late", "x", at(9)).unwrap();
    of("flex").put_until("expires early", "x", at(4)).unwrap();
    of("sessions").put_until("lasts", "y", at(9)).unwrap();
    of("visits").merge("page 2", 100_u64.to_le_bytes()).unwrap();
    of("notes").merge("list", "last;").unwrap();
    of("history").put(key(8), value("again", 8)).unwrap();
    of("lsm").put("large", vec![b'l'; 900]).unwrap();
    of("lsm").delete_range(key(60)..key(64)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&of("flex"), "together", "one,green,");
    batch.put(&of("history"), "together", "two");
    batch.delete(&of("packed"), key(1));
    batch.set_payload(b"why".to_vec());
    db.write(batch).unwrap();
    db.update(|transaction| {
        let found = transaction.get(&of("flex"), "together")?;
        transaction.put(&of("new name"), "read", found.as_deref().unwrap_or_default())
    })
    .unwrap();
}

fn space() -> Files {
    let storage = SimStorage::new(1);
    let options = FlexSpace::options().storage(Arc::new(storage.clone()));
    let options = options.entropy(Arc::new(SeededEntropy::new(5))).segment_size(64 << 10);
    let mut space = options.open(SPACE).unwrap();
    space.append(b"the first of them").unwrap();
    space.append(&[7; 9000]).unwrap();
    space.sync().unwrap();
    space.insert(4, b"very ").unwrap();
    space.insert_zeros(30, 5000).unwrap();
    space.collapse(100..300).unwrap();
    space.set_tag(4, Tag::new(12).unwrap()).unwrap();
    space.sync().unwrap();
    files_in(&storage.duplicate(), SPACE)
}

pub fn table_rows() -> impl Iterator<Item = (String, String)> {
    (0..50).map(|number| (format!("word-{number:03}"), format!("meaning {number}")))
}

fn table() -> Files {
    let storage = SimStorage::new(1);
    let path = format!("/outside/{TABLE}");
    lithedb::storage::Storage::create_dir_all(&storage, "/outside".as_ref()).unwrap();
    let options = KeyspaceOptions::lsm().codec(Codec::Snappy).block_size(512);
    let entropy = SeededEntropy::new(3);
    let of = Arc::new(storage.clone());
    let mut table = TableWriter::create_in(of, &entropy, path, &options).unwrap();
    for (key, value) in table_rows() {
        table.put(key, value).unwrap();
    }
    table.finish().unwrap();
    files_in(&storage, "/outside")
}

type Rows = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Keys and values of all keyspaces.
pub fn rows(db: &Db) -> Rows {
    let mut rows = Rows::new();
    for info in db.keyspaces() {
        for entry in db.keyspace(&info.name).unwrap().iter() {
            let entry = entry.unwrap();
            rows.insert((info.name.clone(), entry.key.to_vec()), entry.value.to_vec());
        }
    }
    rows
}

const MORE: [(&str, &[u8]); 2] = [("zz-more", b"short"), ("zz-much-more", &[b'm'; 2000])];

/// Puts something into every keyspace.
pub fn write_more(db: &Db) {
    for info in db.keyspaces() {
        for (key, value) in MORE {
            db.keyspace(&info.name).unwrap().put(key, value).unwrap();
        }
    }
}

/// What there is behind that.
pub fn with_more(mut rows: Rows, db: &Db) -> Rows {
    for info in db.keyspaces() {
        for (key, value) in MORE {
            rows.insert((info.name.clone(), key.as_bytes().to_vec()), value.to_vec());
        }
    }
    rows
}
