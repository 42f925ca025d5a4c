//! `lithe-sim`: the campaigns, for as long as one likes. See `lithe-sim help`.
//!
//! Every finding is printed when it is found, with the arguments that show it again, and each
//! minute what was tried up to then. With `--ledger FILE` both are added to a file as well, so that
//! a campaign that is broken off counts for what it has done.

mod arguments;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lithe_sim::allocation::WatchedAllocator;
use lithe_sim::campaign::{Campaign, Runner};
use lithe_sim::corpus::Corpus;
use lithe_sim::crash::canary::CANARIES;
use lithe_sim::crash::{CrashRun, STATES, STATES_AFTER_RECOVERY, STATES_IN_RECOVERY, WhenFound};
use lithe_sim::damage::{DamageKind, DamageRun, Ending, RepairMistake};
use lithe_sim::faults::{FaultRun, full};
use lithe_sim::isolation::appends::{APPEND_TRANSACTIONS, AppendRun};
use lithe_sim::isolation::planted::PLANTED;
use lithe_sim::isolation::{IsolationRun, TRANSACTIONS};
use lithe_sim::journal::{Entry, Journal, shell_word};
use lithe_sim::ledger::Ledger;
use lithe_sim::model::ModelRun;
use lithe_sim::model::canary::INDEX_CANARIES;
use lithe_sim::parallel::run_cases;
use lithe_sim::random::seed_of;
use lithe_sim::replay::{ReplayRun, Sum};
use lithe_sim::space::canary::SPACE_CANARIES;
use lithe_sim::space::damage::SpaceFixture;
use lithe_sim::space::faults::{SpaceFaultRun, fill_all};
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

  campaign     runs of all kinds by seed, one after the other
                 --seconds N  none is begun later (default 600), --runs N  nor behind so many,
                 --only NAME  of one kind alone: crash, model, twins, isolation, appends, errors,
                 full, flips, truncations, sectors, files, repairs, replay, space-crash,
                 space-model, space-flips, space-errors, space-full
  crash        power cuts and kills at every mutation, and during recovery
                 --states N  how many states in all (default 100000)
                 --per-point N  states at each point (default 24)
                 --run SEED [--point P [--state S]]  one run, point or state again,
                 --keep N,N,..  with these of its operations alone
                 --structure N  all keyspaces of one structure: 0 Flex, 1 Lsm, 2 History
                 --diet NAME  which operations: everything (default), conversions,
                 checkpoints, indexes, ingests, tables, builds, encryption, pasts
  model        random operations against BTreeMaps
                 --runs N (default 100), --operations N each (default 3000), --run SEED,
                 --structure N, --diet NAME, --keep N,N,.. as above
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
                 --encrypted 1  of encrypted databases; foreign files are of one with the same key,
                 --structure N  as above
  errors       every call of a run fails, in several ways, once and from then on
                 --runs N (default 10), --operations N each (default 40), --stride N,
                 --run SEED [--case N], --diet NAME as above
  full         disks of every size that fill up and empty again
                 --runs N (default 10), --run SEED [--room BYTES]
  replay       each seed twice, with crashes and calls that fail: both do the same; prints the
               number that all of them come to
                 --runs N (default 10000), --run SEED
  space        flexible spaces: crashes, a vector to compare with, rot, faults, full disks
                 --states N  crash states in all (default 100000), --per-point N (default 24),
                 --runs N  of each of the others (default 20)
                 --run SEED [--point P], --model SEED [--operations N], --flips SEED
                 [--stride N], --faults SEED, --full SEED  one of them again
  seeds        samples for the fuzz targets, into fuzz/corpus
  canary       planted mistakes, which must be found
  seeded       bugs that are built into the engine, one at a time, and which runner finds each: a
               table. Of a program that was built with RUSTFLAGS=\"--cfg seeded_bugs\".
                 --limit SECONDS  for each (default 900), --bug N  one of them, in this process

Options of all: --seed N (default 1), --threads N (default 2), --ledger FILE  that what is found and
                counted is added to while it goes on
";

