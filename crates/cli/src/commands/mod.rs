//! The commands that are one step each; a file per command, with its options.

pub mod check;
pub mod commits;
pub mod compact;
pub mod completions;
pub mod count;
pub mod delete;
pub mod diff;
pub mod dump;
pub mod expire;
pub mod get;
pub mod history;
pub mod ingest;
pub mod inspect;
pub mod keyspaces;
pub mod merge;
pub mod put;
mod range;
pub mod rank;
pub mod restore;
pub mod scan;
pub mod space;
pub mod stats;
pub mod tables;
pub mod tx;
pub mod vacuum;
pub mod version;
pub mod view;
