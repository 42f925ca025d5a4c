//! The manifest's files: an edit log that holds the catalogue, and the catalogue in memory.
//!
//! Invariants
//! - M1  An edit is durable before it shows in memory; after an error the memory is unchanged.
//! - M2  What is in memory is what reading the file would give: edits are applied in the form in
//!   which they were written.

use crate::base::{Entropy, Error, Result};
use crate::manifest::edit_log::{self, EditLog, EditLogId, EditLogImage, OpenReport, SnapshotSink};
use crate::manifest::edit_log::{GoesOn, LogTail};
use crate::manifest::records::{Loader, decode_edit, encode_edit, encode_snapshot};
use crate::manifest::state::{CatalogState, Closing, Edit};
use crate::manifest::totals::Totals;
use crate::storage::Storage;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STEM: &str = "MANIFEST";
/// Keyspaces' journals have other kinds.
const KIND: u32 = 1;
const FIRST_NUMBER: u64 = 1;
/// Room for edits in a file, at least: several hundred of the usual size.
const EDIT_ROOM_MIN: u64 = 64 << 10;

/// The catalogue of a database, kept in the files `MANIFEST-<number>` of its directory.
#[derive(Debug)]
pub struct Manifest {
    log: EditLog,
    state: CatalogState,
    /// What goes along with the next edit.
    totals: Totals,
    /// Bytes written since opening.
    bytes_written: u64,
}

/// What an edit means to who follows the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowedEdit {
    /// Which keyspaces there are, or what they are, has changed; or cannot be told.
    Catalog,
    /// The log in front of this place is not needed any more.
    LogNeededFrom(u64),
    /// Nothing.
    Nothing,
}

impl FollowedEdit {
    fn of(payload: &[u8]) -> FollowedEdit {
        match decode_edit(payload) {
            Ok((edit, _)) => FollowedEdit::of_edit(&edit),
            Err(_) => FollowedEdit::Catalog,
        }
    }

    fn of_edit(edit: &Edit) -> FollowedEdit {
        match edit {
            Edit::AdvanceLog { log_start, .. } => FollowedEdit::LogNeededFrom(*log_start),
            Edit::ForgetDropped { .. }
            | Edit::ReserveStores { .. }
            | Edit::KeepLog { .. }
            | Edit::SetConsumer { .. }
            | Edit::RemoveConsumer { .. }
            | Edit::SetTrail(_)
            | Edit::EndTrail(_)
            | Edit::RemoveTrail
            | Edit::CleanClose(_) => FollowedEdit::Nothing,
            Edit::CreateKeyspace(_)
            | Edit::CreateWithArchive { .. }
            | Edit::DropKeyspace { .. }
            | Edit::FinishIndex { .. }
            | Edit::ConvertKeyspace { .. }
            | Edit::RenameKeyspace { .. }
            | Edit::SetOptions { .. } => FollowedEdit::Catalog,
            Edit::Stamped { edit, .. } => FollowedEdit::of_edit(edit),
        }
    }
}

impl Manifest {
    /// Hands out what edits mean that somebody else has written behind `tail`.
    ///
    /// # Errors
    /// `Corruption`, `Io`.
    pub fn follow(
        tail: &mut LogTail,
        storage: &dyn Storage,
        see: &mut dyn FnMut(FollowedEdit),
    ) -> Result<GoesOn> {
        tail.read_on(storage, &mut |payload| {
            see(FollowedEdit::of(payload));
            Ok(())
        })
    }

    /// Where reading it ended when it was opened; none of one that was made.
    #[must_use]
    pub fn found(&self) -> Option<&LogTail> {
        self.log.found()
    }

    /// Whether `dir` has a manifest, and with it a database.
    ///
    /// # Errors
    /// `Io`.
    pub fn exists(storage: &dyn Storage, dir: &Path) -> Result<bool> {
        edit_log::exists(storage, dir, STEM)
    }

    /// Whether a manifest has such a name, in the directory of its database.
    pub fn is_name(name: &str) -> bool {
        edit_log::is_log_name(STEM, name)
    }

