//! A server from its start to its end: addresses, threads, draining.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lithedb::{Db, Error};
use tokio::sync::watch;

use crate::accept::{self, Gate, accept_on};
use crate::auth::{Authority, TokenFileError};
use crate::config::{Config, ConfigError, Limits};
use crate::log::{Level, Log, Said, WrongTokens};
use crate::metrics::{Metrics, Protocol};
use crate::socket::{SocketFile, listen_at};
use crate::store::Store;
use crate::tls::{Tls, TlsError};
use crate::{http, redis};

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Serving,
    /// No connection is accepted; requests that are under way are answered.
    Draining,
    /// Whatever is still under way is broken off.
    Over,
}

/// What all connections share.
#[derive(Debug)]
pub struct Shared {
    pub config: Config,
    pub limits: Limits,
    pub store: Arc<Store>,
    pub authority: Authority,
    pub tls: Option<Tls>,
    pub gate: Arc<Gate>,
    pub metrics: Arc<Metrics>,
    pub log: Log,
    pub wrong_tokens: WrongTokens,
    /// What clients of HTTP have going on.
    pub http: http::State,
    pub phase: watch::Receiver<Phase>,
    /// What clients of the Redis protocol share.
    pub redis: redis::State,
    /// The addresses that are served, as they came to be.
    pub http_address: Option<SocketAddr>,
    pub redis_address: Option<SocketAddr>,
}

impl Shared {
    /// Waits until the server drains.
    pub async fn draining(&self) {
        let mut phase = self.phase.clone();
        let _or_its_sender_is_gone = phase.wait_for(|phase| *phase != Phase::Serving).await;
    }

    /// Whether it still serves.
    pub fn is_serving(&self) -> bool {
        *self.phase.borrow() == Phase::Serving
    }
}

/// Why a server does not start, or ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// What it was told is refused.
    Config(ConfigError),
    /// The tokens cannot be read.
    Tokens(TokenFileError),
    /// There is no TLS by the files that were named.
    Tls(String),
    /// Nobody can listen at an address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody can listen at a path.
    Socket {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The directory for backups is none.
    BackupRoot {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system gives no threads.
    Threads(io::Error),
    /// The engine's error.
    Engine(Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Config(error) => error.fmt(f),
            ServeError::Tokens(error) => error.fmt(f),
            ServeError::Tls(what) => f.write_str(what),
            ServeError::Listen { address, source } => {
                write!(f, "cannot listen at {address}: {source}")
            }
            ServeError::Socket { path, source } => {
                write!(f, "cannot listen at {}: {source}", path.display())
            }
            ServeError::BackupRoot { path, source } => {
                write!(f, "{}, where backups should go: {source}", path.display())
            }
            ServeError::Threads(error) => write!(f, "cannot start threads: {error}"),
            ServeError::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServeError::Config(error) => Some(error),
            ServeError::Tokens(error) => Some(error),
            ServeError::Tls(_) => None,
            ServeError::Listen { source, .. }
            | ServeError::Socket { source, .. }
            | ServeError::BackupRoot { source, .. }
            | ServeError::Threads(source) => Some(source),
            ServeError::Engine(error) => Some(error),
        }
    }
}

impl From<TlsError> for ServeError {
    fn from(error: TlsError) -> ServeError {
        ServeError::Tls(error.to_string())
    }
}

/// A server whose addresses are bound, ready to [`Server::run`].
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<(Protocol, Listener)>,
    drain: Drain,
}

/// What is bound.
#[derive(Debug)]
enum Listener {
    Network(TcpListener),
    Unix(SocketFile, UnixListener),
}

/// Ends a server, or has it read its files again, from any thread.
#[derive(Clone, Debug)]
pub struct Drain {
    phase: Arc<watch::Sender<Phase>>,
}

impl Drain {
    /// Begins to drain; behind the time that it has for that, or when this is called once more,
    /// what is left is broken off.
    pub fn begin(&self) {
        self.phase.send_modify(|phase| {
            *phase = match phase {
                Phase::Serving => Phase::Draining,
                Phase::Draining | Phase::Over => Phase::Over,
            };
        });
    }
}

/// Reads the files that a server was told of again.
#[derive(Clone, Debug)]
pub struct Reload {
    shared: Arc<Shared>,
}

impl Reload {
    /// Reads tokens and certificates again. Certificates are for connections from now on; tokens
    /// also for what goes on for somebody, which ends soon if its token is gone or allows something
    /// else. What cannot be read stays as it was. A line of the log says what came of it.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn now(&self) -> Result<(), ServeError> {
        let log = self.shared.log;
        let read = self.read();
        match &read {
            Ok(()) => log.line(Level::Info, "tokens and certificates were read again", &[]),
            Err(error) => {
                let event = "tokens and certificates are as they were read before";
                log.line(Level::Error, event, &[("why", Said::Text(error))]);
            }
        }
        read
    }

    fn read(&self) -> Result<(), ServeError> {
        if let Some(file) = &self.shared.config.tokens {
            self.shared.authority.reload(file).map_err(ServeError::Tokens)?;
        }
        if let Some(tls) = &self.shared.tls {
            tls.reload()?;
        }
        Ok(())
    }
}

