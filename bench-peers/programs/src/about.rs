//! What an engine says about itself.

use serde::{Deserialize, Serialize};

/// What an engine says about itself (`about`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineAbout {
    /// Name in reports.
    pub engine: String,
    /// What it is written in.
    pub language: String,
    /// Its version.
    pub version: String,
    /// What it is, in a few words.
    pub structure: String,
    /// What survives what.
    pub safety: Safety,
    /// Why it is not `kill`; else empty.
    pub why: String,
    /// How it is set up, one sentence each.
    pub settings: Vec<String>,
}

/// What survives what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Safety {
    /// Unsynced writes survive the end of the process.
    Kill,
    /// Synced writes only.
    Sync,
    /// A crash can lose or destroy what was synced.
    #[default]
    None,
}
