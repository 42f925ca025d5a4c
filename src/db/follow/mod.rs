//! Following: reading a database beside whoever writes it, in another process or this one.
//!
//! Owns what a follower is to its user. What it shows is a view (`view.rs`): a database that was
//! recovered in memory above the files of the writer, whose memtables take what comes to the
//! writer's log. Where the log does not tell what has changed, as of keyspaces that come and go and
//! of bulk ingests, and where the writer has flushed what the view has in memory, the view gives
//! way to another. The writer keeps files for views that are open; see `storage/followers.rs`. A
//! thread that brings it on by itself is in `keep_up.rs`.
//! `docs/decisions/0051-following-a-writer.md` has the reasons.

mod changes;
mod keep_up;
mod view;

use std::path::Path;

pub use self::changes::FollowedChanges;
pub use self::keep_up::KeepingUp;
use self::view::{Before, Order, Progress, View, open_view};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Arc, Mutex};
use crate::base::{Error, Result, SeqNo};
use crate::db::core::{Core, lock};
use crate::db::{Access, Builder, Db, Keyspace, Snapshot};
use crate::memory::ProcessMark;
use crate::storage::{HeldFigures, held_figures};
use crate::wal::FollowedLog;

/// How far a follower goes in the writer's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowUpTo {
    /// Up to what is durable, as the log says. Nothing that was shown is ever taken back, by no
    /// crash and no failure. That a commit is durable is in the log a moment after it was
    /// acknowledged; of commits with [`Durability::Buffered`](crate::Durability::Buffered), once
    /// something has synced them.
    #[default]
    Durable,
    /// Up to what is written, as the system has it: the newest there is. A commit may show before
    /// its writer was told that it is durable. If the writer's sync fails, and what it opens again
    /// does not have the commit, the follower stops with [`Error::WentBack`].
    Written,
}

/// How far a follower is; see [`Follower::catch_up`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaughtUp {
    /// Every commit up to this stamp shows, and none above it.
    pub stamp: SeqNo,
    /// Commits that were read for it. Where the view was opened anew, all that are in no structure
    /// yet.
    pub commits: u64,
    /// Bytes of the log that these take.
    pub log_bytes: u64,
    /// Bytes of the log that were written behind them, and are not known to be durable: what it
    /// does not show yet. 0 with [`FollowUpTo::Written`].
    pub log_bytes_behind: u64,
    /// Whether another view was opened.
    pub opened_anew: bool,
    /// Whether another view was to be opened, as this one has much in memory that the writer has
    /// flushed, or has it keep much, and none could be: see [`Follower::take_overdue`].
    pub is_overdue: bool,
}

/// A database that is read beside its writer, which may be in another process; made by
/// [`Builder::follow`]. Cheap to clone; all clones are the same follower.
///
/// It shows the database as of some commit: all of the commits up to that one, of all keyspaces,
/// and none behind it. [`Follower::catch_up`] brings it on, [`Follower::keep_up`] does that again
/// and again. Stamps only go up.
///
/// Reading is as in any database: [`Follower::db`] gives one that refuses to be written to.
/// Catching up puts another in its place now and then; so handles are taken anew behind it. One
/// that was taken before shows at least what it has shown, and need not go on. Snapshots show
/// their moment in any case.
///
/// What is written, commit by commit, is told by [`Follower::changes`]; the database that is shown
/// has no log ([`Db::commits`], [`Db::changes`]: `InvalidArgument`), and refuses whatever writes
/// (`ReadOnly`), as flushes do that versions may need.
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// use lithedb::{Db, FollowUpTo, storage::MemoryStorage};
/// # let storage = std::sync::Arc::new(MemoryStorage::new());
/// let writer = Db::builder().storage(storage.clone()).open("/db")?;
/// let counts = writer.keyspace_or_create("counts")?;
/// counts.put("a", "1")?;
///
/// let follower = Db::builder().storage(storage).follow("/db", FollowUpTo::Durable)?;
/// assert_eq!(follower.keyspace("counts")?.get("a")?.as_deref(), Some(&b"1"[..]));
/// let stamp = counts.put("a", "2")?;
/// assert_eq!(follower.catch_up()?.stamp, stamp);
/// assert_eq!(follower.keyspace("counts")?.get("a")?.as_deref(), Some(&b"2"[..]));
/// # follower.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Follower {
    shared: Arc<Shared>,
}

