//! What a child says on the pipe: records, each whole or not there.
//!
//! A record is its length (4 bytes, little-endian), a byte for its kind, and the fields. Numbers
//! are written in groups of seven bits, the lowest first, with the highest bit set in all but the
//! last. Bytes have their length in front, lists their count, what may be missing a 0 or 1.
//!
//! A child that is killed while it writes leaves the beginning of a record. It had not begun then
//! what the record says it is about to do, nor was anybody told what the record acknowledges.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use lithedb::{Durability, SeqNo};

use crate::digest::Digest;
use crate::finding::{Fault, Finding};
use crate::timeline::{Change, Found, IndexState, Indexes, Row, Rows, Told, Until};

/// No record is longer.
const RECORD_SIZE_MAX: u32 = 256 << 20;

/// Faults by the number that a record has for them.
const FAULTS: [Fault; 13] = [
    Fault::Lost,
    Fault::Hole,
    Fault::Wrong,
    Fault::FailedOpen,
    Fault::CheckFailed,
    Fault::Panic,
    Fault::Silent,
    Fault::BadError,
    Fault::Swallowed,
    Fault::Refused,
    Fault::AcknowledgedAfterFailure,
    Fault::Excess,
    Fault::Misuse,
];

/// What a child says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// It is about to open the database.
    Opening,
    /// It has, and this is there.
    Found(Box<Found>),
    /// Something of the history since.
    Told(Told),
    /// The database has answered with an error.
    Refused(String),
    /// It has found no room: that says something about the disk, and nothing about the database.
    NoRoom(String),
    /// The database has answered what cannot be.
    Wrong(Finding),
    /// It is about to close the database.
    Closing,
    /// It has come to its end.
    Ended,
}

impl Record {
    /// Its bytes, with the length in front.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(vec![0; 4]);
        match self {
            Record::Opening => out.byte(0),
            Record::Found(found) => {
                out.byte(1);
                out.found(found);
            }
            Record::Told(told) => {
                out.byte(2);
                out.told(told);
            }
            Record::Refused(what) => {
                out.byte(3);
                out.bytes(what.as_bytes());
            }
            Record::Wrong(finding) => {
                out.byte(4);
                let number = FAULTS.iter().position(|fault| *fault == finding.fault);
                out.number(number.unwrap_or_default() as u64);
                out.bytes(finding.what.as_bytes());
            }
            Record::Closing => out.byte(5),
            Record::Ended => out.byte(6),
            Record::NoRoom(what) => {
                out.byte(7);
                out.bytes(what.as_bytes());
            }
        }
        let size = (out.0.len() - 4) as u32;
        out.0[..4].copy_from_slice(&size.to_le_bytes());
        out.0
    }

    /// The next one of a pipe: none at its end, or where the child was killed while it wrote; and
    /// `Some(None)` for what is no record.
    pub(super) fn read(pipe: &mut impl Read) -> io::Result<Option<Option<Record>>> {
        let mut size = [0; 4];
        if !fill(pipe, &mut size)? {
            return Ok(None);
        }
        let size = u32::from_le_bytes(size);
        if size > RECORD_SIZE_MAX {
            return Ok(Some(None));
        }
        let mut bytes = vec![0; size as usize];
        if !fill(pipe, &mut bytes)? {
            return Ok(None);
        }
        Ok(Some(Record::decode(&bytes)))
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let mut from = Reader(bytes);
        let record = match from.byte()? {
            0 => Record::Opening,
            1 => Record::Found(Box::new(from.found()?)),
            2 => Record::Told(from.told()?),
            3 => Record::Refused(from.text()?),
            4 => {
                let fault = *FAULTS.get(from.number()? as usize)?;
                Record::Wrong(Finding::new(fault, from.text()?))
            }
            5 => Record::Closing,
            6 => Record::Ended,
            7 => Record::NoRoom(from.text()?),
            _ => return None,
        };
        from.0.is_empty().then_some(record)
    }
}

