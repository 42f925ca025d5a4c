//! The plain calls over HTTP, as BedrockDB's author has measured his: writes, which are durable,
//! keys in memory, keys that are not in the cache, keys that are not there, ranges.
//!
//! Keys and values of all entries are kept as the JSON that answers have, one behind the other, so
//! that what an answer has to be is cut out of it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use lithe_bench::{Dice, Result};
use lithedb::{Db, Durability, WriteBatch};

use super::Asked;
use super::child::{Protocol, Serving, Synced};
use super::load::{Caller, Pace, Request, at_most, at_pace};

const CONNECTIONS: u64 = 20;
/// The keyspace of the plain calls.
const KEYSPACE: &str = "default";
const VALUE_LEN: usize = 100;
/// Entries of the database that is in memory, 11 MB.
const HOT_KEYS: u64 = 100_000;
/// Entries of the one that is not, 112 MB ..
const COLD_KEYS: u64 = 1_000_000;
/// .. and what it may have of memory.
const COLD_MEMORY: u64 = 16 << 20;
const RANGE_COUNT: u64 = 100;
/// Keys that are written while it is measured, not among those that are read.
const PUT_KEYS: u64 = 100_000;
const BATCH_COUNT: u64 = 1000;
/// Time enough for whatever ends by itself.
const UNTIL_ALL_IS_DONE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Put,
    Get,
    GetAbsent,
    Range,
}

/// A line of the table.
struct Row {
    name: &'static str,
    call: Call,
    /// Requests a second.
    rate: u64,
    /// BedrockDB's p50, p90 and p99, in milliseconds.
    published: [f64; 3],
}

/// On the database that is in memory.
const HOT: [Row; 2] = [
    Row { name: "PUT", call: Call::Put, rate: 500, published: [0.99, 1.60, 2.36] },
    Row { name: "GET, in memory", call: Call::Get, rate: 1000, published: [0.91, 1.53, 1.96] },
];
/// On the one that is not, opened anew for each.
const COLD: [Row; 3] = [
    Row { name: "GET, not cached", call: Call::Get, rate: 1000, published: [1.05, 1.67, 2.13] },
    Row { name: "GET, absent", call: Call::GetAbsent, rate: 2000, published: [0.92, 1.59, 2.05] },
    Row { name: "range, not cached", call: Call::Range, rate: 3000, published: [1.39, 1.79, 2.36] },
];

/// The figures as a table of Markdown.
pub fn table(asked: &Asked) -> Result<String> {
    let mut text = format!(
        "http: {CONNECTIONS} connections, {} s a row, values of {VALUE_LEN} bytes, waits {:?}; \
         writes durable; in memory {HOT_KEYS} keys; else {COLD_KEYS} with {} MiB of memory, \
         reopened; ranges of {RANGE_COUNT}; latencies in ms from when a request was due\n\n\
         | call | offered /s | reached /s | p50 | p90 | p99 | p99.9 \
         | BedrockDB p50 / p90 / p99 | ahead | closed loop /s |\n\
         |---|---:|---:|---:|---:|---:|---:|---|---|---:|\n",
        asked.seconds,
        asked.waits,
        COLD_MEMORY >> 20,
    );
    let dir = tempfile::Builder::new().prefix("lithe-served-").tempdir_in(&asked.dir)?;
    let (hot, cold) = (dir.path().join("hot.lithe"), dir.path().join("cold.lithe"));
    let serve = |dir: &Path, memory| Serving::lithe(dir, Protocol::Http, Synced::Always, memory);

    let entries = Entries::new(HOT_KEYS);
    entries.load(&hot)?;
    let serving = serve(&hot, None)?;
    read_all(serving.address, &entries)?;
    for row in &HOT {
        text += &row.measure(asked, serving.address, &entries)?;
    }
    serving.close()?;

    let entries = Entries::new(COLD_KEYS);
    entries.load(&cold)?;
    for row in &COLD {
        let serving = serve(&cold, Some(COLD_MEMORY))?;
        text += &row.measure(asked, serving.address, &entries)?;
        serving.close()?;
    }
    Ok(text)
}

