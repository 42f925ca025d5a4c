//! Writing files anew: what is in files that are stale goes into new ones, while others read and
//! write. A rotation of the data key and an upgrade are this, with what follows from it for them.
//!
//! ```text
//! new files ... manifest, log, indexes, segments, value files: all go on in new ones; log files
//!               that would be used again go
//! rounds ...... runs and tables in stale files are written anew, slice by slice
//! values ...... are moved out of stale files
//! ```
//!
//! Each step is one that flushes, compaction or cleaning do as well, so that it may be interrupted
//! anywhere: what was written anew is in new files, the rest in those of before, and both are read.
//! Which files are stale is told by their headers, so whoever goes on looks at these; no list of
//! what is done is kept.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::base::{Error, Result};
use crate::db::cleaning::Cleaned;
use crate::db::core::{Core, keyspace_dir, keyspaces_dir, lock};
use crate::db::open::{LOG_DIR, VALUES_DIR};
use crate::jobs::Aim;
use crate::storage::{DirEntry, EntryType, OpenMode, clear_directory};
use crate::structure::Stale;

/// Bytes of a file that are looked at.
const LOOKED_AT_LEN: usize = 4 << 10;
/// Where headers of log files may be, and where in these the version is.
const LOG_HEADERS: (&[usize], usize) = (&[0, 2 << 10], 16);
/// The same of other files.
const HEADERS: (&[usize], usize) = (&[0], 8);
/// The same of keyrings.
const KEYRING_HEADERS: (&[usize], usize) = (&[0], 16);
/// What headers begin with.
const MAGICS: [&[u8; 8]; 6] =
    [b"LitheWAL", b"LITHELOG", b"LITHESEG", b"LITHETBL", b"LITHEVAL", b"LITHEKEY"];

/// How much was written anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RewriteFigures {
    /// Bytes of segments and tables that were written.
    pub bytes_written: u64,
    /// Bytes of them that are to be read still, about.
    pub bytes_left: u64,
    /// Bytes of values that were moved.
    pub value_bytes_moved: u64,
}

type GoOn<'a> = &'a mut dyn FnMut(RewriteFigures) -> ControlFlow<()>;

impl Core {
    /// One pass: everything that is in stale files now. `figures` go on from where they are.
    pub(super) fn write_anew(
        &self,
        stale: Stale<'_>,
        figures: &mut RewriteFigures,
        go_on: GoOn<'_>,
    ) -> Result<ControlFlow<()>> {
        self.begin_new_files()?;
        self.flush_all()?;
        let before = figures.bytes_written;
        let rounds = self.rounds_of_rewriting(stale)?;
        let (flow, of_rounds) = self.work_through(rounds, &mut |of_rounds| {
            figures.bytes_written = before + of_rounds.bytes_written;
            figures.bytes_left = of_rounds.bytes_left;
            go_on(*figures)
        })?;
        figures.bytes_written = before + of_rounds.bytes_written;
        figures.bytes_left = of_rounds.bytes_left;
        if flow.is_break() || self.move_stale_values(stale, figures, go_on)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        self.flush_all()?;
        self.let_go_of_older_files();
        Ok(ControlFlow::Continue(()))
    }

    /// Has files go that nothing needs any more, behind a flush of everything.
    pub(super) fn let_go_of_older_files(&self) {
        self.log.release(self.log.released()); // Files of before the new one, if not done yet.
        self.log.give_up_spares();
        self.runtimes().iter().for_each(|runtime| runtime.store.remove_unreferenced());
        self.remove_loose_stores(); // Of keyspaces that were dropped, too.
        self.remove_unreferenced_values(); // What those held as well.
    }

    fn begin_new_files(&self) -> Result<()> {
        self.values.close_files();
        self.begin_new_manifest_file()?;
        self.begin_new_log_file()?;
        for runtime in self.runtimes() {
            let _turn = lock(&runtime.flushing);
            self.check_writable()?; // Under the turn, which closing waits for.
            let begun = runtime.store.begin_new_files();
            begun.inspect_err(|error| self.note_work_failure(error))?;
        }
        Ok(())
    }

    fn begin_new_manifest_file(&self) -> Result<()> {
        let mut manifest = self.lock_manifest_for_edit()?;
        self.remove_unmade_stores(manifest.state().next_keyspace_id())?;
        let begun = manifest.begin_new_file();
        if let Some(why) = manifest.failure() {
            self.set_poison(&format!("the manifest: {why}"));
        }
        begun
    }

    /// Removes what is left of stores whose creation came to nothing, which is stale for ever: the
    /// folders of numbers that none was given yet. None is given while the manifest is locked.
    pub(super) fn remove_unmade_stores(&self, next: u32) -> Result<()> {
        for entry in self.names_in(&keyspaces_dir(&self.dir))?.unwrap_or_default() {
            let number = entry.name.parse::<u32>().ok().filter(|number| *number >= next);
            let Some(dir) = number.map(|number| keyspace_dir(&self.dir, number)) else { continue };
            if dir.ends_with(&entry.name) {
                clear_directory(&*self.storage, &dir)?;
            }
        }
        Ok(())
    }

