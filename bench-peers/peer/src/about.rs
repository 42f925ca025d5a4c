//! What a report says about an engine beside its figures.

use serde_json::{Value, json};

/// The lock file says which versions are built.
const LOCK_FILE: &str = include_str!("../../Cargo.lock");

/// What survives what: decides in which tables an engine counts as a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// An acknowledged write without sync survives the end of the process, one with sync the end
    /// of the machine.
    Kill,
    /// A write without sync can be lost when the process is killed; what was synced is not.
    Sync(&'static str),
    /// A crash can lose or destroy what was synced; the text says how.
    None(&'static str),
}

/// An engine and how it is set up.
#[derive(Clone, Debug)]
pub struct About {
    /// Its version.
    pub version: String,
    /// What it is, in a few words: `B+-tree, copy on write`.
    pub structure: &'static str,
    /// What survives what.
    pub safety: Safety,
    /// The settings that differ from its defaults, and why; one sentence each.
    pub settings: &'static [&'static str],
}

impl About {
    /// The object that `about` prints.
    pub fn to_json(&self, engine: &str) -> Value {
        let (safety, why) = match self.safety {
            Safety::Kill => ("kill", ""),
            Safety::Sync(why) => ("sync", why),
            Safety::None(why) => ("none", why),
        };
        json!({
            "engine": engine, "language": "Rust", "version": self.version,
            "structure": self.structure, "safety": safety, "why": why, "settings": self.settings,
        })
    }
}

/// The version of a package in the lock file; of two, the first; `?` if it is not there.
pub fn version_of(package: &str) -> String {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK_FILE.lines().skip_while(|line| *line != name);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
    version.map_or("?".into(), |version| version.trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert_eq!(version_of("redb"), "4.4.0");
        assert_eq!(version_of("no such package"), "?");
    }

    #[test]
    fn what_can_be_lost_is_said_with_its_reason() {
        let about = About {
            version: "1".into(),
            structure: "heap",
            safety: Safety::Sync("it holds writes back"),
            settings: &["one"],
        };
        let json = about.to_json("heap");
        assert_eq!(
            (&json["safety"], &json["why"]),
            (&"sync".into(), &"it holds writes back".into())
        );
        assert_eq!((&json["engine"], &json["settings"][0]), (&"heap".into(), &"one".into()));
    }
}
