//! What trust costs: backups beside a load, encryption, recovery behind a kill, checks, scrubbing.
//!
//!     cargo bench -p lithe-bench --bench trust -- --parts backup,recovery --structure lsm
//!
//! Parts: `backup`, `encryption`, `recovery`, `check`, `scrub`; all of them if none is named.
//! `--keys` (5,000,000), `--memory` (256 MiB, the budget), `--structure` (flex), `--rounds` (3,
//! whose medians are told), `--dir`. Whatever is read is compared with what was written; a wrong
//! answer ends it.
//!
//! | file | part |
//! |---|---|
//! | `load.rs` | a store that is filled, and read and overwritten half and half (W6 A) |
//! | `backup.rs` | what a backup does to the answers beside it, and what the next one writes |
//! | `costs.rs` | encrypted beside plain, a check, scrubbing |
//! | `recovery.rs` | opening what a killed process has left |

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time, on a real disk")]

mod backup;
mod costs;
mod load;
mod recovery;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lithe_bench::Memory;
use lithedb::KeyspaceOptions;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const MIB: u64 = 1 << 20;
const PARTS: [&str; 5] = ["backup", "encryption", "recovery", "check", "scrub"];

struct Asked {
    parts: Vec<String>,
    structure: String,
    keys: u64,
    memory: u64,
    rounds: u64,
    dir: PathBuf,
}

impl Asked {
    fn options(&self) -> KeyspaceOptions {
        match self.structure.as_str() {
            "lsm" => KeyspaceOptions::lsm(),
            "history" => KeyspaceOptions::history(),
            _ => KeyspaceOptions::flex(),
        }
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(recovery::CHILD) {
        return told(recovery::child(words));
    }
    told(parse(std::env::args().skip(1)).and_then(|asked| run(&asked)))
}

fn told(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trust: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked> {
    let parts = PARTS.map(str::to_owned).to_vec();
    let (structure, dir) = ("flex".to_owned(), std::env::temp_dir());
    let mut asked = Asked { parts, structure, keys: 5_000_000, memory: 256 * MIB, rounds: 3, dir };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--parts" => {
                asked.parts = value()?.split(',').map(str::to_owned).collect();
                if let Some(other) = asked.parts.iter().find(|part| !PARTS.contains(&&***part)) {
                    return Err(format!("no part {other}").into());
                }
            }
            "--structure" => {
                asked.structure = value()?;
                if !["flex", "lsm", "history"].contains(&&*asked.structure) {
                    return Err(format!("no structure {}", asked.structure).into());
                }
            }
            "--keys" => asked.keys = value()?.parse::<u64>()?.max(1000),
            "--rounds" => asked.rounds = value()?.parse::<u64>()?.max(1),
            "--memory" => match value()?.parse()? {
                Memory::Bytes(bytes) => asked.memory = bytes,
                Memory::EngineDefault => return Err("--memory wants a size".into()),
            },
            "--dir" => asked.dir = PathBuf::from(value()?),
            "--bench" => {} // Cargo says this to every benchmark.
            _ => return Err(format!("unknown option {word}").into()),
        }
    }
    Ok(asked)
}

fn run(asked: &Asked) -> Result<()> {
    let dir = asked.dir.join(format!("lithe-trust-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let outcome = asked.parts.iter().try_for_each(|part| run_part(part, &dir, asked));
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn run_part(part: &str, dir: &Path, asked: &Asked) -> Result<()> {
    println!("{part}: {} keys, {}, {} MiB", asked.keys, asked.structure, asked.memory / MIB);
    let dir = dir.join(part);
    std::fs::create_dir_all(&dir)?;
    match part {
        "backup" => backup::run(&dir, asked),
        "encryption" => costs::encryption(&dir, asked),
        "recovery" => recovery::run(&dir, asked),
        "check" => costs::check(&dir, asked),
        _ => costs::scrub(&dir, asked),
    }?;
    Ok(std::fs::remove_dir_all(&dir)?)
}

/// The middle one, of an odd count; the upper of the two middle ones else.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
