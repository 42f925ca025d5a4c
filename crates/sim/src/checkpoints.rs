//! Checkpoints that a run has asked for: what they must show, whatever becomes of the database.
//!
//! What must hold
//! - K1  One that was made is there, also after a crash, and shows the moment at which it was asked
//!   for, the past included.
//! - K2  One that was not is not there, or it is as one that was: never a part of one.
//! - K3  Neither does the database any harm, nor the other way round, whatever either goes on to
//!   do: they share files. So also when both are open and written to and the power goes, and
//!   whichever of them is recovered first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lithedb::storage::{EntryType, Storage};
use lithedb::{BackupOptions, BackupRepository, Db, Durability, Error, OpenExisting, WriteBatch};

use crate::clock::SimClock;
use crate::digest::Digest;
use crate::finding::{Fault, Finding, Verdict};
use crate::random::Random;
use crate::readback::{Detail, expect_check_ok, expect_pasts, read_all};
use crate::session::{SharedTimeline, look};
use crate::setup::Setup;
use crate::timeline::{Rows, Timeline};

/// Openings of checkpoints are numbered from here on, apart from those of databases.
const FIRST_OPENING: u64 = 1000;
/// Commits to a checkpoint that is written to.
const COMMIT_COUNT: u64 = 12;
/// Steps of background work behind them.
const STEP_COUNT: u64 = 6;

/// One checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Where it is.
    pub path: PathBuf,
    /// Names and ids of the keyspaces when it was asked for.
    pub catalog: BTreeMap<String, u32>,
    /// What they had, by id, also what has expired since.
    pub rows: BTreeMap<u32, Arc<Rows>>,
    /// When that was, in milliseconds since 1970.
    pub now: u64,
    /// How many commits there were; `None` if they are of an earlier opening.
    pub commit: Option<u64>,
    /// Whether it was made, as far as anybody was told.
    pub is_made: bool,
}

/// A checkpoint that is open beside the database, and has a history of its own from then on.
#[derive(Clone, Debug)]
pub struct Beside {
    /// Where it is.
    pub path: PathBuf,
    /// What it was found to be, and what was done with it.
    pub timeline: SharedTimeline,
}

impl Beside {
    /// Openings behind a crash of what was open beside the database are numbered from here on,
    /// apart from those of the database.
    pub const OPENING: u64 = 700;

    /// The same as it is now.
    #[must_use]
    pub fn still(&self) -> Beside {
        let still = look(&self.timeline).still();
        Beside { path: self.path.clone(), timeline: Arc::new(Mutex::new(still)) }
    }
}

/// What is done with a checkpoint that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is read, written to, and read again.
    WrittenTo,
}

impl Checkpoint {
    /// Opens it, if it is there, and looks at it. Whether it was there.
    ///
    /// # Errors
    /// What is wrong.
    pub fn expect_ok(
        &self,
        (setup, storage): (&Setup, &Arc<dyn Storage>),
        timeline: &Timeline,
        (how, random): (Use, &mut Random),
    ) -> Verdict<bool> {
        self.look(setup, storage, timeline, (how, random))
            .map_err(|finding| finding.at(&format!("checkpoint {}", self.path.display())))
    }

    fn look(
        &self,
        setup: &Setup,
        storage: &Arc<dyn Storage>,
        timeline: &Timeline,
        (how, random): (Use, &mut Random),
    ) -> Verdict<bool> {
        let is_there = storage
            .exists(&self.path)
            .map_err(|error| Finding::new(Fault::Refused, format!("looking for it: {error}")))?;
        match (is_there, self.is_made) {
            (true, _) => {}
            (false, false) => return Ok(false), // K2
            (false, true) => return Err(Finding::new(Fault::Lost, "it is not there")), // K1
        }
        let db = self.open(setup, storage, random)?;
        let found = read_all(&db, Detail::Digests).map_err(|error| failed("read", &error))?;
        if found.catalog != self.catalog {
            let (found, expected) = (&found.catalog, &self.catalog);
            let what = format!("it has the keyspaces {found:?}, not {expected:?}");
            return Err(Finding::new(Fault::Wrong, what));
        }
        for (id, rows) in &self.rows {
            if found.digests.get(id) != Some(&digest_at(rows, found.now)) {
                let what = format!("keyspace {id} is not what it was");
                return Err(Finding::new(Fault::Wrong, what));
            }
        }
        expect_check_ok(&db)?;
        if let Some(commit) = self.commit {
            expect_pasts(&db, timeline, commit, random)?;
        }
        if how == Use::WrittenTo {
            write_to(&db, random).map_err(|error| failed("write to", &error))?;
            expect_check_ok(&db)?;
        }
        db.close().map_err(|error| failed("close", &error))?;
        Ok(true)
    }

