//! What a disk holds, what was changed since, and what a sync carries over.
//!
//! Owns [`Disk`] (names and contents) and [`Unsynced`] (the changes that are visible but not
//! durable, in the order in which they were made). Must not know calls, faults or crash modes.
//!
//! Invariants
//! - D1  `durable` plus all unsynced changes in order is what the running process sees, except for
//!   changes that a failed sync dropped.
//! - D2  A file's sync carries its data, length and allocation over, never a name; a directory's
//!   sync carries names over, never contents.
//! - D3  A rename is one change, and so is an exchange of two names: it is durable as a whole or
//!   not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::random::mix;
use crate::base::hash_key;
use crate::storage::content::{Content, PAGE_SIZE};
use crate::storage::names::{Names, Node, NodeId, Place};

/// The unit that a disk writes whole or not at all.
pub(super) const SECTOR_SIZE: u64 = 512;

/// Names and contents.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) names: Names,
    pub(super) contents: BTreeMap<NodeId, Arc<Stored>>,
}

/// The contents of a file, and the digest of them once somebody has asked: most files of a disk are
/// those of the disks that it comes of, and are not to be hashed again for each.
#[derive(Debug, Default)]
pub(super) struct Stored {
    content: Content,
    digest: OnceLock<u64>,
}

impl Stored {
    /// For changing.
    pub(super) fn content_mut(&mut self) -> &mut Content {
        self.digest = OnceLock::new();
        &mut self.content
    }

    /// A hash of length, room taken and bytes.
    pub(super) fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| {
            let mut buffer = [0; PAGE_SIZE];
            let mut digest = mix(self.content.len()) ^ self.content.allocated_bytes();
            for offset in (0..self.content.len()).step_by(PAGE_SIZE) {
                let count = self.content.read_at(&mut buffer, offset);
                digest = mix(digest.rotate_left(7) ^ hash_key(&buffer[..count]));
            }
            digest
        })
    }
}

impl Clone for Stored {
    /// Who copies is going to change.
    fn clone(&self) -> Stored {
        Stored { content: self.content.clone(), digest: OnceLock::new() }
    }
}

impl Deref for Stored {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

/// A change to a file's contents.
#[derive(Clone, Debug)]
pub(super) enum DataChange {
    /// Bytes at an offset, without a change of length.
    Write { offset: u64, bytes: Arc<[u8]> },
    /// Zeros in place of what was written, and whole pages given up.
    Punch { offset: u64, zeros: Arc<[u8]> },
    /// At least this long now: what a write past the end does beside its bytes.
    Grow { len: u64 },
    /// Exactly this long now.
    SetLen { len: u64 },
    /// Room for this many bytes, and at least this long now.
    Reserve { len: u64 },
}

/// A change to names: created or linked (`from` is `None`), removed (`to` is `None`), renamed, or
/// exchanged (with `with`, which had `to`).
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) node: Node,
    pub(super) from: Option<Place>,
    pub(super) to: Option<Place>,
    pub(super) with: Option<Node>,
}

/// One change, as a crash sees it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    Data(NodeId, &'a DataChange),
    Name(&'a NameChange),
}

/// The changes that are not durable. Data is kept by file, so that a sync of one file does not
/// walk the changes of all others; `order` brings both kinds back into one sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsynced {
    data: BTreeMap<NodeId, Vec<(u64, DataChange)>>,
    names: Vec<(u64, NameChange)>,
    order: u64,
}

impl Disk {
    pub(super) fn new() -> Disk {
        Disk { names: Names::new(), contents: BTreeMap::new() }
    }

    /// The contents of a file for changing; copied first if a duplicate shares them.
    pub(super) fn content_mut(&mut self, file: NodeId) -> &mut Content {
        Arc::make_mut(self.contents.entry(file).or_default()).content_mut()
    }

    pub(super) fn apply(&mut self, change: Change<'_>) {
        match change {
            Change::Data(file, change) => self.apply_data(file, change),
            Change::Name(change) => self.apply_name(change),
        }
    }

