//! Which keyspaces there were: by the manifest as far as it goes, and by the folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::report::{Loss, LossKind, RepairReport};
use crate::base::{Error, Result, SeqNo};
use crate::db::core::{keyspace_dir, keyspaces_dir};
use crate::db::encryption::{keyring_path, settle_owners};
use crate::db::operation::decode_record;
use crate::manifest::{CatalogState, KeyspaceOptions, KeyspaceRecord, Manifest, newest_database};
use crate::storage::Storage;
use crate::structure::flex::is_segment_name;
use crate::structure::lsm::{is_index_name, is_table_name};
use crate::structure::salvage::Damage;
use crate::wal::{Lsn, WalPlace, databases_of, salvage_log};

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
        let witnesses = witnesses(storage, dir, log);
        let (state, problem) = match state {
            Some(state) if is_outvoted(state.database(), &witnesses) => {
                let what = format!(
                    "expected the manifest of the database that log and indexes are of, found that \
                     of {:016x}",
                    state.database()
                );
                let path = newest_file(storage, dir, Manifest::is_name);
                (None, problem.or(Some(Error::corruption(&path, 0, what))))
            }
            state => (state, problem),
        };
        let is_whole = problem.is_none();
        let state = match state {
            Some(state) => state,
            None => CatalogState::new(database_by(&witnesses, dir)?, 0),
        };
        let mut keyspaces: Vec<KeyspaceRecord> = state.keyspaces().cloned().collect();
        if let Some(error) = &problem {
            note(report, None, Damage::of(error, dir));
        }
        let log = WalPlace { database_id: state.database(), ..log.clone() };
        let others = Others { storage, dir, log: &log, state: &state, is_whole };
        others.find(&mut keyspaces, report)?;
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
        settle_keys(storage, dir, &mut keyspaces, report);
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

/// Whether keyspaces have keys of their own says the keyring, which the new database has as it is;
/// one of another time may say it of a part of a keyspace alone.
fn settle_keys(
    storage: &dyn Storage,
    dir: &Path,
    keyspaces: &mut [KeyspaceRecord],
    report: &mut RepairReport,
) {
    let Some(keyring) = storage.keyring() else { return };
    let without = settle_owners(keyring, keyspaces);
    for record in keyspaces.iter().filter(|record| without.contains(&record.id)) {
        let what = "expected one key of its own for the keyspace, its archive and its indexes, \
                    found that some have it not: the keyring is one of another time; they have the \
                    key that all have now";
        note(report, Some(record.name.clone()), Damage::new(&keyring_path(dir), 0, what));
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

/// The file with the highest name of those that `is` says yes to; such a one with the number 1 if
/// there is none.
fn newest_file(storage: &dyn Storage, dir: &Path, is: fn(&str) -> bool) -> PathBuf {
    let names = storage.list_dir(dir).unwrap_or_default().into_iter().map(|entry| entry.name);
    let newest = names.filter(|name| is(name)).max();
    dir.join(newest.unwrap_or_else(|| "MANIFEST-00000001".to_owned()))
}

/// Which database other files than the manifest say they are of: those of the log, and indexes.
fn witnesses(storage: &dyn Storage, dir: &Path, log: &WalPlace) -> Vec<u64> {
    let by_indexes = folders(storage, dir).into_iter().filter_map(|folder| {
        let folder = keyspace_dir(dir, folder);
        let of = |stem| newest_database(storage, &folder, stem).ok();
        of("index").or_else(|| of("tables"))
    });
    databases_of(log).into_iter().chain(by_indexes).collect()
}

fn votes(witnesses: &[u64], database: u64) -> usize {
    witnesses.iter().filter(|of| **of == database).count()
}

/// Whether more files say that it is another database than say that it is the manifest's: single
/// files are swapped, and hardly ever all but one.
fn is_outvoted(database: u64, witnesses: &[u64]) -> bool {
    let own = votes(witnesses, database) + 1; // The manifest's own.
    witnesses.iter().any(|other| *other != database && votes(witnesses, *other) > own)
}

/// Which database it is, by most of the others.
fn database_by(witnesses: &[u64], dir: &Path) -> Result<u64> {
    let most = witnesses.iter().copied().rev().max_by_key(|of| votes(witnesses, *of));
    most.ok_or_else(|| {
        let what = "neither the manifest, nor the log, nor an index says which database it is";
        Error::corruption(&dir.join("MANIFEST-00000001"), 0, what)
    })
}

/// Folders that the manifest says nothing of.
struct Others<'a> {
    storage: &'a dyn Storage,
    dir: &'a Path,
    log: &'a WalPlace,
    state: &'a CatalogState,
    is_whole: bool,
}

impl Others<'_> {
    /// Makes keyspaces of them. A manifest that seems whole may still be an older one: then of
    /// those whose numbers it has not given, if there is data, or the log has commits to them. A
    /// creation that was interrupted leaves neither.
    fn find(&self, keyspaces: &mut Vec<KeyspaceRecord>, report: &mut RepairReport) -> Result<()> {
        let mut unknown = folders(self.storage, self.dir);
        unknown.retain(|folder| {
            let is_known = |record: &KeyspaceRecord| [record.store, record.id].contains(folder);
            let is_new = !self.is_whole || *folder >= self.state.next_keyspace_id();
            *folder > 0
                && is_new
                && !keyspaces.iter().any(is_known)
                && !self.state.dropped().any(|dropped| dropped == *folder)
        });
        if unknown.is_empty() {
            return Ok(());
        }
        let in_log = self.named_in_log()?;
        for folder in unknown {
            let path = keyspace_dir(self.dir, folder);
            let names = self.storage.list_dir(&path).unwrap_or_default();
            let has = |is: fn(&str) -> bool| names.iter().any(|entry| is(&entry.name));
            let has_data = has(is_segment_name) || has(is_table_name) || in_log.contains(&folder);
            if self.is_whole && !has_data {
                continue;
            }
            let options = match has(is_index_name) || has(is_table_name) {
                true => KeyspaceOptions::lsm(),
                false => KeyspaceOptions::flex(),
            };
            let mut name = format!("recovered-{folder}");
            while keyspaces.iter().any(|record| record.name == name) {
                name.push('_');
            }
            let what = "expected the manifest to say which keyspace this is of, found that it \
                        does not: it is an older one, or that part of it is lost; this may have \
                        been dropped, or be an index, or versions";
            note(report, Some(name.clone()), Damage::new(&path, 0, what));
            let (store, created, journal) = (folder, SeqNo::ZERO, None);
            keyspaces.push(KeyspaceRecord { id: folder, store, name, options, created, journal });
        }
        Ok(())
    }

    /// Keyspaces that commits of the log are to.
    fn named_in_log(&self) -> Result<BTreeSet<u32>> {
        let from = self.is_whole.then_some(Lsn::from_u64(self.state.log_start()));
        let mut named = BTreeSet::new();
        salvage_log(self.log, from, &mut |record, _| {
            let operations = decode_record(record.payload).map(|commit| commit.operations);
            let operations = operations.into_iter().flatten().flatten();
            named.extend(operations.map(|operation| operation.keyspace));
            Ok(())
        })?;
        Ok(named)
    }
}
