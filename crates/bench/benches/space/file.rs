//! Bytes on a disk: a space, and a file of the file system that has ranges inserted.
//!
//! Each run writes `COUNT` pages of 4 KiB and ends with everything durable. What the file system
//! does with an insert in the middle takes longer the more pieces the file has; it is stopped
//! after some time.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use lithe_bench::Dice;
use lithedb::flex_space::FlexSpace;
use rustix::fs::{FallocateFlags, fallocate};

use super::{Asked, spread, time};

const PAGE: usize = 4096;
const COUNT: u64 = 32_768;
const TIME_MAX: Duration = Duration::from_secs(20);

/// What is done with each page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    RandomInsert,
    RandomWrite,
    Sequential,
}

impl Pattern {
    /// Where the page of this number goes.
    fn offset(self, number: u64, dice: &mut Dice) -> u64 {
        let page = match self {
            Pattern::RandomInsert => dice.below(number.max(1)),
            Pattern::RandomWrite => dice.below(COUNT),
            Pattern::Sequential => number,
        };
        page * PAGE as u64
    }
}

fn page(number: u64) -> Vec<u8> {
    let mut dice = Dice(number);
    (0..PAGE / 8).flat_map(|_| dice.below(u64::MAX).to_le_bytes()).collect()
}

/// What a run of a space comes to.
#[derive(Clone, Copy, Default)]
struct SpaceRun {
    /// Bytes a second.
    rate: f64,
    /// Bytes written for each that was given, as the space counts them.
    amplification: f64,
    /// As the system counts them, which knows of pages only, and also of what it wrote earlier.
    amplification_of_system: f64,
}

/// Bytes that this process had the system write, so far.
fn bytes_written() -> u64 {
    let counts = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let count = counts.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn space_run(dir: &Path, pattern: Pattern, pages: &[Vec<u8>]) -> SpaceRun {
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    let mut space = FlexSpace::options().garbage_fraction(None).open(dir.path()).expect("opens");
    if pattern == Pattern::RandomWrite {
        pages.iter().for_each(|page| space.append(page).expect("room"));
        space.sync().expect("syncs");
    }
    let (before, before_of_system) = (space.stats(), bytes_written());
    let mut dice = Dice(3);
    let taken = time(|| {
        for number in 0..COUNT {
            let (offset, page) = (pattern.offset(number, &mut dice), &pages[number as usize]);
            let done = match pattern {
                Pattern::RandomWrite => space.overwrite(offset, page),
                _ => space.insert(offset, page),
            };
            done.expect("room");
        }
        space.sync().expect("syncs");
    });
    let after = space.stats();
    let written = |stats: &lithedb::flex_space::SpaceStats| {
        stats.data_bytes_written + stats.index_bytes_written
    };
    let bytes = (COUNT * PAGE as u64) as f64;
    SpaceRun {
        rate: bytes / taken.as_secs_f64(),
        amplification: (written(&after) - written(&before)) as f64 / bytes,
        amplification_of_system: (bytes_written() - before_of_system) as f64 / bytes,
    }
}

/// Bytes a second of a file; `None` if the file system cannot insert.
fn file_rate(dir: &Path, pattern: Pattern, pages: &[Vec<u8>]) -> io::Result<Option<f64>> {
    let dir = tempfile::tempdir_in(dir)?;
    let path = dir.path().join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    if pattern == Pattern::RandomWrite {
        for (number, page) in pages.iter().enumerate() {
            file.write_all_at(page, (number * PAGE) as u64)?;
        }
        file.sync_data()?;
    }
    let mut dice = Dice(3);
    let (mut done, mut taken) = (0, Duration::ZERO);
    while done < COUNT && taken < TIME_MAX {
        let mut result = Ok(true);
        taken += time(|| {
            for number in done..COUNT.min(done + 256) {
                let offset = pattern.offset(number, &mut dice);
                result = put(&file, pattern, offset, number, &pages[number as usize]);
                if !matches!(result, Ok(true)) {
                    break;
                }
            }
        });
        if !result? {
            return Ok(None);
        }
        done = COUNT.min(done + 256);
    }
    let mut synced = Ok(());
    taken += time(|| synced = file.sync_data());
    synced?;
    Ok(Some((done * PAGE as u64) as f64 / taken.as_secs_f64()))
}

/// Whether it could be done.
fn put(file: &File, pattern: Pattern, offset: u64, number: u64, page: &[u8]) -> io::Result<bool> {
    // A range is not inserted at the end.
    if pattern == Pattern::RandomInsert && number > 0 {
        let inserted = fallocate(file, FallocateFlags::INSERT_RANGE, offset, PAGE as u64);
        match inserted {
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(false),
            other => other?,
        }
    }
    file.write_all_at(page, offset)?;
    Ok(true)
}

/// One round: every pattern, on a space and on a file.
struct Round {
    spaces: [SpaceRun; PATTERNS.len()],
    /// Bytes a second; `None` if the file system cannot.
    files: [Option<f64>; PATTERNS.len()],
}

const PATTERNS: [Pattern; 3] = [Pattern::RandomInsert, Pattern::RandomWrite, Pattern::Sequential];

fn round(dir: &Path, pages: &[Vec<u8>]) -> io::Result<Round> {
    let mut round = Round { spaces: Default::default(), files: [None; PATTERNS.len()] };
    for (number, pattern) in PATTERNS.into_iter().enumerate() {
        round.spaces[number] = space_run(dir, pattern, pages);
        round.files[number] = file_rate(dir, pattern, pages)?;
    }
    Ok(round)
}

pub fn run(asked: &Asked) -> io::Result<()> {
    let pages: Vec<Vec<u8>> = (0..COUNT).map(page).collect();
    println!("{COUNT} pages of 4 KiB, durable at the end, in {}", asked.dir.display());
    let rounds = (0..asked.runs.max(1)).map(|_| round(&asked.dir, &pages));
    let rounds = rounds.collect::<io::Result<Vec<Round>>>()?;
    for (number, pattern) in PATTERNS.into_iter().enumerate() {
        let found = of_rounds(&rounds, |round| Some(round.spaces[number].rate / 1e6));
        report(&format!("{pattern:?}, FlexSpace, MB/s"), found);
        let found = of_rounds(&rounds, |round| Some(round.files[number]? / 1e6));
        report(&format!("{pattern:?}, file, MB/s"), found);
        let found =
            of_rounds(&rounds, |round| Some(round.spaces[number].rate / round.files[number]?));
        report(&format!("{pattern:?}, FlexSpace / file"), found);
        let found = of_rounds(&rounds, |round| {
            Some(round.spaces[number].rate / round.spaces[PATTERNS.len() - 1].rate)
        });
        report(&format!("{pattern:?} / Sequential, FlexSpace"), found);
        let found = of_rounds(&rounds, |round| Some(round.spaces[number].amplification));
        report(&format!("{pattern:?}, write amplification"), found);
        let found = of_rounds(&rounds, |round| Some(round.spaces[number].amplification_of_system));
        report("  by the system's count", found);
    }
    Ok(())
}

fn of_rounds(rounds: &[Round], figure: impl Fn(&Round) -> Option<f64>) -> Option<[f64; 3]> {
    let figures: Option<Vec<f64>> = rounds.iter().map(figure).collect();
    figures.map(spread)
}

fn report(what: &str, found: Option<[f64; 3]>) {
    match found {
        Some([least, median, most]) => {
            println!("{what:42} {median:10.4}  ({least:.4} to {most:.4})");
        }
        None => println!("{what:42} the file system cannot"),
    }
}
