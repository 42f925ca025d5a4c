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
        space.write(u64::MAX, b"x"),
        space.set_tag(10, tag),
        space.read_range(5..11).map(drop),
        space.defragment(0..11).map(drop),
    ] {
        assert!(matches!(refused, Err(crate::Error::InvalidArgument { .. })), "{refused:?}");
    }
    assert_eq!(space.read_range(0..10).unwrap(), b"0123456789");
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
