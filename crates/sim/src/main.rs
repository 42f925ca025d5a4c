//! `lithe-sim`: the campaigns, for as long as one likes. See `lithe-sim help`.
//!
//! Every finding is printed with the arguments that show it again.

mod arguments;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use lithe_sim::allocation::WatchedAllocator;
use lithe_sim::corpus::Corpus;
use lithe_sim::crash::canary::CANARIES;
use lithe_sim::crash::{CrashRun, STATES, STATES_AFTER_RECOVERY, STATES_IN_RECOVERY};
use lithe_sim::damage::{Ending, Fixture, Injury, RepairMistake, Thoroughness};
use lithe_sim::damage::{run_repair, run_repairs};
use lithe_sim::faults::FaultRun;
use lithe_sim::isolation::appends::{APPEND_TRANSACTIONS, AppendRun};
use lithe_sim::isolation::planted::PLANTED;
use lithe_sim::isolation::{IsolationRun, TRANSACTIONS};
use lithe_sim::ledger::Ledger;
use lithe_sim::model::ModelRun;
use lithe_sim::model::canary::INDEX_CANARIES;
use lithe_sim::parallel::run_cases;
use lithe_sim::random::seed_of;
use lithe_sim::space::canary::SPACE_CANARIES;
use lithe_sim::space::damage::SpaceFixture;
use lithe_sim::space::faults::{SpaceFaultRun, fill_up};
use lithe_sim::space::{self, SpaceCrashRun, SpaceModelRun};
use lithe_sim::twins::{TWIN_OPERATIONS, TWIN_SETUPS, TwinRun};
use lithedb::Structure;
use lithedb::base::{Clock, SystemClock};
use lithedb::storage::{OpenMode, OsStorage, Storage};

use arguments::Arguments;

#[global_allocator]
static ALLOCATOR: WatchedAllocator = WatchedAllocator;

const HELP: &str = "\
lithe-sim COMMAND [OPTIONS]

  crash        power cuts and kills at every mutation, and during recovery
                 --states N  how many states in all (default 100000)
                 --per-point N  states at each point (default 24)
                 --run SEED [--point P [--state S]]  one run, point or state again
                 --structure N  all keyspaces of one structure: 0 Flex, 1 Lsm, 2 History
                 --diet NAME  which operations: everything (default), conversions,
                 checkpoints, indexes, ingests, tables, builds, encryption
  model        random operations against BTreeMaps
                 --runs N (default 100), --operations N each (default 3000), --run SEED,
                 --structure N, --diet NAME as above
  twins        the same operations on both structures, which must answer alike
                 --operations N (default 1000000) in runs of --each N (default 50000),
                 --run SEED
  isolation    transactions of several threads against each other, with crashes
                 --transactions N (default 100000) in runs of --each N (default 3000),
                 --run SEED
  appends      lists appended to and read by several threads, with crashes, judged by adya
                 --transactions N (default 100000) in runs of --each N (default 3000),
                 --run SEED
  flips        every bit of every byte of every file of a small database
  truncations  every file cut at every offset, and extended
  sectors      zeroed, filled, doubled, swapped and old sectors
  files        missing, empty, old, swapped and foreign files
  repairs      all of these, bits at --stride N (default 101), and what a repair makes of it
                 all five: --operations N (default 120), --stride N, --ending 0|1, --case N,
                 --encrypted 1  of encrypted databases; foreign files are of one with the same key
  errors       every call of a run fails, in several ways, once and from then on
                 --runs N (default 10), --operations N each (default 40), --stride N,
                 --run SEED [--case N], --diet NAME as above
  full         disks of every size that fill up and empty again
                 --runs N (default 10), --run SEED --room BYTES
  space        flexible spaces: crashes, a vector to compare with, rot, faults, full disks
                 --states N  crash states in all (default 100000), --per-point N (default 24),
                 --runs N  of each of the others (default 20)
                 --run SEED [--point P], --model SEED [--operations N], --flips SEED
                 [--stride N], --faults SEED, --full SEED  one of them again
  seeds        samples for the fuzz targets, into fuzz/corpus
  canary       planted mistakes, which must be found

