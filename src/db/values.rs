//! Large values: what of a batch goes to the value log before it is committed; values read and
//! written piece by piece.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Expiry, Lifetime, Result, SeqNo, Slice, ValueHash, ValuePointer};
use crate::db::batch::{Placed, WriteBatch};
use crate::db::core::Core;
use crate::db::iter::Cursor;
use crate::db::keyspace::Keyspace;
use crate::db::options::Durability;
use crate::db::read::OpenValue;
use crate::db::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::value_log::{
    Removed, ValueReader as LogReader, ValueStream, hash_value, io_error, sought,
};

/// Bytes read from a caller's source at once.
const COPY_LEN: usize = 64 << 10;

impl Core {
    /// Writes the large values of a batch to the value log, but for those that their keys have
    /// already. Not durable yet: that is made before the log is (V2).
    #[cold]
    pub(super) fn place_values(&self, batch: &mut WriteBatch) -> Result<()> {
        let puts = batch.staged_puts();
        let known = puts.map(|(keyspace, key, staged)| self.same_value(keyspace, key, &staged));
        let known = known.collect();
        batch.place_values(&self.values, known)?;
        if self.values.unsynced_bytes() >= self.sizes.value_file {
            self.workers.wake(); // One of them syncs ahead.
        }
        Ok(())
    }

    /// Where the value lies, if the key has the same one now. Costs a lookup of the key. One that
    /// lies in a file that is being emptied, or in which there was damage, is written anew.
    fn same_value(&self, keyspace: u32, key: &[u8], staged: &ValuePointer) -> Option<Placed> {
        self.published.with(|state, at| {
            let found = state.find(keyspace)?.pointer(key, at)?;
            let is_same = (found.len, found.hash) == (staged.len, staged.hash)
                || (found.len == staged.len && is_seeded(Bug::ValueTakenForSame));
            let file = self.values.find(found.file).filter(|_| is_same)?;
            (!file.is_shunned()).then_some((found, file))
        })
    }

    /// Removes value files that nobody holds any more; not while it is in doubt who does.
    pub(super) fn remove_unreferenced_values(&self) -> Removed {
        let may_remove = || self.poison().is_none() && !self.is_closed();
        let removed = self.values.remove_unreferenced(may_remove);
        if removed.files > 0 {
            self.note_keys_due();
        }
        removed
    }
}

impl Keyspace {
    /// The value of `key`, to be read in parts, from any place on: in memory are 64 KiB of it, and
    /// 8 bytes for each 64 KiB. It stays readable whatever is written meanwhile.
    ///
    /// ```
    /// # use std::io::{Read, Seek, SeekFrom};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = lithedb::Db::builder()
    /// #     .storage(std::sync::Arc::new(lithedb::storage::MemoryStorage::new())).open("/db")?;
    /// let films = db.keyspace_or_create("films")?;
    /// films.put_reader("credits", &mut &b"who and who else"[..])?;
    /// let mut film = films.get_reader("credits")?.ok_or("it is there")?;
    /// film.seek(SeekFrom::End(-8))?;
    /// let mut end = String::new();
    /// film.read_to_string(&mut end)?;
    /// assert_eq!(end, "who else");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`]; what is wrong with a part of the value is told when that is read.
    pub fn get_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.read(|state, as_of| Ok(state.open_value(key.as_ref(), as_of)?.map(ValueReader::new)))
    }

    /// Begins to write a value piece by piece. When [`KeyspaceOptions::value_separation`] says that
    /// it goes to the value log, it does so while it is written, and 64 KiB of it are in memory;
    /// else all of it.
    ///
    /// [`KeyspaceOptions::value_separation`]: crate::KeyspaceOptions::value_separation
    ///
    /// # Errors
    /// `InvalidArgument` for a key over the limit; `ReadOnly`, `Closed`.
    pub fn put_writer(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        self.handle().core.check_writable()?;
        let key = key.as_ref();
        if key.len() > KEY_LEN_MAX {
            let len = key.len();
            let what = format!("a key of {len} bytes: at most {KEY_LEN_MAX} are allowed");
            return Err(Error::invalid(what));
        }
        let progress = Progress::Gathered(Vec::new());
        let lifetime = self.default_lifetime();
        Ok(ValueWriter { keyspace: self.clone(), key: key.to_vec(), lifetime, progress })
    }

    /// Sets `key` to what `source` gives up to its end, with the database's default durability. See
    /// [`Keyspace::put_writer`].
    ///
    /// # Errors
    /// As [`Keyspace::put_writer`] and [`ValueWriter::commit`]; `Io` when the source fails. Nothing
    /// has changed.
    pub fn put_reader(&self, key: impl AsRef<[u8]>, source: &mut impl Read) -> Result<SeqNo> {
        let mut writer = self.put_writer(key)?;
        let mut buffer = vec![0; COPY_LEN];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => return writer.commit(),
                Ok(len) => writer.push(&buffer[..len])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let path = PathBuf::from("the source of the value");
                    return Err(Error::Io { action: "read", path, source });
                }
            }
        }
    }
}

