//! Bytes for fuzzing the decoders: pieces of real files, mutations of them, and the checksums put
//! right again, so that what lies behind a checksum is reached too.
//!
//! Knows where checksums lie, after `docs/format`; must not know what the bytes mean.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lithedb::base::{Entropy, checksum, checksum_seeded};
use lithedb::storage::{SimStorage, Storage};
use lithedb::{
    BackupOptions, BackupRepository, Db, Durability, KeyspaceOptions, OpenExisting, Result,
    TrailOptions, WriteBatch,
};

use crate::random::Random;
use crate::sample::{Key, Value};
use crate::setup::{DB_PATH, START_MILLIS, Setup};

/// The identity under which the fuzzing doors open files.
const DATABASE_ID: u64 = 1;
const WAL_HEADER_SIZE: usize = 4096;
const WAL_RECORD_HEADER_SIZE: usize = 32;
const EDIT_LOG_HEADER_SIZE: usize = 64;
const EDIT_RECORD_HEADER_SIZE: usize = 32;
const FRAME_HEADER_SIZE: usize = 16;
const SEGMENT_HEADER_SIZE: usize = 40;
const TABLE_HEADER_SIZE: usize = 40;
const TABLE_FOOTER_SIZE: usize = 72;
const FRAME_KIND_AT: usize = 13;
const FRAME_KIND_ENTRIES: u8 = 1;
const FRAME_KIND_DICTIONARY: u8 = 6;
/// Of a slot, what a keyring of one key takes, and some zeros.
const KEYRING_SLOT_USED: usize = 240;

/// Samples for each decoder.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// Whole log files.
    pub wal_files: Vec<Vec<u8>>,
    /// Payloads of commits.
    pub commits: Vec<Vec<u8>>,
    /// Whole manifests.
    pub manifests: Vec<Vec<u8>>,
    /// Payloads of the records of index journals.
    pub index_records: Vec<Vec<u8>>,
    /// Frames.
    pub frames: Vec<Vec<u8>>,
    /// Payloads of blocks.
    pub blocks: Vec<Vec<u8>>,
    /// Slots of keyrings: of a key, and of a passphrase.
    pub keyring_slots: Vec<Vec<u8>>,
    /// Lists of backups.
    pub backup_lists: Vec<Vec<u8>>,
    /// Backups as streams.
    pub backup_streams: Vec<Vec<u8>>,
    /// Segments of trails.
    pub trail_segments: Vec<Vec<u8>>,
    /// Tables that were made to be ingested.
    pub tables: Vec<Vec<u8>>,
    /// What tables have behind their data blocks, each behind a byte that says what it is.
    pub table_parts: Vec<Vec<u8>>,
    /// Value files.
    pub value_files: Vec<Vec<u8>>,
}

/// The numbers drawn are all the same one.
#[derive(Debug)]
struct Constant(u64);

impl Entropy for Constant {
    fn next_u64(&self) -> u64 {
        self.0
    }
}

impl Corpus {
    /// Samples from the files of a small database.
    ///
    /// # Errors
    /// What the database returns.
    pub fn collect() -> Result<Corpus> {
        let storage = SimStorage::new(1);
        let mut setup = Setup::tiny(1);
        setup.wal_file_size = 64 << 10;
        let builder = setup.builder(Arc::new(storage.clone()), Arc::default(), 0);
        let db = builder.entropy(Arc::new(Constant(DATABASE_ID))).open(DB_PATH)?;
        write_some(&db)?;
        let mut corpus = Corpus::default();
        let files: Arc<dyn Storage> = Arc::new(storage.clone());
        let backups = BackupRepository::open_in(files, "/backups", OpenExisting::OrCreate)?;
        backups.create(&db)?;
        write_on_a_trail(&db, &backups)?;
        write_tables(&db)?;
        let mut sent = Vec::new();
        db.backup_to(&mut sent, BackupOptions::new())?;
        corpus.backup_streams.push(sent);
        for (path, _) in storage.files() {
            let bytes = storage.read_file(&path).unwrap_or_default();
            corpus.take(&path, &bytes);
        }
        corpus.keyring_slots = [0, 2].map(keyring_slot).into_iter().collect::<Result<_>>()?;
        Ok(corpus)
    }