impl Server {
    /// Binds the addresses. The database stays open when the server has ended; closing it is the
    /// caller's.
    ///
    /// # Errors
    /// When what it was told is refused, or something of it cannot be had. Nothing is served then.
    pub fn bind(db: Db, config: Config) -> Result<Server, ServeError> {
        config.check().map_err(ServeError::Config)?;
        let limits = config.limits.clone();
        let authority = Authority::open(config.tokens.as_deref(), limits.wrong_tokens_a_minute)
            .map_err(ServeError::Tokens)?;
        let tls = config.tls.as_ref().map(Tls::read).transpose()?;
        if let Some(path) = &config.backup_root {
            let there = http::make_backup_root(path);
            there.map_err(|source| ServeError::BackupRoot { path: path.clone(), source })?;
        }
        let listeners = listen_to(&config)?;
        let address_of = |protocol: Protocol| {
            listeners.iter().find_map(|(of, listener)| match listener {
                Listener::Network(listener) if *of == protocol => listener.local_addr().ok(),
                _ => None,
            })
        };
        let (http_address, redis_address) =
            (address_of(Protocol::Http), address_of(Protocol::Redis));
        let store = Store::new(db, config.durability, limits.blocking_requests)
            .map_err(ServeError::Engine)?;
        let redis = redis::State::new(store.db(), &limits);
        let (sender, phase) = watch::channel(Phase::Serving);
        let shared = Arc::new(Shared {
            store: Arc::new(store),
            authority,
            tls,
            gate: Arc::new(Gate::new(&limits)),
            metrics: Arc::default(),
            log: Log::new(config.log, config.request_log),
            wrong_tokens: WrongTokens::default(),
            http: http::State::new(&config),
            phase,
            redis,
            http_address,
            redis_address,
            limits,
            config,
        });
        Ok(Server { shared, listeners, drain: Drain { phase: Arc::new(sender) } })
    }

    /// What its connections would share.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Where HTTP is served.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.shared.http_address
    }

    /// Where the Redis protocol is.
    #[must_use]
    pub fn redis_address(&self) -> Option<SocketAddr> {
        self.shared.redis_address
    }

    /// What ends it.
    #[must_use]
    pub fn drain(&self) -> Drain {
        self.drain.clone()
    }

    /// What has it read its files again.
    #[must_use]
    pub fn reload(&self) -> Reload {
        Reload { shared: Arc::clone(&self.shared) }
    }

    /// Serves until it is drained: on return no request is under way.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn run(self) -> Result<(), ServeError> {
        raise_file_limit();
        let Server { shared, listeners, drain } = self;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(shared.config.worker_count())
            .max_blocking_threads(shared.limits.threads() + shared.config.worker_count())
            .thread_name("lithe-serve")
            .enable_all()
            .build()
            .map_err(ServeError::Threads)?;
        runtime.block_on(serve(&shared, listeners, &drain))?;
        runtime.shutdown_timeout(Duration::from_secs(1));
        shared.store.close();
        // Whoever has a `Reload` keeps `shared`, and is not to keep the database open by it.
        drop(shared.http.snapshots.take_all());
        shared.log.line(Level::Info, "drained", &[]);
        Ok(())
    }
}

fn listen_to(config: &Config) -> Result<Vec<(Protocol, Listener)>, ServeError> {
    let mut listeners = Vec::new();
    for (protocol, address, path) in [
        (Protocol::Http, config.http, &config.http_socket),
        (Protocol::Redis, config.redis, &config.redis_socket),
    ] {
        if let Some(address) = address {
            listeners.push((protocol, Listener::Network(listen(address)?)));
        }
        if let Some(path) = path {
            let mode = config.socket_mode.unwrap_or(0o600);
            listeners.push((protocol, listen_by_path(path, mode)?));
        }
    }
    Ok(listeners)
}

fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn listen_by_path(path: &Path, mode: u32) -> Result<Listener, ServeError> {
    let (listener, file) = listen_at(path, mode)
        .map_err(|source| ServeError::Socket { path: path.to_path_buf(), source })?;
    Ok(Listener::Unix(file, listener))
}

async fn serve(
    shared: &Arc<Shared>,
    listeners: Vec<(Protocol, Listener)>,
    drain: &Drain,
) -> Result<(), ServeError> {
    for (protocol, listener) in listeners {
        let listener = match listener {
            Listener::Network(listener) => {
                tokio::net::TcpListener::from_std(listener).map(accept::Listener::Network)
            }
            Listener::Unix(file, listener) => tokio::net::UnixListener::from_std(listener)
                .map(|listener| accept::Listener::Unix(file, listener)),
        };
        let listener = listener.map_err(ServeError::Threads)?;
        let shared = Arc::clone(shared);
        match protocol {
            Protocol::Http => tokio::spawn(accept_on(listener, protocol, shared, http::serve)),
            Protocol::Redis => tokio::spawn(accept_on(listener, protocol, shared, redis::serve)),
        };
    }
    tokio::spawn(http::keep_house(Arc::clone(shared)));
    tokio::spawn(redis::keep_count(Arc::clone(shared)));
    shared.draining().await;
    shared.log.line(Level::Info, "draining", &[]);
    let mut phase = shared.phase.clone();
    tokio::select! {
        () = shared.gate.wait_until_empty() => {}
        () = tokio::time::sleep(shared.limits.drain) => {}
        _over = phase.wait_for(|phase| *phase == Phase::Over) => {}
    }
    drain.phase.send_replace(Phase::Over);
    Ok(())
}

/// Each connection is a descriptor: as many as this process may have.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _as_many_as_there_were = setrlimit(Resource::Nofile, limit);
}
