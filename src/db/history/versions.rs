//! What happened to a key, and what happened to a keyspace from stamp to stamp.

use std::fmt;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::sync::Arc;

use crate::base::version_key::{
    INGESTED, VersionKey, VersionKind, behind_head, by_key_head, put_by_stamp, put_head,
    put_stamp_bound, tail_of,
};
use crate::base::{
    EntryKind, EntryRef, Error, Expiry, KeyRange, MergeBase, Operands, Result, SeqNo, Slice,
    expiring_in, is_operands, version_operands,
};
use crate::db::keyspace::Keyspace;
use crate::db::state::{KeyspaceState, Table};
use crate::db::time::AsOf;
use crate::structure::history::{VersionAt, no_version};
use crate::structure::retention::{Retention, Said};
use crate::structure::{Found, StructureCursor, Version as _, Want};

/// A version of a key: what a commit made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyVersion {
    /// The key.
    pub key: Slice,
    /// The commit.
    pub seqno: SeqNo,
    /// The value that it put; `None` if it deleted the key.
    pub value: Option<Slice>,
    /// When the value expires.
    pub expiry: Expiry,
}

/// A version that is not in the archive yet.
#[derive(Clone, Debug)]
struct Recent {
    stamp: SeqNo,
    place: RecentPlace,
    /// Until when there is a value; 0 for a deletion.
    until: u64,
}

/// Where a version is that is not in the archive.
#[derive(Clone, Debug)]
enum RecentPlace {
    /// It is a deletion.
    Nowhere,
    Memtable(Arc<Table>),
    /// An ingest has brought it.
    Ingested(Found),
}

impl Recent {
    fn is_deletion(&self) -> bool {
        matches!(self.place, RecentPlace::Nowhere)
    }

    /// What it put; `None` for a deletion.
    fn found(&self, key: &[u8]) -> Option<Found> {
        let table = match &self.place {
            RecentPlace::Nowhere => return None,
            RecentPlace::Ingested(found) => return Some(found.clone()),
            RecentPlace::Memtable(table) => table,
        };
        let EntryRef { seqno, kind, value, .. } = table.memtable.get(key, self.stamp)?;
        Some(Found { seqno: Some(seqno), kind, value: Slice::from(value) })
    }
}

/// Which way [`Versions`] go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    NewestFirst,
    OldestFirst,
}

/// The versions of a key; see [`Keyspace::history`]. Reads lazily, and shows what there was when it
/// was made. After an error it is over, but for those of a version that cannot be made
/// (`MergeFailed`, `MergeOperatorMissing`), which stand in its place.
#[derive(Debug)]
pub struct Versions {
    keyspace: Arc<KeyspaceState>,
    key: Slice,
    order: Order,
    from: Bound<SeqNo>,
    to: Bound<SeqNo>,
    /// The newest version that the archive is asked for.
    archived_to: SeqNo,
    version: VersionAt,
    archive: Box<dyn StructureCursor>,
    head: Vec<u8>,
    /// What is kept, if not all.
    retention: Option<Retention>,
    /// Versions that are newer than the next one of the archive, and the stamp of the last of them;
    /// where not all is kept, while they are walked from the newest on.
    newer: (u32, Option<SeqNo>),
    /// Those that are newer, in the order in which they are shown, the next one last.
    recent: Vec<Recent>,
    /// From the oldest on: what the last one of the archive said, if that is known; what follows
    /// may be merged into that, and need not be made from the bottom.
    last: Option<Option<Slice>>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    InArchive,
    BehindArchive,
    Over,
}

