//! The Redis protocol, versions 2 and 3.
//!
//! | file | what it has |
//! |---|---|
//! | `frame.rs`, `reply.rs`, `number.rs` | bytes to commands, and replies to bytes |
//! | `connection.rs` | a connection: reading, writing, time-outs, the end |
//! | `session.rs`, `queue.rs` | who a client is, how commands are done for it; transactions |
//! | `together.rs` | commands of a pipeline that are done in one transaction |
//! | `table.rs`, `commands/` | the commands |
//! | `call.rs` | a command on keys: what it sees and writes |
//! | `databases.rs`, `collection.rs` | what keyspaces hold: databases; hashes, sets, lists |
//! | `cursors.rs`, `glob.rs` | scans and patterns |
//! | `feed.rs` | a session without a connection, for fuzzing |
//! | `clients.rs`, `info.rs` | what is told of clients and of the server |
//!
//! Which commands there are, and what is other than in Redis, is in `docs/REDIS.md`; why things lie
//! as they do, in decision 0055.

mod call;
mod clients;
mod collection;
mod commands;
mod connection;
mod cursors;
mod databases;
pub mod feed;
pub mod frame;
pub mod glob;
mod info;
mod number;
mod queue;
mod reply;
mod session;
mod table;
mod together;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lithedb::Db;
use tokio::sync::Semaphore;

use crate::accept::Connection;
use crate::config::Limits;
use crate::room::Room;
use crate::server::Shared;

/// Room is reckoned in pieces of this size: a client that sends and is sent little needs none.
const ROOM_PIECE: usize = 4 << 10;
/// What a client is told in front of its connection's end, or of a command that is not done.
const NO_ROOM: &str = "OOM all clients together take as much memory as they may";

/// What all clients of the protocol share.
#[derive(Debug)]
pub struct State {
    pub databases: databases::Databases,
    clients: clients::Clients,
    cursors: cursors::Cursors,
    /// When members of expired collections were last swept, in seconds since the start.
    swept: AtomicU64,
    looks: Looks,
    /// Memory for what is on its way from and to clients.
    room: Arc<Room>,
    /// Turns of commands that may take long: each has a thread for itself meanwhile.
    slow: Arc<Semaphore>,
    /// Commands in the last second.
    pace: AtomicU64,
}

/// How often a key was looked for that is there, or is not, by commands that read.
#[derive(Debug, Default)]
struct Looks {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Looks {
    fn note(&self, is_there: bool) {
        let counter = if is_there { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl State {
    pub fn new(db: &Db, limits: &Limits) -> State {
        State {
            databases: databases::Databases::open(db),
            clients: clients::Clients::default(),
            cursors: cursors::Cursors::default(),
            swept: AtomicU64::new(0),
            looks: Looks::default(),
            room: Arc::new(Room::new(limits.redis_memory, ROOM_PIECE)),
            slow: Arc::new(Semaphore::new(limits.slow_commands)),
            pace: AtomicU64::new(0),
        }
    }

    /// How many commands that may take long could begin.
    pub fn turns_left(&self) -> usize {
        self.slow.available_permits()
    }

    /// Bytes that are on their way from and to clients, where they are many.
    pub fn room_taken(&self) -> u64 {
        self.room.taken()
    }
}

/// Serves one connection, until it ends or the server does.
pub async fn serve(connection: Connection, shared: Arc<Shared>) {
    connection::serve(connection, shared).await;
}

/// Looks each second how many commands there were, until the server is over.
pub async fn keep_count(shared: Arc<Shared>) {
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = info::commands_done(&shared);
        shared.redis.pace.store(now - before, Ordering::Relaxed);
        before = now;
    }
}
