//! `redis-benchmark` in front of LitheDB and of redis-server.
//!
//! One server runs at a time, on a fresh directory; which of the two comes first changes from round
//! to round. `redis-benchmark` ends when a reply is an error, but does not look at values: so
//! behind its runs each key is read, and has to have the value that it writes, always the same, or
//! to be absent, and as many as are there have to be counted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lithe_bench::{Result, wrong};

use super::Asked;
use super::child::{Protocol, Serving, Synced, version};
use super::report::{Measured, medians, read};

const ROUNDS: usize = 3;
const PIPELINES: [u32; 2] = [1, 16];
const COMMANDS: [&str; 2] = ["SET", "GET"];
const CLIENTS: u32 = 50;
const KEYS: usize = 100_000;
const VALUE_LEN: usize = 100;
/// Keys that are read at a time behind a run.
const READ_COUNT: usize = 1000;
/// Whoever waits for longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Lithe,
    Redis,
}

/// One command of one run.
struct Run {
    store: Store,
    synced: Synced,
    pipeline: u32,
    measured: Measured,
}

/// The figures as a table of Markdown.
pub fn table(asked: &Asked) -> Result<String> {
    if version("redis-benchmark")?.is_none() {
        return Ok("redis: redis-benchmark is not installed, so that nothing was measured\n".into());
    }
    let rival = version("redis-server")?;
    let mut stores = vec![Store::Lithe];
    stores.extend(rival.is_some().then_some(Store::Redis));
    let mut runs = Vec::new();
    let mut value = None;
    for synced in [Synced::Always, Synced::EverySecond] {
        for round in 0..ROUNDS {
            for &store in &stores {
                eprintln!("redis: {}, round {round}, {store:?}", synced.redis_word());
                runs.extend(measure(asked, store, synced, &mut value)?);
            }
            stores.reverse();
        }
    }
    let mut text = match rival {
        Some(version) => format!("redis: redis-server {version}"),
        None => "redis: redis-server is not installed, LitheDB alone was measured".into(),
    };
    text += &format!(
        "; redis-benchmark -t set,get -n {} -r {KEYS} -d {VALUE_LEN} -c {CLIENTS}, medians of \
         {ROUNDS}; latencies in ms\n\n\
         | command | pipeline | appendfsync | LitheDB /s | p50 | p99 | p99.9 | redis-server /s \
         | p50 | p99 | p99.9 | ratio | bar |\n\
         |---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        asked.requests
    );
    for synced in [Synced::Always, Synced::EverySecond] {
        for pipeline in PIPELINES {
            for command in COMMANDS {
                text += &row(&runs, command, pipeline, synced)?;
            }
        }
    }
    Ok(text)
}

/// What the rate is to be, in parts of redis-server's: a `SET` that is synced more than all of it,
/// and else, one by one, seven tenths.
fn bar(command: &str, pipeline: u32, synced: Synced) -> Option<f64> {
    match (command, pipeline, synced) {
        ("SET", _, Synced::Always) => Some(1.0),
        (_, 1, _) => Some(0.7),
        _ => None,
    }
}

fn row(runs: &[Run], command: &str, pipeline: u32, synced: Synced) -> Result<String> {
    let of = |store: Store| {
        let runs = runs.iter().filter(|run| {
            (run.store, run.pipeline, run.synced) == (store, pipeline, synced)
                && run.measured.command == command
        });
        medians(&runs.map(|run| &run.measured).collect::<Vec<_>>())
    };
    let cells = |measured: &Measured| {
        let Measured { rate, p50_ms, p99_ms, p999_ms, .. } = measured;
        format!("{rate:.0} | {p50_ms:.3} | {p99_ms:.3} | {p999_ms:.3}")
    };
    let own = of(Store::Lithe).ok_or_else(|| format!("redis-benchmark has not run {command}"))?;
    let rest = match of(Store::Redis) {
        None => "– | – | – | – | – | –".to_owned(),
        Some(other) => {
            let ratio = own.rate / other.rate;
            let bar = match bar(command, pipeline, synced) {
                None => "–".to_owned(),
                Some(bar) if ratio >= bar => format!("{bar:.1}: reached"),
                Some(bar) => format!("{bar:.1}: MISSED"),
            };
            format!("{} | {ratio:.2} | {bar}", cells(&other))
        }
    };
    let appendfsync = synced.redis_word();
    Ok(format!("| {command} | {pipeline} | {appendfsync} | {} | {rest} |\n", cells(&own)))
}

