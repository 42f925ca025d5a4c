//! Where a database is tortured: a directory in which children are killed, or a disk whose power is
//! cut as well.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::disk::{Cut, Disk};
use super::{Place, with_path};
use crate::random::Random;

/// The database within the root.
const DB_NAME: &str = "db";
/// What children write to standard error, beside it.
const COMPLAINTS: &str = "stderr.txt";
/// Lines of a panic that are told: where it was, and why.
const PANIC_LINES: usize = 2;

/// The place of one database, with what the tool has beside it.
#[derive(Debug)]
pub(super) struct Ground {
    /// The tool's own: nothing here is cut.
    side: PathBuf,
    /// The database is in here, and what it makes beside itself.
    root: PathBuf,
    /// What is mounted at the root, if anything.
    disk: Option<Disk>,
}

impl Ground {
    /// Makes the place of the database of this number. Nothing may be there.
    pub(super) fn prepare(place: &Place, number: u64) -> io::Result<Ground> {
        let side = match place {
            Place::Directory(path) => path.join(format!("db-{number}")),
            Place::Disks(disks) => with_end(&disks.image, &format!(".{number}.d")),
        };
        if let Some(parent) = side.parent() {
            fs::create_dir_all(parent).map_err(|error| with_path(&error, "make", parent))?;
        }
        fs::create_dir(&side).map_err(|error| with_path(&error, "make", &side))?;
        // As it is found from anywhere: children get this path.
        let side = side.canonicalize()?;
        let root = side.join("root");
        fs::create_dir(&root)?;
        let disk = match place {
            Place::Directory(_) => None,
            Place::Disks(disks) => {
                let image = with_end(&disks.image, &format!(".{number}"));
                let made = Disk::make(image, root.clone(), disks);
                if made.is_err() {
                    // Nothing is in there, or it stays.
                    let _ = fs::remove_dir(&root).and_then(|()| fs::remove_dir(&side));
                }
                Some(made?)
            }
        };
        Ok(Ground { side, root, disk })
    }

    /// Where children complain: what they write to standard error.
    pub(super) fn complaints(&self) -> io::Result<fs::File> {
        let path = self.side.join(COMPLAINTS);
        let file = fs::File::options().create(true).append(true).open(&path);
        file.map_err(|error| with_path(&error, "make", &path))
    }

    /// What a thread of a child has panicked with, if one has (Q4).
    pub(super) fn panic_of_child(&self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        fs::File::options().read(true).open(self.side.join(COMPLAINTS))?.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let panic = text.find("panicked at").map(|at| &text[at..]);
        Ok(panic.map(|panic| panic.lines().take(PANIC_LINES).collect::<Vec<_>>().join(" ")))
    }

    /// The database.
    pub(super) fn db(&self) -> PathBuf {
        self.root.join(DB_NAME)
    }

    /// Whether the power is cut here.
    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Cuts the power, where there is any.
    pub(super) fn cut(&self, random: &mut Random) -> io::Result<Option<Cut>> {
        self.disk.as_ref().map(|disk| disk.cut(random)).transpose()
    }

    /// The power is back.
    pub(super) fn recover(&mut self) -> io::Result<()> {
        match &mut self.disk {
            Some(disk) => disk.remount(),
            None => Ok(()),
        }
    }

    /// Keeps a copy of the database as it is now, and not of how it was before.
    pub(super) fn copy(&self) -> io::Result<()> {
        let copy = self.side.join("before");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        if self.db().exists() { copy_all(&self.db(), &copy) } else { Ok(()) }
    }

    /// Removes what the database has made beside itself.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            if name == DB_NAME || name == "lost+found" {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(path)?,
                false => fs::remove_file(path)?,
            }
        }
        Ok(())
    }

    /// Writes a file of the tool's own.
    pub(super) fn write<'l>(
        &self,
        name: &str,
        lines: impl Iterator<Item = &'l String>,
    ) -> io::Result<()> {
        let path = self.side.join(name);
        let mut file = io::BufWriter::new(fs::File::create(path)?);
        for line in lines {
            writeln!(file, "{line}")?;
        }
        file.flush()
    }

    /// Where the tool's own is.
    pub(super) fn side(&self) -> &Path {
        &self.side
    }

    /// Leaves everything as it is; nothing stays mounted.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        match &mut self.disk {
            Some(disk) => disk.unmount(),
            None => Ok(()),
        }
    }

    /// Removes everything.
    pub(super) fn remove(mut self) -> io::Result<()> {
        if let Some(disk) = self.disk.take() {
            disk.remove()?;
        }
        fs::remove_dir_all(&self.side)
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to)?,
            false => fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}
