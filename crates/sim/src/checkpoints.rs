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
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lithedb::base::hash_key;
use lithedb::storage::{EntryType, OpenMode, Storage, StorageFile};
use lithedb::{BackupOptions, BackupRepository, Db, Durability, Error, OpenExisting, WriteBatch};

use crate::clock::SimClock;
use crate::digest::Digest;
use crate::finding::{Fault, Finding, Verdict};
use crate::random::{Random, seed_of};
use crate::readback::{
    Detail, PastChoice, expect_check_ok, expect_pasts, expect_state_ok, pass_over_pasts, read_all,
};
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

/// How a checkpoint was left when it was read last.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Of every byte of it.
    content: u64,
    /// What was drawn from.
    pasts: Vec<PastChoice>,
}

/// Which histories are looked at in a checkpoint, of each keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Histories {
    Spread,
    Drawn,
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
        self.look((setup, storage), timeline, (how, random), Histories::Spread)
            .map(|pasts| pasts.is_some())
            .map_err(|finding| self.told(&finding))
    }

    /// The same of one of which it is known how it was left when it was read last, if it was. To
    /// read it costs much more than to see that not a byte of it has changed since: then it shows
    /// what it did. It draws as if it had been read. How it is left, if it was read.
    ///
    /// # Errors
    /// What is wrong.
    pub fn expect_still_ok(
        &self,
        (setup, storage): (&Setup, &Arc<dyn Storage>),
        timeline: &Timeline,
        (how, random): (Use, &mut Random),
        seen: Option<&Seen>,
    ) -> Verdict<Option<Seen>> {
        if let (Use::Read, Some(seen)) = (how, seen)
            && content_of(&**storage, &self.path).is_ok_and(|content| content == seen.content)
        {
            draw_opening(random);
            if self.commit.is_some() {
                pass_over_pasts(&seen.pasts, random);
            }
            return Ok(Some(seen.clone()));
        }
        let looked = self.look((setup, storage), timeline, (how, random), Histories::Drawn);
        let pasts = looked.map_err(|finding| self.told(&finding))?;
        let Some(pasts) = pasts.filter(|_| how == Use::Read) else { return Ok(None) };
        let content = content_of(&**storage, &self.path)
            .map_err(|error| self.told(&Finding::new(Fault::Refused, error.to_string())))?;
        Ok(Some(Seen { content, pasts }))
    }

    fn told(&self, finding: &Finding) -> Finding {
        finding.clone().at(&format!("checkpoint {}", self.path.display()))
    }

    /// What was drawn from, if it is there.
    fn look(
        &self,
        (setup, storage): (&Setup, &Arc<dyn Storage>),
        timeline: &Timeline,
        (how, random): (Use, &mut Random),
        histories: Histories,
    ) -> Verdict<Option<Vec<PastChoice>>> {
        let expect_sound = |db: &Db, random: &Random| match histories {
            Histories::Spread => expect_check_ok(db),
            Histories::Drawn => expect_state_ok(db, random),
        };
        let is_there = storage
            .exists(&self.path)
            .map_err(|error| Finding::new(Fault::Refused, format!("looking for it: {error}")))?;
        match (is_there, self.is_made) {
            (true, _) => {}
            (false, false) => return Ok(None), // K2
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
        expect_sound(&db, random)?;
        let pasts = match self.commit {
            Some(commit) => expect_pasts(&db, timeline, commit, random)?,
            None => Vec::new(),
        };
        if how == Use::WrittenTo {
            write_to(&db, random).map_err(|error| failed("write to", &error))?;
            expect_sound(&db, random)?;
        }
        db.close().map_err(|error| failed("close", &error))?;
        Ok(Some(pasts))
    }

    /// At about the time at which it was made.
    fn open(&self, setup: &Setup, storage: &Arc<dyn Storage>, random: &mut Random) -> Verdict<Db> {
        let clock = Arc::new(SimClock::at_millis(self.now));
        let nth = draw_opening(random);
        let builder = setup.at(&self.path).builder(Arc::clone(storage), clock, nth);
        let opened = builder.existing(OpenExisting::Only).open(&self.path);
        opened.map_err(|error| failed("open", &error))
    }
}

/// The number of an opening.
fn draw_opening(random: &mut Random) -> u64 {
    FIRST_OPENING + random.below(1 << 40)
}

/// A digest of all that is in a directory: names, and the bytes of files.
fn content_of(storage: &dyn Storage, path: &Path) -> io::Result<u64> {
    let mut parts = Vec::new();
    for entry in storage.list_dir(path)? {
        let inner = path.join(&entry.name);
        let content = match entry.entry_type {
            EntryType::Directory => content_of(storage, &inner)?,
            _ => {
                let bytes = bytes_of(&*storage.open(&inner, OpenMode::ReadOnly)?)?;
                seed_of(&[bytes.len() as u64, hash_key(&bytes)])
            }
        };
        parts.push((entry.name, content));
    }
    parts.sort_unstable();
    let one = |(name, content): &(String, u64)| [hash_key(name.as_bytes()), *content];
    Ok(seed_of(&parts.iter().flat_map(one).collect::<Vec<u64>>()))
}

