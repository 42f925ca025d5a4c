//! Beginning a trail, and adding to it what has come since.
//!
//! ```text
//! settle ...... is the newest segment the one that the database has added last, or was adding when
//!               it was interrupted (Q6)? That is put there again, durably. Else this trail is none
//!               of its own any more
//! cut ......... a stamp, up to which everything is durable; what is behind the trail up to there
//! segment ..... its token goes to the catalogue; it is written; gets its name, durably (Q5); the
//!               catalogue has that it is there, and the log in front is not kept any more
//!               .. and so on until all is told
//! let go ...... value files that were dead at the cut
//! ```

use std::sync::Arc;

use super::directory::{FoundSegment, TrailDir};
use super::format::{HASH_LEN, RecordKind, SegmentHead, identity};
use super::write::SegmentWriter;
use crate::backup::list::OnTrail;
use crate::backup::work::BackupOptions;
use crate::backup::{BackupInfo, BackupRepository};
use crate::base::{Error, Result, SeqNo};
use crate::db::{Db, NewTrail, TrailCommit, TrailCut, TrailItem};
use crate::manifest::{TrailEnd, TrailEndReason, TrailRecord};
use crate::seal::{FileKey, id_of};
use crate::value_log::ValueReader;

/// A segment of less than this is written anew with what comes, so that there are not many small
/// ones.
const TAKEN_UP_BELOW: u64 = 1 << 20;
/// A segment gets no more from here on.
const SEGMENT_LEN: u64 = 64 << 20;

/// How a trail is to follow a database. Default: its log is kept for as long as it takes.
#[derive(Debug)]
#[must_use]
pub struct TrailOptions<'w> {
    log_max: u64,
    backup: BackupOptions<'w>,
}

impl<'w> TrailOptions<'w> {
    /// The default.
    pub fn new() -> TrailOptions<'w> {
        TrailOptions { log_max: u64::MAX, backup: BackupOptions::new() }
    }

    /// Keeps so many bytes of the log for the trail at most, and what value files died meanwhile.
    /// One that is further behind ends, as its repository could not be written to for long, and the
    /// disk of the database does not fill up. Default: no limit.
    pub fn log_max(mut self, bytes: u64) -> TrailOptions<'w> {
        self.log_max = bytes;
        self
    }

    /// How the backup is made that it begins with.
    pub fn backup(mut self, options: BackupOptions<'w>) -> TrailOptions<'w> {
        self.backup = options;
        self
    }
}

impl Default for TrailOptions<'_> {
    fn default() -> Self {
        TrailOptions::new()
    }
}

/// What [`BackupRepository::extend_trail`] has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrailReport {
    /// The id of the trail.
    pub trail: u64,
    /// It has everything up to this stamp.
    pub to: SeqNo,
    /// Commits that were added.
    pub commits: u64,
    /// Bytes that were written to the repository: what was added, and small segments anew.
    pub written_bytes: u64,
    /// Where and why the trail ends, if that was reached: nothing more comes to it.
    pub end: Option<TrailEnd>,
}

