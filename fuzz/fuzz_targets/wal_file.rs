//! A log file, as the only one of its log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::wal_file(bytes));
