//! Who may do what.
//!
//! `tokens.rs` has the file of tokens and how one is looked up, `rights.rs` what a token may do,
//! `guard.rs` how often one may be wrong. A request is done for a [`Principal`], which says yes or
//! no to every verb and keyspace; there is no other place where that is decided (N2).

mod guard;
mod rights;
mod tokens;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use guard::Guard;
pub use rights::{Grant, GrantError, Rights, Verb};
pub use tokens::{KnownToken, NewToken, TokenFileError, Tokens};

/// Somebody for whom requests are done.
#[derive(Clone, Debug)]
pub struct Principal {
    name: Arc<str>,
    rights: Arc<Rights>,
}

impl Principal {
    /// Whoever can connect, where there are no tokens.
    #[must_use]
    pub fn anybody() -> Principal {
        Principal { name: "default".into(), rights: Arc::new(Rights::all()) }
    }

    /// Somebody with a name and rights.
    #[must_use]
    pub fn new(name: &str, rights: Rights) -> Principal {
        Principal { name: name.into(), rights: Arc::new(rights) }
    }

    /// The name, as in the file of tokens.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What may be done, as grants.
    #[must_use]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Whether this may be done with a keyspace.
    #[must_use]
    pub fn may(&self, verb: Verb, keyspace: &str) -> bool {
        self.rights.allow(verb, keyspace)
    }

    /// Whether there is some keyspace with which this may be done, be it there or not.
    #[must_use]
    pub fn may_somewhere(&self, verb: Verb) -> bool {
        self.rights.allow_some(verb)
    }

    /// Whether anything may be done with a keyspace: else it is not shown.
    #[must_use]
    pub fn may_see(&self, keyspace: &str) -> bool {
        Verb::ALL.iter().any(|(verb, _)| self.rights.allow(*verb, keyspace))
    }

    /// Whether anything may be done at all.
    #[must_use]
    pub fn may_anything(&self) -> bool {
        Verb::ALL.iter().any(|(verb, _)| self.rights.allow_some(*verb))
    }

    /// What may be done, as in the file of tokens.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        self.rights.grants()
    }

    /// Whether this may be done with all keyspaces, those that are not there yet among them: what
    /// concerns the database as a whole needs it.
    #[must_use]
    pub fn may_with_all(&self, verb: Verb) -> bool {
        self.rights.allow_all(verb)
    }
}

/// What came of a token.
#[derive(Clone, Debug)]
pub enum Known {
    /// It is right.
    As(Principal),
    /// It is not.
    Nobody,
    /// It is not, and there were too many such from this address.
    TooOften,
}

/// Whom a server knows.
#[derive(Debug)]
pub struct Authority {
    /// `None` where whoever can connect may do everything.
    tokens: Option<RwLock<Tokens>>,
    /// How often the file was read.
    reads: AtomicU64,
    guard: Guard,
}

impl Authority {
    /// As a file of tokens says, or without tokens.
    ///
    /// # Errors
    /// When it cannot be read, or is not one.
    pub fn open(file: Option<&Path>, wrong_a_minute: u32) -> Result<Authority, TokenFileError> {
        let tokens = file.map(Tokens::read).transpose()?.map(RwLock::new);
        let reads = AtomicU64::new(1);
        Ok(Authority { tokens, reads, guard: Guard::new(wrong_a_minute) })
    }

    /// Reads the file of tokens again. As before if that fails.
    ///
    /// # Errors
    /// As [`Authority::open`].
    pub fn reload(&self, file: &Path) -> Result<(), TokenFileError> {
        let read = Tokens::read(file)?;
        if let Some(tokens) = &self.tokens {
            *tokens.write().unwrap_or_else(PoisonError::into_inner) = read;
        }
        self.reads.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How often the file was read: who was known by an earlier reading is to be looked up again.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Acquire)
    }

    /// For whom requests are done that bring no token, if they are.
    #[must_use]
    pub fn without_token(&self) -> Option<Principal> {
        self.tokens.is_none().then(Principal::anybody)
    }

    /// For whom there are tokens, by name; none where there is no file of them.
    #[must_use]
    pub fn principals(&self) -> Vec<Principal> {
        let Some(tokens) = &self.tokens else { return Vec::new() };
        let known = tokens.read().unwrap_or_else(PoisonError::into_inner).list();
        known.into_iter().map(|known| known.principal).collect()
    }

    /// Who has this token. `now` is monotonic. Costs the same for each that has the form of one and
    /// is not right. A right one is known however many wrong ones come from its address: behind a
    /// proxy that is the address of all.
    #[must_use]
    pub fn with_token(&self, token: &str, from: IpAddr, now: Duration) -> Known {
        if let Some(principal) = self.who_has(token) {
            return Known::As(principal);
        }
        if self.guard.is_shut(from, now) {
            return Known::TooOften;
        }
        self.guard.note_wrong(from, now);
        Known::Nobody
    }

    /// Who has this token, for who has shown it before: nothing is counted.
    #[must_use]
    pub fn who_has(&self, token: &str) -> Option<Principal> {
        match &self.tokens {
            None => Some(Principal::anybody()),
            Some(tokens) => tokens.read().unwrap_or_else(PoisonError::into_inner).find(token),
        }
    }
}

#[cfg(test)]
mod tests;
