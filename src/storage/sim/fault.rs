//! Faults on purpose: which calls of a [`SimStorage`](super::SimStorage) go wrong, and how.
//!
//! Owns the rules and the counting of matches. Must not know what a fault does to the disk: the
//! calls themselves carry it out.

use std::io;
use std::path::Path;

/// The kinds of calls, as counted and as matched by fault rules.
///
/// ```
/// use lithedb::storage::{Operation, SimStorage, Storage};
/// use std::path::Path;
///
/// let storage = SimStorage::new(1);
/// storage.sync_dir(Path::new("/"))?;
/// assert_eq!(storage.count_of(Operation::SyncDir), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `open` of what exists.
    Open,
    /// `open` with [`OpenMode::CreateNew`](crate::storage::OpenMode::CreateNew).
    Create,
    /// `read_at` and `read_as_is_at`.
    Read,
    /// `write_at`.
    Write,
    /// `size` and `link_count`.
    Size,
    /// `set_len`.
    SetLen,
    /// `preallocate`.
    Preallocate,
    /// `sync`.
    Sync,
    /// `sync_dir`.
    SyncDir,
    /// `create_dir_all`.
    CreateDir,
    /// `rename`, `rename_new` and `exchange`; a rule matches either path.
    Rename,
    /// `remove_file`.
    Remove,
    /// `remove_dir`.
    RemoveDir,
    /// `list_dir`.
    List,
    /// `lock`.
    Lock,
    /// `exists`.
    Exists,
    /// `punch_hole`.
    PunchHole,
    /// `link`; a rule matches either path.
    Link,
}

impl Operation {
    /// Every kind.
    pub const ALL: [Operation; 18] = [
        Operation::Open,
        Operation::Create,
        Operation::Read,
        Operation::Write,
        Operation::Size,
        Operation::SetLen,
        Operation::Preallocate,
        Operation::Sync,
        Operation::SyncDir,
        Operation::CreateDir,
        Operation::Rename,
        Operation::Remove,
        Operation::RemoveDir,
        Operation::List,
        Operation::Lock,
        Operation::Exists,
        Operation::PunchHole,
        Operation::Link,
    ];

    /// Whether the call changes the disk, or what of it is durable: these are the crash points.
    #[must_use]
    pub fn is_mutation(self) -> bool {
        match self {
            Operation::Create
            | Operation::Write
            | Operation::SetLen
            | Operation::Preallocate
            | Operation::PunchHole
            | Operation::Sync
            | Operation::SyncDir
            | Operation::CreateDir
            | Operation::Rename
            | Operation::Link
            | Operation::Remove
            | Operation::RemoveDir => true,
            Operation::Open
            | Operation::Read
            | Operation::Size
            | Operation::List
            | Operation::Lock
            | Operation::Exists => false,
        }
    }
}

/// What goes wrong.
///
/// ```
/// use lithedb::storage::{FaultEffect, FaultPlan, FaultRule, SimStorage, Storage};
/// use std::io::ErrorKind;
/// use std::path::Path;
///
/// let storage = SimStorage::new(1);
/// let effect = FaultEffect::Error(ErrorKind::PermissionDenied);
/// storage.arm(FaultPlan::new().rule(FaultRule::new(effect)));
/// let error = storage.list_dir(Path::new("/")).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::PermissionDenied);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultEffect {
    /// The call fails and does nothing. A failed sync drops what was to be synced: it never
    /// reaches the disk, and later syncs succeed without it, as on Linux.
    Error(io::ErrorKind),
    /// As `Error`, with an error number of the operating system (5 is EIO on Linux).
    OsError(i32),
    /// The call does its work (a write: a random part of it), and then fails.
    ErrorAfterwards(io::ErrorKind),
    /// A read or write of several bytes handles only a part of them, and says so.
    Short,
    /// A read returns one flipped bit; what is stored stays as it is.
    CorruptRead,
    /// A sync of a file or directory succeeds and does nothing; a later one can still do it.
    LieSync,
}

