//! Failure: why a command ended early, the exit code it means, and what to tell the user.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | the key, the keyspace or the index was not found; databases differ |
//! | 2 | wrong usage: arguments, or input that cannot be loaded |
//! | 3 | input or output failed, the disk is full, or the database is locked |
//! | 4 | bytes on disk are damaged; `torture` has found something |
//! | 130 | interrupted |

use std::io;
use std::path::PathBuf;

use lithedb::Error;

use crate::notation::millis_text;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The key is not there.
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The arguments, or a record of the input, make no sense.
    Usage {
        /// What is wrong and what would be right.
        what: String,
    },
    /// The store said no.
    Store(Error),
    /// An input file could not be read.
    Input {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that output was to go to could not be made.
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output could not be written.
    Output(io::Error),
    /// The check found damage; the problems are on standard output already.
    Damaged {
        /// How many.
        problem_count: usize,
    },
    /// Backups are not whole; what is wrong is on standard output already.
    DamagedBackups {
        /// Files that are missing, damaged or not to be read.
        file_count: usize,
    },
    /// `torture` has found something, or has not found what was planted; what is on standard output
    /// already.
    Tortured {
        /// In one sentence.
        what: String,
    },
    /// A repair has made a new database, and not all of the old one is in it; what is missing is on
    /// standard output already.
    Repaired {
        /// So many pieces of damage have cost something.
        problem_count: usize,
    },
    /// Two databases differ; how is on standard output already.
    Differs {
        /// In so many keys.
        keys: u64,
        /// In so many keyspaces: one has them and the other does not.
        keyspaces: u64,
        /// Whether these are all.
        is_all: bool,
    },
    /// There is no database to open the shell on.
    NoDatabase {
        /// Where it was looked for.
        path: PathBuf,
        /// Whether the path stood where a command may stand.
        is_positional: bool,
        /// A command of nearly this name.
        similar: Option<String>,
    },
    /// A session is over, and commands of it have failed; that was told.
    Session {
        /// The exit code of the last one.
        code: u8,
    },
    /// Another commit has changed what the transaction of a session has read.
    Conflict,
    /// The user pressed Ctrl-C; the command has closed the database.
    Interrupted,
    /// Anything else: the benchmark failed, or a signal handler could not be set.
    Other(Box<dyn std::error::Error>),
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

/// The only bare input and output errors of commands are those of standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if let Some(inner) = error.get_ref()
            && inner.is::<Cancelled>()
        {
            return Failure::Interrupted;
        }
        Failure::Output(error)
    }
}

/// What writing output gives when Ctrl-C was pressed in a shell: the command ends by it.
#[derive(Debug)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Cancelled {}

impl From<Box<dyn std::error::Error>> for Failure {
    fn from(error: Box<dyn std::error::Error>) -> Failure {
        match error.downcast::<Error>() {
            Ok(error) => Failure::Store(*error),
            Err(error) => match error.downcast::<io::Error>() {
                Ok(error) => Failure::Output(*error),
                Err(error) => Failure::Other(error),
            },
        }
    }
}

impl Failure {
    /// A [`Failure::Usage`].
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure::Usage { what: what.into() }
    }

    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::NotFound { .. } | Failure::Differs { .. } => 1,
            Failure::Usage { .. } | Failure::NoDatabase { .. } => 2,
            Failure::Session { code } => *code,
            Failure::Store(error) => store_exit_code(error),
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Failure::Input { .. }
            | Failure::Write { .. }
            | Failure::Output(_)
            | Failure::Other(_)
            | Failure::Conflict => 3,
            Failure::Damaged { .. }
            | Failure::DamagedBackups { .. }
            | Failure::Repaired { .. }
            | Failure::Tortured { .. } => 4,
            Failure::Interrupted => 130,
        }
    }

    /// What happened, in one sentence; `None` when there is nothing to say: the reader of the
    /// output has gone.
    pub fn message(&self) -> Option<String> {
        match self {
            Failure::NotFound { what } | Failure::Usage { what } | Failure::Tortured { what } => {
                Some(what.clone())
            }
            Failure::Store(error) => {
                Some(future_message(error).unwrap_or_else(|| error.to_string()))
            }
            Failure::Input { path, source } => {
                Some(format!("could not read {}: {source}", path.display()))
            }
            Failure::Write { path, source } => {
                Some(format!("could not write {}: {source}", path.display()))
            }
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Failure::Output(error) => Some(format!("could not write standard output: {error}")),
            Failure::Damaged { problem_count: 1 } | Failure::DamagedBackups { file_count: 1 } => {
                Some("1 problem found".to_owned())
            }
            Failure::Damaged { problem_count: count }
            | Failure::DamagedBackups { file_count: count } => {
                Some(format!("{count} problems found"))
            }
            Failure::Repaired { problem_count: 1 } => {
                Some("repaired, and not whole: 1 piece of damage has cost something".to_owned())
            }
            Failure::Repaired { problem_count } => Some(format!(
                "repaired, and not whole: {problem_count} pieces of damage have cost something"
            )),
            Failure::Differs { is_all: false, .. } => Some("they differ".to_owned()),
            Failure::Differs { keys, keyspaces, .. } => {
                let of = |count: u64, one: &str| match count {
                    1 => format!("1 {one}"),
                    _ => format!("{count} {one}s"),
                };
                let keyspaces = (*keyspaces > 0).then(|| of(*keyspaces, "keyspace"));
                let more = keyspaces.map_or_else(String::new, |text| format!(" and {text}"));
                Some(format!("they differ in {}{more}", of(*keys, "key")))
            }
            Failure::NoDatabase { path, is_positional, similar } => {
                let path = path.display();
                let similar = similar.as_ref().map(|name| format!("; is it `{name}`?"));
                let similar = similar.unwrap_or_default();
                Some(match is_positional {
                    true => format!("{path} is neither a command nor a database{similar}"),
                    false => format!("there is no database in {path}"),
                })
            }
            Failure::Session { .. } => None,
            Failure::Conflict => Some(
                "another commit has changed what this transaction has read: it is undone"
                    .to_owned(),
            ),
            Failure::Interrupted => Some("interrupted".to_owned()),
            Failure::Other(error) => Some(error.to_string()),
        }
    }

    /// What the user can do next.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Failure::Store(error) => store_advice(error),
            Failure::Damaged { .. } => Some(RESTORE_ADVICE),
            Failure::DamagedBackups { .. } => Some(BACKUP_ADVICE),
            Failure::Repaired { .. } => {
                Some("keep the damaged database until it is known that a backup has what is lost")
            }
            Failure::Tortured { .. } => Some(TORTURE_ADVICE),
            Failure::Conflict => Some("run the whole transaction again, from `begin` on"),
            Failure::NoDatabase { .. } => Some(
                "`lithe --db PATH create` makes one, `.open --create PATH` does in the shell; \
                 `lithe --help` lists the commands",
            ),
            _ => None,
        }
    }
}

