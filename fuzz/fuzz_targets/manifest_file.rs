//! A manifest, as the only file of its database.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::manifest_file(bytes));