/// Count of planted mistakes that nobody has found, in the ledger.
const NOT_FOUND: &str = "canaries that were not found";

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if ["help", "--help"].contains(&arguments.command.as_str()) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let journal = match arguments.word("ledger").map(|file| Journal::append_to(Path::new(file))) {
        Some(Err(error)) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
        Some(Ok(journal)) => Arc::new(journal),
        None => Arc::new(Journal::nowhere()),
    };
    let words: Vec<String> =
        std::env::args().skip(1).map(|word| shell_word(&word).into_owned()).collect();
    let command = words.join(" ");
    let clock = SystemClock::new();
    let ledger = Arc::new(journal.ledger("lithe-sim", &command, say));
    journal.add(Entry::Begun, &format!("lithe-sim {command}"));
    if let Err(message) = run(&arguments, &journal, &ledger) {
        eprintln!("{message}\n\n{HELP}");
        return ExitCode::from(2);
    }
    let seconds = clock.monotonic().as_secs_f64();
    let line = format!("lithe-sim {command}: {}; {seconds:.1} s", ledger.line());
    journal.add(Entry::Ended, &line);
    say(&format!("{ledger}\n{seconds:.1} s"));
    if let Err(error) = journal.finish() {
        eprintln!("could not add to the ledger: {error}");
        return ExitCode::from(3);
    }
    match ledger.finding_count() + ledger.counted(NOT_FOUND) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// For people. Nobody may be reading any more; the campaign goes on.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Does what the command says.
fn run(arguments: &Arguments, journal: &Arc<Journal>, ledger: &Arc<Ledger>) -> Result<(), String> {
    match arguments.command.as_str() {
        "campaign" => return campaign(arguments, journal, ledger),
        "crash" => crash(arguments, ledger),
        "model" => model(arguments, ledger),
        "twins" => twins(arguments, ledger),
        "isolation" => isolation(arguments, ledger),
        "appends" => appends(arguments, ledger),
        "errors" => errors(arguments, ledger),
        "full" => full(arguments, ledger),
        "replay" => replay(arguments, ledger),
        "space" => space(arguments, ledger),
        "seeds" => write_seeds(),
        "canary" => canary(arguments, ledger),
        "seeded" => return seeded(arguments, ledger),
        name => match DamageKind::named(name) {
            Some(kind) => damage(kind, arguments, ledger),
            None => return Err(format!("there is no command {name:?}")),
        },
    }
    Ok(())
}

fn campaign(arguments: &Arguments, journal: &Arc<Journal>, total: &Ledger) -> Result<(), String> {
    /// How long it goes on, if nothing is said.
    const SECONDS: u64 = 600;
    let only = match arguments.word("only").map(|name| (name, Runner::named(name))) {
        Some((name, None)) => return Err(format!("--only: there are no runs {name:?}")),
        only => only.and_then(|(_, runner)| runner),
    };
    let run_count_max = arguments.number("runs");
    let seconds = arguments.number("seconds").or(run_count_max.is_none().then_some(SECONDS));
    let time_max = seconds.map(Duration::from_secs);
    let (seed, threads) = (arguments.seed(), arguments.threads());
    Campaign { seed, threads, run_count_max, time_max, only }.run(total, journal, say);
    Ok(())
}