const RESTORE_ADVICE: &str = "copy the database directory before anything else, then restore a \
    backup; `lithe repair SOURCE TARGET` makes a new database of what can be read";

const BACKUP_ADVICE: &str = "`lithe backup create --verify-shared` makes a backup that is whole, \
    and writes again what others have in common with it; those that stay damaged can be removed";

const TORTURE_ADVICE: &str =
    "keep the directory that is named: `story.txt` and `records.txt` in it say how it came about";

/// What is said of a time in the future: the store has both as numbers.
fn future_message(error: &Error) -> Option<String> {
    let Error::InvalidArgument { what } = error else { return None };
    let (then, now) = what.split_once(" ms since 1970 is in the future: it is ")?;
    let (then, now) = (millis_text(then.parse().ok()?), millis_text(now.parse().ok()?));
    Some(format!("{then} is in the future: it is {now}"))
}

fn store_exit_code(error: &Error) -> u8 {
    match error {
        Error::KeyspaceNotFound { .. }
        | Error::TrailEnded { .. }
        | Error::CommitsNotKept { .. }
        | Error::BeyondRetention { .. }
        | Error::IndexNotFound { .. }
        | Error::ConsumerNotFound { .. } => 1,
        Error::InvalidArgument { .. }
        | Error::KeyspaceExists { .. }
        | Error::ConsumerExists { .. }
        | Error::IndexExists { .. }
        | Error::IndexNotReady { .. }
        | Error::ExtractorMissing { .. }
        | Error::ExtractorFailed { .. }
        | Error::UniqueViolation { .. }
        | Error::KeyNeeded { .. }
        | Error::WrongKey { .. }
        | Error::NotEncrypted { .. }
        | Error::MergeOperatorMissing { .. }
        | Error::MergeFailed { .. }
        | Error::ReduceFailed { .. } => 2,
        Error::Corruption { .. } => 4,
        Error::Io { source, .. } if has_no_manifest(source) => 4,
        _ => 3,
    }
}

/// Whether parts of a database were found, and not what tells what they are.
fn has_no_manifest(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && error.to_string().contains("there is no manifest")
}

