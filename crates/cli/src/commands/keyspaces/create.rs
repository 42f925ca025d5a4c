//! What `lithe keyspaces create` takes.

use std::time::Duration;

use clap::{Args, ValueEnum};
use lithedb::{Codec, Compaction, KeyspaceOptions, Leveled, Tiered};

use crate::failure::Failure;
use crate::notation::{parse_duration, parse_size, parse_small_size};

const EXAMPLES: &str = "\
Examples:
  lithe --db my.lithe keyspaces create users
  lithe --db my.lithe keyspaces create events --codec lz4 --interval-size 64KiB --pace 1.2
  lithe --db my.lithe keyspaces create log --structure lsm --level-codec 6=snappy
  lithe --db my.lithe keyspaces create queue --structure lsm --compaction tiered --threshold 8
  lithe --db my.lithe keyspaces create visits --merge counter
  lithe --db my.lithe keyspaces create sessions --ttl 36h
  lithe --db my.lithe keyspaces create prices --structure history
  lithe --db safe.lithe --key-file key keyspaces create customer-17 --own-key

The options stay with the keyspace; `lithe keyspaces` shows them.";

/// Options of `lithe keyspaces create`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CreateArgs {
    /// Its name
    pub name: String,

    /// How it stores its data
    #[arg(long, value_name = "STRUCTURE", default_value = "flex")]
    pub structure: StructureName,

    /// Give it a data key of its own, in an encrypted database: `drop` destroys that
    #[arg(long)]
    pub own_key: bool,

    #[command(flatten)]
    options: OptionArgs,
}

/// Options of a keyspace, but for its structure.
#[derive(Args, Debug)]
pub struct OptionArgs {
    /// How blocks are compressed: none, lz4, snappy, zstd, or zstd:1 to zstd:22 [default: none]
    #[arg(long, value_name = "CODEC", value_parser = parse_codec)]
    pub codec: Option<Codec>,

    /// When a memtable is sealed and flushed, 4KiB to 1GiB [default: an eighth of the memory
    /// budget, 64MiB at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memtable_size: Option<u64>,

    /// From what size on a value is stored in a value file and not again with every flush and
    /// consolidation, 64B to 1GiB, or `off` [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_separation)]
    pub value_separation: Option<Separation>,

    /// What `lithe merge` does to a value: counter (adds 64-bit numbers), append, min, max, or the
    /// name of an operator of another program [default: nothing can be merged]
    #[arg(long, value_name = "OPERATOR")]
    pub merge: Option<String>,

    /// How long what is put is there unless that is said, as in 90s, 10m, 36h, 7d
    /// [default: until it is deleted]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "merge")]
    pub ttl: Option<Duration>,

    #[command(flatten)]
    history: HistoryArgs,

    #[command(flatten)]
    flex: FlexArgs,

    #[command(flatten)]
    lsm: LsmArgs,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Of structure history")]
struct HistoryArgs {
    /// How far back it can be read, as in 90s, 10m, 36h, 7d: what was overwritten or deleted longer
    /// ago goes in time [default: as far as there is something]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep_for: Option<Duration>,

    /// How many versions of each key are kept at least, the newest ones; with --keep-for, what
    /// either asks for [default: all of them]
    #[arg(long, value_name = "COUNT")]
    keep_versions: Option<u32>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Of structures flex and history")]
struct FlexArgs {
    /// What an interval aims at, 512B to 1MiB: smaller ones read less for a point read, larger ones
    /// take less memory and compress better [default: 16KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_size)]
    interval_size: Option<u32>,

    /// When a segment file is closed, 4KiB to 256MiB: space is given back by whole segments
    /// [default: 4MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_size)]
    segment_size: Option<u32>,

    /// How much dead data is tolerated against live data, 0.05 to 8: larger writes less and takes
    /// more space [default: 0.5]
    #[arg(long, value_name = "RATIO")]
    pace: Option<f32>,

    /// How many delta runs of an interval are merged among themselves, 2 to 64, or 0 for never:
    /// larger suits data that is large against the memtable [default: 8]
    #[arg(long, value_name = "RUNS")]
    fan_in: Option<u8>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Of structure lsm")]
struct LsmArgs {
    /// The shape that compactions aim at
    #[arg(long, value_name = "STYLE")]
    compaction: Option<Style>,

    /// With leveled: how many flushed runs may stand side by side, 2 to 64; more write less, and
    /// reads look into more of them
    #[arg(long, value_name = "RUNS")]
    level0_trigger: Option<u8>,

