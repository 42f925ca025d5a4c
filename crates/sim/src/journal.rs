//! The journal of campaigns: a file that gets a line for each thing when it happens, so that a
//! campaign that is broken off, by whatever, counts for what it has done until then.
//!
//! A line is the time in UTC, the number of the process, what it is, and the rest, as in
//! `2026-11-26T06:49:31Z 4711 ran lithe-sim crash --run 0x1: 5000 crash states, 0 findings; 9.1 s`.
//! It is appended by one write: several programs may add to one file.

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lithedb::base::{Clock as _, SystemClock};

use crate::ledger::{Ledger, News};

/// So often a line says what was counted up to then.
pub const TOLD_EVERY: Duration = Duration::from_secs(60);
/// More of a line is not written: stories may be as long as a run.
const LINE_LEN_MAX: usize = 4000;
const MILLIS_PER_DAY: u64 = 86_400_000;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A campaign begins.
    Begun,
    /// So much of it was done.
    SoFar,
    /// Something was found.
    Found,
    /// A run of it is over.
    Ran,
    /// It is over.
    Ended,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Entry::Begun => "begun",
            Entry::SoFar => "so far",
            Entry::Found => "found",
            Entry::Ran => "ran",
            Entry::Ended => "ended",
        })
    }
}

/// Writes lines, to a file or nowhere.
#[derive(Debug)]
pub struct Journal {
    // Constant.
    file: Option<File>,
    clock: SystemClock,
    // Guarded by itself.
    /// The first thing that went wrong.
    failure: Mutex<Option<io::Error>>,
}

impl Journal {
    /// One that nobody reads.
    #[must_use]
    pub fn nowhere() -> Journal {
        Journal { file: None, clock: SystemClock::new(), failure: Mutex::new(None) }
    }

    /// One that adds to this file, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn append_to(path: &Path) -> io::Result<Journal> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| {
            io::Error::new(error.kind(), format!("could not add to {}: {error}", path.display()))
        })?;
        Ok(Journal { file: Some(file), ..Journal::nowhere() })
    }

    /// Adds a line. When that fails, [`Journal::finish`] says so: the campaign goes on.
    pub fn add(&self, entry: Entry, text: &str) {
        let Some(mut file) = self.file.as_ref() else { return };
        let (time, process) = (time_text(self.clock.wall_millis()), std::process::id());
        let line = format!("{time} {process} {entry} {}\n", one_line(text));
        if let Err(error) = file.write_all(line.as_bytes()) {
            self.failure().get_or_insert(error);
        }
    }

    /// A ledger of what `command` does, whose news are added here, and handed to `say` as well, to
    /// be shown to people.
    #[must_use]
    pub fn ledger(
        self: &Arc<Self>,
        program: &'static str,
        command: &str,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Ledger {
        let (journal, command) = (Arc::clone(self), command.to_owned());
        Ledger::of_program(program).telling(TOLD_EVERY, move |news| match news {
            News::Found(story) => {
                let again = format!("{program} {}", story.repeat);
                say(&format!("found {}\n  {again}", story.finding));
                // The command in front: what is long is cut short.
                journal.add(Entry::Found, &format!("{again}: {}", story.finding));
            }
            News::Counted(line) => {
                let line = format!("{program} {command}: {line}");
                say(&format!("so far {line}"));
                journal.add(Entry::SoFar, &line);
            }
        })
    }

    /// Whether all lines were added.
    ///
    /// # Errors
    /// The first that adding one has met.
    pub fn finish(&self) -> io::Result<()> {
        self.failure().take().map_or(Ok(()), Err)
    }

    fn failure(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A word as a shell takes it, whatever is in it.
#[must_use]
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:=@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// `2026-11-26T06:49:31Z`, of milliseconds since 1970.
fn time_text(millis: u64) -> String {
    let (year, month, day) = date(millis / MILLIS_PER_DAY);
    let seconds = millis % MILLIS_PER_DAY / 1000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the Gregorian calendar, of days since 1970: year by year, some fifty.
fn date(mut days: u64) -> (u64, usize, u64) {
    let mut year: u64 = 1970;
    loop {
        let is_of = |years: u64| year.is_multiple_of(years);
        let february = if is_of(4) && (!is_of(100) || is_of(400)) { 29 } else { 28 };
        let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for (month, len) in months.into_iter().enumerate() {
            if days < len {
                return (year, month + 1, days + 1);
            }
            days -= len;
        }
        year += 1;
    }
}

/// The same in one line, not too long.
fn one_line(text: &str) -> String {
    let mut line: String = text.chars().take(LINE_LEN_MAX).collect();
    if line.len() < text.len() {
        line.push_str(" ..");
    }
    line.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Fault, Finding};

    /// A file of its own, gone with the test.
    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let name = format!("lithe-sim-journal-{}-{name}", std::process::id());
            Place(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0); // It may not be there.
        }
    }

    #[test]
    fn lines_are_there_at_once_and_behind_those_of_before() {
        let place = Place::new("lines");
        for number in 0..2 {
            let journal = Arc::new(Journal::append_to(&place.0).unwrap());
            journal.add(Entry::Begun, "lithe-sim crash\n--states 5");
            let ledger = journal.ledger("lithe-sim", "crash --states 5", |_| {});
            ledger.note(Finding::new(Fault::Hole, "x"), || "crash --run 0x1".to_owned());
            let text = std::fs::read_to_string(&place.0).unwrap();
            let lines: Vec<&str> = text.lines().skip(2 * number).collect();
            assert_eq!(lines.len(), 2, "{text}");
            assert!(lines[0].ends_with(" begun lithe-sim crash --states 5"), "{text}");
            assert!(lines[1].ends_with(" found lithe-sim crash --run 0x1: Hole: x"), "{text}");
            let (time, process) = (&lines[0][..20], std::process::id().to_string());
            assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
            assert_eq!(lines[0].split(' ').nth(1), Some(&*process));
            journal.finish().unwrap();
        }
    }

    #[test]
    fn what_is_long_is_cut_short() {
        let line = one_line(&"\u{3b5}".repeat(LINE_LEN_MAX + 1));
        assert!(line.ends_with("\u{3b5} ..") && line.chars().count() == LINE_LEN_MAX + 3);
        assert_eq!(one_line("a\nb"), "a b");
    }

    #[test]
    fn moments_are_named_by_the_calendar() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_799_999, "2000-02-29T23:59:59Z"),
            (1_700_000_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(time_text(millis), text);
        }
    }

    #[test]
    fn words_are_what_a_shell_makes_of_them() {
        for (word, expected) in [
            ("--rounds", "--rounds"),
            ("/a/b-0.img", "/a/b-0.img"),
            ("data=writeback,noatime", "data=writeback,noatime"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $1", r"'it'\''s $1'"),
        ] {
            assert_eq!(shell_word(word), expected);
        }
    }
}
