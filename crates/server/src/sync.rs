//! One sync of the log for all who wait for one.
//!
//! A request writes to the log without a sync and then asks for one. The thread here syncs as long
//! as somebody asks; whoever asks while a sync is under way is served by the next, as what they
//! wrote may be behind it. That waits a little for those who were just served: this is the engine's
//! group commit (`db/group/`) for callers that are not threads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lithedb::{Db, Error};
use tokio::sync::watch;

/// A sync waits no longer than this for those who are served together, however slow the disk is.
const PATIENCE_MAX: Duration = Duration::from_millis(1);
/// Syncs that are faster cost less than to sleep and be woken.
const SYNC_TIME_MIN: Duration = Duration::from_micros(20);
/// A sync of what is durable takes less, of anything else more.
const NOTHING_TO_DO: Duration = Duration::from_micros(1);

/// The thread that syncs, and how to ask it to.
#[derive(Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
    /// Turns that are over: the even ones, and the odd ones. Who waits for a turn is not woken by
    /// the one before.
    done: [watch::Receiver<Turn>; 2],
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How far it is.
#[derive(Debug, Default)]
struct Turn {
    /// The last one that has succeeded.
    number: u64,
    /// Why one has failed: behind it nothing is durable any more (the engine is read-only).
    failed: Option<Arc<str>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Those who wait for the next turn.
    waiting: usize,
    /// The turn that is under way, or was last.
    begun: u64,
    /// The thread sleeps until so many wait; to wake it for each costs a system call.
    sleeps_for: Option<usize>,
    is_closing: bool,
}

/// Why what was written may not be durable.
#[derive(Clone, Debug)]
pub struct NotSynced(pub Arc<str>);

impl Syncer {
    /// Starts the thread. Every `interval`, it syncs though nobody asks.
    pub fn start(db: Db, interval: Option<Duration>) -> std::io::Result<Syncer> {
        Syncer::start_with(move || db.sync(), interval)
    }

    fn start_with(
        sync: impl FnMut() -> Result<(), Error> + Send + 'static,
        interval: Option<Duration>,
    ) -> std::io::Result<Syncer> {
        let shared = Arc::new(Shared { state: Mutex::default(), asked: Condvar::new() });
        let (even, even_done) = watch::channel(Turn::default());
        let (odd, odd_done) = watch::channel(Turn::default());
        let thread = std::thread::Builder::new().name("lithe-sync".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.work(sync, interval, &[even, odd])
        })?;
        Ok(Syncer { shared, done: [even_done, odd_done], thread: Mutex::new(Some(thread)) })
    }

    /// Waits until all that was written before this call is durable.
    pub async fn durable(&self) -> Result<(), NotSynced> {
        let number = {
            let mut state = self.shared.lock();
            state.waiting += 1;
            let number = state.begun + 1; // What is under way may have begun too early.
            let waiting = state.waiting;
            let has_enough = state.sleeps_for.take_if(|enough| waiting >= *enough).is_some();
            drop(state);
            if has_enough {
                self.shared.asked.notify_one();
            }
            number
        };
        let mut done = self.done[(number % 2) as usize].clone();
        let turn = done.wait_for(|turn| turn.number >= number || turn.failed.is_some()).await;
        match turn.as_deref() {
            Ok(turn) if turn.number >= number => Ok(()),
            Ok(Turn { failed: Some(why), .. }) => Err(NotSynced(Arc::clone(why))),
            Ok(_) | Err(_) => Err(NotSynced("the server stops".into())),
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

    fn work(
        &self,
        mut sync: impl FnMut() -> Result<(), Error>,
        interval: Option<Duration>,
        tell: &[watch::Sender<Turn>; 2],
    ) {
        let mut group = Group::default();
        while let Some(number) = self.next(interval, &mut group) {
            let began = Instant::now();
            if let Err(error) = sync() {
                // Nothing will be durable until the database is opened anew.
                let why: Arc<str> = error.to_string().into();
                let fail = |turn: &mut Turn| turn.failed = Some(Arc::clone(&why));
                tell.iter().for_each(|tell| tell.send_modify(fail));
                return;
            }
            group.note_sync(began.elapsed());
            tell[(number % 2) as usize].send_replace(Turn { number, failed: None });
        }
    }

    /// Waits for somebody to ask, or for so long, and then for a group; `None` when it is time to
    /// end.
    fn next(&self, interval: Option<Duration>, group: &mut Group) -> Option<u64> {
        let mut state = self.lock();
        state = self.gather(state, group);
        if state.waiting == 0 {
            state = self.sleep(state, interval, 1).0;
        }
        if state.waiting == 0 && state.is_closing {
            return None;
        }
        state.begun += 1;
        group.served = std::mem::take(&mut state.waiting);
        Some(state.begun)
    }

    /// Waits for those who were just served, as long as some come.
    fn gather<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        group: &Group,
    ) -> MutexGuard<'s, State> {
        let all = group.served + state.waiting;
        let began = Instant::now();
        while all > 1 && began.elapsed() < group.patience() {
            let before = state.waiting;
            let left = group.patience().saturating_sub(began.elapsed());
            let (later, is_late) = self.sleep(state, Some(group.quiet().min(left)), all);
            state = later;
            if !is_late || state.waiting == before {
                break;
            }
        }
        state
    }

    /// Sleeps until so many wait, or it is to end, or the time is over; whether it is.
    fn sleep<'s>(
        &self,
        mut state: MutexGuard<'s, State>,
        longest: Option<Duration>,
        enough: usize,
    ) -> (MutexGuard<'s, State>, bool) {
        let goes_on = |state: &mut State| state.waiting < enough && !state.is_closing;
        state.sleeps_for = Some(enough);
        let (mut state, is_late) = match longest {
            Some(longest) => {
                let waited = self.asked.wait_timeout_while(state, longest, goes_on);
                let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                (state, waited.timed_out())
            }
            None => {
                let waited = self.asked.wait_while(state, goes_on);
                (waited.unwrap_or_else(PoisonError::into_inner), false)
            }
        };
        state.sleeps_for = None;
        (state, is_late)
    }
}