/// What can be known of the value at the position without having all of it in memory.
impl Cursor {
    /// Bytes of the value at the position. Nothing is read for it, unless it is still to be made of
    /// operands.
    ///
    /// # Errors
    /// `Corruption` when what points to the value is damaged; of operands as [`Cursor::value`].
    ///
    /// # Panics
    /// When the cursor is not [`Cursor::valid`].
    pub fn value_len(&self) -> Result<u64> {
        match self.pointer() {
            Some((pointer, keyspace)) => {
                Ok(u64::from(keyspace.runtime.values.decode(pointer)?.len))
            }
            None => Ok(self.value()?.len() as u64),
        }
    }

    /// The first 16 bytes of the BLAKE3 hash of the value at the position: two values that have it
    /// in common are the same. Of a value in the value log it is known, and nothing is read; of any
    /// other it is computed, at about a nanosecond a byte.
    ///
    /// # Errors
    /// `Corruption` when what points to the value is damaged; of operands as [`Cursor::value`].
    ///
    /// # Panics
    /// When the cursor is not [`Cursor::valid`].
    pub fn value_hash(&self) -> Result<ValueHash> {
        match self.pointer() {
            Some((pointer, keyspace)) => Ok(keyspace.runtime.values.decode(pointer)?.hash),
            None => Ok(hash_value(self.value()?)),
        }
    }

    /// The value at the position, to be read in parts; see [`Keyspace::get_reader`]. It stays
    /// readable when the cursor moves on.
    ///
    /// # Errors
    /// As [`Cursor::value`].
    ///
    /// # Panics
    /// When the cursor is not [`Cursor::valid`].
    pub fn value_reader(&self) -> Result<ValueReader> {
        let value = match self.pointer() {
            Some((pointer, keyspace)) => {
                let values = &keyspace.runtime.values;
                OpenValue::InLog(LogReader::open(values, &values.decode(pointer)?)?)
            }
            None => OpenValue::Whole(Slice::from(self.value()?)),
        };
        Ok(ValueReader::new(value))
    }
}

/// A value, read in parts: see [`Keyspace::get_reader`]. Each part is verified before any of it is
/// given out; what is damaged gives an error of kind `InvalidData` whose source names file and
/// offset.
#[derive(Debug)]
pub struct ValueReader {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Whole { value: Slice, position: u64 },
    InLog(LogReader),
}

impl ValueReader {
    pub(super) fn new(value: OpenValue) -> ValueReader {
        let source = match value {
            OpenValue::Whole(value) => Source::Whole { value, position: 0 },
            OpenValue::InLog(reader) => Source::InLog(reader),
        };
        ValueReader { source }
    }