    /// The id of the database in `dir`, which is read without its keys.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`, `Io`.
    pub fn database_in(storage: &dyn Storage, dir: &Path) -> Result<u64> {
        edit_log::newest_database(storage, dir, STEM)
    }

    /// Makes the manifest of a new database, which exists from then on. Durable on return, if the
    /// entry of `dir` itself is.
    ///
    /// # Errors
    /// `InvalidArgument` when there is one, `DiskFull`, `Io`.
    pub fn create(
        storage: Arc<dyn Storage>,
        dir: &Path,
        entropy: &dyn Entropy,
        now_millis: u64,
    ) -> Result<Manifest> {
        if Manifest::exists(&*storage, dir)? {
            return Err(Error::invalid(format!("{} holds a database already", dir.display())));
        }
        let database = entropy.next_u64().max(1); // 0 means none
        let state = CatalogState::new(database, now_millis);
        let parts = encode_snapshot(&state);
        let room = edit_room(&parts, 0);
        let write = |sink: &mut SnapshotSink| put_parts(sink, &parts);
        let log = EditLog::create(storage, dir, log_id(database), FIRST_NUMBER, room, write)?;
        let bytes_written = log.position().offset;
        Ok(Manifest { log, state, totals: Totals::default(), bytes_written })
    }

    /// Opens the manifest in `dir`, cutting off an edit that was being written when the machine
    /// stopped, and removing older files.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`, `Io`.
    pub fn open(storage: Arc<dyn Storage>, dir: &Path) -> Result<(Manifest, OpenReport)> {
        let database = edit_log::newest_database(&*storage, dir, STEM)?;
        let mut loader = Loader::new(database);
        let visit = |record: edit_log::RecordRef<'_>| loader.take(record);
        let (log, report) = EditLog::open(storage, dir, log_id(database), None, visit)?;
        let state = loader.finish();
        let totals = state.totals.clone();
        let manifest = Manifest { log, state, totals, bytes_written: 0 };
        manifest.remove_older();
        Ok((manifest, report))
    }

