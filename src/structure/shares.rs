//! Shares: how many bytes of which value files entries point to. Who writes entries adds it up, and
//! what refers to them durably says it: so it is known what of each value file is garbage.

use std::collections::BTreeMap;

use crate::base::ValuePointer;
use crate::block::BlockBuilder;
use crate::value_log::record_len;

/// What is pointed to in one value file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueShare {
    /// Its number.
    pub file: u64,
    /// Bytes of the records.
    pub bytes: u64,
}

/// Sums by value file.
#[derive(Debug, Default)]
pub struct ShareSums(BTreeMap<u64, u64>);

impl ShareSums {
    /// What the entries of a block point to.
    #[must_use]
    pub fn of(builder: &BlockBuilder) -> ShareSums {
        let mut sums = ShareSums::default();
        sums.add_block(builder);
        sums
    }

    /// Adds what the entries of a block point to.
    pub fn add_block(&mut self, builder: &BlockBuilder) {
        builder.pointers().for_each(|pointer| self.add(pointer));
    }

    /// Adds what a pointer points to. One that is none is left to those who read it.
    pub fn add(&mut self, pointer: &[u8]) {
        if let Some(pointer) = ValuePointer::decode(pointer) {
            let bytes = self.0.entry(pointer.file).or_default();
            *bytes = bytes.saturating_add(record_len(u64::from(pointer.len)));
        }
    }

    /// The sums, by rising number of the file.
    #[must_use]
    pub fn shares(&self) -> Vec<ValueShare> {
        self.0.iter().map(|(&file, &bytes)| ValueShare { file, bytes }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_summed_by_file_and_what_is_no_pointer_is_left_out() {
        let pointer = |file, len| ValuePointer { file, offset: 40, len, hash: [1; 16] }.encode();
        let mut sums = ShareSums::default();
        [pointer(9, 100), pointer(2, 5), pointer(9, 7)].iter().for_each(|bytes| sums.add(bytes));
        sums.add(b"short");
        let expected = [(2, record_len(5)), (9, record_len(100) + record_len(7))];
        let found: Vec<(u64, u64)> = sums.shares().iter().map(|s| (s.file, s.bytes)).collect();
        assert_eq!(found, expected);
    }
}