impl Keyspace {
    /// What happened to `key`, by commits whose stamps are in `stamps`: the newest first. Each
    /// commit that put it or deleted it is a version; what expired is one with its moment. Where
    /// not all versions are kept, those that are, without a deletion that nothing is left in front
    /// of.
    ///
    /// Costs a search of the archive, and a step and some 60 bytes for each version that is still
    /// in memtables; each version then a step. Of what is merged a version is the value that it
    /// made: making it costs what [`Keyspace::get_at`] costs, reading the operands since the last
    /// one whose value was kept; [`Keyspace::history_from_oldest`] makes each out of the one in
    /// front of it, where these are in the archive, and is the way to go through many. One that
    /// cannot be made is an error in its place (`MergeFailed`, `MergeOperatorMissing`), and older
    /// ones follow.
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # use lithedb::{Db, KeyspaceOptions, storage::MemoryStorage};
    /// # let db = Db::builder().storage(std::sync::Arc::new(MemoryStorage::new())).open("/db")?;
    /// let wiki = db.create_keyspace("wiki", KeyspaceOptions::history())?;
    /// wiki.put("otter", "A mammal.")?;
    /// wiki.delete("otter")?;
    /// let versions: Result<Vec<_>, _> = wiki.history("otter", ..)?.collect();
    /// let values: Vec<_> = versions?.into_iter().map(|version| version.value).collect();
    /// assert_eq!(values, [None, Some(lithedb::Slice::from(&b"A mammal."[..]))]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` where no versions are kept; else as [`Keyspace::get`], also of each item.
    pub fn history(
        &self,
        key: impl AsRef<[u8]>,
        stamps: impl RangeBounds<SeqNo>,
    ) -> Result<Versions> {
        self.versions(key.as_ref(), &stamps, Order::NewestFirst)
    }

    /// As [`Keyspace::history`], the oldest first.
    ///
    /// # Errors
    /// As [`Keyspace::history`].
    pub fn history_from_oldest(
        &self,
        key: impl AsRef<[u8]>,
        stamps: impl RangeBounds<SeqNo>,
    ) -> Result<Versions> {
        self.versions(key.as_ref(), &stamps, Order::OldestFirst)
    }

    fn versions(
        &self,
        key: &[u8],
        stamps: &impl RangeBounds<SeqNo>,
        order: Order,
    ) -> Result<Versions> {
        let core = self.core();
        core.check_open()?;
        let (state, visible) = core.published.load();
        let keyspace = state.find(self.id()).ok_or_else(|| self.not_found())?;
        let version = core.past_version(&state, keyspace, (visible, visible))?;
        let (mut recent, archived_to) = recent_versions(keyspace, &version, key, visible)?;
        let newer = (recent.len() as u32, recent.first().map(|oldest| oldest.stamp));
        let (from, to) = (stamps.start_bound().cloned(), stamps.end_bound().cloned());
        recent.retain(|recent| (from, to).contains(&recent.stamp));
        if order == Order::OldestFirst {
            recent.reverse();
        }
        let mut head = Vec::new();
        put_head(&mut head, key);
        let end = Bound::Excluded(behind_head(&head));
        let range = KeyRange { start: Bound::Included(head.clone()), end };
        Ok(Versions {
            keyspace: Arc::clone(keyspace),
            key: Slice::from(key),
            order,
            from,
            to,
            archived_to,
            archive: version.archived(&range),
            version: version.unlimited(),
            head,
            retention: keyspace
                .runtime
                .archive
                .as_ref()
                .and_then(|of| core.retention_of(of, visible)),
            newer,
            recent,
            last: None,
            place: Place::Start,
        })
    }

    /// Everything that happened to the keyspace by commits whose stamps are in `stamps`, and not
    /// above the newest one as of the call: in the order of stamps, those of one commit in the
    /// order of keys. So who goes on later, behind the last stamp that was told, misses nothing.
    /// What is in memtables is flushed first, and what was ingested is archived.
    ///
    /// Costs a search of the archive for where it begins, and one for each version; of what is
    /// merged as [`Keyspace::history`], and one that cannot be made is an error, behind which the
    /// walk goes on.
    ///
    /// Where versions are kept for a time, all stamps are those from [`Keyspace::kept_from`] on.
    ///
    /// # Errors
    /// `InvalidArgument` where no versions are kept, or by their number alone;
    /// [`Error::BeyondRetention`] for stamps in front of those that are kept; else as
    /// [`crate::Db::flush`]: so in a database that is opened for reading alone `ReadOnly` when
    /// there is something to be flushed, or an ingest that is not archived. Each item may be what
    /// reading it failed with.
    pub fn versions_by_stamp(&self, stamps: impl RangeBounds<SeqNo>) -> Result<VersionsByStamp> {
        let core = self.core();
        core.check_open()?;
        let newest = (SeqNo::MAX, SeqNo::MAX);
        core.past_version(&core.published.state(), self.present()?.as_ref(), newest)?;
        let archived_to = core.flush_up_to_now(&self.runtime())?;
        self.versions_archived_to(archived_to, &stamps)
    }

