//! What the process holds, second by second.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lithe_bench::{directory_size, memory_peak, memory_resident};
use lithedb::Stats;

use super::{Result, Store};

const REPORT_INTERVAL: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// See the module.
pub struct Watch {
    dir: PathBuf,
    /// Bytes that may be resident.
    memory_max: u64,
    started: Instant,
    reported: Instant,
    operations: u64,
    /// Of the seconds since it began: the one in which most was resident.
    fullest: Second,
}

/// What was resident, and what the store counted of it.
#[derive(Default)]
struct Second {
    resident: u64,
    counted: u64,
    parts: String,
}

/// The parts of what is counted, in MiB.
fn parts_of(stats: &Stats) -> String {
    format!(
        "memtables {}, cache {}, readers {}, index {}, transactions {}, buffers {}, unused {}",
        stats.memory_memtable / MIB,
        stats.memory_cache / MIB,
        stats.memory_readers / MIB,
        stats.memory_index / MIB,
        stats.memory_transaction / MIB,
        stats.memory_buffers / MIB,
        stats.memory_unused / MIB
    )
}

impl Watch {
    pub fn begin(dir: &Path, memory_max: u64) -> Watch {
        let now = Instant::now();
        let dir = dir.to_owned();
        let fullest = Second::default();
        Watch { dir, memory_max, started: now, reported: now, operations: 0, fullest }
    }

    /// Notes what is held. Says something once a minute.
    pub fn look(&mut self, store: &Store) -> Result<()> {
        let stats = store.db.stats();
        let resident = memory_resident()?;
        if resident > self.fullest.resident {
            let (counted, parts) = (stats.memory_used(), parts_of(&stats));
            self.fullest = Second { resident, counted, parts };
        }
        let elapsed = self.reported.elapsed();
        if elapsed < REPORT_INTERVAL {
            return Ok(());
        }
        let operations = store.operations.load(Ordering::Relaxed);
        let rate = (operations - self.operations) as f64 / elapsed.as_secs_f64();
        println!(
            "{:>5} s {rate:>9.0} ops/s; resident {} MiB, at most {}; counted {} MiB: {}; directory \
             {} MiB, {:.2} of what lives; stalls {}",
            self.started.elapsed().as_secs(),
            resident / MIB,
            memory_peak()? / MIB,
            stats.memory_used() / MIB,
            parts_of(&stats),
            directory_size(&self.dir)? / MIB,
            stats.space_amplification(),
            stats.stalls,
        );
        (self.reported, self.operations) = (Instant::now(), operations);
        Ok(())
    }

    /// Whether the memory was kept to.
    pub fn judge(&self) -> Result<()> {
        let peak = memory_peak()?;
        println!("memory: {} MiB at most, {} MiB allowed", peak / MIB, self.memory_max / MIB);
        let Second { resident, counted, parts } = &self.fullest;
        println!(
            "in the fullest second: {} MiB resident, {} counted: {parts}",
            resident / MIB,
            counted / MIB
        );
        match peak <= self.memory_max {
            true => Ok(()),
            false => Err("more memory than allowed".into()),
        }
    }
}
