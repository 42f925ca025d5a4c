//! What a memtable brings to the archive of its keyspace: every version that it has, by key and by
//! stamp, as a cursor that is walked once.
//!
//! A deletion is a version if there was a value in front of it (H3). A range that was deleted is a
//! deletion of each key in it that had one: so the keys of the archive are gone through there, too.
//! What expires is a version with its moment; that it has expired is none. Operands are versions
//! too, and `made.rs` says what becomes of them.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::version_key::{VersionKind, put_by_stamp, put_head, put_tail};
use crate::base::{
    Cursor, EntryKind, EntryRef, KeyRange, MergeBase, Operands, RangeTombstones, Result, SeqNo,
    expiring_in, is_operands, lost_its_place,
};
use crate::db::convert::CopiedKeys;
use crate::db::history::made::{Archived, Made, Maker, More};
use crate::memory::Heap;
use crate::memtable::{AllVersions, EntryId, Memtable};
use crate::structure::history::VersionAt;
use crate::structure::{StructureCursor, Version};

/// Bytes of deletions with ranges that are gathered in one walk, about.
const WINDOW_SIZE: usize = 4 << 20;
/// What one takes beside its key.
const DELETED_SIZE: usize = size_of::<(SeqNo, Vec<u8>)>() + 16;

/// Something that happened to the key at hand.
#[derive(Clone, Copy, Debug)]
struct Event {
    stamp: SeqNo,
    /// What the memtable has of it; none if the key was deleted with a range.
    id: Option<EntryId>,
}

/// A range that was deleted, as often as there are stamps, which descend.
#[derive(Debug)]
struct Deleted {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    stamps: Vec<SeqNo>,
}

impl Event {
    fn is_deletion(&self, memtable: &Memtable) -> bool {
        self.id.is_none_or(|id| memtable.entry(id).kind == EntryKind::Tombstone)
    }
}

impl Deleted {
    fn oldest(&self) -> SeqNo {
        *self.stamps.last().expect("a deleted range has a stamp")
    }

    /// Whether the commit of this stamp has deleted it.
    fn has(&self, stamp: SeqNo) -> bool {
        self.stamps.binary_search_by(|other| stamp.cmp(other)).is_ok()
    }

    fn contains(&self, key: &[u8]) -> bool {
        !self.is_behind(key) && !self.ends_by(key)
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        *self.start > *key
    }

    fn ends_by(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| **end <= *key)
    }
}

/// Where the walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    ByKey,
    ByStamp,
    End,
}

/// The entries of an archive that a memtable brings, in order.
#[derive(Debug)]
pub(super) struct ArchiveEntries {
    keys: KeyWalk,
    part: Part,
    /// Versions of the memtable that count, and their stamps: by key, and then in order.
    by_stamp: Vec<(SeqNo, EntryId)>,
    /// How many of them were shown.
    shown: usize,
    /// The newest deletion with a range.
    newest_range: Option<SeqNo>,
    /// The next key that was deleted with a range, and by the commit of which stamp.
    deleted: Option<(SeqNo, Vec<u8>)>,
    /// Those that follow, the next one last.
    window: Vec<(SeqNo, Vec<u8>)>,
    /// Of stamps below this one, nothing is left but what is in the window.
    gone_through: u64,
    /// The commit at hand, if its deletions are too many for a window; ranges in front of `range`
    /// were gone through for it.
    streamed: Option<SeqNo>,
    range: usize,
    /// Whether versions are shown by stamp, too.
    by_stamp_too: bool,
    /// What makes the values of operands, where there may be some.
    maker: Option<Maker>,
    // The entry at hand.
    key: Vec<u8>,
    stamp: SeqNo,
    id: Option<EntryId>,
    kind: VersionKind,
    /// What it is shown as, if not as the memtable has it.
    made: Option<Made>,
}

