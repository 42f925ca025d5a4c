//! Doing again what a trail tells, in a database that was restored from a backup of before: each
//! commit with the stamp that it had, each edit of the catalogue at its place among them.
//!
//! It goes the way of any commit, through log and memtables, with flushes beside it: so memory is
//! bounded however much is told. Merge operators and extractors are not needed: operands stay
//! operands, and what indexes have was part of the commits.
//!
//! The wall clock is that of what was told last. So what expires is judged by that, and nothing
//! goes that was there at the moment at hand.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{Clock, Error, Result, SeqNo, ValuePointer};
use crate::db::batch::{Placed, WriteBatch};
use crate::db::core::Core;
use crate::db::encryption::keys_in;
use crate::db::keyspace::Keyspace;
use crate::db::operation::{DecodedCommit, decode_record};
use crate::db::options::{Access, Builder, Durability, OpenExisting};
use crate::db::state::Runtime;
use crate::db::{Db, Handle};
use crate::manifest::{Edit, KeyspaceRecord};
use crate::seal::Keyring;
use crate::storage::Storage;
use crate::value_log::{NO_FILE, ValueStream};

/// Why something was not done again.
#[derive(Debug)]
pub(crate) enum NotReplayed {
    /// It does not fit what was told before.
    Malformed(String),
    Failed(Error),
}

impl From<Error> for NotReplayed {
    fn from(error: Error) -> NotReplayed {
        match error {
            // What the database was then, it can be again.
            Error::InvalidArgument { .. }
            | Error::KeyspaceExists { .. }
            | Error::KeyspaceNotFound { .. }
            | Error::IndexExists { .. } => NotReplayed::Malformed(error.to_string()),
            error => NotReplayed::Failed(error),
        }
    }
}

type Replayed<T> = std::result::Result<T, NotReplayed>;

fn malformed<T>(what: &str) -> Replayed<T> {
    Err(NotReplayed::Malformed(what.to_owned()))
}

/// A clock whose wall clock stands at what was told last.
#[derive(Debug)]
struct ReplayClock {
    real: Arc<dyn Clock>,
    millis: AtomicU64,
}

impl Clock for ReplayClock {
    fn wall_millis(&self) -> u64 {
        self.millis.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.real.sleep(duration);
    }
}

/// A database that goes on along a trail.
#[derive(Debug)]
pub(crate) struct TrailReplay {
    db: Db,
    clock: Arc<ReplayClock>,
    /// Those that were written to, by number, as long as no edit comes.
    keyspaces: HashMap<u32, Keyspace>,
    /// Everything was done again up to here.
    at: SeqNo,
}

impl Builder {
    /// The keys in the bytes of a keyring's file, which is at `path`.
    ///
    /// # Errors
    /// `KeyNeeded`, `WrongKey`, `VaultFailed`, `Corruption`, `FormatVersion`.
    pub(crate) fn keys_in(&self, bytes: &[u8], path: &Path) -> Result<Arc<Keyring>> {
        match &self.encryption {
            Some(encryption) => keys_in(bytes, path, encryption),
            None => Err(Error::KeyNeeded { file: path.to_owned() }),
        }
    }

    /// Whether it opens encrypted databases.
    pub(crate) fn has_key(&self) -> bool {
        self.encryption.is_some()
    }
}

impl TrailReplay {
    /// Opens the database in `dir`, which has everything up to `from`, and nothing behind.
    ///
    /// # Errors
    /// As opening it; `Corruption` when it has something behind that.
    pub(crate) fn open(
        builder: Builder,
        (storage, dir): (Arc<dyn Storage>, &Path),
        from: SeqNo,
    ) -> Result<TrailReplay> {
        let (real, millis) = (Arc::clone(&builder.clock), AtomicU64::new(from.millis()));
        let clock = Arc::new(ReplayClock { real, millis });
        let builder = builder
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .storage(storage)
            .existing(OpenExisting::Only)
            .access(Access::ReadWrite)
            .durability(Durability::Buffered);
        let db = builder.open(dir)?;
        let newest = db.core().log.last_stamp();
        if newest > from {
            let what = format!("a backup as of {from} has the stamp {newest}");
            return Err(Error::corruption(dir, 0, what));
        }
        Ok(TrailReplay { db, clock, keyspaces: HashMap::new(), at: from })
    }

