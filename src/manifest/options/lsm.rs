//! Options that only keyspaces of [`Structure::Lsm`](super::Structure::Lsm) have.

use std::ops::RangeInclusive;

use crate::base::{Codec, DICTIONARY_SIZE_MAX, Error, Result};
use crate::manifest::fields::{Decoded, Fields};
use crate::manifest::options::check_range;

/// The small end is for tests; below 1 MiB the files become too many for real data.
const TABLE_SIZE_RANGE: RangeInclusive<u32> = 1 << 10..=1 << 30;
const BLOCK_SIZE_RANGE: RangeInclusive<u32> = 512..=1 << 20;
const RESTART_INTERVAL_RANGE: RangeInclusive<u16> = 0..=1024;
/// Smaller ones are not trained. Larger ones would take more memory to be trained than they save on
/// disk: 64 times as much is held back.
const DICTIONARY_SIZE_RANGE: RangeInclusive<u32> = 256..=DICTIONARY_SIZE_MAX as u32;
const FILTER_BITS_RANGE: RangeInclusive<u8> = 0..=32;
const LEVEL0_TRIGGER_RANGE: RangeInclusive<u8> = 2..=64;
const LEVEL_RATIO_RANGE: RangeInclusive<f32> = 1.5..=100.0;
const BUCKET_LOW_RANGE: RangeInclusive<f32> = 0.05..=1.0;
const BUCKET_HIGH_RANGE: RangeInclusive<f32> = 1.0..=20.0;
const THRESHOLD_RANGE: RangeInclusive<u8> = 2..=32;
const RUN_COUNT_RANGE: RangeInclusive<u8> = 2..=200;
const GARBAGE_RANGE: RangeInclusive<f32> = 0.05..=8.0;
/// Levels that a codec can be set for: 0 to 6.
const LEVEL_COUNT: usize = 7;
/// Numbers with a fraction are stored in this part of one.
const FRACTION_UNIT: f32 = 1000.0;

/// The shape that compactions bring a keyspace into. For [`KeyspaceOptions::compaction`].
///
/// [`KeyspaceOptions::compaction`]: super::KeyspaceOptions::compaction
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Compaction {
    /// Few runs, little garbage: reads look into few tables, and little room is taken.
    Leveled(Leveled),
    /// Runs of like size are merged: least is written, for more runs and more garbage.
    Tiered(Tiered),
}

impl Default for Compaction {
    fn default() -> Compaction {
        Compaction::Leveled(Leveled::new())
    }
}

/// Parameters of [`Compaction::Leveled`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Leveled {
    /// See [`Leveled::level0_trigger`].
    pub level0_trigger: u8,
    /// See [`Leveled::level_ratio`].
    pub level_ratio: f32,
}

impl Default for Leveled {
    fn default() -> Leveled {
        Leveled::new()
    }
}

impl Leveled {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Leveled {
        Leveled { level0_trigger: 4, level_ratio: 10.0 }
    }

    /// How many runs that were flushed may stand side by side before they are merged, 2 to 64,
    /// default 4. More write less, and reads look into more of them.
    #[must_use]
    pub const fn level0_trigger(mut self, runs: u8) -> Leveled {
        self.level0_trigger = runs;
        self
    }

    /// How many times larger than what is in front of it a level is to be, 1.5 to 100, default 10,
    /// kept in thousandths. Larger takes less space, about 1 / ratio of the data, and writes more.
    #[must_use]
    pub const fn level_ratio(mut self, ratio: f32) -> Leveled {
        self.level_ratio = ratio;
        self
    }
}

/// Parameters of [`Compaction::Tiered`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tiered {
    /// See [`Tiered::bucket`].
    pub bucket_low: f32,
    /// See [`Tiered::bucket`].
    pub bucket_high: f32,
    /// See [`Tiered::threshold`].
    pub threshold: u8,
    /// See [`Tiered::run_count_max`].
    pub run_count_max: u8,
    /// See [`Tiered::garbage_max`].
    pub garbage_max: f32,
}

impl Default for Tiered {
    fn default() -> Tiered {
        Tiered::new()
    }
}

impl Tiered {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Tiered {
        Tiered {
            bucket_low: 0.5,
            bucket_high: 1.5,
            threshold: 4,
            run_count_max: 16,
            garbage_max: 1.0,
        }
    }

    /// Runs are of like size when each takes from `low` (0.05 to 1) to `high` (1 to 20) times their
    /// mean; default 0.5 to 1.5, kept in thousandths. Wider merges earlier, and runs of more
    /// different sizes, which writes more.
    #[must_use]
    pub const fn bucket(mut self, range: RangeInclusive<f32>) -> Tiered {
        (self.bucket_low, self.bucket_high) = (*range.start(), *range.end());
        self
    }

