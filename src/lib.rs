//! LitheDB: an embedded, ordered, transactional key-value store.
//!
//! Keys and values are byte strings. A database is one directory that holds any number of named
//! keyspaces; all of them share one commit log, one snapshot and one API, and each chooses its
//! storage structure. [`Db`] is where to start.

mod backup;
pub mod base;
mod block;
mod cache;
mod db;
mod extractor;
pub mod flex_space;
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
mod jobs;
mod manifest;
mod memory;
mod memtable;
mod merge;
mod operator;
mod pieces;
mod seal;
pub mod storage;
mod structure;
mod value_log;
mod wal;

pub use backup::{
    BackupCheck, BackupInfo, BackupOptions, BackupProblem, BackupProgress, BackupRepository,
    BackupStream, FollowOptions, FollowStatus, PruneReport, RestoreOptions, RestoredBackup,
    StreamInfo, TrailFollower, TrailInfo, TrailOptions, TrailProblem, TrailReport,
};
pub use base::format::FORMAT_VERSION;
pub use base::{Codec, Error, Expiry, KeyRange, Result, SeqNo, Slice};
pub use db::{
    Access, BATCH_SIZE_MAX, Background, BackgroundFailure, BackgroundPause, BackgroundWork,
    Builder, BytesWritten, COMMIT_PAYLOAD_LEN_MAX, CaughtUp, Change, ChangeFeed, ChangeKind,
    CheckOptions, CheckPosition, CheckProgress, CheckReport, CheckpointReport, Cleaning, Commit,
    CommitBehind, CommitChanges, Commits, CompactionReport, Consumer, ConsumerInfo, Conversion,
    ConversionReport, Cursor, Db, Difference, Differences, Durability, Entry, FeedOptions,
    FileVersion, FollowUpTo, FollowedChanges, Follower, Followers, Health, HealthState, Index,
    IndexBuildReport, IndexEntry, IndexInfo, IndexIter, IndexOptions, IndexView, Ingest,
    IngestReport, Iter, KEY_LEN_MAX, KeepingUp, KeyDestructionReport, KeyRotationReport,
    KeyVersion, Keys, Keyspace, KeyspaceInfo, KeyspaceStats, Loss, LossKind, OpenExisting,
    PointInTime, Previous, RecoveryReport, RepairOptions, RepairReport, RestoreReport, Rewrite,
    Savepoint, ScrubOptions, ScrubStatus, Snapshot, Stats, Swap, TABLE_FILE_SIZE_MAX,
    TableIngestReport, TableSummary, TableWriter, TrailStatus, Transaction, TransactionCursor,
    TransactionIndex, TransactionIndexEntry, TransactionIndexIter, TransactionIter,
    UPDATE_TRY_COUNT, UpgradeReport, VALUE_LEN_MAX, VacuumReport, ValueFileStats, ValueReader,
    ValueWriter, Versions, VersionsByStamp, WriteBatch, repair,
};
pub use extractor::{ExtractError, IndexExtractor, IndexKeys};
pub use manifest::{
    Compaction, KeyspaceOptions, Leveled, LsmOptions, Structure, Tiered, TrailEnd, TrailEndReason,
};
pub use operator::{MergeError, MergeOperator, Reducer};
pub use seal::{Cipher, Encryption, PassphraseCost, Vault, VaultError};
#[doc(hidden)]
pub use seal::{Keyring, NonceWatch};
pub use structure::flex::tree as flex_tree;
pub use structure::{TableCheck, TableInfo, TableIngestMode, TableIngestOptions};
pub use value_log::Verify;
