//! The files of a tree: the pages of a new tree, or the snapshot that an old one began with, and
//! the newest snapshot.
//!
//! Invariants
//! - B1  A tree goes on in the file that it began with, so this is not removed while it is open.
//! - B2  A snapshot has a number above all before it; opening takes the highest.

use bf_tree::{BfTree, Config};
use lithe_bench::{Memory, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const PAGES: &str = "pages";
const SNAPSHOT_PREFIX: &str = "snapshot-";
const KEY_SIZE_MAX: usize = 64;
/// The most that `Config` takes beside pages of 4 KiB and such keys.
const RECORD_SIZE_MAX: usize = 1944;

/// Where the files are.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// The snapshot that the tree began with; 0 if it began empty.
    base: u64,
    newest: Mutex<u64>,
}

impl Store {
    /// Opens the tree of the newest snapshot in `dir`, or a new one.
    ///
    /// # Errors
    /// If the directory cannot be read, or bf-tree refuses what it finds.
    pub fn open(dir: &Path, memory: Memory) -> Result<(Store, BfTree)> {
        let base = newest_snapshot(dir)?;
        let buffer = match memory {
            Memory::EngineDefault => None,
            Memory::Bytes(bytes) => Some(1 << bytes.max(1).ilog2()),
        };
        let store = Store { dir: dir.into(), base, newest: Mutex::new(base) };
        let tree = if base > 0 {
            BfTree::new_from_cpr_snapshot(store.snapshot(base), true, None, buffer, None)
        } else {
            let mut config = Config::default();
            config
                .storage_backend(bf_tree::StorageBackend::Std)
                .file_path(dir.join(PAGES))
                .cb_max_key_len(KEY_SIZE_MAX)
                .cb_max_record_size(RECORD_SIZE_MAX)
                .use_snapshot(true);
            if let Some(bytes) = buffer {
                config.cb_size_byte(bytes);
            }
            BfTree::with_config(config, None)
        };
        Ok((store, tree.map_err(|error| format!("bf-tree: {error:?}"))?))
    }

    /// Writes a snapshot of the tree, and removes the one before it (B1).
    ///
    /// # Errors
    /// If an old file cannot be removed.
    pub fn take_snapshot(&self, tree: &BfTree) -> Result<()> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        tree.cpr_snapshot(self.snapshot(*newest + 1));
        if *newest > self.base {
            fs::remove_file(self.snapshot(*newest))?;
        }
        *newest += 1; // B2
        Ok(())
    }

    fn snapshot(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{SNAPSHOT_PREFIX}{number}"))
    }
}

/// The highest number of a snapshot in `dir`; all other files are removed. 0 if there is none.
fn newest_snapshot(dir: &Path) -> Result<u64> {
    let entries = fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?;
    let number = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix(SNAPSHOT_PREFIX)?.parse::<u64>().ok()
    };
    let newest = entries.iter().filter_map(number).max().unwrap_or(0);
    for entry in entries.iter().filter(|entry| number(entry) != Some(newest)) {
        fs::remove_file(entry.path())?;
    }
    Ok(newest)
}
