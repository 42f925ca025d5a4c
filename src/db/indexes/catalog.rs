//! Which indexes there are: creating, finishing, dropping and listing them. Each is one edit of the
//! manifest, and then a change of the state that no commit misses (N1).

use std::sync::Arc;

use super::set::{IndexOf, Stage, index_keyspace_name};
use super::{Index, IndexInfo, IndexOptions};
use crate::base::{Error, Result};
use crate::db::core::{Core, lock};
use crate::db::keyspace::Keyspace;
use crate::db::maintain::runtime_of;
use crate::db::state::{KeyspaceState, Runtime, State, Table};
use crate::extractor::{Extraction, check_name};
use crate::manifest::{Edit, IndexRecord, KeyspaceRecord, check_index_name};
use crate::structure::Store;

impl Keyspace {
    /// The index of this name.
    ///
    /// # Errors
    /// `IndexNotFound`, `KeyspaceNotFound`, `Closed`.
    pub fn index(&self, name: &str) -> Result<Index> {
        let index = Index::new(self, name);
        index.info().map(|_| index)
    }

    /// The indexes there are, by name.
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `Closed`.
    pub fn indexes(&self) -> Result<Vec<IndexInfo>> {
        self.core().check_open()?;
        let state = self.core().published.state();
        if state.find(self.id()).is_none() {
            return Err(self.not_found());
        }
        let mut infos: Vec<IndexInfo> = Vec::new();
        for index in state.indexes_of(self.id()) {
            let info = info_of(index);
            match infos.iter_mut().find(|other| other.name == info.name) {
                Some(other) => {
                    other.is_ready |= info.is_ready;
                    other.is_building |= info.is_building;
                }
                None => infos.push(info),
            }
        }
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(infos)
    }

    /// Drops an index, with what is being built to take its place. Durable on return. Snapshots
    /// taken before keep showing it. The keyspace stays as it is.
    ///
    /// # Errors
    /// `IndexNotFound`, `KeyspaceNotFound`, `ReadOnly`, `Io`, `Closed`.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        self.index(name)?;
        self.core().drop_indexes(&self.runtime(), |index| *index.name == *name)
    }

    /// Makes an index that has nothing yet.
    pub(super) fn begin_index(
        &self,
        name: &str,
        extractor: &str,
        options: IndexOptions,
        beside: Beside,
    ) -> Result<Arc<IndexOf>> {
        check_index_name(name)?;
        check_name(extractor)?;
        let record = IndexRecord {
            of: self.id(),
            name: name.to_owned(),
            extractor: extractor.to_owned(),
            is_unique: options.is_unique,
            is_ready: false,
        };
        self.core().create_index(&self.runtime(), record, beside)
    }
}

/// Which index of the same name there may be when one is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    None,
    /// One that is ready, until this one is.
    Ready,
}

fn info_of(index: &IndexOf) -> IndexInfo {
    IndexInfo {
        name: index.name.to_string(),
        extractor: index.extraction.name().to_owned(),
        has_extractor: index.extraction.is_known(),
        is_unique: index.is_unique,
        is_ready: index.stage == Stage::Ready,
        is_building: index.stage == Stage::Building,
    }
}

impl Core {
    /// Whether an index is kept in the keyspace of this number, or was, before it was dropped.
    pub(in crate::db) fn is_of_index(&self, state: &State, keyspace: u32) -> bool {
        match state.find(keyspace) {
            Some(found) => found.runtime.is_index(),
            None => self.lock_manifest().state().is_gone_index(keyspace),
        }
    }

    /// Makes the keyspace that an index is kept in. From then on writers know of it.
    fn create_index(
        &self,
        parent: &Arc<Runtime>,
        record: IndexRecord,
        beside: Beside,
    ) -> Result<Arc<IndexOf>> {
        self.check_writable()?;
        Extraction::new(&record.extractor, &self.extractors).check()?;
        let _turn = lock(&self.indexing);
        let state = self.published.state();
        let is_there = || state.indexes_of(parent.id).iter().any(|i| *i.name == *record.name);
        if beside == Beside::None && is_there() {
            return Err(Error::IndexExists { name: record.name });
        }
        drop(state);
        let (keyspace, store) = self.create_kept_in(parent, &record)?;
        let sizes = (self.sizes.memtable, &self.time);
        let runtime = runtime_of(&keyspace, store, &self.values, &self.budget, sizes, None);
        let index = Arc::new(IndexOf::new(&record, Arc::clone(&runtime), &self.extractors));
        self.change_indexes(|state, gate| {
            let mut indexes = state.indexes_of(parent.id).to_vec();
            indexes.push(Arc::clone(&index));
            let (active, version) = (Table::new(&self.meter, &runtime), runtime.store.version());
            let kept_in = KeyspaceState::new(Arc::clone(&runtime), active, version);
            state.with(kept_in).with_indexes(parent.id, gate, indexes)
        })?;
        Ok(index)
    }