    /// Its keys, if it is encrypted.
    pub(crate) fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.db.core().storage.keyring()
    }

    /// Begins a large value of the next commit; `None` if its keyspace was dropped: then it is not
    /// written, as that may have had a key of its own, which is gone.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(crate) fn begin_value(&self, keyspace: u32) -> Result<Option<ValueStream>> {
        let core = self.db.core();
        let is_there = core.published.state().find(keyspace).is_some();
        is_there.then(|| ValueStream::begin(&core.values, keyspace)).transpose()
    }

    /// Makes an edit of the catalogue.
    ///
    /// # Errors
    /// [`NotReplayed`].
    pub(crate) fn edit(&mut self, seqno: SeqNo, edit: &[u8]) -> Replayed<()> {
        self.pass(seqno)?;
        let Some(edit) = Edit::decode(edit) else { return malformed("an edit that is none") };
        self.keyspaces.clear();
        let core = self.db.core();
        core.edit_again(edit)?;
        core.log.skip_stamps(seqno);
        Ok(())
    }

    /// Commits what a record says, whose large values are these; `None` for those of keyspaces that
    /// were dropped.
    ///
    /// # Errors
    /// [`NotReplayed`].
    pub(crate) fn commit(
        &mut self,
        seqno: SeqNo,
        record: &[u8],
        values: &[Option<Placed>],
    ) -> Replayed<()> {
        let commit = decode_record(record).filter(|commit| commit.seqno == seqno);
        let Some(DecodedCommit { payload, count, operations, .. }) = commit else {
            return malformed("it is not the commit that it is said to be");
        };
        self.pass(seqno)?;
        let mut batch = WriteBatch::new();
        if let Some(payload) = payload {
            batch.set_payload(payload);
        }
        let mut found = 0;
        for operation in operations {
            let Some(operation) = operation else { return malformed("an operation is malformed") };
            found += 1;
            let Some(keyspace) = self.keyspace(operation.keyspace)? else { continue };
            let placed = operation.pointer().map(|pointer| placed_as(pointer, values));
            batch.push_again(&keyspace, operation.write, placed.transpose()?);
        }
        if found != count {
            return malformed("operations are missing");
        }
        let core = self.db.core();
        match batch.is_empty() {
            true => core.log.skip_stamps(seqno), // All of it was on what was dropped meanwhile.
            false => core.commit_again(batch, seqno)?,
        }
        Ok(())
    }

    /// Makes everything durable and closes. The newest commit.
    ///
    /// # Errors
    /// As [`Db::close`].
    pub(crate) fn finish(self) -> Result<SeqNo> {
        let newest = self.db.core().visible();
        self.db.close()?;
        Ok(newest)
    }

    /// The time comes that this has.
    fn pass(&mut self, seqno: SeqNo) -> Replayed<()> {
        if seqno <= self.at {
            let before = self.at;
            return Err(NotReplayed::Malformed(format!("the stamp {seqno} behind {before}")));
        }
        self.at = seqno;
        self.clock.millis.store(seqno.millis(), Ordering::Relaxed);
        Ok(())
    }

    /// The keyspace of this number; `None` if it was dropped.
    fn keyspace(&mut self, id: u32) -> Replayed<Option<Keyspace>> {
        if let Some(found) = self.keyspaces.get(&id) {
            return Ok(Some(found.clone()));
        }
        let core = self.db.core();
        let state = core.published.state();
        let Some(found) = state.find(id) else {
            let next = core.lock_manifest().state().next_keyspace_id();
            return match (1..next).contains(&id) {
                true => Ok(None),
                false => malformed("it names a keyspace that never was"),
            };
        };
        let handle: Arc<Handle> = Arc::clone(&self.db.handle);
        let keyspace = Keyspace::new(handle, found);
        self.keyspaces.insert(id, keyspace.clone());
        Ok(Some(keyspace))
    }
}

