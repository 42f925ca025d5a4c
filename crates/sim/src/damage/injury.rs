//! The kinds of damage.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use lithedb::storage::{FileSnapshot, SimStorage, Storage};

use crate::damage::Fixture;

/// What disks lose and write as a whole.
const SECTOR_SIZE: u64 = 512;

/// One damage in one place.
#[derive(Clone)]
pub enum Injury {
    /// The file ends here.
    Truncated(PathBuf, u64),
    /// The file goes on with this many bytes of this value.
    Extended(PathBuf, u64, u8),
    /// One bit is another one.
    Flipped(PathBuf, u64, u8),
    /// The sector at this offset is all this byte.
    Filled(PathBuf, u64, u8),
    /// The sector at this offset holds what belongs at another one.
    Doubled(PathBuf, u64, u64),
    /// The sectors at these offsets are swapped.
    SwappedSectors(PathBuf, u64, u64),
    /// The sector at this offset is as it was earlier.
    OldSector(PathBuf, u64, FileSnapshot),
    /// The file is as it was earlier.
    OldFile(PathBuf, FileSnapshot),
    /// Two files are swapped.
    SwappedFiles(PathBuf, PathBuf),
    /// The file is gone.
    Missing(PathBuf),
    /// The file is that of another database.
    Foreign(PathBuf, FileSnapshot),
}

/// How many bits of a byte are flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// One, which depends on the offset.
    OneBit,
    /// All of them.
    AllBits,
}

impl Injury {
    /// The file that is damaged; of several, the first.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Injury::Truncated(path, _)
            | Injury::Extended(path, ..)
            | Injury::Flipped(path, ..)
            | Injury::Filled(path, ..)
            | Injury::Doubled(path, ..)
            | Injury::SwappedSectors(path, ..)
            | Injury::OldSector(path, ..)
            | Injury::OldFile(path, _)
            | Injury::SwappedFiles(path, _)
            | Injury::Missing(path)
            | Injury::Foreign(path, _) => path,
        }
    }

    /// Inflicts it.
    ///
    /// # Errors
    /// When there is no such file or offset.
    pub fn inflict(&self, storage: &SimStorage) -> io::Result<()> {
        match self {
            Injury::Truncated(path, len) => storage.truncate(path, *len),
            Injury::Extended(path, count, byte) => {
                let end = storage.read_file(path)?.len() as u64;
                storage.overwrite(path, end, &vec![*byte; *count as usize])
            }
            Injury::Flipped(path, offset, bit) => storage.flip_bit(path, *offset, *bit),
            Injury::Filled(path, offset, byte) => {
                let len = sector(storage, path, *offset)?.len();
                storage.overwrite(path, *offset, &vec![*byte; len])
            }
            Injury::Doubled(path, to, from) => {
                let bytes = sector(storage, path, *from)?;
                storage.overwrite(path, *to, &bytes)
            }
            Injury::SwappedSectors(path, one, other) => {
                let (first, second) =
                    (sector(storage, path, *one)?, sector(storage, path, *other)?);
                storage.overwrite(path, *one, &second)?;
                storage.overwrite(path, *other, &first)
            }
            Injury::OldSector(path, offset, earlier) => {
                let now = storage.snapshot_file(path)?;
                storage.restore_file(path, earlier)?;
                let bytes = sector(storage, path, *offset)?;
                storage.restore_file(path, &now)?;
                storage.overwrite(path, *offset, &bytes)
            }
            Injury::OldFile(path, other) | Injury::Foreign(path, other) => {
                storage.restore_file(path, other)
            }
            Injury::SwappedFiles(one, other) => {
                let (first, second) = (storage.snapshot_file(one)?, storage.snapshot_file(other)?);
                storage.restore_file(one, &second)?;
                storage.restore_file(other, &first)
            }
            Injury::Missing(path) => {
                storage.remove_file(path)?;
                storage.sync_dir(path.parent().unwrap_or(Path::new("/")))
            }
        }
    }
}

