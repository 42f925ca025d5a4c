//! Copying value files whose records may be damaged: as they are, each under a sound header. Which
//! records can be read shows when pointers are followed; and so does, where the header was damaged,
//! which key they are sealed with: who opens a value knows its hash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file::ValuePlace;
use super::format::{FILE_HEADER_LEN, check_file_header, encode_file_header, file_tag};
use super::format::{Form, RECORD_HEADER_LEN, RecordHeader, RecordLayout};
use super::lock;
use super::sealed::SealedRecord;
use crate::base::sync::{Arc, Mutex};
use crate::base::{Error, Result, ValuePointer};
use crate::seal::{FileKey, id_of};
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

/// Copies of files whose headers were damaged, and what each may be sealed with.
#[derive(Debug)]
pub struct KeysInDoubt {
    place: ValuePlace,
    files: Mutex<BTreeMap<u64, Vec<Arc<FileKey>>>>,
}

impl KeysInDoubt {
    /// Finds out what the file that this value lies in is sealed with, if that is in doubt, and has
    /// its header say it. To be called before anything is read of the file.
    ///
    /// # Errors
    /// `Corruption` when this value does not tell; `DiskFull`, `Io`.
    pub fn settle(&self, pointer: &ValuePointer) -> Result<()> {
        let mut files = lock(&self.files);
        let Some(keys) = files.get(&pointer.file) else { return Ok(()) };
        let path = self.place.path_of(pointer.file);
        let io = |action| {
            let path = &path;
            move |error| Error::io(action, path, error)
        };
        let file = self.place.storage.open(&path, OpenMode::ReadWrite).map_err(io("open"))?;
        let Some(key) = key_of_value(&*file, pointer, keys, &self.place) else {
            let what = "expected a value that is sealed with one of the keys in the keyring, found \
                        none; the header of the file, which said with which, is damaged";
            return Err(Error::corruption(&path, pointer.offset, what));
        };
        let header = encode_file_header(self.place.database, pointer.file, key.id());
        file.write_all_at(&header, 0).map_err(io("write"))?;
        file.sync().map_err(io("sync"))?;
        files.remove(&pointer.file);
        Ok(())
    }
}

/// That of the keys which a value was sealed with.
fn key_of_value<'k>(
    file: &dyn StorageFile,
    pointer: &ValuePointer,
    keys: &'k [Arc<FileKey>],
    place: &ValuePlace,
) -> Option<&'k Arc<FileKey>> {
    let (offset, tag) = (pointer.offset, file_tag(place.database, pointer.file));
    let layout = RecordLayout::of(u64::from(pointer.len), Form::Sealed)?;
    let mut header = [0; RECORD_HEADER_LEN];
    file.read_exact_at(&mut header, offset).ok()?;
    let header = RecordHeader::decode(&header, tag, offset)?;
    let has_table = layout.table_end > layout.value_end;
    // The table of a longer one says it alone.
    let (start, end) = match has_table {
        true => (layout.value_end, layout.table_end),
        false => (RECORD_HEADER_LEN as u64, layout.value_end),
    };
    if header.len != u64::from(pointer.len) || offset.checked_add(end)? > file.size().ok()? {
        return None;
    }
    let mut bytes = vec![0; (end - start) as usize];
    file.read_exact_at(&mut bytes, offset + start).ok()?;
    keys.iter().find(|key| {
        let record = SealedRecord::new(key, offset, &header);
        match has_table {
            true => record.verifies_table(&pointer.hash, &bytes, &header.hash),
            false => record.open_value(&pointer.hash, &mut bytes.clone(), &header.hash),
        }
    })
}

/// Copies the value files in the directory `from` to `to`, which is there and empty. Durable on
/// return. What cannot be read of one is zero in its copy, and told, as are headers that had to be
/// made anew; of these, what their files are sealed with is to be found out still.
///
/// # Errors
/// `DiskFull` and `Io` of what is written; `FormatVersion`.
pub fn copy_value_files(
    (source, from): (&Arc<dyn Storage>, &Path),
    (target, to): (&Arc<dyn Storage>, &Path),
    database: u64,
) -> Result<(Vec<ValueDamage>, KeysInDoubt)> {
    let (from, to) = (
        ValuePlace::new(Arc::clone(source), from.to_owned(), database),
        ValuePlace::new(Arc::clone(target), to.to_owned(), database),
    );
    let (mut damage, mut files) = (Vec::new(), BTreeMap::new());
    let numbers = from.numbers().unwrap_or_else(|error| {
        damage.push(told(&from.dir, 0, error.to_string()));
        Vec::new()
    });
    for number in numbers {
        let keys = copy_file(&from, &to, number, &mut damage)?;
        if keys.len() > 1 {
            files.insert(number, keys);
        }
    }
    to.storage.sync_dir(&to.dir).map_err(|error| Error::io("sync", &to.dir, error))?;
    Ok((damage, KeysInDoubt { place: to, files: Mutex::new(files) }))
}

fn told(file: &Path, offset: u64, what: impl Into<String>) -> ValueDamage {
    ValueDamage { file: file.to_owned(), offset, what: what.into() }
}

/// What it may be sealed with, if its header is one that was made anew.
fn copy_file(
    from: &ValuePlace,
    to: &ValuePlace,
    number: u64,
    damage: &mut Vec<ValueDamage>,
) -> Result<Vec<Arc<FileKey>>> {
    let (source_path, path) = (from.path_of(number), to.path_of(number));
    let opened = from.storage.open(&source_path, OpenMode::ReadOnly);
    let source = match opened.and_then(|file| file.size().map(|size| (file, size))) {
        Ok(source) => source,
        Err(error) => {
            damage.push(told(&source_path, 0, format!("it could not be opened: {error}")));
            return Ok(Vec::new());
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
    let keys = match checked {
        Ok(_) => Vec::new(),
        Err(error @ Error::FormatVersion { .. }) => return Err(error),
        Err(error) => {
            damage.push(told(&source_path, 0, error.to_string()));
            let keys = to.keys_of_damaged(number, &header);
            let likely = id_of(keys.first().map(|key| &**key));
            let header = encode_file_header(to.database, number, likely);
            target.write_all_at(&header, 0).map_err(io("write"))?;
            keys
        }
    };
    target.sync().map_err(io("sync"))?;
    Ok(keys)
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
