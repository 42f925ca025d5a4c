//! The durable form of a layout: an edit log, `space-<number>`.
//!
//! The snapshot that a file begins with is the *checkpoint*; its edits are the *journal*. A sync
//! appends one edit with all steps since the last one, so that it is there as a whole or not at
//! all. When an edit does not fit any more, or there is no journal, the sync is a checkpoint: the
//! next file, made from the layout in memory.
//!
//! Parts of the checkpoint begin with a byte for their kind; all numbers are varints.
//!
//! | kind | part | fields |
//! |---|---|---|
//! | 0 | head, the first part | version, next segment number, bytes from callers, bytes written |
//! | 1 | segments | for each: number, bytes of data |
//! | 2 | extents, in order | for each: length * 2 (+ 1 with a tag), segment, offset, \[tag\] |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LEN_MAX;
use super::extent::{StoredExtent, Tag};
use super::layout::Layout;
use super::op::{OP_SIZE_MAX, Op, take_address, take_u32};
use super::options::Journal;
use super::stats::Counters;
use crate::base::format::SPACE_INDEX_VERSION;
use crate::base::{Error, Result, varint};
use crate::manifest::{EditLog, EditLogId, Record, RecordRef, SnapshotSink};
use crate::structure::flex::tree::{ExtentTree, MapExtent};

pub(super) const STEM: &str = "space";
const KIND: u32 = 3;
/// The form of the payloads.
const VERSION: u64 = SPACE_INDEX_VERSION as u64;
/// Bytes of a part of a checkpoint, about.
const PART_SIZE: usize = 64 << 10;
/// Room for edits in a new file, at least; else as much as the checkpoint takes, so that a journal
/// at most doubles what is written for the index.
const EDIT_ROOM_MIN: u64 = 64 << 10;
/// Bytes of steps in memory at which the next operation syncs first.
const PENDING_SIZE_MAX: usize = 8 << 20;

pub(super) const HEAD: u8 = 0;
pub(super) const SEGMENTS: u8 = 1;
pub(super) const EXTENTS: u8 = 2;

pub(super) fn log_id(space: u64) -> EditLogId {
    EditLogId { stem: STEM, kind: KIND, database: space, owner: 0 }
}

/// What the index says about a space.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub layout: Layout,
    pub next_segment: u32,
    /// Of all sessions.
    pub counters: Counters,
    extents: Vec<StoredExtent>,
    len: u64,
    has_head: bool,
}

impl Loaded {
    pub(super) fn visit(&mut self, record: RecordRef<'_>) -> Result<()> {
        match record.record {
            Record::SnapshotPart(part) => self.take_part(part, record),
            Record::SnapshotEnd if !self.has_head => {
                Err(record.corruption(0, "the checkpoint of a space has no head"))
            }
            Record::SnapshotEnd => {
                self.place_extents();
                Ok(())
            }
            Record::Edit(edit) => self.take_edit(edit, record),
        }
    }

    fn take_part(&mut self, part: &[u8], record: RecordRef<'_>) -> Result<()> {
        let mut pos = 1;
        let taken = match part.first() {
            Some(&HEAD) if !self.has_head => return self.take_head(part, record),
            Some(&SEGMENTS) if self.has_head => self.take_segments(part, &mut pos),
            Some(&EXTENTS) if self.has_head => self.take_extents(part, &mut pos),
            _ => None,
        };
        taken.ok_or_else(|| record.corruption(pos, "a part of the checkpoint has no known form"))
    }

    fn take_head(&mut self, part: &[u8], record: RecordRef<'_>) -> Result<()> {
        let mut pos = 1;
        let version = varint::take(part, &mut pos).unwrap_or(0);
        if version > VERSION {
            return Err(Error::FormatVersion {
                file: record.file.to_owned(),
                found: u32::try_from(version).unwrap_or(u32::MAX),
                known: VERSION as u32,
            });
        }
        let (Some(head), VERSION) = (take_head(part, &mut pos), version) else {
            return Err(record.corruption(pos, "the head of the checkpoint has no known form"));
        };
        (self.next_segment, self.counters) = head;
        self.has_head = true;
        Ok(())
    }

    fn take_segments(&mut self, part: &[u8], pos: &mut usize) -> Option<()> {
        while *pos < part.len() {
            let (number, size) = take_segment(part, pos)?;
            self.layout.segments.entry(number).or_default().size = size;
        }
        Some(())
    }

