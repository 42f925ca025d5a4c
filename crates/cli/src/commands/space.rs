//! `lithe space`: flexible spaces, files whose bytes can be inserted and removed in the middle.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use lithedb::Error;
use lithedb::flex_space::{FlexSpace, SpaceCheck, SpaceSnapshot, SpaceStats};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::input::stdin;
use crate::notation::{bytes_text, count_text, parse_size, shown, write_escaped};
use crate::output::{Notices, ReportFormat, Surface, Table, stdout};

const EXAMPLES: &str = "\
Examples:
  lithe space insert text.space < book.txt                 # at the end; makes the space
  echo 'a line more' | lithe space insert text.space --at 1MiB
  lithe space collapse text.space --from 4096 --to 8192
  lithe space read text.space --from 4000 --to 4200
  lithe space check text.space

A space is a directory of its own, not part of a database. When a command returns, what it did is
durable, as a whole. Positions are in bytes, or as in 16KiB.";

/// Bytes that are read or written at once.
const PIECE_SIZE: usize = 256 << 10;

/// Options of `lithe space`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SpaceArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with a space.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Print bytes; on a terminal, escaped
    Read {
        /// Directory of the space
        path: PathBuf,
        #[command(flatten)]
        part: Part,
    },
    /// Put the bytes of standard input in front of a byte; what is behind moves up
    Insert {
        /// Directory of the space; made when there is none
        path: PathBuf,
        /// In front of which byte [default: at the end]
        #[arg(long, value_name = "OFFSET", value_parser = parse_size)]
        at: Option<u64>,
    },
    /// Put the bytes of standard input in the place of those from an offset on
    Write {
        /// Directory of the space; made when there is none
        path: PathBuf,
        /// From where on; what is missing in front of it becomes zeros
        #[arg(long, value_name = "OFFSET", value_parser = parse_size)]
        at: u64,
    },
    /// Remove a range; what is behind moves down
    Collapse {
        /// Directory of the space
        path: PathBuf,
        #[command(flatten)]
        part: Part,
    },
    /// Print the offsets of tags, and the tags
    Tags {
        /// Directory of the space
        path: PathBuf,
        #[command(flatten)]
        part: Part,
    },
    /// Put what is scattered side by side
    Defragment {
        /// Directory of the space
        path: PathBuf,
        #[command(flatten)]
        part: Part,
    },
    /// Give back what garbage takes
    Collect {
        /// Directory of the space
        path: PathBuf,
    },
    /// Show sizes and what was written
    Stats {
        /// Directory of the space
        path: PathBuf,
        /// How they are written
        #[arg(long, value_name = "FORMAT", default_value = "table")]
        format: ReportFormat,
    },
    /// Verify every checksum and the index
    Check {
        /// Directory of the space
        path: PathBuf,
        /// How the report is written
        #[arg(long, value_name = "FORMAT", default_value = "table")]
        format: ReportFormat,
    },
}

/// A range of bytes.
#[derive(Args, Clone, Copy, Debug)]
pub struct Part {
    /// The first byte
    #[arg(long, value_name = "OFFSET", value_parser = parse_size, default_value = "0")]
    from: u64,
    /// Behind the last byte [default: the end]
    #[arg(long, value_name = "OFFSET", value_parser = parse_size)]
    to: Option<u64>,
}

impl Part {
    fn range_of(self, len: u64) -> std::ops::Range<u64> {
        self.from..self.to.unwrap_or(len)
    }
}

/// Does it.
pub fn run(notices: Notices, args: &SpaceArgs) -> Outcome {
    match &args.action {
        Action::Read { path, part } => read(&open_for_reading(path)?, *part),
        Action::Insert { path, at } => insert(path, *at),
        Action::Write { path, at } => write(path, *at),
        Action::Collapse { path, part } => {
            let mut space = open_existing(path)?;
            space.collapse(part.range_of(space.len()))?;
            Ok(space.close().map(drop)?)
        }
        Action::Tags { path, part } => print_tags(&open_for_reading(path)?, *part),
        Action::Defragment { path, part } => {
            let mut space = open_existing(path)?;
            let done = space.defragment(part.range_of(space.len()))?;
            space.close()?;
            let (before, after) = (count_text(done.extents_before), count_text(done.extents_after));
            let moved = bytes_text(done.bytes_moved);
            notices.say(format!("{before} extents before, {after} after; {moved} moved"));
            Ok(())
        }
        Action::Collect { path } => {
            let mut space = open_existing(path)?;
            let done = space.collect_garbage()?;
            space.close()?;
            let (freed, moved) = (bytes_text(done.bytes_freed), bytes_text(done.bytes_moved));
            notices.say(format!("{freed} given back, {moved} moved"));
            Ok(())
        }
        Action::Stats { path, format } => print_stats(&open_existing(path)?.stats(), *format),
        Action::Check { path, format } => {
            let report = open_existing(path)?.check()?;
            write_report(&mut stdout(), &report, *format)
        }
    }
}

