//! The one error type. Its variants are what a caller can do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::seqno::SeqNo;

/// The result of an operation of the store.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. After any error the state is unchanged, or the database is read-only and says
/// so on every later write.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The call was wrong: a limit exceeded, an option out of range, a foreign handle. Nothing
    /// changed.
    InvalidArgument {
        /// What was wrong with it.
        what: String,
    },
    /// The operating system refused a file operation.
    Io {
        /// What was attempted, as a verb: `read`, `write`, `sync`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes on disk are not what was written. Nothing was returned from them.
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Byte offset in the file where the damaged piece starts.
        offset: u64,
        /// What was expected and what was found.
        what: String,
    },
    /// The transaction read something that another one has changed since; or a bulk ingest was
    /// begun before its keyspace was converted. Retry it.
    Conflict,
    /// The transaction was committed or rolled back before. Nothing changed.
    TransactionEnded,
    /// Another process, or another handle of this one, has the database open.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who has it, as far as that is known: `process 4711`.
        owner: String,
    },
    /// There is no room on the disk. Nothing changed; reads go on, with a reserve deletions as well
    /// ([`crate::Builder::disk_reserve`]), and writing resumes by itself when there is room again.
    DiskFull {
        /// The file or directory that could not grow.
        path: PathBuf,
    },
    /// A file of a version that this program does not know.
    FormatVersion {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The database accepts no writes: it was opened so, or an earlier failure made it so.
    /// Reopening recovers what is durable.
    ReadOnly {
        /// Why.
        why: String,
    },
    /// The keyspace does not exist, or was dropped after the handle was taken.
    KeyspaceNotFound {
        /// Its name.
        name: String,
    },
    /// A keyspace of this name exists already.
    KeyspaceExists {
        /// Its name.
        name: String,
    },
    /// Operands were to be merged, or read that were, in a keyspace whose merge operator is not
    /// registered. Nothing changed; everything else works. Open the database with it
    /// ([`crate::Builder::merge_operator`]).
    MergeOperatorMissing {
        /// Its name.
        name: String,
    },
    /// The merge operator of the keyspace could not say what the value of a key is. Nothing
    /// changed: the operands stay, and are merged again by whoever reads the key next, until it is
    /// put or deleted.
    MergeFailed {
        /// The operator's name.
        operator: String,
        /// What it said, or how it failed.
        why: String,
    },
    /// A reducer could not say what entries come to. Nothing changed.
    ReduceFailed {
        /// The reducer's name.
        reducer: String,
        /// What it said, or how it failed.
        why: String,
    },
    /// The keyspace has no index of this name.
    IndexNotFound {
        /// Its name.
        name: String,
    },
    /// The keyspace has an index of this name already.
    IndexExists {
        /// Its name.
        name: String,
    },
    /// The index is not built, or was not at the moment that is read as of. Nothing is read from it
    /// until it is ([`crate::Keyspace::build_index`]).
    IndexNotReady {
        /// Its name.
        name: String,
    },
    /// A keyspace was to be written to, or an index to be built, whose extractor is not registered.
    /// Nothing changed; reads work. Open the database with it
    /// ([`crate::Builder::index_extractor`]), or drop the index.
    ExtractorMissing {
        /// Its name.
        name: String,
    },
    /// The extractor of an index could not say which index keys an entry has. Nothing changed.
    ExtractorFailed {
        /// Its name.
        extractor: String,
        /// What it said, or how it failed.
        why: String,
    },
    /// Two entries would have one key in an index in which each key is to be there once. Nothing
    /// changed.
    UniqueViolation {
        /// The index's name.
        index: String,
        /// The index key.
        key: Vec<u8>,
    },
    /// Commits were asked for that may have been in the log, and are not kept any more.
    CommitsNotKept {
        /// The first one that is there; `None` when there is none. Who asks for what is behind the
        /// stamp just below gets it, and all that follow.
        oldest: Option<SeqNo>,
    },
    /// A moment of the past was asked for that a keyspace is not kept as of any more; see
    /// [`crate::KeyspaceOptions::keep_for`] and `keep_versions`. Nothing changed.
    BeyondRetention {
        /// The keyspace.
        keyspace: String,
        /// Moments from this one on are whole; `None`: no moment of the past is, for all keys.
        kept_from: Option<SeqNo>,
        /// So many versions of each key are kept at least.
        versions: Option<u32>,
    },
    /// A follower has shown commits that were written and not durable, and the writer has lost
    /// them: by a failed sync, and a recovery behind that. What it shows stays; another follower
    /// shows what the database is now. See [`Builder::follow`](crate::Builder::follow).
    WentBack {
        /// The file of the log that does not go on behind what was shown.
        file: PathBuf,
        /// Where in it that was looked for.
        offset: u64,
        /// What was expected, and what was found.
        what: String,
    },
    /// Nothing more can be added to the trail that followed the database; what it has stays. Begin
    /// another one ([`crate::BackupRepository::begin_trail`]).
    TrailEnded {
        /// It has nothing behind this stamp.
        at: SeqNo,
        /// Why, as a part of a sentence.
        why: String,
    },
    /// No consumer of changes has this name.
    ConsumerNotFound {
        /// The name.
        name: String,
    },
    /// A consumer of changes has this name already.
    ConsumerExists {
        /// The name.
        name: String,
    },
    /// The database is encrypted, and was opened without a key; see
    /// [`Builder::encryption`](crate::Builder::encryption). Nothing changed.
    KeyNeeded {
        /// The file that cannot be read without.
        file: PathBuf,
    },
    /// The database is encrypted with another key or passphrase than was given. Nothing changed,
    /// and nothing is damaged as far as that can be told without the right one.
    WrongKey {
        /// The database's keyring.
        file: PathBuf,
    },
    /// A key was given for a database that is not encrypted. Nothing changed.
    NotEncrypted {
        /// The database's directory.
        path: PathBuf,
    },
    /// The key service could not encrypt or decrypt a key; see [`Vault`](crate::Vault). Nothing
    /// changed.
    VaultFailed {
        /// What it said.
        why: String,
    },
    /// The database was closed.
    Closed,
    /// This process is a fork of the one that has the database open, which goes on with it: a fork
    /// has its memory and none of its threads, and would write over what that writes. Nothing
    /// changed: nor does it by what is dropped here. Iterators and readers that were made before
    /// the fork are not to be used; [`Db::health`](crate::Db::health) says `Closed`.
    ///
    /// Open databases behind the fork, or [follow](crate::Builder::follow) this one. A fork has the
    /// locks as well: when the other process has been killed, the database stays `Locked` until all
    /// its forks have ended, or have become other programs. A thread that was being started when
    /// the fork was made keeps a lock of the standard library in it, and no other thread starts
    /// then: [`Background::Stepped`](crate::Background::Stepped) needs none.
    Forked {
        /// The number of the process that has it open.
        opener: u32,
    },
}

