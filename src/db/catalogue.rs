//! Keyspaces come, get another name, and go.
//!
//! Their files are made before the edit of the manifest that has them exist (H1), and go when
//! nobody needs them, behind the edit that drops them.

use std::sync::Arc;

use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result};
use crate::db::core::{Core, keyspace_dir, keyspaces_dir, lock};
use crate::db::encryption::KeyOf;
use crate::db::maintain::runtime_of;
use crate::db::state::{KeyspaceState, Runtime, Table, archive_name, is_hidden_name};
use crate::manifest::{Edit, KeyspaceOptions, KeyspaceRecord, Manifest, Structure};
use crate::storage::{clear_directory, clear_directory_for_good};
use crate::structure::{Store, create_store, open_store};

/// The stores of an archive, if there is one, and of its keyspace.
type Made = (Option<Arc<dyn Store>>, Arc<dyn Store>);

impl Core {
    /// Creates a keyspace, with the archive that it may need: their files first, then the edit that
    /// makes them exist (H1).
    pub(super) fn create_keyspace(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Arc<KeyspaceState>> {
        self.create_keyspace_as(name, options, KeyOf::Database)
    }

    /// The same, sealed with one key or the other in an encrypted database.
    pub(super) fn create_keyspace_as(
        &self,
        name: &str,
        options: KeyspaceOptions,
        key_of: KeyOf,
    ) -> Result<Arc<KeyspaceState>> {
        self.check_writable()?;
        self.check_new(name, &options)?;
        // Options may have come of a keyspace that has one.
        let options = KeyspaceOptions { own_key: key_of == KeyOf::Keyspace, ..options.rounded() };
        let mut manifest = self.lock_manifest_for_edit()?;
        let id = manifest.state().next_keyspace_id();
        let created = self.log.next_stamp(self.time.wall_for_stamp());
        let record = |id, name: &str, options| KeyspaceRecord {
            id,
            store: id,
            name: name.to_owned(),
            options,
            created,
            journal: None,
        };
        match options.structure {
            Structure::History => {
                let of_archive = options.of_archive(id + 1, self.sizes.archive_table);
                let archive = record(id, &archive_name(id + 1), of_archive);
                let keyspace = record(id + 1, name, options);
                self.create_of_records(&mut manifest, &keyspace, Some(archive))
            }
            Structure::Flex | Structure::Lsm => {
                self.create_of_records(&mut manifest, &record(id, name, options), None)
            }
        }
    }

    /// Whether there can be a keyspace of this name, with these options, beside those that are.
    pub(super) fn check_new(&self, name: &str, options: &KeyspaceOptions) -> Result<()> {
        check_name(name)?;
        options.validate()?;
        match self.lock_manifest().state().keyspaces().any(|record| record.name == name) {
            true => Err(Error::KeyspaceExists { name: name.to_owned() }),
            false => Ok(()),
        }
    }

    /// Creates a keyspace that the catalogue is to have so, with the archive that it may need.
    pub(super) fn create_of_records(
        &self,
        manifest: &mut Manifest,
        keyspace: &KeyspaceRecord,
        archive: Option<KeyspaceRecord>,
    ) -> Result<Arc<KeyspaceState>> {
        let edit = match archive.clone() {
            Some(archive) => {
                let (archive, keyspace) = (Box::new(archive), keyspace.clone());
                Edit::CreateWithArchive { archive, keyspace }
            }
            None => Edit::CreateKeyspace(keyspace.clone()),
        };
        manifest.state().check(&edit)?;
        let numbers = archive.iter().chain([keyspace]).map(|record| record.id);
        let numbers: Vec<u32> = numbers.collect();
        let mut made = || -> Result<Made> {
            match &keyspace.options.index {
                _ if !keyspace.options.own_key => {}
                Some(index) => self.share_own_key(manifest.state(), index.of, &numbers)?,
                None => self.give_own_key(&numbers)?,
            }
            let its_store = archive.as_ref().map(|archive| self.create_store_of(archive));
            let (its_store, store) = (its_store.transpose()?, self.create_store_of(keyspace)?);
            self.apply_edit(manifest, &edit)?;
            Ok((its_store, store))
        };
        let (its_store, store) = made().inspect_err(|_| self.take_back_own_key(&numbers))?;
        let sizes = (self.sizes.memtable, &self.time);
        let runtime_of = |record: &KeyspaceRecord, store, archive| {
            runtime_of(record, store, &self.values, &self.budget, sizes, archive)
        };
        let archive =
            archive.zip(its_store).map(|(record, store)| runtime_of(&record, store, None));
        let runtime = runtime_of(keyspace, store, archive.clone());
        self.published.replace(|state| {
            let both = archive.iter().chain([&runtime]);
            both.fold(state.clone(), |state, runtime| state.with(self.state_of(runtime)))
        });
        let state = self.published.state();
        let created = state.find(runtime.id).cloned();
        Ok(created.expect("nobody drops it while the manifest is locked"))
    }

    /// A keyspace without entries in memtables.
    pub(super) fn state_of(&self, runtime: &Arc<Runtime>) -> KeyspaceState {
        let active = Table::new(&self.meter, runtime);
        let version = runtime.store.version();
        KeyspaceState::new(Arc::clone(runtime), active, version)
    }

    /// Makes the files of a keyspace that does not exist yet.
    pub(super) fn create_store_of(&self, record: &KeyspaceRecord) -> Result<Arc<dyn Store>> {
        let place = self.store_place(record.store, &record.options);
        clear_directory(&*self.storage, &place.dir)?; // of a creation that a crash interrupted
        let io = |action, error| Error::io(action, &place.dir, error);
        self.storage.create_dir_all(&place.dir).map_err(|error| io("create", error))?;
        create_store(&place)?;
        let parent = keyspaces_dir(&self.dir);
        self.storage.sync_dir(&parent).map_err(|error| Error::io("sync", &parent, error))?;
        open_store(&place, None)
    }

    /// Drops a keyspace, with its archive and its indexes: the edit first; their files when nobody
    /// reads them any more, and then a key of its own.
    pub(super) fn drop_keyspace(&self, name: &str) -> Result<()> {
        if self.drop_from_catalogue(name)? {
            let _told_to_who_asks_for_it = self.destroy_keys();
        }
        Ok(())
    }

    /// Whether it had a key of its own.
    fn drop_from_catalogue(&self, name: &str) -> Result<bool> {
        let found = self.find_keyspace(name)?;
        self.check_writable()?;
        let _no_index_comes = lock(&self.indexing);
        let mut manifest = self.lock_manifest_for_edit()?;
        expect_name(&found.runtime, name)?;
        self.note_stamp_of(&found.seat.load_full(), &mut manifest)?;
        self.apply_edit(&mut manifest, &Edit::DropKeyspace { id: found.runtime.id })?;
        let runtime = found.seat.load_full(); // It may have been converted since.
        drop(found);
        let state = self.published.state();
        let indexes = state.find(runtime.id).and_then(|keyspace| keyspace.indexes.clone());
        drop(state);
        let indexes = indexes.iter().flat_map(|set| &set.indexes);
        let indexes = indexes.map(|index| Arc::clone(&index.runtime));
        let mut all: Vec<_> = runtime.archive.iter().cloned().chain(indexes).collect();
        let had_own_key = runtime.options.own_key;
        all.push(runtime);
        self.forget_keyspaces(&all);
        Ok(had_own_key)
    }

    /// Has the catalogue know of the newest stamp of a keyspace whose files are about to go, and of
    /// its archive: that of an ingest, or of the beginning of a past, is in no log, and would be
    /// given again.
    pub(super) fn note_stamp_of(&self, runtime: &Runtime, manifest: &mut Manifest) -> Result<()> {
        let archived = runtime.archive.as_ref().map(|archive| archive.store.last_seqno());
        let newest = runtime.store.last_seqno().max(archived.unwrap_or_default());
        let known = manifest.state().last_seqno();
        if newest <= known {
            return Ok(());
        }
        let log_start = manifest.state().log_start();
        let edit = Edit::AdvanceLog { log_start, journals: Vec::new(), last_seqno: newest };
        self.apply_edit(manifest, &edit)
    }

    /// Takes keyspaces out of the state that the manifest has not any more.
    pub(super) fn forget_keyspaces(&self, gone: &[Arc<Runtime>]) {
        gone.iter().for_each(|runtime| self.note_gone(runtime.store_id));
        // Between commits: one that comes later finds the keyspace gone.
        let applier = self.log.lock_applier();
        let before = self.published.state();
        self.published.replace(|state| {
            gone.iter().fold(state.clone(), |state, runtime| state.without(runtime.id))
        });
        // No flush frees them any more, so writers must not be made to wait for it.
        let keyspaces = gone.iter().filter_map(|runtime| before.find(runtime.id));
        keyspaces.flat_map(|keyspace| keyspace.tables()).for_each(|table| table.note_flushed());
        drop(applier);
        if gone.iter().any(|runtime| runtime.options.own_key) {
            self.raise_gate();
        }
        for runtime in gone {
            self.failures.forget(runtime.id);
            runtime.dropped.store(true, Ordering::Release);
            self.dropped.note(runtime);
        }
    }

    /// Renames a keyspace.
    pub(super) fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        let runtime = Arc::clone(&self.find_keyspace(from)?.runtime);
        self.check_writable()?;
        check_name(to)?;
        let mut manifest = self.lock_manifest_for_edit()?;
        expect_name(&runtime, from)?;
        let edit = Edit::RenameKeyspace { id: runtime.id, name: to.to_owned() };
        self.apply_edit(&mut manifest, &edit)?;
        runtime.name.store(Arc::new(to.to_owned()));
        Ok(())
    }

