//! Looking after trails: listing them, reading everything back, and removing what no backup needs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::directory::{FoundSegment, LockedTrail, TrailDir, is_keyring_or_left, keyring_name};
use super::format::{HASH_LEN, SegmentHead};
use crate::backup::list::Head;
use crate::backup::work::Work;
use crate::backup::{BackupCheck, BackupRepository};
use crate::base::{Error, Result, SeqNo};
use crate::manifest::TrailEndReason;

/// A trail of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrailInfo {
    /// Its id.
    pub trail: u64,
    /// The id of the database.
    pub database: u64,
    /// It has everything behind this stamp ..
    pub behind: SeqNo,
    /// .. up to this one.
    pub to: SeqNo,
    /// Why it ends there, if nothing more comes to it.
    pub end: Option<TrailEndReason>,
    /// The backups that are on it, by number: a moment can be restored that is not in front of the
    /// first of them.
    pub backups: Vec<u64>,
    /// Moments from this one on, up to `to`, can be restored; `None` where no backup is on it.
    pub restorable_from: Option<SeqNo>,
    /// Commits that it has.
    pub commits: u64,
    /// Files of it.
    pub segments: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl TrailInfo {
    /// The time up to which it has everything, by the clock of the database.
    #[must_use]
    pub fn to_time(&self) -> SystemTime {
        time_of(self.to)
    }
}

/// Something that is missing in a trail, damaged, or not to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrailProblem {
    /// The id of the trail.
    pub trail: u64,
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// Moments behind this stamp cannot be restored from backups in front of it.
    pub behind: SeqNo,
}

/// Segments that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::backup) struct RemovedSegments {
    pub segments: u64,
    pub bytes: u64,
}

fn time_of(stamp: SeqNo) -> SystemTime {
    let since = Duration::from_millis(stamp.millis());
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// As of which stamps backups are on trails, by number of the backup.
pub(super) type Bases = BTreeMap<u64, BTreeMap<u64, SeqNo>>;

/// Which backups are on which trails.
pub(super) fn bases_of(heads: &[Head]) -> Bases {
    let mut bases = Bases::new();
    for head in heads {
        if let Some(on) = head.on_trail {
            bases.entry(on.trail).or_default().insert(head.number, on.as_of);
        }
    }
    bases
}

impl BackupRepository {
    /// The trails, by their ids. Reads the heads of all their segments.
    ///
    /// # Errors
    /// `Corruption` of a list or of the head of a segment, and where one is missing;
    /// `FormatVersion`, `Io`, `Locked` while somebody changes the repository.
    pub fn trails(&self) -> Result<Vec<TrailInfo>> {
        let _lock = self.share()?;
        let bases = bases_of(&self.all_heads()?);
        let mut infos = Vec::new();
        for trail in self.all_trails()? {
            let none = BTreeMap::new();
            let bases = bases.get(&trail.id).unwrap_or(&none);
            let segments = trail.segments()?;
            let (Some(first), Some(last)) = (segments.first(), segments.last()) else { continue };
            let from = bases.values().filter(|as_of| **as_of >= first.head.behind);
            infos.push(TrailInfo {
                trail: trail.id,
                database: last.head.database,
                behind: first.head.behind,
                to: last.head.to,
                end: last.head.end,
                backups: bases.keys().copied().collect(),
                restorable_from: from.min().copied(),
                commits: segments.iter().map(|found| found.head.commits).sum(),
                segments: segments.len() as u64,
                bytes: segments.iter().map(|found| found.head.size).sum(),
            });
        }
        Ok(infos)
    }

    /// What all lists say of their backups.
    fn all_heads(&self) -> Result<Vec<Head>> {
        let (heads, damaged) = self.heads_found()?;
        damaged.map_or(Ok(heads), Err)
    }

    /// The same of those that can be read, and why another one cannot.
    pub(super) fn heads_found(&self) -> Result<(Vec<Head>, Option<Error>)> {
        let (mut heads, mut damaged) = (Vec::new(), None);
        for number in self.numbers()? {
            match self.read_list(number) {
                Ok(list) => heads.push(*list.head()),
                Err(error) => damaged = Some(error),
            }
        }
        Ok((heads, damaged))
    }

    /// Bytes of all trails, as far as that can be told.
    pub(in crate::backup) fn trail_bytes(&self) -> Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for trail in self.all_trails()? {
            for number in trail.numbers()? {
                count += 1;
                bytes += trail.find(number).map_or(0, |found| found.head.size);
            }
        }
        Ok((count, bytes))
    }

    /// Reads all segments back, and verifies them and their order. What is wrong is noted.
    ///
    /// # Errors
    /// What is no damage.
    pub(in crate::backup) fn verify_trails(
        &self,
        check: &mut BackupCheck,
        work: &mut Work<'_>,
    ) -> Result<()> {
        // Those whose lists are damaged are among the problems already.
        let bases = bases_of(&self.heads_found()?.0);
        for trail in self.all_trails()? {
            let (mut first, mut before): (Option<SegmentHead>, Option<SegmentHead>) = (None, None);
            for number in trail.numbers()? {
                let behind = before.map_or(SeqNo::ZERO, |before| before.to);
                before = match read_back(&trail, number, before.as_ref(), work) {
                    Ok(head) => {
                        check.segments += 1;
                        check.segment_bytes += head.size;
                        Some(head)
                    }
                    Err(error) => {
                        check.trail_problems.push(problem(&trail, behind, error)?);
                        // What comes behind it is looked at by itself.
                        trail.find(number).ok().map(|found| found.head)
                    }
                };
                first = first.or(before);
            }
            if let (Some(first), Some(last), Some(bases)) = (first, before, bases.get(&trail.id)) {
                check.trail_problems.extend(missing_at_ends(&trail, (&first, &last), bases));
            }
        }
        Ok(())
    }
}

