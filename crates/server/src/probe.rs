//! Asks a server whether it is ready, as health checks of containers and service managers do.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A first line is not longer.
const LINE_LEN_MAX: u64 = 1 << 10;

/// Whom to ask, and how.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// Certificates that the server's is signed by, as PEM: for `https`.
    pub roots: Option<PathBuf>,
    /// The name that the server's certificate has, if it is another one than the URL's.
    pub name: Option<String>,
    /// What the server is shown, if it wants to see one.
    pub client: Option<ClientFiles>,
    /// For each step of it.
    pub patience: Duration,
}

/// A certificate of a client, and its key, as PEM.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// The chain, its own first.
    pub certificates: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why there is no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProbeError {
    /// The URL is none of a server.
    Url {
        /// What is wrong with it.
        what: String,
    },
    /// The certificates cannot be read or used.
    Roots {
        /// What is wrong with them.
        what: String,
    },
    /// The server cannot be reached, or breaks off.
    Io(io::Error),
    /// What answers is no such server.
    NotHttp,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Url { what } | ProbeError::Roots { what } => f.write_str(what),
            ProbeError::Io(error) => error.fmt(f),
            ProbeError::NotHttp => f.write_str("what answers there does not speak HTTP"),
        }
    }
}

impl std::error::Error for ProbeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ProbeError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> ProbeError {
        ProbeError::Io(error)
    }
}

trait Both: Read + Write {}

impl<Stream: Read + Write> Both for Stream {}

impl Probe {
    /// The status that `/ready` is answered with: 200 when the server takes requests, 503 when it
    /// drains or its database has failed.
    ///
    /// # Errors
    /// When nobody answers, or not as a server.
    pub fn ask(&self) -> Result<u16, ProbeError> {
        let (is_tls, authority) = self.parts()?;
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut stream = self.connect(authority, is_tls, host)?;
        let request =
            format!("GET /ready HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        stream.flush()?;
        let mut line = String::new();
        BufReader::new(stream.take(LINE_LEN_MAX)).read_line(&mut line)?;
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        status.ok_or(ProbeError::NotHttp)
    }

    /// Whether it is by TLS, and `HOST:PORT`.
    fn parts(&self) -> Result<(bool, &str), ProbeError> {
        let wrong = |what: &str| ProbeError::Url { what: format!("{:?}: {what}", self.url) };
        let (scheme, rest) =
            self.url.split_once("://").ok_or_else(|| wrong("http://HOST:PORT is expected"))?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let is_plain = authority.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        if !is_plain || !authority.contains(':') {
            return Err(wrong("behind `://` HOST:PORT is expected, and no path"));
        }
        match scheme {
            "http" => Ok((false, authority)),
            "https" => Ok((true, authority)),
            _ => Err(wrong("http and https are known")),
        }
    }

    fn connect(
        &self,
        authority: &str,
        is_tls: bool,
        host: &str,
    ) -> Result<Box<dyn Both>, ProbeError> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for address in authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.patience) {
                Err(error) => failed = error,
                Ok(stream) => {
                    stream.set_read_timeout(Some(self.patience))?;
                    stream.set_write_timeout(Some(self.patience))?;
                    return match is_tls {
                        false => Ok(Box::new(stream)),
                        true => Ok(Box::new(self.secured(stream, host)?)),
                    };
                }
            }
        }
        Err(failed.into())
    }

    fn secured(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<StreamOwned<ClientConnection, TcpStream>, ProbeError> {
        let wrong = |what: String| ProbeError::Roots { what };
        let Some(path) = &self.roots else {
            return Err(wrong(
                "https needs the certificates that the server's is signed by".into(),
            ));
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(roots_of(path).map_err(wrong)?);
        let config = match &self.client {
            None => config.with_no_client_auth(),
            Some(files) => {
                let (chain, key) = identity_of(files).map_err(wrong)?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| wrong(error.to_string()))?
            }
        };
        let name = self.name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| ProbeError::Url { what: format!("{:?}: {error}", self.url) })?;
        let connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(StreamOwned::new(connection, stream))
    }
}

fn wrong(path: &Path, error: &dyn fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

fn certificates_of(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| wrong(path, &error))
}

fn roots_of(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(path)? {
        roots.add(certificate).map_err(|error| wrong(path, &error))?;
    }
    Ok(roots)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity_of(files: &ClientFiles) -> Result<Identity, String> {
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| wrong(&files.key, &error))?;
    Ok((certificates_of(&files.certificates)?, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> Option<(bool, String)> {
        let probe = Probe { url: url.to_owned(), ..Probe::default() };
        probe.parts().ok().map(|(is_tls, authority)| (is_tls, authority.to_owned()))
    }

    #[test]
    fn urls_are_a_scheme_a_host_and_a_port() {
        assert_eq!(parts("http://127.0.0.1:8080"), Some((false, "127.0.0.1:8080".to_owned())));
        assert_eq!(parts("https://[::1]:1/"), Some((true, "[::1]:1".to_owned())));
        for wrong in [
            "127.0.0.1:8080",
            "ftp://a:1",
            "http://a",
            "http://a:1/path",
            "http://a:1\r\nx: y",
            "http://",
        ] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_status_is_read_and_what_is_no_answer_is_told() {
        for (answer, status) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Some(200)),
            ("HTTP/1.1 503 Service Unavailable\r\n", Some(503)),
            ("-ERR unknown command\r\n", None),
            ("", None),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                let mut rest = Vec::new();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                stream.read_to_end(&mut rest).unwrap();
            });
            let probe = Probe { url, patience: Duration::from_secs(10), ..Probe::default() };
            assert_eq!(probe.ask().ok(), status, "{answer}");
            server.join().unwrap();
        }
    }
}
