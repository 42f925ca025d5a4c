//! Blocks that wait for a dictionary: the first ones of a table are gathered, a dictionary is
//! trained from them, and they and all others are packed with it; if it pays.
//!
//! Every fourth block is held out of the training, and it is by these that the dictionary is
//! judged: what was trained with is packed well in any case. It must save its own size within what
//! was gathered; so a small table has none, and neither has one whose blocks have nothing in
//! common.

use crate::base::Codec;
use crate::block::{Packing, PackingDictionary, dictionary, packed_len};

/// Bytes of blocks that are gathered for each of the dictionary.
pub const GATHERED_PER_BYTE: usize = 64;
/// Bytes of the smallest dictionary that is trained.
const SIZE_MIN: usize = 256;
/// With fewer blocks none is trained.
const BLOCK_COUNT_MIN: usize = 8;
/// One block in so many is not trained with.
const HELD_OUT_EVERY: usize = 4;
/// Blocks that a dictionary is judged by, at most.
const JUDGED_COUNT_MAX: usize = 32;

/// Bytes that training takes beside what it is given, about: counts of what recurs (4 bytes for
/// each of 2^20 hashes), twice, and half of that again for the piece at hand.
const TRAINING_SIZE: usize = 10 << 20;

/// A block that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// Where its payload ends among those of all.
    end: usize,
    /// Behind its last key.
    pub separator: Vec<u8>,
    pub entry_count: u64,
}

/// Blocks that wait, in their order.
#[derive(Debug)]
pub(super) struct Gathering {
    level: u8,
    /// Bytes of the dictionary, at most.
    size_max: usize,
    payloads: Vec<u8>,
    blocks: Vec<Waiting>,
    /// Bytes of memory of all separators.
    separators: usize,
}

/// A dictionary that pays.
#[derive(Debug)]
pub(super) struct Trained {
    pub bytes: Vec<u8>,
    pub packing: PackingDictionary,
}

impl Gathering {
    /// For a dictionary of up to `size_max` bytes; `None` where there is none.
    pub(super) fn begin(codec: Codec, size_max: usize) -> Option<Gathering> {
        let Codec::Zstd(level) = codec else { return None };
        let is_wanted = size_max >= SIZE_MIN && codec.is_available();
        is_wanted.then(|| Gathering {
            level,
            size_max,
            payloads: Vec::new(),
            blocks: Vec::new(),
            separators: 0,
        })
    }

    pub(super) fn add(&mut self, payload: &[u8], separator: &[u8], entry_count: u64) {
        self.payloads.extend_from_slice(payload);
        let (end, separator) = (self.payloads.len(), separator.to_vec());
        self.separators += separator.capacity();
        self.blocks.push(Waiting { end, separator, entry_count });
    }

    /// Whether there is enough.
    pub(super) fn is_full(&self) -> bool {
        self.payloads.len() >= GATHERED_PER_BYTE * self.size_max
    }

    /// Bytes of payloads.
    pub(super) fn size(&self) -> usize {
        self.payloads.len()
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        let blocks = self.blocks.capacity() * size_of::<Waiting>();
        self.payloads.capacity() + blocks + self.separators
    }

    /// Bytes of memory while a dictionary is trained: the samples are a copy.
    pub(super) fn training_size(&self) -> usize {
        let is_trained = self.blocks.len() >= BLOCK_COUNT_MIN;
        let training = if is_trained { self.payloads.len() + TRAINING_SIZE } else { 0 };
        self.memory_size() + training
    }

    /// The blocks with their payloads.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (&Waiting, &[u8])> {
        let starts = std::iter::once(0).chain(self.blocks.iter().map(|block| block.end));
        let blocks = self.blocks.iter().zip(starts);
        blocks.map(|(block, start)| (block, &self.payloads[start..block.end]))
    }

    /// A dictionary for the blocks, if one pays.
    pub(super) fn train(&self) -> Option<Trained> {
        if self.blocks.len() < BLOCK_COUNT_MIN {
            return None;
        }
        let is_held_out = |number: usize| number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1;
        let (mut samples, mut sizes) = (Vec::new(), Vec::new());
        for (number, (_, payload)) in self.blocks().enumerate() {
            if !is_held_out(number) {
                samples.extend_from_slice(payload);
                sizes.push(payload.len());
            }
        }
        let bytes = dictionary::train(&samples, &sizes, self.size_max)?;
        drop(samples);
        let packing = PackingDictionary::new(&bytes, self.level)?;
        let held_out = self.blocks().enumerate().filter(|(number, _)| is_held_out(*number));
        let (mut raw, mut alone, mut packed) = (0, 0, 0);
        let codec = Codec::Zstd(self.level);
        // From end to end of what was gathered.
        let step = (self.blocks.len() / HELD_OUT_EVERY).div_ceil(JUDGED_COUNT_MAX).max(1);
        for (_, (_, payload)) in held_out.step_by(step) {
            raw += payload.len() as u64;
            alone += packed_len(payload, codec.into()) as u64;
            packed += packed_len(payload, Packing { codec, dictionary: Some(&packing) }) as u64;
        }
        let saved = alone.saturating_sub(packed) * self.payloads.len() as u64 / raw.max(1);
        (saved > bytes.len() as u64).then_some(Trained { bytes, packing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_as_they_were_gathered() {
        assert!(Gathering::begin(Codec::Lz4, 1024).is_none());
        assert!(Gathering::begin(Codec::zstd(), 255).is_none());
        let Some(mut gathering) = Gathering::begin(Codec::zstd(), 256) else { return };
        for number in 0..7u8 {
            assert!(!gathering.is_full());
            let payload = vec![number; 2341 + usize::from(number)];
            gathering.add(&payload, &[number], u64::from(number));
        }
        assert!(gathering.is_full() && gathering.train().is_none(), "too few to train");
        for (number, (block, payload)) in gathering.blocks().enumerate() {
            assert_eq!(block.separator, [number as u8]);
            assert_eq!(block.entry_count, number as u64);
            assert_eq!(payload, vec![number as u8; 2341 + number]);
        }
    }
}
