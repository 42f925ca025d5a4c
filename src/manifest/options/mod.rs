//! Options of a keyspace: what a user can set, the limits, and the form in which they are stored.
//!
//! Stored as a list of names and values, every option with its value, so that a later version may
//! add options, and change defaults without changing keyspaces that exist. A name that this
//! version does not know is an error: the option might change how the data must be read. So is one
//! that belongs to another structure: each stores its own, and those that every keyspace has.

mod index;
mod lsm;
#[cfg(test)]
mod tests;

pub use index::{IndexRecord, check_index_name};
pub use lsm::{Compaction, Leveled, LsmOptions, Tiered};

use crate::base::limits::MEMTABLE_SIZE_MAX;
use crate::base::{Codec, Error, MOMENT_MAX, Result, SeqNo, varint};
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
const LIFE_MILLIS_RANGE: RangeInclusive<u128> = 1..=MOMENT_MAX as u128;
const KEEP_VERSIONS_RANGE: RangeInclusive<u32> = 1..=1_000_000;
const NANOS_PER_MILLI: u128 = 1_000_000;
const MEMTABLE_SIZE_RANGE: RangeInclusive<u64> = 4 << 10..=MEMTABLE_SIZE_MAX;

/// The storage structure of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// Intervals in segments: mixed reads and writes, fast scans, low write amplification.
    #[default]
    Flex,
    /// Sorted tables in levels: write-heavy and large data, small files on disk.
    Lsm,
    /// Every version of every key is kept, or those that [`KeyspaceOptions::keep_for`] and
    /// [`KeyspaceOptions::keep_versions`] ask for, to be read as of any moment: the present as in
    /// [`Structure::Flex`], with its options, and beside it an archive of versions. What is merged
    /// into a key is a version each time; reading one costs about what its value takes.
    History,
}

impl Structure {
    /// The number under which the structure is stored.
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        match self {
            Structure::Flex => 0,
            Structure::Lsm => 1,
            Structure::History => 2,
        }
    }

    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Structure::Flex => "flex",
            Structure::Lsm => "lsm",
            Structure::History => "history",
        }
    }

    /// The structure that is stored under this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Structure> {
        match number {
            0 => Some(Structure::Flex),
            1 => Some(Structure::Lsm),
            2 => Some(Structure::History),
            _ => None,
        }
    }
}

