//! Flexible address spaces against what else there is: `FlexTree` against a B+-tree and a sorted
//! array of extents, `FlexSpace` against a file of the file system with `FALLOC_FL_INSERT_RANGE`.
//!
//!     cargo bench -p lithe-bench --bench space                       # both
//!     cargo bench -p lithe-bench --bench space -- tree --large       # appends and lookups at 10^8
//!     cargo bench -p lithe-bench --bench space -- file --dir /data   # where the files are
//!
//! Trees are measured in time of the processor, files in that of the clock, in turn. Every figure
//! is the median of `--runs` (3), ratios those of one round. What takes O(n) for an operation is
//! stopped after some seconds and its rate taken from what was done until then, in a structure that
//! had half of its extents already.

mod file;
mod tree;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What was asked for.
struct Asked {
    tree: bool,
    file: bool,
    large: bool,
    runs: usize,
    dir: PathBuf,
}

fn main() {
    let asked = parse(std::env::args().skip(1));
    if asked.tree {
        tree::run(&asked);
    }
    if asked.file {
        file::run(&asked).expect("the directory can be written to");
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Asked {
    let dir = std::env::temp_dir();
    let mut asked = Asked { tree: false, file: false, large: false, runs: 3, dir };
    while let Some(word) = words.next() {
        match word.as_str() {
            "tree" => asked.tree = true,
            "file" => asked.file = true,
            "--large" => asked.large = true,
            "--runs" => {
                asked.runs = words.next().and_then(|count| count.parse().ok()).unwrap_or(3);
            }
            "--dir" => asked.dir = words.next().map_or(asked.dir, PathBuf::from),
            _ => {}
        }
    }
    if !asked.tree && !asked.file {
        (asked.tree, asked.file) = (true, true);
    }
    asked
}

/// The least, the median and the most of several runs that each give a figure.
fn rates(runs: usize, measure: impl FnMut() -> f64) -> [f64; 3] {
    spread(std::iter::repeat_with(measure).take(runs.max(1)).collect())
}

/// The least, the median and the most.
fn spread(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [figures[0], figures[figures.len() / 2], figures[figures.len() - 1]]
}

/// How long something takes.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// How much of the processor something takes: what else the machine does matters less.
fn cpu_time(work: impl FnOnce()) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
    };
    let start = now();
    work();
    now() - start
}