impl FaultEffect {
    fn applies_to(self, operation: Operation) -> bool {
        match self {
            FaultEffect::Error(_) | FaultEffect::OsError(_) | FaultEffect::ErrorAfterwards(_) => {
                true
            }
            FaultEffect::Short => matches!(operation, Operation::Read | Operation::Write),
            FaultEffect::CorruptRead => operation == Operation::Read,
            FaultEffect::LieSync => matches!(operation, Operation::Sync | Operation::SyncDir),
        }
    }
}

/// One rule: an effect, and the calls it strikes. Without further words it strikes the first call
/// that it can apply to, once.
///
/// ```
/// use lithedb::storage::{FaultEffect, FaultRule, Operation};
///
/// // The third and every later sync of a file whose path contains "wal" fails.
/// FaultRule::new(FaultEffect::OsError(5)).on(&[Operation::Sync]).path("wal").skip(2).lasting();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FaultRule {
    effect: FaultEffect,
    operations: Vec<Operation>,
    path_part: String,
    /// Matches left to let pass.
    skip_count: u64,
    /// Matches left to strike after those.
    strike_count: u64,
}

impl FaultRule {
    /// Strikes the first call that `effect` can apply to.
    pub fn new(effect: FaultEffect) -> FaultRule {
        FaultRule {
            effect,
            operations: Vec::new(),
            path_part: String::new(),
            skip_count: 0,
            strike_count: 1,
        }
    }

    /// Only calls of these kinds.
    pub fn on(mut self, operations: &[Operation]) -> FaultRule {
        self.operations = operations.to_vec();
        self
    }

    /// Only calls for a path that contains `part`. An open file has the path it was opened by.
    pub fn path(mut self, part: &str) -> FaultRule {
        part.clone_into(&mut self.path_part);
        self
    }

    /// Lets `count` matching calls pass first, counted from arming.
    pub fn skip(mut self, count: u64) -> FaultRule {
        self.skip_count = count;
        self
    }

    /// Strikes `count` matching calls in a row instead of one.
    pub fn times(mut self, count: u64) -> FaultRule {
        self.strike_count = count;
        self
    }

    /// Strikes every matching call from then on.
    pub fn lasting(self) -> FaultRule {
        self.times(u64::MAX)
    }

    fn matches(&self, operation: Operation, paths: &[&Path]) -> bool {
        self.effect.applies_to(operation)
            && (self.operations.is_empty() || self.operations.contains(&operation))
            && (self.path_part.is_empty()
                || paths.iter().any(|path| path.to_string_lossy().contains(&self.path_part)))
    }

    /// Counts a matching call; whether it is struck.
    fn count_match(&mut self) -> bool {
        if self.skip_count > 0 {
            self.skip_count -= 1;
            return false;
        }
        let strikes = self.strike_count > 0;
        if strikes && self.strike_count != u64::MAX {
            self.strike_count -= 1;
        }
        strikes
    }
}

/// Rules that are armed together. Every rule counts its own matches; if several strike one call,
/// the first one decides.
///
/// ```
/// use lithedb::storage::{FaultEffect, FaultPlan, FaultRule, OpenMode, SimStorage, Storage};
/// use std::io::ErrorKind;
/// use std::path::Path;
///
/// let storage = SimStorage::new(1);
/// let file = storage.open(Path::new("notes"), OpenMode::CreateNew)?;
/// file.write_all_at(b"lost", 0)?;
/// storage.arm(FaultPlan::new().rule(FaultRule::new(FaultEffect::Error(ErrorKind::Other))));
/// assert!(file.sync().is_err());
/// assert!(file.sync().is_ok()); // It does not say that "lost" never reached the disk.
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct FaultPlan {
    rules: Vec<FaultRule>,
}

impl FaultPlan {
    /// No faults.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// One more rule.
    pub fn rule(mut self, rule: FaultRule) -> FaultPlan {
        self.rules.push(rule);
        self
    }

    /// Counts a call in all rules; the effect that strikes it.
    pub(super) fn strike(&mut self, operation: Operation, paths: &[&Path]) -> Option<FaultEffect> {
        let mut effect = None;
        for rule in &mut self.rules {
            if rule.matches(operation, paths) && rule.count_match() {
                effect = effect.or(Some(rule.effect));
            }
        }
        effect
    }
}
