//! Options of a keyspace: what a user can set, the limits, and the form in which they are stored.
//!
//! Stored as a list of names and values, every option with its value, so that a later version may
//! add options, and change defaults without changing keyspaces that exist. A name that this
//! version does not know is an error: the option might change how the data must be read.

use crate::base::{Codec, Error, MOMENT_MAX, Result, varint};
use crate::manifest::fields::{Decoded, Fields, put_text};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

const INTERVAL_SIZE_RANGE: RangeInclusive<u32> = 512..=1 << 20;
/// The small end is for tests; below 64 KiB the files become too many for real data.
const SEGMENT_SIZE_RANGE: RangeInclusive<u32> = 4 << 10..=256 << 20;
const CONSOLIDATION_PACE_RANGE: RangeInclusive<f32> = 0.05..=8.0;
/// Consolidation paces are stored in this fraction of one.
const PACE_UNIT: f32 = 1000.0;
const DELTA_FAN_IN_RANGE: RangeInclusive<u8> = 2..=64;
const VALUE_SEPARATION_RANGE: RangeInclusive<u32> = 64..=1 << 30;
/// `docs/decisions/0023-value-log.md` has what was measured.
const VALUE_SEPARATION_DEFAULT: u32 = 4 << 10;
/// How it is stored that no value is separated.
const NEVER_SEPARATED: u64 = 0;
const OPERATOR_NAME_LEN_RANGE: RangeInclusive<usize> = 1..=255;
const TTL_MILLIS_RANGE: RangeInclusive<u128> = 1..=MOMENT_MAX as u128;
const NANOS_PER_MILLI: u128 = 1_000_000;
const MEMTABLE_SIZE_RANGE: RangeInclusive<u64> = 4 << 10..=64 << 30;

/// The storage structure of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// Intervals in segments: mixed reads and writes, fast scans, low write amplification.
    #[default]
    Flex,
}

impl Structure {
    /// The number under which the structure is stored; 1 and 2 are set aside for `Lsm` and
    /// `History`.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        match self {
            Structure::Flex => 0,
        }
    }

    /// The structure that is stored under this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Structure> {
        match number {
            0 => Some(Structure::Flex),
            _ => None,
        }
    }
}

/// How a keyspace stores its data.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeyspaceOptions {
    /// The storage structure. Cannot be changed by setting options.
    pub structure: Structure,
    /// See [`KeyspaceOptions::codec`].
    pub codec: Codec,
    /// See [`KeyspaceOptions::interval_size`].
    pub interval_size: u32,
    /// See [`KeyspaceOptions::segment_size`].
    pub segment_size: u32,
    /// See [`KeyspaceOptions::consolidation_pace`].
    pub consolidation_pace: f32,
    /// See [`KeyspaceOptions::delta_fan_in`].
    pub delta_fan_in: u8,
    /// See [`KeyspaceOptions::memtable_size`].
    pub memtable_size: Option<u64>,
    /// See [`KeyspaceOptions::value_separation`].
    pub value_separation: Option<u32>,
    /// See [`KeyspaceOptions::merge_operator`].
    pub merge_operator: Option<String>,
    /// See [`KeyspaceOptions::ttl`].
    pub ttl: Option<Duration>,
}

impl Default for KeyspaceOptions {
    fn default() -> KeyspaceOptions {
        KeyspaceOptions::flex()
    }
}

impl KeyspaceOptions {
    /// The defaults for [`Structure::Flex`].
    #[must_use]
    pub const fn flex() -> KeyspaceOptions {
        KeyspaceOptions {
            structure: Structure::Flex,
            codec: Codec::None,
            interval_size: 16 << 10,
            segment_size: 4 << 20,
            consolidation_pace: 0.5,
            delta_fan_in: 8,
            memtable_size: None,
            value_separation: Some(VALUE_SEPARATION_DEFAULT),
            merge_operator: None,
            ttl: None,
        }
    }

    /// How blocks are compressed. Default [`Codec::None`]. Blocks that exist stay as they are until
    /// they are rewritten.
    #[must_use]
    pub const fn codec(mut self, codec: Codec) -> KeyspaceOptions {
        self.codec = codec;
        self
    }

    /// Bytes that an interval aims at, 512 B to 1 MiB, default 16 KiB. A read loads one interval:
    /// smaller ones read less per miss, larger ones need less memory for their anchors and compress
    /// better.
    #[must_use]
    pub const fn interval_size(mut self, bytes: u32) -> KeyspaceOptions {
        self.interval_size = bytes;
        self
    }

