//! What is written is read back, and nothing else is read.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lithedb::storage::MemoryStorage;
use lithedb::{Codec, Compaction, Db, Expiry, KeyRange, Keyspace, KeyspaceOptions, Tiered};

use super::*;
use crate::failure::Failure;
use crate::input::Source;

fn database() -> Db {
    Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap()
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::flex()
        .codec(Codec::Lz4)
        .consolidation_pace(0.123)
        .memtable_size(1 << 20)
        .value_separation(None)
        .merge_operator("a\tname = \\ ü")
}

fn written(keyspace: &Keyspace, content: Content, stamps: Stamps) -> Vec<u8> {
    let mut out = Vec::new();
    let mut dump = DumpWriter::begin(&mut out, content, stamps).unwrap();
    dump.keyspace("a\tb", &options()).unwrap();
    let mut cursor = keyspace.cursor(KeyRange::all());
    cursor.seek_first().unwrap();
    while cursor.valid() {
        dump.pair(&cursor).unwrap();
        cursor.next().unwrap();
    }
    dump.finish().unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<Vec<Item>, Failure> {
    let mut dump = DumpReader::new(Source::of_bytes(bytes))?;
    let mut items = Vec::new();
    while let Some(item) = dump.next()? {
        items.push(item);
    }
    Ok(items)
}

fn message(bytes: &[u8]) -> String {
    let failure = read(bytes).unwrap_err();
    assert_eq!(failure.exit_code(), 2);
    failure.message().unwrap()
}

/// Every byte in keys and values, values around the size of a piece, and in the value log.
fn pairs() -> Vec<(Vec<u8>, Vec<u8>)> {
    let all: Vec<u8> = (0..=255).collect();
    let long = |len: usize| -> Vec<u8> { all.iter().copied().cycle().take(len).collect() };
    let lens = [0, 1, 300, PIECE_SIZE - 1, PIECE_SIZE, PIECE_SIZE + 1, 5 * PIECE_SIZE + 7];
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (number, len) in lens.into_iter().enumerate() {
        pairs.push(([&[number as u8], &all[..]].concat(), long(len)));
    }
    pairs.push((Vec::new(), "ü\u{202e}☃".as_bytes().to_vec()));
    pairs.sort();
    pairs
}

#[test]
fn what_was_written_is_read_to_the_byte() {
    let db = database();
    let keyspace = db.keyspace_or_create("k").unwrap();
    for (key, value) in pairs() {
        keyspace.put(key, value).unwrap();
    }
    for stamps in [Stamps::Absent, Stamps::Shown] {
        let dump = written(&keyspace, Content::Values, stamps);
        let text = String::from_utf8(dump.clone()).expect("it is text");
        assert!(text.lines().all(|line| line.len() <= 4 * PIECE_SIZE + 4096));
        let items = read(&dump).unwrap();
        assert_eq!(items[0], Item::Keyspace("a\tb".into(), options()));
        let mut read: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for item in &items[1..] {
            match item {
                Item::Pair(key, value, _) => read.push((key.clone(), value.clone())),
                Item::Begin(key, ..) => read.push((key.clone(), Vec::new())),
                Item::Piece(bytes) => read.last_mut().unwrap().1.extend_from_slice(bytes),
                Item::Keyspace(..) => panic!("another keyspace"),
            }
        }
        assert_eq!(read, pairs());
    }
}

#[test]
fn expiry_is_read_to_the_millisecond_and_options_with_it() {
    let db = database();
    let options = KeyspaceOptions::flex().ttl(Duration::from_secs(90));
    let keyspace = db.create_keyspace("k", options.clone()).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(4_107_542_399_999);
    keyspace.put_until("a", "1", at).unwrap();
    keyspace.put_until("b", vec![b'x'; PIECE_SIZE + 1], at).unwrap();
    keyspace.put_until("c", "3", Expiry::Never).unwrap();
    let dump = written(&keyspace, Content::Values, Stamps::Shown);
    let items = read(&dump).unwrap();
    let expiries: Vec<Expiry> = items
        .iter()
        .filter_map(|item| match item {
            Item::Pair(_, _, expiry) | Item::Begin(_, _, expiry) => Some(*expiry),
            _ => None,
        })
        .collect();
    assert_eq!(expiries, [Expiry::At(at), Expiry::At(at), Expiry::Never]);
    let tiered = Compaction::Tiered(Tiered::new().threshold(7).bucket(0.25..=3.5));
    for options in [
        options,
        KeyspaceOptions::flex().merge_operator("a\tb"),
        KeyspaceOptions::lsm().codec(Codec::Snappy).pin_indexes(true).dictionary_size(4096),
        KeyspaceOptions::lsm().compaction(tiered).level_codec(0, Codec::None).filter_bits(0),
    ] {
        let fields = super::options::fields(&options);
        let parsed = super::options::parse(fields.iter().map(String::as_str));
        assert_eq!(parsed, Ok(options));
    }
}

#[test]
fn keys_and_hashes_have_no_values_and_are_not_read() {
    let db = database();
    let keyspace = db.keyspace_or_create("k").unwrap();
    keyspace.put("k", "").unwrap();
    let keys = String::from_utf8(written(&keyspace, Content::Keys, Stamps::Absent)).unwrap();
    assert_eq!(keys.lines().nth(2), Some("key\tk"));
    assert!(message(keys.as_bytes()).contains("no values"));
    let hashes = String::from_utf8(written(&keyspace, Content::Hashes, Stamps::Absent)).unwrap();
    // The BLAKE3 hash of nothing.
    let expected = "hash\tk\t0\taf1349b9f5f9a1a6a0404dea36dcc949";
    assert_eq!(hashes.lines().nth(2), Some(expected));
}

#[test]
fn every_cut_is_refused() {
    let db = database();
    let keyspace = db.keyspace_or_create("k").unwrap();
    keyspace.put("k1", "v").unwrap();
    keyspace.put("k2", vec![b'x'; PIECE_SIZE + 1]).unwrap();
    let dump = written(&keyspace, Content::Values, Stamps::Shown);
    // Without its line end the last line is still whole (P2).
    for cut in (0..dump.len() - 1).filter(|cut| *cut < 400 || dump.len() - cut < 400) {
        assert!(read(&dump[..cut]).is_err(), "cut to {cut}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let start = "lithe-dump\t1\tvalues\nkeyspace\tk\tcodec=none\n";
    let cases = [
        ("end\t1\n", "line 3: the end of 1 pairs, and there were 0"),
        ("put\ta\n", "line 3: 1 fields"),
        ("put\ta\tb\tc\n", "line 3: 3 fields"),
        ("put\ta\t\\q\n", "line 3: unknown escape"),
        ("put\ta\tb\nput\n", "line 4: 0 fields"),
        ("begin\ta\t-1\n", "line 3: no number"),
        ("begin\ta\t5000000000\n", "line 3: a value of 5000000000 bytes"),
        ("begin\ta\t3\nput\ta\tb\n", "line 4: 3 bytes of the value are missing"),
        ("begin\ta\t3\nmore\tabcd\n", "line 4: 4 bytes"),
        ("begin\ta\t3\nmore\t\n", "line 4: an empty piece"),
        ("more\ta\n", "line 3: 1 bytes of a value, of which 0 are missing"),
        ("key\ta\n", "line 3: no line of a dump"),
        ("until\t5\nend\t0\n", "line 4: no pair behind the line `until`"),
        ("until\tx\n", "line 3: no number"),
        ("keyspace\tl\tttl=soon\n", "line 3: the option \"ttl\" cannot be \"soon\""),
        ("\nend\t0\n", "line 3: no line of a dump"),
        ("end\t0\nput\ta\tb\n", "line 4: there is something behind"),
        ("put\ta\tb\n", "line 4: there is no line, and no `end`"),
        ("keyspace\tl\tcolour=1\n", "line 3: there is no option \"colour\""),
        ("keyspace\tl\tcodec=zip\n", "line 3: the option \"codec\" cannot be \"zip\""),
        ("keyspace\tl\tcodec=none\tcodec=none\n", "line 3: the option \"codec\" twice"),
        ("keyspace\tl\tmerge_operator=\\q\n", "line 3: the option \"merge_operator\" cannot be"),
        (
            "keyspace\tl\tmerge_operator=\n",
            "line 3: invalid argument: the length of merge_operator",
        ),
        ("keyspace\tl\tinterval_size=1\n", "line 3: invalid argument: interval_size is 1"),
        ("keyspace\tl\tstructure=heap\n", "line 3: the option \"structure\" cannot be \"heap\""),
        ("keyspace\tl\tcodec=lz4\tstructure=lsm\n", "line 3: the structure stands in front"),
        ("keyspace\tl\tstructure=lsm\tthreshold=4\n", "line 3: there is no option \"threshold\""),
        ("keyspace\tl\tstructure=lsm\tcodec_7=lz4\n", "line 3: there is no option \"codec_7\""),
        ("keyspace\tl\tstructure=lsm\tdelta_fan_in=2\n", "structure lsm has no delta_fan_in"),
        ("keyspace\tl\tblock_size=512\n", "structure flex has no options of structure lsm"),
    ];
    for (lines, said) in cases {
        let message = message(format!("{start}{lines}").as_bytes());
        assert!(message.contains(said), "{lines:?}: {message}");
    }
    for (first, said) in [
        ("", "line 1: no dump"),
        ("lithe-dump\t2\tvalues\n", "line 1: a dump of version \"2\""),
        ("lithe-dump\t1\tcolours\n", "line 1: a dump of \"colours\""),
        ("lithe-dump\t1\tvalues\tmore\n", "line 1: [\"more\"] is not known"),
        ("lithe-dump\t1\tvalues\nput\ta\tb\n", "line 2: a pair in front of"),
    ] {
        assert!(message(first.as_bytes()).contains(said), "{first:?}");
    }
}