impl Row {
    fn measure(&self, asked: &Asked, address: SocketAddr, entries: &Entries) -> Result<String> {
        let Row { name, call, rate, published } = self;
        eprintln!("http: {name}");
        let mut askers: Vec<Asker<'_>> =
            (0..CONNECTIONS).map(|index| Asker::new(*call, entries, index, address)).collect();
        let pace = Pace { rate: *rate, seconds: asked.seconds, waits: asked.waits };
        let paced = at_pace(address, &mut askers, pace)?;
        let most = at_most(address, &mut askers, Duration::from_secs(asked.seconds))?;
        let mut written: Vec<_> = askers.into_iter().filter_map(Asker::reads_of_written).collect();
        at_most(address, &mut written, UNTIL_ALL_IS_DONE)?;
        if written.iter_mut().any(|reads| reads.next().is_some()) {
            return Err("not all that was written was read in time".into());
        }
        let [p50, p90, p99, p999] =
            [0.5, 0.9, 0.99, 0.999].map(|quantile| paced.latency.quantile_us(quantile) / 1e3);
        let behind: Vec<&str> = [("p50", p50), ("p90", p90), ("p99", p99)]
            .into_iter()
            .zip(published)
            .filter(|((_, own), published)| own >= published)
            .map(|((name, _), _)| name)
            .collect();
        let ahead =
            if behind.is_empty() { "yes".into() } else { format!("not {}", behind.join(", ")) };
        let [their_p50, their_p90, their_p99] = published;
        Ok(format!(
            "| {name} | {rate} | {:.0} | {p50:.3} | {p90:.3} | {p99:.3} | {p999:.3} \
             | {their_p50:.2} / {their_p90:.2} / {their_p99:.2} | {ahead} | {most:.0} |\n",
            paced.reached
        ))
    }
}

fn key_of(number: u64) -> String {
    format!("key-{number:08}")
}

/// What a key has after so many writes; text that does not compress to less than half.
fn value_of(number: u64, round: u64) -> String {
    let mut dice = Dice((round << 32) ^ number);
    let mut value = String::with_capacity(VALUE_LEN + 16);
    while value.len() < VALUE_LEN {
        write!(value, "{:016x}", dice.roll()).expect("a string takes all");
    }
    value.truncate(VALUE_LEN);
    value
}

fn pair(key: &str, value: &str) -> String {
    format!(r#"{{"key":"{key}","value":"{value}"}}"#)
}

/// The entries of a database, by their numbers.
struct Entries {
    /// `{"key":..,"value":..},` of each; all are of one length.
    json: String,
    count: u64,
}

impl Entries {
    fn new(count: u64) -> Entries {
        let each = pair(&key_of(0), &value_of(0, 0)).len() + 1;
        let mut json = String::with_capacity(each * count as usize);
        for number in 0..count {
            json += &pair(&key_of(number), &value_of(number, 0));
            json.push(',');
        }
        Entries { json, count }
    }

    /// The JSON of `count` of them, without the last comma.
    fn json(&self, first: u64, count: u64) -> &str {
        let each = self.json.len() as u64 / self.count;
        &self.json[(first * each) as usize..((first + count) * each - 1) as usize]
    }

    /// Makes a database of them, which is closed again.
    fn load(&self, dir: &Path) -> Result<()> {
        let db = Db::open(dir)?;
        let keyspace = db.keyspace_or_create(KEYSPACE)?;
        let mut numbers = 0..self.count;
        while !numbers.is_empty() {
            let mut batch = WriteBatch::new();
            for number in numbers.by_ref().take(BATCH_COUNT as usize) {
                batch.put(&keyspace, key_of(number), value_of(number, 0));
            }
            db.write_with(batch, Durability::Buffered)?;
        }
        db.flush()?;
        db.close()?;
        Ok(())
    }
}

fn request(method: &str, path: &str, host: SocketAddr, body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
    if !body.is_empty() {
        text += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    }
    (text + "\r\n" + body).into_bytes()
}

/// What one connection asks for while it is measured.
struct Asker<'e> {
    call: Call,
    entries: &'e Entries,
    /// Which of the connections it is: its own are the keys to be written that have this remainder.
    index: u64,
    host: SocketAddr,
    dice: Dice,
    /// How often each key was written.
    rounds: HashMap<u64, u64>,
}

