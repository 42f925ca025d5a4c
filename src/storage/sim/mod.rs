//! Simulated storage: a file system that loses, tears, fails and fills up on purpose.
//!
//! For tests of whatever stands on [`Storage`](super::Storage), the engine and applications alike.
//! Owns the simulated disk, its crashes and its faults. Must not know what is stored.
//!
//! | file | what |
//! |---|---|
//! | `disk` | durable names and contents, and the ordered changes that are not synced |
//! | `crash` | which of those changes a power cut leaves |
//! | `fault` | rules: which calls go wrong, and how |
//! | `fingerprint` | a hash of all that is there |
//! | `machine` | the state, and the way every call takes |
//! | `calls` | the calls themselves |
//! | `check` | suspicious use |
//! | `damage` | rot and misplacement, for tests of what reads it back |
//!
//! Invariants
//! - S1  What T1 and T2 of the storage module promise holds in every crash mode; nothing more does.
//! - S2  The seed and the sequence of calls decide everything.
//! - S3  Copies share pages until one of them writes, so that a crash costs as much as what was
//!   changed, not as much as what is stored.

mod calls;
mod check;
mod crash;
mod damage;
mod disk;
mod fault;
mod fingerprint;
mod machine;
mod random;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crash::CrashMode;
pub use damage::FileSnapshot;
pub use fault::{FaultEffect, FaultPlan, FaultRule, Operation};

use check::OnViolation;
use disk::{Disk, Unsynced};
use machine::{CrashPoint, Machine, SimulatedCrash};
use random::Random;

/// A simulated file system. Clones share it; [`SimStorage::crash`] and [`SimStorage::duplicate`]
/// make independent ones.
///
/// ```
/// use lithedb::storage::{CrashMode, OpenMode, SimStorage, Storage};
/// use std::path::Path;
///
/// let storage = SimStorage::new(7);
/// let file = storage.open(Path::new("notes"), OpenMode::CreateNew)?;
/// file.write_all_at(b"hello", 0)?;
/// file.sync()?;
/// // The contents are durable, the name is not.
/// assert!(!storage.crash(CrashMode::DropAll, 1).exists(Path::new("notes"))?);
/// storage.sync_dir(Path::new("/"))?;
/// for mode in CrashMode::ALL {
///     let after = storage.crash(mode, 1).open(Path::new("notes"), OpenMode::ReadOnly)?;
///     assert_eq!(after.size()?, 5);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// To try every crash of a workload, count its mutations in one run, and then run it again once per
/// crash point:
///
/// ```
/// use lithedb::storage::{CrashMode, OpenMode, SimStorage, Storage};
/// use std::path::Path;
///
/// fn workload(storage: &SimStorage) -> std::io::Result<()> {
///     let file = storage.open(Path::new("notes"), OpenMode::CreateNew)?;
///     file.write_all_at(b"hello", 0)?;
///     file.sync()?;
///     storage.sync_dir(Path::new("/"))
/// }
///
/// let rehearsal = SimStorage::new(7);
/// workload(&rehearsal)?;
/// for point in 0..rehearsal.mutation_count() {
///     let storage = SimStorage::new(7);
///     storage.crash_at(point);
///     let error = workload(&storage).unwrap_err();
///     assert!(SimStorage::is_simulated_crash(&error));
///     for seed in 0..10 {
///         let after = storage.crash(CrashMode::RandomSectors, seed);
///         // Recover from `after` and compare with what was acknowledged before the crash.
///         # let _ = after;
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SimStorage {
    machine: Arc<Mutex<Machine>>,
}

impl SimStorage {
    /// An empty disk of unlimited size. `seed` decides whatever is left to chance in faults.
    #[must_use]
    pub fn new(seed: u64) -> SimStorage {
        SimStorage::from_machine(Machine::start(
            Disk::new(),
            Disk::new(),
            Unsynced::default(),
            seed,
        ))
    }

    /// An independent copy, with what is not synced. It has no open files and no locks, counters
    /// and trace start again, and no faults or crash points are set; the capacity is the same.
    ///
    /// Cheap: copies share pages until one of them writes.
    #[must_use]
    pub fn duplicate(&self) -> SimStorage {
        let machine = self.machine();
        let seed = machine.random.clone().next();
        SimStorage::from_machine(machine.restarted(seed))
    }

    /// The disk that is found after a crash at this moment; `seed` decides what `mode` leaves open.
    /// This storage stays as it is, so that one moment can be tried many times.
    ///
    /// After [`CrashMode::KeepAll`] (the process died, the machine did not) what was not synced is
    /// still there and still not synced. After every other mode what is there is durable.
    #[must_use]
    pub fn crash(&self, mode: CrashMode, seed: u64) -> SimStorage {
        let machine = self.machine();
        if mode == CrashMode::KeepAll {
            return SimStorage::from_machine(machine.restarted(seed));
        }
        let mut random = Random::new(seed);
        let mut disk = machine.durable.clone();
        crash::survive(&mut disk, &machine.unsynced.in_order(), mode, &mut random);
        SimStorage::from_machine(machine.restarted_from(disk, seed))
    }