    pub(super) fn apply_data(&mut self, file: NodeId, change: &DataChange) {
        let content = self.content_mut(file);
        match change {
            DataChange::Write { offset, bytes } => content.write_pages(bytes, *offset),
            DataChange::Punch { offset, zeros } => content.punch_hole(*offset, zeros.len() as u64),
            DataChange::Grow { len } => content.set_len(content.len().max(*len)),
            DataChange::SetLen { len } => content.set_len(*len),
            DataChange::Reserve { len } => content.reserve(*len),
        }
    }

    pub(super) fn apply_name(&mut self, change: &NameChange) {
        match (&change.to, &change.from, change.with) {
            (Some(to), Some(from), Some(other)) => {
                self.names.change_both((change.node, from), (other, to));
            }
            (Some(to), Some(from), None) => self.names.change(change.node, from, to.clone()),
            (Some(to), None, _) => self.names.add(change.node, to.clone()),
            (None, Some(from), _) => self.names.take(change.node.id, from),
            (None, None, _) => unreachable!("a change of names has a name"),
        }
    }

    /// Forgets what no path leads to, and bytes past the end: what a machine finds when it starts.
    pub(super) fn settle(&mut self) {
        self.names.drop_unreachable();
        let names = &self.names;
        self.contents.retain(|file, _| names.is_named(*file));
        for content in self.contents.values_mut() {
            if content.holds_bytes_past_end() {
                Arc::make_mut(content).content_mut().clip();
            }
        }
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.contents.values().map(|content| content.allocated_bytes()).sum()
    }
}

impl Unsynced {
    pub(super) fn push_data(&mut self, file: NodeId, change: DataChange) {
        let order = self.take_order();
        self.data.entry(file).or_default().push((order, change));
    }

    pub(super) fn push_name(&mut self, change: NameChange) {
        let order = self.take_order();
        self.names.push((order, change));
    }

    pub(super) fn has_data(&self, file: NodeId) -> bool {
        self.data.contains_key(&file)
    }

    /// Takes the changes of one file out, in order.
    pub(super) fn take_data(&mut self, file: NodeId) -> Vec<DataChange> {
        let changes = self.data.remove(&file).unwrap_or_default();
        changes.into_iter().map(|(_, change)| change).collect()
    }

    /// Takes the changes of names in one directory out, in order, with whatever else must become
    /// durable with them: a file that came here from elsewhere brings its earlier names along,
    /// else a later sync of the other directory would give it an old name back.
    pub(super) fn take_names(&mut self, directory: NodeId) -> Vec<NameChange> {
        let is_here = |place: &Option<Place>| {
            place.as_ref().is_some_and(|place| place.directory == directory)
        };
        let mut moved: BTreeSet<NodeId> = BTreeSet::new();
        let mut taken = Vec::new();
        let mut kept = Vec::new();
        for (order, change) in std::mem::take(&mut self.names).into_iter().rev() {
            let nodes = [Some(change.node), change.with];
            let has_moved = nodes.iter().flatten().any(|node| moved.contains(&node.id));
            if is_here(&change.from) || is_here(&change.to) || has_moved {
                moved.extend(nodes.iter().flatten().map(|node| node.id));
                taken.push(change);
            } else {
                kept.push((order, change));
            }
        }
        kept.reverse();
        taken.reverse();
        self.names = kept;
        taken
    }

    /// Forgets a file that nothing can bring back.
    pub(super) fn forget_file(&mut self, file: NodeId) {
        self.data.remove(&file);
    }

    /// Whether a crash could still give the node a name.
    pub(super) fn may_name(&self, node: NodeId) -> bool {
        let gives = |change: &NameChange| {
            let nodes = [Some(change.node), change.with];
            change.to.is_some() && nodes.iter().flatten().any(|given| given.id == node)
        };
        self.names.iter().any(|(_, change)| gives(change))
    }

    /// All changes in the order in which they were made.
    pub(super) fn in_order(&self) -> Vec<Change<'_>> {
        let data = self.data.iter().flat_map(|(file, changes)| {
            changes.iter().map(|(order, change)| (*order, Change::Data(*file, change)))
        });
        let names = self.names.iter().map(|(order, change)| (*order, Change::Name(change)));
        let mut all: Vec<(u64, Change<'_>)> = data.chain(names).collect();
        all.sort_by_key(|(order, _)| *order);
        all.into_iter().map(|(_, change)| change).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.names.len() + self.data.values().map(Vec::len).sum::<usize>()
    }

    fn take_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
}
