//! A session: one opening of a database, driven by operations, with the history beside it.
//!
//! Owns the handles and tells the [`Timeline`] what is issued and acknowledged. Must not know
//! storage, crashes or faults, nor judge errors: it reports them.

mod beside;
mod checkpoint;
mod conversion;
mod indexes;
mod keys;
mod transaction;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use lithedb::base::Clock as _;
use lithedb::storage::{SimStorage, Storage};
use lithedb::{
    BackgroundPause, Db, Durability, Error, Expiry, KeyRange, Keyspace, SeqNo, Structure,
    TableIngestOptions, WriteBatch,
};

use crate::clock::SimClock;
use crate::finding::{Fault, Finding, Verdict};
use crate::operator::tail;
use crate::ops::{
    Edit, Extent, IngestEnd, KEYSPACE_COUNT_MAX, KeyEdit, Life, NAMES, Op, Slot, TablesOp,
};
use crate::readback::{Detail, now_of, payload_for, read_all, timeline_of};
use crate::sample::{Key, Value};
use crate::setup::{Setup, start_of};
use crate::timeline::{Change, Timeline, Until};

#[cfg(feature = "campaigns")]
pub(crate) use indexes::index_name;
pub(crate) use keys::expect_key;

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
    /// What the clock showed.
    began: u64,
    /// While it is there, compaction and the like are paused.
    pause: Option<BackgroundPause>,
    /// Indexes that are being built, the last one within a step of the one before.
    building: Vec<indexes::IndexId>,
    /// Whether a keyspace is being converted.
    is_converting: bool,
    /// Tables made.
    table_count: AtomicU64,
    /// Whether an ingest has told of files that it could not remove durably.
    has_told: AtomicBool,
    /// Where more can be opened, and the number of this opening.
    opener: Option<(Arc<dyn Storage>, u64)>,
    /// A checkpoint that is open as well.
    beside: Option<Box<Session>>,
}

/// What a keyspace takes beside plain values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Operands.
    Merging,
    /// What expires; by itself after so long, if that is said.
    Expiring(Option<Duration>),
}

