//! In which order steps run: a pure function of what was asked for.
//!
//! Invariants
//! - S1  What only reads the large store comes before what changes it, at every memory size: all
//!   see the same store.

use lithe_bench::{Memory, Planned, Step, Workload, plan};

/// A step, with all that does not depend on the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// What.
    pub step: Step,
    /// What stands before the workload in reports.
    pub label: String,
    /// Keys of the large store.
    pub keys: u64,
    /// Memory for the engine.
    pub memory: Memory,
}

/// Steps that belong together.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// All engines run this step, one after the other; their stores stay.
    EnginesInTurn(Turn),
    /// Each engine runs all these steps, and its stores go before the next one begins.
    StepsInTurn(Vec<Turn>),
}

impl Turn {
    fn new(planned: &Planned, memory: Memory) -> Turn {
        Turn { step: planned.step, label: planned.label.clone(), keys: planned.keys, memory }
    }

    /// How messages call it: `1GiB W4`.
    pub fn name(&self) -> String {
        format!("{} {:?}", self.label, self.step).trim().to_owned()
    }
}

/// The blocks for `wanted`. The first size of memory is that of everything; with each further one,
/// what reads the large store runs once more, labelled with the size.
pub fn schedule(wanted: &[Workload], keys: u64, memory: &[Memory]) -> Vec<Block> {
    let first = memory.first().copied().unwrap_or(Memory::RULE);
    let mut blocks = Vec::new();
    let mut scale: Vec<Turn> = Vec::new();
    for planned in plan(wanted, keys) {
        let turn = Turn::new(&planned, first);
        if planned.label.is_empty() {
            blocks.push(Block::EnginesInTurn(turn));
            continue;
        }
        if scale.last().is_some_and(|last| last.label != turn.label) {
            blocks.push(Block::StepsInTurn(std::mem::take(&mut scale)));
        }
        scale.push(turn);
    }
    if !scale.is_empty() {
        blocks.push(Block::StepsInTurn(scale));
    }
    let more = memory.iter().skip(1).flat_map(|&memory| reads(wanted, keys, memory));
    let reads_only = |block: &Block| match block {
        Block::EnginesInTurn(turn) => {
            matches!(turn.step, Step::W3Random | Step::W2Large | Step::W4 | Step::W5)
        }
        Block::StepsInTurn(_) => false,
    };
    if let Some(last) = blocks.iter().rposition(reads_only) {
        blocks.splice(last + 1..last + 1, more); // S1
    }
    blocks
}

/// What reads the large store, with another size of memory.
fn reads(wanted: &[Workload], keys: u64, memory: Memory) -> Vec<Block> {
    [
        (Workload::W2, Step::W2Large),
        (Workload::W4, Step::W4),
        (Workload::W5, Step::W5),
        (Workload::W6, Step::W6Reads),
    ]
    .into_iter()
    .filter(|(workload, _)| wanted.contains(workload))
    .map(|(_, step)| Block::EnginesInTurn(Turn { step, label: size_name(memory), keys, memory }))
    .collect()
}

/// `1GiB`, `64MiB`, or what it is.
fn size_name(memory: Memory) -> String {
    match memory {
        Memory::Bytes(bytes) if bytes > 0 && bytes % (1 << 30) == 0 => {
            format!("{}GiB", bytes >> 30)
        }
        Memory::Bytes(bytes) if bytes > 0 && bytes % (1 << 20) == 0 => {
            format!("{}MiB", bytes >> 20)
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [Memory; 2] = [Memory::RULE, Memory::Bytes(1 << 30)];

    fn names(wanted: &[Workload], memory: &[Memory]) -> Vec<String> {
        let blocks = schedule(wanted, 5_000_000, memory);
        let turns = blocks.into_iter().map(|block| match block {
            Block::EnginesInTurn(turn) => turn.name(),
            Block::StepsInTurn(turns) => {
                turns.iter().map(Turn::name).collect::<Vec<_>>().join(" + ")
            }
        });
        turns.collect()
    }

    #[test]
    fn what_reads_runs_at_every_size_before_anything_changes_the_store() {
        let all = [Workload::W2, Workload::W4, Workload::W6, Workload::W11];
        let wanted = [
            "W1",
            "W2Small",
            "W3Random",
            "W2Large",
            "W4",
            "1GiB W2Large",
            "1GiB W4",
            "1GiB W6Reads",
            "W6",
            "W11",
        ];
        assert_eq!(names(&all, &SIZES), wanted);
        assert_eq!(names(&[Workload::W6], &SIZES), ["W3Random", "1GiB W6Reads", "W6"]);
    }

    #[test]
    fn workloads_without_the_large_store_know_one_size() {
        assert_eq!(names(&[Workload::W7], &SIZES), ["W7"]);
        assert_eq!(names(&[Workload::W4], &SIZES[..1]), ["W3Random", "W4"]);
    }

    #[test]
    fn each_size_of_w16_is_a_block_of_its_own() {
        let wanted = [
            "W16 1M W3Random + W16 1M W4",
            "W16 5M W3Random + W16 5M W4",
            "W16 20M W3Random + W16 20M W4",
            "W16 50M W3Random + W16 50M W4",
        ];
        assert_eq!(names(&[Workload::W16], &SIZES), wanted);
    }

    #[test]
    fn sizes_are_named_in_the_largest_unit() {
        let sizes = [1 << 30, 3 << 20, 1000].map(|bytes| size_name(Memory::Bytes(bytes)));
        assert_eq!(sizes, ["1GiB", "3MiB", "1000"]);
        assert_eq!(size_name(Memory::EngineDefault), "default");
    }
}
