//! Seeded bugs: mistakes that are built in on purpose, one at a time, to see which runner finds
//! each of them.
//!
//! Ordinary builds have none. Without `--cfg seeded_bugs`, a flag of the compiler and no feature,
//! so that nobody has it by depending on something, [`is_seeded`] is the constant `false`, and what
//! stands behind it is in no program. With it, `lithe-sim seeded` seeds one after the other; so
//! does the name of one in `LITHE_SEEDED_BUG`, for tests and any other program.

#[cfg(seeded_bugs)]
use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! bugs {
    ($($(#[doc = $says:literal])+ $name:ident,)+) => {
        /// A mistake that can be built in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $says])+ $name,)+
        }

        #[cfg(seeded_bugs)]
        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$name,)+];

            /// What is wrong, in a few words.
            #[must_use]
            pub fn says(self) -> &'static str {
                match self {
                    $(Bug::$name => concat!($($says,)+).trim_ascii(),)+
                }
            }

            /// What it is called.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Bug::$name => stringify!($name),)+
                }
            }
        }
    };
}

bugs! {
    /// The log is not synced.
    LogNotSynced,
    /// Of two log files that a sync has to cover, the newer one is forgotten.
    SecondLogFileNotSynced,
    /// A durable commit is acknowledged before it is synced.
    AcknowledgedEarly,
    /// A sync of the log that fails counts as done.
    SyncErrorSwallowed,
    /// A sync of the log that failed is tried again.
    SyncTriedAgain,
    /// A record that could not be written to the log counts as written.
    LogWriteErrorSwallowed,
    /// Records of the log say that all before them was durable.
    LogClaimsTooMuch,
    /// Checksums of the log's records are not looked at.
    LogRecordUnverified,
    /// A log that is damaged in the middle is cut off there.
    DamagedLogCutOff,
    /// The log is given back up to where commits are applied, flushed or not.
    LogGivenBackEarly,
    /// The log is given back before the manifest says so.
    LogGivenBackBeforeEdit,
    /// A flush is durable before the log of what it has.
    FlushAheadOfLog,
    /// Commits that a structure has are replayed all the same.
    ReplayedTwice,
    /// Large values are not synced before the log that points to them.
    ValuesNotSynced,
    /// The names of value files are not synced.
    ValueNamesNotSynced,
    /// Checksums of large values are not looked at.
    ValueUnverified,
    /// A large value is taken for the one that its key has, by its length.
    ValueTakenForSame,
    /// Values that cleaning moves are not synced before what points to them.
    MovedValuesNotSynced,
    /// What cleaning has written forgets which value files it points into.
    MovedPointerForgotten,
    /// Checksums of edits are not looked at.
    EditUnverified,
    /// A log of edits that is damaged in the middle is cut off there.
    DamagedEditsCutOff,
    /// Edits are not synced.
    EditNotSynced,
    /// A new file of edits gets its name before it is synced.
    SnapshotNotSynced,
    /// The edit for which a new file of an index log is begun is not written to it.
    EditLostAtRotation,
    /// Segments are not synced before the index points to them.
    SegmentsNotSynced,
    /// Checksums of blocks are not looked at.
    BlockUnverified,
    /// Where a key is old and new, consolidation keeps the older entry.
    OlderEntryKept,
    /// Deletions are left out when deltas are merged, above a base that has the keys.
    TombstoneLostInDeltas,
    /// Consolidation keeps what a deleted range has in part of an interval.
    DeletedRangeForgotten,
    /// Holes take in the whole of the blocks at their ends.
    HoleTooLarge,
    /// The file of a segment goes while snapshots have it.
    SegmentRemovedEarly,
    /// What cannot be read counts as not there.
    ReadErrorIsAbsence,
    /// Tables are not synced before the index points to them.
    TablesNotSynced,
    /// Filters deny one key in some hundred.
    FilterDeniesKey,
    /// Runs of tables are looked through from the oldest on.
    OlderRunWins,
    /// Compaction leaves deletions out above older entries.
    TombstoneDroppedEarly,
    /// Compaction leaves deleted ranges out above older entries.
    DeletedRangeDroppedEarly,
    /// Tables that are replaced are removed before the edit that says so.
    TablesRemovedBeforeEdit,
    /// Of sources that are merged, the older wins.
    OlderSourceWins,
    /// A snapshot sees what came to memtables behind it.
    SnapshotSeesLater,
    /// What expires is gone a moment before that.
    ExpiredEarly,
    /// Transactions are not checked against what others have committed.
    PremiseUnchecked,
    /// Transactions are not checked against commits that are on their way.
    CommitsUnderWayIgnored,
    /// Of the versions to be kept of a key, one fewer is.
    VersionDroppedEarly,
    /// Compaction forgets a deletion although a newer run has what it hides.
    NewerRunsNotAsked,
    /// An ingest goes below what memtables have of its keys.
    IngestBelowMemtables,
    /// The entries of an ingest have the stamp of the commit before it.
    IngestStampWrong,
    /// A conversion switches before all is copied.
    ConversionSwitchedEarly,
    /// An index keeps the entries of what is overwritten or deleted.
    IndexEntryLeft,
    /// A rotation lets the old key go while files have it.
    OldKeyLetGoEarly,
    /// A changed keyring is not synced.
    KeyringNotSynced,
    /// The names in a checkpoint are not synced.
    CheckpointNamesNotSynced,
    /// What checkpoints and backups copy is not synced.
    CopyNotSynced,
    /// A log without room for a record refuses everything from then on.
    FullDiskPoisons,
    /// No reserve is kept.
    ReserveNotKept,
}

/// Whether a bug is built in.
#[cfg(not(seeded_bugs))]
#[inline(always)]
pub(crate) const fn is_seeded(_bug: Bug) -> bool {
    false
}

/// Nobody has asked yet.
#[cfg(seeded_bugs)]
const UNREAD: usize = usize::MAX;
#[cfg(seeded_bugs)]
const NONE: usize = usize::MAX - 1;
#[cfg(seeded_bugs)]
static SEEDED: AtomicUsize = AtomicUsize::new(UNREAD);

/// Builds a bug in from now on, or none.
#[cfg(seeded_bugs)]
pub fn seed(bug: Option<Bug>) {
    SEEDED.store(bug.map_or(NONE, |bug| bug as usize), Ordering::Relaxed);
}

/// Whether a bug is built in.
#[cfg(seeded_bugs)]
#[must_use]
pub fn is_seeded(bug: Bug) -> bool {
    current() == bug as usize
}

#[cfg(seeded_bugs)]
fn current() -> usize {
    let seeded = SEEDED.load(Ordering::Relaxed);
    if seeded != UNREAD {
        return seeded;
    }
    let bug = std::env::var("LITHE_SEEDED_BUG").ok().map(|name| {
        let found = Bug::ALL.iter().find(|bug| bug.name() == name);
        *found.unwrap_or_else(|| panic!("LITHE_SEEDED_BUG: there is no bug {name:?}"))
    });
    seed(bug);
    SEEDED.load(Ordering::Relaxed)
}
