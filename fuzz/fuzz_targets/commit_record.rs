//! The payload of a commit record.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::commit_record(bytes));
