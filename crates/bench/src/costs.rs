//! What a workload costs beside time, looked at at several points: write amplification, directory
//! size, processor time, peak memory.

use crate::engine::Result;
use crate::measure::{DirectorySize, Process};
use crate::report::Row;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A directory that was the same for so many looks is taken to be left alone.
const LOOKS_STILL: u32 = 6;
/// It is waited for no longer than this: a minute.
const LOOKS_MAX: u32 = 240;
const MIB: f64 = (1u64 << 20) as f64;

/// Figures at points in time, from a beginning.
#[derive(Debug)]
pub struct Costs {
    dir: PathBuf,
    before: Process,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    name: &'static str,
    process: Process,
    size: DirectorySize,
}

impl Costs {
    /// From now on.
    pub fn begin(dir: &Path) -> Costs {
        Costs { dir: dir.to_owned(), before: Process::now(), points: Vec::new() }
    }

    /// Takes the figures now.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn mark(&mut self, name: &'static str) -> Result<()> {
        let process = Process::now().since(&self.before);
        self.points.push(Point { name, process, size: DirectorySize::of(&self.dir)? });
        Ok(())
    }

    /// Rows named `<prefix> write amplification` and so on: the figure is that of the last point,
    /// the details are those of all. `written` and `live` are the bytes of keys and values that
    /// were given to the store, and that it holds.
    pub fn rows(&self, workload: &str, prefix: &str, written: u64, live: u64) -> Vec<Row> {
        let Some(last) = self.points.last() else {
            return Vec::new();
        };
        let over = |bytes: u64, data: u64| bytes as f64 / data.max(1) as f64;
        let named = |name: &str| format!("{prefix} {name}").trim().to_owned();
        let mut rows = Vec::new();
        if let Some(bytes) = last.process.storage_bytes_written {
            let mut row =
                Row::new(workload, &named("write amplification"), over(bytes, written), "x");
            for point in &self.points {
                if let Some(bytes) = point.process.storage_bytes_written {
                    row = row.with(point.name, over(bytes, written));
                }
            }
            if let Some(bytes) = last.process.call_bytes_written {
                row = row.with("by_calls", over(bytes, written));
            }
            rows.push(row.with("data_bytes", written));
        }
        let size = over(last.size.allocated, live);
        let mut row = Row::new(workload, &named("directory / data"), size, "x");
        for point in &self.points {
            row = row.with(point.name, over(point.size.allocated, live));
        }
        rows.push(
            row.with("apparent", over(last.size.apparent, live)).with("files", last.size.files),
        );
        rows.extend(memory_row(workload, &named("peak memory"), last.process.memory_peak));
        let cpu = last.process.cpu.as_secs_f64();
        rows.push(Row::new(workload, &named("cpu"), cpu, "s"));
        rows
    }
}

/// What is read for each of `count` operations: calls and bytes, as details of their row. What the
/// engine does in the background meanwhile is among it.
#[derive(Debug)]
pub struct Reads {
    before: Process,
}

impl Reads {
    /// From now on.
    pub fn begin() -> Reads {
        Reads { before: Process::now() }
    }

    /// Adds them to the row of what was done since.
    #[must_use]
    pub fn add_to(&self, row: Row, count: u64) -> Row {
        let since = Process::now().since(&self.before);
        let each = |number: u64| number as f64 / count.max(1) as f64;
        let row = match since.calls_read {
            Some(calls) => row.with("read_calls_each", each(calls)),
            None => row,
        };
        match since.call_bytes_read {
            Some(bytes) => row.with("bytes_read_each", each(bytes)),
            None => row,
        }
    }
}

/// Waits until the directory has not changed in size for a while: until what an engine does by
/// itself when it is left alone is done.
///
/// # Errors
/// If the directory cannot be read.
pub fn wait_until_still(dir: &Path) -> Result<()> {
    let (mut size, mut still) = (DirectorySize::of(dir)?, 0);
    for _ in 0..LOOKS_MAX {
        if still == LOOKS_STILL {
            break;
        }
        thread::sleep(LOOK_EVERY);
        let now = DirectorySize::of(dir)?;
        let is_still = (now.allocated, now.files) == (size.allocated, size.files);
        still = if is_still { still + 1 } else { 0 };
        size = now;
    }
    Ok(())
}

/// The most memory that this process ever held; no row where the system does not tell.
pub fn peak_memory_row(workload: &str, metric: &str) -> Option<Row> {
    memory_row(workload, metric, Process::now().memory_peak)
}

fn memory_row(workload: &str, metric: &str, bytes: Option<u64>) -> Option<Row> {
    Some(Row::new(workload, metric, bytes? as f64 / MIB, "MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_that_of_the_last_point_and_all_points_are_details() {
        let point = |name, storage: u64, size: u64| Point {
            name,
            process: Process { storage_bytes_written: Some(storage), ..Process::default() },
            size: DirectorySize { allocated: size, apparent: size / 2, files: 3 },
        };
        let costs = Costs {
            dir: PathBuf::new(),
            before: Process::default(),
            points: vec![point("sync", 2000, 1500), point("close", 3000, 1200)],
        };
        let rows = costs.rows("W3", "random", 1000, 1000);
        let value = |metric: &str| {
            rows.iter()
                .find(|row| row.metric == metric)
                .map(|row| (row.value, &row.details))
                .unwrap()
        };
        let (amplification, details) = value("random write amplification");
        assert!((amplification - 3.0).abs() < 1e-9);
        assert_eq!(details["sync"], 2.0);
        let (size, details) = value("random directory / data");
        assert!((size - 1.2).abs() < 1e-9);
        assert_eq!((&details["sync"], &details["apparent"]), (&1.5.into(), &0.6.into()));
        assert!(rows.iter().all(|row| row.metric != "random peak memory"), "unknown is absent");
    }

    #[test]
    fn without_a_point_there_is_no_row() {
        let dir = tempfile::tempdir().unwrap();
        let mut costs = Costs::begin(dir.path());
        assert!(costs.rows("W3", "", 1, 1).is_empty());
        costs.mark("sync").unwrap();
        assert!(costs.rows("W3", "", 1, 1).iter().any(|row| row.metric == "directory / data"));
    }

    #[test]
    fn what_is_read_is_told_for_each_operation() {
        use std::io::{Read, Seek, Write};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        file.rewind().unwrap();
        let (reads, mut found) = (Reads::begin(), Vec::new());
        assert_eq!(file.read_to_end(&mut found).unwrap(), 10_000);
        let row = reads.add_to(Row::new("W4", "uniform", 1.0, "ns"), 10);
        let told = |name: &str| row.details.get(name).and_then(serde_json::Value::as_f64);
        if cfg!(target_os = "linux") {
            assert!(told("bytes_read_each").unwrap() >= 1000.0, "{row:?}");
            assert!(told("read_calls_each").unwrap() >= 0.1, "{row:?}");
        }
    }
}