    /// How many runs of like size are merged, 2 to 32, default 4. More write less, and reads look
    /// into more of them.
    #[must_use]
    pub const fn threshold(mut self, runs: u8) -> Tiered {
        self.threshold = runs;
        self
    }

    /// How many runs there may be, whatever their sizes, 2 to 200, default 16.
    #[must_use]
    pub const fn run_count_max(mut self, runs: u8) -> Tiered {
        self.run_count_max = runs;
        self
    }

    /// When all that is newer than the oldest run takes so many times the room of that, everything
    /// is merged, 0.05 to 8, default 1, kept in thousandths. This bounds the garbage: smaller takes
    /// less space and writes more.
    #[must_use]
    pub const fn garbage_max(mut self, share: f32) -> Tiered {
        self.garbage_max = share;
        self
    }
}

/// What [`KeyspaceOptions::lsm`](super::KeyspaceOptions::lsm) has beside what every keyspace has.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LsmOptions {
    /// See [`KeyspaceOptions::compaction`](super::KeyspaceOptions::compaction).
    pub compaction: Compaction,
    /// See [`KeyspaceOptions::table_size`](super::KeyspaceOptions::table_size).
    pub table_size: u32,
    /// See [`KeyspaceOptions::block_size`](super::KeyspaceOptions::block_size).
    pub block_size: u32,
    /// See [`KeyspaceOptions::restart_interval`](super::KeyspaceOptions::restart_interval).
    pub restart_interval: u16,
    /// See [`KeyspaceOptions::filter_bits`](super::KeyspaceOptions::filter_bits).
    pub filter_bits: u8,
    /// See [`KeyspaceOptions::filter_prefix_len`](super::KeyspaceOptions::filter_prefix_len).
    pub filter_prefix_len: u8,
    /// See [`KeyspaceOptions::dictionary_size`](super::KeyspaceOptions::dictionary_size).
    pub dictionary_size: u32,
    /// See [`KeyspaceOptions::pin_indexes`](super::KeyspaceOptions::pin_indexes).
    pub pin_indexes: bool,
    /// See [`KeyspaceOptions::level_codec`](super::KeyspaceOptions::level_codec); where there is
    /// none, the codec of the keyspace.
    pub level_codecs: [Option<Codec>; LEVEL_COUNT],
}

impl Default for LsmOptions {
    fn default() -> LsmOptions {
        LsmOptions::new()
    }
}

impl LsmOptions {
    /// The defaults.
    pub(super) const fn new() -> LsmOptions {
        LsmOptions {
            compaction: Compaction::Leveled(Leveled::new()),
            table_size: 64 << 20,
            block_size: 4 << 10,
            restart_interval: 0,
            filter_bits: 10,
            filter_prefix_len: 0,
            dictionary_size: 0,
            pin_indexes: false,
            level_codecs: [None; LEVEL_COUNT],
        }
    }

    /// Checks every option against its limits.
    pub(super) fn check_limits(&self) -> Result<()> {
        check_range("table_size", self.table_size, &TABLE_SIZE_RANGE)?;
        check_range("block_size", self.block_size, &BLOCK_SIZE_RANGE)?;
        check_range("restart_interval", self.restart_interval, &RESTART_INTERVAL_RANGE)?;
        check_range("filter_bits", self.filter_bits, &FILTER_BITS_RANGE)?;
        if self.dictionary_size > 0 {
            check_range("dictionary_size", self.dictionary_size, &DICTIONARY_SIZE_RANGE)?;
        }
        if self.filter_prefix_len > 0 && self.filter_bits == 0 {
            return Err(Error::invalid(
                "filter_prefix_len without filter_bits: there is no filter",
            ));
        }
        self.level_codecs.iter().flatten().try_for_each(|codec| codec.check_level())?;
        match self.compaction {
            Compaction::Leveled(leveled) => {
                check_range("level0_trigger", leveled.level0_trigger, &LEVEL0_TRIGGER_RANGE)?;
                check_range("level_ratio", leveled.level_ratio, &LEVEL_RATIO_RANGE)
            }
            Compaction::Tiered(tiered) => {
                check_range("bucket_low", tiered.bucket_low, &BUCKET_LOW_RANGE)?;
                check_range("bucket_high", tiered.bucket_high, &BUCKET_HIGH_RANGE)?;
                check_range("threshold", tiered.threshold, &THRESHOLD_RANGE)?;
                check_range("run_count_max", tiered.run_count_max, &RUN_COUNT_RANGE)?;
                check_range("garbage_max", tiered.garbage_max, &GARBAGE_RANGE)
            }
        }
    }

