//! Snapshots, differences, tags and handles.

use super::{DIR, bytes, options, segment_count};
use crate::flex_space::{FlexSpace, SpaceChange, Tag};
use crate::storage::SimStorage;

fn tag(number: u32) -> Tag {
    Tag::new(number).unwrap()
}

fn space_of(storage: &SimStorage, len: usize) -> FlexSpace {
    let mut space = options(storage).open(DIR).unwrap();
    space.append(&bytes(1, len)).unwrap();
    space
}

#[test]
fn a_snapshot_stays_while_its_segments_are_collected() {
    let storage = SimStorage::new(1);
    let mut space = space_of(&storage, 100_000);
    let snapshot = space.snapshot().unwrap();
    space.collapse(100..99_900).unwrap();
    space.collect_garbage().unwrap();
    assert_eq!(snapshot.read_range(0..100_000).unwrap(), bytes(1, 100_000));
    let kept = segment_count(&storage);
    drop(snapshot);
    space.sync().unwrap();
    assert!(kept > 6 && segment_count(&storage) <= 2, "{kept}");
}

#[test]
fn a_snapshot_is_read_by_another_thread_while_the_space_changes() {
    let storage = SimStorage::new(1);
    let mut space = space_of(&storage, 50_000);
    let snapshot = space.snapshot().unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..50 {
                assert_eq!(snapshot.read_range(0..50_000).unwrap(), bytes(1, 50_000));
            }
        });
        for round in 0..200 {
            space.overwrite(round * 200, &bytes(round, 5000)).unwrap();
            space.sync().unwrap();
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_difference_is_what_was_changed_and_no_more() {
    let storage = SimStorage::new(1);
    let mut space = space_of(&storage, 60_000);
    let before = space.snapshot().unwrap();
    assert_eq!(before.diff(&space.snapshot().unwrap()).unwrap(), []);
    space.insert(10_000, &bytes(2, 500)).unwrap();
    space.collapse(30_500..31_500).unwrap();
    space.set_tag(50_000, tag(9)).unwrap();
    let after = space.snapshot().unwrap();
    let changes = [
        SpaceChange { old: 10_000..10_000, new: 10_000..10_500 },
        SpaceChange { old: 30_000..31_000, new: 30_500..30_500 },
        SpaceChange { old: 50_500..50_501, new: 50_000..50_001 },
    ];
    let found = after.diff(&before).unwrap();
    let turned: Vec<SpaceChange> = found
        .into_iter()
        .map(|SpaceChange { old, new }| SpaceChange { old: new, new: old })
        .collect();
    for found in [before.diff(&after).unwrap(), turned] {
        assert_eq!(found[..2], changes[..2]);
        assert!(found[2].old.contains(&50_500) && found[2].new.contains(&50_000), "{found:?}");
        assert_eq!(found.len(), 3);
    }
}

#[test]
fn snapshots_of_two_spaces_are_not_compared() {
    let (one, other) = (SimStorage::new(1), SimStorage::new(2));
    let a = space_of(&one, 10).snapshot().unwrap();
    let b = space_of(&other, 10).snapshot().unwrap();
    assert!(matches!(a.diff(&b), Err(crate::Error::InvalidArgument { .. })));
}

#[test]
fn tags_move_with_their_bytes_and_are_found_from_far() {
    let storage = SimStorage::new(1);
    let mut space = space_of(&storage, 90_000);
    for number in 0..9 {
        space.set_tag(number * 10_000, tag(number as u32 + 1)).unwrap();
    }
    space.insert(15_000, &bytes(2, 7)).unwrap();
    space.collapse(30_007..30_009).unwrap();
    space.overwrite(40_000, &bytes(3, 20_000)).unwrap();
    assert_eq!(space.remove_tag(0).unwrap(), Some(tag(1)));
    assert_eq!(space.remove_tag(0).unwrap(), None);
    let moved = |number: u64| (number * 10_000 + 5, tag(number as u32 + 1));
    let expected: Vec<(u64, Tag)> =
        [(10_000, tag(2)), (20_007, tag(3))].into_iter().chain((4..9).map(moved)).collect();
    assert_eq!(space.tags(0..space.len()).collect::<Vec<_>>(), expected);
    assert_eq!(space.tags(50_006..70_006).collect::<Vec<_>>(), [moved(6), moved(7)]);
    assert_eq!(space.stats().tags, 7);
    space.close().unwrap();
    let space = options(&storage).open(DIR).unwrap();
    assert_eq!(space.tags(0..space.len()).collect::<Vec<_>>(), expected);
}

#[test]
fn a_tag_that_goes_leaves_no_trace() {
    let storage = SimStorage::new(1);
    let mut space = space_of(&storage, 4000);
    for offset in [0, 1, 2000, 3999] {
        space.set_tag(offset, tag(5)).unwrap();
        space.remove_tag(offset).unwrap();
        assert_eq!(space.extent_count(0..4000), 1);
    }
}

#[test]
fn a_handle_goes_by_extents() {
    let storage = SimStorage::new(1);
    let mut space = space_of(&storage, 3000);
    space.insert(1000, &bytes(2, 500)).unwrap();
    let mut handle = space.handle(1200);
    let lens = |handle: &crate::flex_space::Handle<'_>| {
        handle.extent().map(|extent| (extent.offset, extent.len))
    };
    assert_eq!(lens(&handle), Some((1000, 500)));
    assert!(handle.next_extent());
    assert_eq!((handle.offset(), lens(&handle)), (1500, Some((1500, 2000))));
    assert!(handle.next_extent());
    assert_eq!((handle.offset(), lens(&handle)), (3500, None));
    assert!(!handle.next_extent());
    assert!(handle.prev_extent() && handle.prev_extent() && handle.prev_extent());
    assert_eq!((handle.offset(), lens(&handle)), (0, Some((0, 1000))));
    assert!(!handle.prev_extent());
}

#[test]
fn what_was_defragmented_is_not_moved_again_however_small_segments_are() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    for number in 0..300 {
        space.insert(number * 300, &bytes(number, 1000)).unwrap();
    }
    let all = space.read_range(0..300_000).unwrap();
    assert_eq!(space.defragment(0..300_000).unwrap().bytes_moved, 300_000);
    assert_eq!(space.defragment(0..300_000).unwrap().bytes_moved, 0);
    assert_eq!(space.read_range(0..300_000).unwrap(), all);
}

#[test]
fn defragmenting_puts_scattered_bytes_side_by_side() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).segment_size(1 << 20).open(DIR).unwrap();
    for number in 0..200 {
        space.insert(number * 50, &bytes(number, 100)).unwrap();
    }
    space.set_tag(777, tag(3)).unwrap();
    let all = space.read_range(0..20_000).unwrap();
    let done = space.defragment(0..20_000).unwrap();
    assert!(done.extents_before > 200 && done.extents_after == 2, "{done:?}");
    assert_eq!(space.read_range(0..20_000).unwrap(), all);
    assert_eq!(space.tag(777), Some(tag(3)));
    let again = space.defragment(0..20_000).unwrap();
    assert_eq!(again.bytes_moved, 0);
}
