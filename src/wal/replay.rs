//! Reads the log back at open: finds its files, verifies every record from a position on, and
//! tells a torn tail from damage. Writes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::base::seeded::{Bug, is_seeded};
use crate::base::{Error, Result};

use super::chain::{Headers, choose_chain};
use super::directory::WalPlace;
use super::header::{FileHeader, HEADER_BLOCK_SIZE};
use super::lsn::Lsn;
use super::record::{RecordHeader, RecordKind};
use super::survey::{FoundFile, Proof};

/// A record as it is handed to the visitor of [`replay`].
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    pub lsn: Lsn,
    /// Where the next record starts.
    pub end: Lsn,
    /// The file that it is in.
    pub file: &'a Path,
    /// Where it starts in that file.
    pub offset: u64,
    /// The log is known to have been durable up to here: by this record and those before it, and
    /// where the log is followed by those behind it as well.
    pub durable_up_to: Lsn,
    pub payload: &'a [u8],
}

/// What [`replay`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The end of the last record that counts: the log goes on here.
    pub end: Lsn,
    /// Records handed out.
    pub record_count: u64,
    /// The file in which that is, and where in it.
    pub end_place: (PathBuf, u64),
    /// Bytes of the log behind `end` that were written but never durable, and are cut off.
    pub truncated_bytes: u64,
    /// Log files that were read, lowest first.
    pub files: Vec<PathBuf>,
}

/// A log that has been read back and can be resumed ([`super::Wal::resume`]).
#[derive(Debug)]
pub struct Replay {
    recovered: Recovered,
    /// Records from here on were read; nothing before is needed.
    pub(super) required_from: Lsn,
    /// The log is known to be durable up to here; behind it, it may only be in the cache of the
    /// operating system.
    pub(super) durable_up_to: Lsn,
    /// Where the last commit ends that was read; where reading began if none was.
    pub(super) commits_end: Lsn,
    /// The files that hold the log, lowest first, without those behind the cut.
    pub(super) chain: Vec<FileHeader>,
    /// Every log file in the directory.
    pub(super) files: BTreeMap<u64, FoundFile>,
}

impl Replay {
    /// What was found.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The log is known to be durable up to here, and no further.
    pub fn durable_up_to(&self) -> Lsn {
        self.durable_up_to
    }
}

/// The first place where no valid record is, while the log is read.
pub(super) struct Stop {
    chain_index: usize,
    offset: u64,
    lsn: Lsn,
}

/// Where reading stands.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    pub(super) lsn: Lsn,
    pub(super) durable_up_to: Lsn,
    /// Where the last commit ends that was read; where the whole log is read from if none was.
    pub(super) commits_end: Lsn,
    pub(super) record_count: u64,
    /// Where it ends at the latest.
    pub(super) limit: Lsn,
}

/// Reads the log from `required_from` on and hands each record to `visitor`, in order.
///
/// Memory: 256 KiB per file, or one record where that is larger.
///
/// # Errors
/// [`Error::Corruption`] naming file and offset when anything that was durable is missing or
/// damaged, and for files of another database; [`Error::FormatVersion`]; [`Error::Io`]; whatever
/// `visitor` says. What `visitor` got before must then not be used.
pub fn replay(
    place: &WalPlace,
    required_from: Lsn,
    visitor: &mut dyn FnMut(RecordRef<'_>) -> Result<()>,
) -> Result<Replay> {
    let mut log = LogFiles::find(place, required_from)?;
    let mut progress = log.progress(required_from, Lsn::MAX);
    let stop = log.whole().read(&mut progress, visitor)?;
    let stop = stop.expect("the top file has no limit, and no file holds records without end");
    log.conclude(place, required_from, &stop, &progress)
}

/// The files of a log whose records are to be read.
pub(super) struct LogFiles {
    /// Every log file in the directory.
    files: BTreeMap<u64, FoundFile>,
    /// Those that hold the log, lowest first.
    pub(super) chain: Vec<FileHeader>,
}

/// Files that follow one another.
pub(super) struct Part<'f> {
    /// How many files of the chain are in front of them.
    before: usize,
    headers: &'f [FileHeader],
    files: Vec<&'f mut FoundFile>,
    /// Where the file behind them starts, if there is one.
    end: Lsn,
}

impl LogFiles {
    pub(super) fn find(place: &WalPlace, required_from: Lsn) -> Result<LogFiles> {
        place.validate()?;
        let mut files = BTreeMap::new();
        for number in place.numbers()? {
            files.insert(number, FoundFile::open(place, number)?);
        }
        refuse_damaged_headers(&mut files, required_from)?;
        let chain = chain_of(place, &mut files, required_from)?;
        refuse_wrong_sizes(&files, &chain)?;
        Ok(LogFiles { files, chain })
    }

    /// How far they go at most: the last one may not be full.
    pub(super) fn end_max(&self) -> Lsn {
        let last = self.chain.last().expect("a log has a file");
        last.limit()
    }

