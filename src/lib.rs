//! LitheDB: an embedded, ordered, transactional key-value store.
//!
//! Keys and values are byte strings. A database is one directory that holds any number of named
//! keyspaces; all of them share one commit log, one snapshot and one API, and each chooses its
//! storage structure.

pub mod base;
mod block;
mod cache;
mod manifest;
mod memtable;
mod merge;
pub mod storage;
mod structure;
mod wal;
