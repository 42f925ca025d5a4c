//! Writing a dump.

use std::io::{self, Read, Write};
use std::time::SystemTime;

use lithedb::{Cursor, Error, KeyspaceOptions};

use super::{Content, MAGIC, PIECE_SIZE, STAMPS, Stamps, VERSION, options};
use crate::failure::Failure;
use crate::notation::{write_escaped, write_hex};

/// A number of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairs(pub u64);

/// Writes a dump. Call [`DumpWriter::finish`] at the end: without its last line a dump is refused.
pub struct DumpWriter<W: Write> {
    out: W,
    content: Content,
    stamps: Stamps,
    count: u64,
    /// Of one piece of a value.
    buffer: Vec<u8>,
}

impl<W: Write> DumpWriter<W> {
    /// A dump that goes to `out`; its first line is written.
    pub fn begin(mut out: W, content: Content, stamps: Stamps) -> io::Result<DumpWriter<W>> {
        write!(out, "{MAGIC}\t{VERSION}\t{}", content.name())?;
        if stamps == Stamps::Shown {
            write!(out, "\t{STAMPS}")?;
        }
        out.write_all(b"\n")?;
        Ok(DumpWriter { out, content, stamps, count: 0, buffer: vec![0; PIECE_SIZE] })
    }

    /// What is written from now on is of this keyspace.
    pub fn keyspace(&mut self, name: &str, options: &KeyspaceOptions) -> io::Result<()> {
        self.out.write_all(b"keyspace\t")?;
        write_escaped(&mut self.out, name.as_bytes())?;
        for field in options::fields(options) {
            write!(self.out, "\t{field}")?;
        }
        self.out.write_all(b"\n")
    }

    /// Writes the pair that the cursor is on.
    pub fn pair(&mut self, cursor: &Cursor) -> Result<(), Failure> {
        self.count += 1;
        if let Some(time) = cursor.expires_at() {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            writeln!(self.out, "until\t{}", since.as_millis())?;
        }
        match self.content {
            Content::Keys => {
                self.key("key", cursor)?;
                self.end_of_line(cursor)?;
            }
            Content::Hashes => {
                self.key("hash", cursor)?;
                write!(self.out, "\t{}\t", cursor.value_len()?)?;
                write_hex(&mut self.out, &cursor.value_hash()?)?;
                self.end_of_line(cursor)?;
            }
            Content::Values if cursor.value_len()? <= PIECE_SIZE as u64 => {
                self.key("put", cursor)?;
                self.out.write_all(b"\t")?;
                write_escaped(&mut self.out, cursor.value()?)?;
                self.end_of_line(cursor)?;
            }
            Content::Values => self.pieces(cursor)?,
        }
        Ok(())
    }

    fn key(&mut self, verb: &str, cursor: &Cursor) -> io::Result<()> {
        write!(self.out, "{verb}\t")?;
        write_escaped(&mut self.out, cursor.key())
    }

    fn end_of_line(&mut self, cursor: &Cursor) -> io::Result<()> {
        if self.stamps == Stamps::Shown {
            write!(self.out, "\t{}", cursor.seqno())?;
        }
        self.out.write_all(b"\n")
    }

    /// A pair whose value is read and written piece by piece (F2).
    fn pieces(&mut self, cursor: &Cursor) -> Result<(), Failure> {
        self.key("begin", cursor)?;
        write!(self.out, "\t{}", cursor.value_len()?)?;
        self.end_of_line(cursor)?;
        let mut value = cursor.value_reader()?;
        loop {
            let len = read_piece(&mut value, &mut self.buffer)?;
            if len == 0 {
                return Ok(());
            }
            self.out.write_all(b"more\t")?;
            write_escaped(&mut self.out, &self.buffer[..len])?;
            self.out.write_all(b"\n")?;
        }
    }

    /// Writes the last line, and everything out; how many pairs there are.
    pub fn finish(mut self) -> io::Result<Pairs> {
        writeln!(self.out, "end\t{}", self.count)?;
        self.out.flush()?;
        Ok(Pairs(self.count))
    }
}

/// Reads until the buffer is full or the value at its end.
fn read_piece(value: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Failure> {
    let mut len = 0;
    while len < buffer.len() {
        match value.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) => return Err(Failure::of_value(error)),
        }
    }
    Ok(len)
}

impl Failure {
    /// What a reader of a value said: an error of the store inside, if it was one.
    pub fn of_value(error: io::Error) -> Failure {
        match error.downcast::<Error>() {
            Ok(error) => Failure::Store(error),
            Err(source) => Failure::Input { path: "the value".into(), source },
        }
    }
}
