//! HTTP: the plain calls of a key-value service, `/v1`, and the console.
//!
//! | file | what it has |
//! |---|---|
//! | `routes` | which calls there are, and who may use them at all |
//! | `guard` | by which name a client came, for which page, with which token |
//! | `standing` | whether the token of what goes on for long is still there |
//! | `ask`, `query`, `body`, `text`, `moment` | what requests and answers are made of |
//! | `failure` | why something is not done, for programs and people |
//! | `pace` | connections whose clients are not waited for without end |
//! | `record` | what is kept of a request: counts, times, a line of the log |
//! | `listing`, `events` | answers that are sent as they come to be |
//! | `plain`, `keys`, `scan`, `batch`, `conditions`, `once` | keys and values |
//! | `keyspaces`, `options`, `tables` | keyspaces |
//! | `history`, `snapshots`, `changes` | moments |
//! | `stats`, `metrics`, `jobs`, `backups`, `openapi`, `console` | the server |
//! | `feed` | a connection that is none, for fuzzers and tests |
//!
//! Invariants
//! - H1  A handler runs only for a principal whom the table of routes lets in, and comes to the
//!   keys of a keyspace only by [`ask::Ask::keyspace_named`], or asks as that does whether the verb
//!   is allowed (N2).
//! - H2  What is kept for a client has a bound that does not come from the client: bodies by their
//!   limit and the room for all of them, answers by pages or by a channel of some pieces; of
//!   snapshots, feeds and jobs there are so many (N3).

mod ask;
mod backups;
mod batch;
mod body;
mod changes;
mod conditions;
mod console;
mod events;
mod failure;
pub mod feed;
mod guard;
mod history;
mod jobs;
mod keys;
mod keyspaces;
mod listing;
mod metrics;
mod moment;
mod once;
mod openapi;
mod options;
mod pace;
mod plain;
mod query;
mod record;
mod routes;
mod scan;
mod serve;
mod snapshots;
mod standing;
mod stats;
mod tables;
mod text;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::config::Config;
use crate::room::Room;
use crate::server::Shared;

pub use backups::make_root as make_backup_root;
pub use serve::serve;

/// How often what nobody uses any more is looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// What clients have going on, over requests.
#[derive(Debug)]
pub struct State {
    pub room: Room,
    pub snapshots: snapshots::Snapshots,
    pub jobs: Arc<jobs::Jobs>,
    /// Streams of events that are being followed.
    pub feeds: Arc<Semaphore>,
    pub backups: Option<backups::Place>,
}

impl State {
    pub fn new(config: &Config) -> State {
        let limits = &config.limits;
        let clients = match config.tokens {
            Some(_) => snapshots::Clients::ByToken,
            None => snapshots::Clients::Anybody,
        };
        State {
            room: body::room_of(limits),
            snapshots: snapshots::Snapshots::new(limits, clients),
            jobs: Arc::default(),
            feeds: Arc::new(Semaphore::new(limits.feeds)),
            backups: config.backup_root.as_deref().map(backups::Place::new),
        }
    }
}

/// Lets go what nobody has used for its time, until the server is over.
pub async fn keep_house(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(HOUSEKEEPING).await;
        let expired = shared.http.snapshots.take_expired();
        if !expired.is_empty() {
            // Files that only they have kept are removed with them.
            let _when_it_is_done = tokio::task::spawn_blocking(move || drop(expired)).await;
        }
    }
}
