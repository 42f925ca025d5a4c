//! What the versions of a key say together.

use std::sync::Arc;

use super::{MemtableCursor, memtable};
use crate::base::{Cursor, EntryKind, MergeBase, Operands, SeqNo};
use crate::memtable::{Memtable, StackedCursor};

fn stamp(number: u64) -> SeqNo {
    SeqNo::from_u64(number)
}

fn merge(memtable: &Memtable, key: &[u8], seqno: u64, operand: &[u8]) {
    memtable.writer().insert(key, stamp(seqno), EntryKind::Composite, &Operands::open(operand));
}

/// What is merged into what, as of a stamp.
fn stacked(memtable: &Memtable, key: &[u8], at: u64) -> (Vec<u8>, Vec<Vec<u8>>) {
    let bytes = memtable.stacked(memtable.get(key, stamp(at)).unwrap());
    let operands = Operands::decode(&bytes).unwrap();
    let base = match operands.base {
        MergeBase::Below => b"below".to_vec(),
        MergeBase::Nothing => b"nothing".to_vec(),
        MergeBase::Value(bytes) | MergeBase::Pointer(bytes) => bytes.to_vec(),
    };
    (base, operands.iter().map(<[u8]>::to_vec).collect())
}

fn operands(numbers: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
    numbers.into_iter().map(|number| number.to_string().into_bytes()).collect()
}

#[test]
fn operands_of_thousands_of_versions_come_in_order() {
    let memtable = memtable();
    for number in 1..3000_u64 {
        for key in [b"a", b"k", b"z"] {
            merge(&memtable, key, number, number.to_string().as_bytes());
        }
    }
    for at in [1, 2, 64, 1999, 2999] {
        assert_eq!(stacked(&memtable, b"k", at), (b"below".to_vec(), operands(1..=at)));
    }
}

#[test]
fn an_entry_that_says_it_all_ends_the_stack() {
    let memtable = memtable();
    merge(&memtable, b"k", 1, b"1");
    memtable.writer().insert(b"k", stamp(2), EntryKind::Value, b"value");
    merge(&memtable, b"k", 3, b"3");
    memtable.writer().insert(b"k", stamp(4), EntryKind::Tombstone, b"");
    merge(&memtable, b"k", 5, b"5");
    let closed = Operands::single(MergeBase::Value(b"own"), b"6");
    memtable.writer().insert(b"k", stamp(6), EntryKind::Composite, &closed);
    merge(&memtable, b"k", 7, b"7");
    assert_eq!(stacked(&memtable, b"k", 1), (b"below".to_vec(), operands([1])));
    assert_eq!(stacked(&memtable, b"k", 3), (b"value".to_vec(), operands([3])));
    assert_eq!(stacked(&memtable, b"k", 5), (b"nothing".to_vec(), operands([5])));
    assert_eq!(stacked(&memtable, b"k", 7), (b"own".to_vec(), operands([6, 7])));
}

#[test]
fn a_deleted_range_ends_the_stack() {
    let memtable = memtable();
    merge(&memtable, b"k", 1, b"1");
    memtable.writer().delete_ranges(stamp(2), [(&b"a"[..], None)]);
    merge(&memtable, b"k", 2, b"2"); // Of the commit that deletes, and behind the deletion.
    merge(&memtable, b"k", 3, b"3");
    assert_eq!(stacked(&memtable, b"k", 1), (b"below".to_vec(), operands([1])));
    assert_eq!(stacked(&memtable, b"k", 3), (b"nothing".to_vec(), operands([2, 3])));
    merge(&memtable, b"A", 3, b"3");
    assert_eq!(stacked(&memtable, b"A", 3), (b"below".to_vec(), operands([3])));
}

#[test]
fn a_walk_shows_each_key_with_all_its_operands() {
    let memtable = Arc::new(memtable());
    for number in 1..200_u64 {
        merge(&memtable, b"b", number, number.to_string().as_bytes());
    }
    memtable.writer().insert(b"a", stamp(200), EntryKind::Value, b"value");
    merge(&memtable, b"c", 201, b"201");
    let mut cursor = StackedCursor::new(MemtableCursor::new(memtable, SeqNo::MAX));
    let shown = |cursor: &StackedCursor| {
        let entry = cursor.entry().unwrap();
        let count = Operands::decode(entry.value).filter(|_| entry.kind == EntryKind::Composite);
        (entry.key.to_vec(), count.map(|operands| operands.iter().count()))
    };
    cursor.seek_first().unwrap();
    assert_eq!(shown(&cursor), (b"a".to_vec(), None));
    cursor.next().unwrap();
    assert_eq!(shown(&cursor), (b"b".to_vec(), Some(199)));
    cursor.next().unwrap();
    assert_eq!(shown(&cursor), (b"c".to_vec(), Some(1)));
    cursor.prev().unwrap();
    assert_eq!(shown(&cursor), (b"b".to_vec(), Some(199)));
    cursor.seek_last().unwrap();
    assert_eq!(shown(&cursor), (b"c".to_vec(), Some(1)));
    cursor.seek(b"aa").unwrap();
    assert_eq!(shown(&cursor), (b"b".to_vec(), Some(199)));
    cursor.seek_for_prev(b"aa").unwrap();
    assert_eq!(shown(&cursor), (b"a".to_vec(), None));
}
