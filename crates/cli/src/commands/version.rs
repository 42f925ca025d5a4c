//! `lithe version`.

use std::io::Write;

use crate::failure::Outcome;
use crate::output::stdout;

/// Prints the version.
pub fn run() -> Outcome {
    let mut out = stdout();
    writeln!(out, "lithe {}", env!("CARGO_PKG_VERSION"))?;
    Ok(out.flush()?)
}