/// The value that a pointer has the number of.
fn placed_as(pointer: &[u8], values: &[Option<Placed>]) -> Replayed<Placed> {
    let pointer = ValuePointer::decode(pointer).filter(|pointer| pointer.file == NO_FILE);
    let number = pointer.and_then(|pointer| usize::try_from(pointer.offset).ok());
    match (pointer, number.and_then(|number| values.get(number)?.as_ref())) {
        (Some(told), Some(placed)) if (told.len, told.hash) == (placed.0.len, placed.0.hash) => {
            Ok(placed.clone())
        }
        _ => malformed("a large value is missing, or another one"),
    }
}

impl Core {
    fn edit_again(&self, edit: Edit) -> Replayed<()> {
        match edit {
            Edit::CreateKeyspace(keyspace) => self.create_again(&keyspace, None)?,
            Edit::CreateWithArchive { archive, keyspace } => {
                self.create_again(&keyspace, Some(*archive))?;
            }
            Edit::DropKeyspace { id } => self.drop_again(id)?,
            Edit::FinishIndex { id } => {
                let mut manifest = self.lock_manifest_for_edit()?;
                let before = manifest.state().replaced_by(id);
                self.apply_edit(&mut manifest, &Edit::FinishIndex { id })?;
                let before = before.and_then(|before| self.runtime_of_id(before));
                self.forget_keyspaces(before.as_slice());
            }
            Edit::RenameKeyspace { id, name } => {
                let mut manifest = self.lock_manifest_for_edit()?;
                let edit = Edit::RenameKeyspace { id, name: name.clone() };
                self.apply_edit(&mut manifest, &edit)?;
                let runtime = self.runtime_of_id(id);
                runtime.iter().for_each(|runtime| runtime.name.store(Arc::new(name.clone())));
            }
            _ => return malformed("an edit that no trail tells of"),
        }
        Ok(())
    }

    /// Creates a keyspace with the number that it had; an index is one that nobody looks into yet.
    fn create_again(
        &self,
        keyspace: &KeyspaceRecord,
        archive: Option<KeyspaceRecord>,
    ) -> Result<()> {
        if keyspace.options.own_key {
            self.give_own_key_to_log()?; // As when it was created.
        }
        let mut manifest = self.lock_manifest_for_edit()?;
        let id = archive.as_ref().unwrap_or(keyspace).id;
        let first = manifest.state().next_keyspace_id();
        // Numbers in between were drawn for stores that came to nothing: opening clears them away.
        if let Some(count) = id.checked_sub(first).filter(|count| *count > 0) {
            self.apply_edit(&mut manifest, &Edit::ReserveStores { first, count })?;
        }
        self.create_of_records(&mut manifest, keyspace, archive).map(drop)
    }

    fn drop_again(&self, id: u32) -> Result<()> {
        let mut manifest = self.lock_manifest_for_edit()?;
        let catalog = manifest.state();
        let archive = catalog.archive_of(id).map(|archive| archive.id);
        let indexes = catalog.indexes_of(id).map(|(record, _)| record.id);
        let gone: Vec<u32> = archive.into_iter().chain(indexes).chain([id]).collect();
        self.apply_edit(&mut manifest, &Edit::DropKeyspace { id })?;
        let gone: Vec<_> = gone.into_iter().filter_map(|id| self.runtime_of_id(id)).collect();
        self.forget_keyspaces(&gone);
        drop(manifest);
        let had_own_key = gone.iter().any(|runtime| runtime.options.own_key);
        drop(gone); // Nothing holds their files.
        if had_own_key {
            let _opening_does_it = self.destroy_keys();
        }
        Ok(())
    }

    fn runtime_of_id(&self, id: u32) -> Option<Arc<Runtime>> {
        let state = self.published.state();
        state.find(id).map(|found| Arc::clone(&found.runtime))
    }
}