    /// The keyspace that an index is kept in, in the catalogue and on disk.
    fn create_kept_in(
        &self,
        parent: &Arc<Runtime>,
        record: &IndexRecord,
    ) -> Result<(KeyspaceRecord, Arc<dyn Store>)> {
        let mut manifest = self.lock_manifest_for_edit()?;
        if manifest.state().keyspace(parent.id).is_none() {
            return Err(Error::KeyspaceNotFound { name: parent.name.load().to_string() });
        }
        let id = manifest.state().next_keyspace_id();
        let options = parent.options.of_index(record.clone());
        options.validate()?;
        let keyspace = KeyspaceRecord {
            id,
            store: id,
            name: index_keyspace_name(id),
            options: options.rounded(),
            created: self.log.next_stamp(self.time.wall_for_stamp()),
            journal: None,
        };
        let edit = Edit::CreateKeyspace(keyspace.clone());
        manifest.state().check(&edit)?;
        let mut made = || -> Result<Arc<dyn Store>> {
            self.share_own_key(manifest.state(), parent.id, &[id])?;
            let store = self.create_store_of(&keyspace)?;
            self.apply_edit(&mut manifest, &edit)?;
            Ok(store)
        };
        let store = made().inspect_err(|_| self.take_back_own_key(&[id]))?;
        Ok((keyspace, store))
    }

    /// Says that an index has all entries, durably; drops the one whose place it takes. The log is
    /// durable behind the last step of the build (N3).
    pub(super) fn finish_index(&self, parent: &Arc<Runtime>, index: &Arc<IndexOf>) -> Result<()> {
        let id = index.runtime.id;
        let _turn = lock(&self.indexing);
        let before = {
            let mut manifest = self.lock_manifest_for_edit()?;
            if manifest.state().keyspace(id).is_none() {
                return Err(Error::IndexNotFound { name: index.name.to_string() });
            }
            let before = manifest.state().replaced_by(id);
            self.apply_edit(&mut manifest, &Edit::FinishIndex { id })?;
            before
        };
        let mut replaced = Vec::new();
        self.change_indexes(|state, gate| {
            let (mut gone, mut indexes) = (Vec::new(), Vec::new());
            for other in state.indexes_of(parent.id) {
                match other.runtime.id {
                    other_id if other_id == id => indexes.push(Arc::new(index.finished())),
                    other_id if Some(other_id) == before => gone.push(Arc::clone(&other.runtime)),
                    _ => indexes.push(Arc::clone(other)),
                }
            }
            replaced = gone;
            state.with_indexes(parent.id, gate, indexes)
        })?;
        self.forget_keyspaces(&replaced);
        Ok(())
    }

    /// Drops indexes of a keyspace: those that `is_to_go` says.
    pub(super) fn drop_indexes(
        &self,
        parent: &Arc<Runtime>,
        is_to_go: impl Fn(&IndexOf) -> bool,
    ) -> Result<()> {
        let _turn = lock(&self.indexing);
        let state: Arc<State> = self.published.state();
        let gone = state.indexes_of(parent.id).iter().filter(|index| is_to_go(index));
        // What is being built first: a crash in between leaves the index that is ready.
        let mut gone: Vec<Arc<IndexOf>> = gone.cloned().collect();
        gone.sort_by_key(|index| index.stage == Stage::Ready);
        for index in gone {
            let id = index.runtime.id;
            let edit = Edit::DropKeyspace { id };
            self.apply_edit(&mut *self.lock_manifest_for_edit()?, &edit)?;
            self.change_indexes(|state, gate| {
                let others = state.indexes_of(parent.id).iter();
                let others = others.filter(|other| other.runtime.id != id).cloned().collect();
                state.with_indexes(parent.id, gate, others)
            })?;
            self.forget_keyspaces(&[Arc::clone(&index.runtime)]);
        }
        Ok(())
    }
}
