//! Cursors of scans: numbers that stand for a place.
//!
//! Clients pass a cursor on as a number, and over whichever connection is free, so places are kept
//! for all connections together: a bounded number, the oldest goes. A number is drawn from the
//! place, so that a page that is asked for again has the same, and has 53 bits, which is what some
//! clients keep of a number. What a number that is not known stands for is not guessed: to begin
//! anew would repeat without end, and to end would leave elements out.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

const COUNT_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 16 << 20;
/// What a place takes besides its bytes, about.
const OVERHEAD: usize = 128;
const ID_SHIFT: u32 = 64 - 53;

/// What is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    pub database: usize,
    /// A collection's id, or 0 for the keys.
    pub collection: u64,
}

/// The places of all scans.
#[derive(Debug, Default)]
pub struct Cursors {
    places: Mutex<Places>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Places {
    by_id: HashMap<u64, (Scope, Vec<u8>)>,
    /// The oldest first.
    order: VecDeque<u64>,
    bytes: usize,
}

impl Cursors {
    /// A number for the place behind these bytes.
    pub fn keep(&self, scope: Scope, behind: &[u8]) -> u64 {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut id = (self.hasher.hash_one((scope, behind)) >> ID_SHIFT).max(1);
        loop {
            match places.by_id.entry(id) {
                Entry::Vacant(free) => {
                    free.insert((scope, behind.to_vec()));
                    break;
                }
                Entry::Occupied(there) if *there.get() == (scope, behind.to_vec()) => return id,
                Entry::Occupied(_) => id = (id + 1) % (1 << 53),
            }
            id = id.max(1);
        }
        places.order.push_back(id);
        places.bytes += behind.len() + OVERHEAD;
        while places.order.len() > COUNT_MAX || places.bytes > BYTES_MAX {
            let Some(oldest) = places.order.pop_front() else { break };
            if let Some((_, bytes)) = places.by_id.remove(&oldest) {
                places.bytes -= bytes.len() + OVERHEAD;
            }
        }
        id
    }

    /// The place that a number stands for in a scan.
    pub fn find(&self, scope: Scope, id: u64) -> Option<Vec<u8>> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, behind) = places.by_id.get(&id)?;
        (*of == scope).then(|| behind.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_number_and_the_oldest_goes() {
        let cursors = Cursors::default();
        let scope = Scope { database: 1, collection: 0 };
        let first = cursors.keep(scope, b"a");
        assert_eq!(cursors.keep(scope, b"a"), first);
        assert!(first > 0 && first < 1 << 53);
        assert_eq!(cursors.find(scope, first), Some(b"a".to_vec()));
        assert_eq!(cursors.find(Scope { database: 2, ..scope }, first), None);
        for number in 0..COUNT_MAX {
            cursors.keep(scope, number.to_string().as_bytes());
        }
        assert_eq!(cursors.find(scope, first), None);
        let large = vec![0; 60_000];
        for number in 0..1000_usize {
            cursors.keep(scope, &[number.to_string().as_bytes(), &large].concat());
        }
        let places = cursors.places.lock().unwrap();
        assert!(places.bytes <= BYTES_MAX && places.order.len() == places.by_id.len());
    }
}
