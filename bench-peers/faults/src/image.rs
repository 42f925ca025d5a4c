//! The files of a store, in memory: copies of them with the holes where they were, and which of
//! their bytes are in use.

use lithe_bench::Result;
use rustix::fs::{SeekFrom, seek};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Whether a byte is in use is told of so many at a time: of a block with nothing but zeros, which
/// is what there is where nothing was written yet, nobody can say.
pub const BLOCK_SIZE: u64 = 512;

/// A stretch of a file that is no hole.
#[derive(Clone, Debug)]
struct Stretch {
    offset: u64,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
struct FileImage {
    /// Below the directory of the store.
    path: PathBuf,
    len: u64,
    stretches: Vec<Stretch>,
}

/// All files of a store, and its directories.
#[derive(Clone, Debug, Default)]
pub struct Image {
    dirs: Vec<PathBuf>,
    files: Vec<FileImage>,
}

/// Where a bit lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In which file, below the directory of the store.
    pub file: PathBuf,
    /// Bytes from its start.
    pub offset: u64,
}

/// A block: the index of its file, where it begins, and its length.
type Block = (usize, u64, u64);

impl Image {
    /// Reads the files below `dir`.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(dir: &Path) -> Result<Image> {
        let mut image = Image::default();
        image.add(dir, Path::new(""))?;
        image.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(image)
    }

    fn add(&mut self, dir: &Path, below: &Path) -> Result<()> {
        for entry in fs::read_dir(dir.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.dirs.push(path.clone());
                self.add(dir, &path)?;
            } else if kind.is_file() {
                self.files.push(read_file(&dir.join(&path), path)?);
            }
        }
        Ok(())
    }

    /// Makes the files below `dir`, where nothing else is left.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir)?;
        for below in &self.dirs {
            fs::create_dir_all(dir.join(below))?;
        }
        for image in &self.files {
            let file = File::create(dir.join(&image.path))?;
            file.set_len(image.len)?;
            for stretch in &image.stretches {
                file.write_all_at(&stretch.bytes, stretch.offset)?;
            }
        }
        Ok(())
    }

    /// Blocks with something in them, and blocks of zeros; holes are neither.
    pub fn blocks(&self) -> (Vec<Block>, Vec<Block>) {
        let (mut used, mut zero) = (Vec::new(), Vec::new());
        for (index, file) in self.files.iter().enumerate() {
            for stretch in &file.stretches {
                let mut offset = stretch.offset;
                for bytes in stretch.bytes.chunks(BLOCK_SIZE as usize) {
                    let len = bytes.len() as u64;
                    match bytes.iter().any(|byte| *byte != 0) {
                        true => used.push((index, offset, len)),
                        false => zero.push((index, offset, len)),
                    }
                    offset += len;
                }
            }
        }
        (used, zero)
    }

    /// Bytes of all files, and how many of them are in holes.
    pub fn sizes(&self) -> (u64, u64) {
        let all = self.files.iter().map(|file| file.len).sum::<u64>();
        let stretches = self.files.iter().flat_map(|file| &file.stretches);
        (all, all - stretches.map(|stretch| stretch.bytes.len() as u64).sum::<u64>())
    }

    /// The byte at `within` of a block.
    pub fn place(&self, block: Block, within: u64) -> Place {
        Place { file: self.files[block.0].path.clone(), offset: block.1 + within }
    }
}

/// Flips a bit of a file below `dir`.
///
/// # Errors
/// If the byte cannot be read or written.
pub fn flip(dir: &Path, place: &Place, bit: u8) -> Result<()> {
    let file = File::options().read(true).write(true).open(dir.join(&place.file))?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, place.offset)?;
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, place.offset)?;
    Ok(())
}

fn read_file(from: &Path, path: PathBuf) -> Result<FileImage> {
    let file = File::open(from)?;
    let len = file.metadata()?.len();
    let (mut stretches, mut at) = (Vec::new(), 0);
    while at < len {
        let offset = match seek(&file, SeekFrom::Data(at)) {
            Ok(offset) => offset,
            Err(rustix::io::Errno::NXIO) => break, // A hole up to the end.
            Err(error) => return Err(error.into()),
        };
        let end = seek(&file, SeekFrom::Hole(offset))?.min(len);
        let mut bytes = vec![0; (end - offset) as usize];
        file.read_exact_at(&mut bytes, offset)?;
        stretches.push(Stretch { offset, bytes });
        at = end;
    }
    Ok(FileImage { path, len, stretches })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_files_with_their_holes_and_knows_what_is_in_use() {
        let from = tempfile::tempdir().unwrap();
        fs::create_dir(from.path().join("below")).unwrap();
        let file = File::create(from.path().join("below/file")).unwrap();
        file.set_len(10 << 20).unwrap();
        file.write_all_at(&[7; 1000], 4096).unwrap();
        fs::write(from.path().join("small"), b"x").unwrap();
        let image = Image::read(from.path()).unwrap();
        let (used, _zero) = image.blocks();
        // Two blocks of the first file, one of the second.
        assert_eq!(used.len(), 3, "{used:?}");
        assert_eq!(image.place(used[0], 5).offset, 4096 + 5);
        let (all, holes) = image.sizes();
        assert_eq!(all, (10 << 20) + 1);
        assert!(holes <= all - 1001);

        let to = from.path().join("copy");
        image.write(&to).unwrap();
        let place = image.place(used[2], 0);
        assert_eq!(place, Place { file: "small".into(), offset: 0 });
        flip(&to, &place, 3).unwrap();
        assert_eq!(fs::read(to.join("small")).unwrap(), [b'x' ^ 8]);
        let (whole, copy) = (from.path().join("below/file"), to.join("below/file"));
        assert_eq!(fs::read(whole).unwrap(), fs::read(copy).unwrap());
    }
}
