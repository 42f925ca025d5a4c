//! A table that was made to be ingested, its checksums put right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::table_file(bytes));
