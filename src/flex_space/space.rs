//! A space that is open: its state, and the operations that change its bytes.
//!
//! An operation first stores its bytes, which may fail, and then changes the layout, which cannot:
//! so an operation that fails has changed nothing, but for garbage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::LEN_MAX;
use super::block::{BLOCK_DATA, BLOCK_SIZE};
use super::extent::{Address, StoredExtent, Tag};
use super::index::Index;
use super::layout::Layout;
use super::op::Op;
use super::open::SpaceRecovery;
use super::options::SpaceOptions;
use super::segment::{Place, Segment};
use super::snapshot::SpaceSnapshot;
use super::stats::{SpaceStats, Tally};
use super::view::View;
use super::writer::SegmentWriter;
use crate::base::{Error, Result};
use crate::structure::flex::tree::MapExtent;

/// The segments that a layout may point to.
pub(super) type Files = Arc<BTreeMap<u32, Arc<Segment>>>;

/// A file whose bytes can be inserted and removed in the middle; see [the module](super).
///
/// One thread changes it (`&mut`), any number may read it; a [`SpaceSnapshot`] is read while it
/// changes. Nothing is durable before [`sync`](FlexSpace::sync); dropping it without is like a
/// crash.
#[derive(Debug)]
pub struct FlexSpace {
    // Constant after open.
    pub(super) place: Arc<Place>,
    pub(super) tuning: Tuning,
    recovery: SpaceRecovery,
    // The state.
    pub(super) layout: Layout,
    pub(super) files: Files,
    pub(super) writer: Option<SegmentWriter>,
    pub(super) next_segment: u32,
    pub(super) index: Index,
    /// Whether files were made since the directory was synced.
    pub(super) has_new_names: bool,
    pub(super) tally: Tally,
    /// Segments that could not be emptied.
    pub(super) damaged: BTreeSet<u32>,
    /// Why nothing can be changed any more.
    pub(super) failure: Option<String>,
}

/// The options that matter after opening.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    pub segment_size: u64,
    pub garbage_fraction: Option<f64>,
}

impl Tuning {
    /// Bytes of data in a full segment.
    pub(super) fn data_size_max(&self) -> u32 {
        let blocks = self.segment_size as usize / BLOCK_SIZE - 1;
        (blocks * BLOCK_DATA) as u32
    }
}

impl From<&SpaceOptions> for Tuning {
    fn from(options: &SpaceOptions) -> Tuning {
        let SpaceOptions { segment_size, garbage_fraction, .. } = *options;
        Tuning { segment_size, garbage_fraction }
    }
}

/// What opening comes to.
pub(super) struct Parts {
    pub place: Arc<Place>,
    pub tuning: Tuning,
    pub recovery: SpaceRecovery,
    pub layout: Layout,
    pub files: Files,
    pub next_segment: u32,
    pub index: Index,
    pub tally: Tally,
}

impl FlexSpace {
    /// Opens the space in the directory `path`, and creates it if there is none. One at a time.
    /// Costs a read of the index; data is not looked at.
    ///
    /// # Errors
    /// `Locked` while it is open, or a snapshot of it is kept; `Corruption` and `FormatVersion`,
    /// with the file; `DiskFull`, `Io`.
    pub fn open(path: impl AsRef<Path>) -> Result<FlexSpace> {
        FlexSpace::options().open(path)
    }