/// For how long a sync waits for more to cover.
///
/// Who was served asks again soon, or has something else to do. A sync for half of them is followed
/// by one for the other half, which had to wait for it: so the next one begins when all have asked
/// again, or nobody has for half of the time that a sync takes, or 250 µs. Then a processor has
/// nothing to do, or does something else.
#[derive(Debug, Default)]
struct Group {
    /// By the last sync.
    served: usize,
    /// About what a sync takes, when nothing disturbs it.
    sync_time: Duration,
}

impl Group {
    /// How long the next sync waits at most.
    fn patience(&self) -> Duration {
        match self.sync_time {
            time if time < SYNC_TIME_MIN => Duration::ZERO,
            time => (time * 8).min(PATIENCE_MAX),
        }
    }

    /// When nobody comes for so long, nobody is expected.
    fn quiet(&self) -> Duration {
        (self.sync_time / 2).min(self.patience() / 4)
    }

    /// A sync took so long. Some take far longer than most, so one that does counts little.
    fn note_sync(&mut self, took: Duration) {
        if took < NOTHING_TO_DO {
            return; // All was durable.
        }
        self.sync_time = match self.sync_time {
            Duration::ZERO => took,
            time if took < time => (time * 3 + took) / 4,
            time => (time + time / 16).min(took),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use lithedb::storage::MemoryStorage;
    use lithedb::{Durability, WriteBatch};

    use super::*;

    const SYNC_TIME: Duration = Duration::from_micros(80);

    #[test]
    fn syncs_wait_for_a_time_that_is_in_proportion() {
        let mut group = Group::default();
        assert_eq!(group.patience(), Duration::ZERO, "nothing is known yet");
        group.note_sync(SYNC_TIME);
        assert_eq!((group.patience(), group.quiet()), (SYNC_TIME * 8, SYNC_TIME / 2));
        group.note_sync(Duration::from_secs(1));
        assert!(group.quiet() < SYNC_TIME, "one that takes far longer counts little");
        (0..1000).for_each(|_| group.note_sync(Duration::from_secs(1)));
        assert_eq!((group.patience(), group.quiet()), (PATIENCE_MAX, PATIENCE_MAX / 4));
        (0..100).for_each(|_| group.note_sync(SYNC_TIME_MIN / 2));
        assert_eq!(group.patience(), Duration::ZERO, "it costs less than to be woken");
    }

    #[test]
    fn the_one_who_completes_a_group_wakes_the_thread() {
        let shared = Arc::new(Shared { state: Mutex::default(), asked: Condvar::new() });
        let syncer = Syncer {
            shared: Arc::clone(&shared),
            done: [watch::channel(Turn::default()).1, watch::channel(Turn::default()).1],
            thread: Mutex::default(),
        };
        let asks = std::thread::spawn(move || {
            while syncer.shared.lock().sleeps_for != Some(2) {
                std::thread::yield_now();
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            (0..2).for_each(|_| assert!(runtime.block_on(syncer.durable()).is_err(), "no thread"));
        });
        // Without an end: it is woken, or sleeps for ever.
        let (state, is_late) = shared.sleep(shared.lock(), None, 2);
        assert_eq!((state.waiting, is_late, state.sleeps_for), (2, false, None));
        drop(state);
        asks.join().unwrap();
    }

    /// With syncs that take as long as groups are gathered for, and one at last that fails.
    #[test]
    fn nobody_is_told_of_a_sync_that_began_before_it_asked() {
        const SYNC_COUNT: u64 = 200;
        let begun = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicU64::new(0));
        let sync = {
            let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
            move || {
                let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::sleep(SYNC_TIME);
                if number > SYNC_COUNT {
                    return Err(Error::Closed);
                }
                ended.store(number, Ordering::SeqCst);
                Ok(())
            }
        };
        let syncer = Arc::new(Syncer::start_with(sync, None).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (syncer, begun, ended) =
                    (Arc::clone(&syncer), Arc::clone(&begun), Arc::clone(&ended));
                runtime.spawn(async move {
                    let mut count = 0;
                    loop {
                        let before = begun.load(Ordering::SeqCst);
                        if syncer.durable().await.is_err() {
                            return count;
                        }
                        assert!(ended.load(Ordering::SeqCst) > before);
                        count += 1;
                    }
                })
            })
            .collect();
        let served: u64 = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
        assert_eq!(begun.load(Ordering::SeqCst), SYNC_COUNT + 1, "each is for somebody");
        assert!(served >= SYNC_COUNT, "{served}");
        assert!(runtime.block_on(syncer.durable()).is_err(), "it has failed");
    }

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
