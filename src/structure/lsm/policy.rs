//! What a keyspace's options come to: how tables are written, and when they are compacted.

use super::pick::{CompactionPolicy, CompactionStyle, LEVEL_COUNT, LeveledPolicy, TieredPolicy};
use super::table::{GATHERED_PER_BYTE, TableOptions};
use crate::base::version_key::TAIL_LEN;
use crate::block::RestartPolicy;
use crate::manifest::{Compaction, KeyspaceOptions};

/// A memtable takes so many bytes of memory for each that a flush of it writes, about.
const MEMORY_PER_FLUSHED: u64 = 2;

/// A table is aimed at being so many times as large as its dictionary, at least: of that, half is
/// gathered in front of the training, so that it takes no part in when a table is full.
const TABLE_PER_DICTIONARY: usize = 2 * GATHERED_PER_BYTE;

/// How tables of a level are written.
#[must_use]
pub fn table_options(options: &KeyspaceOptions, level: u8) -> TableOptions {
    let lsm = &options.lsm;
    let dictionary_size = lsm.dictionary_size as usize;
    TableOptions {
        codec: options.codec_of_level(level),
        block_size: lsm.block_size as usize,
        restarts: match lsm.restart_interval {
            0 => RestartPolicy::Adaptive,
            1 => RestartPolicy::Whole,
            interval => RestartPolicy::Every(interval),
        },
        filter_bits: lsm.filter_bits,
        filter_prefix_len: lsm.filter_prefix_len,
        filter_tail_len: if options.archive_of.is_some() { TAIL_LEN as u8 } else { 0 },
        dictionary_size: dictionary_size.min(lsm.table_size as usize / TABLE_PER_DICTIONARY),
    }
}

/// When tables are compacted. `memtable_size` is that of the keyspace.
pub(super) fn policy_of(options: &KeyspaceOptions, memtable_size: u64) -> CompactionPolicy {
    let style = match options.lsm.compaction {
        Compaction::Leveled(leveled) => CompactionStyle::Leveled(LeveledPolicy {
            level0_trigger: usize::from(leveled.level0_trigger),
            level_ratio: f64::from(leveled.level_ratio),
        }),
        Compaction::Tiered(tiered) => CompactionStyle::Tiered(TieredPolicy {
            bucket_low: f64::from(tiered.bucket_low),
            bucket_high: f64::from(tiered.bucket_high),
            threshold: usize::from(tiered.threshold),
            run_count_max: usize::from(tiered.run_count_max),
            garbage_max: f64::from(tiered.garbage_max),
        }),
    };
    CompactionPolicy {
        style,
        flush_size: (memtable_size / MEMORY_PER_FLUSHED).max(1),
        table_size: u64::from(options.lsm.table_size),
        codecs: std::array::from_fn::<_, LEVEL_COUNT, _>(|level| {
            options.codec_of_level(level as u8)
        }),
    }
}
