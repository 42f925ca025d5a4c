//! A frame as read from a segment, and the block in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::frame(bytes));
