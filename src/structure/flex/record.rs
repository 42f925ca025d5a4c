//! Index records: what the edit log of a keyspace's index holds.
//!
//! A snapshot is one header part and any number of interval parts; an edit is one flush slice.
//! All numbers are varints (`base::varint`), signed ones zigzag-coded first.
//!
//! | part | fields |
//! |---|---|
//! | header | counters; sweep key (length, bytes); begun flushes; segment count; for each: |
//! | | number, end |
//! | intervals | interval count; for each: anchor (length, bytes); run count * 2 + has base; runs |
//! | edit | counters; sweep key; begun flushes; segment count; for each: number, end; changes to |
//! | | the end |
//!
//! | piece | fields |
//! |---|---|
//! | counters | flushes, log end, last stamp, next segment, logical bytes, segment bytes |
//! | begun flushes | count; for each: key (length, bytes), last stamp |
//! | run | segment - that of the run before, offset - end of the run before, length, checksum |
//! | | (4 bytes, little-endian), entries, level (1 byte; bit 7: has stamp, bit 6: has expiring |
//! | | entries), stamp - that of the run before that has one, expiring entries, when the first |
//! | | expires (milliseconds since 1970), when the last does - that, value file count; for |
//! | | each: number - that of the one before, bytes of the records that the run points to |
//! | change: delta | 0, intervals skipped, newest deltas replaced, run |
//! | change: replace | 1, intervals skipped, intervals removed, intervals added; for each: |
//! | | anchor (length, bytes), has base, run |
//! | change: insert | 2, intervals skipped, intervals removed, intervals added; for each, as in |
//! | | an intervals part: anchor, run count * 2 + has base; runs |

use std::ops::Range;

use super::interval::Run;
use crate::base::{ExpirySpan, MOMENT_MAX, SeqNo, Slice, varint};
use crate::manifest::EditLog;
use crate::structure::{BegunFlush, ValueShare};

/// Counters that the index carries, each since the keyspace was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub flush_count: u64,
    /// The log in front of this position is in the structure.
    pub log_end: u64,
    pub last_seqno: SeqNo,
    /// The number of the next segment. Numbers are never used twice.
    pub next_segment: u64,
    /// Key and value bytes flushed.
    pub logical_bytes: u64,
    /// Bytes written to segments.
    pub segment_bytes: u64,
}

/// Where a run lies, with the segment by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunRecord {
    pub segment: u64,
    pub offset: u64,
    pub len: u32,
    pub checksum: u32,
    pub entry_count: u32,
    pub level: u8,
    /// The stamp of every entry, of a run that was written before that was known.
    pub stamp: Option<SeqNo>,
    /// How many entries expire, and when.
    pub expiring: Option<ExpirySpan>,
    pub values: Vec<ValueShare>,
}

impl From<&Run> for RunRecord {
    fn from(run: &Run) -> RunRecord {
        RunRecord {
            segment: run.segment.number,
            offset: run.offset,
            len: run.len,
            checksum: run.checksum,
            entry_count: run.entry_count,
            level: run.level,
            stamp: run.stamp,
            expiring: run.expiring.as_deref().copied(),
            values: run.values().map(|(file, bytes)| ValueShare { file, bytes }).collect(),
        }
    }
}

/// An interval without its delta runs' history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IntervalRecord {
    pub anchor: Slice,
    pub base: Option<RunRecord>,
    pub deltas: Vec<RunRecord>,
}

/// A change to the tree; indices are those before the edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangeRecord {
    /// `run` takes the place of the `replaced` newest deltas of the interval at `index`.
    Delta { index: usize, replaced: usize, run: RunRecord },
    /// Consolidated intervals take the place of others.
    Replace { range: Range<usize>, intervals: Vec<(Slice, Option<RunRecord>)> },
    /// Intervals that an ingest makes, with new runs on what is left of older ones.
    Insert { range: Range<usize>, intervals: Vec<IntervalRecord> },
}

impl ChangeRecord {
    pub(super) fn range(&self) -> Range<usize> {
        match self {
            ChangeRecord::Delta { index, .. } => *index..index + 1,
            ChangeRecord::Replace { range, .. } | ChangeRecord::Insert { range, .. } => {
                range.clone()
            }
        }
    }

    /// The runs that it brings.
    pub(super) fn runs_mut(&mut self) -> Box<dyn Iterator<Item = &mut RunRecord> + '_> {
        match self {
            ChangeRecord::Delta { run, .. } => Box::new(std::iter::once(run)),
            ChangeRecord::Replace { intervals, .. } => {
                Box::new(intervals.iter_mut().filter_map(|(_, base)| base.as_mut()))
            }
            ChangeRecord::Insert { intervals, .. } => Box::new(
                intervals.iter_mut().flat_map(|new| new.base.iter_mut().chain(&mut new.deltas)),
            ),
        }
    }
}

