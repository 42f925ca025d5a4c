//! Index records: what the edit log of a keyspace's index holds.
//!
//! A snapshot is one header part and any number of table parts; an edit is a flush, a compaction,
//! an ingest, or values that were moved. All numbers are varints (`base::varint`).
//!
//! | part | fields |
//! |---|---|
//! | header | counters |
//! | tables | table count; for each: table |
//! | edit | counters; count of removed tables; for each: number; count of added ones; tables |
//!
//! | piece | fields |
//! |---|---|
//! | counters | flushes, log end, last stamp, next table, next run, logical bytes, table bytes |
//! | table | level, run, number, size, checksum of the footer (4 bytes, little-endian), first key |
//! | | (length, bytes), flags, end (length, bytes) if flag 1, entries, tombstones, deleted |
//! | | ranges, hidden entries, logical bytes, stamp if flag 2, oldest stamp, newest stamp; if |
//! | | flag 4 entries that expire, when the first does (milliseconds since 1970), when the |
//! | | last does - that; if flag 8 the origin (8 bytes, little-endian); value file count; for |
//! | | each: number - that of the one before, bytes of the records pointed to |

use super::table::TableRecord;
use crate::base::{ExpirySpan, SeqNo, Slice, varint};
use crate::manifest::EditLog;
use crate::structure::ValueShare;

/// Levels that there are.
pub(super) const LEVEL_COUNT: usize = 7;

const HAS_END: u64 = 1;
const HAS_STAMP: u64 = 2;
const HAS_EXPIRING: u64 = 4;
const HAS_ORIGIN: u64 = 8;
const FLAGS: u64 = HAS_END | HAS_STAMP | HAS_EXPIRING | HAS_ORIGIN;

/// Counters that the index carries, each since the keyspace was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub flush_count: u64,
    /// The log in front of this position is in the structure.
    pub log_end: u64,
    pub last_seqno: SeqNo,
    /// The number of the next table. Numbers are never used twice.
    pub next_table: u64,
    /// The id of the next run of level 0.
    pub next_run: u64,
    /// Key and value bytes flushed.
    pub logical_bytes: u64,
    /// Bytes written to tables.
    pub table_bytes: u64,
}

/// Which run a table is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunPlace {
    pub level: u8,
    /// Tells the runs of level 0 apart; the higher, the newer. 0 in the other levels.
    pub id: u64,
}

impl RunPlace {
    /// The one run of a level below 0.
    pub(super) fn of_level(level: u8) -> RunPlace {
        debug_assert!(level > 0);
        RunPlace { level, id: 0 }
    }

    /// Orders runs, the newest first.
    pub(super) fn rank(self) -> (u8, std::cmp::Reverse<u64>) {
        (self.level, std::cmp::Reverse(self.id))
    }
}

/// A table and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedTable {
    pub run: RunPlace,
    pub table: TableRecord,
}

/// A change of the set of tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EditRecord {
    pub counters: Counters,
    pub removed: Vec<u64>,
    pub added: Vec<PlacedTable>,
}

/// Encodes records.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    out: Vec<u8>,
}

impl Encoder {
    fn number(&mut self, value: u64) {
        varint::put(&mut self.out, value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn counters(&mut self, counters: &Counters) {
        for value in [
            counters.flush_count,
            counters.log_end,
            counters.last_seqno.as_u64(),
            counters.next_table,
            counters.next_run,
            counters.logical_bytes,
            counters.table_bytes,
        ] {
            self.number(value);
        }
    }

    fn placed(&mut self, PlacedTable { run, table }: &PlacedTable) {
        self.number(u64::from(run.level));
        self.number(run.id);
        self.number(table.number);
        self.number(table.size);
        self.out.extend_from_slice(&table.checksum.to_le_bytes());
        self.bytes(&table.first);
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        self.number(
            flag(table.end.is_some(), HAS_END)
                | flag(table.stamp.is_some(), HAS_STAMP)
                | flag(table.expiring.is_some(), HAS_EXPIRING)
                | flag(table.origin.is_some(), HAS_ORIGIN),
        );
        if let Some(end) = &table.end {
            self.bytes(end);
        }
        self.number(table.entry_count);
        self.number(table.tombstones);
        self.number(u64::from(table.deleted_ranges));
        self.number(table.hides);
        self.number(table.logical_bytes);
        if let Some(stamp) = table.stamp {
            self.number(stamp.as_u64());
        }
        self.number(table.oldest.as_u64());
        self.number(table.newest.as_u64());
        if let Some(span) = table.expiring {
            self.number(u64::from(span.count));
            self.number(span.first);
            self.number(span.last - span.first);
        }
        if let Some(origin) = table.origin {
            self.out.extend_from_slice(&origin.to_le_bytes());
        }
        self.number(table.values.len() as u64);
        let mut before = 0;
        for share in &table.values {
            self.number(share.file.wrapping_sub(before));
            self.number(share.bytes);
            before = share.file;
        }
    }

    /// The header part of a snapshot.
    pub(super) fn header(counters: &Counters) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.counters(counters);
        encoder.out
    }

    /// An edit.
    pub(super) fn edit(edit: &EditRecord) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.counters(&edit.counters);
        encoder.number(edit.removed.len() as u64);
        edit.removed.iter().for_each(|number| encoder.number(*number));
        encoder.number(edit.added.len() as u64);
        edit.added.iter().for_each(|table| encoder.placed(table));
        encoder.out
    }
}

