//! block (to be written).
