//! Extents in memory: inserting in front of others shifts all of those.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use lithe_bench::Dice;
use lithedb::flex_tree::{Extent, ExtentMap};

use super::{Asked, cpu_time, rates};

/// Bytes of every extent.
const EXTENT_LEN: u64 = 4096;
/// Operations in a row between two looks at the clock.
const STEP: u64 = 64;
/// What is O(n) is stopped after this.
const TIME_MAX: Duration = Duration::from_secs(3);
const LOOKUPS: u64 = 1_000_000;
const RANGE_LEN: usize = 50;

/// A map from logical offsets to extents.
trait Extents: Default {
    const NAME: &'static str;
    /// Whether inserting in the middle takes O(n).
    const SHIFTS_ALL: bool;
    fn insert(&mut self, offset: u64, extent: Extent);
    fn lookup(&self, offset: u64) -> u64;
    /// The sum of some addresses from `offset` on.
    fn range(&self, offset: u64) -> u64;
}

impl Extents for ExtentMap {
    const NAME: &'static str = "FlexTree";
    const SHIFTS_ALL: bool = false;

    fn insert(&mut self, offset: u64, extent: Extent) {
        ExtentMap::insert(self, offset, extent);
    }

    fn lookup(&self, offset: u64) -> u64 {
        ExtentMap::lookup(self, offset).map_or(0, |extent| extent.address)
    }

    fn range(&self, offset: u64) -> u64 {
        let found = self.extents().find_by(|&len| len, offset);
        let (index, _, _) = found.expect("the offset is within the map");
        let extents = self.extents().range(index..index + RANGE_LEN);
        extents.fold(0, |sum, extent| sum.wrapping_add(extent.address))
    }
}

/// The key of an extent, which moves while its place in the order stays.
#[derive(PartialEq, Eq)]
struct Place(Cell<u64>);

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        self.0.get().cmp(&other.0.get())
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The standard library's B-tree by offset.
#[derive(Default)]
struct Tree(BTreeMap<Place, Extent>);

impl Extents for Tree {
    const NAME: &'static str = "B+-tree";
    const SHIFTS_ALL: bool = true;

    fn insert(&mut self, offset: u64, extent: Extent) {
        for (place, _) in self.0.range(Place(Cell::new(offset))..).rev() {
            place.0.set(place.0.get() + extent.len);
        }
        self.0.insert(Place(Cell::new(offset)), extent);
    }

    fn lookup(&self, offset: u64) -> u64 {
        let found = self.0.range(..=Place(Cell::new(offset))).next_back();
        found.map_or(0, |(_, extent)| extent.address)
    }

    fn range(&self, offset: u64) -> u64 {
        let start = self.0.range(..=Place(Cell::new(offset))).next_back();
        let start = start.map_or(0, |(place, _)| place.0.get());
        let extents = self.0.range(Place(Cell::new(start))..).take(RANGE_LEN);
        extents.fold(0, |sum, (_, extent)| sum.wrapping_add(extent.address))
    }
}

/// Offsets and extents side by side.
#[derive(Default)]
struct Array(Vec<(u64, Extent)>);

impl Extents for Array {
    const NAME: &'static str = "sorted array";
    const SHIFTS_ALL: bool = true;

    fn insert(&mut self, offset: u64, extent: Extent) {
        let at = self.0.partition_point(|(start, _)| *start < offset);
        self.0[at..].iter_mut().for_each(|(start, _)| *start += extent.len);
        self.0.insert(at, (offset, extent));
    }

    fn lookup(&self, offset: u64) -> u64 {
        let at = self.0.partition_point(|(start, _)| *start <= offset);
        self.0[at - 1].1.address
    }

    fn range(&self, offset: u64) -> u64 {
        let at = self.0.partition_point(|(start, _)| *start <= offset) - 1;
        let extents = self.0[at..].iter().take(RANGE_LEN);
        extents.fold(0, |sum, (_, extent)| sum.wrapping_add(extent.address))
    }
}

/// Apart in the address space, so that no two merge.
fn extent(number: u64) -> Extent {
    Extent { address: number << 20, len: EXTENT_LEN }
}

fn appended<E: Extents>(count: u64) -> E {
    let mut extents = E::default();
    (0..count).for_each(|number| extents.insert(number * EXTENT_LEN, extent(number)));
    extents
}

/// Random inserts until there are `count`, in millions a second; see the head of the program.
fn random_inserts<E: Extents>(count: u64, seed: u64) -> f64 {
    let first = if E::SHIFTS_ALL { count / 2 } else { 0 };
    let mut extents: E = appended(first);
    let mut dice = Dice(seed);
    let offsets: Vec<u64> = (first..count).map(|len| dice.below(len + 1) * EXTENT_LEN).collect();
    let (mut done, mut taken) = (0, Duration::ZERO);
    while done < offsets.len() && !(E::SHIFTS_ALL && taken > TIME_MAX) {
        let step = if E::SHIFTS_ALL { STEP as usize } else { offsets.len() };
        let end = offsets.len().min(done + step);
        taken += cpu_time(|| {
            for (at, &offset) in (done..end).zip(&offsets[done..end]) {
                extents.insert(offset, extent(count + at as u64));
            }
        });
        done = end;
    }
    done as f64 / taken.as_secs_f64() / 1e6
}

fn report(what: &str, name: &str, count: u64, [least, median, most]: [f64; 3]) {
    println!("{what:14} {count:>11} {name:14} {median:10.4} M/s  ({least:.4} to {most:.4})");
}

fn compare_inserts<E: Extents>(count: u64, runs: usize) {
    let mut seed = 1;
    let found = rates(runs, || {
        seed += 1;
        random_inserts::<E>(count, seed)
    });
    report("random insert", E::NAME, count, found);
}

fn compare_reads<E: Extents>(count: u64, runs: usize) {
    let mut extents = E::default();
    let appends = rates(runs, || {
        extents = E::default();
        count as f64 / cpu_time(|| extents = appended(count)).as_secs_f64() / 1e6
    });
    report("append", E::NAME, count, appends);
    let mut dice = Dice(7);
    let offsets: Vec<u64> = (0..LOOKUPS).map(|_| dice.below(count * EXTENT_LEN)).collect();
    let over = |what: &str, read: &dyn Fn(&E, u64) -> u64| {
        let found = rates(runs, || {
            let taken = cpu_time(|| {
                let sum =
                    offsets.iter().fold(0u64, |sum, &at| sum.wrapping_add(read(&extents, at)));
                black_box(sum);
            });
            LOOKUPS as f64 / taken.as_secs_f64() / 1e6
        });
        report(what, E::NAME, count, found);
    };
    over("lookup", &E::lookup);
    over("range of 50", &E::range);
}

pub fn run(asked: &Asked) {
    for count in [100_000, 1_000_000, 10_000_000] {
        compare_inserts::<ExtentMap>(count, asked.runs);
    }
    for count in [100_000, 1_000_000] {
        compare_inserts::<Tree>(count, asked.runs);
        compare_inserts::<Array>(count, asked.runs);
    }
    let large = if asked.large { Some(100_000_000) } else { None };
    for count in [1_000_000].into_iter().chain(large) {
        compare_reads::<ExtentMap>(count, asked.runs);
        compare_reads::<Tree>(count, asked.runs);
        compare_reads::<Array>(count, asked.runs);
    }
}
