//! What comes of an injury.

use std::path::Path;
use std::sync::Arc;

use lithedb::base::Clock;
use lithedb::base::SystemClock;
use lithedb::{Db, Error};

use crate::damage::{Ending, Fixture, Injury};
use crate::finding::{Fault, Finding, Verdict};
use crate::readback::{Detail, now_of, read_all};
use crate::sample::{Key, shown};
use crate::timeline::{Rows, Survival, rows_at};

/// Longer than this is a hang: a case takes about a millisecond.
const SECONDS_MAX: u64 = 20;
/// Keys that no fixture holds.
const ABSENT_KEYS: [Key; 3] = [Key(5001), Key(5002), Key(5003)];

/// What came of an injury, where it was one of the right outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Opening named the damaged file.
    RefusedToOpen,
    /// Opening named another file, to which the damaged one did not fit.
    RefusedToOpenOver(Other),
    /// Reading named the damaged file, and all else was right.
    RefusedToRead,
    /// Reading named another file, and all else was right.
    RefusedToReadOver(Other),
    /// Everything was there: the bytes did not matter.
    Harmless,
    /// As harmless, and the database's check still saw it.
    HarmlessAndSeen,
    /// A few commits at the end that were never acknowledged as durable are gone.
    UnsyncedTailLost,
    /// The last synced commits are gone together with every trace that there ever was a later
    /// moment: the newest log file, or its last sectors, were as they had been earlier. Nothing
    /// inside the database can tell.
    LogRolledBack,
}

/// The file named is not the damaged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other;

impl Outcome {
    /// As the ledger counts it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::RefusedToOpen => "refused to open",
            Outcome::RefusedToOpenOver(Other) => "refused to open, naming a file beside it",
            Outcome::RefusedToRead => "refused to read",
            Outcome::RefusedToReadOver(Other) => "refused to read, naming a file beside it",
            Outcome::Harmless => "harmless",
            Outcome::HarmlessAndSeen => "harmless and seen by the check",
            Outcome::UnsyncedTailLost => "commits lost that were never synced",
            Outcome::LogRolledBack => "end of the log as it was earlier",
        }
    }
}

/// Damages a copy and looks.
pub(super) fn inspect(fixture: &Fixture, injury: &Injury) -> Verdict<Outcome> {
    let clock = SystemClock::new();
    let storage = fixture.storage.duplicate();
    injury.inflict(&storage).expect("injuries are listed for files that are there");
    let opened = fixture.setup.open(Arc::new(storage.clone()), 7);
    let outcome = match opened {
        Err(error) => refusal(&error, injury.path()).map(|names_it| match names_it {
            Names::Damaged => Outcome::RefusedToOpen,
            Names::Other => Outcome::RefusedToOpenOver(Other),
        }),
        Ok(db) => {
            let outcome = look_around(fixture, injury, &db);
            storage.crash_at(storage.mutation_count());
            outcome
        }
    };
    if clock.monotonic().as_secs() > SECONDS_MAX {
        return Err(Finding::new(Fault::Excess, format!("took {:?}", clock.monotonic())));
    }
    outcome
}

/// Which file an error names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Damaged,
    Other,
}

/// The error must say which file.
fn refusal(error: &Error, damaged: &Path) -> Verdict<Names> {
    let file = match error {
        Error::Corruption { file, what, .. } if !what.is_empty() => file,
        Error::FormatVersion { file, .. } => file,
        Error::KeyNeeded { file } | Error::WrongKey { file } => file,
        Error::NotEncrypted { path } => path,
        Error::Io { path, .. } => path,
        other => {
            return Err(Finding::new(Fault::BadError, format!("names no file: {other}")));
        }
    };
    if file.file_name().is_none() {
        return Err(Finding::new(Fault::BadError, format!("names no file: {error}")));
    }
    Ok(if file == damaged { Names::Damaged } else { Names::Other })
}