fn expiry_of(until: Until) -> Expiry {
    let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
    match until {
        Until::At(millis) => Expiry::At(at(millis)),
        Until::Never | Until::After(_) => Expiry::Never,
    }
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
        let clock = Arc::new(SimClock::at_millis(start_of(nth)));
        let builder = setup.builder(Arc::clone(&storage), Arc::clone(&clock), nth);
        let session = Session::adopt(setup, builder.open(&setup.path)?, clock, timeline)?;
        Ok(Session { opener: Some((storage, nth)), ..session })
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
        let began = clock.wall_millis();
        let (setup, pause, table_count) = (setup.clone(), None, AtomicU64::new(0));
        let (has_told, building, is_converting) = (AtomicBool::new(false), Vec::new(), false);
        Ok(Session {
            db,
            clock,
            keyspaces,
            timeline,
            setup,
            began,
            pause,
            building,
            is_converting,
            table_count,
            has_told,
            opener: None,
            beside: None,
        })
    }

    /// Whether something that went wrong was told by an operation that succeeded.
    pub fn has_told(&self) -> bool {
        self.has_told.load(Ordering::Relaxed)
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
                let change = self.change_of(&keyspace, (*slot, *key, Edit::Delete), &[]);
                let key = key.bytes();
                self.commit([change], *durability, |_| keyspace.delete_with(key, *durability))
            }
            Op::Merge(slot, key, operand, durability) => {
                self.run_edit((*slot, *key, Edit::Merge(*operand)), *durability)
            }
            Op::PutExpiring(slot, key, value, life, durability) => {
                self.run_edit((*slot, *key, Edit::PutExpiring(*value, *life)), *durability)
            }
            Op::Expire(slot, key, life) => self.expire(*slot, *key, *life),
            Op::Batch(changes, durability) => self.run_batch(changes, *durability),
            Op::DeleteRange(slot, extent, before, behind, durability) => {
                self.delete_range((*slot, &extent.key_range()), before, behind, *durability)
            }
            Op::Ingest(slot, entries, end) => self.ingest(*slot, entries, *end),
            Op::IngestTables(slot, tables) => self.ingest_tables(*slot, tables),
            Op::Sync | Op::Flush => {
                match op {
                    Op::Sync => self.db.sync()?,
                    _ => self.db.flush()?,
                }
                self.timeline().mark_durable();
                Ok(())
            }
            Op::Vacuum(slice_count) => self.vacuum(*slice_count),
            Op::Compact(slot, extent, slice_count) => self.compact(*slot, extent, *slice_count),
            Op::Convert(conversion) => self.convert(conversion),
            Op::Index(index) => self.run_index(index),
            Op::Transact(transaction) => self.transact(transaction),
            Op::Pause => {
                self.pause_or_go_on();
                Ok(())
            }
            Op::Step(count) => {
                let mut steps = (0..*count).map(|_| self.db.step());
                while let Some(true) = steps.next().transpose()? {}
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
            Op::Checkpoint => self.checkpoint(),
            Op::Rekey(number) => self.rekey(*number),
            Op::RotateDataKey(slice_count) => self.rotate_data_key(*slice_count),
            Op::Beside(op) => self.run_in_beside(op),
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

    fn pause_or_go_on(&mut self) {
        self.pause = match self.pause.take() {
            Some(_) => None,
            None => Some(self.db.pause_background()),
        };
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

    /// Compacts a range, for so many slices at most. What it flushes is durable.
    fn compact(&self, slot: Slot, extent: &Extent, slice_count: u8) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(slot) else { return Ok(()) };
        let range = extent.key_range();
        let (mut left, mut slices) = (slice_count, 0);
        let report = keyspace.compact_while((range.start, range.end), |so_far| {
            slices = so_far.slices;
            left = left.saturating_sub(1);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let is_whole = report.is_cancelled || report.bytes_left == 0;
        if report.slices != slices || !is_whole {
            return Err(absurd(format!("{slices} slices of a compaction: {report:?}")));
        }
        Ok(())
    }

    /// Commits one edit: by its own call if it is a merge, else as a batch.
    fn run_edit(&self, edit: KeyEdit, durability: Durability) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(edit.0) else { return Ok(()) };
        if let (Edit::Merge(operand), Kind::Merging) = (edit.2, self.kind_of(&keyspace)) {
            let change = self.change_of(&keyspace, edit, &[]);
            let (key, operand) = (edit.1.bytes(), operand.bytes());
            let merge = |_: &Db| keyspace.merge_with(key, operand, durability);
            return self.commit([change], durability, merge);
        }
        let (mut batch, mut issued) = (WriteBatch::new(), Vec::new());
        self.add_edits(&mut batch, &mut issued, &[edit]);
        self.commit(issued, durability, |db| db.write_with(batch, durability))
    }

    /// Has a key expire, or refuses to, where nothing can.
    fn expire(&self, slot: Slot, key: Key, life: Life) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(slot) else { return Ok(()) };
        let until = match self.until_of(life) {
            Until::After(millis) => Until::At(now_of(&self.db) + millis),
            other => other,
        };
        let (key, expiry) = (key.bytes(), expiry_of(until));
        if self.kind_of(&keyspace) == Kind::Merging {
            return match keyspace.set_expiry(&key, expiry) {
                Err(Error::InvalidArgument { .. }) => Ok(()),
                other => Err(absurd(format!("expiry where operands are merged: {other:?}"))),
            };
        }
        let row = self.timeline().rows(keyspace.id()).get(&key).cloned();
        let Some(row) = row.filter(|row| row.is_there(now_of(&self.db))) else {
            return match keyspace.set_expiry(&key, expiry)? {
                false => Ok(()),
                true => Err(absurd(format!("a key that is not there expires: {key:?}"))),
            };
        };
        let value = Some(row.value.to_vec());
        let change = Change { keyspace: keyspace.id(), key: key.clone(), value, until };
        self.commit([change], Durability::Buffered, |db| {
            let mut transaction = db.begin_update();
            let value = transaction.get(&keyspace, &key)?.unwrap_or_default();
            transaction.put_until(&keyspace, &key, value, expiry)?;
            transaction.commit_with(Durability::Buffered)
        })
    }

    /// What a keyspace takes.
    fn kind_of(&self, keyspace: &Keyspace) -> Kind {
        let infos = self.db.keyspaces();
        let options = infos.into_iter().find(|info| info.id == keyspace.id());
        match options.map(|info| info.options) {
            Some(options) if options.merge_operator.is_some() => Kind::Merging,
            Some(options) => Kind::Expiring(options.ttl),
            None => Kind::Expiring(None),
        }
    }

    fn until_of(&self, life: Life) -> Until {
        match life {
            Life::Forever => Until::Never,
            Life::For(millis) => Until::After(u64::from(millis)),
            Life::Until(millis) => Until::At(self.began.saturating_add_signed(millis.into())),
        }
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
                Edit::Merge(operand) => match self.kind_of(&keyspace) {
                    Kind::Merging => batch.merge(&keyspace, key, operand.bytes()),
                    Kind::Expiring(_) => batch.put(&keyspace, key, operand.bytes()),
                },
                Edit::PutExpiring(value, life) => match (self.kind_of(&keyspace), life) {
                    (Kind::Merging, _) => batch.put(&keyspace, key, value.bytes()),
                    (Kind::Expiring(_), Life::For(millis)) => {
                        let ttl = Duration::from_millis(millis.into());
                        batch.put_with_ttl(&keyspace, key, value.bytes(), ttl);
                    }
                    (Kind::Expiring(_), life) => {
                        let expiry = expiry_of(self.until_of(life));
                        batch.put_until(&keyspace, key, value.bytes(), expiry);
                    }
                },
            }
        }
    }

    /// What an edit comes to behind what the same commit has changed before.
    fn change_of(&self, keyspace: &Keyspace, (_, key, edit): KeyEdit, before: &[Change]) -> Change {
        let (id, key, kind) = (keyspace.id(), key.bytes(), self.kind_of(keyspace));
        let by_default = match kind {
            Kind::Expiring(Some(ttl)) => Until::After(ttl.as_millis() as u64),
            _ => Until::Never,
        };
        let (value, until) = match (edit, kind) {
            (Edit::Delete, _) => (None, Until::Never),
            (Edit::Merge(operand), Kind::Merging) => {
                let own = before.iter().rfind(|own| own.keyspace == id && own.key == key);
                let existing = match own {
                    Some(own) => own.value.clone(),
                    None => self.timeline().rows(id).get(&key).map(|row| row.value.to_vec()),
                };
                (Some(tail(existing.as_deref(), &operand.bytes())), Until::Never)
            }
            (Edit::PutExpiring(value, life), Kind::Expiring(_)) => {
                (Some(value.bytes()), self.until_of(life))
            }
            (Edit::Put(value) | Edit::Merge(value) | Edit::PutExpiring(value, _), _) => {
                (Some(value.bytes()), by_default)
            }
        };
        Change { keyspace: id, key, value, until }
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
        issued.extend(self.erasures(erased.id(), range, &issued));
        self.add_edits(&mut batch, &mut issued, behind);
        if batch.is_empty() {
            return Ok(()); // An empty range and nothing else.
        }
        self.commit(issued, durability, |db| db.write_with(batch, durability))
    }

    /// What deleting a range comes to behind what the same commit has changed before.
    fn erasures(&self, keyspace: u32, range: &KeyRange, before: &[Change]) -> Vec<Change> {
        let rows = self.timeline().rows(keyspace);
        let own = before.iter().filter(|change| change.keyspace == keyspace);
        let keys = rows.keys().chain(own.map(|change| &change.key));
        let until = Until::Never;
        keys.filter(|key| range.contains(key))
            .map(|key| Change { keyspace, key: key.clone(), value: None, until })
            .collect()
    }

    /// Ingests entries; one that does not finish must leave nothing. Each is told when it expires,
    /// if anything can: a keyspace's own time to live counts from no stamp.
    fn ingest(
        &self,
        slot: Slot,
        entries: &[(Key, Value, Option<Life>)],
        end: IngestEnd,
    ) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(slot) else { return Ok(()) };
        if self.has_indexes(keyspace.id()) {
            return expect_no_ingest(&keyspace);
        }
        let may_expire = self.kind_of(&keyspace) != Kind::Merging;
        let until_of = |life: Option<Life>| match life.map(|life| self.until_of(life)) {
            Some(until @ Until::At(_)) if may_expire => until,
            _ => Until::Never,
        };
        let entries = entries.iter();
        let rows: BTreeMap<Vec<u8>, (Vec<u8>, Until)> = entries
            .map(|(key, value, life)| (key.bytes(), (value.bytes(), until_of(*life))))
            .collect();
        let add_all = || {
            let mut ingest = keyspace.begin_ingest()?;
            for (key, (value, until)) in &rows {
                ingest.add_until(key, value, expiry_of(*until))?;
            }
            Ok::<_, Error>(ingest)
        };
        if end == IngestEnd::Finish {
            let changes = rows.iter().map(|(key, (value, until))| Change {
                keyspace: keyspace.id(),
                key: key.clone(),
                value: Some(value.clone()),
                until: *until,
            });
            return self.commit(changes, Durability::Sync, |_| Ok(add_all()?.finish()?.seqno));
        }
        let mut ingest = add_all()?;
        if end == IngestEnd::Drop {
            return Ok(());
        }
        let last = rows.last_key_value().map(|(key, _)| key.clone()).unwrap_or_default();
        match (ingest.add(&last, b"again"), ingest.finish()) {
            (Err(Error::InvalidArgument { .. }), Err(Error::InvalidArgument { .. })) => Ok(()),
            other => Err(absurd(format!("a key was ingested twice: {other:?}"))),
        }
    }

    /// Makes tables, and ingests them.
    fn ingest_tables(&self, slot: Slot, tables: &TablesOp) -> Result<(), Trouble> {
        let Some(keyspace) = self.keyspace(slot) else { return Ok(()) };
        if self.has_indexes(keyspace.id()) {
            return self.expect_no_tables(&keyspace);
        }
        let infos = self.db.keyspaces();
        let info = infos.iter().find(|info| info.id == keyspace.id() && !info.has_own_key);
        let deletes = info.is_some_and(|info| info.options.structure == Structure::Lsm);
        let may_expire = self.kind_of(&keyspace) != Kind::Merging;
        let until_of = |life: &Option<Life>| match life.map(|life| self.until_of(life)) {
            Some(until @ Until::At(_)) if may_expire => until,
            _ => Until::Never,
        };
        let rows: BTreeMap<Vec<u8>, (Option<Vec<u8>>, Until)> = tables
            .entries
            .iter()
            .filter(|(_, value, _)| deletes || value.is_some())
            .map(|(key, value, life)| match value {
                Some(value) => (key.bytes(), (Some(value.bytes()), until_of(life))),
                None => (key.bytes(), (None, Until::Never)),
            })
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let range = tables.range.filter(|_| deletes).map(|(a, b)| a.bytes()..b.bytes());
        let id = keyspace.id();
        let change =
            |key: &[u8], value, until| Change { keyspace: id, key: key.to_vec(), value, until };
        let mut changes = Vec::new();
        for key in self.timeline().rows(id).keys() {
            if range.as_ref().is_some_and(|range| range.contains(key)) {
                changes.push(change(key, None, Until::Never));
            }
        }
        let changed = rows.iter().map(|(key, (value, until))| change(key, value.clone(), *until));
        changes.extend(changed);
        let rows: Vec<_> = rows.into_iter().collect();
        let len = rows.len().div_ceil(usize::from(tables.table_count));
        self.commit(changes, Durability::Sync, |_| {
            let mut paths = Vec::new();
            for rows in rows.chunks(len) {
                let path = self.next_table_path();
                let mut writer = keyspace.table_writer(&path)?;
                for (key, (value, until)) in rows {
                    match value {
                        Some(value) => writer.put_until(key, value, expiry_of(*until))?,
                        None => writer.delete(key)?,
                    }
                }
                if let Some(range) = &range {
                    writer.delete_range(range.clone())?;
                }
                writer.finish()?;
                paths.push(path);
            }
            let how = TableIngestOptions::copying().mode(tables.mode);
            let report = keyspace.ingest_tables(&paths, how)?;
            if !report.not_removed.is_empty() {
                self.has_told.store(true, Ordering::Relaxed);
            }
            Ok(report.seqno)
        })
    }

    fn next_table_path(&self) -> PathBuf {
        let number = self.table_count.fetch_add(1, Ordering::Relaxed);
        self.setup.path.with_file_name(format!("table-{}-{number}", self.began))
    }

    fn commit(
        &self,
        changes: impl IntoIterator<Item = Change>,
        durability: Durability,
        write: impl FnOnce(&Db) -> Result<SeqNo, Error>,
    ) -> Result<(), Trouble> {
        let was_in_doubt = self.timeline().is_in_doubt();
        let changes: Vec<Change> = changes.into_iter().collect();
        let refusals = self.refusals_of(&changes);
        if !was_in_doubt {
            let now = now_of(&self.db).max(self.clock.wall_millis());
            self.timeline().issue(now, changes);
        }
        match write(&self.db) {
            Ok(_) if was_in_doubt => {
                let what = "a commit was acknowledged after one whose fate is unknown";
                Err(Finding::new(Fault::AcknowledgedAfterFailure, what).into())
            }
            Ok(seqno) => {
                let before = self.timeline().last_seqno();
                self.timeline().acknowledge(seqno, durability);
                if refusals.is_certain {
                    return Err(absurd("an index has a key twice, and is unique".to_owned()));
                }
                Ok(expect_rising(before, seqno)?)
            }
            // Where the fate of a commit is unknown, so is what there is.
            Err(Error::UniqueViolation { .. }) if was_in_doubt => Ok(()),
            Err(error) if refusals.has(&error) => {
                self.timeline().take_back();
                Ok(())
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

    fn create(&mut self, name: &str, number: u8) -> Result<(), Trouble> {
        if self.keyspaces.len() >= KEYSPACE_COUNT_MAX {
            return Ok(());
        }
        let options = self.setup.keyspace_options(usize::from(number));
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
        // One in two has a key of its own where there are keys.
        let created = match self.setup.encrypted && number % 2 == 1 {
            true => self.db.create_keyspace_with_own_key(name, options),
            false => self.db.create_keyspace(name, options),
        };
        match created {
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
        // A table that is made outside may find no room whatever the database's state.
        let is_inside = |path: &PathBuf| path.starts_with(&self.setup.path);
        match self.db.stats().read_only {
            Some(why) if matches!(error, Error::DiskFull { path } if is_inside(path)) => {
                let what = format!("{error}, and the database is read-only: {why}");
                Err(Finding::new(Fault::BadError, what))
            }
            _ => Ok(()),
        }
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

/// A keyspace that has indexes takes no ingest, and says so.
fn expect_no_ingest(keyspace: &Keyspace) -> Result<(), Trouble> {
    match keyspace.begin_ingest() {
        Err(Error::InvalidArgument { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(absurd("a keyspace that takes no ingest began one".to_owned())),
    }
}
