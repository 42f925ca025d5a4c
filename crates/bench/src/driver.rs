//! A whole run: every step in a process of its own, figures gathered, medians made, reports
//! written.
//!
//! The processes are this very program with a hidden subcommand. A child says its figures on
//! standard output, one JSON object per line, and its complaints on standard error.

use crate::args::BenchArgs;
use crate::engine::{Engine, Result, wrong};
use crate::job::{CHILD_SUBCOMMAND, Context, Job};
use crate::measure::machine;
use crate::plan::plan;
use crate::report::{Row, medians, to_json_lines, to_markdown, to_table};
use crate::workload;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Where stores are made unless told otherwise, below the current directory.
const DIR_DEFAULT: &str = "lithe-bench";

/// How a step is run.
pub type Launch = dyn Fn(&Job) -> Result<Vec<Row>>;

/// Runs what `args` ask for on the engine called `engine`; returns the medians.
///
/// # Errors
/// If a step fails: figures of a run with an error are not reported.
pub fn run_engine(args: &BenchArgs, engine: &str, launch: &Launch) -> Result<Vec<Row>> {
    let steps = plan(&args.wanted(), args.keys());
    let dir = WorkDirectory::create(args)?;
    let mut runs = Vec::new();
    for round in 1..=args.repeat() {
        let mut rows = Vec::new();
        for (place, planned) in steps.iter().enumerate() {
            let job = Job {
                step: planned.step,
                engine: engine.into(),
                label: planned.label.clone(),
                dir: dir.path.clone(),
                keys: planned.keys,
                divisor: args.divisor(),
                memory: args.memory(),
                files: args.files.clone(),
            };
            let name = format!("{} {:?}", planned.label, planned.step);
            eprintln!(
                "{engine}: round {round} of {}, step {} of {}: {}",
                args.repeat(),
                place + 1,
                steps.len(),
                name.trim(),
            );
            let step_rows = launch(&job).map_err(|error| format!("{}: {error}", name.trim()))?;
            eprint!("{}", to_table(&step_rows));
            rows.extend(step_rows);
        }
        runs.push(rows);
    }
    Ok(medians(&runs))
}

/// Writes the reports that `args` ask for: to standard output, and to the JSON file.
///
/// # Errors
/// If one cannot be written.
pub fn report(args: &BenchArgs, engine: &str, rows: &[Row]) -> Result<()> {
    let about = format!(
        "{engine} on {}: {} keys, other counts 1/{}, memory {}, medians of {}",
        machine(),
        args.keys(),
        args.divisor(),
        args.memory(),
        args.repeat(),
    );
    if args.markdown {
        write!(std::io::stdout(), "{}", to_markdown(&about, rows))?;
    } else {
        write!(std::io::stdout(), "{about}\n{}", to_table(rows))?;
    }
    if let Some(path) = &args.json {
        let head = json!({
            "engine": engine, "machine": machine(), "keys": args.keys(),
            "divisor": args.divisor(), "memory": args.memory().to_string(),
            "repeat": args.repeat(), "version": env!("CARGO_PKG_VERSION"),
        });
        let options = fs::OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let mut file = options.map_err(|error| format!("{}: {error}", path.display()))?;
        write!(file, "{head}\n{}", to_json_lines(rows))?;
    }
    Ok(())
}

/// Runs one step on `E` in this process and says its figures on standard output.
///
/// # Errors
/// If the step fails.
pub fn run_child_on<E: Engine>(job: &Job) -> Result<()> {
    let mut context = Context::new(job, &kill_load, &say);
    workload::run::<E>(job.step, &mut context)
}

/// At once: whoever ends a step that takes too long has the figures so far.
fn say(row: Row) {
    let mut output = std::io::stdout().lock();
    // If nobody listens any more, the figures are of no use: that is no failure of the step.
    let _ = output.write_all(to_json_lines(&[row]).as_bytes());
    let _ = output.flush();
}

/// Runs a step in a child process.
///
/// # Errors
/// If the child cannot be run, fails, or says something else than figures.
pub fn launch_child(job: &Job) -> Result<Vec<Row>> {
    let (mut child, mut output) = spawn(job)?;
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    let status = child.wait()?;
    if !status.success() {
        return wrong(format!("the child process ended with {status}"));
    }
    text.lines()
        .map(|line| match serde_json::from_str(line).ok().as_ref().and_then(Row::from_json) {
            Some(row) => Ok(row),
            None => wrong(format!("the child process said `{line}`")),
        })
        .collect()
}

