//! LitheDB and its rivals on the same faults: flipped bits, syncs that fail, disks that fill up.
//! One table (`faults.md`), and every case by itself (`cases.jsonl`).
//!
//! | module | what |
//! |---|---|
//! | `args` | the command line |
//! | `expected` | what may be found, and what an answer is |
//! | `script` | what is done to stores before they are harmed, from a seed |
//! | `driven` | an engine's program, driven line by line, within limits |
//! | `reading` | everything read back, and judged |
//! | `image` | the files of a store: copies of them, and which bytes are in use |
//! | `flips` | one bit of a store that is closed, or was killed |
//! | `watch` | calls of a process that sync, one of which fails |
//! | `syncs` | commits around a sync that fails |
//! | `small_disk` | a file system of a size, mounted |
//! | `full` | writing until there is no room, and what goes on then |
//! | `cases`, `table` | what was met; the table of it |
//!
//! Invariants
//! - F1  An engine's program does what it is told; what is right is decided here, once for all.
//! - F2  What an engine answered with an error is never counted as wrong, and what it answered
//!   without one never as refused.
//! - F3  A case follows from engine, seed and number, and from the files of the fixture, which are
//!   kept beside the table: `--case` runs it again.

mod args;
mod cases;
mod driven;
mod expected;
mod flips;
mod full;
mod image;
mod reading;
mod script;
mod small_disk;
mod syncs;
mod table;
mod watch;

use args::{Args, Part};
use cases::{Case, Cases};
use clap::Parser;
use lithe_bench::Result;
use programs::Built;
use std::fs;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == watch::LAUNCH_SUBCOMMAND) {
        eprintln!("faults: {}", watch::launch(words)); // Else it has become the program.
        return ExitCode::FAILURE;
    }
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faults: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.out)?;
    fs::create_dir_all(&args.dir)?;
    let builds = programs::build(&args.engines)?;
    let mut cases = Cases::default();
    for (engine, why) in &builds.failed {
        cases.skip(engine, "everything", why);
    }
    for built in &builds.built {
        cases.engines.push(built.about.clone());
        for part in &args.parts {
            eprintln!("faults: {part:?} of {}", built.about.engine);
            // What goes wrong here is the runner's own, not the engine's: others go on.
            if let Err(error) = run_part(args, *part, built, &mut cases) {
                eprintln!("faults: {part:?} of {}: {error}", built.about.engine);
                cases.skip(&built.about.engine, &format!("{part:?}"), &error.to_string());
            }
        }
    }
    if args.case.is_some() {
        cases.cases.iter().try_for_each(|case| say(case))?;
        return Ok(()); // One case is no table.
    }
    let mut file = BufWriter::new(fs::File::create(args.out.join("cases.jsonl"))?);
    for case in &cases.cases {
        writeln!(file, "{}", serde_json::to_string(case)?)?;
    }
    file.flush()?;
    let page = table::page(args, &cases);
    fs::write(args.out.join("faults.md"), &page)?;
    writeln!(std::io::stdout(), "{page}")?;
    Ok(())
}

fn run_part(args: &Args, part: Part, built: &Built, cases: &mut Cases) -> Result<()> {
    match part {
        Part::Flips => flips::run(args, built, cases),
        Part::Syncs => syncs::run(args, built, cases),
        Part::Full => full::run(args, built, cases),
    }
}

fn say(case: &Case) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(case)?)?)
}
