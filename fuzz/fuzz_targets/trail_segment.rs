//! A segment of a trail, its checksums put right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::trail_segment(bytes));
