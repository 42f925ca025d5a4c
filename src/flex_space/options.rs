//! How a space is opened.

use std::path::Path;
use std::sync::Arc;

use super::block::BLOCK_SIZE;
use super::snapshot::SpaceSnapshot;
use super::space::FlexSpace;
use crate::base::{Entropy, Error, Result, SystemEntropy};
use crate::storage::{OsStorage, Storage};

/// Whether changes are made durable one sync at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Journal {
    /// A sync appends what changed since the last one.
    #[default]
    On,
    /// A sync writes the whole index: what comes between two of them is only written once, as
    /// data. For bulk loads, and for spaces that are synced rarely or at closing only.
    Off,
}

const SEGMENT_SIZE_DEFAULT: u64 = 16 << 20;
const SEGMENT_SIZE_MIN: u64 = 4 * BLOCK_SIZE as u64;
const SEGMENT_SIZE_MAX: u64 = 1 << 30;
const GARBAGE_FRACTION_DEFAULT: f64 = 0.5;
const OPEN_FILE_COUNT_DEFAULT: usize = 64;

/// Options for opening a space; made by [`FlexSpace::options`].
///
/// ```
/// # fn main() -> lithedb::Result<()> {
/// use lithedb::flex_space::{FlexSpace, Journal};
/// use lithedb::storage::MemoryStorage;
/// let mut space = FlexSpace::options()
///     .storage(std::sync::Arc::new(MemoryStorage::new()))
///     .journal(Journal::Off)
///     .segment_size(1 << 20)
///     .open("/in-memory")?;
/// space.append(b"bulk")?;
/// space.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SpaceOptions {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) journal: Journal,
    pub(super) segment_size: u64,
    pub(super) garbage_fraction: Option<f64>,
    pub(super) open_file_count_max: usize,
}

impl Default for SpaceOptions {
    fn default() -> SpaceOptions {
        SpaceOptions {
            storage: Arc::new(OsStorage::new()),
            entropy: Arc::new(SystemEntropy::default()),
            journal: Journal::default(),
            segment_size: SEGMENT_SIZE_DEFAULT,
            garbage_fraction: Some(GARBAGE_FRACTION_DEFAULT),
            open_file_count_max: OPEN_FILE_COUNT_DEFAULT,
        }
    }
}

impl SpaceOptions {
    /// Where files are. Default: the operating system.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> SpaceOptions {
        self.storage = storage;
        self
    }

    /// Where the identity of a new space is drawn. Default: the operating system.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> SpaceOptions {
        self.entropy = entropy;
        self
    }

    /// Whether there is a journal. Default: yes. May differ from one opening to the next.
    #[must_use]
    pub fn journal(mut self, journal: Journal) -> SpaceOptions {
        self.journal = journal;
        self
    }

    /// Bytes of a segment file: 16 KiB to 1 GiB. Default 16 MiB. Smaller ones die sooner, larger
    /// ones are fewer files. Holds for segments that are made from now on.
    #[must_use]
    pub fn segment_size(mut self, bytes: u64) -> SpaceOptions {
        self.segment_size = bytes;
        self
    }

    /// The share of garbage in the data from which on a sync also collects some of it, above 0 and
    /// below 1; `None` for never. Default 0.5. Each live byte that is moved is written once more:
    /// about (1 - fraction) / fraction bytes for each byte that is given back.
    #[must_use]
    pub fn garbage_fraction(mut self, fraction: Option<f64>) -> SpaceOptions {
        self.garbage_fraction = fraction;
        self
    }

    /// Segment files that are open for reading at the same time, at most: 1 and more. Default 64.
    #[must_use]
    pub fn open_files(mut self, count: usize) -> SpaceOptions {
        self.open_file_count_max = count;
        self
    }

    /// Opens the space in the directory `path`, and creates it if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of range; else as [`FlexSpace::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<FlexSpace> {
        self.check()?;
        super::open::open(&self, path.as_ref())
    }

    /// Opens what the last sync of the space in the directory `path` made durable, for reading.
    ///
    /// # Errors
    /// As [`FlexSpace::open_read_only`], and `InvalidArgument` for options out of range.
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<SpaceSnapshot> {
        self.check()?;
        super::open::open_read_only(&self, path.as_ref())
    }

    fn check(&self) -> Result<()> {
        if !(SEGMENT_SIZE_MIN..=SEGMENT_SIZE_MAX).contains(&self.segment_size) {
            return Err(Error::invalid(format!(
                "segment_size is {}; it is from {SEGMENT_SIZE_MIN} to {SEGMENT_SIZE_MAX}",
                self.segment_size
            )));
        }
        if self.garbage_fraction.is_some_and(|fraction| !(fraction > 0.0 && fraction < 1.0)) {
            return Err(Error::invalid("garbage_fraction is above 0 and below 1"));
        }
        if self.open_file_count_max == 0 {
            return Err(Error::invalid("open_files is 1 or more"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused() {
        for options in [
            SpaceOptions::default().segment_size(1),
            SpaceOptions::default().garbage_fraction(Some(0.0)),
            SpaceOptions::default().garbage_fraction(Some(1.0)),
            SpaceOptions::default().open_files(0),
        ] {
            assert!(matches!(options.check(), Err(Error::InvalidArgument { .. })));
        }
    }
}
