//! A thread of long reads and of maintenance: what takes memory or pins it while others write.

use std::time::{Duration, Instant};

use lithe_bench::Dice;
use lithedb::{Durability, KeyRange, WriteBatch};

use super::{Result, Store};

/// Snapshots are held for less than this.
const HELD_SECONDS_MAX: u64 = 20;
/// Entries of a walk between two looks at the clock.
const WALK_LEN: usize = 2000;
const INGEST_LEN: u64 = 50_000;
/// Entries that come to the queue at once, and that it keeps.
const QUEUE_STEP: u64 = 5000;
const QUEUE_LEN: u64 = 50_000;
const VALUE: [u8; 100] = [0x5A; 100];

/// Until it is over.
pub fn run(store: &Store, seed: u64) -> Result<()> {
    let mut dice = Dice(!seed);
    let mut queued = 0;
    while store.goes_on() {
        read_for_long(store, &mut dice)?;
        queue(store, &mut queued)?;
        match dice.below(6) {
            0 => ingest(store)?,
            1 => store.db.flush()?,
            2 => store.db.compact()?,
            3 => drop(store.db.vacuum()?),
            _ => {}
        }
    }
    Ok(())
}

/// A snapshot shows the same for as long as it is held.
fn read_for_long(store: &Store, dice: &mut Dice) -> Result<()> {
    let snapshot = store.db.snapshot();
    let until = Instant::now() + Duration::from_secs(dice.below(HELD_SECONDS_MAX));
    let counted = snapshot.count::<&[u8]>(&store.small, ..)?;
    let mut cursor = snapshot.cursor(&store.small, KeyRange::all());
    let mut walked = 0;
    cursor.seek_first()?;
    while cursor.valid() && (Instant::now() < until && store.goes_on()) {
        for _ in 0..WALK_LEN {
            if !cursor.valid() {
                break;
            }
            walked += 1;
            cursor.next()?;
        }
        store.count(WALK_LEN as u64);
    }
    let is_at_end = !cursor.valid();
    let again = snapshot.count::<&[u8]>(&store.small, ..)?;
    if counted != again || (is_at_end && walked != counted) {
        return Err(
            format!("a snapshot counted {counted}, then {again}, and walked {walked}").into()
        );
    }
    Ok(())
}

/// Appends, and deletes the oldest as a range.
fn queue(store: &Store, queued: &mut u64) -> Result<()> {
    let mut batch = WriteBatch::new();
    for number in *queued..*queued + QUEUE_STEP {
        batch.put(&store.queue, number.to_be_bytes(), VALUE);
    }
    *queued += QUEUE_STEP;
    let first = queued.saturating_sub(QUEUE_LEN);
    batch.delete_range(&store.queue, ..first.to_be_bytes());
    store.db.write_with(batch, Durability::Buffered)?;
    let (found, expected) = (store.queue.len()?, *queued - first);
    if found != expected {
        return Err(format!("the queue has {found} entries, and not {expected}").into());
    }
    store.count(QUEUE_STEP);
    Ok(())
}

fn ingest(store: &Store) -> Result<()> {
    store.ingested.clear()?;
    store.ingested.ingest((0..INGEST_LEN).map(|number| (number.to_be_bytes(), VALUE)))?;
    let found = store.ingested.len()?;
    if found != INGEST_LEN {
        return Err(format!("{INGEST_LEN} were ingested, and {found} are there").into());
    }
    store.count(INGEST_LEN);
    Ok(())
}