impl BackupRepository {
    /// Has a trail follow the database: from now on its log is kept until it is in the repository,
    /// by [`BackupRepository::extend_trail`] or a follower ([`BackupRepository::follow`]), and the
    /// database can be restored as of each moment that the trail has
    /// ([`BackupRepository::restore_at`]). Begins with a backup, which is returned; further ones,
    /// made in the same repository, make restoring shorter.
    ///
    /// The trail ends where the database changes by what is no commit: with a bulk ingest, the
    /// conversion of a keyspace, more than 4096 keyspaces that come and go between two passes; and
    /// where it is further behind than [`TrailOptions::log_max`], or somebody else has added to it.
    /// Then another one is to begin, by this. What the one before has stays.
    ///
    /// Copies of the database are followed by no trail: checkpoints, what is restored. (A copy of
    /// the whole directory, made by other programs, is taken for the database: whichever adds to
    /// the trail first has it from then on, and for the other it ends.)
    ///
    /// ```
    /// # fn main() -> lithedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = |name: &str| dir.path().join(name);
    /// use lithedb::{BackupRepository, Db, RestoreOptions, TrailOptions};
    /// let db = Db::open(path("animals"))?;
    /// let animals = db.keyspace_or_create("animals")?;
    /// let backups = BackupRepository::open_or_create(path("backups"))?;
    /// backups.begin_trail(&db, TrailOptions::new())?;
    /// let right = animals.put("otter", "swims")?;
    /// animals.put("otter", "flies")?; // By mistake.
    /// db.drop_keyspace("animals")?;
    /// backups.extend_trail(&db)?;
    /// backups.restore_at(right, path("before"), RestoreOptions::new())?;
    /// let before = Db::open(path("before"))?.keyspace("animals")?.get("otter")?;
    /// assert_eq!(before.as_deref(), Some(&b"swims"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when a trail follows that has not ended; `Locked` while somebody else is
    /// at the repository: nothing happened. Else as [`BackupRepository::create`]: the trail follows
    /// then, if [`Db::trail`] says so, and the backup is to be made.
    pub fn begin_trail(&self, db: &Db, options: TrailOptions<'_>) -> Result<BackupInfo> {
        drop(self.lock()?); // Not to begin what no backup can be made for.
        let alone = db.lock_for_trail()?;
        let trail = self.make_trail_dir(db.draw().max(1))?;
        let (id, repository, log_max) = (trail.id, self.id, options.log_max);
        if let Err(error) = db.follow(NewTrail { id, repository, log_max }) {
            let _stays_empty_if_it_fails = self.storage.remove_dir(&trail.dir);
            return Err(error);
        }
        drop(alone);
        self.create_with(db, options.backup)
    }

    /// Adds everything that has come to the database since to its trail: up to now, durably, also
    /// what was committed with [`Durability::Buffered`](crate::Durability::Buffered). Others write
    /// meanwhile; it costs a sync of the log, two edits of the catalogue, and reading what has
    /// come, large values included. What was kept for the trail up to there is given back. In
    /// memory are 2 MiB, or one commit where that is larger, without its large values.
    ///
    /// Interrupted at any point, the trail is what it was, or has more, up to some commit; the next
    /// pass goes on there.
    ///
    /// # Errors
    /// `InvalidArgument` when no trail follows the database, or one in another repository;
    /// `TrailEnded` when nothing more can be added; `Locked` while somebody else adds to the trail,
    /// or backups are removed; `DiskFull`, `Io`, `Corruption` of what has to be read: what was
    /// added is there, the rest is kept. `ReadOnly`, `Closed`.
    pub fn extend_trail(&self, db: &Db) -> Result<TrailReport> {
        let _alone = db.lock_for_trail()?;
        self.pass(db)
    }

    /// A backup as of this stamp was made: whether it is on the trail, and if so, where (Q7).
    pub(in crate::backup) fn join_trail(&self, db: &Db, as_of: SeqNo) -> Result<Option<OnTrail>> {
        let _alone = db.lock_for_trail()?;
        let Some(record) = db.trail_record().filter(|trail| trail.repository == self.id) else {
            return Ok(None);
        };
        let to = match self.pass(db) {
            Ok(report) => report.to,
            Err(Error::TrailEnded { .. }) => {
                db.trail_record().map_or(SeqNo::ZERO, |trail| trail.done)
            }
            Err(error) => return Err(error),
        };
        let trail = self.trail_dir(record.id);
        let newest = if trail.exists()? { trail.newest()? } else { None };
        let is_on = newest.is_some_and(|newest| newest.head.begun <= as_of && as_of <= to);
        Ok(is_on.then_some(OnTrail { trail: record.id, as_of }))
    }

