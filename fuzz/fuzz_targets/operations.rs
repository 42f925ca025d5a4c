//! Operations made of the bytes, against `BTreeMap`s.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(finding) = lithe_sim::model::run_bytes(bytes) {
        panic!("{finding}");
    }
});