    /// In front of the first record.
    pub(super) fn progress(&self, lsn: Lsn, limit: Lsn) -> Progress {
        let claims = self.chain.iter().map(|header| header.durable_up_to);
        let durable_up_to = claims.max().unwrap_or(Lsn::ZERO);
        Progress { lsn, durable_up_to, commits_end: lsn, record_count: 0, limit }
    }

    pub(super) fn whole(&mut self) -> Part<'_> {
        let parts = self.parts(&[]);
        parts.into_iter().next().expect("there is one part more than there are cuts")
    }

    /// The files, cut in front of those whose places in the chain are given, ascending.
    pub(super) fn parts(&mut self, cuts: &[usize]) -> Vec<Part<'_>> {
        let LogFiles { files, chain } = self;
        let mut by_number: BTreeMap<u64, &mut FoundFile> =
            files.iter_mut().map(|(number, file)| (*number, file)).collect();
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([chain.len()]);
        let part = |(before, end): (usize, usize)| {
            let headers = &chain[before..end];
            let file = |header: &FileHeader| by_number.remove(&header.number);
            let files: Option<Vec<_>> = headers.iter().map(file).collect();
            let files = files.expect("the chain was made of these files");
            let end = chain.get(end).map_or(Lsn::MAX, |next| next.start);
            Part { before, headers, files, end }
        };
        starts.zip(ends).map(part).collect()
    }

    /// What was found, if reading stopped there.
    pub(super) fn conclude(
        mut self,
        place: &WalPlace,
        required_from: Lsn,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Replay> {
        let written_end = refuse_damaged_records(&mut self.files, &self.chain, stop)?;
        refuse_lost_file(place, &self.files, &self.chain, stop)?;

        let LogFiles { files, mut chain } = self;
        chain.truncate(stop.chain_index + 1);
        let path_of_stop = place.path_of(chain[stop.chain_index].number);
        let recovered = Recovered {
            end: stop.lsn,
            end_place: (path_of_stop, stop.offset),
            record_count: progress.record_count,
            truncated_bytes: written_end.bytes_since(stop.lsn),
            files: chain.iter().map(|header| place.path_of(header.number)).collect(),
        };
        let durable_up_to = progress.durable_up_to.min(stop.lsn);
        let commits_end = progress.commits_end;
        Ok(Replay { recovered, required_from, durable_up_to, commits_end, chain, files })
    }
}

impl Part<'_> {
    /// Where the first of the files starts.
    pub(super) fn start(&self) -> Lsn {
        self.headers[0].start
    }

    /// Where the file behind them starts; [`Lsn::MAX`] if there is none.
    pub(super) fn end(&self) -> Lsn {
        self.end
    }

    /// Reads the records from where `progress` stands on. None if there were records up to the end.
    pub(super) fn read(
        &mut self,
        progress: &mut Progress,
        visitor: &mut dyn FnMut(RecordRef<'_>) -> Result<()>,
    ) -> Result<Option<Stop>> {
        for (index, (header, file)) in self.headers.iter().zip(&mut self.files).enumerate() {
            // W4: a file is read exactly up to the start of the next one.
            let limit = self.headers.get(index + 1).map_or(self.end, |next| next.start);
            while progress.lsn < limit {
                let offset = header.offset_of(progress.lsn);
                let record = match progress.lsn < progress.limit {
                    true => file.record_at(header.start, offset)?,
                    false => None,
                };
                let Some(record) = record else {
                    let chain_index = self.before + index;
                    return Ok(Some(Stop { chain_index, offset, lsn: progress.lsn }));
                };
                if record.end() > limit {
                    let what =
                        format!("the record reaches past {limit}, where the next file starts");
                    return Err(Error::corruption(file.window.path(), offset, what));
                }
                visit(file, &record, offset, progress, visitor)?;
            }
        }
        Ok(None)
    }
}

/// W6: a header that is not valid, in a file whose own records say that it was durable, is damage.
fn refuse_damaged_headers(files: &mut BTreeMap<u64, FoundFile>, required_from: Lsn) -> Result<()> {
    for file in files.values_mut() {
        if file.valid_header().is_some() {
            continue;
        }
        let proof = file.proof_without_header(required_from)?;
        if proof.header_was_durable && proof.durable_up_to > required_from {
            let what = "the header was durable and is not valid";
            return Err(Error::corruption(file.window.path(), 0, what));
        }
    }
    Ok(())
}

fn chain_of(
    place: &WalPlace,
    files: &mut BTreeMap<u64, FoundFile>,
    required_from: Lsn,
) -> Result<Vec<FileHeader>> {
    let by_number = files.iter().map(|(number, file)| (*number, file.valid_header().copied()));
    let by_number: BTreeMap<u64, Option<FileHeader>> = by_number.collect();
    let headers =
        Headers { files: &by_number, path_of: &|number| place.path_of(number), dir: &place.dir };
    choose_chain(&headers, required_from, &mut |number| {
        Ok(proof_above(files, number, required_from)?.durable_up_to)
    })
}

