//! A value file, its checksums put right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::value_file(bytes));
