//! The Redis protocol.

mod abuse;
mod any_bytes;
mod atomic;
mod client;
mod collections;
mod databases;
mod differential;
mod hostile;
mod memory;
mod model;
mod pipeline;
mod real_clients;
mod server;
mod strings;
mod tls;
mod turns;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use client::Client;
use lithe_server::auth::NewToken;
use lithe_server::{Config, Drain, LogFormat, Reload, Server};
use lithedb::base::ManualClock;
use lithedb::storage::MemoryStorage;
use lithedb::{Db, base::Clock};

/// A server on a database in memory, for as long as it is held.
pub struct Served {
    pub db: Db,
    pub address: SocketAddr,
    pub clock: Option<Arc<ManualClock>>,
    pub reload: Reload,
    drain: Drain,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    pub fn start(change: impl FnOnce(&mut Config)) -> Served {
        Served::with(None, change)
    }

    pub fn plain() -> Served {
        Served::start(|_| {})
    }

    /// With a clock that moves when it is told.
    pub fn at(millis: u64) -> Served {
        let clock = Arc::new(ManualClock::at_millis(millis));
        Served::with(Some(clock), |_| {})
    }

    fn with(clock: Option<Arc<ManualClock>>, change: impl FnOnce(&mut Config)) -> Served {
        let mut builder = Db::builder().storage(Arc::new(MemoryStorage::new()));
        if let Some(clock) = &clock {
            builder = builder.clock(Arc::clone(clock) as Arc<dyn Clock>);
        }
        let db = builder.open("/db").unwrap();
        let mut config = Config::default();
        config.redis = Some("127.0.0.1:0".parse().unwrap());
        config.log = LogFormat::Off;
        change(&mut config);
        let server = Server::bind(db.clone(), config).unwrap();
        let address = server.redis_address().unwrap();
        let (drain, reload) = (server.drain(), server.reload());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Served { db, address, clock, reload, drain, thread: Some(thread) }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn drain(&self) {
        self.drain.begin();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.drain.begin();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A file of tokens, with these names and what they may do, and the tokens themselves.
pub fn token_file(of: &[(&str, &[&str])]) -> (tempfile::TempDir, PathBuf, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    let mut tokens = Vec::new();
    for (name, grants) in of {
        let grants: Vec<_> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let token = NewToken::make(name, &grants).unwrap();
        token.add_to(&path).unwrap();
        tokens.push(token.text().to_owned());
    }
    (dir, path, tokens)
}
