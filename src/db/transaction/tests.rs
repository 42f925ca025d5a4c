//! Transactions against each other, one step at a time.

use std::sync::Arc;

use super::*;
use crate::db::{Builder, WriteBatch};
use crate::manifest::KeyspaceOptions;
use crate::storage::MemoryStorage;

fn builder() -> Builder {
    Db::builder().storage(Arc::new(MemoryStorage::new())).durability(Durability::Buffered)
}

fn open() -> (Db, Keyspace) {
    let db = builder().open("/db").unwrap();
    let keyspace = db.keyspace_or_create("k").unwrap();
    (db, keyspace)
}

fn text(value: Option<Slice>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn keys(iter: impl Iterator<Item = Result<Entry>>) -> String {
    iter.map(|entry| String::from_utf8(entry.unwrap().key.to_vec()).unwrap()).collect()
}

#[test]
fn it_sees_its_snapshot_and_its_own_writes() {
    let (db, k) = open();
    for key in ["a", "c", "e"] {
        k.put(key, "old").unwrap();
    }
    let mut transaction = db.begin_update();
    k.put("d", "later").unwrap();
    transaction.put(&k, "b", "own").unwrap();
    transaction.put(&k, "c", "own").unwrap();
    transaction.delete(&k, "e").unwrap();
    transaction.put(&k, "c", "own again").unwrap();
    assert_eq!(text(transaction.get(&k, "c").unwrap()).as_deref(), Some("own again"));
    assert_eq!(text(transaction.get(&k, "d").unwrap()), None);
    assert_eq!(text(transaction.get(&k, "e").unwrap()), None);
    assert!(!transaction.contains(&k, "e").unwrap() && transaction.contains(&k, "a").unwrap());
    assert_eq!(keys(transaction.iter(&k).unwrap()), "abc");
    assert_eq!(keys(transaction.iter(&k).unwrap().rev()), "cba");
    let mut both_ends = transaction.iter(&k).unwrap();
    let (first, last) = (both_ends.next().unwrap(), both_ends.next_back().unwrap());
    assert_eq!((&*first.unwrap().key, &*last.unwrap().key), (&b"a"[..], &b"c"[..]));
    drop(both_ends);
    assert_eq!(&*transaction.first(&k).unwrap().unwrap().key, b"a");
    assert_eq!(&*transaction.last(&k).unwrap().unwrap().value, b"own again");
    let entry = transaction.get_entry(&k, "b").unwrap().unwrap();
    assert_eq!((&*entry.value, entry.seqno), (&b"own"[..], SeqNo::MAX));
    let values = transaction.multi_get(&k, &["e", "a", "b"]).unwrap();
    assert_eq!(
        values.into_iter().map(text).collect::<Vec<_>>(),
        [None, Some("old".into()), Some("own".into())]
    );
    // Others see nothing of it.
    assert_eq!(keys(k.iter()), "acde");
}

#[test]
fn what_was_read_and_changed_since_is_a_conflict() {
    let (db, k) = open();
    k.put("a", "1").unwrap();
    let mut transaction = db.begin_update();
    transaction.get(&k, "a").unwrap();
    transaction.put(&k, "b", "from a").unwrap();
    k.put("a", "2").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Conflict)));
    assert!(matches!(transaction.commit(), Err(Error::TransactionEnded)));
    assert_eq!(k.get("b").unwrap(), None, "nothing of it has happened");
    let stats = db.stats();
    assert_eq!((stats.transaction_conflicts, stats.transactions_open), (1, 0));
}

#[test]
fn writes_that_were_not_read_do_not_conflict() {
    let (db, k) = open();
    let mut transaction = db.begin_update();
    transaction.get(&k, "a").unwrap();
    transaction.put(&k, "blind", "theirs").unwrap();
    transaction.get(&k, "blind").unwrap(); // its own
    k.put("blind", "ours").unwrap();
    k.put("aa", "beside").unwrap();
    let stamp = transaction.commit().unwrap();
    assert_eq!(transaction.commit().unwrap(), stamp, "committing again is harmless");
    assert_eq!(text(k.get("blind").unwrap()).as_deref(), Some("theirs"));
    assert_eq!(k.get_entry("blind").unwrap().unwrap().seqno, stamp);
}

