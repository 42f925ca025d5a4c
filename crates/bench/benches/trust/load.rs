//! A store that is filled, and then read and overwritten half and half, which is W6 A.
//!
//! Each overwrite is remembered with its stamp, so that what a copy has as of any stamp is known.

use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lithe_bench::{Dice, KeyShape, Zipf, append_value};
use lithedb::{Builder, Db, Durability, Keyspace, SeqNo, WriteBatch};

use super::{Asked, Result};

pub const SHAPE: KeyShape = KeyShape::Random16;
pub const VALUE_LEN: usize = 100;
const BATCH: u64 = 100;

/// What a key has after so many overwrites of the whole store; does not compress.
pub fn value_of(number: u64, round: u64) -> Vec<u8> {
    let mut value = Vec::with_capacity(VALUE_LEN);
    append_value(number, round, VALUE_LEN, &mut value);
    value
}

/// Bytes of keys and values.
pub fn data_bytes(keys: u64) -> u64 {
    keys * (SHAPE.key_len() + VALUE_LEN) as u64
}

/// A store, and what was written to it.
pub struct Store {
    pub db: Db,
    pub keyspace: Keyspace,
    pub keys: u64,
    zipf: Zipf,
    dice: Dice,
    /// Which overwrite each key has; the load is 0.
    rounds: Vec<u32>,
    /// Every overwrite: its stamp, the key, and which it was.
    pub written: Vec<(SeqNo, u32, u32)>,
}

/// How operations went.
pub struct Ran {
    pub operations: u64,
    pub time: Duration,
    /// Nanoseconds an operation.
    pub answers: Histogram<u64>,
}

impl Ran {
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.time.as_secs_f64()
    }

    /// Microseconds that so many of the operations did not exceed.
    pub fn at(&self, quantile: f64) -> f64 {
        self.answers.value_at_quantile(quantile) as f64 / 1000.0
    }
}

impl Store {
    /// Fills a store in the directory with the numbers from 0 on.
    pub fn fill(dir: &Path, builder: Builder, asked: &Asked) -> Result<(Store, Duration)> {
        let db = builder.memory_budget(asked.memory).open(dir)?;
        let keyspace = db.create_keyspace("keys", asked.options())?;
        let start = Instant::now();
        let mut numbers = 0..asked.keys;
        loop {
            let mut batch = WriteBatch::new();
            for number in numbers.by_ref().take(BATCH as usize) {
                batch.put(&keyspace, SHAPE.key(number), value_of(number, 0));
            }
            if batch.is_empty() {
                break;
            }
            db.write_with(batch, Durability::Buffered)?;
        }
        db.flush()?;
        let time = start.elapsed();
        let (zipf, dice) = (Zipf::new(asked.keys), Dice(0x7A57));
        let rounds = vec![0; asked.keys as usize];
        Ok((Store { db, keyspace, keys: asked.keys, zipf, dice, rounds, written: vec![] }, time))
    }

    /// The same store, closed and opened anew.
    pub fn reopen(self, open: impl FnOnce() -> Result<Db>) -> Result<Store> {
        let Store { db, keyspace, .. } = self;
        db.close()?;
        drop((keyspace, db));
        let db = open()?;
        let keyspace = db.keyspace("keys")?;
        Ok(Store { db, keyspace, ..self })
    }

    /// Waits until the background has nothing to do.
    pub fn rest(&self) -> Result<()> {
        self.db.compact()?;
        Ok(self.db.vacuum().map(drop)?)
    }

    /// Gives a key another value.
    pub fn overwrite(&mut self, number: u64) -> Result<()> {
        let round = self.rounds[number as usize] + 1;
        let (key, value) = (SHAPE.key(number), value_of(number, u64::from(round)));
        let stamp = self.keyspace.put_with(key, value, Durability::Buffered)?;
        self.rounds[number as usize] = round;
        self.written.push((stamp, number as u32, round));
        Ok(())
    }

    /// Reads a key, and looks whether it is right.
    pub fn read(&self, number: u64) -> Result<()> {
        let round = u64::from(self.rounds[number as usize]);
        match self.keyspace.get(SHAPE.key(number))?.as_deref() == Some(&value_of(number, round)) {
            true => Ok(()),
            false => Err(format!("key {number} has another value").into()),
        }
    }

    /// Reads and overwrites half and half, skewed as YCSB has it, until told to stop.
    pub fn run_mixed(&mut self, mut goes_on: impl FnMut(u64) -> bool) -> Result<Ran> {
        let (mut answers, mut operations) = (Histogram::<u64>::new(3)?, 0);
        let start = Instant::now();
        while goes_on(operations) {
            let number = self.zipf.index(self.dice.roll());
            let began = Instant::now();
            match self.dice.roll() % 2 {
                0 => self.read(number)?,
                _ => self.overwrite(number)?,
            }
            answers.record(began.elapsed().as_nanos() as u64)?;
            operations += 1;
        }
        Ok(Ran { operations, time: start.elapsed(), answers })
    }

    /// Reads all over the store, each key alike.
    pub fn run_reads(&mut self, count: u64) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            let number = self.dice.below(self.keys);
            self.read(number)?;
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// A key at random, each alike.
    pub fn draw(&mut self) -> u64 {
        self.dice.below(self.keys)
    }

    /// Which overwrite each key had as of a stamp.
    pub fn rounds_at(&self, stamp: SeqNo) -> Vec<u32> {
        let mut rounds = vec![0; self.keys as usize];
        for (written, number, round) in &self.written {
            if *written <= stamp {
                rounds[*number as usize] = *round;
            }
        }
        rounds
    }
}