/// Both pipelines on a server of their own, and what it has behind them.
fn measure(
    asked: &Asked,
    store: Store,
    synced: Synced,
    value: &mut Option<Vec<u8>>,
) -> Result<Vec<Run>> {
    let dir = tempfile::Builder::new().prefix("lithe-served-").tempdir_in(&asked.dir)?;
    let serving = match store {
        Store::Lithe => Serving::lithe(&database(dir.path()), Protocol::Redis, synced, None)?,
        Store::Redis => Serving::redis(dir.path(), synced)?,
    };
    let mut runs = Vec::new();
    for pipeline in PIPELINES {
        let report = benchmark(serving.address, asked.requests, pipeline)?;
        runs.extend(report.into_iter().map(|measured| Run { store, synced, pipeline, measured }));
        verify(serving.address, value)
            .map_err(|error| format!("{store:?}, pipeline {pipeline}: {error}"))?;
    }
    if store == Store::Lithe {
        serving.close()?;
    }
    Ok(runs)
}

fn database(dir: &Path) -> std::path::PathBuf {
    dir.join("data.lithe")
}

fn benchmark(address: SocketAddr, requests: u64, pipeline: u32) -> Result<Vec<Measured>> {
    let (port, requests) = (address.port().to_string(), requests.to_string());
    let (keys, value_len) = (KEYS.to_string(), VALUE_LEN.to_string());
    let (clients, pipeline) = (CLIENTS.to_string(), pipeline.to_string());
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &port, "-t", "set,get", "-n", &requests, "-r", &keys])
        .args(["-d", &value_len, "-c", &clients, "-P", &pipeline, "--precision", "3"])
        .output()?;
    let report = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let tail = report.split(['\r', '\n']).rfind(|line| !line.trim().is_empty());
        let said = String::from_utf8_lossy(&output.stderr);
        let tail = tail.unwrap_or_default();
        return wrong(format!("redis-benchmark: {}: {tail} {said}", output.status));
    }
    read(&report)
}

/// Each key that `redis-benchmark` may have set has its value or is absent, and as many are there
/// as the server counts. The value is the first that was ever seen.
fn verify(address: SocketAddr, value: &mut Option<Vec<u8>>) -> Result<()> {
    let mut client = Client::connect(address)?;
    let mut present = 0;
    for first in (0..KEYS).step_by(READ_COUNT) {
        let keys: Vec<String> =
            (first..first + READ_COUNT).map(|key| format!("key:{key:012}")).collect();
        let found = client.multi_get(&keys)?;
        for (key, found) in keys.iter().zip(found) {
            let Some(found) = found else { continue };
            present += 1;
            if found.len() != VALUE_LEN || value.get_or_insert_with(|| found.clone()) != &found {
                return wrong(format!("{key} has another value"));
            }
        }
    }
    match client.count()? {
        0 => wrong("no key is there"),
        count if count == present => Ok(()),
        count => wrong(format!("{count} keys are counted, {present} are there")),
    }
}

/// As much of the protocol as is needed to look at keys.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    fn send(&mut self, words: &[&str]) -> Result<()> {
        let mut frame = format!("*{}\r\n", words.len());
        for word in words {
            frame += &format!("${}\r\n{word}\r\n", word.len());
        }
        Ok(self.0.get_mut().write_all(frame.as_bytes())?)
    }

    /// The number behind `kind` on a line of its own.
    fn number(&mut self, kind: char) -> Result<i64> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let number = line.trim_end().strip_prefix(kind).and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("{line:?} in place of a {kind:?} and a number").into())
    }

    fn multi_get(&mut self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        let words: Vec<&str> =
            std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
        self.send(&words)?;
        let count = self.number('*')?;
        if count != keys.len() as i64 {
            return wrong(format!("{count} values for {} keys", keys.len()));
        }
        (0..count).map(|_| self.bulk()).collect()
    }

    fn bulk(&mut self) -> Result<Option<Vec<u8>>> {
        let Ok(len) = usize::try_from(self.number('$')?) else { return Ok(None) };
        let mut bytes = vec![0; len + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    fn count(&mut self) -> Result<i64> {
        self.send(&["DBSIZE"])?;
        self.number(':')
    }
}
