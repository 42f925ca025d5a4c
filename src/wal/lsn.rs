//! A position in the log.

use std::fmt;

/// Bytes of records since the birth of the log, over all its files: where a record starts or ends.
/// Always a multiple of 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// The birth of the log.
    pub const ZERO: Lsn = Lsn(0);
    /// Behind every position.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// The position `value` bytes after the birth.
    #[must_use]
    pub const fn from_u64(value: u64) -> Lsn {
        Lsn(value)
    }

    /// Bytes since the birth.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The position `bytes` further on; [`Lsn::MAX`] when there is none.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0.saturating_add(bytes))
    }

    /// The position `bytes` in front of this one; the birth when there is none.
    #[must_use]
    pub const fn minus(self, bytes: u64) -> Lsn {
        Lsn(self.0.saturating_sub(bytes))
    }

    /// Bytes from `earlier` to here; 0 when `earlier` is the later one.
    #[must_use]
    pub const fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
