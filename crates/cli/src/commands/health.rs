//! `lithe health`: asks a server whether it is ready.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lithe_server::{ClientFiles, Probe, ProbeError};

use crate::failure::{Failure, Outcome};
use crate::notation::{parse_duration, shown};
use crate::output::stdout;

const EXAMPLES: &str = "\
Examples:
  lithe health
  lithe health --url http://127.0.0.1:8080 --timeout 2s
  lithe health --url unix:/run/lithe/http
  lithe health --url https://db.example:8443 --tls-roots ca.pem
  lithe health --url https://127.0.0.1:8443 --tls-roots ca.pem --tls-name db.example

Exit code 0: it takes requests. 3: it cannot be reached, drains, or its database has failed.";

/// Options of `lithe health`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HealthArgs {
    /// The server
    #[arg(
        long,
        value_name = "URL",
        env = "LITHE_HEALTH_URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub url: String,

    /// Certificates that the server's is signed by, as PEM
    #[arg(long, value_name = "FILE", env = "LITHE_HEALTH_TLS_ROOTS")]
    pub tls_roots: Option<PathBuf>,

    /// The name that the server's certificate has, if it is not that of the URL
    #[arg(long, value_name = "NAME", env = "LITHE_HEALTH_TLS_NAME")]
    pub tls_name: Option<String>,

    /// A certificate to show the server, as PEM
    #[arg(long, value_name = "FILE", env = "LITHE_HEALTH_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The key of that certificate, as PEM
    #[arg(long, value_name = "FILE", env = "LITHE_HEALTH_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// How long each step may take
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5s")]
    pub timeout: Duration,
}

/// Asks, and prints what it says.
pub fn run(args: &HealthArgs) -> Outcome {
    let client = match (&args.tls_cert, &args.tls_key) {
        (Some(certificates), Some(key)) => {
            Some(ClientFiles { certificates: certificates.clone(), key: key.clone() })
        }
        _ => None,
    };
    let probe = Probe {
        url: args.url.clone(),
        roots: args.tls_roots.clone(),
        name: args.tls_name.clone(),
        client,
        patience: args.timeout,
    };
    let status = probe.ask().map_err(|error| match error {
        ProbeError::Url { .. } | ProbeError::Roots { .. } => {
            Failure::usage(shown(&error.to_string()))
        }
        error => Failure::Other(format!("{}: {error}", args.url).into()),
    })?;
    let mut out = stdout();
    match status {
        200 => {
            writeln!(out, "ready")?;
            Ok(out.flush()?)
        }
        status => Err(Failure::Other(format!("not ready: {status}").into())),
    }
}
