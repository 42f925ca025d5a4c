//! The demo's first step: load the data set, or find it from an earlier run.

use lithedb::base::Clock;
use lithedb::{Durability, WriteBatch};

use super::Demo;
use super::dataset::{self, CHARACTER_COUNT, DATASET_SIZE};
use super::screen::Screen;
use crate::failure::Outcome;
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

/// Loads, unless an earlier run did.
pub fn fill_or_find(demo: &Demo, screen: &mut Screen, notices: Notices) -> Outcome {
    let about = demo.db.keyspace_or_create("default")?;
    if about.get(MARKER_KEY)?.is_some_and(|value| *value == *MARKER_VALUE.as_bytes()) {
        let opened = duration_text(demo.db.recovery().duration);
        let text = format!("{} characters, opened in {opened}", count_text(CHARACTER_COUNT));
        screen.fact("from an earlier run", &text)?;
        return Ok(());
    }
    let mut progress = Progress::start(notices, Some(DATASET_SIZE));
    let start = demo.clock.monotonic();
    let done = fill(demo, &mut progress)?;
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
    Ok(())
}

fn fill(demo: &Demo, progress: &mut Progress) -> Result<Done, crate::failure::Failure> {
    let mut done = Done::default();
    let mut batch = WriteBatch::new();
    for (index, character) in (1..).zip(dataset::characters()) {
        batch.put(&demo.characters, &character.code, character.fields);
        batch.put(&demo.names, &character.name, &character.code);
        batch.put(&demo.visits, &character.code, "0");
        done.rows += ROWS_PER_CHARACTER;
        done.bytes += character.fields.len() as u64 + 1;
        if index % BATCH_CHARACTERS == 0 || index == CHARACTER_COUNT {
            demo.db.write_with(std::mem::take(&mut batch), Durability::Buffered)?;
            progress.update(done);
        }
    }
    Ok(done)
}
