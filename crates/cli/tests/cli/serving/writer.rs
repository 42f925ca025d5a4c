//! Who writes to a server, over one of the protocols, until it is gone.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use lithedb::base::{Entropy, SeededEntropy};
use serde_json::json;

use super::Trigger;
use super::model::{Known, Op, Step};
use super::wire::{Http, Redis, push_command};

/// Keys of each kind that a writer has.
const KEY_COUNT: u64 = 12;
const FIELD_COUNT: u64 = 8;
/// Steps that are sent at once over the Redis protocol.
const PIPELINE_MAX: u64 = 16;
/// Writes of a step.
const STEP_MAX: u64 = 8;
/// One request of so many is none of these, but moves what is in memory into the structures.
const FLUSH_EVERY: u64 = 100;
/// Sizes of values: in the memtable, and of their own in the value log.
const SIZES: [usize; 8] = [10, 10, 10, 100, 100, 1000, 5000, 70_000];

/// Numbers from a seed.
pub struct Draw(SeededEntropy);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(SeededEntropy::new(seed))
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.0.next_u64() % count
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Redis,
}

/// A client with keys of its own: they begin with its name and a colon, and say by the next letter
/// what they have.
pub struct Writer {
    pub name: String,
    pub known: Known,
    protocol: Protocol,
    draw: Draw,
    /// No value is written twice.
    value_count: u64,
}

impl Writer {
    /// So many of each protocol.
    pub fn some(count: u64, draw: &mut Draw) -> Vec<Writer> {
        let mut writers = Vec::new();
        for (protocol, letter) in [(Protocol::Http, 'h'), (Protocol::Redis, 'r')] {
            for number in 0..count {
                writers.push(Writer {
                    name: format!("{letter}{number}"),
                    known: Known::default(),
                    protocol,
                    draw: Draw::new(draw.0.next_u64()),
                    value_count: 0,
                });
            }
        }
        writers
    }

    /// Writes until the server is gone.
    pub fn write_to(&mut self, (http, redis): (SocketAddr, SocketAddr), trigger: &Trigger) {
        let Err(gone) = match self.protocol {
            Protocol::Http => self.write_to_http(http, trigger),
            Protocol::Redis => self.write_to_redis(redis, trigger),
        };
        assert!(trigger.is_pulled(), "{} was left by a server at work: {gone}", self.name);
    }

    fn write_to_http(&mut self, address: SocketAddr, trigger: &Trigger) -> io::Result<Infallible> {
        let mut http = Http::connect(address)?;
        loop {
            if self.draw.below(FLUSH_EVERY) == 0 {
                let (status, said) = http.ask("POST", "/v1/keyspaces/default/flush", "")?;
                assert_eq!(status, 200, "{said}");
            }
            let step = self.step();
            let (method, path, body) = self.request_of(&step);
            self.known.begin(step);
            let (status, said) = http.ask(method, &path, &body)?;
            assert_eq!(status, 200, "{method} {path}: {said}");
            self.known.acknowledge();
            trigger.acknowledged();
        }
    }

    fn write_to_redis(&mut self, address: SocketAddr, trigger: &Trigger) -> io::Result<Infallible> {
        let mut redis = Redis::connect(address)?;
        loop {
            let count = 1 + self.draw.below(PIPELINE_MAX);
            let mut commands = Vec::new();
            for _ in 0..count {
                let step = self.step();
                push_step(&mut commands, &step);
                self.known.begin(step);
            }
            redis.send(&commands)?;
            for _ in 0..count {
                let said = read_step(&mut redis, self.known.first().len())?;
                assert_eq!(said, self.known.acknowledge());
                trigger.acknowledged();
            }
        }
    }

    /// What to write next: one thing or, as often, some together.
    fn step(&mut self) -> Step {
        let many = 1 + self.draw.below(STEP_MAX);
        let count = self.draw.of(&[1, many]);
        (0..count).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> Op {
        match self.protocol {
            Protocol::Http => match self.draw.below(5) {
                0 => Op::Delete { key: self.key('t') },
                _ => Op::Put { key: self.key('t'), value: self.value() },
            },
            Protocol::Redis => match self.draw.below(12) {
                0 => {
                    let kind = self.draw.of(&['t', 'n', 'f', 'i']);
                    Op::Delete { key: self.key(kind) }
                }
                1..=4 => Op::Put { key: self.key('t'), value: self.value() },
                5..=7 => Op::Increment { key: self.key('n') },
                8..=9 => {
                    let field = format!("field {}", self.draw.below(FIELD_COUNT));
                    Op::SetField { key: self.key('f'), field, value: self.value() }
                }
                _ => Op::Push { key: self.key('i'), value: self.value() },
            },
        }
    }

    fn key(&mut self, kind: char) -> String {
        format!("{}:{kind}{}", self.name, self.draw.below(KEY_COUNT))
    }

    /// One that nobody else writes, and that says in every part whose it is.
    fn value(&mut self) -> String {
        self.value_count += 1;
        let piece = format!("{} {} ", self.name, self.value_count);
        piece.repeat(1 + self.draw.of(&SIZES) / piece.len())
    }

    /// Method, path and body of the request that does a step.
    fn request_of(&mut self, step: &Step) -> (&'static str, String, String) {
        let is_plain = self.draw.below(2) == 0;
        let path = |key: &str| match is_plain {
            true => format!("/key/{key}"),
            false => format!("/v1/keyspaces/default/keys/{key}"),
        };
        match &step[..] {
            [Op::Put { key, value }] => match is_plain {
                true => ("PUT", path(key), json!({ "value": value }).to_string()),
                false => ("PUT", path(key), value.clone()),
            },
            [Op::Delete { key }] => ("DELETE", path(key), String::new()),
            ops => {
                let operations = ops.iter().map(|op| match op {
                    Op::Put { key, value } => {
                        json!({ "op": "put", "keyspace": "default", "key": key, "value": value })
                    }
                    Op::Delete { key } => {
                        json!({ "op": "delete", "keyspace": "default", "key": key })
                    }
                    other => panic!("not over HTTP: {other:?}"),
                });
                let operations: Vec<_> = operations.collect();
                let body = json!({ "operations": operations }).to_string();
                ("POST", "/v1/batch".to_owned(), body)
            }
        }
    }
}

/// A command, or several as a transaction.
fn push_step(commands: &mut Vec<u8>, step: &Step) {
    if step.len() > 1 {
        push_command(commands, &["MULTI"]);
    }
    for op in step {
        match op {
            Op::Put { key, value } => push_command(commands, &["SET", key, value]),
            Op::Delete { key } => push_command(commands, &["DEL", key]),
            Op::Increment { key } => push_command(commands, &["INCR", key]),
            Op::SetField { key, field, value } => {
                push_command(commands, &["HSET", key, field, value]);
            }
            Op::Push { key, value } => push_command(commands, &["RPUSH", key, value]),
        }
    }
    if step.len() > 1 {
        push_command(commands, &["EXEC"]);
    }
}

/// What is said of each command of a step, when all of it was said.
fn read_step(redis: &mut Redis, count: usize) -> io::Result<Vec<String>> {
    if count > 1 {
        assert_eq!(redis.line()?, "+OK");
        for _ in 0..count {
            assert_eq!(redis.line()?, "+QUEUED");
        }
        assert_eq!(redis.line()?, format!("*{count}"));
    }
    (0..count).map(|_| redis.line()).collect()
}
