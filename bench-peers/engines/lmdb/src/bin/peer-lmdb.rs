//! LMDB with the file mapped for reading.

use peer::Safety;
use peer_lmdb::ReadMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    peer_lmdb::main::<ReadMap>(Safety::Kill)
}
