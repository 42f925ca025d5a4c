//! Values in files that have a key.
//!
//! A value of one chunk is encrypted with a nonce made of its hash and its place, and the record
//! has the tag where another record has the hash: who reads it knows the hash, by the pointer. The
//! chunks of a longer one are encrypted each by itself, with a nonce that is drawn for the value
//! and the chunk's number; nonce and tags are in the table, and where another record has the hash
//! is what authenticates the table together with the hash.

use super::format::{RecordHeader, RecordLayout};
use crate::base::ValueHash;
use crate::seal::{FileKey, NONCE_LEN, Nonce, TAG_LEN, Tag};

/// What the table of a long value begins with.
pub(super) const TABLE_HEAD_LEN: usize = NONCE_LEN;
/// What it has for each chunk: a checksum and a tag.
pub(super) const TABLE_ITEM_LEN: usize = 8 + TAG_LEN;
/// The number that stands for the table, among those of chunks.
const TABLE_NUMBER: u32 = u32::MAX;

/// A record that is sealed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealedRecord<'k> {
    pub key: &'k FileKey,
    /// Where it starts in its file.
    pub offset: u64,
    pub len: u64,
    pub keyspace: u32,
}

impl<'k> SealedRecord<'k> {
    pub(super) fn new(key: &'k FileKey, offset: u64, header: &RecordHeader) -> SealedRecord<'k> {
        SealedRecord { key, offset, len: header.len, keyspace: header.keyspace }
    }

    fn place(&self, hash: &ValueHash) -> [u8; 36] {
        let mut place = [0; 36];
        place[..8].copy_from_slice(&self.offset.to_le_bytes());
        place[8..16].copy_from_slice(&self.len.to_le_bytes());
        place[16..20].copy_from_slice(&self.keyspace.to_le_bytes());
        place[20..].copy_from_slice(hash);
        place
    }

    /// The nonce of a value of one chunk. The same value may come to the same place twice, when the
    /// first one found no room, and be another keyspace's.
    fn nonce(&self, hash: &ValueHash) -> Nonce {
        let mut hash = *hash;
        for (byte, of_keyspace) in hash.iter_mut().zip(self.keyspace.to_le_bytes()) {
            *byte ^= of_keyspace;
        }
        FileKey::nonce_of(&hash, self.offset)
    }

    /// Encrypts a value of one chunk.
    pub(super) fn seal_value(&self, hash: &ValueHash, value: &mut [u8]) -> Tag {
        self.key.seal(&self.nonce(hash), &self.place(hash), value)
    }

    /// Decrypts a value of one chunk, if it is the one with this hash that was sealed here.
    #[must_use]
    pub(super) fn open_value(&self, hash: &ValueHash, value: &mut [u8], tag: &Tag) -> bool {
        self.key.open(&self.nonce(hash), &self.place(hash), value, tag)
    }

    /// Encrypts chunk `number` of a longer one, of which the length need not be known yet.
    pub(super) fn seal_chunk(&self, drawn: &Nonce, number: usize, chunk: &mut [u8]) -> Tag {
        self.key.pieces(drawn).seal(number as u32, &self.chunk_place(number), chunk)
    }

    /// Decrypts chunk `number`, if it is what was sealed here.
    #[must_use]
    pub(super) fn open_chunk(
        &self,
        drawn: &Nonce,
        number: usize,
        chunk: &mut [u8],
        tag: &Tag,
    ) -> bool {
        self.key.pieces(drawn).open(number as u32, &self.chunk_place(number), chunk, tag)
    }

    fn chunk_place(&self, number: usize) -> [u8; 16] {
        let mut place = [0; 16];
        place[..8].copy_from_slice(&self.offset.to_le_bytes());
        place[8..].copy_from_slice(&(number as u64).to_le_bytes());
        place
    }

    /// What authenticates the table of a longer one.
    pub(super) fn seal_table(&self, hash: &ValueHash, table: &[u8]) -> Tag {
        let pieces = self.key.pieces(&nonce_in(table));
        pieces.seal(TABLE_NUMBER, &[&self.place(hash), table].concat(), &mut [])
    }

    /// Whether this is the table that was sealed for the value with this hash.
    #[must_use]
    pub(super) fn verifies_table(&self, hash: &ValueHash, table: &[u8], tag: &Tag) -> bool {
        let pieces = self.key.pieces(&nonce_in(table));
        pieces.open(TABLE_NUMBER, &[&self.place(hash), table].concat(), &mut [], tag)
    }

    /// Decrypts the value that `record` holds whole, if it is the one with this hash that was
    /// sealed here; the header has the tag.
    #[must_use]
    pub(super) fn open_record(
        &self,
        layout: &RecordLayout,
        record: &mut [u8],
        hash: &ValueHash,
        tag: &Tag,
    ) -> bool {
        let (value, table) = layout.parts_of(record);
        if table.is_empty() {
            return self.open_value(hash, value, tag);
        }
        let drawn = nonce_in(table);
        self.verifies_table(hash, table, tag)
            && value.chunks_mut(super::format::CHUNK_LEN).enumerate().all(|(number, chunk)| {
                self.open_chunk(&drawn, number, chunk, &tag_in(table, number))
            })
    }
}

/// The nonce that a table begins with.
pub(super) fn nonce_in(table: &[u8]) -> Nonce {
    *table.first_chunk().expect("a table is longer")
}

/// The tag of a chunk.
pub(super) fn tag_in(table: &[u8], number: usize) -> Tag {
    let at = TABLE_HEAD_LEN + number * TABLE_ITEM_LEN + 8;
    *table[at..].first_chunk().expect("the table has an item for each chunk")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::recorded_key;

    const HASH: ValueHash = [
        0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e,
        0x6f,
    ];

    /// Bytes that another program has made, after `docs/format/sealing.md`.
    #[test]
    fn the_bytes_of_a_value_are_those_of_the_document() {
        let (key, mut value) = (recorded_key(), b"a value of some bytes".to_vec());
        let record = SealedRecord { key: &key, offset: 4096, len: 21, keyspace: 5 };
        let tag = record.seal_value(&HASH, &mut value);
        let text: String = value.iter().chain(&tag).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text,
            "cb8da44870d16fc8136bd97348981ea6158c5f6c753e2a7a7e5d0151b8a91ed817787cc681"
        );
        for other in [
            SealedRecord { offset: 4104, ..record },
            SealedRecord { len: 20, ..record },
            SealedRecord { keyspace: 6, ..record },
        ] {
            assert!(!other.open_value(&HASH, &mut value.clone(), &tag));
        }
        assert!(!record.open_value(&[0; 16], &mut value.clone(), &tag));
        assert!(record.open_value(&HASH, &mut value, &tag));
        assert_eq!(value, b"a value of some bytes");
    }