/// One flush slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EditRecord {
    pub counters: Counters,
    /// Where the next sweep goes on.
    pub sweep_from: Vec<u8>,
    /// Memtables that are in the structure in part (X8).
    pub begun: Vec<BegunFlush>,
    /// Segments written to, and where they end now.
    pub segments: Vec<(u64, u64)>,
    pub changes: Vec<ChangeRecord>,
}

const CHANGE_DELTA: u64 = 0;
const CHANGE_REPLACE: u64 = 1;
const CHANGE_INSERT: u64 = 2;
/// Bit of a run's level that says that a stamp follows.
const HAS_STAMP: u8 = 1 << 7;
/// Bit of a run's level that says that it has entries that expire.
const HAS_EXPIRING: u8 = 1 << 6;
const FLAGS: u8 = HAS_STAMP | HAS_EXPIRING;

/// Encodes records; the runs in one record are relative to each other.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    out: Vec<u8>,
    segment: u64,
    end: u64,
    stamp: u64,
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

impl Encoder {
    fn number(&mut self, value: u64) {
        varint::put(&mut self.out, value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn run(&mut self, run: &RunRecord) {
        self.number(zigzag(run.segment.wrapping_sub(self.segment) as i64));
        self.number(zigzag(run.offset.wrapping_sub(self.end) as i64));
        self.number(u64::from(run.len));
        self.out.extend_from_slice(&run.checksum.to_le_bytes());
        self.number(u64::from(run.entry_count));
        debug_assert!(run.level & FLAGS == 0);
        let has_stamp = if run.stamp.is_some() { HAS_STAMP } else { 0 };
        let has_expiring = if run.expiring.is_some() { HAS_EXPIRING } else { 0 };
        self.out.push(run.level | has_stamp | has_expiring);
        if let Some(stamp) = run.stamp {
            self.number(zigzag(stamp.as_u64().wrapping_sub(self.stamp) as i64));
            self.stamp = stamp.as_u64();
        }
        if let Some(span) = run.expiring {
            self.number(u64::from(span.count));
            self.number(span.first);
            self.number(span.last - span.first);
        }
        self.number(run.values.len() as u64);
        let mut before = 0;
        for share in &run.values {
            self.number(share.file.wrapping_sub(before));
            self.number(share.bytes);
            before = share.file;
        }
        self.segment = run.segment;
        self.end = run.offset.wrapping_add(u64::from(run.len));
    }

    fn state(&mut self, edit: &EditRecord) {
        let counters = &edit.counters;
        for value in [
            counters.flush_count,
            counters.log_end,
            counters.last_seqno.as_u64(),
            counters.next_segment,
            counters.logical_bytes,
            counters.segment_bytes,
        ] {
            self.number(value);
        }
        self.bytes(&edit.sweep_from);
        self.number(edit.begun.len() as u64);
        for flush in &edit.begun {
            self.bytes(&flush.to);
            self.number(flush.last_seqno.as_u64());
        }
        self.number(edit.segments.len() as u64);
        for &(number, end) in &edit.segments {
            self.number(number);
            self.number(end);
        }
    }

    /// The header part of a snapshot, of an edit without changes.
    pub(super) fn header(state: &EditRecord) -> Vec<u8> {
        debug_assert!(state.changes.is_empty());
        let mut encoder = Encoder::default();
        encoder.state(state);
        encoder.out
    }

    fn interval(&mut self, interval: &IntervalRecord) {
        self.bytes(&interval.anchor);
        let has_base = u64::from(interval.base.is_some());
        let run_count = interval.deltas.len() as u64 + has_base;
        self.number(run_count * 2 + has_base);
        interval.base.iter().chain(&interval.deltas).for_each(|run| self.run(run));
    }

    /// An edit.
    pub(super) fn edit(edit: &EditRecord) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.state(edit);
        let mut done = 0;
        for change in &edit.changes {
            let range = change.range();
            match change {
                ChangeRecord::Delta { replaced, run, .. } => {
                    encoder.number(CHANGE_DELTA);
                    encoder.number((range.start - done) as u64);
                    encoder.number(*replaced as u64);
                    encoder.run(run);
                }
                ChangeRecord::Replace { intervals, .. } => {
                    encoder.number(CHANGE_REPLACE);
                    encoder.number((range.start - done) as u64);
                    encoder.number(range.len() as u64);
                    encoder.number(intervals.len() as u64);
                    for (anchor, base) in intervals {
                        encoder.bytes(anchor);
                        encoder.number(u64::from(base.is_some()));
                        base.iter().for_each(|run| encoder.run(run));
                    }
                }
                ChangeRecord::Insert { intervals, .. } => {
                    encoder.number(CHANGE_INSERT);
                    encoder.number((range.start - done) as u64);
                    encoder.number(range.len() as u64);
                    encoder.number(intervals.len() as u64);
                    intervals.iter().for_each(|interval| encoder.interval(interval));
                }
            }
            done = range.end;
        }
        encoder.out
    }
}

/// An interval part of a snapshot that has this many bytes gets no more intervals. One of them
/// takes some megabytes at most, as it has few runs, each with few value files against its entries:
/// so every part is far below [`EditLog::EDIT_LEN_MAX`], however long anchors are, and however many
/// value files runs point into.
const PART_SIZE: usize = 64 << 10;
const _: () = assert!(PART_SIZE <= EditLog::EDIT_LEN_MAX / 16);

/// Gathers the interval parts of a snapshot.
#[derive(Debug, Default)]
pub(super) struct IntervalParts {
    /// Of the part at hand, without its count.
    encoder: Encoder,
    count: u64,
}

impl IntervalParts {
    /// Adds an interval; returns the part that is full with it.
    pub(super) fn add(&mut self, interval: &IntervalRecord) -> Option<Vec<u8>> {
        self.encoder.interval(interval);
        self.count += 1;
        (self.encoder.out.len() >= PART_SIZE).then(|| std::mem::take(self).finish())
    }