Options of all: --seed N (default 1), --threads N (default 2)
";

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let clock = SystemClock::new();
    let ledger = Arc::new(Ledger::new());
    match arguments.command.as_str() {
        "crash" => crash(&arguments, &ledger),
        "model" => model(&arguments, &ledger),
        "twins" => twins(&arguments, &ledger),
        "isolation" => isolation(&arguments, &ledger),
        "appends" => appends(&arguments, &ledger),
        "flips" | "truncations" | "sectors" | "files" | "repairs" => damage(&arguments, &ledger),
        "errors" => errors(&arguments, &ledger),
        "full" => full(&arguments, &ledger),
        "space" => space(&arguments, &ledger),
        "seeds" => write_seeds(),
        "canary" => canary(&arguments, &ledger),
        _ => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
    }
    println!("{ledger}\n{:.1} s", clock.monotonic().as_secs_f64());
    if ledger.finding_count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn crash(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let per_point = arguments.number("per-point").unwrap_or(24);
    let structure = structure_of(arguments);
    let diet = arguments.diet();
    let of_seed = |seed| CrashRun { structure, diet, ..CrashRun::of_seed(seed, per_point) };
    if let Some(seed) = arguments.number("run") {
        let mut run = of_seed(seed);
        run.only_point = arguments.number("point");
        if let Some(state) = arguments.number("state") {
            run.states = state..state + 1;
        }
        run.run(ledger);
        return;
    }
    let wanted = arguments.number("states").unwrap_or(100_000);
    let seed = arguments.seed();
    run_cases(arguments.threads(), u64::MAX, |number| {
        of_seed(seed_of(&[seed, number])).run(ledger);
        let tried = [STATES, STATES_IN_RECOVERY, STATES_AFTER_RECOVERY];
        tried.into_iter().map(|what| ledger.counted(what)).sum::<u64>() < wanted
    });
}

fn model(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let op_count = arguments.number("operations").unwrap_or(3000) as usize;
    let (structure, diet) = (structure_of(arguments), arguments.diet());
    let of_seed = |seed| ModelRun { structure, diet, ..ModelRun::new(seed, op_count) };
    if let Some(seed) = arguments.number("run") {
        of_seed(seed).run(ledger);
        return;
    }
    let run_count = arguments.number("runs").unwrap_or(100);
    run_cases(arguments.threads(), run_count, |number| {
        of_seed(seed_of(&[arguments.seed(), number])).run(ledger);
        true
    });
}

/// The structure that all keyspaces are to be of.
fn structure_of(arguments: &Arguments) -> Option<Structure> {
    let number = arguments.number("structure").and_then(|number| u8::try_from(number).ok());
    number.and_then(Structure::from_u8)
}

fn twins(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let op_count = arguments.number("each").unwrap_or(50_000);
    if let Some(seed) = arguments.number("run") {
        let op_count = arguments.number("operations").unwrap_or(op_count);
        return TwinRun { seed, op_count }.run(ledger);
    }
    let wanted = arguments.number("operations").unwrap_or(1_000_000);
    run_cases(arguments.threads(), u64::MAX, |number| {
        // One option set after the other.
        let seed = seed_of(&[arguments.seed(), number]);
        let seed = seed - seed % TWIN_SETUPS + number % TWIN_SETUPS;
        TwinRun { seed, op_count }.run(ledger);
        ledger.counted(TWIN_OPERATIONS) < wanted
    });
}

fn isolation(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let transaction_count = arguments.number("each").unwrap_or(3000);
    if let Some(seed) = arguments.number("run") {
        let transaction_count = arguments.number("transactions").unwrap_or(transaction_count);
        IsolationRun { seed, transaction_count }.run(ledger);
        return;
    }
    let wanted = arguments.number("transactions").unwrap_or(100_000);
    let seed = arguments.seed();
    run_cases(arguments.threads(), u64::MAX, |number| {
        IsolationRun { seed: seed_of(&[seed, number]), transaction_count }.run(ledger);
        ledger.counted(TRANSACTIONS) < wanted
    });
}

fn appends(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let transaction_count = arguments.number("each").unwrap_or(3000);
    if let Some(seed) = arguments.number("run") {
        let transaction_count = arguments.number("transactions").unwrap_or(transaction_count);
        return AppendRun { seed, transaction_count }.run(ledger);
    }
    let wanted = arguments.number("transactions").unwrap_or(100_000);
    run_cases(arguments.threads(), u64::MAX, |number| {
        let seed = seed_of(&[arguments.seed(), number]);
        AppendRun { seed, transaction_count }.run(ledger);
        ledger.counted(APPEND_TRANSACTIONS) < wanted
    });
}