/// Who follows a database, and what its writer keeps for them; see [`Db::followers`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Followers {
    /// Views that followers have open.
    pub views: u64,
    /// Files that the writer has removed, and that are kept for them.
    pub files_held: u64,
    /// Bytes of these files.
    pub bytes_held: u64,
}

#[derive(Debug)]
struct Shared {
    // Constant.
    order: Order,
    /// Where it was opened.
    process: ProcessMark,
    // Guarded by their locks, taken in this order.
    /// Held by who catches up.
    view: Mutex<View>,
    /// That of the view.
    db: Mutex<Db>,
    last: Mutex<CaughtUp>,
    /// Why no other view could be opened when that was due.
    overdue: Mutex<Option<Error>>,
    // Atomic.
    is_closed: AtomicBool,
}

impl Builder {
    /// Opens the database in the directory `path` to be read beside whoever writes it, now or
    /// later, here or in another process. Any number may follow. The directory has to be one that
    /// can be written to, for a file in `followers/` by which the writer knows of it. Who follows
    /// is the user whose directory it is, or one that may give files to that one, as the superuser:
    /// the writer has to be able to look.
    ///
    /// As long as it is open, the writer removes no file that the follower may read, but keeps it
    /// in `followers/`; makes no holes in files; and does not use log files again. So what the
    /// follower shows takes room, as a snapshot does: see [`Db::followers`].
    /// It gives way by itself when the writer has flushed what it has in memory, or keeps more than
    /// 256 MiB. A file that cannot be kept, as on a full disk, is not removed, until it can. A
    /// process that is gone keeps nothing, however it went.
    ///
    /// Options count as for [`Builder::open`] with [`Access::ReadOnly`](crate::Access::ReadOnly):
    /// merge operators and extractors have to be registered, the key of an encrypted database
    /// given. The memory budget is that of each view: while one gives way to another, and as long
    /// as somebody reads an older one, there are several. What the log has that was not flushed is
    /// in memory beside it if it must be.
    ///
    /// Costs what opening does: reading the indexes, and the log that was not flushed.
    ///
    /// # Errors
    /// `Io` (`NotFound`) when there is no database, or it is just being created; `Io` also when
    /// nothing can be made in the directory, and when the database changes all the time, so that
    /// it cannot be opened (`TimedOut`). `InvalidArgument` for options out of range, `Corruption`,
    /// `FormatVersion`, `KeyNeeded`, `WrongKey`, `NotEncrypted`, `VaultFailed`, `DiskFull`.
    pub fn follow(self, path: impl AsRef<Path>, up_to: FollowUpTo) -> Result<Follower> {
        self.operators.validate()?;
        self.reducers.validate()?;
        self.extractors.validate()?;
        let order = Order::new(self, path.as_ref(), up_to);
        let (view, read) = open_view(&order, Before::default())?;
        let (db, last) = (Mutex::new(view.db.clone()), Mutex::new(opened(&view, read)));
        let (view, is_closed) = (Mutex::new(view), AtomicBool::new(false));
        let (overdue, process) = (Mutex::default(), ProcessMark::new());
        let shared = Shared { order, process, view, db, last, overdue, is_closed };
        Ok(Follower { shared: Arc::new(shared) })
    }
}

impl Db {
    /// Who follows the database ([`Builder::follow`]), and what is kept for them, as far as the
    /// directory tells. Costs a look at the directory, and at each file that is kept. Of a database
    /// that is opened to be read alone, nobody.
    #[must_use]
    pub fn followers(&self) -> Followers {
        self.core().followers()
    }
}

impl Core {
    /// See [`Db::followers`].
    pub(super) fn followers(&self) -> Followers {
        if self.access == Access::ReadOnly {
            return Followers::default();
        }
        let HeldFigures { followers, files, bytes } = held_figures(&*self.storage, &self.dir);
        Followers { views: followers, files_held: files, bytes_held: bytes }
    }
}

fn opened(view: &View, read: FollowedLog) -> CaughtUp {
    CaughtUp {
        stamp: view.stamp(),
        commits: read.records,
        log_bytes: read.bytes,
        log_bytes_behind: read.bytes_left,
        opened_anew: true,
        is_overdue: false,
    }
}