impl<'e> Asker<'e> {
    fn new(call: Call, entries: &'e Entries, index: u64, host: SocketAddr) -> Asker<'e> {
        Asker { call, entries, index, host, dice: Dice(index << 32), rounds: HashMap::new() }
    }

    /// Reads what it has written last to each of its keys.
    fn reads_of_written(self) -> Option<Reads> {
        let Asker { host, rounds, .. } = self;
        let reads = rounds.into_iter().map(move |(number, round)| {
            let key = put_key(number);
            let bytes = request("GET", &format!("/key/{key}"), host, "");
            Request { bytes, status: 200, body: pair(&key, &value_of(number, round)).into_bytes() }
        });
        (self.call == Call::Put).then(|| Reads(Box::new(reads)))
    }
}

fn put_key(number: u64) -> String {
    format!("put-{number:08}")
}

impl Caller for Asker<'_> {
    fn next(&mut self) -> Option<Request> {
        let answered =
            |bytes, status, body: String| Some(Request { bytes, status, body: body.into_bytes() });
        if self.call == Call::Put {
            let number = self.dice.below(PUT_KEYS / CONNECTIONS) * CONNECTIONS + self.index;
            let round = self.rounds.entry(number).or_insert(0);
            *round += 1;
            let (key, value) = (put_key(number), value_of(number, *round));
            let body = format!(r#"{{"value":"{value}"}}"#);
            let bytes = request("PUT", &format!("/key/{key}"), self.host, &body);
            return answered(bytes, 200, pair(&key, &value));
        }
        let number = self.dice.below(self.entries.count);
        let key = key_of(number);
        let get = |path: String| request("GET", &path, self.host, "");
        match self.call {
            Call::GetAbsent => {
                // Between two that are there.
                answered(get(format!("/key/{key}-")), 404, r#"{"error":"not found"}"#.into())
            }
            Call::Range => {
                let first = number.min(self.entries.count - RANGE_COUNT);
                let (start, end) = (key_of(first), key_of(first + RANGE_COUNT - 1));
                let body = format!("[{}]", self.entries.json(first, RANGE_COUNT));
                answered(get(format!("/range?start={start}&end={end}")), 200, body)
            }
            Call::Get | Call::Put => {
                answered(get(format!("/key/{key}")), 200, self.entries.json(number, 1).into())
            }
        }
    }
}

/// Requests that are known beforehand.
struct Reads(Box<dyn Iterator<Item = Request> + Send>);

impl Caller for Reads {
    fn next(&mut self) -> Option<Request> {
        self.0.next()
    }
}

/// Reads each entry once, so that all are in memory.
fn read_all(address: SocketAddr, entries: &Entries) -> Result<()> {
    struct Walk<'e> {
        entries: &'e Entries,
        host: SocketAddr,
        number: u64,
    }
    impl Caller for Walk<'_> {
        fn next(&mut self) -> Option<Request> {
            let number = self.number;
            self.number += CONNECTIONS;
            let bytes = request("GET", &format!("/key/{}", key_of(number)), self.host, "");
            let is_there = number < self.entries.count;
            let body = is_there.then(|| self.entries.json(number, 1).into())?;
            Some(Request { bytes, status: 200, body })
        }
    }
    let mut walks: Vec<_> =
        (0..CONNECTIONS).map(|number| Walk { entries, host: address, number }).collect();
    at_most(address, &mut walks, UNTIL_ALL_IS_DONE)?;
    match walks.iter().all(|walk| walk.number >= entries.count) {
        true => Ok(()),
        false => Err("not all entries were read in time".into()),
    }
}
