//! The files of all backups, each once, by what is in it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::UNFINISHED;
use super::list::{Content, HASH_LEN};
use super::work::{Shared, Work};
use super::writer::HashedWriter;
use crate::base::{Error, Result};
use crate::storage::{EntryType, OpenMode, Storage, StorageFile, Zeros};

/// Bytes that are read at once.
pub(super) const PIECE_LEN: usize = 1 << 20;
/// What a file is called that is being added.
const INCOMING: &str = "incoming";

/// The directory that they are in.
#[derive(Debug)]
pub(super) struct Files<'r> {
    storage: &'r dyn Storage,
    dir: PathBuf,
}

impl<'r> Files<'r> {
    pub(super) fn new(storage: &'r dyn Storage, dir: PathBuf) -> Files<'r> {
        Files { storage, dir }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a file with that in it is.
    pub(super) fn path_of(&self, content: &Content) -> PathBuf {
        self.dir.join(content.name())
    }

    /// Adds a file, unless it is there: it is read first, to know. What it is, and whether it was
    /// added. It has its name durably after the next sync of the directory (Q1).
    ///
    /// # Errors
    /// `DiskFull`, `Io`; `Corruption` when there is one of another length under its name.
    pub(super) fn add(
        &self,
        (source, from): (&dyn StorageFile, &Path),
        work: &mut Work<'_>,
    ) -> Result<(Content, bool)> {
        let content = read_all(source, from, |piece| work.advance(from, piece.len()))?;
        if self.has(&content, work)? {
            return Ok((content, false));
        }
        let mut writer = self.begin(content.len)?;
        let again = read_all(source, from, |piece| {
            work.keep_pace(piece.len());
            match writer.left() >= piece.len() as u64 {
                true => writer.write(piece),
                false => Err(changed(from)),
            }
        })?;
        if again != content {
            return Err(changed(from));
        }
        self.end(writer)?;
        Ok((content, true))
    }

    /// Whether it is there; it is not, if it was asked to be verified and is damaged, or cannot be
    /// read.
    ///
    /// # Errors
    /// `Corruption` when it is of another length than it should be, and `Io`, when it was not asked
    /// to be verified.
    pub(super) fn has(&self, content: &Content, work: &mut Work<'_>) -> Result<bool> {
        if work.shared() == Shared::Verified {
            let read = self.read(content, |piece| {
                work.keep_pace(piece.len());
                Ok(())
            });
            return match read {
                Ok(()) => Ok(true),
                Err(Error::Corruption { .. } | Error::Io { .. }) => Ok(false),
                Err(error) => Err(error),
            };
        }
        let path = self.path_of(content);
        match self.storage.open(&path, OpenMode::ReadOnly) {
            Ok(file) => self.expect_len(&*file, &path, content).map(|()| true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("open", &path, error)),
        }
    }

    /// A file that is to be added. There is one at a time.
    pub(super) fn begin(&self, len: u64) -> Result<HashedWriter> {
        let path = self.dir.join(format!("{INCOMING}{UNFINISHED}"));
        HashedWriter::create(self.storage, path, len, Zeros::LeftOut)
    }

    /// Gives it its name, which a damaged one may have had.
    pub(super) fn end(&self, writer: HashedWriter) -> Result<Content> {
        let unfinished = writer.path().to_owned();
        let content = writer.finish()?;
        let named = self.storage.rename(&unfinished, &self.path_of(&content));
        named.map_err(|error| Error::io("rename", &unfinished, error))?;
        Ok(content)
    }

    /// Gives a file up that was to be added.
    pub(super) fn give_up(&self, writer: HashedWriter) -> Result<()> {
        let path = writer.path().to_owned();
        drop(writer);
        self.storage.remove_file(&path).map_err(|error| Error::io("remove", &path, error))
    }

    /// Reads a file and hands it out piece by piece. It is right only if this returns so.
    ///
    /// # Errors
    /// `Corruption` when it is not there, or not as it was; `Io`; what `take` says.
    pub(super) fn read(
        &self,
        content: &Content,
        take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = self.path_of(content);
        let file =
            self.storage.open(&path, OpenMode::ReadOnly).map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    Error::corruption(&path, 0, "a file of the backup is missing")
                }
                _ => Error::io("open", &path, error),
            })?;
        self.expect_len(&*file, &path, content)?;
        match read_all(&*file, &path, take)? == *content {
            true => Ok(()),
            false => Err(Error::corruption(&path, 0, "it does not have its hash")),
        }
    }

    fn expect_len(&self, file: &dyn StorageFile, path: &Path, content: &Content) -> Result<()> {
        let size = file.size().map_err(|error| Error::io("read", path, error))?;
        if size != content.len {
            let what = format!("it has {size} bytes, not {}", content.len);
            return Err(Error::corruption(path, size.min(content.len), what));
        }
        Ok(())
    }

    /// Removes every file but these; how many, and their bytes.
    ///
    /// # Errors
    /// `Io`: some may be gone.
    pub(super) fn remove_all_but(&self, needed: &BTreeSet<Content>) -> Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for content in self.present()?.filter(|content| !needed.contains(content)) {
            let path = self.path_of(&content);
            self.storage.remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
            count += 1;
            bytes = u64::saturating_add(bytes, content.len); // As its name says.
        }
        Ok((count, bytes))
    }

    /// How many files there are that are not needed.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn count_but(&self, is_needed: impl Fn(&Content) -> bool) -> Result<u64> {
        Ok(self.present()?.filter(|content| !is_needed(content)).count() as u64)
    }

    /// The files that are there, by their names. Others are not given here.
    fn present(&self) -> Result<impl Iterator<Item = Content> + use<>> {
        let dir = &self.dir;
        let entries = self.storage.list_dir(dir).map_err(|error| Error::io("list", dir, error))?;
        let files = entries.into_iter().filter(|entry| entry.entry_type == EntryType::File);
        Ok(files.filter_map(|entry| content_in(&entry.name)))
    }
}