    fn take(&mut self, path: &Path, bytes: &[u8]) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("backup-") {
            self.backup_lists.push(bytes.to_vec());
        } else if name.starts_with("segment-") {
            self.trail_segments.push(bytes.to_vec());
        } else if name.ends_with(".wal") {
            let records = wal_records(bytes);
            self.commits.extend(records.iter().map(|(start, len)| {
                bytes[start + WAL_RECORD_HEADER_SIZE..start + WAL_RECORD_HEADER_SIZE + len].to_vec()
            }));
            self.wal_files.push(bytes.to_vec());
        } else if name.starts_with("MANIFEST") {
            self.manifests.push(bytes.to_vec());
        } else if name.starts_with("index-") {
            let records = edit_records(bytes).into_iter();
            self.index_records.extend(records.map(|(start, len)| {
                bytes[start + EDIT_RECORD_HEADER_SIZE..start + EDIT_RECORD_HEADER_SIZE + len]
                    .to_vec()
            }));
        } else if name.starts_with("val-") {
            self.value_files.push(bytes.to_vec());
        } else if name.starts_with("table-") {
            self.table_parts.extend(table_parts(bytes));
            self.tables.push(bytes.to_vec());
        } else if name.starts_with("seg-") {
            let mut at = SEGMENT_HEADER_SIZE;
            while let Some(stored) = u32_at(bytes, at + 8).map(|stored| stored as usize) {
                let end = at + FRAME_HEADER_SIZE + stored;
                if stored == 0 || end > bytes.len() {
                    break;
                }
                self.frames.push(bytes[at..end].to_vec());
                self.blocks.push(bytes[at + FRAME_HEADER_SIZE..end].to_vec());
                at = end;
            }
        }
    }
}

/// The payloads of a table that are no data blocks, each behind the kind of its frame.
fn table_parts(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, mut parts) = (TABLE_HEADER_SIZE, Vec::new());
    let end = bytes.len().saturating_sub(TABLE_FOOTER_SIZE);
    while let Some(stored) = u32_at(&bytes[..end], at + 8).map(|stored| stored as usize) {
        let Some(payload) = bytes.get(at + FRAME_HEADER_SIZE..at + FRAME_HEADER_SIZE + stored)
        else {
            break;
        };
        let kind = bytes[at + FRAME_KIND_AT];
        if kind > FRAME_KIND_ENTRIES && kind < FRAME_KIND_DICTIONARY {
            parts.push([&[kind], payload].concat());
        }
        at += FRAME_HEADER_SIZE + stored;
    }
    parts
}

/// What of a slot says something, with a key or passphrase of this number.
fn keyring_slot(key: u8) -> Result<Vec<u8>> {
    let (storage, setup) = (SimStorage::new(1), Setup::tiny(1));
    let builder = setup.builder(Arc::new(storage.clone()), Arc::default(), 0);
    builder.encryption(setup.encryption(key, 0)).open(DB_PATH)?.close()?;
    let bytes = storage.read_file(&Path::new(DB_PATH).join("KEYRING")).unwrap_or_default();
    Ok(bytes.into_iter().take(KEYRING_SLOT_USED).collect())
}

