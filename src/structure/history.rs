//! The past of a keyspace: an archive of versions, seen as of a stamp, as a version of a structure.
//!
//! An archive has the versions of every key by key, the newest first, and by stamp
//! (`base/version_key.rs`). As of a stamp a key is what its newest version up to that says; where
//! that holds operands on the next older version, it is these on what is found below.

use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::base::version_key::{
    VersionKind, archived_len, behind_head, behind_keys, by_key_head, head_in_front, key_of_head,
    put_behind_head, put_head, put_key_of_head, put_stamp_bound, tail_of,
};
use crate::base::{
    Cursor, EntryKind, EntryRef, Error, KeyRange, MergeBase, Operands, Result, SeqNo, Slice,
};
use crate::base::{expiring_in, lost_its_place, version_operands};
use crate::block::{BlockBuilder, BlockCursor, RestartPolicy};
use crate::memory::Heap;
use crate::structure::{Found, StructureCursor, Version, WalkCursor, Want};

/// Bytes of the first block of a walk, about; each further one may have twice as many ..
const CHUNK_BYTES_FIRST: usize = 4 << 10;
/// .. up to this many.
const CHUNK_BYTES_MAX: usize = 64 << 10;
/// Blocks of an archive that one of a walk backward is made of, at most.
const PIECE_BLOCKS_MAX: usize = 64;
/// Bytes of it, at most, if it is made of more than one: in some archives a value takes a block.
const PIECE_BYTES_MAX: usize = 4 << 20;

/// A version of an archive, as of a stamp.
#[derive(Clone)]
pub struct VersionAt {
    archive: Arc<dyn Version>,
    at: SeqNo,
    /// How often a key may have changed since then, and is still known, if not all is kept.
    limit: Option<Arc<ChangeLimit>>,
    /// Where the blocks of walks are made.
    heap: Arc<Heap>,
}

/// What an archive knows as of a moment that it is not whole as of: keys that have changed less
/// often since than it keeps versions.
#[derive(Debug)]
pub struct ChangeLimit {
    /// The name of the keyspace.
    pub keyspace: String,
    /// From where on it is whole; `None` if that is nowhere.
    pub kept_from: Option<SeqNo>,
    /// Versions of each key that it keeps; `None`: no number of them, so that nothing is known.
    pub versions: Option<u32>,
}

impl ChangeLimit {
    /// What is said to who asks for more.
    #[cold]
    #[must_use]
    pub fn error(&self) -> Error {
        let ChangeLimit { keyspace, kept_from, versions } = self;
        let (kept_from, versions) = (*kept_from, *versions);
        Error::BeyondRetention { keyspace: keyspace.clone(), kept_from, versions }
    }

    /// Fails for a key that has changed so often.
    fn check(&self, changes: u32) -> Result<()> {
        let is_known = self.versions.is_some_and(|versions| changes < versions);
        if is_known { Ok(()) } else { Err(self.error()) }
    }
}

impl fmt::Debug for VersionAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionAt").field("at", &self.at).finish_non_exhaustive()
    }
}

/// What an archive is found to have that no archive has.
#[cold]
#[must_use]
pub fn no_version(key: &[u8]) -> Error {
    let shown = key.escape_ascii();
    let what = format!("an archive of versions has an entry that is none: {shown}");
    Error::corruption(Path::new("keyspaces"), 0, what)
}

impl VersionAt {
    /// What `archive` says as of the stamp `at`.
    pub fn new(archive: Arc<dyn Version>, at: SeqNo, heap: &Arc<Heap>) -> VersionAt {
        VersionAt { archive, at, limit: None, heap: Arc::clone(heap) }
    }

    /// The same, where the archive is not whole.
    #[must_use]
    pub fn within(self, limit: Option<ChangeLimit>) -> VersionAt {
        VersionAt { limit: limit.map(Arc::new), ..self }
    }

    /// The same, where that is not asked: for who knows that it is.
    #[must_use]
    pub fn unlimited(self) -> VersionAt {
        VersionAt { limit: None, ..self }
    }

    /// The same, as of another stamp.
    #[must_use]
    pub fn as_of(&self, at: SeqNo) -> VersionAt {
        VersionAt { at, ..self.clone() }
    }

