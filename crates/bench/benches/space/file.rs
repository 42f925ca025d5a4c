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

use lithedb::flex_space::FlexSpace;
use rustix::fs::{FallocateFlags, fallocate};

use super::{Asked, Dice, rates, time};

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

/// Bytes a second, and write amplification.
fn space_rate(dir: &Path, pattern: Pattern, pages: &[Vec<u8>]) -> (f64, f64) {
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    let mut space = FlexSpace::options().garbage_fraction(None).open(dir.path()).expect("opens");
    if pattern == Pattern::RandomWrite {
        pages.iter().for_each(|page| space.append(page).expect("room"));
        space.sync().expect("syncs");
    }
    let before = space.stats();
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
    let bytes = COUNT * PAGE as u64;
    let amplification = (written(&after) - written(&before)) as f64 / bytes as f64;
    (bytes as f64 / taken.as_secs_f64(), amplification)
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

pub fn run(asked: &Asked) -> io::Result<()> {
    let pages: Vec<Vec<u8>> = (0..COUNT).map(page).collect();
    println!("{COUNT} pages of 4 KiB, durable at the end, in {}", asked.dir.display());
    for pattern in [Pattern::RandomInsert, Pattern::RandomWrite, Pattern::Sequential] {
        let mut amplification = 0.0;
        let [least, median, most] = rates(asked.runs, || {
            let (rate, written) = space_rate(&asked.dir, pattern, &pages);
            amplification = written;
            rate / 1e6
        });
        println!(
            "{pattern:?}: FlexSpace {median:.1} MB/s ({least:.1} to {most:.1}), \
             write amplification {amplification:.4}"
        );
        let mut supported = true;
        let mut failed = None;
        let [least, median, most] =
            rates(asked.runs, || match file_rate(&asked.dir, pattern, &pages) {
                Ok(Some(rate)) => rate / 1e6,
                Ok(None) => {
                    supported = false;
                    0.0
                }
                Err(error) => {
                    failed = Some(error);
                    0.0
                }
            });
        if let Some(error) = failed {
            return Err(error);
        }
        match supported {
            true => println!("{pattern:?}: file {median:.1} MB/s ({least:.1} to {most:.1})"),
            false => println!("{pattern:?}: the file system cannot"),
        }
    }
    Ok(())
}
