//! Where samples come from; `served` has another source.

use std::time::Duration;

use lithedb::base::{Clock, SystemClock};
use lithedb::{Db, Follower};

use super::sample::Sample;
use crate::args::Globals;
use crate::database::{database_path, follow};
use crate::failure::Failure;
use crate::notation::shown;

/// Something that can be watched.
pub trait Source {
    /// What it is, for the title.
    fn name(&self) -> String;

    /// Its figures as of now; when that is, the caller says.
    fn sample(&mut self, clock: &SystemClock) -> Result<Sample, Failure>;
}

/// That of the command line: the database of the session, or one that is read beside its writer.
pub fn open(globals: &Globals) -> Result<Box<dyn Source>, Failure> {
    let path = database_path(globals)?;
    let name = shown(&path.display().to_string()).into_owned();
    if let Some(db) = &globals.held {
        return Ok(Box::new(Own { name, db: db.clone() }));
    }
    let follower = follow(globals, path)?;
    Ok(Box::new(Beside { name, follower, commits: 0, log_bytes: 0 }))
}

/// A database of this process.
struct Own {
    name: String,
    db: Db,
}

impl Source for Own {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sample(&mut self, clock: &SystemClock) -> Result<Sample, Failure> {
        let probe = probe(&self.db, clock);
        let mut sample = Sample::of(&self.db.stats());
        sample.read_probe = probe;
        Ok(sample)
    }
}

/// One of another process, read beside it.
struct Beside {
    name: String,
    follower: Follower,
    /// Of the writer, since the first sample.
    commits: u64,
    log_bytes: u64,
}

impl Source for Beside {
    fn name(&self) -> String {
        format!("{} (beside its writer)", self.name)
    }

    fn sample(&mut self, clock: &SystemClock) -> Result<Sample, Failure> {
        let caught_up = self.follower.catch_up()?;
        // A view that was opened anew counts again what was counted before.
        if !caught_up.opened_anew {
            self.commits += caught_up.commits;
            self.log_bytes += caught_up.log_bytes;
        }
        let db = self.follower.db();
        let probe = probe(&db, clock);
        let mut sample = Sample::of(&db.stats());
        sample.read_probe = probe;
        sample.commits = self.commits;
        sample.data_bytes = self.log_bytes;
        sample.knows_writer = false;
        Ok(sample)
    }
}

/// How long it takes to find the first key of a keyspace.
fn probe(db: &Db, clock: &SystemClock) -> Option<Duration> {
    let info = db.keyspaces().into_iter().next()?;
    let keyspace = db.keyspace(&info.name).ok()?;
    let begun = clock.monotonic();
    keyspace.first().ok()?;
    Some(clock.monotonic() - begun)
}
