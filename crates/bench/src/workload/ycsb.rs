//! W6: YCSB A, B, C, D, F, E (in this order: D and E insert), a million operations each on two
//! threads on the W3 store; writes unsynced. A pass of a million uniform gets, not counted, goes
//! before, as in W4: caches are then as full as they get. Every operation is timed by itself, so
//! that making keys and checking values stay off the clock.
//!
//! | | reads | writes |
//! |---|---|---|
//! | A | 50 % zipf | 50 % update |
//! | B | 95 % zipf | 5 % update |
//! | C | all zipf | |
//! | D | 95 % of the latest | 5 % insert |
//! | F | 50 % zipf | 50 % read, modify, write (one operation) |
//! | E | 95 % scans of 1 to 100 from a zipf key | 5 % insert |
//!
//! Invariants
//! - Y1  Each thread inserts keys of its own and takes "the latest" from the load and its own
//!   inserts: what is read never depends on how far the other thread is.

use super::{STORE_LARGE, VERSIONS, stream};
use crate::clock::{rate, timed};
use crate::costs::peak_memory_row;
use crate::data::{
    KeyShape, VERSION_LOAD, ValueChecker, append_value, entry_checksum, mix, operation, pick,
};
use crate::engine::{Commit, Engine, Result, View, Walk, wrong};
use crate::gets::{Choice, Gets, Source};
use crate::job::Context;
use crate::latency::Latency;
use crate::load::VALUE_LEN;
use crate::report::Row;
use crate::threads::on_threads;
use crate::zipf::Zipf;
use std::time::Duration;

const OPERATIONS: u64 = 1_000_000;
const THREADS: u64 = 2;
const SCAN_LEN_MAX: u64 = 100;
/// Inserts of E begin that far above those of D.
const INSERTS_APART: u64 = 1 << 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadKind {
    Popular,
    Latest,
    Scan,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Update,
    Insert,
    ReadModifyWrite,
}

#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    read_percent: u64,
    read: ReadKind,
    write: WriteKind,
    /// Version of the values that updates write.
    version: u64,
    stream: u64,
    /// Added to the number of keys: where inserts begin.
    inserts_offset: u64,
}

const fn mix_of(name: &'static str, read_percent: u64, read: ReadKind, write: WriteKind) -> Mix {
    let version = VERSION_LOAD;
    Mix { name, read_percent, read, write, version, stream: stream::YCSB, inserts_offset: 0 }
}

const MIXES: [Mix; 6] = [
    Mix { version: 1, ..mix_of("A", 50, ReadKind::Popular, WriteKind::Update) },
    Mix {
        version: 2,
        stream: stream::YCSB + 1,
        ..mix_of("B", 95, ReadKind::Popular, WriteKind::Update)
    },
    Mix { stream: stream::YCSB + 2, ..mix_of("C", 100, ReadKind::Popular, WriteKind::Update) },
    Mix { stream: stream::YCSB + 3, ..mix_of("D", 95, ReadKind::Latest, WriteKind::Insert) },
    Mix {
        version: 3,
        stream: stream::YCSB + 4,
        ..mix_of("F", 50, ReadKind::Popular, WriteKind::ReadModifyWrite)
    },
    Mix {
        stream: stream::YCSB + 5,
        inserts_offset: INSERTS_APART,
        ..mix_of("E", 95, ReadKind::Scan, WriteKind::Insert)
    },
];

pub fn run<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    run_mixes::<E>(context, |_| true)
}

/// C alone: it changes nothing.
pub fn run_reads<E: Engine>(context: &mut Context<'_>) -> Result<()> {
    run_mixes::<E>(context, |mix| mix.read_percent == 100)
}

fn run_mixes<E: Engine>(context: &mut Context<'_>, wanted: fn(&Mix) -> bool) -> Result<()> {
    let (keys, count) = (context.job.keys, context.count(OPERATIONS).max(THREADS));
    let zipf = Zipf::new(keys);
    let engine = E::open(&context.store(STORE_LARGE), context.job.memory)?;
    warm_up(&engine, keys, count)?;
    for mix in MIXES.into_iter().filter(wanted) {
        let (threads, wall) = on_threads(THREADS, |thread| {
            let mut client = Client::new(&engine, &mix, &zipf, keys, thread);
            for j in 0..count / THREADS {
                client.operate(operation(mix.stream, thread, j))?;
            }
            Ok((client.busy, client.reads, client.writes))
        })?;
        let busy = threads.iter().map(|(busy, ..)| *busy).max().unwrap_or_default();
        let (mut reads, mut writes) = (Latency::default(), Latency::default());
        for (_, thread_reads, thread_writes) in &threads {
            reads.merge(thread_reads);
            writes.merge(thread_writes);
        }
        let done = reads.count() + writes.count();
        context.report(
            Row::new("W6", mix.name, rate(done, busy), "ops/s")
                .with("reads", reads.count())
                .with("writes", writes.count())
                .with("wall_s", wall.as_secs_f64()),
        );
        context.report_all(reads.rows("W6", &format!("{} read", mix.name)));
        context.report_all(writes.rows("W6", &format!("{} write", mix.name)));
    }
    engine.close()?;
    context.report_all(peak_memory_row("W6", "peak memory"));
    Ok(())
}

