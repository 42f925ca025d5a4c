//! The layers of an Lsm store that is damaged.
//!
//! A table is read from its start to its end, frame by frame, and needs none of its indexes: data
//! blocks lie in the order of their keys, so that the blocks around damage say which keys may be
//! lost. Whether any are, says the number of entries. With the index of the keyspace each table is
//! a layer as new as its run; without it stamps say which entry of a key is the newest. What
//! tables delete in older ones is then not known to be older or newer than anything: it is left
//! out, and may be there again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::Index;
use super::store::table_place;
use super::table::{
    EXTENSION_LEN, FOOTER_LEN, FooterView, HEADER_LEN, TableIdentity, TablePlace, TableRecord,
    decode_properties, decode_ranges,
};
use crate::base::{Cursor, Error, RangeTombstones, Result, SeqNo, Slice, successor};
use crate::block::{Block, BlockCursor, Dictionary, FrameKind};
use crate::manifest::LogPosition;
use crate::structure::StorePlace;
use crate::structure::flex::key_in_header;
use crate::structure::salvage::{
    Damage, FoundFrame, Gap, Layer, LayerPlan, Order, Owner, Passed, Piece, SalvageFile,
    SalvagedStore, StoreState, is_damage,
};

/// See `structure::salvage`.
pub(in crate::structure) fn salvage(
    place: &StorePlace,
    required: Option<LogPosition>,
) -> Result<SalvagedStore> {
    let tables = table_place(place);
    match Index::read_up_to(&tables, required) {
        Ok(index) => Ok(with_index(&tables, &index)),
        Err(error) if is_damage(&error) => without_index(&tables, &error),
        Err(error) => Err(error),
    }
}

fn with_index(tables: &Arc<TablePlace>, index: &Index) -> SalvagedStore {
    let mut layers = Vec::new();
    for (rank, run) in index.runs.iter().enumerate() {
        for table in &*run.tables {
            let record = table.record.clone();
            let (first, end) = (record.first.clone(), record.end.clone());
            let tables = Arc::clone(tables);
            let open = move || TableLayer::open(&tables, record.number, Some(&record));
            layers.push(LayerPlan { first, end, rank: rank as u64, open: Box::new(open) });
        }
    }
    let (log_end, last_seqno) = (index.counters.log_end, index.counters.last_seqno);
    let state = StoreState { log_end, last_seqno, begun: Vec::new() };
    SalvagedStore { state: Some(state), order: Order::Ranks, layers, damage: Vec::new() }
}

