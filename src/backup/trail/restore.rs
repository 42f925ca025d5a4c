//! Restoring a moment: the backup in front of it is restored, and goes on along the trail up to
//! there, before it gets its name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::directory::{FoundSegment, TrailDir, key_of};
use super::format::{HASH_LEN, KEYSPACE_LEN, RecordKind, SegmentHead};
use super::read::SegmentReader;
use super::upkeep::bases_of;
use crate::backup::restore::{Forwarded, RestoreOptions, RestoredBackup, forward_by, restore_to};
use crate::backup::stream::StreamInfo;
use crate::backup::work::Work;
use crate::backup::{BackupRepository, info_of};
use crate::base::{Error, Result, SeqNo, ValuePointer};
use crate::db::{Builder, NotReplayed, PointInTime, TrailReplay};
use crate::seal::{FileKey, Keyring};
use crate::value_log::{ValueFile, ValueStream};

/// The largest number of milliseconds that a stamp has.
const MILLIS_MAX: u64 = (1 << 48) - 1;
/// Bytes of the record of a commit, at most: more than any batch.
const RECORD_LEN_MAX: u64 = 1 << 33;

/// What leads to a moment.
struct Way<'r> {
    /// The number of the backup that it begins with.
    base: u64,
    /// As of which that is.
    as_of: SeqNo,
    trail: TrailDir<'r>,
    /// What is behind it, up to the moment and perhaps further.
    segments: Vec<FoundSegment>,
}

/// What a repository can be restored to, for messages.
#[derive(Default)]
struct Reach {
    spans: Vec<(SeqNo, SeqNo)>,
    databases: Vec<u64>,
}

impl BackupRepository {
    /// Makes a database in the directory `target` as it was at a moment: behind the commit of a
    /// stamp, or behind all commits and changes of keyspaces up to a time, by the clock of the
    /// database. Durable on return. The moment must be on a trail, and not in front of the first
    /// backup on it; of several trails that have it, that which was begun last counts, unless
    /// [`RestoreOptions::trail`] says which.
    ///
    /// Restores the newest backup in front of the moment, as [`BackupRepository::restore`] does,
    /// and does what was committed since again, with the stamps that commits had. For that the
    /// database is opened, with [`RestoreOptions::go_on_with`]: so an encrypted one needs its key,
    /// which is that of when the backup was made. It has to be that of what came behind a later
    /// rotation of the data key as well: where the key was changed before such a rotation, make a
    /// backup. Merge operators and extractors are not needed. What has expired since is not there
    /// for whoever opens it.
    ///
    /// Costs restoring the backup, reading the trail from there on, and writing what that has as
    /// any commits. In memory is what the builder says, and 2 MiB, or one commit where that is
    /// larger, without its large values. The database that is made is followed by no trail.
    ///
    /// # Errors
    /// `InvalidArgument` when the moment is on no trail that was asked for, with those that are;
    /// `Corruption` of a backup or a segment, also of one that is missing, which is named;
    /// `KeyNeeded`, `WrongKey`; else as [`BackupRepository::restore`], with the same state after.
    pub fn restore_at(
        &self,
        moment: impl Into<PointInTime>,
        target: impl AsRef<Path>,
        options: RestoreOptions<'_>,
    ) -> Result<RestoredBackup> {
        let _lock = self.share()?;
        let moment = stamp_of(moment.into());
        let way = self.way_to(moment, &options)?;
        let base = self.read_list(way.base)?;
        let storage = options.to_storage().unwrap_or_else(|| Arc::clone(&self.storage));
        let builder = options.builder().unwrap_or_default();
        let mut info = StreamInfo::of(&info_of(base.head()));
        let more = way.segments.iter().map(|found| found.head.size).sum::<u64>();
        info.files += way.segments.len() as u64;
        info.bytes += more;
        let forward = forward_by(|storage, root, work| {
            let place = (Arc::clone(storage), root);
            let replay = TrailReplay::open(builder.clone(), place, way.as_of)?;
            let (way, keyrings) = (&way, HashMap::new());
            Forward { replay, way, moment, builder, keyrings, commits: 0 }.go(work)
        });
        let target = target.as_ref();
        let restored = restore_to(storage, target, options, &info, forward, |making, work| {
            self.write_all(&base, making, work)
        })?;
        let (files, bytes) = (base.head().file_count, base.head().bytes);
        Ok(RestoredBackup { backup: Some(way.base), files, bytes, ..restored })
    }

