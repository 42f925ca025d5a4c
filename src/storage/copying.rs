//! Files that come to be in another place as well: by another name, or as a copy.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};

use super::{OpenMode, Storage, StorageFile, open_named};

/// Bytes that are copied at once.
const COPY_SIZE: u64 = 1 << 20;
/// Zeros are left out in pieces of this size: what file systems take room in.
const BLOCK_SIZE: usize = 4 << 10;

/// Gives the file another name. Whether that can be: not on another file system, for instance.
///
/// # Errors
/// [`Error::Io`], [`Error::DiskFull`].
pub(crate) fn try_link(storage: &dyn Storage, from: &Path, to: &Path) -> Result<bool> {
    match storage.link(from, to) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            ErrorKind::CrossesDevices
            | ErrorKind::PermissionDenied
            | ErrorKind::TooManyLinks
            | ErrorKind::Unsupported
            | ErrorKind::InvalidInput => Ok(false),
            _ => Err(Error::io("link", from, error)),
        },
    }
}

/// Whether the file may have another name, under which would be missed what is destroyed here.
pub(crate) fn is_shared(file: &dyn StorageFile) -> bool {
    !matches!(file.link_count(), Ok(0 | 1))
}

/// What becomes of blocks that are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// They are written as all others, so that what is written there later finds its room.
    #[default]
    Written,
    /// They take no room: of a file that has holes comes one that has them as well.
    LeftOut,
}

/// How a file is to be that is made of another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyShape<'a> {
    /// Bytes of the other that it begins with; of all of it where that is less.
    pub size: u64,
    /// Bytes that it has, with zeros for the rest, and room for what may be written there.
    pub len: u64,
    /// What stands at its start instead.
    pub head: &'a [u8],
    pub zeros: Zeros,
}

/// Copies to a file that was just made. Durable on return, but for its name. How many bytes were
/// copied, zeros included.
///
/// # Errors
/// [`Error::Io`], [`Error::DiskFull`].
pub(crate) fn copy_into(
    (source, from): (&dyn StorageFile, &Path),
    (target, to): (&dyn StorageFile, &Path),
    shape: &CopyShape<'_>,
) -> Result<u64> {
    let CopyShape { size, len, head, zeros } = *shape;
    let io = |action| move |error| Error::io(action, to, error);
    if len > size {
        target.preallocate(len).map_err(io("allocate"))?;
    }
    if zeros == Zeros::LeftOut {
        target.set_len(size).map_err(io("extend"))?;
    }
    let mut buffer = vec![0; COPY_SIZE.min(size) as usize];
    let mut done = 0;
    while done < size {
        let wanted = (size - done).min(COPY_SIZE) as usize;
        let read = match source.read_at(&mut buffer[..wanted], done) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::io("read", from, error)),
        };
        let wrote = match zeros {
            Zeros::Written => target.write_all_at(&buffer[..read], done),
            Zeros::LeftOut => write_but_zeros(target, &buffer[..read], done),
        };
        wrote.map_err(io("write"))?;
        target.begin_writeback(done, read as u64);
        done += read as u64;
    }
    if zeros == Zeros::LeftOut && done < size {
        target.set_len(done).map_err(io("cut"))?;
    }
    target.write_all_at(head, 0).map_err(io("write"))?;
    if !is_seeded(Bug::CopyNotSynced) {
        target.sync().map_err(io("sync"))?;
    }
    Ok(done)
}

/// Writes the blocks that are not zero, to a file that is long enough.
///
/// # Errors
/// Whatever the system says.
pub(crate) fn write_but_zeros(
    target: &dyn StorageFile,
    bytes: &[u8],
    offset: u64,
) -> io::Result<()> {
    let (mut from, mut end) = (0, 0); // What is to be written by one call.
    for block in bytes.chunks(BLOCK_SIZE) {
        if block.iter().all(|byte| *byte == 0) {
            target.write_all_at(&bytes[from..end], offset + from as u64)?;
            from = end + block.len();
        }
        end += block.len();
    }
    target.write_all_at(&bytes[from..end], offset + from as u64)
}

/// Makes a copy of all the `size` bytes of a file that a caller has named. Durable on return, but
/// for its name.
///
/// # Errors
/// [`Error::Io`], also when there are fewer, [`Error::DiskFull`]: what was made of it stays.
pub(crate) fn copy_file(storage: &dyn Storage, from: &Path, to: &Path, size: u64) -> Result<()> {
    let source = open_named(storage, from);
    let (source, _) = source.map_err(|error| Error::io("open", from, error))?;
    let target = storage.open(to, OpenMode::CreateNew);
    let target = target.map_err(|error| Error::io("create", to, error))?;
    let shape = CopyShape { size, ..CopyShape::default() };
    match copy_into((&*source, from), (&*target, to), &shape)? {
        copied if copied == size => Ok(()),
        _ => Err(Error::io("read", from, ErrorKind::UnexpectedEof.into())),
    }
}
