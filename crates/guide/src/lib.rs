//! The guide (`docs/guide`) as doctests: every Rust program in it is compiled and run.
//!
//! What programs of the guide have in lines that are not shown is here: a database in memory, and a
//! directory that goes when it is dropped. The tests of this crate look after links in the guide,
//! and after what is installed with the program (`packaging/`); those of `crates/cli` run the
//! guide's shell sessions.

use std::sync::Arc;

use lithedb::storage::MemoryStorage;
use lithedb::{Builder, Db, Error, Result};
use tempfile::TempDir;

/// A new database in memory.
///
/// # Errors
/// As [`Db::open`].
pub fn db() -> Result<Db> {
    builder().open("/guide.lithe")
}

/// What opens one in memory.
#[must_use]
pub fn builder() -> Builder {
    Db::builder().storage(Arc::new(MemoryStorage::new()))
}

/// A new directory, which is removed when this is dropped.
///
/// # Errors
/// `Io` when it cannot be made.
pub fn folder() -> Result<TempDir> {
    tempfile::tempdir().map_err(|error| Error::io("create", &std::env::temp_dir(), error))
}

/// Names the chapters, so that their programs become doctests.
macro_rules! chapters {
    ($($name:ident = $file:literal;)*) => {
        $(
            #[doc = include_str!(concat!("../../../docs/guide/src/", $file))]
            #[cfg(doctest)]
            pub struct $name;
        )*
        /// The files of chapters whose programs are compiled.
        pub const CHAPTERS: &[&str] = &[$($file),*];
    };
}

chapters! {
    Introduction = "introduction.md";
    FiveMinutes = "five-minutes.md";
    Structures = "structures.md";
    KeysAndValues = "keys-and-values.md";
    Durability = "durability.md";
    Transactions = "transactions.md";
    TimeTravel = "time-travel.md";
    Indexes = "indexes.md";
    Backups = "backups.md";
    Encryption = "encryption.md";
    Trouble = "trouble.md";
    Tuning = "tuning.md";
    Operating = "operating.md";
    FromRocksdb = "from-rocksdb.md";
    FromLmdb = "from-lmdb.md";
    FromRedb = "from-redb.md";
    FromBbolt = "from-bbolt.md";
    FromRedis = "from-redis.md";
    Limits = "limits.md";
}
