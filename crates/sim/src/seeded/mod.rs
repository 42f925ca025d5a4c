//! Seeded bugs: each of them is built into the engine in turn, and the runners look for it. What
//! finds none of them finds nothing.
//!
//! Only in programs that were built with `--cfg seeded_bugs` (`src/base/seeded.rs` of the library).
//! Each bug has a process of its own, as it may well end it, or never come to an end. A try that
//! finds something is made once more without the bug, and must find nothing then.
//!
//! | file | what |
//! |---|---|
//! | `runner` | who looks |
//! | `fate` | what became of a bug |

mod fate;
mod runner;

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lithedb::Structure;
use lithedb::base::seeded::{Bug, seed as seed_bug};
use lithedb::base::{Clock, SystemClock};
use lithedb::storage::Operation;

use crate::diet::Diet;
use crate::parallel::run_cases;

pub use fate::Fate;
pub use runner::Runner;

/// How often it is looked whether a child has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The runner that is expected to find it.
#[must_use]
pub fn expected(bug: Bug) -> Runner {
    const FLEX: Option<Structure> = Some(Structure::Flex);
    const LSM: Option<Structure> = Some(Structure::Lsm);
    let everything = Diet::Everything;
    match bug {
        Bug::LogNotSynced
        | Bug::SecondLogFileNotSynced
        | Bug::AcknowledgedEarly
        | Bug::LogClaimsTooMuch
        | Bug::LogGivenBackEarly
        | Bug::LogGivenBackBeforeEdit
        | Bug::FlushAheadOfLog
        | Bug::ReplayedTwice
        | Bug::ValuesNotSynced
        | Bug::ValueNamesNotSynced
        | Bug::MovedValuesNotSynced
        | Bug::EditNotSynced
        | Bug::SnapshotNotSynced => Runner::Crash(everything, None),
        Bug::SegmentsNotSynced => Runner::Crash(everything, FLEX),
        Bug::TablesNotSynced | Bug::TablesRemovedBeforeEdit => Runner::Crash(everything, LSM),
        Bug::KeyringNotSynced => Runner::Crash(Diet::Encryption, None),
        Bug::CheckpointNamesNotSynced | Bug::CopyNotSynced => {
            Runner::Crash(Diet::Checkpoints, None)
        }
        Bug::SyncErrorSwallowed | Bug::SyncTriedAgain => Runner::Errors(Operation::Sync, ".wal"),
        Bug::LogWriteErrorSwallowed => Runner::Errors(Operation::Write, ".wal"),
        Bug::LogRecordUnverified | Bug::DamagedLogCutOff => Runner::Flips(".wal"),
        Bug::ValueUnverified => Runner::Flips("val-"),
        Bug::EditUnverified | Bug::DamagedEditsCutOff => Runner::Flips("MANIFEST"),
        Bug::BlockUnverified | Bug::ReadErrorIsAbsence => Runner::Flips("seg-"),
        Bug::FullDiskPoisons | Bug::ReserveNotKept => Runner::Full,
        Bug::PremiseUnchecked | Bug::CommitsUnderWayIgnored => Runner::Isolation,
        Bug::EditLostAtRotation
        | Bug::OlderEntryKept
        | Bug::TombstoneLostInDeltas
        | Bug::DeletedRangeForgotten
        | Bug::HoleTooLarge
        | Bug::SegmentRemovedEarly
        | Bug::MovedPointerForgotten => Runner::Model(everything, FLEX),
        Bug::FilterDeniesKey
        | Bug::OlderRunWins
        | Bug::TombstoneDroppedEarly
        | Bug::DeletedRangeDroppedEarly => Runner::Model(everything, LSM),
        Bug::VersionDroppedEarly => Runner::Model(everything, Some(Structure::History)),
        Bug::NewerRunsNotAsked => Runner::Model(Diet::Pasts, Some(Structure::History)),
        Bug::IngestBelowMemtables => Runner::Model(everything, None),
        Bug::IngestStampWrong => Runner::Model(Diet::Ingests, None),
        Bug::ConversionSwitchedEarly => Runner::Model(Diet::Conversions, None),
        Bug::IndexEntryLeft => Runner::Model(Diet::Indexes, None),
        Bug::OldKeyLetGoEarly => Runner::Model(Diet::Encryption, None),
        Bug::ValueTakenForSame
        | Bug::OlderSourceWins
        | Bug::SnapshotSeesLater
        | Bug::ExpiredEarly => Runner::Model(everything, None),
    }
}

/// Seeds a bug in this process and has the runners look for it: the one that is expected to find
/// it, then all others.
#[must_use]
pub fn fate_of(bug: Bug, seed: u64) -> Fate {
    for runner in std::iter::once(expected(bug)).chain(Runner::OTHERS) {
        for number in 0..runner.try_count() {
            seed_bug(Some(bug));
            let found = runner.run(seed, number);
            seed_bug(None);
            let Some(story) = found else { continue };
            if let Some(without) = runner.run(seed, number) {
                return Fate::FoundWithout { repeat: without.repeat };
            }
            return Fate::Killed {
                by: runner.name().to_owned(),
                tries: number + 1,
                found_as: runner::word_of(story.finding.fault).to_owned(),
                repeat: story.repeat,
            };
        }
    }
    Fate::Survived
}

/// Seeds all bugs, each in a process of its own that has so much time; what became of them.
#[must_use]
pub fn fates(seed: u64, threads: usize, limit: Duration) -> Vec<(Bug, Fate)> {
    let fates = Mutex::new(Vec::new());
    run_cases(threads, Bug::ALL.len() as u64, |number| {
        let bug = Bug::ALL[number as usize];
        let fate = in_child(number, seed, limit).unwrap_or_else(|error| {
            eprintln!("{}: could not be run: {error}", bug.name());
            Fate::Late
        });
        eprintln!("{}: {}", bug.name(), fate.cells());
        fates.lock().unwrap_or_else(PoisonError::into_inner).push((bug, fate));
        true
    });
    let mut fates = fates.into_inner().unwrap_or_else(PoisonError::into_inner);
    fates.sort_by_key(|(bug, _)| *bug as usize);
    fates
}

fn in_child(number: u64, seed: u64, limit: Duration) -> std::io::Result<Fate> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["seeded", "--bug", &number.to_string(), "--seed", &seed.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let clock = SystemClock::new();
    let status: ExitStatus = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if clock.monotonic() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(Fate::Late);
        }
        clock.sleep(POLL_INTERVAL);
    };
    // A few lines, which the pipe has room for.
    let mut said = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut said)?;
    }
    let fate = said.lines().find_map(Fate::from_line);
    Ok(fate.unwrap_or_else(|| Fate::Ended(status.to_string())))
}

/// The table, and how many were killed.
#[must_use]
pub fn table(fates: &[(Bug, Fate)]) -> (String, usize) {
    let mut table = String::from(
        "| | bug | what is wrong | killed by | tries | found as | again, with `LITHE_SEEDED_BUG` \
         of that name |\n|---:|---|---|---|---:|---|---|\n",
    );
    for (bug, fate) in fates {
        let (number, name, says) = (*bug as usize, bug.name(), bug.says());
        table += &format!("| {number} | `{name}` | {says} | {}\n", fate.cells());
    }
    let killed = fates.iter().filter(|(_, fate)| fate.is_killed()).count();
    (table, killed)
}
