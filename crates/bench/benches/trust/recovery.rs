//! Opening a database whose process was killed with much in the log that no structure has.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use lithedb::{Builder, Db, Durability, WriteBatch};

use super::load::{SHAPE, VALUE_LEN, value_of};
use super::{Asked, MIB, Result, median};

/// Said to the program that is to be killed.
pub const CHILD: &str = "write-and-wait";
/// Bytes of the log that are to be done again.
const LOG_BYTES: u64 = 256 * MIB;
const BATCH: u64 = 100;

/// Nothing is flushed before it is killed.
fn builder(asked_memory: u64) -> Builder {
    Db::builder().memory_budget(asked_memory.max(4 * LOG_BYTES)).memtable_size(2 * LOG_BYTES)
}

pub fn run(dir: &Path, asked: &Asked) -> Result<()> {
    let mut seconds = Vec::new();
    for round in 0..asked.rounds {
        let dir = dir.join(format!("{round}"));
        let mut child = Command::new(std::env::current_exe()?)
            .arg(CHILD)
            .arg(&dir)
            .arg(&asked.structure)
            .arg(asked.memory.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().ok_or("no pipe")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        child.kill()?;
        child.wait()?;
        let count: u64 = line.trim().parse()?;
        let start = Instant::now();
        let db = builder(asked.memory).open(&dir)?;
        seconds.push(start.elapsed().as_secs_f64());
        let keyspace = db.keyspace("keys")?;
        for number in (0..count).step_by(1009) {
            if keyspace.get(SHAPE.key(number))?.as_deref() != Some(&value_of(number, 0)[..]) {
                return Err(format!("key {number} is lost").into());
            }
        }
        if keyspace.len()? != count {
            return Err(format!("{} keys of {count}", keyspace.len()?).into());
        }
        drop((keyspace, db));
        std::fs::remove_dir_all(&dir)?;
    }
    println!(
        "  opened behind a kill with {} MiB of log: {:.2} s",
        LOG_BYTES / MIB,
        median(seconds)
    );
    Ok(())
}

/// Writes, says how much, and waits to be killed.
pub fn child(mut words: impl Iterator<Item = String>) -> Result<()> {
    let mut word = || words.next().ok_or("a word is missing");
    let (dir, structure, memory) = (word()?, word()?, word()?.parse::<u64>()?);
    let asked = Asked {
        parts: Vec::new(),
        structure,
        keys: 0,
        memory,
        rounds: 0,
        dir: std::path::PathBuf::new(),
    };
    let db = builder(memory).open(&dir)?;
    let keyspace = db.create_keyspace("keys", asked.options())?;
    let (mut written, mut number) = (0, 0);
    while written < LOG_BYTES {
        let mut batch = WriteBatch::new();
        for _ in 0..BATCH {
            batch.put(&keyspace, SHAPE.key(number), value_of(number, 0));
            number += 1;
        }
        written += BATCH * (SHAPE.key_len() + VALUE_LEN) as u64;
        db.write_with(batch, Durability::Buffered)?;
    }
    db.sync()?;
    println!("{number}");
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}
