//! A door for fuzzers: value files whose checksums are right.

use super::format::{
    FILE_HEADER_LEN, Form, RECORD_HEADER_LEN, RecordHeader, RecordLayout, RecordPlace,
    encode_file_header, file_tag, seal_record, u64_at,
};

/// The file of this database and number with these bytes for its records: their headers are put
/// right, and their tables where the file has all of them.
pub(crate) fn put_right(bytes: &[u8], (database, number): (u64, u64)) -> Vec<u8> {
    let mut file = bytes.to_vec();
    file.resize(bytes.len().max(FILE_HEADER_LEN as usize), 0);
    file[..FILE_HEADER_LEN as usize].copy_from_slice(&encode_file_header(database, number, 0));
    let tag = file_tag(database, number);
    let mut at = FILE_HEADER_LEN as usize;
    while let Some(head) = file.get(at..).and_then(|rest| rest.first_chunk::<RECORD_HEADER_LEN>()) {
        let header = RecordHeader {
            len: u64_at(head, 8),
            hash: *head[16..].first_chunk().expect("in the head"),
            sum: u64_at(head, 32),
            keyspace: u32::from_le_bytes(*head[40..].first_chunk().expect("in the head")),
        };
        let place = RecordPlace { tag, key: None, offset: at as u64 };
        let end = RecordLayout::of(header.len, Form::Plain).map(|layout| layout.end);
        let end = end.and_then(|end| at.checked_add(usize::try_from(end).ok()?));
        match end.and_then(|end| Some((end, file.get_mut(at..end)?))) {
            Some((end, record)) => {
                seal_record(record, place, header);
                at = end;
            }
            None => {
                let head = header.encode(tag, place.offset);
                file[at..at + RECORD_HEADER_LEN].copy_from_slice(&head);
                at += RECORD_HEADER_LEN; // Of the next one it is the value.
            }
        }
    }
    file
}
