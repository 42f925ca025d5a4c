//! A run: every step of every engine in a process of its own, the engines in turn.
//!
//! For each round and each step, all engines run the step one after the other (in another order
//! each round), so that whatever else the machine does hits all of them. Stores live until the
//! round ends.
//!
//! Invariants
//! - R1  A step whose store is not there (its maker failed) does not run.
//! - R2  An engine too slow or too large for its load tries again with a quarter of the keys, and
//!   its later steps of the round use that store.
//! - R3  What an engine was too slow or too large for in one round, it does not try in the next. Nor
//!   does it do again what takes minutes, which scatters little: the others' turns are worth more.
//! - R4  What was measured so far is handed on after every block: a run that is cut off is no loss.

mod child;
mod schedule;

use crate::args::Args;
use crate::judge::OWN;
use crate::results::{Head, Results};
use child::{Limits, Outcome, run_step};
use lithe_bench::{ChildArgs, Result, Step, machine};
use programs::{Builds, Built, compilers, revision};
use schedule::{Block, Turn, schedule};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a load is tried with fewer keys, and by what they are divided.
const SMALLER_TRIES: u32 = 2;
const SMALLER_DIVISOR: u64 = 4;
/// A step that takes longer than this is run in one round only (R3).
const ONCE_FROM: Duration = Duration::from_secs(45);
const GIB: u64 = 1 << 30;

/// Runs what `args` ask for on the engines that were built, and adds it to what was measured
/// `earlier`.
///
/// # Errors
/// If the directory for the stores cannot be made, `keep` fails, or the earlier figures are of
/// other sizes. What engines do wrong is no error, but a gap.
pub fn run(
    args: &Args,
    builds: &Builds,
    earlier: Option<Results>,
    keep: impl Fn(&Results) -> Result<()>,
) -> Result<Results> {
    let engines: Vec<_> = builds.built.iter().map(|built| built.about.clone()).collect();
    let first_round = earlier.as_ref().map_or(0, |earlier| earlier.head.repeat);
    let mut results = match earlier {
        Some(mut earlier) => {
            earlier.go_on(&head(args, builds), engines, args.workloads.is_empty())?;
            earlier
        }
        None => Results { head: head(args, builds), engines, ..Results::default() },
    };
    for (engine, why) in &builds.failed {
        results.note_gap(engine, "", why);
    }
    let blocks = schedule(&args.wanted(), args.keys(), &args.memory);
    let directory = WorkDirectory::create(&args.dir)?;
    let mut beyond = HashSet::new();
    for round in first_round..first_round + args.repeat() {
        let mut this_round = Round::new(args, &directory.path, &mut results, &mut beyond);
        let engines = in_turn(&builds.built, round, &args.once);
        for block in &blocks {
            this_round.run_block(block, &engines);
            keep(this_round.results)?; // R4
        }
        this_round.end(&builds.built);
    }
    Ok(results)
}

fn head(args: &Args, builds: &Builds) -> Head {
    let engines: Vec<_> = builds.built.iter().map(|built| built.about.clone()).collect();
    Head {
        machine: machine(),
        revision: revision(),
        compilers: compilers(&engines),
        keys: args.keys(),
        divisor: args.divisor(),
        repeat: args.repeat(),
        once: args.once.clone(),
        memory: args.memory.iter().map(ToString::to_string).collect(),
        cap_s: args.cap,
        cap_gib: args.disk_cap,
    }
}

/// The engines of a round, beginning with another one each time.
fn in_turn<'b>(built: &'b [Built], round: u32, once: &[String]) -> Vec<&'b Built> {
    let runs = |built: &&Built| round == 0 || !once.contains(&built.about.engine);
    let mut engines: Vec<_> = built.iter().filter(runs).collect();
    let first = round as usize % engines.len().max(1);
    engines.rotate_left(first);
    engines
}

/// One round.
struct Round<'a> {
    args: &'a Args,
    dir: &'a Path,
    results: &'a mut Results,
    /// Keys in the large store of each engine that has one.
    loaded: HashMap<String, u64>,
    /// Engines that have the store of W1.
    small: Vec<String>,
    /// R3, over all rounds: engine, step and keys.
    beyond: &'a mut HashSet<(String, String, u64)>,
}

