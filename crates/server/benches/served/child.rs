//! Servers as processes of their own, on ports that are free: this one, and redis-server.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lithe_bench::Result;
use lithe_server::{Config, Durability, LogFormat, Server};
use lithedb::Db;

/// The word by which this program serves, and does not measure.
pub const SERVE: &str = "--serve";
/// How often a server is looked for before it is given up, and what lies between.
const LOOKS: u32 = 200;
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Redis,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synced {
    /// When it is on disk.
    Always,
    /// Before that; what was written is synced each second.
    EverySecond,
}

impl Synced {
    /// What `lithe serve --durability` has for it.
    fn word(self) -> &'static str {
        match self {
            Synced::Always => "always",
            Synced::EverySecond => "every-second",
        }
    }

    /// What redis-server's `appendfsync` has for it.
    pub fn redis_word(self) -> &'static str {
        match self {
            Synced::Always => "always",
            Synced::EverySecond => "everysec",
        }
    }
}

/// A server that runs until it is stopped or let go of.
pub struct Serving {
    process: Child,
    pub address: SocketAddr,
}

impl Serving {
    /// LitheDB's. Without a budget of memory it has the one that the engine chooses.
    pub fn lithe(
        dir: &Path,
        protocol: Protocol,
        synced: Synced,
        memory: Option<u64>,
    ) -> Result<Serving> {
        let protocol = match protocol {
            Protocol::Http => "http",
            Protocol::Redis => "redis",
        };
        let mut process = Command::new(std::env::current_exe()?)
            .args([SERVE, protocol, synced.word(), &memory.unwrap_or(0).to_string()])
            .arg(dir)
            .stdin(Stdio::piped()) // It ends with it, so that it does not outlive this process.
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("the server has no standard output")?;
        let mut serving = Serving { process, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        serving.address = line.trim().parse().map_err(|_| "the server did not start")?;
        Ok(serving)
    }

    /// redis-server, in its own defaults but for the log of writes; its files are in `dir`.
    pub fn redis(dir: &Path, synced: Synced) -> Result<Serving> {
        let free = TcpListener::bind("127.0.0.1:0")?;
        let address = free.local_addr()?;
        drop(free);
        let process = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", synced.redis_word(), "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()?;
        let mut serving = Serving { process, address };
        for _ in 0..LOOKS {
            if let Some(status) = serving.process.try_wait()? {
                return Err(format!("redis-server ended: {status}").into());
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(serving);
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        Err("redis-server does not listen".into())
    }

    /// Ends LitheDB's as it is to end; its database has been closed when this returns.
    pub fn close(mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended: {status}").into()) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _it_may_have_ended = self.process.kill();
        let _so_that_it_is_gone = self.process.wait();
    }
}

/// What a program says of its version; `None` if it is not installed.
pub fn version(program: &str) -> Result<Option<String>> {
    match Command::new(program).arg("--version").output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let words: Vec<&str> = text.split_whitespace().collect();
            let numbered = words.iter().find_map(|word| word.strip_prefix("v="));
            Ok(Some(numbered.or(words.last().copied()).unwrap_or("of no version").to_owned()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{program}: {error}").into()),
    }
}

/// The process that serves: says its address, and ends with its standard input.
pub fn serve(mut words: impl Iterator<Item = String>) -> Result<()> {
    let mut word = || words.next().ok_or("a server wants its protocol, durability, memory and dir");
    let (protocol, durability, memory, dir) = (word()?, word()?, word()?, word()?);
    let any_port = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut config = Config::default();
    match protocol.as_str() {
        "http" => config.http = any_port,
        _ => config.redis = any_port,
    }
    config.durability = match durability.as_str() {
        "always" => Durability::Always,
        "every-second" => Durability::EverySecond,
        _ => return Err(format!("no durability {durability}").into()),
    };
    config.log = LogFormat::Off;
    let mut builder = Db::builder();
    if let memory @ 1.. = memory.parse::<u64>()? {
        builder = builder.memory_budget(memory);
    }
    let db = builder.open(dir)?;
    let server = Server::bind(db.clone(), config)?;
    let address = server.http_address().or(server.redis_address()).ok_or("no address")?;
    println!("{address}");
    let drain = server.drain();
    std::thread::spawn(move || {
        let _until_its_end = std::io::stdin().read_to_end(&mut Vec::new());
        drain.begin();
    });
    server.run()?;
    db.close()?;
    Ok(())
}
