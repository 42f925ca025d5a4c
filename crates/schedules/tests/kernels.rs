//! What is lock-free and small, by itself, in every order that the memory model allows, up to some
//! number of changes of thread: `just kernels`, which builds it with `--cfg loom`.
//!
//! Loom takes sequentially consistent loads and stores for acquiring and releasing ones. So each of
//! them has a fence of that order beside it here, which loom knows.

#![cfg(loom)]

#[path = "../../../src/memtable/readers.rs"]
mod readers;
#[path = "../../../src/db/visible.rs"]
mod visible;

/// What the files above take from the library.
mod base {
    pub mod sync {
        use std::cell::Cell;

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mistake {
            StateBeforeStamp,
        }

        thread_local! {
            /// Of this thread, which has all threads of a model on it.
            static PLANTED: Cell<Option<Mistake>> = const { Cell::new(None) };
        }

        pub fn plant(mistake: Option<Mistake>) {
            PLANTED.set(mistake);
        }

        pub fn is_planted(mistake: Mistake) -> bool {
            PLANTED.get() == Some(mistake)
        }

        pub mod atomic {
            pub use loom::sync::atomic::Ordering;
            use loom::sync::atomic::fence;

            macro_rules! atomic {
                ($name:ident, $value:ty) => {
                    #[derive(Debug, Default)]
                    pub struct $name(loom::sync::atomic::$name);

                    #[allow(dead_code, reason = "not all are counted with, or made with a value")]
                    impl $name {
                        pub fn new(value: $value) -> $name {
                            $name(loom::sync::atomic::$name::new(value))
                        }

                        pub fn load(&self, order: Ordering) -> $value {
                            if order == Ordering::SeqCst {
                                fence(order);
                            }
                            self.0.load(order)
                        }

                        pub fn store(&self, value: $value, order: Ordering) {
                            self.0.store(value, order);
                            if order == Ordering::SeqCst {
                                fence(order);
                            }
                        }

                        pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                            let before = self.0.fetch_add(value, order);
                            if order == Ordering::SeqCst {
                                fence(order);
                            }
                            before
                        }

                        pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                            self.0.fetch_sub(value, order)
                        }
                    }
                };
            }

            atomic!(AtomicUsize, usize);
            atomic!(AtomicU32, u32);
            atomic!(AtomicU64, u64);
        }
    }
}

use std::sync::Arc;

use base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use base::sync::{Mistake, plant};
use loom::thread;
use readers::{Grace, Readers};
use visible::Visible;

/// Two nodes, and which of them can be reached.
struct Tree {
    readers: Readers,
    top: AtomicUsize,
    /// Atomic, and `Relaxed`, so that seeing what is written too early is an answer and no more.
    nodes: [AtomicU32; 2],
}

/// What a node has while it can be reached, and what is written to it when it is used again.
const WHOLE: u32 = 7;
const REUSED: u32 = 8;

fn tree() -> Arc<Tree> {
    let tree = Tree {
        readers: Readers::default(),
        top: AtomicUsize::default(),
        nodes: [AtomicU32::default(), AtomicU32::default()],
    };
    tree.nodes.iter().for_each(|node| node.store(WHOLE, Ordering::Relaxed));
    Arc::new(tree)
}

/// One descent (G1, N3).
fn read(tree: &Tree) {
    let _pin = tree.readers.pin();
    let node = tree.top.load(Ordering::SeqCst);
    assert_eq!(tree.nodes[node].load(Ordering::Relaxed), WHOLE, "a node that was used again");
}

/// Replaces the node, and uses the one that was there again if its grace period is over.
fn replace(tree: &Tree, looks: usize) {
    let mut grace = Grace::default();
    tree.top.store(1, Ordering::SeqCst);
    grace.begin(&tree.readers);
    if (0..looks).any(|_| grace.is_over(&tree.readers)) {
        tree.nodes[0].store(REUSED, Ordering::Relaxed); // Seen by whoever is still at it.
    }
}

