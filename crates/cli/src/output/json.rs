//! JSON strings of bytes: UTF-8 as a string, anything else as `{"hex": ".."}`.
//!
//! A value that is the text `{"hex": ".."}` itself is written as a JSON string, so the two cannot
//! be confused. Characters that could steer or deceive a terminal are written as `\u00NN`, which
//! means the same to every reader of JSON.

use std::io::{self, Write};

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
                // JSON counts in UTF-16: a character above U+FFFF takes two.
                for unit in special.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
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
