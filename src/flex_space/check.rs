//! Checking a space: the index against itself and its durable form, segments, every live byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::extent::StoredExtent;
use super::index::{Loaded, log_id};
use super::layout::Layout;
use super::segment::Segment;
use super::space::FlexSpace;
use crate::base::Result;
use crate::manifest::read_edit_log;
use crate::structure::flex::tree::MapExtent;
use crate::structure::{Findings, Site};

/// What [`FlexSpace::check`] looked at and found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SpaceCheck {
    /// Files looked at.
    pub files: u64,
    /// Bytes read and verified.
    pub bytes: u64,
    /// Extents looked at.
    pub extents: u64,
    /// What is wrong, a sentence each, with file and offset where there is one; empty when all is
    /// well.
    pub problems: Vec<String>,
}

impl SpaceCheck {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    fn note(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }
}

impl FlexSpace {
    /// Checks the whole space: the tree of extents, that no two extents share a byte, what is
    /// counted as live, the header of every segment and every block with a live byte, files that
    /// nothing refers to; and, if nothing was changed since the last sync, that the index on disk
    /// says what is in memory. Reads everything once.
    ///
    /// # Errors
    /// None but for what is written on the way: `DiskFull`, `Io`. What is found is in the report.
    pub fn check(&mut self) -> Result<SpaceCheck> {
        self.write_segment()?;
        let mut report = SpaceCheck::default();
        let extents = self.layout.extents.extents();
        report.extents = extents.len() as u64;
        if let Err(what) = self.layout.extents.check() {
            report.note(format!("the tree of extents: {what}"));
        }
        let mut by_segment: BTreeMap<u32, Vec<StoredExtent>> = BTreeMap::new();
        for extent in extents.iter().filter(|extent| !extent.address.is_zeros()) {
            by_segment.entry(extent.address.segment).or_default().push(*extent);
        }
        self.check_usage(&by_segment, &mut report);
        for (number, mut extents) in by_segment {
            extents.sort_by_key(|extent| extent.address);
            check_apart(&extents, &mut report);
            match self.files.get(&number) {
                Some(segment) => check_segment(segment, &extents, &mut report),
                None => report.note(format!("segment {number} is pointed to, but not known")),
            }
        }
        self.check_orphans(&mut report);
        self.check_index(&mut report);
        Ok(report)
    }

    fn check_usage(&self, by_segment: &BTreeMap<u32, Vec<StoredExtent>>, report: &mut SpaceCheck) {
        for (number, usage) in &self.layout.segments {
            let extents = by_segment.get(number).map_or(&[][..], Vec::as_slice);
            let live: u64 = extents.iter().map(MapExtent::len).sum();
            if live != usage.live || live > u64::from(usage.size) {
                report.note(format!("L1: segment {number} has {live} live bytes, not {usage:?}"));
            }
        }
    }

    fn check_orphans(&self, report: &mut SpaceCheck) {
        let numbers = match self.place.numbers() {
            Ok(numbers) => numbers,
            Err(error) => return report.note(error.to_string()),
        };
        for number in numbers {
            if !self.files.contains_key(&number) && !self.place.is_on_its_way_out(number) {
                let path = self.place.path_of(number);
                report.note(format!("{}: nothing refers to it", path.display()));
            }
        }
    }

    fn check_index(&self, report: &mut SpaceCheck) {
        report.files += 1;
        let mut durable = Loaded::default();
        let (storage, dir) = (&*self.place.storage, &self.place.dir);
        let id = log_id(self.place.space);
        let mut findings = Findings::default();
        match read_edit_log(storage, dir, &id, None, |record| durable.visit(record)) {
            Ok(found) => {
                findings.note_marks(Site::default(), &found, self.index.mended_mark());
                report.problems.append(&mut findings.problems);
            }
            Err(error) => return report.note(error.to_string()),
        }
        let path = self.index.path();
        if let Err(error) = durable.check_extents(path) {
            report.note(error.to_string());
        }
        if !self.index.is_changed() && !is_same(&durable.layout, &self.layout) {
            report.note(format!("{}: it does not say what is in memory", path.display()));
        }
    }
}

/// Whether two layouts say the same: the extents, and how much of each segment is live.
fn is_same(one: &Layout, other: &Layout) -> bool {
    let live = |layout: &Layout| {
        let used = layout.segments.iter().filter(|(_, usage)| usage.live > 0);
        used.map(|(&number, usage)| (number, usage.live)).collect::<Vec<_>>()
    };
    live(one) == live(other) && one.extents.extents().iter().eq(other.extents.extents().iter())
}

/// L2, for extents of one segment in the order of their addresses.
fn check_apart(extents: &[StoredExtent], report: &mut SpaceCheck) {
    for pair in extents.windows(2) {
        if pair[0].address.offset + pair[0].len > pair[1].address.offset {
            report.note(format!("L2: {:?} and {:?} have bytes in common", pair[0], pair[1]));
        }
    }
}

fn check_segment(segment: &Arc<Segment>, extents: &[StoredExtent], report: &mut SpaceCheck) {
    const PART: u32 = 1 << 20;
    report.files += 1;
    if let Err(error) = segment.open(crate::storage::OpenMode::ReadOnly) {
        report.note(error.to_string());
        return;
    }
    let mut bytes = Vec::new();
    for extent in extents {
        let (mut offset, end) = (extent.address.offset, extent.address.offset + extent.len);
        while offset < end {
            let len = PART.min(end - offset);
            bytes.resize(len as usize, 0);
            match segment.read(offset, &mut bytes) {
                Ok(()) => report.bytes += u64::from(len),
                Err(error) => report.note(error.to_string()),
            }
            offset += len;
        }
    }
}