    /// The same, of what is archived up to a stamp.
    pub(super) fn versions_archived_to(
        &self,
        archived_to: SeqNo,
        stamps: &impl RangeBounds<SeqNo>,
    ) -> Result<VersionsByStamp> {
        let core = self.core();
        let newest = (SeqNo::MAX, SeqNo::MAX);
        let state = core.published.state();
        let keyspace = state.find(self.id()).ok_or_else(|| self.not_found())?;
        let version = core.past_version(&state, keyspace, newest)?;
        let (mut start, mut end) = (Vec::new(), None);
        let kept_from = self.stamps_kept_from(keyspace, core.visible())?;
        let first = match stamps.start_bound() {
            Bound::Unbounded => Some(kept_from),
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => next_stamp(*before),
        };
        if first.is_some_and(|first| first < kept_from) {
            return Err(Error::BeyondRetention {
                keyspace: self.name().to_string(),
                kept_from: Some(kept_from),
                versions: keyspace.runtime.options.keep_versions,
            });
        }
        put_by_stamp(&mut start, first.unwrap_or(SeqNo::MAX), &[]);
        // Of what is above, something may be there, and what is in front of that not yet.
        let known_to = next_stamp(archived_to);
        let behind = match stamps.end_bound() {
            Bound::Unbounded => known_to,
            Bound::Included(last) => next_stamp(*last).into_iter().chain(known_to).min(),
            Bound::Excluded(behind) => known_to.into_iter().chain([*behind]).min(),
        };
        if let Some(behind) = behind.or(first.is_none().then_some(SeqNo::ZERO)) {
            put_by_stamp(end.insert(Vec::new()), behind, &[]);
        }
        let bound = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let range = KeyRange { start: Bound::Included(start.clone()), end: bound };
        Ok(VersionsByStamp {
            keyspace: Arc::clone(keyspace),
            archive: version.archived(&range),
            version,
            start,
            end,
            place: Place::Start,
            filter: None,
            ingested_too: true,
        })
    }

    /// From which stamp on there are all versions by stamp, of the keyspace as it was found.
    fn stamps_kept_from(&self, found: &KeyspaceState, visible: SeqNo) -> Result<SeqNo> {
        let Some(archive) = &found.runtime.archive else { return Ok(SeqNo::ZERO) };
        let begins = archive.options.begins_at;
        match self.core().retention_of(archive, visible) {
            None => Ok(begins),
            Some(Retention { from: Some(from), .. }) => Ok(from.max(begins)),
            Some(Retention { from: None, .. }) => {
                let name = self.name();
                let what = format!("keyspace {name:?} keeps versions by number, not by stamp");
                Err(Error::invalid(what))
            }
        }
    }

    fn present(&self) -> Result<Arc<KeyspaceState>> {
        let state = self.core().published.state();
        state.find(self.id()).cloned().ok_or_else(|| self.not_found())
    }
}

fn next_stamp(stamp: SeqNo) -> Option<SeqNo> {
    stamp.as_u64().checked_add(1).map(SeqNo::from_u64)
}