fn write_some(db: &Db) -> Result<()> {
    let names = ["plain", "packed"];
    let options = KeyspaceOptions::flex().interval_size(700).segment_size(64 << 10);
    db.create_keyspace(names[0], options.clone().merge_operator("append"))?;
    db.create_keyspace(names[1], options.value_separation(Some(64)))?;
    let keyspaces = [db.keyspace(names[0])?, db.keyspace(names[1])?];
    for round in 0..60_u16 {
        let mut batch = WriteBatch::new();
        for index in 0..6_u16 {
            let keyspace = &keyspaces[usize::from(index % 2)];
            let key = Key(round.wrapping_mul(13).wrapping_add(index * 7) % 160).bytes();
            match (round + index) % 5 {
                0 => batch.delete(keyspace, key),
                1 if index % 2 == 0 => batch.merge(keyspace, key, round.to_le_bytes()),
                1 => {
                    let ttl = Duration::from_secs(u64::from(index) * 3600);
                    batch.put_with_ttl(keyspace, key, round.to_le_bytes(), ttl);
                }
                2 if index % 2 == 1 => {
                    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(START_MILLIS * 2);
                    batch.put_until(keyspace, key, vec![7; usize::from(round) * 3], at);
                }
                _ => {
                    let value = Value { len: u32::from(round % 40), fill: u32::from(index) };
                    batch.put(keyspace, key, value.bytes());
                }
            }
        }
        db.write_with(batch, Durability::Buffered)?;
        if round % 20 == 19 {
            db.flush()?;
        }
    }
    db.sync()
}

/// Makes tables to be ingested: with several partitions, and with deleted ranges.
fn write_tables(db: &Db) -> Result<()> {
    let options = KeyspaceOptions::lsm().block_size(1 << 10);
    let keyspace = db.create_keyspace("tables", options)?;
    for (table, count) in [20_u16, 600].into_iter().enumerate() {
        let mut writer = keyspace.table_writer(format!("{DB_PATH}/table-{table}"))?;
        for number in 0..count {
            let key = number.to_be_bytes();
            match number % 9 {
                8 => writer.delete(key)?,
                _ => writer.put(key, vec![table as u8; usize::from(number % 40)])?,
            }
        }
        if table == 0 {
            writer.delete_range("x".."y")?;
        }
        writer.finish()?;
    }
    Ok(())
}

/// Has a trail follow, and changes something of each kind that it tells of.
fn write_on_a_trail(db: &Db, backups: &BackupRepository) -> Result<()> {
    backups.begin_trail(db, TrailOptions::new())?;
    let packed = db.keyspace("packed")?;
    for round in 0..6 {
        packed.put(Key(round).bytes(), vec![round as u8; 20 << round])?; // Large ones as well.
    }
    db.create_keyspace("late", KeyspaceOptions::history())?.put("otter", "swims")?;
    db.rename_keyspace("late", "later")?;
    packed.delete(Key(1).bytes())?;
    db.drop_keyspace("later")?;
    backups.extend_trail(db).map(drop)
}

/// Changes some bytes, as a fuzzer does.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            bytes.push(random.draw() as u8);
        }
        let at = random.index(bytes.len());
        let end = (at + 1 + random.index(16)).min(bytes.len());
        match random.below(8) {
            0..3 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = random.pick(&[0, 1, 0x7F, 0x80, 0xFE, 0xFF]),
            4 => bytes[at..end].fill(random.pick(&[0, 0xFF])),
            5 => bytes.truncate(at),
            6 => drop(bytes.drain(at..end)),
            _ => {
                let copied = bytes[at..end].to_vec();
                let to = random.index(bytes.len());
                bytes.splice(to..to, copied);
            }
        }
    }
}