    /// Opens what the last sync of a space made durable, for reading: as a snapshot, which keeps
    /// the space locked. Nothing on the disk changes but for the file `LOCK`, also if the space was
    /// not closed; a file system that is mounted for reading only will do. Costs a read of the
    /// index.
    ///
    /// # Errors
    /// `Io` (`NotFound`) when there is no space; `Locked` while it is open, for reading or writing;
    /// `Corruption` and `FormatVersion`, with the file; `Io`.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<SpaceSnapshot> {
        FlexSpace::options().open_read_only(path)
    }

    /// Options to open a space with.
    #[must_use]
    pub fn options() -> SpaceOptions {
        SpaceOptions::default()
    }

    pub(super) fn new(parts: Parts) -> FlexSpace {
        let Parts { place, tuning, recovery, layout, files, next_segment, index, tally } = parts;
        FlexSpace {
            place,
            tuning,
            recovery,
            layout,
            files,
            writer: None,
            next_segment,
            index,
            has_new_names: false,
            tally,
            damaged: BTreeSet::new(),
            failure: None,
        }
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery(&self) -> &SpaceRecovery {
        &self.recovery
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.layout.extents.len()
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts `bytes` in front of the byte at `offset`, or at the end; what is behind moves up.
    /// O(log n) and the bytes.
    ///
    /// # Errors
    /// `InvalidArgument` when `offset` is beyond the end, or the space would be longer than
    /// [`LEN_MAX`]; `DiskFull`, `Io`: nothing changed. `ReadOnly` after an earlier failure.
    pub fn insert(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_offset(offset)?;
        self.check_growth(bytes.len() as u64)?;
        let stored = self.store(bytes)?;
        self.insert_stored(offset, stored);
        Ok(())
    }

    /// Puts `bytes` at the end.
    ///
    /// # Errors
    /// As [`FlexSpace::insert`].
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.insert(self.len(), bytes)
    }

    /// Removes the bytes of `range`; what is behind moves down. O(log n), and the extents that are
    /// removed.
    ///
    /// # Errors
    /// `InvalidArgument` when `range` is not within the space; `ReadOnly` after an earlier failure.
    pub fn collapse(&mut self, range: Range<u64>) -> Result<()> {
        self.check_range(&range)?;
        self.begin()?;
        if !range.is_empty() {
            self.apply(Op::Collapse { offset: range.start, len: range.end - range.start });
        }
        Ok(())
    }

    /// Puts `bytes` in the place of those at `offset`. Behind the end it appends, and between the
    /// end and an `offset` beyond it come zeros, which take no room. Tags stay. As a whole or not
    /// at all.
    ///
    /// # Errors
    /// `InvalidArgument` when the space would be longer than [`LEN_MAX`]; else as
    /// [`FlexSpace::insert`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.check_growth(end.saturating_sub(self.len()))?;
        let stored = self.store(bytes)?;
        if offset > self.len() && !bytes.is_empty() {
            self.put_zeros(self.len(), offset - self.len());
        }
        let mut at = offset;
        for piece in stored {
            let over = piece.len().min(self.len() - at);
            self.overwrite_stored(at, piece.head(over));
            if over < piece.len() {
                self.insert_stored(at + over, vec![piece.tail(over)]);
            }
            at += piece.len();
        }
        Ok(())
    }

    /// As [`FlexSpace::write`], for bytes that are all there: the length does not change.
    ///
    /// # Errors
    /// `InvalidArgument` when they are not; else as [`FlexSpace::insert`].
    pub fn overwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_range(&(offset..offset.saturating_add(bytes.len() as u64)))?;
        self.write(offset, bytes)
    }

    /// Puts `bytes`, of any length, in the place of those of `range`. The tag of the first byte
    /// stays, others of the range go. As a whole or not at all.
    ///
    /// # Errors
    /// As [`FlexSpace::collapse`] and [`FlexSpace::insert`].
    pub fn update(&mut self, range: Range<u64>, bytes: &[u8]) -> Result<()> {
        self.check_range(&range)?;
        self.check_growth((bytes.len() as u64).saturating_sub(range.end - range.start))?;
        let stored = self.store(bytes)?;
        let tag = if range.is_empty() { None } else { self.tag(range.start) };
        if !range.is_empty() {
            self.apply(Op::Collapse { offset: range.start, len: range.end - range.start });
        }
        self.insert_stored(range.start, stored);
        if tag.is_some() && !bytes.is_empty() {
            self.apply(Op::SetTag { offset: range.start, tag });
        }
        Ok(())
    }

    /// Puts `len` zeros in front of the byte at `offset`, or at the end; they are stored nowhere.
    /// What is behind moves up, as with the range of a file that `FALLOC_FL_INSERT_RANGE` inserts.
    ///
    /// # Errors
    /// `InvalidArgument` as [`FlexSpace::insert`]; `ReadOnly` after an earlier failure.
    pub fn insert_zeros(&mut self, offset: u64, len: u64) -> Result<()> {
        self.check_offset(offset)?;
        self.check_growth(len)?;
        self.begin()?;
        self.put_zeros(offset, len);
        Ok(())
    }

    /// Makes the space `len` bytes long: what is behind goes, what is missing is zeros, which take
    /// no room.
    ///
    /// # Errors
    /// `InvalidArgument` when `len` is more than [`LEN_MAX`]; `ReadOnly` after an earlier failure.
    pub fn truncate(&mut self, len: u64) -> Result<()> {
        if len < self.len() {
            return self.collapse(len..self.len());
        }
        self.insert_zeros(self.len(), len - self.len())
    }

    /// Gives the byte at `offset` a tag, in the place of the one it may have.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no byte at `offset`; `ReadOnly` after an earlier failure.
    pub fn set_tag(&mut self, offset: u64, tag: Tag) -> Result<()> {
        self.change_tag(offset, Some(tag))
    }

    /// Takes the tag of the byte at `offset`, if it has one.
    ///
    /// # Errors
    /// As [`FlexSpace::set_tag`].
    pub fn remove_tag(&mut self, offset: u64) -> Result<Option<Tag>> {
        let tag = self.tag(offset);
        self.change_tag(offset, None)?;
        Ok(tag)
    }

    fn change_tag(&mut self, offset: u64, tag: Option<Tag>) -> Result<()> {
        if offset >= self.len() {
            let len = self.len();
            return Err(Error::invalid(format!("offset {offset} is not before the end at {len}")));
        }
        self.begin()?;
        if self.tag(offset) != tag {
            self.apply(Op::SetTag { offset, tag });
        }
        Ok(())
    }

    /// What the space has and did. Costs a look at each segment.
    #[must_use]
    pub fn stats(&self) -> SpaceStats {
        let current = self.current_bytes();
        let lifetime = self.tally.lifetime(current);
        let (live_bytes, garbage_bytes) = self.layout.live_and_garbage();
        let tally = &self.tally;
        SpaceStats {
            len: self.len(),
            extents: self.layout.extents.extents().len() as u64,
            tags: self.layout.extents.extents().size().1,
            segments: self.layout.segments.len() as u64,
            live_bytes,
            garbage_bytes,
            index_file_bytes: self.index.size(),
            open_files: self.place.open.count() as u64,
            user_bytes: tally.user_bytes,
            data_bytes_written: tally.finished_bytes + current,
            index_bytes_written: tally.index_bytes,
            lifetime_user_bytes: lifetime.user_bytes,
            lifetime_bytes_written: lifetime.written_bytes,
            syncs: tally.sync_count,
            checkpoints: self.index.checkpoint_count,
            collected_on_demand: tally.on_demand,
            collected_with_syncs: tally.with_syncs,
            failed_collections: tally.failed_collection_count,
            defragmented_bytes: tally.defragmented_bytes,
            segments_removed: tally.segments_removed,
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        let extents = &self.layout.extents;
        View { extents, files: &self.files, writer: self.writer.as_ref() }
    }

    fn insert_stored(&mut self, offset: u64, stored: Vec<StoredExtent>) {
        let mut at = offset;
        for StoredExtent { address, len, .. } in stored {
            self.apply(Op::Insert { offset: at, address, len });
            at += u64::from(len);
        }
    }

    pub(super) fn overwrite_stored(&mut self, offset: u64, stored: StoredExtent) {
        let StoredExtent { address, len, .. } = stored;
        if len > 0 {
            self.apply(Op::Overwrite { offset, address, len });
        }
    }

    fn put_zeros(&mut self, offset: u64, mut len: u64) {
        while len > 0 {
            let part = u32::try_from(len).unwrap_or(u32::MAX);
            self.apply(Op::Insert { offset, address: Address::ZEROS, len: part });
            len -= u64::from(part);
        }
    }

    pub(super) fn apply(&mut self, op: Op) {
        debug_assert_eq!(self.layout.refusal(&op), None, "operations check what they are given");
        self.layout.apply(&op);
        self.index.note(&op);
    }

    fn check_offset(&self, offset: u64) -> Result<()> {
        let len = self.len();
        if offset <= len {
            return Ok(());
        }
        Err(Error::invalid(format!("offset {offset} is beyond the end at {len}")))
    }

    pub(super) fn check_range(&self, range: &Range<u64>) -> Result<()> {
        if range.start <= range.end && range.end <= self.len() {
            return Ok(());
        }
        Err(Error::invalid(format!("{range:?} is not within the {} bytes", self.len())))
    }

    fn check_growth(&self, more: u64) -> Result<()> {
        match self.len().checked_add(more) {
            Some(len) if len <= LEN_MAX => Ok(()),
            _ => Err(Error::invalid(format!("a space is not longer than {LEN_MAX} bytes"))),
        }
    }
}
