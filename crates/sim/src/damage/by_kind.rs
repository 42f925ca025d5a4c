//! A run of damage: the databases of a seed, one closed and one killed, damaged in all ways of one
//! kind.

use std::sync::Arc;

use lithedb::Structure;

use super::{
    Ending, Fixture, Injury, Thoroughness, flips, misplacements, run, run_one, run_repair,
    run_repairs, sectors, truncations,
};
use crate::finding::Verdict;
use crate::ledger::Ledger;
use crate::setup::Setup;

/// What is done to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// Bits are flipped.
    Flips,
    /// Files are cut, and extended.
    Truncations,
    /// Sectors are zeroed, filled, doubled, swapped, and as they were earlier.
    Sectors,
    /// Files are missing, empty, old, swapped and foreign.
    Files,
    /// Some of all that, and what was damaged is repaired.
    Repairs,
}

impl DamageKind {
    /// All of them.
    pub const ALL: [DamageKind; 5] = [
        DamageKind::Flips,
        DamageKind::Truncations,
        DamageKind::Sectors,
        DamageKind::Files,
        DamageKind::Repairs,
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DamageKind::Flips => "flips",
            DamageKind::Truncations => "truncations",
            DamageKind::Sectors => "sectors",
            DamageKind::Files => "files",
            DamageKind::Repairs => "repairs",
        }
    }

    /// The one that is called so.
    #[must_use]
    pub fn named(name: &str) -> Option<DamageKind> {
        DamageKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// At every how manieth byte, if nothing is said.
    #[must_use]
    pub fn usual_stride(self) -> u64 {
        if self == DamageKind::Repairs { 101 } else { 1 }
    }
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct DamageRun {
    /// What is done.
    pub kind: DamageKind,
    /// Decides everything else.
    pub seed: u64,
    /// How many operations the databases have seen.
    pub op_count: usize,
    /// Only at every so manieth byte, where that is asked.
    pub stride: u64,
    /// Whether the databases are encrypted.
    pub is_encrypted: bool,
    /// The structure of all keyspaces, if it is to be one.
    pub structure: Option<Structure>,
    /// Only the database that ended so, if given.
    pub ending: Option<Ending>,
    /// Only this one, if given.
    pub case: Option<u64>,
}

impl DamageRun {
    /// Runs it, and notes what comes of it.
    pub fn run(&self, threads: usize, ledger: &Arc<Ledger>) {
        for ending in Ending::ALL {
            if self.ending.is_some_and(|only| only != ending) {
                continue;
            }
            let of_one = DamageRun { ending: Some(ending), ..*self };
            match of_one.fixtures(ending) {
                Ok((fixture, other)) => of_one.damage(&fixture, &other, threads, ledger),
                Err(finding) => ledger.note(finding.at("the fixture"), || of_one.command()),
            }
        }
    }

    /// What the program is to be called with for this run.
    #[must_use]
    pub fn command(&self) -> String {
        let DamageRun { kind, seed, op_count, stride, .. } = self;
        let ending = self.ending.map(|ending| format!(" --ending {}", ending.number()));
        let encrypted = if self.is_encrypted { " --encrypted 1" } else { "" };
        let case = self.case.map(|case| format!(" --case {case}"));
        let (ending, case) = (ending.unwrap_or_default(), case.unwrap_or_default());
        let structure = self.structure.map(|of| format!(" --structure {}", of.to_u8()));
        let structure = structure.unwrap_or_default();
        let sizes = format!("--operations {op_count} --stride {stride}");
        format!("{} --seed {seed} {sizes}{ending}{encrypted}{structure}{case}", kind.name())
    }

    /// The database, and one that has nothing to do with it.
    fn fixtures(&self, ending: Ending) -> Verdict<(Fixture, Fixture)> {
        let build = |seed| {
            let mut setup = Setup::numbered(seed);
            if let Some(structure) = self.structure {
                setup = setup.all_of(structure);
            }
            if self.is_encrypted {
                setup = setup.encrypted();
            }
            Fixture::build_as(setup, seed, ending, self.op_count)
        };
        Ok((build(self.seed)?, build(self.seed ^ 1 << 32)?))
    }

    fn damage(&self, fixture: &Fixture, other: &Fixture, threads: usize, ledger: &Arc<Ledger>) {
        let bytes: u64 = fixture.files().iter().map(|(_, size)| size).sum();
        ledger.count_many("bytes of the files that are damaged", bytes);
        let (injuries, command) = (self.injuries(fixture, other), self.command());
        let repairs = self.kind == DamageKind::Repairs;
        match self.case.map(|case| injuries.get(case as usize)) {
            Some(None) => {} // There are not so many.
            Some(Some(injury)) if repairs => run_repair(fixture, injury, ledger, &command),
            Some(Some(injury)) => run_one(fixture, injury, ledger, &command),
            None if repairs => run_repairs(fixture, &injuries, threads, ledger, &command),
            None => run(fixture, &injuries, threads, ledger, &command),
        }
    }

    fn injuries(&self, fixture: &Fixture, other: &Fixture) -> Vec<Injury> {
        match self.kind {
            DamageKind::Flips => flips(fixture, self.stride, Thoroughness::AllBits),
            DamageKind::Truncations => truncations(fixture, self.stride),
            DamageKind::Sectors => sectors(fixture),
            DamageKind::Files => misplacements(fixture, other),
            DamageKind::Repairs => {
                let mut all = flips(fixture, self.stride, Thoroughness::OneBit);
                all.extend(truncations(fixture, self.stride * 8));
                all.extend(sectors(fixture));
                all.extend(misplacements(fixture, other));
                all
            }
        }
    }
}
