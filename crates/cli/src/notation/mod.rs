//! Notation: how bytes are written as text, and text read as bytes. Knows nothing of the store.
//! Times, stamps and durations are as the server has them.

mod escape;
mod hex;
mod moment;
mod units;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

pub use escape::{is_shown_as_is, parse_escaped, shown, write_escaped};
pub use hex::{parse_hex, write_hex};
pub use lithe_server::moment::{
    MomentError, exact_duration_text, millis_text, parse_duration, parse_stamp, parse_stamp_time,
    parse_time, stamp_time_text, time_text,
};
pub use moment::parse_moment;
pub use units::{bytes_text, count_text, duration_text, parse_size, parse_small_size, rate_text};

/// How a key or a value on the command line is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Notation {
    /// The bytes of the argument as they are
    #[default]
    Text,
    /// Two hexadecimal digits per byte
    Hex,
    /// Text with \xNN for a byte and \\ for a backslash (also \n \r \t \0)
    Escaped,
}

impl Notation {
    /// The bytes that `argument` stands for, or a sentence that says what is wrong with it.
    pub fn parse(self, argument: &OsStr) -> Result<Vec<u8>, String> {
        let bytes = argument.as_bytes();
        match self {
            Notation::Text => Ok(bytes.to_vec()),
            Notation::Hex => parse_hex(bytes),
            Notation::Escaped => parse_escaped(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_argument_keeps_bytes_that_are_not_utf8() {
        let argument = OsStr::from_bytes(b"a\xFF\\x00");
        assert_eq!(Notation::Text.parse(argument), Ok(b"a\xFF\\x00".to_vec()));
        assert_eq!(Notation::Escaped.parse(argument), Ok(b"a\xFF\x00".to_vec()));
    }
}
