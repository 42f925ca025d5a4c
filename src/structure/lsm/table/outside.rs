//! Tables that are made outside of any database: written, opened before they are part of one.
//!
//! Such a file is a table like any other, but that its checksums are bound to a number that was
//! drawn for it, in place of a database, a keyspace and a number. Its entries have the stamp 0:
//! they get one when the file becomes part of a keyspace, whose index has both numbers then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::builder::TableBuilder;
use super::caches::TableCaches;
use super::cursor::{ReadMode, TableCursor};
use super::format::{FOOTER_LEN, FOOTER_LEN_MAX, Footer, HEADER_LEN, TableIdentity};
use super::handle::Table;
use super::open::{read_properties, read_ranges};
use super::place::{TableFile, TablePlace};
use super::properties::Properties;
use super::record::{TableOptions, TableRecord, span};
use crate::base::{Codec, EntryKind, EntryRef, Error, RangeTombstones, Result, SeqNo};
use crate::cache::MemoryBudget;
use crate::memory::ProcessMark;
use crate::storage::{Storage, open_named};

/// Writes a table that is not part of a database. What is not finished is removed.
#[derive(Debug)]
pub struct OutsideWriter {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// `None` when it is over.
    builder: Option<TableBuilder>,
    /// Whose the file is: not that of a process that is forked from this one.
    process: ProcessMark,
}

impl OutsideWriter {
    /// Creates the file, which must not exist. `drawn` tells it from all others.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub fn create(
        storage: Arc<dyn Storage>,
        path: &Path,
        drawn: u64,
        options: &TableOptions,
        budget: &Arc<MemoryBudget>,
    ) -> Result<OutsideWriter> {
        let (path, identity) = (path.to_owned(), TableIdentity::outside(drawn));
        let builder = TableBuilder::create(&*storage, path.clone(), identity, options, budget)?;
        let process = ProcessMark::new();
        Ok(OutsideWriter { storage, path, builder: Some(builder), process })
    }

    fn check_process(&self) -> Result<()> {
        match self.process.is_here() {
            true => Ok(()),
            false => Err(Error::Forked { opener: self.process.number() }),
        }
    }

    fn builder(&mut self) -> &mut TableBuilder {
        self.builder.as_mut().expect("it is there until it is over")
    }

    /// Adds an entry, whose key must be above all before it.
    ///
    /// # Errors
    /// As [`super::TableWriter::add`].
    #[inline]
    pub fn add(&mut self, key: &[u8], kind: EntryKind, value: &[u8]) -> Result<()> {
        self.check_process()?;
        self.builder().add(EntryRef { key, seqno: SeqNo::ZERO, kind, value })
    }

    /// See [`super::TableWriter::delete_range`].
    ///
    /// # Panics
    /// When it begins in front of the end of the range before it.
    pub fn delete_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        self.builder().delete_range(start, end);
    }

    /// The ranges that it deletes.
    #[must_use]
    pub fn ranges(&self) -> Option<&RangeTombstones> {
        self.builder.as_ref().map(TableBuilder::ranges)
    }

    /// Bytes of the file so far, about.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::size)
    }

    /// Whether it has neither entries nor ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.builder.as_ref().is_none_or(TableBuilder::is_empty)
    }

    /// Writes the rest, and makes the file and its name durable.
    ///
    /// # Errors
    /// `Io`, `DiskFull`: the file was removed, if that was possible.
    pub fn finish(mut self) -> Result<TableRecord> {
        self.check_process()?;
        let record = self.builder().finish()?;
        let dir = match self.path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        self.storage.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        self.builder = None;
        Ok(record)
    }
}

impl Drop for OutsideWriter {
    fn drop(&mut self) {
        if self.process.is_here() && self.builder.take().is_some() {
            let _useless_if_it_fails = self.storage.remove_file(&self.path);
        }
    }
}

/// A table that was made outside of any database, opened: what it says of itself is verified, its
/// entries are not.
#[derive(Debug)]
pub struct OutsideTable {
    /// Where it is.
    pub path: PathBuf,
    /// What there is to be said of it in an index; the number is 0.
    pub record: TableRecord,
    /// How its blocks are compressed.
    pub codec: Codec,
    table: Arc<Table>,
    caches: Arc<TableCaches>,
}