/// The versions of `key` that are in memtables alone, or were ingested and are not archived, the
/// newest last, and up to which stamp the archive has the others.
fn recent_versions(
    keyspace: &KeyspaceState,
    archive: &VersionAt,
    key: &[u8],
    visible: SeqNo,
) -> Result<(Vec<Recent>, SeqNo)> {
    let mut events: Vec<Recent> = Vec::new();
    for table in keyspace.tables() {
        table.memtable.visit_each_version(
            key,
            visible,
            |EntryRef { seqno, kind, value, .. }| {
                let is_put = kind != EntryKind::Tombstone;
                let until = expiring_in(kind, value).map_or(u64::MAX, |expiring| expiring.until);
                let (place, until) = match is_put {
                    true => (RecentPlace::Memtable(Arc::clone(table)), until),
                    false => (RecentPlace::Nowhere, 0),
                };
                events.push(Recent { stamp: seqno, place, until });
                ControlFlow::Continue(())
            },
        );
        let ranges = table.memtable.ranges();
        let stamps = ranges.map(|ranges| ranges.stamps_of(key)).unwrap_or_default();
        let deleted = stamps.into_iter().filter(|stamp| *stamp <= visible);
        let gone = |stamp| Recent { stamp, place: RecentPlace::Nowhere, until: 0 };
        events.extend(deleted.map(gone));
    }
    if let Some(of) = &keyspace.unarchived
        && let Some(found) = of.find(key)?
    {
        let (stamp, until) = (of.stamp(), value_until_of(&found));
        events.push(Recent { stamp, place: RecentPlace::Ingested(found), until });
    }
    // What a commit writes behind its own deletion counts.
    events.sort_by_key(|event| (event.stamp, event.is_deletion()));
    events.dedup_by_key(|event| event.stamp);
    if events.is_empty() {
        return Ok((events, visible));
    }
    // Of a memtable that is being flushed, or whose flush was interrupted, the archive has all, and
    // knows what were versions.
    let archived = archive.as_of(visible).newest_archived(key)?;
    let archived_to = archived.as_ref().map_or(SeqNo::ZERO, |(stamp, _, _)| *stamp);
    events.retain(|event| event.stamp > archived_to);
    let of_archive = archived.filter(|(_, kind, _)| *kind == VersionKind::Put);
    let mut value_until = of_archive.map_or(0, |(_, _, found)| value_until_of(&found));
    // H3
    events.retain(|event| {
        let until = std::mem::replace(&mut value_until, event.until);
        !event.is_deletion() || event.stamp.millis() < until
    });
    Ok((events, archived_to))
}

/// Until when, in milliseconds since 1970, this is a value.
fn value_until_of(found: &Found) -> u64 {
    let until = expiring_in(found.kind, &found.value).map(|expiring| expiring.until);
    until.unwrap_or(u64::MAX)
}

/// The version as it is told: its value is read if it lies elsewhere, or made.
fn told(
    (keyspace, version): (&KeyspaceState, &VersionAt),
    key: Slice,
    seqno: SeqNo,
    found: Option<Found>,
) -> Result<KeyVersion> {
    // It is told also if it has expired since.
    let as_of = AsOf::of(seqno, 1);
    let found = match found {
        Some(found) if is_operands(found.kind, &found.value) => {
            let then = keyspace.at_moment(version.as_of(seqno), seqno);
            match Operands::decode(&found.value) {
                // It needs nothing older.
                Some(operands) if !operands.is_open() => {
                    Some((then.value_of_operands(&key, &found.value)?, None))
                }
                _ => then.led_to_with_expiry(&key, as_of, found)?,
            }
        }
        Some(found) => keyspace.led_to_with_expiry(&key, as_of, found)?,
        None => None,
    };
    let (value, until) = found.unzip();
    Ok(KeyVersion { key, seqno, value, expiry: Expiry::from_moment(until.flatten()) })
}

impl Versions {
    fn find_next(&mut self) -> Result<Option<(SeqNo, Option<Found>)>> {
        if self.order == Order::NewestFirst
            && let Some(recent) = self.recent.pop()
        {
            return Ok(Some((recent.stamp, recent.found(&self.key))));
        }
        if let Some(found) = self.next_in_archive()? {
            return Ok(Some(found));
        }
        Ok(self.recent.pop().map(|recent| (recent.stamp, recent.found(&self.key))))
    }

