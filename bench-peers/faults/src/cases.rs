//! What was met, case by case: what lies in `cases.jsonl`.

use crate::reading::Reading;
use crate::script::Ending;
use crate::watch::Strike;
use programs::EngineAbout;
use serde::Serialize;

/// Everything that a run has met.
#[derive(Debug, Default)]
pub struct Cases {
    /// Engines, in the order in which they ran.
    pub engines: Vec<EngineAbout>,
    /// Their cases.
    pub cases: Vec<Case>,
    /// What was not run: engine, part and why.
    pub skipped: Vec<(String, String, String)>,
}

impl Cases {
    /// Notes that something was not run.
    pub fn skip(&mut self, engine: &str, part: &str, why: &str) {
        self.skipped.push((engine.into(), part.into(), why.into()));
    }
}

/// One case.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "part", rename_all = "lowercase")]
pub enum Case {
    /// One bit of one file.
    Flip(Flip),
    /// One sync that fails.
    Sync(SyncCase),
    /// A disk that fills up.
    Full(FullCase),
}

impl Case {
    /// Of which engine.
    pub fn engine(&self) -> &str {
        match self {
            Case::Flip(flip) => &flip.engine,
            Case::Sync(sync) => &sync.engine,
            Case::Full(full) => &full.engine,
        }
    }
}

/// What came of a flipped bit: the worst of all answers, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Something was served, without an error, that was never written there.
    Wrong,
    /// Something that was written was said, without an error, not to be there.
    Missing,
    /// The program ended by itself: a panic, an abort, a signal.
    Crash,
    /// It did not answer in time.
    Hang,
    /// The store was not opened, with an error.
    RefusedAtOpen,
    /// It was opened, some reads gave an error, and all others were right.
    RefusedAtRead,
    /// Everything was right: the bit says nothing.
    Right,
}

impl Verdict {
    /// Of what reading has shown.
    pub fn of(reading: &Reading) -> Verdict {
        match reading {
            reading if reading.wrong > 0 => Verdict::Wrong,
            reading if reading.missing > 0 => Verdict::Missing,
            reading if reading.ended.is_some() => Verdict::Crash,
            reading if reading.is_late => Verdict::Hang,
            reading if reading.refused > 0 => Verdict::RefusedAtRead,
            _ => Verdict::Right,
        }
    }
}

/// One bit of one file.
#[derive(Clone, Debug, Serialize)]
pub struct Flip {
    /// Of which engine.
    pub engine: String,
    /// Its number.
    pub case: u64,
    /// How the store was left.
    pub ending: Ending,
    /// Below the directory of the store.
    pub file: String,
    /// Bytes from its start.
    pub offset: u64,
    /// The lowest is 0.
    pub bit: u8,
    /// Whether it is in a block of zeros.
    pub is_in_zeros: bool,
    /// What came of it.
    pub verdict: Verdict,
    /// The story.
    pub what: String,
}

/// One sync that fails.
#[derive(Clone, Debug, Serialize)]
pub struct SyncCase {
    /// Of which engine.
    pub engine: String,
    /// Its number: it is also that of the sync, of those behind the first entries.
    pub case: u64,
    /// What failed; nothing if the run had fewer syncs.
    pub strike: Option<Strike>,
    /// Commits that were acknowledged in all.
    pub acknowledged: u64,
    /// .. of these, the one that was under way when the sync failed,
    pub acknowledged_meanwhile: u64,
    /// .. and those that were begun behind that.
    pub acknowledged_behind: u64,
    /// Commits that gave an error.
    pub refused: u64,
    /// The first of these errors.
    pub error: String,
    /// How the program ended by itself, if it did.
    pub ended: Option<String>,
    /// Whether it did not answer in time.
    pub is_late: bool,
    /// Why the store was not opened again, if it was not.
    pub not_reopened: Option<String>,
    /// What was there when it was opened again, after the process was killed.
    pub reading: Option<Reading>,
}

/// A disk that fills up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FullCase {
    /// Of which engine.
    pub engine: String,
    /// Its number.
    pub case: u64,
    /// The size of the disk.
    pub mib: u64,
    /// Commits that were acknowledged before the first refusal,
    pub acknowledged: u64,
    /// .. which said this.
    pub error: String,
    /// Of the writes behind it, those that went well all the same.
    pub written_when_full: u64,
    /// What could be read then.
    pub read_when_full: Option<Reading>,
    /// Deletions that went well then,
    pub deleted: u64,
    /// .. and that did not.
    pub not_deleted: u64,
    /// Milliseconds from there being room again to the first write that went well.
    pub resumed_after_ms: Option<u64>,
    /// How the program ended by itself, if it did.
    pub ended: Option<String>,
    /// Whether it did not answer in time.
    pub is_late: bool,
    /// Why the store was not opened again, if it was not.
    pub not_reopened: Option<String>,
    /// What was there when it was opened again, with room, after the process was killed.
    pub reading: Option<Reading>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_answer_is_the_verdict() {
        let mut reading = Reading::default();
        assert_eq!(Verdict::of(&reading), Verdict::Right);
        reading.refused = 1;
        assert_eq!(Verdict::of(&reading), Verdict::RefusedAtRead);
        reading.is_late = true;
        assert_eq!(Verdict::of(&reading), Verdict::Hang);
        reading.ended = Some("signal".into());
        assert_eq!(Verdict::of(&reading), Verdict::Crash);
        reading.missing = 1;
        assert_eq!(Verdict::of(&reading), Verdict::Missing);
        reading.wrong = 1;
        assert_eq!(Verdict::of(&reading), Verdict::Wrong);
        assert!(Verdict::Wrong < Verdict::Missing && Verdict::RefusedAtRead < Verdict::Right);
    }

    #[test]
    fn a_case_is_one_object_with_its_part() {
        let case = Case::Full(FullCase { engine: "x".into(), mib: 64, ..FullCase::default() });
        let json = serde_json::to_value(&case).unwrap();
        assert_eq!((&json["part"], &json["mib"]), (&"full".into(), &64.into()));
        assert_eq!(case.engine(), "x");
    }
}
