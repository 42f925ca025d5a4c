//! `lithe serve`: serves a database over HTTP and the Redis protocol.

mod limits;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

use clap::{Args, ValueEnum};
use lithe_server::{
    Config, ConfigError, Durability, LogFormat, PlainNetwork, RequestLog, ServeError, Server,
    TlsFiles,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Globals, Origin};
use crate::database::{close, open_existing, open_or_create};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::notation::shown;
use crate::output::{Notices, stdout};
use limits::LimitArgs;

const HTTP_ADDRESS: &str = "127.0.0.1:8080";

const EXAMPLES: &str = "\
Examples:
  lithe serve --db my.lithe
  lithe serve --db my.lithe --http 127.0.0.1:8080 --redis 127.0.0.1:6379 --durability every-second
  lithe serve --db my.lithe --http-socket /run/lithe/http --socket-mode 660
  lithe serve --db my.lithe --http 0.0.0.0:8443 --tokens tokens --tls-cert a.pem --tls-key a.key

The database is created when it does not exist, but not with --read-only. The addresses that are
served go to standard output, one a line; log lines go to standard error. The console is at / of
the HTTP address.

Without --tokens, whoever can connect may do everything: then only addresses of this machine are
served. SIGTERM or Ctrl-C drains: requests that are under way are answered. SIGHUP has tokens and
certificates read again.

Limits are also settings of the section [serve] of the file that `lithe config` shows, by the same
names (body_size = \"16MiB\"), and variables of the environment (LITHE_SERVE_BODY_SIZE).";

/// A server has one database for its life, and a follower another now and then.
const BESIDE_REFUSED: &str = "a server does not follow who writes: with --beside it would show one \
    moment for ever; serve a checkpoint that the writer makes, with --read-only, or follow it by \
    the shell, `lithe DB --beside`";

/// Options of `lithe serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Where HTTP is served [default: 127.0.0.1:8080, where no address is given]
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<SocketAddr>,

    /// Where the Redis protocol is
    #[arg(long, value_name = "ADDRESS")]
    pub redis: Option<SocketAddr>,

    /// A path at which HTTP is served to this machine, as well or instead
    #[arg(long, value_name = "PATH")]
    pub http_socket: Option<PathBuf>,

    /// A path at which the Redis protocol is served to this machine, as well or instead
    #[arg(long, value_name = "PATH")]
    pub redis_socket: Option<PathBuf>,

    /// Who may connect at these paths, as `chmod` has it [default: 600, the server's user alone]
    #[arg(long, value_name = "MODE", value_parser = parse_mode)]
    pub socket_mode: Option<u32>,

    /// File of tokens and what each may do (`lithe token`)
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,

    /// Certificates of the server, as PEM: with it there is TLS alone
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Certificates that clients have to show one of, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_roots: Option<PathBuf>,

    /// Serve other machines without TLS, where somebody else sees to it that nobody listens
    #[arg(long)]
    pub insecure_without_tls: bool,

    /// A name that clients know this server by, besides its address and localhost; may be given
    /// again [environment: LITHE_HOSTS, with commas between names]
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,

    /// When writes are answered
    #[arg(long, value_name = "WHEN", default_value = "always")]
    pub durability: Served,

    /// Directory that backups over the network go below; made if it is missing
    #[arg(long, value_name = "DIR")]
    pub backups: Option<PathBuf>,

    /// Threads that serve [default: one a processor, at least 2]
    #[arg(long, value_name = "COUNT")]
    pub workers: Option<usize>,

    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log: LogLines,

    /// Log each request, by its kind
    #[arg(long)]
    pub log_requests: bool,

    /// How much there may be of each
    #[command(flatten)]
    pub limits: LimitArgs,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let is_octal = text.len() <= 4 && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| "up to three digits from 0 to 7, as in 660".to_owned())
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Served {
    /// When it is on disk
    Always,
    /// When it is in the log, which is synced once a second
    EverySecond,
    /// When it is in the log
    Buffered,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLines {
    /// Words
    Text,
    /// An object a line
    Json,
    /// There are none
    Off,
}

/// Serves until it is told to end.
pub fn run(
    globals: &Globals,
    notices: Notices,
    interrupt: &Interrupt,
    args: &ServeArgs,
) -> Outcome {
    let config = config_of(globals, args)?;
    config.check().map_err(|error| failure_of_config(&error))?;
    if globals.beside {
        return Err(Failure::usage(BESIDE_REFUSED));
    }
    if globals.keyspace_origin == Origin::CommandLine {
        let what = "a server serves all keyspaces: leave --keyspace out, requests name theirs";
        return Err(Failure::usage(what));
    }
    let db = if globals.read_only { open_existing(globals)? } else { open_or_create(globals)? };
    let served = serve(&db, config, notices, interrupt);
    close(&db)?;
    served
}

fn serve(db: &lithedb::Db, config: Config, notices: Notices, interrupt: &Interrupt) -> Outcome {
    let is_silent = config.log == LogFormat::Off;
    let sockets = [("http", config.http_socket.clone()), ("redis", config.redis_socket.clone())];
    let server = Server::bind(db.clone(), config).map_err(failure_of)?;
    let mut out = stdout();
    let addresses = [("http", server.http_address()), ("redis", server.redis_address())];
    for (protocol, address) in addresses {
        if let Some(address) = address {
            writeln!(out, "{protocol} {address}")?;
        }
    }
    for (protocol, path) in sockets {
        if let Some(path) = path {
            writeln!(out, "{protocol} unix:{}", shown(&path.to_string_lossy()))?;
        }
    }
    out.flush()?;
    interrupt.graceful(); // A second Ctrl-C still ends it at once.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| Failure::Other(Box::new(error)))?;
    let handle = signals.handle();
    let (drain, reload) = (server.drain(), server.reload());
    let listener = thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGHUP => match reload.now() {
                    Err(error) if is_silent => notices.fail(&error.to_string(), None),
                    _told_by_the_log => {}
                },
                _ => drain.begin(),
            }
        }
    });
    let ran = server.run().map_err(failure_of);
    handle.close();
    let _it_has_nothing_to_tell = listener.join();
    ran
}

