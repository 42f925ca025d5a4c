//! Timings by hand: `cargo test --release --lib tree::tests::timing -- --ignored --nocapture`.
//!
//! On a machine of two cores (EPYC, 1 MiB L2 each) that others used too, in ns; the least and the
//! most of several runs. A map insert splits an extent: it adds two.
//!
//! | extents | insert by index | find by offset | remove | map insert | map collapse | iterate |
//! |---|---|---|---|---|---|---|
//! | 10^5 | 100-130 | 75-117 | 60-190 | 110-310 | 145-270 | 2 |
//! | 10^6 | 260-410 | 240-360 | 350-470 | 320-480 | 540-880 | 4-10 |
//! | 10^7 | 640-820 | 680-800 | 720-1120 | 710-1080 | 1180-1520 | 12-18 |
//!
//! | 16-byte keys | leaf / fan | random key | without index | present key | copy of a path |
//! |---|---|---|---|---|---|
//! | 40,000 | 32 / 32 | 80 | 63 | 97 | 2000 |
//! | 40,000 | 64 / 64 | 54 | 51 | 86 | 2800 |
//! | 40,000 | 128 / 128 | 54 | 49 | 87 | 5000 |
//! | 1,000,000 | 64 / 64 | 164 | 144 | 253 | 5200 |
//!
//! 128 finds no faster than 64, and copies twice as much per path. A clone of a tree takes 4.

use super::{Anchor, Dice};
use crate::base::{Clock, Entropy, SystemClock};
use crate::structure::flex::tree::{Extent, ExtentMap, FlexTree};

/// Prints what one of `count` steps costs.
fn report(what: &str, count: usize, run: impl FnOnce()) {
    let clock = SystemClock::new();
    run();
    print_nanos(what, clock.monotonic().as_nanos() as f64 / count as f64);
}

/// Prints the best of several runs: others use the machine too.
fn report_best(what: &str, count: usize, mut run: impl FnMut(usize)) {
    let nanos = (0..20).map(|_| {
        let clock = SystemClock::new();
        run(count);
        clock.monotonic().as_nanos() as f64 / count as f64
    });
    print_nanos(what, nanos.fold(f64::MAX, f64::min));
}

fn print_nanos(what: &str, nanos: f64) {
    println!("{what:60} {nanos:8.1} ns each, {:6.2} M/s", 1000.0 / nanos);
}

/// Different keys that searches are timed with.
const SOUGHT: usize = 4096;

/// Adjacent in the address space, so that no two merge by chance.
fn extent_at(number: u64) -> Extent {
    Extent { address: number << 32, len: 4096 }
}

fn random_inserts(extents: usize) {
    let dice = Dice::new(1);
    let mut tree: FlexTree<Extent> = FlexTree::new();
    let indices: Vec<usize> = (0..extents).map(|len| dice.below(len + 1)).collect();
    report(&format!("insert at a random index, up to {extents} extents"), extents, || {
        for (number, &index) in indices.iter().enumerate() {
            tree.insert(index, extent_at(number as u64));
        }
    });
    let offsets: Vec<u64> = (0..1_000_000).map(|_| dice.0.next_u64() % tree.size()).collect();
    let mut sum = 0;
    report_best("find by a random offset", 50_000, |count| {
        for &offset in offsets.iter().skip(sum % SOUGHT).take(count) {
            sum += tree.find_by(|&len| len, offset).map_or(0, |(index, _, _)| index);
        }
    });
    report("iterate", tree.len(), || {
        sum += tree.iter().map(|extent| extent.address as usize).fold(0, usize::wrapping_add);
    });
    assert_ne!(sum, 0);
    let indices: Vec<usize> = (0..extents / 2).map(|gone| dice.below(extents - gone)).collect();
    report("remove at a random index", indices.len(), || {
        for &index in &indices {
            tree.remove(index);
        }
    });
    tree.check().unwrap();
}

