//! Checking a table: every byte of the file against every other, against what the index says of it,
//! and what is in memory of it against the file.
//!
//! | check | of |
//! |---|---|
//! | header, size, footer | U5 |
//! | frames one behind the other, from header to footer | U4 |
//! | checksum and form of every frame; order of keys, within blocks and from block to block | U1 |
//! | keys within their separators; the top's separators those of the partitions | U2 |
//! | every key, and its prefix, known to the filter | U3 |
//! | entries in front of each block and partition; sums in properties and record | counts |
//! | values against hash and length; bytes by value file | value log |
//! | the top, partitions and blocks in memory | memory |

use std::ops::ControlFlow;
use std::sync::Arc;

use super::caches::TableCaches;
use super::format::{FramePointer, HEADER_LEN};
use super::handle::Table;
use super::open::Opened;
use super::partition::Partition;
use super::properties::Properties;
use super::record::span;
use crate::base::pointer_in;
use crate::base::{Composite, Cursor, EntryKind, EntryRef, Error, ExpirySpan, RangeTombstones};
use crate::base::{Result, SeqNo, Slice, ValuePointer, expiring_in, is_operands};
use crate::block::{Block, BlockCursor, FrameKind};
use crate::cache::{Admission, Slot};
use crate::structure::{CheckWalk, Findings, ShareSums, Site, WholeCheck};
use crate::value_log::Verify;

/// What was found of a table's entries.
struct Seen {
    entry_count: u64,
    tombstones: u64,
    operands: u64,
    key_bytes: u64,
    value_bytes: u64,
    first_key: Option<Slice>,
    last_key: Vec<u8>,
    oldest: SeqNo,
    newest: SeqNo,
    expiring: Option<ExpirySpan>,
    blocks: u64,
    raw_bytes: u64,
    block_bytes: u64,
    values: ShareSums,
}

struct Checker<'a> {
    table: &'a Table,
    caches: &'a TableCaches,
    findings: &'a mut Findings,
    walk: &'a mut dyn CheckWalk,
    /// Whether the walk was broken off: then what was seen is not all.
    is_over: bool,
    seen: Seen,
    /// Where the next frame must lie (U4).
    position: u64,
    /// The separator in front of the block at hand.
    bound: Option<Vec<u8>>,
    /// Whether something could not be read: then sums say nothing.
    is_damaged: bool,
    /// The first of what is wrong, as an error.
    first_error: Option<Error>,
}