    /// What leads to a moment.
    fn way_to(&self, moment: SeqNo, options: &RestoreOptions<'_>) -> Result<Way<'_>> {
        let (heads, mut damaged) = self.heads_found()?;
        let bases = bases_of(&heads);
        let mut reach = Reach::default();
        let mut found: Option<(SeqNo, Way<'_>)> = None; // With where its trail begins.
        for trail in self.all_trails()? {
            if !options.asks_for_trail(trail.id) {
                continue; // Nor does it matter whether it is damaged.
            }
            let (newest, damage) = trail.last_found()?;
            let Some(newest) = newest else {
                damaged = damaged.or(damage);
                continue;
            };
            let (database, begun) = (newest.head.database, newest.head.begun);
            if !options.asks_for_database(database) {
                continue;
            }
            let Some(bases) = bases.get(&trail.id) else { continue };
            let first = bases.values().min().copied().unwrap_or(SeqNo::MAX);
            reach.note(database, (first, newest.head.to));
            let in_front = bases.iter().filter(|(_, as_of)| **as_of <= moment);
            let Some((number, as_of)) = in_front.max_by_key(|(_, as_of)| **as_of) else { continue };
            if moment > newest.head.to {
                damaged = damaged.or(damage);
                continue;
            }
            if found.as_ref().is_some_and(|(other, _)| *other >= begun) {
                continue;
            }
            let (base, as_of) = (*number, *as_of);
            found = Some((begun, Way { base, as_of, trail, segments: Vec::new() }));
        }
        if reach.databases.len() > 1 {
            let of: Vec<String> = reach.databases.iter().map(|id| format!("{id:016x}")).collect();
            let of = of.join(", ");
            let what = format!("there are trails of several databases, say which: {of}");
            return Err(Error::invalid(what));
        }
        let refused = |reach: Reach| damaged.unwrap_or_else(|| reach.without(moment));
        let (_, mut way) = found.ok_or_else(|| refused(reach))?;
        way.segments = segments_between(&way.trail, way.as_of, moment)?;
        Ok(way)
    }
}

impl Reach {
    fn note(&mut self, database: u64, span: (SeqNo, SeqNo)) {
        self.spans.push(span);
        if !self.databases.contains(&database) {
            self.databases.push(database);
        }
    }

    /// The moment is not reached.
    fn without(mut self, moment: SeqNo) -> Error {
        self.spans.sort_unstable();
        let spans: Vec<String> =
            self.spans.iter().map(|(from, to)| format!("from {from} to {to}")).collect();
        let reached = match spans.is_empty() {
            true => "no trail has a backup".to_owned(),
            false => format!("there are trails {}", spans.join(", ")),
        };
        Error::invalid(format!("the moment {moment} cannot be restored: {reached}"))
    }
}

/// Behind it are all commits that the moment is not in front of.
fn stamp_of(moment: PointInTime) -> SeqNo {
    match moment {
        PointInTime::Stamp(stamp) => stamp,
        PointInTime::Time(_) => SeqNo::from_parts(moment.millis().min(MILLIS_MAX), u16::MAX),
    }
}

/// The segments that have everything behind one stamp, up to another one. Whether others are
/// damaged does not matter.
///
/// # Errors
/// `Corruption`, also when one is missing, `FormatVersion`, `Io`.
fn segments_between(trail: &TrailDir<'_>, behind: SeqNo, to: SeqNo) -> Result<Vec<FoundSegment>> {
    let missing = |number: u64, what: String| {
        Error::corruption(&trail.path_of(number), 0, format!("the segment is missing: {what}"))
    };
    let mut found: Vec<FoundSegment> = Vec::new(); // The last one first.
    let mut passed = None;
    for number in trail.numbers()?.into_iter().rev() {
        if found.last().is_some_and(|next| next.head.behind <= behind) {
            break;
        }
        let before = match trail.find(number) {
            Ok(before) => before,
            Err(error) if found.last().is_none_or(|next| next.head.behind >= to) => {
                passed = Some(error); // It may be behind the moment.
                continue;
            }
            Err(error) => return Err(error),
        };
        match found.last() {
            _ if before.head.to >= to => (found, passed) = (vec![before], None),
            Some(next) => {
                let fits = trail.expect_behind(&before.head, next);
                fits.map_err(|error| passed.take().unwrap_or(error))?;
                found.push(before);
            }
            None => {
                let what = format!("nothing is known behind {}", before.head.to);
                return Err(passed.unwrap_or_else(|| missing(number.saturating_add(1), what)));
            }
        }
    }
    match found.last() {
        Some(first) if first.head.behind > behind => {
            let what = format!("nothing is known up to {}", first.head.behind);
            let number = first.head.number.saturating_sub(1);
            Err(passed.unwrap_or_else(|| missing(number, what)))
        }
        Some(_) => {
            found.reverse();
            Ok(found)
        }
        None => Err(passed.unwrap_or_else(|| missing(1, "nothing is known".to_owned()))),
    }
}

/// A database on its way along a trail.
struct Forward<'w, 'r> {
    replay: TrailReplay,
    way: &'w Way<'r>,
    moment: SeqNo,
    /// What keyrings are opened with.
    builder: Builder,
    /// By the hashes of their files.
    keyrings: HashMap<[u8; HASH_LEN], Arc<Keyring>>,
    commits: u64,
}

/// What was read of a commit.
#[derive(Default)]
struct Gathered {
    record: Vec<u8>,
    values: Vec<Option<(ValuePointer, Arc<ValueFile>)>>,
    value: Option<GatheredValue>,
}

/// A large value that has not come to its end.
struct GatheredValue {
    len: u64,
    /// Where it is written; not if nobody is to have it.
    stream: Option<ValueStream>,
}

/// Whether there may be more that is not behind the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    More,
    Nothing,
}

type Replayed<T> = std::result::Result<T, NotReplayed>;

fn malformed<T>(what: &str) -> Replayed<T> {
    Err(NotReplayed::Malformed(what.to_owned()))
}

impl Forward<'_, '_> {
    fn go(mut self, work: &mut Work<'_>) -> Result<Forwarded> {
        let way = self.way;
        for found in &way.segments {
            if self.pass_segment(found, work)? == Ahead::Nothing {
                break;
            }
        }
        let Forward { replay, commits, .. } = self;
        Ok(Forwarded { seqno: replay.finish()?, commits })
    }

