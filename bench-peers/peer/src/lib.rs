//! What the programs of all engines under test have in common: their command line.
//!
//! Each engine is a program of its own, so that a process holds only the engine it measures. It
//! knows three subcommands: `about`, which says as one JSON object what it is and how it is set up,
//! `bench-child`, which runs one step of the benchmark, and `driven`, which does what it is told
//! line by line (`bench-peers/PROTOCOL.md`).

mod about;
pub mod driven;

pub use about::{About, Safety, version_of};

use clap::Parser;
use lithe_bench::{ChildArgs, Engine, run_child_on};
use std::io::Write;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "One engine under test: started by the runner of the comparison")]
enum Command {
    /// Says what the engine is and how it is set up, as JSON.
    About,
    /// Runs one step and says its figures, one JSON object per line.
    #[command(name = lithe_bench::CHILD_SUBCOMMAND)]
    Child(ChildArgs),
    /// Does what standard input says, a line at a time.
    #[command(name = driven::DRIVEN_SUBCOMMAND)]
    Driven(driven::DrivenArgs),
}

/// The whole program of engine `E`.
pub fn main<E: Engine>(about: &About) -> ExitCode {
    let done = match Command::parse() {
        Command::About => {
            writeln!(std::io::stdout(), "{}", about.to_json(E::NAME)).map_err(Into::into)
        }
        Command::Child(job) => run_child_on::<E>(&job),
        Command::Driven(args) => driven::run::<E>(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", E::NAME);
            ExitCode::FAILURE
        }
    }
}
