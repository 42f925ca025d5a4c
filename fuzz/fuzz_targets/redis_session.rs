//! Bytes of a client of the Redis protocol, done as commands: at once, and in pieces.
#![no_main]

use lithe_server::fuzzing::RedisFeed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let feed = RedisFeed::new(|config| {
        config.limits.body_size = 64 << 10;
        config.limits.value_size = 64 << 10;
        config.limits.output_size = 1 << 20;
    });
    let feed = feed.expect("there is an address");
    feed.session(bytes, usize::MAX);
    feed.session(bytes, 1 + bytes.len() / 3);
});