impl Error {
    /// An [`Error::Io`], or [`Error::DiskFull`] when that is what `source` says. A sync that fails
    /// for want of room is no `DiskFull`, after which nothing has changed: what it should have made
    /// durable may be lost.
    #[must_use]
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        let full = action != "sync"
            && matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if full {
            return Error::DiskFull { path: path.to_owned() };
        }
        Error::Io { action, path: path.to_owned(), source }
    }

    /// An [`Error::Corruption`].
    #[must_use]
    pub fn corruption(file: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corruption { file: file.to_owned(), offset, what: what.into() }
    }

    /// An [`Error::InvalidArgument`].
    #[must_use]
    pub fn invalid(what: impl Into<String>) -> Error {
        Error::InvalidArgument { what: what.into() }
    }

    /// Whether bytes on disk are damaged.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption { .. })
    }

    /// Of damage in a file of a keyspace, the number of its store, which names its folder: that of
    /// the keyspace, until it is converted ([`crate::KeyspaceInfo`]).
    #[must_use]
    pub fn damaged_store(&self) -> Option<u32> {
        let (Error::Corruption { file, .. } | Error::FormatVersion { file, .. }) = self else {
            return None;
        };
        store_of(file)
    }

    /// What to do about damage, a key or a version that is not the right one; `None` for what needs
    /// no telling.
    ///
    /// ```
    /// use std::path::Path;
    /// let error = lithedb::Error::corruption(Path::new("my.lithe/wal/00000001.wal"), 4096, "..");
    /// assert!(error.advice().is_some_and(|advice| advice.contains("repair")));
    /// ```
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Error::Corruption { file, .. } => Some(advice_on(file)),
            Error::FormatVersion { .. } => Some("use a version of the program that knows it"),
            Error::WrongKey { .. } => Some("give the database's own key: nothing is damaged"),
            Error::KeyNeeded { .. } => Some("give the database's key"),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anything else being done.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Conflict | Error::DiskFull { .. } | Error::Locked { .. })
    }
}

