//! What a repair makes of an injury.
//!
//! The new database must have every row that no item of the report covers, and show nothing that is
//! wrong or out of date but where an item says that it may; the source must be as it was. What was
//! never acknowledged as durable may be missing from the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::base::{Clock, SystemClock};
use lithedb::storage::SimStorage;
use lithedb::{Db, Error, Loss, LossKind, RepairOptions, RepairReport};

use crate::allocation::within_reason;
use crate::clock::SimClock;
use crate::damage::inspect::may_roll_back;
use crate::damage::{Ending, Fixture, Injury};
use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::parallel::{run_cases, survive};
use crate::random::Random;
use crate::readback::{Detail, expect_pasts, now_of, read_all};
use crate::sample::shown;
use crate::timeline::{Survival, rows_at};

/// Where the new database is made.
const TARGET: &str = "/repaired";
/// Longer than this is a hang: a case takes some ten milliseconds.
const SECONDS_MAX: u64 = 60;

/// A mistake of a repair, planted to see whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairMistake {
    /// None.
    None,
    /// The report forgets what it has found.
    ForgottenLosses,
    /// What is lost is put there again, as something else.
    InventedRows,
}

impl RepairMistake {
    /// All that are planted.
    pub const PLANTED: [RepairMistake; 2] =
        [RepairMistake::ForgottenLosses, RepairMistake::InventedRows];

    /// Whether the judge sees it, of a database with one file of data missing.
    ///
    /// # Errors
    /// When the database cannot be made.
    pub fn is_found(self, seed: u64, op_count: usize) -> Verdict<bool> {
        let fixture = Fixture::build(seed, Ending::Closed, op_count)?;
        let is_data = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("seg-") || name.starts_with("tbl-")
        };
        let files = fixture.files().into_iter().map(|(path, _)| path).filter(is_data);
        let mut injuries = files.map(Injury::Missing);
        Ok(injuries.any(|injury| {
            let finds = |mistake| repaired(&fixture, &injury, mistake).is_err();
            finds(self) && !finds(RepairMistake::None)
        }))
    }
}

/// Inflicts every injury on a copy of the fixture, repairs that, and notes what comes of it.
/// `arguments` repeat the campaign; the case is added to them.
pub fn run_repairs(
    fixture: &Fixture,
    injuries: &[Injury],
    threads: usize,
    ledger: &Arc<Ledger>,
    arguments: &str,
) {
    run_cases(threads, injuries.len() as u64, |number| {
        let repeat = format!("{arguments} --case {number}");
        run_repair(fixture, &injuries[number as usize], ledger, &repeat);
        true
    });
}

/// Inflicts one injury on a copy of the fixture, repairs that, and notes what comes of it.
pub fn run_repair(fixture: &Fixture, injury: &Injury, ledger: &Arc<Ledger>, arguments: &str) {
    match survive(|| within_reason(|| repaired(fixture, injury, RepairMistake::None))) {
        Ok(outcome) => ledger.count(outcome),
        Err(finding) => ledger.note(finding.at(&format!("{injury:?}")), || arguments.to_string()),
    }
    ledger.count("repairs");
}

/// Damages a copy, repairs it, and judges what was made; how it came out, in a word.
///
/// # Errors
/// What is wrong with it.
///
/// # Panics
/// When the injury is to a file that is not there.
pub fn repaired(
    fixture: &Fixture,
    injury: &Injury,
    mistake: RepairMistake,
) -> Verdict<&'static str> {
    let clock = SystemClock::new();
    let storage = fixture.storage.duplicate();
    injury.inflict(&storage).expect("injuries are listed for files that are there");
    let before = contents(&storage, &fixture.setup.path);
    let builder = || {
        let clock = Arc::new(SimClock::at_millis(crate::setup::start_of(9)));
        fixture.setup.builder(Arc::new(storage.clone()), clock, 9)
    };
    let repaired = lithedb::repair(&fixture.setup.path, TARGET, RepairOptions::new(builder()));
    if contents(&storage, &fixture.setup.path) != before {
        return Err(Finding::new(Fault::Silent, "the source was changed".to_owned()));
    }
    let mut report = match repaired {
        Ok(report) => report,
        Err(error) => return refused(&error),
    };
    if !report.problems.is_empty() {
        return Err(Finding::new(Fault::Silent, format!("unsound: {:?}", report.problems)));
    }
    let db = builder().open(TARGET);
    let db = db.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
    plant(mistake, &mut report, &db)?;
    let outcome = match judge(fixture, &db, &report) {
        Err(_) if may_roll_back(fixture, injury) => Ok("end of the log as it was earlier"),
        outcome => outcome,
    };
    storage.crash_at(storage.mutation_count());
    if clock.monotonic().as_secs() > SECONDS_MAX {
        return Err(Finding::new(Fault::Excess, format!("took {:?}", clock.monotonic())));
    }
    outcome
}

