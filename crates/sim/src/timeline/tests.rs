//! The oracle is checked by hand-made histories: it must find what is wrong with them.

use super::*;
use crate::finding::Fault;

const DURABLE: Survival = Survival::Durable;
const ACKNOWLEDGED: Survival = Survival::Acknowledged;

fn put(keyspace: u32, key: &str, value: &str) -> Change {
    let (key, value, until) = (key.into(), Some(value.into()), Until::Never);
    Change { keyspace, key, value, until }
}

fn delete(keyspace: u32, key: &str) -> Change {
    Change { keyspace, key: key.into(), value: None, until: Until::Never }
}

/// Keyspaces 1 and 2; commit 1 to both, durable; 2 to the first; 3 to the second.
fn history() -> Timeline {
    let mut timeline = Timeline::new();
    for (name, id) in [("a", 1), ("b", 2)] {
        timeline.issue_catalog(|catalog| {
            catalog.insert(name.into(), None);
        });
        timeline.acknowledge_catalog(Some(id));
    }
    let commits = [
        (vec![put(1, "x", "0"), put(2, "x", "1"), put(1, "x", "1")], Durability::Sync),
        (vec![put(1, "y", "2")], Durability::Buffered),
        (vec![delete(2, "x"), put(2, "z", "3")], Durability::Buffered),
    ];
    for (number, (changes, durability)) in commits.into_iter().enumerate() {
        timeline.issue(0, changes);
        timeline.acknowledge(SeqNo::from_u64(number as u64 + 1), durability);
    }
    timeline
}

/// Key, value and stamp.
type TestRow<'a> = (&'a str, &'a str, u64);