    /// A cursor over entries of the archive.
    #[must_use]
    pub fn archived(&self, range: &KeyRange) -> Box<dyn StructureCursor> {
        self.archive.cursor(range)
    }

    /// The newest version of the key with this head, up to the stamp: what it says, and what the
    /// archive has of it. `from` is a buffer.
    fn newest(
        &self,
        head: &[u8],
        from: &mut Vec<u8>,
    ) -> Result<Option<(SeqNo, VersionKind, Found)>> {
        from.clear();
        from.extend_from_slice(head);
        put_stamp_bound(from, self.at);
        if let Some(limit) = &self.limit {
            self.check_changes(limit, head, from)?;
        }
        let Some((stamp, kind, found)) = self.newest_from(from, head.len())? else {
            return Ok(None);
        };
        self.whole(head, stamp, found).map(|found| Some((stamp, kind, found)))
    }

    /// What the version of this stamp says, of the key with this head: operands on an older one as
    /// operands on what there was. Costs a seek and a step for each version that they are on.
    ///
    /// # Errors
    /// What reading failed with.
    pub fn whole(&self, head: &[u8], stamp: SeqNo, found: Found) -> Result<Found> {
        match version_operands(found.kind, &found.value) {
            None => Ok(found),
            Some(_) => self.stacked(head, stamp, &found),
        }
    }

    #[cold]
    fn stacked(&self, head: &[u8], stamp: SeqNo, newest: &Found) -> Result<Found> {
        let mut from = head.to_vec();
        let below = stamp.as_u64().checked_sub(1).map(SeqNo::from_u64);
        put_stamp_bound(&mut from, below.unwrap_or_default());
        let end = Bound::Excluded(behind_head(head));
        let mut older =
            self.archive.cursor(&KeyRange { start: Bound::Included(from.clone()), end });
        let mut parts = vec![newest.value.clone()];
        if below.is_some() {
            older.seek(&from)?;
        }
        while let Some(entry) = older.entry().filter(|_| below.is_some()) {
            if by_key_head(entry.key) != Some(head) {
                break;
            }
            let (_, what) = tail_of(entry.key).ok_or_else(|| no_version(entry.key))?;
            if what == VersionKind::Put && version_operands(entry.kind, entry.value).is_some() {
                parts.push(Slice::from(entry.value));
                older.next()?;
                continue;
            }
            let bytes = closed(&parts, (what, entry))?;
            return Ok(Found { value: Slice::from(bytes), ..*newest });
        }
        let bytes = joined_on(MergeBase::Nothing, &parts);
        Ok(Found { value: Slice::from(bytes), ..*newest })
    }

    /// What the archive says of `key` up to the stamp, whatever is kept, whole, and of which stamp
    /// that is.
    ///
    /// # Errors
    /// What reading failed with.
    pub fn newest_whole(&self, key: &[u8]) -> Result<Option<(SeqNo, Option<Found>)>> {
        let Some((stamp, kind, found)) = self.newest_archived(key)? else { return Ok(None) };
        if kind == VersionKind::Deleted {
            return Ok(Some((stamp, None)));
        }
        let mut head = Vec::with_capacity(archived_len(key));
        put_head(&mut head, key);
        Ok(Some((stamp, Some(self.whole(&head, stamp, found)?))))
    }

    /// The newest version of `key` that the archive has, up to the stamp, whatever is kept: its
    /// stamp, what it says, and what the archive has of it.
    ///
    /// # Errors
    /// What reading failed with.
    pub fn newest_archived(&self, key: &[u8]) -> Result<Option<(SeqNo, VersionKind, Found)>> {
        let mut from = Vec::with_capacity(archived_len(key));
        put_head(&mut from, key);
        let head_len = from.len();
        put_stamp_bound(&mut from, self.at);
        self.newest_from(&from, head_len)
    }

    fn newest_from(
        &self,
        from: &[u8],
        head_len: usize,
    ) -> Result<Option<(SeqNo, VersionKind, Found)>> {
        let Some((key, found)) = self.archive.first_with_prefix(from, head_len)? else {
            return Ok(None);
        };
        let (stamp, kind) = tail_of(&key).ok_or_else(|| no_version(&key))?;
        Ok(Some((stamp, kind, found)))
    }

