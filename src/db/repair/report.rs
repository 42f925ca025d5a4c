//! What a repair is asked for, and what it came to.

use std::fmt;
use std::path::PathBuf;

use crate::base::SeqNo;
use crate::db::options::Builder;

/// Items of a list at most: a database that is damaged all over need not fill the memory.
const ITEM_COUNT_MAX: usize = 100_000;

/// How [`repair`](crate::repair) goes about it.
///
/// ```
/// use lithedb::{Db, RepairOptions};
/// let builder = Db::builder().memory_budget(64 << 20);
/// let options = RepairOptions::new(builder).past_log_damage(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    pub(super) builder: Builder,
    pub(super) past_log_damage: bool,
    pub(super) leave_doubtful: bool,
}

impl RepairOptions {
    /// With what databases are opened with: where they are stored, the key of an encrypted one,
    /// merge operators, extractors, the memory budget.
    #[must_use]
    pub fn new(builder: Builder) -> RepairOptions {
        RepairOptions { builder, ..RepairOptions::default() }
    }

    /// Whether commits are taken that lie in the log behind damage to it, as far as they can be
    /// read. What lies between is missing then: the database is not as of any moment that there
    /// was. Without it, which is the default, the new database has all commits up to the damage
    /// and none behind it; those are listed.
    #[must_use]
    pub fn past_log_damage(self, whether: bool) -> RepairOptions {
        RepairOptions { past_log_damage: whether, ..self }
    }

    /// Whether entries are left out of which it cannot be told that they were the newest of their
    /// keys: what is there is right then. Without it, which is the default, they are taken, and
    /// their ranges listed as [`LossKind::Doubtful`].
    #[must_use]
    pub fn leave_doubtful(self, whether: bool) -> RepairOptions {
        RepairOptions { leave_doubtful: whether, ..self }
    }
}

/// What damage has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LossKind {
    /// Nothing: it was of what is told by other bytes as well, or can be made anew.
    Nothing,
    /// Entries in the range, perhaps: those that the damaged bytes held. All that the new database
    /// has of the range is right.
    Lost,
    /// The same; and what the new database has of the range may be older than what there was, or
    /// have been deleted.
    Doubtful,
    /// Commits: any key may be as it was before them, in all keyspaces.
    Commits,
    /// Changes to which keyspaces there are, with which names and options.
    Catalogue,
}

impl LossKind {
    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LossKind::Nothing => "nothing",
            LossKind::Lost => "lost",
            LossKind::Doubtful => "doubtful",
            LossKind::Commits => "commits",
            LossKind::Catalogue => "catalogue",
        }
    }
}

/// Something that could not be read, and what that cost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// What it cost.
    pub kind: LossKind,
    /// The name of the keyspace, if it is of one.
    pub keyspace: Option<String>,
    /// Whether it is of the versions that a keyspace keeps, and not of what it is now.
    pub is_of_versions: bool,
    /// The first key that it may concern. Of a whole keyspace, or of all, empty.
    pub start: Vec<u8>,
    /// None from this key on; `None` if it has no end.
    pub end: Option<Vec<u8>>,
    /// The damaged file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What was expected there and what was found.
    pub what: String,
}

impl Loss {
    /// Whether the key of this keyspace is among those that it may concern.
    #[must_use]
    pub fn covers(&self, keyspace: &str, key: &[u8]) -> bool {
        self.keyspace.as_ref().is_none_or(|name| name == keyspace)
            && *self.start <= *key
            && self.end.as_ref().is_none_or(|end| key < &**end)
    }

