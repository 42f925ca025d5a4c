//! LitheDB with tables in levels as an engine under test: the adapter is that of `lithe bench`.

use lithe_bench::LitheLsm;
use peer::{About, Safety, version_of};
use std::process::ExitCode;

fn main() -> ExitCode {
    peer::main::<LitheLsm>(&About {
        version: version_of("lithedb"),
        structure: "memtable, log, tables in levels (the structure `Lsm`)",
        safety: Safety::Kill,
        settings: &[
            "Memory budget as given, structure `Lsm`; everything else is default.",
            "Each write without sync reaches the operating system before it returns.",
        ],
    })
}