impl ArchiveEntries {
    /// What `memtable` brings to `archive`, which may have some of it.
    pub(super) fn new(
        memtable: &Arc<Memtable>,
        archive: Arc<dyn Version>,
        heap: &Arc<Heap>,
    ) -> ArchiveEntries {
        let ranges = memtable.ranges().unwrap_or_default();
        let newest_range = ranges.all().filter_map(|(_, stamps)| stamps.first().copied()).max();
        ArchiveEntries {
            keys: KeyWalk::new(memtable, &ranges, archive, heap),
            part: Part::End,
            by_stamp: Vec::new(),
            shown: 0,
            newest_range,
            deleted: None,
            window: Vec::new(),
            gone_through: 0,
            streamed: None,
            range: 0,
            by_stamp_too: true,
            maker: None,
            key: Vec::new(),
            stamp: SeqNo::ZERO,
            id: None,
            kind: VersionKind::Deleted,
            made: None,
        }
    }

    /// Has versions be shown by key alone.
    pub(super) fn leave_stamps_out(&mut self) {
        self.by_stamp_too = false;
    }

    /// Has the values of operands be made.
    pub(super) fn make_values(&mut self, maker: Maker) {
        self.maker = Some(maker);
    }

    /// Knows that the archive is still being made, and which keys it has everything of: of others
    /// it need not have what was merged into what it does not know.
    pub(super) fn copied(&mut self, copied: CopiedKeys) {
        self.keys.copied = Some(copied);
    }

    /// What has made values; when all was shown.
    pub(super) fn into_maker(self) -> Option<Maker> {
        self.maker
    }

    /// Makes the values of operands among the events of the key at hand; those that the archive has
    /// are no events.
    fn make_values_of_key(&mut self) -> Result<()> {
        let ArchiveEntries { maker: Some(maker), keys, .. } = self else { return Ok(()) };
        let memtable = Arc::clone(&keys.memtable);
        let entry_of = |event: &Event| event.id.map(|id| memtable.entry(id));
        let merges = |event: &Event| {
            entry_of(event).is_some_and(|entry| is_operands(entry.kind, entry.value))
        };
        if !keys.events.iter().any(merges) {
            return Ok(());
        }
        maker.begin_key();
        for (position, event) in keys.events.iter().enumerate() {
            if maker.has_archived(event.stamp) {
                continue;
            }
            let is_last = position + 1 == keys.events.len();
            let more = if is_last { More::Nothing } else { More::Versions };
            match entry_of(event) {
                Some(entry) if entry.kind == EntryKind::Composite => {
                    let base = keys.base_of(event.stamp, entry);
                    maker.take(entry, base, || keys.archived())?;
                }
                Some(entry) if entry.kind != EntryKind::Tombstone => maker.note_put(entry, more),
                _ => maker.note_deleted(),
            }
        }
        keys.events.retain(|event| !maker.has_archived(event.stamp));
        Ok(())
    }

    /// What an event of operands is shown as.
    fn made_of(&mut self, stamp: SeqNo, id: EntryId) -> Option<Made> {
        let entry = self.keys.memtable.entry(id);
        if !is_operands(entry.kind, entry.value) {
            return None;
        }
        if let Some(made) = self.maker.as_mut().and_then(|maker| maker.take_made(stamp)) {
            return Some(made);
        }
        let operands = Operands::decode(entry.value)?;
        let value = match self.keys.base_of(stamp, entry) {
            MergeBase::Below => operands.on_older_version(),
            base => operands.on(base),
        };
        Some(Made { kind: EntryKind::Composite, value })
    }

    /// Everything was shown.
    fn end(&mut self) -> Result<()> {
        self.part = Part::End;
        self.maker.as_mut().map_or(Ok(()), Maker::finish)
    }

    /// Shows an event of the key at hand, by key.
    fn show_by_key(&mut self, Event { stamp, id }: Event) {
        (self.stamp, self.id) = (stamp, id);
        self.kind = self.keys.kind_of(id);
        self.made = id.and_then(|id| self.made_of(stamp, id));
        put_head(&mut self.key, &self.keys.key);
        put_tail(&mut self.key, stamp, self.kind);
        if self.by_stamp_too {
            self.by_stamp.extend(id.map(|id| (stamp, id)));
        }
    }

