//! Operations on a space. Where they are is drawn as a number that a session maps to an offset of
//! the space as it then is.

use crate::random::Random;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceOp {
    Insert { at: u64, bytes: Bytes },
    Append { bytes: Bytes },
    InsertZeros { at: u64, len: u64 },
    Collapse { at: u64, len: u64 },
    Write { at: u64, beyond: u64, bytes: Bytes },
    Overwrite { at: u64, bytes: Bytes },
    Update { at: u64, len: u64, bytes: Bytes },
    Truncate { len: u64 },
    SetTag { at: u64, tag: u32 },
    RemoveTag { at: u64 },
    Defragment { at: u64, len: u64 },
    Collect,
    Snapshot,
    DropSnapshots,
    Sync,
    Checkpoint,
    Close,
    Abandon,
}

/// Bytes that follow from a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub len: usize,
    pub seed: u64,
}

impl Bytes {
    fn draw(random: &mut Random) -> Bytes {
        let len = match random.below(20) {
            0 => 0,
            1..=11 => 1 + random.below(80),
            // Around the data of one block.
            12..=14 => 4080 + random.below(20),
            15..=18 => random.below(3000),
            _ => random.below(40_000),
        };
        Bytes { len: len as usize, seed: random.draw() }
    }

    pub(super) fn make(self) -> Vec<u8> {
        let mut random = Random::new(self.seed);
        let mut bytes = Vec::with_capacity(self.len + 8);
        while bytes.len() < self.len {
            bytes.extend_from_slice(&random.draw().to_le_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }
}

fn draw_len(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => 0,
        1..=5 => 1 + random.below(60),
        6..=8 => random.below(5000),
        _ => random.below(60_000),
    }
}

/// The next operation.
pub(super) fn draw(random: &mut Random) -> SpaceOp {
    let at = random.draw();
    match random.below(100) {
        0..=24 => SpaceOp::Insert { at, bytes: Bytes::draw(random) },
        25..=28 => SpaceOp::Append { bytes: Bytes::draw(random) },
        29..=30 => SpaceOp::InsertZeros { at, len: draw_len(random) },
        31..=44 => SpaceOp::Collapse { at, len: draw_len(random) },
        45..=51 => {
            let beyond = if random.chance(200) { random.below(9000) } else { 0 };
            SpaceOp::Write { at, beyond, bytes: Bytes::draw(random) }
        }
        52..=57 => SpaceOp::Overwrite { at, bytes: Bytes::draw(random) },
        58..=64 => SpaceOp::Update { at, len: draw_len(random), bytes: Bytes::draw(random) },
        // Often to nothing: then the last segment goes as well.
        65 => SpaceOp::Truncate { len: if random.chance(400) { 0 } else { at } },
        66..=73 => SpaceOp::SetTag { at, tag: 1 + random.below(1 << 31) as u32 },
        74..=76 => SpaceOp::RemoveTag { at },
        77..=78 => SpaceOp::Defragment { at, len: draw_len(random) },
        79 => SpaceOp::Collect,
        80..=83 => SpaceOp::Snapshot,
        84 => SpaceOp::DropSnapshots,
        85..=94 => SpaceOp::Sync,
        95 => SpaceOp::Checkpoint,
        96..=98 => SpaceOp::Close,
        _ => SpaceOp::Abandon,
    }
}
