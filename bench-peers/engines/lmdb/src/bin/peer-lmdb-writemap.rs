//! LMDB with the file mapped for writing.

use peer::Safety;
use peer_lmdb::WriteMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    peer_lmdb::main::<WriteMap>(Safety::None("a stray write of the program destroys the file"))
}
