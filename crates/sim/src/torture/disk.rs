//! A file system of its own, in a file: mounted through a loop device, and cut off at any moment.
//!
//! `FS_IOC_SHUTDOWN` has a file system end at once, as if the power had gone, while the machine
//! goes on: every later call fails, and what was only in memory is gone. Mounting it again replays
//! its journal, as after a power cut. What has reached the file is what a disk would have: the loop
//! device has no cache that could lose writes, so that a missing flush of the disk's own cache is
//! not found this way, but a missing sync is.
//!
//! What becomes of the journal and of the data
//! - flag 0: the file system is frozen first; both are written out, nothing is lost.
//! - flag 1: the journal is written out, data is not: names and lengths are there, and of what was
//!   written before only what the kernel or a sync had written out.
//! - flag 2: neither is; what the journal on disk does not have is as it was, also names and
//!   lengths.
//!
//! The call ends whatever file system a directory is on. So it is made on nothing but what was seen
//! to be mounted there by this program, of another device than what is around it.
//!
//! Mounts are kept apart from those of the machine, where that is allowed. They are gone with the
//! process, however it ends. And no other process comes to have one as well, which would keep the
//! file system that was shut down alive, so that mounting it again gave the same one.

#![expect(unsafe_code, reason = "a call to the kernel that nobody wraps")]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lithedb::base::{Clock, SystemClock};
use lithedb::storage::{EntryType, OpenMode, OsStorage, Storage};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::{Disks, with_path};
use crate::random::Random;

/// `_IOR('X', 125, __u32)`, 0x8004587d.
const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);
/// So often it is tried to mount and to unmount: somebody may look at it just then, and the loop
/// device of before may be there still.
const TRIES_MAX: u32 = 40;
const TRIES_PAUSE: Duration = Duration::from_millis(25);
/// Writing some of what is not synced comes before so many cuts in a thousand.
const PUSHED_PER_MILLE: u64 = 500;
const PAGE_SIZE: u64 = 4096;

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl FileSystem {
    /// What `mount` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    fn make(self) -> (&'static str, [&'static str; 2]) {
        match self {
            FileSystem::Ext4 => ("mkfs.ext4", ["-q", "-F"]),
            FileSystem::Xfs => ("mkfs.xfs", ["-q", "-f"]),
        }
    }

    /// The smallest that it can be made in, and that has room enough.
    fn size(self) -> u64 {
        match self {
            FileSystem::Ext4 => 64 << 20,
            FileSystem::Xfs => 320 << 20,
        }
    }
}

/// How the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Flag 0.
    AllWritten,
    /// Flag 1.
    JournalWritten,
    /// Flag 2.
    NothingWritten,
}

impl Cut {
    /// What the kernel calls it.
    #[must_use]
    pub fn flag(self) -> u32 {
        match self {
            Cut::AllWritten => 0,
            Cut::JournalWritten => 1,
            Cut::NothingWritten => 2,
        }
    }

    /// Mostly nothing is written.
    fn draw(random: &mut Random) -> Cut {
        match random.below(10) {
            0 => Cut::AllWritten,
            1 | 2 => Cut::JournalWritten,
            _ => Cut::NothingWritten,
        }
    }
}

/// A file system in a file.
#[derive(Debug)]
pub(super) struct Disk {
    // Constant.
    image: PathBuf,
    mount: PathBuf,
    how: Disks,
    // Changed by whoever has it.
    /// The device of what is mounted.
    mounted: Option<u64>,
}

/// Gives this thread, and those that it starts from here on, mounts of their own. Where that is not
/// allowed, mounting will say so, or do without.
#[cfg(target_os = "linux")]
pub(super) fn keep_mounts_apart() {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: of all that may be unshared, `FILES` alone asks something of the caller.
    let apart = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    if apart.is_ok() {
        // Until then, what is mounted here is mounted there as well, and the other way round.
        let _ = call("mount", &["--make-rprivate", "/"].map(OsStr::new));
    }
}

/// Elsewhere nothing is mounted.
#[cfg(not(target_os = "linux"))]
pub(super) fn keep_mounts_apart() {}

impl Disk {
    /// Makes one in the file `image`, which must not be there, and mounts it at `mount`, a
    /// directory. When that fails, the file is gone, but if it was there before.
    pub(super) fn make(image: PathBuf, mount: PathBuf, how: &Disks) -> io::Result<Disk> {
        let file = File::options().write(true).create_new(true).open(&image);
        let file = file.map_err(|error| with_path(&error, "make", &image))?;
        let mut disk = Disk { image, mount, how: how.clone(), mounted: None };
        match disk.format(&file).and_then(|()| disk.mount()) {
            Ok(()) => Ok(disk),
            Err(error) => {
                let _ = disk.remove(); // Why there is none says more.
                Err(error)
            }
        }
    }

    fn format(&self, file: &File) -> io::Result<()> {
        file.set_len(self.how.file_system.size())?;
        let (program, options) = self.how.file_system.make();
        let [first, second] = options.map(OsStr::new);
        call(program, &[first, second, self.image.as_os_str()])
    }