    fn take_extents(&mut self, part: &[u8], pos: &mut usize) -> Option<()> {
        while *pos < part.len() {
            let extent = take_extent(part, pos)?;
            let StoredExtent { address, len, .. } = extent;
            self.len += u64::from(len);
            if !address.is_zeros() {
                address.offset.checked_add(len)?;
                self.layout.segments.entry(address.segment).or_default().live += u64::from(len);
            }
            (self.len <= LEN_MAX).then_some(())?;
            self.extents.push(extent);
        }
        Some(())
    }

    fn place_extents(&mut self) {
        let extents = std::mem::take(&mut self.extents);
        self.layout.extents = ExtentTree::from_sorted(extents).into();
    }

    fn take_edit(&mut self, edit: &[u8], record: RecordRef<'_>) -> Result<()> {
        let mut pos = 0;
        while pos < edit.len() {
            let start = pos;
            let Some(op) = Op::take(edit, &mut pos) else {
                return Err(record.corruption(start, "a step of the journal has no known form"));
            };
            if let Some(what) = self.layout.refusal(&op) {
                return Err(record.corruption(start, what));
            }
            match op {
                Op::Count { user_bytes, written_bytes } => {
                    self.counters = Counters { user_bytes, written_bytes };
                }
                // S4: also when nothing is live in it any more, and its file is gone.
                Op::Extend { segment, .. } => {
                    self.next_segment = self.next_segment.max(segment.saturating_add(1));
                }
                _ => {}
            }
            self.layout.apply(&op);
        }
        Ok(())
    }

    /// After the last record: checks the whole, and forgets segments that nothing is in any more.
    pub(super) fn finish(&mut self, file: &Path) -> Result<()> {
        self.check_extents(file)?;
        self.layout.forget_dead(None);
        Ok(())
    }

    /// Whether every extent lies in what is durable of its segment.
    pub(super) fn check_extents(&self, file: &Path) -> Result<()> {
        for extent in self.layout.extents.extents() {
            let address = extent.address;
            let usage = self.layout.segments.get(&address.segment).copied().unwrap_or_default();
            if !address.is_zeros() && address.offset + extent.len > usage.size {
                let what = format!(
                    "the index points to {} bytes at {} of segment {}, which has {}",
                    extent.len, address.offset, address.segment, usage.size
                );
                return Err(Error::corruption(file, 0, what));
            }
        }
        Ok(())
    }
}

/// What the head has behind its version: the number of the next segment, and the counters.
pub(super) fn take_head(part: &[u8], pos: &mut usize) -> Option<(u32, Counters)> {
    let next_segment = take_u32(part, pos)?;
    let (user_bytes, written_bytes) = (varint::take(part, pos)?, varint::take(part, pos)?);
    Some((next_segment, Counters { user_bytes, written_bytes }))
}

/// A segment's number, and its bytes of data.
pub(super) fn take_segment(part: &[u8], pos: &mut usize) -> Option<(u32, u32)> {
    Some((take_u32(part, pos)?, take_u32(part, pos)?))
}

pub(super) fn take_extent(part: &[u8], pos: &mut usize) -> Option<StoredExtent> {
    let len_and_tag = varint::take(part, pos)?;
    let len = u32::try_from(len_and_tag >> 1).ok().filter(|&len| len > 0)?;
    let address = take_address(part, pos)?;
    let tag = match len_and_tag & 1 {
        0 => None,
        _ => Some(Tag::new(take_u32(part, pos)?)?),
    };
    Some(StoredExtent { address, len, tag })
}

/// The index of an open space.
#[derive(Debug)]
pub(super) struct Index {
    log: EditLog,
    journal: Journal,
    /// Steps since the last sync, encoded; with a journal.
    pending: Vec<u8>,
    /// Whether there were any.
    is_changed: bool,
    pub edit_count: u64,
    pub checkpoint_count: u64,
}

impl Index {
    pub(super) fn new(log: EditLog, journal: Journal) -> Index {
        let (edit_count, checkpoint_count) = (0, 0);
        Index { log, journal, pending: Vec::new(), is_changed: false, edit_count, checkpoint_count }
    }

