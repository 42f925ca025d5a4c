//! The benchmark workloads of LitheDB: deterministic data, the workloads, and their reports.
//!
//! `run` and `run_child` are what `lithe bench` needs. The workloads are generic over [`Engine`],
//! so that another program can run them on other engines: it implements the trait for each, calls
//! [`run_engine`] with [`launch_child`], and [`run_child_on`] when it was started as a child.
//!
//! How it measures
//! - Every step of a run is a process of its own; what it needs of earlier steps is on the disk.
//! - The clock runs only while an engine works. Keys and values are made before the batch or the
//!   chunk of reads that uses them, and checked after it; where that happens between two parts of
//!   one workload, the wall time with it is among the details. W7 and the load of W15 are the
//!   exceptions: they count wall time, of which making data is below a hundredth.
//! - With several threads, a rate is all operations over the time of the busiest thread.
//! - Writes are unsynced unless the workload says durable; a sync at the end is inside the time.
//! - Whatever an engine returns is checked, by a checksum over a scan or byte by byte. A wrong
//!   answer ends the run without a report.
//! - Processor time is that of the whole process, with making the data.
//! - Write amplification is what the process sent to storage over the bytes of keys and values;
//!   directory sizes are allocated blocks over the bytes of live keys and values.

mod args;
mod clock;
mod costs;
mod data;
mod driver;
mod engine;
mod gets;
mod job;
mod latency;
mod lithe;
mod load;
#[cfg(test)]
mod map;
mod measure;
mod plan;
mod records;
mod report;
mod threads;
mod verify;
mod workload;
mod zipf;

pub use args::{BenchArgs, Shapes};
pub use data::{Dice, KeyShape, append_value, values_repeat};
pub use driver::{Launch, launch_child, report, run_child_on, run_engine};
pub use engine::{Commit, Engine, Error, Memory, Offered, Result, View, Walk, wrong};
pub use job::{CHILD_SUBCOMMAND, Job as ChildArgs, KEYS_FULL, Step};
pub use latency::Latency;
pub use lithe::{Encrypted, InFlex, InHistory, InLsm, Lithe, LitheHistory, LitheIn, LitheLsm};
pub use measure::{directory_size, machine, memory_peak, memory_resident};
pub use plan::{Planned, Workload, plan};
pub use records::Records;
pub use report::{Row, figure, median, to_json_lines, to_markdown, to_table};
pub use zipf::Zipf;

use lithe::Shape;
use std::error;

/// `lithe bench`: runs the workloads on LitheDB and reports.
///
/// # Errors
/// If a step fails, or a report cannot be written.
pub fn run(args: &BenchArgs) -> std::result::Result<(), Box<dyn error::Error>> {
    let engine = match (args.structure, args.encrypted) {
        (Shapes::Flex, false) => Lithe::NAME,
        (Shapes::Lsm, false) => LitheLsm::NAME,
        (Shapes::History, false) => LitheHistory::NAME,
        (Shapes::Flex, true) => LitheIn::<Encrypted<InFlex>>::NAME,
        (Shapes::Lsm, true) => LitheIn::<Encrypted<InLsm>>::NAME,
        (Shapes::History, true) => LitheIn::<Encrypted<InHistory>>::NAME,
    };
    let rows = run_engine(args, engine, &launch_child).map_err(plain)?;
    report(args, engine, &rows).map_err(plain)
}

/// The hidden subcommand [`CHILD_SUBCOMMAND`]: one step, in the process that `run` started for it.
///
/// # Errors
/// If the step fails.
pub fn run_child(args: &ChildArgs) -> std::result::Result<(), Box<dyn error::Error>> {
    match args.engine.as_str() {
        LitheLsm::NAME => run_child_on::<LitheLsm>(args),
        LitheHistory::NAME => run_child_on::<LitheHistory>(args),
        name if name == InFlex::ENCRYPTED_NAME => run_child_on::<LitheIn<Encrypted<InFlex>>>(args),
        name if name == InLsm::ENCRYPTED_NAME => run_child_on::<LitheIn<Encrypted<InLsm>>>(args),
        name if name == InHistory::ENCRYPTED_NAME => {
            run_child_on::<LitheIn<Encrypted<InHistory>>>(args)
        }
        _ => run_child_on::<Lithe>(args),
    }
    .map_err(plain)
}

/// `?` does not make this conversion by itself.
fn plain(error: Error) -> Box<dyn error::Error> {
    error
}