/// Changes bytes inside the records of a log file and puts their checksums right.
pub fn mutate_wal_records(bytes: &mut [u8], random: &mut Random) {
    let records = wal_records(bytes);
    for _ in 0..=random.below(3) {
        let (start, len) = records[random.index(records.len())];
        let size = WAL_RECORD_HEADER_SIZE + len;
        poke(&mut bytes[start + 8..start + size], random);
        let tag = checksum_seeded(&DATABASE_ID.to_le_bytes(), 1);
        let sum = checksum(&bytes[start + 8..start + size], tag, start as u64);
        bytes[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Changes bytes inside the records of an edit log and puts their checksums right.
pub fn mutate_edit_records(bytes: &mut [u8], random: &mut Random) {
    let records = edit_records(bytes);
    let tag = edit_log_tag(bytes);
    for _ in 0..=random.below(3) {
        let (start, len) = records[random.index(records.len())];
        let payload = start + EDIT_RECORD_HEADER_SIZE;
        let padded = len.next_multiple_of(8);
        if random.chance(800) && len > 0 {
            poke(&mut bytes[payload..payload + len], random);
        } else {
            poke(&mut bytes[start + 16..payload], random);
        }
        let sum = checksum(&bytes[payload..payload + padded], tag, payload as u64);
        bytes[start + 8..start + 16].copy_from_slice(&sum.to_le_bytes());
        let sum = checksum(&bytes[start + 8..payload], tag, start as u64);
        bytes[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

fn poke(bytes: &mut [u8], random: &mut Random) {
    let at = random.index(bytes.len());
    match random.below(3) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.pick(&[0, 1, 0x7F, 0x80, 0xFF]),
        _ => bytes[at] = random.draw() as u8,
    }
}

/// Start and payload length of each record of a log file, up to the first that is none.
fn wal_records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut records = Vec::new();
    let mut at = WAL_HEADER_SIZE;
    while let Some(length) = u64_at(bytes, at + 24) {
        let (kind, len) = ((length >> 56) as u8, (length & ((1 << 56) - 1)) as usize);
        if !matches!(kind, 0xC3 | 0x5A) || at + WAL_RECORD_HEADER_SIZE + len > bytes.len() {
            break;
        }
        records.push((at, len));
        at += (WAL_RECORD_HEADER_SIZE + len).next_multiple_of(8);
    }
    records
}

/// Start and payload length of each record of an edit log; mark slots are passed over.
fn edit_records(bytes: &[u8]) -> Vec<(usize, usize)> {
    const MARK_SLOT_SIZE: usize = 32;
    let mut records = Vec::new();
    let mut at = EDIT_LOG_HEADER_SIZE;
    while let (Some(len), Some(kind)) = (u32_at(bytes, at + 24), bytes.get(at + 28)) {
        let (len, kind) = (len as usize, *kind);
        let end = at + EDIT_RECORD_HEADER_SIZE + len.next_multiple_of(8);
        if !(1..=3).contains(&kind) || end > bytes.len() {
            break;
        }
        records.push((at, len));
        at = if kind == 1 { end } else { end + MARK_SLOT_SIZE };
    }
    records
}

fn edit_log_tag(bytes: &[u8]) -> u64 {
    // Database, owner, number and kind, as the header holds them.
    let mut identity = bytes[16..40].to_vec();
    identity.extend_from_slice(&bytes[12..16]);
    checksum_seeded(&identity, 0)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_every_kind_are_found_and_their_checksums_can_be_made() {
        let corpus = Corpus::collect().unwrap();
        assert!(!corpus.frames.is_empty() && corpus.blocks.len() > 3);
        assert!(corpus.index_records.len() > 3);
        let wal = &corpus.wal_files[0];
        let records = wal_records(wal);
        assert!(records.len() > 20);
        let tag = checksum_seeded(&DATABASE_ID.to_le_bytes(), 1);
        for (start, len) in records {
            let sum =
                checksum(&wal[start + 8..start + WAL_RECORD_HEADER_SIZE + len], tag, start as u64);
            assert_eq!(u64_at(wal, start), Some(sum), "the record at {start}");
        }
        let manifest = &corpus.manifests[0];
        let records = edit_records(manifest);
        assert!(records.len() > 3);
        for (start, _) in records {
            let sum = checksum(
                &manifest[start + 8..start + EDIT_RECORD_HEADER_SIZE],
                edit_log_tag(manifest),
                start as u64,
            );
            assert_eq!(u64_at(manifest, start), Some(sum), "the record at {start}");
        }
    }
}
