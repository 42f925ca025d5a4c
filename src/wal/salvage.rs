//! Reading a log that is damaged: what is in front of the damage, and what lies behind it.
//!
//! Files are taken in the order of their numbers, each from the position that its header says, or
//! the header of the next one, or its own first record. What is missing between them, or does not
//! verify, is damage; a record that verifies at its place is what was written there. The file of
//! the highest number says what was cut off below it: a recovery that was interrupted leaves files
//! that are none of the log any more (W8).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::base::{Error, Result};
use crate::storage::OpenMode;

use super::directory::WalPlace;
use super::header::{FileHeader, HEADER_BLOCK_SIZE};
use super::lsn::Lsn;
use super::record::{RECORD_ALIGNMENT, RecordHeader, RecordKind};
use super::replay::{RecordRef, replay};
use super::survey::FoundFile;

/// What cannot be read of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What was expected and what was found.
    pub what: String,
    /// Whether commits may be missing because of it.
    pub breaks: bool,
}

impl LogDamage {
    fn new(file: &Path, offset: u64, what: impl Into<String>) -> LogDamage {
        LogDamage { file: file.to_owned(), offset, what: what.into(), breaks: true }
    }

    fn of(error: Error, dir: &Path) -> Result<LogDamage> {
        match error {
            Error::Corruption { file, offset, what } => Ok(LogDamage::new(&file, offset, what)),
            Error::Io { action, path, source } => {
                Ok(LogDamage::new(&path, 0, format!("could not {action} it: {source}")))
            }
            Error::InvalidArgument { what } => Ok(LogDamage::new(dir, 0, what)),
            other => Err(other),
        }
    }
}

/// What a log that was salvaged has come to.
#[derive(Clone, Debug, Default)]
pub struct SalvagedLog {
    /// What is damaged, in order.
    pub damage: Vec<LogDamage>,
    /// The log is known to have been durable up to here at least.
    pub durable_up_to: Lsn,
    /// Where the part ends in front of which nothing is missing.
    pub end: Lsn,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPlace {
    /// All in front of it is there.
    InOrder,
    /// Something in front of it is damaged.
    BehindDamage,
}

/// A file, and where it starts.
struct Placed {
    file: FoundFile,
    start: Lsn,
    /// The number of the file that the log comes from, as its header says.
    comes_from: Option<u64>,
}

/// Reads all commits from `from` on that are there; with `None` from the oldest on that is there.
///
/// # Errors
/// [`Error::FormatVersion`], [`Error::KeyNeeded`]; whatever `visitor` says.
pub fn salvage_log(
    place: &WalPlace,
    from: Option<Lsn>,
    visitor: &mut dyn FnMut(RecordRef<'_>, RecordPlace) -> Result<()>,
) -> Result<SalvagedLog> {
    // Whether there is damage, or a tail that was never durable, is told as ever.
    let Some(from) = from else { return Walk::over(place, None, visitor) };
    let told = match replay(place, from, &mut |_| Ok(())) {
        Ok(read) => {
            let (end, durable_up_to) = (read.recovered().end, read.durable_up_to());
            replay(place, from, &mut |record| visitor(record, RecordPlace::InOrder))?;
            return Ok(SalvagedLog { damage: Vec::new(), durable_up_to, end });
        }
        Err(error) => LogDamage::of(error, &place.dir)?,
    };
    let mut salvaged = Walk::over(place, Some(from), visitor)?;
    // What is missing at the end, no record tells.
    if salvaged.damage.iter().all(|damage| !damage.breaks) {
        salvaged.damage.push(told);
    }
    Ok(salvaged)
}

struct Walk<'v> {
    damage: Vec<LogDamage>,
    /// Something in front of where it is could not be read.
    is_broken: bool,
    durable_up_to: Lsn,
    end: Lsn,
    visitor: &'v mut dyn FnMut(RecordRef<'_>, RecordPlace) -> Result<()>,
}

