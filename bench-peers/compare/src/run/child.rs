//! One step in a child process: its figures, and how it ended.
//!
//! The child says each figure as soon as it knows it, so that one that is ended because it takes
//! too long has not worked for nothing. Its complaints are kept, and the last line of them quoted.

use lithe_bench::{CHILD_SUBCOMMAND, ChildArgs, Row};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// To look at the sizes of files costs the child's disk next to nothing, if done rarely.
const SIZE_INTERVAL: Duration = Duration::from_secs(3);
const STAT_BLOCK_SIZE: u64 = 512;
/// Of a child's last complaint.
const QUOTE_LEN_MAX: usize = 300;

/// What a step may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time.
    pub time: Duration,
    /// Bytes on the disk.
    pub store_size: u64,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By itself, well.
    Done,
    /// It was ended: out of time.
    TooSlow,
    /// It was ended: out of space.
    TooLarge,
    /// By itself, with this complaint.
    Failed(String),
}

impl Outcome {
    /// What the page says of it; `None` if all is well.
    pub fn sentence(&self, limits: Limits, keys: u64) -> Option<String> {
        match self {
            Outcome::Done => None,
            Outcome::TooSlow => {
                Some(format!("ended after {} s ({keys} keys)", limits.time.as_secs()))
            }
            Outcome::TooLarge => {
                Some(format!("ended at {} GiB on the disk ({keys} keys)", limits.store_size >> 30))
            }
            Outcome::Failed(why) => Some(why.clone()),
        }
    }
}

/// Runs a step within its limits. The figures are those that were said until it ended.
pub fn run_step(program: &Path, job: &ChildArgs, limits: Limits) -> (Vec<Row>, Outcome) {
    let run = || -> io::Result<(Vec<Row>, Outcome)> {
        fs::create_dir_all(&job.dir)?;
        let mut child = Command::new(program)
            .arg(CHILD_SUBCOMMAND)
            .args(job.to_arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().expect("standard output was asked to be a pipe");
        let errors = child.stderr.take().expect("standard error was asked to be a pipe");
        let rows = thread::spawn(move || read_rows(output));
        let errors = thread::spawn(move || last_line(errors));
        let outcome = wait(&mut child, &job.dir, limits)?;
        let rows = rows.join().unwrap_or_default();
        let complaint = errors.join().unwrap_or_default();
        Ok((rows, outcome.with_complaint(&complaint)))
    };
    run().unwrap_or_else(|error| (Vec::new(), Outcome::Failed(error.to_string())))
}

impl Outcome {
    fn with_complaint(self, complaint: &str) -> Outcome {
        match self {
            Outcome::Failed(status) if complaint.is_empty() => Outcome::Failed(status),
            Outcome::Failed(_) => Outcome::Failed(complaint.into()),
            other => other,
        }
    }
}

fn wait(child: &mut Child, dir: &Path, limits: Limits) -> io::Result<Outcome> {
    let start = Instant::now();
    let mut measured = start;
    loop {
        if let Some(status) = child.try_wait()? {
            let done = status.success();
            return Ok(if done { Outcome::Done } else { Outcome::Failed(status.to_string()) });
        }
        let mut broken = (start.elapsed() > limits.time).then_some(Outcome::TooSlow);
        if measured.elapsed() > SIZE_INTERVAL {
            measured = Instant::now();
            if size_of(dir) > limits.store_size {
                broken = Some(Outcome::TooLarge);
            }
        }
        if let Some(outcome) = broken {
            // A victim that it started (W12) ends by itself: nobody reads what it says.
            child.kill()?;
            child.wait()?;
            return Ok(outcome);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Lines that are no figures are skipped: some libraries say things on standard output.
fn read_rows(output: impl Read) -> Vec<Row> {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    lines.filter_map(|line| Row::from_json(&serde_json::from_str(&line).ok()?)).collect()
}

/// The last line with anything in it, and everything passed on.
fn last_line(errors: impl Read) -> String {
    let mut last = String::new();
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        eprintln!("{line}");
        if !line.trim().is_empty() {
            last = line.trim().chars().take(QUOTE_LEN_MAX).collect();
        }
    }
    last
}

/// Bytes that the file system gave to all below `dir`. What vanishes meanwhile is nothing.
fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
            Ok(metadata) => std::os::unix::fs::MetadataExt::blocks(&metadata) * STAT_BLOCK_SIZE,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_among_other_lines() {
        let text = "hello\n{\"workload\":\"W1\",\"metric\":\"m\",\"value\":2.5,\"unit\":\"ns\",\
                    \"details\":{}}\n{\"a\":1}\n";
        let rows = read_rows(text.as_bytes());
        assert_eq!(rows, [Row::new("W1", "m", 2.5, "ns")]);
    }

    #[test]
    fn the_last_complaint_is_quoted() {
        assert_eq!(last_line(&b"first\nredb: disk is full\n\n"[..]), "redb: disk is full");
        assert_eq!(last_line(&b""[..]), "");
        let failed = Outcome::Failed("exit status: 1".into());
        assert_eq!(failed.clone().with_complaint(""), failed);
        assert_eq!(failed.with_complaint("why"), Outcome::Failed("why".into()));
        assert_eq!(Outcome::Done.with_complaint("a warning"), Outcome::Done);
    }

    #[test]
    fn sizes_add_up_over_directories() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), [1; 10_000]).unwrap();
        assert!(size_of(dir.path()) >= 10_000);
        assert_eq!(size_of(&dir.path().join("none")), 0);
    }
}