impl Follower {
    /// The database as it was when the follower caught up last. To be taken anew behind that.
    #[must_use]
    pub fn db(&self) -> Db {
        lock(&self.shared.db).clone()
    }

    /// The keyspace of this name: see [`Follower::db`].
    ///
    /// # Errors
    /// `KeyspaceNotFound`, `Closed`.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.db().keyspace(name)
    }

    /// This moment of all keyspaces.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.db().snapshot()
    }

    /// How far it is.
    #[must_use]
    pub fn position(&self) -> CaughtUp {
        *lock(&self.shared.last)
    }

    /// Goes on to what there is now. On return [`Follower::db`] shows every commit that the writer
    /// was told is durable before the call, but for one thing: that the very last of them is
    /// durable may come to the log a moment later ([`FollowUpTo::Durable`]). One call at a time
    /// works; reads do not wait.
    ///
    /// Costs reading what was added to the log, and some looks at the manifest and at the index of
    /// each keyspace; where another view is opened, what [`Builder::follow`] does.
    ///
    /// Where the view is to give way and none can be opened, it goes on, and that is no error of
    /// this: see [`CaughtUp::is_overdue`].
    ///
    /// # Errors
    /// What is shown has not changed, and the next call tries again: `Io`, `DiskFull`; `Corruption`
    /// where it is still there after several looks. As [`Builder::follow`]: the database may be
    /// gone, or encrypted with another key by now; `InvalidArgument` when another database is in
    /// its place. `WentBack`: this follower does not go on. `Closed`.
    pub fn catch_up(&self) -> Result<CaughtUp> {
        let shared = &*self.shared;
        self.check_process()?; // A thread that is not in a fork may have the lock.
        let mut view = lock(&shared.view);
        self.check_open()?;
        let caught_up = match view.read_on(shared.order.up_to)? {
            Progress::Spoilt => self.open_anew(&mut view)?,
            Progress::ToEnd(caught_up) => {
                *lock(&shared.last) = caught_up; // It shows, whatever comes of the rest.
                match view.is_out_of_date() {
                    true => self.renew(&mut view, caught_up)?,
                    false => caught_up,
                }
            }
        };
        *lock(&shared.last) = caught_up;
        Ok(caught_up)
    }

    /// Puts another view in the place of this one, which will do if none can be opened.
    fn renew(&self, view: &mut View, caught_up: CaughtUp) -> Result<CaughtUp> {
        match self.open_anew(view) {
            // It is not to be shown any more, or not the same.
            Err(
                error @ (Error::WentBack { .. } | Error::Closed | Error::InvalidArgument { .. }),
            ) => Err(error),
            Err(error) => {
                *lock(&self.shared.overdue) = Some(error);
                Ok(CaughtUp { is_overdue: true, ..caught_up })
            }
            renewed => {
                *lock(&self.shared.overdue) = None;
                renewed
            }
        }
    }

    /// Why no other view could be opened when that was due last, if it could not: told once. What
    /// is shown is right all the same, and goes on.
    #[must_use]
    pub fn take_overdue(&self) -> Option<Error> {
        lock(&self.shared.overdue).take()
    }

    /// Ends it. Handles of what it shows answer `Closed` from then on; snapshots and iterators that
    /// exist can be read on, and so can handles that were taken before another view was opened. The
    /// writer keeps files until the last of all these is dropped. Closing again does nothing.
    ///
    /// # Errors
    /// As [`Db::close`], which has nothing to write here.
    pub fn close(&self) -> Result<()> {
        self.check_process()?;
        let _nobody_catches_up = lock(&self.shared.view);
        self.shared.is_closed.store(true, Ordering::Release);
        self.db().close().map(drop)
    }

    fn check_process(&self) -> Result<()> {
        let process = &self.shared.process;
        match process.is_here() {
            true => Ok(()),
            false => Err(Error::Forked { opener: process.number() }),
        }
    }

    fn check_open(&self) -> Result<()> {
        match self.shared.is_closed.load(Ordering::Acquire) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Puts another view in the place of this one.
    fn open_anew(&self, view: &mut View) -> Result<CaughtUp> {
        view.check_place()?;
        let (next, read) = open_view(&self.shared.order, view.shown())?;
        view.check_place()?; // It may have gone back meanwhile.
        *lock(&self.shared.db) = next.db.clone();
        *view = next;
        Ok(opened(view, read))
    }
}
