//! Rot in a space (P4): every byte of every file changed, files cut short, and missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lithedb::Error;
use lithedb::flex_space::Journal;
use lithedb::storage::{SimStorage, Storage};

use super::compare::{read_all, read_snapshot};
use super::model::Model;
use super::ops::draw;
use super::session::{Session, SharedHistory, Trouble};
use super::{SPACE_PATH, Setup, SpaceOp};
use crate::finding::{Fault, Finding, Verdict};
use crate::ledger::Ledger;
use crate::parallel::{run_cases, survive};
use crate::random::{Random, seed_of};

/// A small space that was closed.
pub struct SpaceFixture {
    seed: u64,
    setup: Setup,
    storage: SimStorage,
    model: Model,
}

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Injury {
    Flip { offset: u64, bit: u8 },
    Cut { len: u64 },
    Remove,
}

impl SpaceFixture {
    /// A space after `op_count` operations.
    ///
    /// # Errors
    /// What is wrong with it already.
    pub fn build(seed: u64, op_count: usize) -> Verdict<SpaceFixture> {
        let setup = Setup { journal: Journal::On, ..Setup::numbered(seed % 64) };
        let storage = SimStorage::new(seed);
        let history = SharedHistory::default();
        let mut session = Session::open(setup, Arc::new(storage.clone()), &history)?;
        let mut random = Random::new(seed_of(&[seed, 2]));
        for _ in 0..op_count {
            session.run(&draw(&mut random)).map_err(Trouble::into_finding)?;
        }
        session.run(&SpaceOp::Close).map_err(Trouble::into_finding)?;
        drop(session);
        let space = setup.open(Arc::new(storage.clone()));
        let space = space.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
        let model = read_all(&space);
        let model = model.map_err(|error| Finding::new(Fault::FailedOpen, error.to_string()))?;
        space.close().map_err(|error| Finding::new(Fault::Refused, error.to_string()))?;
        Ok(SpaceFixture { seed, setup, storage, model })
    }

    /// Injures every file in every way, at every `stride`th byte, and notes what is wrong.
    pub fn run(&self, stride: u64, threads: usize, ledger: &Ledger) {
        let mut cases: Vec<(PathBuf, Injury)> = Vec::new();
        for (path, len) in self.storage.files() {
            for offset in (0..len).step_by(stride as usize) {
                let flip = Injury::Flip { offset, bit: (offset % 8) as u8 };
                cases.push((path.clone(), flip));
                if offset.is_multiple_of(61) {
                    cases.push((path.clone(), Injury::Cut { len: offset }));
                }
            }
            cases.push((path, Injury::Remove));
        }
        run_cases(threads, cases.len() as u64, |number| {
            let (path, injury) = &cases[number as usize];
            ledger.count("injuries of a space");
            match survive(|| self.try_one(path, *injury)) {
                Ok(outcome) => ledger.count(outcome),
                Err(finding) => ledger.note(finding.at(&format!("{injury:?} of {path:?}")), || {
                    format!("space --flips {:#x} --stride {stride}", self.seed)
                }),
            }
            true
        });
    }

    fn try_one(&self, path: &Path, injury: Injury) -> Verdict<&'static str> {
        let storage = self.storage.duplicate();
        let injured = match injury {
            Injury::Flip { offset, bit } => storage.flip_bit(path, offset, bit),
            Injury::Cut { len } => storage.truncate(path, len),
            Injury::Remove => storage.remove_file(path),
        };
        injured.map_err(|error| Finding::new(Fault::Misuse, error.to_string()))?;
        let seen = self.setup.open_read_only(Arc::new(storage.duplicate()));
        let seen = seen.and_then(|snapshot| read_snapshot(&snapshot));
        self.judge(path, seen)?;
        let found = self.setup.open(Arc::new(storage)).and_then(|space| read_all(&space));
        self.judge(path, found)
    }

    fn judge(&self, path: &Path, found: lithedb::Result<Model>) -> Verdict<&'static str> {
        match found {
            Ok(found) if found == self.model => Ok("harmless"),
            Ok(_) => Err(Finding::new(Fault::Silent, "another state, and no error")),
            Err(Error::Corruption { file, .. } | Error::FormatVersion { file, .. }) => {
                if file == path || file.parent() == Some(Path::new(SPACE_PATH)) {
                    return Ok("reported");
                }
                Err(Finding::new(Fault::BadError, format!("{file:?} is blamed")))
            }
            Err(error) => Err(Finding::new(Fault::BadError, error.to_string())),
        }
    }
}
