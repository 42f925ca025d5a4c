//! Calls that fail for a moment, and the reserve, on a simulated disk.

use super::*;
use crate::base::ManualClock;
use crate::storage::{CrashMode, FaultEffect, FaultPlan, FaultRule, SimStorage};

const MIB: u64 = 1 << 20;

fn guarded(sim: &SimStorage, reserve: u64) -> (GuardedStorage, Arc<Guard>) {
    let options = GuardOptions { slow_after: Duration::from_secs(1), reserve };
    let clock = Arc::new(ManualClock::default());
    let guard = Arc::new(Guard::new(Path::new("/db"), clock, options));
    let storage = GuardedStorage::new(Arc::new(sim.clone()), Arc::clone(&guard));
    storage.create_dir_all(Path::new("/db")).unwrap();
    guard.open_reserve();
    (storage, guard)
}

fn create(storage: &GuardedStorage, path: &str) -> Arc<dyn StorageFile> {
    storage.open(Path::new(path), OpenMode::CreateNew).unwrap()
}

#[test]
fn a_read_that_fails_for_a_moment_is_tried_again_a_few_times() {
    let sim = SimStorage::new(1);
    let (storage, guard) = guarded(&sim, 0);
    let file = create(&storage, "/db/file");
    file.write_all_at(b"hello", 0).unwrap();
    let fail = |effect, times| {
        let rule = FaultRule::new(effect).on(&[Operation::Read]).times(times);
        sim.arm(FaultPlan::new().rule(rule));
    };
    let mut buffer = [0; 5];
    let passing = [
        FaultEffect::OsError(EIO),
        FaultEffect::Error(io::ErrorKind::WouldBlock),
        FaultEffect::Error(io::ErrorKind::TimedOut),
    ];
    for effect in passing {
        fail(effect, u64::from(READ_RETRIES));
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"hello");
    }
    assert_eq!(guard.read_counts(), (3 * u64::from(READ_RETRIES), 0));
    // Once more than it is tried.
    fail(FaultEffect::OsError(EIO), u64::from(READ_RETRIES) + 1);
    let error = file.read_exact_at(&mut buffer, 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EIO));
    assert_eq!(guard.read_counts(), (4 * u64::from(READ_RETRIES), 1));
    assert_eq!(guard.last_failed_read().unwrap().0, Path::new("/db/file"));
    // What will not come right is not tried again; what was interrupted is, by who reads.
    fail(FaultEffect::Error(io::ErrorKind::PermissionDenied), 1);
    assert!(file.read_exact_at(&mut buffer, 0).is_err());
    fail(FaultEffect::Error(io::ErrorKind::Interrupted), 20);
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(guard.read_counts(), (4 * u64::from(READ_RETRIES), 2));
}

/// U1.
#[test]
fn writes_and_syncs_that_fail_are_not_tried_again() {
    let sim = SimStorage::new(1);
    let (storage, _) = guarded(&sim, MIB);
    let file = create(&storage, "/db/file");
    let _may = ReserveUse::of_all();
    for (operation, error) in [(Operation::Write, EIO), (Operation::Sync, 28)] {
        file.write_all_at(b"1", 0).unwrap();
        let rule = FaultRule::new(FaultEffect::OsError(error)).on(&[operation]);
        sim.arm(FaultPlan::new().rule(rule));
        let failed = match operation {
            Operation::Write => file.write_all_at(b"2", 0),
            _ => file.sync(),
        };
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(error));
    }
}

/// U4: nor of another directory; but what is elsewhere is another matter.
#[test]
fn behind_a_sync_of_a_directory_that_failed_none_succeeds() {
    let sim = SimStorage::new(1);
    let (storage, guard) = guarded(&sim, 0);
    storage.create_dir_all(Path::new("/db/values")).unwrap();
    let fail = |effect| {
        let rule = FaultRule::new(effect).on(&[Operation::SyncDir]);
        sim.arm(FaultPlan::new().rule(rule));
    };
    fail(FaultEffect::OsError(EIO));
    storage.sync_dir(Path::new("/")).unwrap_err();
    // One that is not there has nothing to lose.
    storage.sync_dir(Path::new("/db/gone")).unwrap_err();
    assert!(!guard.has_failed_dir_sync());
    storage.sync_dir(Path::new("/db/values")).unwrap();
    fail(FaultEffect::Error(io::ErrorKind::NotFound));
    storage.sync_dir(Path::new("/db/values")).unwrap_err();
    let why = guard.failed_dir_sync().unwrap();
    assert!(why.contains("/db/values"), "{why}");
    let before = sim.count_of(Operation::SyncDir);
    for dir in ["/db", "/db/values"] {
        let error = storage.sync_dir(Path::new(dir)).unwrap_err();
        assert_eq!(error.to_string(), why);
    }
    assert_eq!(sim.count_of(Operation::SyncDir), before, "it would have gone well");
    storage.sync_dir(Path::new("/")).unwrap();
}

