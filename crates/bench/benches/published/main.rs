//! The tables that others have published of their log-structured stores, made anew with `Lsm` and
//! printed beside their figures: LoremDB's, BedrockDB's, and what "Exploring SSTables" found about
//! the parts of a table.
//!
//!     cargo bench -p lithe-bench --bench published                          # all three
//!     cargo bench -p lithe-bench --bench published -- bedrock --runs 5 --dir /data
//!     cargo bench -p lithe-bench --bench published -- bedrock --large       # 1.1 GB as well
//!
//! Their figures come from their machines (LoremDB: Apple M4; BedrockDB: i7-13650HX), and the
//! durability of a row is theirs unless its name says another, so a factor tells the order of
//! magnitude. Every figure is the median of `--runs` (3). What is read is compared with what was
//! written.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time, on a real disk")]

mod bedrock;
mod lorem;
mod tables;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What was asked for.
struct Asked {
    sections: Vec<String>,
    runs: usize,
    large: bool,
    dir: PathBuf,
}

/// One line of a table.
struct Row {
    work: String,
    /// What the others have published, if it is the same work.
    published: Option<f64>,
    measured: f64,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    /// Less is better.
    Nanos,
    /// Less is better.
    Bytes,
    Count,
}

impl Row {
    fn nanos(work: impl Into<String>, published: impl Into<Option<f64>>, measured: f64) -> Row {
        let (work, published) = (work.into(), published.into());
        Row { work, published, measured, unit: Unit::Nanos }
    }

    fn bytes(work: impl Into<String>, measured: f64) -> Row {
        Row { work: work.into(), published: None, measured, unit: Unit::Bytes }
    }

    fn count(work: impl Into<String>, measured: f64) -> Row {
        Row { work: work.into(), published: None, measured, unit: Unit::Count }
    }
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|asked| run(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("published: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked> {
    let dir = std::env::temp_dir();
    let mut asked = Asked { sections: Vec::new(), runs: 3, large: false, dir };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "lorem" | "bedrock" | "tables" => asked.sections.push(word),
            "--runs" => asked.runs = value()?.parse::<usize>()?.max(1),
            "--large" => asked.large = true,
            "--dir" => asked.dir = PathBuf::from(value()?),
            "--bench" => {} // Cargo says this to every benchmark.
            _ => return Err(format!("unknown word {word}").into()),
        }
    }
    Ok(asked)
}

fn run(asked: &Asked) -> Result<()> {
    type Section = fn(&Asked) -> Result<Vec<Row>>;
    let sections: [(&str, Section); 3] =
        [("lorem", lorem::rows), ("bedrock", bedrock::rows), ("tables", tables::rows)];
    for (name, rows) in sections {
        if asked.sections.is_empty() || asked.sections.iter().any(|section| section == name) {
            println!("{name}: {:<52} {:>12} {:>12} {:>9}", "work", "published", "here", "factor");
            for row in medians(asked.runs, || rows(asked))? {
                row.print();
            }
        }
    }
    Ok(())
}

impl Row {
    fn print(&self) {
        let published = self.published.map_or_else(|| "-".into(), |figure| self.unit.shown(figure));
        let factor = self.published.map(|published| published / self.measured);
        let factor = factor.map_or_else(|| "-".into(), |factor| format!("{factor:.1}"));
        let measured = self.unit.shown(self.measured);
        println!("  {:<58} {published:>12} {measured:>12} {factor:>9}", self.work);
    }
}

impl Unit {
    fn shown(self, figure: f64) -> String {
        match self {
            Unit::Nanos if figure < 1e4 => format!("{figure:.0} ns"),
            Unit::Nanos if figure < 1e7 => format!("{:.1} us", figure / 1e3),
            Unit::Nanos if figure < 1e10 => format!("{:.1} ms", figure / 1e6),
            Unit::Nanos => format!("{:.1} s", figure / 1e9),
            Unit::Bytes if figure < 1e5 => format!("{figure:.0} B"),
            Unit::Bytes => format!("{:.1} MB", figure / 1e6),
            Unit::Count => format!("{figure:.1}"),
        }
    }
}

/// Each row as the median of several runs.
fn medians(runs: usize, mut measure: impl FnMut() -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let mut all = (0..runs).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    let mut rows = all.pop().unwrap_or_default();
    for (index, row) in rows.iter_mut().enumerate() {
        let mut figures: Vec<f64> = all.iter().map(|run| run[index].measured).collect();
        figures.push(row.measured);
        figures.sort_by(f64::total_cmp);
        row.measured = figures[figures.len() / 2];
    }
    Ok(rows)
}

/// Nanoseconds that each of `count` operations takes.
fn nanos_each(count: u64, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

/// A directory that goes when it is let go of.
struct Scratch(PathBuf);

impl Scratch {
    fn new(asked: &Asked, name: &str) -> Result<Scratch> {
        let path = asked.dir.join(format!("lithe-published-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
