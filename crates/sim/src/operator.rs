//! The merge operator of simulated keyspaces: one that shows when an operand is lost, comes twice
//! or in another order, and whose values stay of a size.

use lithedb::{MergeError, MergeOperator};

/// Its name.
pub const TAIL: &str = "tail";
/// Bytes that a value keeps: more than some keyspaces put into the value log.
const KEPT_LEN: usize = 1500;

/// Appends, and keeps the last bytes.
#[derive(Clone, Copy, Debug)]
pub struct Tail;

/// What merging makes of a value.
#[must_use]
pub fn tail(existing: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
    let whole = [existing.unwrap_or_default(), operand].concat();
    whole[whole.len().saturating_sub(KEPT_LEN)..].to_vec()
}

impl MergeOperator for Tail {
    fn merge(
        &self,
        _key: &[u8],
        existing: Option<Vec<u8>>,
        operand: &[u8],
    ) -> Result<Vec<u8>, MergeError> {
        Ok(tail(existing.as_deref(), operand))
    }
}
