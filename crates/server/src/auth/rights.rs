//! What somebody may do, with which keyspaces.

use std::fmt;
use std::str::FromStr;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Keys and values, as they are and as they were; the feed of changes; snapshots.
    Read,
    /// Changing keys and values.
    Write,
    /// Making, dropping, renaming and converting keyspaces; flushing, compacting, checking.
    Admin,
    /// Backups and restoring.
    Backup,
    /// Statistics, metrics, health in detail: sizes and rates, no keys.
    Stats,
}

impl Verb {
    pub(super) const ALL: [(Verb, &'static str); 5] = [
        (Verb::Read, "read"),
        (Verb::Write, "write"),
        (Verb::Admin, "admin"),
        (Verb::Backup, "backup"),
        (Verb::Stats, "stats"),
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Its name in a file of tokens.
    #[must_use]
    pub fn name(self) -> &'static str {
        Verb::ALL.iter().find(|(verb, _)| *verb == self).map_or("", |(_, name)| name)
    }
}

/// Some verbs for some keyspaces, as `orders-*:read,write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// A name, or what names begin with and a `*`.
    pattern: String,
    verbs: u8,
}

/// Why something is not a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantError(String);

impl fmt::Display for GrantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GrantError {}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Grant, GrantError> {
        let wrong = |what: String| GrantError(format!("{text:?} is no grant: {what}"));
        // Names of keyspaces may have colons; verbs do not.
        let Some((pattern, verbs)) = text.rsplit_once(':') else {
            return Err(wrong("KEYSPACES:VERBS, as in `orders-*:read,write`".to_owned()));
        };
        if pattern.is_empty() || pattern.contains(char::is_whitespace) {
            return Err(wrong("a keyspace's name without spaces, or `*`".to_owned()));
        }
        if pattern.strip_suffix('*').unwrap_or(pattern).contains('*') {
            return Err(wrong("a `*` may only be the last character".to_owned()));
        }
        let mut bits = 0;
        for name in verbs.split(',') {
            if name == "all" {
                bits |= Verb::ALL.iter().fold(0, |bits, (verb, _)| bits | verb.bit());
                continue;
            }
            let Some((verb, _)) = Verb::ALL.iter().find(|(_, known)| *known == name) else {
                let known = Verb::ALL.map(|(_, name)| name).join(", ");
                return Err(wrong(format!("verbs are {known}, all; not {name:?}")));
            };
            bits |= verb.bit();
        }
        Ok(Grant { pattern: pattern.to_owned(), verbs: bits })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs = Verb::ALL.iter().filter(|(verb, _)| self.verbs & verb.bit() != 0);
        let names: Vec<_> = verbs.map(|(_, name)| *name).collect();
        write!(f, "{}:{}", self.pattern, names.join(","))
    }
}

impl Grant {
    fn covers(&self, keyspace: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(start) => keyspace.starts_with(start),
            None => keyspace == self.pattern,
        }
    }
}

/// All grants of somebody. What none of them allows is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(Vec<Grant>);

impl Rights {
    /// Those of the grants.
    #[must_use]
    pub fn new(grants: Vec<Grant>) -> Rights {
        Rights(grants)
    }

    /// Everything.
    #[must_use]
    pub fn all() -> Rights {
        let verbs = Verb::ALL.iter().fold(0, |bits, (verb, _)| bits | verb.bit());
        Rights(vec![Grant { pattern: "*".to_owned(), verbs }])
    }

    /// The grants.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.0
    }

    pub(super) fn allow(&self, verb: Verb, keyspace: &str) -> bool {
        self.0.iter().any(|grant| grant.verbs & verb.bit() != 0 && grant.covers(keyspace))
    }

    /// Whether there is some keyspace for which it is allowed.
    pub(super) fn allow_some(&self, verb: Verb) -> bool {
        self.0.iter().any(|grant| grant.verbs & verb.bit() != 0)
    }

    pub(super) fn allow_all(&self, verb: Verb) -> bool {
        self.0.iter().any(|grant| grant.verbs & verb.bit() != 0 && grant.pattern == "*")
    }
}