    /// Bytes after which a segment file is closed, 4 KiB to 256 MiB, default 4 MiB. Space is given
    /// back by whole segments: smaller ones sooner, at the price of more files.
    #[must_use]
    pub const fn segment_size(mut self, bytes: u32) -> KeyspaceOptions {
        self.segment_size = bytes;
        self
    }

    /// How much dead data is tolerated against live data before ranges are rewritten, 0.05 to 8,
    /// default 0.5, kept in thousandths. Larger writes less and takes more space: about
    /// 1 / pace more write amplification, and pace / 2 more space amplification.
    #[must_use]
    pub const fn consolidation_pace(mut self, pace: f32) -> KeyspaceOptions {
        self.consolidation_pace = pace;
        self
    }

    /// How many delta runs of an interval are merged among themselves, 2 to 64, or 0 for never;
    /// default 8. Larger suits data that is large against the memtable.
    #[must_use]
    pub const fn delta_fan_in(mut self, count: u8) -> KeyspaceOptions {
        self.delta_fan_in = count;
        self
    }

    /// Values of so many bytes or more go to the value log, 64 bytes to 1 GiB, default 4 KiB;
    /// `None`: none does. There they are written once, and not again with every flush and
    /// consolidation; a read costs one read of a file more, and a walk that wants values one for
    /// each. Values that exist stay where they are.
    #[must_use]
    pub const fn value_separation(mut self, bytes: Option<u32>) -> KeyspaceOptions {
        self.value_separation = bytes;
        self
    }

    /// Bytes at which a memtable is sealed, 4 KiB to 64 GiB. By default the memory budget decides.
    #[must_use]
    pub const fn memtable_size(mut self, bytes: u64) -> KeyspaceOptions {
        self.memtable_size = Some(bytes);
        self
    }

    /// The name of the operator by which [`crate::Keyspace::merge`] merges operands into values, 1
    /// to 255 bytes. By default there is none, and nothing can be merged. `counter` (adds
    /// little-endian numbers of 64 bits, and wraps: `i64` or `u64`), `append` (bytes), `min` and
    /// `max` (in the order of keys) are built in; others are registered by
    /// [`crate::Builder::merge_operator`]. The name is stored with the keyspace. Where it is not
    /// registered, `merge`, and reading what was merged, give
    /// [`crate::Error::MergeOperatorMissing`], and everything else works.
    #[must_use]
    pub fn merge_operator(mut self, name: impl Into<String>) -> KeyspaceOptions {
        self.merge_operator = Some(name.into());
        self
    }