fn changed(path: &Path) -> Error {
    Error::corruption(path, 0, "it changed between two reads of it")
}

/// What is in a file of this name, if it is one of those that are given here.
fn content_in(name: &str) -> Option<Content> {
    let (digits, len) = name.split_once('-')?;
    let mut hash = [0; HASH_LEN];
    if digits.len() != 2 * HASH_LEN || !digits.is_ascii() {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    let content = Content { len: len.parse().ok()?, hash };
    (content.name() == name).then_some(content)
}

/// Reads a file to its end, and hands it out.
pub(super) fn read_all(
    file: &dyn StorageFile,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Content> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; PIECE_LEN];
    let mut len = 0;
    loop {
        match file.read_as_is_at(&mut buffer, len) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&buffer[..read]);
                take(&buffer[..read])?;
                len += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", path, error)),
        }
    }
    Ok(Content { len, hash: *hasher.finalize().as_bytes() })
}

/// Makes a file that is whole and durable before it has its name, which is durable after the next
/// sync of the directory.
///
/// # Errors
/// `DiskFull`, `Io`.
pub(super) fn put_whole(
    storage: &dyn Storage,
    (unfinished, path): (&Path, &Path),
    bytes: &[u8],
) -> Result<()> {
    if storage.exists(unfinished).map_err(|error| Error::io("look for", unfinished, error))? {
        let removed = storage.remove_file(unfinished);
        removed.map_err(|error| Error::io("remove", unfinished, error))?;
    }
    let file = storage.open(unfinished, OpenMode::CreateNew);
    let file = file.map_err(|error| Error::io("create", unfinished, error))?;
    file.write_all_at(bytes, 0).map_err(|error| Error::io("write", unfinished, error))?;
    file.sync().map_err(|error| Error::io("sync", unfinished, error))?;
    storage.rename(unfinished, path).map_err(|error| Error::io("rename", unfinished, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_files_of_backups() {
        let content = Content { len: 120, hash: [0xAB; HASH_LEN] };
        let name = content.name();
        assert_eq!(content_in(&name), Some(content));
        let others = [
            name.to_uppercase(),
            name.replace("-120", "-0120"),
            name.replace("-120", "-"),
            name.replace("-120", "-+120"),
            name[2..].to_owned(),
            format!("{name}.unfinished"),
            name.replacen("ab", "+b", 1),
            format!("\u{e9}{}", &name[2..]),
        ];
        for name in others {
            assert_eq!(content_in(&name), None, "{name}");
        }
    }
}