    /// Bytes of the value.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.source {
            Source::Whole { value, .. } => value.len() as u64,
            Source::InLog(reader) => reader.len(),
        }
    }

    /// Whether the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Read for ValueReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.source {
            Source::InLog(reader) => reader.read(out),
            Source::Whole { value, position } => {
                let start = usize::try_from(*position).unwrap_or(usize::MAX).min(value.len());
                let len = (&value[start..]).read(out)?;
                *position += len as u64;
                Ok(len)
            }
        }
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.source {
            Source::InLog(reader) => reader.seek(to),
            Source::Whole { value, position } => {
                *position = sought(to, *position, value.len() as u64)?;
                Ok(*position)
            }
        }
    }
}

/// A value that is being written: see [`Keyspace::put_writer`]. Nothing shows before
/// [`ValueWriter::commit`]; when it is dropped instead, nothing has happened.
pub struct ValueWriter {
    keyspace: Keyspace,
    key: Vec<u8>,
    lifetime: Lifetime,
    progress: Progress,
}

enum Progress {
    /// Not so many bytes yet that they go to the value log.
    Gathered(Vec<u8>),
    Streaming(Box<ValueStream>),
    /// A write failed.
    Failed,
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ValueWriter");
        shown.field("keyspace", &self.keyspace).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl ValueWriter {
    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.progress {
            Progress::Gathered(bytes) => bytes.len() as u64,
            Progress::Streaming(stream) => stream.len(),
            Progress::Failed => 0,
        }
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has the value expire then, or never; see [`Keyspace::put_until`].
    pub fn set_expiry(&mut self, expiry: impl Into<Expiry>) {
        self.lifetime = expiry.into().into();
    }

    /// Commits with the database's default durability; returns the commit's stamp.
    ///
    /// # Errors
    /// As [`ValueWriter::commit_with`].
    pub fn commit(self) -> Result<SeqNo> {
        let durability = self.keyspace.handle().core.default_durability();
        self.commit_with(durability)
    }

    /// Sets the key to what was written; in a keyspace with a `ttl` it expires, counted from the
    /// stamp of this commit. On return it is visible to new reads and, with
    /// [`Durability::Sync`], durable.
    ///
    /// # Errors
    /// As [`crate::Db::write_with`]; `InvalidArgument` when a write has failed before.
    pub fn commit_with(self, durability: Durability) -> Result<SeqNo> {
        self.keyspace.handle().core.check_process()?;
        let mut batch = WriteBatch::new();
        match self.progress {
            Progress::Gathered(bytes) => {
                batch.put_for(&self.keyspace, &self.key, &bytes, self.lifetime);
            }
            Progress::Streaming(stream) => {
                batch.put_placed(&self.keyspace, &self.key, stream.finish()?, self.lifetime);
            }
            Progress::Failed => {
                return Err(Error::invalid("a piece of the value could not be written"));
            }
        }
        self.keyspace.handle().core.commit(batch, durability)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if self.len() + bytes.len() as u64 > VALUE_LEN_MAX as u64 {
            return Err(Error::invalid(format!(
                "a value of more than {VALUE_LEN_MAX} bytes, which are allowed"
            )));
        }
        let pushed = self.try_push(bytes);
        if pushed.is_err() {
            self.progress = Progress::Failed;
        }
        pushed
    }

    fn try_push(&mut self, bytes: &[u8]) -> Result<()> {
        self.keyspace.handle().core.check_process()?;
        if let Progress::Gathered(gathered) = &mut self.progress {
            if !self.keyspace.separates(gathered.len() + bytes.len()) {
                gathered.extend_from_slice(bytes);
                return Ok(());
            }
            let gathered = std::mem::take(gathered);
            let log = &self.keyspace.handle().core.values;
            let mut stream = Box::new(ValueStream::begin(log, self.keyspace.id())?);
            stream.push(&gathered)?;
            self.progress = Progress::Streaming(stream);
        }
        match &mut self.progress {
            Progress::Streaming(stream) => stream.push(bytes),
            _ => Err(Error::invalid("a piece of the value could not be written")),
        }
    }
}

impl Write for ValueWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map_err(io_error)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