    /// How long what is put is there unless that is said, 1 ms at least, kept in milliseconds,
    /// rounded up; see [`crate::Keyspace::put_with_ttl`]. By default for ever. Counts for
    /// everything that puts: [`crate::Keyspace::put`], batches, transactions, values that are
    /// streamed, ingests. A keyspace has no `ttl` beside a merge operator.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> KeyspaceOptions {
        self.ttl = Some(ttl);
        self
    }

    /// Checks every option against its limits.
    ///
    /// # Errors
    /// `InvalidArgument` that names the option, its value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        check_range("interval_size", self.interval_size, &INTERVAL_SIZE_RANGE)?;
        check_range("segment_size", self.segment_size, &SEGMENT_SIZE_RANGE)?;
        check_range("consolidation_pace", self.consolidation_pace, &CONSOLIDATION_PACE_RANGE)?;
        if self.delta_fan_in != 0 && !DELTA_FAN_IN_RANGE.contains(&self.delta_fan_in) {
            return Err(Error::invalid(format!(
                "delta_fan_in is {}: allowed are {} to {}, or 0 for never",
                self.delta_fan_in,
                DELTA_FAN_IN_RANGE.start(),
                DELTA_FAN_IN_RANGE.end()
            )));
        }
        if let Some(bytes) = self.value_separation {
            check_range("value_separation", bytes, &VALUE_SEPARATION_RANGE)?;
        }
        if let Some(len) = self.merge_operator.as_ref().map(String::len) {
            check_range("the length of merge_operator", len, &OPERATOR_NAME_LEN_RANGE)?;
        }
        if let Some(millis) = self.ttl.map(|ttl| ttl.as_millis()) {
            check_range("ttl in milliseconds", millis, &TTL_MILLIS_RANGE)?;
            if let Some(operator) = &self.merge_operator {
                let what = format!("ttl and merge_operator ({operator:?}) do not go together");
                return Err(Error::invalid(what));
            }
        }
        match self.memtable_size {
            Some(size) => check_range("memtable_size", size, &MEMTABLE_SIZE_RANGE),
            None => Ok(()),
        }
    }

    /// Valid options as they are read back: what is kept in some unit is rounded to it.
    #[must_use]
    pub(crate) fn rounded(self) -> KeyspaceOptions {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        KeyspaceOptions::decode(&mut Fields::new(&bytes)).expect("what is valid can be read back")
    }

    /// Appends structure and options in their stored form.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let pace = (self.consolidation_pace * PACE_UNIT).round() as u64;
        let mut options = vec![
            ("codec", u64::from(self.codec.to_u8())),
            ("interval_size", u64::from(self.interval_size)),
            ("segment_size", u64::from(self.segment_size)),
            ("consolidation_pace", pace),
            ("delta_fan_in", u64::from(self.delta_fan_in)),
            ("value_separation", self.value_separation.map_or(NEVER_SEPARATED, u64::from)),
        ];
        options.extend(self.memtable_size.map(|size| ("memtable_size", size)));
        options.extend(self.ttl.map(|ttl| ("ttl_millis", millis_of(ttl))));
        out.push(self.structure.to_u8());
        let operator = self.merge_operator.as_deref();
        varint::put(out, options.len() as u64 + u64::from(operator.is_some()));
        for (name, value) in options {
            put_text(out, name);
            varint::put(out, value);
        }
        if let Some(operator) = operator {
            put_text(out, "merge_operator");
            put_text(out, operator);
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Decoded<KeyspaceOptions> {
        let structure = fields.byte("structure")?;
        let mut options = match Structure::from_u8(structure) {
            Some(Structure::Flex) => KeyspaceOptions::flex(),
            None => return fields.malformed(format!("unknown structure {structure}")),
        };
        for _ in 0..fields.count("number of options")? {
            options.decode_one(fields)?;
        }
        match options.validate() {
            Ok(()) => Ok(options),
            Err(error) => fields.malformed(error.to_string()),
        }
    }

    fn decode_one(&mut self, fields: &mut Fields<'_>) -> Decoded<()> {
        let name = fields.text("name of an option")?;
        if name == "merge_operator" {
            self.merge_operator = Some(fields.text(name)?.to_owned());
            return Ok(());
        }
        let value = fields.u64(name)?;
        let narrow = || u32::try_from(value).ok();
        let known = match name {
            "codec" => {
                let codec = u8::try_from(value).ok().and_then(Codec::from_u8);
                codec.map(|codec| self.codec = codec)
            }
            "interval_size" => narrow().map(|value| self.interval_size = value),
            "segment_size" => narrow().map(|value| self.segment_size = value),
            "consolidation_pace" => {
                let pace = u16::try_from(value).ok().map(|value| f32::from(value) / PACE_UNIT);
                pace.map(|pace| self.consolidation_pace = pace)
            }
            "delta_fan_in" => u8::try_from(value).ok().map(|value| self.delta_fan_in = value),
            "value_separation" => {
                let bytes = narrow();
                bytes.map(|bytes| self.value_separation = (bytes > 0).then_some(bytes))
            }
            "ttl_millis" => {
                self.ttl = Some(Duration::from_millis(value));
                Some(())
            }
            "memtable_size" => {
                self.memtable_size = Some(value);
                Some(())
            }
            _ => {
                return fields.malformed(format!(
                    "the option {name:?} is unknown: a newer program may have set it"
                ));
            }
        };
        match known {
            Some(()) => Ok(()),
            None => fields.malformed(format!("the option {name:?} has the unknown value {value}")),
        }
    }
}

/// Rounded up, as what is put with a time to live.
fn millis_of(ttl: Duration) -> u64 {
    let millis = ttl.as_nanos().div_ceil(NANOS_PER_MILLI);
    u64::try_from(millis).unwrap_or(u64::MAX).min(MOMENT_MAX)
}