/// W2: the full size is durable before a header is written.
fn refuse_wrong_sizes(files: &BTreeMap<u64, FoundFile>, chain: &[FileHeader]) -> Result<()> {
    for header in chain {
        let window = &files[&header.number].window;
        if window.size() != header.capacity {
            let what = format!("the file has {} bytes, not {}", window.size(), header.capacity);
            let offset = window.size().min(header.capacity);
            return Err(Error::corruption(window.path(), offset, what));
        }
    }
    Ok(())
}

fn visit(
    file: &mut FoundFile,
    record: &RecordHeader,
    offset: u64,
    progress: &mut Progress,
    visitor: &mut dyn FnMut(RecordRef<'_>) -> Result<()>,
) -> Result<()> {
    progress.durable_up_to = progress.durable_up_to.max(record.durable_up_to);
    progress.lsn = record.end();
    match record.kind {
        RecordKind::Mark => Ok(()),
        RecordKind::Commit => {
            progress.record_count += 1;
            progress.commits_end = record.end();
            let (payload, file) = file.payload(record, offset)?;
            let (lsn, end, durable_up_to) = (record.lsn, record.end(), progress.durable_up_to);
            visitor(RecordRef { lsn, end, file, offset, durable_up_to, payload })
        }
    }
}

/// W5: where reading stopped is damage if anything that is valid says that the log was durable
/// past that place. Otherwise it is the end of the log, or a torn tail: then this is the end of
/// what was written.
fn refuse_damaged_records(
    files: &mut BTreeMap<u64, FoundFile>,
    chain: &[FileHeader],
    stop: &Stop,
) -> Result<Lsn> {
    let header = &chain[stop.chain_index];
    let file = files.get_mut(&header.number).expect("the chain was made of these files");
    let torn_end = file.torn_record_end(header.start, stop.offset)?;
    let behind = file.proof_from(header.start, stop.offset)?;
    let path = file.window.path().to_owned();
    let above = proof_above(files, header.number, stop.lsn)?;

    let durable_up_to = behind.durable_up_to.max(above.durable_up_to);
    if durable_up_to > stop.lsn && !is_seeded(Bug::DamagedLogCutOff) {
        let what = format!(
            "no valid record at {}, but the log was durable up to {durable_up_to}",
            stop.lsn
        );
        return Err(Error::corruption(&path, stop.offset, what));
    }
    Ok(behind.records_end.max(above.records_end).max(torn_end.unwrap_or(stop.lsn)))
}

/// W12: the file that the log went on in behind the last one that is there had its name and its
/// size durably, whatever was in it. Where the log ends before it came to that, it does not matter.
fn refuse_lost_file(
    place: &WalPlace,
    files: &BTreeMap<u64, FoundFile>,
    chain: &[FileHeader],
    stop: &Stop,
) -> Result<()> {
    let top = &chain[stop.chain_index];
    let is_newest = stop.chain_index + 1 == chain.len();
    let next = files[&top.number].next.filter(|next| is_newest && next.start <= stop.lsn);
    let Some(next) = next else { return Ok(()) };
    let path = place.path_of(next.number);
    let says = format!("file {} says that the log goes on there from {}", top.number, next.start);
    match files.get(&next.number).map(|file| file.window.size()) {
        Some(size) if size == next.capacity && next.is_durable => {
            let what = format!("the header was durable and is not valid: {says}");
            Err(Error::corruption(&path, 0, what))
        }
        Some(size) if size == next.capacity => Ok(()), // Its header was never durable.
        Some(size) => {
            let what = format!("the file has {size} bytes, not {}: {says}", next.capacity);
            Err(Error::corruption(&path, size.min(next.capacity), what))
        }
        None => Err(Error::corruption(&path, 0, format!("the file is missing: {says}"))),
    }
}

/// What the files above `number` prove, whether they are part of the log or not: what was once
/// durable is never cut off, so such a proof holds for ever. Records before `not_before` count
/// for nothing.
fn proof_above(
    files: &mut BTreeMap<u64, FoundFile>,
    number: u64,
    not_before: Lsn,
) -> Result<Proof> {
    let mut all = Proof::default();
    for file in files.range_mut(number + 1..).map(|(_, file)| file) {
        let proof = match file.valid_header().copied() {
            Some(header) => {
                let mut proof = file.proof_from(header.start, HEADER_BLOCK_SIZE)?;
                proof.durable_up_to = proof.durable_up_to.max(header.durable_up_to);
                proof
            }
            None => file.proof_without_header(not_before)?,
        };
        all.durable_up_to = all.durable_up_to.max(proof.durable_up_to);
        all.records_end = all.records_end.max(proof.records_end);
    }
    Ok(all)
}