    /// Names and values in their stored form. What the style of compaction says about the names
    /// behind it comes first.
    pub(super) fn stored(&self) -> Vec<(String, u64)> {
        let fraction = |value: f32| (value * FRACTION_UNIT).round() as u64;
        let mut options = match self.compaction {
            Compaction::Leveled(leveled) => vec![
                ("compaction", 0),
                ("level0_trigger", u64::from(leveled.level0_trigger)),
                ("level_ratio", fraction(leveled.level_ratio)),
            ],
            Compaction::Tiered(tiered) => vec![
                ("compaction", 1),
                ("bucket_low", fraction(tiered.bucket_low)),
                ("bucket_high", fraction(tiered.bucket_high)),
                ("threshold", u64::from(tiered.threshold)),
                ("run_count_max", u64::from(tiered.run_count_max)),
                ("garbage_max", fraction(tiered.garbage_max)),
            ],
        };
        options.extend([
            ("table_size", u64::from(self.table_size)),
            ("block_size", u64::from(self.block_size)),
            ("restart_interval", u64::from(self.restart_interval)),
            ("filter_bits", u64::from(self.filter_bits)),
            ("filter_prefix_len", u64::from(self.filter_prefix_len)),
            ("pin_indexes", u64::from(self.pin_indexes)),
        ]);
        if self.dictionary_size > 0 {
            options.push(("dictionary_size", u64::from(self.dictionary_size)));
        }
        let mut options: Vec<(String, u64)> =
            options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        for (level, codec) in self.level_codecs.iter().enumerate() {
            options.extend(codec.map(|codec| (format!("codec_{level}"), codec.to_stored())));
        }
        options
    }

    /// Takes the option `name`; `None` when it cannot have this value.
    ///
    /// # Errors
    /// When there is no option of that name.
    pub(super) fn take(
        &mut self,
        name: &str,
        value: u64,
        fields: &Fields<'_>,
    ) -> Decoded<Option<()>> {
        let fraction = u32::try_from(value).ok().map(|value| value as f32 / FRACTION_UNIT);
        let byte = u8::try_from(value).ok();
        let word = u32::try_from(value).ok();
        let taken = match (name, &mut self.compaction) {
            ("compaction", compaction) => {
                *compaction = match value {
                    0 => Compaction::Leveled(Leveled::new()),
                    1 => Compaction::Tiered(Tiered::new()),
                    _ => return Ok(None),
                };
                Some(())
            }
            ("level0_trigger", Compaction::Leveled(leveled)) => {
                byte.map(|runs| leveled.level0_trigger = runs)
            }
            ("level_ratio", Compaction::Leveled(leveled)) => {
                fraction.map(|ratio| leveled.level_ratio = ratio)
            }
            ("bucket_low", Compaction::Tiered(tiered)) => {
                fraction.map(|low| tiered.bucket_low = low)
            }
            ("bucket_high", Compaction::Tiered(tiered)) => {
                fraction.map(|high| tiered.bucket_high = high)
            }
            ("threshold", Compaction::Tiered(tiered)) => byte.map(|runs| tiered.threshold = runs),
            ("run_count_max", Compaction::Tiered(tiered)) => {
                byte.map(|runs| tiered.run_count_max = runs)
            }
            ("garbage_max", Compaction::Tiered(tiered)) => {
                fraction.map(|share| tiered.garbage_max = share)
            }
            ("table_size", _) => word.map(|bytes| self.table_size = bytes),
            ("block_size", _) => word.map(|bytes| self.block_size = bytes),
            ("restart_interval", _) => {
                u16::try_from(value).ok().map(|interval| self.restart_interval = interval)
            }
            ("filter_bits", _) => byte.map(|bits| self.filter_bits = bits),
            ("dictionary_size", _) => word.map(|bytes| self.dictionary_size = bytes),
            ("filter_prefix_len", _) => byte.map(|len| self.filter_prefix_len = len),
            ("pin_indexes", _) => (value < 2).then(|| self.pin_indexes = value == 1),
            _ => match level_of(name) {
                Some(level) => {
                    let codec = Codec::from_stored(value);
                    codec.map(|codec| self.level_codecs[level] = Some(codec))
                }
                None => return super::unknown(name, fields),
            },
        };
        Ok(taken)
    }
}

/// The level whose codec the option `name` is.
fn level_of(name: &str) -> Option<usize> {
    let level = name.strip_prefix("codec_")?;
    (0..LEVEL_COUNT).find(|known| known.to_string() == level)
}
