//! manifest (to be written).
