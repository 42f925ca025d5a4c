//! One sync of the log for all who wait for one.
//!
//! A request writes to the log without a sync and then asks for one. The thread here syncs as long
//! as somebody asks; whoever asks while a sync is under way is served by the next, as what they
//! wrote may be behind it. This is the engine's group commit for callers that are not threads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lithedb::Db;
use tokio::sync::watch;

/// The thread that syncs, and how to ask it to.
#[derive(Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
    /// Turns that are over.
    done: watch::Receiver<Turn>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
struct Turn {
    number: u64,
    /// Why the last one failed: behind it nothing is durable any more (the engine is read-only).
    failed: Option<Arc<str>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The turn that somebody waits for, at least.
    wanted: u64,
    /// The turn that is under way, or was last.
    begun: u64,
    is_closing: bool,
}

/// Why what was written may not be durable.
#[derive(Clone, Debug)]
pub struct NotSynced(pub Arc<str>);

impl Syncer {
    /// Starts the thread. Every `interval`, it syncs though nobody asks.
    pub fn start(db: Db, interval: Option<Duration>) -> std::io::Result<Syncer> {
        let shared = Arc::new(Shared { state: Mutex::default(), asked: Condvar::new() });
        let (tell, done) = watch::channel(Turn::default());
        let thread = std::thread::Builder::new().name("lithe-sync".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.work(&db, interval, &tell)
        })?;
        Ok(Syncer { shared, done, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until all that was written before this call is durable.
    pub async fn durable(&self) -> Result<(), NotSynced> {
        let number = {
            let mut state = self.shared.lock();
            state.wanted = state.begun + 1; // What is under way may have begun too early.
            self.shared.asked.notify_one();
            state.wanted
        };
        let mut done = self.done.clone();
        let turn = done.wait_for(|turn| turn.number >= number || turn.failed.is_some()).await;
        match turn.as_deref() {
            Ok(Turn { failed: None, .. }) => Ok(()),
            Ok(Turn { failed: Some(why), .. }) => Err(NotSynced(Arc::clone(why))),
            Err(_closed) => Err(NotSynced("the server stops".into())),
        }
    }

    /// Ends the thread, when those who have asked are served.
    pub fn close(&self) {
        self.shared.lock().is_closing = true;
        self.shared.asked.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _it_tells_by_the_channel = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, db: &Db, interval: Option<Duration>, tell: &watch::Sender<Turn>) {
        while let Some(number) = self.next(interval) {
            let failed = db.sync().err().map(|error| error.to_string().into());
            let is_over = failed.is_some();
            tell.send_replace(Turn { number, failed });
            if is_over {
                return; // Nothing will be durable until the database is opened anew.
            }
        }
    }

    /// Waits for somebody to ask, or for so long; `None` when it is time to end.
    fn next(&self, interval: Option<Duration>) -> Option<u64> {
        let mut state = self.lock();
        let is_idle = |state: &mut State| state.wanted <= state.begun && !state.is_closing;
        state = match interval {
            Some(interval) => {
                let waited = self.asked.wait_timeout_while(state, interval, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.asked.wait_while(state, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        if state.wanted <= state.begun && state.is_closing {
            return None;
        }
        state.begun += 1;
        Some(state.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lithedb::storage::MemoryStorage;
    use lithedb::{Durability, WriteBatch};

    #[test]
    fn all_who_ask_are_served_and_the_thread_ends() {
        let db = Db::builder().storage(Arc::new(MemoryStorage::new())).open("/db").unwrap();
        let k = db.create_keyspace("k", lithedb::KeyspaceOptions::flex()).unwrap();
        let syncer = Arc::new(Syncer::start(db.clone(), None).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let tasks: Vec<_> = (0..50_u32)
            .map(|number| {
                let (db, k, syncer) = (db.clone(), k.clone(), Arc::clone(&syncer));
                runtime.spawn(async move {
                    for round in 0..20_u32 {
                        let mut batch = WriteBatch::new();
                        batch.put(&k, [number.to_be_bytes(), round.to_be_bytes()].concat(), b"v");
                        db.write_with(batch, Durability::Buffered).unwrap();
                        syncer.durable().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        assert_eq!(k.len().unwrap(), 1000);
        syncer.close();
        assert!(runtime.block_on(syncer.durable()).is_err(), "nobody would serve it");
    }
}
