//! `lithe backup`: backups in a directory, of what is new alone, and as streams; and trails, which
//! have what comes in between.

mod run;
mod trails;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::notation::parse_size;

pub use run::run;
use trails::{Moment, parse_trail_moment};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe backup create /mnt/backups
  lithe backup list /mnt/backups
  lithe backup verify /mnt/backups --limit 50MiB
  lithe backup restore /mnt/backups 3 my-restored.lithe
  lithe backup restore /mnt/backups 3 my.lithe --replace --yes
  lithe backup prune /mnt/backups --keep 14 --yes
  lithe --db my.lithe backup archive /mnt/backups --begin
  lithe --db my.lithe backup archive /mnt/backups
  lithe backup restore-at /mnt/backups '5 minutes ago' my-restored.lithe
  lithe --db my.lithe backup create --to-stream | ssh elsewhere 'cat > my.backup'
  lithe backup restore-stream my-restored.lithe < my.backup

A directory holds the backups of any number of databases. What one has of a file, the others need
not have again: each backup is a whole one, and only what is new is written. Nothing but `create`,
`archive`, `restore --check` and `restore-at` needs the key of an encrypted database; what a backup
has is sealed as the database is, and opens with the key that this had then.

`archive --begin` has a trail follow the database: its log is kept until `archive` has added it to
the trail, and any moment in between can be restored. To have that done while the database is used
is up to the program that uses it.";

/// Options of `lithe backup`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BackupArgs {
    /// Bytes that are read a second, at most: 50MiB, ..
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    pub limit: Option<u64>,

    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// How the list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackupsFormat {
    /// A table
    Table,
    /// One object per line: `number`, `created`, `database`, `stamp`, `files`, `bytes`,
    /// `written_bytes`, `trail`, `as_of`; of trails `trail`, `database`, `restorable_from`, `to`,
    /// `end`, `backups`, `commits`, `segments`, `bytes`
    Jsonl,
}

/// What to do with backups.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Make one of the database, and the directory if there is none
    Create {
        /// Directory of the backups
        #[arg(required_unless_present = "to_stream", conflicts_with = "to_stream")]
        directory: Option<PathBuf>,
        /// Write it to standard output instead, whole
        #[arg(long)]
        to_stream: bool,
        /// Read and verify also the files that the directory has already, and write damaged ones
        /// again
        #[arg(long, conflicts_with = "to_stream")]
        verify_shared: bool,
    },
    /// List them
    List {
        /// Directory of the backups
        directory: PathBuf,
        /// How the list is written
        #[arg(long, value_name = "FORMAT", default_value = "table")]
        format: BackupsFormat,
    },
    /// Read and verify all files of one, or of all
    Verify {
        /// Directory of the backups
        directory: PathBuf,
        /// Number of the backup [default: all]
        number: Option<u64>,
    },
    /// Make a database of one, which is verified before it has its name
    Restore {
        /// Directory of the backups
        directory: PathBuf,
        /// Number of the backup
        number: u64,
        #[command(flatten)]
        place: RestorePlace,
    },
    /// Add to the trail of the database what has come since; it has to follow it
    Archive {
        /// Directory of the backups
        directory: PathBuf,
        /// Have one follow it from now on, which begins with a backup
        #[arg(long)]
        begin: bool,
        /// Have none follow it any more, behind what has come
        #[arg(long, conflicts_with = "begin")]
        end: bool,
        /// With `--begin`: bytes of log that are kept for it, at most; then it ends
        #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "begin")]
        log_max: Option<u64>,
    },
    /// List trails, with the moments that they reach
    Trails {
        /// Directory of the backups
        directory: PathBuf,
        /// How the list is written
        #[arg(long, value_name = "FORMAT", default_value = "table")]
        format: BackupsFormat,
    },
    /// Make a database as it was at a moment, of a backup and a trail
    RestoreAt {
        /// Directory of the backups
        directory: PathBuf,
        /// The moment: a stamp, a time as in 2026-11-22T18:00:00Z, as in 5 minutes ago, or `latest`
        #[arg(value_parser = parse_trail_moment)]
        moment: Moment,
        /// The trail, by its id as `trails` prints it [default: the one that was begun last]
        #[arg(long, value_name = "ID", value_parser = trails::parse_id)]
        trail: Option<u64>,
        /// The database, by its id, where the directory has trails of several
        #[arg(long, value_name = "ID", value_parser = trails::parse_id)]
        database: Option<u64>,
        #[command(flatten)]
        place: RestorePlace,
    },
    /// Remove one, with the files that only it has
    Remove {
        /// Directory of the backups
        directory: PathBuf,
        /// Number of the backup
        number: u64,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Remove a trail that nothing is added to any more; its backups stay
    RemoveTrail {
        /// Directory of the backups
        directory: PathBuf,
        /// Its id, as `trails` prints it
        #[arg(value_name = "ID", value_parser = trails::parse_id)]
        trail: u64,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Remove all but the newest of each database, with the files that only they have
    Prune {
        /// Directory of the backups
        directory: PathBuf,
        /// How many stay of each: one at least
        #[arg(long, value_name = "COUNT")]
        keep: NonZeroUsize,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Write one to standard output, as a stream
    Export {
        /// Directory of the backups
        directory: PathBuf,
        /// Number of the backup
        number: u64,
    },
    /// Add the one that a stream on standard input has
    Import {
        /// Directory of the backups
        directory: PathBuf,
    },
    /// Make a database of a stream on standard input
    RestoreStream {
        #[command(flatten)]
        place: RestorePlace,
    },
    /// Read and verify a stream on standard input
    VerifyStream,
}

/// Where a database is to be restored to, and how.
#[derive(Args, Debug)]
pub struct RestorePlace {
    /// Where the database is to be
    pub target: PathBuf,

    /// Put it in the place of the database that is there, which is removed then
    #[arg(long)]
    pub replace: bool,

    /// Do not ask before something is replaced
    #[arg(long)]
    pub yes: bool,

    /// Open and check it before it has its name
    #[arg(long)]
    pub check: bool,
}
