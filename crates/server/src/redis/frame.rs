//! Commands out of bytes: the frames of the Redis protocol, and lines.
//!
//! A command is an array of bulks, or a line of words. The parser looks at the bytes that have
//! arrived, from the start of a command on, and says where its arguments lie: nothing is copied but
//! the words of a line. When it needs more it goes on where it was, so that a frame that comes byte
//! by byte costs no more than one that comes at once.
//!
//! Invariants
//! - F1  Nothing is allocated by a length that was declared: what arguments take is a few bytes for
//!   each that has arrived.
//! - F2  What is larger than the limits is refused when its length is read, not when it is there.

/// How large things may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Arguments of a command.
    pub arguments: usize,
    /// One of them.
    pub bulk: usize,
    /// A command in all.
    pub frame: usize,
    /// A line.
    pub line: usize,
    /// Of somebody who is not known: other words in errors.
    pub is_unknown: bool,
}

/// A line that says a length.
const LENGTH_LINE_MAX: usize = 32;
/// Words of a line: it is for people.
const WORDS_MAX: usize = 1 << 10;

/// What the bytes are so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The start of a command that has so many bytes at least.
    Need(usize),
    /// A command of so many bytes.
    Command(usize),
    /// So many bytes that ask for nothing: an empty line, an empty array.
    Nothing(usize),
    /// No command: the words for it.
    Error(FrameError),
}

/// Why bytes are no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The number of arguments is none, or too large.
    ArgumentCount,
    /// The same of who is not known.
    UnknownArgumentCount,
    /// The length of a bulk is none, or too large.
    BulkLength,
    /// The same of who is not known.
    UnknownBulkLength,
    /// Something else than a bulk.
    NotABulk(u8),
    /// A bulk is longer than was said.
    BulkEnd,
    /// A line that should say a length is none.
    LengthLine,
    /// A quote that does not end, or not at the end of a word.
    Quotes,
    /// A line is too long.
    Line,
    /// A command is too large in all.
    Frame,
    /// A request of HTTP, by which a browser was made to talk to this.
    Http,
}

impl FrameError {
    /// What the client is told behind `ERR Protocol error: `.
    pub fn text(self) -> String {
        let text = match self {
            FrameError::ArgumentCount => "invalid multibulk length",
            FrameError::UnknownArgumentCount => "unauthenticated multibulk length",
            FrameError::BulkLength => "invalid bulk length",
            FrameError::UnknownBulkLength => "unauthenticated bulk length",
            FrameError::NotABulk(found) => {
                return format!("expected '$', got '{}'", char::from(found).escape_default());
            }
            FrameError::BulkEnd => "a bulk does not end where it should",
            FrameError::LengthLine => "too big count string",
            FrameError::Quotes => "unbalanced quotes in request",
            FrameError::Line => "too big inline request",
            FrameError::Frame => "the command is too large",
            FrameError::Http => "this is not HTTP",
        };
        text.to_owned()
    }

    /// Whether something was larger than it may be.
    pub fn is_size(self) -> bool {
        use FrameError::{
            ArgumentCount, BulkLength, Frame, Line, UnknownArgumentCount, UnknownBulkLength,
        };
        matches!(
            self,
            ArgumentCount | UnknownArgumentCount | BulkLength | UnknownBulkLength | Line | Frame
        )
    }
}

/// The arguments of a command, where they lie. The first is its name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [(u32, u32)],
}