fn damage(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let seed = arguments.seed();
    let op_count = arguments.number("operations").unwrap_or(120) as usize;
    let usual_stride = if arguments.command == "repairs" { 101 } else { 1 };
    let stride = arguments.number("stride").unwrap_or(usual_stride);
    let is_encrypted = arguments.number("encrypted").is_some_and(|number| number > 0);
    for (number, ending) in [Ending::Closed, Ending::Killed].into_iter().enumerate() {
        if arguments.number("ending").is_some_and(|only| only != number as u64) {
            continue;
        }
        let build = if is_encrypted { Fixture::encrypted } else { Fixture::build };
        let built = build(seed, ending, op_count)
            .and_then(|fixture| Ok((fixture, build(seed ^ 1 << 32, ending, op_count)?)));
        let (fixture, other) = match built {
            Ok(built) => built,
            Err(finding) => {
                ledger.note(finding.at("the fixture"), || format!("flips --seed {seed}"));
                continue;
            }
        };
        println!("{ending:?}: {:?}", fixture.files());
        let injuries = match arguments.command.as_str() {
            "flips" => lithe_sim::damage::flips(&fixture, stride, Thoroughness::AllBits),
            "truncations" => lithe_sim::damage::truncations(&fixture, stride),
            "sectors" => lithe_sim::damage::sectors(&fixture),
            "repairs" => repairs_of(&fixture, &other, stride),
            _ => lithe_sim::damage::misplacements(&fixture, &other),
        };
        let encrypted = if is_encrypted { " --encrypted 1" } else { "" };
        let sizes = format!("--operations {op_count} --stride {stride}");
        let command = &arguments.command;
        let repeat = format!("{command} --seed {seed} {sizes} --ending {number}{encrypted}");
        if command == "repairs" {
            match arguments.number("case") {
                Some(case) => run_repair(&fixture, &injuries[case as usize], ledger, &repeat),
                None => run_repairs(&fixture, &injuries, arguments.threads(), ledger, &repeat),
            }
            continue;
        }
        if let Some(case) = arguments.number("case") {
            lithe_sim::damage::run_one(&fixture, &injuries[case as usize], ledger, &repeat);
            continue;
        }
        lithe_sim::damage::run(&fixture, &injuries, arguments.threads(), ledger, &repeat);
    }
}

/// Some of every kind of damage.
fn repairs_of(fixture: &Fixture, other: &Fixture, stride: u64) -> Vec<Injury> {
    let mut all = lithe_sim::damage::flips(fixture, stride, Thoroughness::OneBit);
    all.extend(lithe_sim::damage::truncations(fixture, stride * 8));
    all.extend(lithe_sim::damage::sectors(fixture));
    all.extend(lithe_sim::damage::misplacements(fixture, other));
    all
}

fn errors(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let op_count = arguments.number("operations").unwrap_or(40) as usize;
    let stride = arguments.number("stride").unwrap_or(1);
    let diet = arguments.diet();
    let of_seed = |seed| FaultRun { stride, diet, ..FaultRun::new(seed, op_count) };
    if let Some(seed) = arguments.number("run") {
        let run = of_seed(seed);
        match arguments.number("case") {
            Some(number) => run.run_case(&run.cases()[number as usize], number, ledger),
            None => run.run(arguments.threads(), ledger),
        }
        return;
    }
    for number in 0..arguments.number("runs").unwrap_or(10) {
        let run = of_seed(seed_of(&[arguments.seed(), number]));
        run.run(arguments.threads(), ledger);
    }
}

fn full(arguments: &Arguments, ledger: &Arc<Ledger>) {
    /// Sizes of disks that are tried in each run: one page more each time.
    const SIZE_COUNT: u64 = 100;
    if let (Some(seed), Some(room)) = (arguments.number("run"), arguments.number("room")) {
        lithe_sim::faults::full::run(seed, room, ledger);
        return;
    }
    let run_count = arguments.number("runs").unwrap_or(10);
    run_cases(arguments.threads(), run_count * SIZE_COUNT, |number| {
        let seed = seed_of(&[arguments.seed(), number / SIZE_COUNT]);
        lithe_sim::faults::full::run(seed, number % SIZE_COUNT * 4096, ledger);
        true
    });
}

