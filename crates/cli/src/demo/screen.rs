//! How the demo looks: numbered steps, facts with aligned labels, rows of the store.

use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;

/// Columns of a fact's label.
const LABEL_WIDTH: usize = 20;

/// Prints the demo to standard output, line by line.
pub struct Screen {
    steps: u32,
}

impl Screen {
    /// An empty screen.
    pub fn new() -> Screen {
        Screen { steps: 0 }
    }

    /// The first line.
    pub fn title(&self, title: &str) -> io::Result<()> {
        let bold = Style::new().bold();
        writeln!(anstream::stdout(), "{bold}{title}{bold:#}")
    }

    /// Begins a step.
    pub fn step(&mut self, title: &str) -> io::Result<()> {
        self.steps += 1;
        let bold = Style::new().bold();
        writeln!(anstream::stdout(), "\n{bold}{}. {title}{bold:#}", self.steps)
    }

    /// A label and what is to be said about it.
    pub fn fact(&self, label: &str, text: &str) -> io::Result<()> {
        let dim = Style::new().dimmed();
        writeln!(anstream::stdout(), "   {dim}{label:<LABEL_WIDTH$}{dim:#} {text}")
    }

    /// A row of the store: a key, the glyph if there is one, and what the value says.
    pub fn row(&self, key: &str, glyph: &str, text: &str) -> io::Result<()> {
        // The glyph comes last, because nobody knows how wide a terminal draws it.
        writeln!(anstream::stdout(), "     {key:<30} {text:<24} {glyph}")
    }

    /// What to try next.
    pub fn next_commands(&self, database: &Path) -> io::Result<()> {
        let bold = Style::new().bold();
        let mut out = anstream::stdout().lock();
        writeln!(out, "\n{bold}Try next{bold:#}")?;
        let program = std::env::args_os().next().unwrap_or_else(|| "lithe".into());
        let (program, database) = (Path::new(&program).display(), database.display());
        for arguments in [
            "get --keyspace characters 01F600",
            "scan --keyspace names --prefix 'WHITE CHESS'",
            "scan --keyspace characters --from 002600 --to 002610 --format jsonl --stamps",
            "count --keyspace names --prefix 'LATIN SMALL'",
            "put greeting hello",
            "stats",
            "check",
        ] {
            writeln!(out, "   {program} --db {database} {arguments}")?;
        }
        writeln!(out, "   {program} --help")
    }
}
