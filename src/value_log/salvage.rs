//! Copying value files whose records may be damaged: as they are, each under a sound header. Which
//! records can be read shows when pointers are followed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::ValuePlace;
use super::format::{FILE_HEADER_LEN, check_file_header, encode_file_header};
use crate::base::{Error, Result};
use crate::seal::id_of;
use crate::storage::{OpenMode, Storage, StorageFile};

/// Bytes copied at once.
const PIECE_LEN: u64 = 1 << 20;
/// .. and where not all of these can be read.
const BLOCK_LEN: u64 = 4 << 10;

/// What could not be copied as it should be.
#[derive(Debug)]
pub struct ValueDamage {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What was expected and what was found.
    pub what: String,
}

/// Copies the value files in the directory `from` to `to`, which is there and empty. Durable on
/// return. What cannot be read of one is zero in its copy, and told, as are headers that had to be
/// made anew.
///
/// # Errors
/// `DiskFull` and `Io` of what is written; `FormatVersion`.
pub fn copy_value_files(
    (source, from): (&Arc<dyn Storage>, &Path),
    (target, to): (&Arc<dyn Storage>, &Path),
    database: u64,
) -> Result<Vec<ValueDamage>> {
    let (from, to) = (
        ValuePlace::new(Arc::clone(source), from.to_owned(), database),
        ValuePlace::new(Arc::clone(target), to.to_owned(), database),
    );
    let mut damage = Vec::new();
    let numbers = match from.numbers() {
        Ok(numbers) => numbers,
        Err(error) => {
            damage.push(told(&from.dir, 0, error.to_string()));
            return Ok(damage);
        }
    };
    for number in numbers {
        copy_file(&from, &to, number, &mut damage)?;
    }
    to.storage.sync_dir(&to.dir).map_err(|error| Error::io("sync", &to.dir, error))?;
    Ok(damage)
}

fn told(file: &Path, offset: u64, what: impl Into<String>) -> ValueDamage {
    ValueDamage { file: file.to_owned(), offset, what: what.into() }
}

fn copy_file(
    from: &ValuePlace,
    to: &ValuePlace,
    number: u64,
    damage: &mut Vec<ValueDamage>,
) -> Result<()> {
    let (source_path, path) = (from.path_of(number), to.path_of(number));
    let opened = from.storage.open(&source_path, OpenMode::ReadOnly);
    let source = match opened.and_then(|file| file.size().map(|size| (file, size))) {
        Ok(source) => source,
        Err(error) => {
            damage.push(told(&source_path, 0, format!("it could not be opened: {error}")));
            return Ok(());
        }
    };
    let (source, size) = source;
    let io = |action| {
        let path = &path;
        move |error| Error::io(action, path, error)
    };
    let target = to.storage.open(&path, OpenMode::CreateNew).map_err(io("create"))?;
    target.set_len(size.max(FILE_HEADER_LEN)).map_err(io("extend"))?;
    let mut offset = 0;
    while offset < size {
        let len = (size - offset).min(PIECE_LEN);
        if copy_piece(&*source, &*target, (offset, len)).map_err(io("write"))?.is_err() {
            copy_blocks(&*source, (&*target, &path), (offset, len), &source_path, damage)?;
        }
        offset += len;
    }
    let mut header = [0; FILE_HEADER_LEN as usize];
    let found = source.read_exact_at(&mut header, 0);
    let found = found.map_err(|error| Error::io("read", &source_path, error));
    let checked =
        found.and_then(|()| check_file_header(&header, from.database, number, &source_path));
    match checked {
        Ok(_) => {}
        Err(error @ Error::FormatVersion { .. }) => return Err(error),
        Err(error) => {
            damage.push(told(&source_path, 0, error.to_string()));
            let key = to.key_of_damaged(number, &header);
            let header = encode_file_header(to.database, number, id_of(key.as_deref()));
            target.write_all_at(&header, 0).map_err(io("write"))?;
        }
    }
    target.sync().map_err(io("sync"))
}

/// Copies some bytes; the inner error is one of reading.
fn copy_piece(
    source: &dyn StorageFile,
    target: &dyn StorageFile,
    (offset, len): (u64, u64),
) -> std::io::Result<std::io::Result<()>> {
    let mut bytes = vec![0; len as usize];
    match source.read_exact_at(&mut bytes, offset) {
        Ok(()) => target.write_all_at(&bytes, offset).map(Ok),
        Err(error) => Ok(Err(error)),
    }
}

/// The same, block by block; those that cannot be read stay zero.
fn copy_blocks(
    source: &dyn StorageFile,
    (target, path): (&dyn StorageFile, &Path),
    (start, len): (u64, u64),
    source_path: &Path,
    damage: &mut Vec<ValueDamage>,
) -> Result<()> {
    let end = start + len;
    let mut offset = start;
    while offset < end {
        let block = (end - offset).min(BLOCK_LEN);
        let copied = copy_piece(source, target, (offset, block));
        if let Err(error) = copied.map_err(|error| Error::io("write", path, error))? {
            damage.push(told(source_path, offset, format!("it could not be read: {error}")));
        }
        offset += block;
    }
    Ok(())
}
