//! A writer in a process of its own, that is killed again and again.

use std::process::{Command, Stdio};
use std::time::Duration;

use lithe_sim::random::Random;
use lithedb::{Access, Builder, Db, Durability, FollowUpTo, SeqNo, WriteBatch};

use crate::support::assert_sound;

const CHILD_DIR: &str = "LITHE_FOLLOWED_DIR";
/// What it ends with when it has panicked.
const PANICKED: i32 = 101;
const NAME: &str = "follow::process::a_writer_is_followed_however_often_it_is_killed";
/// What a commit writes to each of the two keyspaces.
const KEYS_A_COMMIT: u64 = 8;

fn builder() -> Builder {
    Db::builder().memory_budget(4 << 20).memtable_size(128 << 10).wal_file_size(64 << 10)
}

/// Writes to both keyspaces the number of the commit, under the same keys, until it is killed.
fn write(dir: &std::path::Path) -> ! {
    let db = builder().open(dir).unwrap();
    let [one, other] = ["one", "other"].map(|name| db.keyspace_or_create(name).unwrap());
    let mut random = Random::new(u64::from(std::process::id()));
    let last = one.get("last").unwrap();
    let mut number = last.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
    loop {
        number += 1;
        let mut batch = WriteBatch::new();
        for _ in 0..KEYS_A_COMMIT {
            let key = random.below(3000).to_be_bytes();
            let value = number.to_be_bytes().repeat(1 + random.below(40) as usize);
            batch.put(&one, key, &value);
            batch.put(&other, key, &value);
        }
        batch.put(&one, "last", number.to_be_bytes());
        let durability = [Durability::Buffered, Durability::Sync][random.index(2)];
        db.write_with(batch, durability).unwrap();
    }
}

/// What is in one keyspace is in the other, and nothing is newer than the last commit.
fn look(db: &Db) -> u64 {
    let snapshot = db.snapshot();
    let Ok(one) = db.keyspace("one") else { return 0 };
    let Ok(other) = db.keyspace("other") else { return 0 };
    let last = snapshot.get(&one, "last").unwrap();
    let last = last.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
    let mut others = snapshot.iter(&other);
    for entry in snapshot.iter(&one) {
        let entry = entry.unwrap();
        if &*entry.key == b"last" {
            continue;
        }
        let same = others.next().unwrap().unwrap();
        assert_eq!((&entry.key, &entry.value), (&same.key, &same.value));
        let number = u64::from_be_bytes(entry.value[..8].try_into().unwrap());
        assert!(number <= last, "commit {number} shows beside {last}");
    }
    assert!(others.next().is_none());
    last
}

#[test]
fn a_writer_is_followed_however_often_it_is_killed() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        write(dir.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("db");
    let mut followers = Vec::new();
    let (mut stamps, mut seen) = ([SeqNo::ZERO; 2], [0; 2]);
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args([NAME, "--exact"]).env(CHILD_DIR, &dir).stdout(Stdio::null());
        let mut child = child.spawn().unwrap();
        while followers.len() < 2 {
            let up_to = [FollowUpTo::Durable, FollowUpTo::Written][followers.len()];
            match builder().follow(&dir, up_to) {
                Ok(follower) => followers.push(follower),
                Err(_) => std::thread::sleep(Duration::from_millis(5)), // It is being created.
            }
        }
        let start_of_round = seen;
        for look_number in 0.. {
            for (index, follower) in followers.iter().enumerate() {
                let stamp = follower.catch_up().unwrap().stamp;
                assert!(stamp >= stamps[index], "stamps only go up");
                let last = look(&follower.db());
                assert!(last >= seen[index]);
                (stamps[index], seen[index]) = (stamp, last);
            }
            let has_moved = seen.iter().zip(start_of_round).all(|(now, before)| *now > before);
            if has_moved && look_number >= 4 + round {
                break;
            }
        }
        child.kill().unwrap();
        assert_ne!(child.wait().unwrap().code(), Some(PANICKED), "round {round}");
    }
    let reader = builder().access(Access::ReadOnly).open(&dir).unwrap();
    followers[1].catch_up().unwrap();
    assert_eq!(look(&followers[1].db()), look(&reader), "what was written is all that there is");
    assert!(look(&followers[0].db()) <= look(&reader));
    drop(reader);
    let writer = builder().open(&dir).unwrap();
    writer.sync().unwrap();
    for follower in &followers {
        follower.catch_up().unwrap();
        assert_eq!(look(&follower.db()), look(&writer));
        assert_sound(&follower.db());
    }
    assert_sound(&writer);
    drop(followers);
    // Who goes clears away what was kept, or else, if the writer was looking just then, the writer
    // does when it removes something next.
    for round in 0..20_u64 {
        if writer.followers().files_held == 0 {
            break;
        }
        writer.keyspace("one").unwrap().put("last", round.to_be_bytes()).unwrap();
        writer.compact().unwrap();
    }
    assert_eq!(writer.followers().files_held, 0);
}
