//! Operations: what a run does, as data, so that it can be printed, repeated and cut down.

mod indexes;

use std::ops::Bound;

use lithedb::{Durability, KeyRange, TableIngestMode};

use crate::random::Random;
use crate::sample::{FAMILY_COUNT, Key, Value, ValueSizes};

pub use indexes::{
    INDEX_NAMES, IndexAction, IndexOp, IndexReading, Spot, TransactionOp, Uniqueness, Which,
    draw_index_op, draw_index_reading, draw_transaction,
};

/// Operations of a batch at most.
const BATCH_LEN_MAX: u64 = 24;
/// Tables of an ingest at most.
const TABLE_COUNT_MAX: u64 = 3;
/// Operations beside a conversion at most.
const BESIDE_MAX: u64 = 40;
/// Entries of an ingest at most.
const INGEST_LEN_MAX: u64 = 60;
/// Keyspaces that a run has at most.
pub const KEYSPACE_COUNT_MAX: usize = 4;
/// Names that keyspaces are created and renamed with.
pub const NAMES: [&str; 6] = ["alpha", "beta", "gamma", "delta", "\u{3b5}psilon", "a b/../c"];

/// A keyspace, by its place among those there are, counted round.
pub type Slot = u8;

/// One thing that a run does. Those that make no sense at the moment do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key.
    Put(Slot, Key, Value, Durability),
    /// Sets a key to a value that is written in pieces of so many bytes.
    Stream(Slot, Key, Value, u16, Durability),
    /// Deletes a key.
    Delete(Slot, Key, Durability),
    /// Merges an operand into a key; sets it, where nothing can be merged.
    Merge(Slot, Key, Value, Durability),
    /// Sets a key to what expires; for ever, where nothing can expire.
    PutExpiring(Slot, Key, Value, Life, Durability),
    /// Has a key expire, or not any more.
    Expire(Slot, Key, Life),
    /// Commits several changes at once.
    Batch(Vec<KeyEdit>, Durability),
    /// Deletes a range, in one commit with what is written before and behind it.
    DeleteRange(Slot, Extent, Vec<KeyEdit>, Vec<KeyEdit>, Durability),
    /// Ingests entries, in the order of their keys and each key once; some may expire.
    Ingest(Slot, Vec<(Key, Value, Option<Life>)>, IngestEnd),
    /// Ingests tables that are made outside, in the order of the keys and each key once.
    IngestTables(Slot, TablesOp),
    /// Makes all commits durable.
    Sync,
    /// Flushes all memtables.
    Flush,
    /// Does this many pieces of background work.
    Step(u8),
    /// Gives back all room that is not needed; ends after so many slices.
    Vacuum(u8),
    /// Compacts a range; ends after so many slices.
    Compact(Slot, Extent, u8),
    /// Converts a keyspace.
    Convert(ConversionOp),
    /// Does something with an index.
    Index(IndexOp),
    /// Commits a transaction, or rolls it back.
    Transact(TransactionOp),
    /// Pauses what keeps structures in shape, or has it go on.
    Pause,
    /// Creates a keyspace with this name and these options.
    Create(u8, u8),
    /// Drops a keyspace.
    Drop(Slot),
    /// Renames a keyspace.
    Rename(Slot, u8),
    /// Moves the clock, forth or back.
    Clock(i16),
    /// Makes a checkpoint.
    Checkpoint,
    /// Gives the database the key or passphrase of this number, if it is encrypted.
    Rekey(u8),
    /// Gives the data of an encrypted database another key; ends after so many slices.
    RotateDataKey(u8),
    /// Does something in a checkpoint that is open beside the database; opens one first, if there
    /// is none.
    Beside(Box<Op>),
    /// Closes and opens again.
    Reopen(Farewell),
    /// Reads.
    Read(Reading),
    /// Takes a snapshot, to be held.
    TakeSnapshot,
    /// Reads from a held snapshot.
    ReadSnapshot(u8, Reading),
    /// Reads everything in a held snapshot and lets it go.
    DropSnapshot(u8),
    /// Lets the database check itself.
    Check,
}

