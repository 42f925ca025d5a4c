//! All workloads on a map in memory, at a thousandth of their size: they run, report, and notice an
//! engine that loses or changes entries.

use super::run;
use crate::engine::{Engine, Memory, Result, wrong};
use crate::job::{Context, Job, Step};
use crate::load::Writes;
use crate::map::{Faithful, Forgetful, Garbling, MapEngine};
use crate::report::Row;
use std::cell::RefCell;
use std::io::Write;
use std::path::Path;

const KEYS: u64 = 3000;
const DIVISOR: u64 = 1000;

fn job(dir: &Path, step: Step) -> Job {
    Job {
        step,
        engine: "map".into(),
        label: String::new(),
        dir: dir.into(),
        keys: KEYS,
        divisor: DIVISOR,
        memory: Memory::RULE,
        files: Vec::new(),
    }
}

/// Stands for a process: loads a part, and leaves without closing.
fn kill_load<E: Engine>(victim: &Job, at_least: u64) -> Result<u64> {
    let engine = E::open(&victim.dir.join("w12"), victim.memory)?;
    Writes::load(crate::data::KeyShape::Random16).run_in_order(&engine, at_least)?;
    Ok(at_least)
}

fn run_job<E: Engine>(job: &Job) -> Result<Vec<Row>> {
    let rows = RefCell::new(Vec::new());
    let tell = |row| rows.borrow_mut().push(row);
    run::<E>(job.step, &mut Context::new(job, &kill_load::<E>, &tell))?;
    Ok(rows.into_inner())
}

fn run_steps<E: Engine>(dir: &Path, steps: &[Step]) -> Result<Vec<Row>> {
    steps.iter().try_fold(Vec::new(), |mut rows, &step| {
        rows.extend(run_job::<E>(&job(dir, step))?);
        Ok(rows)
    })
}

fn metrics(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.metric.as_str()).collect()
}

type Good = MapEngine<Faithful>;

#[test]
fn every_step_reports_figures_that_are_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let alone = [Step::W1, Step::W2Small, Step::W3Ascending, Step::W9, Step::W10, Step::W14];
    let family = [
        Step::W3Random,
        Step::W2Large,
        Step::W4,
        Step::W5,
        Step::W6,
        Step::W11,
        Step::W12,
        Step::W15,
    ];
    for step in alone.into_iter().chain([Step::W7, Step::W8, Step::W17]).chain(family) {
        let rows = run_steps::<Good>(dir.path(), &[step]).unwrap();
        assert!(!rows.is_empty(), "{step:?}");
        for row in &rows {
            assert!(row.value.is_finite() && row.value >= 0.0, "{step:?}: {row:?}");
        }
    }
}

#[test]
fn ycsb_reports_both_kinds_of_operations_of_each_mix() {
    let dir = tempfile::tempdir().unwrap();
    let rows = run_steps::<Good>(dir.path(), &[Step::W3Random, Step::W6]).unwrap();
    for mix in ["A", "B", "C", "D", "E", "F"] {
        let row = rows.iter().find(|row| row.metric == mix).unwrap();
        let count = |name: &str| row.details[name].as_u64().unwrap();
        assert_eq!(count("reads") + count("writes"), 1_000_000 / DIVISOR);
        assert_eq!(count("writes") > 0, mix != "C", "{mix}");
        assert!(metrics(&rows).contains(&format!("{mix} read p99.9").as_str()));
    }
}

#[test]
fn a_kill_is_reported_with_what_was_acknowledged_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let rows = run_steps::<Good>(dir.path(), &[Step::W3Random, Step::W12]).unwrap();
    let row = rows.iter().find(|row| row.unit == "%").unwrap();
    assert!((row.value - 100.0).abs() < 1e-9);
    assert_eq!((&row.details["acknowledged"], &row.details["gaps"]), (&1500.into(), &0.into()));
}

#[test]
fn text_is_read_from_all_files_without_empty_lines() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("a", "one\ntwo\n\none\n"), ("b", "three\r\nfour")].map(|(name, text)| {
        let path = dir.path().join(name);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
        path
    });
    let text = Job { files: files.into(), ..job(dir.path(), Step::W13) };
    let rows = run_job::<Good>(&text).unwrap();
    let details = &rows[0].details;
    assert_eq!((&details["lines"], &details["distinct"]), (&5.into(), &4.into()));
    assert_eq!(details["bytes"], 19);

    let none = run_job::<Good>(&job(dir.path(), Step::W13));
    assert!(none.unwrap_err().to_string().contains("--file"));
    let missing = Job { files: vec!["/none/such".into()], ..text };
    assert!(run_job::<Good>(&missing).unwrap_err().to_string().contains("/none/such"));
}

#[test]
fn an_engine_that_loses_entries_fails_every_workload() {
    type Bad = MapEngine<Forgetful>;
    for step in [
        Step::W1,
        Step::W3Random,
        Step::W3Ascending,
        Step::W7,
        Step::W8,
        Step::W9,
        Step::W14,
        Step::W17,
    ] {
        let dir = tempfile::tempdir().unwrap();
        assert!(run_steps::<Bad>(dir.path(), &[step]).is_err(), "{step:?}");
    }
    for step in [Step::W2Large, Step::W4, Step::W5, Step::W6, Step::W11, Step::W12, Step::W15] {
        let dir = tempfile::tempdir().unwrap();
        assert!(fails_on_store_of::<Bad>(dir.path(), step), "{step:?}");
    }
}

#[test]
fn an_engine_that_changes_values_fails_the_workloads_that_read_them() {
    type Bad = MapEngine<Garbling>;
    for step in [Step::W4, Step::W5, Step::W6, Step::W11, Step::W12, Step::W15] {
        let dir = tempfile::tempdir().unwrap();
        assert!(fails_on_store_of::<Bad>(dir.path(), step), "{step:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(run_steps::<Bad>(dir.path(), &[Step::W17]).is_err());
}

/// Loads the W3 store with the faulty engine, without the check after the load, and runs `step`.
fn fails_on_store_of<E: Engine>(dir: &Path, step: Step) -> bool {
    let engine = E::open(&dir.join("w3"), Memory::RULE).unwrap();
    Writes::load(crate::data::KeyShape::Random16).run_in_order(&engine, KEYS).unwrap();
    run_steps::<E>(dir, &[step]).is_err()
}

#[test]
fn a_victim_that_cannot_be_run_fails_the_workload() {
    let dir = tempfile::tempdir().unwrap();
    run_steps::<Good>(dir.path(), &[Step::W3Random]).unwrap();
    let job = job(dir.path(), Step::W12);
    let broken = |_: &Job, _: u64| wrong("no such program");
    let mut context = Context::new(&job, &broken, &|_| {});
    assert!(run::<Good>(Step::W12, &mut context).is_err());
}
