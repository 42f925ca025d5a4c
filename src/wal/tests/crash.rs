//! Crashes, power cuts and failing calls at every point, against a model of what was promised.
//!
//! A run appends, syncs, releases and reopens at random, until a crash point or an injected fault
//! strikes; then the disk that a crash leaves is recovered, and so on for a few generations. After
//! each recovery
//! - the records are a prefix of those appended (the one in flight may be the last of them);
//! - none that was synced is missing;
//! - nothing is called damaged.

use std::collections::BTreeMap;

use super::*;
use crate::base::{Entropy, SeededEntropy};
use crate::storage::{CrashMode, FaultEffect, FaultPlan, FaultRule, Operation, SimStorage};

const CAPACITY: u64 = 4096 + 1024;

/// What the log has been asked to keep, and what it has promised.
#[derive(Clone, Default)]
struct Model {
    created: bool,
    /// Appended records by their position, with their end.
    records: BTreeMap<Lsn, (Lsn, Vec<u8>)>,
    /// Records since whose append failed; the one that poisoned the log may be in it.
    in_flight: Vec<Vec<u8>>,
    synced: Lsn,
    required_from: Lsn,
    record_count: usize,
}

/// Why a run ended.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    AllStepsDone,
    Crashed,
    /// A call failed, and the log or its recovery has to be given up.
    Failed,
}

impl Model {
    /// Compares what a recovery found with what was promised; the log goes on from there.
    fn accept(&mut self, records: &Records, recovered: &Recovered) {
        let expected: Records = self
            .records
            .range(self.required_from..)
            .map(|(lsn, (_, payload))| (*lsn, payload.clone()))
            .collect();
        let known_count = expected.len().min(records.len());
        assert_eq!(records[..known_count], expected[..known_count]);
        if let Some((lsn, payload)) = records.get(known_count) {
            assert!(self.in_flight.contains(payload), "a record from nowhere");
            assert_eq!(records.len(), known_count + 1);
            self.records.insert(*lsn, (recovered.end, payload.clone()));
        }
        assert!(recovered.end >= self.synced, "lost {} to {}", recovered.end, self.synced);
        let end = records.last().map_or(self.required_from, |(lsn, _)| self.records[lsn].0);
        assert!(recovered.end >= end);
        self.records.retain(|lsn, _| *lsn < end);
        self.in_flight.clear();
    }

    fn next_payload(&mut self, random: u64) -> Vec<u8> {
        self.record_count += 1;
        let len = match random % 20 {
            0 => 1500 + random / 20 % 3000,
            1..=5 => 300 + random / 20 % 400,
            _ => 8 + random / 20 % 120,
        };
        payload_of(self.record_count, len as usize)
    }

    fn append(&mut self, wal: &mut Wal, random: u64) -> Result<()> {
        let payload = self.next_payload(random);
        match wal.append(&[&payload]) {
            Ok(Appended { start, end }) => {
                self.records.insert(start, (end, payload));
                self.in_flight.clear();
                Ok(())
            }
            Err(error) => {
                if !matches!(error, Error::DiskFull { .. }) {
                    self.in_flight.push(payload);
                }
                Err(error)
            }
        }
    }
}

fn is_crash(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if SimStorage::is_simulated_crash(source))
}

/// Opens the log and works on it for some steps.
fn run(place: &WalPlace, model: &mut Model, random: &SeededEntropy, steps: u64) -> Ending {
    let mut wal = match open(place, model) {
        Ok(wal) => wal,
        Err(error) if is_crash(&error) => return Ending::Crashed,
        Err(Error::Io { .. } | Error::DiskFull { .. }) => return Ending::Failed,
        Err(error) => panic!("{error}"),
    };
    for _ in 0..steps {
        match step(&mut wal, model, random) {
            Ok(()) => {}
            Err(error) if is_crash(&error) => return Ending::Crashed,
            // Nothing has changed: go on. A poisoned log fails at the next step.
            Err(Error::Io { .. } | Error::DiskFull { .. }) => {}
            Err(Error::ReadOnly { .. }) => return Ending::Failed,
            Err(error) => panic!("{error}"),
        }
    }
    Ending::AllStepsDone
}

fn open(place: &WalPlace, model: &mut Model) -> Result<Wal> {
    if !model.created {
        let wal = Wal::create(place.clone())?;
        model.created = true;
        return Ok(wal);
    }
    let (replay, records) = read_from(place, model.required_from)?;
    model.accept(&records, replay.recovered());
    let wal = Wal::resume(place.clone(), &replay)?;
    model.synced = replay.recovered().end;
    Ok(wal)
}

fn step(wal: &mut Wal, model: &mut Model, random: &SeededEntropy) -> Result<()> {
    let choice = random.next_u64();
    match choice % 16 {
        0..=7 => model.append(wal, choice / 16)?,
        8..=10 => {
            let synced = wal.sync_target().run()?;
            model.synced = model.synced.max(synced);
            wal.complete_sync(synced);
        }
        11..=12 => {
            let ticket = wal.sync_target();
            let appended = model.append(wal, choice / 16);
            let synced = ticket.run()?;
            model.synced = model.synced.max(synced);
            wal.complete_sync(synced);
            appended?;
        }
        13..=14 => {
            let among = model.records.range(model.required_from..).map(|(lsn, _)| *lsn);
            let among: Vec<Lsn> = among.collect();
            if let Some(lsn) = among.get((choice / 16) as usize % among.len().max(1)) {
                // As if a flush had made all before it durable elsewhere.
                model.required_from = *lsn;
                wal.release(*lsn);
            }
        }
        _ => {
            if let Some(order) = wal.order_next() {
                wal.finish_order(order.run())?;
            }
        }
    }
    Ok(())
}

