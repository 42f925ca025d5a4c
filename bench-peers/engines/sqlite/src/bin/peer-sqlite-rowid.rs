//! SQLite with a table of rows that have numbers, and an index of their keys.

use peer_sqlite::WithRowid;
use std::process::ExitCode;

fn main() -> ExitCode {
    peer_sqlite::main::<WithRowid>()
}
