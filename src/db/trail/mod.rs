//! Trails, as the database sees them: what one is told, what is kept for it meanwhile, and how a
//! database that was restored from a backup goes on along one.
//!
//! A trail lies in a repository of backups (`backup/trail/`). It has every commit behind the moment
//! when it began, whole: with its large values, and with the edits of the catalogue that came in
//! between. So it depends on no file of the database, nor on where in the log anything was.
//!
//! | file | what it owns |
//! |---|---|
//! | `follow.rs` | what is told next, and how far it was told |
//! | `marker.rs` | telling the database that a trail follows from copies of it |
//! | `replay.rs` | doing again what a trail tells |
//!
//! Invariants
//! - G1  Log and value files are kept from where the trail is durably done on, by the catalogue's
//!   record of it, also across reopening; value files that died since, until it is done with all
//!   commits of before (`value_log/kept.rs`). But not further back than it may be: then it ends,
//!   durably, before any of that goes.
//! - G2  A trail is told of what is durable alone: of all commits up to a stamp that is above them,
//!   which was given while no edit of the catalogue was on its way. No later stamp is below that,
//!   as the catalogue knows of it before the trail gets anything.
//! - G3  What changes the database otherwise than by commits has a stamp among theirs and is told
//!   (C9), or ends the trail durably before it happens, and none begins until it is there
//!   (`Core::untold`): the backup that a trail begins with has it, or the trail was ended by it. If
//!   it then comes to nothing, the end is taken back ([`TrailEnding`]).
//! - G4  A token is in the catalogue, as that of a segment to come, behind all that the segment has
//!   is durable. So a copy of the database that has the token has that as well.
//! - G5  A copy made by a checkpoint or a backup is followed by no trail: it has no marker.

mod follow;
mod marker;
mod replay;

use std::time::{Duration, SystemTime};

pub(crate) use follow::{TrailCommit, TrailCut, TrailItem};
pub(crate) use marker::is_trail_marker;
pub(in crate::db) use marker::markers_in;
pub(crate) use replay::{NotReplayed, TrailReplay};

use crate::base::sync::{Mistake, MutexGuard, PoisonError, RwLockReadGuard, is_planted};
use crate::base::{Error, Result, SeqNo};
use crate::db::Db;
use crate::db::core::{Core, lock};
use crate::db::health::changed_nothing;
use crate::db::hold::CommitHold;
use crate::manifest::{CatalogState, Edit, Manifest, TrailEnd, TrailEndReason, TrailRecord};

/// A trail that follows a database, as [`Db::trail`] tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrailStatus {
    /// Its id.
    pub trail: u64,
    /// The id of the repository that it is in.
    pub repository: u64,
    /// It has everything up to this stamp.
    pub done: SeqNo,
    /// Bytes of the log behind that: so far it is behind, and so much is kept for it.
    pub bytes_behind: u64,
    /// Bytes of the log that are kept for it, at most.
    pub log_max: u64,
    /// Bytes of value files that nothing else needs, and that are kept for it.
    pub value_bytes_kept: u64,
    /// Where and why it ends, if it does: what is behind that it does not get.
    pub end: Option<TrailEnd>,
}

impl TrailStatus {
    /// The time up to which it has everything, by the clock of the database.
    #[must_use]
    pub fn done_at(&self) -> SystemTime {
        let since = Duration::from_millis(self.done.millis());
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Whether nothing more comes to it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.done >= end.at)
    }
}

/// A trail that is to follow the database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTrail {
    /// Neither is 0.
    pub id: u64,
    pub repository: u64,
    /// Bytes of the log that are kept for it, at most.
    pub log_max: u64,
}

impl Db {
    /// The trail that follows the database, or has ended: how far it is, and what is kept for it.
    /// See [`BackupRepository::begin_trail`](crate::BackupRepository::begin_trail).
    #[must_use]
    pub fn trail(&self) -> Option<TrailStatus> {
        self.core().trail_status()
    }

    /// Has no trail follow the database any more: nothing is kept for one. What it has stays as it
    /// is, and moments up to where it was told can be restored. Durable on return. Nothing happens
    /// if none does.
    ///
    /// # Errors
    /// `DiskFull`: nothing happened. `Io`, `ReadOnly`, `Closed`.
    pub fn end_trail(&self) -> Result<()> {
        let core = self.core();
        core.check_writable()?;
        let _alone = lock(&core.trailing);
        let mut manifest = core.lock_manifest_for_edit()?;
        if manifest.state().trail().is_some() {
            core.apply_edit(&mut manifest, &Edit::RemoveTrail)?;
            core.hold_log(manifest.state());
        }
        drop(manifest);
        core.remove_markers()?;
        core.remove_unreferenced_values();
        Ok(())
    }

