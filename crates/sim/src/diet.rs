//! Diets: which operations a run has.

use lithedb::Durability;

use crate::ops::{
    Edit, Extent, IndexAction, IndexOp, Mix, Op, Purpose, Uniqueness, draw, draw_conversion,
    draw_index_op, draw_ingest, draw_reading_of_index, draw_run, draw_table_ingest,
    draw_transaction,
};
use crate::random::Random;
use crate::sample::{Key, Value};
use crate::setup::{KEY_COUNT, Setup};

/// Which operations a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Diet {
    /// All that there are.
    #[default]
    Everything,
    /// Ingests and nothing else.
    Ingests,
    /// Ingests of tables and nothing else.
    Tables,
    /// Conversions of one keyspace, among other things.
    Conversions,
    /// Checkpoints, among other things, and what is done in one of them beside the database.
    Checkpoints,
    /// Indexes of two keyspaces, among other things.
    Indexes,
    /// Indexes that are built over what is there, while no commit is synced by itself.
    Builds,
    /// Other keys and passphrases, and other keys for the data, of a database that is encrypted,
    /// among other things; checkpoints as well, which have the keys of when they were made.
    Encryption,
    /// Few keys that are overwritten many times and deleted, flushes, time that goes by, and
    /// compactions of a part, among other things: versions of a key in many runs and tables.
    Pasts,
}

/// Entries that an index is built over, of [`Diet::Builds`], at most.
const BUILT_OVER_MAX: u64 = 40;
/// Keys that are overwritten most, of [`Diet::Pasts`].
const HOT_KEY_COUNT: u16 = 6;
/// How often one of these is overwritten in a row, at most: with values of a hundred bytes more
/// than the smallest tables of an archive take.
const OVERWRITES_MAX: u64 = 40;
/// The kind of a bound whose key is left out, and of none.
const EXCLUDED: u8 = 1;
const UNBOUNDED: u8 = 2;

impl Diet {
    /// All of them.
    pub const ALL: [Diet; 9] = [
        Diet::Everything,
        Diet::Ingests,
        Diet::Tables,
        Diet::Conversions,
        Diet::Checkpoints,
        Diet::Indexes,
        Diet::Builds,
        Diet::Encryption,
        Diet::Pasts,
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Diet::Everything => "everything",
            Diet::Ingests => "ingests",
            Diet::Tables => "tables",
            Diet::Conversions => "conversions",
            Diet::Checkpoints => "checkpoints",
            Diet::Indexes => "indexes",
            Diet::Builds => "builds",
            Diet::Encryption => "encryption",
            Diet::Pasts => "pasts",
        }
    }

    /// What a program is called with for it.
    #[must_use]
    pub fn argument(self) -> String {
        match self {
            Diet::Everything => String::new(),
            diet => format!(" --diet {}", diet.name()),
        }
    }

    /// How the database of a run is opened that would be opened so on another diet.
    #[must_use]
    pub fn setup(self, setup: Setup) -> Setup {
        match self {
            Diet::Encryption => setup.rekeyed(),
            Diet::Pasts => setup.forgetful(),
            _ => setup,
        }
    }

    /// The operations of a run.
    #[must_use]
    pub fn draw(self, random: &mut Random, mix: Mix, count: usize) -> Vec<Op> {
        match self {
            Diet::Everything => draw_run(random, mix, count),
            Diet::Ingests => {
                let mut ops = vec![Op::Create(0, 0)];
                ops.extend((0..count).map(|_| draw_ingest(random, mix)));
                ops
            }
            Diet::Conversions => {
                let mut ops = vec![Op::Create(0, random.below(8) as u8)];
                ops.extend((0..count).map(|number| match number % 6 {
                    5 => draw_conversion(random, mix),
                    _ => draw(random, mix),
                }));
                ops
            }
            Diet::Checkpoints => {
                let mut ops: Vec<Op> = (0..3).map(|number| Op::Create(number, number)).collect();
                ops.extend((0..count).map(|number| match number % 12 {
                    11 => Op::Checkpoint,
                    2 | 5 | 8 => Op::Beside(Box::new(draw(random, mix))),
                    // Of the one that is beside it.
                    10 if random.chance(200) => Op::Beside(Box::new(Op::Checkpoint)),
                    _ => draw(random, mix),
                }));
                ops
            }
            Diet::Tables => {
                let mut ops = vec![Op::Create(0, 0)];
                ops.extend((0..count).map(|_| draw_table_ingest(random, mix)));
                ops
            }
            Diet::Indexes => draw_indexes(random, mix, count),
            Diet::Builds => draw_builds(random, mix, count),
            Diet::Encryption => draw_keys(random, mix, count),
            Diet::Pasts => draw_pasts(random, mix, count),
        }
    }
}

