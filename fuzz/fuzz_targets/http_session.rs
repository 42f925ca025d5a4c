//! Bytes of a client of HTTP, answered as on a connection: at once, and in pieces.
#![no_main]

use lithe_server::fuzzing::{HttpFeed, judge_http};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let feed = HttpFeed::new(|config| {
        config.limits.head_size = 8 << 10;
        config.limits.body_size = 64 << 10;
        config.limits.value_size = 64 << 10;
        config.limits.batch_count = 100;
        config.limits.page_count = 100;
    });
    let feed = feed.expect("there is an address");
    for at_a_time in [usize::MAX, 1 + bytes.len() / 3] {
        let said = feed.connection(bytes, at_a_time);
        judge_http(bytes, &said).expect("these are answers");
    }
    feed.ask_rightly().expect("others are served behind it");
});
