//! Opening a space: the index, the segments that it names, and what is left of interrupted work.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::block;
use super::index::{self, Checkpoint, Index, Loaded};
use super::layout::Layout;
use super::options::SpaceOptions;
use super::segment::{Place, Segment, numbers_in};
use super::snapshot::SpaceSnapshot;
use super::space::{Files, FlexSpace, Parts};
use super::stats::{Counters, Tally};
use crate::base::{Error, Result};
use crate::manifest::{EditLog, edit_log_exists, newest_database, read_edit_log};
use crate::storage::{OpenMode, Storage, StorageLock, lock_directory, make_directory};

/// The first number of a segment: 0 stands for zeros.
const FIRST_SEGMENT: u32 = 1;

/// What opening a space found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceRecovery {
    /// The space was created.
    pub created: bool,
    /// Syncs that were replayed from the journal.
    pub edits_replayed: u64,
    /// Bytes at the end of the journal and of the newest segment that belonged to a sync that was
    /// not finished, and were cut off.
    pub bytes_cut: u64,
    /// Segments that nothing refers to any more and that were removed.
    pub orphans_removed: u64,
}

pub(super) fn open(options: &SpaceOptions, dir: &Path) -> Result<FlexSpace> {
    let storage = &options.storage;
    if !edit_log_exists(&**storage, dir, index::STEM)? {
        make_directory(&**storage, dir)?;
    }
    let lock = lock_directory(&**storage, dir)?;
    if !edit_log_exists(&**storage, dir, index::STEM)? {
        return create(options, dir, lock);
    }
    let space = newest_database(&**storage, dir, index::STEM)?;
    let mut loaded = Loaded::default();
    let visit = |record: crate::manifest::RecordRef<'_>| loaded.visit(record);
    let (log, report) = EditLog::open(Arc::clone(storage), dir, index::log_id(space), None, visit)?;
    let _left_for_the_next = log.remove_older();
    loaded.finish(&report.file)?;
    let mut recovery = SpaceRecovery { edits_replayed: report.edit_count, ..Default::default() };
    recovery.bytes_cut = report.torn.map_or(0, |torn| torn.len);
    let place = place_of(options, dir, space, Some(lock));
    let next_segment = settle_segments(&place, &loaded, &mut recovery)?;
    Ok(FlexSpace::new(Parts {
        files: files_of(&place, &loaded),
        index: Index::new(log, options.journal),
        layout: loaded.layout,
        next_segment,
        tally: Tally::of(loaded.counters),
        recovery,
        tuning: options.into(),
        place,
    }))
}

/// The state of the last sync; nothing on the disk is changed, but that the file `LOCK` is made.
pub(super) fn open_read_only(options: &SpaceOptions, dir: &Path) -> Result<SpaceSnapshot> {
    let storage = &*options.storage;
    if !edit_log_exists(storage, dir, index::STEM)? {
        if storage.exists(dir).map_err(|source| Error::io("look for", dir, source))? {
            expect_no_segment(storage, dir)?;
        }
        let source = std::io::Error::new(ErrorKind::NotFound, "there is no space");
        return Err(Error::io("open", dir, source));
    }
    let lock = match lock_directory(storage, dir) {
        // Then nobody can write to it either.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::ReadOnlyFilesystem => None,
        locked => Some(locked?),
    };
    let id = index::log_id(newest_database(storage, dir, index::STEM)?);
    let mut loaded = Loaded::default();
    let report = read_edit_log(storage, dir, &id, None, |record| loaded.visit(record))?;
    loaded.finish(&report.file)?;
    let place = place_of(options, dir, id.database, lock);
    expect_present(&place, &loaded, &place.numbers()?)?;
    let files = files_of(&place, &loaded);
    Ok(SpaceSnapshot::new(place, loaded.layout.extents, files))
}

fn create(options: &SpaceOptions, dir: &Path, lock: Box<dyn StorageLock>) -> Result<FlexSpace> {
    expect_no_segment(&*options.storage, dir)?;
    let space = options.entropy.next_u64();
    let layout = Layout::default();
    let counters = Counters::default();
    let first = Checkpoint { layout: &layout, next_segment: FIRST_SEGMENT, counters };
    let log = first.create(Arc::clone(&options.storage), dir, space)?;
    Ok(FlexSpace::new(Parts {
        files: Arc::new(BTreeMap::new()),
        index: Index::new(log, options.journal),
        layout,
        next_segment: FIRST_SEGMENT,
        tally: Tally::of(counters),
        recovery: SpaceRecovery { created: true, ..Default::default() },
        tuning: options.into(),
        place: place_of(options, dir, space, Some(lock)),
    }))
}

/// Where there is no index: it is the first thing that is made.
fn expect_no_segment(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let numbers = numbers_in(storage, dir)?;
    let Some(number) = numbers.first() else { return Ok(()) };
    let what = format!("no index of a space is there, but segment {number}");
    Err(Error::corruption(&dir.join("space-00000001"), 0, what))
}

fn place_of(
    options: &SpaceOptions,
    dir: &Path,
    space: u64,
    lock: Option<Box<dyn StorageLock>>,
) -> Arc<Place> {
    let storage = Arc::clone(&options.storage);
    Place::new(storage, dir.to_owned(), space, options.open_file_count_max, lock)
}

fn files_of(place: &Arc<Place>, loaded: &Loaded) -> Files {
    let numbers = loaded.layout.segments.keys();
    Arc::new(numbers.map(|&number| (number, Segment::new(place, number))).collect())
}

/// Sees that the segments that the index names are among those that are there.
fn expect_present(place: &Place, loaded: &Loaded, present: &[u32]) -> Result<()> {
    let missing =
        loaded.layout.segments.keys().find(|&number| present.binary_search(number).is_err());
    let Some(&number) = missing else { return Ok(()) };
    Err(Error::corruption(&place.path_of(number), 0, "the segment file is missing"))
}

/// Removes segments that the index does not name, sees that the others are there, and cuts what
/// the newest one has behind what is durable. The number of the next segment.
fn settle_segments(
    place: &Arc<Place>,
    loaded: &Loaded,
    recovery: &mut SpaceRecovery,
) -> Result<u32> {
    let present = place.numbers()?;
    expect_present(place, loaded, &present)?;
    let named = &loaded.layout.segments;
    let mut next = loaded.next_segment.max(FIRST_SEGMENT);
    for number in present {
        next = next.max(number.saturating_add(1));
        if !named.contains_key(&number) {
            let path = place.path_of(number);
            let removed = place.storage.remove_file(&path);
            removed.map_err(|source| Error::io("remove", &path, source))?;
            recovery.orphans_removed += 1;
        }
    }
    if let Some((&number, usage)) = named.last_key_value() {
        recovery.bytes_cut += cut_tail(place, number, block::file_size(usage.size))?;
    }
    Ok(next)
}

/// Cuts a segment to the size that is durable; how many bytes that took off. It need not be
/// durable: nothing refers to them.
fn cut_tail(place: &Arc<Place>, number: u32, size: u64) -> Result<u64> {
    let path = place.path_of(number);
    let file = Segment::new(place, number).open(OpenMode::ReadWrite)?;
    let found = file.size().map_err(|source| Error::io("read the size of", &path, source))?;
    if found < size {
        let what = format!("the file has {found} bytes, not the {size} that are durable");
        return Err(Error::corruption(&path, found, what));
    }
    if found > size {
        file.set_len(size).map_err(|source| Error::io("cut", &path, source))?;
    }
    Ok(found - size)
}