fn config_of(globals: &Globals, args: &ServeArgs) -> Result<Config, Failure> {
    if args.socket_mode.is_some() && args.http_socket.is_none() && args.redis_socket.is_none() {
        return Err(Failure::usage("--socket-mode is of --http-socket or --redis-socket"));
    }
    let mut config = Config::default();
    let has_another =
        args.redis.is_some() || args.http_socket.is_some() || args.redis_socket.is_some();
    config.http = args.http.or(HTTP_ADDRESS.parse().ok().filter(|_| !has_another));
    config.redis = args.redis;
    config.http_socket.clone_from(&args.http_socket);
    config.redis_socket.clone_from(&args.redis_socket);
    config.socket_mode = args.socket_mode;
    config.tokens.clone_from(&args.tokens);
    config.tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificates), Some(key)) => Some(TlsFiles {
            certificates: certificates.clone(),
            key: key.clone(),
            client_roots: args.tls_client_roots.clone(),
        }),
        _ => None,
    };
    config.plain_network = match args.insecure_without_tls {
        true => PlainNetwork::Allowed,
        false => PlainNetwork::Refused,
    };
    config.hosts.clone_from(&args.hosts);
    if args.hosts.is_empty() {
        let names = globals.settings.value("serve.hosts").unwrap_or_default().split([',', ' ']);
        config.hosts = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    }
    config.durability = match args.durability {
        Served::Always => Durability::Always,
        Served::EverySecond => Durability::EverySecond,
        Served::Buffered => Durability::Buffered,
    };
    config.backup_root.clone_from(&args.backups);
    config.workers = args.workers.unwrap_or(0);
    args.limits.apply(&globals.settings, &mut config.limits)?;
    config.log = match args.log {
        LogLines::Text => LogFormat::Text,
        LogLines::Json => LogFormat::Json,
        LogLines::Off => LogFormat::Off,
    };
    config.request_log = if args.log_requests { RequestLog::All } else { RequestLog::Failures };
    Ok(config)
}

fn failure_of_config(error: &ConfigError) -> Failure {
    let advice = match error {
        ConfigError::OpenWithoutTokens { .. } => {
            ": make one with `lithe token create`, and name its file with --tokens"
        }
        ConfigError::OpenWithoutTls { .. } => {
            ": use --tls-cert and --tls-key, or --insecure-without-tls"
        }
        _ => "",
    };
    Failure::usage(format!("{error}{advice}"))
}

fn failure_of(error: ServeError) -> Failure {
    match error {
        ServeError::Config(error) => failure_of_config(&error),
        ServeError::Engine(error) => Failure::Store(error),
        ServeError::Tokens(_) | ServeError::Tls(_) => Failure::usage(shown(&error.to_string())),
        error => Failure::Other(Box::new(error)),
    }
}
