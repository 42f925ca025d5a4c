//! Checkpoints: the database as of one moment, as another database, made while it is in use.
//!
//! ```text
//! root ........ a directory of another name beside the target, which nothing had
//! sync ........ so that commits wait for little in what follows
//! cut ......... commits wait: the manifest, every store, the log and the value files as they are
//!               then, held; nothing is copied yet (`cut.rs`)
//! link ........ files that nobody writes to any more get a name in that directory, and are let go
//! copy ........ of the others the part that the cut has, each let go when it is done; all of it
//!               synced, and then the manifest (`place.rs`)
//! rename ...... to the name that was asked for, if nothing has it, made durable
//! ```
//!
//! What comes of it is what a crash at the moment of the cut would have left: opening it replays
//! the log.
//!
//! Invariants
//! - P1  A cut has all commits up to its stamp, and none behind it: commits are held from before
//!   the manifest is looked at until all is held.
//! - P2  A store is cut behind the state, whose memtables hold what it has not; an archive right
//!   behind the structure that it belongs to (H2). So whatever flushes meanwhile, each commit is in
//!   a store or is replayed from the log.
//! - P3  What a cut has is as it was, until it is placed: runs, tables and value files are held,
//!   and log files are read (W9). Each is let go when it is linked, or when its own copy is made.
//! - P4  A file that has a name in a checkpoint is not written to, cut, punched or used again, on
//!   either side, nor by recovery, which takes it for durable: all of it was, before it got that
//!   name. Log files: W10, segments: G4; value files get it when they have no writer any more (V1);
//!   tables never change; logs of edits are copied. The simulated storage reports who breaks this.
//! - P5  Whatever fails, nothing goes but names that the call has made itself, and the directory
//!   that was asked for is not there. An interrupted one leaves a directory whose name says so.
//! - P6  What has a manifest is whole: it is made when everything else is durable, names included.
//!   So an interrupted one is a database as of the cut, or none.

mod cut;
mod place;
mod target;

pub(crate) use target::{expect_outside_databases, resolve_nearest};

use std::path::Path;

use crate::base::{Error, Result, SeqNo};
use crate::db::Db;
use crate::db::core::Core;

use place::Placing;
use target::Place;

/// What a checkpoint came to: see [`Db::checkpoint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The stamp of the newest commit that it has. It has all up to that.
    pub seqno: SeqNo,
    /// It has everything up to this stamp, and nothing behind it. That of the newest commit, unless
    /// a trail follows the database: then one behind that, which a trail can go on from.
    pub as_of: SeqNo,
    /// Files that it has.
    pub files: u64,
    /// Bytes of them, holes included.
    pub bytes: u64,
    /// Those of the files that it has in common with the database: they take no room.
    pub linked_files: u64,
    /// Bytes that were copied, holes included.
    pub copied_bytes: u64,
}

impl Db {
    /// Makes a copy of the whole database as it is now, in the directory `dir`, which must not be
    /// there; durable on return. It is a database of its own, which can be opened, written to,
    /// moved and removed, whatever becomes of this one: all keyspaces with their indexes and
    /// versions, commits that are kept to be read, consumers of changes. Which database it is a
    /// copy of shows in its id, which is the same: files of the two must not be mixed.
    ///
    /// Files that do not change any more are linked, so that both have them and their room is taken
    /// once, until one of them has removed it; where the storage has no links, or `dir` is on
    /// another file system, they are copied, without what is zero in whole blocks. So on one file
    /// system it takes milliseconds, and a few MiB: of the log, indexes, open segments, and value
    /// files of up to 8 MiB that are being written to. As long as a file is linked, no holes are
    /// made in it where runs have died, and no log file of that kind is used again: room in
    /// segments that are partly live is given back when they go
    /// ([`KeyspaceStats::bytes_shared_dead`](crate::KeyspaceStats::bytes_shared_dead)).
    ///
    /// Everything else goes on beside it. Commits wait for two syncs, and for each keyspace in
    /// turn, if a slice of a flush, of compaction or of cleaning is just being made durable there:
    /// so with many keyspaces at work for as many slices. Nothing waits while files are linked and
    /// copied. In memory are 1 MiB and the paths of all files, which no budget counts. What is
    /// linked is let go at once, so that what flushes and compaction replace goes as ever; what has
    /// to be copied is held until its own copy is made: first the files of the log, then store by
    /// store, then value files. Where everything is copied, that may be long, and takes as much
    /// room as is replaced meanwhile.
    ///
    /// It is made in a directory beside `dir` that has its name, or the beginning of a long one,
    /// with `.unfinished-checkpoint-` and a number behind it, and is renamed when it is whole.
    /// Should the process end before that, this directory stays, and nothing looks for it. It can
    /// be removed, and should be: until then it keeps the room of all that it has, as does a
    /// checkpoint that is forgotten. It has a manifest, and could be opened, only once it is whole.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use std::sync::Arc;
    /// # use lithedb::{Db, storage::MemoryStorage};
    /// # let storage = Arc::new(MemoryStorage::new());
    /// # let builder = || Db::builder().storage(Arc::clone(&storage) as _);
    /// let db = builder().open("/animals")?;
    /// let animals = db.keyspace_or_create("animals")?;
    /// animals.put("otter", "swims")?;
    /// db.checkpoint("/animals-on-monday")?;
    /// animals.put("otter", "sleeps")?;
    /// let monday = builder().open("/animals-on-monday")?;
    /// let then = monday.keyspace("animals")?.get("otter")?;
    /// assert_eq!(then.as_deref(), Some(&b"swims"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when there is anything at `dir`, also if that comes to be there before it
    /// is done, or it is within the directory of a database, this one or another, whatever leads
    /// there; `DiskFull`, `Io` of a file that could not be linked, copied or synced, `Closed` when
    /// the database is closed meanwhile: nothing was made at `dir`, what was made beside it is
    /// removed as far as that is possible, but for directories above it, and the database is as it
    /// was. `Io` when the name of `dir` could not be made durable: it is there, and may be gone
    /// after a power cut. `ReadOnly` for a database that was opened to be read or has failed, and
    /// when making the log durable fails, as after any commit.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.core().checkpoint(dir.as_ref())
    }
}

impl Core {
    fn checkpoint(&self, dir: &Path) -> Result<CheckpointReport> {
        self.check_writable()?;
        let place = Place::for_checkpoint(self, dir)?;
        let mut placing = Placing::begin(self, place)?;
        let cut = self.cut(); // Commits are let go with the end of this.
        match cut.and_then(|cut| placing.place(cut)).and_then(|()| placing.give_name()) {
            Ok(()) => Ok(placing.report),
            Err(error) => {
                placing.take_back();
                Err(error)
            }
        }
    }
}

/// That something is there already.
fn exists_already(path: &Path) -> Error {
    Error::invalid(format!("there is something at {} already", path.display()))
}