fn without_index(tables: &Arc<TablePlace>, why: &Error) -> Result<SalvagedStore> {
    let mut damage = vec![Damage::of(why, tables.dir())];
    let numbers = match tables.numbers() {
        Ok(numbers) => numbers,
        Err(error) if is_damage(&error) => {
            damage.push(Damage::of(&error, tables.dir()));
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    let mut layers = Vec::new();
    for number in numbers {
        let mut layer = match TableLayer::of(tables, number, None) {
            Ok(layer) => layer,
            Err(error) if is_damage(&error) => {
                damage.push(Damage::of(&error, &tables.path_of(number)));
                continue;
            }
            Err(error) => return Err(error),
        };
        damage.extend(layer.file.header_damage.clone());
        let first = layer.first_key();
        let tables = Arc::clone(tables);
        // Read again when its turn comes: there may be many.
        let open = move || TableLayer::open(&tables, number, None);
        layers.push(LayerPlan { first, end: None, rank: 0, open: Box::new(open) });
    }
    Ok(SalvagedStore { state: None, order: Order::Stamps, layers, damage })
}

/// Which file a table must be.
fn owner_of(identity: TableIdentity) -> Owner {
    let key_in = |header: &[u8], owner: &Owner| {
        let found = TableIdentity::decode(header)?;
        (found.tag() == owner.tag).then(|| key_in_header(header))
    };
    Owner { tag: identity.tag(), identity: identity.file(), header_len: HEADER_LEN, key_in }
}

/// What the index says of a table, or else that it is one of the keyspace, or made outside.
fn identity_of(tables: &TablePlace, number: u64, record: Option<&TableRecord>) -> TableIdentity {
    let (database, keyspace) = (tables.database(), tables.keyspace());
    let own = TableIdentity { database, keyspace, number };
    let origin = match record {
        Some(record) => record.origin,
        None => {
            let opened =
                SalvageFile::open(&**tables.storage(), &tables.path_of(number), &owner_of(own));
            let header = opened.ok().and_then(|mut file| {
                let header = file.bytes_at(0, HEADER_LEN).ok().flatten();
                header.and_then(TableIdentity::decode)
            });
            header.and_then(TableIdentity::origin)
        }
    };
    origin.map_or(own, TableIdentity::outside)
}

/// A table, frame by frame.
#[derive(Debug)]
struct TableLayer {
    file: SalvageFile,
    /// Data blocks that are to come, each with where in front of it something does not verify.
    blocks: VecDeque<(FoundFrame, Option<u64>)>,
    /// Where something behind the last one does not verify.
    tail: Option<u64>,
    dictionary: Option<Dictionary>,
    deleted: Option<RangeTombstones>,
    /// The stamp of every entry.
    stamp: Option<SeqNo>,
    /// What lies in gaps is lost: there are fewer entries than were written.
    is_short: bool,
    /// Where the block lies that was given last.
    given: u64,
    /// Gaps start here at the earliest, and end here at the latest.
    reached: Slice,
    end: Option<Slice>,
    ready: VecDeque<Piece>,
}

/// A table that cannot be opened, or is another one.
#[derive(Debug)]
struct LostTable {
    gap: Option<Gap>,
    path: PathBuf,
}

impl Layer for LostTable {
    fn next_piece(&mut self) -> Option<Piece> {
        self.gap.take().map(Piece::Gap)
    }

    fn place(&self) -> (&Path, u64) {
        (&self.path, 0)
    }
}

impl TableLayer {
    /// The layer, a gap where there is nothing to be read.
    fn open(
        tables: &TablePlace,
        number: u64,
        record: Option<&TableRecord>,
    ) -> Result<Box<dyn Layer>> {
        match TableLayer::of(tables, number, record) {
            Ok(layer) => Ok(Box::new(layer)),
            Err(error) if is_damage(&error) => {
                let path = tables.path_of(number);
                let damage = Damage::of(&error, &path);
                let start = record.map(|record| record.first.clone()).unwrap_or_default();
                let end = record.and_then(|record| record.end.clone());
                Ok(Box::new(LostTable { gap: Some(Gap { start, end, damage }), path }))
            }
            Err(error) => Err(error),
        }
    }

    /// Looks at all frames of the table.
    fn of(tables: &TablePlace, number: u64, record: Option<&TableRecord>) -> Result<TableLayer> {
        let owner = owner_of(identity_of(tables, number, record));
        let file = SalvageFile::open(&**tables.storage(), &tables.path_of(number), &owner)?;
        let mut layer = TableLayer {
            file,
            blocks: VecDeque::new(),
            tail: None,
            dictionary: None,
            deleted: None,
            stamp: record.and_then(|record| record.stamp),
            is_short: false,
            given: 0,
            reached: record.map(|record| record.first.clone()).unwrap_or_default(),
            end: record.and_then(|record| record.end.clone()),
            ready: VecDeque::new(),
        };
        record.map_or(Ok(()), |record| layer.expect_same(record))?;
        layer.survey(record)?;
        Ok(layer)
    }

    /// A table of this number whose footer is whole, and not the one that the index points to, is
    /// of another life of the database: all of its blocks verify, and none of them belongs here.
    fn expect_same(&mut self, record: &TableRecord) -> Result<()> {
        let (size, tag) = (self.file.size, self.file.tag());
        let len = size.min(FOOTER_LEN + EXTENSION_LEN);
        let end = self.file.bytes_at(size - len, len).ok().flatten();
        let Some(footer) = end.and_then(|end| FooterView::of(end, tag, size)) else {
            let what = "expected the footer of the table, found other bytes";
            let damage = Damage::new(&self.file.path, size.saturating_sub(FOOTER_LEN), what);
            self.ready.push_back(Piece::Harmless(damage));
            return Ok(());
        };
        if footer.checksum == record.checksum {
            return Ok(());
        }
        let (expected, found) = (record.checksum, footer.checksum);
        let what = format!(
            "expected the table that the index points to, {expected:08x}, found another one of its \
             number, {found:08x}"
        );
        Err(Error::corruption(&self.file.path, size - FOOTER_LEN, what))
    }

    fn survey(&mut self, record: Option<&TableRecord>) -> Result<()> {
        let mut expected = record.map(|record| (record.entry_count, record.deleted_ranges));
        let (mut offset, mut counted, mut damaged_at) = (HEADER_LEN, 0, None);
        loop {
            let (found, passed) = self.file.next_frame(offset);
            // U4: there is nothing between frames, so that zeros are damage as well.
            let passed = passed.filter(|passed| !self.is_footer(passed));
            damaged_at = damaged_at.or(passed.map(|passed| passed.range.start));
            let Some(found) = found else { break };
            let at = found.offset;
            offset = at + found.len;
            let taken = match found.kind {
                kind if kind == FrameKind::Entries as u8 => {
                    let count = self.file.block(&found, self.dictionary.as_ref());
                    let count = count.map(|block| block.entry_count() as u64);
                    count.map(|count| {
                        counted += count;
                        self.blocks.push_back((found, damaged_at.take()));
                    })
                }
                kind if kind == FrameKind::Dictionary as u8 => self.take_dictionary(&found),
                kind if kind == FrameKind::DeletedRanges as u8 => self.take_ranges(&found),
                kind if kind == FrameKind::Properties as u8 && expected.is_none() => {
                    let payload = self.file.payload(&found, FrameKind::Properties, None);
                    payload.map(|(data, range)| expected = decode_properties(&data[range]))
                }
                _ => Ok(()),
            };
            match taken {
                Err(error) if !is_damage(&error) => return Err(error),
                Err(_) => damaged_at = damaged_at.or(Some(at)),
                Ok(()) => {}
            }
        }
        self.tail = damaged_at;
        self.is_short = expected.is_none_or(|(entries, _)| counted < entries);
        let damaged_at = self.blocks.iter().find_map(|(_, at)| *at).or(self.tail);
        match damaged_at {
            None if self.is_short => self.tail = Some(self.file.size),
            Some(offset) if !self.is_short => {
                let what = "expected a frame of the table, found bytes whose checksum does not \
                            hold; all of its entries are there";
                let damage = Damage::new(&self.file.path, offset, what);
                self.ready.push_back(Piece::Harmless(damage));
            }
            _ => {}
        }
        self.note_lost_ranges(expected.map_or(0, |(_, ranges)| ranges as usize));
        Ok(())
    }

    /// Notes that the table deletes in older ones what nobody knows, if it does.
    fn note_lost_ranges(&mut self, expected_ranges: usize) {
        let range_count = self.deleted.as_ref().map_or(0, RangeTombstones::fragment_count);
        if range_count < expected_ranges {
            let what = format!(
                "expected {expected_ranges} ranges that the table deletes in older ones, found \
                 {range_count}"
            );
            let damage = Damage::new(&self.file.path, self.tail.unwrap_or(self.file.size), what);
            let (start, end) = (self.reached.clone(), self.end.clone());
            self.ready.push_back(Piece::Gap(Gap { start, end, damage }));
        }
    }

    /// Whether these bytes are what stands behind the last frame.
    fn is_footer(&self, Passed { range, .. }: &Passed) -> bool {
        range.end == self.file.size && range.end - range.start <= FOOTER_LEN + EXTENSION_LEN
    }

    fn take_dictionary(&mut self, found: &FoundFrame) -> Result<()> {
        let (data, range) = self.file.payload(found, FrameKind::Dictionary, None)?;
        self.dictionary = Dictionary::new(&data[range]);
        Ok(())
    }

    fn take_ranges(&mut self, found: &FoundFrame) -> Result<()> {
        let (data, range) = self.file.payload(found, FrameKind::DeletedRanges, None)?;
        self.deleted = decode_ranges(&data[range]);
        Ok(())
    }

    /// The key that it begins with, as far as it can be read; the first of all if it cannot.
    fn first_key(&mut self) -> Slice {
        let TableLayer { file, blocks, dictionary, .. } = self;
        let first = blocks.front().filter(|(_, damage)| damage.is_none());
        let block = first.and_then(|(found, _)| file.block(found, dictionary.as_ref()).ok());
        let keys = block.and_then(|block| keys_of(&Arc::new(block)));
        keys.map(|(first, _)| first).unwrap_or_default()
    }

    /// Notes that there may have been entries up to in front of `end`.
    fn note_gap(&mut self, offset: u64, end: Option<Slice>) {
        if !self.is_short {
            return;
        }
        let what = "expected a block of the table, found bytes whose checksum does not hold";
        let damage = Damage::new(&self.file.path, offset, what);
        let start = self.reached.clone();
        if end.as_ref().is_none_or(|end| *start < **end) {
            self.ready.push_back(Piece::Gap(Gap { start, end, damage }));
        }
    }
}

impl Layer for TableLayer {
    fn next_piece(&mut self) -> Option<Piece> {
        while self.ready.is_empty() {
            let Some((found, damage)) = self.blocks.pop_front() else {
                let tail = self.tail.take()?;
                self.note_gap(tail, self.end.clone());
                continue;
            };
            let block = self.file.block(&found, self.dictionary.as_ref());
            let keys = block.ok().map(Arc::new).and_then(|block| Some((keys_of(&block)?, block)));
            let Some(((first, last), block)) = keys else {
                // It could be read a moment ago.
                self.is_short = true;
                let damage = damage.or(Some(found.offset));
                match self.blocks.front_mut() {
                    Some((_, next)) => *next = next.or(damage),
                    None => self.tail = self.tail.or(damage),
                }
                continue;
            };
            if let Some(offset) = damage {
                self.note_gap(offset, Some(first));
            }
            self.given = found.offset;
            self.reached = Slice::from(successor(&last));
            self.ready.push_back(Piece::Block(match self.stamp {
                Some(stamp) => Arc::new(restamped(block, stamp)),
                None => block,
            }));
        }
        self.ready.pop_front()
    }

    fn place(&self) -> (&Path, u64) {
        (&self.file.path, self.given)
    }

    fn deleted(&self) -> Option<&RangeTombstones> {
        self.deleted.as_ref()
    }
}

fn restamped(block: Arc<Block>, stamp: SeqNo) -> Block {
    Arc::into_inner(block).expect("nobody else has it").stamped(stamp)
}

/// The first and the last key of a block.
fn keys_of(block: &Arc<Block>) -> Option<(Slice, Slice)> {
    let mut cursor = BlockCursor::new(Arc::clone(block));
    cursor.seek_first().ok()?;
    let first = Slice::from(cursor.key()?);
    cursor.seek_last().ok()?;
    Some((first, Slice::from(cursor.key()?)))
}
