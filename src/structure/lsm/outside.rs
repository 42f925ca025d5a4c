//! Tables that were made outside of any database on their way into an Lsm keyspace: each gets a
//! name in its directory, under a number that no edit names yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::table::{OutsideTable, TableCaches, TablePlace};
use crate::base::{Error, Result};
use crate::storage::{Storage, copy_file, open_named, try_link};
use crate::structure::{Adopted, SharedStores, TableCheck, TableIngestMode, TableIngestOptions};

/// Opens tables that were made outside of any database.
#[derive(Debug)]
pub struct OutsideReader {
    place: Arc<TablePlace>,
    caches: Arc<TableCaches>,
}

impl OutsideReader {
    /// Of files in `storage`.
    #[must_use]
    pub fn new(storage: &Arc<dyn Storage>, shared: &SharedStores) -> OutsideReader {
        let (open, values) = (Arc::clone(&shared.open_tables), Arc::clone(&shared.values));
        let caches = TableCaches::new(shared);
        OutsideReader {
            place: TablePlace::new(Arc::clone(storage), PathBuf::new(), 0, 0, open, values),
            caches: Arc::new(caches),
        }
    }

    /// Opens a table: see [`OutsideTable::open`].
    ///
    /// # Errors
    /// As that.
    pub fn open(&self, path: &Path) -> Result<OutsideTable> {
        OutsideTable::open(&self.place, &self.caches, path)
    }
}

/// Gives `table` the name `placed` too, or makes a copy of that name; verifies what is there under
/// it then, and has it durable but for the name. Errors name the file that was given.
pub(super) fn adopt(
    (place, caches): (&Arc<TablePlace>, &Arc<TableCaches>),
    table: &OutsideTable,
    placed: &Path,
    how: &TableIngestOptions,
) -> Result<Adopted> {
    let storage = &**place.storage();
    let is_linked = match how.mode {
        TableIngestMode::Move => try_link(storage, &table.path, placed)?,
        TableIngestMode::Copy => false,
    };
    let adopted = if is_linked {
        sync(storage, placed)?;
        Adopted::Linked
    } else {
        copy_file(storage, &table.path, placed, table.record.size)?;
        Adopted::Copied
    };
    let named = |error| instead_of(error, placed, &table.path);
    let found = OutsideTable::open(place, caches, placed).map_err(named)?;
    if found.record != table.record {
        let path = table.path.display();
        return Err(Error::invalid(format!("{path} was changed while it was ingested")));
    }
    if how.check == TableCheck::Everything {
        found.verify().map_err(named)?;
    }
    Ok(adopted)
}

/// Whoever wrote the file need not have synced it.
fn sync(storage: &dyn Storage, path: &Path) -> Result<()> {
    let opened = open_named(storage, path);
    let (file, _) = opened.map_err(|error| Error::io("open", path, error))?;
    file.sync().map_err(|error| Error::io("sync", path, error))
}

/// An error about the file `placed` as one about `given`.
fn instead_of(error: Error, placed: &Path, given: &Path) -> Error {
    let named = |path: PathBuf| if path == placed { given.to_owned() } else { path };
    match error {
        Error::Corruption { file, offset, what } => {
            Error::Corruption { file: named(file), offset, what }
        }
        Error::FormatVersion { file, found, known } => {
            Error::FormatVersion { file: named(file), found, known }
        }
        Error::Io { action, path, source } => Error::Io { action, path: named(path), source },
        other => other,
    }
}