    /// Moves the values out of the files that are stale.
    fn move_stale_values(
        &self,
        stale: Stale<'_>,
        figures: &mut RewriteFigures,
        go_on: GoOn<'_>,
    ) -> Result<ControlFlow<()>> {
        self.cleaning.give_up();
        self.values.close_files();
        self.remove_unreferenced_values();
        let victims = self.stale_value_files(stale)?;
        let Some(mut round) = self.begin_emptying(victims, Aim::Thorough) else {
            return Ok(ControlFlow::Continue(()));
        };
        let before = figures.value_bytes_moved;
        loop {
            self.check_writable()?;
            match self.clean_slice(&mut round)? {
                Cleaned::Everything => return Ok(ControlFlow::Continue(())),
                Cleaned::ReadOn { .. } | Cleaned::Slice { .. } => {}
                Cleaned::Busy => self.finish_flush(&round)?,
            }
            figures.value_bytes_moved = before + round.mover.moved_bytes();
            if go_on(*figures).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn stale_value_files(&self, stale: Stale<'_>) -> Result<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        for file in self.values.files() {
            let is_idle = !file.is_written_to() && !file.is_damaged() && file.is_there();
            if is_idle && self.is_stale(file.path(), stale)? {
                found.insert(file.number());
            }
        }
        Ok(found)
    }

    fn is_stale(&self, path: &Path, stale: Stale<'_>) -> Result<bool> {
        Ok(match stale {
            Stale::Keys(keys) => self.keys_of(path)?.iter().any(|key| keys.contains(key)),
            Stale::Named(paths) => paths.contains(path),
        })
    }

    /// The directories that files of the database are in.
    pub(super) fn directories(&self) -> Result<Vec<PathBuf>> {
        let stores = keyspaces_dir(&self.dir);
        let mut found = vec![self.dir.clone(), stores.clone()];
        found.extend([LOG_DIR, VALUES_DIR].map(|part| self.dir.join(part)));
        for entry in self.names_in(&stores)?.unwrap_or_default() {
            if entry.entry_type != EntryType::File {
                found.push(stores.join(entry.name));
            }
        }
        Ok(found)
    }

    /// The files in one of these that payloads lie in; `None` if there is no such directory.
    pub(super) fn files_with_payloads(&self, dir: &Path) -> Result<Option<Vec<PathBuf>>> {
        let Some(names) = self.names_in(dir)? else { return Ok(None) };
        let ours = names.into_iter().filter(|entry| {
            entry.entry_type == EntryType::File && kind_of_name(&entry.name).is_some()
        });
        Ok(Some(ours.map(|entry| dir.join(entry.name)).collect()))
    }

    /// What is in a directory; `None` if there is no such.
    fn names_in(&self, dir: &Path) -> Result<Option<Vec<DirEntry>>> {
        let exists = self.storage.exists(dir);
        if !exists.map_err(|error| Error::io("look for", dir, error))? {
            return Ok(None);
        }
        self.storage.list_dir(dir).map(Some).map_err(|error| Error::io("list", dir, error))
    }

    /// The version fields of the header of a file, each copy of it, whether it verifies or not;
    /// none if it has no header yet.
    pub(super) fn version_fields(&self, path: &Path) -> Result<Vec<u32>> {
        let file = self.storage.open(path, OpenMode::ReadOnly);
        let file = file.map_err(|error| Error::io("open", path, error))?;
        let size = file.size().map_err(|error| Error::io("stat", path, error))?;
        let mut start = vec![0; LOOKED_AT_LEN.min(usize::try_from(size).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut start, 0).map_err(|error| Error::io("read", path, error))?;
        let (places, version_at) = if is_log_file(path) {
            LOG_HEADERS
        } else if start.starts_with(MAGICS[5]) {
            KEYRING_HEADERS
        } else {
            HEADERS
        };
        let field_at = |place: &usize| {
            let header = start.get(*place..)?;
            let is_header = MAGICS.iter().any(|magic| header.starts_with(*magic));
            let field = header.get(version_at..)?.first_chunk().filter(|_| is_header)?;
            Some(u32::from_le_bytes(*field))
        };
        Ok(places.iter().filter_map(field_at).collect())
    }
}

pub(super) fn is_log_file(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "wal")
}

/// What a file of this name is, if it is one that payloads lie in.
pub(super) fn kind_of_name(name: &str) -> Option<&'static str> {
    const KINDS: [(&str, &str); 6] = [
        ("MANIFEST-", "manifest"),
        ("index-", "index"),
        ("tables-", "index"),
        ("seg-", "segment"),
        ("tbl-", "table"),
        ("val-", "value file"),
    ];
    if name.ends_with(".wal") {
        return Some("log");
    }
    KINDS.iter().find(|(stem, _)| name.starts_with(stem)).map(|(_, kind)| *kind)
}
