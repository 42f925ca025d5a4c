//! The demo's reading steps: single keys with their latencies, prefixes, ranges, everything.

use std::time::Duration;

use lithedb::base::{Clock, Entropy, SeededEntropy};
use lithedb::{KeyRange, Keyspace};

use super::Demo;
use super::claims::Claim;
use super::dataset::{self, CHARACTER_COUNT, glyph_of};
use super::screen::Screen;
use crate::failure::{Failure, Outcome};
use crate::notation::{count_text, duration_text, rate_text};

const READ_COUNT: u64 = 200_000;
const ROWS_SHOWN: usize = 6;
/// Any number: the same reads in every run.
const SEED: u64 = 15;

/// Reads random keys, present and absent.
pub fn point_reads(demo: &Demo, screen: &mut Screen) -> Outcome {
    let value = demo.characters.get("01F980")?.unwrap_or_default();
    let name = String::from_utf8_lossy(&value);
    let name = name.split(';').next().unwrap_or_default().to_owned();
    screen.row("characters 01F980", &glyph_of("01F980"), &name)?;
    Claim("a character that was loaded is found").holds(name == "CRAB")?;

    let codes: Vec<String> = dataset::characters().map(|character| character.code).collect();
    let present = measure_reads(demo, |random| codes[random as usize % codes.len()].clone())?;
    Claim("every key that was loaded is found").holds(present.found == READ_COUNT)?;
    screen.fact("random keys", &present.text())?;
    let absent = measure_reads(demo, |random| format!("{:06X}.", random & 0xF_FFFF))?;
    Claim("no key is found that was not loaded").holds(absent.found == 0)?;
    screen.fact("absent keys", &absent.text())?;
    Ok(())
}

/// Reads that were measured one by one.
struct Reads {
    found: u64,
    elapsed: Duration,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Reads {
    fn text(&self) -> String {
        format!(
            "{} reads/s; half within {}, 99% within {}",
            rate_text(self.latencies.len() as u64, self.elapsed),
            duration_text(percentile(&self.latencies, 50)),
            duration_text(percentile(&self.latencies, 99)),
        )
    }
}

/// The smallest latency that `percent` of the (sorted) latencies do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn measure_reads(demo: &Demo, key_of: impl Fn(u64) -> String) -> Result<Reads, Failure> {
    let random = SeededEntropy::new(SEED);
    let keys: Vec<String> = (0..READ_COUNT).map(|_| key_of(random.next_u64())).collect();
    let mut latencies = Vec::with_capacity(keys.len());
    let mut found = 0;
    let start = demo.clock.monotonic();
    let mut before = start;
    for key in &keys {
        found += u64::from(demo.characters.get(key)?.is_some());
        let after = demo.clock.monotonic();
        latencies.push(after - before);
        before = after;
    }
    latencies.sort_unstable();
    Ok(Reads { found, elapsed: before - start, latencies })
}

/// Shows a prefix and a range, then walks over everything, both ways.
pub fn scans(demo: &Demo, screen: &mut Screen) -> Outcome {
    screen.fact("prefix", "names that begin with \"SNOW\"")?;
    for entry in demo.names.prefix("SNOW").take(ROWS_SHOWN) {
        let entry = entry?;
        let code = String::from_utf8_lossy(&entry.value);
        screen.row(&String::from_utf8_lossy(&entry.key), &glyph_of(&code), &format!("U+{code}"))?;
    }
    screen.fact("range, backwards", "characters from 002654 to 00265A")?;
    for entry in demo.characters.range("002654".."00265A").rev() {
        let entry = entry?;
        let code = String::from_utf8_lossy(&entry.key);
        let value = String::from_utf8_lossy(&entry.value);
        let name = value.split(';').next().unwrap_or_default();
        screen.row(&code, &glyph_of(&code), name)?;
    }
    let start = demo.clock.monotonic();
    let rows = count_rows(&demo.characters)?;
    let elapsed = demo.clock.monotonic() - start;
    Claim("a scan meets every character").holds(rows == CHARACTER_COUNT)?;
    let text = format!(
        "{} rows in {}, {} rows/s",
        count_text(rows),
        duration_text(elapsed),
        rate_text(rows, elapsed)
    );
    screen.fact("everything", &text)?;
    Ok(())
}

/// Walks over a keyspace.
pub fn count_rows(keyspace: &Keyspace) -> Result<u64, Failure> {
    let mut cursor = keyspace.cursor(KeyRange::all());
    let mut rows = 0;
    cursor.seek_first()?;
    while cursor.valid() {
        rows += 1;
        cursor.next()?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_latencies() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_nanos).collect();
        assert_eq!(percentile(&sorted, 50), Duration::from_nanos(100));
        assert_eq!(percentile(&sorted, 99), Duration::from_nanos(198));
        assert_eq!(percentile(&sorted[..1], 99), Duration::from_nanos(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
