//! Limits that more than one part knows.

/// The largest batch, in bytes: of keys and values, 20 for each entry, and a few for those with
/// large values. A memtable that is empty has room for one, whatever is in it.
pub const BATCH_SIZE_MAX: usize = u32::MAX as usize - (64 << 20);

/// Bytes of memory at which a memtable is sealed, at most.
pub const MEMTABLE_SIZE_MAX: u64 = 1 << 30;
