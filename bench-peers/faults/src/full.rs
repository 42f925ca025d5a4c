//! A disk that fills up: what goes on when there is no room, and whether writing does when there is
//! some again, without the store being opened anew.

use crate::args::Args;
use crate::cases::{Case, Cases, FullCase};
use crate::driven::{Driven, Reply, Starter, Watched};
use crate::expected::Expected;
use crate::reading::{read_all, read_keys};
use crate::script::{Dice, Put, Step, key_of};
use crate::small_disk::SmallDisk;
use lithe_bench::{Commit, Result};
use programs::Built;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a value.
const VALUE_LEN: usize = 4000;
/// Entries in one commit, which is synced.
const BATCH: u64 = 16;
/// Of the disk's size, so many times as much is written at most.
const WRITTEN_MAX: u64 = 4;
/// Writes that are tried once one was refused.
const FURTHER_WRITES: u64 = 20;
/// Keys that are read, and others that are deleted, while there is no room.
const READ_WHEN_FULL: usize = 1000;
const DELETIONS: usize = 200;
/// So long, and so often, it is tried to write when there is room again.
const RESUME_TIME: Duration = Duration::from_secs(10);
const RESUME_POLL: Duration = Duration::from_millis(50);
/// Writes behind the first that went well again.
const LATER_WRITES: u64 = 50;

/// Fills up disks of all sizes.
///
/// # Errors
/// If none can be mounted, or the engine does not even begin.
pub fn run(args: &Args, built: &Built, cases: &mut Cases) -> Result<()> {
    for (case, mib) in (0..).zip(&args.sizes) {
        if !args.wants(case) {
            continue;
        }
        let path = args.dir.join(format!("{}-full", built.about.engine));
        let disk = SmallDisk::mount(&path, *mib)?;
        let mut met =
            FullCase { engine: built.about.engine.clone(), case, mib: *mib, ..FullCase::default() };
        run_case(&Starter::new(args, built), &disk, args.seed + case, &mut met)?;
        disk.unmount()?;
        cases.cases.push(Case::Full(met));
    }
    Ok(())
}

/// A store on a small disk.
struct Filling<'a> {
    driven: Driven,
    met: &'a mut FullCase,
    expected: Expected,
    dice: Dice,
    /// Entries that were ever tried to be written.
    count: u64,
}

fn run_case(starter: &Starter, disk: &SmallDisk, seed: u64, met: &mut FullCase) -> Result<()> {
    let dir = disk.path().join("store");
    let mut driven = starter.start(&dir, Watched::No)?;
    driven.must("open")?;
    let mib = met.mib;
    let (expected, dice) = (Expected::default(), Dice::new(seed, 0xF11));
    let mut filling = Filling { driven, met, expected, dice, count: 0 };
    let goes_on = filling.fill_up(mib << 20)? && filling.use_when_full()?;
    disk.resize(mib * 2)?;
    if goes_on {
        filling.resume();
    }
    let Filling { driven, met, expected, .. } = filling;
    driven.kill()?;
    let mut driven = starter.start(&dir, Watched::No)?;
    match driven.tell("open") {
        Reply::Done => met.reading = Some(read_all(&mut driven, &expected)?),
        reply => met.not_reopened = Some(format!("{reply:?}")),
    }
    driven.kill()
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Done,
    Refused,
    /// There is nobody any more who could be asked.
    Nothing,
}

impl Filling<'_> {
    fn do_step(&mut self, step: &Step) -> Came {
        match self.driven.tell(&step.lines()) {
            Reply::Done => {
                step.acknowledge(&mut self.expected);
                return Came::Done;
            }
            Reply::Refused(text) => {
                step.doubt(&mut self.expected);
                if self.met.error.is_empty() {
                    self.met.error = text;
                }
                return Came::Refused;
            }
            Reply::Ended(how) => self.met.ended = Some(how),
            Reply::Late => self.met.is_late = true,
        }
        step.doubt(&mut self.expected);
        Came::Nothing
    }

    fn new_entry(&mut self) -> Put {
        self.count += 1;
        Put { key: key_of(self.count), seed: self.dice.draw(), len: VALUE_LEN }
    }

    /// Writes until it is refused; whether there is still somebody to talk to.
    fn fill_up(&mut self, disk_size: u64) -> Result<bool> {
        let bytes_per_batch = BATCH * VALUE_LEN as u64;
        for _ in 0..disk_size * WRITTEN_MAX / bytes_per_batch {
            let puts = (0..BATCH).map(|_| self.new_entry()).collect();
            match self.do_step(&Step::Batch(puts, Commit::Durable)) {
                Came::Done => self.met.acknowledged += 1,
                Came::Refused => return Ok(true),
                Came::Nothing => return Ok(false),
            }
        }
        Err("the disk did not fill up".into())
    }

    /// Writes, reads and deletes while there is no room.
    fn use_when_full(&mut self) -> Result<bool> {
        for _ in 0..FURTHER_WRITES {
            let put = self.new_entry();
            match self.do_step(&Step::Put(put)) {
                Came::Done => self.met.written_when_full += 1,
                Came::Refused => {}
                Came::Nothing => return Ok(false),
            }
        }
        let living: Vec<Vec<u8>> = self.expected.living().map(<[u8]>::to_vec).collect();
        let read: Vec<&[u8]> = living.iter().take(READ_WHEN_FULL).map(Vec::as_slice).collect();
        let reading = read_keys(&mut self.driven, &self.expected, &read)?;
        let goes_on = reading.ended.is_none() && !reading.is_late;
        self.met.ended.clone_from(&reading.ended);
        self.met.is_late = reading.is_late;
        self.met.read_when_full = Some(reading);
        if !goes_on {
            return Ok(false);
        }
        for key in living.into_iter().rev().take(DELETIONS) {
            match self.do_step(&Step::Delete(key)) {
                Came::Done => self.met.deleted += 1,
                Came::Refused => self.met.not_deleted += 1,
                Came::Nothing => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Writes again, now that there is room.
    fn resume(&mut self) {
        let start = Instant::now();
        while start.elapsed() < RESUME_TIME {
            let put = self.new_entry();
            match self.do_step(&Step::Put(put)) {
                Came::Done => {
                    let millis = start.elapsed().as_millis();
                    self.met.resumed_after_ms = Some(u64::try_from(millis).unwrap_or(u64::MAX));
                    break;
                }
                Came::Refused => thread::sleep(RESUME_POLL),
                Came::Nothing => return,
            }
        }
        if self.met.resumed_after_ms.is_none() {
            return;
        }
        for _ in 0..LATER_WRITES {
            let put = self.new_entry();
            if self.do_step(&Step::Put(put)) == Came::Nothing {
                return;
            }
        }
    }
}