    /// The disk that is found after a power cut that leaves exactly those unsynced changes whose
    /// number, from 0 for the oldest to [`Self::unsynced_count`] - 1, `survives` says yes to: to
    /// try all subsets of a few changes.
    #[must_use]
    pub fn crash_keeping(&self, mut survives: impl FnMut(usize) -> bool) -> SimStorage {
        let machine = self.machine();
        let mut disk = machine.durable.clone();
        for (index, change) in machine.unsynced.in_order().into_iter().enumerate() {
            if survives(index) {
                disk.apply(change);
            }
        }
        let seed = machine.random.clone().next();
        SimStorage::from_machine(machine.restarted_from(disk, seed))
    }

    /// Changes that are not synced: a write inside the file is one, a write past its end two (bytes
    /// and length), a hole is one, a name created, removed or renamed is one.
    #[must_use]
    pub fn unsynced_count(&self) -> usize {
        self.machine().unsynced.count()
    }

    /// Lets the first `mutation_count` mutations of this storage through; the next one and every
    /// call after it fail and do nothing. Counts from the beginning, as
    /// [`Self::mutation_count`] does.
    pub fn crash_at(&self, mutation_count: u64) {
        self.machine().crash_point = Some(CrashPoint::Before(mutation_count));
    }

    /// As [`Self::crash_at`], but the mutation that the crash strikes may have done its work, a
    /// write a random part of it.
    pub fn crash_inside(&self, mutation_count: u64) {
        self.machine().crash_point = Some(CrashPoint::Inside(mutation_count));
    }

    /// Whether the crash point was reached.
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        self.machine().crashed
    }

    /// Whether an error comes from [`Self::crash_at`] or [`Self::crash_inside`].
    #[must_use]
    pub fn is_simulated_crash(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<SimulatedCrash>)
    }

    /// Calls of every kind until now.
    #[must_use]
    pub fn operation_count(&self) -> u64 {
        self.machine().call_counts.values().sum()
    }

    /// Calls of one kind until now.
    #[must_use]
    pub fn count_of(&self, operation: Operation) -> u64 {
        self.machine().call_counts.get(&operation).copied().unwrap_or(0)
    }

    /// Calls until now that change the disk, or what of it is durable
    /// ([`Operation::is_mutation`]): the crash points.
    #[must_use]
    pub fn mutation_count(&self) -> u64 {
        self.machine().mutation_count
    }

    /// A hash over all calls and their outcomes: two runs with equal hashes did the same.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.machine().trace
    }

    /// A hash of the disk: names, links, lengths, bytes, and what is not synced, with how it came
    /// about. Whoever opens the same thing with equal hashes finds the same; what was counted,
    /// traced or set to go wrong is not in it.
    ///
    /// Cheap: a file costs as much as it has bytes once, and not again in copies that leave it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.machine().fingerprint()
    }

    /// Sets the faults to come, instead of those that were set before.
    pub fn arm(&self, plan: FaultPlan) {
        self.machine().faults = plan;
    }

    /// No more faults.
    pub fn disarm(&self) {
        self.arm(FaultPlan::new());
    }

    /// Faults that struck until now.
    #[must_use]
    pub fn fault_count(&self) -> u64 {
        self.machine().fault_count
    }

    /// Sets the size of the disk in bytes, at any time; less than what is in use is fine.
    ///
    /// Space is taken in pages of 4096 bytes by writes and by `preallocate`, not by `set_len`, and
    /// given back by `punch_hole` unless it was reserved. On a
    /// full disk nothing can be created either. Files that were removed give their space back when
    /// the last handle is closed.
    pub fn set_capacity(&self, bytes: u64) {
        self.machine().capacity = bytes;
    }

    /// Bytes in use, in whole pages.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.machine().allocated
    }

    /// Suspicious use until now (the first thousand):
    /// - a read of bytes between a file's end and a later write past it, which nobody wrote;
    /// - a read of bytes that a hole was made of, by the same storage;
    /// - a rename of a file with data that is not synced;
    /// - a file opened for writing while it already is;
    /// - a write to a file that has no name any more.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.machine().checks.violations.clone()
    }

    /// From now on, suspicious use panics in the call that commits it. Copies do the same.
    pub fn panic_on_violation(&self) {
        self.machine().checks.on_violation = OnViolation::Panic;
    }

    /// Paths of the files that are open, and how many handles each has; files without a name come
    /// as `/`.
    #[must_use]
    pub fn open_files(&self) -> Vec<(PathBuf, u64)> {
        let machine = self.machine();
        let names = &machine.live.names;
        let handles = machine.handles.iter();
        handles.map(|(file, open)| (names.path_of(*file), open.readers + open.writers)).collect()
    }

    fn from_machine(machine: Machine) -> SimStorage {
        SimStorage { machine: Arc::new(Mutex::new(machine)) }
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        // Nothing here panics half-way; violations panic after the lock is given back.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine();
        f.debug_struct("SimStorage")
            .field("files", &machine.live.contents.len())
            .field("unsynced", &machine.unsynced.count())
            .field("mutations", &machine.mutation_count)
            .field("crashed", &machine.crashed)
            .finish()
    }
}