    /// Removes the files of one keyspace that was dropped, or of a store that was replaced or given
    /// up, that nobody reads any more. Whether there was one.
    pub(super) fn remove_dropped(&self) -> Result<bool> {
        let Some(store_id) = self.dropped.take_unreferenced() else { return Ok(false) };
        self.remove_loose(store_id).inspect_err(|_| self.dropped.put_back(store_id))?;
        Ok(true)
    }

    /// Removes the files of a store that is nobody's.
    pub(super) fn remove_loose(&self, store_id: u32) -> Result<()> {
        // Else its files could come back when nobody knows of them any more.
        clear_directory_for_good(&*self.storage, &keyspace_dir(&self.dir, store_id))?;
        let forget = Edit::ForgetDropped { id: store_id };
        self.apply_edit(&mut *self.lock_manifest_for_edit()?, &forget)
    }
}

/// Checks that a keyspace still has the name that it was found by. Under the manifest's lock, where
/// names change.
fn expect_name(runtime: &Runtime, name: &str) -> Result<()> {
    match **runtime.name.load() == name {
        true => Ok(()),
        false => Err(Error::KeyspaceNotFound { name: name.to_owned() }),
    }
}

/// Checks that it is no name of what nobody is to see.
fn check_name(name: &str) -> Result<()> {
    match is_hidden_name(name) {
        true => Err(Error::invalid("the name of a keyspace does not begin with a zero byte")),
        false => Ok(()),
    }
}
