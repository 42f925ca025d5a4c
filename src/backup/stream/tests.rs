//! Streams that were damaged, cut, or put together by somebody else.

use super::format::{RECORD_HEAD_LEN, RecordHead, RecordKind, StreamInfo};
use super::read::{AllFiles, BackupStream};
use crate::backup::list::Content;
use crate::backup::work::BackupOptions;
use crate::base::{Error, Result, SeqNo, checksum};

const STREAM: u64 = 0x1234_5678_9abc_def0;

/// Puts records together as nobody else would.
struct Forge {
    bytes: Vec<u8>,
    files: AllFiles,
}

impl Forge {
    fn new(files: u64, bytes: u64) -> Forge {
        let seqno = SeqNo::from_u64(77);
        let info = StreamInfo { database: 5, seqno, created_millis: 9, files, bytes };
        Forge { bytes: info.encode(STREAM).to_vec(), files: AllFiles::default() }
    }

    fn record(mut self, kind: RecordKind, value: u64, payload: &[u8]) -> Forge {
        let head = RecordHead { kind, len: payload.len(), value };
        let head = head.encode(payload, STREAM, self.bytes.len() as u64);
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(payload);
        self
    }

    fn file(mut self, path: &str, bytes: &[u8]) -> Forge {
        let len = bytes.len() as u64;
        let hash = *blake3::hash(bytes).as_bytes();
        self.files.add(path, &Content { len, hash });
        let begun = self.record(RecordKind::File, len, path.as_bytes());
        let sent = if bytes.is_empty() { begun } else { begun.record(RecordKind::Bytes, 0, bytes) };
        sent.record(RecordKind::EndOfFile, 0, &hash)
    }

    fn end(self) -> Forge {
        let (count, hash) = self.files.finish();
        self.record(RecordKind::End, count, &hash)
    }

    fn read(&self) -> Result<StreamInfo> {
        BackupStream::open(&*self.bytes)?.verify(BackupOptions::new())
    }

    fn is_damaged(&self) -> bool {
        self.read().is_err_and(|error| error.is_corruption())
    }
}

fn whole() -> Forge {
    let zeros = RecordKind::Zeros;
    let mut forge = Forge::new(3, 112).file("MANIFEST-00000001", b"hello").file("a", b"");
    forge.files.add("b", &Content { len: 107, hash: *blake3::hash(&[0; 107]).as_bytes() });
    forge
        .record(RecordKind::File, 107, b"b")
        .record(zeros, 100, &[])
        .record(RecordKind::Bytes, 0, &[0; 7])
        .record(RecordKind::EndOfFile, 0, blake3::hash(&[0; 107]).as_bytes())
        .end()
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let whole = whole();
    let info = whole.read().unwrap();
    assert_eq!((info.files, info.bytes, info.seqno), (3, 112, SeqNo::from_u64(77)));
    for bit in 0..whole.bytes.len() * 8 {
        let mut flipped = whole.bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let forged = Forge { bytes: flipped, files: AllFiles::default() };
        assert!(forged.is_damaged(), "{bit}");
    }
    for len in 0..whole.bytes.len() {
        let cut = Forge { bytes: whole.bytes[..len].to_vec(), files: AllFiles::default() };
        assert!(cut.is_damaged(), "{len}");
    }
}

#[test]
fn records_out_of_place_and_of_other_streams_are_refused() {
    let hash = *blake3::hash(b"hello").as_bytes();
    let begun = || Forge::new(1, 5).record(RecordKind::File, 5, b"a");
    let forged = [
        Forge::new(0, 0).record(RecordKind::Bytes, 0, b"x"),
        Forge::new(0, 0).record(RecordKind::EndOfFile, 0, &hash),
        begun().record(RecordKind::File, 5, b"b"),
        begun().record(RecordKind::End, 0, &hash),
        begun().record(RecordKind::EndOfFile, 0, &hash),
        begun().record(RecordKind::Bytes, 0, b"hello!"),
        begun().record(RecordKind::Zeros, 6, &[]),
        begun().record(RecordKind::Zeros, 0, &[]),
        begun().record(RecordKind::Bytes, 0, b"hellO").record(RecordKind::EndOfFile, 0, &hash),
        Forge::new(2, 5).file("a", b"hello").end(),
        Forge::new(0, 5).file("a", b"hello").end(),
        Forge::new(1, 4).file("a", b"hello").end(),
        Forge::new(1, 6).file("a", b"hello").end(),
        Forge::new(2, 10).file("b", b"hello").file("a", b"hello").end(),
        Forge::new(2, 10).file("a", b"hello").file("a", b"hello").end(),
    ];
    for (index, forge) in forged.iter().enumerate() {
        assert!(forge.is_damaged(), "{index}");
    }
    for path in ["", "/etc/x", "../x", "a/../b", "a//b", "a\\b", "\u{e9}"] {
        assert!(Forge::new(1, 5).file(path, b"hello").end().is_damaged(), "{path:?}");
    }
    // The same records, of the same stream at another place, or of another stream.
    let mut bytes = whole().bytes;
    let at = super::format::HEAD_LEN;
    bytes.splice(at..at, vec![0; RECORD_HEAD_LEN]);
    assert!(Forge { bytes, files: AllFiles::default() }.is_damaged());
    let mut other = Forge::new(1, 5).bytes;
    let seqno = SeqNo::from_u64(77);
    let info = StreamInfo { database: 5, seqno, created_millis: 9, files: 1, bytes: 5 };
    other.copy_from_slice(&info.encode(STREAM + 1));
    other.extend_from_slice(&Forge::new(1, 5).file("a", b"hello").end().bytes[at..]);
    assert!(Forge { bytes: other, files: AllFiles::default() }.is_damaged());
}

/// Put together after `docs/format/backup.md`.
#[test]
fn the_bytes_are_those_of_the_document() {
    let mut bytes = b"LITHESTR".to_vec();
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    for word in [STREAM, 5, 77, 9, 1, 2, 0] {
        bytes.extend(word.to_le_bytes());
    }
    let sum = checksum(&bytes, 0, 0);
    bytes.extend(sum.to_le_bytes());
    let hash = *blake3::hash(b"hi").as_bytes();
    let mut all = 1u64.to_le_bytes().to_vec();
    all.extend(b"a");
    all.extend(2u64.to_le_bytes());
    all.extend(hash);
    let all = *blake3::hash(&all).as_bytes();
    let records: [(u32, u64, &[u8]); 4] =
        [(1, 2, b"a"), (2, 0, b"hi"), (4, 0, &hash), (5, 1, &all)];
    for (kind, value, payload) in records {
        let mut record = kind.to_le_bytes().to_vec();
        record.extend((payload.len() as u32).to_le_bytes());
        record.extend(value.to_le_bytes());
        record.extend(payload);
        let sum = checksum(&record, STREAM, bytes.len() as u64);
        bytes.extend(sum.to_le_bytes());
        bytes.extend(record);
    }
    let forged = Forge::new(1, 2).file("a", b"hi").end();
    assert_eq!(forged.bytes, bytes);
    forged.read().unwrap();
}

#[test]
fn another_version_is_named() {
    let mut bytes = whole().bytes;
    bytes[8] = 9;
    let sum = checksum(&bytes[..72], 0, 0);
    bytes[72..80].copy_from_slice(&sum.to_le_bytes());
    let error = BackupStream::open(&*bytes).unwrap_err();
    assert!(matches!(error, Error::FormatVersion { found: 9, known: 1, .. }));
}
