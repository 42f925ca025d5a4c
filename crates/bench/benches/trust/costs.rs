//! What encryption, a check and scrubbing cost.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use lithe_bench::directory_size;
use lithedb::{Builder, Db, Encryption, ScrubOptions};

use super::load::{Store, data_bytes};
use super::{Asked, MIB, Result, median};

/// Reads of each round.
const READS: u64 = 1_000_000;
/// How long operations are counted with scrubbing, and without.
const SCRUBBED: Duration = Duration::from_secs(10);

/// Puts, gets of keys at random, and half and half, of a plain store and one that is encrypted,
/// side by side.
pub fn encryption(dir: &Path, asked: &Asked) -> Result<()> {
    let mut ratios = [const { Vec::new() }; 3];
    for round in 0..asked.rounds {
        let mut rates = Vec::new();
        for is_encrypted in [false, true] {
            let builder = match is_encrypted {
                true => Db::builder().encryption(Encryption::key([7; 32])),
                false => Db::builder(),
            };
            let dir = dir.join(format!("{round}-{is_encrypted}"));
            rates.push(rates_of(&dir, builder, asked)?);
            std::fs::remove_dir_all(&dir)?;
        }
        let (plain, sealed) = (rates[0], rates[1]);
        for (number, name) in ["puts", "gets", "W6 A"].into_iter().enumerate() {
            ratios[number].push(sealed[number] / plain[number]);
            println!("  {name}: plain {:.0}/s, encrypted {:.0}/s", plain[number], sealed[number]);
        }
    }
    let [puts, gets, mixed] = ratios.map(median);
    println!("  encrypted of plain: puts {puts:.2}, gets {gets:.2}, W6 A {mixed:.2}");
    Ok(())
}

fn rates_of(dir: &Path, builder: Builder, asked: &Asked) -> Result<[f64; 3]> {
    let (mut store, time) = Store::fill(dir, builder, asked)?;
    store.rest()?;
    let gets = store.run_reads(READS)?;
    let mixed = store.run_mixed(|operations| operations < READS)?;
    Ok([asked.keys as f64 / time.as_secs_f64(), gets, mixed.rate()])
}

/// A check of everything, beside reading the same files.
pub fn check(dir: &Path, asked: &Asked) -> Result<()> {
    let (store, _) = Store::fill(dir, Db::builder(), asked)?;
    store.rest()?;
    let bytes = directory_size(dir)?;
    let (mut checks, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..asked.rounds {
        let start = Instant::now();
        let report = store.db.check()?;
        checks.push(bytes as f64 / start.elapsed().as_secs_f64());
        if !report.is_ok() {
            return Err(format!("check: {report:?}").into());
        }
        let start = Instant::now();
        let read = read_all(dir)?;
        reads.push(read as f64 / start.elapsed().as_secs_f64());
    }
    println!(
        "  check: {:.0} MB/s of {} MiB, reading the files alone {:.0} MB/s",
        median(checks) / 1e6,
        bytes / MIB,
        median(reads) / 1e6
    );
    Ok(())
}

/// Bytes of all files, which are read.
fn read_all(dir: &Path) -> Result<u64> {
    let (mut total, mut buffer) = (0, vec![0; MIB as usize]);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            total += read_all(&entry.path())?;
            continue;
        }
        let mut file = File::open(entry.path())?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => total += read as u64,
            }
        }
    }
    Ok(total)
}

/// Operations a second without scrubbing and with it, at its default rate, in turns.
pub fn scrub(dir: &Path, asked: &Asked) -> Result<()> {
    let (mut store, _) = Store::fill(dir, Db::builder(), asked)?;
    store.rest()?;
    let mut ratios = Vec::new();
    let (mut verified, mut all) = (0, 0.0);
    for _ in 0..asked.rounds {
        let mut rates = Vec::new();
        for options in [None, Some(ScrubOptions::new())] {
            store = reopened(store, dir, options, asked)?;
            let start = Instant::now();
            rates.push(store.run_mixed(|_| start.elapsed() < SCRUBBED)?.rate());
            let bytes = store.db.health().scrub.map_or(0, |scrub| scrub.bytes);
            (verified, all) = (verified + bytes, all + start.elapsed().as_secs_f64() / 2.0);
        }
        println!("  W6 A: {:.0} operations/s, beside scrubbing {:.0}", rates[0], rates[1]);
        ratios.push(rates[1] / rates[0]);
    }
    println!(
        "  beside scrubbing {:.3} of what is done without, {:.1} MB/s verified of {} MB of data",
        median(ratios),
        verified as f64 / 1e6 / all,
        data_bytes(asked.keys) / 1_000_000
    );
    Ok(())
}

/// The same store, opened anew.
fn reopened(
    store: Store,
    dir: &Path,
    options: Option<ScrubOptions>,
    asked: &Asked,
) -> Result<Store> {
    let builder = Db::builder().memory_budget(asked.memory);
    let builder = match options {
        Some(options) => builder.scrub(options),
        None => builder,
    };
    store.reopen(|| Ok(builder.open(dir)?))
}
