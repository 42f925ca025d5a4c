//! Doors for fuzzers into the decoders: each takes any bytes and must neither panic, nor hang, nor
//! allocate more than the bytes warrant. Not part of the API.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Cursor, Result, checksum, expiring_in, pointer_in};
use crate::block::{Block, BlockCursor, FRAME_HEADER_LEN, FRAME_SEALED, FrameKind};
use crate::block::{FramePlace, frame};
use crate::db::{Background, Db};
use crate::inspect::{Detail, inspect};
use crate::manifest::{KeyspaceOptions, Manifest};
use crate::memory::SharedBytes;
use crate::storage::{MemoryStorage, OpenMode, Storage};
use crate::structure::TableIngestOptions;
use crate::structure::flex::FlexStore;
use crate::structure::lsm::{LsmStore, fuzz_parts, put_right};
use crate::structure::salvage::fuzz_file;
use crate::value_log::copy_value_files;
use crate::wal::{Lsn, WalOptions, WalPlace, replay, salvage_log};

const PLACE: &str = "/fuzz";

fn place(file: &Path) -> FramePlace<'_> {
    FramePlace { file, file_tag: 1, offset: 40, key: None }
}

/// A block's payload: parsed, walked both ways, searched for each of its keys.
pub fn block(bytes: &[u8]) {
    let data = SharedBytes::from(bytes);
    let Ok(block) = Block::parse(data, 0..bytes.len(), place(Path::new(PLACE))) else { return };
    let block = Arc::new(block);
    let mut cursor = BlockCursor::new(Arc::clone(&block));
    let mut count = 0;
    let mut step = cursor.seek_first();
    while let (Ok(()), Some(entry)) = (&step, cursor.entry()) {
        let _ = block.get(entry.key);
        if let Some(expiring) = expiring_in(entry.kind, entry.value) {
            assert_eq!(expiring.encode(), entry.value, "what was decoded encodes to the same");
        }
        let _ = pointer_in(entry.kind, entry.value);
        count += 1;
        step = cursor.next();
    }
    assert_eq!(count, block.entry_count(), "a walk gives every entry");
    let mut step = cursor.seek_last();
    while let (Ok(()), true) = (&step, cursor.is_valid()) {
        count -= 1;
        step = cursor.prev();
    }
    assert_eq!(count, 0, "a walk back gives every entry");
    for cut in 0..bytes.len().min(64) {
        let _ = cursor.seek(&bytes[cut..]);
        let _ = cursor.seek_for_prev(&bytes[cut..]);
        let _ = block.get(&bytes[..cut]);
    }
    let _ = block.check_order();
}

/// A frame as read from a segment, and the block in it.
pub fn frame(bytes: &[u8]) {
    let expected = bytes.first_chunk().map_or(0, |sum| u32::from_le_bytes(*sum));
    let place = place(Path::new(PLACE));
    let data = SharedBytes::from(bytes);
    let Ok(payload) = frame::open(data, FrameKind::Entries, place, expected) else { return };
    block(&payload.data[payload.range.clone()]);
}

/// A frame of a segment that is sealed, by what it says; its checksum is right.
pub fn sealed_frame(bytes: &[u8]) {
    const KIND_AT: usize = 13;
    let mut frame = bytes.to_vec();
    frame.resize(bytes.len().max(FRAME_HEADER_LEN), 0);
    let stored_len = (frame.len() - FRAME_HEADER_LEN) as u32;
    frame[8..12].copy_from_slice(&stored_len.to_le_bytes());
    frame[KIND_AT] = FrameKind::Entries as u8 | FRAME_SEALED;
    let key = crate::seal::fuzz_key();
    let place = FramePlace { key: Some(&key), ..place(Path::new(PLACE)) };
    let sum = checksum(&frame[8..], place.file_tag, place.offset);
    frame[..8].copy_from_slice(&sum.to_le_bytes());
    let opened = frame::open(SharedBytes::from(&*frame), FrameKind::Entries, place, sum as u32);
    assert!(opened.is_err(), "nobody has sealed it");
}

/// A slot of a keyring whose checksum is right, and what is sealed in one.
pub fn keyring_slot(bytes: &[u8]) {
    crate::seal::fuzz_slot(bytes);
}

/// The list of a backup, its magic, version and hash put right.
pub fn backup_list(bytes: &[u8]) {
    crate::backup::fuzz_list(bytes);
}

/// The stream of a backup, its magic, version and checksums put right.
pub fn backup_stream(bytes: &[u8]) {
    crate::backup::fuzz_stream(bytes);
}

/// A segment of a trail, its magic, version, length and checksums put right.
pub fn trail_segment(bytes: &[u8]) {
    crate::backup::fuzz_segment(bytes);
}

/// Makes a file with these bytes in a directory of its own.
fn storage_with(name: &str, bytes: &[u8]) -> Result<Arc<dyn Storage>> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let path = Path::new(PLACE).join(name);
    let io = |error| crate::base::Error::io("make", &path, error);
    storage.create_dir_all(Path::new(PLACE)).map_err(io)?;
    let file = storage.open(&path, OpenMode::CreateNew).map_err(io)?;
    file.write_all_at(bytes, 0).map_err(io)?;
    Ok(storage)
}

