//! The cut: everything that makes the database, as of one moment, held.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::base::{Error, Result, SeqNo};
use crate::db::core::{Core, keyspace_dir, lock};
use crate::db::state::{KeyspaceState, State};
use crate::manifest::{EditLogImage, KeyspaceRecord, Manifest};
use crate::structure::{Store, StoreImage};
use crate::value_log::ValueFile;
use crate::wal::LogImage;

/// The database as of one moment (P3).
#[derive(Debug)]
pub(super) struct Cut {
    /// The newest commit.
    pub seqno: SeqNo,
    /// It has everything up to this stamp, and nothing behind it.
    pub as_of: SeqNo,
    pub manifest: EditLogImage,
    /// The bytes of the keyring's file: with the keys of all files that were cut.
    pub keyring: Option<Vec<u8>>,
    pub stores: Vec<StoreCut>,
    /// In the order of their numbers.
    pub values: Vec<ValueCut>,
    pub log: LogImage,
}

/// A store as of that moment.
#[derive(Debug)]
pub(super) struct StoreCut {
    /// Its number, by which its folder is named.
    pub number: u32,
    pub image: StoreImage,
    /// As long as it is there, the files of a keyspace that is dropped stay.
    pub store: Arc<dyn Store>,
}

/// A value file as of that moment.
#[derive(Debug)]
pub(super) struct ValueCut {
    pub file: Arc<ValueFile>,
    /// Bytes that it had. What is pointed to by what was cut is in front of that.
    pub size: u64,
}

/// A file of values that has less stays as it is, and what the cut has of it is copied: were it
/// closed, each checkpoint would leave another small file behind.
const CLOSED_FROM: u64 = 8 << 20;
/// .. and so if it has less than this part of its usual size.
const CLOSED_FROM_PART: u64 = 4;
/// How often a structure and its archive are looked at, for a moment that both have in common.
const PAIR_TRIES_MAX: u32 = 16;

impl Core {
    /// Takes hold of everything as it is now. Commits wait meanwhile, for what is not durable yet,
    /// and for slices of flushes under way.
    pub(super) fn cut(&self) -> Result<Cut> {
        self.sync()?; // The hold has to make durable only what comes from here on.
        self.values.close_larger(CLOSED_FROM.min(self.sizes.value_file / CLOSED_FROM_PART));
        self.sync_values()?; // Who syncs a file may write to it.
        let _indexes_stay = lock(&self.indexing); // The state has those that the manifest has.
        let hold = self.hold_commits()?; // P1
        let manifest = self.lock_manifest_for_edit()?;
        let state = self.published.state(); // P2
        let mut values = BTreeMap::new();
        for table in state.keyspaces.iter().flat_map(|keyspace| keyspace.tables()) {
            table.add_value_files(&mut values);
        }
        let stores = self.cut_stores(&manifest, &state)?;
        for &number in stores.iter().flat_map(|store| &store.image.values) {
            self.hold_values_of(number, &mut values)?;
        }
        let cut_values = |file: Arc<ValueFile>| ValueCut { size: file.size(), file };
        let seqno = self.visible();
        // Edits that a trail tells of have stamps of their own, and may be behind the last commit.
        let is_followed = manifest.state().trail().is_some();
        let stamp = is_followed.then(|| hold.next_stamp(self.time.wall_for_stamp()));
        Ok(Cut {
            seqno,
            as_of: stamp.unwrap_or(seqno),
            manifest: manifest.image(),
            keyring: self.image_keyring()?,
            stores,
            values: values.into_values().map(cut_values).collect(),
            log: self.image_log()?,
        })
    }

    fn cut_stores(&self, manifest: &Manifest, state: &State) -> Result<Vec<StoreCut>> {
        let open = state.keyspaces.iter().map(|keyspace| (keyspace.runtime.store_id, keyspace));
        let open: BTreeMap<u32, &Arc<KeyspaceState>> = open.collect();
        let mut stores: Vec<StoreCut> = Vec::new();
        for record in in_order(manifest.state().keyspaces()) {
            let mut cut = self.cut_store(record, &open)?;
            if record.options.archive_of.is_some()
                && let Some(structure) = stores.last_mut()
            {
                have_one_moment(structure, &mut cut);
            }
            stores.push(cut);
        }
        Ok(stores)
    }

