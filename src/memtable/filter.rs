//! Filter of keys: tells most keys that a memtable lacks without a descent.
//!
//! A blocked Bloom filter: all bits of a key are in one cache line. It has no false negatives, so
//! a search that it rules out is over. Must not know entries or nodes.
//!
//! A memtable learns how many keys will come only as they come: the first [`SAMPLE_LEN`] hashes are
//! kept until their entries tell the average size; then a filter for the expected number is made.
//! When more keys come than expected, a second and larger filter takes them, and so on.
//!
//! Invariants
//! - F1  The bits of a key are set before a leaf names its entry, so who can find the entry (and
//!   was ordered after its insert) sees them.
//! - F2  Once the first filter is there, every key is in one of the filters.
//!
//! Source: F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters"
//! (2007).

use crate::base::prefetch;
use crate::base::sync::OnceLock;
use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Keys without a filter: a tree of a few leaves is as fast.
const SAMPLE_LEN: usize = 512;
/// Below so many expected keys no filter is made.
const KEY_COUNT_MIN: usize = 4 * SAMPLE_LEN;
/// However many keys are expected, the first filter is made for no more: it takes 20 MiB then.
const KEY_COUNT_MAX: usize = 1 << 24;
/// Bits for each expected key: 1 % of absent keys pass, with six bits set for each.
const BITS_PER_KEY: usize = 10;
const PROBE_COUNT: u32 = 6;
const WORDS_PER_BLOCK: usize = 8;
const BITS_PER_BLOCK: usize = WORDS_PER_BLOCK * u64::BITS as usize;
/// Each filter after the first is larger by this; the last one takes all that still come.
const GROWTH: usize = 2;
const FILTER_COUNT_MAX: usize = 4;

/// The filters of one memtable.
#[derive(Default)]
pub(super) struct Filters {
    filters: [OnceLock<Filter>; FILTER_COUNT_MAX],
}

/// The writer's side: which filter is being filled.
pub(super) struct FilterFill {
    state: Fill,
}

enum Fill {
    Off,
    Sampling { hashes: Vec<u64> },
    Filling { index: usize, room: usize },
}

/// What there is to know about the entries so far.
pub(super) struct Sizes {
    /// Bytes of keys and values that the memtable is made for.
    pub(super) expected_bytes: usize,
    /// Bytes of keys and values that it has.
    pub(super) data_size: usize,
}

/// Bits of about as many keys as it was made for.
struct Filter {
    blocks: Box<[Block]>,
    key_count: usize,
}

#[derive(Default)]
#[repr(align(64))]
struct Block {
    words: [AtomicU64; WORDS_PER_BLOCK],
}

impl Filters {
    /// Whether the key with this hash is surely absent.
    #[inline]
    pub(super) fn rule_out(&self, hash: impl Fn() -> u64) -> bool {
        let Some(first) = self.filters[0].get() else {
            return false;
        };
        let hash = hash();
        if first.may_have(hash) {
            return false;
        }
        !self.filters[1..].iter().map_while(OnceLock::get).any(|filter| filter.may_have(hash))
    }

    /// Bytes of memory taken.
    pub(super) fn allocated(&self) -> usize {
        let filters = self.filters.iter().map_while(OnceLock::get);
        filters.map(|filter| size_of_val(&*filter.blocks)).sum()
    }

    /// The hash of a key that is about to be added, if a filter wants it; brings in its line.
    #[inline]
    pub(super) fn hash_and_prefetch(&self, fill: &FilterFill, hash: impl Fn() -> u64) -> u64 {
        match &fill.state {
            Fill::Off => 0,
            Fill::Sampling { .. } => hash(),
            Fill::Filling { index, .. } => {
                let hash = hash();
                prefetch(std::ptr::from_ref(self.filter(*index).block(hash)).cast());
                hash
            }
        }
    }

    /// Adds a key, before its entry can be found (F1).
    #[inline]
    pub(super) fn add(&self, fill: &mut FilterFill, hash: u64, sizes: &Sizes) {
        match &mut fill.state {
            Fill::Off => {}
            Fill::Sampling { hashes } => {
                hashes.push(hash);
                if hashes.len() == SAMPLE_LEN {
                    fill.state = self.begin(hashes, sizes);
                }
            }
            Fill::Filling { index, room } => {
                if *room == 0 && *index + 1 < FILTER_COUNT_MAX {
                    let key_count = self.filter(*index).key_count * GROWTH;
                    *index += 1;
                    *room = key_count;
                    self.filters[*index].get_or_init(|| Filter::with_room_for(key_count));
                }
                *room = room.saturating_sub(1);
                self.filter(*index).add(hash);
            }
        }
    }

