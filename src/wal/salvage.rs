//! Reading a log that is damaged: what is in front of the damage, and what lies behind it.
//!
//! Files are taken in the order of their numbers, each from the position that its header says, or
//! the header of the next one, or its own first record. What is missing between them, or does not
//! verify, is damage; a record that verifies at its place is what was written there.

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
        let from = from.or_else(|| files.values().map(|placed| placed.start).min());
        let Some(from) = from else { return Ok(()) };
        let starts: Vec<Lsn> = files.values().map(|placed| placed.start).collect();
        let mut reached = from;
        for (index, (_, mut placed)) in files.into_iter().enumerate() {
            let limit = starts.get(index + 1).copied().unwrap_or(Lsn::MAX);
            if limit <= from {
                continue;
            }
            if placed.start > reached {
                let what = format!(
                    "expected the log from {reached} on, found that this file, the next one, \
                     starts at {}",
                    placed.start
                );
                self.note_break(LogDamage::new(placed.file.window.path(), 0, what));
            }
            let start = reached.max(placed.start);
            reached = self.file(&mut placed, start, limit)?;
        }
        Ok(())
    }

    /// The files whose place in the log is known, in order.
    fn placed(&mut self, place: &WalPlace) -> Result<BTreeMap<u64, Placed>> {
        let numbers = match place.numbers() {
            Ok(numbers) => numbers,
            Err(error) => {
                self.note(LogDamage::of(error, &place.dir)?);
                return Ok(BTreeMap::new());
            }
        };
        let (mut found, mut previous) = (Vec::new(), BTreeMap::new());
        for number in numbers {
            match FoundFile::open(place, number) {
                Ok(file) => {
                    let header = file.valid_header();
                    if let Some(before) = header.and_then(|header| header.previous) {
                        previous.insert(before.number, before.start);
                    }
                    found.push(file);
                }
                Err(error) => self.note(LogDamage::of(error, &place.dir)?),
            }
        }
        let mut placed: BTreeMap<u64, Placed> = BTreeMap::new();
        for mut file in found {
            let (number, header) = (file.number, file.valid_header().copied());
            let start = match header {
                Some(header) => {
                    self.durable_up_to = self.durable_up_to.max(header.durable_up_to);
                    Some(header.start)
                }
                None => {
                    let by_records = file.start_without_header(place);
                    let by_records = by_records.ok().flatten();
                    let start = previous.get(&number).copied().or(by_records);
                    if start.is_some() {
                        let what = "expected the header of a log file, found other bytes";
                        self.note(LogDamage::new(file.window.path(), 0, what));
                    }
                    start
                }
            };
            // Starts rise with numbers: what does not is no file of this log.
            let rises = |start: &Lsn| placed.values().all(|before| before.start <= *start);
            if let Some(start) = start.filter(rises) {
                placed.insert(number, Placed { file, start });
            }
        }
        Ok(placed)
    }

    /// Reads a file from a position on up to in front of `limit`; where its log ends.
    fn file(&mut self, placed: &mut Placed, from: Lsn, limit: Lsn) -> Result<Lsn> {
        let Placed { file, start } = placed;
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
            let Ok(Some((at, record))) = next else {
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
        Ok(lsn)
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

/// The database that the log in `dir` is of, by the header of any of its files; `None` if no header
/// says it.
#[must_use]
pub fn database_of(place: &WalPlace) -> Option<u64> {
    let numbers = place.numbers().ok()?;
    numbers.into_iter().rev().find_map(|number| {
        let file = place.open(number, OpenMode::ReadOnly).ok()?;
        let mut block = vec![0; HEADER_BLOCK_SIZE as usize];
        file.read_exact_at(&mut block, 0).ok()?;
        let mut headers = FileHeader::copies(&block).into_iter();
        headers.find_map(|copy| copy.header).map(|header| header.database_id)
    })
}
