//! wal (to be written).
