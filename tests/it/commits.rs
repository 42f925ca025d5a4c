//! Commits read back from the log, with what was kept beside them.

use lithe_sim::random::Random;
use lithedb::storage::SimStorage;
use lithedb::{COMMIT_PAYLOAD_LEN_MAX, Commit, Db, Durability, Error, SeqNo, WriteBatch};

use crate::support::{PATH, assert_sound, create_tiny, step_to_rest, tiny};

/// Stamp, writes and payload.
type Expected = (SeqNo, u64, Option<Vec<u8>>);

fn open(storage: &SimStorage, kept: u64) -> Db {
    tiny(storage).kept_log_size(kept).open(PATH).unwrap()
}

fn read(db: &Db) -> Vec<Expected> {
    let commits = db.commits(..).unwrap().collect::<Result<Vec<Commit>, Error>>().unwrap();
    commits.into_iter().map(|commit| (commit.seqno, commit.operations, commit.payload)).collect()
}

/// Commits something: writes to one or two keyspaces, with a payload or not, or that alone.
fn commit_something(db: &Db, random: &mut Random) -> Expected {
    let keyspaces = ["a", "b"].map(|name| db.keyspace(name).unwrap());
    let mut batch = WriteBatch::new();
    for _ in 0..random.below(4) {
        let keyspace = &keyspaces[random.below(2) as usize];
        let key = random.below(200).to_be_bytes();
        match random.below(4) {
            0 => batch.delete(keyspace, key),
            1 => batch.delete_range(keyspace, key..(u64::MAX / 2).to_be_bytes()),
            _ => batch.put(keyspace, key, [7; 30]),
        }
    }
    let payload = (random.below(3) > 0 || batch.is_empty()).then(|| {
        let len = [0, 1, 40, 700][random.below(4) as usize];
        vec![random.below(256) as u8; len]
    });
    if let Some(payload) = &payload {
        batch.set_payload(payload.as_slice());
    }
    let operations = batch.len() as u64;
    (db.write_with(batch, Durability::Buffered).unwrap(), operations, payload)
}

#[test]
fn commits_are_read_back_through_flushes_and_reopenings() {
    let mut random = Random::new(11);
    for kept in [0, 200 << 10, u64::MAX] {
        let storage = SimStorage::new(1);
        let mut db = open(&storage, kept);
        for name in ["a", "b"] {
            create_tiny(&db, name);
        }
        let mut written = Vec::new();
        for round in 0..12 {
            for _ in 0..150 {
                written.push(commit_something(&db, &mut random));
            }
            match round % 3 {
                0 => step_to_rest(&db),
                1 => db.flush().unwrap(),
                _ => {
                    db.close().unwrap();
                    // The database remembers how much it keeps.
                    db = tiny(&storage).open(PATH).unwrap();
                }
            }
            let found = read(&db);
            assert_eq!(found, written[written.len() - found.len()..], "kept {kept}");
            assert!(kept < u64::MAX || found.len() == written.len());
            assert!(db.stats().wal_bytes_kept <= kept);
            assert_sound(&db);
        }
        let found = read(&db);
        assert!(
            kept != 200 << 10 || (500..written.len()).contains(&found.len()),
            "{}",
            found.len()
        );
    }
}

#[test]
fn any_commit_and_any_range_is_found() {
    let storage = SimStorage::new(1);
    let db = open(&storage, u64::MAX);
    for name in ["a", "b"] {
        create_tiny(&db, name);
    }
    let mut random = Random::new(5);
    let written: Vec<Expected> = (0..400).map(|_| commit_something(&db, &mut random)).collect();
    db.flush().unwrap();
    for _ in 0..200 {
        let index = random.below(written.len() as u64) as usize;
        let end = index + random.below((written.len() - index) as u64) as usize;
        let (seqno, operations, payload) = &written[index];
        let found = db.commit_at(*seqno).unwrap().unwrap();
        assert_eq!((found.operations, &found.payload), (*operations, payload));
        let last = written[end].0;
        let stamps =
            |commits: lithedb::Commits| commits.map(|c| c.unwrap().seqno).collect::<Vec<_>>();
        let expected: Vec<SeqNo> = written[index..end].iter().map(|row| row.0).collect();
        assert_eq!(stamps(db.commits(*seqno..last).unwrap()), expected);
        let behind: Vec<SeqNo> = written[index + 1..].iter().map(|row| row.0).collect();
        let bounds = (std::ops::Bound::Excluded(*seqno), std::ops::Bound::Unbounded);
        assert_eq!(stamps(db.commits(bounds).unwrap()), behind);
    }
    let between = SeqNo::from_u64(written[399].0.as_u64() + 1);
    assert_eq!(db.commit_at(between).unwrap(), None);
    assert_eq!(db.commits(between..).unwrap().count(), 0);
}

