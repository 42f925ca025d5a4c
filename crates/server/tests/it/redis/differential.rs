//! The same random commands to this server and to `redis-server`, and the same replies.
//!
//! Ignored, since it needs the program: `cargo test -p lithe-server --test it -- --ignored redis`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Served;
use super::client::{Client, Value, frame};
use super::model::{Draw, command};
use super::pipeline::any_command;

struct Oracle(Child);

impl Drop for Oracle {
    fn drop(&mut self) {
        let _it_may_have_ended = self.0.kill();
        let _so_that_it_is_gone = self.0.wait();
    }
}

fn oracle() -> (Oracle, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let port = address.port().to_string();
    let child = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let oracle = Oracle(child);
    for _ in 0..200 {
        if TcpStream::connect(address).is_ok() {
            return (oracle, address);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("redis-server does not listen");
}

/// What has no order in Redis is put in order; floats are compared as numbers.
fn comparable(command: &[String], value: Value) -> Value {
    let is_unordered = ["SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS"];
    let number = |value: Value| match value {
        Value::Bulk(text) => {
            let parsed = str::from_utf8(&text).ok().and_then(|text| text.parse::<f64>().ok());
            match parsed.filter(|_| text.contains(&b'.') || text.contains(&b'e')) {
                Some(number) => Value::Double(format!("{number:.9e}")),
                None => Value::Bulk(text),
            }
        }
        Value::Double(text) => Value::Double(format!("{:.9e}", text.parse::<f64>().unwrap())),
        other => other,
    };
    match value {
        Value::Array(values) | Value::Set(values) => {
            let mut values: Vec<Value> =
                values.into_iter().map(|value| comparable(&[], value)).collect();
            let name = command.first().map_or("", String::as_str);
            if is_unordered.contains(&name) {
                values.sort_by_key(|value| format!("{value:?}"));
            }
            if name == "HGETALL" {
                let mut pairs: Vec<_> = values.chunks(2).map(<[Value]>::to_vec).collect();
                pairs.sort_by_key(|pair| format!("{pair:?}"));
                values = pairs.concat();
            }
            Value::Array(values)
        }
        Value::Map(mut pairs) => {
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Value::Map(pairs)
        }
        // It may be a millisecond later there.
        Value::Int(1..) if command.first().is_some_and(|name| name == "TTL") => Value::Int(1),
        other => number(other),
    }
}

fn compare(seed: u64, version: &str, count: usize) {
    let (_oracle, address) = oracle();
    let served = Served::plain();
    let (mut own, mut redis) = (served.client(), Client::connect(address));
    own.run(version);
    redis.run(version);
    let mut draw = Draw(seed);
    for round in 0..count {
        let command = command(&mut draw);
        let (found, expected) = (own.call(&command), redis.call(&command));
        assert_eq!(
            comparable(&command, found),
            comparable(&command, expected),
            "seed {seed}, command {round}: {command:?}"
        );
    }
    // What came to the other database by COPY and MOVE.
    own.run("SELECT 1");
    redis.run("SELECT 1");
    for key in (0..6).map(|number| format!("k{number}")) {
        for read in ["TYPE K", "GET K", "HGETALL K", "SMEMBERS K", "ZRANGE K 0 -1 WITHSCORES"] {
            let command: Vec<String> = read
                .split(' ')
                .map(|word| if word == "K" { key.clone() } else { word.to_owned() })
                .collect();
            let (found, expected) = (own.call(&command), redis.call(&command));
            let name = [read.split(' ').next().unwrap().to_owned()];
            assert_eq!(comparable(&name, found), comparable(&name, expected), "{seed}: {read}");
        }
    }
}

#[test]
#[ignore = "needs redis-server"]
fn random_commands_are_answered_as_redis_answers_them() {
    for seed in 1..=8 {
        compare(seed, "HELLO 2", 20_000);
    }
}

/// In pipelines, and with transactions in them.
fn compare_pipelines(seed: u64, rounds: usize) {
    let (_oracle, address) = oracle();
    let served = Served::plain();
    let (mut own, mut redis) = (served.client(), Client::connect(address));
    let mut draw = Draw(seed);
    for round in 0..rounds {
        let commands = (0..1 + draw.below(60)).map(|_| any_command(&mut draw));
        // Not all that is a change there is one here, and the other way round.
        let commands: Vec<_> = commands.filter(|command| command[0] != "WATCH").collect();
        let bytes: Vec<u8> = commands.iter().flat_map(|command| frame(command)).collect();
        own.send(&bytes);
        redis.send(&bytes);
        for command in &commands {
            let (found, expected) = (own.read().unwrap(), redis.read().unwrap());
            // What is in the reply of `EXEC` has no order where its commands have none.
            let is_of_many = command[0] == "EXEC";
            let seen = |value| match comparable(command, value) {
                Value::Array(values) if is_of_many => Value::Int(values.len() as i64),
                value => value,
            };
            let place = format!("seed {seed}, round {round}: {command:?}");
            assert_eq!(seen(found), seen(expected), "{place}");
        }
    }
}

#[test]
#[ignore = "needs redis-server"]
fn pipelines_and_transactions_are_answered_as_redis_answers_them() {
    for seed in 201..=206 {
        compare_pipelines(seed, 400);
    }
}

#[test]
#[ignore = "needs redis-server"]
fn in_version_3_as_well() {
    for seed in 101..=104 {
        compare(seed, "HELLO 3", 20_000);
    }
}
