//! Dumps: the pairs of keyspaces as lines of text, byte-exact on the way out and back.
//!
//! A line is fields with tabs between them, all but the first in escaped text (`\xNN`, `\\`):
//! whatever the bytes are, a line is a line.
//!
//! | line | meaning |
//! |---|---|
//! | `lithe-dump 1 CONTENT` | the first; `CONTENT` is `values`, `keys` or `hashes`: what is there |
//! | `lithe-dump 1 CONTENT stamps` | the same, of a dump with stamps |
//! | `keyspace NAME OPTION=VALUE ..` | what follows belongs to this keyspace |
//! | `put KEY VALUE` | a pair |
//! | `begin KEY LEN` | a pair whose value of `LEN` bytes follows, |
//! | `more BYTES` | in pieces, until there are `LEN` bytes |
//! | `key KEY` | a pair without its value (`keys`) |
//! | `hash KEY LEN HASH` | a pair with the length of its value and the first 16 bytes of its |
//! | | BLAKE3 hash, as hexadecimal digits (`hashes`) |
//! | `until MILLIS` | the pair on the next line expires then: milliseconds since 1970 |
//! | `end COUNT` | the last: how many pairs there are |
//!
//! With `stamps`, lines with a `KEY` have the stamp of its commit as one more field.
//!
//! Invariants
//! - F1  Reading what was written gives the same keyspaces, keys and values, to the byte, and the
//!   same expiry, to the millisecond.
//! - F2  A line holds at most [`PIECE_SIZE`] bytes of a value: neither side needs memory for more.
//! - F3  What is cut short or otherwise not as above is refused, with the number of the line.

mod options;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use options::lsm_options;
pub use reader::{DumpReader, Item, on_line};
pub use writer::{DumpWriter, Pairs};

/// The first field of a dump.
pub const MAGIC: &str = "lithe-dump";
const VERSION: &str = "1";
/// Bytes of a value on one line, at most. Longer values are written in pieces.
const PIECE_SIZE: usize = 32 << 10;

/// What a dump has of each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it.
    Values,
    /// Nothing.
    Keys,
    /// Its length and its hash.
    Hashes,
}

impl Content {
    const ALL: [Content; 3] = [Content::Values, Content::Keys, Content::Hashes];

    fn name(self) -> &'static str {
        match self {
            Content::Values => "values",
            Content::Keys => "keys",
            Content::Hashes => "hashes",
        }
    }
}

/// Whether a dump has stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// Each pair has one.
    Shown,
    /// There are none.
    Absent,
}

const STAMPS: &str = "stamps";