/// A table part of a snapshot that has this many bytes gets no more tables. One of them has two
/// keys and a few bytes for each value file that it points into: so every part is far below
/// [`EditLog::EDIT_LEN_MAX`], however many value files there are.
const PART_SIZE: usize = 64 << 10;
const _: () = assert!(PART_SIZE <= EditLog::EDIT_LEN_MAX / 16);

/// Gathers the table parts of a snapshot.
#[derive(Debug, Default)]
pub(super) struct TableParts {
    /// Of the part at hand, without its count.
    encoder: Encoder,
    count: u64,
}

impl TableParts {
    /// Adds a table; returns the part that is full with it.
    pub(super) fn add(&mut self, table: &PlacedTable) -> Option<Vec<u8>> {
        self.encoder.placed(table);
        self.count += 1;
        (self.encoder.out.len() >= PART_SIZE).then(|| std::mem::take(self).finish())
    }

    /// What is left, as a part: perhaps one without tables.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut part = Encoder { out: Vec::with_capacity(self.encoder.out.len() + 10) };
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
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, position: 0 }
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

    fn counters(&mut self) -> Option<Counters> {
        Some(Counters {
            flush_count: self.number()?,
            log_end: self.number()?,
            last_seqno: SeqNo::from_u64(self.number()?),
            next_table: self.number()?,
            next_run: self.number()?,
            logical_bytes: self.number()?,
            table_bytes: self.number()?,
        })
    }

    fn run(&mut self) -> Option<RunPlace> {
        let level = u8::try_from(self.number()?).ok()?;
        let id = self.number()?;
        let is_one = usize::from(level) < LEVEL_COUNT && (level == 0 || id == 0);
        is_one.then_some(RunPlace { level, id })
    }

    fn placed(&mut self) -> Option<PlacedTable> {
        let run = self.run()?;
        let (number, size) = (self.number()?, self.number()?);
        let sum = self.bytes.get(self.position..self.position + 4)?;
        self.position += 4;
        let checksum = u32::from_le_bytes(sum.try_into().expect("four bytes"));
        let first = Slice::from(self.bytes()?);
        let flags = self.number()?;
        if flags & !FLAGS != 0 {
            return None;
        }
        let end = if flags & HAS_END == 0 { None } else { Some(Slice::from(self.bytes()?)) };
        if end.as_ref().is_some_and(|end| *end <= first) {
            return None;
        }
        let (entry_count, tombstones) = (self.number()?, self.number()?);
        let deleted_ranges = u32::try_from(self.number()?).ok()?;
        let (hides, logical_bytes) = (self.number()?, self.number()?);
        let stamp = if flags & HAS_STAMP == 0 { None } else { Some(self.number()?) };
        let (oldest, newest) = (self.number()?, self.number()?);
        let expiring = if flags & HAS_EXPIRING == 0 { None } else { Some(self.span()?) };
        let origin = if flags & HAS_ORIGIN == 0 { None } else { Some(self.origin()?) };
        let table = TableRecord {
            number,
            size,
            checksum,
            first,
            end,
            entry_count,
            tombstones,
            deleted_ranges,
            hides,
            logical_bytes,
            origin,
            stamp: stamp.map(SeqNo::from_u64),
            oldest: SeqNo::from_u64(oldest),
            newest: SeqNo::from_u64(newest),
            expiring,
            values: self.shares()?,
        };
        table.is_consistent().then_some(PlacedTable { run, table })
    }

    fn origin(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.position..)?.first_chunk()?;
        self.position += bytes.len();
        Some(u64::from_le_bytes(*bytes))
    }

    fn span(&mut self) -> Option<ExpirySpan> {
        let count = u32::try_from(self.number()?).ok()?;
        let first = self.number()?;
        let last = first.checked_add(self.number()?)?;
        Some(ExpirySpan { count, first, last })
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

    fn at_end(&self) -> Option<()> {
        (self.position == self.bytes.len()).then_some(())
    }

    /// The header part of a snapshot.
    pub(super) fn header(bytes: &'a [u8]) -> Option<Counters> {
        let mut decoder = Decoder::new(bytes);
        let counters = decoder.counters()?;
        decoder.at_end()?;
        Some(counters)
    }

    /// A table part of a snapshot.
    pub(super) fn tables(bytes: &'a [u8]) -> Option<Vec<PlacedTable>> {
        let mut decoder = Decoder::new(bytes);
        let tables = (0..decoder.count()?).map(|_| decoder.placed()).collect::<Option<_>>()?;
        decoder.at_end()?;
        Some(tables)
    }

    /// An edit.
    pub(super) fn edit(bytes: &'a [u8]) -> Option<EditRecord> {
        let mut decoder = Decoder::new(bytes);
        let counters = decoder.counters()?;
        let removed = (0..decoder.count()?).map(|_| decoder.number()).collect::<Option<_>>()?;
        let added = (0..decoder.count()?).map(|_| decoder.placed()).collect::<Option<_>>()?;
        decoder.at_end()?;
        Some(EditRecord { counters, removed, added })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(number: u64) -> PlacedTable {
        let table = TableRecord {
            number,
            size: 70 << 20,
            checksum: 0xDEAD_BEEF,
            first: Slice::from(&b"apple"[..]),
            end: (number.is_multiple_of(2)).then(|| Slice::from(&b"pear\0"[..])),
            entry_count: 1000,
            tombstones: 7,
            deleted_ranges: number as u32,
            hides: 12,
            logical_bytes: 66_000,
            origin: (number.is_multiple_of(4)).then_some(number << 40),
            stamp: (number.is_multiple_of(3)).then(|| SeqNo::from_u64(77)),
            oldest: SeqNo::from_u64(70),
            newest: SeqNo::from_u64(90),
            expiring: (number.is_multiple_of(5)).then_some(ExpirySpan {
                count: 3,
                first: 10,
                last: 90,
            }),
            values: (1..number % 4).map(|file| ValueShare { file, bytes: file << 20 }).collect(),
        };
        let id = if number.is_multiple_of(7) { number } else { 0 };
        PlacedTable { run: RunPlace { level: (number % 7) as u8, id }, table }
    }

    #[test]
    fn records_come_back_and_every_shortened_one_is_refused() {
        let counters =
            Counters { flush_count: 1, log_end: 2, next_table: 300, ..Counters::default() };
        let added: Vec<PlacedTable> = (1..40).map(table).collect();
        let edit = EditRecord { counters, removed: vec![3, 9], added: added.clone() };
        let bytes = Encoder::edit(&edit);
        assert_eq!(Decoder::edit(&bytes), Some(edit));
        for len in 0..bytes.len() {
            assert_eq!(Decoder::edit(&bytes[..len]), None, "{len} bytes");
        }
        let mut parts = TableParts::default();
        assert!(added.iter().all(|table| parts.add(table).is_none()));
        let tables = parts.finish();
        assert_eq!(Decoder::tables(&tables), Some(added));
        assert_eq!(Decoder::header(&Encoder::header(&counters)), Some(counters));
        assert_eq!(Decoder::header(&tables), None);
    }

    /// Of tables that point into many value files some hundreds took more than an edit may.
    #[test]
    fn parts_are_bounded_by_their_bytes() {
        let pointing = |number: u64| {
            let mut placed = table(number);
            let files = 1..30_000 + number;
            placed.table.values =
                files.map(|file| ValueShare { file, bytes: u64::MAX - file }).collect();
            placed
        };
        let mut parts = TableParts::default();
        let (mut whole, mut found, mut largest) = (0, 1, 0);
        for number in 1..257 {
            let part = parts.add(&pointing(number)).expect("one is enough");
            (whole, largest) = (whole + part.len(), largest.max(part.len()));
            for placed in Decoder::tables(&part).expect("a whole part") {
                assert_eq!(placed, pointing(found));
                found += 1;
            }
        }
        assert_eq!(Decoder::tables(&parts.finish()), Some(Vec::new()));
        assert_eq!(found, 257);
        assert!(whole > EditLog::EDIT_LEN_MAX, "{whole} bytes");
        assert!(largest < PART_SIZE + (512 << 10), "{largest} bytes");
    }
}
