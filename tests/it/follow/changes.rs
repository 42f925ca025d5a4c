//! What a writer commits, as a follower tells of it.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use lithe_sim::parallel::run_cases;
use lithedb::storage::{Operation, SimStorage};
use lithedb::{
    Background, ChangeKind, CommitChanges, Db, Durability, Encryption, Error, FeedOptions,
    FollowUpTo, FollowedChanges, SeqNo,
};

use super::{MODES, begin, folder_is_there, follow};
use crate::THREADS;
use crate::support::{PATH, create_tiny, step_to_rest, tiny, tiny_structures};

fn there(changes: &mut FollowedChanges) -> Vec<CommitChanges> {
    changes.map(Result::unwrap).collect()
}

fn stamps(commits: &[CommitChanges]) -> Vec<SeqNo> {
    commits.iter().map(|commit| commit.seqno).collect()
}

fn one_below(stamp: SeqNo) -> SeqNo {
    SeqNo::from_u64(stamp.as_u64() - 1)
}

/// Of each change the number of its keyspace and what it is, without the value of one that is
/// large.
fn told(commit: &CommitChanges) -> Vec<(u32, ChangeKind)> {
    let changes = commit.changes.iter().map(|change| {
        let kind = match change.kind.clone() {
            ChangeKind::Put { key, expires_at, .. } => {
                ChangeKind::Put { key, value: None, expires_at }
            }
            kind => kind,
        };
        (change.keyspace_id, kind)
    });
    changes.collect()
}

/// `late` is of later: what is there by then was there before.
fn assert_same(early: &CommitChanges, late: &CommitChanges, seed: u64) {
    assert_eq!((early.seqno, &early.payload), (late.seqno, &late.payload), "seed {seed}");
    assert_eq!(told(early), told(late), "seed {seed}, {}", early.seqno);
    for (early, late) in early.changes.iter().zip(&late.changes) {
        if let ChangeKind::Put { value: Some(value), .. } = &late.kind {
            let ChangeKind::Put { value: before, .. } = &early.kind else { unreachable!() };
            assert_eq!(before.as_ref(), Some(value), "seed {seed}");
        }
    }
}

#[test]
fn a_follower_tells_of_each_commit_what_the_writer_tells_of_it() {
    run_cases(THREADS, 60, |seed| {
        let (storage, mut writer, mut random) = begin(seed);
        writer.db().create_consumer("keeps the log", u64::MAX).unwrap();
        let begin = writer.db().snapshot().seqno();
        let builder = writer.builder_in(Arc::new(storage.clone()));
        let follower = builder.follow(PATH, MODES[seed as usize % 2]).unwrap();
        let mut changes = follower.changes(begin, FeedOptions::new()).unwrap();
        let mut commits: Vec<CommitChanges> = Vec::new();
        for _ in 0..120 {
            writer.act();
            match random.below(8) {
                0 | 1 => drop(follower.catch_up().unwrap()),
                2 => commits.extend(changes.wait(Duration::ZERO).unwrap()),
                3 => commits.extend(there(&mut changes)),
                4 if random.below(4) == 0 => {
                    let behind = changes.position();
                    changes = follower.changes(behind, FeedOptions::new()).unwrap();
                }
                _ => {}
            }
            let shown = follower.position().stamp;
            assert!(commits.last().is_none_or(|last| last.seqno <= shown), "seed {seed}");
        }
        writer.db().sync().unwrap();
        follower.catch_up().unwrap();
        commits.extend(there(&mut changes));
        let by_writer = writer.db().changes(begin, FeedOptions::new()).unwrap();
        let by_writer: Vec<_> = by_writer.map(Result::unwrap).collect();
        assert_eq!(stamps(&commits), stamps(&by_writer), "seed {seed}");
        assert!(commits.len() > 20, "seed {seed}: {}", commits.len());
        commits.iter().zip(&by_writer).for_each(|(early, late)| assert_same(early, late, seed));
        drop((changes, follower));
        assert!(!folder_is_there(&storage));
        true
    });
}