/// A log file, as the only one of its log: replayed, and salvaged.
pub fn wal_file(bytes: &[u8]) {
    let Ok(storage) = storage_with("00000001.wal", bytes) else { return };
    let options = WalOptions {
        file_capacity: 16 << 10,
        spare_files_max: 0,
        kept_bytes_max: 0,
        held_from: Lsn::MAX,
    };
    let place = WalPlace { storage, dir: PLACE.into(), database_id: 1, options };
    let mut count = 0;
    let _ = replay(&place, Lsn::ZERO, &mut |record| {
        count += 1;
        crate::db::fuzz_commit_record(record.payload);
        Ok(())
    });
    assert!(count <= bytes.len(), "every record takes some bytes");
    for from in [None, Some(Lsn::ZERO)] {
        let mut count = 0;
        let _ = salvage_log(&place, from, &mut |record, _| {
            count += 1;
            crate::db::fuzz_commit_record(record.payload);
            Ok(())
        });
        assert!(count <= bytes.len(), "every record is given once");
    }
}

/// Frames of a segment, one behind the other, for what is salvaged of them; their checksums are
/// put right.
pub fn salvaged_file(bytes: &[u8]) {
    const HEADER_LEN: usize = 40;
    const FILE_TAG: u64 = 1;
    const NAME: &str = "seg-00000001";
    let mut file = vec![0; HEADER_LEN];
    file.extend_from_slice(bytes);
    let mut at = HEADER_LEN;
    while let Some(len) = file.get(at + 8..).and_then(|field| field.first_chunk::<4>()) {
        let len = FRAME_HEADER_LEN.saturating_add(u32::from_le_bytes(*len) as usize);
        let Some(frame) = file.get_mut(at..at.saturating_add(len)) else { break };
        let sum = checksum(&frame[8..], FILE_TAG, at as u64);
        frame[..8].copy_from_slice(&sum.to_le_bytes());
        at += len;
    }
    let Ok(storage) = storage_with(NAME, &file) else { return };
    fuzz_file(&*storage, &Path::new(PLACE).join(NAME), FILE_TAG, HEADER_LEN as u64);
}

/// What a table has behind its data blocks, by the first byte: deleted ranges, properties, a
/// partition, the index of the partitions.
pub fn table_parts(bytes: &[u8]) {
    fuzz_parts(bytes);
}

/// A table that was made outside of any database, its checksums put right: brought into a keyspace,
/// walked both ways, and shown.
pub fn table_file(bytes: &[u8]) {
    const NAME: &str = "table";
    let Ok(storage) = storage_with(NAME, &put_right(bytes)) else { return };
    let path = Path::new(PLACE).join(NAME);
    let _ = inspect(&*storage, &path, Detail::Entries, |_| ControlFlow::Continue(()));
    let builder = Db::builder().storage(storage).background(Background::Stepped);
    let opened = builder.wal_file_size(64 << 10).open("/db");
    let db = opened.expect("nothing is wrong with an empty database in memory");
    let made = db.create_keyspace("k", KeyspaceOptions::lsm());
    let keyspace = made.expect("there is none of this name");
    if keyspace.ingest_tables(&[path], TableIngestOptions::copying()).is_err() {
        return;
    }
    let mut keys = Vec::new();
    for entry in keyspace.iter() {
        let Ok(entry) = entry else { return };
        assert!(keys.last().is_none_or(|last| *last < entry.key), "keys rise");
        keys.push(entry.key);
    }
    let back = keyspace.iter().rev().map_while(Result::ok).map(|entry| entry.key);
    assert!(back.eq(keys.into_iter().rev()), "a walk back gives every entry");
}

/// A value file, checksums put right: shown, and copied as a repair does.
pub fn value_file(bytes: &[u8]) {
    const NAME: &str = "val-00000001";
    let file = crate::value_log::put_right(bytes, (1, 1));
    let Ok(storage) = storage_with(NAME, &file) else { return };
    let (from, to) = (Path::new(PLACE), Path::new("/copy"));
    let _ = inspect(&*storage, from.join(NAME), Detail::Entries, |_| ControlFlow::Continue(()));
    if storage.create_dir_all(to).is_ok() {
        let _ = copy_value_files((&storage, from), (&storage, to), 1);
    }
}

/// The payload of a commit record.
pub fn commit_record(bytes: &[u8]) {
    crate::db::fuzz_commit_record(bytes);
}

/// A manifest, as the only file of its database.
pub fn manifest_file(bytes: &[u8]) {
    let Ok(storage) = storage_with("MANIFEST-00000001", bytes) else { return };
    let _ = Manifest::read(&*storage, Path::new(PLACE));
    let _ = Manifest::open(storage, Path::new(PLACE));
}

/// The records of an index, of either structure: a snapshot's parts and an edit.
pub fn index_record(bytes: &[u8]) {
    FlexStore::fuzz_records(bytes);
    LsmStore::fuzz_records(bytes);
}