fn space(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let per_point = arguments.number("per-point").unwrap_or(24);
    let op_count = arguments.number("operations").unwrap_or(600) as usize;
    let (seed, threads) = (arguments.seed(), arguments.threads());
    let stride = arguments.number("stride").unwrap_or(1);
    let flips = |seed| match SpaceFixture::build(seed, 24) {
        Ok(fixture) => fixture.run(stride, threads, ledger),
        Err(finding) => ledger.note(finding, || format!("space --flips {seed:#x}")),
    };
    let faults = |seed| SpaceFaultRun { seed, op_count: 30, stride: 1 }.run(threads, ledger);
    let full = |seed| (0..40).for_each(|room| fill_up(seed, room * 4096, ledger));
    if let Some(seed) = arguments.number("run") {
        let mut run = SpaceCrashRun::of_seed(seed, per_point);
        run.only_point = arguments.number("point");
        return run.run(ledger);
    }
    for (name, again) in [
        ("model", &(|seed| SpaceModelRun { seed, op_count }.run(ledger)) as &dyn Fn(u64)),
        ("flips", &flips),
        ("faults", &faults),
        ("full", &full),
    ] {
        if let Some(seed) = arguments.number(name) {
            return again(seed);
        }
    }
    let wanted = arguments.number("states").unwrap_or(100_000);
    run_cases(threads, u64::MAX, |number| {
        SpaceCrashRun::of_seed(seed_of(&[seed, number]), per_point).run(ledger);
        ledger.counted(space::crash::STATES) < wanted
    });
    let run_count = arguments.number("runs").unwrap_or(20);
    run_cases(threads, run_count, |number| {
        SpaceModelRun { seed: seed_of(&[seed, number]), op_count }.run(ledger);
        true
    });
    for number in 0..run_count {
        faults(seed_of(&[seed, number]));
        full(seed_of(&[seed, number]));
    }
    flips(seed);
}

/// Samples for the fuzz targets, into `fuzz/corpus` below the working directory.
fn write_seeds() {
    let corpus = Corpus::collect().expect("nothing fails in the simulation");
    let targets: [(&str, &[Vec<u8>]); 10] = [
        ("wal_file", &corpus.wal_files),
        ("commit_record", &corpus.commits),
        ("manifest_file", &corpus.manifests),
        ("index_record", &corpus.index_records),
        ("frame", &corpus.frames),
        ("sealed_frame", &corpus.frames),
        ("keyring_slot", &corpus.keyring_slots),
        ("backup_list", &corpus.backup_lists),
        ("backup_stream", &corpus.backup_streams),
        ("block", &corpus.blocks),
    ];
    let storage = OsStorage::new();
    for (target, samples) in targets {
        let dir = Path::new("fuzz/corpus").join(target);
        let written = storage.create_dir_all(&dir).and_then(|()| {
            samples.iter().enumerate().try_for_each(|(number, sample)| {
                let path = dir.join(format!("seed-{number:03}"));
                if storage.exists(&path)? {
                    return Ok(());
                }
                storage.open(&path, OpenMode::CreateNew)?.write_all_at(sample, 0)
            })
        });
        match written {
            Ok(()) => println!("{}: {} samples", dir.display(), samples.len()),
            Err(error) => eprintln!("{}: {error}", dir.display()),
        }
    }
}

fn canary(arguments: &Arguments, ledger: &Arc<Ledger>) {
    const RUN_COUNT_MAX: u64 = 20;
    let tell = |found: Option<u64>, what: String| match found {
        Some(count) => println!("found after {count} runs: {what}"),
        None => {
            println!("NOT FOUND in {RUN_COUNT_MAX} runs: {what}");
            ledger.count("canaries that were not found");
        }
    };
    let seed = arguments.seed();
    for canary in CANARIES {
        tell(canary.runs_until_found(seed, RUN_COUNT_MAX), format!("forgotten {}", canary.name));
    }
    for canary in INDEX_CANARIES {
        tell(canary.runs_until_found(seed, RUN_COUNT_MAX), format!("lost {}", canary.name));
    }
    for canary in SPACE_CANARIES {
        tell(canary.runs_until_found(seed, RUN_COUNT_MAX), format!("forgotten {}", canary.name));
    }
    tell(
        lithe_sim::faults::full::missing_reserve_is_found(seed, RUN_COUNT_MAX),
        "a reserve that is not there".to_owned(),
    );
    for mistake in RepairMistake::PLANTED {
        let found = (0..RUN_COUNT_MAX).find(|run| mistake.is_found(seed + run, 60) == Ok(true));
        tell(found.map(|run| run + 1), format!("mistake of a repair {mistake:?}"));
    }
    for planted in PLANTED {
        match planted.is_found(seed, RUN_COUNT_MAX) {
            Some(true) => println!("found: planted {}", planted.name),
            _ => {
                println!("NOT FOUND: planted {}", planted.name);
                ledger.count("canaries that were not found");
            }
        }
    }
}
