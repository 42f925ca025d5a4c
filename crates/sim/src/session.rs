//! A session: one opening of a database, driven by operations, with the history beside it.
//!
//! Owns the handles and tells the [`Timeline`] what is issued and acknowledged. Must not know
//! storage, crashes or faults, nor judge errors: it reports them.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lithedb::storage::{SimStorage, Storage};
use lithedb::{Db, Durability, Error, KeyRange, Keyspace, SeqNo, WriteBatch};

use crate::clock::SimClock;
use crate::finding::{Fault, Finding, Verdict};
use crate::operator::tail;
use crate::ops::{Edit, IngestEnd, KEYSPACE_COUNT_MAX, KeyEdit, NAMES, Op, Slot};
use crate::readback::{Detail, payload_for, read_all, timeline_of};
use crate::sample::{Key, Value};
use crate::setup::{START_MILLIS, Setup};
use crate::timeline::{Change, Timeline};

/// A history that is shared with whoever judges moments of it while the session goes on.
pub type SharedTimeline = Arc<Mutex<Timeline>>;

/// Looks at a shared history.
pub fn look(timeline: &SharedTimeline) -> MutexGuard<'_, Timeline> {
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How an operation went wrong.
#[derive(Debug)]
pub enum Trouble {
    /// The database answered with an error.
    Refused(Error),
    /// The database answered, and the answer cannot be.
    Absurd(Finding),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Refused(error)
    }
}

impl From<Finding> for Trouble {
    fn from(finding: Finding) -> Trouble {
        Trouble::Absurd(finding)
    }
}

impl Trouble {
    /// As a finding of a run in which nothing has a reason to fail.
    #[must_use]
    pub fn into_finding(self) -> Finding {
        match self {
            Trouble::Refused(error) => Finding::new(Fault::Refused, error.to_string()),
            Trouble::Absurd(finding) => finding,
        }
    }
}

/// One opening of a database.
pub struct Session {
    /// The database.
    pub db: Db,
    /// Its clock.
    pub clock: Arc<SimClock>,
    /// Its keyspaces, in the order in which they were opened or created.
    pub keyspaces: Vec<(String, Keyspace)>,
    timeline: SharedTimeline,
    setup: Setup,
}

impl Session {
    /// Opens the database for the `nth` time and tells `timeline`, whatever it said before, what
    /// is there.
    ///
    /// # Errors
    /// What opening and reading return.
    pub fn open(
        setup: &Setup,
        storage: Arc<dyn Storage>,
        nth: u64,
        timeline: SharedTimeline,
    ) -> Result<Session, Error> {
        let clock = Arc::new(SimClock::at_millis(START_MILLIS + nth * 1000));
        let db = setup.builder(storage, Arc::clone(&clock), nth).open(&setup.path)?;
        Session::adopt(setup, db, clock, timeline)
    }

    /// Goes on with a database that is open.
    ///
    /// # Errors
    /// What reading returns.
    pub fn adopt(
        setup: &Setup,
        db: Db,
        clock: Arc<SimClock>,
        timeline: SharedTimeline,
    ) -> Result<Session, Error> {
        let found = read_all(&db, Detail::Rows)?;
        let mut keyspaces = Vec::new();
        for name in found.catalog.keys() {
            keyspaces.push((name.clone(), db.keyspace(name)?));
        }
        *look(&timeline) = timeline_of(found);
        Ok(Session { db, clock, keyspaces, timeline, setup: setup.clone() })
    }