    /// At about the time at which it was made.
    fn open(&self, setup: &Setup, storage: &Arc<dyn Storage>, random: &mut Random) -> Verdict<Db> {
        let clock = Arc::new(SimClock::at_millis(self.now));
        let nth = FIRST_OPENING + random.below(1 << 40);
        let builder = setup.at(&self.path).builder(Arc::clone(storage), clock, nth);
        let opened = builder.existing(OpenExisting::Only).open(&self.path);
        opened.map_err(|error| failed("open", &error))
    }
}

/// The digest of the rows that are there at this moment.
fn digest_at(rows: &Rows, now: u64) -> Digest {
    let mut digest = Digest::default();
    for (key, row) in rows.iter().filter(|(_, row)| row.is_there(now)) {
        digest.add(key, &row.value, (row.seqno, row.until));
    }
    digest
}

/// Overwrites and deletes, and has what that makes unnecessary given back.
///
/// # Errors
/// What the database says.
pub(crate) fn write_to(db: &Db, random: &mut Random) -> Result<(), Error> {
    for info in db.keyspaces() {
        let keyspace = db.keyspace(&info.name)?;
        let keys: Vec<_> = keyspace.iter().keys().collect::<Result<_, _>>()?;
        for number in 0..COMMIT_COUNT.min(keys.len() as u64) {
            let mut batch = WriteBatch::new();
            let key = &keys[random.index(keys.len())];
            match random.below(3) {
                0 => batch.delete(&keyspace, key),
                _ => batch.put(&keyspace, key, vec![number as u8; random.below(900) as usize]),
            }
            match db.write_with(batch, Durability::Buffered) {
                // Of what an earlier use has written.
                Ok(_) | Err(Error::UniqueViolation { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    db.flush()?;
    for _ in 0..STEP_COUNT {
        db.step()?;
    }
    db.vacuum()?;
    Ok(())
}

/// Where backups of the database at `path` are.
#[must_use]
pub fn backups_of(path: &Path) -> PathBuf {
    path.with_file_name("backups")
}

/// Backups that are listed are whole, whatever became of those who made and removed some.
///
/// # Errors
/// What is wrong.
pub fn expect_backups_whole(storage: &Arc<dyn Storage>, path: &Path) -> Verdict {
    let dir = backups_of(path);
    let is_there = storage
        .exists(&dir.join("BACKUPS"))
        .map_err(|error| Finding::new(Fault::Refused, format!("looking for backups: {error}")))?;
    if !is_there {
        return Ok(()); // One that was not made yet is made again.
    }
    let verified = BackupRepository::open_in(Arc::clone(storage), dir, OpenExisting::Only)
        .and_then(|backups| backups.verify(None, BackupOptions::new()));
    match verified.map_err(|error| failed("verify backups", &error))?.problems.first() {
        None => Ok(()),
        Some(problem) => {
            Err(Finding::new(Fault::Lost, format!("a backup is not whole: {problem:?}")))
        }
    }
}

/// Removes a checkpoint, so that the database has its files to itself. Durably: names that are not
/// gone for certain are carried along by a simulated disk, with what they lead to, to the end.
///
/// # Errors
/// `Refused`.
pub fn remove(storage: &dyn Storage, path: &Path) -> Verdict {
    let refused = |error: std::io::Error| {
        Finding::new(Fault::Refused, format!("removing {}: {error}", path.display()))
    };
    for entry in storage.list_dir(path).map_err(refused)? {
        let inner = path.join(&entry.name);
        match entry.entry_type {
            EntryType::Directory => remove(storage, &inner)?,
            _ => storage.remove_file(&inner).map_err(refused)?,
        }
    }
    storage.sync_dir(path).map_err(refused)?;
    storage.remove_dir(path).map_err(refused)?;
    storage.sync_dir(path.parent().unwrap_or(path)).map_err(refused)
}

fn failed(action: &str, error: &Error) -> Finding {
    Finding::new(Fault::FailedOpen, format!("{action}: {error}"))
}
