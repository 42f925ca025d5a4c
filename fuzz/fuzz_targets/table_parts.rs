//! What a table has behind its data blocks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::table_parts(bytes));
