//! Tests of the cache: the budget holds, what is used stays, and threads may do what they like.

use std::sync::Arc;
use std::thread;

use super::Admission;
use super::Cache;
use super::MemoryBudget;
use super::Part;
use super::Slot;
use super::store::FillOutcome;
use crate::memory::Buffer;

const WEIGHT: usize = 16 << 10;
/// What a filled slot is charged, at most.
const CHARGE_MAX: usize = WEIGHT + 256;

type Slots = Vec<Arc<Slot<usize>>>;

fn cache_for(value_count: usize) -> Cache<usize> {
    Cache::new(MemoryBudget::new(value_count * CHARGE_MAX))
}

fn slots(count: usize) -> Slots {
    (0..count).map(|_| Slot::new()).collect()
}

/// Reads slot `index` as an owner does: takes what is there, or fills it.
fn read(cache: &Cache<usize>, slots: &Slots, index: usize, admission: Admission) -> bool {
    if let Some(value) = cache.load(&slots[index], admission) {
        assert_eq!(*value, index);
        return true;
    }
    cache.fill(&slots[index], Arc::new(index), WEIGHT, admission);
    false
}

fn filled_count(slots: &[Arc<Slot<usize>>]) -> usize {
    slots.iter().filter(|slot| slot.is_filled()).count()
}

#[test]
fn a_value_stays_until_room_is_needed() {
    let (cache, slots) = (cache_for(100), slots(1000));
    for index in 0..100 {
        assert!(!read(&cache, &slots, index, Admission::Normal));
    }
    for index in 0..100 {
        assert!(read(&cache, &slots, index, Admission::Normal));
    }
    for index in 100..1000 {
        read(&cache, &slots, index, Admission::Normal);
        assert!(cache.usage() <= cache.budget().cache_target());
    }
    let filled = filled_count(&slots);
    assert!((99..=102).contains(&filled), "{filled}");
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.misses, counts.fills), (100, 1000, 1000));
    assert_eq!(counts.evictions as usize, 1000 - filled);
}

#[test]
fn a_cache_for_fewer_values_than_shards_keeps_what_was_just_filled() {
    let (cache, slots) = (cache_for(5), slots(50));
    for index in 0..50 {
        read(&cache, &slots, index, Admission::Normal);
        assert!(slots[index].is_filled(), "{index}");
        assert!(filled_count(&slots) <= 5);
    }
    assert!(filled_count(&slots) >= 4);
}

#[test]
fn a_dropped_slot_gives_its_memory_back_at_once() {
    let (cache, mut slots) = (cache_for(100), slots(100));
    for index in 0..100 {
        read(&cache, &slots, index, Admission::Normal);
    }
    let full = cache.usage();
    let held = cache.load(&slots[60], Admission::Normal);
    slots.truncate(50);
    assert_eq!(cache.usage() * 2, full);
    assert_eq!(held.as_deref(), Some(&60)); // a reader keeps what it has
    drop(slots);
    assert_eq!((cache.usage(), cache.counts().evictions), (0, 0));
    assert_eq!(cache.budget().total(), 0);
}

#[test]
fn places_of_dropped_slots_do_not_pile_up() {
    let cache = cache_for(100);
    let allocation = Arc::downgrade(cache.budget());
    let mut weak = Vec::new();
    for index in 0..20_000 {
        let slot = Slot::new();
        cache.fill(&slot, Arc::new(index), WEIGHT, Admission::Normal);
        weak.push(Arc::downgrade(&slot));
    }
    // The queues hold a weak reference for each place that they have.
    let piled_up = weak.iter().filter(|slot| slot.weak_count() > 1).count();
    assert!(piled_up <= 8 * 64, "{piled_up}");
    assert_eq!(allocation.strong_count(), 1);
}

#[test]
fn the_cache_gives_way_to_the_other_parts() {
    let (cache, slots) = (cache_for(160), slots(160));
    for index in 0..160 {
        read(&cache, &slots, index, Admission::Normal);
    }
    let limit = cache.budget().limit();
    let memtable = cache.budget().charge(Part::Memtable, limit / 2);
    assert!(cache.budget().total() > limit);
    cache.trim();
    assert!(cache.budget().total() <= limit);
    assert!(filled_count(&slots) >= 78);
    // However much the others take, the floor is left.
    let index = cache.budget().charge(Part::Index, limit);
    cache.trim();
    assert!((9..=10).contains(&filled_count(&slots)), "{}", filled_count(&slots));
    drop((memtable, index));
    assert_eq!(cache.budget().total(), cache.usage());
}

