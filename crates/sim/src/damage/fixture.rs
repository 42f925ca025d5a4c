//! Databases to be damaged.

use std::path::PathBuf;
use std::sync::Arc;

use lithedb::Durability;
use lithedb::storage::{CrashMode, FileSnapshot, SimStorage};

use crate::finding::{Fault, Finding, Verdict};
use crate::ops::{Mix, Op, Purpose, Slot, draw_run};
use crate::random::{Random, seed_of};
use crate::sample::{Key, Value, ValueSizes};
use crate::session::{Session, SharedTimeline, Trouble, look};
use crate::setup::Setup;
use crate::timeline::Timeline;

/// Commits at the end that only reached the operating system.
const BUFFERED_TAIL: u16 = 3;
/// Commits before them that were synced one by one.
const SYNCED_TAIL: u16 = 12;

/// How the fixture's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It closed the database.
    Closed,
    /// It was killed, with commits in the log that are in no structure, the last few not synced.
    Killed,
}

impl Ending {
    /// Both.
    pub const ALL: [Ending; 2] = [Ending::Closed, Ending::Killed];

    /// Its number, on the command line.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Ending::Closed => 0,
            Ending::Killed => 1,
        }
    }

    /// The one of this number.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Ending> {
        Ending::ALL.into_iter().find(|ending| ending.number() == number)
    }
}

/// A database, and what it must show.
pub struct Fixture {
    /// How it is opened.
    pub setup: Setup,
    /// Where it is. Damage copies.
    pub storage: SimStorage,
    /// Its history.
    pub timeline: Timeline,
    /// How it ended.
    pub ending: Ending,
    /// Files as they were earlier, after the last change of keyspaces.
    pub earlier: Vec<(PathBuf, FileSnapshot)>,
}

impl Fixture {
    /// The fixture of a seed.
    ///
    /// # Errors
    /// When the run itself goes wrong.
    pub fn build(seed: u64, ending: Ending, op_count: usize) -> Verdict<Fixture> {
        Fixture::build_as(Setup::numbered(seed), seed, ending, op_count)
    }

    /// The fixture of a seed, encrypted.
    ///
    /// # Errors
    /// When the run itself goes wrong.
    pub fn encrypted(seed: u64, ending: Ending, op_count: usize) -> Verdict<Fixture> {
        Fixture::build_as(Setup::numbered(seed).encrypted(), seed, ending, op_count)
    }

    /// The fixture of a seed with other options than it has by itself.
    ///
    /// # Errors
    /// When the run itself goes wrong.
    pub fn build_as(
        mut setup: Setup,
        seed: u64,
        ending: Ending,
        op_count: usize,
    ) -> Verdict<Fixture> {
        setup.disk_reserve = 0; // What is in it means nothing.
        // Most of what the run writes is small.
        setup.keyspaces[0] = setup.keyspaces[0].clone().value_separation(Some(64));
        let storage = SimStorage::new(seed);
        let timeline = SharedTimeline::default();
        let opened = Session::open(&setup, Arc::new(storage.clone()), 0, Arc::clone(&timeline));
        let mut session =
            opened.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
        for op in run_of(seed, op_count) {
            session.run(&op).map_err(Trouble::into_finding)?;
        }
        session.run(&Op::Sync).map_err(Trouble::into_finding)?;
        let files = storage.files().into_iter();
        let earlier = files.filter_map(|(path, _)| {
            let snapshot = storage.snapshot_file(&path).ok()?;
            Some((path, snapshot))
        });
        let earlier = earlier.collect();
        for op in later_ops() {
            session.run(&op).map_err(Trouble::into_finding)?;
        }
        let storage = match ending {
            Ending::Closed => {
                let closed = session.close();
                closed.map_err(|error| Finding::new(Fault::Refused, error.to_string()))?;
                storage
            }
            Ending::Killed => storage.crash(CrashMode::KeepAll, 0),
        };
        let timeline = look(&timeline).clone();
        Ok(Fixture { setup, storage, timeline, ending, earlier })
    }

    /// The files of the database, without those that are empty.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.storage.files().into_iter().filter(|(_, size)| *size > 0).collect()
    }
}

/// At least two keyspaces; no keyspace is dropped or renamed, so that every file stays in use.
fn run_of(seed: u64, op_count: usize) -> Vec<Op> {
    let mut random = Random::new(seed_of(&[seed, 0xDA]));
    let mix = Mix { key_count: 48, sizes: ValueSizes::Small, purpose: Purpose::Writing };
    let mut ops = vec![Op::Create(0, 0), Op::Create(1, 1)];
    let drawn = draw_run(&mut random, mix, op_count).into_iter();
    ops.extend(drawn.filter(|op| !matches!(op, Op::Create(..) | Op::Drop(_) | Op::Rename(..))));
    ops.push(Op::Flush);
    ops
}

/// Commits that stay in the log, over all keyspaces.
fn later_ops() -> Vec<Op> {
    let put = |number: u16, durability| {
        // Every third one is long enough for a value file.
        let len = if number.is_multiple_of(3) { 100 } else { 10 };
        let value = Value { len: len + u32::from(number), fill: u32::from(number) };
        Op::Put(number as Slot, Key(number * 3), value, durability)
    };
    let synced = (0..SYNCED_TAIL).map(|number| put(number, Durability::Sync));
    let buffered = (0..BUFFERED_TAIL).map(|number| put(number, Durability::Buffered));
    synced.chain(buffered).collect()
}
