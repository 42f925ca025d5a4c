//! Sockets that have a path on this machine instead of an address: nobody else reaches them, and
//! the system says who of this machine may.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, connect, listen, socket_with};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How often a directory is asked for whose lock another server has, and how long in between: it
/// has it for as long as it takes to begin to listen.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The file of a socket, which goes when this is dropped, if it is still the same. That has to be
/// in front of its listener: behind that, another server may take it for dead and have its own.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity) {
            let _it_is_found_dead_by_the_next = fs::remove_file(&self.path);
        }
    }
}

fn identity(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Listens at a path, with these bits of access. What a server that was killed has left there is
/// removed; whatever else is there stays, and is an error.
pub fn listen_at(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    // One that is bound and does not listen yet looks like one that was left.
    let _until_it_listens = lock_directory(path)?;
    remove_dead(path, &address)?;
    let socket = new_socket()?;
    bind(&socket, &address)?;
    let identity = restrict(path, mode)?;
    let file = SocketFile { path: path.to_path_buf(), identity };
    listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
}

fn lock_directory(path: &Path) -> io::Result<OwnedFd> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    for _ in 0..LOCK_TRIES {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "its directory is locked by somebody else"))
}

/// Gives the socket its bits of access: in front of `listen`, as nobody can connect before it. By
/// the file itself, whatever somebody puts in its place meanwhile. Returns which it is.
fn restrict(path: &Path, mode: u32) -> io::Result<(u64, u64)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let file = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
    let found = fs::metadata(&file)?;
    if !found.file_type().is_socket() {
        return Err(io::Error::other("somebody has put something else there"));
    }
    fs::set_permissions(&file, Permissions::from_mode(mode & 0o777))?;
    Ok(identity(&found))
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Removes a socket at which nobody listens.
fn remove_dead(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let what = "there is something else than a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    match connect(new_socket()?, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        // One that does not accept at the moment says "again".
        Ok(()) | Err(Errno::AGAIN) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there"))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn write(path: &Path, bytes: &[u8]) {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).open(path).unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
    }

    #[test]
    fn a_socket_is_for_whom_it_is_and_goes_with_its_listener() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        for mode in [0o600, 0o660] {
            let (listener, file) = listen_at(&path, mode).unwrap();
            assert_eq!(mode_of(&path), mode);
            UnixStream::connect(&path).unwrap();
            drop((file, listener));
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_a_killed_server_has_left_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (listener, file) = listen_at(&path, 0o600).unwrap();
        let second = listen_at(&path, 0o600).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        std::mem::forget(file);
        drop(listener);
        assert!(path.exists(), "as after a kill");
        let (_listener, file) = listen_at(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        write(&path, b"mine");
        assert_eq!(listen_at(&path, 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"mine", "it is another file by now");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(listen_at(&link, 0o666).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let long = dir.path().join("x".repeat(200));
        assert!(listen_at(&long, 0o600).is_err());
    }

    #[test]
    fn of_several_that_begin_at_once_one_has_it() {
        const SERVERS: usize = 4;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        for is_left in [false, true] {
            let together = Barrier::new(SERVERS);
            let all: Vec<_> = std::thread::scope(|scope| {
                let begin = || {
                    together.wait();
                    listen_at(&path, 0o600)
                };
                let threads: Vec<_> = (0..SERVERS).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1, "{is_left}");
            UnixStream::connect(&path).unwrap();
            for (listener, file) in all.into_iter().flatten() {
                std::mem::forget(file);
                drop(listener);
            }
        }
    }
}
