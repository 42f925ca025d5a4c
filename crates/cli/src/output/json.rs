//! JSON strings of bytes: UTF-8 as a string, anything else as `{"hex": ".."}`.
//!
//! A value that is the text `{"hex": ".."}` itself is written as a JSON string, so the two cannot
//! be confused. Characters that could steer or deceive a terminal are written as `\u00NN`, which
//! means the same to every reader of JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::Value;

use crate::notation::{is_shown_as_is, write_hex};

/// Writes `bytes` as a JSON value.
pub fn write_json_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        out.write_all(b"{\"hex\":\"")?;
        write_hex(out, bytes)?;
        return out.write_all(b"\"}");
    };
    out.write_all(b"\"")?;
    write_json_text(out, text)?;
    out.write_all(b"\"")
}

/// A value on one line, safe on a terminal. Names and paths are text of others.
pub fn json_line(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().all(is_shown_as_is) {
        return text;
    }
    // Such characters are in strings only, where an escape means the same.
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match is_shown_as_is(character) {
            true => safe.push(character),
            false => push_escape(&mut safe, character),
        }
    }
    safe
}

/// JSON counts in UTF-16: a character above U+FFFF takes two.
fn push_escape(text: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(text, "\\u{unit:04x}");
    }
}

fn write_json_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    let is_plain = |c: char| c != '"' && c != '\\' && is_shown_as_is(c);
    let mut rest = text;
    while let Some((at, special)) = rest.char_indices().find(|&(_, c)| !is_plain(c)) {
        out.write_all(&rest.as_bytes()[..at])?;
        match special {
            '"' => out.write_all(b"\\\"")?,
            '\\' => out.write_all(b"\\\\")?,
            '\n' => out.write_all(b"\\n")?,
            '\r' => out.write_all(b"\\r")?,
            '\t' => out.write_all(b"\\t")?,
            _ => {
                let mut escape = String::new();
                push_escape(&mut escape, special);
                out.write_all(escape.as_bytes())?;
            }
        }
        rest = &rest[at + special.len_utf8()..];
    }
    out.write_all(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        write_json_bytes(&mut out, bytes).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_character_reads_back_by_a_json_parser() {
        let all: String =
            (0..=0x2FFF).chain(0xE_0000..0xE_0080).filter_map(char::from_u32).collect();
        let parsed: String = serde_json::from_str(&written(all.as_bytes())).unwrap();
        assert_eq!(parsed, all);
    }

    #[test]
    fn a_line_of_json_steers_no_terminal_and_says_the_same() {
        let value = serde_json::json!({ "name": "\u{9b}31m\u{202e}\u{E0001}\u{1b}", "n": 1 });
        let line = json_line(&value);
        assert!(line.chars().all(is_shown_as_is), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        let plain = serde_json::json!({ "name": "grün" });
        assert_eq!(json_line(&plain), plain.to_string());
    }

    #[test]
    fn bytes_that_are_no_text_become_hexadecimal() {
        assert_eq!(written(b"a\xFF"), r#"{"hex":"61ff"}"#);
        assert_eq!(written(br#"{"hex":"61ff"}"#), r#""{\"hex\":\"61ff\"}""#);
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_written() {
        assert_eq!(
            written("\u{1b}[1m\u{9b}\u{7f}\u{202e}".as_bytes()),
            r#""\u001b[1m\u009b\u007f\u202e""#
        );
    }
}