fn check_range<T: PartialOrd + Display + Copy>(
    name: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<()> {
    // Not `value < start || value > end`: a value that is not a number is in no range.
    if range.contains(&value) {
        return Ok(());
    }
    let (start, end) = (range.start(), range.end());
    Err(Error::invalid(format!("{name} is {value}: allowed are {start} to {end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_the_message_names_option_value_and_range() {
        KeyspaceOptions::default().validate().unwrap();
        let flex = KeyspaceOptions::flex;
        let wrong = [
            (flex().interval_size(511), "interval_size is 511: allowed are 512 to 1048576"),
            (flex().segment_size(1), "segment_size is 1: allowed are 4096 to 268435456"),
            (flex().consolidation_pace(f32::NAN), "consolidation_pace is NaN: allowed are 0.05"),
            (flex().consolidation_pace(8.1), "consolidation_pace is 8.1: allowed are 0.05 to 8"),
            (flex().delta_fan_in(1), "delta_fan_in is 1: allowed are 2 to 64, or 0 for never"),
            (flex().memtable_size(1), "memtable_size is 1: allowed are 4096 to 68719476736"),
            (flex().merge_operator(""), "the length of merge_operator is 0: allowed are 1 to 255"),
            (flex().ttl(Duration::ZERO), "ttl in milliseconds is 0: allowed are 1 to 28147497671"),
            (
                flex().ttl(Duration::from_secs(1)).merge_operator("min"),
                "ttl and merge_operator (\"min\") do not go together",
            ),
            (flex().value_separation(Some(63)), "value_separation is 63: allowed are 64 to 10737"),
        ];
        for (options, message) in wrong {
            let error = options.validate().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        flex().delta_fan_in(0).segment_size(4 << 10).validate().unwrap();
    }

    fn decode(bytes: &[u8]) -> Decoded<KeyspaceOptions> {
        let mut fields = Fields::new(bytes);
        let options = KeyspaceOptions::decode(&mut fields)?;
        fields.finish().map(|()| options)
    }

    #[test]
    fn options_round_trip_and_every_cut_is_refused() {
        let all = [
            KeyspaceOptions::flex(),
            KeyspaceOptions::flex()
                .codec(Codec::Lz4)
                .interval_size(1 << 20)
                .segment_size(64 << 10)
                .consolidation_pace(0.123)
                .delta_fan_in(0)
                .memtable_size(64 << 30)
                .value_separation(Some(64)),
            KeyspaceOptions::flex().value_separation(None),
            KeyspaceOptions::flex().consolidation_pace(8.0).delta_fan_in(64),
            KeyspaceOptions::flex().merge_operator("counter"),
            KeyspaceOptions::flex().ttl(Duration::from_millis(90_000)),
        ];
        for options in all {
            let mut bytes = Vec::new();
            options.encode(&mut bytes);
            assert_eq!(decode(&bytes).unwrap(), options);
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err(), "cut to {cut}");
            }
        }
    }

    #[test]
    fn what_is_kept_in_a_unit_is_rounded_to_it_once() {
        let ttl = |nanos| KeyspaceOptions::flex().ttl(Duration::from_nanos(nanos)).rounded().ttl;
        assert_eq!(ttl(1_000_000), Some(Duration::from_millis(1)));
        assert_eq!(ttl(1_000_001), Some(Duration::from_millis(2)));
        let longest = Duration::from_millis(MOMENT_MAX) + Duration::from_nanos(1);
        let longest = KeyspaceOptions::flex().ttl(longest);
        longest.validate().unwrap();
        assert_eq!(longest.rounded().ttl, Some(Duration::from_millis(MOMENT_MAX)));
        let options = KeyspaceOptions::flex().consolidation_pace(0.1234).rounded();
        assert_eq!(options, KeyspaceOptions::flex().consolidation_pace(0.123));
    }

    #[test]
    fn unknown_options_values_and_structures_are_named() {
        let mut bytes = vec![0, 1];
        put_text(&mut bytes, "colour");
        bytes.push(1);
        let error = decode(&bytes).unwrap_err();
        assert!(error.what.contains("\"colour\" is unknown"), "{}", error.what);

        let mut bytes = vec![0, 1];
        put_text(&mut bytes, "codec");
        bytes.push(77);
        let error = decode(&bytes).unwrap_err();
        assert!(error.what.contains("\"codec\" has the unknown value 77"), "{}", error.what);

        let error = decode(&[2, 0]).unwrap_err();
        assert!(error.what.contains("unknown structure 2"), "{}", error.what);
    }
}
