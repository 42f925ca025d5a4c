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
use std::sync::atomic::AtomicU64;

use lithedb::Db;

use crate::accept::Connection;
use crate::server::Shared;

/// What all clients of the protocol share.
#[derive(Debug)]
pub struct State {
    databases: databases::Databases,
    clients: clients::Clients,
    cursors: cursors::Cursors,
    /// When members of expired collections were last swept, in seconds since the start.
    swept: AtomicU64,
}

impl State {
    pub fn new(db: &Db) -> State {
        State {
            databases: databases::Databases::open(db),
            clients: clients::Clients::default(),
            cursors: cursors::Cursors::default(),
            swept: AtomicU64::new(0),
        }
    }
}

/// Serves one connection, until it ends or the server does.
pub async fn serve(connection: Connection, shared: Arc<Shared>) {
    connection::serve(connection, shared).await;
}
