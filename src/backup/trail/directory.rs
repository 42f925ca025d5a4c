//! The directory of a trail: its segments by number, and their order.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{HASH_LEN, SegmentHead, identity};
use super::read::{SegmentReader, read_head};
use super::write::SegmentWriter;
use crate::backup::{BackupRepository, UNFINISHED, files};
use crate::base::{Error, Result};
use crate::db::Builder;
use crate::seal::{FileKey, Keyring};
use crate::storage::{EntryType, OpenMode, Storage, StorageLock, lock_directory, make_directory};

/// Where trails are, in a repository.
const TRAILS_DIR: &str = "trails";
/// Digits of the id of a trail, in base 16.
const ID_DIGITS: usize = 16;
/// What a segment is called that is being written.
const INCOMING: &str = "incoming";
/// What [`lock_directory`] makes.
const LOCK_NAME: &str = "LOCK";
/// Bytes of a keyring's file at most, by far.
const KEYRING_LEN_MAX: u64 = 1 << 20;

/// A trail in a repository.
#[derive(Clone, Debug)]
pub(super) struct TrailDir<'r> {
    storage: &'r dyn Storage,
    pub dir: PathBuf,
    pub id: u64,
    pub repository: u64,
}

/// A trail, with its lock.
#[derive(Debug)]
pub(in crate::backup) struct LockedTrail<'r> {
    pub(super) trail: TrailDir<'r>,
    _lock: Box<dyn StorageLock>,
}

/// A segment of which the head was read.
#[derive(Clone, Debug)]
pub(super) struct FoundSegment {
    pub path: PathBuf,
    pub head: SegmentHead,
}

impl BackupRepository {
    pub(super) fn trails_dir(&self) -> PathBuf {
        self.dir.join(TRAILS_DIR)
    }

    /// A trail, which need not be there.
    pub(super) fn trail_dir(&self, id: u64) -> TrailDir<'_> {
        let dir = self.trails_dir().join(format!("{id:0ID_DIGITS$x}"));
        TrailDir { storage: &*self.storage, dir, id, repository: self.id }
    }

    /// Makes the directory of a new trail, durably.
    pub(super) fn make_trail_dir(&self, id: u64) -> Result<TrailDir<'_>> {
        let (trail, above) = (self.trail_dir(id), self.trails_dir());
        let is_there = self.storage.exists(&above);
        if !is_there.map_err(|error| Error::io("look for", &above, error))? {
            make_directory(&*self.storage, &above)?;
        }
        let made = self.storage.create_dir(&trail.dir);
        made.map_err(|error| Error::io("create", &trail.dir, error))?;
        self.storage.sync_dir(&above).map_err(|error| Error::io("sync", &above, error))?;
        Ok(trail)
    }

    /// All trails, each with its lock.
    ///
    /// # Errors
    /// `Locked` while somebody adds to one; `Io`.
    pub(in crate::backup) fn lock_trails(&self) -> Result<Vec<LockedTrail<'_>>> {
        let all = self.all_trails()?.into_iter();
        all.map(|trail| Ok(LockedTrail { _lock: trail.lock()?, trail })).collect()
    }

    /// All trails, by their ids.
    pub(super) fn all_trails(&self) -> Result<Vec<TrailDir<'_>>> {
        let dir = self.trails_dir();
        let entries = match self.storage.list_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io("list", &dir, error)),
        };
        let dirs = entries.iter().filter(|entry| entry.entry_type == EntryType::Directory);
        Ok(dirs.filter_map(|entry| id_in(&entry.name)).map(|id| self.trail_dir(id)).collect())
    }
}

