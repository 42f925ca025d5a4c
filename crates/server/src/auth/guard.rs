//! How often tokens may be wrong.
//!
//! A token has 256 random bits, so that none is ever guessed: a right one is taken whatever else
//! came from its address. Whoever is wrong too often is told so, and closed by the Redis protocol.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered. With more, those of which the window is over go; if that makes no
/// room, all do: it is a limit of noise, not a lock.
const ADDRESSES_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Guard {
    a_minute: u32,
    wrong: Mutex<HashMap<IpAddr, Wrong>>,
}

#[derive(Debug)]
struct Wrong {
    since: Duration,
    count: u32,
}

/// Who has a network of version 6 has 2^64 addresses of it.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        four @ IpAddr::V4(_) => four,
    }
}

impl Guard {
    pub(super) fn new(a_minute: u32) -> Guard {
        Guard { a_minute, wrong: Mutex::default() }
    }

    /// Whether there were too many from there.
    pub(super) fn is_shut(&self, from: IpAddr, now: Duration) -> bool {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.get(&network_of(from)).is_some_and(|wrong| {
            wrong.count >= self.a_minute && now < wrong.since.saturating_add(WINDOW)
        })
    }

    /// Counts one.
    pub(super) fn note_wrong(&self, from: IpAddr, now: Duration) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong.len() >= ADDRESSES_MAX && !wrong.contains_key(&network_of(from)) {
            wrong.retain(|_, wrong| now < wrong.since.saturating_add(WINDOW));
            if wrong.len() >= ADDRESSES_MAX {
                wrong.clear();
            }
        }
        let entry = wrong.entry(network_of(from)).or_insert(Wrong { since: now, count: 0 });
        if now >= entry.since.saturating_add(WINDOW) {
            *entry = Wrong { since: now, count: 0 };
        }
        entry.count = entry.count.saturating_add(1);
    }
}
