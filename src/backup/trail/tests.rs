//! The bytes of segments, what is found in them, and their order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{HASH_LEN, HEAD_LEN, RECORD_HEAD_LEN, RecordKind, SegmentHead};
use super::read::SegmentReader;
use super::write::SegmentWriter;
use crate::backup::BackupRepository;
use crate::base::{Error, Result, SeqNo, checksum};
use crate::db::OpenExisting;
use crate::manifest::TrailEndReason;
use crate::seal::{FileKey, drawing_key};
use crate::storage::{MemoryStorage, OpenMode, Storage};

const PATH: &str = "/segment";
const TOKEN: u64 = 0x1234_5678;

type Item = (RecordKind, u64, Vec<u8>);

fn head() -> SegmentHead {
    SegmentHead {
        key: 0,
        end: Some(TrailEndReason::Ingested),
        repository: 7,
        trail: 8,
        number: 3,
        database: 5,
        behind: SeqNo::from_u64(10),
        to: SeqNo::from_u64(20),
        token: TOKEN,
        previous: 99,
        log_position: 4096,
        written_millis: 1_700_000_000_000,
        commits: 0,
        size: 0,
        begun: SeqNo::from_u64(2),
        keyring: [0; HASH_LEN],
    }
}

/// An edit, and a commit in two pieces with a value in two pieces.
fn items() -> Vec<Item> {
    let of_five = |bytes: &[u8]| [&[5, 0, 0, 0], bytes].concat();
    vec![
        (RecordKind::Edit, 11, b"an edit".to_vec()),
        (RecordKind::ValuePart, 12, of_five(b"a large ")),
        (RecordKind::Value, 12, of_five(b"value")),
        (RecordKind::CommitPart, 12, b"half of a ".to_vec()),
        (RecordKind::Commit, 12, b"commit".to_vec()),
    ]
}

/// Writes a segment and reads its bytes.
fn written(head: SegmentHead, key: Option<Arc<FileKey>>, items: &[Item]) -> Vec<u8> {
    let storage = MemoryStorage::new();
    let mut writer = SegmentWriter::begin(&storage, PATH.into(), key, TOKEN).unwrap();
    for (kind, value, payload) in items {
        writer.record(*kind, *value, &[payload]).unwrap();
    }
    let said = writer.finish(head).unwrap();
    let file = storage.open(Path::new(PATH), OpenMode::ReadOnly).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(said.size, bytes.len() as u64);
    bytes
}