fn random_map_inserts(extents: usize) {
    let dice = Dice::new(2);
    let mut map = ExtentMap::new();
    let calls = extents / 2;
    // Aligned to nothing: most inserts split an extent, which adds two.
    let offsets: Vec<u64> =
        (0..calls).map(|call| dice.0.next_u64() % (call as u64 * 4096 + 1)).collect();
    report(&format!("ExtentMap insert at a random offset, to {extents} extents"), calls, || {
        for (number, &offset) in offsets.iter().enumerate() {
            map.insert(offset, extent_at(number as u64));
        }
    });
    let offsets: Vec<u64> = (0..calls / 2).map(|_| dice.0.next_u64() % (map.len() / 2)).collect();
    report("ExtentMap collapse of 2048 bytes at a random offset", offsets.len(), || {
        for &offset in &offsets {
            map.collapse(offset, 2048);
        }
    });
    map.check().unwrap();
}

#[test]
#[ignore = "prints timings"]
fn time_extents() {
    for extents in [100_000, 100_000, 100_000, 1_000_000, 10_000_000] {
        random_inserts(extents);
        random_map_inserts(extents);
    }
}

fn random_keys<const LEN: usize>(count: usize, prefix: &[u8]) -> Vec<Vec<u8>> {
    let dice = Dice::new(3);
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let random = [dice.0.next_u64().to_be_bytes(), dice.0.next_u64().to_be_bytes()];
            [prefix, &random.concat()[..LEN]].concat()
        })
        .collect();
    keys.sort();
    keys
}

fn time_keys<const LEAF: usize, const FAN: usize>(count: usize, prefix: &[u8]) {
    println!("{LEAF} items, {FAN} children, {count} keys, prefix of {}", prefix.len());
    let keys = random_keys::<16>(count, prefix);
    let mut tree: FlexTree<Anchor, LEAF, FAN> = keys.iter().map(|key| Anchor::new(key)).collect();
    let dice = Dice::new(4);
    // Few enough to stay in the nearest cache: what is timed is the tree.
    let sought: Vec<Vec<u8>> = (0..SOUGHT)
        .map(|_| {
            let random = [dice.0.next_u64().to_be_bytes(), dice.0.next_u64().to_be_bytes()];
            [prefix, &random.concat()].concat()
        })
        .collect();
    let mut sum = 0;
    report_best("find_key of a random key", 50_000, |count| {
        for key in sought.iter().cycle().take(count) {
            sum += tree.find_key(key).map_or(0, |(index, _)| index);
        }
    });
    report_best("get_key of a random key", 50_000, |count| {
        for key in sought.iter().cycle().take(count) {
            sum += tree.get_key(key).map_or(0, |anchor| anchor.bytes as usize);
        }
    });
    report_best("find_key of a key that is there", 50_000, |count| {
        for at in 0..count {
            let key = &keys[(at % SOUGHT) * 7919 % keys.len()];
            sum += tree.find_key(key).map_or(0, |(index, _)| index);
        }
    });
    assert_ne!(sum, 0);
    report_best("clone", 10_000, |count| {
        for _ in 0..count {
            std::hint::black_box(tree.clone());
        }
    });
    let old = tree.clone();
    report("rewrite: every 16th item becomes two, shared", count, || {
        tree.rewrite((0..count - 1).step_by(16).map(|at| {
            let mut key = keys[at].clone();
            key.push(0);
            (at..at + 1, [Anchor::new(&keys[at]), Anchor::new(&key)])
        }));
    });
    report("diff of the two", count, || {
        assert!(old.diff(&tree).len() <= (count - 1).div_ceil(16));
    });
    let mut version = old.clone();
    report("update of a random item, all shared", 10_000, || {
        for _ in 0..10_000 {
            version.update(dice.below(count), |anchor| anchor.bytes += 1);
            version = old.clone();
        }
    });
    tree.check().unwrap();
}

#[test]
#[ignore = "prints timings"]
fn time_search_by_key() {
    time_keys::<32, 32>(40_000, b"");
    time_keys::<64, 64>(40_000, b"");
    time_keys::<128, 128>(40_000, b"");
    time_keys::<64, 64>(40_000, b"tenant/0000/");
    time_keys::<64, 64>(1_000_000, b"");
}
