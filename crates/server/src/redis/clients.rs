//! Who is connected: for `CLIENT LIST` and `CLIENT KILL`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::stream::Peer;

/// All clients of the Redis protocol.
#[derive(Debug, Default)]
pub struct Clients {
    last_id: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// One of them.
#[derive(Debug)]
pub struct Client {
    pub id: u64,
    pub peer: Peer,
    /// Its connection's end here; empty if that is not known.
    local: String,
    /// Since the server began.
    since: Duration,
    shown: Mutex<Shown>,
    is_killed: AtomicBool,
    killed: Notify,
}

/// What is told of a client.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub name: String,
    pub library: String,
    pub library_version: String,
    pub user: String,
    pub database: usize,
    pub command: &'static str,
    pub last: Duration,
    pub version: u8,
    /// Commands that are queued; below zero outside of a transaction.
    pub queued: i64,
}

/// A client for as long as it is connected.
#[derive(Debug)]
pub struct Entered<'a> {
    clients: &'a Clients,
    pub client: Arc<Client>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.clients.lock().remove(&self.client.id);
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn enter(&self, (peer, local): (Peer, String), now: Duration) -> Entered<'_> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let shown = Shown { last: now, version: 2, queued: -1, ..Shown::default() };
        let client = Arc::new(Client {
            id,
            peer,
            local,
            since: now,
            shown: Mutex::new(shown),
            is_killed: AtomicBool::new(false),
            killed: Notify::new(),
        });
        self.lock().insert(id, Arc::clone(&client));
        Entered { clients: self, client }
    }

    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }
}

impl Client {
    pub fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
        self.killed.notify_one();
    }

    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }

    /// Waits until somebody kills it.
    pub async fn killed(&self) {
        while !self.is_killed() {
            self.killed.notified().await;
        }
    }

    /// Its connection's end here.
    pub fn local_text(&self) -> &str {
        &self.local
    }

    /// Its line of `CLIENT LIST`.
    pub fn line(&self, now: Duration) -> String {
        let shown = self.shown();
        let local = self.local_text();
        let flags = match (shown.queued >= 0, self.peer.is_unix()) {
            (false, false) => "N",
            (false, true) => "U",
            (true, false) => "x",
            (true, true) => "xU",
        };
        let mut line = format!("id={} addr={} laddr={local} fd=0", self.id, self.peer);
        let _to_a_string = write!(
            line,
            " name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={} cmd={} user={} \
             resp={} lib-name={} lib-ver={}",
            shown.name,
            now.saturating_sub(self.since).as_secs(),
            now.saturating_sub(shown.last).as_secs(),
            flags,
            shown.database,
            shown.queued,
            if shown.command.is_empty() { "NULL" } else { shown.command },
            shown.user,
            shown.version,
            shown.library,
            shown.library_version,
        );
        line
    }
}

/// A name that can be told in a line: without spaces, and without what is not shown.
pub fn name_of(bytes: &[u8]) -> Option<String> {
    let is_plain = bytes.iter().all(u8::is_ascii_graphic) && bytes.len() <= 256;
    is_plain.then(|| String::from_utf8_lossy(bytes).into_owned())
}
