//! Where input comes from: a file, or standard input for `-`.

use std::fs::File;
use std::io::{self, Read, StdinLock};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// Whether commands are read from standard input, so that it is no input of theirs.
static STDIN_HAS_COMMANDS: AtomicBool = AtomicBool::new(false);

/// Standard input, for a command.
pub fn stdin() -> Result<StdinLock<'static>, Failure> {
    if STDIN_HAS_COMMANDS.load(Ordering::Relaxed) {
        let what =
            "the commands come from standard input, so that it has nothing else: name a file";
        return Err(Failure::usage(what));
    }
    Ok(io::stdin().lock())
}

/// Standard input, for whoever reads commands from it.
pub fn take_stdin() -> Result<StdinLock<'static>, Failure> {
    let lines = stdin()?;
    STDIN_HAS_COMMANDS.store(true, Ordering::Relaxed);
    Ok(lines)
}

/// An open input.
pub struct Source {
    reader: Box<dyn Read>,
    /// For error texts.
    name: PathBuf,
    /// Size in bytes, if it is known beforehand.
    size: Option<u64>,
}

/// Opens `path`, or standard input when it is `-`.
#[expect(clippy::disallowed_methods, reason = "input is the user's file, not the database's")]
pub fn open_source(path: &Path) -> Result<Source, Failure> {
    if path.as_os_str() == "-" {
        let name = PathBuf::from("standard input");
        return Ok(Source { reader: Box::new(stdin()?), name, size: None });
    }
    let failed = |source| Failure::Input { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let size = metadata.is_file().then_some(metadata.len());
    Ok(Source { reader: Box::new(file), name: path.to_owned(), size })
}

impl Source {
    /// Size in bytes; `None` for pipes.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether the input begins with these bytes; it is read from its beginning all the same.
    pub fn begins_with(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let mut start = Vec::with_capacity(bytes.len());
        let read = (&mut self.reader).take(bytes.len() as u64).read_to_end(&mut start);
        read.map_err(|error| self.failure(error))?;
        let begins = start == bytes;
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(io::Cursor::new(start).chain(rest));
        Ok(begins)
    }

    /// `source` as the failure of this input.
    pub fn failure(&self, source: io::Error) -> Failure {
        Failure::Input { path: self.name.clone(), source }
    }

    #[cfg(test)]
    pub fn of_bytes(bytes: &[u8]) -> Source {
        let reader = Box::new(io::Cursor::new(bytes.to_vec()));
        Source { reader, name: PathBuf::from("test"), size: Some(bytes.len() as u64) }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}