    fn cut_store(
        &self,
        record: &KeyspaceRecord,
        open: &BTreeMap<u32, &Arc<KeyspaceState>>,
    ) -> Result<StoreCut> {
        let found = open.get(&record.store).ok_or_else(|| {
            let dir = keyspace_dir(&self.dir, record.store);
            Error::corruption(&dir, 0, "the catalogue has a store that is not open")
        })?;
        let store = Arc::clone(&found.runtime.store);
        Ok(StoreCut { number: record.store, image: store.image(), store })
    }

    /// Holds a value file, which is held already by what points into it.
    fn hold_values_of(
        &self,
        number: u64,
        values: &mut BTreeMap<u64, Arc<ValueFile>>,
    ) -> Result<()> {
        if let Entry::Vacant(place) = values.entry(number) {
            let file = self.values.find(number).ok_or_else(|| {
                let what = format!("value file {number} is not held by what points into it");
                Error::corruption(&self.dir, 0, what)
            })?;
            place.insert(file);
        }
        Ok(())
    }
}

/// The keyspaces of the catalogue, an archive right behind the structure that it belongs to (P2).
fn in_order<'r>(records: impl Iterator<Item = &'r KeyspaceRecord>) -> Vec<&'r KeyspaceRecord> {
    let mut records: Vec<&KeyspaceRecord> = records.collect();
    records.sort_by_key(|record| {
        let archive_of = record.options.archive_of;
        (archive_of.unwrap_or(record.id), archive_of.is_some())
    });
    records
}

/// Images a structure and its archive once more, until both are as they were at one moment: a crash
/// leaves the archive ahead by what is being flushed, and no further. Commits are held, so that no
/// more than the memtables that are there is flushed; but consolidation goes on and on. Then the
/// archive is ahead by more, which is as good (P2), and rare enough.
fn have_one_moment(structure: &mut StoreCut, archive: &mut StoreCut) {
    for _ in 0..PAIR_TRIES_MAX {
        let again = structure.store.image();
        let is_as_it_was = again.index.is_as_of(&structure.image.index);
        structure.image = again;
        if is_as_it_was {
            return;
        }
        archive.image = archive.store.image();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Background, Db};
    use crate::manifest::KeyspaceOptions;
    use crate::storage::MemoryStorage;

    /// Of several keyspaces that keep versions, among others.
    #[test]
    fn an_archive_is_cut_right_behind_its_structure_and_as_of_the_same_moment() {
        let storage = Arc::new(MemoryStorage::new());
        let db = Db::builder().storage(storage).background(Background::Stepped).open("/db");
        let db = db.unwrap();
        for number in 0..3 {
            let names = [format!("kept {number}"), format!("plain {number}")];
            let options = KeyspaceOptions::history().keep_versions(2);
            let kept = db.create_keyspace(&names[0], options).unwrap();
            let plain = db.create_keyspace(&names[1], KeyspaceOptions::flex()).unwrap();
            for round in 0..4u8 {
                kept.put("key", [round]).unwrap();
                plain.put("key", [round]).unwrap();
                db.flush().unwrap();
            }
        }
        let core = db.core();
        let mut cut = core.cut().unwrap();
        let manifest = core.lock_manifest();
        let of_number = |number| {
            let mut records = manifest.state().keyspaces();
            records.find(|record| record.store == number).unwrap()
        };
        let records: Vec<&KeyspaceRecord> =
            cut.stores.iter().map(|store| of_number(store.number)).collect();
        assert_eq!(records.len(), 9);
        let mut archives = 0;
        for pair in records.windows(2) {
            if let Some(parent) = pair[1].options.archive_of {
                assert_eq!(pair[0].id, parent);
                archives += 1;
            }
        }
        assert_eq!(archives, 3);
        // What was flushed since is in both or in none.
        let place = records.iter().position(|record| record.options.archive_of.is_some()).unwrap();
        let (structures, archives) = cut.stores.split_at_mut(place);
        let (structure, archive) = (&mut structures[place - 1], &mut archives[0]);
        drop(manifest);
        db.keyspace("kept 0").unwrap().put("key", "later").unwrap();
        db.flush().unwrap();
        let before = archive.image.index.clone();
        archive.image = archive.store.image(); // As if it had been looked at behind that.
        assert!(!archive.image.index.is_as_of(&before));
        have_one_moment(structure, archive);
        assert!(structure.image.index.is_as_of(&structure.store.image().index));
        assert!(archive.image.index.is_as_of(&archive.store.image().index));
    }
}
