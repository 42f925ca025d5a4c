//! What is known of a table without reading it, and what is decided before it is written.

use crate::base::{Codec, ExpirySpan, MOMENT_MAX, RangeTombstones, SeqNo, Slice, successor};
use crate::block::RestartPolicy;
use crate::structure::ValueShare;

/// Bytes of a data block, about, unless something else is asked for. What a point lookup reads and
/// checks; what a page of the file systems holds.
const BLOCK_SIZE_DEFAULT: usize = 4096;
/// About one key in a hundred that is not there is looked for in vain.
const FILTER_BITS_DEFAULT: u8 = 10;

/// How tables are written.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// How data blocks are compressed.
    pub codec: Codec,
    /// Bytes of a data block before it is compressed, about. A larger entry has a block of its own.
    pub block_size: usize,
    /// Whether keys in data blocks share prefixes.
    pub restarts: RestartPolicy,
    /// Bits of the filter a key; 0 for no filter.
    pub filter_bits: u8,
    /// Bytes of the prefixes that the filter knows as well; 0 for none.
    pub filter_prefix_len: u8,
    /// Bytes at the end of keys that the filter leaves out: then it knows nothing but what is in
    /// front of them. For archives of versions; 0 elsewhere.
    pub filter_tail_len: u8,
    /// Bytes of a dictionary for data blocks, at most; 0 for none. For [`Codec::Zstd`].
    pub dictionary_size: usize,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            codec: Codec::None,
            block_size: BLOCK_SIZE_DEFAULT,
            restarts: RestartPolicy::Adaptive,
            filter_bits: FILTER_BITS_DEFAULT,
            filter_prefix_len: 0,
            filter_tail_len: 0,
            dictionary_size: 0,
        }
    }
}

/// What a written table is: what the index of its keyspace says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRecord {
    /// Its number.
    pub number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// The low 32 bits of the footer's checksum.
    pub checksum: u32,
    /// Its first key, or the start of its first deleted range.
    pub first: Slice,
    /// Above its last key and its deleted ranges; `None` if these have no end.
    pub end: Option<Slice>,
    /// Entries, tombstones included.
    pub entry_count: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Deleted ranges.
    pub deleted_ranges: u32,
    /// Entries in older tables that it hides, about: by a sample of its keys.
    pub hides: u64,
    /// Bytes of keys and values.
    pub logical_bytes: u64,
    /// What was drawn for the file, if it was made outside of the database: see `TableIdentity`.
    pub origin: Option<u64>,
    /// The stamp of every entry, of a table that was written before that was known.
    pub stamp: Option<SeqNo>,
    /// The oldest stamp, as it was written; [`SeqNo::MAX`] without entries.
    pub oldest: SeqNo,
    /// The newest stamp, as it was written; [`SeqNo::ZERO`] without entries.
    pub newest: SeqNo,
    /// How many entries expire, and when.
    pub expiring: Option<ExpirySpan>,
    /// What entries point to in value files.
    pub values: Vec<ValueShare>,
}

/// From the first key or deleted range up to behind the last, of a table with these.
pub(super) fn span(
    keys: Option<&(Slice, Slice)>,
    ranges: &RangeTombstones,
) -> (Slice, Option<Slice>) {
    let first_key = keys.map(|(first, _)| first.clone());
    let key_end = keys.map_or_else(Slice::default, |(_, last)| Slice::from(successor(last)));
    let Some(first_range) = ranges.first_from(&[]) else {
        return (first_key.unwrap_or_default(), Some(key_end));
    };
    let start = Slice::from(first_range.start);
    let first = first_key.map_or_else(|| start.clone(), |key| key.min(start.clone()));
    let range_end = ranges.iter().last().and_then(|range| range.end.map(Slice::from));
    (first, range_end.map(|end| end.max(key_end)))
}

impl TableRecord {
    /// Whether `key` lies in the table's span.
    #[must_use]
    pub fn spans(&self, key: &[u8]) -> bool {
        *self.first <= *key && !self.ends_by(key)
    }

    /// Whether its numbers can be those of one table. Those of a file from elsewhere are only what
    /// it says.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let can_expire = |span: ExpirySpan| {
            let count = u64::from(span.count);
            count > 0
                && count <= self.entry_count
                && span.first <= span.last
                && span.last <= MOMENT_MAX
        };
        self.tombstones <= self.entry_count && self.expiring.is_none_or(can_expire)
    }

    /// Whether the whole span is in front of `key`.
    #[must_use]
    pub fn ends_by(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| **end <= *key)
    }
}