    fn next_by_key(&mut self) -> Result<()> {
        while self.keys.events.is_empty() {
            if !self.keys.go_on()? {
                if !self.by_stamp_too {
                    return self.end();
                }
                // Stable: those of one commit stay in the order of keys.
                self.by_stamp.sort_by_key(|(stamp, _)| *stamp);
                self.part = Part::ByStamp;
                self.next_deleted()?;
                return self.next_by_stamp();
            }
            self.make_values_of_key()?;
        }
        if let Some(newest) = self.keys.events.pop() {
            self.show_by_key(newest);
        }
        Ok(())
    }

    /// Finds the next key that was deleted with a range: by stamp, and of each by key.
    fn next_deleted(&mut self) -> Result<()> {
        loop {
            self.deleted = self.window.pop();
            if self.deleted.is_some() {
                return Ok(());
            }
            if let Some(stamp) = self.streamed {
                if self.find_streamed(stamp)? {
                    return Ok(());
                }
                self.streamed = None;
                self.gone_through = stamp.as_u64() + 1;
            }
            if self.newest_range.is_none_or(|newest| newest.as_u64() < self.gone_through) {
                return Ok(());
            }
            self.fill_window()?;
        }
    }

    /// Goes on to the next key that the commit of this stamp, which deleted many, has deleted.
    fn find_streamed(&mut self, stamp: SeqNo) -> Result<bool> {
        loop {
            while self.keys.go_on()? {
                if self.keys.is_deleted_with_range(stamp) {
                    self.deleted = Some((stamp, self.keys.key.clone()));
                    return Ok(true);
                }
            }
            let has_stamp = |range: &Deleted| range.has(stamp);
            match self.keys.enter(self.range, has_stamp) {
                Some(position) => self.range = position + 1,
                None => return Ok(false),
            }
        }
    }

    /// Gathers the deletions with ranges of the next commits, of as many as take little memory, in
    /// one walk; or finds that the next one has deleted so many that it is gone through alone.
    fn fill_window(&mut self) -> Result<()> {
        let (from, mut limit) = (self.gone_through, u64::MAX);
        let (mut range, mut bytes) = (0, 0);
        let has_some = |range: &Deleted| range.stamps.iter().any(|stamp| stamp.as_u64() >= from);
        while let Some(position) = self.keys.enter(range, has_some) {
            range = position + 1;
            while self.keys.go_on()? {
                let of_ranges = self.keys.events.iter().filter(|event| event.id.is_none());
                for event in of_ranges.filter(|event| (from..limit).contains(&event.stamp.as_u64()))
                {
                    bytes += self.keys.key.len() + DELETED_SIZE;
                    self.window.push((event.stamp, self.keys.key.clone()));
                }
                if bytes > WINDOW_SIZE {
                    self.window.sort_unstable_by_key(|(stamp, _)| *stamp);
                    let (first, middle) = (self.window[0].0, self.window[self.window.len() / 2].0);
                    // Later ranges may have deletions of lower stamps.
                    limit = if first == middle { first } else { middle }.as_u64();
                    self.window.retain(|(stamp, _)| stamp.as_u64() < limit);
                    bytes = self.window.iter().map(|(_, key)| key.len() + DELETED_SIZE).sum();
                }
            }
        }
        self.window.sort_unstable_by(|a, b| b.cmp(a));
        self.gone_through = limit;
        if self.window.is_empty() && limit < u64::MAX {
            (self.streamed, self.range) = (Some(SeqNo::from_u64(limit)), 0);
            self.keys.end = Some(Vec::new()); // No key, until a range is entered.
        }
        Ok(())
    }

