//! Scrubbing: all that keyspaces have on disk is read and verified in the background, over and
//! over, at a low rate. So what has rotted is told while there is still a backup that has it, and
//! not when somebody comes to read it.
//!
//! A pass goes through the stores in the order of their numbers, by the positions of a check
//! (`check/walk.rs`): of each first the index, then the data, a slice at a time. A slice begins
//! with the structure as it is by then and lets go of that at its end, so that a pass of many hours
//! keeps no file longer than a slice takes. Nobody waits for it but a flush that comes while the
//! index of its keyspace is looked at. What is found is told by the health, and nothing follows
//! from it. The log is left out, as commits would wait, and what is in memory alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::base::sync::thread::JoinHandle;
use crate::base::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use crate::base::{Error, Result};
use crate::db::background::caught;
use crate::db::check::{CheckPosition, Throttle};
use crate::db::core::{Core, lock};
use crate::db::options::{Background, check_rate};
use crate::db::state::Runtime;
use crate::db::stats::shown_name;
use crate::structure::{CheckWalk, DataCheck, Findings};

/// `docs/decisions/0046-repair-makes-a-new-database.md` says why.
const RATE_DEFAULT: u64 = 4 << 20;
const PAUSE_DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A slice reads what the rate gives for a second, within these bounds; or one interval or table.
const SLICE_BYTES_MIN: u64 = 64 << 10;
const SLICE_BYTES_MAX: u64 = 4 << 20;
/// How long the thread waits in one go, so that it sees a pause.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// How often it looks whether it may go on.
const PAUSED_WAIT: Duration = Duration::from_millis(250);
/// Problems that are kept.
const PROBLEMS_MAX: usize = 100;

/// How all data is verified in the background: see [`Builder::scrub`](crate::Builder::scrub).
///
/// ```
/// use std::time::Duration;
/// use lithedb::{Db, ScrubOptions};
/// let day = Duration::from_secs(24 * 60 * 60);
/// let builder = Db::builder().scrub(ScrubOptions::new().rate(16 << 20).pause(day));
/// # let _ = builder;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    rate: u64,
    pause: Duration,
    from: Option<CheckPosition>,
}

impl Default for ScrubOptions {
    fn default() -> ScrubOptions {
        ScrubOptions { rate: RATE_DEFAULT, pause: PAUSE_DEFAULT, from: None }
    }
}

impl ScrubOptions {
    /// At 4 MiB a second, with a week from the end of a pass to the beginning of the next.
    #[must_use]
    pub fn new() -> ScrubOptions {
        ScrubOptions::default()
    }

    /// Bytes a second that are read at most, on average; 64 KiB or more. Nobody keeps to it with
    /// [`Background::Stepped`](crate::Background::Stepped).
    #[must_use]
    pub fn rate(self, bytes_per_second: u64) -> ScrubOptions {
        ScrubOptions { rate: bytes_per_second, ..self }
    }

    /// How long it rests behind a pass.
    #[must_use]
    pub fn pause(self, pause: Duration) -> ScrubOptions {
        ScrubOptions { pause, ..self }
    }

    /// Begins the first pass here: where an earlier opening was ([`ScrubStatus::position`]).
    #[must_use]
    pub fn resume(self, position: CheckPosition) -> ScrubOptions {
        ScrubOptions { from: Some(position), ..self }
    }

    pub(super) fn check(&self) -> Result<()> {
        check_rate("the rate of scrubbing", self.rate)
    }

    fn slice_bytes(&self) -> u64 {
        self.rate.clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX)
    }
}

