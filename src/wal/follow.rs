//! Reading a log that somebody else writes, from a position on, again and again.
//!
//! Nothing is known of the log but what is in its files, which change meanwhile. What is not there
//! yet, whole, is the end for now; that it is damaged shows when the log goes on behind it in
//! another file, or says somewhere that it was durable. What is handed out is decided by whoever
//! reads: a record is offered with how far the log is known to have been durable, by any header or
//! record, also behind it (W5). Files that were released are found for as long as the storage has
//! them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::storage::Storage;

use super::directory::WalPlace;
use super::header::FileHeader;
use super::lsn::Lsn;
use super::record::{MARK_SIZE, RECORD_ALIGNMENT, RECORD_HEADER_SIZE, RecordHeader, RecordKind};
use super::replay::RecordRef;
use super::survey::FoundFile;

/// Whether a record is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    Taken,
    /// Not yet: neither are those behind it.
    Left,
}

/// What a look at the log has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowedLog {
    /// Records taken.
    pub records: u64,
    /// Bytes that they and the marks between them take.
    pub bytes: u64,
    /// Bytes of records that are there and were left.
    pub bytes_left: u64,
}

/// Reads a log that somebody else writes.
#[derive(Debug)]
pub struct LogFollower {
    // Constant.
    place: WalPlace,
    // Where it is.
    /// The file that the last record was taken from.
    current: Option<FileHeader>,
    /// Where the next record starts, or marks in front of it.
    at: Lsn,
    /// The log is known to be durable up to here.
    durable_up_to: Lsn,
    /// Where nothing that proves damage was found behind, and the bytes that were there then.
    searched: Option<(Lsn, Front)>,
}

/// The first bytes of what may be a record.
type Front = [u8; RECORD_HEADER_SIZE as usize];

/// A file of the log, and where it ends.
struct Piece {
    header: FileHeader,
    file: FoundFile,
    /// Where the next file starts, if there is one.
    end: Option<Lsn>,
}

impl Piece {
    fn limit(&self) -> Lsn {
        self.end.unwrap_or(Lsn::MAX)
    }
}

impl LogFollower {
    /// Reads from `from` on, where a record starts, or ends behind which the log goes on.
    pub fn new(place: WalPlace, from: Lsn) -> LogFollower {
        let (current, durable_up_to, searched) = (None, Lsn::ZERO, None);
        LogFollower { place, current, at: from, durable_up_to, searched }
    }

