//! Bytes of a client of the Redis protocol, done as commands: at once, and in pieces.
//!
//! A database is there for some hundred inputs, one after the other, as opening one takes many
//! times what an input does: so sessions meet what was written before. What fails with what came
//! before alone is found again with `-seed` and `-runs`.
#![no_main]

use std::cell::RefCell;

use lithe_server::fuzzing::RedisFeed;

/// Inputs that one database gets.
const INPUTS: u32 = 512;

thread_local! {
    static FEED: RefCell<Option<(u32, RedisFeed)>> = const { RefCell::new(None) };
}

fn new_feed() -> RedisFeed {
    let feed = RedisFeed::new(|config| {
        config.limits.body_size = 64 << 10;
        config.limits.value_size = 64 << 10;
        config.limits.output_size = 1 << 20;
    });
    feed.expect("there is an address")
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    FEED.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(fed, _)| *fed >= INPUTS) {
            *kept = Some((0, new_feed()));
        }
        let (fed, feed) = kept.as_mut().expect("it was just made");
        *fed += 1;
        feed.session(bytes, usize::MAX);
        feed.session(bytes, 1 + bytes.len() / 3);
    });
});