    /// Has it stand for another one of its keyspace as well.
    fn cover(&mut self, other: Loss) {
        self.kind = self.kind.max(other.kind);
        self.start = std::mem::take(&mut self.start).min(other.start);
        self.end = match (self.end.take(), other.end) {
            (Some(end), Some(other)) => Some(end.max(other)),
            _ => None,
        };
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind.name())?;
        if let Some(name) = &self.keyspace {
            let versions = if self.is_of_versions { "versions in " } else { "" };
            write!(f, "{versions}keyspace {name:?}, ")?;
            match (&*self.start, &self.end) {
                (&[], None) => f.write_str("all keys; ")?,
                (start, None) => write!(f, "keys from {} on; ", start.escape_ascii())?,
                (start, Some(end)) => {
                    let (start, end) = (start.escape_ascii(), end.escape_ascii());
                    write!(f, "keys from {start} to in front of {end}; ")?;
                }
            }
        }
        write!(f, "{} at offset {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// A commit that can be read, and was not taken, as it lies behind damage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitBehind {
    /// Its stamp.
    pub seqno: SeqNo,
    /// How many operations it has.
    pub operations: u64,
    /// The file of the log that it is in.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// What a repair came to: see [`repair`](crate::repair).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Keyspaces in the new database.
    pub keyspaces: u64,
    /// Entries that came from structures; versions that are kept count as well.
    pub entries: u64,
    /// Commits that came from the log.
    pub commits: u64,
    /// What could not be read, and what that cost, in the order in which it was met; the first
    /// hundred thousand of them. Of each keyspace with more, the last one covers the rest.
    pub losses: Vec<Loss>,
    /// How many there were.
    pub loss_count: u64,
    /// Commits behind damage to the log that were not taken; the first hundred thousand of them.
    pub commits_behind: Vec<CommitBehind>,
    /// How many there were.
    pub commits_behind_count: u64,
    /// Indexes that could not be built again, a sentence each. They are empty, and to be built or
    /// dropped.
    pub not_rebuilt: Vec<String>,
    /// Consumers of changes: they are not in the new database, as its log begins with it.
    pub consumers: Vec<String>,
    /// What a check of the new database has found; empty, unless something is wrong with the
    /// repair itself.
    pub problems: Vec<String>,
}

impl RepairReport {
    /// Whether nothing is missing: all that there was is in the new database.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.losses.iter().all(|loss| loss.kind == LossKind::Nothing)
            && self.commits_behind_count == 0
            && self.problems.is_empty()
    }

    /// Beyond the limit the last loss of the keyspace is made to cover the next ones as well: a
    /// list that ends would say that what is behind it is sound.
    pub(super) fn note(&mut self, loss: Loss) {
        self.loss_count += 1;
        let is_same = |last: &&mut Loss| {
            last.keyspace == loss.keyspace && last.is_of_versions == loss.is_of_versions
        };
        let last = match self.losses.len() < ITEM_COUNT_MAX {
            true => None,
            false => self.losses.iter_mut().rfind(is_same),
        };
        match last {
            Some(last) => last.cover(loss),
            None => self.losses.push(loss), // One more for each keyspace.
        }
    }

    pub(super) fn note_behind(&mut self, commit: CommitBehind) {
        self.commits_behind_count += 1;
        if self.commits_behind.len() < ITEM_COUNT_MAX {
            self.commits_behind.push(commit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_full_covers_what_comes_behind_it() {
        let loss = |keyspace: &str, kind: LossKind, start: &[u8], end: Option<&[u8]>| Loss {
            kind,
            keyspace: Some(keyspace.to_owned()),
            is_of_versions: false,
            start: start.to_vec(),
            end: end.map(<[u8]>::to_vec),
            file: PathBuf::from("/file"),
            offset: 0,
            what: String::new(),
        };
        let mut report = RepairReport::default();
        for _ in 0..ITEM_COUNT_MAX {
            report.note(loss("a", LossKind::Lost, b"k", Some(b"l")));
        }
        report.note(loss("a", LossKind::Doubtful, b"c", Some(b"d")));
        report.note(loss("b", LossKind::Lost, b"x", None));
        report.note(loss("b", LossKind::Lost, b"y", Some(b"z")));
        assert_eq!(report.loss_count, ITEM_COUNT_MAX as u64 + 3);
        assert_eq!(report.losses.len(), ITEM_COUNT_MAX + 1);
        let of_a = &report.losses[ITEM_COUNT_MAX - 1];
        assert_eq!((of_a.kind, of_a.covers("a", b"c")), (LossKind::Doubtful, true));
        assert!(of_a.covers("a", b"kk") && !of_a.covers("a", b"l"));
        let of_b = &report.losses[ITEM_COUNT_MAX];
        assert!(of_b.covers("b", b"y") && !of_b.covers("b", b"w"));
    }
}