    /// Reads from the first commit on that is there; or from the newest file on whose first commit
    /// `is_in_front` says yes of. It is asked of the newest file first, and not of those below the
    /// one that it is told of, nor of what is behind `until`, up to where somebody has read the
    /// log.
    ///
    /// # Errors
    /// As [`Self::read_on`], and whatever `is_in_front` says.
    pub fn behind(
        place: WalPlace,
        until: Lsn,
        is_in_front: &mut dyn FnMut(RecordRef<'_>) -> Result<bool>,
    ) -> Result<LogFollower> {
        let mut log = LogFollower::new(place, Lsn::ZERO);
        let mut header = log.newest_file(until)?;
        loop {
            log.at = header.start;
            if log.first_commit_in(header, until, is_in_front)? {
                return Ok(log);
            }
            match log.file_before(&header)? {
                Some(before) => header = before,
                None => return Ok(log),
            }
        }
    }

    /// Whether it has all commits behind this place, where one ends and a mark may follow.
    pub fn is_by(&self, place: Lsn) -> bool {
        self.at <= place.plus(MARK_SIZE)
    }

    /// Goes on in another storage, which has all of the log from `from` on, if that is not behind
    /// where it is, or behind that with a mark between.
    pub fn go_on_in(&mut self, storage: &Arc<dyn Storage>, from: Lsn) {
        if from <= self.at.plus(MARK_SIZE) {
            self.at = self.at.max(from);
            self.place.storage = Arc::clone(storage);
        }
    }

    /// Where the log is.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// Up to where records were taken.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Looks whether what was taken is still part of the log, as far as that can be told.
    ///
    /// # Errors
    /// [`Error::WentBack`] when it is not; else as [`Self::read_on`].
    pub fn check_place(&self) -> Result<()> {
        self.check_continuity(&self.chain()?[0])
    }

    /// Offers the records behind the last one that was taken, in order, as far as there are any,
    /// and as they begin in front of `until`: what is behind that is not looked into. Memory: 256
    /// KiB, or one record where that is larger.
    ///
    /// # Errors
    /// [`Error::WentBack`] when what was taken is not part of the log any more. Also when it only
    /// seems so, as files change while they are read: [`Error::Corruption`] with file and offset
    /// for what was there and is not; [`Error::Io`], `NotFound` too; [`Error::KeyNeeded`];
    /// [`Error::FormatVersion`]. Whatever `offer` says. The position is behind the last record that
    /// was taken.
    pub fn read_on(
        &mut self,
        until: Lsn,
        offer: &mut dyn FnMut(RecordRef<'_>) -> Result<Offered>,
    ) -> Result<FollowedLog> {
        let mut pieces = self.pieces()?;
        let written_to = self.survey(&mut pieces)?;
        let before = self.at;
        let (mut records, mut bytes_left) = (0, 0);
        let mut lsn = self.at;
        'pieces: for piece in &mut pieces {
            while lsn < piece.limit() {
                if lsn >= until {
                    break 'pieces;
                }
                let Some(record) = self.record_at(piece, lsn)? else {
                    self.refuse_damage(piece, lsn)?;
                    break 'pieces;
                };
                if record.end() > piece.limit() {
                    let what = format!("the record reaches past {}", piece.limit());
                    let offset = piece.header.offset_of(lsn);
                    return Err(Error::corruption(piece.file.window.path(), offset, what));
                }
                if record.kind == RecordKind::Commit {
                    let offset = piece.header.offset_of(lsn);
                    let (payload, file) = piece.file.payload(&record, offset)?;
                    let (end, durable_up_to) = (record.end(), self.durable_up_to);
                    let offered = RecordRef { lsn, end, file, offset, durable_up_to, payload };
                    if offer(offered)? == Offered::Left {
                        bytes_left = written_to.max(end).bytes_since(self.at);
                        break 'pieces;
                    }
                    (self.at, self.current) = (end, Some(piece.header));
                    records += 1;
                }
                lsn = record.end();
            }
            piece.file.window.let_go();
        }
        Ok(FollowedLog { records, bytes: self.at.bytes_since(before), bytes_left })
    }

    /// The record at `lsn`, which lies in front of the end of the piece; `None` at the end of what
    /// is there.
    fn record_at(&self, piece: &mut Piece, lsn: Lsn) -> Result<Option<RecordHeader>> {
        let (start, offset) = (piece.header.start, piece.header.offset_of(lsn));
        if let Some(record) = piece.file.record_at(start, offset)? {
            return Ok(Some(record));
        }
        if piece.end.is_none() && lsn >= self.durable_up_to {
            return Ok(None);
        }
        // It was written before what tells of it. But it may have been read before that.
        piece.file.window.let_go();
        if let Some(record) = piece.file.record_at(start, offset)? {
            return Ok(Some(record));
        }
        let what = format!("no valid record at {lsn}, though the log goes on behind it");
        Err(Error::corruption(piece.file.window.path(), offset, what))
    }

    /// Nothing valid is at `lsn`, in the last file: that is the end, unless something behind it
    /// says that the log was durable past that place (W5). Searches the rest of the file: each time
    /// where there is something like a record, and else once for what there is.
    fn refuse_damage(&mut self, piece: &mut Piece, lsn: Lsn) -> Result<()> {
        let (start, offset) = (piece.header.start, piece.header.offset_of(lsn));
        if !piece.file.window.holds(offset, RECORD_HEADER_SIZE) {
            return Ok(());
        }
        let front = piece.file.window.bytes(offset, RECORD_HEADER_SIZE)?;
        let front = *front.first_chunk().expect("so many were asked for");
        let may_be_record = piece.file.torn_record_end(start, offset)?.is_some();
        if !may_be_record && self.searched == Some((lsn, front)) {
            return Ok(());
        }
        if piece.file.proof_from(start, offset + RECORD_ALIGNMENT)?.durable_up_to <= lsn {
            self.searched = Some((lsn, front));
            return Ok(());
        }
        // It may have been written since; then the next look takes it.
        piece.file.window.let_go();
        match piece.file.record_at(start, offset)? {
            Some(_) => Ok(()),
            None => {
                let what = format!("no valid record at {lsn}, but the log was durable behind it");
                Err(Error::corruption(piece.file.window.path(), offset, what))
            }
        }
    }

    /// Goes through what is not known to be durable, to learn how far the log is. Where the last
    /// commit ends that is there.
    fn survey(&mut self, pieces: &mut [Piece]) -> Result<Lsn> {
        for piece in &*pieces {
            self.durable_up_to = self.durable_up_to.max(piece.header.durable_up_to);
        }
        let mut lsn = self.at.max(self.durable_up_to);
        let mut written_to = lsn;
        for piece in pieces {
            while lsn < piece.limit() {
                let offset = piece.header.offset_of(lsn);
                let Some(record) = piece.file.record_at(piece.header.start, offset)? else {
                    piece.file.window.let_go();
                    return Ok(written_to);
                };
                self.durable_up_to = self.durable_up_to.max(record.durable_up_to);
                lsn = record.end();
                if record.kind == RecordKind::Commit {
                    written_to = lsn;
                }
            }
            piece.file.window.let_go();
        }
        Ok(written_to)
    }

    /// The files that hold the log from where it is read on, lowest first.
    fn pieces(&self) -> Result<Vec<Piece>> {
        let chain = self.chain()?;
        self.check_continuity(&chain[0])?;
        let ends = chain.iter().skip(1).map(|next| Some(next.start)).chain([None]);
        let pieces = chain.iter().zip(ends).map(|(header, end)| {
            let file = FoundFile::open(&self.place, header.number)?;
            match file.valid_header() {
                Some(found) if found == header => Ok(Piece { header: *header, file, end }),
                _ => {
                    let what = "the header has changed";
                    Err(Error::corruption(file.window.path(), 0, what))
                }
            }
        });
        pieces.collect()
    }

    /// What was taken has to be in the file that holds it now, or the next file to begin right
    /// behind it, perhaps with files between that have no records: else a recovery has cut it off,
    /// and the log goes on otherwise.
    fn check_continuity(&self, first: &FileHeader) -> Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let is_current = |number, start| (number, start) == (current.number, current.start);
        let mut file = *first;
        while !is_current(file.number, file.start) {
            let before = file.previous.filter(|_| file.start == self.at);
            match before.filter(|before| before.number < file.number) {
                Some(before) if is_current(before.number, before.start) => return Ok(()),
                Some(before) => match self.header_of(before.number)? {
                    Some(header) if header.start == before.start => file = header,
                    _ => return Err(self.went_back(current, &file)),
                },
                None => return Err(self.went_back(current, &file)),
            }
        }
        Ok(())
    }