    fn pass_segment(&mut self, found: &FoundSegment, work: &mut Work<'_>) -> Result<Ahead> {
        let mut reader = self.way.trail.open(found.head.number)?;
        // It may have been written anew since, with more behind what it had.
        let place = |head: &SegmentHead| (head.behind, head.previous);
        if place(reader.head()) != place(&found.head) {
            return Err(Error::corruption(&found.path, 0, "it has changed since it was looked at"));
        }
        let key = self.key_for(&reader)?;
        reader.open_with(key);
        let mut gathered = Gathered::default();
        loop {
            let at = reader.offset();
            let refused = |error| match error {
                NotReplayed::Malformed(what) => Error::corruption(&found.path, at, what),
                NotReplayed::Failed(error) => error,
            };
            let Some((kind, stamp)) = reader.next_record()? else {
                gathered.expect_nothing().map_err(refused)?;
                break;
            };
            work.advance(&found.path, (reader.offset() - at) as usize)?;
            let stamp = SeqNo::from_u64(stamp);
            if stamp > self.moment {
                return Ok(Ahead::Nothing);
            }
            if stamp > self.way.as_of {
                let taken = self.take((kind, stamp), reader.payload(), &mut gathered);
                taken.map_err(refused)?;
            }
        }
        work.end_file(&found.path)?;
        Ok(Ahead::More)
    }

