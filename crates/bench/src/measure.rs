//! What a run costs beside time: bytes written and read, processor time, peak memory, disk space.
//!
//! Sources: `/proc/self/io`, `/proc/self/status`, the processor clock of the process, and a walk
//! over the directory. Where the system does not tell, a figure is absent, never zero.

use crate::engine::Result;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

const KIB: u64 = 1024;
/// `st_blocks` counts in these, whatever the file system's own block is.
const STAT_BLOCK_SIZE: u64 = 512;
#[cfg(target_os = "linux")]
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Figures of this process since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Bytes that the process caused to be sent to storage (pages dirtied, also through `mmap`).
    pub storage_bytes_written: Option<u64>,
    /// Bytes handed to `write` and the like.
    pub call_bytes_written: Option<u64>,
    /// Bytes that `read` and the like handed out, from a disk or from the page cache. What is read
    /// through `mmap` is not among them.
    pub call_bytes_read: Option<u64>,
    /// Calls of `read` and the like.
    pub calls_read: Option<u64>,
    /// Most memory resident at once since the process began, in bytes.
    pub memory_peak: Option<u64>,
    /// User and system time of all threads.
    pub cpu: Duration,
}

impl Process {
    /// The figures now.
    pub fn now() -> Process {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Process {
            storage_bytes_written: field(&io, "write_bytes:"),
            call_bytes_written: field(&io, "wchar:"),
            call_bytes_read: field(&io, "rchar:"),
            calls_read: field(&io, "syscr:"),
            memory_peak: memory_peak().ok(),
            cpu: cpu_time(),
        }
    }

    /// What was written, read and computed since `earlier`; the peak stays that of the whole time.
    pub fn since(&self, earlier: &Process) -> Process {
        let minus = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Process {
            storage_bytes_written: minus(self.storage_bytes_written, earlier.storage_bytes_written),
            call_bytes_written: minus(self.call_bytes_written, earlier.call_bytes_written),
            call_bytes_read: minus(self.call_bytes_read, earlier.call_bytes_read),
            calls_read: minus(self.calls_read, earlier.calls_read),
            memory_peak: self.memory_peak,
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }
}

/// Bytes that are resident now.
///
/// # Errors
/// If the system does not tell.
pub fn memory_resident() -> Result<u64> {
    memory("VmRSS:")
}

/// Most bytes resident at once since the process began, or since that was set back.
///
/// # Errors
/// If the system does not tell.
pub fn memory_peak() -> Result<u64> {
    memory("VmHWM:")
}

fn memory(name: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = field(&status, name).ok_or("the system does not tell what a process holds")?;
    Ok(kib * KIB)
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(target_os = "linux")]
fn write_existing(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use io::Write;
    fs::OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

/// Space of a directory and all below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectorySize {
    /// Lengths of the files.
    pub apparent: u64,
    /// Blocks that the file system gave them.
    pub allocated: u64,
    /// How many files.
    pub files: u64,
}

impl DirectorySize {
    /// Walks `dir`. Files that vanish meanwhile count as nothing.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn of(dir: &Path) -> Result<DirectorySize> {
        let mut size = DirectorySize::default();
        for_each_file(dir, &mut |path| {
            if let Ok(metadata) = fs::metadata(path) {
                size.apparent += metadata.len();
                size.allocated += allocated(&metadata);
                size.files += 1;
            }
        })?;
        Ok(size)
    }
}

/// Bytes that the file system gave to the files in `dir` and below.
///
/// # Errors
/// If a directory cannot be read.
pub fn directory_size(dir: &Path) -> Result<u64> {
    Ok(DirectorySize::of(dir)?.allocated)
}

#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * STAT_BLOCK_SIZE
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

fn for_each_file(dir: &Path, visit: &mut dyn FnMut(&Path)) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            for_each_file(&entry.path(), visit)?;
        } else {
            visit(&entry.path());
        }
    }
    Ok(())
}

/// How cold a cold read was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// The whole page cache was dropped.
    Dropped,
    /// The system was advised to forget the store's pages.
    Advised,
    /// Nothing could be done: the figure is a warm one.
    NotDropped,
}

impl Cold {
    /// For the details of a row.
    pub fn name(self) -> &'static str {
        match self {
            Cold::Dropped => "dropped",
            Cold::Advised => "advised",
            Cold::NotDropped => "not dropped",
        }
    }
}

/// Removes the files in `dir` from the page cache. The store must be closed.
pub fn drop_page_cache(dir: &Path) -> Cold {
    #[cfg(target_os = "linux")]
    {
        rustix::fs::sync(); // Only clean pages can be dropped.
        // 1: the page cache alone. Inodes stay, as they would on a machine that runs other things.
        if write_existing(Path::new(DROP_CACHES), b"1").is_ok() {
            return Cold::Dropped;
        }
        let (mut advised, mut refused) = (0u64, 0u64);
        let walked = for_each_file(dir, &mut |path| match forget_pages(path) {
            Ok(()) => advised += 1,
            Err(_) => refused += 1,
        });
        if walked.is_ok() && refused == 0 && advised > 0 {
            return Cold::Advised;
        }
    }
    let _ = dir;
    Cold::NotDropped
}

#[cfg(target_os = "linux")]
fn forget_pages(path: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new().read(true).open(path)?;
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Processor and system in words, for the head of a report.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // What follows the numbers names a build.
    let kernel = kernel.split(['-', '+']).next().unwrap_or_default().trim();
    format!("{cores} cores of {model}, {} {kernel}", std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_whole_name() {
        let io = "rchar: 5\nwchar: 17\nwrite_bytes: 4096\ncancelled_write_bytes: 9\n";
        assert_eq!(field(io, "write_bytes:"), Some(4096));
        assert_eq!(field(io, "wchar:"), Some(17));
        assert_eq!(field("VmHWM:\t    2048 kB\n", "VmHWM:"), Some(2048));
        assert_eq!(field(io, "VmHWM:"), None);
    }

    #[test]
    fn the_size_of_a_directory_is_that_of_all_files_below() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        let write = |name: &str, len: usize| {
            use io::Write;
            let path = dir.path().join(name);
            let options = fs::OpenOptions::new().create(true).append(true).open(path);
            options.unwrap().write_all(&vec![1; len]).unwrap();
        };
        write("a", 10);
        write("below/b", 5000);
        let size = DirectorySize::of(dir.path()).unwrap();
        assert_eq!((size.apparent, size.files), (5010, 2));
        assert_eq!(DirectorySize::of(&dir.path().join("none")).unwrap(), DirectorySize::default());
    }

    #[test]
    fn work_shows_in_the_figures_of_the_process() {
        let before = Process::now();
        let sum = (0..20_000_000u64).fold(0u64, |sum, i| sum ^ crate::data::mix(i));
        assert_ne!(sum, 0);
        let spent = Process::now().since(&before);
        assert!(spent.cpu > Duration::ZERO);
        if cfg!(target_os = "linux") {
            assert!(spent.memory_peak.is_some_and(|peak| peak > 100 * KIB));
        }
    }
}
