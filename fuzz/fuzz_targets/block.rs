//! A block's payload: parsed, walked both ways, searched.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::block(bytes));
