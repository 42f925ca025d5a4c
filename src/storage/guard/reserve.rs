//! The reserve: room on the disk that is kept for what makes room.
//!
//! One file, `RESERVE`, whose blocks are reserved and never written (U2). When a call finds no room
//! whose work may use it, the file gets shorter by a piece, and the call is tried again. From then
//! on, and when anything else has found no room, the disk is full: whoever wants to write more
//! asks, and is refused, until the file has its length again and there is room beside for what had
//! found none.
//!
//! Nothing of it is synced: what a crash takes of it is made again when the database is opened.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::base::seeded::{Bug, is_seeded};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use crate::storage::{OpenMode, Storage, StorageFile};

/// The file's name, in the database's directory.
const NAME: &str = "RESERVE";
/// What a call needs is given in pieces of so many bytes.
const PIECE: u64 = 16 << 10;
/// .. or of this part of the reserve, if that is more.
const PIECE_DIVISOR: u64 = 16;
/// What only makes room in the end leaves this part of the reserve to what does so at once.
const KEPT_DIVISOR: u64 = 2;
/// A file that is wanted may be of any length; so much is looked for before writing goes on.
const WANTED_MAX: u64 = 64 << 20;

crate::base::sync::thread_local! {
    // It decides what the thread may do: no other one's.
    static MAY: Cell<May> = const { Cell::new(May::Nothing) };
}

/// How much of the reserve the work of a thread may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum May {
    #[default]
    Nothing,
    Half,
    All,
}

/// What the calling thread does may use the reserve, until this is dropped.
#[derive(Debug)]
pub(crate) struct ReserveUse {
    before: May,
    /// It is the thread's own.
    _here: PhantomData<*const ()>,
}

impl ReserveUse {
    /// Half of it: for what makes room in the end, as flushes and cleaning.
    pub(crate) fn of_half() -> ReserveUse {
        ReserveUse::at_least(May::Half)
    }

    /// All of it: for deletions, and what else makes room or says so.
    pub(crate) fn of_all() -> ReserveUse {
        ReserveUse::at_least(May::All)
    }

    fn at_least(may: May) -> ReserveUse {
        let before = ReserveUse::of_thread();
        // A thread that is ending may have lost it: then it may use nothing.
        let _lost = MAY.try_with(|cell| cell.set(before.max(may)));
        ReserveUse { before, _here: PhantomData }
    }

    pub(super) fn of_thread() -> May {
        MAY.try_with(Cell::get).unwrap_or_default()
    }
}

impl Drop for ReserveUse {
    fn drop(&mut self) {
        let _lost = MAY.try_with(|cell| cell.set(self.before));
    }
}

/// Room that is kept for a full disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReserveFigures {
    /// Bytes there should be: [`crate::Builder::disk_reserve`].
    pub size: u64,
    /// Bytes there are. Fewer than that, where there was no room for more.
    pub held: u64,
}

/// A disk that is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FullDisk {
    /// What first found no room.
    pub path: PathBuf,
    /// When that was, in milliseconds since 1970.
    pub since: u64,
}

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    size: u64,
    storage: OnceLock<Arc<dyn Storage>>,
    /// Whether there is a [`FullDisk`], for those who look for one.
    is_full: AtomicBool,
    changes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// None: not opened, removed, or it could not be made.
    file: Option<Arc<dyn StorageFile>>,
    held: u64,
    /// Bytes that it is to have again before writing goes on: as many as it had.
    goal: u64,
    /// Bytes beside that found no room, and have found none since, by directory: files are made
    /// anew at each try.
    wanted: BTreeMap<PathBuf, u64>,
    /// Whether this opening has made the file.
    is_new: bool,
    full: Option<FullDisk>,
}