    pub(super) fn note(&mut self, op: &Op) {
        self.is_changed = true;
        if self.journal == Journal::On {
            op.put(&mut self.pending);
        }
    }

    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether to sync before more is noted.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() + OP_SIZE_MAX > PENDING_SIZE_MAX
    }

    /// Whether the next sync has to be a checkpoint.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.journal == Journal::Off || !self.log.fits(self.pending.len())
    }

    /// Makes the steps durable as one edit; the bytes that it took.
    pub(super) fn append(&mut self) -> Result<u64> {
        self.log.append(&self.pending)?;
        self.edit_count += 1;
        let size = EditLog::edit_size(self.pending.len());
        self.clear();
        Ok(size)
    }

    /// Makes the layout durable as a whole; the bytes that it took.
    pub(super) fn checkpoint(&mut self, state: &Checkpoint<'_>) -> Result<u64> {
        let size = state.size();
        self.log.rotate(size.max(EDIT_ROOM_MIN), |sink| state.write(sink))?;
        self.checkpoint_count += 1;
        self.clear();
        let _left_for_the_next = self.log.remove_older();
        Ok(size)
    }

    fn clear(&mut self) {
        self.pending.clear();
        self.pending.shrink_to(PART_SIZE);
        self.is_changed = false;
    }

    /// Makes the mark of the last edit durable.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.log.settle()
    }

    /// See [`EditLog::mended_mark`].
    pub(super) fn mended_mark(&self) -> Option<&(PathBuf, u64)> {
        self.log.mended_mark()
    }

    /// Why nothing can be made durable any more, if so.
    pub(super) fn failure(&self) -> Option<&str> {
        self.log.failure()
    }

    pub(super) fn size(&self) -> u64 {
        self.log.capacity()
    }

    pub(super) fn path(&self) -> &Path {
        self.log.path()
    }
}

/// What a checkpoint holds.
pub(super) struct Checkpoint<'a> {
    pub layout: &'a Layout,
    pub next_segment: u32,
    pub counters: Counters,
}

impl Checkpoint<'_> {
    /// The log of a space that is being made.
    pub(super) fn create(
        &self,
        storage: Arc<dyn crate::storage::Storage>,
        dir: &Path,
        space: u64,
    ) -> Result<EditLog> {
        EditLog::create(storage, dir, log_id(space), 1, EDIT_ROOM_MIN, |sink| self.write(sink))
    }

    fn write(&self, sink: &mut SnapshotSink) -> Result<()> {
        self.put(&mut |part| sink.part(part))
    }

    fn size(&self) -> u64 {
        let mut size = 0;
        let counted = self.put(&mut |part| {
            size += part.len() as u64;
            Ok(())
        });
        counted.expect("counting does not fail");
        size
    }

    fn put(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut head = vec![HEAD];
        let Counters { user_bytes, written_bytes } = self.counters;
        for field in [VERSION, self.next_segment.into(), user_bytes, written_bytes] {
            varint::put(&mut head, field);
        }
        sink(&head)?;
        let mut segments = Parts::new(SEGMENTS, sink);
        for (&number, usage) in &self.layout.segments {
            segments.put(&[number.into(), usage.size.into()])?;
        }
        segments.finish()?;
        let mut extents = Parts::new(EXTENTS, sink);
        for extent in self.layout.extents.extents() {
            let StoredExtent { address, tag, .. } = *extent;
            let len_and_tag = extent.len() << 1 | u64::from(tag.is_some());
            let (segment, offset) = (address.segment.into(), address.offset.into());
            match tag {
                None => extents.put(&[len_and_tag, segment, offset])?,
                Some(tag) => extents.put(&[len_and_tag, segment, offset, tag.get().into()])?,
            }
        }
        extents.finish()
    }
}

/// Parts of one kind.
struct Parts<'a> {
    kind: u8,
    bytes: Vec<u8>,
    sink: &'a mut dyn FnMut(&[u8]) -> Result<()>,
}

