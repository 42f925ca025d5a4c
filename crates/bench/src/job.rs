//! One step of a run, in one process: what to do, where, and how large.
//!
//! Invariants
//! - J1  `Job::to_arguments` and the parser of the command line are inverse to each other.

use crate::engine::{Memory, Result};
use crate::report::Row;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// The name of the hidden subcommand that takes a `Job`.
pub const CHILD_SUBCOMMAND: &str = "bench-child";
/// Keys of the W3 store unless told otherwise.
pub const KEYS_FULL: u64 = 5_000_000;

/// What a process runs. Each step leaves its store closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
#[expect(missing_docs, reason = "the workloads are described in the module that runs them")]
pub enum Step {
    W1,
    W2Small,
    W2Large,
    W3Random,
    W3Ascending,
    W4,
    W5,
    W6,
    /// W6 C alone, on the store as it was loaded.
    W6Reads,
    W7,
    W8,
    W9,
    W10,
    W11,
    W12,
    W13,
    W14,
    W15,
    W17,
    Trade,
    /// Loads like W3, says after each batch how much was acknowledged, and waits to be killed.
    Victim,
}

/// One step with its size.
#[derive(Clone, Debug, clap::Args)]
pub struct Job {
    /// What to run.
    #[arg(long)]
    pub step: Step,
    /// Engine, for programs that have several.
    #[arg(long)]
    pub engine: String,
    /// What stands before the name of the workload in reports.
    #[arg(long, default_value = "")]
    pub label: String,
    /// Holds the stores, one directory each.
    #[arg(long)]
    pub dir: PathBuf,
    /// Keys of the W3 store.
    #[arg(long)]
    pub keys: u64,
    /// All other counts are divided by this.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub divisor: u64,
    /// Memory for the engine.
    #[arg(long)]
    pub memory: Memory,
    /// Text for W13.
    #[arg(long = "file")]
    pub files: Vec<PathBuf>,
}

impl Job {
    /// The command line (after the subcommand) that says this job.
    pub fn to_arguments(&self) -> Vec<OsString> {
        use clap::ValueEnum;
        let step = self.step.to_possible_value().map(|step| step.get_name().to_owned());
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: OsString| arguments.extend([name.into(), value]);
        add("--step", step.unwrap_or_default().into()); // No step is skipped by the parser.
        add("--engine", self.engine.clone().into());
        add("--label", self.label.clone().into());
        add("--dir", self.dir.clone().into());
        add("--keys", self.keys.to_string().into());
        add("--divisor", self.divisor.to_string().into());
        add("--memory", self.memory.to_string().into());
        for file in &self.files {
            add("--file", file.clone().into());
        }
        arguments
    }
}

/// Runs a victim until that many entries are acknowledged, kills it, and says how many were.
pub type KillLoad = dyn Fn(&Job, u64) -> Result<u64>;

/// What a workload works with.
pub struct Context<'a> {
    /// The job.
    pub job: &'a Job,
    /// For W12.
    pub kill_load: &'a KillLoad,
    tell: &'a dyn Fn(Row),
}

impl<'a> Context<'a> {
    /// `tell` learns of each figure as soon as it is known.
    pub fn new(job: &'a Job, kill_load: &'a KillLoad, tell: &'a dyn Fn(Row)) -> Context<'a> {
        Context { job, kill_load, tell }
    }

    /// A count of the full benchmark, at the size of this run.
    pub fn count(&self, full: u64) -> u64 {
        (full / self.job.divisor).max(1)
    }

    /// Where the store of that name lies.
    pub fn store(&self, name: &str) -> PathBuf {
        self.job.dir.join(name)
    }

    /// An empty directory for the store of that name.
    ///
    /// # Errors
    /// If an old one cannot be removed, or a new one not be made.
    pub fn fresh_store(&self, name: &str) -> Result<PathBuf> {
        let dir = self.store(name);
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Removes the store of that name.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove_store(&self, name: &str) -> Result<()> {
        Ok(fs::remove_dir_all(self.store(name))?)
    }

    /// Adds a figure.
    pub fn report(&self, mut row: Row) {
        if !self.job.label.is_empty() {
            row.workload = format!("{} {}", self.job.label, row.workload);
        }
        (self.tell)(row);
    }

    /// Adds figures.
    pub fn report_all(&self, rows: impl IntoIterator<Item = Row>) {
        rows.into_iter().for_each(|row| self.report(row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        job: Job,
    }

    #[test]
    fn a_job_survives_the_command_line() {
        let job = Job {
            step: Step::W3Random,
            engine: "lithedb".into(),
            label: "W16 1M".into(),
            dir: "/a b/c".into(),
            keys: 7,
            divisor: 3,
            memory: Memory::EngineDefault,
            files: vec!["x".into(), "y z".into()],
        };
        let arguments = job.to_arguments();
        let parsed =
            Program::try_parse_from(["p".into()].into_iter().chain(arguments.clone())).unwrap();
        assert_eq!(parsed.job.to_arguments(), arguments);
        assert_eq!(parsed.job.files, job.files);
        assert_eq!(parsed.job.step, Step::W3Random);
    }
}