    /// What was read in `current` is not in front of `found`.
    fn went_back(&self, current: &FileHeader, found: &FileHeader) -> Error {
        let what = format!(
            "it was read up to {} in file {}, which starts at {}; file {} starts at {}, behind \
             file {:?}",
            self.at,
            current.number,
            current.start,
            found.number,
            found.start,
            found.previous.map(|previous| previous.number),
        );
        let file = self.place.path_of(found.number);
        Error::WentBack { file, offset: 0, what }
    }

    /// Headers of the newest file that is part of the log, and those that it came from, down to the
    /// one that has the position. Never empty.
    fn chain(&self) -> Result<Vec<FileHeader>> {
        for number in self.place.numbers()?.into_iter().rev() {
            let Some(top) = self.header_of(number)? else { continue };
            if let Some(chain) = self.chain_below(top)? {
                return Ok(chain);
            }
        }
        Err(Error::corruption(&self.place.dir, 0, "no log file has a valid header"))
    }

    /// `None` if a header between is torn: then the log ends in front of that file, unless one
    /// above says that it was durable (W6).
    fn chain_below(&self, top: FileHeader) -> Result<Option<Vec<FileHeader>>> {
        let mut chain = vec![top];
        let mut lowest = top;
        let mut durable_up_to = top.durable_up_to;
        while lowest.start > self.at {
            let Some(previous) = lowest.previous else {
                let (start, at) = (lowest.start, self.at);
                let what = format!("the log starts at {start}, and is read from {at}");
                return Err(Error::corruption(&self.place.path_of(lowest.number), 0, what));
            };
            let Some(header) = self.header_of(previous.number)? else {
                if durable_up_to <= previous.start {
                    return Ok(None);
                }
                let what = "the header is not valid, though the log was durable behind it";
                return Err(Error::corruption(&self.place.path_of(previous.number), 0, what));
            };
            durable_up_to = durable_up_to.max(header.durable_up_to);
            let follows = header.number < lowest.number
                && header.start == previous.start
                && (header.start..=header.limit()).contains(&lowest.start);
            if !follows {
                let what = format!("the file does not continue file {}", header.number);
                return Err(Error::corruption(&self.place.path_of(lowest.number), 0, what));
            }
            chain.push(header);
            lowest = header;
        }
        chain.reverse();
        Ok(Some(chain))
    }

    /// The newest file with a header that does not begin behind `until`.
    fn newest_file(&self, until: Lsn) -> Result<FileHeader> {
        for number in self.place.numbers()?.into_iter().rev() {
            if let Some(header) = self.header_of(number)?.filter(|header| header.start <= until) {
                return Ok(header);
            }
        }
        Err(Error::corruption(&self.place.dir, 0, "no log file has a valid header"))
    }

    /// The file that this one goes on from, if it is kept.
    fn file_before(&self, header: &FileHeader) -> Result<Option<FileHeader>> {
        let Some(previous) = header.previous else { return Ok(None) };
        match self.header_of(previous.number) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            found => Ok(found?.filter(|found| found.start == previous.start)),
        }
    }

    /// What is said of the first commit in a file; no if there is none in front of `until`.
    fn first_commit_in(
        &self,
        header: FileHeader,
        until: Lsn,
        is_in_front: &mut dyn FnMut(RecordRef<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let file = FoundFile::open(&self.place, header.number)?;
        let mut piece = Piece { header, file, end: None };
        let mut lsn = header.start;
        while lsn < until {
            let Some(record) = self.record_at(&mut piece, lsn)? else { break };
            if record.kind == RecordKind::Commit {
                let offset = header.offset_of(lsn);
                let (payload, file) = piece.file.payload(&record, offset)?;
                let (end, durable_up_to) = (record.end(), self.durable_up_to);
                return is_in_front(RecordRef { lsn, end, file, offset, durable_up_to, payload });
            }
            lsn = record.end();
        }
        Ok(false)
    }

    fn header_of(&self, number: u64) -> Result<Option<FileHeader>> {
        Ok(FoundFile::open(&self.place, number)?.valid_header().copied())
    }
}