/// A conversion of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionOp {
    /// The keyspace.
    pub slot: Slot,
    /// To which options, by number.
    pub options: u8,
    /// What is done meanwhile, one behind each slice.
    pub beside: Vec<Op>,
    /// Whether it is ended behind these.
    pub is_cancelled: bool,
}

/// Tables that are made outside, and ingested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablesOp {
    /// A key without a value is deleted, where that can be; some expire.
    pub entries: Vec<(Key, Option<Value>, Option<Life>)>,
    /// How many tables they are parted into.
    pub table_count: u8,
    /// What one table deletes beside, if it is one, and where that can be.
    pub range: Option<(Key, Key)>,
    /// What becomes of the files.
    pub mode: TableIngestMode,
}

/// What a commit does to one key.
pub type KeyEdit = (Slot, Key, Edit);

/// What is done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It is set to a value.
    Put(Value),
    /// It is deleted.
    Delete,
    /// An operand is merged into it; where nothing can be merged, it is set.
    Merge(Value),
    /// It is set to what expires; for ever, where nothing can expire.
    PutExpiring(Value, Life),
}

/// How long something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// So many milliseconds from the stamp of its commit on.
    For(u32),
    /// Until so many milliseconds after the session began, or before.
    Until(i32),
    /// Until it is overwritten.
    Forever,
}

/// One that ends after so long by the stamp is over when the database is opened again.
pub const SHORT_LIFE_MILLIS: u32 = 5000;
/// One of so long is not.
pub const LONG_LIFE_MILLIS: u32 = 100 * 3_600_000;

/// How an ingest ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestEnd {
    /// As it should.
    Finish,
    /// It is given up.
    Drop,
    /// By an entry that is not in order.
    Disorder,
}

/// How a database is left before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// By `close`.
    Close,
    /// By dropping every handle.
    Drop,
}

/// One way to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// `get`, `get_entry` and `contains`.
    Point(Slot, Key),
    /// A value from some offsets on, each in thousandths of its length.
    Parts(Slot, Key, Vec<u16>),
    /// `multi_get`.
    Several(Slot, Vec<Key>),
    /// `first` and `last`.
    Ends(Slot),
    /// `count` of a range, `rank` of a key, `select` of that rank.
    Order(Slot, Extent, Key),
    /// An iterator over a range, moved about.
    Walk(Slot, Extent, Vec<Move>),
    /// A cursor over a range, moved about.
    Cursor(Slot, Extent, Vec<Move>),
    /// An index.
    Index(Slot, Which, IndexReading),
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    All,
    /// From one key to another, each included, excluded or unbounded by kind 0, 1, 2.
    Range((u8, Key), (u8, Key)),
    /// Keys that begin with the first bytes of a key.
    Prefix(Key, u16),
}

impl Extent {
    /// The range itself.
    #[must_use]
    pub fn key_range(&self) -> KeyRange {
        match self {
            Extent::All => KeyRange::all(),
            Extent::Range((start, from), (end, to)) => {
                KeyRange { start: bound_of(*start, from.bytes()), end: bound_of(*end, to.bytes()) }
            }
            Extent::Prefix(key, len) => KeyRange::prefix(prefix_of(&key.bytes(), *len)),
        }
    }
}

/// The first `len` bytes of a key, or all of it.
#[must_use]
pub fn prefix_of(key: &[u8], len: u16) -> &[u8] {
    &key[..key.len().min(usize::from(len))]
}

