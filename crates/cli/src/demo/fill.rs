//! The demo's first step: load the data set, or find it from an earlier run.

use lithedb::base::Clock;
use lithedb::{Durability, WriteBatch};

use super::Demo;
use super::dataset::{self, CHARACTER_COUNT, DATASET_SIZE};
use super::screen::Screen;
use crate::failure::Failure;
use crate::notation::{count_text, duration_text, rate_text};
use crate::output::Notices;
use crate::progress::{Done, Progress};

/// Characters in one commit.
const BATCH_CHARACTERS: u64 = 500;
/// Rows that a character takes: one in each keyspace.
const ROWS_PER_CHARACTER: u64 = 3;
/// In keyspace `default`: written when everything is loaded.
const MARKER_KEY: &str = "demo data set";
const MARKER_VALUE: &str = "UnicodeData.txt 15.0.0";

/// Loads, unless an earlier run did. Returns the bytes of keys and values that it wrote.
pub fn fill_or_find(demo: &Demo, screen: &mut Screen, notices: Notices) -> Result<u64, Failure> {
    let about = demo.db.keyspace_or_create("default")?;
    if about.get(MARKER_KEY)?.is_some_and(|value| *value == *MARKER_VALUE.as_bytes()) {
        let opened = duration_text(demo.db.recovery().duration);
        let text = format!("{} characters, opened in {opened}", count_text(CHARACTER_COUNT));
        screen.fact("from an earlier run", &text)?;
        return Ok(0);
    }
    let mut progress = Progress::start(notices, Some(DATASET_SIZE));
    let start = demo.clock.monotonic();
    let (done, given_bytes) = fill(demo, &mut progress)?;
    // Everything before the marker is durable no later than the marker is.
    about.put(MARKER_KEY, MARKER_VALUE)?;
    let elapsed = demo.clock.monotonic() - start;
    progress.finish();
    screen.fact("characters", &format!("{} of Unicode 15.0", count_text(CHARACTER_COUNT)))?;
    screen.fact("keyspaces", "characters (by code point), names (by name), visits (counters)")?;
    let text = format!(
        "{} in {}, {} rows/s",
        count_text(done.rows),
        duration_text(elapsed),
        rate_text(done.rows, elapsed)
    );
    screen.fact("durable rows", &text)?;
    Ok(given_bytes + (MARKER_KEY.len() + MARKER_VALUE.len()) as u64)
}

/// How far it got, and the bytes of keys and values that it wrote.
fn fill(demo: &Demo, progress: &mut Progress) -> Result<(Done, u64), Failure> {
    const COUNT_OF_A_NEW_COUNTER: &str = "0";
    let mut done = Done::default();
    let mut given_bytes = 0;
    let mut batch = WriteBatch::new();
    for (index, character) in (1..).zip(dataset::characters()) {
        batch.put(&demo.characters, &character.code, character.fields);
        batch.put(&demo.names, &character.name, &character.code);
        batch.put(&demo.visits, &character.code, COUNT_OF_A_NEW_COUNTER);
        let codes = 3 * character.code.len();
        let others = character.fields.len() + character.name.len() + COUNT_OF_A_NEW_COUNTER.len();
        given_bytes += (codes + others) as u64;
        done.rows += ROWS_PER_CHARACTER;
        done.bytes += character.fields.len() as u64 + 1;
        if index % BATCH_CHARACTERS == 0 || index == CHARACTER_COUNT {
            demo.db.write_with(std::mem::take(&mut batch), Durability::Buffered)?;
            progress.update(done);
        }
    }
    Ok((done, given_bytes))
}