impl Walk<'_> {
    fn over(
        place: &WalPlace,
        from: Option<Lsn>,
        visitor: &mut dyn FnMut(RecordRef<'_>, RecordPlace) -> Result<()>,
    ) -> Result<SalvagedLog> {
        let (damage, end) = (Vec::new(), from.unwrap_or(Lsn::ZERO));
        let (is_broken, durable_up_to) = (false, Lsn::ZERO);
        let mut walk = Walk { damage, is_broken, durable_up_to, end, visitor };
        walk.files(place, from)?;
        let Walk { damage, durable_up_to, end, .. } = walk;
        Ok(SalvagedLog { damage, durable_up_to, end })
    }

    fn note_break(&mut self, damage: LogDamage) {
        self.is_broken = true;
        self.damage.push(damage);
    }

    /// Of a file that may be none of the log.
    fn note(&mut self, damage: LogDamage) {
        self.damage.push(LogDamage { breaks: false, ..damage });
    }

    fn files(&mut self, place: &WalPlace, from: Option<Lsn>) -> Result<()> {
        let files = self.placed(place)?;
        if files.is_empty() {
            let what = "expected the files of a log, found none that can be read";
            self.note_break(LogDamage::new(&place.dir, 0, what));
        }
        let first = from.or_else(|| files.values().map(|placed| placed.start).min());
        let Some(first) = first else { return Ok(()) };
        let all: Vec<_> = files.values().map(|placed| (placed.start, placed.comes_from)).collect();
        let mut reached = first;
        for (index, (number, mut placed)) in files.into_iter().enumerate() {
            let next = all.get(index + 1).copied();
            let limit = next.map_or(Lsn::MAX, |(start, _)| start);
            if limit <= first {
                continue;
            }
            if placed.start > reached {
                let what = format!(
                    "expected the log from {reached} on, found that this file, the next one, \
                     starts at {}",
                    placed.start
                );
                let damage = LogDamage::new(placed.file.window.path(), 0, what);
                match from {
                    Some(_) => self.note_break(damage),
                    None => self.damage.push(damage),
                }
            }
            let start = reached.max(placed.start);
            // Where the log is needed from is not known: of what is kept in front of that, files
            // between others may be gone for good reasons.
            let comes_from = next.and_then(|(_, comes_from)| comes_from);
            let is_apart = from.is_none() && comes_from.is_some_and(|other| other != number);
            let limit = if is_apart { Lsn::MAX } else { limit };
            reached = self.file(&mut placed, start, limit)?;
            if !self.is_broken {
                self.end = reached; // Of one that has no records as well.
            }
        }
        Ok(())
    }

    /// The files that can be opened, the highest number first, and where the headers of others say
    /// that they start.
    fn found(&mut self, place: &WalPlace) -> Result<(Vec<FoundFile>, BTreeMap<u64, Lsn>)> {
        let (mut found, mut said) = (Vec::new(), BTreeMap::new());
        let numbers = match place.numbers() {
            Ok(numbers) => numbers,
            Err(error) => {
                self.note(LogDamage::of(error, &place.dir)?);
                return Ok((found, said));
            }
        };
        for number in numbers.into_iter().rev() {
            match FoundFile::open(place, number).and_then(FoundFile::with_key) {
                Ok(file) => {
                    let header = file.valid_header();
                    if let Some(before) = header.and_then(|header| header.previous) {
                        said.insert(before.number, before.start);
                    }
                    found.push(file);
                }
                Err(error) => self.note(LogDamage::of(error, &place.dir)?),
            }
        }
        Ok((found, said))
    }

    /// The files whose place in the log is known, in order.
    fn placed(&mut self, place: &WalPlace) -> Result<BTreeMap<u64, Placed>> {
        let (found, said) = self.found(place)?;
        let mut placed: BTreeMap<u64, Placed> = BTreeMap::new();
        // What the file above says that it comes from: between the two there is none (W8).
        let mut next_below: Option<u64> = None;
        let mut lowest_start = Lsn::MAX;
        for mut file in found {
            let (number, header) = (file.number, file.valid_header().copied());
            if next_below.is_some_and(|below| number > below) {
                continue;
            }
            let start = match header {
                Some(header) => {
                    self.durable_up_to = self.durable_up_to.max(header.durable_up_to);
                    Some(header.start)
                }
                None => {
                    let by_records = file.start_without_header(place);
                    let by_records = by_records.ok().flatten();
                    let start = said.get(&number).copied().or(by_records);
                    if start.is_some() {
                        let what = "expected the header of a log file, found other bytes";
                        self.note(LogDamage::new(file.window.path(), 0, what));
                    }
                    start
                }
            };
            // Starts rise with numbers: what does not is no file of this log.
            let Some(start) = start.filter(|start| *start <= lowest_start) else { continue };
            lowest_start = start;
            next_below = header.and_then(|header| header.previous).map(|before| before.number);
            placed.insert(number, Placed { file, start, comes_from: next_below });
        }
        Ok(placed)
    }

    /// Reads a file from a position up to in front of `limit`; from where on the next one counts.
    fn file(&mut self, placed: &mut Placed, from: Lsn, limit: Lsn) -> Result<Lsn> {
        let Placed { file, start, .. } = placed;
        let path = file.window.path().to_owned();
        let offset_of = |lsn: Lsn| HEADER_BLOCK_SIZE + lsn.bytes_since(*start);
        let mut lsn = from;
        while lsn < limit {
            let offset = offset_of(lsn);
            match file.record_at(*start, offset) {
                Ok(Some(record)) if record.end() <= limit => {
                    self.visit(file, &record, offset)?;
                    lsn = record.end();
                    continue;
                }
                Ok(_) => {}
                Err(error) => {
                    self.note_break(LogDamage::of(error, &path)?);
                    break;
                }
            }
            let next = file.next_record(*start, offset + RECORD_ALIGNMENT);
            // From the limit on it is another file that counts.
            let next = next.ok().flatten().filter(|(_, record)| record.end() <= limit);
            let Some((at, record)) = next else {
                if limit != Lsn::MAX {
                    let what = format!(
                        "expected records up to position {limit}, found none from {lsn} on"
                    );
                    self.note_break(LogDamage::new(&path, offset, what));
                }
                break;
            };
            let what = format!(
                "expected a record at position {lsn}, found none that verifies up to {}",
                record.lsn
            );
            self.note_break(LogDamage::new(&path, offset, what));
            lsn = record.lsn;
            debug_assert_eq!(at, offset_of(lsn));
        }
        // What does not reach the limit was told.
        Ok(if limit == Lsn::MAX { lsn } else { limit })
    }

    fn visit(&mut self, file: &mut FoundFile, record: &RecordHeader, offset: u64) -> Result<()> {
        self.durable_up_to = self.durable_up_to.max(record.durable_up_to);
        if !self.is_broken {
            self.end = record.end();
        }
        if record.kind != RecordKind::Commit {
            return Ok(());
        }
        let path = file.window.path().to_owned();
        let (payload, path) = match file.payload(record, offset) {
            Ok(found) => found,
            Err(error) => {
                self.note_break(LogDamage::of(error, &path)?);
                return Ok(());
            }
        };
        let place = if self.is_broken { RecordPlace::BehindDamage } else { RecordPlace::InOrder };
        let (lsn, end, durable_up_to) = (record.lsn, record.end(), record.durable_up_to);
        let record = RecordRef { lsn, end, file: path, offset, durable_up_to, payload };
        (self.visitor)(record, place)
    }
}

/// The databases that the files of a log say they are of, by their headers, the newest file first.
#[must_use]
pub fn databases_of(place: &WalPlace) -> Vec<u64> {
    let numbers = place.numbers().unwrap_or_default().into_iter().rev();
    let found = numbers.filter_map(|number| {
        let file = place.open(number, OpenMode::ReadOnly).ok()?;
        let mut block = vec![0; HEADER_BLOCK_SIZE as usize];
        file.read_exact_at(&mut block, 0).ok()?;
        let mut headers = FileHeader::copies(&block).into_iter();
        headers.find_map(|copy| copy.header).map(|header| header.database_id)
    });
    found.collect()
}