    /// Makes the first filter, with the keys that came before it.
    fn begin(&self, hashes: &[u64], sizes: &Sizes) -> Fill {
        let entry_size = (sizes.data_size / hashes.len()).max(1);
        let key_count = (sizes.expected_bytes / entry_size).min(KEY_COUNT_MAX);
        if key_count < KEY_COUNT_MIN {
            return Fill::Off;
        }
        let filter = Filter::with_room_for(key_count);
        for &hash in hashes {
            filter.add(hash);
        }
        self.filters[0].get_or_init(|| filter); // F2
        Fill::Filling { index: 0, room: key_count - hashes.len() }
    }

    #[inline]
    fn filter(&self, index: usize) -> &Filter {
        self.filters[index].get().expect("the filter that is being filled was made")
    }
}

impl FilterFill {
    /// The beginning: hashes are collected.
    pub(super) fn sampling() -> FilterFill {
        FilterFill { state: Fill::Sampling { hashes: Vec::new() } }
    }

    /// No filter will be made.
    pub(super) fn off() -> FilterFill {
        FilterFill { state: Fill::Off }
    }
}

impl Filter {
    fn with_room_for(key_count: usize) -> Filter {
        let block_count = (key_count * BITS_PER_KEY).div_ceil(BITS_PER_BLOCK);
        Filter { blocks: (0..block_count).map(|_| Block::default()).collect(), key_count }
    }

    fn add(&self, hash: u64) {
        let block = self.block(hash);
        for (word, bit) in probes(hash) {
            // One writer: load and store need not be one step. Relaxed: F1.
            let word = &block.words[word];
            word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
    }

    #[inline]
    fn may_have(&self, hash: u64) -> bool {
        let block = self.block(hash);
        // No early exit: the line is there or not, and a branch guessed wrong costs more.
        let missing = probes(hash).fold(0, |missing, (word, bit)| {
            missing | !block.words[word].load(Ordering::Relaxed) & bit
        });
        missing == 0
    }

    /// The upper half of the hash, scaled to the number of blocks.
    #[inline]
    fn block(&self, hash: u64) -> &Block {
        let scaled = (u128::from(hash) * self.blocks.len() as u128) >> u64::BITS;
        &self.blocks[scaled as usize]
    }
}

/// The bits of a key in its block: nine bits of the hash, mixed anew, choose each.
#[inline]
fn probes(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    // An odd constant (2^64 / golden ratio): the block used the upper bits as they are.
    let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..PROBE_COUNT).map(move |probe| {
        let bit = (mixed >> (10 + 9 * probe)) as usize % BITS_PER_BLOCK;
        (bit / u64::BITS as usize, 1 << (bit % u64::BITS as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash_key;

    fn hash(number: u64) -> u64 {
        hash_key(&number.to_be_bytes())
    }

    #[test]
    fn no_key_is_ruled_out_and_few_absent_ones_pass() {
        let (filters, mut fill) = (Filters::default(), FilterFill::sampling());
        let expected = 20_000;
        // The last fifth of the keys is beyond what is expected.
        for number in 0..expected * 5 / 4 {
            let sizes = Sizes { expected_bytes: expected * 100, data_size: (number + 1) * 100 };
            filters.add(&mut fill, hash(number as u64), &sizes);
            assert!(!filters.rule_out(|| hash(number as u64 / 3)));
        }
        let count = expected as u64 * 5 / 4;
        assert!((0..count).all(|number| !filters.rule_out(|| hash(number))));
        let passed = (count..2 * count).filter(|&number| !filters.rule_out(|| hash(number)));
        assert!(passed.count() < count as usize * 3 / 200, "about 1 %");
        assert_eq!(
            filters.allocated() / 64,
            (expected * 10).div_ceil(512) + (expected * 20).div_ceil(512)
        );
    }

    #[test]
    fn small_memtables_have_no_filter() {
        for mut fill in [FilterFill::sampling(), FilterFill::off()] {
            let filters = Filters::default();
            for number in 0..2000u64 {
                let sizes = Sizes { expected_bytes: 4096, data_size: number as usize * 10 };
                filters.add(&mut fill, hash(number), &sizes);
            }
            assert!(filters.allocated() == 0 && !filters.rule_out(|| hash(5000)));
        }
    }
}
