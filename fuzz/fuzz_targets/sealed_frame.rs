//! A frame of a segment that is sealed, by what it says.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::sealed_frame(bytes));
