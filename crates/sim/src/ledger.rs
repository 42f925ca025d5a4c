//! The ledger of a campaign: what was tried, what was found, and the command that repeats it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::finding::{Fault, Finding};

/// Findings whose story is kept, of each kind.
const STORIES_PER_FAULT_MAX: usize = 5;
/// What runs count so that a campaign shows that segments had holes.
pub const HOLES: &str = "holes made in segments";
/// The same for value files.
pub const VALUE_BYTES: &str = "bytes written to value files";
/// Values that were moved out of files to be emptied.
pub const VALUES_MOVED: &str = "values moved";
/// Value files that were removed.
pub const VALUE_FILES_REMOVED: &str = "value files removed";

/// Counts and findings. Shared by all threads of a campaign.
#[derive(Debug)]
pub struct Ledger {
    /// What is to be called to see a finding again.
    program: &'static str,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    counts: BTreeMap<&'static str, u64>,
    faults: BTreeMap<Fault, u64>,
    stories: Vec<Story>,
}

/// A finding and the arguments of the program that show it again.
#[derive(Clone, Debug)]
pub struct Story {
    /// What is wrong.
    pub finding: Finding,
    /// Arguments of the program.
    pub repeat: String,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::of_program("lithe-sim")
    }
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// An empty ledger of campaigns that this program runs.
    #[must_use]
    pub fn of_program(program: &'static str) -> Ledger {
        Ledger { program, book: Mutex::default() }
    }

    /// One more of what `what` names.
    pub fn count(&self, what: &'static str) {
        self.count_many(what, 1);
    }

    /// Several more of what `what` names.
    pub fn count_many(&self, what: &'static str, count: u64) {
        *self.book().counts.entry(what).or_default() += count;
    }

    /// How many of what `what` names there were.
    #[must_use]
    pub fn counted(&self, what: &str) -> u64 {
        self.book().counts.get(what).copied().unwrap_or(0)
    }

    /// Something is wrong.
    pub fn note(&self, finding: Finding, repeat: impl FnOnce() -> String) {
        let mut book = self.book();
        let count = book.faults.entry(finding.fault).or_default();
        *count += 1;
        if *count <= STORIES_PER_FAULT_MAX as u64 {
            book.stories.push(Story { finding, repeat: repeat() });
        }
    }

    /// How many findings there were.
    #[must_use]
    pub fn finding_count(&self) -> u64 {
        self.book().faults.values().sum()
    }

    /// The first findings of each kind.
    #[must_use]
    pub fn stories(&self) -> Vec<Story> {
        self.book().stories.clone()
    }

    /// Panics with the whole ledger if anything is wrong: for tests.
    ///
    /// # Panics
    /// When there are findings.
    pub fn assert_clean(&self) {
        assert!(self.finding_count() == 0, "\n{self}");
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let book = self.book();
        for (what, count) in &book.counts {
            writeln!(f, "{count:>12}  {what}")?;
        }
        writeln!(f, "{:>12}  findings", book.faults.values().sum::<u64>())?;
        for (fault, count) in &book.faults {
            writeln!(f, "{count:>12}  {fault:?}")?;
        }
        for story in &book.stories {
            writeln!(f, "\n{}\n  {} {}", story.finding, self.program, story.repeat)?;
        }
        Ok(())
    }
}
