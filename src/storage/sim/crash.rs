//! What a power cut leaves: pure choices over the unsynced changes.
//!
//! Owns [`CrashMode`] and the rule which sectors and which metadata survive. Must not know calls or
//! faults. Whatever was synced survives in every mode, because only unsynced changes are chosen
//! from.
//!
//! Invariants
//! - K1  A sector on the disk is as some moment of the running process saw it: if a write to it
//!   survives, so do the earlier unsynced writes to it. (The torn write of
//!   [`CrashMode::TornLast`] may end within a sector; no other mode splits one.)
//! - K2  A mode and a seed choose the same every time.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::{Change, DataChange, Disk, SECTOR_SIZE};
use super::random::Random;
use crate::storage::names::NodeId;

/// Writes that [`CrashMode::NewestOnly`] keeps at most.
const NEWEST_MAX: u64 = 4;
/// How likely a piece is to survive, in thousandths; one is drawn per crash.
const SURVIVAL_PER_MILLE: [u64; 5] = [50, 250, 500, 750, 950];

/// Which unsynced changes survive a crash. What was synced survives always.
///
/// ```
/// use lithedb::storage::{CrashMode, OpenMode, SimStorage, Storage};
/// use std::path::Path;
///
/// let storage = SimStorage::new(1);
/// storage.open(Path::new("notes"), OpenMode::CreateNew)?; // And no `sync_dir`.
/// assert!(storage.crash(CrashMode::KeepAll, 0).exists(Path::new("notes"))?);
/// assert!(!storage.crash(CrashMode::DropAll, 0).exists(Path::new("notes"))?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrashMode {
    /// All, and they stay unsynced: the process is killed, the machine runs on.
    KeepAll,
    /// None.
    DropAll,
    /// All up to a random moment.
    Prefix,
    /// Each sector of each write, each length and each name by chance.
    RandomSectors,
    /// All, but the last write only up to a random sector or byte.
    TornLast,
    /// All names and lengths; of the data nothing, or some sectors. The rest reads as zeros.
    MetadataFirst,
    /// All data; of the names and lengths none, or some.
    DataFirst,
    /// All names and lengths, and only the newest few writes.
    NewestOnly,
}

impl CrashMode {
    /// Every mode.
    pub const ALL: [CrashMode; 8] = [
        CrashMode::KeepAll,
        CrashMode::DropAll,
        CrashMode::Prefix,
        CrashMode::RandomSectors,
        CrashMode::TornLast,
        CrashMode::MetadataFirst,
        CrashMode::DataFirst,
        CrashMode::NewestOnly,
    ];
}