impl TrailDir<'_> {
    /// For who adds to it, or removes of it.
    pub(super) fn lock(&self) -> Result<Box<dyn StorageLock>> {
        lock_directory(self.storage, &self.dir)
    }

    pub(super) fn exists(&self) -> Result<bool> {
        let exists = self.storage.exists(&self.dir);
        exists.map_err(|error| Error::io("look for", &self.dir, error))
    }

    pub(super) fn path_of(&self, number: u64) -> PathBuf {
        self.dir.join(segment_name(number))
    }

    /// Numbers of the segments, rising.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let mut numbers: Vec<u64> =
            self.names()?.iter().filter_map(|name| number_in(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Names of the files in it.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let entries = self.storage.list_dir(&self.dir);
        let entries = entries.map_err(|error| Error::io("list", &self.dir, error))?;
        let files = entries.into_iter().filter(|entry| entry.entry_type == EntryType::File);
        Ok(files.map(|entry| entry.name).collect())
    }

    /// The newest segment, if there is one.
    ///
    /// # Errors
    /// `Corruption`, `FormatVersion`, `Io`.
    pub(super) fn newest(&self) -> Result<Option<FoundSegment>> {
        self.numbers()?.last().map(|number| self.find(*number)).transpose()
    }

    /// The last segment whose head can be read, and why one behind it cannot.
    ///
    /// # Errors
    /// `Io` when it cannot be told which there are.
    pub(super) fn last_found(&self) -> Result<(Option<FoundSegment>, Option<Error>)> {
        let mut damage = None;
        for number in self.numbers()?.into_iter().rev() {
            match self.find(number) {
                Ok(found) => return Ok((Some(found), damage)),
                Err(error) => damage = damage.or(Some(error)),
            }
        }
        Ok((None, damage))
    }

    /// The segment of this number.
    ///
    /// # Errors
    /// `Corruption`, also when it is of another trail, `FormatVersion`, `Io`.
    pub(super) fn find(&self, number: u64) -> Result<FoundSegment> {
        let path = self.path_of(number);
        let (_, head) = read_head(self.storage, &path)?;
        self.expect_own(&path, &head, number)?;
        Ok(FoundSegment { path, head })
    }

    fn expect_own(&self, path: &Path, head: &SegmentHead, number: u64) -> Result<()> {
        match (head.repository, head.trail, head.number) == (self.repository, self.id, number) {
            true => Ok(()),
            false => {
                let what = "the segment is that of another trail, or has another number";
                Err(Error::corruption(path, 0, what))
            }
        }
    }

    /// Opens the segment of this number.
    ///
    /// # Errors
    /// As [`TrailDir::find`].
    pub(super) fn open(&self, number: u64) -> Result<SegmentReader> {
        let path = self.path_of(number);
        let reader = SegmentReader::open(self.storage, path.clone())?;
        self.expect_own(&path, reader.head(), number)?;
        Ok(reader)
    }

    /// Q5: whether a segment goes on behind another one.
    ///
    /// # Errors
    /// `Corruption` that names the one that is missing, or does not fit.
    pub(super) fn expect_behind(&self, before: &SegmentHead, next: &FoundSegment) -> Result<()> {
        let missing = before.number.saturating_add(1);
        if next.head.number != missing {
            let what = format!(
                "the segment is missing: nothing is known behind {}, up to {}",
                before.to, next.head.behind
            );
            return Err(Error::corruption(&self.path_of(missing), 0, what));
        }
        let fits = (next.head.behind, next.head.previous) == (before.to, before.token)
            && (next.head.database, next.head.begun) == (before.database, before.begun)
            && before.end.is_none();
        match fits {
            true => Ok(()),
            false => {
                let what = format!("it does not go on where segment {} ends", before.number);
                Err(Error::corruption(&next.path, 0, what))
            }
        }
    }

    /// Begins to write a segment; what an interrupted one has left goes.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn begin(&self, key: Option<Arc<FileKey>>, token: u64) -> Result<SegmentWriter> {
        let path = self.unfinished();
        self.clear(&path)?;
        SegmentWriter::begin(self.storage, path, key, token)
    }

    /// Gives a segment its name, in place of the one that it has taken up, durably (Q5).
    ///
    /// # Errors
    /// `DiskFull`, `Io`: it may be there, and is to be put again then.
    pub(super) fn put(&self, writer: SegmentWriter, head: SegmentHead) -> Result<FoundSegment> {
        let (unfinished, path) = (writer.path().to_owned(), self.path_of(head.number));
        let head = writer.finish(head)?;
        self.name(&unfinished, &path)?;
        Ok(FoundSegment { path, head })
    }

    /// Puts a segment in its own place, byte by byte: nobody knows whether its name is durable, and
    /// behind a sync that failed no later one makes it so.
    ///
    /// # Errors
    /// `Corruption`, `DiskFull`, `Io`.
    pub(super) fn put_again(&self, found: &FoundSegment) -> Result<()> {
        let mut reader = self.open(found.head.number)?;
        while reader.next_record()?.is_some() {}
        let unfinished = self.unfinished();
        let io = |action| {
            let unfinished = &unfinished;
            move |error| Error::io(action, unfinished, error)
        };
        self.clear(&unfinished)?;
        let copy = self.storage.open(&unfinished, OpenMode::CreateNew).map_err(io("create"))?;
        reader.copy_to(&*copy, &unfinished)?;
        copy.sync().map_err(io("sync"))?;
        drop(copy);
        self.name(&unfinished, &found.path)
    }

    fn name(&self, unfinished: &Path, path: &Path) -> Result<()> {
        let renamed = self.storage.rename(unfinished, path);
        renamed.map_err(|error| Error::io("rename", unfinished, error))?;
        self.sync()
    }

    fn unfinished(&self) -> PathBuf {
        self.dir.join(format!("{INCOMING}{UNFINISHED}"))
    }

    fn clear(&self, unfinished: &Path) -> Result<()> {
        let is_there = self.storage.exists(unfinished);
        match is_there.map_err(|error| Error::io("look for", unfinished, error))? {
            true => self.remove(unfinished),
            false => Ok(()),
        }
    }

    /// Gives up a segment that was being written.
    pub(super) fn give_up(&self, writer: SegmentWriter) {
        let path = writer.path().to_owned();
        drop(writer);
        let _the_next_one_does_it = self.storage.remove_file(&path);
    }

    /// Makes names durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.storage.sync_dir(&self.dir).map_err(|error| Error::io("sync", &self.dir, error))
    }

    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        self.storage.remove_file(path).map_err(|error| Error::io("remove", path, error))
    }

    /// Removes the directory, if nothing is in it but the lock, which the caller has.
    pub(super) fn remove_dir(&self) {
        let _a_lock_says_nothing = self.storage.remove_file(&self.dir.join(LOCK_NAME));
        let _has_nothing_of_a_trail_if_it_stays = self.storage.remove_dir(&self.dir);
    }

    /// Puts a keyring there, durably.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub(super) fn put_keyring(&self, hash: &[u8; HASH_LEN], bytes: &[u8]) -> Result<()> {
        let unfinished = self.dir.join(format!("keyring{UNFINISHED}"));
        files::put_whole(self.storage, (&unfinished, &self.keyring_path(hash)), bytes)?;
        self.sync()
    }

    fn keyring_path(&self, hash: &[u8; HASH_LEN]) -> PathBuf {
        self.dir.join(keyring_name(hash))
    }

    /// The keys of the segments with this keyring, as the builder opens it.
    ///
    /// # Errors
    /// `KeyNeeded`, `WrongKey`, `VaultFailed`; `Corruption`, `FormatVersion`, `Io`.
    pub(super) fn keyring(&self, hash: &[u8; HASH_LEN], builder: &Builder) -> Result<Arc<Keyring>> {
        let (path, bytes) = self.verified_keyring(hash)?;
        builder.keys_in(&bytes, &path)
    }

    /// Whether the keyring is there as it was.
    ///
    /// # Errors
    /// `Corruption` when it is not; `Io`.
    pub(super) fn expect_keyring(&self, hash: &[u8; HASH_LEN]) -> Result<()> {
        self.verified_keyring(hash).map(drop)
    }

    fn verified_keyring(&self, hash: &[u8; HASH_LEN]) -> Result<(PathBuf, Vec<u8>)> {
        let path = self.keyring_path(hash);
        let bytes = self.keyring_bytes(&path)?;
        match blake3::hash(&bytes).as_bytes() == hash {
            true => Ok((path, bytes)),
            false => Err(Error::corruption(&path, 0, "it does not have its hash")),
        }
    }

    fn keyring_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.storage.open(path, OpenMode::ReadOnly);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::corruption(path, 0, "the keyring is missing"),
            _ => Error::io("open", path, error),
        })?;
        let size = file.size().map_err(|error| Error::io("read", path, error))?;
        if size > KEYRING_LEN_MAX {
            return Err(Error::corruption(path, 0, format!("a keyring of {size} bytes")));
        }
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|error| Error::io("read", path, error))?;
        Ok(bytes)
    }
}

/// The key of a segment, of these keys.
///
/// # Errors
/// `KeyNeeded`, `Corruption`.
pub(super) fn key_of(
    head: &SegmentHead,
    keyring: Option<&Arc<Keyring>>,
    path: &Path,
) -> Result<Option<Arc<FileKey>>> {
    let file = identity(head.database, head.trail, head.number);
    Keyring::of_found(keyring, head.key, &file, path)
}

pub(super) fn keyring_name(hash: &[u8; HASH_LEN]) -> String {
    format!("keyring-{}", blake3::Hash::from_bytes(*hash).to_hex())
}

/// Whether a file in the directory of a trail is a keyring, or what is left of one or of a segment
/// that was being made.
pub(super) fn is_keyring_or_left(name: &str) -> bool {
    name.starts_with("keyring-") || name.ends_with(UNFINISHED)
}

fn segment_name(number: u64) -> String {
    format!("segment-{number:08}")
}

fn number_in(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment-")?.parse().ok()?;
    (segment_name(number) == name && number > 0).then_some(number)
}

fn id_in(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:0ID_DIGITS$x}") == name && id != 0).then_some(id)
}