    /// Fails if more of the versions of the key with this head are in front of `from`, newer, than
    /// may be.
    #[cold]
    fn check_changes(&self, limit: &ChangeLimit, head: &[u8], from: &[u8]) -> Result<()> {
        limit.check(0)?;
        let bounds = (Bound::Included(head.to_vec()), Bound::Excluded(from.to_vec()));
        let mut newer = self.archive.cursor(&KeyRange { start: bounds.0, end: bounds.1 });
        let mut changes = 0;
        newer.seek(head)?;
        while newer.entry().is_some_and(|entry| entry.key < from) {
            changes += 1;
            limit.check(changes)?;
            newer.next()?;
        }
        Ok(())
    }

    /// Adds what a version says, of this stamp and of the key with this head, to a block.
    fn add_whole(
        &self,
        builder: &mut BlockBuilder,
        (head, key, stamp): (&[u8], &[u8], SeqNo),
        entry: EntryRef<'_>,
    ) -> Result<()> {
        if version_operands(entry.kind, entry.value).is_none() {
            return builder.add(EntryRef { key, ..entry });
        }
        let EntryRef { seqno, kind, value, .. } = entry;
        let found = Found { seqno: Some(seqno), kind, value: Slice::from(value) };
        let found = self.stacked(head, stamp, &found)?;
        builder.add(EntryRef { key, seqno, kind: found.kind, value: &found.value })
    }

    /// Fails if nothing is known as of its moment.
    ///
    /// # Errors
    /// `BeyondRetention`.
    pub fn check_walk(&self) -> Result<()> {
        self.limit.as_ref().map_or(Ok(()), |limit| limit.check(0))
    }
}

/// Operands of versions, the newest first, on a base.
fn joined_on(base: MergeBase<'_>, parts: &[Slice]) -> Vec<u8> {
    let parts = parts.iter().rev().filter_map(|part| Operands::decode_version(part));
    Operands::joined(base, parts)
}

/// Operands of versions, the newest first, on what an older version is, which needs no other.
fn closed(parts: &[Slice], (what, entry): (VersionKind, EntryRef<'_>)) -> Result<Vec<u8>> {
    Ok(match (what, entry.kind) {
        (VersionKind::Deleted, _) => joined_on(MergeBase::Nothing, parts),
        (VersionKind::Put, EntryKind::Value) => joined_on(MergeBase::Value(entry.value), parts),
        (VersionKind::Put, EntryKind::Pointer) => joined_on(MergeBase::Pointer(entry.value), parts),
        (VersionKind::Put, _) => {
            let mut bytes = entry.value.to_vec();
            let is_whole = Operands::decode(&bytes).is_some_and(|operands| !operands.is_open());
            if !is_whole {
                return Err(no_version(entry.key));
            }
            let newer = parts.iter().rev().filter_map(|part| Operands::decode_version(part));
            newer.for_each(|newer| Operands::extend(&mut bytes, &newer));
            bytes
        }
    })
}

impl Version for VersionAt {
    fn find(&self, key: &[u8], _: Want) -> Result<Option<Found>> {
        Ok(self.find_known(key)?.and_then(|(_, found)| found))
    }

    fn find_known(&self, key: &[u8]) -> Result<Option<(SeqNo, Option<Found>)>> {
        let (mut head, mut from) = (Vec::with_capacity(archived_len(key)), Vec::new());
        put_head(&mut head, key);
        Ok(self.newest(&head, &mut from)?.map(|(stamp, kind, found)| match kind {
            VersionKind::Put => (stamp, Some(found)),
            VersionKind::Deleted => (stamp, Some(Found { kind: EntryKind::Tombstone, ..found })),
        }))
    }

    fn cursor(&self, range: &KeyRange) -> Box<dyn StructureCursor> {
        Box::new(PastCursor::new(self.clone(), range))
    }

    /// By going through them.
    fn count(&self, start: &[u8], end: Option<&[u8]>, now: u64) -> Result<u64> {
        let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
        let mut cursor = self.cursor(&KeyRange { start: Bound::Included(start.to_vec()), end });
        let mut count = 0;
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            let expiring = expiring_in(entry.kind, entry.value);
            count += u64::from(expiring.is_none_or(|expiring| now < expiring.until));
            cursor.next()?;
        }
        Ok(count)
    }

    fn expiring_count(&self) -> u64 {
        self.archive.expiring_count()
    }

    fn entries_at_most(&self) -> u64 {
        self.archive.entries_at_most()
    }

    fn entries_in_front(&self, key: &[u8]) -> u64 {
        let mut head = Vec::new();
        put_head(&mut head, key);
        self.archive.entries_in_front(&head)
    }

    fn anchor_near(&self, position: u64) -> Slice {
        let anchor = self.archive.anchor_near(position);
        let key = by_key_head(&anchor).and_then(key_of_head);
        key.map_or_else(Slice::default, Slice::from)
    }
}