#[test]
fn asking_for_what_may_be_gone_is_an_error() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 0);
    for name in ["a", "b"] {
        create_tiny(&db, name);
    }
    let mut random = Random::new(6);
    let written: Vec<Expected> = (0..600).map(|_| commit_something(&db, &mut random)).collect();
    db.flush().unwrap();
    let oldest = read(&db).first().map(|row| row.0);
    assert!(oldest != Some(written[0].0), "the log was released");
    let refused = db.commits(written[0].0..).unwrap_err();
    assert!(matches!(&refused, Error::CommitsNotKept { oldest: told } if *told == oldest));
    assert!(matches!(db.commit_at(written[1].0), Err(Error::CommitsNotKept { .. })));
    // Who has seen all is told that there is nothing new.
    let last = written[599].0;
    let bounds = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
    assert_eq!(db.commits(bounds).unwrap().count(), 0);
    let next = commit_something(&db, &mut random);
    assert_eq!(db.commits(..).unwrap().last().unwrap().unwrap().seqno, next.0);
}

#[test]
fn a_reader_keeps_its_moment_and_ends_with_the_database() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 0);
    for name in ["a", "b"] {
        create_tiny(&db, name);
    }
    let mut random = Random::new(7);
    let written: Vec<Expected> = (0..20).map(|_| commit_something(&db, &mut random)).collect();
    let mut commits = db.commits(..).unwrap();
    let mut late = db.commits(..).unwrap();
    assert_eq!(late.next().unwrap().unwrap().seqno, written[0].0);
    for _ in 0..600 {
        commit_something(&db, &mut random);
    }
    db.flush().unwrap();
    for (seqno, ..) in &written {
        assert_eq!(commits.next().unwrap().unwrap().seqno, *seqno);
    }
    assert!(commits.next().is_none() && commits.next().is_none());
    db.close().unwrap();
    assert!(matches!(late.next(), Some(Err(Error::Closed))));
    assert!(late.next().is_none());
}

#[test]
fn payloads_of_transactions_are_theirs() {
    let storage = SimStorage::new(1);
    let db = open(&storage, 1 << 20);
    let a = create_tiny(&db, "a");
    let mut transaction = db.begin_update();
    transaction.put(&a, "k", "1").unwrap();
    transaction.set_payload(&b"first"[..]).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    transaction.set_payload(&b"second"[..]).unwrap();
    transaction.rollback_to(savepoint).unwrap();
    let too_long = vec![0; COMMIT_PAYLOAD_LEN_MAX + 1];
    assert!(matches!(transaction.set_payload(too_long), Err(Error::InvalidArgument { .. })));
    let seqno = transaction.commit().unwrap();
    assert!(matches!(transaction.set_payload(&b"late"[..]), Err(Error::TransactionEnded)));
    let found = db.commit_at(seqno).unwrap().unwrap();
    assert_eq!((found.operations, found.payload.as_deref()), (1, Some(&b"first"[..])));

    let mut aborted = db.begin_update();
    aborted.set_payload(&b"never"[..]).unwrap();
    aborted.rollback();
    let mut alone = db.begin_update();
    alone.set_payload(&b"alone"[..]).unwrap();
    let seqno = alone.commit().unwrap();
    let last = read(&db).pop().unwrap();
    assert_eq!(last, (seqno, 0, Some(b"alone".to_vec())));

    let mut batch = WriteBatch::new();
    batch.put(&a, "k", "2");
    batch.set_payload(vec![0; COMMIT_PAYLOAD_LEN_MAX + 1]);
    assert!(matches!(db.write(batch), Err(Error::InvalidArgument { .. })));
    assert_eq!(a.get("k").unwrap().as_deref(), Some(&b"1"[..]), "nothing changed");
    assert_eq!(read(&db).pop().unwrap(), last);
}
