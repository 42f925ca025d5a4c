//! Memory (to be written).
/// Files in memory.
#[derive(Debug)]
pub struct MemoryStorage;
