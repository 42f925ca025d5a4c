//! Reading a long log back in several parts at once.
//!
//! A part is some files that follow one another. A record never lies in two files (W4), and each
//! header says where the first record of its file starts, so that a part can be read without those
//! in front of it. What is found is what reading one after the other finds: the first part that
//! ends early, or comes to an error, is the last one that counts.

use std::collections::VecDeque;
use std::ops::Range;

use crate::base::Result;
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{Mutex, PoisonError, thread};

use super::directory::WalPlace;
use super::lsn::Lsn;
use super::replay::{LogFiles, Part, Progress, RecordRef, Replay, Stop};

/// Takes the records of a part of the log, in order.
pub trait RecordVisitor: Send {
    /// Takes the next record.
    ///
    /// # Errors
    /// Whatever the visitor finds wrong with it.
    fn take(&mut self, record: &RecordRef<'_>) -> Result<()>;

    /// There are no more records in the part. What is left to be done is done beside other parts.
    fn end(&mut self) {}
}

/// How a log is read in parts.
#[derive(Clone, Copy, Debug)]
pub struct Parting {
    /// Bytes of the log that a part of it has at least, about: files are not divided.
    pub part_size: u64,
    /// How many parts there are at most. More than threads make sense only to tests.
    pub parts_max: usize,
    /// Threads that read parts at once, from 1 on.
    pub threads: usize,
}

/// What part of the log is to be visited.
#[derive(Clone, Copy, Debug)]
pub struct PartPlace {
    /// About how many bytes it has.
    pub bytes: u64,
    /// Whether no other comes behind it.
    pub is_last: bool,
}

/// As [`super::replay`], of the records from `records.start` on, but in parts, with a visitor for
/// each. As if there were no valid record at `records.end`: for one that leads to something that is
/// not there. The visitors of the parts that count, in their order, one at least.
///
/// # Errors
/// As [`super::replay`]; so also when the log is known to have been durable past `records.end`.
pub fn replay_in_parts<V: RecordVisitor>(
    place: &WalPlace,
    records: Range<Lsn>,
    parting: Parting,
    visitor: &dyn Fn(PartPlace) -> V,
) -> Result<(Replay, Vec<V>)> {
    let required_from = records.start;
    let mut log = LogFiles::find(place, required_from)?;
    let end = log.end_max();
    let cuts = cuts(&log, required_from, parting);
    let mut progress = log.progress(required_from, records.end);
    let parts = log.parts(&cuts).into_iter().enumerate().map(|(number, part)| {
        let lsn = part.start().max(required_from);
        let bytes = part.end().min(end).bytes_since(lsn);
        let visitor = visitor(PartPlace { bytes, is_last: number == cuts.len() });
        Reading { number, part, progress: Progress { lsn, ..progress }, visitor }
    });
    let ended = read_all(parts.collect(), parting.threads);
    let (mut visitors, mut stopped) = (Vec::new(), None);
    for part in ended {
        let stop = part.stop?;
        progress.durable_up_to = progress.durable_up_to.max(part.progress.durable_up_to);
        progress.commits_end = progress.commits_end.max(part.progress.commits_end);
        progress.record_count += part.progress.record_count;
        visitors.push(part.visitor);
        if stop.is_some() {
            stopped = stop;
            break;
        }
    }
    let stop = stopped.expect("the last part has no end, and no file holds records without end");
    Ok((log.conclude(place, required_from, &stop, &progress)?, visitors))
}

/// In front of which files of the chain to cut, so that parts are about equally long. Of the last
/// file nobody knows yet how far it goes: it counts as full, but is no part by itself.
fn cuts(log: &LogFiles, required_from: Lsn, parting: Parting) -> Vec<usize> {
    let len = log.end_max().bytes_since(required_from);
    let count = (len / parting.part_size.max(1)).min(parting.parts_max as u64);
    let (mut cuts, mut full) = (Vec::new(), 0);
    let behind_first = log.chain.iter().enumerate().skip(1);
    for (index, header) in behind_first.take(log.chain.len().saturating_sub(2)) {
        // How many parts would be full in front of this file.
        let in_front = header.start.bytes_since(required_from);
        let now_full = u128::from(in_front) * u128::from(count) / u128::from(len.max(1));
        if now_full > full {
            cuts.push(index);
            full = now_full;
        }
    }
    cuts
}

/// A part that is to be read.
struct Reading<'f, V> {
    number: usize,
    part: Part<'f>,
    progress: Progress,
    visitor: V,
}

/// A part that was read.
struct Ended<V> {
    number: usize,
    /// Where there was no valid record any more; none if there were records up to its end.
    stop: Result<Option<Stop>>,
    progress: Progress,
    visitor: V,
}

impl<V: RecordVisitor> Reading<'_, V> {
    fn read(self) -> Ended<V> {
        let Reading { number, mut part, mut progress, mut visitor } = self;
        let stop = part.read(&mut progress, &mut |record| visitor.take(&record));
        if stop.is_ok() {
            visitor.end();
        }
        Ended { number, stop, progress, visitor }
    }
}

/// Reads the parts, each by whichever thread is free, up to the first that ended early or came to
/// an error, or further. In their order.
fn read_all<V: RecordVisitor>(parts: VecDeque<Reading<'_, V>>, threads: usize) -> Vec<Ended<V>> {
    let helpers = threads.min(parts.len()).saturating_sub(1);
    let (waiting, ended) = (Mutex::new(parts), Mutex::new(Vec::new()));
    let last = AtomicUsize::new(usize::MAX);
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        // Behind the last one that counts nothing has to be read.
        while let Some(part) = next().filter(|part| part.number < last.load(Ordering::Relaxed)) {
            let part = part.read();
            if !matches!(part.stop, Ok(None)) {
                last.fetch_min(part.number, Ordering::Relaxed);
            }
            ended.lock().unwrap_or_else(PoisonError::into_inner).push(part);
        }
    };
    thread::scope(|scope| {
        for number in 1..=helpers {
            let builder = thread::Builder::new().name(format!("lithedb-log-{number}"));
            if builder.spawn_scoped(scope, work).is_err() {
                break; // Those that there are do what there is.
            }
        }
        work();
    });
    let mut ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.sort_unstable_by_key(|part| part.number);
    ended
}