    /// The history.
    pub fn timeline(&self) -> MutexGuard<'_, Timeline> {
        look(&self.timeline)
    }

    /// Does an operation that writes; the others do nothing here.
    ///
    /// # Errors
    /// When the database refuses, or answers what cannot be.
    pub fn run(&mut self, op: &Op) -> Result<(), Trouble> {
        match op {
            Op::Put(slot, key, value, durability) => {
                let Some(keyspace) = self.keyspace(*slot) else { return Ok(()) };
                let change = self.change_of(&keyspace, (*slot, *key, Edit::Put(*value)), &[]);
                let (key, value) = (key.bytes(), value.bytes());
                self.commit([change], *durability, |_| keyspace.put_with(key, value, *durability))
            }
            Op::Stream(slot, key, value, piece, durability) => {
                let Some(keyspace) = self.keyspace(*slot) else { return Ok(()) };
                let change = self.change_of(&keyspace, (*slot, *key, Edit::Put(*value)), &[]);
                let (key, value) = (key.bytes(), value.bytes());
                let pieces = value.chunks(usize::from(*piece));
                self.commit([change], *durability, |_| stream(&keyspace, &key, pieces, *durability))
            }
            Op::Delete(slot, key, durability) => {
                let Some(keyspace) = self.keyspace(*slot) else { return Ok(()) };
                let key = key.bytes();
                let change = Change { keyspace: keyspace.id(), key: key.clone(), value: None };
                self.commit([change], *durability, |_| keyspace.delete_with(key, *durability))
            }
            Op::Merge(slot, key, operand, durability) => {
                let Some(keyspace) = self.keyspace(*slot) else { return Ok(()) };
                let change = self.change_of(&keyspace, (*slot, *key, Edit::Merge(*operand)), &[]);
                let (key, operand) = (key.bytes(), operand.bytes());
                self.commit([change], *durability, |_| {
                    keyspace.merge_with(key, operand, *durability)
                })
            }
            Op::Batch(changes, durability) => self.run_batch(changes, *durability),
            Op::DeleteRange(slot, extent, before, behind, durability) => {
                self.delete_range((*slot, &extent.key_range()), before, behind, *durability)
            }
            Op::Ingest(slot, entries, end) => self.ingest(*slot, entries, *end),
            Op::Sync => {
                self.db.sync()?;
                self.timeline().mark_durable();
                Ok(())
            }
            Op::Flush => {
                self.db.flush()?;
                self.timeline().mark_durable();
                Ok(())
            }
            Op::Vacuum(slice_count) => self.vacuum(*slice_count),
            Op::Step(count) => {
                for _ in 0..*count {
                    if !self.db.step()? {
                        break;
                    }
                }
                Ok(())
            }
            Op::Create(name, options) => {
                self.create(NAMES[usize::from(*name) % NAMES.len()], *options)
            }
            Op::Drop(slot) => self.drop_keyspace(*slot),
            Op::Rename(slot, name) => self.rename(*slot, NAMES[usize::from(*name) % NAMES.len()]),
            Op::Clock(millis) => {
                self.clock.jump(*millis);
                Ok(())
            }
            Op::Reopen(_)
            | Op::Read(_)
            | Op::TakeSnapshot
            | Op::ReadSnapshot(..)
            | Op::DropSnapshot(_)
            | Op::Check => Ok(()),
        }
    }

    /// The keyspace at a place.
    #[must_use]
    pub fn keyspace(&self, slot: Slot) -> Option<Keyspace> {
        let index = usize::from(slot).checked_rem(self.keyspaces.len())?;
        Some(self.keyspaces[index].1.clone())
    }

    /// Closes the database; whatever was acknowledged is then durable.
    ///
    /// # Errors
    /// What closing returns.
    pub fn close(&self) -> Result<(), Error> {
        self.db.close()?;
        self.timeline().mark_durable();
        Ok(())
    }

    /// Gives back room, for so many slices at most.
    fn vacuum(&self, slice_count: u8) -> Result<(), Trouble> {
        let mut left = slice_count;
        self.db.vacuum_while(|_| {
            left = left.saturating_sub(1);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        self.timeline().mark_durable();
        Ok(())
    }

    fn run_batch(&mut self, changes: &[KeyEdit], durability: Durability) -> Result<(), Trouble> {
        if self.keyspaces.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        let mut issued = Vec::new();
        self.add_edits(&mut batch, &mut issued, changes);
        if batch.len() != changes.len() {
            let what = format!("a batch of {} has the length {}", changes.len(), batch.len());
            return Err(Finding::new(Fault::Wrong, what).into());
        }
        if !batch.is_empty() && batch.len().is_multiple_of(2) {
            batch.set_payload(payload_for(batch.len()));
        }
        self.commit(issued, durability, |db| db.write_with(batch, durability))
    }

    /// Adds edits to a batch and what they come to to what is issued.
    fn add_edits(&self, batch: &mut WriteBatch, issued: &mut Vec<Change>, edits: &[KeyEdit]) {
        for edit in edits {
            let Some(keyspace) = self.keyspace(edit.0) else { return };
            issued.push(self.change_of(&keyspace, *edit, issued));
            let key = edit.1.bytes();
            match edit.2 {
                Edit::Put(value) => batch.put(&keyspace, key, value.bytes()),
                Edit::Delete => batch.delete(&keyspace, key),
                Edit::Merge(operand) => batch.merge(&keyspace, key, operand.bytes()),
            }
        }
    }

    /// What an edit comes to behind what the same commit has changed before.
    fn change_of(&self, keyspace: &Keyspace, (_, key, edit): KeyEdit, before: &[Change]) -> Change {
        let (id, key) = (keyspace.id(), key.bytes());
        let value = match edit {
            Edit::Put(value) => Some(value.bytes()),
            Edit::Delete => None,
            Edit::Merge(operand) => {
                let own = before.iter().rfind(|own| own.keyspace == id && own.key == key);
                let existing = match own {
                    Some(own) => own.value.clone(),
                    None => self.timeline().rows(id).get(&key).map(|row| row.value.to_vec()),
                };
                Some(tail(existing.as_deref(), &operand.bytes()))
            }
        };
        Change { keyspace: id, key, value }
    }

    fn delete_range(
        &mut self,
        (slot, range): (Slot, &KeyRange),
        before: &[KeyEdit],
        behind: &[KeyEdit],
        durability: Durability,
    ) -> Result<(), Trouble> {
        let Some(erased) = self.keyspace(slot) else { return Ok(()) };
        let mut batch = WriteBatch::new();
        let mut issued = Vec::new();
        self.add_edits(&mut batch, &mut issued, before);
        batch.delete_range(&erased, (range.start.clone(), range.end.clone()));
        let rows = self.timeline().rows(erased.id());
        let own = issued.iter().filter(|change| change.keyspace == erased.id());
        let keys: Vec<Vec<u8>> = rows
            .keys()
            .chain(own.map(|change| &change.key))
            .filter(|key| range.contains(key))
            .cloned()
            .collect();
        let keyspace = erased.id();
        issued.extend(keys.into_iter().map(|key| Change { keyspace, key, value: None }));
        self.add_edits(&mut batch, &mut issued, behind);
        if batch.is_empty() {
            return Ok(()); // An empty range and nothing else.
        }
        self.commit(issued, durability, |db| db.write_with(batch, durability))
    }

    /// Ingests entries; one that does not finish must leave nothing.
    fn ingest(&self, slot: Slot, entries: &[(Key, Value)], end: IngestEnd) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(slot) else { return Ok(()) };
        let rows: BTreeMap<Vec<u8>, Vec<u8>> =
            entries.iter().map(|(key, value)| (key.bytes(), value.bytes())).collect();
        if end == IngestEnd::Finish {
            let changes = rows.iter().map(|(key, value)| Change {
                keyspace: keyspace.id(),
                key: key.clone(),
                value: Some(value.clone()),
            });
            return self.commit(changes, Durability::Sync, |_| Ok(keyspace.ingest(&rows)?.seqno));
        }
        let mut ingest = keyspace.begin_ingest()?;
        for (key, value) in &rows {
            ingest.add(key, value)?;
        }
        if end == IngestEnd::Drop {
            return Ok(());
        }
        let last = rows.last_key_value().map(|(key, _)| key.clone()).unwrap_or_default();
        match (ingest.add(&last, b"again"), ingest.finish()) {
            (Err(Error::InvalidArgument { .. }), Err(Error::InvalidArgument { .. })) => Ok(()),
            other => Err(absurd(format!("a key was ingested twice: {other:?}"))),
        }
    }

    fn commit(
        &self,
        changes: impl IntoIterator<Item = Change>,
        durability: Durability,
        write: impl FnOnce(&Db) -> Result<SeqNo, Error>,
    ) -> Result<(), Trouble> {
        let was_in_doubt = self.timeline().is_in_doubt();
        if !was_in_doubt {
            self.timeline().issue(changes);
        }
        match write(&self.db) {
            Ok(_) if was_in_doubt => {
                let what = "a commit was acknowledged after one whose fate is unknown";
                Err(Finding::new(Fault::AcknowledgedAfterFailure, what).into())
            }
            Ok(seqno) => {
                let before = self.timeline().last_seqno();
                self.timeline().acknowledge(seqno, durability);
                Ok(expect_rising(before, seqno)?)
            }
            Err(error) => {
                self.expect_honest(&error)?;
                if !was_in_doubt && !self.leaves_doubt(&error) {
                    self.timeline().take_back();
                }
                Err(error.into())
            }
        }
    }

    fn create(&mut self, name: &str, options: u8) -> Result<(), Trouble> {
        if self.keyspaces.len() >= KEYSPACE_COUNT_MAX {
            return Ok(());
        }
        let options = self.setup.keyspace_options(usize::from(options));
        if self.keyspaces.iter().any(|(existing, _)| existing == name) {
            return match self.db.create_keyspace(name, options) {
                Err(Error::KeyspaceExists { .. }) => Ok(()),
                Ok(_) => Err(absurd(format!("the keyspace {name:?} was created twice"))),
                Err(error) => Err(error.into()),
            };
        }
        self.timeline().issue_catalog(|catalog| {
            catalog.insert(name.to_string(), None);
        });
        match self.db.create_keyspace(name, options) {
            Ok(keyspace) => {
                self.timeline().acknowledge_catalog(Some(keyspace.id()));
                self.keyspaces.push((name.to_string(), keyspace));
                Ok(())
            }
            Err(error) => self.catalog_refused(error),
        }
    }

    fn drop_keyspace(&mut self, slot: Slot) -> Result<(), Trouble> {
        // The last one stays: a run without any does nothing.
        if self.keyspaces.len() < 2 {
            return Ok(());
        }
        let index = usize::from(slot) % self.keyspaces.len();
        let (name, keyspace) = self.keyspaces[index].clone();
        self.timeline().issue_catalog(|catalog| {
            catalog.remove(&name);
        });
        if let Err(error) = self.db.drop_keyspace(&name) {
            return self.catalog_refused(error);
        }
        self.timeline().acknowledge_catalog(None);
        self.keyspaces.remove(index);
        match keyspace.get(b"k") {
            Err(Error::KeyspaceNotFound { .. }) => Ok(()),
            other => Err(absurd(format!("a handle to a dropped keyspace reads {other:?}"))),
        }
    }

    fn rename(&mut self, slot: Slot, name: &str) -> Result<(), Trouble> {
        let taken = self.keyspaces.iter().any(|(existing, _)| existing == name);
        if self.keyspaces.is_empty() || taken {
            return Ok(());
        }
        let index = usize::from(slot) % self.keyspaces.len();
        let old = self.keyspaces[index].0.clone();
        let id = self.keyspaces[index].1.id();
        self.timeline().issue_catalog(|catalog| {
            catalog.remove(&old);
            catalog.insert(name.to_string(), Some(id));
        });
        match self.db.rename_keyspace(&old, name) {
            Ok(()) => {
                self.timeline().acknowledge_catalog(None);
                self.keyspaces[index].0 = name.to_string();
                Ok(())
            }
            Err(error) => self.catalog_refused(error),
        }
    }

    fn catalog_refused(&self, error: Error) -> Result<(), Trouble> {
        self.expect_honest(&error)?;
        if !self.leaves_doubt(&error) {
            self.timeline().take_back_catalog();
        }
        Err(error.into())
    }

    /// After any error the state is unchanged, or the database is read-only, unless there is no
    /// one left to say so.
    fn leaves_doubt(&self, error: &Error) -> bool {
        let is_crash = match error {
            Error::Io { source, .. } => SimStorage::is_simulated_crash(source),
            _ => false,
        };
        is_crash || self.is_read_only()
    }

    fn is_read_only(&self) -> bool {
        self.db.stats().read_only.is_some()
    }

    /// An error that promises that nothing has changed must not leave doubt.
    fn expect_honest(&self, error: &Error) -> Verdict {
        if matches!(error, Error::DiskFull { .. }) && self.is_read_only() {
            let what = format!("{error}, and the database is read-only");
            return Err(Finding::new(Fault::BadError, what));
        }
        Ok(())
    }
}

/// Writes a value in pieces.
fn stream<'v>(
    keyspace: &Keyspace,
    key: &[u8],
    mut pieces: impl Iterator<Item = &'v [u8]>,
    durability: Durability,
) -> Result<SeqNo, Error> {
    let mut writer = keyspace.put_writer(key)?;
    pieces.try_for_each(|piece| writer.write_all(piece)).map_err(from_io)?;
    writer.commit_with(durability)
}

/// The store's error behind one of a stream.
fn from_io(error: io::Error) -> Error {
    let wrapped = error.downcast::<Error>();
    wrapped.unwrap_or_else(|source| Error::Io { action: "write", path: "a value".into(), source })
}

fn expect_rising(before: SeqNo, seqno: SeqNo) -> Verdict {
    if seqno > before {
        return Ok(());
    }
    Err(Finding::new(Fault::Wrong, format!("the stamp {seqno} came after {before}")))
}

fn absurd(what: String) -> Trouble {
    Trouble::Absurd(Finding::new(Fault::Wrong, what))
}
