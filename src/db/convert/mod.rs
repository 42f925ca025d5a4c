//! Converting a keyspace to another structure, or to other options of its own, while it is in use.
//!
//! ```text
//! begin ....... numbers for the new store are drawn, so that after a crash its files are known to
//!               be nobody's; memtables are flushed
//! slices ...... under the keyspace's turn to flush: entries of the next keys go from the version
//!               of the old store to the new one (`copy.rs`)
//!   flushes ... what a memtable has of keys that are copied goes to the new store, and then all of
//!               it to the old one, as ever (`job.rs`). The conversion does them itself, in turn
//!               with copying: others hardly get at the turn
//!   ingests ... what they change of keys that are copied is copied again
//! switch ...... one edit of the manifest gives the keyspace the new store (`switch.rs`)
//! ```
//!
//! Until the switch nobody reads the new store, and the old one has everything: a conversion that
//! fails, is cancelled or crashes leaves nothing but files to remove.
//!
//! Invariants
//! - O1  Between flushes, what the new store has of keys that are copied and not stale is what the
//!   old one has, entry for entry, but for what has expired; and it stands for the same part of the
//!   log. So at the switch both are the same to readers, memtables and replay.
//! - O2  A memtable is brought to the new store once, before any of it is in the old one: operands
//!   that come twice would count twice.
//! - O3  Nothing is copied while a memtable is in the new store and not wholly in the old one, or
//!   partly in the old one; nor is the store switched.
//! - O4  An archive that is made begins with the switch. It has of each key the newest version from
//!   before that; what it has of earlier ones, or of deletions, makes no difference.
//! - O5  The log's and everybody else's name of the keyspace, its id, and its turn to flush, stay.
//! - O6  While somebody is at it, nobody else flushes memtables of the keyspace, and of what they
//!   and ingests bring there is less than of what is copied: it comes to its end (`pace.rs`).

mod copy;
mod job;
mod pace;
mod switch;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use self::switch::Underway;
use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Result, SeqNo};
use crate::db::core::{Core, lock};
use crate::db::keyspace::Keyspace;
use crate::manifest::KeyspaceOptions;

pub(in crate::db) use self::job::{ConversionJob, CopiedKeys};

/// What a keyspace is converted to; see [`Keyspace::convert`].
///
/// ```
/// use lithedb::{Conversion, KeyspaceOptions};
/// let conversion = Conversion::to(KeyspaceOptions::lsm()).losing_versions();
/// assert!(conversion.loses_versions && !Conversion::from(KeyspaceOptions::lsm()).loses_versions);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Conversion {
    /// Structure and options that the keyspace is to have.
    pub options: KeyspaceOptions,
    /// Whether a keyspace of [`Structure::History`](crate::Structure::History) may lose its past.
    pub loses_versions: bool,
}

impl From<KeyspaceOptions> for Conversion {
    fn from(options: KeyspaceOptions) -> Conversion {
        Conversion::to(options)
    }
}

impl Conversion {
    /// To this structure with these options; nothing is lost.
    #[must_use]
    pub const fn to(options: KeyspaceOptions) -> Conversion {
        Conversion { options, loses_versions: false }
    }

    /// Also if the versions that the keyspace keeps are lost by it.
    #[must_use]
    pub fn losing_versions(mut self) -> Conversion {
        self.loses_versions = true;
        self
    }
}

/// How far a conversion is, or what it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversionReport {
    /// Entries that were copied.
    pub entries: u64,
    /// Bytes of their keys and values; of large values those of the pointers.
    pub bytes: u64,
    /// Entries that are still to be copied, about: overwritten ones may be among them.
    pub entries_left: u64,
    /// Bytes written to the files of the new store.
    pub bytes_written: u64,
    /// Slices of work that are done, those of flushes that came in between included.
    pub slices: u64,
    /// Where a keyspace came to keep its versions: the stamp that its past begins with.
    pub begins_at: Option<SeqNo>,
    /// Whether it was ended by the closure. Then everything is as it was.
    pub is_cancelled: bool,
}

type GoOn<'a> = &'a mut dyn FnMut(&ConversionReport) -> ControlFlow<()>;

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    GoesOn,
    Over,
}