impl<'a> Parts<'a> {
    fn new(kind: u8, sink: &'a mut dyn FnMut(&[u8]) -> Result<()>) -> Parts<'a> {
        Parts { kind, bytes: vec![kind], sink }
    }

    fn put(&mut self, fields: &[u64]) -> Result<()> {
        if self.bytes.len() >= PART_SIZE {
            (self.sink)(&self.bytes)?;
            self.bytes.clear();
            self.bytes.push(self.kind);
        }
        fields.iter().for_each(|&field| varint::put(&mut self.bytes, field));
        Ok(())
    }

    fn finish(self) -> Result<()> {
        if self.bytes.len() > 1 { (self.sink)(&self.bytes) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex_space::extent::Address;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        for op in steps() {
            assert_eq!(layout.refusal(&op), None);
            layout.apply(&op);
        }
        layout
    }

    fn steps() -> Vec<Op> {
        let address = |segment, offset| Address { segment, offset };
        vec![
            Op::Extend { segment: 3, size: 4088 },
            Op::Extend { segment: 700, size: 8176 },
            Op::Insert { offset: 0, address: address(3, 0), len: 1000 },
            Op::Insert { offset: 500, address: Address::ZEROS, len: 70_000 },
            Op::Insert { offset: 9, address: address(700, 100), len: 8000 },
            Op::SetTag { offset: 77, tag: Tag::new(u32::MAX) },
            Op::Overwrite { offset: 70, address: address(3, 2000), len: 30 },
            Op::SetTag { offset: 8, tag: Tag::new(1) },
            Op::Collapse { offset: 600, len: 300 },
            Op::Count { user_bytes: 9000, written_bytes: 20_000 },
        ]
    }

    fn parts(layout: &Layout) -> Vec<Vec<u8>> {
        let counters = Counters { user_bytes: 1, written_bytes: 300 };
        let mut parts = Vec::new();
        let next_segment = layout.segments.last_key_value().map_or(1, |(number, _)| number + 1);
        let state = Checkpoint { layout, next_segment, counters };
        state
            .put(&mut |part| {
                parts.push(part.to_vec());
                Ok(())
            })
            .unwrap();
        parts
    }

    fn load(parts: &[Vec<u8>], edit: &[u8]) -> Result<Loaded> {
        let file = Path::new("space-00000001");
        let mut loaded = Loaded::default();
        for part in parts {
            let record = Record::SnapshotPart(part);
            loaded.visit(RecordRef { record, file, offset: 96 })?;
        }
        loaded.visit(RecordRef { record: Record::SnapshotEnd, file, offset: 96 })?;
        loaded.visit(RecordRef { record: Record::Edit(edit), file, offset: 96 })?;
        loaded.check_extents(file)?;
        Ok(loaded)
    }

    fn edit() -> Vec<u8> {
        let mut edit = Vec::new();
        steps().iter().for_each(|op| op.put(&mut edit));
        edit
    }

    fn is_same(one: &Layout, other: &Layout) -> bool {
        one.segments == other.segments
            && one.extents.extents().iter().eq(other.extents.extents().iter())
    }

    #[test]
    fn a_checkpoint_and_a_journal_lead_to_the_same_layout() {
        let layout = layout();
        let from_checkpoint = load(&parts(&layout), &[]).unwrap();
        assert!(is_same(&from_checkpoint.layout, &layout));
        assert_eq!(from_checkpoint.next_segment, 701);
        assert_eq!(from_checkpoint.counters.written_bytes, 300);
        let from_journal = load(&parts(&Layout::default()), &edit()).unwrap();
        assert!(is_same(&from_journal.layout, &layout));
        assert_eq!(from_journal.counters.written_bytes, 20_000);
        assert_eq!(from_journal.next_segment, 701);
        from_journal.layout.extents.check().unwrap();
    }

    #[test]
    fn an_index_of_any_bytes_is_taken_or_refused() {
        let (parts, edit) = (parts(&layout()), edit());
        for (number, part) in parts.iter().enumerate() {
            for at in 0..part.len() {
                for byte in [0, 1, 2, 5, 0x7F, 0x80, 0xFF] {
                    let mut parts = parts.clone();
                    parts[number][at] = byte;
                    let _taken_or_refused = load(&parts, &edit);
                }
            }
            let _without_it = load(&[&parts[..number], &parts[number + 1..]].concat(), &edit);
        }
        for at in 0..edit.len() {
            let _cut_short = load(&parts, &edit[..at]);
            for byte in 0..=255 {
                let mut edit = edit.clone();
                edit[at] = byte;
                let _taken_or_refused = load(&parts, &edit);
            }
        }
    }

    #[test]
    fn a_newer_form_of_the_index_is_refused() {
        let mut parts = parts(&layout());
        parts[0][1] = 2;
        let refused = load(&parts, &[]).unwrap_err();
        assert!(matches!(refused, Error::FormatVersion { found: 2, known: 1, .. }), "{refused}");
    }
}
