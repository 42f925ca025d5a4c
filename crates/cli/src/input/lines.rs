//! Lines of a source as borrowed bytes: big reads, one vectorised search, no copy per line.

use std::io::{self, Read};

use super::source::Source;
use crate::failure::Failure;

/// Bytes asked for in one read.
const CHUNK_SIZE: usize = 1 << 20;
/// A longer line is taken for a mistake rather than for a record.
const LINE_SIZE_MAX: usize = 1 << 30;

/// Splits a source at line ends (`\n`; a `\r` before it belongs to the line).
pub struct Lines {
    source: Source,
    /// `buffer[start..end]` is read but not handed out yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    count: u64,
    bytes_read: u64,
}

impl Lines {
    /// The lines of `source`.
    pub fn new(source: Source) -> Lines {
        Lines { source, buffer: vec![0; CHUNK_SIZE], start: 0, end: 0, count: 0, bytes_read: 0 }
    }

    /// The next line without its line end.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                return Ok(Some(self.take_line(searched + at, 1)));
            }
            let line_size = self.end - self.start;
            if line_size > LINE_SIZE_MAX {
                let line = self.count + 1;
                return Err(Failure::usage(format!(
                    "line {line}: longer than {LINE_SIZE_MAX} bytes"
                )));
            }
            if self.fill()? == 0 {
                // P2: what is left is a line, if it is anything.
                return Ok((line_size > 0).then(|| self.take_line(self.end, 0)));
            }
            searched = self.start + line_size;
        }
    }

    /// The number of the line returned last, counted from 1.
    pub fn number(&self) -> u64 {
        self.count
    }

    /// Bytes of the source that the lines returned so far took.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn take_line(&mut self, line_end: usize, terminator_size: usize) -> &[u8] {
        let line_start = self.start;
        self.start = line_end + terminator_size;
        self.bytes_read += (self.start - line_start) as u64;
        self.count += 1;
        &self.buffer[line_start..line_end]
    }

    /// Reads more behind `end`, after making room; 0 at the end of the source.
    fn fill(&mut self) -> Result<usize, Failure> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < self.end + CHUNK_SIZE / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.source.failure(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(Source::of_bytes(bytes));
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(line.to_vec());
        }
        assert_eq!(lines.bytes_read(), bytes.len() as u64);
        assert_eq!(lines.number(), all.len() as u64);
        all
    }

    #[test]
    fn lines_are_split_as_bytes() {
        assert_eq!(lines_of(b""), Vec::<Vec<u8>>::new());
        assert_eq!(lines_of(b"\n"), [b""]);
        assert_eq!(lines_of(b"a\r\n\n\xFF\x00"), [&b"a\r"[..], b"", b"\xFF\x00"]);
        assert_eq!(lines_of(b"last\n"), [b"last"]);
    }

    #[test]
    fn lines_across_and_beyond_a_chunk_are_whole() {
        for size in [CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE + 17] {
            let mut bytes = vec![b'x'; size];
            bytes.extend_from_slice(b"\nshort\n");
            bytes.extend_from_slice(&vec![b'y'; size]);
            let lines = lines_of(&bytes);
            assert_eq!(lines.len(), 3);
            assert!(lines[0].len() == size && lines[0].iter().all(|&byte| byte == b'x'));
            assert_eq!(lines[1], b"short");
            assert!(lines[2].len() == size && lines[2].iter().all(|&byte| byte == b'y'));
        }
    }
}