/// Reads as W4 does before it counts.
fn warm_up<E: Engine>(engine: &E, keys: u64, count: u64) -> Result<()> {
    let gets = Gets {
        stream: stream::WARM_UP,
        count,
        threads: 1,
        keys,
        value_len: VALUE_LEN,
        versions: VERSIONS,
        choice: Choice::Uniform,
        source: Source::Newest,
    };
    gets.run(engine).map(drop)
}

/// One thread of a mix.
struct Client<'a, E> {
    engine: &'a E,
    mix: &'a Mix,
    zipf: &'a Zipf,
    keys: u64,
    thread: u64,
    inserted: u64,

    busy: Duration,
    reads: Latency,
    writes: Latency,

    key: Vec<u8>,
    value: Vec<u8>,
    out: Vec<u8>,
    checker: ValueChecker,
}

impl<'a, E: Engine> Client<'a, E> {
    fn new(engine: &'a E, mix: &'a Mix, zipf: &'a Zipf, keys: u64, thread: u64) -> Self {
        Client {
            engine,
            mix,
            zipf,
            keys,
            thread,
            inserted: 0,
            busy: Duration::ZERO,
            reads: Latency::default(),
            writes: Latency::default(),
            key: Vec::new(),
            value: Vec::new(),
            out: Vec::new(),
            checker: ValueChecker::default(),
        }
    }

    fn operate(&mut self, x: u64) -> Result<()> {
        // The key is chosen by `x`; what to do with it by a number that has nothing to do with it.
        let other = mix(!x);
        if pick(other, 100) < self.mix.read_percent {
            match self.mix.read {
                ReadKind::Popular => self.read(self.zipf.index(x)),
                ReadKind::Latest => self.read(self.latest(self.zipf.rank(x))),
                ReadKind::Scan => self.scan(self.zipf.index(x), 1 + pick(mix(other), SCAN_LEN_MAX)),
            }
        } else {
            match self.mix.write {
                WriteKind::Update => self.write(self.zipf.index(x)),
                WriteKind::Insert => {
                    self.inserted += 1;
                    self.write(self.own(self.inserted - 1))
                }
                WriteKind::ReadModifyWrite => self.read_modify_write(self.zipf.index(x)),
            }
        }
    }

    /// The index of this thread's insert number `number` (Y1).
    fn own(&self, number: u64) -> u64 {
        self.keys + self.mix.inserts_offset + number * THREADS + self.thread
    }

    /// The index of the entry that is `age` entries older than the latest (Y1).
    fn latest(&self, age: u64) -> u64 {
        if age < self.inserted {
            self.own(self.inserted - 1 - age)
        } else {
            self.keys - 1 - (age - self.inserted).min(self.keys - 1)
        }
    }

    fn set_key(&mut self, index: u64) {
        self.key.clear();
        KeyShape::Random16.append(index, &mut self.key);
        self.out.clear();
    }

    fn set_value(&mut self, index: u64) {
        self.value.clear();
        append_value(index, self.mix.version, VALUE_LEN, &mut self.value);
    }

    fn read(&mut self, index: u64) -> Result<()> {
        self.set_key(index);
        let (found, time) = timed(|| self.engine.get(&self.key, &mut self.out));
        self.busy += time;
        self.reads.record(time);
        self.check(index, found?)
    }

    fn write(&mut self, index: u64) -> Result<()> {
        self.set_key(index);
        self.set_value(index);
        let (done, time) = timed(|| self.engine.put(&self.key, &self.value, Commit::Buffered));
        self.busy += time;
        self.writes.record(time);
        done
    }

    fn read_modify_write(&mut self, index: u64) -> Result<()> {
        self.set_key(index);
        self.set_value(index);
        let (found, time) = timed(|| {
            let found = self.engine.get(&self.key, &mut self.out)?;
            self.engine.put(&self.key, &self.value, Commit::Buffered)?;
            Result::Ok(found)
        });
        self.busy += time;
        self.writes.record(time);
        self.check(index, found?)
    }

    fn scan(&mut self, index: u64, limit: u64) -> Result<()> {
        self.set_key(index);
        let (mut checksum, walk) = (0u64, Walk::From { key: &self.key, limit });
        let (count, time) = timed(|| {
            self.engine.view()?.scan(walk, |key, value| {
                checksum = checksum.wrapping_add(entry_checksum(key, value));
            })
        });
        self.busy += time;
        self.reads.record(time);
        std::hint::black_box(checksum); // Other threads write: it differs from run to run.
        match count? {
            0 => wrong(format!("W6 {}: nothing from key {index} on", self.mix.name)),
            _ => Ok(()),
        }
    }

    fn check(&mut self, index: u64, found: bool) -> Result<()> {
        let len_holds = self.out.len() == VALUE_LEN;
        if found && len_holds && self.checker.version_of(index, &self.out, VERSIONS).is_some() {
            return Ok(());
        }
        wrong(format!("W6 {}: key {index} found: {found}, or a wrong value", self.mix.name))
    }
}