#[test]
fn a_cache_for_indexes_has_its_share_of_the_budget_and_leaves_the_rest_to_blocks() {
    let budget = MemoryBudget::new(160 * CHARGE_MAX);
    let (indexes, blocks) = (Cache::for_indexes(Arc::clone(&budget)), Cache::new(budget));
    let (of_indexes, of_blocks) = (slots(160), slots(160));
    for index in 0..160 {
        read(&blocks, &of_blocks, index, Admission::Normal);
        read(&indexes, &of_indexes, index, Admission::Normal);
    }
    blocks.trim();
    let filled = (filled_count(&of_indexes), filled_count(&of_blocks));
    assert!((69..=71).contains(&filled.0) && (89..=91).contains(&filled.1), "{filled:?}");
    let _guides = indexes.budget().charge(Part::Index, 36 * CHARGE_MAX);
    indexes.trim();
    assert!((21..=23).contains(&filled_count(&of_indexes)));
}

#[test]
fn guides_take_most_of_what_is_left_and_give_way_to_all_but_blocks() {
    let budget = MemoryBudget::new(160 * CHARGE_MAX);
    let guides = Cache::for_guides(Arc::clone(&budget));
    let (partitions, blocks) = (Cache::for_indexes(Arc::clone(&budget)), Cache::new(budget));
    let (of_guides, of_blocks, of_partitions) = (slots(160), slots(160), slots(40));
    for index in 0..160 {
        read(&blocks, &of_blocks, index, Admission::Normal);
        read(&guides, &of_guides, index, Admission::Normal);
    }
    blocks.trim();
    let filled = || (filled_count(&of_guides), filled_count(&of_blocks));
    assert!((138..=142).contains(&filled().0) && (18..=23).contains(&filled().1), "{:?}", filled());
    let memtable = guides.budget().charge(Part::Memtable, 80 * CHARGE_MAX);
    guides.trim();
    blocks.trim();
    assert!((68..=72).contains(&filled().0) && (9..=12).contains(&filled().1), "{:?}", filled());
    (0..40).for_each(|index| _ = read(&partitions, &of_partitions, index, Admission::Normal));
    guides.trim();
    assert!((28..=32).contains(&filled().0), "{:?}", filled());
    assert_eq!(filled_count(&of_partitions), 40);
    drop(memtable);
    assert!(guides.has_room(WEIGHT));
}

#[test]
fn a_value_larger_than_the_cache_is_declined_and_displaces_nothing() {
    let (cache, slots) = (cache_for(20), slots(21));
    for index in 0..20 {
        read(&cache, &slots, index, Admission::Normal);
    }
    for weight in [WEIGHT * 15, WEIGHT * 100, usize::MAX] {
        let outcome = cache.fill(&slots[20], Arc::new(20), weight, Admission::Normal);
        assert_eq!(outcome, FillOutcome::TooLarge);
    }
    assert_eq!((filled_count(&slots), cache.counts().evictions), (20, 0));
}

#[test]
fn a_full_slot_keeps_its_value() {
    let (cache, slots) = (cache_for(10), slots(1));
    let fill = |value| cache.fill(&slots[0], Arc::new(value), WEIGHT, Admission::Normal);
    assert_eq!(fill(7), FillOutcome::Filled);
    let usage = cache.usage();
    assert_eq!(fill(8), FillOutcome::WasFilled);
    assert_eq!(cache.usage(), usage);
    assert_eq!(cache.borrow(&slots[0], Admission::Normal).as_deref().map(|value| **value), Some(7));
}

/// How many of 150 values in use are still there after a scan of 3000 others through a cache for
/// 200.
fn survivors_of_scan(admission: Admission) -> usize {
    let (cache, slots) = (cache_for(200), slots(3150));
    for round in 0..4 {
        for index in 0..150 {
            assert_eq!(read(&cache, &slots, index, Admission::Normal), round > 0);
        }
    }
    for index in 150..3150 {
        read(&cache, &slots, index, admission);
    }
    filled_count(&slots[..150])
}

#[test]
fn a_long_scan_leaves_what_is_in_use() {
    let survivors = survivors_of_scan(Admission::OnceRead);
    assert!(survivors >= 145, "{survivors}");
}