/// Removes the segments of these trails that none of these backups needs, and what interrupted
/// passes have left (Q8). The lists of others must be gone durably.
///
/// # Errors
/// `Corruption` of a segment's head, `Io`: some may be gone.
pub(in crate::backup) fn remove_segments(
    trails: &[LockedTrail<'_>],
    kept: &[Head],
) -> Result<RemovedSegments> {
    let mut removed = RemovedSegments::default();
    let bases = bases_of(kept);
    for LockedTrail { trail, .. } in trails {
        let needed_from = bases.get(&trail.id).and_then(|bases| bases.values().min().copied());
        removed.add(remove_from(trail, needed_from)?);
    }
    Ok(removed)
}

impl BackupRepository {
    /// Removes a trail with all that it has: moments on it cannot be restored any more, and its
    /// backups can, as themselves. A database that it follows finds out when the trail is to get
    /// more, which ends it there. For a trail that nothing is added to any more: pruning leaves the
    /// newest segment of one unless it ends with that.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such trail; `Io`: some of it may be gone, from the front.
    /// `Locked`.
    pub fn remove_trail(&self, id: u64) -> Result<()> {
        let _lock = self.lock()?;
        let trail = self.trail_dir(id);
        if !trail.exists()? {
            return Err(Error::invalid(format!("there is no trail {id:016x}")));
        }
        let _alone = trail.lock()?;
        for number in trail.numbers()? {
            trail.remove(&trail.path_of(number))?;
            trail.sync()?;
        }
        for name in trail.names()? {
            if is_keyring_or_left(&name) {
                trail.remove(&trail.dir.join(name))?;
            }
        }
        trail.remove_dir();
        Ok(())
    }
}

impl RemovedSegments {
    fn add(&mut self, other: RemovedSegments) {
        self.segments += other.segments;
        self.bytes += other.bytes;
    }
}

/// Removes the segments that have nothing behind this stamp, from the oldest on, so that what is
/// left has no gap; all of them where no backup is on a trail that ends.
fn remove_from(trail: &TrailDir<'_>, needed_from: Option<SeqNo>) -> Result<RemovedSegments> {
    let mut removed = RemovedSegments::default();
    let segments: Vec<FoundSegment> =
        trail.numbers()?.into_iter().map(|number| trail.find(number)).collect::<Result<_>>()?;
    let Some((newest, older)) = segments.split_last() else { return Ok(removed) };
    let is_needed =
        |found: &&FoundSegment| needed_from.is_some_and(|needed_from| found.head.to > needed_from);
    let gone = older.iter().take_while(|found| !is_needed(found));
    let is_dead = needed_from.is_none() && newest.head.end.is_some();
    for found in gone.chain(is_dead.then_some(newest)) {
        trail.remove(&found.path)?;
        trail.sync()?; // Else a power cut might bring it back, and not the one behind it.
        removed.segments += 1;
        removed.bytes += found.head.size;
    }
    let left = segments.iter().skip(removed.segments as usize);
    let keyrings: BTreeSet<[u8; HASH_LEN]> = left.map(|found| found.head.keyring).collect();
    let names: BTreeSet<String> = keyrings.iter().map(keyring_name).collect();
    for name in trail.names()? {
        if is_keyring_or_left(&name) && !names.contains(&name) {
            trail.remove(&trail.dir.join(name))?;
        }
    }
    trail.sync()?;
    if is_dead {
        trail.remove_dir();
    }
    Ok(removed)
}

/// The segments that backups on a trail tell of, which is there from one to another one (Q7, Q8).
fn missing_at_ends(
    trail: &TrailDir<'_>,
    (first, last): (&SegmentHead, &SegmentHead),
    bases: &BTreeMap<u64, SeqNo>,
) -> Vec<TrailProblem> {
    let told = |number: u64, behind: SeqNo, as_of: &SeqNo| {
        let what = format!("the segment is missing: a backup is on the trail as of {as_of}");
        TrailProblem { trail: trail.id, file: trail.path_of(number), what, behind }
    };
    let in_front = bases.values().min().filter(|as_of| **as_of < first.behind);
    let behind = bases.values().max().filter(|as_of| **as_of > last.to);
    let in_front = in_front.map(|as_of| told(first.number.saturating_sub(1), *as_of, as_of));
    let behind = behind.map(|as_of| told(last.number.saturating_add(1), last.to, as_of));
    in_front.into_iter().chain(behind).collect()
}

/// Reads a segment to its end.
fn read_back(
    trail: &TrailDir<'_>,
    number: u64,
    before: Option<&SegmentHead>,
    work: &mut Work<'_>,
) -> Result<SegmentHead> {
    let mut reader = trail.open(number)?;
    let head = *reader.head();
    if let Some(before) = before {
        let found = FoundSegment { path: reader.path().to_owned(), head };
        trail.expect_behind(before, &found)?;
    }
    if head.key != 0 {
        trail.expect_keyring(&head.keyring)?;
    }
    loop {
        let from = reader.offset();
        let record = reader.next_record()?;
        work.advance(reader.path(), (reader.offset() - from) as usize)?;
        if record.is_none() {
            break;
        }
    }
    work.end_file(reader.path())?;
    Ok(head)
}

/// # Errors
/// What is no damage, and that the work was ended.
fn problem(trail: &TrailDir<'_>, behind: SeqNo, error: Error) -> Result<TrailProblem> {
    let trail = trail.id;
    match error {
        Error::Corruption { file, offset, what } => {
            let what = format!("at {offset}: {what}");
            Ok(TrailProblem { trail, file, what, behind })
        }
        Error::Io { action, path: file, source } if source.kind() != ErrorKind::Interrupted => {
            let what = format!("could not {action} it: {source}");
            Ok(TrailProblem { trail, file, what, behind })
        }
        other => Err(other),
    }
}

impl TrailDir<'_> {
    /// Its segments, in their order.
    ///
    /// # Errors
    /// `Corruption`, also where one is missing or does not fit (Q5); `FormatVersion`, `Io`.
    pub(super) fn segments(&self) -> Result<Vec<FoundSegment>> {
        let mut found: Vec<FoundSegment> = Vec::new();
        for number in self.numbers()? {
            let next = self.find(number)?;
            if let Some(before) = found.last() {
                self.expect_behind(&before.head, &next)?;
            }
            found.push(next);
        }
        Ok(found)
    }
}
