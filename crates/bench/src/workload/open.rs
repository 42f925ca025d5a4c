//! W12: opening. After a clean close (cold and warm), and after `kill -9` during a load without
//! syncs: time to open, to the first get, what was acknowledged and what is found.
//!
//! The load that is killed runs in a process of its own (`Step::Victim`): it writes to standard
//! output, after each batch, how many entries are acknowledged.

use super::{STORE_LARGE, VERSIONS};
use crate::clock::{microseconds_each, milliseconds, timed};
use crate::data::{KeyShape, ValueChecker};
use crate::engine::{Engine, Result, wrong};
use crate::job::{Context, Job, Step};
use crate::load::{BATCH_LEN, Writes};
use crate::measure::drop_page_cache;
use crate::report::{Row, median};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const STORE_KILLED: &str = "w12";
const OPENS: usize = 5;
const SHAPE: KeyShape = KeyShape::Random16;

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    clean::<E>(context)?;
    killed::<E>(context)
}

fn clean<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let dir = context.store(STORE_LARGE);
    let cold = drop_page_cache(&dir);
    let mut times = Vec::new();
    for _ in 0..=OPENS {
        let opened = Opened::<E>::open(context, &dir)?;
        opened.engine.close()?;
        if !opened.found {
            return wrong("W12: the first key is gone after a clean close");
        }
        times.push((milliseconds(opened.open_time), microseconds_each(1, opened.get_time)));
    }
    let (opens, gets): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
    context.report(
        Row::new("W12", "clean open, cold", opens[0], "ms")
            .with("page_cache", cold.name())
            .with("first_get_us", gets[0]),
    );
    context.report(
        Row::new("W12", "clean open, warm", median(&opens[1..]), "ms")
            .with("first_get_us", median(&gets[1..])),
    );
    Ok(())
}

/// A store just opened, and its first get: of the key that a load writes first.
struct Opened<E> {
    engine: E,
    open_time: Duration,
    get_time: Duration,
    found: bool,
}

impl<E: Engine> Opened<E> {
    fn open(context: &Context<'_>, dir: &Path) -> Result<Opened<E>> {
        let (engine, open_time) = timed(|| E::open(dir, context.job.memory));
        let (engine, key, mut value) = (engine?, SHAPE.key(0), Vec::new());
        let (found, get_time) = timed(|| engine.get(&key, &mut value));
        let found = found?;
        if found && ValueChecker::default().version_of(0, &value, VERSIONS).is_none() {
            return wrong("W12: the first get has a wrong value");
        }
        Ok(Opened { engine, open_time, get_time, found })
    }
}

fn killed<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let dir = context.fresh_store(STORE_KILLED)?;
    let victim = Job { step: Step::Victim, ..context.job.clone() };
    let acknowledged = (context.kill_load)(&victim, context.job.keys / 2)?;
    let Opened { engine, open_time, get_time, .. } = Opened::<E>::open(context, &dir)?;

    let (mut found, mut gaps, mut value) = (0, 0, Vec::new());
    let mut checker = ValueChecker::default();
    // One batch more than was acknowledged may have arrived.
    for index in 0..context.job.keys.min(acknowledged + BATCH_LEN) {
        value.clear();
        if !engine.get(&SHAPE.key(index), &mut value)? {
            continue;
        }
        if checker.version_of(index, &value, &[0]).is_none() {
            return wrong(format!("W12: key {index} has a wrong value after the kill"));
        }
        gaps = index - found; // Keys missing before the last one found.
        found += 1;
    }
    engine.close()?;
    let share = 100.0 * found.min(acknowledged) as f64 / acknowledged.max(1) as f64;
    if E::BUFFERED_SURVIVES_KILL && (found < acknowledged || gaps > 0) {
        return wrong(format!("W12: {acknowledged} acknowledged, {found} found, {gaps} gaps"));
    }
    context.report(
        Row::new("W12", "open after kill -9", milliseconds(open_time), "ms")
            .with("first_get_us", microseconds_each(1, get_time)),
    );
    context.report(
        Row::new("W12", "found after kill -9 without syncs", share, "%")
            .with("acknowledged", acknowledged)
            .with("found", found)
            .with("gaps", gaps),
    );
    context.remove_store(STORE_KILLED)
}

/// Loads until it is killed, or until all is loaded; then leaves without closing.
pub fn victim<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    let engine = E::open(&context.store(STORE_KILLED), context.job.memory)?;
    let mut output = std::io::stdout().lock();
    Writes::load(SHAPE).run(
        &engine,
        context.job.keys,
        |index| index,
        |done| {
            writeln!(output, "{done}")?;
            Ok(output.flush()?)
        },
    )?;
    std::process::exit(0); // No destructor runs: to the store this is a kill.
}