#[test]
fn one_that_writes_nothing_never_conflicts() {
    let (db, k) = open();
    k.put("a", "1").unwrap();
    let mut transaction = db.begin_update();
    assert_eq!(keys(transaction.iter(&k).unwrap()), "a");
    k.put("a", "2").unwrap();
    assert_eq!(transaction.commit().unwrap(), transaction.commit().unwrap());
    assert_eq!(db.stats().transaction_commits, 0);
}

#[test]
fn two_that_each_read_what_the_other_writes_cannot_both_commit() {
    let (db, k) = open();
    for key in ["x", "y"] {
        k.put(key, "on duty").unwrap();
    }
    let (mut first, mut second) = (db.begin_update(), db.begin_update());
    for transaction in [&first, &second] {
        assert_eq!(transaction.range(&k, "x"..="y").unwrap().count(), 2);
    }
    first.delete(&k, "x").unwrap();
    second.delete(&k, "y").unwrap();
    first.commit().unwrap();
    assert!(matches!(second.commit(), Err(Error::Conflict)));
}

#[test]
fn a_key_that_appears_in_a_range_that_was_walked_is_a_conflict() {
    let (db, k) = open();
    for key in ["b", "d", "f"] {
        k.put(key, "").unwrap();
    }
    // What the walk reads, what comes, and whether that is a conflict.
    type Walk = fn(&Transaction, &Keyspace);
    let cases: [(Walk, &str, bool); 12] = [
        (|t, k| drop(t.range(k, "c".."e").unwrap().collect::<Vec<_>>()), "c", true),
        (|t, k| drop(t.range(k, "c".."e").unwrap().collect::<Vec<_>>()), "e", false),
        (|t, k| drop(t.prefix(k, "c").unwrap().collect::<Vec<_>>()), "cx", true),
        (|t, k| drop(t.iter(k).unwrap().next()), "a", true), // in front of the first
        (|t, k| drop(t.iter(k).unwrap().next()), "c", false),
        (|t, k| drop(t.iter(k).unwrap().next_back()), "g", true),
        (|t, k| drop(t.iter(k).unwrap().next_back()), "e", false),
        (|t, k| drop(t.iter(k).unwrap()), "b", false), // it has read nothing
        (|t, k| t.cursor(k, KeyRange::all()).unwrap().seek("c").unwrap(), "cc", true),
        (|t, k| t.cursor(k, KeyRange::all()).unwrap().seek("c").unwrap(), "e", false),
        (|t, k| t.cursor(k, KeyRange::all()).unwrap().seek("z").unwrap(), "zz", true),
        (|t, k| std::mem::forget(t.cursor(k, KeyRange::all()).unwrap()), "m", true),
    ];
    for (index, (walk, key, conflicts)) in cases.into_iter().enumerate() {
        let mut transaction = db.begin_update();
        walk(&transaction, &k);
        transaction.put(&k, "own", "").unwrap();
        k.put(key, "new").unwrap();
        assert_eq!(transaction.commit().is_err(), conflicts, "case {index}");
        let mut undo = WriteBatch::new();
        for key in [key, "own"] {
            undo.delete(&k, key);
        }
        undo.put(&k, "b", "");
        db.write(undo).unwrap();
    }
}

#[test]
fn a_cursor_that_turns_has_read_from_its_lowest_to_its_highest_place() {
    let (db, k) = open();
    for key in ["b", "d", "f", "h", "j"] {
        k.put(key, "").unwrap();
    }
    for (key, conflicts) in [("c", false), ("e", true), ("g", true), ("i", false)] {
        let mut transaction = db.begin_update();
        let mut cursor = transaction.cursor(&k, KeyRange::all()).unwrap();
        cursor.seek("f").unwrap();
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), b"d");
        cursor.next().unwrap();
        cursor.next().unwrap();
        assert_eq!(
            (cursor.key(), cursor.value().unwrap(), cursor.valid()),
            (&b"h"[..], &b""[..], true)
        );
        drop(cursor);
        transaction.put(&k, "own", "").unwrap();
        k.put(key, "new").unwrap();
        assert_eq!(transaction.commit().is_err(), conflicts, "{key}");
        k.delete(key).unwrap();
        k.delete("own").unwrap();
    }
}