impl Keyspace {
    /// Gives the keyspace another structure, or other options, while it is used: everybody reads
    /// and writes on, with the same handles, also of transactions, snapshots and iterators, before,
    /// at and behind the moment at which it has the new one. Its name, its number and the stamps of
    /// its entries stay. Durable on return; a crash before that leaves the keyspace as it was.
    ///
    /// Flushes, and then copies all entries to a new store, in slices of 16 MiB, or a 32nd of the
    /// memory budget; large values stay where they are. Costs reading and writing all keys and
    /// small values once, and each flush meanwhile is written to both stores as far as it is
    /// copied. Both take room, until the old one is given back: when the last snapshot, iterator or
    /// transaction of before is gone. Waits for nobody, and commits do not wait for it but as for a
    /// flush, and for about two syncs at the moment at which a keyspace comes to keep versions.
    /// Writers faster than it are held to its pace: it copies two bytes for each that is flushed,
    /// and flushes itself; others wait for that. So are ingests, at four bytes. What they change of
    /// keys that are copied is copied again behind the rest, and what they change meanwhile once
    /// more; beside the round behind that they wait, until it is over.
    ///
    /// Every pair of structures can be converted to one another. The merge operator cannot be
    /// changed, as there may be operands that are not merged; nor which versions are kept, by one
    /// that keeps its versions and goes on to.
    ///
    /// - To [`Structure::History`](crate::Structure::History): the past begins with the moment of
    ///   the conversion ([`ConversionReport::begins_at`], [`Keyspace::kept_from`]). Each entry is a
    ///   version with its own stamp; earlier moments are `BeyondRetention`. From when it is begun,
    ///   commits are refused keys that are too long for that ([`KEY_LEN_MAX`](crate::KEY_LEN_MAX)).
    /// - From it to another: all versions but the present ones are lost. Say
    ///   [`Conversion::losing_versions`]. Snapshots of the past that are held can be read on.
    /// - From it to itself, with other options: versions stay as they are. The codec counts for the
    ///   archive from the next opening on.
    ///
    /// Ingests that were begun before cannot be finished behind it. Its indexes stay what they are;
    /// those that are created later are kept as it is by then. One conversion of a keyspace at a
    /// time.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{Db, KeyspaceOptions, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let events = db.keyspace_or_create("events")?;
    /// events.put("monday", "rain")?;
    /// let before = db.snapshot();
    /// events.convert(KeyspaceOptions::lsm())?;
    /// events.put("tuesday", "sun")?;
    /// assert_eq!(events.get("monday")?.as_deref(), Some(&b"rain"[..]));
    /// assert_eq!(before.get(&events, "tuesday")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for the options, for versions that would be lost, a merge operator or a
    /// retention that would change, a key that is too long to be kept in versions, and when the
    /// keyspace is being converted already; `DiskFull`, `Corruption` of what had to be read,
    /// `KeyspaceNotFound`, also when it is dropped meanwhile; `Closed`. The keyspace is as it was,
    /// and what was made is removed: at once, by the background, or when the database is opened
    /// next. `Io` and `ReadOnly` when a write or sync failed: nothing is written any more until the
    /// database is reopened, which shows the one or the other.
    pub fn convert(&self, conversion: impl Into<Conversion>) -> Result<ConversionReport> {
        self.convert_asking(&conversion.into(), None)
    }

    /// As [`Keyspace::convert`]; asks `go_on` after each slice whether to go on. When it says no,
    /// or panics, everything is as it was, and what was made is removed. While it is asked, others
    /// flush and ingest as if there were no conversion.
    ///
    /// # Errors
    /// As [`Keyspace::convert`].
    pub fn convert_while(
        &self,
        conversion: impl Into<Conversion>,
        mut go_on: impl FnMut(&ConversionReport) -> ControlFlow<()>,
    ) -> Result<ConversionReport> {
        self.convert_asking(&conversion.into(), Some(&mut go_on))
    }

    fn convert_asking(
        &self,
        conversion: &Conversion,
        go_on: Option<GoOn<'_>>,
    ) -> Result<ConversionReport> {
        let report = self.work_through_conversion(conversion, go_on);
        self.core().signal_flushed(); // Who has left a flush to it does that now.
        self.core().remove_loose_stores();
        self.core().workers.wake();
        report
    }

    fn work_through_conversion(
        &self,
        conversion: &Conversion,
        mut go_on: Option<GoOn<'_>>,
    ) -> Result<ConversionReport> {
        let core = self.core();
        let mut underway = core.begin_conversion(self, conversion)?;
        loop {
            underway.job.at_work.begin();
            let step = core.conversion_slice(&mut underway);
            // Nobody but the caller waits for it; a disk that fails is another matter.
            let step = step.inspect_err(|error| core.follow_idle_failure(error))?;
            underway.report.slices += 1;
            if step == Step::Over {
                break;
            }
            if let Some(go_on) = &mut go_on {
                underway.job.at_work.pause();
                core.signal_flushed();
                if go_on(&underway.report).is_break() {
                    underway.report.is_cancelled = true;
                    break;
                }
                underway.job.at_work.begin();
            }
            core.let_others_have_the_turn();
        }
        Ok(underway.report) // What is not over is given up.
    }
}

impl Core {
    /// Does the next piece of a conversion: of a flush that is in its way or that writers wait for,
    /// of copying, or the switch.
    fn conversion_slice(&self, underway: &mut Underway<'_>) -> Result<Step> {
        let id = underway.runtime.id;
        let turn = Arc::clone(&underway.runtime.flushing);
        let _turn = lock(&turn);
        self.check_writable()?; // Under the turn, which closing waits for.
        let found = self.published.state().find(id).cloned();
        let keyspace = found.ok_or_else(|| underway.not_found())?;
        underway.job.check()?;
        if keyspace.unarchived.is_some() {
            drop(keyspace);
            // H5: what it is read out of must not be switched away.
            self.flush_oldest(id).inspect_err(|error| self.note_work_failure(error))?;
            return Ok(Step::GoesOn);
        }
        if let Some(oldest) = keyspace.sealed.last().cloned() {
            let is_in_the_way = !keyspace.flushed_to.is_empty() || underway.job.has(&oldest); // O3
            if is_in_the_way || underway.job.allows_flush() {
                drop((keyspace, oldest)); // They would keep what the flush makes unnecessary.
                self.flush_oldest(id).inspect_err(|error| self.note_work_failure(error))?;
                return Ok(Step::GoesOn);
            }
        }
        let began = self.clock.monotonic();
        if !self.compact_new_store(&underway.job)? {
            let is_early = underway.report.entries > 0 && is_seeded(Bug::ConversionSwitchedEarly);
            let Some(part) = underway.job.next_part().filter(|_| !is_early) else {
                underway.note_written();
                self.switch(underway, &keyspace)?;
                return Ok(Step::Over);
            };
            let job = Arc::clone(&underway.job);
            self.copy_part(&job, (&keyspace, &part), &mut underway.report)?;
            underway.note_written();
        }
        if !keyspace.sealed.is_empty() {
            // Writers are held to what flushes and copying come to together.
            let took = self.clock.monotonic().saturating_sub(began);
            keyspace.runtime.flush_rate.note_more(took);
        }
        Ok(Step::GoesOn)
    }
}
