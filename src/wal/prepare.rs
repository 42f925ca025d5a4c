//! Making the next log file ready outside the appender's lock.

use crate::base::Result;

use super::directory::{PreparedFile, Spare, WalPlace};

/// An order to make the next file ready, taken from the log under its lock.
#[derive(Debug)]
#[must_use = "the log waits for the outcome"]
pub struct PrepareOrder {
    pub(super) place: WalPlace,
    pub(super) number: u64,
    pub(super) spare: Option<Spare>,
}

/// What became of a [`PrepareOrder`]; to be handed back with [`super::Wal::finish_order`].
#[derive(Debug)]
#[must_use = "the log waits for the outcome"]
pub struct PrepareOutcome {
    pub(super) prepared: Result<PreparedFile>,
}

impl PrepareOrder {
    /// Creates or renames the file and makes its size and name durable. Needs no lock.
    pub fn run(self) -> PrepareOutcome {
        let capacity = self.place.options.file_capacity;
        PrepareOutcome { prepared: self.place.prepare(self.number, capacity, self.spare) }
    }
}