fn run(reader_count: usize, write: impl Fn(&Tree) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let tree = tree();
        let readers: Vec<_> = (0..reader_count)
            .map(|_| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || read(&tree))
            })
            .collect();
        write(&tree);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn no_reader_holds_a_node_after_its_grace_period() {
    run(1, |tree| replace(tree, 2));
}

#[test]
fn nor_does_one_of_two() {
    run(2, |tree| replace(tree, 1));
}

#[test]
#[should_panic]
fn without_a_grace_period_one_does() {
    run(1, |tree| {
        tree.top.store(1, Ordering::SeqCst);
        tree.nodes[0].store(REUSED, Ordering::Relaxed);
    });
}

/// What a database publishes (D2). State 0 has memtable 0, state 1 (a seal) both, and state 2 has
/// an ingest in its versions beside them. Commit 1 is in memtable 0, commit 2 in memtable 1.
struct Database {
    visible: Visible,
    /// Which state is the newest. Swapped as `arc-swap` does: released and acquired.
    state: AtomicUsize,
    /// Which commit a memtable has. `Relaxed`, so that who sees one too late is told.
    memtables: [AtomicU32; 2],
    /// What the ingest has brought.
    ingested: AtomicU32,
}

const INGEST: u64 = 3;

fn write_and_seal(database: &Database) {
    database.memtables[0].store(1, Ordering::Relaxed);
    database.visible.publish(1);
    database.state.store(1, Ordering::Release);
    database.visible.note_replaced(1);
    database.memtables[1].store(2, Ordering::Relaxed);
    database.visible.publish(2);
}

fn ingest(database: &Database) {
    database.ingested.store(3, Ordering::Relaxed);
    database.visible.announce(2, INGEST);
    database.state.store(2, Ordering::Release);
}

/// One read: all commits up to the stamp, of which the ingest is seen whatever the stamp is, since
/// versions know none.
fn read_all(database: &Database) {
    let state = database.state.load(Ordering::Acquire);
    let Some(stamp) = database.visible.in_state(state as u64) else {
        return; // It looks again.
    };
    for commit in 1..=2 {
        if stamp >= commit {
            let index = commit as usize - 1;
            assert!(state >= index, "state {state} does not hold commit {commit}");
            let found = database.memtables[index].load(Ordering::Relaxed);
            assert_eq!(u64::from(found), commit, "commit {commit} is visible and not there");
        }
    }
    assert_eq!(state == 2, stamp >= INGEST, "state {state} with stamp {stamp}");
    if state == 2 {
        assert_eq!(database.ingested.load(Ordering::Relaxed), 3, "what was ingested");
    }
}

fn publish(mistake: Option<Mistake>, write: impl Fn(&Database) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    plant(mistake);
    model.check(move || {
        let database = Arc::new(Database {
            visible: Visible::new(0, 0),
            state: AtomicUsize::default(),
            memtables: [AtomicU32::default(), AtomicU32::default()],
            ingested: AtomicU32::default(),
        });
        let reader = {
            let database = Arc::clone(&database);
            thread::spawn(move || read_all(&database))
        };
        write(&database);
        reader.join().unwrap();
    });
}

#[test]
fn what_is_visible_is_in_the_state() {
    publish(None, write_and_seal);
}

#[test]
fn an_ingest_comes_with_its_state() {
    publish(None, |database| {
        write_and_seal(database);
        ingest(database);
    });
}

#[test]
#[should_panic]
fn looking_for_the_newest_state_first_is_found_out() {
    publish(Some(Mistake::StateBeforeStamp), write_and_seal);
}

#[test]
#[should_panic]
fn so_is_publishing_before_inserting() {
    publish(None, |database| {
        database.visible.publish(1);
        database.memtables[0].store(1, Ordering::Relaxed);
    });
}

#[test]
#[should_panic]
fn so_is_telling_of_a_state_behind_its_commits() {
    publish(None, |database| {
        database.state.store(1, Ordering::Release);
        database.memtables[1].store(2, Ordering::Relaxed);
        database.visible.publish(2);
        database.visible.note_replaced(1);
    });
}
