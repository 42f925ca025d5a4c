//! memtable (to be written).
