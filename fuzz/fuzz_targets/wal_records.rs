//! A log file whose records were changed by the bytes and whose checksums hold: what lies behind
//! the checksums.
#![no_main]

use std::sync::LazyLock;

use lithe_sim::corpus::{Corpus, mutate_wal_records};
use lithe_sim::random::Random;

static FILE: LazyLock<Vec<u8>> =
    LazyLock::new(|| Corpus::collect().expect("nothing fails").wal_files.swap_remove(0));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut file = FILE.clone();
    mutate_wal_records(&mut file, &mut Random::from_bytes(bytes));
    lithedb::fuzzing::wal_file(&file);
});
