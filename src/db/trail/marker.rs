//! The marker: an empty file in the database's directory, with the trail's id in its name.
//!
//! The catalogue is part of every copy of the database; the marker is not, as checkpoints and
//! backups have nothing that they do not know of. So a copy is told from the database that the
//! trail follows, when it is opened: nothing is kept there for a trail that goes on elsewhere.
//! What copies whole directories copies the marker too: that the copy is another one then shows
//! when it comes to add to the trail.

use std::path::{Path, PathBuf};

use crate::base::{Error, Result};
use crate::db::core::Core;
use crate::storage::{EntryType, OpenMode, Storage};

const PREFIX: &str = "TRAIL-";
/// Digits of the id, in base 16.
const ID_DIGITS: usize = 16;

/// Whether a file of a database is called so for being a marker.
pub(crate) fn is_trail_marker(name: &str) -> bool {
    id_in(name).is_some()
}

fn id_in(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let id = u64::from_str_radix(digits, 16).ok()?;
    (name_of(id) == name).then_some(id)
}

fn name_of(id: u64) -> String {
    format!("{PREFIX}{id:0ID_DIGITS$x}")
}

/// The markers in a directory, with the ids of their trails.
///
/// # Errors
/// `Io`.
pub(in crate::db) fn markers_in(storage: &dyn Storage, dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = storage.list_dir(dir).map_err(|error| Error::io("list", dir, error))?;
    let files = entries.into_iter().filter(|entry| entry.entry_type == EntryType::File);
    let markers = files.filter_map(|entry| Some((id_in(&entry.name)?, dir.join(&entry.name))));
    Ok(markers.collect())
}

impl Core {
    /// Makes the marker of a trail, durably, beside others.
    pub(super) fn put_marker(&self, id: u64) -> Result<()> {
        let path = self.dir.join(name_of(id));
        let made = self.storage.open(&path, OpenMode::CreateNew);
        made.map_err(|error| Error::io("create", &path, error))?;
        self.storage.sync_dir(&self.dir).map_err(|error| Error::io("sync", &self.dir, error))
    }

    /// Removes all markers. One that stays is removed by the next opening.
    pub(super) fn remove_markers(&self) -> Result<()> {
        self.remove_markers_where(|_| true)
    }

    /// Removes those of these trails.
    pub(super) fn remove_markers_where(&self, is_over: impl Fn(u64) -> bool) -> Result<()> {
        for (id, path) in markers_in(&*self.storage, &self.dir)? {
            if is_over(id) {
                let removed = self.storage.remove_file(&path);
                removed.map_err(|error| Error::io("remove", &path, error))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_markers() {
        assert_eq!(id_in("TRAIL-00000000000000ff"), Some(255));
        for name in ["TRAIL-", "TRAIL-ff", "TRAIL-00000000000000FF", "TRAIL-+0000000000000ff"] {
            assert!(!is_trail_marker(name), "{name}");
        }
    }
}