/// A whole file, as it is: its holes are zeros.
fn bytes_of(file: &dyn StorageFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.size()? as usize];
    let mut len = 0;
    while len < bytes.len() {
        match file.read_as_is_at(&mut bytes[len..], len as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => len += read,
        }
    }
    Ok(bytes)
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

/// Removes a checkpoint, so that the database has its files to itself; a power cut may bring it
/// back, or some of it.
///
/// # Errors
/// `Refused`.
pub fn remove(storage: &dyn Storage, path: &Path) -> Verdict {
    remove_and(storage, path, |_| Ok(()))
}

/// As [`remove`], durably: names that are not gone for certain are carried along by a simulated
/// disk, with what they lead to, to the end.
///
/// # Errors
/// `Refused`.
pub fn remove_durably(storage: &dyn Storage, path: &Path) -> Verdict {
    remove_and(storage, path, |directory| storage.sync_dir(directory))
}

/// Does `settle` for each directory in which something was removed.
fn remove_and(
    storage: &dyn Storage,
    path: &Path,
    settle: impl Fn(&Path) -> io::Result<()> + Copy,
) -> Verdict {
    let refused = |error: io::Error| {
        Finding::new(Fault::Refused, format!("removing {}: {error}", path.display()))
    };
    for entry in storage.list_dir(path).map_err(refused)? {
        let inner = path.join(&entry.name);
        match entry.entry_type {
            EntryType::Directory => remove_and(storage, &inner, settle)?,
            _ => storage.remove_file(&inner).map_err(refused)?,
        }
    }
    settle(path).map_err(refused)?;
    storage.remove_dir(path).map_err(refused)?;
    settle(path.parent().unwrap_or(path)).map_err(refused)
}

fn failed(action: &str, error: &Error) -> Finding {
    Finding::new(Fault::FailedOpen, format!("{action}: {error}"))
}

#[cfg(test)]
mod tests {
    use lithedb::storage::SimStorage;
    use lithedb::{Durability, Structure};

    use super::*;
    use crate::ops::Op;
    use crate::sample::{Key, Value};
    use crate::session::Session;

    #[test]
    fn what_has_not_changed_is_not_opened_again_and_what_has_is() {
        let setup = Setup::tiny(1).all_of(Structure::History);
        let sim = SimStorage::new(1);
        let storage: Arc<dyn Storage> = Arc::new(sim.clone());
        let timeline = SharedTimeline::default();
        let opened = Session::open(&setup, Arc::clone(&storage), 0, Arc::clone(&timeline));
        let mut session = opened.unwrap();
        session.run(&Op::Create(0, 0)).unwrap();
        for number in 0..60 {
            let value = Value { len: 40, fill: number };
            let put = Op::Put(0, Key(number as u16 % 9), value, Durability::Buffered);
            session.run(&put).unwrap();
        }
        session.run(&Op::Checkpoint).unwrap();
        let timeline = look(&timeline).clone();
        let checkpoint = timeline.checkpoints.last().unwrap();
        let looks = |seed, seen: Option<&Seen>| {
            let (before, mut random) = (sim.mutation_count(), Random::new(seed));
            let (place, how) = ((&setup, &storage), (Use::Read, &mut random));
            let seen = checkpoint.expect_still_ok(place, &timeline, how, seen);
            (seen, sim.mutation_count() > before, random.draw())
        };
        for seed in 0..6 {
            let (seen, is_opened, drawn) = looks(seed, None);
            assert!(is_opened);
            let seen = seen.unwrap().unwrap();
            assert!(!seen.pasts.is_empty());
            let (again, is_opened, drawn_again) = looks(seed, Some(&seen));
            assert!(again.is_ok() && !is_opened);
            assert_eq!(drawn_again, drawn, "what comes behind it is drawn the same");
        }
        let seen = looks(7, None).0.unwrap().unwrap();
        let manifest = storage.open(&manifest_in(&storage, &checkpoint.path), OpenMode::ReadWrite);
        let manifest = manifest.unwrap();
        let mut byte = [0];
        manifest.read_exact_at(&mut byte, 0).unwrap();
        manifest.write_all_at(&[byte[0] ^ 1], 0).unwrap();
        drop(manifest);
        assert!(looks(7, Some(&seen)).0.is_err(), "a bit that was flipped since is found");
    }

    fn manifest_in(storage: &Arc<dyn Storage>, path: &Path) -> PathBuf {
        let names = storage.list_dir(path).unwrap().into_iter().map(|entry| entry.name);
        path.join(names.into_iter().find(|name| name.starts_with("MANIFEST")).unwrap())
    }
}
