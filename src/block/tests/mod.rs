//! Tests of the block format.

mod frames;
mod payloads;
mod sealed;

use crate::base::EntryKind;
use crate::base::EntryRef;
use crate::base::SeqNo;
use std::collections::BTreeMap;

/// A reproducible sequence of numbers (xorshift64*, S. Vigna).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// A key of few different bytes, 0x00 and 0xFF among them, so that prefixes are shared.
    fn key(&mut self) -> Vec<u8> {
        let len_max = if self.below(4) == 0 { 40 } else { 6 };
        let len = self.below(len_max);
        (0..len).map(|_| [0x00, 0x01, b'a', 0xFE, 0xFF][self.below(5) as usize]).collect()
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Said {
    seqno: SeqNo,
    kind: EntryKind,
    value: Vec<u8>,
}

/// What a block must hold, key by key.
type Model = BTreeMap<Vec<u8>, Said>;

fn random_model(numbers: &mut Numbers, entry_count: u64) -> Model {
    let millis_spread = 1 << numbers.below(40);
    let counter_spread = 1 << numbers.below(17);
    let value_len_max = 1 + (1 << numbers.below(9));
    let mut model = Model::new();
    for _ in 0..entry_count {
        let kind = EntryKind::from_u8(numbers.below(4) as u8).unwrap();
        let value_len = if kind == EntryKind::Tombstone { 0 } else { numbers.below(value_len_max) };
        let said = Said {
            seqno: SeqNo::from_parts(
                1_700_000_000_000 + numbers.below(millis_spread),
                numbers.below(counter_spread) as u16,
            ),
            kind,
            value: numbers.bytes(value_len as usize),
        };
        model.insert(numbers.key(), said);
    }
    model
}

fn entry_of<'a>((key, said): (&'a Vec<u8>, &'a Said)) -> EntryRef<'a> {
    EntryRef { key, seqno: said.seqno, kind: said.kind, value: &said.value }
}