/// Whether there was as much as that.
fn fill(pipe: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match pipe.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn option<T>(&mut self, option: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.flag(option.is_some());
        if let Some(some) = option {
            write(self, some);
        }
    }

    fn seqno(&mut self, seqno: SeqNo) {
        self.number(seqno.as_u64());
    }

    fn found(&mut self, found: &Found) {
        self.number(found.now);
        self.number(found.catalog.len() as u64);
        for (name, id) in &found.catalog {
            self.bytes(name.as_bytes());
            self.number(u64::from(*id));
        }
        self.number(found.indexes.len() as u64);
        for (which, state) in &found.indexes {
            self.which(which);
            self.index(state);
        }
        self.number(found.rows.len() as u64);
        for (id, rows) in &found.rows {
            self.number(u64::from(*id));
            self.number(rows.len() as u64);
            for (key, row) in rows {
                self.bytes(key);
                self.bytes(&row.value);
                self.seqno(row.seqno);
                self.option(row.until, Writer::number);
            }
        }
    }

    fn which(&mut self, (keyspace, name): &(u32, String)) {
        self.number(u64::from(*keyspace));
        self.bytes(name.as_bytes());
    }

    fn index(&mut self, state: &IndexState) {
        self.bytes(state.extractor.as_bytes());
        self.flag(state.is_unique);
        self.flag(state.is_ready);
        self.flag(state.is_building);
    }

    fn change(&mut self, change: &Change) {
        self.number(u64::from(change.keyspace));
        self.bytes(&change.key);
        self.option(change.value.as_deref(), Writer::bytes);
        match change.until {
            Until::Never => self.byte(0),
            Until::At(millis) => {
                self.byte(1);
                self.number(millis);
            }
            Until::After(millis) => {
                self.byte(2);
                self.number(millis);
            }
        }
    }

    fn told(&mut self, told: &Told) {
        match told {
            Told::Issued { now, changes } => {
                self.byte(0);
                self.number(*now);
                self.number(changes.len() as u64);
                changes.iter().for_each(|change| self.change(change));
            }
            Told::Acknowledged(seqno, durability) => {
                self.byte(1);
                self.seqno(*seqno);
                self.flag(*durability == Durability::Sync);
            }
            Told::TakenBack => self.byte(2),
            Told::Durable => self.byte(3),
            Told::CatalogIssued(catalog) => {
                self.byte(4);
                self.number(catalog.len() as u64);
                for (name, id) in catalog {
                    self.bytes(name.as_bytes());
                    self.option(*id, |out, id| out.number(u64::from(id)));
                }
            }
            Told::CatalogAcknowledged(created) => {
                self.byte(5);
                self.option(*created, |out, id| out.number(u64::from(id)));
            }
            Told::CatalogTakenBack => self.byte(6),
            Told::IndexMayBecome(which, states) => {
                self.byte(7);
                self.which(which);
                self.number(states.len() as u64);
                for state in states {
                    self.option(state.as_ref(), Writer::index);
                }
            }
            Told::IndexIs(which, state) => {
                self.byte(8);
                self.which(which);
                self.option(state.as_ref(), Writer::index);
            }
            Told::CheckpointAskedFor { path, now } => {
                self.byte(9);
                self.bytes(path.as_os_str().as_bytes());
                self.number(*now);
            }
            Told::CheckpointMade => self.byte(10),
            Told::KeyMayBe(number) => {
                self.byte(11);
                self.byte(*number);
            }
            Told::KeyIs(number) => {
                self.byte(12);
                self.byte(*number);
            }
        }
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn id(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// Outside: whether it could be read. Inside: whether there is one.
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| read(self)).collect()
    }

    fn seqno(&mut self) -> Option<SeqNo> {
        Some(SeqNo::from_u64(self.number()?))
    }

    /// Digests are not written: they follow from the rows.
    fn found(&mut self) -> Option<Found> {
        let now = self.number()?;
        let catalog = self.list(|from| Some((from.text()?, from.id()?)))?;
        let indexes: Indexes =
            self.list(|from| Some((from.which()?, from.index()?)))?.into_iter().collect();
        let (mut digests, mut all) = (BTreeMap::new(), BTreeMap::new());
        for (id, rows) in self.list(|from| Some((from.id()?, from.list(Reader::row)?)))? {
            let rows: Rows = rows.into_iter().collect();
            let mut digest = Digest::default();
            for (key, row) in &rows {
                digest.add(key, &row.value, (row.seqno, row.until));
            }
            digests.insert(id, digest);
            all.insert(id, rows);
        }
        let catalog = catalog.into_iter().collect();
        Some(Found { catalog, indexes, now, digests, rows: all })
    }

    fn row(&mut self) -> Option<(Vec<u8>, Row)> {
        let key = self.bytes()?.to_vec();
        let value = self.bytes()?.into();
        let seqno = self.seqno()?;
        let until = self.option(Reader::number)?;
        Some((key, Row { value, seqno, until }))
    }

    fn which(&mut self) -> Option<(u32, String)> {
        Some((self.id()?, self.text()?))
    }

    fn index(&mut self) -> Option<IndexState> {
        Some(IndexState {
            extractor: self.text()?,
            is_unique: self.flag()?,
            is_ready: self.flag()?,
            is_building: self.flag()?,
        })
    }

    fn change(&mut self) -> Option<Change> {
        let (keyspace, key) = (self.id()?, self.bytes()?.to_vec());
        let value = self.option(|from| Some(from.bytes()?.to_vec()))?;
        let until = match self.byte()? {
            0 => Until::Never,
            1 => Until::At(self.number()?),
            2 => Until::After(self.number()?),
            _ => return None,
        };
        Some(Change { keyspace, key, value, until })
    }

    fn told(&mut self) -> Option<Told> {
        let told = match self.byte()? {
            0 => Told::Issued { now: self.number()?, changes: self.list(Reader::change)? },
            1 => {
                let seqno = self.seqno()?;
                let durability = if self.flag()? { Durability::Sync } else { Durability::Buffered };
                Told::Acknowledged(seqno, durability)
            }
            2 => Told::TakenBack,
            3 => Told::Durable,
            4 => {
                let entry = |from: &mut Self| Some((from.text()?, from.option(Reader::id)?));
                Told::CatalogIssued(self.list(entry)?.into_iter().collect())
            }
            5 => Told::CatalogAcknowledged(self.option(Reader::id)?),
            6 => Told::CatalogTakenBack,
            7 => {
                let which = self.which()?;
                Told::IndexMayBecome(which, self.list(|from| from.option(Reader::index))?)
            }
            8 => Told::IndexIs(self.which()?, self.option(Reader::index)?),
            9 => {
                let path = PathBuf::from(OsStr::from_bytes(self.bytes()?));
                Told::CheckpointAskedFor { path, now: self.number()? }
            }
            10 => Told::CheckpointMade,
            11 => Told::KeyMayBe(self.byte()?),
            12 => Told::KeyIs(self.byte()?),
            _ => return None,
        };
        Some(told)
    }
}
