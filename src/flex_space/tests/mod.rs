//! Tests of whole spaces that look at their files. Random operations, crashes, rot and failing
//! calls are in `tests/it/space.rs`.

mod files;
mod versions;

use std::path::Path;
use std::sync::Arc;

use super::{FlexSpace, Journal, SpaceOptions};
use crate::storage::{MemoryStorage, SimStorage, Storage};

const DIR: &str = "/space";

fn options(storage: &SimStorage) -> SpaceOptions {
    storage.panic_on_violation();
    FlexSpace::options().storage(Arc::new(storage.clone())).segment_size(16 << 10)
}

fn segment_count(storage: &SimStorage) -> usize {
    let entries = storage.list_dir(Path::new(DIR)).unwrap();
    entries.iter().filter(|entry| entry.name.starts_with("seg-")).count()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at * 31 + seed * 7 + at / 255) as u8).collect()
}

#[test]
fn operations_out_of_bounds_are_refused_and_change_nothing() {
    let storage = Arc::new(MemoryStorage::new());
    let mut space = FlexSpace::options().storage(storage).open(DIR).unwrap();
    space.append(b"0123456789").unwrap();
    let tag = super::Tag::new(1).unwrap();
    for refused in [
        space.insert(11, b"x"),
        space.collapse(5..11),
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        space.collapse(5..4),
        space.overwrite(8, b"xyz"),
        space.update(9..11, b"x"),
        space.truncate(super::LEN_MAX + 1),
        space.truncate(u64::MAX),
        space.write(u64::MAX, b"x"),
        space.write(super::LEN_MAX, b"x"),
        space.insert(u64::MAX, b"x"),
        space.insert_zeros(11, 1),
        space.insert_zeros(5, super::LEN_MAX),
        space.insert_zeros(5, u64::MAX),
        space.collapse(5..u64::MAX),
        space.overwrite(u64::MAX, b"x"),
        space.update(5..u64::MAX, b"x"),
        space.set_tag(10, tag),
        space.set_tag(u64::MAX, tag),
        space.remove_tag(10).map(drop),
        space.read_range(5..11).map(drop),
        space.read_range(0..u64::MAX).map(drop),
        space.defragment(0..11).map(drop),
        space.defragment(0..u64::MAX).map(drop),
    ] {
        assert!(matches!(refused, Err(crate::Error::InvalidArgument { .. })), "{refused:?}");
    }
    assert_eq!(space.read_range(0..10).unwrap(), b"0123456789");
}

#[test]
fn looking_beyond_the_end_finds_nothing() {
    let storage = Arc::new(MemoryStorage::new());
    let mut space = FlexSpace::options().storage(storage).open(DIR).unwrap();
    let tag = super::Tag::new(1).unwrap();
    for len in [0, 10] {
        space.append(&bytes(1, len)).unwrap();
        (0..len as u64).for_each(|at| space.set_tag(at, tag).unwrap());
        let mut buffer = [7; 4];
        for offset in [len as u64, len as u64 + 1, super::LEN_MAX, u64::MAX] {
            assert_eq!(space.read(offset, &mut buffer).unwrap(), 0);
            assert_eq!((space.tag(offset), space.tags(offset..u64::MAX).next()), (None, None));
            assert_eq!(space.extent_count(offset..u64::MAX), 0);
            let mut handle = space.handle(offset);
            assert_eq!((handle.offset(), handle.extent(), handle.tag()), (len as u64, None, None));
            assert_eq!((handle.forward(u64::MAX), handle.read(&mut buffer).unwrap()), (0, 0));
            assert_eq!(handle.backward(u64::MAX), len as u64);
            assert_eq!((handle.offset(), handle.forward(u64::MAX)), (0, len as u64));
        }
        assert_eq!(buffer, [7; 4]);
        assert_eq!(space.tags(0..u64::MAX).count(), len);
        assert_eq!(space.extent_count(0..u64::MAX), len as u64);
    }
}

#[test]
fn operations_on_nothing_change_nothing() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    for len in [0, 10] {
        space.append(&bytes(1, len)).unwrap();
        let end = len as u64;
        space.sync().unwrap();
        let before = space.stats();
        space.insert(end, b"").unwrap();
        space.insert_zeros(end, 0).unwrap();
        space.append(b"").unwrap();
        space.collapse(end..end).unwrap();
        space.write(end + 5, b"").unwrap();
        space.overwrite(end, b"").unwrap();
        space.update(end..end, b"").unwrap();
        space.truncate(end).unwrap();
        space.defragment(end..end).unwrap();
        assert_eq!(space.read_range(end..end).unwrap(), b"");
        space.sync().unwrap();
        assert_eq!(space.stats(), before);
    }
}

#[test]
fn a_space_and_its_snapshots_go_from_thread_to_thread() {
    fn expect<T: Send + Sync>() {}
    expect::<FlexSpace>();
    expect::<super::SpaceSnapshot>();
    expect::<super::Handle<'_>>();
}

#[test]
fn openings_with_and_without_a_journal_take_turns() {
    let storage = SimStorage::new(1);
    let mut expected = Vec::new();
    for round in 0..12 {
        let journal = [Journal::On, Journal::Off][round % 2];
        let mut space = options(&storage).journal(journal).open(DIR).unwrap();
        assert_eq!(space.read_range(0..space.len()).unwrap(), expected);
        for number in 0..3 {
            let more = bytes(number, 700);
            space.insert(number, &more).unwrap();
            expected.splice(number as usize..number as usize, more);
            space.sync().unwrap();
        }
        space.append(b"gone").unwrap(); // Not synced.
    }
}

#[test]
fn a_space_as_long_as_can_be_takes_no_room() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).open(DIR).unwrap();
    space.truncate(super::LEN_MAX).unwrap();
    space.overwrite(super::LEN_MAX - 3, b"end").unwrap();
    space.sync().unwrap();
    let mut end = [1; 8];
    assert_eq!(space.read(super::LEN_MAX - 5, &mut end).unwrap(), 5);
    assert_eq!(&end[..5], b"\0\0end");
    assert!(space.insert(0, b"x").is_err());
    assert!(storage.allocated_bytes() < 3 << 20, "{}", storage.allocated_bytes());
    assert!(space.check().unwrap().is_ok());
}

#[test]
fn without_a_journal_each_sync_is_a_checkpoint() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).journal(Journal::Off).open(DIR).unwrap();
    for number in 0..5 {
        space.insert(0, &bytes(number, 100)).unwrap();
        space.sync().unwrap();
    }
    assert_eq!((space.stats().syncs, space.stats().checkpoints), (5, 5));
    drop(space);
    let space = options(&storage).open(DIR).unwrap();
    assert_eq!((space.len(), space.recovery().edits_replayed), (500, 0));
}

#[test]
fn little_is_written_beside_what_is_given() {
    let storage = SimStorage::new(1);
    let mut space = options(&storage).segment_size(4 << 20).open(DIR).unwrap();
    let page = bytes(1, 4096);
    for number in 0..4000u64 {
        let offset = number * 2_654_435_761 % (number + 1) * 4096;
        space.insert(offset, &page).unwrap();
        if number % 500 == 499 {
            space.sync().unwrap();
        }
    }
    let stats = space.close().unwrap();
    assert!(stats.write_amplification() < 1.05, "{}", stats.write_amplification());
    let reopened = options(&storage).open(DIR).unwrap().stats();
    assert_eq!(reopened.lifetime_user_bytes, 4000 * 4096);
    assert!(reopened.lifetime_write_amplification() > 1.0);
}