    /// Cuts the power; before that, at times, some of what was not synced yet is written out, as
    /// the kernel does when it likes: pages of some files, and not their names and lengths.
    pub(super) fn cut(&self, random: &mut Random) -> io::Result<Cut> {
        let root = File::options().read(true).open(&self.mount)?;
        self.expect_own(&root)?;
        if random.chance(PUSHED_PER_MILLE) {
            push_out(&self.mount, random)?;
        }
        let cut = self.how.cut.unwrap_or_else(|| Cut::draw(random));
        // SAFETY: the kernel reads one `u32` behind the pointer, and changes no memory of ours.
        let call = unsafe { Setter::<{ SHUTDOWN }, u32>::new(cut.flag()) };
        // SAFETY: the opcode is that of this call, which wants what `Setter` hands it.
        let done = unsafe { ioctl(&root, call) };
        done.map_err(|error| with_path(&error.into(), "cut the power of", &self.mount))?;
        Ok(cut)
    }

    /// Q5: what is open is the root of this file system, and not a directory of another one in
    /// which nothing is mounted any more.
    fn expect_own(&self, root: &File) -> io::Result<()> {
        let device = root.metadata()?.dev();
        match self.mounted == Some(device) && device != self.device_around()? {
            true => Ok(()),
            false => {
                let mount = self.mount.display();
                Err(io::Error::other(format!("nothing of this program is mounted at {mount}")))
            }
        }
    }

    /// The device of the directory that the mount is in.
    fn device_around(&self) -> io::Result<u64> {
        let around = self.mount.parent().unwrap_or(&self.mount);
        Ok(std::fs::metadata(around)?.dev())
    }

    /// Mounts it anew, which replays its journal.
    pub(super) fn remount(&mut self) -> io::Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Unmounts it.
    pub(super) fn unmount(&mut self) -> io::Result<()> {
        call_again("umount", &[self.mount.as_os_str()])?;
        self.mounted = None;
        Ok(())
    }

    fn mount(&mut self) -> io::Result<()> {
        let options = match &self.how.mount_options {
            Some(more) => format!("loop,{more}"),
            None => "loop".to_owned(),
        };
        let [kind, name, o, options] =
            ["-t", self.how.file_system.name(), "-o", &options].map(OsStr::new);
        let (image, mount) = (self.image.as_os_str(), self.mount.as_os_str());
        call_again("mount", &[kind, name, o, options, image, mount])?;
        self.mounted = Some(std::fs::metadata(&self.mount)?.dev());
        Ok(())
    }

    /// Removes it.
    pub(super) fn remove(mut self) -> io::Result<()> {
        if self.mounted.is_some() {
            self.unmount()?;
        }
        std::fs::remove_file(&self.image)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted.is_some() {
            let _ = self.unmount(); // Whoever gives it up has said why.
        }
    }
}

/// The same, again if it fails.
fn call_again(program: &str, words: &[&OsStr]) -> io::Result<()> {
    let mut tries = 1;
    loop {
        match call(program, words) {
            Err(_) if tries < TRIES_MAX => tries += 1,
            done => return done,
        }
        SystemClock::new().sleep(TRIES_PAUSE);
    }
}

/// Runs a program to its end, or says what it said.
fn call(program: &str, words: &[&OsStr]) -> io::Result<()> {
    let mut command = Command::new(program);
    let output = command.args(words).stdin(Stdio::null()).output().map_err(|error| {
        io::Error::new(error.kind(), format!("could not run `{program}`: {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "`{program}` failed, which needs root and a machine that allows loop devices: {}",
        said.trim()
    )))
}

/// Has the kernel begin to write some pages.
fn push_out(directory: &Path, random: &mut Random) -> io::Result<()> {
    let storage = OsStorage::new();
    for entry in storage.list_dir(directory)? {
        let path = directory.join(&entry.name);
        if entry.entry_type == EntryType::Directory {
            // What is there may go while it is looked at.
            let _ = push_out(&path, random);
            continue;
        }
        if !random.chance(500) {
            continue;
        }
        let Ok(file) = storage.open(&path, OpenMode::ReadOnly) else { continue };
        let Ok(size) = file.size() else { continue };
        let pages = size.div_ceil(PAGE_SIZE).max(1);
        if random.chance(300) {
            file.begin_writeback(0, size);
        } else {
            for _ in 0..1 + random.below(3) {
                file.begin_writeback(random.below(pages) * PAGE_SIZE, PAGE_SIZE);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(mount: &Path, mounted: Option<u64>) -> Disk {
        let (file_system, mount_options, cut) = (FileSystem::Ext4, None, None);
        let image = mount.join("image");
        let how = Disks { image: image.clone(), file_system, mount_options, cut };
        Disk { image, mount: mount.to_owned(), how, mounted }
    }

    /// Q5: whoever has unmounted it, the file system around it goes on.
    #[test]
    fn a_directory_in_which_nothing_is_mounted_is_not_cut_off() {
        let directory = std::env::temp_dir().join(format!("lithe-sim-disk-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let root = File::options().read(true).open(&directory).unwrap();
        let device = root.metadata().unwrap().dev();
        for mounted in [None, Some(device), Some(device + 1)] {
            let disk = std::mem::ManuallyDrop::new(disk(&directory, mounted));
            let refused = disk.expect_own(&root).unwrap_err();
            assert!(refused.to_string().contains("nothing of this program"), "{refused}");
        }
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn an_image_that_is_there_is_left_alone() {
        let name = format!("lithe-sim-image-{}", std::process::id());
        let image = std::env::temp_dir().join(name);
        std::fs::File::create(&image).unwrap();
        let how = disk(&image, None).how.clone();
        let refused = Disk::make(image.clone(), image.join("mount"), &how).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(image.exists());
        std::fs::remove_file(&image).unwrap();
    }
}