/// Where a [`PastCursor`] is.
#[derive(Debug)]
enum Place {
    /// In front of the first entry.
    Start,
    /// Within a block; its cursor is on an entry.
    On(BlockCursor),
    /// Within a block that was taken.
    Taken,
    /// Behind the last entry.
    End,
    /// A move failed; only a seek helps.
    Lost,
}

/// Walks the keys that have a value as of the stamp, a block at a time, which is made for the walk.
/// Off the block at hand it seeks anew.
struct PastCursor {
    version: VersionAt,
    entries: Box<dyn WalkCursor>,
    /// Keys of the archive that what is asked for lies between.
    start: Vec<u8>,
    end: Vec<u8>,
    place: Place,
    /// Heads of the first and last key of the block at hand, or passed on the way to it.
    first: Vec<u8>,
    last: Vec<u8>,
    chunk_bytes: usize,
    /// Blocks of the archive that the next block of a walk backward is made of, at most, by run.
    piece_blocks: usize,
    /// No more than so many: with more it came to be too large.
    piece_blocks_max: usize,
    /// Whether the archive's cursor stands at the first key behind the block at hand.
    is_ahead: bool,
    // Buffers.
    builder: BlockBuilder,
    key: Vec<u8>,
    from: Vec<u8>,
}

fn new_builder() -> BlockBuilder {
    BlockBuilder::new(RestartPolicy::Whole)
}

impl fmt::Debug for PastCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastCursor").field("place", &self.place).finish_non_exhaustive()
    }
}

impl PastCursor {
    fn new(version: VersionAt, range: &KeyRange) -> PastCursor {
        let (first, end_key) = range.half_open();
        let (mut start, mut end) = (Vec::new(), behind_keys());
        put_head(&mut start, &first);
        if let Some(key) = end_key {
            put_head(&mut end, &key);
        }
        let bounds = (Bound::Included(start.clone()), Bound::Excluded(end.clone()));
        // How often keys have changed since is told by newer ones.
        let newest = if version.limit.is_some() { SeqNo::MAX } else { version.at };
        let range = KeyRange { start: bounds.0, end: bounds.1 };
        let entries = version.archive.passing_cursor(&range, newest);
        PastCursor {
            version,
            entries,
            start,
            end,
            place: Place::Start,
            first: Vec::new(),
            last: Vec::new(),
            chunk_bytes: CHUNK_BYTES_FIRST,
            piece_blocks: 1,
            piece_blocks_max: PIECE_BLOCKS_MAX,
            is_ahead: false,
            builder: new_builder(),
            key: Vec::new(),
            from: Vec::new(),
        }
    }

    /// Makes the block of the keys from `from`, of the archive, on, and goes to the first of them.
    fn enter_forward(&mut self, from: &[u8]) -> Result<()> {
        let is_ahead = self.lose_place()?;
        match is_ahead {
            true => self.entries.leap(from, SeqNo::ZERO)?,
            false => self.entries.seek(from)?,
        }
        let mut builder = std::mem::replace(&mut self.builder, new_builder());
        let end = std::mem::take(&mut self.end);
        self.first.clear();
        let mut filled = Ok(true);
        let is_limited = self.version.limit.is_some();
        let mut before = Vec::new();
        while builder.estimated_size() < self.chunk_bytes && matches!(filled, Ok(true)) {
            if is_limited {
                before.clone_from(&self.last);
            }
            filled = self.add_next(&mut builder, &end);
        }
        self.end = end;
        self.is_ahead = true;
        match filled {
            // Not before its turn: the next block begins with it.
            Err(Error::BeyondRetention { .. }) if !builder.is_empty() => {
                (self.last, self.is_ahead) = (before, false);
            }
            filled => _ = filled?,
        }
        if builder.is_empty() {
            self.place = Place::End;
            return Ok(());
        }
        let mut block = self.finished(builder);
        block.seek_first()?;
        self.place = Place::On(block);
        Ok(())
    }

