//! Bytes of a client of the Redis protocol, up to where they are a command or none.
#![no_main]

use lithe_server::fuzzing::{FrameLimits, Parsed, parse_redis};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for is_unknown in [false, true] {
        let (arguments, bulk) = (100, 1 << 10);
        let limits = FrameLimits { arguments, bulk, frame: 4 << 10, line: 1 << 10, is_unknown };
        let (parsed, args) = parse_redis(bytes, &limits);
        assert!(args.len() <= 100 && args.iter().all(|arg| arg.len() <= 1 << 10));
        if let Parsed::Command(len) | Parsed::Nothing(len) = parsed {
            assert!(len <= bytes.len());
        }
    }
});