/// How far scrubbing is, and what it has found: see [`Health::scrub`](crate::Health::scrub). All
/// since opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubStatus {
    /// Passes that have come to their end.
    pub passes: u64,
    /// When the last of them did, in milliseconds since 1970.
    pub last_pass: Option<u64>,
    /// Where the one under way is. Kept, and given to [`ScrubOptions::resume`], it is where the
    /// next opening goes on.
    pub position: Option<CheckPosition>,
    /// Bytes read and verified.
    pub bytes: u64,
    /// Entries looked at.
    pub entries: u64,
    /// What was wrong, a sentence each as in [`CheckReport`](crate::CheckReport), each once; the
    /// first hundred.
    pub problems: Vec<String>,
    /// How often something was wrong: again with each pass.
    pub problem_count: u64,
}

/// Whether the index of the store at hand was looked at in the pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Entry {
    #[default]
    Due,
    Done,
}

/// What is known of scrubbing.
#[derive(Debug, Default)]
struct Progress {
    status: ScrubStatus,
    /// Where the next pass begins, if not at the beginning.
    from: Option<CheckPosition>,
    entry: Entry,
    /// Whether anything was wrong with the store at hand.
    has_problems: bool,
    /// When the next pass begins.
    due_at: Duration,
}

/// Verifies everything in the background, if it is to.
#[derive(Debug)]
pub(super) struct Scrubber {
    // Constant.
    options: Option<ScrubOptions>,
    // Guarded by their locks.
    /// Held by who is at a slice.
    turn: Mutex<()>,
    progress: Mutex<Progress>,
    is_over: Mutex<bool>,
    ended: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What came of a call for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scrubbed {
    Slice,
    /// None is due for so long.
    NotFor(Duration),
}

impl Scrubber {
    pub(super) fn new(options: Option<ScrubOptions>) -> Scrubber {
        let from = options.as_ref().and_then(|options| options.from.clone());
        Scrubber {
            options,
            turn: Mutex::default(),
            progress: Mutex::new(Progress { from, ..Progress::default() }),
            is_over: Mutex::default(),
            ended: Condvar::new(),
            thread: Mutex::default(),
        }
    }

    /// Starts the thread, if there is to be one.
    pub(super) fn start(core: &Arc<Core>) -> Result<()> {
        let Some(options) = &core.scrubber.options else { return Ok(()) };
        if core.background == Background::Stepped {
            return Ok(()); // `Db::step` does it.
        }
        let (its_core, rate) = (Arc::clone(core), options.rate);
        let work = move || scrub(&its_core, rate);
        let spawned =
            crate::base::sync::thread::Builder::new().name("lithedb-scrub".to_owned()).spawn(work);
        let thread = spawned.map_err(|error| Error::io("start a thread for", &core.dir, error))?;
        *lock(&core.scrubber.thread) = Some(thread);
        Ok(())
    }

    /// Ends the thread, and waits until it is gone.
    pub(super) fn end(&self) {
        *lock(&self.is_over) = true;
        self.ended.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _its_panic_was_noted = thread.join();
        }
    }