impl Table {
    /// Checks the table. Reads all of it, past the caches, unless the walk ends within it. Counts
    /// it as a file, and its blocks as intervals.
    pub fn check(
        &self,
        caches: &TableCaches,
        findings: &mut Findings,
        walk: &mut dyn CheckWalk,
    ) -> ControlFlow<()> {
        findings.files += 1;
        let mut checker = Checker::new(self, caches, findings, walk);
        if let Err(error) = checker.check() {
            checker.note_error(error);
        }
        match checker.is_over {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Checks the table, and says the first of what is wrong.
    ///
    /// # Errors
    /// `Corruption`; what reading it answers.
    pub fn verify(&self, caches: &TableCaches) -> Result<()> {
        let (mut findings, mut walk) = (Findings::default(), WholeCheck);
        let mut checker = Checker::new(self, caches, &mut findings, &mut walk);
        checker.check()?;
        match checker.first_error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl<'a> Checker<'a> {
    fn new(
        table: &'a Table,
        caches: &'a TableCaches,
        findings: &'a mut Findings,
        walk: &'a mut dyn CheckWalk,
    ) -> Checker<'a> {
        let seen = Seen {
            entry_count: 0,
            tombstones: 0,
            operands: 0,
            key_bytes: 0,
            value_bytes: 0,
            first_key: None,
            last_key: Vec::new(),
            oldest: SeqNo::MAX,
            newest: SeqNo::ZERO,
            expiring: None,
            blocks: 0,
            raw_bytes: 0,
            block_bytes: 0,
            values: ShareSums::default(),
        };
        Checker {
            table,
            caches,
            findings,
            walk,
            is_over: false,
            seen,
            position: HEADER_LEN,
            bound: None,
            is_damaged: false,
            first_error: None,
        }
    }

    fn site(&self, offset: u64) -> Site<'a> {
        let file = self.table.file();
        Site::of_keyspace(file.place().keyspace()).at(&file.path, offset)
    }

    fn note_error(&mut self, error: Error) {
        self.is_damaged = true;
        let site = self.site(0);
        self.findings.note_error(site, &error);
        self.first_error.get_or_insert(error);
    }

    /// Notes that something at `offset` is not what it was expected to be.
    fn note(
        &mut self,
        offset: u64,
        what: &str,
        expected: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) {
        let site = self.site(offset);
        self.findings.note_at(site, what, &expected, &found);
        if self.first_error.is_none() {
            let what = format!("{what}: expected {expected}, found {found}");
            self.first_error = Some(self.table.file().damaged(offset, what));
        }
    }

    /// Notes that something at `offset` is not what it was expected to be, if it is not.
    fn compare<T: PartialEq + std::fmt::Debug>(
        &mut self,
        offset: u64,
        what: &str,
        expected: &T,
        found: &T,
    ) {
        if expected != found {
            self.note(offset, what, format!("{expected:?}"), format!("{found:?}"));
        }
    }

    fn check(&mut self) -> Result<()> {
        let (table, record) = (self.table, &self.table.record);
        let file = table.file().open_anew()?;
        let size = file.size().map_err(|error| Error::io("look at", &table.file().path, error))?;
        self.compare(0, "the size of the file", &record.size, &size);
        let opened = Opened::read(table.file(), record, self.caches)?;
        self.findings.bytes += HEADER_LEN + record.size - opened.footer.start_in(record.size);
        if let Some(what) = opened.top().check_order() {
            self.note(opened.footer.top.offset, "the order of separators", "rising ones", what);
        }
        if let Some(pointer) = opened.footer.dictionary {
            self.pass(pointer);
        }
        let in_memory = table.opened_if_read();
        if in_memory.is_some_and(|in_memory| !in_memory.top().is_same(opened.top())) {
            self.note(opened.footer.top.offset, "the top in memory", "that in the file", "another");
        }
        for index in 0..opened.partition_count() {
            if let Err(error) = self.check_partition(&opened, index) {
                self.note_error(error);
            }
            if self.is_broken_off() {
                return Ok(());
            }
        }
        let footer = opened.footer;
        let behind = [Some(footer.top), footer.ranges, Some(footer.properties)];
        behind.into_iter().flatten().for_each(|pointer| self.pass(pointer));
        let position = self.position;
        self.compare(position, "the end of all frames", &footer.start_in(record.size), &position);
        let properties = table.properties(self.caches)?;
        if !self.is_damaged {
            let deleted = opened.deleted.as_deref().cloned().unwrap_or_default();
            let partitions = opened.partition_count() as u64;
            self.check_properties(&properties, partitions, footer.properties.offset);
            self.check_record(&properties, &deleted);
        }
        Ok(())
    }

    /// Whether the walk ends here.
    fn is_broken_off(&mut self) -> bool {
        self.is_over = self.is_over || self.walk.passed(self.findings).is_break();
        self.is_over
    }

    /// A frame must lie where the one before it ends (U4).
    fn pass(&mut self, pointer: FramePointer) {
        let position = self.position;
        self.compare(pointer.offset, "where a frame lies", &position, &pointer.offset);
        self.findings.bytes += u64::from(pointer.len);
        self.position = pointer.offset.saturating_add(u64::from(pointer.len));
    }

    fn check_partition(&mut self, opened: &Opened, index: usize) -> Result<()> {
        let (table, caches) = (self.table, self.caches);
        let pointer = table.partition_pointer(opened, index)?;
        let payload = caches.read_frame(table.file(), pointer, FrameKind::Partition)?;
        let partition = table.parse_partition(payload, opened, index, pointer)?;
        if let Some(what) = partition.index().check_order() {
            self.note(pointer.offset, "the order of separators", "rising ones", what);
        }
        let slot = opened_slot(table, index);
        let cached = slot.and_then(|slot| caches.partitions.load(slot, Admission::OnceRead));
        if cached.as_ref().is_some_and(|cached| !cached.is_same(&partition)) {
            self.note(pointer.offset, "a partition in memory", "that in the file", "another");
        }
        let in_front = self.seen.entry_count;
        if !self.is_damaged {
            let said = opened.target(index).map_or(0, |target| target.entries_in_front);
            self.compare(pointer.offset, "entries in front of a partition", &in_front, &said);
        }
        for block_index in 0..partition.block_count() {
            let in_memory = cached.as_deref();
            let at = (opened, block_index);
            match self.check_block(&partition, at, in_front, in_memory) {
                Ok(()) => {}
                Err(error) => self.note_error(error),
            }
            if self.is_over {
                return Ok(());
            }
        }
        self.pass(pointer);
        if !self.is_damaged {
            let found = self.seen.entry_count - in_front;
            let said = partition.entry_count();
            self.compare(pointer.offset, "entries of a partition", &found, &said);
        }
        Ok(())
    }

    fn check_block(
        &mut self,
        partition: &Partition,
        (opened, index): (&Opened, usize),
        in_front: u64,
        in_memory: Option<&Partition>,
    ) -> Result<()> {
        let (table, caches) = (self.table, self.caches);
        let pointer = table.block_pointer(partition, index)?;
        self.pass(pointer);
        self.findings.intervals += 1;
        if !self.is_damaged {
            let said = partition.target(index).map_or(0, |target| target.entries_in_front);
            let found = self.seen.entry_count - in_front;
            self.compare(pointer.offset, "entries in front of a block", &found, &said);
        }
        let (kind, dictionary) = (FrameKind::Entries, opened.dictionary.as_ref());
        let payload = caches.read_packed(table.file(), pointer, kind, dictionary)?;
        self.seen.blocks += 1;
        self.seen.raw_bytes += payload.range.len() as u64;
        self.seen.block_bytes += u64::from(pointer.len);
        let block = Arc::new(table.parse_block(payload, pointer)?);
        let slot = in_memory.and_then(|partition| partition.slot_if_used(index));
        let cached = slot.and_then(|slot| caches.blocks.load(slot, Admission::OnceRead));
        if cached.is_some_and(|cached| !is_same_block(&cached, &block)) {
            self.note(pointer.offset, "a block in memory", "that in the file", "another");
        }
        let separator = partition.index().separator(index).map(<[u8]>::to_vec);
        let mut cursor = BlockCursor::new(block);
        cursor.seek_first()?;
        self.compare(pointer.offset, "whether a block has entries", &true, &cursor.is_valid());
        while let Some(entry) = cursor.entry() {
            self.check_entry(partition, entry, separator.as_deref(), pointer.offset);
            if self.is_over {
                return Ok(());
            }
            cursor.next()?;
        }
        self.bound = separator;
        Ok(())
    }

    fn check_entry(
        &mut self,
        partition: &Partition,
        entry: EntryRef<'_>,
        separator: Option<&[u8]>,
        offset: u64,
    ) {
        let EntryRef { key, seqno, kind, value } = entry;
        let shown = || key.escape_ascii().to_string();
        self.findings.entries += 1;
        if self.seen.first_key.is_some() && *self.seen.last_key >= *key {
            self.note(offset, "the order of keys", "rising ones", shown());
        }
        let is_within = self.bound.as_deref().is_none_or(|bound| bound < key)
            && separator.is_some_and(|separator| key <= separator);
        if !is_within {
            self.note(offset, "a key of another block", "keys up to the separator", shown());
        }
        if !partition.knows(key) {
            self.note(offset, "the filter", shown(), "a denial of it");
        }
        if kind == EntryKind::Composite && Composite::decode(value).is_none() {
            let found = format!("{} other bytes at {}", value.len(), shown());
            self.note(offset, "a composite entry", "operands, or what expires", found);
        }
        if let Some(pointer) = pointer_in(kind, value) {
            self.check_pointer(pointer, offset);
        }
        let seen = &mut self.seen;
        seen.first_key.get_or_insert_with(|| Slice::from(key));
        seen.last_key.clear();
        seen.last_key.extend_from_slice(key);
        seen.entry_count += 1;
        seen.tombstones += u64::from(kind == EntryKind::Tombstone);
        seen.operands += u64::from(is_operands(kind, value));
        seen.key_bytes += key.len() as u64;
        seen.value_bytes += value.len() as u64;
        seen.oldest = seen.oldest.min(seqno);
        seen.newest = seen.newest.max(seqno);
        if let Some(expiring) = expiring_in(kind, value) {
            seen.expiring = Some(ExpirySpan::with(seen.expiring, expiring.until));
        }
    }

    fn check_pointer(&mut self, pointer: &[u8], offset: u64) {
        self.seen.values.add(pointer);
        let Some(decoded) = ValuePointer::decode(pointer) else {
            self.note(offset, "a pointer", "one of 30 bytes", format!("{} bytes", pointer.len()));
            return;
        };
        self.findings.values += 1;
        match self.table.file().place().values().verify(&decoded, Verify::Hash) {
            Ok(bytes) => self.findings.bytes += bytes,
            Err(error) => {
                let site = Site::of_keyspace(self.table.file().place().keyspace());
                self.findings.note_error(site, &error);
                self.first_error.get_or_insert(error);
            }
        }
        self.is_broken_off();
    }

    /// What the table says of itself, against its entries.
    fn check_properties(&mut self, said: &Properties, partitions: u64, offset: u64) {
        let seen = &self.seen;
        let last_key = Slice::from(seen.last_key.as_slice());
        let is_stamped = self.table.record.stamp.is_some();
        let found = Properties {
            entry_count: seen.entry_count,
            tombstones: seen.tombstones,
            operands: seen.operands,
            key_bytes: seen.key_bytes,
            value_bytes: seen.value_bytes,
            keys: seen.first_key.clone().map(|first| (first, last_key)),
            oldest: if is_stamped { said.oldest } else { seen.oldest },
            newest: if is_stamped { said.newest } else { seen.newest },
            expiring: seen.expiring,
            deleted_ranges: u64::from(self.table.record.deleted_ranges),
            blocks: seen.blocks,
            raw_bytes: seen.raw_bytes,
            block_bytes: seen.block_bytes,
            partitions,
            values: seen.values.shares(),
            ..said.clone()
        };
        self.compare(offset, "properties", &found, said);
        if is_stamped {
            let one_stamp = seen_stamps(&self.seen, self.table.record.stamp);
            self.compare(offset, "whether all entries have the stamp", &true, &one_stamp);
        }
    }

    /// What the index says of the table, against what it says of itself.
    fn check_record(&mut self, properties: &Properties, deleted: &RangeTombstones) {
        let record = &self.table.record;
        let (first, end) = span(properties.keys.as_ref(), deleted);
        let is_stamped = record.stamp.is_some();
        let expected = super::TableRecord {
            first,
            end,
            entry_count: properties.entry_count,
            tombstones: properties.tombstones,
            logical_bytes: properties.key_bytes.saturating_add(properties.value_bytes),
            oldest: if is_stamped { record.oldest } else { properties.oldest },
            newest: if is_stamped { record.newest } else { properties.newest },
            expiring: properties.expiring,
            values: properties.values.clone(),
            ..record.clone()
        };
        self.compare(0, "what the index says of the table", &expected, record);
    }
}

/// Whether every entry that was seen has this stamp.
fn seen_stamps(seen: &Seen, stamp: Option<SeqNo>) -> bool {
    seen.entry_count == 0 || stamp == Some(seen.oldest) && stamp == Some(seen.newest)
}

/// The slot of a partition in memory.
fn opened_slot(table: &Table, index: usize) -> Option<&Arc<Slot<Partition>>> {
    table.opened_if_read()?.slot(index)
}

fn is_same_block(a: &Arc<Block>, b: &Arc<Block>) -> bool {
    let (mut a, mut b) = (BlockCursor::new(Arc::clone(a)), BlockCursor::new(Arc::clone(b)));
    let mut step = a.seek_first().and(b.seek_first());
    while step.is_ok() {
        match (a.entry(), b.entry()) {
            (None, None) => return true,
            (Some(x), Some(y)) if x == y => {}
            _ => return false,
        }
        step = a.next().and_then(|()| b.next());
    }
    false
}