/// Files that the writer has done with are kept for who has not come to them, whatever view is
/// shown by then.
#[test]
fn who_is_slow_misses_nothing() {
    let storage = SimStorage::new(1);
    storage.panic_on_violation();
    let writer = tiny(&storage).wal_file_size(16 << 10).open(PATH).unwrap();
    let keyspace = create_tiny(&writer, "k");
    let follower = follow(&storage, FollowUpTo::Written);
    let mut changes = follower.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let (mut written, mut shown) = (Vec::new(), Vec::new());
    let mut views = 0;
    for number in 0..900u32 {
        written.push(keyspace.put(number.to_be_bytes(), [7; 200]).unwrap());
        if number % 50 == 49 {
            writer.flush().unwrap();
            step_to_rest(&writer);
            views += u32::from(follower.catch_up().unwrap().opened_anew);
        }
        if number % 9 == 0 {
            shown.extend(changes.next().transpose().unwrap());
        }
    }
    assert!(views > 5, "{views}");
    assert!(shown.len() < 110, "it is far behind");
    follower.catch_up().unwrap();
    shown.extend(there(&mut changes));
    assert_eq!(stamps(&shown), written);
    assert_eq!(changes.position(), follower.position().stamp);
}

#[test]
fn what_is_gone_from_the_log_is_said_to_be_and_the_rest_is_told() {
    let storage = SimStorage::new(1);
    let open = || tiny(&storage).wal_file_size(16 << 10).open(PATH).unwrap();
    let writer = open();
    let keyspace = create_tiny(&writer, "k");
    let first = keyspace.put("first", "1").unwrap();
    for number in 0..300u32 {
        keyspace.put(number.to_be_bytes(), [7; 200]).unwrap();
    }
    writer.flush().unwrap();
    step_to_rest(&writer);
    let last = keyspace.put("last", "1").unwrap();
    let follower = follow(&storage, FollowUpTo::Written);
    let Err(Error::CommitsNotKept { oldest: Some(oldest) }) =
        follower.changes(first, FeedOptions::new())
    else {
        panic!("they are gone")
    };
    assert!(oldest > first && oldest <= last);
    let mut rest = follower.changes(one_below(oldest), FeedOptions::new()).unwrap();
    let rest = stamps(&there(&mut rest));
    assert_eq!((rest.first(), rest.last()), (Some(&oldest), Some(&last)));
    // The writer tells it alike, but for files that it has done with and that are there still.
    let Err(Error::CommitsNotKept { oldest: Some(oldest) }) =
        writer.changes(first, FeedOptions::new())
    else {
        panic!("they are gone")
    };
    let of_writer = writer.changes(one_below(oldest), FeedOptions::new()).unwrap();
    let of_writer = stamps(&of_writer.map(Result::unwrap).collect::<Vec<_>>());
    assert!(of_writer[0] == oldest && rest.ends_with(&of_writer));
    assert_eq!(writer.commits(oldest..).unwrap().count(), of_writer.len());
    assert!(follower.changes(SeqNo::MAX, FeedOptions::new()).is_err(), "of the future");
    let behind: fn(&Db) -> _ = |db| db.changes(SeqNo::ZERO, FeedOptions::new()).map(drop);
    assert!(matches!(behind(&follower.db()), Err(Error::InvalidArgument { .. })));
}

#[test]
fn behind_a_closing_nothing_is_missing() {
    let storage = SimStorage::new(1);
    let builder = || Db::builder().storage(Arc::new(storage.clone()));
    let open = || builder().background(Background::Stepped).open(PATH).unwrap();
    let writer = open();
    let last = create_tiny(&writer, "k").put("a", "1").unwrap();
    writer.close().unwrap();
    drop(writer);
    open().close().unwrap(); // Which gives up the log of before.
    let follower = follow(&storage, FollowUpTo::Written);
    let mut changes = follower.changes(last, FeedOptions::new()).unwrap();
    assert!(changes.next().is_none());
    let writer = open();
    let next = writer.keyspace("k").unwrap().put("b", "2").unwrap();
    let commit = changes.wait(Duration::ZERO).unwrap().unwrap();
    assert_eq!((commit.seqno, changes.position()), (next, next));
    let of_writer = writer.changes(last, FeedOptions::new()).unwrap();
    assert_eq!(stamps(&of_writer.map(Result::unwrap).collect::<Vec<_>>()), [next]);
    let refused = writer.changes(one_below(last), FeedOptions::new()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::CommitsNotKept { oldest: Some(at) } if at == next));
    assert_eq!(writer.commits((Bound::Excluded(last), Bound::Unbounded)).unwrap().count(), 1);
}

