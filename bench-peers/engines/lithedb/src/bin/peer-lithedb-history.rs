//! LitheDB with every version kept as an engine under test: the adapter is that of `lithe bench`.

use lithe_bench::LitheHistory;
use peer::{About, Safety, version_of};
use std::process::ExitCode;

fn main() -> ExitCode {
    peer::main::<LitheHistory>(&About {
        version: version_of("lithedb"),
        structure: "memtable, log, the present beside an archive (the structure `History`)",
        safety: Safety::Kill,
        settings: &[
            "Memory budget as given, structure `History`, every version kept; everything else is \
             default.",
            "Each write without sync reaches the operating system before it returns.",
        ],
    })
}
