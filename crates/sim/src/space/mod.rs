//! Flexible spaces: random operations against a vector of bytes and tags, with reopenings; crashes
//! at every mutation; rot; calls that fail.
//!
//! What must hold
//! - P1  A space reads as the vector does: bytes, tags, length, handles, snapshots, differences.
//! - P2  After a crash it is the vector of the last sync, or of the one that was under way.
//! - P3  An operation that fails has changed nothing; a failed sync is one of P2's.
//! - P4  Rot is an error that names the file, or harmless.
//!
//! | file | what |
//! |---|---|
//! | `ops` | operations, drawn from a seed |
//! | `model` | the vector |
//! | `session` | a space and its vector, step by step |
//! | `compare` | reading one in every way and comparing it with the other |
//! | `crash` | the campaign, with crashes within recoveries |
//! | `damage` | every byte flipped, files cut and missing |
//! | `faults` | every call fails; full disks |
//! | `canary` | planted mistakes |

pub mod canary;
mod compare;
pub mod crash;
pub mod damage;
pub mod faults;
mod model;
mod ops;
mod session;

use std::path::Path;
use std::sync::Arc;

use lithedb::base::SeededEntropy;
use lithedb::flex_space::{FlexSpace, Journal, SpaceOptions, SpaceSnapshot};
use lithedb::storage::{SimStorage, Storage};

use crate::finding::{Verdict, expect_no_misuse};
use crate::ledger::Ledger;
use crate::parallel::survive;
use crate::random::{Random, seed_of};

pub use crash::SpaceCrashRun;
pub use model::Model;
use ops::{SpaceOp, draw};
use session::{Session, SharedHistory};

/// Where every simulated space is.
const SPACE_PATH: &str = "/space";

/// How a space is opened: small, so that segments fill up, die and are collected within tens of
/// operations.
#[derive(Clone, Copy, Debug)]
struct Setup {
    seed: u64,
    journal: Journal,
    segment_size: u64,
    garbage_fraction: Option<f64>,
    open_files: usize,
}

impl Setup {
    fn numbered(number: u64) -> Setup {
        let mut random = Random::new(seed_of(&[number, 0x59A]));
        Setup {
            seed: number,
            journal: random.pick(&[Journal::On, Journal::On, Journal::On, Journal::Off]),
            segment_size: random.pick(&[16 << 10, 24 << 10, 64 << 10]),
            garbage_fraction: random.pick(&[None, Some(0.3), Some(0.6)]),
            open_files: random.pick(&[1, 2, 64]),
        }
    }

    fn open(&self, storage: Arc<dyn Storage>) -> lithedb::Result<FlexSpace> {
        self.options(storage).open(Path::new(SPACE_PATH))
    }

    fn open_read_only(&self, storage: Arc<dyn Storage>) -> lithedb::Result<SpaceSnapshot> {
        self.options(storage).open_read_only(Path::new(SPACE_PATH))
    }

    fn options(&self, storage: Arc<dyn Storage>) -> SpaceOptions {
        FlexSpace::options()
            .storage(storage)
            .entropy(Arc::new(SeededEntropy::new(self.seed)))
            .journal(self.journal)
            .segment_size(self.segment_size)
            .garbage_fraction(self.garbage_fraction)
            .open_files(self.open_files)
    }
}

/// Random operations with reopenings, everything compared with the vector.
#[derive(Clone, Copy, Debug)]
pub struct SpaceModelRun {
    /// Decides everything.
    pub seed: u64,
    /// How many operations it has.
    pub op_count: usize,
}

impl SpaceModelRun {
    /// Runs it, and notes what is wrong.
    pub fn run(&self, ledger: &Ledger) {
        ledger.count("runs of a space against a vector");
        if let Err(finding) = survive(|| self.try_run(ledger)) {
            ledger.note(finding, || {
                format!("space --model {:#x} --operations {}", self.seed, self.op_count)
            });
        }
    }

    fn try_run(&self, ledger: &Ledger) -> Verdict {
        let storage = SimStorage::new(self.seed);
        let setup = Setup::numbered(self.seed % 64);
        let history = SharedHistory::default();
        let mut session = Session::open(setup, Arc::new(storage.clone()), &history)?;
        let mut random = Random::new(seed_of(&[self.seed, 1]));
        for number in 0..self.op_count {
            let op = draw(&mut random);
            let done = session.run(&op);
            done.map_err(|trouble| trouble.into_finding().at(&format!("{number}: {op:?}")))?;
            session
                .compare(&mut random)
                .map_err(|finding| finding.at(&format!("after operation {number}, {op:?}")))?;
        }
        session.expect_check_ok()?;
        let stats = session.stats();
        ledger.count_many("segments of spaces removed", stats.segments_removed);
        let with_syncs = stats.collected_with_syncs;
        ledger.count_many("collections with syncs", with_syncs.rounds);
        ledger.count_many("checkpoints of spaces", stats.checkpoints);
        session.run(&SpaceOp::Close).map_err(session::Trouble::into_finding)?;
        expect_no_misuse(&storage)
    }
}