    fn take(
        &mut self,
        (kind, stamp): (RecordKind, SeqNo),
        payload: &[u8],
        gathered: &mut Gathered,
    ) -> Replayed<()> {
        match kind {
            RecordKind::Edit => {
                gathered.expect_nothing()?;
                self.replay.edit(stamp, payload)
            }
            RecordKind::ValuePart | RecordKind::Value => self.take_value(kind, payload, gathered),
            RecordKind::CommitPart | RecordKind::Commit => {
                if gathered.record.len() as u64 > RECORD_LEN_MAX {
                    return malformed("a commit that is too long");
                }
                gathered.record.extend_from_slice(payload);
                if kind == RecordKind::CommitPart {
                    return Ok(());
                }
                if gathered.value.is_some() {
                    return malformed("a large value that does not end");
                }
                self.replay.commit(stamp, &gathered.record, &gathered.values)?;
                gathered.record.clear();
                gathered.values.clear();
                self.commits += 1;
                Ok(())
            }
            RecordKind::End => malformed("an end in the middle"),
        }
    }

    fn take_value(
        &mut self,
        kind: RecordKind,
        payload: &[u8],
        gathered: &mut Gathered,
    ) -> Replayed<()> {
        let Some((keyspace, bytes)) = payload.split_first_chunk::<KEYSPACE_LEN>() else {
            return malformed("a piece of a value without its keyspace");
        };
        let mut value = match gathered.value.take() {
            Some(value) => value,
            None => {
                let stream = self.replay.begin_value(u32::from_le_bytes(*keyspace))?;
                GatheredValue { len: 0, stream }
            }
        };
        value.len += bytes.len() as u64;
        if value.len > u64::from(u32::MAX) {
            return malformed("a value that is too long");
        }
        if let Some(stream) = &mut value.stream {
            stream.push(bytes)?;
        }
        match kind {
            RecordKind::Value => {
                let placed = value.stream.map(ValueStream::finish).transpose()?;
                gathered.values.push(placed);
            }
            _ => gathered.value = Some(value),
        }
        Ok(())
    }

    /// What payloads of the segment are opened with.
    fn key_for(&mut self, reader: &SegmentReader) -> Result<Option<Arc<FileKey>>> {
        let (head, path) = (reader.head(), reader.path());
        if head.key == 0 {
            // Whoever gives a key does not get what nobody has sealed.
            return match self.builder.has_key() {
                true => Err(Error::corruption(path, 0, "a segment that is not encrypted")),
                false => Ok(None),
            };
        }
        // A number is given once: the keys of its backup, and of segments in front, are the same.
        // But what is done again draws keys of its own for keyspaces that have them.
        let mut known = self.replay.keyring().into_iter().chain(self.keyrings.values());
        if let Some(keyring) = known.find(|keyring| keyring.has_found(head.key)) {
            return key_of(head, Some(keyring), path);
        }
        let keyring = self.way.trail.keyring(&head.keyring, &self.builder)?;
        self.keyrings.insert(head.keyring, Arc::clone(&keyring));
        key_of(head, Some(&keyring), path)
    }
}

impl Gathered {
    fn expect_nothing(&self) -> Replayed<()> {
        let is_empty = self.record.is_empty() && self.values.is_empty() && self.value.is_none();
        if is_empty { Ok(()) } else { malformed("a commit that does not end") }
    }
}