fn store_advice(error: &Error) -> Option<&'static str> {
    match error {
        Error::Locked { path, .. } if path.parent().is_some_and(|it| it.ends_with("followers")) => {
            Some("have those end first who read it with `--beside`, or follow it")
        }
        Error::Locked { .. } => {
            Some("close the other program first, or wait for it; `--beside` reads beside it")
        }
        Error::Corruption { .. } => error.advice(),
        Error::DiskFull { .. } => Some("free some room and run the command again"),
        Error::FormatVersion { .. } => Some("use a newer `lithe`"),
        Error::BeyondRetention { .. } => Some("`lithe history` prints what is kept of a key"),
        Error::ReadOnly { why } if why.contains("follows somebody") => Some("leave --beside out"),
        Error::ReadOnly { why } if why.contains("opened to be read") => {
            Some("leave --read-only out; settings may say it, too: `lithe config` shows them")
        }
        Error::ReadOnly { .. } => Some("look after the disk, then run the command again"),
        Error::KeyNeeded { .. } => Some("name its key with --key-file, or use --passphrase"),
        Error::WrongKey { .. } => {
            Some("is it this database's key? Nothing says that it is damaged")
        }
        Error::NotEncrypted { .. } => Some("leave the key options out"),
        Error::KeyspaceNotFound { .. } => Some("`lithe keyspaces` lists what there is"),
        Error::MergeOperatorMissing { .. } => {
            Some("the program that made the keyspace has the operator: use that one")
        }
        Error::IndexNotFound { .. } => Some("`lithe indexes` lists what there is"),
        Error::IndexNotReady { .. } => Some("`lithe index build` goes on with it"),
        Error::ExtractorMissing { .. } => Some(
            "the program that made the index has the extractor: use that one, or drop the index",
        ),
        Error::MergeFailed { .. } => Some("put or delete the key to begin anew"),
        Error::KeyspaceExists { .. } => Some("choose another name, or drop that one first"),
        Error::TrailEnded { .. } => Some("`lithe backup archive --begin` begins another trail"),
        Error::Conflict => Some("run the command again"),
        Error::Io { source, .. } if has_no_manifest(source) => {
            Some("`lithe repair` makes a database of what is there; a copy is made again")
        }
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("is --db right? `lithe put` and `lithe load` create a database")
        }
        Error::Io { source, .. } if source.kind() == io::ErrorKind::FileTooLarge => {
            Some("raise the limit for the size of files: `ulimit -f`")
        }
        Error::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Some("where nothing can be written, --read-only reads what is there")
        }
        Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Some("check the owner and the mode of the file")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn exit_codes_are_those_of_the_manual() {
        let path = Path::new("db/LOCK");
        let cases = [
            (Failure::NotFound { what: "no such key".into() }, 1),
            (Failure::usage("no"), 2),
            (Error::KeyspaceNotFound { name: "x".into() }.into(), 1),
            (Error::invalid("key too long").into(), 2),
            (Error::MergeOperatorMissing { name: "x".into() }.into(), 2),
            (Error::IndexNotFound { name: "x".into() }.into(), 1),
            (Error::IndexNotReady { name: "x".into() }.into(), 2),
            (Error::UniqueViolation { index: "x".into(), key: vec![0] }.into(), 2),
            (Error::MergeFailed { operator: "x".into(), why: "y".into() }.into(), 2),
            (Error::Locked { path: path.into(), owner: "process 7".into() }.into(), 3),
            (Error::DiskFull { path: path.into() }.into(), 3),
            (Error::io("read", path, io::ErrorKind::NotFound.into()).into(), 3),
            (Error::corruption(path, 16, "bad checksum").into(), 4),
            (Failure::Differs { keys: 2, keyspaces: 0, is_all: true }, 1),
            (Failure::Damaged { problem_count: 2 }, 4),
            (Failure::DamagedBackups { file_count: 2 }, 4),
            (Failure::Tortured { what: "1 finding".into() }, 4),
            (Failure::Interrupted, 130),
        ];
        for (failure, code) in cases {
            assert_eq!(failure.exit_code(), code, "{failure:?}");
            assert!(failure.message().is_some(), "{failure:?}");
        }
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit_code(), 0);
        assert_eq!(failure.message(), None);
    }

    #[test]
    fn damage_is_named_with_file_and_offset() {
        let failure = Failure::from(Error::corruption(Path::new("db/wal/3"), 4096, "bad checksum"));
        let message = failure.message().unwrap();
        assert!(message.contains("db/wal/3") && message.contains("4096"), "{message}");
        assert!(failure.advice().unwrap().contains("backup"));
    }

    #[test]
    fn what_the_system_says_no_to_has_advice() {
        let advice = |kind: io::ErrorKind| {
            let error = Error::io("lock", Path::new("db/LOCK"), kind.into());
            Failure::from(error).advice().unwrap()
        };
        assert!(advice(io::ErrorKind::ReadOnlyFilesystem).contains("--read-only"));
        assert!(advice(io::ErrorKind::FileTooLarge).contains("ulimit"));
    }

    #[test]
    fn a_time_in_the_future_is_told_as_a_time() {
        let message = |what: &str| Failure::from(Error::invalid(what)).message().unwrap();
        assert_eq!(
            message("4070908800000 ms since 1970 is in the future: it is 1795811156291"),
            "2099-01-01T00:00:00.000Z is in the future: it is 2026-11-27T20:25:56.291Z"
        );
        assert_eq!(message("a key is too long"), "invalid argument: a key is too long");
    }

    #[test]
    fn errors_of_the_benchmark_keep_their_exit_code() {
        let boxed: Box<dyn std::error::Error> = Box::new(Error::corruption(Path::new("f"), 0, "x"));
        assert_eq!(Failure::from(boxed).exit_code(), 4);
        let boxed: Box<dyn std::error::Error> = "no such workload".into();
        assert_eq!(Failure::from(boxed).exit_code(), 3);
    }
}
