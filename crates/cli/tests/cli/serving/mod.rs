//! `lithe serve` is killed at work: nothing that was acknowledged is lost, and what was under way
//! is there wholly or not at all.
//!
//! Writers of both protocols write at once, each to keys of its own, until the process is killed
//! (SIGKILL) at an acknowledged write whose number is drawn from a seed. A new process opens the
//! database, and every key is compared. What was recovered is written to and killed again, with
//! and without an end in between.
//!
//! The process is killed, not the machine: what was handed to the system is there, synced or not.
//! So this shows that an answer comes behind its write to the log, in each durability, that writes
//! are found again, and that none is there in part. That an answer comes behind its sync is shown
//! where the power is cut, see `torturing`.
//!
//! Threads are as they are: from the same seed the same is written, and what is under way at a kill
//! differs.

mod model;
mod repeated;
mod told;
mod wire;
mod writer;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::shell::Shell;
use model::{Content, Contents};
use wire::{Http, Redis};
use writer::{Draw, Writer};

const WRITERS_EACH: u64 = 3;
/// The kill comes at one of the first so many acknowledged writes.
const ACKNOWLEDGED_MAX: u64 = 400;
/// Rounds of one database.
const ROUNDS_EACH: u64 = 50;
/// Mostly as it is by default.
const DURABILITIES: [&str; 4] = ["always", "always", "every-second", "buffered"];

/// A process that serves `db`.
struct Server {
    child: Child,
    http: SocketAddr,
    redis: SocketAddr,
}

impl Server {
    fn start(shell: &Shell, durability: &str) -> Server {
        Server::start_with(shell, &["--durability", durability, "--log", "off"], &[])
    }

    /// With these options, and variables of the environment.
    fn start_with(shell: &Shell, options: &[&str], variables: &[(&str, &str)]) -> Server {
        let serve = ["--db", "db", "serve", "--http", "127.0.0.1:0", "--redis", "127.0.0.1:0"];
        let mut command = shell.command(&[&serve[..], options].concat());
        let mut child = command.envs(variables.iter().copied()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Server { child, http: nowhere, redis: nowhere };
        let mut address = |protocol: &str| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let (said, address) = line.trim().split_once(' ').expect("it serves");
            assert_eq!(said, protocol);
            address.parse().unwrap()
        };
        (server.http, server.redis) = (address("http"), address("redis"));
        server
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it as one should.
    fn end(mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _it_may_be_gone = self.child.kill();
        let _so_it_is = self.child.wait();
        if std::thread::panicking() {
            let mut said = String::new();
            let _as_far_as_it_goes =
                self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
            eprintln!("the server has said: {said}");
        }
    }
}

/// Kills a server at an acknowledged write.
pub struct Trigger<'s> {
    server: &'s Server,
    left: AtomicI64,
}

impl Trigger<'_> {
    /// A write was acknowledged.
    pub fn acknowledged(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.server.signal(Signal::KILL);
        }
    }

    /// Whether it is killed, or about to be.
    pub fn is_pulled(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }
}

/// Says which round it was, if one has failed.
struct Round {
    seed: u64,
    round: u64,
}

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Round { seed, round } = self;
            eprintln!("this was seed {seed}, round {round}");
        }
    }
}

/// What was counted.
#[derive(Debug, Default)]
struct Counts {
    rounds: u64,
    acknowledged: i64,
    under_way: usize,
    /// Of those under way.
    there: usize,
}

/// Kills one database so often.
fn kill(seed: u64, rounds: u64, counts: &mut Counts) {
    let shell = Shell::new();
    let draw = &mut Draw::new(seed);
    let mut writers = Writer::some(WRITERS_EACH, draw);
    let mut running = None;
    for round in 1..=rounds {
        let _told = Round { seed, round };
        let mut server =
            running.take().unwrap_or_else(|| Server::start(&shell, draw.of(&DURABILITIES)));
        let enough = 1 + draw.below(ACKNOWLEDGED_MAX) as i64;
        counts.acknowledged += strike(&server, &mut writers, enough);
        assert_eq!(server.child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));

        let behind = Server::start(&shell, draw.of(&DURABILITIES));
        settle(&mut writers, read_all(&behind), counts);
        counts.rounds += 1;
        if round == rounds || draw.below(2) == 0 {
            behind.end();
            assert!(shell.db(&["check"]).ok_text().starts_with("ok: "));
        } else {
            running = Some(behind);
        }
    }
}