impl fmt::Debug for Injury {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().display();
        match self {
            Injury::Truncated(_, len) => write!(f, "{path} cut to {len}"),
            Injury::Extended(_, count, byte) => write!(f, "{path} with {count} x {byte:#x} more"),
            Injury::Flipped(_, offset, bit) => write!(f, "{path} at {offset}: bit {bit} flipped"),
            Injury::Filled(_, offset, byte) => write!(f, "{path} at {offset}: sector of {byte:#x}"),
            Injury::Doubled(_, to, from) => write!(f, "{path} at {to}: the sector of {from}"),
            Injury::SwappedSectors(_, one, other) => {
                write!(f, "{path}: sectors at {one} and {other} swapped")
            }
            Injury::OldSector(_, offset, _) => write!(f, "{path} at {offset}: an old sector"),
            Injury::OldFile(..) => write!(f, "{path}: an old file"),
            Injury::SwappedFiles(_, other) => write!(f, "{path} swapped with {}", other.display()),
            Injury::Missing(_) => write!(f, "{path} missing"),
            Injury::Foreign(..) => write!(f, "{path} of another database"),
        }
    }
}

fn sector(storage: &SimStorage, path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let bytes = storage.read_file(path)?;
    let start = (offset as usize).min(bytes.len());
    let end = (start + SECTOR_SIZE as usize).min(bytes.len());
    Ok(bytes[start..end].to_vec())
}

/// Every file cut at every `stride`-th offset, and extended.
#[must_use]
pub fn truncations(fixture: &Fixture, stride: u64) -> Vec<Injury> {
    let mut all = Vec::new();
    for (path, size) in fixture.files() {
        let cuts = (0..size).step_by(stride.max(1) as usize);
        all.extend(cuts.map(|len| Injury::Truncated(path.clone(), len)));
        for (count, byte) in [(1, 0), (8, 0xFF), (4096, 0), (4096, 0x5A)] {
            all.push(Injury::Extended(path.clone(), count, byte));
        }
    }
    all
}

/// Bits of every `stride`-th byte of every file.
#[must_use]
pub fn flips(fixture: &Fixture, stride: u64, thoroughness: Thoroughness) -> Vec<Injury> {
    let mut all = Vec::new();
    for (path, size) in fixture.files() {
        for offset in (0..size).step_by(stride.max(1) as usize) {
            let one = ((offset ^ offset >> 3) % 8) as u8;
            let bits = match thoroughness {
                Thoroughness::OneBit => one..one + 1,
                Thoroughness::AllBits => 0..8,
            };
            all.extend(bits.map(|bit| Injury::Flipped(path.clone(), offset, bit)));
        }
    }
    all
}

/// Sectors of every file: zeroed, filled, doubled, swapped with the next and with the first one,
/// as they were earlier.
#[must_use]
pub fn sectors(fixture: &Fixture) -> Vec<Injury> {
    let mut all = Vec::new();
    for (path, size) in fixture.files() {
        let earlier = fixture.earlier.iter().find(|(earlier, _)| *earlier == path);
        for offset in (0..size).step_by(SECTOR_SIZE as usize) {
            for byte in [0, 0xFF, 0x5A] {
                all.push(Injury::Filled(path.clone(), offset, byte));
            }
            let next = offset + SECTOR_SIZE;
            if next + SECTOR_SIZE <= size {
                all.push(Injury::Doubled(path.clone(), next, offset));
                all.push(Injury::SwappedSectors(path.clone(), offset, next));
                all.push(Injury::SwappedSectors(path.clone(), 0, next));
            }
            if let Some((_, snapshot)) = earlier {
                all.push(Injury::OldSector(path.clone(), offset, snapshot.clone()));
            }
        }
    }
    all
}

/// Whole files: missing, empty, old, swapped, of another database.
#[must_use]
pub fn misplacements(fixture: &Fixture, other: &Fixture) -> Vec<Injury> {
    let files: Vec<PathBuf> = fixture.files().into_iter().map(|(path, _)| path).collect();
    let mut all: Vec<Injury> = files.iter().cloned().map(Injury::Missing).collect();
    all.extend(files.iter().map(|path| Injury::Truncated(path.clone(), 0)));
    for (path, snapshot) in &fixture.earlier {
        if files.contains(path) {
            all.push(Injury::OldFile(path.clone(), snapshot.clone()));
        }
    }
    for (index, one) in files.iter().enumerate() {
        let others = files[index + 1..].iter();
        all.extend(others.map(|two| Injury::SwappedFiles(one.clone(), two.clone())));
        if let Ok(snapshot) = other.storage.snapshot_file(one) {
            all.push(Injury::Foreign(one.clone(), snapshot));
        }
    }
    all
}