fn crash(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let per_point = arguments.number("per-point").unwrap_or(24);
    let structure = structure_of(arguments);
    let diet = arguments.diet();
    let of_seed = |seed| CrashRun { structure, diet, ..CrashRun::of_seed(seed, per_point) };
    if let Some(seed) = arguments.number("run") {
        let mut run = of_seed(seed);
        run.kept = arguments.kept();
        run.only_point = arguments.number("point");
        if run.only_point.is_some() {
            run.when_found = WhenFound::GoOn;
        }
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
        ModelRun { kept: arguments.kept(), ..of_seed(seed) }.run(ledger);
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

fn damage(kind: DamageKind, arguments: &Arguments, ledger: &Arc<Ledger>) {
    let run = DamageRun {
        kind,
        seed: arguments.seed(),
        op_count: arguments.number("operations").unwrap_or(120) as usize,
        stride: arguments.number("stride").unwrap_or(kind.usual_stride()),
        is_encrypted: arguments.number("encrypted").is_some_and(|number| number > 0),
        structure: structure_of(arguments),
        ending: arguments.number("ending").and_then(Ending::of_number),
        case: arguments.number("case"),
    };
    run.run(arguments.threads(), ledger);
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
    match (arguments.number("run"), arguments.number("room")) {
        (Some(seed), Some(room)) => return full::run(seed, room, ledger),
        (Some(seed), None) => return full::run_all(seed, arguments.threads(), ledger),
        (None, _) => {}
    }
    for number in 0..arguments.number("runs").unwrap_or(10) {
        full::run_all(seed_of(&[arguments.seed(), number]), arguments.threads(), ledger);
    }
}

fn replay(arguments: &Arguments, ledger: &Arc<Ledger>) {
    let sum = Sum::default();
    if let Some(seed) = arguments.number("run") {
        sum.add(ReplayRun { seed }.run(ledger));
    } else {
        run_cases(arguments.threads(), arguments.number("runs").unwrap_or(10_000), |number| {
            let seed = seed_of(&[arguments.seed(), number]);
            sum.add(ReplayRun { seed }.run(ledger));
            true
        });
    }
    say(&format!("all runs come to {:#018x}", sum.get()));
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
    let full = |seed| fill_all(seed, ledger);
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
    let targets: [(&str, &[Vec<u8>]); 15] = [
        ("wal_file", &corpus.wal_files),
        ("commit_record", &corpus.commits),
        ("manifest_file", &corpus.manifests),
        ("index_record", &corpus.index_records),
        ("frame", &corpus.frames),
        ("sealed_frame", &corpus.frames),
        ("salvaged_file", &corpus.frames),
        ("keyring_slot", &corpus.keyring_slots),
        ("backup_list", &corpus.backup_lists),
        ("backup_stream", &corpus.backup_streams),
        ("trail_segment", &corpus.trail_segments),
        ("table_file", &corpus.tables),
        ("table_parts", &corpus.table_parts),
        ("value_file", &corpus.value_files),
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
            ledger.count(NOT_FOUND);
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
        full::missing_reserve_is_found(seed, RUN_COUNT_MAX),
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
                ledger.count(NOT_FOUND);
            }
        }
    }
}

/// What share of the seeded bugs must be found, in hundredths.
#[cfg(seeded_bugs)]
const KILLED_PERCENT_MIN: usize = 90;

#[cfg(seeded_bugs)]
fn seeded(arguments: &Arguments, ledger: &Arc<Ledger>) -> Result<(), String> {
    use lithe_sim::finding::{Fault, Finding};
    use lithe_sim::seeded::{fate_of, fates, table};
    use lithedb::base::seeded::Bug;

    let seed = arguments.seed();
    if let Some(number) = arguments.number("bug") {
        let bug = usize::try_from(number).ok().and_then(|number| Bug::ALL.get(number));
        let bug = bug.ok_or_else(|| format!("--bug: there are {} bugs", Bug::ALL.len()))?;
        println!("{}", fate_of(*bug, seed).to_line());
        return Ok(());
    }
    let limit = Duration::from_secs(arguments.number("limit").unwrap_or(900));
    let fates = fates(seed, arguments.threads(), limit);
    let (table, killed) = table(&fates);
    say(&format!("{table}\n{killed} of {} seeded bugs were killed.", fates.len()));
    ledger.count_many("seeded bugs that were killed", killed as u64);
    ledger.count_many("seeded bugs", fates.len() as u64);
    if killed * 100 < fates.len() * KILLED_PERCENT_MIN {
        let what = format!("{killed} of {} seeded bugs were killed", fates.len());
        ledger.note(Finding::new(Fault::Silent, what), || format!("seeded --seed {seed}"));
    }
    Ok(())
}

#[cfg(not(seeded_bugs))]
fn seeded(_: &Arguments, _: &Arc<Ledger>) -> Result<(), String> {
    Err("there are no bugs in this program: build it with RUSTFLAGS=\"--cfg seeded_bugs\"".into())
}
