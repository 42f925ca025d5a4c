//! Escaped text: bytes as readable text from which the very bytes can be had back.
//!
//! Invariants
//! - N1  `parse_escaped(write_escaped(bytes)) == bytes` for all bytes.
//! - N2  What is written holds no control character, no tab and no line end, and nothing that
//!   reorders or hides the text around it: it is safe on a terminal, and one row stays one line.

use std::borrow::Cow;
use std::io::{self, Write};

use super::write_hex;

/// Characters that are invisible or change the direction of the text around them.
const HIDDEN: &[std::ops::RangeInclusive<char>] = &[
    '\u{AD}'..='\u{AD}',
    '\u{61C}'..='\u{61C}',
    '\u{180E}'..='\u{180E}',
    '\u{200B}'..='\u{200F}',
    '\u{2028}'..='\u{202E}',
    '\u{2060}'..='\u{206F}',
    '\u{FEFF}'..='\u{FEFF}',
    '\u{FFF9}'..='\u{FFFB}',
    '\u{E0000}'..='\u{E007F}',
];

/// Whether a character may reach a terminal as it is (N2).
pub fn is_shown_as_is(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\0'..='\u{9F}' => false,
        _ => !HIDDEN.iter().any(|range| range.contains(&character)),
    }
}

/// `text` with what may not reach a terminal as `\u{NN}`; lines stay lines. For messages: it is
/// not to be read back.
pub fn shown(text: &str) -> Cow<'_, str> {
    let is_safe = |character: char| character == '\n' || is_shown_as_is(character);
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match is_safe(character) {
            true => safe.push(character),
            false => safe.extend(character.escape_unicode()),
        }
    }
    Cow::Owned(safe)
}

/// Writes `bytes` as text: printable UTF-8 as it is, `\\` for a backslash, `\xNN` for the rest.
pub fn write_escaped(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
    let plain = bytes.iter().position(|byte| !is_plain(byte)).unwrap_or(bytes.len());
    out.write_all(&bytes[..plain])?;
    for chunk in bytes[plain..].utf8_chunks() {
        write_text(out, chunk.valid())?;
        write_bytes(out, chunk.invalid())?;
    }
    Ok(())
}

fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    let mut rest = text;
    while let Some((at, special)) =
        rest.char_indices().find(|&(_, c)| c == '\\' || !is_shown_as_is(c))
    {
        out.write_all(&rest.as_bytes()[..at])?;
        let behind = at + special.len_utf8();
        match special {
            '\\' => out.write_all(b"\\\\")?,
            _ => write_bytes(out, &rest.as_bytes()[at..behind])?,
        }
        rest = &rest[behind..];
    }
    out.write_all(rest.as_bytes())
}

fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        out.write_all(b"\\x")?;
        write_hex(out, std::slice::from_ref(byte))?;
    }
    Ok(())
}

/// Reads what [`write_escaped`] writes, and `\n`, `\r`, `\t`, `\0` besides.
pub fn parse_escaped(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' {
            bytes.push(text[at]);
            at += 1;
            continue;
        }
        let (byte, length) = match text.get(at + 1) {
            Some(b'\\') => (b'\\', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b't') => (b'\t', 2),
            Some(b'0') => (0, 2),
            Some(b'x') => (parse_digits(text, at + 2)?, 4),
            _ => return Err(format!("unknown escape at character {}", at + 1)),
        };
        bytes.push(byte);
        at += length;
    }
    Ok(bytes)
}

fn parse_digits(text: &[u8], at: usize) -> Result<u8, String> {
    text.get(at..at + 2)
        .and_then(|digits| super::parse_hex(digits).ok())
        .map(|byte| byte[0])
        .ok_or_else(|| format!("two hexadecimal digits expected at character {}", at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(bytes: &[u8]) -> String {
        let mut text = Vec::new();
        write_escaped(&mut text, bytes).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn text_stays_readable_and_the_rest_becomes_escapes() {
        assert_eq!(escaped(b"plain text"), "plain text");
        assert_eq!(escaped("grün ☃ 漢".as_bytes()), "grün ☃ 漢");
        assert_eq!(escaped(b"a\tb\nc\\d"), r"a\x09b\x0ac\\d");
        assert_eq!(escaped(b"\x00\x7F\xFFz"), r"\x00\x7f\xffz");
        assert_eq!(escaped(b"\xE2\x98"), r"\xe2\x98");
        assert_eq!(escaped(b"\x1b[31m"), r"\x1b[31m");
    }

    #[test]
    fn messages_keep_their_lines_and_steer_nothing() {
        assert_eq!(shown("two\nlines, grün"), "two\nlines, grün");
        assert_eq!(shown("a\u{1b}[2J\u{9b}m\r"), "a\\u{1b}[2J\\u{9b}m\\u{d}");
    }

    #[test]
    fn characters_that_deceive_are_escaped() {
        assert_eq!(escaped("\u{9B}31m".as_bytes()), r"\xc2\x9b31m");
        assert_eq!(escaped("a\u{202E}b".as_bytes()), r"a\xe2\x80\xaeb");
    }

    #[test]
    fn every_pair_of_bytes_survives() {
        for first in 0..=255 {
            for second in 0..=255 {
                let bytes = [first, second];
                assert_eq!(parse_escaped(escaped(&bytes).as_bytes()), Ok(bytes.to_vec()));
            }
        }
    }

    #[test]
    fn wrong_escapes_are_refused_with_their_place() {
        assert!(parse_escaped(b"ab\\q").unwrap_err().contains("character 3"));
        assert!(parse_escaped(b"\\").unwrap_err().contains("character 1"));
        assert!(parse_escaped(b"\\x4").unwrap_err().contains("character 3"));
        assert_eq!(parse_escaped(b"\\n\\t\\r\\0"), Ok(b"\n\t\r\0".to_vec()));
    }
}
