//! The simulated machine: one disk, what is not synced, and what shall go wrong.
//!
//! Owns the state behind a [`SimStorage`](super::SimStorage) and the way every call takes: count
//! it, crash if it is time, let a fault strike, do it, note the outcome. What the calls do with
//! names and contents is in `calls`.
//!
//! Invariants
//! - M1  After the crash point every call fails and changes nothing.
//! - M2  Counters, trace, faults and outcomes depend on the calls and the seed alone.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::check::Checks;
use super::disk::{Disk, NameChange, Stored, Unsynced};
use super::fault::{FaultEffect, FaultPlan, Operation};
use super::random::{Random, mix};
use crate::base::hash_key;
use crate::storage::content::{Content, PAGE_SIZE};
use crate::storage::locks::Locks;
use crate::storage::names::NodeId;

/// Open handles of one file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handles {
    pub(super) readers: u64,
    pub(super) writers: u64,
}

/// Where the crash comes, relative to the mutation with that number.
#[derive(Clone, Copy, Debug)]
pub(super) enum CrashPoint {
    Before(u64),
    Inside(u64),
}

/// How a call shall go.
#[derive(Debug)]
pub(super) enum Course {
    /// As asked.
    Normal,
    /// Only a part of the bytes.
    Short,
    /// A wrong bit in what is returned.
    FlipBit,
    /// Nothing is done and success is claimed.
    Pretend,
    /// The work is done, a write in part, and failure is claimed.
    FailAfter(io::Error),
    /// A sync fails, and what it should have carried over is dropped.
    FailAndDrop(io::Error),
}

impl Course {
    /// What a call that did its work answers.
    pub(super) fn outcome(self) -> io::Result<()> {
        match self {
            Course::FailAfter(error) | Course::FailAndDrop(error) => Err(error),
            Course::Normal | Course::Short | Course::FlipBit | Course::Pretend => Ok(()),
        }
    }
}

/// The error of every call after the crash point.
#[derive(Debug)]
pub(super) struct SimulatedCrash;

impl fmt::Display for SimulatedCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated crash")
    }
}

impl std::error::Error for SimulatedCrash {}

fn crash_error() -> io::Error {
    io::Error::other(SimulatedCrash)
}

/// Everything behind one simulated storage.
#[derive(Debug)]
pub(super) struct Machine {
    // What the process sees, what a power cut leaves for certain, and what lies between.
    pub(super) live: Disk,
    pub(super) durable: Disk,
    pub(super) unsynced: Unsynced,

    // What dies with the process.
    pub(super) handles: BTreeMap<NodeId, Handles>,
    pub(super) locks: Locks,

    // Room. `allocated` is of `live`, open files without a name included.
    pub(super) capacity: u64,
    pub(super) allocated: u64,

    // What shall go wrong.
    pub(super) faults: FaultPlan,
    pub(super) fault_count: u64,
    pub(super) crash_point: Option<CrashPoint>,
    pub(super) crashed: bool,
    pub(super) random: Random,

    // What was seen.
    pub(super) call_counts: BTreeMap<Operation, u64>,
    pub(super) mutation_count: u64,
    pub(super) trace: u64,
    pub(super) checks: Checks,
}

impl Machine {
    /// A machine that starts with these disks. Only what their names lead to is there.
    pub(super) fn start(live: Disk, durable: Disk, unsynced: Unsynced, seed: u64) -> Machine {
        let allocated = live.allocated_bytes();
        Machine {
            live,
            durable,
            unsynced,
            handles: BTreeMap::new(),
            locks: Locks::default(),
            capacity: u64::MAX,
            allocated,
            faults: FaultPlan::new(),
            fault_count: 0,
            crash_point: None,
            crashed: false,
            random: Random::new(seed),
            call_counts: BTreeMap::new(),
            mutation_count: 0,
            trace: mix(seed),
            checks: Checks::new(),
        }
    }

    /// Counts a call and decides how it goes.
    pub(super) fn begin(
        &mut self,
        operation: Operation,
        paths: &[&Path],
        detail: u64,
    ) -> io::Result<Course> {
        if self.crashed {
            return Err(crash_error()); // M1: not counted either, there is no machine any more.
        }
        *self.call_counts.entry(operation).or_default() += 1;
        self.note(operation as u64);
        for path in paths {
            self.note(hash_key(path.as_os_str().as_encoded_bytes()));
        }
        self.note(detail);
        if operation.is_mutation() {
            let number = self.mutation_count;
            self.mutation_count += 1;
            if let Some(course) = self.crash_if_due(operation, number) {
                return course;
            }
        }
        let Some(effect) = self.faults.strike(operation, paths) else {
            return Ok(Course::Normal);
        };
        self.fault_count += 1;
        let fail = |error: io::Error| match operation {
            Operation::Sync | Operation::SyncDir => Ok(Course::FailAndDrop(error)),
            _ => Err(error),
        };
        match effect {
            FaultEffect::Error(kind) => fail(kind.into()),
            FaultEffect::OsError(code) => fail(io::Error::from_raw_os_error(code)),
            FaultEffect::ErrorAfterwards(kind) => Ok(Course::FailAfter(kind.into())),
            FaultEffect::Short => Ok(Course::Short),
            FaultEffect::CorruptRead => Ok(Course::FlipBit),
            FaultEffect::LieSync => Ok(Course::Pretend),
        }
    }