/// What is in a segment with these bytes.
fn read(bytes: &[u8], key: Option<Arc<FileKey>>) -> Result<(SegmentHead, Vec<Item>)> {
    let storage = MemoryStorage::new();
    let file = storage.open(Path::new(PATH), OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    let mut reader = SegmentReader::open(&storage, PATH.into())?;
    reader.open_with(key);
    let mut items = Vec::new();
    while let Some((kind, value)) = reader.next_record()? {
        items.push((kind, value, reader.payload().to_vec()));
    }
    Ok((*reader.head(), items))
}

fn is_damaged(bytes: &[u8]) -> bool {
    read(bytes, None).is_err_and(|error| error.is_corruption())
}

/// A head by the document, whose checksum is right.
fn head_by_hand(version: u32, size: u64) -> Vec<u8> {
    let mut bytes = b"LITHETRL".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend([0, 0, 1, 0]);
    let said = [7u64, 8, 3, 5, 10, 20, TOKEN, 99, 4096, 1_700_000_000_000, 1, size, 2];
    said.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend([0; 32]);
    bytes.extend(checksum(&bytes, 0, 0).to_le_bytes());
    bytes
}

/// Records by the document, and what they come to: edits and commits, and the hash of all.
fn records_by_hand(items: &[Item], (counted, hash): (u64, Option<[u8; 32]>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let put = |bytes: &mut Vec<u8>, kind: u32, value: u64, payload: &[u8]| {
        let mut record = kind.to_le_bytes().to_vec();
        record.extend((payload.len() as u32).to_le_bytes());
        record.extend(value.to_le_bytes());
        record.extend(payload);
        let sum = checksum(&record, TOKEN, 160 + bytes.len() as u64);
        bytes.extend(sum.to_le_bytes());
        bytes.extend(record);
    };
    for (kind, value, payload) in items {
        put(&mut bytes, *kind as u32, *value, payload);
    }
    let hash = hash.unwrap_or_else(|| *blake3::hash(&bytes).as_bytes());
    put(&mut bytes, 6, counted, &hash);
    bytes
}

/// Put together after `docs/format/backup.md`.
#[test]
fn the_bytes_are_those_of_the_document() {
    let records = records_by_hand(&items(), (2, None));
    let bytes = [head_by_hand(1, 160 + records.len() as u64), records].concat();
    assert_eq!(written(head(), None, &items()), bytes);
    let (said, found) = read(&bytes, None).unwrap();
    assert_eq!(said, SegmentHead { commits: 1, size: bytes.len() as u64, ..head() });
    assert_eq!(found, items());
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let bytes = written(head(), None, &items());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(is_damaged(&flipped), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(is_damaged(&bytes[..len]), "cut to {len}");
    }
    assert!(is_damaged(&[&bytes[..], &[0]].concat()));
}

/// Records that verify, and are not those that were written there.
#[test]
fn records_are_found_to_be_missing_exchanged_or_others() {
    let whole = |records: Vec<u8>| [head_by_hand(1, 160 + records.len() as u64), records].concat();
    let all = items();
    assert!(!is_damaged(&whole(records_by_hand(&all, (2, None)))));
    assert!(is_damaged(&whole(records_by_hand(&all, (1, None)))), "another count");
    assert!(is_damaged(&whole(records_by_hand(&all, (2, Some([1; 32]))))), "another hash");
    assert!(is_damaged(&whole(records_by_hand(&all[1..], (2, None)))), "one is missing");
    assert!(is_damaged(&whole(records_by_hand(&all[..4], (1, None)))), "no commit");
    // Two that are as long as each other, exchanged.
    let [mut one, mut other] = [1, 2].map(|stamp| (RecordKind::Commit, stamp, vec![7; 40]));
    (one.2[0], other.2[0]) = (1, 2);
    let two = vec![one, other];
    let bytes = written(head(), None, &two);
    let len = RECORD_HEAD_LEN + 40;
    let (first, second) = (HEAD_LEN..HEAD_LEN + len, HEAD_LEN + len..HEAD_LEN + 2 * len);
    let exchanged =
        [&bytes[..HEAD_LEN], &bytes[second.clone()], &bytes[first], &bytes[second.end..]].concat();
    assert_eq!(exchanged.len(), bytes.len());
    assert!(is_damaged(&exchanged));
    // The same records, of a segment that was written at another time.
    let mut other = bytes.clone();
    other[64] ^= 1;
    let sum = checksum(&other[..152], 0, 0);
    other[152..160].copy_from_slice(&sum.to_le_bytes());
    assert!(is_damaged(&other));
}

#[test]
fn another_version_is_named_and_heads_that_there_cannot_be_are_damage() {
    let records = records_by_hand(&items(), (2, None));
    let head_of = |version| head_by_hand(version, 160 + records.len() as u64);
    let error = read(&[head_of(9), records.clone()].concat(), None).unwrap_err();
    assert!(matches!(error, Error::FormatVersion { found: 9, known: 1, .. }), "{error}");
    let put = |at: usize, bytes: &[u8]| {
        let mut head = head_of(1);
        head[at..at + bytes.len()].copy_from_slice(bytes);
        let sum = checksum(&head[..152], 0, 0);
        head[152..].copy_from_slice(&sum.to_le_bytes());
        [head, records.clone()].concat()
    };
    assert!(!is_damaged(&put(14, &[1])));
    let changes: [(usize, &[u8]); 7] = [
        (14, &[6]),                  // It ends for a sixth reason.
        (12, &[1]),                  // It is sealed, without a keyring.
        (120, &[1]),                 // A keyring, and it is not sealed.
        (48, &21u64.to_le_bytes()),  // It begins behind its end.
        (112, &11u64.to_le_bytes()), // It begins in front of the trail.
        (64, &0u64.to_le_bytes()),   // No token.
        (96, &2u64.to_le_bytes()),   // More commits than it has.
    ];
    for (at, bytes) in changes {
        assert!(is_damaged(&put(at, bytes)), "{at}");
    }
}

#[test]
fn what_is_sealed_opens_at_its_place_alone() {
    let key = drawing_key();
    let sealed = SegmentHead { keyring: [9; HASH_LEN], ..head() };
    let bytes = written(sealed, Some(Arc::clone(&key)), &items());
    assert!(!bytes.windows(5).any(|window| window == b"value"));
    let (said, found) = read(&bytes, Some(Arc::clone(&key))).unwrap();
    assert_eq!((said.key, found), (key.id(), items()));
    // Without the key everything verifies: it is read back where nobody has one.
    let (_, as_it_lies) = read(&bytes, None).unwrap();
    assert!(as_it_lies.iter().zip(items()).all(|(lies, item)| lies.2.len() == item.2.len() + 40));
    // Whoever can put checksums right: another byte, another stamp, another kind.
    let len = RECORD_HEAD_LEN + b"an edit".len() + 40;
    for at in [8, 16, RECORD_HEAD_LEN, len - 1] {
        let mut forged = bytes.clone();
        let record = &mut forged[HEAD_LEN..HEAD_LEN + len];
        record[at] ^= 1;
        let sum = checksum(&record[8..], TOKEN, HEAD_LEN as u64);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        let refused = read(&forged, Some(Arc::clone(&key))).unwrap_err();
        assert!(refused.is_corruption(), "{at}: {refused}");
    }
}

/// A repository with a trail of four segments.
fn trail() -> (Arc<MemoryStorage>, BackupRepository, PathBuf) {
    let storage = Arc::new(MemoryStorage::new());
    let in_storage = Arc::clone(&storage) as Arc<dyn Storage>;
    let backups = BackupRepository::open_in(in_storage, "/backups", OpenExisting::OrCreate);
    let backups = backups.unwrap();
    let trail = backups.make_trail_dir(8).unwrap();
    for number in 1..=4 {
        let mut writer = trail.begin(None, TOKEN + number).unwrap();
        writer.commit(SeqNo::from_u64(number * 10), b"a commit").unwrap();
        let head = SegmentHead {
            end: None,
            repository: trail.repository,
            number,
            behind: SeqNo::from_u64((number - 1) * 10),
            to: SeqNo::from_u64(number * 10),
            previous: if number == 1 { 0 } else { TOKEN + number - 1 },
            begun: SeqNo::ZERO,
            ..head()
        };
        trail.put(writer, head).unwrap();
    }
    let dir = trail.dir.clone();
    (storage, backups, dir)
}

/// Q5.
#[test]
fn a_segment_that_is_missing_is_named() {
    let (storage, backups, dir) = trail();
    let found = backups.trail_dir(8).segments().unwrap();
    assert_eq!(found.iter().map(|found| found.head.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(backups.trail_dir(8).newest().unwrap().unwrap().head.token, TOKEN + 4);
    for number in [2, 3] {
        let path = dir.join(format!("segment-{number:08}"));
        let away = dir.join("away");
        storage.rename(&path, &away).unwrap();
        let error = backups.trail_dir(8).segments().unwrap_err();
        let Error::Corruption { file, what, .. } = &error else { panic!("{error}") };
        assert_eq!(*file, path);
        assert!(what.contains("missing"), "{what}");
        storage.rename(&away, &path).unwrap();
    }
    // Those in front may have been removed, and what is behind cannot be known to be missing.
    for number in [1, 4] {
        storage.remove_file(&dir.join(format!("segment-{number:08}"))).unwrap();
    }
    assert_eq!(backups.trail_dir(8).segments().unwrap().len(), 2);
}

/// Q5, Q6: two segments that are whole and do not belong together.
#[test]
fn a_segment_of_another_history_does_not_go_on() {
    for change in 0..5 {
        let (_, backups, _) = trail();
        let trail = backups.trail_dir(8);
        let old = trail.find(3).unwrap().head;
        let head = match change {
            0 => SegmentHead { previous: old.previous + 1, ..old },
            1 => SegmentHead { behind: SeqNo::from_u64(19), ..old },
            2 => SegmentHead { database: old.database + 1, ..old },
            3 => SegmentHead { begun: SeqNo::from_u64(1), ..old },
            _ => SegmentHead { end: Some(TrailEndReason::Crowded), ..old },
        };
        let writer = trail.begin(None, old.token).unwrap();
        trail.put(writer, head).unwrap();
        let error = trail.segments().unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("does not go on"), "{error}");
    }
    // One of another repository or trail, or with another's number, is none at all.
    let (storage, backups, dir) = trail();
    let (second, third) = (dir.join("segment-00000002"), dir.join("segment-00000003"));
    storage.remove_file(&third).unwrap();
    storage.rename(&second, &third).unwrap();
    assert!(backups.trail_dir(8).find(3).unwrap_err().is_corruption());
    storage.rename(&dir, Path::new("/backups/trails/0000000000000009")).unwrap();
    assert!(backups.trail_dir(9).find(1).unwrap_err().is_corruption());
}

#[test]
fn only_canonical_names_are_trails_and_segments() {
    let (storage, backups, dir) = trail();
    for name in ["segment-5", "segment-00000000", "segment-000000005", "segment-00000005.x"] {
        storage.open(&dir.join(name), OpenMode::CreateNew).unwrap();
    }
    for name in ["9", "000000000000000G", "0000000000000000", "000000000000000A"] {
        storage.create_dir(&Path::new("/backups/trails").join(name)).unwrap();
    }
    assert_eq!(backups.trail_dir(8).numbers().unwrap(), [1, 2, 3, 4]);
    let ids: Vec<u64> = backups.all_trails().unwrap().iter().map(|trail| trail.id).collect();
    assert_eq!(ids, [8]);
}
