//! Suspicious use: what works on a calm day and is a mistake all the same.
//!
//! Owns the list of what was seen, and which bytes of files are gaps or holes. Must not
//! change what a call does.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::storage::names::NodeId;

/// More are not kept: the first ones tell the story.
const VIOLATIONS_MAX: usize = 1000;

/// What to do about suspicious use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnViolation {
    Record,
    Panic,
}

/// Whether bytes that nobody wrote, and holes, may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gaps {
    Suspicious,
    Expected,
}

/// Suspicious use of one storage.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    pub(super) on_violation: OnViolation,
    pub(super) violations: Vec<String>,
    /// Ranges between the old end of a file and a write past it, and holes, until something fills
    /// them.
    gaps: BTreeMap<NodeId, Vec<Range<u64>>>,
}

impl Checks {
    pub(super) fn new() -> Checks {
        Checks { on_violation: OnViolation::Record, violations: Vec::new(), gaps: BTreeMap::new() }
    }

    pub(super) fn report(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    /// A write of `written` to a file that was `len` long.
    pub(super) fn note_write(&mut self, file: NodeId, len: u64, written: &Range<u64>) {
        self.fill(file, written);
        if written.start > len && !written.is_empty() {
            self.gaps.entry(file).or_default().push(len..written.start);
        }
    }

    /// A hole was made of the range.
    pub(super) fn note_hole(&mut self, file: NodeId, hole: Range<u64>) {
        self.fill(file, &hole);
        if !hole.is_empty() {
            self.gaps.entry(file).or_default().push(hole);
        }
    }

    /// The range has contents now.
    pub(super) fn fill(&mut self, file: NodeId, filled: &Range<u64>) {
        let Some(gaps) = self.gaps.get_mut(&file) else { return };
        let mut left = Vec::with_capacity(gaps.len());
        for gap in gaps.drain(..) {
            let before = gap.start..gap.end.min(filled.start);
            let after = gap.start.max(filled.end)..gap.end;
            left.extend([before, after].into_iter().filter(|part| !part.is_empty()));
        }
        if left.is_empty() {
            self.gaps.remove(&file);
        } else {
            *gaps = left;
        }
    }

    /// The first bytes of `read` that nobody ever wrote, or that are a hole.
    pub(super) fn gap_in(&self, file: NodeId, read: &Range<u64>) -> Option<Range<u64>> {
        let overlap = |gap: &Range<u64>| gap.start.max(read.start)..gap.end.min(read.end);
        self.gaps.get(&file)?.iter().map(overlap).find(|part| !part.is_empty())
    }
}
