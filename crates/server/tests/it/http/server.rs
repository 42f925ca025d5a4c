//! A server in a thread, on a database in a directory of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;

use lithe_server::auth::{Grant, NewToken, Tokens};
use lithe_server::{Config, Drain, LogFormat, Reload, Server};
use lithedb::Db;
use tempfile::TempDir;

use super::Client;

/// A server that ends when this is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub drain: Drain,
    pub reload: Reload,
    pub db: Db,
    thread: Option<JoinHandle<()>>,
    dir: TempDir,
}

impl Running {
    pub fn start() -> Running {
        Running::start_with(|_| {})
    }

    /// With another configuration.
    pub fn start_with(change: impl FnOnce(&mut Config)) -> Running {
        Running::start_in(tempfile::tempdir().unwrap(), change)
    }

    pub fn start_in(dir: TempDir, change: impl FnOnce(&mut Config)) -> Running {
        let db = Db::open(dir.path().join("data.lithe")).unwrap();
        Running::start_on(db, dir, change)
    }

    /// On a database in the directory.
    pub fn start_on(db: Db, dir: TempDir, change: impl FnOnce(&mut Config)) -> Running {
        let mut config = Config::default();
        config.http = Some("127.0.0.1:0".parse().unwrap());
        config.log = LogFormat::Off;
        let backups = dir.path().join("backups");
        std::fs::create_dir_all(&backups).unwrap();
        config.backup_root = Some(backups);
        config.tokens = Some(dir.path().join("tokens")).filter(|tokens| tokens.exists());
        change(&mut config);
        let server = Server::bind(db.clone(), config).unwrap();
        let (address, drain) = (server.http_address().unwrap(), server.drain());
        let reload = server.reload();
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Running { address, drain, reload, db, thread, dir }
    }

    /// One that knows tokens of these grants; with the tokens.
    pub fn with_tokens<const N: usize>(grants: [&[&str]; N]) -> (Running, [String; N]) {
        Running::with_tokens_and(grants, |_| {})
    }

    /// The same with another configuration.
    pub fn with_tokens_and<const N: usize>(
        grants: [&[&str]; N],
        change: impl FnOnce(&mut Config),
    ) -> (Running, [String; N]) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = grants.map(|grants| {
            let grants: Vec<Grant> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
            let token = NewToken::make("somebody", &grants).unwrap();
            token.add_to(&dir.path().join("tokens")).unwrap();
            token.text().to_owned()
        });
        (Running::start_in(dir, change), tokens)
    }

    /// The same with tokens of these names, each with one grant.
    pub fn with_names<const N: usize>(
        names: [(&str, &str); N],
        change: impl FnOnce(&mut Config),
    ) -> (Running, [String; N]) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = names.map(|(name, grant)| {
            let token = NewToken::make(name, &[grant.parse().unwrap()]).unwrap();
            token.add_to(&dir.path().join("tokens")).unwrap();
            token.text().to_owned()
        });
        (Running::start_in(dir, change), tokens)
    }

    /// Takes a token out of the file, which is read again.
    pub fn revoke(&self, token: &str) {
        let id = token.split('_').nth(1).unwrap();
        assert_eq!(Tokens::remove(&self.path("tokens"), id).unwrap(), 1);
        self.reload.now().unwrap();
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Ends it, and waits for that; the directory stays.
    pub fn stop(mut self) -> TempDir {
        self.drain.begin();
        self.thread.take().unwrap().join().unwrap();
        self.db.close().unwrap();
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain.begin();
        self.drain.begin();
        if let Some(thread) = self.thread.take() {
            let _it_has_failed_already = thread.join();
        }
    }
}