/// Has all write at once, until so many writes were acknowledged. Returns how many there were:
/// some answers are read behind the kill.
fn strike(server: &Server, writers: &mut [Writer], enough: i64) -> i64 {
    let trigger = Trigger { server, left: AtomicI64::new(enough) };
    std::thread::scope(|scope| {
        for writer in writers {
            scope.spawn(|| writer.write_to((server.http, server.redis), &trigger));
        }
    });
    enough - trigger.left.into_inner()
}

/// All that is there.
fn read_all(server: &Server) -> Contents {
    let mut redis = Redis::connect(server.redis).unwrap();
    let mut found = Contents::new();
    for key in redis.texts(&["KEYS", "*"]).unwrap() {
        let mut read = |command: &[&str]| redis.texts(command).unwrap();
        let kind = key.split_once(':').and_then(|(_, rest)| rest.chars().next());
        let content = match kind {
            Some('f') => {
                let all = read(&["HGETALL", &key]);
                let pairs = all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                Content::Fields(pairs.collect())
            }
            Some('i') => Content::Items(read(&["LRANGE", &key, "0", "-1"])),
            _ => Content::Text(read(&["GET", &key]).concat()),
        };
        found.insert(key, content);
    }
    let texts = found.values().filter(|content| matches!(content, Content::Text(_))).count();
    let mut http = Http::connect(server.http).unwrap();
    let (_, said) = http.ask("GET", "/v1/keyspaces/default/count", "").unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["count"], texts, "both protocols see the same");
    found
}

/// Each finds what it knows, and there is nothing else.
fn settle(writers: &mut [Writer], found: Contents, counts: &mut Counts) {
    let mut by_name: BTreeMap<String, Contents> = BTreeMap::new();
    for (key, content) in found {
        let name = key.split(':').next().unwrap_or_default().to_owned();
        by_name.entry(name).or_default().insert(key, content);
    }
    for writer in writers {
        let own = by_name.remove(&writer.name).unwrap_or_default();
        match writer.known.settle(&own) {
            Ok((there, under_way)) => {
                counts.there += there;
                counts.under_way += under_way;
            }
            Err(what) => panic!("{}: {what}", writer.name),
        }
    }
    assert!(by_name.is_empty(), "nobody has written {by_name:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let mut counts = Counts::default();
    kill(1, 6, &mut counts);
    assert_eq!(counts.rounds, 6);
    assert!(counts.under_way > 0, "it was killed at work: {counts:?}");
}

/// The same for `LITHE_ROUNDS` rounds from `LITHE_SEED` on.
#[test]
#[ignore = "takes long: `just served-kills`"]
fn nothing_acknowledged_is_lost_in_many_rounds() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
    };
    let (rounds, seed) = (number("LITHE_ROUNDS", 1000), number("LITHE_SEED", 1));
    let mut counts = Counts::default();
    for first in (0..rounds).step_by(ROUNDS_EACH as usize) {
        kill(seed + first / ROUNDS_EACH, ROUNDS_EACH.min(rounds - first), &mut counts);
        println!("from seed {seed}: {counts:?}");
    }
}

#[test]
fn a_server_does_not_pretend_to_follow() {
    let shell = Shell::new();
    shell.db(&["put", "a", "1"]).ok();
    let said = shell.db(&["--beside", "serve", "--http", "127.0.0.1:0"]).fails(2);
    assert!(said.contains("one moment for ever; serve a checkpoint"), "{said}");
}
