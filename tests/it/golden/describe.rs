//! What is in a database, as text: of every keyspace what it is, its entries with stamps and
//! expiry, its versions, its indexes; consumers, and the commits that the log has.

use std::fmt::Write;

use lithedb::flex_space::FlexSpace;
use lithedb::{Db, Expiry, Keyspace, KeyspaceInfo};

use super::make::key;

/// Longer values are told by length and a sum.
const SHOWN_LEN_MAX: usize = 60;
/// More than there ever were.
const KEY_COUNT: u32 = 100;

pub fn describe(db: &Db) -> String {
    let mut text = String::new();
    for info in db.keyspaces() {
        keyspace(&mut text, &db.keyspace(&info.name).unwrap(), &info);
    }
    for consumer in db.consumers().unwrap() {
        let (name, done, max) = (consumer.name, consumer.done, consumer.log_max);
        writeln!(text, "consumer {name} done {done} log {max} lost {}", consumer.is_lost).unwrap();
    }
    for commit in db.commits(..).unwrap() {
        let commit = commit.unwrap();
        let payload = commit.payload.map(|payload| shown(&payload)).unwrap_or_default();
        writeln!(text, "commit {} of {} {payload}", commit.seqno, commit.operations).unwrap();
    }
    text
}

fn keyspace(text: &mut String, keyspace: &Keyspace, info: &KeyspaceInfo) {
    let options = &info.options;
    let (name, structure, codec) = (&info.name, info.structure, options.codec);
    write!(text, "keyspace {name:?} {structure} codec {codec}").unwrap();
    let separated = options.value_separation;
    write!(text, " separated {separated:?} merge {:?}", options.merge_operator).unwrap();
    writeln!(text, " ttl {:?} versions {:?}", options.ttl, options.keep_versions).unwrap();
    for entry in keyspace.iter() {
        let entry = entry.unwrap();
        let (value, expiry) = (shown(&entry.value), expiry_text(entry.expiry));
        writeln!(text, "  {} = {value} by {}{expiry}", shown(&entry.key), entry.seqno).unwrap();
        let found = keyspace.get_entry(&entry.key).unwrap().expect("a walk has found it");
        assert_eq!(found, entry, "what is looked up is what a walk finds");
    }
    let backward = keyspace.iter().rev().count() as u64;
    assert_eq!(keyspace.len().unwrap(), backward, "what is counted is what a walk finds");
    if keyspace.keeps_history() {
        // More of them are there until they are archived.
        versions(text, keyspace, options.keep_versions.unwrap_or(u32::MAX));
    }
    for index in keyspace.indexes().unwrap() {
        let (name, extractor) = (&index.name, &index.extractor);
        let (is_unique, is_ready) = (index.is_unique, index.is_ready);
        writeln!(text, "  index {name:?} {extractor} unique {is_unique} ready {is_ready}").unwrap();
        for pair in keyspace.index(name).unwrap().iter() {
            let pair = pair.unwrap();
            let (index_key, primary_key) = (shown(pair.index_key()), shown(pair.primary_key()));
            writeln!(text, "    {index_key} -> {primary_key}").unwrap();
        }
    }
}

fn versions(text: &mut String, keyspace: &Keyspace, kept: u32) {
    let mut keys: Vec<Vec<u8>> = (0..KEY_COUNT).map(|number| key(number).into_bytes()).collect();
    keys.extend(["lot-1", "lot-2", "list", "often", "together"].map(Into::into));
    for key in keys {
        for version in keyspace.history(&key, ..).unwrap().take(kept as usize) {
            let version = version.unwrap();
            let value = version.value.map_or_else(|| "deleted".to_owned(), |value| shown(&value));
            writeln!(text, "  version {} {} {value}", shown(&key), version.seqno).unwrap();
        }
    }
}

pub fn space(space: &FlexSpace) -> String {
    let bytes = space.read_range(0..space.len()).unwrap();
    let tags: Vec<String> = space.tags(0..space.len()).map(|tag| format!("{tag:?}")).collect();
    format!("{} bytes, {}\ntags {tags:?}\n", bytes.len(), shown(&bytes))
}

fn expiry_text(expiry: Expiry) -> String {
    match expiry.time() {
        None => String::new(),
        Some(time) => {
            let since = time.duration_since(std::time::UNIX_EPOCH).unwrap();
            format!(" until {}", since.as_millis())
        }
    }
}

fn shown(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_LEN_MAX {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    // FNV-1a, 64 bits: of its own, so that nothing of the store vouches for the store.
    let sum = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    format!("{} bytes {sum:016x}", bytes.len())
}