#[test]
fn commits_are_known_after_their_memtables_were_flushed() {
    let (db, k) = open();
    k.put("a", "1").unwrap();
    let (mut reader, mut other) = (db.begin_update(), db.begin_update());
    reader.get(&k, "a").unwrap();
    other.get(&k, "z").unwrap();
    k.put("a", "2").unwrap();
    db.flush().unwrap();
    k.put("q", "").unwrap();
    db.flush().unwrap();
    assert!(db.stats().transaction_bytes_kept > 0);
    reader.put(&k, "b", "").unwrap();
    other.put(&k, "c", "").unwrap();
    assert!(matches!(reader.commit(), Err(Error::Conflict)));
    other.commit().unwrap();
    assert_eq!(db.stats().transaction_bytes_kept, 0, "nobody is left to need them");
}

#[test]
fn one_that_needs_more_memtables_than_are_kept_conflicts() {
    let budget = 8 << 20;
    let db = builder().memory_budget(budget).open("/db").unwrap();
    // What is in value files is not in memtables.
    let k = db.create_keyspace("k", KeyspaceOptions::flex().value_separation(None)).unwrap();
    let other = db.keyspace_or_create("o").unwrap();
    let (mut reader, mut of_other) = (db.begin_update(), db.begin_update());
    reader.get(&k, "a").unwrap();
    of_other.get(&other, "a").unwrap();
    for round in 0..8u32 {
        for number in 0..40u32 {
            let key = [round.to_be_bytes(), number.to_be_bytes()].concat();
            k.put(key, vec![7; 16 << 10]).unwrap();
        }
        db.flush().unwrap();
    }
    assert!(db.stats().transaction_bytes_kept <= budget / 4);
    reader.put(&k, "b", "").unwrap();
    of_other.put(&other, "b", "").unwrap();
    assert!(matches!(reader.commit(), Err(Error::Conflict)));
    of_other.commit().unwrap();
    // It is over with that: the next one has nothing to do with what was forgotten.
    let mut next = db.begin_update();
    next.get(&k, "a").unwrap();
    next.put(&k, "b", "").unwrap();
    next.commit().unwrap();
}

#[test]
fn a_keyspace_that_was_read_and_is_gone_is_a_conflict() {
    let (db, k) = open();
    let other = db.keyspace_or_create("other").unwrap();
    let mut transaction = db.begin_update();
    transaction.get(&other, "a").unwrap();
    transaction.put(&k, "a", "").unwrap();
    db.drop_keyspace("other").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Conflict)));
    let later = db.keyspace_or_create("later").unwrap();
    let before = db.begin_update();
    drop(before);
    let mut writer = db.begin_update();
    writer.put(&later, "a", "").unwrap();
    db.drop_keyspace("later").unwrap();
    assert!(matches!(writer.commit(), Err(Error::KeyspaceNotFound { .. })));
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    let (db, k) = open();
    let other = db.keyspace_or_create("other").unwrap();
    let mut transaction = db.begin_update();
    let start = transaction.savepoint().unwrap();
    transaction.put(&k, "a", "1").unwrap();
    let first = transaction.savepoint().unwrap();
    transaction.put(&k, "a", "2").unwrap();
    transaction.put(&other, "b", "2").unwrap();
    let second = transaction.savepoint().unwrap();
    transaction.delete(&k, "a").unwrap();
    transaction.rollback_to(second).unwrap();
    assert_eq!(text(transaction.get(&k, "a").unwrap()).as_deref(), Some("2"));
    transaction.rollback_to(first).unwrap();
    assert_eq!(text(transaction.get(&k, "a").unwrap()).as_deref(), Some("1"));
    assert_eq!(transaction.get(&other, "b").unwrap(), None);
    let gone = transaction.rollback_to(second);
    assert!(matches!(gone, Err(Error::InvalidArgument { .. })), "{gone:?}");
    transaction.put(&k, "c", "3").unwrap();
    transaction.rollback_to(first).unwrap();
    transaction.put(&k, "d", "4").unwrap();
    transaction.commit().unwrap();
    assert_eq!((keys(k.iter()), keys(other.iter())), ("ad".into(), String::new()));
    let mut undone = db.begin_update();
    let start_of_other = undone.savepoint().unwrap();
    undone.put(&k, "e", "").unwrap();
    undone.rollback_to(start_of_other).unwrap();
    undone.commit().unwrap();
    assert_eq!(keys(k.iter()), "ad");
    assert_eq!(start, start_of_other, "numbers are a transaction's own");
}