/// Runs a victim until `at_least` entries are acknowledged, and kills it. How many were
/// acknowledged is what it said last: it may have got further, but nobody was told.
fn kill_load(victim: &Job, at_least: u64) -> Result<u64> {
    let (mut child, output) = spawn(victim)?;
    let mut acknowledged = 0;
    let mut killed = false;
    for line in BufReader::new(output).lines() {
        // A kill may cut the last line short: only whole lines count.
        acknowledged = line?.parse::<u64>().unwrap_or(acknowledged).max(acknowledged);
        if acknowledged >= at_least && !killed {
            child.kill()?;
            killed = true;
        }
    }
    child.wait()?;
    if !killed {
        return wrong(format!("the victim ended by itself after {acknowledged} entries"));
    }
    Ok(acknowledged)
}

fn spawn(job: &Job) -> Result<(Child, ChildStdout)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(CHILD_SUBCOMMAND)
        .args(job.to_arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().expect("standard output was asked to be a pipe");
    Ok((child, output))
}

/// A new directory, removed with all stores at the end unless it is to be kept.
struct WorkDirectory {
    path: PathBuf,
    keep: bool,
}

impl WorkDirectory {
    fn create(args: &BenchArgs) -> Result<WorkDirectory> {
        let parent = args.dir.clone().unwrap_or_else(|| DIR_DEFAULT.into());
        fs::create_dir_all(&parent)?;
        let path = parent.canonicalize()?.join(format!("run-{}", std::process::id()));
        fs::create_dir(&path)?; // It must be new: all in it will be removed.
        Ok(WorkDirectory { path, keep: args.keep })
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("the stores are in {}", self.path.display());
        } else if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} is left: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Faithful, Forgetful, MapEngine};
    use crate::plan::Workload;
    use std::cell::RefCell;

    fn launch_here<E: Engine>(job: &Job) -> Result<Vec<Row>> {
        let no_victim = |_: &Job, _: u64| wrong("no victim here");
        let rows = RefCell::new(Vec::new());
        let tell = |row| rows.borrow_mut().push(row);
        workload::run::<E>(job.step, &mut Context::new(job, &no_victim, &tell))?;
        Ok(rows.into_inner())
    }

    fn args(dir: &std::path::Path, workloads: &[Workload]) -> BenchArgs {
        BenchArgs {
            workloads: workloads.into(),
            dir: Some(dir.into()),
            quick: true,
            keys: Some(2000),
            repeat: Some(3),
            ..BenchArgs::default()
        }
    }

    #[test]
    fn a_run_reports_medians_of_all_rounds_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let args = args(dir.path(), &[Workload::W3, Workload::W4]);
        let rows = run_engine(&args, "map", &launch_here::<MapEngine<Faithful>>).unwrap();
        let uniform = rows.iter().find(|row| row.metric == "uniform").unwrap();
        assert_eq!(uniform.details["runs"], 3);
        assert!(rows.iter().any(|row| row.metric == "ascending directory / data"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn kept_stores_stay() {
        let dir = tempfile::tempdir().unwrap();
        let args = BenchArgs { keep: true, repeat: None, ..args(dir.path(), &[Workload::W4]) };
        run_engine(&args, "map", &launch_here::<MapEngine<Faithful>>).unwrap();
        let run = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
        assert!(run.path().join("w3").is_dir());
    }

    #[test]
    fn an_error_names_the_step_and_ends_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let args = args(dir.path(), &[Workload::W4]);
        let failed = run_engine(&args, "map", &launch_here::<MapEngine<Forgetful>>).unwrap_err();
        assert!(failed.to_string().starts_with("W3Random: after the load"), "{failed}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_json_file_has_a_head_and_a_line_per_row() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        let args = BenchArgs { json: Some(path.clone()), ..BenchArgs::default() };
        report(&args, "map", &[Row::new("W1", "x", 1.0, "ns")]).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[0]["engine"]), (2, &json!("map")));
        assert!(Row::from_json(&lines[1]).is_some());
    }
}
