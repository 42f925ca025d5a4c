//! The demo's last steps: the check, and what the store took for what it keeps.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lithedb::Stats;
use lithedb::base::Clock;

use super::Demo;
use super::screen::Screen;
use crate::commands::check::ok_text;
use crate::failure::{Failure, Outcome};
use crate::notation::{bytes_text, duration_text};

/// Unit of `st_blocks`, whatever the file system's block size is (POSIX `stat`).
const STAT_BLOCK_SIZE: u64 = 512;

/// Checks the whole database.
pub fn check(demo: &Demo, screen: &mut Screen) -> Outcome {
    let start = demo.clock.monotonic();
    let report = demo.db.check()?;
    let elapsed = demo.clock.monotonic() - start;
    for problem in &report.problems {
        screen.fact("problem", problem)?;
    }
    if !report.problems.is_empty() {
        return Err(Failure::Damaged { problem_count: report.problems.len() });
    }
    screen.fact("checked in", &duration_text(elapsed))?;
    screen.fact("result", &ok_text(&report))?;
    Ok(())
}

/// The part of the demo from opening the database to closing it.
pub struct Session {
    /// When the database had been opened.
    pub at_start: Stats,
    /// When everything had been written and read.
    pub at_work: Stats,
    /// When it had been closed.
    pub at_end: Stats,
    /// Bytes of keys and values that the demo wrote.
    pub given_bytes: u64,
}

impl Session {
    /// What was written to the keyspaces' files. Their segments are counted since they were
    /// created, their indexes since the database was opened.
    fn keyspace_bytes(&self) -> u64 {
        let segments = |stats: &Stats| -> u64 {
            stats.keyspaces.iter().map(|keyspace| keyspace.structure_bytes_written).sum()
        };
        let indexes: u64 =
            self.at_end.keyspaces.iter().map(|keyspace| keyspace.index_bytes_written).sum();
        segments(&self.at_end).saturating_sub(segments(&self.at_start)) + indexes
    }
}

/// Shows what was written, kept and used.
pub fn show(demo: &Demo, session: &Session, path: &Path, screen: &mut Screen) -> Outcome {
    let (log, keyspaces) = (session.at_end.wal_bytes_written, session.keyspace_bytes());
    let text = format!(
        "{:.2}: {} written for {} of keys and values",
        (log + keyspaces) as f64 / session.given_bytes as f64,
        bytes_text(log + keyspaces),
        bytes_text(session.given_bytes)
    );
    screen.fact("write amplification", &text)?;
    let text = format!(
        "keyspaces {}, commit log {} (most commits here are one small row)",
        bytes_text(keyspaces),
        bytes_text(log)
    );
    screen.fact("of that", &text)?;
    let now = demo.db.stats();
    let live: u64 = now.keyspaces.iter().map(|stats| stats.bytes_live).sum();
    let kept: u64 = now.keyspaces.iter().map(|stats| stats.bytes_on_disk).sum();
    let text = format!(
        "{:.2}: {} on disk for {} live",
        now.space_amplification(),
        bytes_text(kept),
        bytes_text(live)
    );
    screen.fact("space amplification", &text)?;
    let text = format!(
        "{}, {} of it preallocated commit log, {} kept for a full disk",
        bytes_text(directory_size(path)),
        bytes_text(now.wal_bytes_on_disk),
        bytes_text(now.health.reserve.held)
    );
    screen.fact("directory", &text)?;
    let used = &session.at_work;
    let text = format!(
        "{} of a budget of {}: memtables {}, cache {}, indexes {}",
        bytes_text(used.memory_used()),
        bytes_text(used.memory_budget),
        bytes_text(used.memory_memtable),
        bytes_text(used.memory_cache),
        bytes_text(used.memory_index)
    );
    screen.fact("memory before close", &text)?;
    if let Some(bytes) = peak_memory() {
        let text = format!("{}, the program and its data set included", bytes_text(bytes));
        screen.fact("process at its peak", &text)?;
    }
    Ok(())
}

/// Bytes that the files below `directory` take on the disk; what cannot be read counts nothing.
fn directory_size(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let size_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_size(&entry.path()),
        Ok(metadata) => metadata.blocks() * STAT_BLOCK_SIZE,
        Err(_) => 0,
    };
    entries.flatten().map(size_of).sum()
}

/// The most memory that this process has had in RAM, where the system says so.
fn peak_memory() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status_of_the_process() {
        let status = "Name:\tlithe\nVmPeak:\t  9000 kB\nVmHWM:\t    2048 kB\n";
        assert_eq!(peak_of(status), Some(2 << 20));
        assert_eq!(peak_of("Name:\tlithe\n"), None);
    }

    #[test]
    fn the_size_of_a_directory_counts_what_is_below_it() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::copy("/proc/self/status", below.join("file")).unwrap();
        assert!(directory_size(directory.path()) >= STAT_BLOCK_SIZE);
        assert_eq!(directory_size(&directory.path().join("absent")), 0);
    }
}
