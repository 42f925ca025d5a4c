//! The whole database under a scheduler that decides, at every lock, atomic and call of the disk,
//! which thread goes on: many schedules of small scenarios, each from a seed.
//!
//! `just schedules 100000` builds it with `--cfg shuttle`, without which there is nothing here.
//! `lithe-schedules --count N --seed S [--scenario NAME]` runs the schedules of the seeds from S
//! on, the scenarios in turn. What is found is told with its seed, and `--seed S --count 1
//! --scenario NAME` finds it again. `--mistakes` builds mistakes into the engine, one after the
//! other, and expects each to be found within the count.

#![cfg_attr(
    shuttle,
    allow(
        clippy::unwrap_used,
        clippy::missing_panics_doc,
        reason = "what a schedule finds is a panic"
    )
)]

#[cfg(shuttle)]
mod arguments;
#[cfg(shuttle)]
mod history;
#[cfg(shuttle)]
mod random;
#[cfg(shuttle)]
mod run;
#[cfg(shuttle)]
mod scenarios;
#[cfg(shuttle)]
mod scheduler;
#[cfg(shuttle)]
mod trail;
#[cfg(shuttle)]
mod world;

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    let arguments = match arguments::Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}");
            return std::process::ExitCode::FAILURE;
        }
    };
    let done = if arguments.mistakes { run::mistakes(&arguments) } else { run::all(&arguments) };
    if done { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

#[cfg(not(shuttle))]
fn main() {
    eprintln!("This was built without `--cfg shuttle`: see `just schedules`.");
}
