//! Codecs: how blocks are compressed. Only the names; the work is done where blocks are made.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::error::{Error, Result};

/// Bytes of a dictionary for Zstandard, at most.
pub const DICTIONARY_SIZE_MAX: usize = 256 << 10;

/// How hard Zstandard may try.
const ZSTD_LEVELS: RangeInclusive<u8> = 1..=22;
const ZSTD_LEVEL_DEFAULT: u8 = 3;
/// A stored choice has the codec's number in its lowest bits, and the level above them.
const NUMBER_BITS: u32 = 8;

/// How the blocks of a keyspace are compressed.
///
/// ```
/// use lithedb::Codec;
/// assert_eq!("zstd:19".parse::<Codec>()?, Codec::Zstd(19));
/// assert_eq!(Codec::zstd().to_string(), "zstd:3");
/// assert!(Codec::Lz4.is_available());
/// # Ok::<(), lithedb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// LZ4: fast, about half the size for text.
    Lz4,
    /// Snappy: about as LZ4; for those who know it.
    Snappy,
    /// Zstandard, of a level from 1 to 22, [`Codec::zstd`] for the usual one: smaller than the
    /// others, slower to write, about a third as fast to read. Needs a program that was built with
    /// the feature `zstd`, which brings C code: see [`Codec::is_available`].
    Zstd(u8),
}

impl Codec {
    /// [`Codec::Zstd`] of level 3.
    #[must_use]
    pub const fn zstd() -> Codec {
        Codec::Zstd(ZSTD_LEVEL_DEFAULT)
    }

    /// The number by which a frame names it. A level takes no part in reading.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
            Codec::Snappy => 2,
            Codec::Zstd(_) => 3,
        }
    }

    /// The codec that a frame names by this number; its level is not known, and the usual one here.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Codec> {
        match number {
            0 => Some(Codec::None),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::zstd()),
            _ => None,
        }
    }

    /// The number under which the choice of it is stored: as in a frame, and its level.
    #[must_use]
    pub const fn to_stored(self) -> u64 {
        match self {
            Codec::Zstd(level) => ((level as u64) << NUMBER_BITS) | self.to_u8() as u64,
            other => other.to_u8() as u64,
        }
    }

    /// The choice that is stored under this number.
    #[must_use]
    pub fn from_stored(number: u64) -> Option<Codec> {
        let level = u8::try_from(number >> NUMBER_BITS).ok()?;
        let codec = match Codec::from_u8(number as u8)? {
            Codec::Zstd(_) => Codec::Zstd(level),
            other => other,
        };
        (codec.has_a_known_level() && codec.to_stored() == number).then_some(codec)
    }

    /// Its name, without a level.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Snappy => "snappy",
            Codec::Zstd(_) => "zstd",
        }
    }

    /// Whether this program can write and read it: all but [`Codec::Zstd`] always, that one if it
    /// was built with the feature `zstd`.
    #[must_use]
    pub const fn is_available(self) -> bool {
        !matches!(self, Codec::Zstd(_)) || cfg!(feature = "zstd")
    }

    /// Checks that the level is one that there is.
    ///
    /// # Errors
    /// `InvalidArgument` that says what is allowed.
    pub(crate) fn check_level(self) -> Result<()> {
        if self.has_a_known_level() {
            return Ok(());
        }
        let (first, last) = (ZSTD_LEVELS.start(), ZSTD_LEVELS.end());
        Err(Error::invalid(format!("there is no codec {self}: levels are {first} to {last}")))
    }

    /// The error of whoever needs it and does not have it.
    pub(crate) fn missing(self) -> Error {
        let name = self.name();
        Error::invalid(format!(
            "this program has no codec {name}: build it with the feature {name:?}"
        ))
    }

    fn has_a_known_level(self) -> bool {
        match self {
            Codec::Zstd(level) => ZSTD_LEVELS.contains(&level),
            _ => true,
        }
    }
}

/// `none`, `lz4`, `snappy`, or `zstd:3`.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Zstd(level) => write!(f, "zstd:{level}"),
            other => f.write_str(other.name()),
        }
    }
}

/// What [`Codec`] writes of itself; `zstd` alone has the usual level.
impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Codec> {
        let codec = match text {
            "none" => Some(Codec::None),
            "lz4" => Some(Codec::Lz4),
            "snappy" => Some(Codec::Snappy),
            "zstd" => Some(Codec::zstd()),
            other => {
                let level = other.strip_prefix("zstd:").and_then(|level| level.parse().ok());
                level.map(Codec::Zstd)
            }
        };
        let Some(codec) = codec else {
            let known = "there are none, lz4, snappy, zstd, and zstd:1 to zstd:22";
            return Err(Error::invalid(format!("unknown codec {text:?}: {known}")));
        };
        codec.check_level().map(|()| codec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codecs_map_one_to_one() {
        let known: Vec<Codec> = (0..=u8::MAX).filter_map(Codec::from_u8).collect();
        assert_eq!(known, [Codec::None, Codec::Lz4, Codec::Snappy, Codec::zstd()]);
        assert!(known.iter().all(|&codec| Codec::from_u8(codec.to_u8()) == Some(codec)));
        let stored: Vec<Codec> = (0..=u64::from(u16::MAX)).filter_map(Codec::from_stored).collect();
        assert_eq!(stored.len(), 3 + 22);
        assert!(stored.iter().all(|codec| Codec::from_stored(codec.to_stored()) == Some(*codec)));
        assert_eq!(Codec::from_stored((1 << 16) | (3 << 8) | 3), None, "a level beyond a byte");
    }

    #[test]
    fn codecs_are_read_as_they_are_written() {
        for codec in [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(1), Codec::Zstd(22)] {
            assert_eq!(codec.to_string().parse::<Codec>().unwrap(), codec);
        }
        assert_eq!("zstd".parse::<Codec>().unwrap(), Codec::Zstd(3));
        for wrong in ["", "LZ4", "zstd:", "zstd:0", "zstd:23", "zstd:-1", "lz4:1", "zstd:256"] {
            let error = wrong.parse::<Codec>().unwrap_err().to_string();
            assert!(error.contains("codec"), "{error}");
        }
    }
}