    fn next_in_archive(&mut self) -> Result<Option<(SeqNo, Option<Found>)>> {
        match (self.place, self.order) {
            (Place::Start, Order::NewestFirst) => {
                let to = match self.to {
                    // How many are newer says whether one is kept.
                    _ if self.retention.is_some() => self.archived_to,
                    Bound::Included(to) | Bound::Excluded(to) => to.min(self.archived_to),
                    Bound::Unbounded => self.archived_to,
                };
                self.seek_from(to)?;
            }
            (Place::Start, Order::OldestFirst) => match self.retention {
                Some(retention) => self.seek_oldest_kept(&retention)?,
                None => self.archive.seek_for_prev(&behind_head(&self.head))?,
            },
            (Place::InArchive, Order::NewestFirst) => self.archive.next()?,
            (Place::InArchive, Order::OldestFirst) => self.archive.prev()?,
            (Place::BehindArchive | Place::Over, _) => return Ok(None),
        }
        self.place = Place::InArchive;
        while let Some(EntryRef { key, seqno, kind, value }) = self.archive.entry() {
            if by_key_head(key) != Some(&self.head) {
                break;
            }
            let (stamp, what) = tail_of(key).ok_or_else(|| no_version(key))?;
            if let (Order::NewestFirst, Some(retention)) = (self.order, &self.retention) {
                let (newer, next) = self.newer;
                self.newer = (newer.saturating_add(1), Some(stamp));
                if !retention.shows(newer, next, Said::by((stamp, what), kind, value)) {
                    break;
                }
            }
            if (self.from, self.to).contains(&stamp) && stamp <= self.archived_to {
                if what == VersionKind::Deleted {
                    return Ok(Some((stamp, None)));
                }
                let found = Found { seqno: Some(seqno), kind, value: Slice::from(value) };
                return Ok(Some((stamp, Some(self.whole(stamp, found)?))));
            }
            if self.is_past_all(stamp) {
                break;
            }
            match self.order {
                Order::NewestFirst => self.archive.next()?,
                Order::OldestFirst => self.archive.prev()?,
            }
        }
        self.place = Place::BehindArchive;
        Ok(None)
    }

    /// What a version of the archive says, without those that it is on.
    fn whole(&self, stamp: SeqNo, found: Found) -> Result<Found> {
        match (&self.last, version_operands(found.kind, &found.value)) {
            (Some(last), Some(operands)) => {
                let base = last.as_deref().map_or(MergeBase::Nothing, MergeBase::Value);
                Ok(Found { value: Slice::from(operands.on(base)), ..found })
            }
            _ => self.version.whole(&self.head, stamp, found),
        }
    }

    /// Goes to the oldest version of the archive that is kept.
    fn seek_oldest_kept(&mut self, retention: &Retention) -> Result<()> {
        self.seek_from(self.archived_to)?;
        let mut oldest = None;
        while let Some(EntryRef { key, kind, value, .. }) = self.archive.entry() {
            if by_key_head(key) != Some(&self.head) {
                break;
            }
            let (stamp, what) = tail_of(key).ok_or_else(|| no_version(key))?;
            let (newer, next) = self.newer;
            if !retention.shows(newer, next, Said::by((stamp, what), kind, value)) {
                break;
            }
            self.newer = (newer.saturating_add(1), Some(stamp));
            oldest = Some(stamp);
            self.archive.next()?;
        }
        // In front of all of the key's, where the walk is over at once.
        let Some(oldest) = oldest else { return self.archive.seek_for_prev(&self.head) };
        self.seek_from(oldest)
    }

    fn seek_from(&mut self, to: SeqNo) -> Result<()> {
        let mut from = self.head.clone();
        put_stamp_bound(&mut from, to);
        self.archive.seek(&from)
    }