impl Reserve {
    pub(super) fn new(root: &Path, size: u64) -> Reserve {
        Reserve {
            path: root.join(NAME),
            size,
            storage: OnceLock::new(),
            is_full: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Where its file is. Said once.
    pub(super) fn set_storage(&self, storage: Arc<dyn Storage>) {
        let _only_once = self.storage.set(storage);
    }

    /// Takes up what is there, and makes it what it should be as far as there is room: what a crash
    /// left may be needed by recovery. That there is no room, or no such file can be made, is no
    /// failure of anything but this.
    pub(super) fn open(&self) {
        let mut state = self.lock();
        if self.size == 0 || is_seeded(Bug::ReserveNotKept) {
            self.remove_file();
            return;
        }
        let Some(storage) = self.storage.get() else { return };
        let (opened, is_new) = match storage.open(&self.path, OpenMode::ReadWrite) {
            Err(_) => (storage.open(&self.path, OpenMode::CreateNew), true),
            opened => (opened, false),
        };
        let Ok(file) = opened else { return };
        let found = file.size().unwrap_or(0);
        let there = found.min(self.size);
        (state.file, state.is_new, state.held) = (Some(file), is_new, there);
        let mut length = self.size;
        while length > there && !state.lengthen(length) {
            length /= 2;
        }
        if length <= there && there > 0 {
            // A copy of the file has its length, and may have none of its blocks.
            let _as_it_is_else = state.lengthen(there);
        }
        if found > state.held || state.held < self.size {
            state.cut();
        }
        state.goal = state.held;
    }

    /// Says that recovery is over. What that took of the reserve is not to be had again before
    /// anything is written: on a disk that never had room for both, nothing would be.
    pub(super) fn note_recovered(&self) {
        let mut state = self.lock();
        if state.full.is_some() && !self.find_room(&mut state) {
            state.goal = state.held;
            self.end_full(&mut state);
        }
    }

    /// Removes it.
    pub(super) fn remove(&self) {
        if self.let_go() {
            self.remove_file();
        }
    }

    /// Leaves it to the next opening. Whether there was one.
    pub(super) fn let_go(&self) -> bool {
        let mut state = self.lock();
        (state.held, state.goal) = (0, 0);
        state.file.take().is_some()
    }

    /// The opening has come to nothing: what it has made goes, and what was there stays.
    pub(super) fn abandon(&self) {
        let is_new = self.lock().is_new;
        if self.let_go() && is_new {
            self.remove_file();
        }
    }

    fn remove_file(&self) {
        let Some(storage) = self.storage.get() else { return };
        if matches!(storage.exists(&self.path), Ok(true)) {
            let _taken_up_when_opened_again = storage.remove_file(&self.path);
        }
    }

    /// Whether only what makes room is to be written.
    #[inline]
    pub(super) fn refuses_writes(&self) -> bool {
        self.is_full.load(Ordering::Relaxed) && self.size > 0
    }

    pub(super) fn full(&self) -> Option<FullDisk> {
        self.lock().full.clone()
    }

    pub(super) fn figures(&self) -> ReserveFigures {
        ReserveFigures { size: self.size, held: self.lock().held }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Gives a piece back for `bytes` that are needed; whether there was one.
    pub(super) fn give_back(&self, may: May, bytes: u64) -> bool {
        let mut state = self.lock();
        let kept = match may {
            May::All => 0,
            May::Half => self.size / KEPT_DIVISOR,
            May::Nothing => return false,
        };
        let least = PIECE.max(self.size / PIECE_DIVISOR);
        let left = state.held.saturating_sub(bytes.max(least)).max(kept);
        let Some(file) = state.file.as_ref().filter(|_| left < state.held) else { return false };
        if file.set_len(left).is_err() {
            return false;
        }
        state.held = left;
        true
    }

    /// Says that something has found no room, be it but for the reserve; `bytes` that it still
    /// wants.
    pub(super) fn note_full(&self, path: &Path, bytes: u64, now: u64) {
        let mut state = self.lock();
        if bytes > 0 {
            let wanted = state.wanted.entry(directory_of(path).to_owned()).or_default();
            *wanted = bytes.min(WANTED_MAX).max(*wanted);
        }
        if state.full.is_none() {
            state.full = Some(FullDisk { path: path.to_owned(), since: now });
            self.is_full.store(true, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says that `bytes` have found room at `path`, be it out of the reserve, which is to be whole
    /// again: they are not wanted any more.
    #[inline]
    pub(super) fn note_found(&self, path: &Path, bytes: u64) {
        if self.is_full.load(Ordering::Relaxed) {
            let is_more = |wanted: &u64| *wanted > bytes.min(WANTED_MAX);
            let dir = directory_of(path);
            self.lock().wanted.retain(|of, wanted| of != dir || is_more(wanted));
        }
    }

    /// Says that all work is done that may have wanted room and found none, or wants it no more.
    pub(super) fn forget_wanted(&self) {
        self.lock().wanted.clear();
    }

    /// Says that something that takes room has found some: where there is no reserve, the disk is
    /// not full then.
    #[inline]
    pub(super) fn note_room(&self) {
        if self.size == 0 && self.is_full.load(Ordering::Relaxed) {
            self.end_full(&mut self.lock());
        }
    }

    /// Makes the reserve what it was, if there is room for that and for what has found none;
    /// whether the disk is not full (any more).
    pub(super) fn restore(&self) -> bool {
        let mut state = self.lock();
        state.full.is_none() || self.find_room(&mut state)
    }

    /// The same, of a disk that is full.
    fn find_room(&self, state: &mut State) -> bool {
        if self.size == 0 || state.file.is_none() {
            // There is nothing to look by: who writes finds out.
            self.end_full(state);
            return true;
        }
        let (held, goal) = (state.held, state.goal);
        let length = goal + state.wanted.values().max().copied().unwrap_or(0);
        if self.is_lacking(held, length) {
            return false;
        }
        let has_room = state.lengthen(length);
        state.held = if has_room { goal } else { held };
        state.cut();
        if has_room {
            self.end_full(state);
        }
        has_room
    }

    /// Whether the system says that there is no room to lengthen the file so far, which costs less
    /// than trying: this is asked again and again. That there is some is tried all the same, for a
    /// quota may say otherwise; as is what the system does not say.
    fn is_lacking(&self, held: u64, length: u64) -> bool {
        /// Of most file systems. With larger ones there is another try, or one later.
        const BLOCK: u64 = 4096;
        let blocks = length.div_ceil(BLOCK).saturating_sub(held.div_ceil(BLOCK));
        let dir = self.path.parent().unwrap_or(&self.path);
        let room = self.storage.get().map(|storage| storage.room(dir));
        matches!(room, Some(Ok(Some(room))) if room < blocks * BLOCK)
    }

    fn end_full(&self, state: &mut State) {
        state.full = None;
        state.wanted.clear();
        self.is_full.store(false, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

impl State {
    /// Whether there was room to make the file so long; if not, it may be longer than it was.
    fn lengthen(&mut self, length: u64) -> bool {
        let Some(file) = &self.file else { return false };
        let has_room = file.preallocate(length).is_ok();
        if has_room {
            self.held = length;
        }
        has_room
    }

    /// Gives back what the file has beside what is held.
    fn cut(&mut self) {
        let Some(file) = &self.file else { return };
        if file.set_len(self.held).is_err() {
            self.held = file.size().unwrap_or(self.held);
        }
    }
}
