//! Checks of what a store returns. A benchmark of a wrong answer is worth nothing, so each of these
//! is an error and ends the run.

use crate::data::{KeyShape, ValueChecker, entry_checksum, scan_checksum};
use crate::engine::{Engine, Result, View, Walk, wrong};

/// Entries seen and their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Entries.
    pub count: u64,
    /// Sum of `entry_checksum`.
    pub checksum: u64,
}

impl Seen {
    /// What a scan of entries `0..count` in the load version shows.
    pub fn of_load(shape: KeyShape, count: u64, value_len: usize) -> Seen {
        Seen { count, checksum: scan_checksum(shape, count, value_len) }
    }

    /// Touches all of `walk`.
    ///
    /// # Errors
    /// Whatever the engine reports.
    pub fn scan(view: &mut impl View, walk: Walk<'_>) -> Result<Seen> {
        let mut checksum = 0u64;
        let count = view.scan(walk, |key, value| {
            checksum = checksum.wrapping_add(entry_checksum(key, value));
        })?;
        Ok(Seen { count, checksum })
    }

    /// # Errors
    /// If this is not `expected`.
    pub fn must_be(self, expected: Seen, what: &str) -> Result<()> {
        if self == expected {
            return Ok(());
        }
        wrong(format!(
            "{what}: scanned {} entries with checksum {}, expected {} with {}",
            self.count, self.checksum, expected.count, expected.checksum,
        ))
    }
}

/// Scans the whole store and compares with what a load of `count` entries leaves.
///
/// # Errors
/// If there is a difference, or whatever the engine reports.
pub fn check_load<E: Engine>(
    engine: &E,
    shape: KeyShape,
    count: u64,
    value_len: usize,
) -> Result<Seen> {
    let seen = Seen::scan(&mut engine.view()?, Walk::Forward)?;
    seen.must_be(Seen::of_load(shape, count, value_len), "after the load")?;
    Ok(seen)
}

/// Scans the whole store: keys ascend, each is a key of `shape`, each value is a version that
/// `versions_of(index)` allows, and all of `0..keys` are there. Returns how many entries there are.
///
/// # Errors
/// What is wrong first, or whatever the engine reports.
pub fn check_entries<E: Engine>(
    engine: &E,
    shape: KeyShape,
    keys: u64,
    versions_of: impl Fn(u64) -> &'static [u64],
) -> Result<u64> {
    let (mut checker, mut last) = (ValueChecker::default(), Vec::<u8>::new());
    let (mut problem, mut below, mut first) = (None, 0u64, true);
    let count = engine.view()?.scan(Walk::Forward, |key, value| {
        let index = shape.index_of(key);
        let ascends = first || *last < *key;
        let known = index.is_some_and(|index| {
            below += u64::from(index < keys);
            checker.version_of(index, value, versions_of(index)).is_some()
        });
        if problem.is_none() && !(ascends && known) {
            problem = Some(format!("entry {key:02x?} (index {index:?}): out of order or wrong"));
        }
        first = false;
        last.clear();
        last.extend_from_slice(key);
    })?;
    match problem {
        Some(problem) => wrong(problem),
        None if below != keys => wrong(format!("{below} of {keys} keys found")),
        None => Ok(count),
    }
}
