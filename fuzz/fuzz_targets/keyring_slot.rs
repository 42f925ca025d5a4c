//! A slot of a keyring, its checksum put right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lithedb::fuzzing::keyring_slot(bytes));