    /// With leveled: how many times larger than what is in front of it a level is, 1.5 to 100;
    /// larger takes less space and writes more
    #[arg(long, value_name = "RATIO")]
    level_ratio: Option<f32>,

    /// With tiered: runs are of like size from so many times their mean, 0.05 to 1
    /// [default: 0.5]
    #[arg(long, value_name = "RATIO")]
    bucket_low: Option<f32>,

    /// With tiered: up to so many times their mean, 1 to 20 [default: 1.5]
    #[arg(long, value_name = "RATIO")]
    bucket_high: Option<f32>,

    /// With tiered: how many runs of like size are merged, 2 to 32 [default: 4]
    #[arg(long, value_name = "RUNS")]
    threshold: Option<u8>,

    /// With tiered: how many runs there may be, whatever their sizes, 2 to 200 [default: 16]
    #[arg(long, value_name = "RUNS")]
    run_count_max: Option<u8>,

    /// With tiered: how much garbage there may be against live data, 0.05 to 8 [default: 1]
    #[arg(long, value_name = "RATIO")]
    garbage_max: Option<f32>,

    /// When a table is closed, 1KiB to 1GiB: smaller ones make compactions finer, at the price of
    /// more files [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_size)]
    table_size: Option<u32>,

    /// When a block is closed, 512B to 1MiB: smaller ones read less for a point read, larger ones
    /// compress better [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_size)]
    block_size: Option<u32>,

    /// Every how many-th key of a block is stored whole, 1 to 1024, or 0 for as many as it pays
    /// [default: 0]
    #[arg(long, value_name = "KEYS")]
    restart_interval: Option<u16>,

    /// Bits a key in filters, 1 to 32, or 0 for no filters [default: 10]
    #[arg(long, value_name = "BITS")]
    filter_bits: Option<u8>,

    /// Length of the prefixes that filters know as well, 0 for none [default: 0]
    #[arg(long, value_name = "BYTES")]
    filter_prefix_len: Option<u8>,

    /// Size of a dictionary that each table has for its blocks, where they are compressed with
    /// zstd, 256 bytes to 256KiB, or 0 for none [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_size)]
    dictionary_size: Option<u32>,

    /// Keep indexes and filters in memory
    #[arg(long)]
    pin_indexes: bool,

    /// How blocks of a level, 0 to 6, are compressed, as in 6=zstd:9; for several levels several
    /// times [default: the codec]
    #[arg(long, value_name = "LEVEL=CODEC", value_parser = parse_level_codec)]
    level_codec: Vec<(u8, Codec)>,
}

/// The storage structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StructureName {
    /// Mixed reads and writes, fast scans, low write amplification
    Flex,
    /// Sorted tables in levels: write-heavy and large data, small files
    Lsm,
    /// As flex, and versions of every key are kept, to be read as of moments of the past
    History,
}

/// The shapes that compactions aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Style {
    /// Few runs, little garbage (the default)
    Leveled,
    /// Runs of like size are merged: writes less, for more runs and more garbage
    Tiered,
}

/// From what size on values are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separation {
    /// None is.
    Off,
    /// Of so many bytes or more.
    From(u32),
}

fn parse_separation(text: &str) -> Result<Separation, String> {
    match text {
        "off" => Ok(Separation::Off),
        size => parse_small_size(size).map(Separation::From),
    }
}

fn parse_codec(text: &str) -> Result<Codec, String> {
    text.parse().map_err(|error: lithedb::Error| error.to_string())
}

fn parse_level_codec(text: &str) -> Result<(u8, Codec), String> {
    let (level, codec) = text.split_once('=').ok_or("a level and its codec, as in 6=lz4")?;
    match level.parse() {
        Ok(level @ 0..=6) => Ok((level, parse_codec(codec)?)),
        _ => Err(format!("there is no level {level:?}: levels are 0 to 6")),
    }
}

impl CreateArgs {
    /// The defaults of the structure, but for what was said.
    pub fn options(&self) -> Result<KeyspaceOptions, Failure> {
        self.options.add_to(self.structure.defaults())
    }
}

impl StructureName {
    /// Options of a keyspace of this structure.
    pub fn defaults(self) -> KeyspaceOptions {
        match self {
            StructureName::Flex => KeyspaceOptions::flex(),
            StructureName::Lsm => KeyspaceOptions::lsm(),
            StructureName::History => KeyspaceOptions::history(),
        }
    }
}