/// Applies to `disk` what survives of `changes`.
pub(super) fn survive(
    disk: &mut Disk,
    changes: &[Change<'_>],
    mode: CrashMode,
    random: &mut Random,
) {
    match mode {
        CrashMode::KeepAll => unreachable!("the machine runs on: there is nothing to choose"),
        CrashMode::DropAll => {}
        CrashMode::Prefix => {
            let count = random.below(changes.len() as u64 + 1) as usize;
            apply_all(disk, &changes[..count]);
        }
        CrashMode::RandomSectors => {
            let odds = Odds { data: draw(random), metadata: draw(random) };
            apply_by_chance(disk, changes, odds, random);
        }
        CrashMode::TornLast => tear_last(disk, changes, random),
        CrashMode::MetadataFirst => {
            let data = if random.is_heads() { 0 } else { draw(random) };
            apply_by_chance(disk, changes, Odds { data, metadata: 1000 }, random);
        }
        CrashMode::DataFirst => {
            let metadata = if random.is_heads() { 0 } else { draw(random) };
            apply_by_chance(disk, changes, Odds { data: 1000, metadata }, random);
        }
        CrashMode::NewestOnly => keep_newest(disk, changes, random),
    }
}

/// How likely data and metadata are to survive, in thousandths.
#[derive(Clone, Copy)]
struct Odds {
    data: u64,
    metadata: u64,
}

fn draw(random: &mut Random) -> u64 {
    SURVIVAL_PER_MILLE[random.below(SURVIVAL_PER_MILLE.len() as u64) as usize]
}

fn apply_all(disk: &mut Disk, changes: &[Change<'_>]) {
    for change in changes {
        disk.apply(*change);
    }
}

fn apply_by_chance(disk: &mut Disk, changes: &[Change<'_>], odds: Odds, random: &mut Random) {
    let mut left = surviving_writes_per_sector(changes, odds.data, random);
    for change in changes {
        if let Some((file, offset, bytes)) = as_write(change) {
            for (sector, start, piece) in sectors(offset, bytes) {
                let left = left.get_mut(&(file, sector)).expect("every sector was counted");
                if *left > 0 {
                    *left -= 1;
                    disk.content_mut(file).write_pages(piece, start);
                }
            }
        } else if random.chance(odds.metadata) {
            disk.apply(*change);
        }
    }
}

/// For each sector, how many of the writes to it survive, from the oldest on (K1).
fn surviving_writes_per_sector(
    changes: &[Change<'_>],
    odds: u64,
    random: &mut Random,
) -> BTreeMap<(NodeId, u64), u64> {
    let mut counts: BTreeMap<(NodeId, u64), u64> = BTreeMap::new();
    for (file, offset, bytes) in changes.iter().filter_map(as_write) {
        for (sector, _, _) in sectors(offset, bytes) {
            *counts.entry((file, sector)).or_default() += 1;
        }
    }
    for count in counts.values_mut() {
        if !random.chance(odds) {
            // With odds of zero nothing survives, else some older moment of the sector may.
            *count = if odds == 0 { 0 } else { random.below(*count) };
        }
    }
    counts
}

fn tear_last(disk: &mut Disk, changes: &[Change<'_>], random: &mut Random) {
    let last = changes.iter().rposition(|change| as_write(change).is_some());
    for (index, change) in changes.iter().enumerate() {
        match as_write(change) {
            Some((file, offset, bytes)) if Some(index) == last => {
                let cut = tear(offset, bytes.len() as u64, random);
                disk.content_mut(file).write_pages(&bytes[..cut as usize], offset);
            }
            _ => disk.apply(*change),
        }
    }
}

/// Where a write of `size` bytes ends when it is torn: before its end, at a sector or anywhere.
fn tear(offset: u64, size: u64, random: &mut Random) -> u64 {
    if size == 0 {
        return 0;
    }
    let cut = random.below(size);
    if random.is_heads() {
        return cut;
    }
    let boundary = (offset + cut) / SECTOR_SIZE * SECTOR_SIZE;
    boundary.saturating_sub(offset)
}

fn keep_newest(disk: &mut Disk, changes: &[Change<'_>], random: &mut Random) {
    let newest_count = 1 + random.below(NEWEST_MAX) as usize;
    let mut kept = BTreeSet::new();
    for (file, offset, bytes) in changes.iter().rev().filter_map(as_write).take(newest_count) {
        kept.extend(sectors(offset, bytes).map(|(sector, _, _)| (file, sector)));
    }
    for change in changes {
        match as_write(change) {
            Some((file, offset, bytes)) => {
                for (sector, start, piece) in sectors(offset, bytes) {
                    if kept.contains(&(file, sector)) {
                        disk.content_mut(file).write_pages(piece, start); // K1: the older ones too.
                    }
                }
            }
            None => disk.apply(*change),
        }
    }
}

/// Bytes that take the place of others. A hole is a write of zeros: any sectors may be back.
fn as_write<'a>(change: &Change<'a>) -> Option<(NodeId, u64, &'a [u8])> {
    match *change {
        Change::Data(
            file,
            DataChange::Write { offset, bytes } | DataChange::Punch { offset, zeros: bytes },
        ) => Some((file, *offset, bytes)),
        _ => None,
    }
}

/// The pieces of a write: sector number, offset in the file, bytes.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64, &[u8])> {
    let mut at = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let start = at;
        let room = (SECTOR_SIZE - start % SECTOR_SIZE) as usize;
        let (piece, later) = rest.split_at(rest.len().min(room));
        rest = later;
        at += piece.len() as u64;
        Some((start / SECTOR_SIZE, start, piece))
    })
}