    /// Held by who adds to its trail, begins one or ends it.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`.
    pub(crate) fn lock_for_trail(&self) -> Result<MutexGuard<'_, ()>> {
        self.core().check_writable()?;
        Ok(lock(&self.core().trailing))
    }

    /// Has a trail follow the database from now on. The caller has the lock. Waits for ingests that
    /// are being committed.
    ///
    /// # Errors
    /// `InvalidArgument` when one does; `DiskFull`: nothing happened. `Io`, `ReadOnly`, `Closed`.
    pub(crate) fn follow(&self, new: NewTrail) -> Result<TrailRecord> {
        let core = self.core();
        let _none_is_under_way = core.untold.write().unwrap_or_else(PoisonError::into_inner); // G3
        let mut manifest = core.lock_manifest_for_edit()?;
        if manifest.state().trail().is_some_and(|trail| trail.end.is_none()) {
            return Err(Error::invalid("a trail follows the database already: end it first"));
        }
        core.put_marker(new.id)?; // Without the record it is nothing, and removed by opening.
        core.values.keep_files();
        let begun = core.begin_to_follow(&mut manifest, new);
        core.hold_log(manifest.state());
        // Only now: if it does not begin, the one that has ended is told of still, with its end.
        let settled = match &begun {
            Ok(_) => core.remove_markers_where(|id| id != new.id),
            Err(error) if changed_nothing(error) => core.remove_markers_where(|id| id == new.id),
            Err(_) => Ok(()), // Which of them the record is of, opening sees.
        };
        let _opening_does_it_if_it_fails = settled;
        begun
    }

    /// As the catalogue has it.
    pub(crate) fn trail_record(&self) -> Option<TrailRecord> {
        self.core().lock_manifest().state().trail().copied()
    }

    /// Nothing behind what the trail has can be told any more, for this reason.
    ///
    /// # Errors
    /// As an edit of the catalogue.
    pub(crate) fn give_up_trail(&self, reason: TrailEndReason) -> Result<()> {
        let core = self.core();
        let mut manifest = core.lock_manifest_for_edit()?;
        let Some(trail) = manifest.state().trail().copied() else { return Ok(()) };
        if !trail.is_over() {
            core.apply_edit(&mut manifest, &Edit::EndTrail(TrailEnd { at: trail.done, reason }))?;
            core.hold_log(manifest.state());
        }
        Ok(())
    }
}

/// A change that no trail tells is under way: see [`Core::begin_untold`].
pub(in crate::db) struct Untold<'c> {
    _no_trail_begins: Option<RwLockReadGuard<'c, ()>>,
    /// What it would go by if trails began beside it, for that mistake: whether one followed.
    followed: Option<bool>,
}

/// That the trail was ended in front of a change that is about to be made, while commits are held
/// and no edit of the catalogue is made: nobody has seen the end yet, and nothing has a stamp
/// behind it but that change. To be dropped when that is made, or may be.
///
/// The end and the change are in two logs, so one of them is durable first, and it must be the end.
/// A crash in between leaves a trail that ends although nothing was changed: it has what it says
/// that it has, everything up to its end, and another one is to begin. The other way round, a trail
/// would go on over a change that it does not tell, and restore what never was.
pub(in crate::db) struct TrailEnding<'c> {
    core: &'c Core,
    /// The trail as it was, if one was ended.
    ended: Option<(MutexGuard<'c, Manifest>, TrailRecord)>,
}

impl TrailEnding<'_> {
    /// The change was not made, durably so: the trail goes on (C9).
    pub(in crate::db) fn take_back(self) {
        if let Some((mut manifest, before)) = self.ended {
            let _it_ends_if_it_fails = self.core.apply_edit(&mut manifest, &Edit::SetTrail(before));
        }
    }
}

