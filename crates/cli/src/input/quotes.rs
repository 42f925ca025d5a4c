//! Whether comma-separated input ends within quotes, which the reader of records takes for the end
//! of a field.
//!
//! Only quotes are looked for: one that begins a field is behind a comma, a line end, or nothing.

use std::io::{self, Read};

use super::source::Source;

/// What some programs write in front of UTF-8 text; the first field begins behind it.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An input whose quotes are watched while it is read.
pub struct Watched {
    source: Source,
    quotes: Quotes,
    has_ended: bool,
}

impl Watched {
    /// Nothing of `source` was read so far.
    pub fn new(source: Source) -> Watched {
        Watched { source, quotes: Quotes::default(), has_ended: false }
    }

    /// The input.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether it has ended within quotes: then the record that was read last has all of the rest.
    pub fn ends_within_quotes(&self) -> bool {
        self.has_ended && self.quotes.place == Place::Within
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(buffer)?;
        self.quotes.pass(&buffer[..len]);
        self.has_ended |= len == 0 && !buffer.is_empty();
        Ok(len)
    }
}

#[derive(Debug)]
struct Quotes {
    place: Place,
    /// The byte before, if there is one.
    last: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    Outside,
    Within,
    /// Behind a quote within quotes: another one makes it a character, anything else the end.
    AtQuote,
}

impl Default for Quotes {
    fn default() -> Quotes {
        Quotes { place: Place::Start, last: None }
    }
}

impl Quotes {
    fn pass(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let next_quote = || memchr::memchr(b'"', &bytes[at..]).map(|offset| at + offset);
            match self.place {
                Place::Start => {
                    at = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
                    self.place = Place::Outside;
                    match bytes.get(at) {
                        Some(b'"') => (at, self.place) = (at + 1, Place::Within),
                        Some(_) => {}
                        None => return, // Nothing is before what comes.
                    }
                }
                Place::Outside => {
                    let Some(quote) = next_quote() else { break };
                    let before = if quote > 0 { Some(bytes[quote - 1]) } else { self.last };
                    let begins = matches!(before, None | Some(b',' | b'\n' | b'\r'));
                    self.place = if begins { Place::Within } else { Place::Outside };
                    at = quote + 1;
                }
                Place::Within => {
                    let Some(quote) = next_quote() else { break };
                    (at, self.place) = (quote + 1, Place::AtQuote);
                }
                Place::AtQuote if bytes[at] == b'"' => (at, self.place) = (at + 1, Place::Within),
                Place::AtQuote => self.place = Place::Outside,
            }
        }
        self.last = bytes.last().copied().or(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_followed_over_pieces_of_any_length() {
        for (text, is_within) in [
            ("", false),
            ("a,b\nc", false),
            ("\"", true),
            ("\"a,b\n", true),
            ("\"a\"\n", false),
            ("\"a\"\"", true),
            ("\"a\"\"\"", false),
            ("a,\"b\nc", true),
            ("a,\"\"", false),
            ("a\"b,c\n", false),
            ("a \"b,\"c\",\"d", true),
            ("\"a\"b\"c,d\n", false),
            ("x\r\n\"y", true),
            ("\u{feff}\"a,\"\n", false),
            ("\u{feff}\"a", true),
        ] {
            for len in 3..=text.len().max(3) {
                let mut quotes = Quotes::default();
                text.as_bytes().chunks(len).for_each(|piece| quotes.pass(piece));
                assert_eq!(quotes.place == Place::Within, is_within, "{text:?} by {len}");
            }
        }
    }
}
