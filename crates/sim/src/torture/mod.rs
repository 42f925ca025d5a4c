//! Torture: real processes that are killed, and real file systems whose power is cut.
//!
//! A child process works on a database and says on a pipe, before and behind each step, what it is
//! about to do and what was acknowledged. It is struck at a moment that is drawn, also while it
//! opens, recovers or closes. What it has said until then is a history, and the prefix oracle
//! judges what the next opening finds: by another child, which may be struck in turn, or in this
//! process, which also checks everything else.
//!
//! | file | what |
//! |---|---|
//! | `child` | what a child is sent to do, and does |
//! | `records` | what goes over the pipe, to the byte |
//! | `victim` | a child from outside: started, listened to, killed |
//! | `moment` | when it is struck |
//! | `ground` | where the database is: a directory, or a disk |
//! | `disk` | a file system in a file, mounted, whose power is cut |
//! | `database` | the rounds of one database: strike, recover, judge, go on |
//! | `verify` | opening in this process, and looking at everything |
//!
//! What must hold
//! - Q1  Behind a kill all acknowledged commits are there; behind a power cut all that were
//!   acknowledged as durable, as far as that was read from the pipe before the cut.
//! - Q2  What was under way is there wholly or not at all; what is there is a prefix.
//! - Q3  It opens, and its check finds nothing. So also when the opening before was interrupted.
//! - Q4  No thread of a child panics, whatever becomes of the disk.
//! - Q5  Nothing is touched that the tool has not made: what is there already under a name that it
//!   needs is an error, and no other file system than its own is cut off.
//!
//! What each round does follows from the seed and the numbers of database and round, and from
//! nothing that came before: not from how far a child came. So a finding's command repeats all but
//! the exact moments.

mod child;
mod database;
mod disk;
mod ground;
mod moment;
mod records;
#[cfg(test)]
mod tests;
mod verify;
mod victim;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::journal::shell_word;
use crate::ledger::Ledger;
use crate::parallel::{run_cases, survive};

pub use child::run_child;
pub use database::{KILLS, POWER_CUTS, ROUNDS};
pub use disk::{Cut, FileSystem};

use database::{Database, Stop};
use ground::Ground;

/// Where the databases are.
#[derive(Clone, Debug)]
pub enum Place {
    /// In this directory; children are killed.
    Directory(PathBuf),
    /// On file systems in files of which this is the beginning of the name; the power is cut.
    Disks(Disks),
}

/// File systems whose power is cut.
#[derive(Clone, Debug)]
pub struct Disks {
    /// The beginning of the names of their files.
    pub image: PathBuf,
    /// Of which kind they are.
    pub file_system: FileSystem,
    /// What else `mount` is told behind `-o`.
    pub mount_options: Option<String>,
    /// How the power is cut; drawn, if that is not said.
    pub cut: Option<Cut>,
}

/// Whether children tell the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Honesty {
    /// They do.
    Honest,
    /// They acknowledge what they do not do, or too early: that must be found.
    Planted,
}

/// Whether a copy of each database is kept as it was before it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// It is: what an opening has changed can be looked at as it was.
    Kept,
    /// It is not, which is faster.
    None,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The program whose child processes are struck.
    pub program: PathBuf,
    /// What it is called with for a child, in front of what the child is to do.
    pub child_subcommand: &'static str,
    /// Where.
    pub place: Place,
    /// Kills or cuts in all.
    pub rounds: u64,
    /// So many of them strike one database, then a new one is begun.
    pub each: u64,
    /// Decides everything but how far children come until their moment.
    pub seed: u64,
    /// So many databases at a time.
    pub workers: usize,
    /// Only the database of this number.
    pub only: Option<u64>,
    /// Whether a mistake is planted.
    pub honesty: Honesty,
    /// Whether copies are kept.
    pub copies: Copies,
}

impl Campaign {
    /// Runs it, until it is over or `stop` says so, and counts. With a planted mistake it is over
    /// when that is found.
    ///
    /// # Errors
    /// When files cannot be made or removed, a child not be started, a file system not be mounted,
    /// or there is no room. It is over then, and what that concerns stays where it is; the ledger
    /// has what was done.
    pub fn run(&self, ledger: &Ledger, stop: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        if matches!(self.place, Place::Disks(_)) {
            disk::keep_mounts_apart(); // In front of the threads, which have them as well.
        }
        let failure = Mutex::new(None);
        let is_over = AtomicBool::new(false);
        let stop = || is_over.load(Ordering::Relaxed) || stop();
        let database_count = self.rounds.div_ceil(self.each.max(1));
        run_cases(self.workers, database_count, |number| {
            if self.only.is_some_and(|only| only != number) {
                return true;
            }
            if stop() {
                return false;
            }
            if let Err(error) = self.torture(number, ledger, &stop) {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                is_over.store(true, Ordering::Relaxed);
            }
            if self.honesty == Honesty::Planted && ledger.finding_count() > 0 {
                is_over.store(true, Ordering::Relaxed);
            }
            !stop()
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Has one database struck again and again. With a finding it stays as it is.
    fn torture(
        &self,
        number: u64,
        ledger: &Ledger,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<()> {
        let ground = Ground::prepare(&self.place, number)?;
        let mut database = Database::new(self, ledger, number, ground);
        let rounds = self.each.min(self.rounds - number * self.each);
        let done = survive(|| Ok(database.rounds(rounds, stop)));
        match done.unwrap_or_else(|finding| Err(Stop::Found(finding.at("the parent")))) {
            Ok(()) => database.remove(),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Found(finding)) => {
                // First of all: what it is worth is not to depend on what comes behind.
                ledger.note(finding.clone().at(&database.place()), || self.command(number));
                let kept = database.keep(&finding);
                match self.honesty {
                    Honesty::Honest => kept,
                    Honesty::Planted => kept.and_then(|()| database.remove()),
                }
            }
        }
    }

    /// What the program is to be called with for the database of this number, as far as a kill can
    /// be repeated.
    fn command(&self, number: u64) -> String {
        let again = |path: &Path| shell_word(&format!("{}-again", path.display())).into_owned();
        let mut command = match &self.place {
            Place::Directory(path) => format!("torture kill --dir {}", again(path)),
            Place::Disks(disks) => {
                let (image, kind) = (again(&disks.image), disks.file_system.name());
                format!("torture power --image {image} --fs {kind}")
            }
        };
        let Campaign { rounds, each, seed, .. } = self;
        // Writing to a string cannot fail.
        let _ = write!(command, " --rounds {rounds} --each {each} --seed {seed} --only {number}");
        if let Place::Disks(Disks { cut: Some(cut), .. }) = &self.place {
            let _ = write!(command, " --flag {}", cut.flag());
        }
        if let Place::Disks(Disks { mount_options: Some(options), .. }) = &self.place {
            let _ = write!(command, " --mount-options {}", shell_word(options));
        }
        if self.honesty == Honesty::Planted {
            command.push_str(" --canary");
        }
        command
    }
}

/// What a child was given behind the subcommand is not what children are given.
#[derive(Debug)]
pub struct NoErrand(pub Vec<OsString>);

/// With what file or directory something went wrong.
fn with_path(error: &io::Error, action: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("could not {action} {}: {error}", path.display()))
}