fn bound_of(kind: u8, key: Vec<u8>) -> Bound<Vec<u8>> {
    match kind % 3 {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

/// One movement of an iterator or a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// To the next, this many times.
    Next(u8),
    /// To the one before, this many times.
    Back(u8),
    /// To the first at or behind a key.
    Seek(Key),
    /// To the last at or before a key (cursors only).
    SeekForPrev(Key),
    /// To the beginning (cursors only).
    First,
    /// To the end (cursors only).
    Last,
}

/// What a run is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// How many keys a keyspace is given.
    pub key_count: u16,
    /// How large values are.
    pub sizes: ValueSizes,
    /// Whether reads, snapshots and reopening are among the operations.
    pub purpose: Purpose,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To write, and be interrupted.
    Writing,
    /// To compare what is read with a model.
    Comparing,
}

/// The operations of a run: first a few keyspaces, then `count` drawn ones.
#[must_use]
pub fn draw_run(random: &mut Random, mix: Mix, count: usize) -> Vec<Op> {
    let keyspace_count = 1 + random.index(KEYSPACE_COUNT_MAX - 1);
    let mut ops: Vec<Op> =
        (0..keyspace_count).map(|index| Op::Create(index as u8, index as u8)).collect();
    while ops.len() < count + keyspace_count && !random.is_used_up() {
        ops.push(draw(random, mix));
    }
    ops
}

/// One operation.
pub fn draw(random: &mut Random, mix: Mix) -> Op {
    let reads = match mix.purpose {
        Purpose::Comparing => random.chance(450),
        Purpose::Writing => false,
    };
    if reads {
        return draw_reading_op(random, mix);
    }
    let slot = random.below(8) as Slot;
    let key = Key::choose(random, mix.key_count);
    match random.below(310) {
        72 | 73 => Op::Checkpoint,
        300..304 => draw_index_op(random, mix),
        304.. => draw_transaction(random, mix),
        0..74 => Op::Put(slot, key, Value::choose(random, mix.sizes), draw_durability(random)),
        74..79 => draw_compaction(random, mix),
        79 => Op::Pause,
        80..105 => Op::Delete(slot, key, draw_durability(random)),
        105..150 => draw_batch(random, mix),
        150..158 => Op::Sync,
        158..164 => Op::Flush,
        164..190 => Op::Step(1 + random.below(4) as u8),
        190..192 => Op::Create(random.below(NAMES.len() as u64) as u8, random.below(8) as u8),
        192 => Op::Drop(slot),
        193..195 => Op::Rename(slot, random.below(NAMES.len() as u64) as u8),
        197 => draw_conversion(random, mix),
        195..197 => Op::Clock(random.below(4000) as i16 - 1000),
        200..208 => draw_range_deletion(random, mix),
        208..212 => {
            let value = Value::choose(random, mix.sizes);
            let piece = 1 + random.below(2000) as u16;
            Op::Stream(slot, key, value, piece, draw_durability(random))
        }
        294..300 => Op::Expire(slot, key, draw_life(random)),
        252..294 => {
            let (value, life) = (Value::choose(random, mix.sizes), draw_life(random));
            Op::PutExpiring(slot, key, value, life, draw_durability(random))
        }
        222..252 => Op::Merge(slot, key, Value::choose(random, mix.sizes), draw_durability(random)),
        217..222 => draw_ingest(random, mix),
        214..217 => draw_table_ingest(random, mix),
        212..214 => Op::Vacuum(if random.chance(700) { u8::MAX } else { random.below(4) as u8 }),
        _ if mix.purpose == Purpose::Comparing => Op::Reopen(draw_farewell(random)),
        _ => Op::Step(16),
    }
}

fn draw_compaction(random: &mut Random, mix: Mix) -> Op {
    let slice_count = if random.chance(700) { u8::MAX } else { random.below(6) as u8 };
    Op::Compact(random.below(8) as Slot, draw_extent(random, mix.key_count), slice_count)
}

