//! The list of a backup, its hash put right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::backup_list(bytes));
