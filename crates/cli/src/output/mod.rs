//! Output: data on standard output, in the format that was asked for, buffered; notices on
//! standard error.
//!
//! Invariants
//! - O1  Nothing but data goes to standard output.
//! - O2  No format loses a byte: from each, the keys and values can be had back exactly. (`raw` is
//!   for those who know that their keys hold no tab and no line end.)
//! - O3  Bytes that could steer a terminal never reach one, but by an explicit `--format raw`.

mod json;
mod notice;
mod rows;
mod steered;
mod table;

use std::io::BufWriter;

pub use json::{json_line, write_json_bytes};
pub use notice::Notices;
pub use rows::{Columns, Row, RowWriter};
pub use steered::{Output, PageLength, TerminalSize, terminal_size};
pub use steered::{begin_output, end_output, redirect_stdout, steer_stdout};
pub use table::Table;

/// Large, so that a scan of millions of rows makes few system calls.
const BUFFER_SIZE: usize = 256 << 10;

/// How keys and values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RowFormat {
    /// Aligned columns, escaped
    Table,
    /// One array of objects; bytes that are no UTF-8 become {"hex": ".."}
    Json,
    /// One object per line; `load --format ndjson --value value` reads it back
    Jsonl,
    /// Comma-separated with a header line
    Csv,
    /// Two hexadecimal digits per byte, columns between tabs
    Hex,
    /// Text with \xNN and \\, columns between tabs
    Escaped,
    /// The exact bytes; key, tab, value, line end
    Raw,
}

/// How a list of things is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ListFormat {
    /// Aligned columns
    #[default]
    Table,
    /// One array of objects
    Json,
    /// One object per line
    Jsonl,
    /// Comma-separated with a header line
    Csv,
    /// The names only, one per line
    Raw,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ReportFormat {
    /// For people
    #[default]
    Table,
    /// One object
    Json,
}

/// How statistics are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum StatsFormat {
    /// For people
    #[default]
    Table,
    /// One object
    Json,
    /// Prometheus text exposition
    Prometheus,
}

/// Where standard output leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// A person reads it; bytes can steer it.
    Terminal,
    /// A file or another program.
    Stream,
}

impl Surface {
    /// Where standard output leads now.
    pub fn of_stdout() -> Surface {
        if steered::leads_to_terminal() { Surface::Terminal } else { Surface::Stream }
    }
}

/// Standard output, buffered. It must be flushed: an error when it is dropped is lost.
pub fn stdout() -> BufWriter<Output> {
    BufWriter::with_capacity(BUFFER_SIZE, steered::output())
}