#[test]
fn a_sync_of_a_directory_that_panics_has_failed() {
    let syncs = DirSyncs::default();
    let dir = Path::new("/db");
    let panicking = || syncs.run(dir, || panic!("it does"), || true);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).unwrap_err();
    syncs.run(dir, || Ok(()), || true).unwrap_err();
    assert!(syncs.why_none().is_some_and(|why| why.contains("/db")));
}

#[test]
fn a_full_disk_leaves_the_reserve_to_those_who_may_use_it() {
    let sim = SimStorage::new(1);
    let (storage, guard) = guarded(&sim, MIB);
    assert_eq!(guard.reserve_figures(), ReserveFigures { size: MIB, held: MIB });
    let file = create(&storage, "/db/file");
    let elsewhere = create(&storage, "/elsewhere");
    sim.set_capacity(sim.allocated_bytes());
    // A full disk elsewhere may be another one.
    assert_eq!(elsewhere.preallocate(4096).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(guard.full_disk().is_none());
    let refused = file.preallocate(64 << 10).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(guard.refuses_writes() && !guard.look_for_room());
    assert_eq!(guard.full_disk().unwrap().path, Path::new("/db/file"));
    assert_eq!(guard.reserve_figures().held, MIB);
    // Half of it for some, the rest for others.
    let _half = ReserveUse::of_half();
    file.preallocate(MIB / 2).unwrap();
    assert!(file.preallocate(MIB / 2 + 4096).is_err());
    {
        let _all = ReserveUse::of_all();
        file.preallocate(MIB).unwrap();
        assert!(file.preallocate(MIB + 4096).is_err());
    }
    assert_eq!(guard.reserve_figures().held, 0);
    assert!(!guard.look_for_room());
    // Room for the reserve is not enough: something else has found none.
    sim.set_capacity(sim.allocated_bytes() + MIB);
    assert!(!guard.look_for_room());
    assert_eq!(sim.allocated_bytes(), MIB + sim.read_len("/db/RESERVE"), "as it was");
    sim.set_capacity(sim.allocated_bytes() + 3 * MIB);
    assert!(guard.look_for_room() && !guard.refuses_writes());
    assert_eq!(guard.reserve_figures().held, MIB);
    assert!(guard.full_disk().is_none() && guard.changes() == 2);
}

impl SimStorage {
    /// How long a file is.
    fn read_len(&self, path: &str) -> u64 {
        self.open(Path::new(path), OpenMode::ReadOnly).unwrap().size().unwrap()
    }
}

#[test]
fn without_a_reserve_who_finds_room_says_so() {
    let sim = SimStorage::new(1);
    let (storage, guard) = guarded(&sim, 0);
    assert!(!storage.exists(Path::new("/db/RESERVE")).unwrap());
    let file = create(&storage, "/db/file");
    sim.set_capacity(sim.allocated_bytes());
    let _may = ReserveUse::of_all();
    assert!(file.preallocate(4096).is_err());
    assert!(guard.full_disk().is_some() && !guard.refuses_writes());
    sim.set_capacity(u64::MAX);
    file.preallocate(4096).unwrap();
    assert!(guard.full_disk().is_none());
}

/// U2: whatever a crash leaves of it, and if there is no room for all of it.
#[test]
fn the_reserve_is_made_again_behind_a_crash_as_far_as_there_is_room() {
    for mode in CrashMode::ALL {
        let sim = SimStorage::new(1);
        drop(guarded(&sim, MIB));
        let left = sim.crash(mode, 7);
        let (storage, guard) = guarded(&left, MIB);
        assert_eq!(guard.reserve_figures().held, MIB, "{mode:?}");
        guard.remove_reserve();
        assert!(!storage.exists(Path::new("/db/RESERVE")).unwrap());
        drop((storage, guard));
        left.set_capacity(left.allocated_bytes() + MIB / 2 + 100);
        let (_, guard) = guarded(&left, MIB);
        assert_eq!(guard.reserve_figures().held, MIB / 2);
        assert!(guard.full_disk().is_none(), "nothing that matters has found no room");
        let (_, guard) = guarded(&left, MIB / 4);
        assert_eq!(guard.reserve_figures().held, MIB / 4, "a smaller one is cut");
        drop(guarded(&left, 0));
        assert!(!left.exists(Path::new("/db/RESERVE")).unwrap());
    }
}

/// What a storage above another does not hand down is done by the trait's own means, or refused.
#[test]
fn every_call_reaches_the_storage_below() {
    let sim = SimStorage::new(1);
    let (storage, guard) = guarded(&sim, 0);
    let [one, other, third] = ["/db/one", "/db/other", "/db/third"];
    let file = create(&storage, one);
    file.write_all_at(&[7; 3 * 4096], 0).unwrap();
    file.sync().unwrap();
    file.punch_hole(4096, 4096).unwrap();
    let mut bytes = [9; 3 * 4096];
    let rule = FaultRule::new(FaultEffect::OsError(EIO)).on(&[Operation::Read]);
    sim.arm(FaultPlan::new().rule(rule));
    assert_eq!(file.read_as_is_at(&mut bytes, 0).unwrap(), bytes.len());
    assert!(bytes[4096..8192].iter().all(|byte| *byte == 0));
    assert_eq!(guard.read_counts(), (1, 0));
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
    create(&storage, other).write_all_at(b"other", 0).unwrap();
    storage.exchange(Path::new(one), Path::new(other)).unwrap();
    assert_eq!((sim.read_len(one), sim.read_len(other)), (5, 3 * 4096));
    storage.link(Path::new(other), Path::new(third)).unwrap();
    assert_eq!(file.link_count().unwrap(), 2);
    let taken = storage.rename_new(Path::new(one), Path::new(third)).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    let taken = storage.create_dir(Path::new("/db")).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn an_opening_that_comes_to_nothing_leaves_the_reserve_as_it_was() {
    let sim = SimStorage::new(1);
    let (storage, guard) = guarded(&sim, MIB);
    guard.abandon_reserve();
    assert!(!storage.exists(Path::new("/db/RESERVE")).unwrap(), "it had made it");
    drop((storage, guard));
    drop(guarded(&sim, MIB)); // As if it was killed.
    let (storage, guard) = guarded(&sim, MIB);
    guard.abandon_reserve();
    assert_eq!(sim.read_len("/db/RESERVE"), MIB);
    drop((storage, guard));
    // A copy may have its length alone.
    sim.remove_file(Path::new("/db/RESERVE")).unwrap();
    let copy = sim.open(Path::new("/db/RESERVE"), OpenMode::CreateNew).unwrap();
    copy.set_len(MIB).unwrap();
    drop(copy);
    assert_eq!(sim.allocated_bytes(), 0);
    let (_storage, guard) = guarded(&sim, MIB);
    assert_eq!((sim.allocated_bytes(), guard.reserve_figures().held), (MIB, MIB));
}

/// A disk that has room for the reserve, or for the database.
#[test]
fn what_recovery_takes_of_the_reserve_is_not_waited_for() {
    let sim = SimStorage::new(1);
    sim.set_capacity(MIB + (64 << 10));
    let (storage, guard) = guarded(&sim, MIB);
    let file = create(&storage, "/db/file");
    {
        let _recovery = ReserveUse::of_all();
        file.preallocate(MIB / 2).unwrap();
    }
    assert!(guard.refuses_writes());
    guard.note_recovered();
    assert!(!guard.refuses_writes() && guard.full_disk().is_none());
    assert_eq!(guard.reserve_figures().held, MIB / 2);
    sim.set_capacity(sim.allocated_bytes());
    assert!(file.preallocate(MIB).is_err());
    assert!(guard.refuses_writes() && !guard.look_for_room());
    sim.set_capacity(sim.allocated_bytes() + MIB);
    assert!(guard.look_for_room() && !guard.refuses_writes());
    assert_eq!(guard.reserve_figures().held, MIB / 2, "what there was room for");
}

/// Nothing was dropped, and there may be a descriptor the next time.
#[test]
fn a_directory_that_could_not_be_opened_has_not_failed_to_sync() {
    let (syncs, dir) = (DirSyncs::default(), Path::new("/db"));
    for code in [23, 24] {
        let full = || Err(io::Error::from_raw_os_error(code));
        syncs.run(dir, full, || true).unwrap_err();
        assert!(!syncs.have_failed());
        syncs.run(dir, || Ok(()), || true).unwrap();
    }
}
