//! `lithe version`.

use std::io::Write;

use crate::failure::Outcome;
use crate::output::stdout;

/// Prints the version, and that of the format that it writes.
pub fn run() -> Outcome {
    let mut out = stdout();
    writeln!(out, "lithe {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "format {}", lithedb::FORMAT_VERSION)?;
    Ok(out.flush()?)
}