impl OutsideTable {
    /// Opens it. Reads both ends.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no table, or one of a database, or has what cannot be
    /// ingested; `Corruption`, `FormatVersion`, `Io`.
    pub fn open(
        place: &Arc<TablePlace>,
        caches: &Arc<TableCaches>,
        path: &Path,
    ) -> Result<OutsideTable> {
        let storage = place.storage();
        let opened = open_named(&**storage, path);
        let (opened, found_at) = opened.map_err(|error| Error::io("open", path, error))?;
        let size = opened.size().map_err(|error| Error::io("look at", path, error))?;
        let shown = path.display();
        let Some(end) = size.checked_sub(FOOTER_LEN).filter(|end| *end >= HEADER_LEN) else {
            return Err(Error::invalid(format!("{shown} is no table: it has {size} bytes")));
        };
        let mut header = [0; HEADER_LEN as usize];
        let read = opened.read_exact_at(&mut header, 0);
        read.map_err(|error| Error::io("read", path, error))?;
        let identity = TableIdentity::read(&header, path)?;
        if identity.origin().is_none() {
            let what = "is a table of a database, and not one that was made to be ingested";
            return Err(Error::invalid(format!("{shown} {what}")));
        }
        if storage.keyring().is_some() && !TableIdentity::is_sealed(&header) {
            let what = "is not encrypted, and the database is: write it with its table writer";
            return Err(Error::invalid(format!("{shown} {what}")));
        }
        let file = TableFile::at(place, found_at, identity);
        let start = size.saturating_sub(FOOTER_LEN_MAX);
        let mut footer = [0; FOOTER_LEN_MAX as usize];
        let footer = &mut footer[..(size - start) as usize];
        file.read_exact(&*opened, footer, start)?;
        let checksum = Footer::said_checksum(footer);
        let footer = Footer::decode(footer, path, file.tag, end, checksum)?;
        let deleted = match footer.ranges {
            Some(pointer) => read_ranges(&file, pointer, caches)?,
            None => RangeTombstones::default(),
        };
        let properties = read_properties(&file, footer.properties, caches)?;
        if properties.operands > 0 || !properties.values.is_empty() {
            let what = "has operands or points into value files, which is not ingested";
            return Err(Error::invalid(format!("{shown} {what}")));
        }
        let record = record_of(identity, (size, checksum), &properties, &deleted);
        let damaged = |what: &str| Err(file.damaged(footer.properties.offset, what));
        if record.end.as_ref().is_some_and(|end| *end <= record.first) {
            return damaged("a table without any keys");
        }
        if !record.is_consistent() {
            return damaged("more deletions than entries, or times at which too many expire");
        }
        Ok(OutsideTable {
            path: path.to_owned(),
            codec: properties.codec,
            table: Table::in_file(file, record.clone()),
            record,
            caches: Arc::clone(caches),
        })
    }

    /// Reads and verifies all of it, past the caches.
    ///
    /// # Errors
    /// `Corruption`, `Io`; `InvalidArgument` for a codec that this program does not have.
    pub fn verify(&self) -> Result<()> {
        self.table.verify(&self.caches)
    }

    /// A cursor over its entries, which keeps nothing in the caches.
    #[must_use]
    pub fn cursor(&self) -> TableCursor {
        TableCursor::new(Arc::clone(&self.table), Arc::clone(&self.caches), ReadMode::Passing)
    }
}

/// What there is to be said of a table with these properties.
fn record_of(
    identity: TableIdentity,
    (size, checksum): (u64, u32),
    properties: &Properties,
    deleted: &RangeTombstones,
) -> TableRecord {
    let (first, end) = span(properties.keys.as_ref(), deleted);
    TableRecord {
        number: 0,
        size,
        checksum,
        first,
        end,
        entry_count: properties.entry_count,
        tombstones: properties.tombstones,
        deleted_ranges: u32::try_from(deleted.fragment_count()).unwrap_or(u32::MAX),
        hides: 0,
        logical_bytes: properties.key_bytes.saturating_add(properties.value_bytes),
        origin: identity.origin(),
        stamp: None,
        oldest: properties.oldest,
        newest: properties.newest,
        expiring: properties.expiring,
        values: properties.values.clone(),
    }
}