/// A conversion, with what goes on meanwhile: nothing that reads.
pub fn draw_conversion(random: &mut Random, mix: Mix) -> Op {
    let mix = Mix { purpose: Purpose::Writing, ..mix };
    let (slot, options) = (random.below(8) as Slot, random.below(16) as u8);
    let mut beside = Vec::new();
    for _ in 0..random.below(BESIDE_MAX) {
        match draw(random, mix) {
            Op::Convert(_) => {}
            op => beside.push(op),
        }
    }
    let is_cancelled = random.chance(150);
    Op::Convert(ConversionOp { slot, options, beside, is_cancelled })
}

fn draw_batch(random: &mut Random, mix: Mix) -> Op {
    let len = 1 + random.below(BATCH_LEN_MAX);
    let mut changes: Vec<KeyEdit> = Vec::new();
    for _ in 0..len {
        let slot = random.below(8) as Slot;
        let repeated = changes.last().filter(|_| random.chance(100)).map(|change| change.1);
        let key = repeated.unwrap_or_else(|| Key::choose(random, mix.key_count));
        changes.push((slot, key, draw_edit(random, mix)));
    }
    Op::Batch(changes, draw_durability(random))
}

fn draw_edit(random: &mut Random, mix: Mix) -> Edit {
    match random.below(100) {
        0..25 => Edit::Delete,
        25..45 => Edit::Merge(Value::choose(random, mix.sizes)),
        45..65 => Edit::PutExpiring(Value::choose(random, mix.sizes), draw_life(random)),
        _ => Edit::Put(Value::choose(random, mix.sizes)),
    }
}

/// Most end soon, so that the clock comes to it.
fn draw_life(random: &mut Random) -> Life {
    match random.below(20) {
        0 => Life::For(0),
        1..6 => Life::For(1 + random.below(u64::from(SHORT_LIFE_MILLIS)) as u32),
        6..9 => Life::For(LONG_LIFE_MILLIS),
        9..15 => Life::Until(random.below(20_000) as i32 - 2000),
        15..18 => Life::Until(100_000 + random.below(900_000) as i32),
        _ => Life::Forever,
    }
}

fn draw_range_deletion(random: &mut Random, mix: Mix) -> Op {
    let edits = |random: &mut Random| {
        let len = if random.chance(500) { 0 } else { random.below(6) };
        let edit = |_| {
            let slot = random.below(8) as Slot;
            (slot, Key::choose(random, mix.key_count), draw_edit(random, mix))
        };
        (0..len).map(edit).collect()
    };
    let (before, behind) = (edits(random), edits(random));
    let extent = match draw_extent(random, mix.key_count) {
        // Everything at once leaves nothing to go wrong.
        Extent::All if !random.chance(200) => {
            let bound = |random: &mut Random| (0, Key::choose(random, mix.key_count));
            Extent::Range(bound(random), bound(random))
        }
        other => other,
    };
    Op::DeleteRange(random.below(8) as Slot, extent, before, behind, draw_durability(random))
}

/// An ingest.
pub fn draw_ingest(random: &mut Random, mix: Mix) -> Op {
    let len = 1 + random.below(INGEST_LEN_MAX);
    // Keys of one family lie together: what is ingested often goes into a gap, or to the end.
    let together = random.chance(600).then(|| Key::choose(random, mix.key_count));
    let entry = |number| {
        let key = match together {
            Some(Key(first)) => Key(first.saturating_add(number as u16 * FAMILY_COUNT)),
            None => Key::choose(random, mix.key_count),
        };
        let value = Value::choose(random, mix.sizes);
        (key, value, (number % 4 == 0).then(|| draw_life(random)))
    };
    let entries = (0..len).map(entry).collect();
    let end = match random.below(10) {
        0 => IngestEnd::Drop,
        1 => IngestEnd::Disorder,
        _ => IngestEnd::Finish,
    };
    Op::Ingest(random.below(8) as Slot, entries, end)
}

