//! The workloads, one file each (or one for a few that are alike), and which step runs which.
//!
//! A workload gets a `Context`, opens the store it needs, reports its figures and closes the store.
//! Stores outlive the process: `w1` is scanned by W2, `w3` is read, overwritten and reopened by W2,
//! W4, W5, W6, W11, W12 and W15, in this order.

mod bulk;
mod durable;
mod get;
mod large;
mod load;
mod open;
mod overwrite;
mod scan;
mod seek;
mod single;
mod small;
mod tables;
mod tail;
mod text;
mod trade;
mod ycsb;

use crate::engine::{Engine, Result};
use crate::job::{Context, Step};

pub use open::victim;

/// The store of W1 and its keys; the store of W3.
const STORE_SMALL: &str = "w1";
const KEYS_SMALL: u64 = 100_000;
const VALUE_LEN_SMALL: usize = 21;
const STORE_LARGE: &str = "w3";

/// Versions of values of the W3 store: the load writes 0, YCSB A, B and F 1 to 3, W11 the last.
const VERSIONS: &[u64] = &[0, 1, 2, 3, VERSION_OVERWRITE];
const VERSION_OVERWRITE: u64 = 4;

/// Names of the sequences of random choices (`w` in the specification). No two uses share one.
mod stream {
    pub const UNFLUSHED: u64 = 0x20;
    pub const WARM_UP: u64 = 0x40;
    pub const GETS: u64 = 0x41;
    pub const MISSES: u64 = 0x42;
    pub const SEEKS: u64 = 0x50;
    pub const WARM_UP_SEEKS: u64 = 0x51;
    /// And the five after it.
    pub const YCSB: u64 = 0x60;
    pub const TABLE_GETS: u64 = 0x80;
    pub const LARGE_GETS: u64 = 0xA0;
    pub const OVERWRITES: u64 = 0xB0;
    pub const TAIL_GETS: u64 = 0xF0;
    pub const TRADE_SCANS: u64 = 0x100;
    /// And 16 above it: the gets behind the first ones.
    pub const ROOTS_GETS: u64 = 0x110;
    pub const ROOTS_MULTI_GETS: u64 = 0x111;
    pub const ROOTS_SCANS: u64 = 0x112;
    /// And those after it: one for each pause.
    pub const TRADE_GETS: u64 = 0x1000;
}

/// Runs one step.
///
/// # Errors
/// If the engine fails, or returns something wrong.
pub fn run<E: Engine>(step: Step, context: &mut Context<'_>) -> Result<()> {
    match step {
        Step::W1 => small::run::<E>(context),
        Step::W2Small => scan::run_small::<E>(context),
        Step::W2Large => scan::run_large::<E>(context),
        Step::W3Random => load::run_random::<E>(context),
        Step::W3Ascending => load::run_ascending::<E>(context),
        Step::W4 => get::run::<E>(context),
        Step::W5 => seek::run::<E>(context),
        Step::W6 => ycsb::run::<E>(context),
        Step::W6Reads => ycsb::run_reads::<E>(context),
        Step::W7 => durable::run_puts::<E>(context),
        Step::W8 => durable::run_tables::<E>(context),
        Step::W9 => single::run::<E>(context),
        Step::W10 => large::run::<E>(context),
        Step::W11 => overwrite::run::<E>(context),
        Step::W12 => open::run::<E>(context),
        Step::W13 => text::run::<E>(context),
        Step::W14 => bulk::run::<E>(context),
        Step::W15 => tail::run::<E>(context),
        Step::W17 => tables::run::<E>(context),
        Step::Trade => trade::run::<E>(context),
        Step::Victim => victim::<E>(context),
    }
}

#[cfg(test)]
mod tests;
