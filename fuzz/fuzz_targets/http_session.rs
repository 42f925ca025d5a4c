//! Bytes of a client of HTTP, answered as on a connection: at once, and in pieces.
//!
//! A server is there for some hundred inputs, one after the other, as starting one takes a hundred
//! times what an input does: so it meets what was written before, as servers do. What fails with
//! what came before alone is found again with `-seed` and `-runs`.
#![no_main]

use std::cell::RefCell;

use lithe_server::fuzzing::{HttpFeed, judge_http};

/// Inputs that one server gets, and after how many it is asked whether it still serves.
const INPUTS: u32 = 512;
const ASKED_EVERY: u32 = 32;

thread_local! {
    static FEED: RefCell<Option<(u32, HttpFeed)>> = const { RefCell::new(None) };
}

fn new_feed() -> HttpFeed {
    let feed = HttpFeed::new(|config| {
        config.limits.head_size = 8 << 10;
        config.limits.body_size = 64 << 10;
        config.limits.value_size = 64 << 10;
        config.limits.batch_count = 100;
        config.limits.page_count = 100;
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
        for at_a_time in [usize::MAX, 1 + bytes.len() / 3] {
            let said = feed.connection(bytes, at_a_time);
            judge_http(bytes, &said).expect("these are answers");
        }
        if fed.is_multiple_of(ASKED_EVERY) {
            feed.ask_rightly().expect("others are served behind it");
        }
    });
});
