//! Calls that take long, or do not come back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lithe_sim::setup::Setup;
use lithe_sim::watched::{Mutation, WatchedStorage};
use lithedb::storage::{Operation, SimStorage, SlowCall};

use super::{Told, wait_until, with_threads};
use crate::support::{PATH, create_tiny};

/// A storage whose next sync of a log file waits, when it is told to.
struct Stopped {
    storage: WatchedStorage,
    stop: Arc<AtomicBool>,
    go_on: Sender<()>,
}

fn stopped() -> Stopped {
    let (go_on, wait): (Sender<()>, Receiver<()>) = channel();
    let (wait, stop) = (Mutex::new(wait), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&stop);
    let hook = Arc::new(move |mutation: &Mutation<'_>| {
        let is_log = mutation.path.extension().is_some_and(|extension| extension == "wal");
        let is_it = mutation.operation == Operation::Sync && is_log;
        if is_it && told.swap(false, Ordering::AcqRel) {
            wait.lock().unwrap().recv().unwrap();
        }
    });
    Stopped { storage: WatchedStorage::new(SimStorage::new(1), hook), stop, go_on }
}

/// The call that waits; on a busy machine others may be slow as well.
fn is_it(call: &SlowCall) -> bool {
    call.operation == Operation::Sync && !call.is_over
}

#[test]
fn a_sync_that_does_not_come_back_is_told_while_reads_go_on() {
    let Stopped { storage, stop, go_on } = stopped();
    let told = Told::default();
    let builder = Setup::tiny(1).builder(Arc::new(storage), Arc::default(), 0);
    let builder = with_threads(builder).slow_disk_after(Duration::from_millis(20));
    let db = builder.on_health(told.listener()).open(PATH).unwrap();
    let keyspace = create_tiny(&db, "k");
    keyspace.put("a", "1").unwrap();
    stop.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| keyspace.put("b", "2"));
        wait_until(|| db.health().slow_calls.iter().any(is_it));
        let health = db.health();
        assert!(!health.is_good());
        let call = health.slow_calls.iter().find(|call| is_it(call)).unwrap();
        assert!(call.path.starts_with("/db/wal"), "{call}");
        assert!(call.duration >= Duration::from_millis(20), "{call}");
        assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"1"[..]), "reads go on");
        let is_told = || {
            let told = told.0.lock().unwrap();
            told.iter().any(|health| health.slow_calls.iter().any(is_it))
        };
        wait_until(is_told);
        go_on.send(()).unwrap();
        writer.join().unwrap().unwrap();
    });
    wait_until(|| db.health().slow_calls.iter().any(|call| call.is_over));
    assert!(db.health().slow_calls_total > 0);
    assert_eq!(keyspace.get("b").unwrap().as_deref(), Some(&b"2"[..]));
    db.close().unwrap();
}

/// Closing waits for what is under way, and that can be seen.
#[test]
fn closing_that_waits_for_a_call_is_shown_to_others() {
    let Stopped { storage, stop, go_on } = stopped();
    let builder = Setup::tiny(1).builder(Arc::new(storage), Arc::default(), 0);
    let builder = with_threads(builder).slow_disk_after(Duration::from_millis(20));
    let db = builder.open(PATH).unwrap();
    let keyspace = create_tiny(&db, "k");
    stop.store(true, Ordering::Release);
    // A flush by a thread may be faster, so small are memtables; then closing waits for that.
    keyspace.put_with("a", "1", lithedb::Durability::Buffered).unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| db.close());
        wait_until(|| db.health().slow_calls.iter().any(is_it) || closing.is_finished());
        assert!(!closing.is_finished(), "it did not wait: {:?}", closing.join());
        go_on.send(()).unwrap();
        closing.join().unwrap().unwrap();
    });
}