    fn next_by_stamp(&mut self) -> Result<()> {
        let next = self.by_stamp.get(self.shown).copied();
        let memtable = &self.keys.memtable;
        let is_first = |(stamp, key): &&(SeqNo, Vec<u8>)| {
            next.is_none_or(|(next, id)| (*stamp, key.as_slice()) < (next, memtable.entry(id).key))
        };
        if let Some((stamp, key)) = self.deleted.as_ref().filter(is_first) {
            put_by_stamp(&mut self.key, *stamp, key);
            (self.stamp, self.kind) = (*stamp, VersionKind::Deleted);
            return self.next_deleted();
        }
        let Some((stamp, id)) = next else { return self.end() };
        put_by_stamp(&mut self.key, stamp, memtable.entry(id).key);
        (self.stamp, self.kind) = (stamp, self.keys.kind_of(Some(id)));
        self.shown += 1;
        Ok(())
    }
}

/// Forward alone: a flush needs no more, and another move is an error.
impl Cursor for ArchiveEntries {
    fn seek_first(&mut self) -> Result<()> {
        debug_assert!(self.by_stamp.is_empty(), "it is walked once");
        self.part = Part::ByKey;
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        match self.part {
            Part::ByKey => self.next_by_key(),
            Part::ByStamp => self.next_by_stamp(),
            Part::End => Ok(()),
        }
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        let (key, seqno) = (self.key.as_slice(), self.stamp);
        Some(match (self.part, self.id, self.kind) {
            (Part::End, ..) => return None,
            (Part::ByStamp, _, kind) => {
                let value: &[u8] = match kind {
                    VersionKind::Deleted => &[VersionKind::Deleted as u8],
                    VersionKind::Put => &[VersionKind::Put as u8],
                };
                EntryRef { key, seqno, kind: EntryKind::Value, value }
            }
            (Part::ByKey, Some(id), VersionKind::Put) => match &self.made {
                Some(made) => EntryRef { key, seqno, kind: made.kind, value: &made.value },
                None => EntryRef { key, seqno, ..self.keys.memtable.entry(id) },
            },
            (Part::ByKey, ..) => EntryRef { key, seqno, kind: EntryKind::Value, value: &[] },
        })
    }

    fn seek_last(&mut self) -> Result<()> {
        Err(lost_its_place())
    }

    fn seek(&mut self, _: &[u8]) -> Result<()> {
        Err(lost_its_place())
    }

    fn seek_for_prev(&mut self, _: &[u8]) -> Result<()> {
        Err(lost_its_place())
    }

    fn prev(&mut self) -> Result<()> {
        Err(lost_its_place())
    }
}

/// Walks the keys to which something happened, with what did.
#[derive(Debug)]
struct KeyWalk {
    memtable: Arc<Memtable>,
    archive: Arc<dyn Version>,
    heap: Arc<Heap>,
    versions: AllVersions,
    /// Ranges that were deleted, ascending.
    ranges: Vec<Deleted>,
    /// The first of them that may have keys behind the one at hand.
    range: usize,
    /// Keys of the archive in that range that had a value before the first of its deletions.
    archived: Option<Box<dyn StructureCursor>>,
    /// Behind all keys that are asked for; none if that is no key.
    end: Option<Vec<u8>>,
    key: Vec<u8>,
    /// What happened to it that is a version, the newest last.
    events: Vec<Event>,
    /// The keys that the archive has everything of, if these are not all.
    copied: Option<CopiedKeys>,
}

impl KeyWalk {
    fn new(
        memtable: &Arc<Memtable>,
        ranges: &RangeTombstones,
        archive: Arc<dyn Version>,
        heap: &Arc<Heap>,
    ) -> KeyWalk {
        let ranges = ranges.all().map(|(range, stamps)| Deleted {
            start: range.start.to_vec(),
            end: range.end.map(<[u8]>::to_vec),
            stamps: stamps.to_vec(),
        });
        KeyWalk {
            memtable: Arc::clone(memtable),
            archive,
            heap: Arc::clone(heap),
            versions: AllVersions::new(memtable),
            ranges: ranges.collect(),
            range: 0,
            archived: None,
            end: None,
            key: Vec::new(),
            events: Vec::new(),
            copied: None,
        }
    }