    /// What is left, as a part: perhaps one without intervals.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut part =
            Encoder { out: Vec::with_capacity(self.encoder.out.len() + 10), ..Default::default() };
        part.number(self.count);
        part.out.extend_from_slice(&self.encoder.out);
        part.out
    }
}

/// Decodes records. Every method answers `None` when the bytes are not what they should be; no
/// length is believed beyond the bytes that are there.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
    segment: u64,
    end: u64,
    stamp: u64,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, position: 0, segment: 0, end: 0, stamp: 0 }
    }

    fn number(&mut self) -> Option<u64> {
        varint::take(self.bytes, &mut self.position)
    }

    /// A count of things that take at least one byte each.
    fn count(&mut self) -> Option<usize> {
        let count = varint::take_usize(self.bytes, &mut self.position)?;
        (count <= self.bytes.len() - self.position).then_some(count)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.count()?;
        let bytes = &self.bytes[self.position..self.position + len];
        self.position += len;
        Some(bytes)
    }

    fn run(&mut self) -> Option<RunRecord> {
        let segment = self.segment.wrapping_add(unzigzag(self.number()?) as u64);
        let offset = self.end.wrapping_add(unzigzag(self.number()?) as u64);
        let len = u32::try_from(self.number()?).ok()?;
        let sum = self.bytes.get(self.position..self.position + 4)?;
        self.position += 4;
        let checksum = u32::from_le_bytes(sum.try_into().expect("four bytes"));
        let entry_count = u32::try_from(self.number()?).ok()?;
        let level = *self.bytes.get(self.position)?;
        self.position += 1;
        self.segment = segment;
        self.end = offset.checked_add(u64::from(len))?;
        let stamp = if level & HAS_STAMP == 0 { None } else { Some(self.stamp()?) };
        let expiring = if level & HAS_EXPIRING == 0 { None } else { Some(self.span(entry_count)?) };
        let (level, values) = (level & !FLAGS, self.shares()?);
        Some(RunRecord {
            segment,
            offset,
            len,
            checksum,
            entry_count,
            level,
            stamp,
            expiring,
            values,
        })
    }

    /// Of a run with so many entries.
    fn span(&mut self, entry_count: u32) -> Option<ExpirySpan> {
        let count = u32::try_from(self.number()?).ok()?;
        let first = self.number()?;
        let last = first.checked_add(self.number()?)?;
        let is_one = (1..=entry_count).contains(&count) && last <= MOMENT_MAX;
        is_one.then_some(ExpirySpan { count, first, last })
    }

    fn stamp(&mut self) -> Option<SeqNo> {
        self.stamp = self.stamp.wrapping_add(unzigzag(self.number()?) as u64);
        Some(SeqNo::from_u64(self.stamp))
    }

    fn shares(&mut self) -> Option<Vec<ValueShare>> {
        let count = self.count()?;
        let mut shares: Vec<ValueShare> = Vec::with_capacity(count);
        for _ in 0..count {
            let before = shares.last().map_or(0, |share| share.file);
            // Rising: a file of number 0 there is not.
            let step = self.number()?;
            let file = before.checked_add(step).filter(|_| step > 0)?;
            shares.push(ValueShare { file, bytes: self.number()? });
        }
        Some(shares)
    }

    fn state(&mut self) -> Option<EditRecord> {
        let counters = Counters {
            flush_count: self.number()?,
            log_end: self.number()?,
            last_seqno: SeqNo::from_u64(self.number()?),
            next_segment: self.number()?,
            logical_bytes: self.number()?,
            segment_bytes: self.number()?,
        };
        let sweep_from = self.bytes()?.to_vec();
        let begun = (0..self.count()?).map(|_| self.begun_flush()).collect::<Option<_>>()?;
        let segments = (0..self.count()?)
            .map(|_| Some((self.number()?, self.number()?)))
            .collect::<Option<_>>()?;
        Some(EditRecord { counters, sweep_from, begun, segments, changes: Vec::new() })
    }

    fn begun_flush(&mut self) -> Option<BegunFlush> {
        let to = Slice::from(self.bytes()?);
        Some(BegunFlush { to, last_seqno: SeqNo::from_u64(self.number()?) })
    }

    fn at_end(&self) -> Option<()> {
        (self.position == self.bytes.len()).then_some(())
    }

    /// The header part of a snapshot, as an edit without changes.
    pub(super) fn header(bytes: &'a [u8]) -> Option<EditRecord> {
        let mut decoder = Decoder::new(bytes);
        let state = decoder.state()?;
        decoder.at_end()?;
        Some(state)
    }

    /// An interval part of a snapshot.
    pub(super) fn intervals(bytes: &'a [u8]) -> Option<Vec<IntervalRecord>> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.count()?;
        let intervals = (0..count).map(|_| decoder.interval()).collect::<Option<_>>()?;
        decoder.at_end()?;
        Some(intervals)
    }

    fn interval(&mut self) -> Option<IntervalRecord> {
        let anchor = Slice::from(self.bytes()?);
        let packed = self.count()?;
        let (run_count, has_base) = (packed / 2, packed % 2 == 1);
        let mut runs = (0..run_count).map(|_| self.run()).collect::<Option<Vec<_>>>()?.into_iter();
        let base = if has_base { Some(runs.next()?) } else { None };
        Some(IntervalRecord { anchor, base, deltas: runs.collect() })
    }

    /// An edit.
    pub(super) fn edit(bytes: &'a [u8]) -> Option<EditRecord> {
        let mut decoder = Decoder::new(bytes);
        let mut edit = decoder.state()?;
        let mut done = 0usize;
        while decoder.position < bytes.len() {
            let kind = decoder.number()?;
            let start = done.checked_add(usize::try_from(decoder.number()?).ok()?)?;
            let change = match kind {
                CHANGE_DELTA => {
                    let replaced = usize::try_from(decoder.number()?).ok()?;
                    start.checked_add(1)?;
                    ChangeRecord::Delta { index: start, replaced, run: decoder.run()? }
                }
                CHANGE_REPLACE => {
                    let end = start.checked_add(usize::try_from(decoder.number()?).ok()?)?;
                    let intervals = (0..decoder.count()?)
                        .map(|_| decoder.new_interval())
                        .collect::<Option<_>>()?;
                    ChangeRecord::Replace { range: start..end, intervals }
                }
                CHANGE_INSERT => {
                    let end = start.checked_add(usize::try_from(decoder.number()?).ok()?)?;
                    let intervals =
                        (0..decoder.count()?).map(|_| decoder.interval()).collect::<Option<_>>()?;
                    ChangeRecord::Insert { range: start..end, intervals }
                }
                _ => return None,
            };
            done = change.range().end;
            edit.changes.push(change);
        }
        Some(edit)
    }

    fn new_interval(&mut self) -> Option<(Slice, Option<RunRecord>)> {
        let anchor = Slice::from(self.bytes()?);
        let base = match self.number()? {
            0 => None,
            1 => Some(self.run()?),
            _ => return None,
        };
        Some((anchor, base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(segment: u64, offset: u64, level: u8) -> RunRecord {
        let entry_count = 130 + u32::from(level);
        let share = |file| ValueShare { file, bytes: 5000 + file };
        let values = (0..u64::from(level)).map(|number| share(7 + number * 200)).collect();
        let checksum = 0xDEAD_BEEF;
        let stamp = (level == 2).then(|| SeqNo::from_parts(1_700_000_000_000 + segment, 3));
        let expiring = (level == 1).then(|| ExpirySpan {
            count: 7,
            first: 1_700_000_000_000,
            last: 1_700_000_000_000 + segment,
        });
        let len = 16_400;
        RunRecord { segment, offset, len, checksum, entry_count, level, stamp, expiring, values }
    }

    fn sample() -> EditRecord {
        EditRecord {
            counters: Counters {
                flush_count: 3,
                log_end: 1 << 40,
                last_seqno: SeqNo::from_parts(1_700_000_000_000, 7),
                next_segment: 12,
                logical_bytes: 5_000_000,
                segment_bytes: 9_000_000,
            },
            sweep_from: b"key\xFF".to_vec(),
            begun: vec![BegunFlush {
                to: Slice::from(&b"m"[..]),
                last_seqno: SeqNo::from_parts(1_700_000_000_001, 0),
            }],
            segments: vec![(10, 4 << 20), (11, 70_000)],
            changes: vec![
                ChangeRecord::Delta { index: 0, replaced: 0, run: run(10, 40, 0) },
                ChangeRecord::Replace {
                    range: 3..5,
                    intervals: vec![
                        (Slice::from(&b"a"[..]), Some(run(11, 40, 0))),
                        (Slice::from(&b"b"[..]), None),
                    ],
                },
                ChangeRecord::Delta { index: 5, replaced: 8, run: run(10, 16_440, 1) },
                ChangeRecord::Insert {
                    range: 9..9,
                    intervals: vec![IntervalRecord {
                        anchor: Slice::from(&b"c"[..]),
                        base: Some(run(11, 16_440, 2)),
                        deltas: vec![run(12, 40, 2)],
                    }],
                },
            ],
        }
    }

    #[test]
    fn an_edit_round_trips_and_no_cut_of_it_is_taken_for_another() {
        let edit = sample();
        let bytes = Encoder::edit(&edit);
        assert_eq!(Decoder::edit(&bytes), Some(edit.clone()));
        for cut in 0..bytes.len() {
            assert_ne!(Decoder::edit(&bytes[..cut]), Some(edit.clone()), "cut at {cut}");
        }
    }

    #[test]
    fn a_snapshot_round_trips() {
        let edit = sample();
        let expected = EditRecord { changes: Vec::new(), ..edit };
        let header = Encoder::header(&expected);
        assert_eq!(Decoder::header(&header), Some(expected));
        let intervals = vec![
            IntervalRecord { anchor: Slice::default(), base: None, deltas: vec![run(4, 99, 2)] },
            IntervalRecord {
                anchor: Slice::from(&b"m"[..]),
                base: Some(run(2, 40, 0)),
                deltas: vec![run(3, 40, 0), run(9, 1 << 33, 0)],
            },
        ];
        let mut parts = IntervalParts::default();
        assert!(intervals.iter().all(|interval| parts.add(interval).is_none()));
        let bytes = parts.finish();
        assert_eq!(Decoder::intervals(&bytes), Some(intervals));
        for cut in 0..bytes.len() {
            assert_eq!(Decoder::intervals(&bytes[..cut]), None, "cut at {cut}");
        }
    }

    /// Of intervals whose runs point into many value files a thousand took more than an edit may.
    #[test]
    fn parts_are_bounded_by_their_bytes() {
        let shares = |first: u64| {
            (first..first + 7000).map(|file| ValueShare { file, bytes: u64::MAX - file }).collect()
        };
        let record = |number: u64| {
            let mut anchor = vec![0x5a; 60_000];
            anchor.extend_from_slice(&number.to_be_bytes());
            let base = RunRecord { values: shares(number + 1), ..run(2, 40, 0) };
            IntervalRecord { anchor: Slice::from(anchor), base: Some(base), deltas: Vec::new() }
        };
        let mut parts = IntervalParts::default();
        let (mut whole, mut found, mut largest) = (0, 0, 0);
        for number in 0..1024 {
            let Some(part) = parts.add(&record(number)) else { continue };
            (whole, largest) = (whole + part.len(), largest.max(part.len()));
            for interval in Decoder::intervals(&part).expect("a whole part") {
                assert_eq!(interval, record(found));
                found += 1;
            }
        }
        assert_eq!(Decoder::intervals(&parts.finish()), Some(Vec::new()));
        assert_eq!(found, 1024);
        assert!(whole > 2 * EditLog::EDIT_LEN_MAX, "{whole} bytes");
        assert!(largest < PART_SIZE + (256 << 10), "{largest} bytes");
    }
}