fn draw_keys(random: &mut Random, mix: Mix, count: usize) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..2).map(|number| Op::Create(number, number)).collect();
    ops.extend((0..count).map(|number| match number % 10 {
        3 => Op::Rekey(random.below(u64::from(KEY_COUNT)) as u8),
        6 => Op::RotateDataKey(if random.chance(600) { u8::MAX } else { random.below(5) as u8 }),
        7 => draw_table_ingest(random, mix),
        9 if random.chance(250) => Op::Checkpoint,
        9 if random.chance(200) => Op::Beside(Box::new(match random.chance(500) {
            true => Op::RotateDataKey(u8::MAX),
            false => Op::Rekey(random.below(u64::from(KEY_COUNT)) as u8),
        })),
        _ => draw(random, mix),
    }));
    ops
}

fn draw_indexes(random: &mut Random, mix: Mix, count: usize) -> Vec<Op> {
    let create = |slot: u8, random: &mut Random| Op::Create(slot, random.below(8) as u8);
    let mut ops = vec![create(0, random), create(1, random)];
    ops.extend((0..count).map(|number| match number % 8 {
        2 => draw_index_op(random, mix),
        4 => draw_transaction(random, mix),
        5 | 6 if mix.purpose == Purpose::Comparing => Op::Read(draw_reading_of_index(random, mix)),
        _ => draw(random, mix),
    }));
    ops
}

/// What is there is durable by being flushed, and not by the log: what the log has to be synced for
/// is the build.
fn draw_builds(random: &mut Random, mix: Mix, count: usize) -> Vec<Op> {
    let mut ops = vec![Op::Create(0, random.below(8) as u8)];
    while ops.len() < count {
        let edits = (0..1 + random.below(BUILT_OVER_MAX)).map(|_| {
            let value = Value::choose(random, mix.sizes);
            (0, Key::choose(random, mix.key_count), Edit::Put(value))
        });
        ops.push(Op::Batch(edits.collect(), Durability::Buffered));
        ops.push(Op::Flush);
        let index =
            |action| IndexOp { slot: 0, which: 0, action, beside: Vec::new(), is_cancelled: false };
        let action = IndexAction::Create(random.below(8) as u8, Uniqueness::Free);
        ops.push(Op::Index(index(action)));
        ops.push(Op::Index(index(IndexAction::Rebuild)));
        ops.push(Op::Index(index(IndexAction::Drop)));
    }
    ops
}

/// Rounds: some hot keys are overwritten, and most of them deleted; that is flushed, merged for a
/// few steps, and grows old; before and behind that a range is compacted which ends at one of them
/// more often than not, so that of its versions some sink, or are rewritten, and others are beside.
fn draw_pasts(random: &mut Random, mix: Mix, count: usize) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..2).map(|number| Op::Create(number, number)).collect();
    let hot = |random: &mut Random| Key::choose(random, HOT_KEY_COUNT);
    while ops.len() < count {
        let slot = random.below(2) as u8;
        let keys: Vec<Key> = (0..1 + random.below(3)).map(|_| hot(random)).collect();
        for &key in &keys {
            ops.extend((0..1 + random.below(OVERWRITES_MAX)).map(|_| {
                let value = Value::choose(random, mix.sizes);
                Op::Put(slot, key, value, Durability::Buffered)
            }));
            if random.chance(700) {
                ops.push(Op::Delete(slot, key, Durability::Buffered));
            }
        }
        ops.extend((0..random.below(4)).map(|_| draw(random, mix)));
        ops.push(Op::Flush);
        ops.extend((0..random.below(4)).map(|_| Op::Step(1 + random.below(2) as u8)));
        let bound = |random: &mut Random| (random.below(3) as u8, hot(random));
        let last = keys[keys.len() - 1];
        let extent = match random.below(3) {
            0 => Extent::Range(bound(random), bound(random)),
            1 => Extent::Range(bound(random), (EXCLUDED, last)),
            _ => Extent::Range((UNBOUNDED, last), (EXCLUDED, last)),
        };
        let compact = |random: &mut Random| {
            let slice_count = if random.chance(800) { u8::MAX } else { random.below(6) as u8 };
            Op::Compact(slot, extent.clone(), slice_count)
        };
        if random.chance(500) {
            ops.push(compact(random));
        }
        if random.chance(800) {
            ops.push(Op::Clock(random.below(12_000) as i16));
        }
        ops.push(compact(random));
        if mix.purpose == Purpose::Comparing && random.chance(500) {
            ops.push(Op::Check);
        }
        ops.extend((0..random.below(4)).map(|_| draw(random, mix)));
    }
    ops.truncate(count);
    ops
}
