//! The ledger of a campaign: what was tried, what was found, and the command that repeats it; told
//! while the campaign goes on, to whoever writes it down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lithedb::base::{Clock as _, SystemClock};

use crate::finding::{Fault, Finding};

/// Findings whose story is kept, of each kind.
const STORIES_PER_FAULT_MAX: usize = 5;
/// Findings that were cut down whose story is kept.
const SMALLER_STORIES_MAX: usize = 20;
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
    /// Who is told while the campaign goes on.
    listener: Option<Listener>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    counts: BTreeMap<&'static str, u64>,
    faults: BTreeMap<Fault, u64>,
    stories: Vec<Story>,
    /// How many of these are of findings that were cut down.
    smaller_stories: usize,
    /// When the listener is told of counts again.
    next_telling: Duration,
}

/// What is told of a campaign while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum News<'n> {
    /// Something is wrong: one of the first of its kind, or one of these, cut down.
    Found(&'n Story),
    /// So much was counted, in one line.
    Counted(&'n str),
}

struct Listener {
    clock: SystemClock,
    every: Duration,
    hears: Box<dyn Fn(News<'_>) + Send + Sync>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener(every {:?})", self.every)
    }
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
        Ledger { program, listener: None, book: Mutex::default() }
    }

    /// The same, which tells of findings when they are noted, and of counts as often as this, while
    /// there are any: so that what was counted counts, whatever becomes of the program.
    #[must_use]
    pub fn telling(
        self,
        every: Duration,
        hears: impl Fn(News<'_>) + Send + Sync + 'static,
    ) -> Ledger {
        let listener = Listener { clock: SystemClock::new(), every, hears: Box::new(hears) };
        self.book().next_telling = every;
        Ledger { listener: Some(listener), ..self }
    }

    /// One more of what `what` names.
    pub fn count(&self, what: &'static str) {
        self.count_many(what, 1);
    }

    /// Several more of what `what` names.
    pub fn count_many(&self, what: &'static str, count: u64) {
        let mut book = self.book();
        *book.counts.entry(what).or_default() += count;
        let Some(Listener { clock, every, hears }) = &self.listener else { return };
        let now = clock.monotonic();
        if now < book.next_telling {
            return;
        }
        book.next_telling = now + *every;
        let line = book.line();
        drop(book); // Who hears of it may ask.
        hears(News::Counted(&line));
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
            let story = Story { finding, repeat: repeat() };
            book.stories.push(story.clone());
            drop(book);
            self.tell(&story);
        }
    }

    /// What was noted already goes wrong with less as well. It is not counted again.
    pub fn note_smaller(&self, story: &Story) {
        let mut book = self.book();
        if book.smaller_stories < SMALLER_STORIES_MAX {
            book.smaller_stories += 1;
            book.stories.push(story.clone());
            drop(book);
            self.tell(story);
        }
    }

    fn tell(&self, story: &Story) {
        if let Some(listener) = &self.listener {
            (listener.hears)(News::Found(story));
        }
    }

    /// Adds what another one has. Nobody is told: whoever listens to that was.
    pub fn take_in(&self, other: &Ledger) {
        let (counts, faults, stories) = {
            let other = other.book();
            (other.counts.clone(), other.faults.clone(), other.stories.clone())
        };
        let mut book = self.book();
        for (what, count) in counts {
            *book.counts.entry(what).or_default() += count;
        }
        let found_before: u64 = book.faults.values().sum();
        for (fault, count) in faults {
            *book.faults.entry(fault).or_default() += count;
        }
        if found_before < STORIES_PER_FAULT_MAX as u64 {
            book.stories.extend(stories);
        }
    }

    /// All counts and the number of findings, in one line.
    #[must_use]
    pub fn line(&self) -> String {
        self.book().line()
    }

    /// What the program is to be called with to see a finding again.
    #[must_use]
    pub fn command_of(&self, story: &Story) -> String {
        format!("{} {}", self.program, story.repeat)
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

impl Book {
    fn line(&self) -> String {
        let counted = self.counts.iter().map(|(what, count)| format!("{count} {what}, "));
        let found: u64 = self.faults.values().sum();
        format!("{}{found} findings", counted.collect::<String>())
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
            writeln!(f, "\n{}\n  {}", story.finding, self.command_of(story))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn finding(what: &str) -> Finding {
        Finding::new(Fault::Lost, what)
    }

    /// A ledger that tells at each count, and what it has told.
    fn telling() -> (Ledger, Arc<Mutex<Vec<String>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let ledger = Ledger::new().telling(Duration::ZERO, move |news| {
            hears.lock().unwrap().push(match news {
                News::Found(story) => format!("{} {}", story.finding.what, story.repeat),
                News::Counted(line) => line.to_owned(),
            });
        });
        (ledger, told)
    }

    #[test]
    fn what_happens_is_told_when_it_does() {
        let (ledger, told) = telling();
        ledger.count_many("states", 3);
        ledger.note(finding("x"), || "crash --run 1".to_owned());
        let repeat = "crash --run 1 --keep 0".to_owned();
        ledger.note_smaller(&Story { finding: finding("y"), repeat });
        ledger.count("states");
        let expected = [
            "3 states, 0 findings",
            "x crash --run 1",
            "y crash --run 1 --keep 0",
            "4 states, 1 findings",
        ];
        assert_eq!(*told.lock().unwrap(), expected);
        assert_eq!(ledger.finding_count(), 1);
    }

    #[test]
    fn nothing_is_told_of_counts_before_it_is_time() {
        let hears = |news: News<'_>| assert!(matches!(news, News::Found(_)), "{news:?}");
        let ledger = Ledger::new().telling(Duration::from_secs(3600), hears);
        ledger.count("states");
        ledger.note(finding("x"), String::new);
    }

    #[test]
    fn one_takes_in_what_another_one_has() {
        let (total, told) = telling();
        let run = Ledger::new();
        run.count_many("states", 3);
        run.note(finding("x"), || "crash --run 1".to_owned());
        total.take_in(&run);
        total.take_in(&run);
        assert_eq!(total.line(), "6 states, 2 findings");
        assert_eq!(total.stories().len(), 2);
        assert_eq!(total.command_of(&total.stories()[0]), "lithe-sim crash --run 1");
        assert!(told.lock().unwrap().is_empty());
    }
}