fn open_for_reading(path: &Path) -> Result<SpaceSnapshot, Failure> {
    FlexSpace::open_read_only(path).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            Failure::NotFound { what: format!("there is no space in {}", path.display()) }
        }
        other => Failure::Store(other),
    })
}

/// Opens a space to work on; none is made.
fn open_existing(path: &Path) -> Result<FlexSpace, Failure> {
    drop(open_for_reading(path)?);
    Ok(FlexSpace::open(path)?)
}

fn read(space: &SpaceSnapshot, part: Part) -> Outcome {
    let range = part.range_of(space.len());
    let mut handle = space.handle(range.start);
    let mut left = range.end.saturating_sub(range.start);
    let mut piece = vec![0; PIECE_SIZE];
    let mut out = stdout();
    while left > 0 {
        let wanted = left.min(PIECE_SIZE as u64) as usize;
        let count = handle.read(&mut piece[..wanted])?;
        match Surface::of_stdout() {
            Surface::Terminal => write_escaped(&mut out, &piece[..count])?,
            Surface::Stream => out.write_all(&piece[..count])?,
        }
        left = if count < wanted { 0 } else { left - count as u64 };
    }
    Ok(out.flush()?)
}

fn insert(path: &Path, at: Option<u64>) -> Outcome {
    let mut space = FlexSpace::open(path)?;
    let mut at = at.unwrap_or(space.len());
    for_each_piece(|piece| {
        space.insert(at, piece)?;
        at += piece.len() as u64;
        Ok(())
    })?;
    Ok(space.close().map(drop)?)
}

fn write(path: &Path, mut at: u64) -> Outcome {
    let mut space = FlexSpace::open(path)?;
    for_each_piece(|piece| {
        space.write(at, piece)?;
        at += piece.len() as u64;
        Ok(())
    })?;
    Ok(space.close().map(drop)?)
}

/// The bytes of standard input, piece by piece.
fn for_each_piece(mut take: impl FnMut(&[u8]) -> Outcome) -> Outcome {
    let mut input = stdin()?;
    let mut piece = vec![0; PIECE_SIZE];
    loop {
        match input.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => take(&piece[..count])?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(source) => {
                let path = PathBuf::from("standard input");
                return Err(Failure::Input { path, source });
            }
        }
    }
}

fn print_tags(space: &SpaceSnapshot, part: Part) -> Outcome {
    let mut out = stdout();
    for (offset, tag) in space.tags(part.range_of(space.len())) {
        writeln!(out, "{offset}\t{tag}")?;
    }
    Ok(out.flush()?)
}

fn print_stats(stats: &SpaceStats, format: ReportFormat) -> Outcome {
    let mut out = stdout();
    match format {
        ReportFormat::Table => write!(out, "{}", stats_table(stats))?,
        ReportFormat::Json => writeln!(out, "{}", stats_json(stats))?,
    }
    Ok(out.flush()?)
}

fn stats_table(stats: &SpaceStats) -> Table {
    let mut table = Table::bare();
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("length", bytes_text(stats.len));
    row("extents", count_text(stats.extents));
    row("tags", count_text(stats.tags));
    row("segments", count_text(stats.segments));
    row("  live", bytes_text(stats.live_bytes));
    row("  garbage", bytes_text(stats.garbage_bytes));
    row("index", bytes_text(stats.index_file_bytes));
    row("written since it was made", bytes_text(stats.lifetime_bytes_written));
    row("  given by callers", bytes_text(stats.lifetime_user_bytes));
    row("write amplification", format!("{:.2}", stats.lifetime_write_amplification()));
    table
}

fn stats_json(stats: &SpaceStats) -> Value {
    json!({
        "length": stats.len,
        "extents": stats.extents,
        "tags": stats.tags,
        "segments": stats.segments,
        "live_bytes": stats.live_bytes,
        "garbage_bytes": stats.garbage_bytes,
        "index_file_bytes": stats.index_file_bytes,
        "lifetime_bytes_written": stats.lifetime_bytes_written,
        "lifetime_user_bytes": stats.lifetime_user_bytes,
        "lifetime_write_amplification": stats.lifetime_write_amplification(),
    })
}

fn write_report(out: &mut impl Write, report: &SpaceCheck, format: ReportFormat) -> Outcome {
    match format {
        ReportFormat::Table if report.is_ok() => {
            let (files, extents) = (count_text(report.files), count_text(report.extents));
            writeln!(out, "ok: {files} files ({}), {extents} extents", bytes_text(report.bytes))?;
        }
        ReportFormat::Table => {
            for problem in &report.problems {
                writeln!(out, "{}", shown(problem))?;
            }
        }
        ReportFormat::Json => {
            let object = json!({
                "ok": report.is_ok(),
                "files": report.files,
                "bytes": report.bytes,
                "extents": report.extents,
                "problems": report.problems,
            });
            writeln!(out, "{object}")?;
        }
    }
    out.flush()?;
    match report.problems.len() {
        0 => Ok(()),
        problem_count => Err(Failure::Damaged { problem_count }),
    }
}
