//! SQLite with a table that is the tree of its keys.

use peer_sqlite::WithoutRowid;
use std::process::ExitCode;

fn main() -> ExitCode {
    peer_sqlite::main::<WithoutRowid>()
}