/// An ingest of tables.
pub fn draw_table_ingest(random: &mut Random, mix: Mix) -> Op {
    let len = 1 + random.below(INGEST_LEN_MAX);
    let together = random.chance(600).then(|| Key::choose(random, mix.key_count));
    let entry = |number| {
        let key = match together {
            Some(Key(first)) => Key(first.saturating_add(number as u16 * FAMILY_COUNT)),
            None => Key::choose(random, mix.key_count),
        };
        let value = (number % 5 > 0).then(|| Value::choose(random, mix.sizes));
        (key, value, (number % 4 == 1).then(|| draw_life(random)))
    };
    let entries = (0..len).map(entry).collect();
    let table_count = 1 + random.below(TABLE_COUNT_MAX) as u8;
    let mut bound = || Key::choose(random, mix.key_count);
    let range = (table_count == 1).then(|| (bound(), bound()));
    let mode = if random.chance(700) { TableIngestMode::Move } else { TableIngestMode::Copy };
    let slot = random.below(8) as Slot;
    Op::IngestTables(slot, TablesOp { entries, table_count, range, mode })
}

fn draw_reading_op(random: &mut Random, mix: Mix) -> Op {
    match random.below(100) {
        0..70 => Op::Read(draw_reading(random, mix)),
        70..76 => Op::TakeSnapshot,
        76..90 => Op::ReadSnapshot(random.below(8) as u8, draw_reading(random, mix)),
        90..94 => Op::DropSnapshot(random.below(8) as u8),
        94..97 => Op::Check,
        _ => Op::Step(1),
    }
}

fn draw_reading(random: &mut Random, mix: Mix) -> Reading {
    let slot = random.below(8) as Slot;
    let count = mix.key_count;
    match random.below(100) {
        0..34 => Reading::Point(slot, Key::choose(random, count)),
        34..40 => {
            let key = Key::choose(random, count);
            Reading::Parts(slot, key, (0..3).map(|_| random.below(1100) as u16).collect())
        }
        40..50 => {
            let len = random.below(12);
            Reading::Several(slot, (0..len).map(|_| Key::choose(random, count)).collect())
        }
        50..56 => Reading::Ends(slot),
        56..66 => Reading::Order(slot, draw_extent(random, count), Key::choose(random, count)),
        66..84 => Reading::Walk(slot, draw_extent(random, count), draw_moves(random, count)),
        84..93 => Reading::Cursor(slot, draw_extent(random, count), draw_moves(random, count)),
        _ => draw_reading_of_index(random, mix),
    }
}

/// A reading of an index.
pub fn draw_reading_of_index(random: &mut Random, mix: Mix) -> Reading {
    let (slot, which) = (random.below(8) as Slot, random.below(2) as Which);
    Reading::Index(slot, which, draw_index_reading(random, mix.key_count))
}

fn draw_extent(random: &mut Random, count: u16) -> Extent {
    let bound = |random: &mut Random| (random.below(3) as u8, Key::choose(random, count));
    match random.below(10) {
        0..3 => Extent::All,
        3..7 => Extent::Range(bound(random), bound(random)),
        _ => Extent::Prefix(Key::choose(random, count), random.below(12) as u16),
    }
}

fn draw_moves(random: &mut Random, count: u16) -> Vec<Move> {
    let len = 1 + random.below(10);
    let moves = (0..len).map(|_| match random.below(12) {
        0..4 => Move::Next(1 + random.below(30) as u8),
        4..7 => Move::Back(1 + random.below(30) as u8),
        7..9 => Move::Seek(Key::choose(random, count)),
        9 => Move::SeekForPrev(Key::choose(random, count)),
        10 => Move::First,
        _ => Move::Last,
    });
    moves.collect()
}

fn draw_durability(random: &mut Random) -> Durability {
    if random.chance(350) { Durability::Sync } else { Durability::Buffered }
}

fn draw_farewell(random: &mut Random) -> Farewell {
    if random.chance(600) { Farewell::Close } else { Farewell::Drop }
}