/// How a keyspace stores its data. Options that only one structure has say so; in a keyspace of
/// another structure they must be left as they are.
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
    /// See [`KeyspaceOptions::keep_for`].
    pub keep_for: Option<Duration>,
    /// See [`KeyspaceOptions::keep_versions`].
    pub keep_versions: Option<u32>,
    /// What only [`Structure::Lsm`] has.
    pub lsm: LsmOptions,
    /// Of the archive of a keyspace of [`Structure::History`], that keyspace's number. Set by
    /// LitheDB alone: such a keyspace is no other's to create, to open or to see.
    pub(crate) archive_of: Option<u32>,
    /// Of an archive whose keyspace has `keep_for`: as of moments in front of this one, versions
    /// may have been left out. Never goes back.
    pub(crate) kept_from: SeqNo,
    /// Of a keyspace in which an index is kept, what that is. As hidden as an archive.
    pub(crate) index: Option<Box<IndexRecord>>,
    /// Of an archive: nothing is known of moments in front of this one, as the keyspace was
    /// converted then, and kept no versions before. Never goes back.
    pub(crate) begins_at: SeqNo,
    /// Of an archive: whether there were ingests into its keyspace, which come to it later than to
    /// the keyspace. Stays.
    pub(crate) has_ingests: bool,
    /// Whether it has a data key of its own; its archive and its indexes have the same, and say so
    /// as well. Set by LitheDB alone, when it is created. Stays.
    pub(crate) own_key: bool,
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
            keep_for: None,
            keep_versions: None,
            lsm: LsmOptions::new(),
            archive_of: None,
            kept_from: SeqNo::ZERO,
            index: None,
            begins_at: SeqNo::ZERO,
            has_ingests: false,
            own_key: false,
        }
    }

    /// The defaults for [`Structure::Lsm`].
    #[must_use]
    pub const fn lsm() -> KeyspaceOptions {
        let mut options = KeyspaceOptions::flex();
        options.structure = Structure::Lsm;
        options
    }

    /// The defaults for [`Structure::History`]. It has the options of [`Structure::Flex`], which
    /// shape the present; [`KeyspaceOptions::codec`] counts for the archive, too.
    #[must_use]
    pub const fn history() -> KeyspaceOptions {
        let mut options = KeyspaceOptions::flex();
        options.structure = Structure::History;
        options
    }

    /// Those of the archive that a keyspace of these options and this number has. Its tables are of
    /// `table_size`, or else as large as others.
    #[must_use]
    pub(crate) fn of_archive(&self, parent: u32, table_size: Option<u32>) -> KeyspaceOptions {
        let mut options = KeyspaceOptions::lsm().codec(self.codec);
        options.lsm.table_size = table_size.unwrap_or(options.lsm.table_size);
        options.lsm.block_size = options.lsm.block_size.min(options.lsm.table_size);
        options.value_separation = None; // Values come with their pointers.
        options.memtable_size = self.memtable_size;
        (options.keep_for, options.keep_versions) = (self.keep_for, self.keep_versions);
        options.archive_of = Some(parent);
        options.own_key = self.own_key;
        options
    }

    /// Whether an archive of a keyspace of these options has its versions in the order of stamps:
    /// those that go by their number would leave it one by one.
    #[must_use]
    pub(crate) fn keeps_stamps(&self) -> bool {
        self.keep_for.is_some() || self.keep_versions.is_none()
    }

    /// How blocks are compressed. Default [`Codec::None`]. Blocks that exist stay as they are until
    /// they are rewritten. A block that a codec does not make smaller by an eighth is stored as it
    /// is. In a keyspace of [`Structure::Lsm`] the codec of the levels that
    /// [`KeyspaceOptions::level_codec`] says nothing about.
    #[must_use]
    pub const fn codec(mut self, codec: Codec) -> KeyspaceOptions {
        self.codec = codec;
        self
    }

    /// Bytes that an interval aims at, 512 B to 1 MiB, default 16 KiB. A read loads one interval:
    /// smaller ones read less per miss, larger ones need less memory for their anchors and compress
    /// better. For [`Structure::Flex`].
    #[must_use]
    pub const fn interval_size(mut self, bytes: u32) -> KeyspaceOptions {
        self.interval_size = bytes;
        self
    }

    /// Bytes after which a segment file is closed, 4 KiB to 256 MiB, default 4 MiB. Space is given
    /// back by whole segments: smaller ones sooner, at the price of more files. For
    /// [`Structure::Flex`].
    #[must_use]
    pub const fn segment_size(mut self, bytes: u32) -> KeyspaceOptions {
        self.segment_size = bytes;
        self
    }

    /// How much dead data is tolerated against live data before ranges are rewritten, 0.05 to 8,
    /// default 0.5, kept in thousandths. Larger writes less and takes more space: about
    /// 1 / pace more write amplification, and pace / 2 more space amplification. For
    /// [`Structure::Flex`].
    #[must_use]
    pub const fn consolidation_pace(mut self, pace: f32) -> KeyspaceOptions {
        self.consolidation_pace = pace;
        self
    }

    /// How many delta runs of an interval are merged among themselves, 2 to 64, or 0 for never;
    /// default 8. Larger suits data that is large against the memtable. For [`Structure::Flex`].
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

    /// Bytes at which a memtable is sealed, 4 KiB to 1 GiB. By default the memory budget decides.
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

    /// How far back a keyspace of [`Structure::History`] can be read, 1 ms at least, kept in
    /// milliseconds, rounded up: a version goes when it was overwritten, deleted or expired longer
    /// ago than that, or later: when its part of the archive is merged, or by
    /// [`crate::Keyspace::compact`].
    /// Reading as of an earlier moment is [`crate::Error::BeyondRetention`]. By default, and beside
    /// [`KeyspaceOptions::keep_versions`] alone, time lets no version go. With both, what either
    /// asks for is kept.
    #[must_use]
    pub const fn keep_for(mut self, duration: Duration) -> KeyspaceOptions {
        self.keep_for = Some(duration);
        self
    }

    /// How many versions of each key a keyspace of [`Structure::History`] keeps at least, 1 to
    /// 1,000,000, the newest ones, deletions among them; others go when their part of the archive
    /// is merged, or by [`crate::Keyspace::compact`]. A key is read as of a moment as long as it
    /// has not changed so often since; then that is [`crate::Error::BeyondRetention`], as is a walk
    /// that comes to it. A keyspace with this alone has no order of versions by stamp
    /// ([`crate::Keyspace::versions_by_stamp`]), and a deleted key keeps its versions. By default,
    /// and beside [`KeyspaceOptions::keep_for`] alone, the number lets no version go.
    #[must_use]
    pub const fn keep_versions(mut self, count: u32) -> KeyspaceOptions {
        self.keep_versions = Some(count);
        self
    }

    /// How a keyspace is kept in shape: [`Compaction::Leveled`], the default, or
    /// [`Compaction::Tiered`], with their parameters. May be changed at any time; the next
    /// compactions bring what there is into the other shape. For [`Structure::Lsm`].
    #[must_use]
    pub const fn compaction(mut self, compaction: Compaction) -> KeyspaceOptions {
        self.lsm.compaction = compaction;
        self
    }

    /// Bytes at which a table is closed, 1 KiB to 1 GiB, default 64 MiB. A compaction rewrites
    /// whole tables: smaller ones make it finer and its jobs shorter, at the price of more files.
    /// For [`Structure::Lsm`].
    #[must_use]
    pub const fn table_size(mut self, bytes: u32) -> KeyspaceOptions {
        self.lsm.table_size = bytes;
        self
    }

    /// Bytes of entries at which a block is closed, 512 B to 1 MiB, default 4 KiB. A read loads one
    /// block: smaller ones read less per miss, larger ones compress better and need a smaller
    /// index. For [`Structure::Lsm`].
    #[must_use]
    pub const fn block_size(mut self, bytes: u32) -> KeyspaceOptions {
        self.lsm.block_size = bytes;
        self
    }

    /// In a block, every how many-th key is stored whole, the others without what they share with
    /// the one before them: 1 to 1024, or 0, the default, for 16 where that saves an eighth of the
    /// block, and 1 elsewhere. Larger takes less space; lookups and steps backwards take longer.
    /// For [`Structure::Lsm`].
    #[must_use]
    pub const fn restart_interval(mut self, keys: u16) -> KeyspaceOptions {
        self.lsm.restart_interval = keys;
        self
    }

    /// Bits a key of the filters that say which tables cannot hold a key, 1 to 32, or 0 for none;
    /// default 10. With 10, about one table in a hundred is looked into in vain; each bit more
    /// makes that about 0.7 times as many, and takes memory and space. For [`Structure::Lsm`].
    #[must_use]
    pub const fn filter_bits(mut self, bits: u8) -> KeyspaceOptions {
        self.lsm.filter_bits = bits;
        self
    }

    /// Bytes that keys begin with which the filters know as well, 1 to 255, or 0, the default, for
    /// none. Walks over a prefix of this length or more then pass over tables that hold nothing of
    /// it; the filters grow by an entry a prefix. Needs filters. For [`Structure::Lsm`].
    #[must_use]
    pub const fn filter_prefix_len(mut self, bytes: u8) -> KeyspaceOptions {
        self.lsm.filter_prefix_len = bytes;
        self
    }

    /// Bytes of a dictionary that each table has for its blocks, at most: 256 to 256 KiB, or 0 for
    /// none, which is the default. For levels with the codec [`Codec::Zstd`]: the first blocks of a
    /// table, 64 times as many bytes, are held back, a dictionary is trained from them, and is
    /// written if it saves more than it takes. Entries that are like one another then take less
    /// room, as what they have in common is not in every block. Writing a table takes about twice
    /// that memory and 10 MiB for a moment; a table that is read keeps its dictionary in memory,
    /// and some 30 KiB. Larger is not always better: 4 KiB saved more than 16 KiB where it was
    /// measured, with blocks of 4 KiB. A dictionary is never larger than a 128th of
    /// [`table_size`](Self::table_size). Programs without the feature `zstd`, and those of before
    /// there were dictionaries, refuse tables that have one. For [`Structure::Lsm`].
    #[must_use]
    pub const fn dictionary_size(mut self, bytes: u32) -> KeyspaceOptions {
        self.lsm.dictionary_size = bytes;
        self
    }

    /// Whether indexes and filters stay in memory once they are there; by default they are evicted
    /// like blocks when others are needed more. They count against the memory budget either way.
    /// For [`Structure::Lsm`].
    #[must_use]
    pub const fn pin_indexes(mut self, pin: bool) -> KeyspaceOptions {
        self.lsm.pin_indexes = pin;
        self
    }

    /// How blocks of one level, 0 to 6, are compressed, in place of [`KeyspaceOptions::codec`].
    /// Most data lies at the last level, 6, and is rewritten least: a codec that tries harder pays
    /// there, and none at level 0, which is rewritten soon. For [`Structure::Lsm`].
    ///
    /// # Panics
    /// When there is no such level.
    #[must_use]
    pub const fn level_codec(mut self, level: u8, codec: Codec) -> KeyspaceOptions {
        assert!((level as usize) < self.lsm.level_codecs.len(), "levels are 0 to 6");
        self.lsm.level_codecs[level as usize] = Some(codec);
        self
    }

    /// The codec with which blocks of a level, 0 to 6, are written.
    ///
    /// # Panics
    /// When there is no such level.
    #[must_use]
    pub fn codec_of_level(&self, level: u8) -> Codec {
        self.lsm.level_codecs[usize::from(level)].unwrap_or(self.codec)
    }

    /// Checks every option against its limits, and that this program has the codecs.
    ///
    /// # Errors
    /// `InvalidArgument` that names the option, its value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        self.check_limits()?;
        let levels = self.lsm.level_codecs.iter().flatten();
        match levels.chain([&self.codec]).find(|codec| !codec.is_available()) {
            None => Ok(()),
            Some(codec) => Err(codec.missing()),
        }
    }

    /// Checks every option against its limits. Codecs need not be there: so a keyspace is opened
    /// that another program made.
    pub(super) fn check_limits(&self) -> Result<()> {
        self.check_structure()?;
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
        self.codec.check_level()?;
        self.lsm.check_limits()?;
        if let Some(bytes) = self.value_separation {
            check_range("value_separation", bytes, &VALUE_SEPARATION_RANGE)?;
        }
        if self.archive_of.is_some() && self.structure != Structure::Lsm {
            return Err(Error::invalid("an archive is of the structure lsm"));
        }
        self.check_retention()?;
        self.check_index()?;
        if let Some(len) = self.merge_operator.as_ref().map(String::len) {
            check_range("the length of merge_operator", len, &OPERATOR_NAME_LEN_RANGE)?;
        }
        if let Some(millis) = self.ttl.map(|ttl| ttl.as_millis()) {
            check_range("ttl in milliseconds", millis, &LIFE_MILLIS_RANGE)?;
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

    fn check_retention(&self) -> Result<()> {
        let is_kept = self.structure == Structure::History || self.archive_of.is_some();
        let named = [
            ("keep_for", self.keep_for.is_some()),
            ("keep_versions", self.keep_versions.is_some()),
        ];
        if let Some((name, _)) = named.into_iter().find(|(_, is_set)| *is_set && !is_kept) {
            let structure = self.structure.name();
            let what = format!("a keyspace of structure {structure} has no {name}");
            return Err(Error::invalid(what));
        }
        if let Some(millis) = self.keep_for.map(|duration| duration.as_millis()) {
            check_range("keep_for in milliseconds", millis, &LIFE_MILLIS_RANGE)?;
        }
        if self.kept_from > SeqNo::ZERO && (self.archive_of.is_none() || self.keep_for.is_none()) {
            return Err(Error::invalid("only archives of what is kept for a time have kept_from"));
        }
        if self.begins_at > SeqNo::ZERO && self.archive_of.is_none() {
            return Err(Error::invalid("only archives have begins_at"));
        }
        if self.has_ingests && self.archive_of.is_none() {
            return Err(Error::invalid("only archives have has_ingests"));
        }
        match self.keep_versions {
            Some(count) => check_range("keep_versions", count, &KEEP_VERSIONS_RANGE),
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

    /// Options of other structures are as they are by default: nobody is left to believe that they
    /// do something.
    fn check_structure(&self) -> Result<()> {
        let flex = KeyspaceOptions::flex();
        let foreign = match self.structure {
            Structure::Flex | Structure::History => {
                vec![("options of structure lsm", self.lsm != flex.lsm)]
            }
            Structure::Lsm => vec![
                ("interval_size", self.interval_size != flex.interval_size),
                ("segment_size", self.segment_size != flex.segment_size),
                ("consolidation_pace", self.consolidation_pace != flex.consolidation_pace),
                ("delta_fan_in", self.delta_fan_in != flex.delta_fan_in),
            ],
        };
        match foreign.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((name, _)) => {
                let structure = self.structure.name();
                Err(Error::invalid(format!("a keyspace of structure {structure} has no {name}")))
            }
        }
    }

    /// Appends structure and options in their stored form: those of the structure, and those that
    /// every keyspace has.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut options: Vec<(String, u64)> = Vec::new();
        let mut put = |name: &str, value: u64| options.push((name.to_owned(), value));
        put("codec", self.codec.to_stored());
        match self.structure {
            Structure::Flex | Structure::History => {
                put("interval_size", u64::from(self.interval_size));
                put("segment_size", u64::from(self.segment_size));
                let pace = (self.consolidation_pace * PACE_UNIT).round() as u64;
                put("consolidation_pace", pace);
                put("delta_fan_in", u64::from(self.delta_fan_in));
            }
            Structure::Lsm => {
                self.lsm.stored().into_iter().for_each(|(name, value)| put(&name, value));
            }
        }
        put("value_separation", self.value_separation.map_or(NEVER_SEPARATED, u64::from));
        if let Some(size) = self.memtable_size {
            put("memtable_size", size);
        }
        if let Some(ttl) = self.ttl {
            put("ttl_millis", millis_of(ttl));
        }
        if let Some(duration) = self.keep_for {
            put("keep_for_millis", millis_of(duration));
        }
        if let Some(count) = self.keep_versions {
            put("keep_versions", u64::from(count));
        }
        if let Some(parent) = self.archive_of {
            put("archive_of", u64::from(parent));
        }
        if self.kept_from > SeqNo::ZERO {
            put("kept_from", self.kept_from.as_u64());
        }
        if self.has_ingests {
            put("has_ingests", 1);
        }
        if self.own_key {
            put("own_key", 1);
        }
        let index = self.index.as_deref().into_iter();
        index.clone().flat_map(IndexRecord::numbers).for_each(|(name, value)| put(name, value));
        let operator = self.merge_operator.as_deref().map(|name| ("merge_operator", name));
        let texts: Vec<_> =
            operator.into_iter().chain(index.flat_map(IndexRecord::texts)).collect();
        if self.begins_at > SeqNo::ZERO {
            put("begins_at", self.begins_at.as_u64());
        }
        out.push(self.structure.to_u8());
        varint::put(out, (options.len() + texts.len()) as u64);
        for (name, value) in options {
            put_text(out, &name);
            varint::put(out, value);
        }
        for (name, value) in texts {
            put_text(out, name);
            put_text(out, value);
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Decoded<KeyspaceOptions> {
        let structure = fields.byte("structure")?;
        let mut options = match Structure::from_u8(structure) {
            Some(Structure::Flex) => KeyspaceOptions::flex(),
            Some(Structure::Lsm) => KeyspaceOptions::lsm(),
            Some(Structure::History) => KeyspaceOptions::history(),
            None => return fields.malformed(format!("unknown structure {structure}")),
        };
        for _ in 0..fields.count("number of options")? {
            options.decode_one(fields)?;
        }
        match options.check_limits() {
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
        if self.take_index_text(name, fields)?.is_some() {
            return Ok(());
        }
        let value = fields.u64(name)?;
        let narrow = || u32::try_from(value).ok();
        let known = match name {
            "codec" => Codec::from_stored(value).map(|codec| self.codec = codec),
            "value_separation" => {
                let bytes = narrow();
                bytes.map(|bytes| self.value_separation = (bytes > 0).then_some(bytes))
            }
            "ttl_millis" => {
                self.ttl = Some(Duration::from_millis(value));
                Some(())
            }
            "memtable_size" => {
                self.memtable_size = Some(value.min(MEMTABLE_SIZE_MAX)); // Once it was 64 GiB.
                Some(())
            }
            "keep_for_millis" => {
                self.keep_for = Some(Duration::from_millis(value));
                Some(())
            }
            "keep_versions" => narrow().map(|count| self.keep_versions = Some(count)),
            "kept_from" => {
                self.kept_from = SeqNo::from_u64(value);
                Some(())
            }
            "begins_at" => {
                self.begins_at = SeqNo::from_u64(value);
                Some(())
            }
            "has_ingests" => {
                self.has_ingests = true;
                (value == 1).then_some(())
            }
            "own_key" => {
                self.own_key = true;
                (value == 1).then_some(())
            }
            "archive_of" => narrow().map(|parent| self.archive_of = Some(parent)),
            _ => match (self.take_index_number(name, value), self.structure) {
                (Some(taken), _) => taken,
                (None, Structure::Flex | Structure::History) => {
                    self.take_flex(name, value, fields)?
                }
                (None, Structure::Lsm) => self.lsm.take(name, value, fields)?,
            },
        };
        match known {
            Some(()) => Ok(()),
            None => fields.malformed(format!("the option {name:?} has the unknown value {value}")),
        }
    }

    /// Takes an option that only [`Structure::Flex`] has; `None` when it cannot have this value.
    fn take_flex(&mut self, name: &str, value: u64, fields: &Fields<'_>) -> Decoded<Option<()>> {
        let narrow = || u32::try_from(value).ok();
        Ok(match name {
            "interval_size" => narrow().map(|value| self.interval_size = value),
            "segment_size" => narrow().map(|value| self.segment_size = value),
            "consolidation_pace" => {
                let pace = u16::try_from(value).ok().map(|value| f32::from(value) / PACE_UNIT);
                pace.map(|pace| self.consolidation_pace = pace)
            }
            "delta_fan_in" => u8::try_from(value).ok().map(|value| self.delta_fan_in = value),
            _ => return unknown(name, fields),
        })
    }
}

fn unknown<T>(name: &str, fields: &Fields<'_>) -> Decoded<T> {
    fields.malformed(format!("the option {name:?} is unknown: a newer program may have set it"))
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
