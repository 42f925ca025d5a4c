//! What a run can find wrong.

use std::fmt;

use lithedb::storage::SimStorage;

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Something that was acknowledged as durable is gone: an earlier moment was recovered.
    Lost,
    /// Not a moment of the commit order: each keyspace is as it was once, but not all at once.
    Hole,
    /// Something that never was.
    Wrong,
    /// The database does not open, or does not read, though nothing was damaged.
    FailedOpen,
    /// The database's own check finds something, though nothing was damaged.
    CheckFailed,
    /// A panic, in whatever thread.
    Panic,
    /// Damage that was neither reported nor harmless.
    Silent,
    /// An error that does not say what it must say.
    BadError,
    /// A fault of the storage that nobody was told about.
    Swallowed,
    /// An operation that had no reason to fail did.
    Refused,
    /// Acknowledged after a failure that forbids it.
    AcknowledgedAfterFailure,
    /// Longer or larger than anything here has a right to be.
    Excess,
    /// The storage was used in a way that works only on a calm day.
    Misuse,
    /// The same seed did something else when it was run again.
    NotReplayed,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub fault: Fault,
    /// The story.
    pub what: String,
}

impl Finding {
    /// A finding of this kind.
    pub fn new(fault: Fault, what: impl Into<String>) -> Finding {
        Finding { fault, what: what.into() }
    }

    /// The same, with where it happened in front.
    #[must_use]
    pub fn at(mut self, place: &str) -> Finding {
        self.what = format!("{place}: {}", self.what);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.fault, self.what)
    }
}

impl std::error::Error for Finding {}

/// Sees that the storage was used as it may be.
///
/// # Errors
/// `Misuse` with the first thing that was not.
pub fn expect_no_misuse(storage: &SimStorage) -> Verdict {
    match storage.violations().first() {
        Some(violation) => Err(Finding::new(Fault::Misuse, violation.clone())),
        None => Ok(()),
    }
}

/// Nothing wrong, or something.
pub type Verdict<T = ()> = Result<T, Finding>;