    /// Whether no version that follows in the archive is asked for.
    fn is_past_all(&self, stamp: SeqNo) -> bool {
        match self.order {
            Order::NewestFirst => match self.from {
                Bound::Included(from) | Bound::Excluded(from) => stamp < from,
                Bound::Unbounded => false,
            },
            Order::OldestFirst => match self.to {
                Bound::Included(to) | Bound::Excluded(to) => stamp > to.min(self.archived_to),
                Bound::Unbounded => stamp > self.archived_to,
            },
        }
    }
}

impl Iterator for Versions {
    type Item = Result<KeyVersion>;

    fn next(&mut self) -> Option<Result<KeyVersion>> {
        if self.place == Place::Over {
            return None;
        }
        let found = self.find_next().and_then(|found| {
            let of = (&*self.keyspace, &self.version);
            let told = |(seqno, found)| told(of, self.key.clone(), seqno, found);
            found.map(told).transpose()
        });
        let found = found.transpose();
        // Those that follow in the archive are the next newer ones, each.
        self.last = match (&found, self.order, self.place) {
            (Some(Ok(version)), Order::OldestFirst, Place::InArchive) => {
                Some(version.value.clone())
            }
            _ => None,
        };
        match &found {
            Some(Ok(_)) => {}
            Some(Err(error)) if is_unmade(error) => {}
            _ => self.place = Place::Over,
        }
        found
    }
}

/// Whether an error says of a version that it cannot be made: those behind it may be.
fn is_unmade(error: &Error) -> bool {
    matches!(error, Error::MergeFailed { .. } | Error::MergeOperatorMissing { .. })
}

/// Versions in the order of stamps; see [`Keyspace::versions_by_stamp`]. Reads lazily, and shows
/// what there was when it was made. After an error it is over, but for those of a version that
/// cannot be made (`MergeFailed`, `MergeOperatorMissing`), which stand in its place.
pub struct VersionsByStamp {
    keyspace: Arc<KeyspaceState>,
    archive: Box<dyn StructureCursor>,
    version: VersionAt,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    place: Place,
    filter: Option<Box<KeyFilter>>,
    /// Whether those are shown that ingests have brought.
    ingested_too: bool,
}

/// Whether versions of a key are shown.
type KeyFilter = dyn FnMut(&[u8]) -> bool + Send + Sync;

impl fmt::Debug for VersionsByStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionsByStamp").field("place", &self.place).finish_non_exhaustive()
    }
}

impl VersionsByStamp {
    /// Shows versions of those keys alone that `filter` says yes to. Of others neither version nor
    /// value is read: each costs a step.
    #[must_use]
    pub fn of_keys(
        mut self,
        filter: impl FnMut(&[u8]) -> bool + Send + Sync + 'static,
    ) -> VersionsByStamp {
        self.filter = Some(Box::new(filter));
        self
    }

    /// Shows what commits have made alone, as what they did: of what ingests have brought each
    /// costs a step.
    pub(in crate::db) fn changes_of_commits(mut self) -> PastChanges {
        self.ingested_too = false;
        PastChanges { versions: self }
    }

    /// Goes to the next version: its stamp, and its key.
    fn go_on(&mut self) -> Result<Option<(SeqNo, Slice)>> {
        loop {
            match self.place {
                Place::Start => self.archive.seek(&self.start.clone())?,
                Place::InArchive => self.archive.next()?,
                Place::BehindArchive | Place::Over => return Ok(None),
            }
            self.place = Place::InArchive;
            let entry = self.archive.entry();
            let entry = entry.filter(|entry| self.end.as_ref().is_none_or(|end| entry.key < end));
            let Some(EntryRef { key, value, .. }) = entry else { return Ok(None) };
            if !self.ingested_too && *value == INGESTED {
                continue;
            }
            let Some(VersionKey::ByStamp { stamp, key }) = VersionKey::decode(key) else {
                return Err(no_version(key));
            };
            if self.filter.as_mut().is_none_or(|filter| filter(&key)) {
                return Ok(Some((stamp, Slice::from(key))));
            }
        }
    }

