//! A file system in memory, of a size, which can be made larger while it is used. Needs the right
//! to mount.

use lithe_bench::{Result, wrong};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// A process that was killed may be in it for a moment yet.
const TRIES_MAX: u32 = 40;
const TRIES_PAUSE: Duration = Duration::from_millis(25);

/// A file system of a size.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts one at `path`, a directory that is made.
    ///
    /// # Errors
    /// If it cannot be mounted: the error says what `mount` says.
    pub fn mount(path: &Path, mib: u64) -> Result<SmallDisk> {
        fs::create_dir_all(path)?;
        let options = format!("size={mib}m,mode=0700");
        let words = ["-t", "tmpfs", "-o", &options, "tmpfs"].map(OsStr::new);
        call("mount", &[&words[..], &[path.as_os_str()]].concat())?;
        Ok(SmallDisk { path: path.to_owned() })
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has it be of another size.
    ///
    /// # Errors
    /// If `mount` says so.
    pub fn resize(&self, mib: u64) -> Result<()> {
        let options = format!("remount,size={mib}m");
        let words = ["-o", &options].map(OsStr::new);
        call("mount", &[&words[..], &[self.path.as_os_str()]].concat())
    }

    /// Takes it away, with all that is in it.
    ///
    /// # Errors
    /// If somebody is in it for longer than a moment.
    pub fn unmount(self) -> Result<()> {
        let path = self.path.clone();
        std::mem::forget(self); // What `drop` would do is done here, and told if it fails.
        unmount(&path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.path); // Whoever gives it up has said why.
    }
}

fn unmount(path: &Path) -> Result<()> {
    let mut tries = 1;
    loop {
        match call("umount", &[path.as_os_str()]) {
            Err(_) if tries < TRIES_MAX => tries += 1,
            done => return done.and_then(|()| Ok(fs::remove_dir(path)?)),
        }
        thread::sleep(TRIES_PAUSE);
    }
}

/// Runs a program to its end, or says what it said.
fn call(program: &str, words: &[&OsStr]) -> Result<()> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    wrong(format!("`{program}` failed, which needs the right to mount: {}", said.trim()))
}