    fn kind_of(&self, id: Option<EntryId>) -> VersionKind {
        match id.map(|id| self.memtable.entry(id).kind) {
            None | Some(EntryKind::Tombstone) => VersionKind::Deleted,
            Some(_) => VersionKind::Put,
        }
    }

    /// What the archive said just before `stamp`.
    fn before(&self, stamp: SeqNo) -> VersionAt {
        let at = SeqNo::from_u64(stamp.as_u64().saturating_sub(1));
        VersionAt::new(Arc::clone(&self.archive), at, &self.heap)
    }

    /// What the archive has of the key at hand.
    fn archived(&self) -> Result<Archived> {
        let archive = Arc::clone(&self.archive);
        VersionAt::new(archive, SeqNo::MAX, &self.heap).newest_whole(&self.key)
    }

    /// What an entry of operands of the key at hand is merged into: also what its commit has
    /// deleted with a range.
    fn base_of<'e>(&self, stamp: SeqNo, entry: EntryRef<'e>) -> MergeBase<'e> {
        let base = Operands::decode(entry.value).map_or(MergeBase::Below, |of| of.base);
        let range = self.ranges.get(self.range).filter(|range| range.contains(&self.key));
        let is_deleted = || range.is_some_and(|range| range.has(stamp));
        match base {
            MergeBase::Below if is_deleted() => MergeBase::Nothing,
            base => base,
        }
    }

    /// Goes to the next key and gathers what happened to it; `false` at the end.
    fn go_on(&mut self) -> Result<bool> {
        self.enter_range()?;
        let in_memtable = self.versions.entry().map(|entry| entry.key);
        let in_archive = self.archived.as_ref().and_then(|archived| archived.key());
        let key = in_memtable.into_iter().chain(in_archive).min();
        let end = self.end.as_deref();
        let Some(key) = key.filter(|key| end.is_none_or(|end| *key < end)) else {
            return Ok(false);
        };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.gather()?;
        Ok(true)
    }

    /// Goes on to the range that has the next key, if one has, and to its first key in the archive.
    fn enter_range(&mut self) -> Result<()> {
        loop {
            if self.archived.as_ref().is_some_and(|archived| archived.is_valid()) {
                return Ok(());
            }
            let Some(range) = self.ranges.get(self.range) else { return Ok(()) };
            let next = self.versions.entry().map(|entry| entry.key);
            if self.archived.is_some() {
                if next.is_some_and(|next| !range.ends_by(next)) {
                    return Ok(()); // The memtable has more of it.
                }
                (self.archived, self.range) = (None, self.range + 1);
                continue;
            }
            let is_behind = |key: &[u8]| *range.start >= *key;
            if next.is_some_and(|next| range.is_behind(next))
                || self.end.as_deref().is_some_and(is_behind)
            {
                return Ok(());
            }
            let end = range.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let keys = KeyRange { start: Bound::Included(range.start.clone()), end };
            let mut archived = self.before(range.oldest()).cursor(&keys);
            archived.seek_first()?;
            self.archived = Some(archived);
        }
    }

    /// Gathers what happened to the key at hand, and goes past it.
    fn gather(&mut self) -> Result<()> {
        self.events.clear();
        let memtable = Arc::clone(&self.memtable);
        while let Some(id) = self.versions.id()
            && *memtable.entry(id).key == *self.key
        {
            self.events.push(Event { stamp: memtable.entry(id).seqno, id: Some(id) });
            self.versions.next();
        }
        self.note_deletions();
        let mut value_until = self.value_before_events()?;
        if let Some(archived) = &mut self.archived
            && archived.key() == Some(&self.key)
        {
            archived.next()?;
        }
        // From the oldest on, what is a version (H3).
        let (mut events, mut kept) = (std::mem::take(&mut self.events), Vec::new());
        let mut is_known = self.copied.as_ref().is_none_or(|copied| copied.has(&self.key));
        let mut is_left_out = false;
        while let Some(event) = events.pop() {
            let entry = event.id.map(|id| memtable.entry(id));
            let is_open = entry.is_some_and(|entry| {
                is_operands(entry.kind, entry.value)
                    && self.base_of(event.stamp, entry) == MergeBase::Below
            });
            // It comes with what it is merged into, as one; and so does what is behind it, which
            // would be told to be on what the archive has by now.
            is_left_out |= is_open && !is_known;
            if is_left_out {
                continue;
            }
            is_known = true;
            match self.kind_of(event.id) {
                VersionKind::Put => {
                    value_until = entry.map(|entry| until_of(entry.kind, entry.value));
                    kept.push(event);
                }
                VersionKind::Deleted => {
                    let until = value_until.take();
                    if until.is_some_and(|until| event.stamp.millis() < until) {
                        kept.push(event);
                    }
                }
            }
        }
        self.events = kept;
        Ok(())
    }

    /// Adds deletions with ranges to the events, which the memtable has nothing else of.
    fn note_deletions(&mut self) {
        let Some(range) = self.ranges.get(self.range) else { return };
        if !range.contains(&self.key) {
            return;
        }
        if self.events.is_empty() {
            // What is there is gone with the first of them.
            self.events.push(Event { stamp: range.oldest(), id: None });
            return;
        }
        let of_memtable = std::mem::take(&mut self.events);
        let mut own = of_memtable.iter().copied().peekable();
        for &stamp in &range.stamps {
            while let Some(newer) = own.next_if(|event| event.stamp > stamp) {
                self.events.push(newer);
            }
            // What a commit writes behind its own deletion counts.
            if own.peek().is_none_or(|event| event.stamp < stamp) {
                self.events.push(Event { stamp, id: None });
            }
        }
        self.events.extend(own);
    }

    /// Until when, in milliseconds since 1970, the value is there that the key at hand had before
    /// what happened to it, as far as the archive knows. None if it had none, or it makes no
    /// difference.
    fn value_before_events(&self) -> Result<Option<u64>> {
        let oldest = self.events.last().filter(|event| event.is_deletion(&self.memtable));
        let Some(oldest) = oldest else { return Ok(None) };
        // What the range's cursor shows is as of just before its oldest deletion.
        if let Some(archived) = &self.archived
            && self.ranges[self.range].oldest() == oldest.stamp
            && self.ranges[self.range].contains(&self.key)
        {
            let shown = archived.entry().filter(|entry| entry.key == self.key);
            return Ok(shown.map(|entry| until_of(entry.kind, entry.value)));
        }
        // What operands come to does not matter.
        let found = self.before(oldest.stamp).newest_archived(&self.key)?;
        let found = found.filter(|(_, kind, _)| *kind == VersionKind::Put);
        Ok(found.map(|(_, _, found)| until_of(found.kind, &found.value)))
    }

    /// Goes in front of the first range from this place on that is one; its place.
    fn enter(&mut self, from: usize, is_one: impl Fn(&Deleted) -> bool) -> Option<usize> {
        let mut ranges = self.ranges.iter().enumerate().skip(from);
        let (position, range) = ranges.find(|(_, range)| is_one(range))?;
        self.versions.seek(&range.start);
        self.end.clone_from(&range.end);
        (self.range, self.archived) = (position, None);
        Some(position)
    }

    /// Whether the commit of this stamp deleted the key at hand with a range, as a version.
    fn is_deleted_with_range(&self, stamp: SeqNo) -> bool {
        self.events.iter().any(|event| event.stamp == stamp && event.id.is_none())
    }
}

/// Until when, in milliseconds since 1970, an entry that is no tombstone has a value.
fn until_of(kind: EntryKind, value: &[u8]) -> u64 {
    expiring_in(kind, value).map_or(u64::MAX, |expiring| expiring.until)
}
