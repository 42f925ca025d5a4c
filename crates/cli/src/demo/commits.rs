//! The demo's writing steps: an atomic batch over two keyspaces, and a snapshot that stands still
//! while another thread writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lithedb::base::{Clock, Entropy, SeededEntropy};
use lithedb::{Cursor, Durability, KeyRange, WriteBatch};

use super::Demo;
use super::claims::Claim;
use super::dataset;
use super::screen::Screen;
use crate::failure::Failure;
use crate::notation::{count_text, duration_text, rate_text};

/// A private-use code point that the data set does not name.
const NEW_CODE: &str = "0F0001";
const NEW_NAME: &str = "LITHE SIGN";
const NEW_FIELDS: &str = "LITHE SIGN;Co;0;L;;;;;N;;;;;";
/// How long the writer writes.
const WRITING_TIME: Duration = Duration::from_millis(2500);
const SEED: u64 = 16;

/// Adds a character to two keyspaces at once, and takes it away again. Returns the bytes of keys
/// and values that it wrote.
pub fn atomic_batch(demo: &Demo, screen: &mut Screen) -> Result<u64, Failure> {
    let mut batch = WriteBatch::new();
    batch.put(&demo.characters, NEW_CODE, NEW_FIELDS);
    batch.put(&demo.names, NEW_NAME, NEW_CODE);
    let start = demo.clock.monotonic();
    let stamp = demo.db.write_with(batch, Durability::Sync)?;
    let elapsed = demo.clock.monotonic() - start;
    screen.fact("durable in", &duration_text(elapsed))?;

    let snapshot = demo.db.snapshot();
    let by_code = snapshot.get_entry(&demo.characters, NEW_CODE)?.map(|entry| entry.seqno);
    let by_name = snapshot.get_entry(&demo.names, NEW_NAME)?.map(|entry| entry.seqno);
    Claim("both rows of a batch have its stamp")
        .holds(by_code == Some(stamp) && by_name == by_code)?;
    screen
        .fact("one stamp", &format!("{stamp} on characters {NEW_CODE} and names {NEW_NAME:?}"))?;

    let mut batch = WriteBatch::new();
    batch.delete(&demo.characters, NEW_CODE);
    batch.delete(&demo.names, NEW_NAME);
    demo.db.write(batch)?;
    let gone = demo.characters.get(NEW_CODE)?.is_none() && demo.names.get(NEW_NAME)?.is_none();
    Claim("both rows go with one batch").holds(gone)?;
    screen.fact("and back", "a second batch took both rows away")?;
    let keys = NEW_CODE.len() + NEW_NAME.len();
    Ok((2 * keys + NEW_FIELDS.len() + NEW_CODE.len()) as u64)
}

/// Sums the counters of a snapshot again and again while a thread counts them up. Returns the bytes
/// of keys and values that it wrote.
pub fn snapshot(demo: &Demo, screen: &mut Screen) -> Result<u64, Failure> {
    let snapshot = demo.db.snapshot();
    let sum_of_snapshot = || sum_visits(&mut snapshot.cursor(&demo.visits, KeyRange::all()));
    let before = sum_of_snapshot()?;
    let stop = AtomicBool::new(false);
    let start = demo.clock.monotonic();
    let (scans, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| count_up(demo, &stop));
        let is_writing = || demo.clock.monotonic() - start < WRITING_TIME && !writer.is_finished();
        let scans = scan_while(is_writing, || sum_of_snapshot().map(|sum| sum == before));
        stop.store(true, Ordering::Relaxed);
        (scans, writer.join().expect("the writer does not panic"))
    });
    let (scans, Written { count: written, bytes: given_bytes }) = (scans?, written?);
    let elapsed = demo.clock.monotonic() - start;
    let after = sum_visits(&mut demo.visits.cursor(KeyRange::all()))?;
    Claim("no write is lost").holds(after == before + written)?;

    let rate = rate_text(written, elapsed);
    let text = format!("{} times a counter read and put back, {rate}/s", count_text(written));
    screen.fact("writer", &text)?;
    let text =
        format!("sum {} in each of {} scans meanwhile", count_text(before), count_text(scans));
    screen.fact("snapshot", &text)?;
    screen.fact("now", &format!("sum {}: every write is there", count_text(after)))?;
    Ok(given_bytes)
}

/// Scans while `goes_on`, and how often; every scan has to find the snapshot as it was.
fn scan_while(
    goes_on: impl Fn() -> bool,
    is_as_before: impl Fn() -> Result<bool, Failure>,
) -> Result<u64, Failure> {
    let mut scans = 0;
    while goes_on() {
        Claim("a snapshot does not move").holds(is_as_before()?)?;
        scans += 1;
    }
    Ok(scans)
}

/// What the writer did.
#[derive(Default)]
struct Written {
    count: u64,
    /// Of keys and values.
    bytes: u64,
}

/// Adds one to counters at random until told to stop.
fn count_up(demo: &Demo, stop: &AtomicBool) -> lithedb::Result<Written> {
    let codes: Vec<String> = dataset::characters().map(|character| character.code).collect();
    let random = SeededEntropy::new(SEED);
    let mut written = Written::default();
    while !stop.load(Ordering::Relaxed) {
        let code = &codes[random.next_u64() as usize % codes.len()];
        let count = demo.visits.get(code)?.map_or(0, |value| parse_count(&value));
        let count = (count + 1).to_string();
        demo.visits.put_with(code, &count, Durability::Buffered)?;
        written.count += 1;
        written.bytes += (code.len() + count.len()) as u64;
    }
    Ok(written)
}

fn sum_visits(cursor: &mut Cursor) -> Result<u64, Failure> {
    let mut sum = 0;
    cursor.seek_first()?;
    while cursor.valid() {
        sum += parse_count(cursor.value()?);
        cursor.next()?;
    }
    Ok(sum)
}

/// A counter's decimal digits; what is no number counts nothing.
fn parse_count(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
