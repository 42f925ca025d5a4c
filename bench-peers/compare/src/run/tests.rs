//! Runs of programs that only pretend to be engines.

use super::child::{Limits, Outcome, run_step};
use super::*;
use crate::results::{EngineAbout, Safety};
use clap::Parser;
use lithe_bench::Memory;
use std::os::unix::fs::PermissionsExt;

/// Says one figure, then does `then`.
fn program(dir: &Path, name: &str, then: &str) -> Built {
    let row = r#"{"workload":"W4","metric":"uniform","value":7,"unit":"ns","details":{}}"#;
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\necho '{row}'\n{then}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let about = EngineAbout { engine: name.into(), safety: Safety::Kill, ..EngineAbout::default() };
    Built { about, program: path }
}

fn job(dir: &Path) -> ChildArgs {
    ChildArgs {
        step: Step::W4,
        engine: "x".into(),
        label: String::new(),
        dir: dir.join("stores"),
        keys: 10,
        divisor: 1,
        memory: Memory::RULE,
        files: Vec::new(),
    }
}

fn run_steps(wanted: &str, then: &[(&str, &str)]) -> Results {
    let dir = tempfile::tempdir().unwrap();
    let built: Vec<_> = then.iter().map(|(name, then)| program(dir.path(), name, then)).collect();
    let builds = Builds { built, failed: vec![("gone".into(), "no compiler".into())] };
    let stores = dir.path().join("stores");
    let line = format!("compare --workloads {wanted} --repeat 2 --keys 1000 --dir");
    let words = line.split(' ').map(Into::into).chain([stores.clone().into_os_string()]);
    let results = run(&Args::parse_from(words), &builds, None, |_| Ok(())).unwrap();
    assert_eq!(fs::read_dir(stores).unwrap().count(), 0, "stores are removed");
    results
}

#[test]
fn a_step_ends_well_badly_or_too_late_and_its_figures_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let limits = |seconds| Limits { time: Duration::from_secs(seconds), store_size: GIB };
    let ended = |name: &str, then: &str, seconds: u64| {
        let (rows, outcome) =
            run_step(&program(dir.path(), name, then).program, &job(dir.path()), limits(seconds));
        assert_eq!(rows.len(), 1);
        outcome
    };
    assert_eq!(ended("good", "exit 0", 60), Outcome::Done);
    assert_eq!(
        ended("bad", "echo 'bad: lost key 7' >&2; exit 1", 60),
        Outcome::Failed("bad: lost key 7".into())
    );
    assert_eq!(ended("slow", "exec sleep 60", 2), Outcome::TooSlow);
    let (rows, outcome) = run_step(Path::new("/nonexistent"), &job(dir.path()), limits(60));
    assert!(rows.is_empty() && matches!(outcome, Outcome::Failed(_)));
}

#[test]
fn one_engine_that_fails_does_not_stop_the_others() {
    let results = run_steps("w4", &[("good", "exit 0"), ("bad", "echo broken >&2; exit 3")]);
    let engines: Vec<_> = results.figures.iter().map(|figure| figure.engine.as_str()).collect();
    assert_eq!(engines, ["good"], "what a failed step said does not count");
    // Two rounds of the load, of W4 with the first size of memory, and with the second.
    assert_eq!(results.figures[0].samples.len(), 6);
    let gaps: Vec<_> =
        results.gaps.iter().map(|gap| (&*gap.engine, &*gap.step, &*gap.why)).collect();
    assert_eq!(gaps, [("gone", "", "no compiler"), ("bad", "W3Random", "broken")]);
}

#[test]
fn engines_take_turns_to_be_first() {
    let dir = tempfile::tempdir().unwrap();
    let built = [program(dir.path(), "a", ""), program(dir.path(), "b", "")];
    let order = |round, once: &[String]| -> Vec<String> {
        let engines = in_turn(&built, round, once);
        engines.iter().map(|built| built.about.engine.clone()).collect()
    };
    assert_eq!(
        (order(0, &[]), order(1, &[])),
        (vec!["a".into(), "b".into()], vec!["b".into(), "a".into()])
    );
    let once = ["a".to_owned()];
    assert_eq!(
        (order(0, &once), order(1, &once)),
        (vec!["a".into(), "b".into()], vec!["b".into()])
    );
}
