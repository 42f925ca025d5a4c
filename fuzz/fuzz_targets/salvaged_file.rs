//! Frames of a segment, their checksums put right, searched and merged as a repair does.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::salvaged_file(bytes));