#[test]
fn one_that_is_over_says_so_and_ending_it_again_is_harmless() {
    let (db, k) = open();
    let mut rolled_back = db.begin_update();
    rolled_back.put(&k, "a", "").unwrap();
    rolled_back.rollback();
    rolled_back.rollback();
    let mut committed = db.begin_update();
    committed.put(&k, "b", "").unwrap();
    committed.commit().unwrap();
    committed.rollback();
    assert_eq!(keys(k.iter()), "b", "a commit stays");
    for transaction in [&mut rolled_back, &mut committed] {
        assert!(!transaction.is_open());
        assert!(matches!(transaction.get(&k, "a"), Err(Error::TransactionEnded)));
        assert!(matches!(transaction.put(&k, "a", ""), Err(Error::TransactionEnded)));
        assert!(matches!(transaction.iter(&k).map(drop), Err(Error::TransactionEnded)));
        assert!(matches!(transaction.savepoint(), Err(Error::TransactionEnded)));
        assert!(matches!(transaction.seqno(), Err(Error::TransactionEnded)));
    }
    drop(db.begin_update());
    assert_eq!(db.stats().transactions_open, 0);
}

#[test]
fn a_refused_write_leaves_the_transaction_as_it_was() {
    let (db, k) = open();
    let (_, foreign) = open();
    let mut transaction = db.begin_update();
    transaction.put(&k, "a", "").unwrap();
    let too_long = vec![0; crate::KEY_LEN_MAX + 1];
    assert!(matches!(transaction.put(&k, too_long, ""), Err(Error::InvalidArgument { .. })));
    assert!(transaction.put(&foreign, "b", "").is_err());
    assert!(transaction.get(&foreign, "b").is_err());
    transaction.commit().unwrap();
    assert_eq!(keys(k.iter()), "a");
}

#[test]
fn update_runs_again_after_a_conflict_and_gives_up_in_the_end() {
    let (db, k) = open();
    let mut runs = 0;
    let value = db.update(|transaction| {
        runs += 1;
        let seen = transaction.get(&k, "a")?;
        if runs < 4 {
            k.put("a", format!("{runs}"))?; // another commit, in between
        }
        transaction.put(&k, "b", "")?;
        Ok::<_, Error>(text(seen))
    });
    assert_eq!((value.unwrap().as_deref(), runs), (Some("3"), 4));
    runs = 0;
    let refused = db.update(|transaction| {
        runs += 1;
        transaction.watch(&k, "a")?;
        k.put("a", "again")?;
        transaction.put(&k, "never", "")
    });
    assert!(matches!(refused, Err(Error::Conflict)));
    assert_eq!((runs, k.get("never").unwrap()), (UPDATE_TRY_COUNT, None));
    let failed = db.update(|transaction| {
        transaction.put(&k, "never", "")?;
        Err::<(), _>(Error::invalid("the caller thinks better of it"))
    });
    assert!(failed.is_err() && k.get("never").unwrap().is_none());
    db.update(|transaction| {
        transaction.put(&k, "never", "")?;
        transaction.rollback();
        Ok::<_, Error>(())
    })
    .unwrap();
    assert!(k.get("never").unwrap().is_none());
    let seen = db.view(|snapshot| snapshot.get(&k, "b")).unwrap();
    assert!(seen.is_some());
}