    /// Neither a chunk in another's place, nor a table that says something else, is taken.
    #[test]
    fn chunks_and_their_table_open_in_their_place_only() {
        let key = recorded_key();
        let record = SealedRecord { key: &key, offset: 4096, len: 40, keyspace: 5 };
        let drawn = key.draw_nonce();
        let mut chunks = [*b"the first chunk of a", *b"nd the second one .."];
        let [first, second] = &mut chunks;
        let tags = [record.seal_chunk(&drawn, 0, first), record.seal_chunk(&drawn, 1, second)];
        assert!(!record.open_chunk(&drawn, 1, &mut chunks[0].clone(), &tags[0]));
        assert!(!record.open_chunk(&drawn, 0, &mut chunks[0].clone(), &tags[1]));
        let elsewhere = SealedRecord { offset: 8, ..record };
        assert!(!elsewhere.open_chunk(&drawn, 0, &mut chunks[0].clone(), &tags[0]));
        assert!(record.open_chunk(&drawn, 0, &mut chunks[0], &tags[0]));
        assert_eq!(&chunks[0], b"the first chunk of a");
        let mut table = drawn.to_vec();
        for tag in &tags {
            table.extend_from_slice(&[0; 8]);
            table.extend_from_slice(tag);
        }
        let tag = record.seal_table(&HASH, &table);
        assert!(record.verifies_table(&HASH, &table, &tag));
        assert!(!record.verifies_table(&[0; 16], &table, &tag));
        assert!(!SealedRecord { len: 41, ..record }.verifies_table(&HASH, &table, &tag));
        for at in 0..table.len() {
            let mut flipped = table.clone();
            flipped[at] ^= 1;
            assert!(!record.verifies_table(&HASH, &flipped, &tag), "byte {at}");
        }
    }
}