impl Core {
    fn begin_to_follow(&self, manifest: &mut Manifest, new: NewTrail) -> Result<TrailRecord> {
        let NewTrail { id, repository, log_max } = new;
        // Under the manifest's lock: no edit is on its way, and the log is not given up (G2).
        let (end, done) = self.log.mark(self.time.wall_for_stamp());
        self.sync_to(end)?;
        let log_position = end.as_u64();
        let (token, pending, end) = (0, None, None);
        let record =
            TrailRecord { id, repository, done, log_position, log_max, token, pending, end };
        self.apply_edit(manifest, &Edit::SetTrail(record))?;
        Ok(record)
    }

    /// The edit, with a stamp (C9). Under the manifest's lock.
    pub(in crate::db) fn stamped(&self, edit: &Edit) -> Edit {
        let seqno = self.log.next_stamp(self.time.wall_for_stamp());
        Edit::Stamped { seqno, edit: Box::new(edit.clone()) }
    }

    /// G3: no trail begins until what this returns is dropped.
    pub(in crate::db) fn begin_untold(&self) -> Untold<'_> {
        if is_planted(Mistake::TrailBeginsBesideIngest) {
            let followed = lock(&self.trail).is_some_and(|trail| trail.end.is_none());
            return Untold { _no_trail_begins: None, followed: Some(followed) };
        }
        let guard = self.untold.read().unwrap_or_else(PoisonError::into_inner);
        Untold { _no_trail_begins: Some(guard), followed: None }
    }

    /// G3: ends the trail that follows, durably, in front of what it cannot tell, and which is to
    /// have a later stamp. That is to be the next that is done, as long as what this returns is
    /// held, with which goes the manifest's lock; commits are held.
    pub(in crate::db) fn end_trail_before(
        &self,
        until_it_is_there: &Untold<'_>,
        hold: &CommitHold<'_>,
        reason: TrailEndReason,
    ) -> Result<TrailEnding<'_>> {
        // No lock that others take while commits are held, where nothing is to be ended.
        if lock(&self.trail).is_none_or(|trail| trail.end.is_some()) {
            self.check_writable()?;
            return Ok(TrailEnding { core: self, ended: None });
        }
        let mut manifest = self.lock_manifest_for_edit()?;
        let follows = manifest.state().trail().filter(|trail| trail.end.is_none());
        let follows = follows.filter(|_| until_it_is_there.followed != Some(false));
        let Some(before) = follows.copied() else {
            return Ok(TrailEnding { core: self, ended: None });
        };
        // Of its own: what the trail was told, or is about to be, is below.
        let at = hold.next_stamp(self.time.wall_for_stamp());
        self.apply_edit(&mut manifest, &Edit::EndTrail(TrailEnd { at, reason }))?;
        self.check_writable()?; // It may be the last edit that was taken: then nothing follows it.
        Ok(TrailEnding { core: self, ended: Some((manifest, before)) })
    }

    /// G1: ends the trail if it is further behind than it may be, durably, before anything goes
    /// that it was to be told of.
    pub(in crate::db) fn end_trail_far_behind(&self, manifest: &mut Manifest) -> Result<()> {
        let follows = manifest.state().trail().filter(|trail| !trail.is_over());
        let is_far = |trail: &&TrailRecord| {
            self.log.end().saturating_sub(trail.log_position) > trail.log_max
        };
        let Some(trail) = follows.filter(is_far).copied() else { return Ok(()) };
        let end = TrailEnd { at: trail.done, reason: TrailEndReason::NotKept };
        self.apply_edit(manifest, &Edit::EndTrail(end))
    }

    /// Where the log is held from for the trail; what else is kept for one goes, if none is to be
    /// told any more (G1).
    pub(in crate::db) fn held_for_trail(&self, catalog: &CatalogState) -> Option<u64> {
        let follows = catalog.trail().filter(|trail| !trail.is_over());
        if follows.is_none() {
            self.values.stop_keeping();
        }
        follows.map(|trail| trail.log_position)
    }

    pub(in crate::db) fn trail_status(&self) -> Option<TrailStatus> {
        let record = (*lock(&self.trail))?;
        let TrailRecord { id, repository, done, log_position, log_max, end, .. } = record;
        let bytes_behind = self.log.end().saturating_sub(log_position);
        Some(TrailStatus {
            trail: id,
            repository,
            done,
            bytes_behind: if record.is_over() { 0 } else { bytes_behind },
            log_max,
            value_bytes_kept: self.values.dead_bytes(),
            end,
        })
    }
}