#[test]
fn repeated_scans_larger_than_the_cache_never_prove_themselves() {
    let (cache, slots) = (cache_for(200), slots(1150));
    for _ in 0..4 {
        for index in 0..150 {
            read(&cache, &slots, index, Admission::Normal);
        }
    }
    for _ in 0..10 {
        for index in 150..1150 {
            read(&cache, &slots, index, Admission::OnceRead);
        }
    }
    let before = cache.counts().hits;
    for index in 0..150 {
        read(&cache, &slots, index, Admission::Normal);
    }
    let hits = cache.counts().hits - before;
    assert!(hits >= 145, "{hits}");
}

#[test]
fn a_value_that_comes_back_soon_is_kept_unless_it_comes_back_in_a_scan() {
    let kept_after = |second_read| {
        let (cache, slots) = (cache_for(200), slots(1300));
        for _ in 0..4 {
            for index in 0..150 {
                read(&cache, &slots, index, Admission::Normal);
            }
        }
        for admission in [Admission::Normal, second_read] {
            for index in 150..300 {
                read(&cache, &slots, index, admission); // evicted again before the next round
            }
        }
        for index in 300..1300 {
            read(&cache, &slots, index, Admission::OnceRead);
        }
        filled_count(&slots[150..300])
    };
    let kept = (kept_after(Admission::Normal), kept_after(Admission::OnceRead));
    assert!(kept.0 >= 20 && kept.1 <= 2, "{kept:?}");
}

#[test]
fn what_is_read_often_is_hit_often() {
    // Nine of ten reads go to a tenth of the slots, in a cache for a fifth of them.
    let (cache, slots) = (cache_for(200), slots(1000));
    let mut state = 12345_u64;
    let mut random = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % limit) as usize
    };
    let mut hits = 0;
    for _ in 0..50_000 {
        let index = if random(10) == 0 { random(1000) } else { random(100) };
        hits += usize::from(read(&cache, &slots, index, Admission::Normal));
    }
    // 91 % of reads go to the hot tenth; the rest of the cache catches a ninth of the others.
    assert!(hits >= 45_000, "{hits}");
}

#[test]
fn threads_see_only_the_value_of_their_slot_and_the_budget_holds() {
    const THREAD_COUNT: usize = 4;
    let (cache, shared_slots) = (cache_for(64), slots(256));
    let work = |seed: u64| {
        let mut state = seed;
        let mut own = slots(256);
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            let index = (state >> 40) as usize % 256;
            let admission = if state >> 63 == 0 { Admission::Normal } else { Admission::OnceRead };
            read(&cache, if state >> 62 & 1 == 0 { &shared_slots } else { &own }, index, admission);
            if let Some(value) = cache.borrow(&own[index], admission) {
                assert_eq!(**value, index);
            }
            let most = cache.budget().cache_target() + THREAD_COUNT * CHARGE_MAX;
            assert!(cache.usage() <= most);
            if step % 100 == 0 {
                own[index] = Slot::new(); // its interval was rewritten
            }
        }
    };
    thread::scope(|scope| {
        for seed in 1..=THREAD_COUNT as u64 {
            scope.spawn(move || work(seed));
        }
    });
    let counts = cache.counts();
    assert!(counts.hits > 0 && counts.evictions > 0);
    assert!(cache.usage() <= cache.budget().cache_target());
    drop(shared_slots);
    assert_eq!(cache.usage(), 0);
}

/// What is evicted is idle in the heap before the system has it back. Were that to leave the cache
/// less room, one value too many would have the cache evict until the heap gives memory back.
#[test]
fn a_full_cache_evicts_about_as_much_as_comes_whatever_the_heap_keeps_idle() {
    const LIMIT: usize = 8 << 20;
    let cache: Cache<Buffer> = Cache::new(MemoryBudget::new(LIMIT));
    let heap = Arc::clone(cache.budget().heap());
    let slots: Vec<_> = (0..3000).map(|_| Slot::new()).collect();
    let mut evicted = 0;
    for (number, slot) in slots.iter().enumerate() {
        let value = heap.take(WEIGHT + number * 7919 % WEIGHT);
        let weight = value.len();
        cache.fill(slot, Arc::new(value), weight, Admission::Normal);
        let at_once = cache.counts().evictions - evicted;
        evicted += at_once;
        assert!(at_once <= 4, "{at_once} for the value number {number}");
        assert!(heap.used() + heap.unused() <= LIMIT);
    }
    assert!(evicted > 2500 && heap.used() > LIMIT / 4 * 3, "{evicted} {}", heap.used());
}