/// What messages call a backup that is sent or read as a stream, as no file's name says.
pub(crate) const BACKUP_STREAM: &str = "the stream of the backup";
/// The folder of a database in which those of stores are.
const STORES_FOLDER: &str = "keyspaces";

/// The number of the store that a file is of, or that a folder is.
fn store_of(file: &Path) -> Option<u32> {
    // The last one: the database may itself be in a folder of that name.
    let folder = file.ancestors().find(|path| {
        path.parent().and_then(Path::file_name).is_some_and(|name| name == STORES_FOLDER)
    });
    folder?.file_name()?.to_str()?.parse().ok()
}

/// What to do when this file is damaged.
fn advice_on(file: &Path) -> &'static str {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_of = |stem: &str| name.starts_with(stem);
    if is_of("KEYRING") {
        "restore the keyring from a checkpoint or a backup: without it nothing can be read"
    } else if is_of("backup-") || is_of("BACKUPS") || is_in_repository(file) {
        "another backup may be whole, which verifying the repository says; a new one that verifies \
         what it shares with others writes again what is damaged"
    } else if is_of("segment-") || is_of("keyring-") {
        "moments in front of that can be restored still, and later ones from a backup behind it: \
         end the trail and begin another one"
    } else if name == BACKUP_STREAM {
        "have it sent again: this one is no backup"
    } else if is_of("space-") || is_of("seg-") && store_of(file).is_none() {
        "what lies elsewhere in the space can be read on; no repair knows what belongs here: \
         restore a copy of the space"
    } else if is_of("seg-") || is_of("tbl-") || is_of("val-") {
        "what lies in other files can be read on: copy the directory first, then restore a backup \
         or a checkpoint, or let `repair` make a new database of what can be read; it lists the \
         keys that are lost"
    } else if is_of("index-") || is_of("tables-") {
        "copy the directory first, then restore a backup or a checkpoint; `repair` searches the \
         keyspace's files for what they have, and cannot tell what was deleted"
    } else {
        "copy the directory first, then restore a backup or a checkpoint, or let `repair` make a \
         new database of what can be read; it lists what is lost"
    }
}

/// Whether it has the name of a file in a repository of backups: a hash and a length.
fn is_in_repository(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split_once('-').is_some_and(|(hash, _)| {
        hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidArgument { what } => write!(f, "invalid argument: {what}"),
            Error::Io { action, path, source } => {
                write!(f, "could not {action} {}: {source}", path.display())
            }
            Error::Corruption { file, offset, what } => {
                write!(f, "{} is damaged at offset {offset}: {what}", file.display())
            }
            Error::Conflict => f.write_str("the transaction conflicts with a later commit"),
            Error::TransactionEnded => f.write_str("the transaction is over"),
            Error::Locked { path, owner } => {
                write!(f, "{} is locked by {owner}", path.display())
            }
            Error::DiskFull { path } => {
                write!(f, "no room on the disk to write {}", path.display())
            }
            Error::FormatVersion { file, found, known } => write!(
                f,
                "{} has format version {found}; this program knows versions up to {known}",
                file.display()
            ),
            Error::ReadOnly { why } => write!(f, "the database is read-only: {why}"),
            Error::KeyspaceNotFound { name } => write!(f, "there is no keyspace {name:?}"),
            Error::KeyspaceExists { name } => write!(f, "a keyspace {name:?} exists already"),
            Error::MergeOperatorMissing { name } => {
                write!(f, "the merge operator {name:?} is not registered")
            }
            Error::MergeFailed { operator, why } => {
                write!(f, "the merge operator {operator:?} failed: {why}")
            }
            Error::ReduceFailed { reducer, why } => {
                write!(f, "the reducer {reducer:?} failed: {why}")
            }
            Error::IndexNotFound { .. }
            | Error::IndexExists { .. }
            | Error::IndexNotReady { .. }
            | Error::ExtractorMissing { .. }
            | Error::ExtractorFailed { .. }
            | Error::UniqueViolation { .. } => self.fmt_about_indexes(f),
            Error::CommitsNotKept { oldest: Some(oldest) } => {
                write!(f, "the log has no commits in front of {oldest} any more")
            }
            Error::CommitsNotKept { oldest: None } => {
                f.write_str("the log has no commits any more")
            }
            Error::BeyondRetention { keyspace, kept_from, versions } => {
                write!(f, "keyspace {keyspace:?} does not go back so far: it keeps ")?;
                if let Some(stamp) = kept_from {
                    write!(f, "what there was from {stamp} on")?;
                }
                match versions {
                    None => Ok(()),
                    Some(count) => {
                        let or = if kept_from.is_some() { ", and " } else { "" };
                        write!(f, "{or}the last {count} versions of each key")
                    }
                }
            }
            Error::WentBack { file, offset, what } => fmt_went_back(file, *offset, what, f),
            Error::TrailEnded { at, why } => write!(f, "the trail ends at {at}: {why}"),
            Error::ConsumerNotFound { name } => write!(f, "there is no consumer {name:?}"),
            Error::ConsumerExists { name } => write!(f, "there is a consumer {name:?} already"),
            Error::KeyNeeded { .. }
            | Error::WrongKey { .. }
            | Error::NotEncrypted { .. }
            | Error::VaultFailed { .. } => self.fmt_about_keys(f),
            Error::Closed => f.write_str("the database is closed"),
            Error::Forked { opener } => {
                write!(f, "process {opener} has the database open, and this is a fork of it")
            }
        }
    }
}