impl<'a> Round<'a> {
    fn new(
        args: &'a Args,
        dir: &'a Path,
        results: &'a mut Results,
        beyond: &'a mut HashSet<(String, String, u64)>,
    ) -> Round<'a> {
        Round { args, dir, results, loaded: HashMap::new(), small: Vec::new(), beyond }
    }

    fn run_block(&mut self, block: &Block, engines: &[&Built]) {
        match block {
            Block::EnginesInTurn(turn) => {
                engines.iter().for_each(|built| self.run_turn(built, turn));
            }
            Block::StepsInTurn(turns) => {
                for built in engines {
                    turns.iter().for_each(|turn| self.run_turn(built, turn));
                    self.remove_stores(built); // At the largest sizes there is no room for all.
                }
            }
        }
    }

    fn run_turn(&mut self, built: &Built, turn: &Turn) {
        let name = built.about.engine.clone();
        let keys = match turn.step {
            Step::Trade if name != OWN => return, // No rival's adapter has a knob.
            Step::W17 if built.about.language == "Go" => return, // Those have no such step.
            Step::W2Small if !self.small.contains(&name) => return, // R1
            step if needs_large_store(step) => match self.loaded.get(&name) {
                Some(keys) => *keys,
                None => return, // R1: why, its load has said.
            },
            _ => turn.keys,
        };
        // Of other sizes than the one of the label, a figure would say nothing.
        let is_retried = is_load(turn.step) && turn.label.is_empty();
        let tries = if is_retried { 1 + SMALLER_TRIES } else { 1 };
        let sizes = (0..tries).map(|t| (keys / SMALLER_DIVISOR.pow(t)).max(1));
        for keys in sizes {
            let attempt = (name.clone(), turn.name(), keys);
            if self.beyond.contains(&attempt) {
                continue; // R3
            }
            match self.run_once(built, turn, keys) {
                Outcome::Done => {
                    match turn.step {
                        Step::W3Random => drop(self.loaded.insert(name, keys)),
                        Step::W1 => self.small.push(name),
                        _ => {}
                    }
                    return;
                }
                Outcome::Failed(_) => return,
                Outcome::TooSlow | Outcome::TooLarge => drop(self.beyond.insert(attempt)), // R2, R3
            }
        }
    }

    /// Runs a step and gathers its figures; of a step that failed, none.
    fn run_once(&mut self, built: &Built, turn: &Turn, keys: u64) -> Outcome {
        let engine = &built.about.engine;
        let job = ChildArgs {
            step: turn.step,
            engine: engine.clone(),
            label: turn.label.clone(),
            dir: self.store_dir(engine),
            keys,
            divisor: self.args.divisor(),
            memory: turn.memory,
            files: self.args.files.clone(),
        };
        let limits = Limits {
            time: Duration::from_secs(self.args.cap),
            store_size: self.args.disk_cap * GIB,
        };
        eprintln!("compare: {} on {engine}", turn.name());
        let start = Instant::now();
        let (rows, outcome) = run_step(&built.program, &job, limits);
        if start.elapsed() > ONCE_FROM {
            self.beyond.insert((engine.clone(), turn.name(), keys));
        }
        if let Some(why) = outcome.sentence(limits, keys) {
            eprintln!("compare: {} on {engine}: {why}", turn.name());
            self.results.note_gap(engine, &turn.name(), &why);
        }
        if !matches!(outcome, Outcome::Failed(_)) {
            rows.into_iter().for_each(|row| self.results.add(engine, keys, row));
        }
        outcome
    }

    fn store_dir(&self, engine: &str) -> PathBuf {
        self.dir.join(engine)
    }

    fn remove_stores(&mut self, built: &Built) {
        let engine = &built.about.engine;
        self.loaded.remove(engine);
        let dir = self.store_dir(engine);
        if dir.exists()
            && let Err(error) = fs::remove_dir_all(&dir)
        {
            eprintln!("compare: {} is left: {error}", dir.display());
        }
    }

    fn end(mut self, engines: &[Built]) {
        engines.iter().for_each(|built| self.remove_stores(built));
    }
}

fn is_load(step: Step) -> bool {
    matches!(step, Step::W3Random | Step::W3Ascending)
}

fn needs_large_store(step: Step) -> bool {
    use Step as S;
    matches!(step, S::W2Large | S::W4 | S::W5 | S::W6 | S::W6Reads | S::W11 | S::W12 | S::W15)
}

/// A new directory, removed with all stores at the end.
struct WorkDirectory {
    path: PathBuf,
}

impl WorkDirectory {
    fn create(parent: &Path) -> Result<WorkDirectory> {
        fs::create_dir_all(parent)?;
        let path = parent.canonicalize()?.join(format!("run-{}", std::process::id()));
        fs::create_dir(&path)?; // It must be new: all in it will be removed.
        Ok(WorkDirectory { path })
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("compare: {} is left: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests;
