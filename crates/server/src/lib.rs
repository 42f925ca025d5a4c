//! LitheDB for other programs than the one that has it open: one process that serves a database
//! over HTTP and the Redis protocol.
//!
//! | module | what it has |
//! |---|---|
//! | `config` | addresses, limits, where secrets are; what is refused |
//! | `auth` | tokens, and what each may do |
//! | `secret`, `tls` | files of secrets; certificates |
//! | `accept`, `stream` | connections: how many, from where, by TLS or not, until when |
//! | `socket` | paths of this machine that are served |
//! | `store` | the database as handlers use it: what may wait does so elsewhere |
//! | `sync` | one sync of the log for all who wait for one |
//! | `room` | memory that clients take together |
//! | `metrics`, `log` | what was done, without keys and values |
//! | `http`, `redis` | the protocols |
//! | `moment` | times, stamps and durations as text |
//! | `probe` | asking a server whether it is ready |
//! | `console` | the files of the web console |
//!
//! Invariants
//! - N1  A request is answered with success only when what it wrote is as durable as asked for.
//! - N2  Nothing is done, and nothing is told, for whom the tokens do not allow it; what has no
//!   rule is refused.
//! - N3  What a client may take of memory, time and connections has a limit, before it is known who
//!   it is as well as after.
//! - N4  Keys, values and secrets are in no log line and no error of another client.

mod accept;
pub mod auth;
pub mod config;
pub mod console;
mod http;
mod log;
mod metrics;
pub mod moment;
mod patience;
mod probe;
mod redis;
mod room;
mod secret;
mod server;
mod socket;
mod store;
mod stream;
mod sync;
mod tls;

/// What a fuzzer is given: decoders of bytes that anybody may send.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::http::feed::{Feed as HttpFeed, judge as judge_http};
    pub use crate::redis::feed::Feed as RedisFeed;
    pub use crate::redis::frame::{FrameError, FrameLimits, Parsed, parse as parse_redis};
    pub use crate::redis::glob::{Steps, matches as matches_glob};
}

pub use config::{
    Config, ConfigError, Durability, Limits, LogFormat, PlainNetwork, RequestLog, TlsFiles,
};
pub use probe::{ClientFiles, Probe, ProbeError};
#[cfg(unix)]
pub use secret::exposes;
pub use secret::is_exposed;
pub use server::{Drain, Reload, ServeError, Server};