    /// The caller has the database's lock.
    fn pass(&self, db: &Db) -> Result<TrailReport> {
        let Some(record) = db.trail_record() else {
            return Err(Error::invalid("no trail follows the database: begin one"));
        };
        if record.repository != self.id {
            let elsewhere = record.repository;
            let what = format!("the trail that follows is in the repository {elsewhere:016x}");
            return Err(Error::invalid(what));
        }
        if record.is_over() {
            return Err(ended(db));
        }
        let trail = self.trail_dir(record.id);
        if !trail.exists()? {
            return Err(diverged(db));
        }
        let _lock = trail.lock()?;
        let newest = settle(db, &trail, &record)?;
        let Some(record) = db.trail_record().filter(|trail| !trail.is_over()) else {
            return Err(ended(db));
        };
        let cut = db.cut_trail().map_err(|error| not_kept(db, error))?;
        let mut pass = Pass {
            db,
            trail,
            newest,
            // The first segment begins where the trail does.
            begun: record.done,
            failed: record.pending.map(|pending| pending.token),
            report: TrailReport {
                trail: record.id,
                to: record.done,
                commits: 0,
                written_bytes: 0,
                end: None,
            },
        };
        pass.tell(cut).map_err(|error| not_kept(db, error))?;
        Ok(pass.report)
    }
}

/// Q6. The newest segment, if there is one.
fn settle(db: &Db, trail: &TrailDir<'_>, record: &TrailRecord) -> Result<Option<FoundSegment>> {
    let Some(found) = trail.newest()? else {
        return match record.token {
            0 => Ok(None),
            _ => Err(diverged(db)),
        };
    };
    if (found.head.token, found.head.to) == (record.token, record.done) {
        return Ok(Some(found));
    }
    // It was interrupted between the two steps: what it has added is there, perhaps not durably.
    let is_pending = record
        .pending
        .is_some_and(|pending| pending.token == found.head.token && found.head.to <= pending.to);
    if !is_pending {
        return Err(diverged(db));
    }
    trail.put_again(&found)?;
    db.note_segment(found.head.token, found.head.to, found.head.log_position)?;
    Ok(Some(found))
}

/// The trail is not the database's own any more: nothing is kept for it from now on.
fn diverged(db: &Db) -> Error {
    match db.give_up_trail(TrailEndReason::Diverged) {
        Ok(()) => ended(db),
        Err(error) => error,
    }
}

/// Where commits are not kept any more, the trail ends.
fn not_kept(db: &Db, error: Error) -> Error {
    match error {
        Error::CommitsNotKept { .. } => match db.give_up_trail(TrailEndReason::NotKept) {
            Ok(()) => ended(db),
            Err(error) => error,
        },
        error => error,
    }
}

fn ended(db: &Db) -> Error {
    match db.trail_record().and_then(|trail| trail.end) {
        Some(end) => Error::TrailEnded { at: end.at, why: end.reason.to_string() },
        None => Error::invalid("no trail follows the database: begin one"),
    }
}

/// A pass that is under way.
struct Pass<'p> {
    db: &'p Db,
    trail: TrailDir<'p>,
    newest: Option<FoundSegment>,
    /// Where the trail begins, if it has no segment yet.
    begun: SeqNo,
    /// The token of a segment that did not come to be: should a power cut bring it back, it is the
    /// one that is being added.
    failed: Option<u64>,
    report: TrailReport,
}

/// Whether everything was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    All,
    /// The segment is full.
    SoFar,
}

/// What a segment is sealed with, if it is: with the keyring that has the key, and its hash.
#[derive(Default)]
struct Sealed {
    key: Option<Arc<FileKey>>,
    hash: [u8; HASH_LEN],
    bytes: Vec<u8>,
}

