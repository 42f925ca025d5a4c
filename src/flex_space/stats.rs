//! What a space has, and what was written for it.

use super::garbage::Collection;

/// Bytes of all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Given by callers.
    pub user_bytes: u64,
    /// Written to segments and index.
    pub written_bytes: u64,
}

/// What is counted while a space is open.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Of the sessions before.
    earlier: Counters,
    pub user_bytes: u64,
    /// To segments that are not written to any more.
    pub finished_bytes: u64,
    pub index_bytes: u64,
    pub sync_count: u64,
    pub on_demand: Collection,
    pub with_syncs: Collection,
    pub failed_collection_count: u64,
    pub defragmented_bytes: u64,
    pub segments_removed: u64,
}

impl Tally {
    pub(super) fn of(earlier: Counters) -> Tally {
        Tally { earlier, ..Tally::default() }
    }

    /// Of all sessions, with `current_bytes` in the segment that is written to.
    pub(super) fn lifetime(&self, current_bytes: u64) -> Counters {
        let written = self.finished_bytes + current_bytes + self.index_bytes;
        // What is from the disk may be anything.
        Counters {
            user_bytes: self.earlier.user_bytes.saturating_add(self.user_bytes),
            written_bytes: self.earlier.written_bytes.saturating_add(written),
        }
    }
}

/// What a space has and did; from [`FlexSpace::stats`](super::FlexSpace::stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Bytes of the space.
    pub len: u64,
    /// Stretches of it that lie side by side in a segment.
    pub extents: u64,
    /// Bytes that have a tag.
    pub tags: u64,
    /// Segment files that the space needs.
    pub segments: u64,
    /// Bytes of data in segments that belong to the space.
    pub live_bytes: u64,
    /// The others, padding included.
    pub garbage_bytes: u64,
    /// Bytes of the index's file.
    pub index_file_bytes: u64,
    /// Segment files that are open for reading.
    pub open_files: u64,
    /// Bytes that callers gave to insert and write, since opening.
    pub user_bytes: u64,
    /// Bytes written to segments since opening.
    pub data_bytes_written: u64,
    /// Bytes written to the index since opening.
    pub index_bytes_written: u64,
    /// As `user_bytes`, of all sessions.
    pub lifetime_user_bytes: u64,
    /// Bytes written to segments and index in all sessions.
    pub lifetime_bytes_written: u64,
    /// Syncs that made something durable.
    pub syncs: u64,
    /// Of these, those that wrote the whole index.
    pub checkpoints: u64,
    /// What [`FlexSpace::collect_garbage`](super::FlexSpace::collect_garbage) did.
    pub collected_on_demand: Collection,
    /// What syncs collected.
    pub collected_with_syncs: Collection,
    /// Collections within syncs that did not come to an end: the disk was full, or what had to be
    /// moved is damaged.
    pub failed_collections: u64,
    /// Bytes that were moved by [`FlexSpace::defragment`](super::FlexSpace::defragment).
    pub defragmented_bytes: u64,
    /// Segment files that were removed since opening.
    pub segments_removed: u64,
}

impl SpaceStats {
    /// Bytes written since opening for each byte that a caller gave; 0 if there were none.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        ratio(self.data_bytes_written + self.index_bytes_written, self.user_bytes)
    }

    /// As [`SpaceStats::write_amplification`], of all sessions.
    #[must_use]
    pub fn lifetime_write_amplification(&self) -> f64 {
        ratio(self.lifetime_bytes_written, self.lifetime_user_bytes)
    }

    /// The share of garbage in the data.
    #[must_use]
    pub fn garbage_fraction(&self) -> f64 {
        ratio(self.garbage_bytes, self.live_bytes + self.garbage_bytes)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