    /// Waits until it is over, or for a while; whether it is.
    fn wait(&self, longest: Duration) -> bool {
        let guard = lock(&self.is_over);
        let waited = self.ended.wait_timeout_while(guard, longest, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// How far it is, if there is scrubbing.
    pub(super) fn status(&self) -> Option<ScrubStatus> {
        self.options.is_some().then(|| lock(&self.progress).status.clone())
    }
}

/// What the thread does until the database is closed.
fn scrub(core: &Core, rate: u64) {
    loop {
        let mut scrubbed = Scrubbed::NotFor(PAUSED_WAIT);
        if !core.pauses.is_paused() {
            let mut throttle = Throttle::new(rate, core.clock.monotonic());
            let slice = || {
                scrubbed = core.scrub_slice(&mut |bytes| core.keep_to(&mut throttle, bytes));
                Ok(true)
            };
            if !matches!(caught(core, slice), Ok(true)) {
                return; // It panicked.
            }
        }
        let wait = match scrubbed {
            Scrubbed::Slice => Duration::ZERO,
            Scrubbed::NotFor(wait) => wait,
        };
        if core.scrubber.wait(wait) {
            return;
        }
    }
}

impl Progress {
    /// Where the pass is, and whether the store at hand was entered; begins one if it is time, else
    /// how long it is until then.
    fn begin(&mut self, now: Duration) -> std::result::Result<(CheckPosition, Entry), Duration> {
        if self.status.position.is_none() {
            if now < self.due_at {
                return Err(self.due_at - now);
            }
            let from = self.from.take().unwrap_or_else(CheckPosition::beginning);
            // What a pass begins within, an earlier one has entered.
            self.entry = if from.is_at_store() { Entry::Due } else { Entry::Done };
            self.has_problems = false;
            self.status.position = Some(from);
        }
        let position = self.status.position.clone();
        Ok((position.unwrap_or_else(CheckPosition::beginning), self.entry))
    }

    fn note(&mut self, findings: &Findings) {
        let status = &mut self.status;
        status.bytes += findings.bytes;
        status.entries += findings.entries;
        status.problem_count += findings.problems.len() as u64;
        for problem in &findings.problems {
            if status.problems.len() < PROBLEMS_MAX && !status.problems.contains(problem) {
                status.problems.push(problem.clone());
            }
        }
    }

    fn go_to(&mut self, position: CheckPosition, entry: Entry) {
        self.status.position = Some(position);
        self.entry = entry;
    }

    fn end_pass(&mut self, due_at: Duration, wall_millis: u64) {
        self.status.passes += 1;
        self.status.last_pass = Some(wall_millis);
        self.status.position = None;
        self.due_at = due_at;
    }
}

impl Core {
    /// Waits as long as what was read takes at the rate. Whether to go on.
    fn keep_to(&self, throttle: &mut Throttle, bytes: u64) -> ControlFlow<()> {
        let mut left = throttle.wait_for(bytes, self.clock.monotonic());
        loop {
            let part = left.min(WAIT_MAX);
            if self.scrubber.wait(part) || self.pauses.is_paused() {
                return ControlFlow::Break(());
            }
            left -= part;
            if left.is_zero() {
                return ControlFlow::Continue(());
            }
        }
    }

    /// A slice of scrubbing for the caller's thread; `false` when none is due.
    pub(super) fn scrub_step(&self) -> bool {
        if self.scrubber.options.is_none() || self.pauses.is_paused() {
            return false;
        }
        self.scrub_slice(&mut |_| ControlFlow::Continue(())) == Scrubbed::Slice
    }

    /// Does a slice, if one is due. `keep` is told how many bytes it has read, and says whether to
    /// go on.
    fn scrub_slice(&self, keep: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Scrubbed {
        let scrubber = &self.scrubber;
        let Some(options) = &scrubber.options else { return Scrubbed::NotFor(Duration::MAX) };
        let _turn = match scrubber.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Scrubbed::NotFor(PAUSED_WAIT),
        };
        let begun = lock(&scrubber.progress).begin(self.clock.monotonic());
        let (position, entry) = match begun {
            Ok(begun) => begun,
            Err(wait) => return Scrubbed::NotFor(wait),
        };
        if position == CheckPosition::beginning() {
            self.scrub_manifest();
        }
        let Some(runtime) = self.runtime_from(position.store()) else {
            let due_at = self.clock.monotonic().saturating_add(options.pause);
            lock(&scrubber.progress).end_pass(due_at, self.clock.wall_millis());
            return Scrubbed::Slice;
        };
        // The store that it was at may be gone.
        let (position, entry) = match runtime.store_id == position.store() {
            true => (position, entry),
            false => {
                lock(&scrubber.progress).has_problems = false;
                (CheckPosition::at_store(runtime.store_id), Entry::Due)
            }
        };
        self.scrub_store(&runtime, (position, entry), (options.slice_bytes(), keep));
        Scrubbed::Slice
    }

    /// The keyspace with the lowest number of a store from this one on.
    fn runtime_from(&self, store: u32) -> Option<Arc<Runtime>> {
        let state = self.published.state();
        let all = state.keyspaces.iter().map(|keyspace| &keyspace.runtime);
        let from = all.filter(|runtime| runtime.store_id >= store);
        from.min_by_key(|runtime| runtime.store_id).map(Arc::clone)
    }

    fn scrub_manifest(&self) {
        let mut findings = Findings { names: self.names(), ..Findings::default() };
        self.check_manifest(&mut findings);
        self.note_scrubbed(None, &findings);
        if findings.problems.is_empty() {
            self.failures.note_clean(None);
        }
    }

    /// Verifies a slice of a store from a position on.
    fn scrub_store(
        &self,
        runtime: &Runtime,
        (position, entry): (CheckPosition, Entry),
        (slice_bytes, keep): (u64, &mut dyn FnMut(u64) -> ControlFlow<()>),
    ) {
        let name = shown_name(&self.published.state(), runtime);
        let names = BTreeMap::from([(runtime.id, name.clone()), (runtime.store_id, name)]);
        let mut findings = Findings { names, ..Findings::default() };
        let Some(data) = self.enter(runtime, entry, &mut findings) else { return };
        let (start, place) = (position.place().to_vec(), position.place().to_vec());
        let mut walk = ScrubWalk { start, place, slice_bytes, keep, is_broken_off: false };
        data.check_data(&mut findings, &mut walk);
        drop(data);
        self.note_scrubbed(Some(runtime.id), &findings);
        let (place, is_broken_off) = (walk.place, walk.is_broken_off);
        let mut progress = lock(&self.scrubber.progress);
        progress.has_problems |= !findings.problems.is_empty();
        if is_broken_off {
            progress.go_to(CheckPosition::within(runtime.store_id, place), Entry::Done);
            return;
        }
        let is_clean = !std::mem::take(&mut progress.has_problems);
        let next = CheckPosition::at_store(runtime.store_id.saturating_add(1));
        progress.go_to(next, Entry::Due);
        drop(progress);
        if is_clean {
            self.failures.note_clean(Some(runtime.id));
        }
    }

    /// What checks a store's data; of one that is entered, when its index was checked. `None` when
    /// the database was closed.
    fn enter(
        &self,
        runtime: &Runtime,
        entry: Entry,
        findings: &mut Findings,
    ) -> Option<Box<dyn DataCheck>> {
        if entry == Entry::Done {
            return Some(runtime.store.begin_check());
        }
        let _turn = lock(&runtime.flushing);
        if self.is_closed() {
            return None; // Under the turn, which closing waits for.
        }
        let data = runtime.store.check_index(findings);
        self.check_archived(runtime, findings);
        Some(data)
    }

    fn note_scrubbed(&self, keyspace: Option<u32>, findings: &Findings) {
        lock(&self.scrubber.progress).note(findings);
        if let Some(first) = findings.problems.first() {
            self.failures.note_found(keyspace, first.clone(), self.clock.wall_millis());
        }
    }
}

/// A slice of a walk through a store.
struct ScrubWalk<'a> {
    start: Vec<u8>,
    /// What is in front of this was checked.
    place: Vec<u8>,
    slice_bytes: u64,
    keep: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    is_broken_off: bool,
}

impl CheckWalk for ScrubWalk<'_> {
    fn start(&self) -> &[u8] {
        &self.start
    }

    fn reached(&mut self, findings: &Findings, place: &[u8]) -> ControlFlow<()> {
        self.place.clear();
        self.place.extend_from_slice(place);
        if findings.bytes >= self.slice_bytes {
            self.is_broken_off = true;
            return ControlFlow::Break(());
        }
        self.passed(findings)
    }

    fn passed(&mut self, findings: &Findings) -> ControlFlow<()> {
        let going_on = (self.keep)(findings.bytes);
        self.is_broken_off |= going_on.is_break();
        going_on
    }
}
