//! LitheDB as an engine under test: the adapter is that of `lithe bench`.

use lithe_bench::Lithe;
use peer::{About, Safety, version_of};
use std::process::ExitCode;

fn main() -> ExitCode {
    peer::main::<Lithe>(&About {
        version: version_of("lithedb"),
        structure: "memtable, log, flexible address space (the default structure)",
        safety: Safety::Kill,
        settings: &[
            "Memory budget as given; everything else is default.",
            "Each write without sync reaches the operating system before it returns.",
        ],
    })
}