/// The place of a log to be, in a durable directory.
fn sim_place(storage: &SimStorage) -> WalPlace {
    let place = place_in(Arc::new(storage.clone()), CAPACITY);
    storage.sync_dir(Path::new("/")).unwrap();
    place
}

fn crash_mode(random: u64) -> CrashMode {
    CrashMode::ALL[(random % CrashMode::ALL.len() as u64) as usize]
}

/// A few generations of work, each ended by a crash at a random point or after all its steps.
fn crash_generations(seed: u64) -> u64 {
    let random = SeededEntropy::new(seed);
    let mut storage = SimStorage::new(seed);
    sim_place(&storage);
    let mut model = Model::default();
    let mut crash_count = 0;
    for _ in 0..8 {
        // Often within the recovery at the start.
        let far = if random.next_u64().is_multiple_of(2) { 12 } else { 120 };
        let point = storage.mutation_count() + random.next_u64() % far;
        storage.crash_inside(point);
        let ending = run(&sim_place_again(&storage), &mut model, &random, 60);
        crash_count += u64::from(ending == Ending::Crashed);
        assert_eq!(storage.violations(), Vec::<String>::new());
        storage = storage.crash(crash_mode(random.next_u64()), random.next_u64());
    }
    let place = sim_place_again(&storage);
    assert_eq!(run(&place, &mut model, &random, 20), Ending::AllStepsDone);
    crash_count
}

/// As [`sim_place`], for a storage that has the directory.
fn sim_place_again(storage: &SimStorage) -> WalPlace {
    let options = WalOptions {
        file_capacity: CAPACITY,
        spare_files_max: 2,
        kept_bytes_max: 0,
        held_from: Lsn::MAX,
    };
    let (storage, dir) = (Arc::new(storage.clone()), PathBuf::from("/wal"));
    WalPlace { storage, dir, database_id: DATABASE_ID, options }
}

#[test]
fn crashes_lose_nothing_that_was_synced() {
    let mut crash_count = 0;
    for seed in 0..1500 {
        let outcome = std::panic::catch_unwind(|| crash_generations(seed));
        crash_count += outcome.unwrap_or_else(|_| panic!("failed with seed {seed}"));
    }
    assert!(crash_count > 3000, "{crash_count} crashes");
}

#[test]
fn a_crash_at_every_point_in_every_mode_is_survived() {
    let seed = 5;
    let rehearsal = SimStorage::new(seed);
    let place = sim_place(&rehearsal);
    let first = rehearsal.mutation_count();
    run(&place, &mut Model::default(), &SeededEntropy::new(seed), 60);
    let last = rehearsal.mutation_count();
    assert!(last - first > 60);
    for point in first..last {
        let storage = SimStorage::new(seed);
        let place = sim_place(&storage);
        storage.crash_at(point);
        let mut before = Model::default();
        run(&place, &mut before, &SeededEntropy::new(seed), 60);
        assert!(storage.is_crashed());
        for (mode, crash_seed) in CrashMode::ALL.iter().flat_map(|m| (0..4).map(move |s| (m, s))) {
            let mut model = before.clone();
            let after = storage.crash(*mode, crash_seed);
            let place = sim_place_again(&after);
            let ending = run(&place, &mut model, &SeededEntropy::new(point), 5);
            assert_eq!(ending, Ending::AllStepsDone);
        }
    }
}

const FALLIBLE: [Operation; 8] = [
    Operation::Open,
    Operation::Create,
    Operation::Write,
    Operation::Preallocate,
    Operation::Sync,
    Operation::SyncDir,
    Operation::Rename,
    Operation::Remove,
];

/// Work under a fault; then the process dies, or the power fails, and all is recovered.
fn fault_generations(seed: u64) -> u64 {
    let random = SeededEntropy::new(seed);
    let mut storage = SimStorage::new(seed);
    sim_place(&storage);
    let mut model = Model::default();
    let mut fault_count = 0;
    for _ in 0..6 {
        let operation = FALLIBLE[(random.next_u64() % FALLIBLE.len() as u64) as usize];
        let choice = random.next_u64();
        let kind = match choice % 3 {
            0 => std::io::ErrorKind::Other,
            1 => std::io::ErrorKind::StorageFull,
            _ => std::io::ErrorKind::PermissionDenied,
        };
        let effect = if choice % 5 < 3 {
            FaultEffect::Error(kind)
        } else {
            FaultEffect::ErrorAfterwards(kind)
        };
        let rule = FaultRule::new(effect).on(&[operation]).skip(choice / 8 % 12);
        let rule = rule.times(1 + choice / 128 % 3);
        let short = FaultRule::new(FaultEffect::Short).skip(choice / 16 % 50).times(3);
        storage.arm(FaultPlan::new().rule(rule).rule(short));
        run(&sim_place_again(&storage), &mut model, &random, 40);
        fault_count += storage.fault_count();
        storage.disarm();
        storage = storage.crash(crash_mode(random.next_u64()), random.next_u64());
    }
    let place = sim_place_again(&storage);
    assert_eq!(run(&place, &mut model, &random, 20), Ending::AllStepsDone);
    fault_count
}

#[test]
fn failing_calls_lose_nothing_that_was_synced() {
    let mut fault_count = 0;
    for seed in 0..1500 {
        let outcome = std::panic::catch_unwind(|| fault_generations(seed));
        fault_count += outcome.unwrap_or_else(|_| panic!("failed with seed {seed}"));
    }
    assert!(fault_count > 3000, "{fault_count} faults");
}
