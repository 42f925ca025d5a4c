//! What the demo says about the store and checks at once.

use crate::failure::{Failure, Outcome};

/// A sentence that must hold.
#[derive(Clone, Copy, Debug)]
pub struct Claim(pub &'static str);

impl Claim {
    /// Ends the demo when the claim does not hold.
    pub fn holds(self, evidence: bool) -> Outcome {
        if evidence {
            return Ok(());
        }
        Err(Failure::Other(format!("this should hold and does not: {}", self.0).into()))
    }
}
