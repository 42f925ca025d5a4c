//! What following the changes costs those who write. Prints figures; run by hand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lithedb::base::{Clock, Entropy, SeededEntropy, SystemClock};
use lithedb::{Db, Durability, FeedOptions, KeyspaceOptions, SeqNo, WriteBatch};

/// As in W3: keys at random, 16 and 100 bytes, in batches of 1000, one sync at the end.
const KEYS: u64 = 5_000_000;
const BATCH_LEN: u64 = 1000;
const VALUE: [u8; 100] = [0xA5; 100];
const ROUNDS: usize = 3;

/// What following came to.
struct Followed {
    /// Keys written a second.
    written: f64,
    /// Commits that were shown by when the last one was written, and in all.
    shown: (u64, u64),
    /// How long the rest took.
    rest: Duration,
}

fn load(options: KeyspaceOptions, is_followed: bool) -> Followed {
    let clock = SystemClock::new();
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().memory_budget(256 << 20).open(dir.path().join("db")).unwrap();
    let keyspace = db.create_keyspace("k", options).unwrap();
    db.create_consumer("follower", u64::MAX).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let follow = || {
            let mut follower = db.consumer("follower", FeedOptions::new()).unwrap();
            let (mut shown, mut in_time, mut last) = (0, 0, SeqNo::ZERO);
            loop {
                let ends = is_over.load(Ordering::Acquire);
                let timeout = if ends { Duration::ZERO } else { Duration::from_millis(50) };
                match follower.wait(timeout).unwrap() {
                    Some(commit) => {
                        assert!(commit.seqno > last && commit.changes.len() as u64 == BATCH_LEN);
                        last = commit.seqno;
                        follower.acknowledge(last).unwrap();
                        shown += 1;
                        in_time += u64::from(!ends);
                    }
                    None if ends => return (in_time, shown),
                    None => {}
                }
            }
        };
        let follower = is_followed.then(|| scope.spawn(follow));
        let random = SeededEntropy::new(1);
        let began = clock.monotonic();
        for _ in 0..KEYS / BATCH_LEN {
            let mut batch = WriteBatch::new();
            for _ in 0..BATCH_LEN {
                let key = [random.next_u64().to_be_bytes(), [7; 8]].concat();
                batch.put(&keyspace, key, VALUE);
            }
            db.write_with(batch, Durability::Buffered).unwrap();
        }
        db.sync().unwrap();
        let ended = clock.monotonic();
        is_over.store(true, Ordering::Release);
        let shown = follower.map_or((0, 0), |follower| follower.join().unwrap());
        assert!(!is_followed || shown.1 == KEYS / BATCH_LEN, "each commit once");
        let written = KEYS as f64 / (ended - began).as_secs_f64();
        Followed { written, shown, rest: clock.monotonic() - ended }
    })
}

#[test]
#[ignore = "prints figures; takes minutes"]
fn figures_of_a_follower() {
    for options in [KeyspaceOptions::flex(), KeyspaceOptions::lsm()] {
        let name = options.structure.name();
        for _ in 0..ROUNDS {
            let alone = load(options.clone(), false);
            let followed = load(options.clone(), true);
            println!(
                "{name}: {:.0} keys a second alone, {:.0} followed ({:.3}); {} of {} commits shown \
                 by then, the rest within {:?}",
                alone.written,
                followed.written,
                followed.written / alone.written,
                followed.shown.0,
                followed.shown.1,
                followed.rest,
            );
        }
    }
}
