//! How fast a backup is worked on, and who is told how far it has come.

use std::fmt;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Clock, Error, Result, SystemClock};

/// How far a backup, its verification or its restoring has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Files that were gone through.
    pub files: u64,
    /// All files that are to be.
    pub all_files: u64,
    /// Bytes of files that were gone through.
    pub bytes: u64,
    /// Bytes of all files.
    pub all_bytes: u64,
}

/// Tells how far it is; the answer says whether to go on.
type GoOn<'w> = Box<dyn FnMut(&BackupProgress) -> ControlFlow<()> + 'w>;

/// How a backup is made, verified, restored or sent. Default: as fast as it goes, to the end.
///
/// ```
/// use lithedb::BackupOptions;
/// use std::ops::ControlFlow;
/// let options = BackupOptions::new().bytes_per_second(50 << 20).go_on_while(|progress| {
///     println!("{} of {} bytes", progress.bytes, progress.all_bytes);
///     ControlFlow::Continue(())
/// });
/// # let _ = options;
/// ```
#[must_use]
pub struct BackupOptions<'w> {
    bytes_per_second: Option<u64>,
    clock: Arc<dyn Clock>,
    go_on: Option<GoOn<'w>>,
    shared: Shared,
}

/// What is done with a file that the repository has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shared {
    /// It is taken to be what its name says.
    Trusted,
    /// It is read, and replaced when it is damaged.
    Verified,
}

impl<'w> BackupOptions<'w> {
    /// As fast as it goes, to the end.
    pub fn new() -> BackupOptions<'w> {
        BackupOptions {
            bytes_per_second: None,
            clock: Arc::new(SystemClock::new()),
            go_on: None,
            shared: Shared::Trusted,
        }
    }

    /// Reads, and so writes, no more than that a second, on average over pieces of up to 1 MiB. 0
    /// is taken for 1.
    pub fn bytes_per_second(mut self, limit: u64) -> BackupOptions<'w> {
        self.bytes_per_second = Some(limit.max(1));
        self
    }

    /// Calls this behind each piece of up to 1 MiB, and behind each file. Where it says
    /// [`ControlFlow::Break`] the work ends with an `Io` error of the kind `Interrupted`, and the
    /// state is that after any other error. It must not make a backup of the same database, which
    /// would wait for this one.
    pub fn go_on_while(
        mut self,
        go_on: impl FnMut(&BackupProgress) -> ControlFlow<()> + 'w,
    ) -> BackupOptions<'w> {
        self.go_on = Some(Box::new(go_on));
        self
    }

    /// Has files that the repository has already, and that the new backup has in common with
    /// others, read and verified too; one that is missing, damaged or not to be read is written
    /// again, which makes the other backups whole. Costs reading the whole backup in the
    /// repository.
    pub fn verify_shared(mut self) -> BackupOptions<'w> {
        self.shared = Shared::Verified;
        self
    }

    /// The clock that a limit goes by. Default: that of the system.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> BackupOptions<'w> {
        self.clock = clock;
        self
    }
}

impl Default for BackupOptions<'_> {
    fn default() -> Self {
        BackupOptions::new()
    }
}

impl fmt::Debug for BackupOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupOptions")
            .field("bytes_per_second", &self.bytes_per_second)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// Work that is under way.
#[derive(Debug)]
pub(super) struct Work<'w> {
    options: BackupOptions<'w>,
    progress: BackupProgress,
    began: Duration,
    /// Bytes that count for the limit.
    moved: u64,
}

impl<'w> Work<'w> {
    pub(super) fn begin(options: BackupOptions<'w>) -> Work<'w> {
        let began = options.clock.monotonic();
        Work { options, progress: BackupProgress::default(), began, moved: 0 }
    }

    pub(super) fn shared(&self) -> Shared {
        self.options.shared
    }

    /// How much there is to be done.
    pub(super) fn expect(&mut self, files: u64, bytes: u64) {
        self.progress.all_files = files;
        self.progress.all_bytes = bytes;
    }

    /// So many bytes of this file were gone through.
    pub(super) fn advance(&mut self, path: &Path, bytes: usize) -> Result<()> {
        self.progress.bytes += bytes as u64;
        self.keep_pace(bytes);
        self.tell(path)
    }

    /// A file was gone through.
    pub(super) fn end_file(&mut self, path: &Path) -> Result<()> {
        self.progress.files += 1;
        self.tell(path)
    }

    /// So many bytes were read that are no progress: once more.
    pub(super) fn keep_pace(&mut self, bytes: usize) {
        let Some(limit) = self.options.bytes_per_second else { return };
        self.moved = self.moved.saturating_add(bytes as u64);
        let nanos = u128::from(self.moved) * 1_000_000_000 / u128::from(limit);
        let due = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let elapsed = self.options.clock.monotonic().saturating_sub(self.began);
        if due > elapsed {
            self.options.clock.sleep(due - elapsed);
        }
    }

    fn tell(&mut self, path: &Path) -> Result<()> {
        let Some(go_on) = &mut self.options.go_on else { return Ok(()) };
        match go_on(&self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::io("go on with", path, ErrorKind::Interrupted.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ManualClock;

    #[test]
    fn a_limit_is_kept_on_average_and_whoever_is_told_can_end_it() {
        let clock = Arc::new(ManualClock::default());
        let mut told = Vec::new();
        let options = BackupOptions::new().bytes_per_second(1000).clock(Arc::clone(&clock) as _);
        let mut work = Work::begin(options.go_on_while(|progress| {
            told.push(progress.bytes);
            if progress.bytes < 900 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }));
        work.expect(2, 900);
        let path = Path::new("f");
        work.advance(path, 500).unwrap();
        assert_eq!(clock.monotonic(), Duration::from_millis(500));
        work.end_file(path).unwrap();
        work.keep_pace(100);
        assert_eq!(clock.monotonic(), Duration::from_millis(600));
        clock.advance(Duration::from_secs(10));
        let ended = work.advance(path, 400).unwrap_err();
        assert!(
            matches!(ended, Error::Io { source, .. } if source.kind() == ErrorKind::Interrupted)
        );
        drop(work);
        assert_eq!(told, [500, 500, 900]);
    }
}
