//! The server under load, over sockets of this machine: beside redis-server, and beside the table
//! that BedrockDB has published.
//!
//!     cargo bench -p lithe-server --bench served
//!     cargo bench -p lithe-server --bench served -- --parts redis --requests 1000000
//!     cargo bench -p lithe-server --bench served -- --parts http --out /tmp/served.md
//!
//! Part `redis` is `redis-benchmark` with 50 clients and pipelines of 1 and 16, in front of this
//! server and of redis-server, each on a fresh directory, by turns; medians of three rounds. Part
//! `http` is 20 connections: requests at a fixed rate for `--seconds` (30), then for as long one
//! behind the other on each.
//!
//! `--requests` (200,000) are those of one run of `redis-benchmark`. `--dir` is where databases go:
//! durable writes are as fast as its disk. `--wrk2-waits` has connections wait as wrk2's do, in
//! whole milliseconds, which is half a millisecond of a latency on average: so BedrockDB's figures
//! were measured, by its author, on an i7-13650HX.
//!
//! Servers are processes of their own; this program starts itself for that. Answers over HTTP are
//! all compared with what they have to be; of what `redis-benchmark` does not look at, the
//! database is compared with what it has to be behind each run. What is wrong ends it with an error
//! and without a table.

mod child;
mod http;
mod load;
mod redis;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use lithe_bench::{Result, machine};

/// What was asked for.
struct Asked {
    parts: Vec<String>,
    seconds: u64,
    requests: u64,
    waits: load::Waits,
    dir: PathBuf,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let outcome = match words.next_if(|word| word == child::SERVE) {
        Some(_) => child::serve(words),
        None => parse(words).and_then(|asked| run(&asked)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("served: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked> {
    let mut asked = Asked {
        parts: vec!["redis".into(), "http".into()],
        seconds: 30,
        requests: 200_000,
        waits: load::Waits::Exact,
        dir: std::env::temp_dir(),
        out: None,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--parts" => asked.parts = value()?.split(',').map(str::to_owned).collect(),
            "--seconds" => asked.seconds = value()?.parse::<u64>()?.max(1),
            "--requests" => asked.requests = value()?.parse::<u64>()?.max(1000),
            "--wrk2-waits" => asked.waits = load::Waits::Milliseconds,
            "--dir" => asked.dir = PathBuf::from(value()?),
            "--out" => asked.out = Some(PathBuf::from(value()?)),
            "--bench" => {} // Cargo says this to every benchmark.
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    match asked.parts.iter().find(|part| !["redis", "http"].contains(&part.as_str())) {
        Some(part) => Err(format!("no part {part}: there are redis and http").into()),
        None => Ok(asked),
    }
}

fn run(asked: &Asked) -> Result<()> {
    let mut text = format!("{}; databases in {}\n", machine(), asked.dir.display());
    print!("{text}");
    type Part = fn(&Asked) -> Result<String>;
    let parts: [(&str, Part); 2] = [("redis", redis::table), ("http", http::table)];
    for (name, table) in parts {
        if asked.parts.iter().any(|part| part == name) {
            let table = table(asked)?;
            print!("\n{table}");
            text = text + "\n" + &table;
        }
    }
    if let Some(out) = &asked.out {
        std::fs::write(out, text).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    Ok(())
}