impl OptionArgs {
    /// The options with what was said.
    pub fn add_to(&self, mut options: KeyspaceOptions) -> Result<KeyspaceOptions, Failure> {
        if let Some(codec) = self.codec {
            options = options.codec(codec);
        }
        if let Some(bytes) = self.memtable_size {
            options = options.memtable_size(bytes);
        }
        match self.value_separation {
            None => {}
            Some(Separation::Off) => options = options.value_separation(None),
            Some(Separation::From(bytes)) => options = options.value_separation(Some(bytes)),
        }
        if let Some(operator) = &self.merge {
            options = options.merge_operator(operator);
        }
        if let Some(ttl) = self.ttl {
            options = options.ttl(ttl);
        }
        self.lsm.add_to(self.flex.add_to(self.history.add_to(options)))
    }
}

impl HistoryArgs {
    fn add_to(&self, mut options: KeyspaceOptions) -> KeyspaceOptions {
        if let Some(duration) = self.keep_for {
            options = options.keep_for(duration);
        }
        if let Some(count) = self.keep_versions {
            options = options.keep_versions(count);
        }
        options
    }
}

impl FlexArgs {
    fn add_to(&self, mut options: KeyspaceOptions) -> KeyspaceOptions {
        if let Some(bytes) = self.interval_size {
            options = options.interval_size(bytes);
        }
        if let Some(bytes) = self.segment_size {
            options = options.segment_size(bytes);
        }
        if let Some(pace) = self.pace {
            options = options.consolidation_pace(pace);
        }
        if let Some(count) = self.fan_in {
            options = options.delta_fan_in(count);
        }
        options
    }
}

impl LsmArgs {
    fn add_to(&self, mut options: KeyspaceOptions) -> Result<KeyspaceOptions, Failure> {
        if let Some(compaction) = self.compaction()? {
            options = options.compaction(compaction);
        }
        if let Some(bytes) = self.table_size {
            options = options.table_size(bytes);
        }
        if let Some(bytes) = self.block_size {
            options = options.block_size(bytes);
        }
        if let Some(keys) = self.restart_interval {
            options = options.restart_interval(keys);
        }
        if let Some(bits) = self.filter_bits {
            options = options.filter_bits(bits);
        }
        if let Some(bytes) = self.filter_prefix_len {
            options = options.filter_prefix_len(bytes);
        }
        if self.pin_indexes {
            options = options.pin_indexes(true);
        }
        if let Some(bytes) = self.dictionary_size {
            options = options.dictionary_size(bytes);
        }
        for (level, codec) in &self.level_codec {
            options = options.level_codec(*level, *codec);
        }
        Ok(options)
    }

    /// The style with what was said about it; `None` when nothing was.
    fn compaction(&self) -> Result<Option<Compaction>, Failure> {
        let leveled = self.level0_trigger.is_some() || self.level_ratio.is_some();
        let ratios = [self.bucket_low, self.bucket_high, self.garbage_max];
        let tiered = ratios.iter().any(Option::is_some)
            || self.threshold.is_some()
            || self.run_count_max.is_some();
        match self.compaction {
            Some(Style::Leveled) | None if tiered => {
                Err(Failure::usage("that is said about runs of like size: add --compaction tiered"))
            }
            Some(Style::Tiered) if leveled => Err(Failure::usage(
                "that is said about levels, of which --compaction tiered has none",
            )),
            None if !leveled => Ok(None),
            Some(Style::Leveled) | None => Ok(Some(Compaction::Leveled(self.leveled()))),
            Some(Style::Tiered) => Ok(Some(Compaction::Tiered(self.tiered()))),
        }
    }

    fn leveled(&self) -> Leveled {
        let mut leveled = Leveled::new();
        leveled.level0_trigger = self.level0_trigger.unwrap_or(leveled.level0_trigger);
        leveled.level_ratio = self.level_ratio.unwrap_or(leveled.level_ratio);
        leveled
    }

    fn tiered(&self) -> Tiered {
        let mut tiered = Tiered::new();
        tiered.bucket_low = self.bucket_low.unwrap_or(tiered.bucket_low);
        tiered.bucket_high = self.bucket_high.unwrap_or(tiered.bucket_high);
        tiered.threshold = self.threshold.unwrap_or(tiered.threshold);
        tiered.run_count_max = self.run_count_max.unwrap_or(tiered.run_count_max);
        tiered.garbage_max = self.garbage_max.unwrap_or(tiered.garbage_max);
        tiered
    }
}