fn found(rows: &[(u32, &[TestRow<'_>])]) -> Found {
    let catalog = [("a".to_string(), 1), ("b".to_string(), 2)].into();
    let mut found = Found { catalog, ..Found::default() };
    for (id, rows) in rows {
        let mut digest = Digest::default();
        for (key, value, seqno) in *rows {
            digest.add(key.as_bytes(), value.as_bytes(), (SeqNo::from_u64(*seqno), None));
        }
        found.digests.insert(*id, digest);
    }
    found
}

fn fault(verdict: Result<Moment, crate::finding::Finding>) -> Fault {
    verdict.unwrap_err().fault
}

#[test]
fn every_moment_from_the_durable_one_on_is_accepted() {
    let timeline = history();
    let one = found(&[(1, &[("x", "1", 1)]), (2, &[("x", "1", 1)])]);
    let two = found(&[(1, &[("x", "1", 1), ("y", "2", 2)]), (2, &[("x", "1", 1)])]);
    let three = found(&[(1, &[("x", "1", 1), ("y", "2", 2)]), (2, &[("z", "3", 3)])]);
    for (commit, found) in [(1, &one), (2, &two), (3, &three)] {
        assert_eq!(timeline.judge(found, DURABLE).unwrap().commit, commit);
    }
    assert_eq!(timeline.judge(&three, ACKNOWLEDGED).unwrap().commit, 3);
    assert_eq!(fault(timeline.judge(&two, ACKNOWLEDGED)), Fault::Lost);
}

#[test]
fn loss_holes_and_inventions_are_told_apart() {
    let timeline = history();
    let nothing = found(&[(1, &[]), (2, &[])]);
    assert_eq!(fault(timeline.judge(&nothing, DURABLE)), Fault::Lost);
    let hole = found(&[(1, &[("x", "1", 1)]), (2, &[("z", "3", 3)])]);
    assert_eq!(fault(timeline.judge(&hole, DURABLE)), Fault::Hole);
    let half = found(&[(1, &[("x", "1", 1)]), (2, &[])]);
    assert_eq!(fault(timeline.judge(&half, DURABLE)), Fault::Hole);
    let resurrected =
        found(&[(1, &[("x", "1", 1), ("y", "2", 2)]), (2, &[("x", "1", 1), ("z", "3", 3)])]);
    assert_eq!(fault(timeline.judge(&resurrected, DURABLE)), Fault::Wrong);
    let wrong_stamp = found(&[(1, &[("x", "1", 9)]), (2, &[("x", "1", 1)])]);
    assert_eq!(fault(timeline.judge(&wrong_stamp, DURABLE)), Fault::Wrong);
}

#[test]
fn a_commit_under_way_is_there_whole_or_not_at_all() {
    let mut timeline = history();
    timeline.mark_durable();
    timeline.issue(0, [put(1, "n", "4"), put(2, "n", "4")]);
    let without = found(&[(1, &[("x", "1", 1), ("y", "2", 2)]), (2, &[("z", "3", 3)])]);
    let with = found(&[
        (1, &[("x", "1", 1), ("y", "2", 2), ("n", "4", 77)]),
        (2, &[("z", "3", 3), ("n", "4", 77)]),
    ]);
    let half =
        found(&[(1, &[("x", "1", 1), ("y", "2", 2), ("n", "4", 77)]), (2, &[("z", "3", 3)])]);
    assert!(!timeline.judge(&without, ACKNOWLEDGED).unwrap().is_last_issued);
    assert!(timeline.judge(&with, ACKNOWLEDGED).unwrap().is_last_issued);
    assert_eq!(fault(timeline.judge(&half, DURABLE)), Fault::Hole);
    timeline.take_back();
    assert!(timeline.judge(&without, DURABLE).is_ok());
    assert_eq!(fault(timeline.judge(&with, DURABLE)), Fault::Wrong);
}

#[test]
fn keyspaces_come_and_go_as_acknowledged() {
    let mut timeline = history();
    let three = found(&[(1, &[("x", "1", 1), ("y", "2", 2)]), (2, &[("z", "3", 3)])]);
    timeline.issue_catalog(|catalog| {
        catalog.remove("b");
    });
    let mut dropped = three.clone();
    dropped.catalog.remove("b");
    dropped.digests.remove(&2);
    assert!(timeline.judge(&three, DURABLE).is_ok());
    assert!(timeline.judge(&dropped, DURABLE).is_ok());
    timeline.acknowledge_catalog(None);
    assert_eq!(fault(timeline.judge(&three, DURABLE)), Fault::Lost);
    assert!(timeline.judge(&dropped, DURABLE).is_ok());
    dropped.catalog.insert("c".into(), 3);
    assert_eq!(fault(timeline.judge(&dropped, DURABLE)), Fault::Wrong);
}

/// What a history tells, heard from the same beginning.
#[test]
fn who_is_told_of_a_history_has_the_same_one() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (mut timeline, hears) = (Timeline::new(), Arc::clone(&told));
    timeline.listen(Listener::new(move |told| hears.lock().unwrap().push(told.clone())));
    timeline.issue_catalog(|catalog| {
        catalog.insert("a".into(), None);
    });
    timeline.acknowledge_catalog(Some(1));
    timeline.issue(5, [put(1, "x", "0"), put(1, "x", "1"), put(1, "y", "2")]);
    timeline.acknowledge(SeqNo::from_u64(9), Durability::Buffered);
    timeline.issue(5, [put(1, "x", "gone")]);
    timeline.take_back();
    timeline.issue_catalog(BTreeMap::clear);
    timeline.take_back_catalog();
    timeline.mark_durable();
    let state = IndexState {
        extractor: "value".into(),
        is_unique: false,
        is_ready: false,
        is_building: true,
    };
    timeline.index_may_become(&(1, "by".into()), [Some(state.clone()), None]);
    timeline.index_is(&(1, "by".into()), Some(state.finished()));
    assert!(timeline.ask_for_checkpoint(std::path::Path::new("/c"), 6));
    timeline.checkpoint_is_made();
    timeline.key_is(1);
    timeline.key_may_be(2);
    timeline.issue(7, [delete(1, "x")]);

    let mut heard = Timeline::new();
    for told in told.lock().unwrap().drain(..) {
        heard.hear(told);
    }
    let quiet = Timeline { listener: None, ..timeline };
    assert_eq!(format!("{heard:?}"), format!("{quiet:?}"));
    assert_eq!(heard.keys, Some(vec![1, 2]));
}

#[test]
fn what_is_acknowledged_behind_a_cut_may_be_there_or_not() {
    let mut timeline = history(); // One commit of three is durable.
    timeline.note_cut();
    timeline.mark_durable();
    timeline.issue_catalog(|catalog| {
        catalog.insert("c".into(), None);
    });
    timeline.acknowledge_catalog(Some(3));
    timeline.issue(0, [put(1, "w", "4")]);
    timeline.acknowledge(SeqNo::from_u64(4), Durability::Sync);
    let before = found(&[(1, &[("x", "1", 1)]), (2, &[("x", "1", 1)])]);
    assert_eq!(timeline.judge(&before, DURABLE).unwrap().commit, 1);
    timeline.note_cut(); // The recovery was cut off, too: no more has to be there by that.
    assert_eq!(timeline.judge(&before, DURABLE).unwrap().commit, 1);
    assert_eq!(timeline.judge(&before, ACKNOWLEDGED).unwrap_err().fault, Fault::Lost);
    let mut none = found(&[(1, &[]), (2, &[])]);
    assert_eq!(timeline.judge(&none, DURABLE).unwrap_err().fault, Fault::Lost);
    none.catalog.remove("b");
    assert_eq!(timeline.judge(&none, DURABLE).unwrap_err().fault, Fault::Lost);
}
