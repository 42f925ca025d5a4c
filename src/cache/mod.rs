//! Cache: values in memory under one budget.
//!
//! [`MemoryBudget`] counts what memtables, cached blocks and indexes take. A [`Slot`] is the place
//! of one cached value and belongs to whoever would otherwise read it again (an interval of a
//! tree, an index entry of a table): there is no map from keys to values, and finding a cached
//! value costs one pointer. [`Cache`] decides which slots stay filled.
//!
//! Must not know what it caches: it is generic, and is told the weight.

mod budget;
mod counters;
mod eviction;
mod slot;
mod store;
#[cfg(test)]
mod tests;

pub use budget::{Charge, MemoryBudget, Part};
pub use slot::Slot;
pub use store::{Admission, Cache, FillOutcome};