fn fmt_went_back(file: &Path, offset: u64, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let file = file.display();
    write!(f, "{file} at offset {offset} does not go on behind what was shown ({what}): ")?;
    f.write_str("open another follower")
}

impl Error {
    fn fmt_about_indexes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::IndexNotFound { name } => write!(f, "there is no index {name:?}"),
            Error::IndexExists { name } => write!(f, "an index {name:?} exists already"),
            Error::IndexNotReady { name } => write!(f, "the index {name:?} is not built"),
            Error::ExtractorMissing { name } => {
                write!(f, "the index extractor {name:?} is not registered")
            }
            Error::ExtractorFailed { extractor, why } => {
                write!(f, "the index extractor {extractor:?} failed: {why}")
            }
            Error::UniqueViolation { index, key } => {
                let key = key.escape_ascii();
                write!(f, "the index {index:?} would have the key {key} twice")
            }
            _ => Ok(()),
        }
    }

    fn fmt_about_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::KeyNeeded { file } => {
                write!(f, "{} is encrypted, and no key was given", file.display())
            }
            Error::WrongKey { file } => {
                write!(f, "{} is encrypted with another key than was given", file.display())
            }
            Error::NotEncrypted { path } => {
                write!(f, "{} is not encrypted, and a key was given", path.display())
            }
            Error::VaultFailed { why } => write!(f, "the key service failed: {why}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_says_whose_it_is_and_what_to_do() {
        let of = |path: &str| Error::corruption(Path::new(path), 7, "expected one, found two");
        assert_eq!(of("/db/keyspaces/00000012/seg-00000001").damaged_store(), Some(12));
        let within = of("/keyspaces/db/keyspaces/00000003/tbl-00000001");
        assert_eq!(within.damaged_store(), Some(3));
        assert_eq!(of("/db/keyspaces/00000004").damaged_store(), Some(4));
        assert_eq!(of("/keyspaces/db/wal/00000001.wal").damaged_store(), None);
        assert_eq!(of("/db/values/val-00000001").damaged_store(), None);
        assert_eq!(Error::Closed.damaged_store(), None);
        let files = ["KEYRING", "wal/00000001.wal", "values/val-00000001", "MANIFEST-00000001"];
        let stores = ["seg-00000001", "tbl-00000001", "index-00000001", "tables-00000001"];
        for name in files {
            assert!(of(&format!("/db/{name}")).advice().unwrap().contains("restore"), "{name}");
        }
        for name in stores {
            let advice = of(&format!("/db/keyspaces/00000001/{name}")).advice();
            assert!(advice.unwrap().contains("`repair`"), "{name}");
        }
        let hash = "0123456789abcdef".repeat(4);
        for name in [&*format!("files/{hash}-120"), "backups/backup-00000003", "BACKUPS"] {
            assert!(of(&format!("/kept/{name}")).advice().unwrap().contains("verif"), "{name}");
        }
        assert!(of(BACKUP_STREAM).advice().unwrap().contains("again"));
        assert!(!of("/my.space/seg-00000001").advice().unwrap().contains("`repair`"));
        assert_eq!(Error::Closed.advice(), None);
    }
}
