//! What a server is told when it starts, and what it refuses to start with.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::metrics::Protocol;

/// When a write is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk: one sync of the log serves all who wait for one.
    #[default]
    Always,
    /// When it is in the log; the log is synced once a second. A crash of the machine may take the
    /// last second with it, one of the process does not.
    EverySecond,
    /// When it is in the log, which is synced when the engine has a reason of its own.
    Buffered,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Words and `name=value`.
    #[default]
    Text,
    /// An object a line.
    Json,
    /// There are none.
    Off,
}

/// Where certificate and key are, as PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, the server's own first.
    pub certificates: PathBuf,
    /// Its key: readable by its owner alone.
    pub key: PathBuf,
    /// Certificates of which each client has to show one that they have signed.
    pub client_roots: Option<PathBuf>,
}

/// How much of each there may be. All sizes are in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time, of both protocols together.
    pub connections: usize,
    /// Of these, from one address that is not this machine's own.
    pub connections_per_address: usize,
    /// Requests that are at work in threads of their own at a time: scans, backups, large batches.
    /// One more is refused as busy.
    pub blocking_requests: usize,
    /// Commands of the Redis protocol that may take long (`KEYS`, `SCAN`, `ZRANGE`, a large `EXEC`)
    /// and are at work at a time. One more waits for its turn, for as long as a request may scan.
    pub slow_commands: usize,
    /// Time for a first byte, for the head of a request, and for a TLS handshake.
    pub first_byte: Duration,
    /// Time for which a connection without a request stays open.
    pub idle: Duration,
    /// Bytes a second that a body, or who reads an answer, must reach after `first_byte`, which is
    /// also what can be saved up by going faster.
    pub rate_min: u64,
    /// The head of a request.
    pub head_size: usize,
    /// Headers of a request.
    pub header_count: usize,
    /// The body of a request, or a bulk of the Redis protocol.
    pub body_size: u64,
    /// A key.
    pub key_size: usize,
    /// A value.
    pub value_size: u64,
    /// Operations of a batch or transaction; arguments of a Redis command.
    pub batch_count: usize,
    /// Keys that one page of a scan has at most.
    pub page_count: usize,
    /// How long one request may scan or look up keys, and a transaction of the Redis protocol take.
    pub scan_time: Duration,
    /// Snapshots that clients hold over HTTP, in all.
    pub snapshots: usize,
    /// Of these, with tokens of one name.
    pub snapshots_per_token: usize,
    /// How long one of them lives after it was last used, at most and if nothing else is asked for.
    pub snapshot_time: Duration,
    /// How long a write that says by a key that it is to be done once is remembered; a millisecond
    /// at least.
    pub idempotency_time: Duration,
    /// Feeds that are being followed.
    pub feeds: usize,
    /// What is to be sent to one client and was not taken yet: behind that, it is closed.
    pub output_size: usize,
    /// What all clients of the Redis protocol together have sent that is not done, and are to be
    /// sent that they have not taken, counting what is 4 KiB and more: the one that asks for more
    /// is told so, and closed.
    pub redis_memory: u64,
    /// Commands of one client that are read ahead of what was answered.
    pub pipeline_count: usize,
    /// Of a client of the Redis protocol that has not said who it is: arguments of a command ..
    pub unknown_argument_count: usize,
    /// .. and bytes of each.
    pub unknown_argument_size: usize,
    /// Wrong tokens from one address in a minute; behind that they are refused without a look.
    pub wrong_tokens_a_minute: u32,
    /// How long requests at work may take when the server stops.
    pub drain: Duration,
}

impl Limits {
    /// Threads that requests may be at work in at a time, beside those that serve connections.
    pub(crate) fn threads(&self) -> usize {
        self.blocking_requests + self.slow_commands + self.feeds
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 20_000,
            connections_per_address: 12_000,
            blocking_requests: 64,
            slow_commands: 32,
            first_byte: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            rate_min: 1 << 10,
            head_size: 16 << 10,
            header_count: 64,
            body_size: 64 << 20,
            key_size: 64 << 10,
            value_size: 64 << 20,
            batch_count: 100_000,
            page_count: 10_000,
            scan_time: Duration::from_secs(60),
            snapshots: 256,
            snapshots_per_token: 128,
            snapshot_time: Duration::from_secs(60),
            idempotency_time: Duration::from_secs(24 * 60 * 60),
            feeds: 256,
            output_size: 64 << 20,
            redis_memory: 1 << 30,
            pipeline_count: 10_000,
            unknown_argument_count: 10,
            unknown_argument_size: 16_384,
            wrong_tokens_a_minute: 10,
            drain: Duration::from_secs(10),
        }
    }
}