    /// Goes past the versions of the key that the archive's cursor stands at, and adds what it was;
    /// `false` at the end.
    fn add_next(&mut self, builder: &mut BlockBuilder, end: &[u8]) -> Result<bool> {
        let Some(entry) = self.entries.entry().filter(|entry| entry.key < end) else {
            return Ok(false);
        };
        let head = by_key_head(entry.key).ok_or_else(|| no_version(entry.key))?;
        self.last.clear();
        self.last.extend_from_slice(head);
        if self.first.is_empty() {
            self.first.extend_from_slice(head);
        }
        let mut changes = 0;
        while let Some(entry) = self.entries.entry() {
            if by_key_head(entry.key) != Some(&self.last) {
                return Ok(true); // All are newer.
            }
            let (stamp, kind) = tail_of(entry.key).ok_or_else(|| no_version(entry.key))?;
            if stamp <= self.version.at {
                if kind == VersionKind::Put {
                    put_key_of_head(&mut self.key, &self.last)
                        .ok_or_else(|| no_version(entry.key))?;
                    self.version.add_whole(builder, (&self.last, &self.key, stamp), entry)?;
                }
                break;
            }
            match &self.version.limit {
                Some(limit) => {
                    changes += 1;
                    limit.check(changes)?;
                    self.entries.next()?;
                }
                None => {
                    self.from.clone_from(&self.last);
                    put_stamp_bound(&mut self.from, self.version.at);
                    self.entries.leap(&self.from, self.version.at)?;
                }
            }
        }
        put_behind_head(&mut self.from, &self.last);
        self.entries.leap(&self.from, SeqNo::ZERO)?;
        Ok(true)
    }

    /// As [`PastCursor::enter_forward`] of the keys in front of `behind`, to the last of them: of a
    /// piece of the archive that ends there, which becomes larger as the walk goes on.
    fn enter_backward(&mut self, behind: &[u8]) -> Result<()> {
        if self.version.limit.is_some() {
            return self.enter_backward_by_keys(behind);
        }
        self.lose_place()?;
        let mut behind = behind.to_vec();
        while *behind > *self.start {
            let (archive, at) = (&self.version.archive, self.version.at);
            let blocks = self.piece_blocks;
            let from = archive.key_in_front(&behind, at, blocks)?;
            self.piece_blocks = (2 * blocks).min(self.piece_blocks_max);
            // Not from within the versions of a key.
            let from = head_in_front(&from).unwrap_or(&from).max(&self.start).to_vec();
            self.entries.seek(&from)?;
            let mut builder = std::mem::replace(&mut self.builder, new_builder());
            let is_small =
                |builder: &BlockBuilder| blocks == 1 || builder.estimated_size() <= PIECE_BYTES_MAX;
            while is_small(&builder) && self.add_next(&mut builder, &behind)? {}
            if !is_small(&builder) {
                (self.piece_blocks, self.piece_blocks_max) = (blocks / 2, blocks / 2);
                continue;
            }
            behind = from;
            if !builder.is_empty() {
                self.first.clone_from(&behind);
                let mut block = self.finished(builder);
                block.seek_last()?;
                self.place = Place::On(block);
                return Ok(());
            }
        }
        self.place = Place::Start;
        Ok(())
    }