fn plant(mistake: RepairMistake, report: &mut RepairReport, db: &Db) -> Verdict {
    let refused = |error: Error| Finding::new(Fault::Refused, error.to_string());
    match mistake {
        RepairMistake::None => {}
        RepairMistake::ForgottenLosses => {
            report.losses.clear();
            report.commits_behind_count = 0;
        }
        RepairMistake::InventedRows => {
            for info in db.keyspaces() {
                let keyspace = db.keyspace(&info.name).map_err(refused)?;
                keyspace.put(b"\xFFinvented", b"row").map_err(refused)?;
            }
        }
    }
    Ok(())
}

/// The bytes of all files of a database, and their names.
fn contents(storage: &SimStorage, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = storage.files().into_iter().map(|(path, _)| path);
    let of_database = files.filter(|path| path.starts_with(dir));
    of_database.map(|path| (path.clone(), storage.read_file(&path).unwrap_or_default())).collect()
}

/// Nothing can be had without a key, nor where nothing says whose the files are.
fn refused(error: &Error) -> Verdict<&'static str> {
    match error {
        Error::Corruption { file, .. } | Error::WrongKey { file } | Error::KeyNeeded { file }
            if file.ends_with("KEYRING") =>
        {
            Ok("refused for want of a key")
        }
        Error::FormatVersion { .. } => Ok("refused: a version that is not known"),
        Error::NotEncrypted { .. } => Ok("refused for want of a key"),
        other => Err(Finding::new(Fault::Refused, other.to_string())),
    }
}

fn judge(fixture: &Fixture, db: &Db, report: &RepairReport) -> Verdict<&'static str> {
    let found = read_all(db, Detail::Digests);
    let found = found.map_err(|error| Finding::new(Fault::Refused, error.to_string()))?;
    if let Ok(moment) = fixture.timeline.judge(&found, Survival::Durable) {
        if !report.is_whole() {
            return Ok("whole, and more was told");
        }
        // Then versions are as well.
        let mut random = Random::new(moment.commit);
        expect_pasts(db, &fixture.timeline, moment.commit, &mut random)?;
        return Ok("whole");
    }
    let silent = |what: String| Err(Finding::new(Fault::Silent, what));
    for (name, id) in fixture.timeline.catalog() {
        let Some(id) = *id else { continue };
        let Ok(keyspace) = db.keyspace(name) else {
            match is_told(report, name, None, &[LossKind::Catalogue]) {
                true => continue,
                false => return silent(format!("the keyspace {name:?} is gone")),
            }
        };
        let rows = rows_at(&fixture.timeline.rows(id), now_of(db));
        let mut there = BTreeMap::new();
        for entry in keyspace.iter() {
            let entry = entry.map_err(|error| Finding::new(Fault::Refused, error.to_string()))?;
            there.insert(entry.key.to_vec(), entry.value.to_vec());
        }
        for (key, row) in &rows {
            let told: &[LossKind] = match there.get(key) {
                Some(value) if **value == *row.value => continue,
                Some(_) => &WRONG,
                None => &MISSING,
            };
            if !is_told(report, name, Some(key), told) {
                let what = there.get(key).map_or("missing".to_owned(), |value| shown(value));
                return silent(format!("{} is {what}, and that is not told", shown(key)));
            }
        }
        for key in there.keys().filter(|key| !rows.contains_key(*key)) {
            if !is_told(report, name, Some(key), &WRONG) {
                return silent(format!("{} is there, and that is not told", shown(key)));
            }
        }
    }
    Ok("what is missing is told")
}

/// What may make a row one that was not there, or not any more.
const WRONG: [LossKind; 3] = [LossKind::Doubtful, LossKind::Commits, LossKind::Catalogue];
/// What may make a row go.
const MISSING: [LossKind; 4] =
    [LossKind::Lost, LossKind::Doubtful, LossKind::Commits, LossKind::Catalogue];

/// Whether an item says so of what a keyspace is now: what is lost of its versions is no excuse.
fn is_told(report: &RepairReport, keyspace: &str, key: Option<&[u8]>, kinds: &[LossKind]) -> bool {
    let concerns =
        |loss: &Loss| !loss.is_of_versions && key.is_none_or(|key| loss.covers(keyspace, key));
    report.losses.iter().any(|loss| kinds.contains(&loss.kind) && concerns(loss))
}
