//! Synced commits, one after the other, around a sync that fails: what is acknowledged behind it,
//! and what of it is there when the process was killed. The machine goes on, so that the page cache
//! is as it was: what is counted is what an engine *says* behind a failure of which nobody knows
//! what it left on the disk. With Linux the pages that could not be written are marked clean, and
//! the next sync succeeds without them.

use crate::args::Args;
use crate::cases::{Case, Cases, SyncCase};
use crate::driven::{Driven, Reply, Starter, Watched};
use crate::expected::Expected;
use crate::image::Image;
use crate::reading::read_all;
use crate::script::{Step, commits};
use lithe_bench::Result;
use programs::Built;
use std::fs;
use std::path::Path;

/// Commits of a run.
const COMMITS: u64 = 300;
/// So many syncs from the first on fail in turn; then some that are spread over the others.
const FIRST_SYNCS: u64 = 6;

/// Has syncs of an engine fail, each in a run of its own.
///
/// # Errors
/// If a run is not possible: calls cannot be watched here, or the engine does not even begin.
pub fn run(args: &Args, built: &Built, cases: &mut Cases) -> Result<()> {
    let dir = args.dir.join(format!("{}-syncs", built.about.engine));
    let starter = Starter::new(args, built);
    let steps = commits(args.seed, COMMITS);
    let (calm, seen) = run_case(&starter, &dir, &steps, None)?;
    if calm.acknowledged < COMMITS {
        let why = calm.ended.unwrap_or(calm.error);
        return Err(format!("with no sync failing, a commit was refused: {why}").into());
    }
    eprintln!("faults: {}: {seen} syncs for {COMMITS} commits", built.about.engine);
    for case in doomed(args.syncs, seen).into_iter().filter(|case| args.wants(*case)) {
        let (mut met, _) = run_case(&starter, &dir, &steps, Some(case))?;
        met.engine.clone_from(&built.about.engine);
        cases.cases.push(Case::Sync(met));
    }
    fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Which syncs fail, of `seen`.
fn doomed(count: u64, seen: u64) -> Vec<u64> {
    let first = FIRST_SYNCS.min(count).min(seen);
    let (left, rest) = (count - first, seen - first);
    let mut doomed: Vec<u64> = (1..=first).collect();
    doomed.extend((1..=left.min(rest)).map(|number| first + number * rest / left.min(rest)));
    doomed
}

/// Runs all commits, the `doomed`th sync failing; what was met, and how many syncs there were.
fn run_case(
    starter: &Starter,
    dir: &Path,
    steps: &[Step],
    doomed: Option<u64>,
) -> Result<(SyncCase, u64)> {
    Image::default().write(dir)?;
    let mut met = SyncCase {
        engine: String::new(),
        case: doomed.unwrap_or_default(),
        strike: None,
        acknowledged: 0,
        acknowledged_meanwhile: 0,
        acknowledged_behind: 0,
        refused: 0,
        error: String::new(),
        ended: None,
        is_late: false,
        not_reopened: None,
        reading: None,
    };
    let mut expected = Expected::default();
    let mut driven = starter.start(dir, Watched::Yes)?;
    driven.must("open")?;
    driven.watch()?.arm(doomed);
    commit_all(&mut driven, steps, &mut expected, &mut met)?;
    let seen = driven.watch()?.seen();
    driven.kill()?;
    let mut driven = starter.start(dir, Watched::No)?;
    match driven.tell("open") {
        Reply::Done => met.reading = Some(read_all(&mut driven, &expected)?),
        reply => met.not_reopened = Some(format!("{reply:?}")),
    }
    driven.kill()?;
    Ok((met, seen))
}

fn commit_all(
    driven: &mut Driven,
    steps: &[Step],
    expected: &mut Expected,
    met: &mut SyncCase,
) -> Result<()> {
    let mut acknowledged = Vec::new();
    for (number, step) in (0..).zip(steps) {
        driven.watch()?.begin(number);
        match driven.tell(&step.lines()) {
            Reply::Done => {
                acknowledged.push(number);
                step.acknowledge(expected);
            }
            reply => {
                step.doubt(expected);
                match reply {
                    Reply::Refused(text) => {
                        met.refused += 1;
                        if met.error.is_empty() {
                            met.error = text;
                        }
                        continue;
                    }
                    Reply::Ended(how) => met.ended = Some(how),
                    _ => met.is_late = true,
                }
                break;
            }
        }
    }
    met.strike = driven.watch()?.strike();
    met.acknowledged = acknowledged.len() as u64;
    if let Some(strike) = &met.strike {
        let count = |is: &dyn Fn(u64) -> bool| {
            acknowledged.iter().filter(|number| is(**number)).count() as u64
        };
        met.acknowledged_meanwhile = count(&|number| number == strike.command);
        met.acknowledged_behind = count(&|number| number > strike.command);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_that_fail_are_the_first_and_some_up_to_the_last() {
        assert_eq!(doomed(24, 3), [1, 2, 3]);
        assert_eq!(doomed(4, 100), [1, 2, 3, 4]);
        assert_eq!(doomed(8, 100), [1, 2, 3, 4, 5, 6, 53, 100]);
        assert_eq!(doomed(24, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(doomed(24, 0).is_empty());
    }
}
