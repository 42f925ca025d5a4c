//! A manifest whose records were changed by the bytes and whose checksums hold: what lies behind
//! the checksums.
#![no_main]

use std::sync::LazyLock;

use lithe_sim::corpus::{Corpus, mutate_edit_records};
use lithe_sim::random::Random;

static FILE: LazyLock<Vec<u8>> =
    LazyLock::new(|| Corpus::collect().expect("nothing fails").manifests.swap_remove(0));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut file = FILE.clone();
    mutate_edit_records(&mut file, &mut Random::from_bytes(bytes));
    lithedb::fuzzing::manifest_file(&file);
});
