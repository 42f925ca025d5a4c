//! One bit of a store that was closed, or whose process was killed with a log that is synced and
//! not flushed: what is opened, and what is read.

use crate::args::Args;
use crate::cases::{Case, Cases, Flip, Verdict};
use crate::driven::{Reply, Starter, Watched};
use crate::expected::Expected;
use crate::image::{Image, Place, flip};
use crate::reading::{Reading, read_all};
use crate::script::{Dice, Ending, Step, fixture};
use lithe_bench::{Result, wrong};
use programs::Built;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Of one in so many flips the bit is in a block of zeros, beside those that are asked for.
const ZEROS_ONE_IN: u64 = 10;
/// A fixture that has this beside it is whole.
const WHOLE: &str = "whole";

/// A store, as it was left.
struct Fixture {
    ending: Ending,
    image: Image,
    expected: Expected,
}

/// Flips bits of both stores of an engine.
///
/// # Errors
/// If a store cannot be made, or is read wrong as it is.
pub fn run(args: &Args, built: &Built, cases: &mut Cases) -> Result<()> {
    for ending in [Ending::Closed, Ending::Killed] {
        let engine = &built.about.engine;
        let starter = Starter::new(args, built);
        let fixture = Fixture::make(args, engine, &starter, ending)?;
        let (all, holes) = fixture.image.sizes();
        eprintln!("faults: {engine}, {ending:?}: {all} bytes, {holes} of them in holes");
        let places = draw_places(args, &fixture.image);
        let next = AtomicU64::new(0);
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..args.threads.max(1) {
                let dir = args.dir.join(format!("{engine}-{number}"));
                let (fixture, starter, places) = (&fixture, &starter, &places);
                let (next, done) = (&next, &done);
                scope.spawn(move || {
                    while let Some(case) = take(next, places.len() as u64) {
                        if !args.wants(case) {
                            continue;
                        }
                        let drawn = &places[case as usize];
                        let flipped = run_case(fixture, starter, &dir, drawn);
                        let flipped = flipped.map(|(verdict, what)| {
                            drawn.case(engine, case, fixture.ending, verdict, what)
                        });
                        done.lock().unwrap_or_else(PoisonError::into_inner).push(flipped);
                    }
                    let _ = fs::remove_dir_all(&dir); // Whatever is left, another run removes.
                });
            }
        });
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut flips = done.into_iter().collect::<Result<Vec<Flip>>>()?;
        flips.sort_by_key(|flip| flip.case);
        cases.cases.extend(flips.into_iter().map(Case::Flip));
    }
    Ok(())
}

fn take(next: &AtomicU64, end: u64) -> Option<u64> {
    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < end)
}

/// A bit that was drawn.
struct Drawn {
    place: Place,
    bit: u8,
    is_in_zeros: bool,
}

impl Drawn {
    fn case(
        &self,
        engine: &str,
        case: u64,
        ending: Ending,
        verdict: Verdict,
        what: String,
    ) -> Flip {
        Flip {
            engine: engine.into(),
            case,
            ending,
            file: self.place.file.display().to_string(),
            offset: self.place.offset,
            bit: self.bit,
            is_in_zeros: self.is_in_zeros,
            verdict,
            what,
        }
    }
}

/// First those in blocks that are in use, then those in blocks of zeros.
fn draw_places(args: &Args, image: &Image) -> Vec<Drawn> {
    let (used, zero) = image.blocks();
    let mut drawn = Vec::new();
    for (blocks, count, is_in_zeros) in
        [(used, args.flips, false), (zero, args.flips / ZEROS_ONE_IN, true)]
    {
        if blocks.is_empty() {
            continue;
        }
        let mut dice = Dice::new(args.seed, 0xB17 + u64::from(is_in_zeros));
        for _ in 0..count {
            let block = blocks[dice.below(blocks.len() as u64) as usize];
            let place = image.place(block, dice.below(block.2));
            drawn.push(Drawn { place, bit: dice.below(8) as u8, is_in_zeros });
        }
    }
    drawn
}

fn run_case(
    fixture: &Fixture,
    starter: &Starter,
    dir: &Path,
    drawn: &Drawn,
) -> Result<(Verdict, String)> {
    fixture.image.write(dir)?;
    flip(dir, &drawn.place, drawn.bit)?;
    open_and_read(starter, dir, &fixture.expected)
}

/// Opens what lies in `dir` and reads everything.
fn open_and_read(starter: &Starter, dir: &Path, expected: &Expected) -> Result<(Verdict, String)> {
    let mut driven = starter.start(dir, Watched::No)?;
    let (verdict, what) = match driven.tell("open") {
        Reply::Done => {
            let reading = read_all(&mut driven, expected)?;
            let verdict = Verdict::of(&reading);
            let Reading { mut what, ended, .. } = reading;
            if let (Verdict::Crash, Some(how)) = (verdict, ended) {
                what = how;
            }
            (verdict, what)
        }
        Reply::Refused(what) => (Verdict::RefusedAtOpen, what),
        Reply::Ended(how) => (Verdict::Crash, how),
        Reply::Late => (Verdict::Hang, "when it was opened".into()),
    };
    driven.kill()?;
    Ok((verdict, what))
}

impl Fixture {
    /// The store that was made of this seed before, or a new one.
    fn make(args: &Args, engine: &str, starter: &Starter, ending: Ending) -> Result<Fixture> {
        let name = format!("{engine}-{ending:?}-{}", args.seed).to_lowercase();
        let kept = args.out.join("fixtures").join(name);
        let steps = fixture(args.seed, ending);
        let mut expected = Expected::default();
        steps.iter().for_each(|step| step.acknowledge(&mut expected));
        if args.fresh || !kept.join(WHOLE).exists() {
            if kept.exists() {
                fs::remove_dir_all(&kept)?;
            }
            let lines: Vec<String> = steps.iter().map(Step::lines).collect();
            let made = make_store(starter, &args.dir.join("fixture"), ending, &lines)?;
            made.write(&kept.join("store"))?;
            fs::write(kept.join(WHOLE), "")?;
        }
        let image = Image::read(&kept.join("store"))?;
        // As it is, everything is right: whatever is not comes of the bit.
        let dir = args.dir.join("fixture");
        image.write(&dir)?;
        let (verdict, what) = open_and_read(starter, &dir, &expected)?;
        fs::remove_dir_all(&dir)?;
        match verdict {
            Verdict::Right => Ok(Fixture { ending, image, expected }),
            verdict => wrong(format!("{ending:?}, with no bit flipped: {verdict:?}: {what}")),
        }
    }
}

fn make_store(starter: &Starter, dir: &Path, ending: Ending, lines: &[String]) -> Result<Image> {
    Image::default().write(dir)?;
    let mut driven = starter.start(dir, Watched::No)?;
    driven.must("open")?;
    lines.iter().try_for_each(|line| driven.must(line))?;
    if ending == Ending::Closed {
        driven.must("close")?;
    }
    driven.kill()?;
    Image::read(dir)
}
