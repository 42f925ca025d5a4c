//! Whether somebody is still who they were: the file of tokens may be read again while a request is
//! under way. What goes on for long asks from time to time, and ends when that is not so (N2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ask::Ask;
use super::failure::Failure;
use super::guard::{token_of, unknown};
use crate::auth::Principal;
use crate::server::Shared;

/// What goes on by itself asks so often.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// For whom something goes on.
#[derive(Debug)]
pub struct Standing {
    shared: Arc<Shared>,
    principal: Principal,
    token: Option<String>,
    /// The reading of the file of tokens by which that is so.
    tokens_read: AtomicU64,
}

impl Standing {
    pub fn of(ask: &Ask) -> Standing {
        Standing {
            shared: Arc::clone(&ask.shared),
            principal: ask.principal.clone(),
            token: token_of(&ask.headers).map(str::to_owned),
            tokens_read: AtomicU64::new(ask.tokens_read),
        }
    }

    /// Whether the token is there, and allows what it did. Costs nothing as long as the file was
    /// not read again.
    pub fn holds(&self) -> bool {
        let read = self.shared.authority.reads();
        if read == self.tokens_read.load(Ordering::Relaxed) {
            return true;
        }
        let token = self.token.as_deref().unwrap_or_default();
        let found = self.shared.authority.who_has(token);
        let holds = found.is_some_and(|found| {
            found.name() == self.principal.name() && found.rights() == self.principal.rights()
        });
        if holds {
            self.tokens_read.store(read, Ordering::Relaxed);
        }
        holds
    }

    /// The same as something to go on with or not.
    pub fn check(&self) -> Result<(), Failure> {
        if self.holds() { Ok(()) } else { Err(gone()) }
    }
}

/// Why something ends.
pub fn gone() -> Failure {
    unknown("the token is gone, or allows something else by now")
}