    /// The same, key by key, so that one that is not known is an error not before its turn.
    fn enter_backward_by_keys(&mut self, behind: &[u8]) -> Result<()> {
        self.lose_place()?;
        self.entries.seek_for_prev(behind)?;
        let mut found: Vec<(Vec<u8>, Found)> = Vec::new();
        let (mut bytes, mut head_at_hand) = (0, Vec::new());
        self.last.clear();
        while bytes < self.chunk_bytes {
            // What stands at `behind` itself is no head's: no entry of an archive is one alone.
            let Some(entry) = self.entries.entry().filter(|entry| *entry.key >= *self.start) else {
                break;
            };
            let head = by_key_head(entry.key).ok_or_else(|| no_version(entry.key))?;
            head_at_hand.clear();
            head_at_hand.extend_from_slice(head);
            let newest = match self.version.newest(&head_at_hand, &mut self.from) {
                // Not before its turn: the next block ends with it.
                Err(Error::BeyondRetention { .. }) if !found.is_empty() => break,
                newest => newest?,
            };
            self.first.clone_from(&head_at_hand);
            if self.last.is_empty() {
                self.last.clone_from(&head_at_hand);
            }
            if let Some((_, VersionKind::Put, one)) = newest {
                let key = key_of_head(&self.first).ok_or_else(|| no_version(&self.first))?;
                bytes += key.len() + one.value.len();
                found.push((key, one));
            }
            self.entries.seek_for_prev(&self.first)?;
        }
        if found.is_empty() {
            self.place = Place::Start;
            return Ok(());
        }
        let mut builder = std::mem::replace(&mut self.builder, new_builder());
        for (key, Found { seqno, kind, value }) in found.iter().rev() {
            let seqno = seqno.unwrap_or_default();
            builder.add(EntryRef { key, seqno, kind: *kind, value })?;
        }
        let mut block = self.finished(builder);
        block.seek_last()?;
        self.place = Place::On(block);
        Ok(())
    }

    fn finished(&mut self, mut builder: BlockBuilder) -> BlockCursor {
        self.chunk_bytes = (2 * self.chunk_bytes).min(CHUNK_BYTES_MAX);
        let block = builder.finish_block(&self.version.heap);
        self.builder = builder;
        BlockCursor::new(Arc::new(block))
    }

    /// Before a move that may fail: whether the archive's cursor stands at the first key behind the
    /// block at hand.
    fn lose_place(&mut self) -> Result<bool> {
        self.place = Place::Lost;
        let is_ahead = std::mem::take(&mut self.is_ahead);
        self.version.check_walk()?;
        Ok(is_ahead)
    }

    /// Before a seek: a walk begins.
    fn begin(&mut self) {
        (self.chunk_bytes, self.is_ahead) = (CHUNK_BYTES_FIRST, false);
        (self.piece_blocks, self.piece_blocks_max) = (1, PIECE_BLOCKS_MAX);
    }

    #[cold]
    fn leave_forward(&mut self) -> Result<()> {
        self.enter_forward(&behind_head(&self.last))
    }

    #[cold]
    fn leave_backward(&mut self) -> Result<()> {
        let behind = self.first.clone();
        self.enter_backward(&behind)
    }
}

impl Cursor for PastCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.begin();
        self.enter_forward(&self.start.clone())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.begin();
        self.enter_backward(&self.end.clone())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let mut head = Vec::new();
        put_head(&mut head, key);
        self.begin();
        self.enter_forward(&head.max(self.start.clone()))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let mut head = Vec::new();
        put_head(&mut head, key);
        self.begin();
        self.enter_backward(&behind_head(&head).min(self.end.clone()))
    }

    fn next(&mut self) -> Result<()> {
        match &mut self.place {
            Place::On(block) => {
                block.next()?;
                if block.is_valid() {
                    return Ok(());
                }
                self.leave_forward()
            }
            Place::Taken => self.leave_forward(),
            Place::Start => self.seek_first(),
            Place::End => Ok(()),
            Place::Lost => Err(lost_its_place()),
        }
    }

    fn prev(&mut self) -> Result<()> {
        match &mut self.place {
            Place::On(block) => {
                block.prev()?;
                if block.is_valid() {
                    return Ok(());
                }
                self.leave_backward()
            }
            Place::Taken => self.leave_backward(),
            Place::Start => Ok(()),
            Place::End => self.seek_last(),
            Place::Lost => Err(lost_its_place()),
        }
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        match &self.place {
            Place::On(block) => block.entry(),
            _ => None,
        }
    }
}

impl StructureCursor for PastCursor {
    fn take_block(&mut self) -> Option<BlockCursor> {
        match std::mem::replace(&mut self.place, Place::Taken) {
            Place::On(block) => Some(block),
            other => {
                self.place = other;
                None
            }
        }
    }
}
