//! What the process holds, second by second.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lithe_bench::directory_size;

use super::{Result, Store};

const REPORT_INTERVAL: Duration = Duration::from_secs(60);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// See the module.
pub struct Watch {
    dir: PathBuf,
    /// Bytes that may be resident.
    memory_max: u64,
    started: Instant,
    reported: Instant,
    operations: u64,
}

/// Bytes after `name` in the status of this process.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * KIB
}

impl Watch {
    pub fn begin(dir: &Path, memory_max: u64) -> Watch {
        let now = Instant::now();
        Watch { dir: dir.to_owned(), memory_max, started: now, reported: now, operations: 0 }
    }

    /// Says something once a minute.
    pub fn look(&mut self, store: &Store) -> Result<()> {
        let elapsed = self.reported.elapsed();
        if elapsed < REPORT_INTERVAL {
            return Ok(());
        }
        let operations = store.operations.load(Ordering::Relaxed);
        let rate = (operations - self.operations) as f64 / elapsed.as_secs_f64();
        let stats = store.db.stats();
        println!(
            "{:>5} s {rate:>9.0} ops/s; resident {} MiB, at most {}; memtables {}, cache {}, index \
             {}, pinned {} MiB; directory {} MiB, {:.2} of what lives; stalls {}",
            self.started.elapsed().as_secs(),
            status("VmRSS:") / MIB,
            status("VmHWM:") / MIB,
            stats.memory_memtable / MIB,
            stats.memory_cache / MIB,
            stats.memory_index / MIB,
            stats.memory_pinned / MIB,
            directory_size(&self.dir)? / MIB,
            stats.space_amplification(),
            stats.stalls,
        );
        (self.reported, self.operations) = (Instant::now(), operations);
        Ok(())
    }

    /// Whether the memory was kept to.
    pub fn judge(&self) -> Result<()> {
        let peak = status("VmHWM:");
        println!("memory: {} MiB at most, {} MiB allowed", peak / MIB, self.memory_max / MIB);
        match peak <= self.memory_max {
            true => Ok(()),
            false => Err("more memory than allowed".into()),
        }
    }
}
