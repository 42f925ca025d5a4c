//! Which keyspaces there were: by the manifest as far as it goes, and by the folders.

use std::path::Path;

use super::report::{Loss, LossKind, RepairReport};
use crate::base::{Error, Result, SeqNo};
use crate::db::core::{keyspace_dir, keyspaces_dir};
use crate::manifest::{CatalogState, KeyspaceOptions, KeyspaceRecord, Manifest, newest_database};
use crate::storage::Storage;
use crate::structure::lsm::{is_index_name, is_table_name};
use crate::structure::salvage::Damage;
use crate::wal::{WalPlace, database_of};

/// What is known of the keyspaces.
#[derive(Debug)]
pub(super) struct Catalogue {
    /// What the manifest says, or else nothing but which database it is.
    pub state: CatalogState,
    /// Whether it goes as far as it was written.
    pub is_whole: bool,
    /// Archives first, then what they are of, indexes last; of two indexes of one name the one that
    /// is ready.
    pub keyspaces: Vec<KeyspaceRecord>,
}

impl Catalogue {
    /// Reads the manifest; where it is damaged, looks for folders of which it says nothing.
    ///
    /// # Errors
    /// `Corruption` when nothing says which database it is; `FormatVersion`; `Io`.
    pub(super) fn read(
        storage: &dyn Storage,
        dir: &Path,
        log: &WalPlace,
        report: &mut RepairReport,
    ) -> Result<Catalogue> {
        let (state, problem) = Manifest::salvage(storage, dir)?;
        let is_whole = problem.is_none();
        let state = match state {
            Some(state) => state,
            None => CatalogState::new(database_in(storage, dir, log)?, 0),
        };
        let mut keyspaces: Vec<KeyspaceRecord> = state.keyspaces().cloned().collect();
        if let Some(error) = &problem {
            note(report, None, Damage::of(error, dir));
            find_others(storage, dir, &state, &mut keyspaces, report);
        }
        let is_ready = |record: &KeyspaceRecord| {
            record.options.index.as_ref().is_some_and(|index| index.is_ready)
        };
        let replaced = |record: &KeyspaceRecord| {
            let Some(index) = record.options.index.as_ref().filter(|index| !index.is_ready) else {
                return false;
            };
            state.keyspaces().filter(|other| is_ready(other)).any(|other| {
                let ready = other.options.index.as_ref();
                ready.is_some_and(|ready| ready.of == index.of && ready.name == index.name)
            })
        };
        keyspaces.retain(|record| !replaced(record));
        keyspaces.sort_by_key(|record| {
            let is_index = record.options.index.is_some();
            (is_index, record.options.archive_of.is_none(), record.id)
        });
        Ok(Catalogue { state, is_whole, keyspaces })
    }

    /// The archive of a keyspace.
    pub(super) fn archive_of(&self, id: u32) -> Option<&KeyspaceRecord> {
        self.keyspaces.iter().find(|record| record.options.archive_of == Some(id))
    }

    /// The name of a keyspace; of an archive, that of the keyspace whose versions it has.
    pub(super) fn name_of<'a>(&'a self, record: &'a KeyspaceRecord) -> &'a str {
        let of = record.options.archive_of.unwrap_or(record.id);
        let found = self.keyspaces.iter().find(|other| other.id == of);
        found.map_or(&record.name, |other| &other.name)
    }
}

fn note(report: &mut RepairReport, keyspace: Option<String>, damage: Damage) {
    let Damage { file, offset, what } = damage;
    report.note(Loss {
        kind: LossKind::Catalogue,
        keyspace,
        is_of_versions: false,
        start: Vec::new(),
        end: None,
        file,
        offset,
        what,
    });
}

/// The numbers of the folders of stores.
fn folders(storage: &dyn Storage, dir: &Path) -> Vec<u32> {
    let listed = storage.list_dir(&keyspaces_dir(dir)).unwrap_or_default().into_iter();
    let number = |name: &str| name.parse::<u32>().ok().filter(|id| name == format!("{id:08}"));
    let mut found: Vec<u32> = listed.filter_map(|entry| number(&entry.name)).collect();
    found.sort_unstable();
    found
}

/// Which database it is, by other files than the manifest.
fn database_in(storage: &dyn Storage, dir: &Path, log: &WalPlace) -> Result<u64> {
    let by_log = database_of(log);
    let by_indexes = || {
        folders(storage, dir).into_iter().find_map(|folder| {
            let folder = keyspace_dir(dir, folder);
            let of = |stem| newest_database(storage, &folder, stem).ok();
            of("index").or_else(|| of("tables"))
        })
    };
    by_log.or_else(by_indexes).ok_or_else(|| {
        let what = "neither the manifest, nor the log, nor an index says which database it is";
        Error::corruption(&dir.join("MANIFEST-00000001"), 0, what)
    })
}

/// Adds keyspaces for folders that the manifest says nothing of.
fn find_others(
    storage: &dyn Storage,
    dir: &Path,
    state: &CatalogState,
    keyspaces: &mut Vec<KeyspaceRecord>,
    report: &mut RepairReport,
) {
    for folder in folders(storage, dir) {
        let is_known = keyspaces.iter().any(|record| record.store == folder || record.id == folder);
        if folder == 0 || is_known || state.dropped().any(|dropped| dropped == folder) {
            continue;
        }
        let path = keyspace_dir(dir, folder);
        let names = storage.list_dir(&path).unwrap_or_default();
        let has = |is: fn(&str) -> bool| names.iter().any(|entry| is(&entry.name));
        let options = match has(is_index_name) || has(is_table_name) {
            true => KeyspaceOptions::lsm(),
            false => KeyspaceOptions::flex(),
        };
        let mut name = format!("recovered-{folder}");
        while keyspaces.iter().any(|record| record.name == name) {
            name.push('_');
        }
        let what = "expected the manifest to say which keyspace this is of, found that this part \
                    of it is lost; it may have been dropped, or be an index, or versions";
        note(report, Some(name.clone()), Damage::new(&path, 0, what));
        keyspaces.push(KeyspaceRecord {
            id: folder,
            store: folder,
            name,
            options,
            created: SeqNo::ZERO,
            journal: None,
        });
    }
}