#[test]
fn after_close_everything_answers_closed() {
    let (db, k) = open();
    let mut transaction = db.begin_update();
    transaction.put(&k, "a", "").unwrap();
    db.close().unwrap();
    assert!(matches!(transaction.get(&k, "a"), Err(Error::Closed)));
    assert!(matches!(transaction.commit(), Err(Error::Closed)));
}

#[test]
fn a_range_deleted_in_it_hides_what_came_before_and_not_what_comes_behind() {
    let (db, k) = open();
    for key in ["a", "b", "c", "d"] {
        k.put(key, "old").unwrap();
    }
    let mut transaction = db.begin_update();
    transaction.put(&k, "bb", "own").unwrap();
    let before = transaction.savepoint().unwrap();
    transaction.delete_range(&k, "b"..="c").unwrap();
    transaction.put(&k, "bc", "behind").unwrap();
    assert_eq!(keys(transaction.iter(&k).unwrap()), "abcd");
    assert_eq!(keys(transaction.iter(&k).unwrap().rev()), "dbca");
    assert_eq!(transaction.get(&k, "bb").unwrap(), None);
    assert_eq!(text(transaction.get(&k, "bc").unwrap()).as_deref(), Some("behind"));
    assert_eq!(
        transaction.range(&k, "bc"..="bc").unwrap().next().unwrap().unwrap().seqno,
        SeqNo::MAX
    );
    transaction.rollback_to(before).unwrap();
    assert_eq!(keys(transaction.iter(&k).unwrap()), "abbbcd");
    transaction.delete_prefix(&k, "b").unwrap();
    transaction.put(&k, "b", "again").unwrap();
    transaction.commit().unwrap();
    assert_eq!(keys(k.iter()), "abcd");
    assert_eq!(text(k.get("b").unwrap()).as_deref(), Some("again"));
}

#[test]
fn a_range_that_is_deleted_by_another_is_a_conflict_where_it_was_read() {
    let (db, k) = open();
    for key in ["a", "m", "z"] {
        k.put(key, "").unwrap();
    }
    for flush in [false, true] {
        for (range, conflicts) in [("l".."n", true), ("n".."z", false), ("b".."m", true)] {
            let mut transaction = db.begin_update();
            transaction.get(&k, "m").unwrap();
            transaction.get(&k, "c").unwrap();
            transaction.put(&k, "own", "").unwrap();
            k.delete_range(range.clone()).unwrap();
            if flush {
                db.flush().unwrap();
            }
            assert_eq!(transaction.commit().is_err(), conflicts, "{range:?}");
            k.put("m", "").unwrap();
        }
    }
}

#[test]
fn what_it_holds_is_charged_as_it_reads_and_writes() {
    let (db, k) = open();
    let charged = || db.core().budget.usage(Part::Transaction);
    let mut transaction = db.begin_update();
    for number in 0..1000_u32 {
        transaction.get(&k, [&number.to_be_bytes()[..], b"-"].concat()).unwrap();
    }
    let of_points = charged();
    assert!(of_points > 1000 * 100, "{of_points}");
    let mut cursor = transaction.cursor(&k, KeyRange::all()).unwrap();
    for number in 2000..3000_u32 {
        cursor.seek_for_prev(number.to_be_bytes()).unwrap();
        cursor.seek(number.to_be_bytes()).unwrap();
    }
    assert!(charged() < of_points, "the walks went over all points and to both ends");
    drop(cursor);
    let of_reads = charged();
    transaction.put(&k, "key", [0; 100_000]).unwrap();
    let with_write = charged();
    assert!(with_write > of_reads + 200_000, "as a batch and to be read: {with_write}");
    let savepoint = transaction.savepoint().unwrap();
    transaction.put(&k, "other", [0; 100_000]).unwrap();
    transaction.delete_range(&k, "a".."b").unwrap();
    assert!(charged() > with_write);
    transaction.rollback_to(savepoint).unwrap();
    assert!(charged() <= with_write);
    transaction.commit().unwrap();
    assert_eq!(charged(), 0);
}