/// All that a server is told.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// Where HTTP is served. Port 0 is any that is free.
    pub http: Option<SocketAddr>,
    /// Where the Redis protocol is.
    pub redis: Option<SocketAddr>,
    /// A path on this machine at which HTTP is served as well, without TLS: what is there already
    /// is an error, unless it is a socket that nobody listens at any more.
    pub http_socket: Option<PathBuf>,
    /// The same for the Redis protocol.
    pub redis_socket: Option<PathBuf>,
    /// Who may connect at these paths, as the bits of a file's mode; by default (`None`) the user
    /// alone that the server runs as, 600.
    pub socket_mode: Option<u32>,
    /// File of tokens; without one, whoever can connect may do everything.
    pub tokens: Option<PathBuf>,
    /// With it both protocols are served by TLS alone at their addresses.
    pub tls: Option<TlsFiles>,
    /// That tokens may go in the clear over a network.
    pub plain_network: PlainNetwork,
    /// Names by which this server is known to browsers, besides its address and `localhost`.
    pub hosts: Vec<String>,
    /// When writes are answered, where the request does not say.
    pub durability: Durability,
    /// The directory that backups over the network go below, which is made if only it is missing;
    /// without it there are none.
    pub backup_root: Option<PathBuf>,
    /// Threads that serve connections; 0 for one a processor, but two at least.
    pub workers: usize,
    /// How much there may be of each.
    pub limits: Limits,
    /// How log lines look.
    pub log: LogFormat,
    /// Whether each request is a log line.
    pub request_log: RequestLog,
}

/// Whether an address that others can reach may be served without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainNetwork {
    /// No.
    #[default]
    Refused,
    /// Yes: somebody else sees to it that nobody listens.
    Allowed,
}

/// Whether requests are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestLog {
    /// Only what the server itself could not do.
    #[default]
    Failures,
    /// Each, by its kind: without keys and values.
    All,
}

/// Why a server does not start with what it was told.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// Neither protocol has an address or a path.
    NothingToServe,
    /// Others could reach this address, and nothing says who may do what.
    OpenWithoutTokens {
        /// The address.
        address: SocketAddr,
    },
    /// Others could reach this address, and tokens would be sent in the clear.
    OpenWithoutTls {
        /// The address.
        address: SocketAddr,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::NothingToServe => write!(f, "no address to serve was given"),
            ConfigError::OpenWithoutTokens { address } => write!(
                f,
                "{address} can be reached from other machines: without a file of tokens it is \
                 served on this machine alone"
            ),
            ConfigError::OpenWithoutTls { address } => write!(
                f,
                "{address} can be reached from other machines: tokens would be sent in the clear"
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Refuses what nobody should start.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ConfigError> {
        let addresses = [self.http, self.redis];
        let sockets = [&self.http_socket, &self.redis_socket];
        if addresses.iter().all(Option::is_none) && sockets.iter().all(|path| path.is_none()) {
            return Err(ConfigError::NothingToServe);
        }
        for address in addresses.into_iter().flatten().filter(|address| !is_own(address.ip())) {
            if self.tokens.is_none() {
                return Err(ConfigError::OpenWithoutTokens { address });
            }
            if self.tls.is_none() && self.plain_network == PlainNetwork::Refused {
                return Err(ConfigError::OpenWithoutTls { address });
            }
        }
        Ok(())
    }

    /// Whether a protocol is served, at an address or a path.
    pub(crate) fn serves(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Http => self.http.is_some() || self.http_socket.is_some(),
            Protocol::Redis => self.redis.is_some() || self.redis_socket.is_some(),
        }
    }

    /// Threads that serve connections.
    pub(crate) fn worker_count(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from).max(2),
            count => count,
        }
    }
}

/// Whether an address is this machine's alone.
pub(crate) fn is_own(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(address: &str) -> Config {
        Config { http: Some(address.parse().unwrap()), ..Config::default() }
    }

    #[test]
    fn what_others_can_reach_needs_tokens_and_tls() {
        assert!(matches!(Config::default().check(), Err(ConfigError::NothingToServe)));
        for own in ["127.0.0.1:0", "[::1]:8080", "127.8.9.1:1", "[::ffff:127.0.0.1]:1"] {
            http(own).check().unwrap();
        }
        for open in ["0.0.0.0:8080", "[::]:8080", "192.168.1.4:80", "[::ffff:10.0.0.1]:1"] {
            let mut config = http(open);
            assert!(matches!(config.check(), Err(ConfigError::OpenWithoutTokens { .. })));
            config.tokens = Some(PathBuf::from("tokens"));
            assert!(matches!(config.check(), Err(ConfigError::OpenWithoutTls { .. })));
            config.plain_network = PlainNetwork::Allowed;
            config.check().unwrap();
            config.tokens = None;
            assert!(matches!(config.check(), Err(ConfigError::OpenWithoutTokens { .. })));
        }
    }
}