    /// The version of a key that has this stamp.
    fn tell(&self, stamp: SeqNo, key: &Slice) -> Result<KeyVersion> {
        // By key there is the same version, with its value.
        let found = self.version.as_of(stamp).find(key, Want::Value)?;
        let found = found.filter(|found| found.seqno == Some(stamp));
        let Some(found) = found else { return Err(no_version(key)) };
        let found = (found.kind != EntryKind::Tombstone).then_some(found);
        told((&self.keyspace, &self.version), key.clone(), stamp, found)
    }

    /// What the commit of this stamp merged into a key, of which no value can be made.
    fn unmade(&self, seqno: SeqNo, key: Slice) -> Result<PastChange> {
        let found = self.version.as_of(seqno).newest_archived(&key)?;
        let Some((_, _, found)) = found.filter(|(stamp, ..)| *stamp == seqno) else {
            return Err(no_version(&key));
        };
        let on_older = version_operands(found.kind, &found.value);
        let Some(operands) = on_older.or_else(|| Operands::decode(&found.value)) else {
            return Err(no_version(&key));
        };
        let into = match operands.base {
            MergeBase::Below => MergedInto::Older,
            MergeBase::Nothing => MergedInto::Nothing,
            MergeBase::Value(value) => MergedInto::Value(Slice::from(value)),
            MergeBase::Pointer(pointer) => {
                MergedInto::Value(self.keyspace.runtime.values.read(pointer)?)
            }
        };
        let operands = operands.iter().map(Slice::from).collect();
        Ok(PastChange::Merge { key, seqno, into, operands })
    }
}

impl Iterator for VersionsByStamp {
    type Item = Result<KeyVersion>;

    fn next(&mut self) -> Option<Result<KeyVersion>> {
        let told = self
            .go_on()
            .and_then(|found| found.map(|(stamp, key)| self.tell(stamp, &key)).transpose());
        let told = told.transpose();
        match &told {
            Some(Ok(_)) => {}
            Some(Err(error)) if is_unmade(error) => {}
            _ => self.place = Place::Over,
        }
        told
    }
}

/// What a commit did to a key, as its version tells.
#[derive(Debug)]
pub(in crate::db) enum PastChange {
    /// It made this of the key.
    Version(KeyVersion),
    /// It merged these into the key, the oldest first, and what that made cannot be told.
    Merge { key: Slice, seqno: SeqNo, into: MergedInto, operands: Vec<Slice> },
}

/// What a commit merged into, as far as the commit itself says.
#[derive(Debug)]
pub(in crate::db) enum MergedInto {
    /// What the key had.
    Older,
    /// It deleted the key first.
    Nothing,
    /// It put the key first.
    Value(Slice),
}

impl PastChange {
    /// The commit.
    pub(in crate::db) fn seqno(&self) -> SeqNo {
        match self {
            PastChange::Version(version) => version.seqno,
            PastChange::Merge { seqno, .. } => *seqno,
        }
    }
}

/// What commits did, in the order of stamps, out of versions. After an error it is over.
#[derive(Debug)]
pub(in crate::db) struct PastChanges {
    versions: VersionsByStamp,
}

impl PastChanges {
    fn find_next(&mut self) -> Result<Option<PastChange>> {
        let Some((stamp, key)) = self.versions.go_on()? else { return Ok(None) };
        match self.versions.tell(stamp, &key) {
            Ok(version) => Ok(Some(PastChange::Version(version))),
            Err(error) if is_unmade(&error) => self.versions.unmade(stamp, key).map(Some),
            Err(error) => Err(error),
        }
    }
}

impl Iterator for PastChanges {
    type Item = Result<PastChange>;

    fn next(&mut self) -> Option<Result<PastChange>> {
        let found = self.find_next().transpose();
        if !matches!(found, Some(Ok(_))) {
            self.versions.place = Place::Over;
        }
        found
    }
}