    /// Reads the manifest in `dir` without changing anything.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`, `Io`.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<(CatalogState, OpenReport)> {
        let database = edit_log::newest_database(storage, dir, STEM)?;
        let mut loader = Loader::new(database);
        let visit = |record: edit_log::RecordRef<'_>| loader.take(record);
        let report = edit_log::read(storage, dir, &log_id(database), None, visit)?;
        Ok((loader.finish(), report))
    }

    /// What is left of a manifest that is damaged: the state as of the last edit in front of the
    /// damage, and what is wrong; no state where not even the snapshot is whole. Nothing is
    /// changed.
    ///
    /// # Errors
    /// `FormatVersion`, `KeyNeeded`.
    pub fn salvage(
        storage: &dyn Storage,
        dir: &Path,
    ) -> Result<(Option<CatalogState>, Option<Error>)> {
        let is_damage =
            |error: &Error| matches!(error, Error::Corruption { .. } | Error::Io { .. });
        let database = match edit_log::newest_database(storage, dir, STEM) {
            Ok(database) => database,
            Err(error) if is_damage(&error) => return Ok((None, Some(error))),
            Err(error) => return Err(error),
        };
        let mut loader = Loader::new(database);
        let visit = |record: edit_log::RecordRef<'_>| loader.take(record);
        match edit_log::read(storage, dir, &log_id(database), None, visit) {
            Ok(_) => Ok((loader.so_far(), None)),
            Err(error) if is_damage(&error) => Ok((loader.so_far(), Some(error))),
            Err(error) => Err(error),
        }
    }

    /// Makes the manifest of a database whose files are there already, in a directory that has
    /// none. Durable on return, and then the directory is a database.
    ///
    /// # Errors
    /// `InvalidArgument` when there is one, `DiskFull`, `Io`.
    pub fn create_with(storage: Arc<dyn Storage>, dir: &Path, state: &CatalogState) -> Result<()> {
        let parts = encode_snapshot(state);
        let room = edit_room(&parts, 0);
        let write = |sink: &mut SnapshotSink| put_parts(sink, &parts);
        let mut log =
            EditLog::create(storage, dir, log_id(state.database()), FIRST_NUMBER, room, write)?;
        log.settle()
    }

    /// Whether the manifest in `dir` is sealed, by its header.
    ///
    /// # Errors
    /// `Corruption` when there is none; `Io`.
    pub fn is_sealed(storage: &dyn Storage, dir: &Path) -> Result<bool> {
        edit_log::is_sealed(storage, dir, STEM)
    }

    /// The catalogue.
    #[must_use]
    pub fn state(&self) -> &CatalogState {
        &self.state
    }

    /// Its files as of the last edit.
    #[must_use]
    pub fn image(&self) -> EditLogImage {
        self.log.image()
    }

    /// The newest file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.log.path()
    }

    /// File and offset of the mark that opening found damaged and wrote anew, if there was one.
    #[must_use]
    pub fn mended_mark(&self) -> Option<&(PathBuf, u64)> {
        self.log.mended_mark()
    }

    /// Why no edit is accepted any more, if so: an earlier one happened or not.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.log.failure()
    }

    /// Has the next edits take these totals along. They are in [`Manifest::state`] when one did.
    pub fn note_totals(&mut self, totals: Totals) {
        self.totals = totals;
    }

    /// Bytes written since opening.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Changes the catalogue. Durable on return. Costs one sync, and three when a new file is
    /// begun, every few hundred edits.
    ///
    /// # Errors
    /// `InvalidArgument`, `KeyspaceExists`, `KeyspaceNotFound`: nothing happened. `DiskFull`: there
    /// was no room for a new file; nothing happened, and it may be tried again. `Io`: it happened
    /// or not, which reopening shows; every later edit gives `ReadOnly`.
    pub fn apply(&mut self, edit: &Edit) -> Result<()> {
        if self.state.wants_stamp(edit) {
            return Err(Error::invalid("an edit that a trail has to tell of, without a stamp"));
        }
        self.state.check(edit)?;
        let payload = encode_edit(edit, &self.totals);
        // M2; also a check that what is about to be written can be read.
        let (as_read, totals) = decode_edit(&payload)
            .map_err(|malformed| Error::invalid(format!("the edit: {}", malformed.what)))?;
        if !self.log.fits(payload.len()) {
            let parts = encode_snapshot(&self.state);
            let room = edit_room(&parts, payload.len());
            self.log.rotate(room, |sink| put_parts(sink, &parts))?;
            self.bytes_written += self.log.position().offset;
            self.remove_older();
        }
        self.log.append(&payload)?;
        self.bytes_written += EditLog::edit_size(payload.len());
        self.state.apply(as_read, totals);
        Ok(())
    }

    /// Goes on in a new file.
    ///
    /// # Errors
    /// As [`Manifest::apply`].
    pub fn begin_new_file(&mut self) -> Result<()> {
        let parts = encode_snapshot(&self.state);
        let room = edit_room(&parts, 0);
        self.log.rotate(room, |sink| put_parts(sink, &parts))?;
        self.bytes_written += self.log.position().offset;
        self.log.remove_older()
    }

    /// Notes that the database is being closed, and makes the manifest ready to lie at rest.
    ///
    /// # Errors
    /// As [`Manifest::apply`].
    pub fn close(&mut self, closing: Closing) -> Result<()> {
        self.apply(&Edit::CleanClose(closing))?;
        self.log.settle()
    }

    fn remove_older(&self) {
        // An older file that stays costs its bytes and nothing else: no one reads it, and the next
        // rotation and the next open try again. So a failure must not fail the edit.
        let _ = self.log.remove_older();
    }
}

fn log_id(database: u64) -> EditLogId {
    EditLogId { stem: STEM, kind: KIND, database, owner: 0 }
}

/// As much room as the snapshot takes, so that writing snapshots at most doubles what is written.
fn edit_room(parts: &[Vec<u8>], edit_len: usize) -> u64 {
    let snapshot_size: u64 = parts.iter().map(|part| EditLog::edit_size(part.len())).sum();
    EDIT_ROOM_MIN.max(snapshot_size).max(EditLog::edit_size(edit_len))
}

fn put_parts(sink: &mut SnapshotSink, parts: &[Vec<u8>]) -> Result<()> {
    parts.iter().try_for_each(|part| sink.part(part))
}