impl<'a> Args<'a> {
    pub const fn new(bytes: &'a [u8], places: &'a [(u32, u32)]) -> Args<'a> {
        Args { bytes, places }
    }

    pub fn count(self) -> usize {
        self.places.len()
    }

    /// One that is there: the table of commands says how many there are at least.
    pub fn at(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        let (start, end) = *self.places.get(index)?;
        Some(&self.bytes[start as usize..end as usize])
    }

    /// Those from an index on.
    pub fn from(self, index: usize) -> Args<'a> {
        Args { bytes: self.bytes, places: &self.places[index.min(self.places.len())..] }
    }

    /// The first so many.
    pub fn first(self, count: usize) -> Args<'a> {
        Args { bytes: self.bytes, places: &self.places[..count.min(self.places.len())] }
    }

    pub fn iter(self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone {
        let Args { bytes, places } = self;
        places.iter().map(move |(start, end)| &bytes[*start as usize..*end as usize])
    }

    /// Whether one is a word, in letters of any case.
    pub fn is(self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// How far a command was read.
#[derive(Debug, Default)]
pub struct Parser {
    /// Bytes of it that were looked at.
    at: usize,
    /// Arguments that are still to come; `None` before the first byte.
    left: Option<usize>,
    places: Vec<(u32, u32)>,
    /// The words of a line.
    words: Vec<u8>,
    is_line: bool,
}

impl Parser {
    /// Begins anew; keeps its memory if that is little.
    pub fn reset(&mut self) {
        (self.at, self.left, self.is_line) = (0, None, false);
        self.places.clear();
        self.words.clear();
        if self.places.capacity() > 1 << 10 {
            self.places = Vec::new();
        }
        if self.words.capacity() > 1 << 10 {
            self.words = Vec::new();
        }
    }

    /// What it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.places.capacity() * size_of::<(u32, u32)>() + self.words.capacity()
    }

    /// The arguments of a command that was found in `bytes`.
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        Args::new(if self.is_line { &self.words } else { bytes }, &self.places)
    }

    /// Goes on: `bytes` are all that has arrived since the command's start.
    pub fn advance(&mut self, bytes: &[u8], limits: &FrameLimits) -> Parsed {
        let Some(first) = bytes.first() else { return Parsed::Need(1) };
        let parsed = match *first {
            b'*' => self.array(bytes, limits),
            _ => self.line(bytes, limits),
        };
        parsed.unwrap_or_else(Parsed::Error)
    }

    fn array(&mut self, bytes: &[u8], limits: &FrameLimits) -> Result<Parsed, FrameError> {
        let mut left = match self.left {
            Some(left) => left,
            None => match length_line(&bytes[1..])? {
                None => return Ok(Parsed::Need(bytes.len() + 1)),
                Some((count, size)) => {
                    self.at = 1 + size;
                    let count = count.ok_or(FrameError::ArgumentCount)?;
                    // As Redis: less than nothing is nothing.
                    let Ok(count @ 1..) = usize::try_from(count) else {
                        return Ok(Parsed::Nothing(self.at));
                    };
                    if count > limits.arguments {
                        return Err(match limits.is_unknown {
                            true => FrameError::UnknownArgumentCount,
                            false => FrameError::ArgumentCount,
                        });
                    }
                    count
                }
            },
        };
        while left > 0 {
            self.left = Some(left);
            let rest = &bytes[self.at..];
            let Some(kind) = rest.first() else { return Ok(Parsed::Need(self.at + 4 * left)) };
            if *kind != b'$' {
                return Err(FrameError::NotABulk(*kind));
            }
            let Some((len, size)) = length_line(&rest[1..])? else {
                return Ok(Parsed::Need(bytes.len() + 1));
            };
            let len = len.and_then(|len| usize::try_from(len).ok());
            let len = len.filter(|len| *len <= limits.bulk).ok_or(match limits.is_unknown {
                true => FrameError::UnknownBulkLength,
                false => FrameError::BulkLength,
            })?;
            let start = self.at + 1 + size;
            let end = start + len;
            if end + 2 > limits.frame {
                return Err(FrameError::Frame);
            }
            if bytes.len() < end + 2 {
                return Ok(Parsed::Need(end + 2 + 4 * (left - 1)));
            }
            if &bytes[end..end + 2] != b"\r\n" {
                return Err(FrameError::BulkEnd);
            }
            self.places.push((start as u32, end as u32));
            self.at = end + 2;
            left -= 1;
        }
        self.left = Some(0);
        Ok(Parsed::Command(self.at))
    }

    fn line(&mut self, bytes: &[u8], limits: &FrameLimits) -> Result<Parsed, FrameError> {
        let Some(found) = bytes[self.at..].iter().position(|byte| *byte == b'\n') else {
            self.at = bytes.len();
            return match self.at > limits.line {
                true => Err(FrameError::Line),
                false => Ok(Parsed::Need(self.at + 1)),
            };
        };
        let end = self.at + found;
        if end > limits.line {
            return Err(FrameError::Line);
        }
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        self.is_line = true;
        self.split(line, limits)?;
        match self.args(&[]).get(0) {
            None => Ok(Parsed::Nothing(end + 1)),
            Some(name) if name.eq_ignore_ascii_case(b"post") => Err(FrameError::Http),
            Some(name) if name.eq_ignore_ascii_case(b"host:") => Err(FrameError::Http),
            Some(_) => Ok(Parsed::Command(end + 1)),
        }
    }

    /// The words of a line: apart by spaces, in quotes or not.
    fn split(&mut self, line: &[u8], limits: &FrameLimits) -> Result<(), FrameError> {
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Ok(());
            }
            if self.places.len() >= limits.arguments.min(WORDS_MAX) {
                return Err(FrameError::ArgumentCount);
            }
            let start = self.words.len();
            rest = self.word(rest)?;
            if self.words.len() - start > limits.bulk {
                return Err(FrameError::BulkLength);
            }
            self.places.push((start as u32, self.words.len() as u32));
        }
    }

    fn word<'a>(&mut self, line: &'a [u8]) -> Result<&'a [u8], FrameError> {
        let mut at = 0;
        while let Some(&byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace()) {
            at += 1;
            match byte {
                b'"' | b'\'' => {
                    at = self.quoted(line, at, byte)?;
                    // As Redis: a quote ends a word.
                    return match line.get(at) {
                        Some(next) if !next.is_ascii_whitespace() => Err(FrameError::Quotes),
                        _ => Ok(&line[at..]),
                    };
                }
                byte => self.words.push(byte),
            }
        }
        Ok(&line[at..])
    }

    /// What is in quotes, from behind the first to behind the last.
    fn quoted(&mut self, line: &[u8], mut at: usize, quote: u8) -> Result<usize, FrameError> {
        loop {
            let byte = *line.get(at).ok_or(FrameError::Quotes)?;
            at += 1;
            if byte == quote {
                return Ok(at);
            }
            let is_escape = byte == b'\\' && at < line.len();
            if !is_escape || (quote == b'\'' && line[at] != b'\'') {
                self.words.push(byte);
                continue;
            }
            let digits = line.get(at + 1..at + 3).and_then(|digits| str::from_utf8(digits).ok());
            let hex = digits.filter(|_| quote == b'"' && line[at] == b'x');
            let hex = hex.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) => {
                    self.words.push(byte);
                    at += 3;
                }
                None => {
                    self.words.push(unescaped(line[at], quote));
                    at += 1;
                }
            }
        }
    }
}

fn unescaped(byte: u8, quote: u8) -> u8 {
    match byte {
        _ if quote == b'\'' => byte,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        byte => byte,
    }
}

/// A number up to the end of its line, and how many bytes that is: `None` when the end has not
/// arrived, no number when there is none.
fn length_line(bytes: &[u8]) -> Result<Option<(Option<i64>, usize)>, FrameError> {
    let head = &bytes[..bytes.len().min(LENGTH_LINE_MAX)];
    match head.iter().position(|byte| *byte == b'\r') {
        None if head.len() == LENGTH_LINE_MAX => Err(FrameError::LengthLine),
        None => Ok(None),
        Some(end) => match bytes.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some((super::number::integer(&bytes[..end]), end + 2))),
            Some(_) => Err(FrameError::LengthLine),
        },
    }
}

/// What bytes are, from the start of a command on, with its arguments.
pub fn parse(bytes: &[u8], limits: &FrameLimits) -> (Parsed, Vec<Vec<u8>>) {
    let mut parser = Parser::default();
    let parsed = parser.advance(bytes, limits);
    let args = match parsed {
        Parsed::Command(_) => parser.args(bytes).iter().map(<[u8]>::to_vec).collect(),
        _ => Vec::new(),
    };
    (parsed, args)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