#[test]
fn only_what_is_asked_for_is_told_and_what_is_durable() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let [one, other] = ["one", "other"].map(|name| create_tiny(&writer, name));
    let follower = follow(&storage, FollowUpTo::Written);
    let asked = || FeedOptions::new().keyspaces([&one]);
    let mut all = follower.changes(SeqNo::ZERO, asked()).unwrap();
    let mut durable = follower.changes(SeqNo::ZERO, asked().durable_only(true)).unwrap();
    let first = one.put_with("a", "1", Durability::Sync).unwrap();
    let second = one.put_with("b", "2", Durability::Buffered).unwrap();
    other.put_with("c", "3", Durability::Buffered).unwrap();
    follower.catch_up().unwrap();
    assert_eq!(stamps(&there(&mut all)), [first, second]);
    assert_eq!(stamps(&there(&mut durable)), [first]);
    writer.sync().unwrap();
    let found = durable.wait(Duration::ZERO).unwrap().unwrap();
    assert_eq!((found.seqno, found.changes.len()), (second, 1));
    follower.close().unwrap();
    assert!(matches!(durable.next(), Some(Err(Error::Closed))));
}

#[test]
fn who_is_not_behind_reads_on_when_keys_are_rotated_and_who_is_may_be_told() {
    for is_slow in [false, true] {
        let storage = SimStorage::new(1);
        let encrypted = || tiny(&storage).encryption(Encryption::key([7; 32]));
        let writer = encrypted().open(PATH).unwrap();
        let keyspace = create_tiny(&writer, "k");
        let follower = encrypted().follow(PATH, FollowUpTo::Written).unwrap();
        let mut changes = follower.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
        let (mut written, mut shown) = (Vec::new(), Vec::new());
        for round in 0..6u8 {
            for number in 0..10 {
                written.push(keyspace.put([number], vec![round; 300]).unwrap());
            }
            if is_slow {
                follower.catch_up().unwrap();
            } else {
                while let Some(commit) = changes.wait(Duration::ZERO).unwrap() {
                    shown.push(commit.seqno);
                }
                assert_eq!(shown, written);
            }
            writer.rotate_data_key().unwrap();
            if round % 2 == 0 {
                writer.flush().unwrap();
                step_to_rest(&writer);
            }
        }
        let ended = loop {
            match changes.wait(Duration::ZERO) {
                Ok(Some(commit)) => shown.push(commit.seqno),
                Ok(None) => break None,
                Err(Error::CommitsNotKept { oldest }) => break Some(oldest),
                Err(error) => panic!("{error}"),
            }
        };
        assert!(written.starts_with(&shown));
        match ended {
            None => assert_eq!(shown, written),
            Some(oldest) => {
                assert!(is_slow, "who has come to all is told of all");
                let oldest = oldest.unwrap_or(written[written.len() - 1]);
                let mut rest = follower.changes(one_below(oldest), FeedOptions::new()).unwrap();
                assert!(written.ends_with(&stamps(&there(&mut rest))));
            }
        }
    }
}

/// Commits of large values take what they are, not what the log has of them.
#[test]
fn what_is_read_ahead_is_bounded_with_its_values() {
    let storage = SimStorage::new(1);
    let writer = tiny(&storage).open(PATH).unwrap();
    let options = tiny_structures()[0].clone().value_separation(Some(300));
    let keyspace = writer.create_keyspace("k", options).unwrap();
    let follower = follow(&storage, FollowUpTo::Written);
    let mut changes = follower.changes(SeqNo::ZERO, FeedOptions::new()).unwrap();
    let written: Vec<_> =
        (0..20u8).map(|number| keyspace.put([number], vec![number; 200 << 10]).unwrap()).collect();
    follower.catch_up().unwrap();
    let begun = storage.count_of(Operation::Read);
    assert_eq!(changes.next().unwrap().unwrap().seqno, written[0]);
    let first = storage.count_of(Operation::Read);
    assert_eq!(stamps(&there(&mut changes)), written[1..]);
    let all = storage.count_of(Operation::Read);
    assert!((first - begun) * 3 < all - begun, "{begun} {first} {all}");
}