impl Pass<'_> {
    fn tell(&mut self, mut cut: TrailCut) -> Result<()> {
        loop {
            let token = self.failed.take().unwrap_or_else(|| self.db.draw().max(1));
            self.db.intend_segment(token, cut.to())?; // Q6
            let told = self.add_segment(token, &mut cut)?;
            if told == Told::All {
                self.report.end = cut.trail_end();
                cut.let_go();
                return Ok(());
            }
        }
    }

    fn add_segment(&mut self, token: u64, cut: &mut TrailCut) -> Result<Told> {
        let (mut head, mut writer) = self.begin_segment(token)?;
        let taken_up = self.newest.clone().filter(|newest| newest.head.number == head.number);
        let written = match taken_up {
            Some(newest) => copy_records(&self.trail, &newest, &mut writer, &head),
            None => Ok(()),
        };
        let told = written.and_then(|()| self.write_items(&mut writer, cut));
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                self.trail.give_up(writer);
                return Err(error);
            }
        };
        (head.to, head.log_position) = cut.position();
        if told == Told::All {
            head.end = cut.trail_end().map(|end| end.reason);
        }
        let added = self.trail.put(writer, head)?;
        self.db.note_segment(token, added.head.to, added.head.log_position)?;
        self.report.to = added.head.to;
        self.report.written_bytes += added.head.size;
        self.newest = Some(added);
        Ok(told)
    }

    /// What a segment says of itself that is known before, and the segment: the newest one anew, if
    /// it is small and sealed as the next would be.
    fn begin_segment(&self, token: u64) -> Result<(SegmentHead, SegmentWriter)> {
        let written_millis = self.db.wall_millis();
        let before = self.newest.as_ref().map(|newest| newest.head);
        if let Some(newest) = before.filter(|newest| newest.size < TAKEN_UP_BELOW) {
            let sealed = self.sealed_with(newest.number)?;
            if (id_of(sealed.key.as_deref()), sealed.hash) == (newest.key, newest.keyring) {
                let head = SegmentHead { written_millis, ..newest };
                return Ok((head, self.trail.begin(sealed.key, token)?));
            }
        }
        let number = before.map_or(1, |before| before.number + 1);
        let Sealed { key, hash: keyring, bytes } = self.sealed_with(number)?;
        // What the segment in front names is there.
        if key.is_some() && before.is_none_or(|before| before.keyring != keyring) {
            self.trail.put_keyring(&keyring, &bytes)?;
        }
        let behind = before.map_or(self.begun, |before| before.to);
        let head = SegmentHead {
            key: 0,
            end: None,
            repository: self.trail.repository,
            trail: self.trail.id,
            number,
            database: self.db.id(),
            behind,
            to: behind,
            token,
            previous: before.map_or(0, |before| before.token),
            log_position: 0,
            written_millis,
            commits: 0,
            size: 0,
            begun: before.map_or(self.begun, |before| before.begun),
            keyring,
        };
        Ok((head, self.trail.begin(key, token)?))
    }

    /// What a segment of this number is sealed with.
    fn sealed_with(&self, number: u64) -> Result<Sealed> {
        let file = identity(self.db.id(), self.trail.id, number);
        Ok(match self.db.key_for_trail(&file)? {
            None => Sealed::default(),
            Some((key, bytes)) => {
                Sealed { key: Some(key), hash: *blake3::hash(&bytes).as_bytes(), bytes }
            }
        })
    }

    fn write_items(&mut self, writer: &mut SegmentWriter, cut: &mut TrailCut) -> Result<Told> {
        while writer.size() < SEGMENT_LEN {
            match cut.next_item()? {
                None => return Ok(Told::All),
                Some(TrailItem::Edit { seqno, edit }) => writer.edit(seqno, &edit)?,
                Some(TrailItem::Commit(commit)) => {
                    write_commit(writer, cut, &commit)?;
                    self.report.commits += 1;
                }
            }
        }
        Ok(Told::SoFar)
    }
}

fn write_commit(writer: &mut SegmentWriter, cut: &TrailCut, commit: &TrailCommit) -> Result<()> {
    for value in &commit.values {
        let mut reader: ValueReader = cut.open_value(value)?;
        let (len, mut sent) = (reader.len(), 0);
        loop {
            let piece = reader.next_piece()?;
            sent += piece.len() as u64;
            let kind = if sent == len { RecordKind::Value } else { RecordKind::ValuePart };
            let keyspace = value.keyspace.to_le_bytes();
            writer.record(kind, commit.seqno.as_u64(), &[&keyspace, piece])?;
            if sent == len {
                break;
            }
        }
    }
    writer.commit(commit.seqno, &commit.record)
}

/// Writes the records of a segment anew.
fn copy_records(
    trail: &TrailDir<'_>,
    from: &FoundSegment,
    writer: &mut SegmentWriter,
    head: &SegmentHead,
) -> Result<()> {
    let mut reader = trail.open(head.number)?;
    if *reader.head() != from.head {
        return Err(Error::corruption(&from.path, 0, "it has changed since it was looked at"));
    }
    reader.open_with(writer.key());
    while let Some((kind, value)) = reader.next_record()? {
        writer.record(kind, value, &[reader.payload()])?;
    }
    Ok(())
}
