//! Runs the workloads of `crates/bench` on LitheDB and its rivals, in turn, and reports.
//!
//! | module | what |
//! |---|---|
//! | `args` | the command line |
//! | `run` | runs steps in child processes, and gathers the figures |
//! | `results` | the figures of a run, as they lie in `results.json` |
//! | `judge` | which figures count, what is best, which checksums differ: pure functions |
//! | `page` | the page in Markdown, and its charts |
//!
//! Invariants
//! - C1  The page and the charts are made from `results.json` alone, so they can be made again.
//! - C2  An engine that fails, or is too slow, does not stop the others; the page says so.

mod args;
mod judge;
mod page;
mod results;
mod run;

use args::Args;
use clap::Parser;
use lithe_bench::Result;
use results::Results;
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            wrong.iter().for_each(|what| eprintln!("compare: {what}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs, or reads an earlier run, and writes the reports. Returns what engines disagreed about.
fn compare(args: &Args) -> Result<Vec<String>> {
    let data = args.out.join(page::DATA_DIR);
    fs::create_dir_all(&data)?;
    let file = data.join("results.json");
    let results: Results = if args.render {
        serde_json::from_str(&fs::read_to_string(&file)?)?
    } else {
        let earlier = match args.add {
            true => Some(serde_json::from_str(&fs::read_to_string(&file)?)?),
            false => None,
        };
        let built = programs::build(&args.engines)?;
        let keep = |results: &Results| -> Result<()> {
            Ok(fs::write(&file, serde_json::to_string_pretty(results)? + "\n")?)
        };
        let results = run::run(args, &built, earlier, keep)?;
        keep(&results)?;
        results
    };
    page::write(&results, &args.out)?;
    eprintln!("compare: wrote {} and {}", args.out.join(page::FILE).display(), data.display());
    Ok(judge::disagreements(&results.figures))
}