    fn crash_if_due(&mut self, operation: Operation, number: u64) -> Option<io::Result<Course>> {
        let half_done = match self.crash_point? {
            CrashPoint::Before(due) if due == number => false,
            // A write may stop anywhere; the others are done or not.
            CrashPoint::Inside(due) if due == number => {
                operation == Operation::Write || self.random.is_heads()
            }
            CrashPoint::Before(_) | CrashPoint::Inside(_) => return None,
        };
        self.crashed = true;
        Some(if half_done { Ok(Course::FailAfter(crash_error())) } else { Err(crash_error()) })
    }

    /// Adds to the trace.
    pub(super) fn note(&mut self, value: u64) {
        self.trace = mix(self.trace.rotate_left(7) ^ value);
    }

    /// Adds the outcome of a call to the trace.
    pub(super) fn note_outcome<T>(&mut self, outcome: &io::Result<T>) {
        match outcome {
            Ok(_) => self.note(0),
            Err(error) => self.note(hash_key(format!("{:?}", error.kind()).as_bytes())),
        }
    }

    /// Changes the contents that the process sees.
    pub(super) fn change_live<T>(
        &mut self,
        file: NodeId,
        change: impl FnOnce(&mut Content) -> T,
    ) -> T {
        let content = self.live.content_mut(file);
        let before = content.allocated_bytes();
        let result = change(content);
        self.allocated = self.allocated - before + content.allocated_bytes();
        result
    }

    /// Bytes that can still be allocated.
    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.allocated)
    }

    /// Refuses when `growth` bytes more do not fit.
    pub(super) fn check_room(&self, growth: u64) -> io::Result<()> {
        if growth > 0 && growth > self.room() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Refuses when not even a new name fits.
    pub(super) fn check_room_for_name(&self) -> io::Result<()> {
        self.check_room(PAGE_SIZE as u64)
    }

    /// The contents that the process sees.
    pub(super) fn live_content(&self, file: NodeId) -> &Arc<Stored> {
        self.live.contents.get(&file).expect("a file with a name or a handle has contents")
    }

    /// Carries a file's data over to the disk.
    pub(super) fn make_data_durable(&mut self, file: NodeId) {
        for change in self.unsynced.take_data(file) {
            self.durable.apply_data(file, &change);
        }
    }

    /// Carries a directory's names over to the disk.
    pub(super) fn make_names_durable(&mut self, directory: NodeId) {
        for change in self.unsynced.take_names(directory) {
            self.durable.apply_name(&change);
        }
        self.forget_unreachable();
    }

    /// Notes a change of names that the process sees already.
    pub(super) fn note_name_change(&mut self, change: NameChange) {
        self.unsynced.push_name(change);
    }

    /// Gives up the contents of a file that lost its name, once no handle needs them.
    pub(super) fn release_if_unused(&mut self, file: NodeId) {
        if self.live.names.is_named(file) || self.handles.contains_key(&file) {
            return;
        }
        if let Some(content) = self.live.contents.remove(&file) {
            self.allocated -= content.allocated_bytes();
        }
        self.forget_if_unreachable(file);
    }

    /// Drops durable contents that neither the process nor a crash can come back to.
    fn forget_unreachable(&mut self) {
        let live = &self.live.contents;
        let gone = self.durable.contents.keys().filter(|file| !live.contains_key(file));
        for file in gone.copied().collect::<Vec<_>>() {
            self.forget_if_unreachable(file);
        }
    }

    fn forget_if_unreachable(&mut self, file: NodeId) {
        if !self.live.contents.contains_key(&file)
            && !self.durable.names.is_named(file)
            && !self.unsynced.may_name(file)
        {
            self.durable.contents.remove(&file);
            self.unsynced.forget_file(file);
        }
    }
}

impl Machine {
    /// This machine after its process ended: nothing is open or locked, nothing is synced.
    pub(super) fn restarted(&self, seed: u64) -> Machine {
        let mut live = self.live.clone();
        live.contents.retain(|file, _| live.names.is_named(*file));
        let restarted = Machine::start(live, self.durable.clone(), self.unsynced.clone(), seed);
        self.pass_on_settings(restarted)
    }

    /// This machine after a power cut that left `disk`.
    pub(super) fn restarted_from(&self, mut disk: Disk, seed: u64) -> Machine {
        disk.settle();
        let restarted = Machine::start(disk.clone(), disk, Unsynced::default(), seed);
        self.pass_on_settings(restarted)
    }

    fn pass_on_settings(&self, mut restarted: Machine) -> Machine {
        restarted.capacity = self.capacity;
        restarted.checks.on_violation = self.checks.on_violation;
        restarted
    }
}