fn look_around(fixture: &Fixture, injury: &Injury, db: &Db) -> Verdict<Outcome> {
    let check = db.check();
    let is_clean = check.as_ref().is_ok_and(lithedb::CheckReport::is_ok);
    match read_all(db, Detail::Digests) {
        Ok(found) => match fixture.timeline.judge(&found, Survival::Durable) {
            Ok(moment) if moment.commit == fixture.timeline.acknowledged() => {
                Ok(if is_clean { Outcome::Harmless } else { Outcome::HarmlessAndSeen })
            }
            Ok(_) => Ok(Outcome::UnsyncedTailLost),
            Err(finding) if finding.fault == Fault::Lost && may_roll_back(fixture, injury) => {
                Ok(Outcome::LogRolledBack)
            }
            Err(finding) => Err(Finding::new(Fault::Silent, finding.to_string())),
        },
        Err(error) => {
            let names = refusal(&error, injury.path())?;
            expect_rest_right(fixture, injury, db)?;
            match check {
                Ok(report) if report.is_ok() => {
                    let what = format!("the check saw nothing of {error}");
                    return Err(Finding::new(Fault::Silent, what));
                }
                Ok(report) => expect_problems_name_files(fixture, &report.problems)?,
                Err(_) => {}
            }
            Ok(match names {
                Names::Damaged => Outcome::RefusedToRead,
                Names::Other => Outcome::RefusedToReadOver(Other),
            })
        }
    }
}

/// Whether the injury takes the end of the log back to an earlier state, as a whole. A log that
/// was closed is remembered by the manifest.
pub(super) fn may_roll_back(fixture: &Fixture, injury: &Injury) -> bool {
    let logs = fixture.files().into_iter().map(|(path, _)| path);
    let newest = logs.filter(|path| path.extension().is_some_and(|end| end == "wal")).max();
    let is_whole_sectors = matches!(
        injury,
        Injury::Filled(_, _, 0)
            | Injury::OldSector(..)
            | Injury::OldFile(..)
            | Injury::SwappedSectors(..)
            | Injury::Filled(..)
            | Injury::Doubled(..)
    );
    fixture.ending == Ending::Killed && is_whole_sectors && newest.as_deref() == Some(injury.path())
}

/// Where reading does not fail, it must be right: point by point.
fn expect_rest_right(fixture: &Fixture, injury: &Injury, db: &Db) -> Verdict {
    let silent = |what: String| Err(Finding::new(Fault::Silent, what));
    for (name, id) in fixture.timeline.catalog() {
        let id = id.expect("the fixture's keyspaces were acknowledged");
        let Ok(keyspace) = db.keyspace(name) else {
            return silent(format!("the keyspace {name:?} is gone"));
        };
        let rows = rows_at(&fixture.timeline.rows(id), now_of(db));
        for (key, row) in &rows {
            match keyspace.get(key) {
                Ok(Some(value)) if *value == *row.value => {}
                Ok(Some(value)) => {
                    return silent(format!("{} is {}", shown(key), shown(&value)));
                }
                Ok(None) => return silent(format!("{} is not found", shown(key))),
                Err(error) => drop(refusal(&error, injury.path())?),
            }
        }
        for key in ABSENT_KEYS {
            match keyspace.get(key.bytes()) {
                Ok(None) => {}
                Ok(Some(_)) => return silent(format!("{key:?} is found")),
                Err(error) => drop(refusal(&error, injury.path())?),
            }
        }
        expect_walk_right(&rows, keyspace.iter(), Way::Forth)?;
        expect_walk_right(&rows, keyspace.iter().rev(), Way::Back)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forth,
    Back,
}

/// Up to the first error, every row must be the next one.
fn expect_walk_right(
    rows: &Rows,
    mut walk: impl Iterator<Item = lithedb::Result<lithedb::Entry>>,
    way: Way,
) -> Verdict {
    let mut expected: Vec<_> = rows.iter().collect();
    if way == Way::Back {
        expected.reverse();
    }
    for (key, row) in expected {
        match walk.next() {
            Some(Ok(entry)) if *entry.key == **key && *entry.value == *row.value => {}
            Some(Err(_)) => return Ok(()),
            Some(Ok(entry)) => {
                let what = format!("a walk shows {} for {}", shown(&entry.key), shown(key));
                return Err(Finding::new(Fault::Silent, what));
            }
            None => {
                let what = format!("a walk ends before {}", shown(key));
                return Err(Finding::new(Fault::Silent, what));
            }
        }
    }
    Ok(())
}

fn expect_problems_name_files(fixture: &Fixture, problems: &[String]) -> Verdict {
    let files = fixture.files();
    let names_one = |problem: &String| {
        files.iter().any(|(path, _)| problem.contains(&path.display().to_string()))
    };
    match problems.iter().any(names_one) {
        true => Ok(()),
        false => Err(Finding::new(Fault::BadError, format!("no file is named: {problems:?}"))),
    }
}
