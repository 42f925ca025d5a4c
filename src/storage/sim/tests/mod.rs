//! Tests of the simulation itself: a test that trusts it must be able to.

mod crashes;
mod durability;
mod faults;
mod fingerprints;
mod links;
mod renames;
mod use_and_damage;

use std::path::Path;
use std::sync::Arc;

use super::{CrashMode, SimStorage};
use crate::storage::{OpenMode, Storage, StorageFile};

/// Seeds tried where a mode leaves something to chance.
const SEED_COUNT: u64 = 200;
/// Every mode in which the machine loses power.
const POWER_CUTS: [CrashMode; 7] = [
    CrashMode::DropAll,
    CrashMode::Prefix,
    CrashMode::RandomSectors,
    CrashMode::TornLast,
    CrashMode::MetadataFirst,
    CrashMode::DataFirst,
    CrashMode::NewestOnly,
];

fn create(storage: &SimStorage, path: &str) -> Arc<dyn StorageFile> {
    storage.open(Path::new(path), OpenMode::CreateNew).unwrap()
}

/// A file whose name and contents are durable.
fn create_durable(storage: &SimStorage, path: &str, bytes: &[u8]) -> Arc<dyn StorageFile> {
    let file = create(storage, path);
    file.write_all_at(bytes, 0).unwrap();
    file.sync().unwrap();
    storage.sync_dir(Path::new(path).parent().unwrap()).unwrap();
    file
}

fn contents(storage: &SimStorage, path: &str) -> Option<Vec<u8>> {
    storage.read_file(Path::new(path)).ok()
}

/// Everything on the disk, to compare.
fn everything(storage: &SimStorage) -> Vec<(String, Vec<u8>)> {
    let files = storage.files().into_iter();
    files.map(|(path, _)| (path.display().to_string(), storage.read_file(&path).unwrap())).collect()
}
