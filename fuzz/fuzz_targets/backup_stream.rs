//! A backup as a stream, its checksums put right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::backup_stream(bytes));
