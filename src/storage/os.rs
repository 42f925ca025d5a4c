//! The operating system (to be written).
/// The operating system's files.
#[derive(Debug)]
pub struct OsStorage;
