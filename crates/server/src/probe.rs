//! Asks a server whether it is ready, as health checks of containers and service managers do, or
//! for its figures.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::config::is_own;

/// Nobody is waited for for longer.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// A first line is not longer.
const LINE_LEN_MAX: u64 = 1 << 10;
/// The head of an answer.
const HEAD_SIZE_MAX: u64 = 64 << 10;
/// A body that is asked for.
const BODY_SIZE_MAX: u64 = 8 << 20;

/// Whom to ask, and how.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// `http://HOST:PORT`, `https://HOST:PORT`, or `unix:PATH`.
    pub url: String,
    /// Certificates that the server's is signed by, as PEM: for `https`.
    pub roots: Option<PathBuf>,
    /// The name that the server's certificate has, if it is another one than the URL's.
    pub name: Option<String>,
    /// What the server is shown, if it wants to see one.
    pub client: Option<ClientFiles>,
    /// For all of it.
    pub patience: Duration,
}

/// Whether others may see what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secrecy {
    Nothing,
    Needed,
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
    /// It answers at a length that is not said, or of more than there is room for.
    NoSize,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Url { what } | ProbeError::Roots { what } => f.write_str(what),
            ProbeError::Io(error) => error.fmt(f),
            ProbeError::NotHttp => f.write_str("what answers there does not speak HTTP"),
            ProbeError::NoSize => f.write_str("what answers there does not say how long it is"),
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

/// A socket that is waited for until a moment, however slowly bytes come and go.
struct Until<S> {
    stream: S,
    until: Instant,
}

trait TimeOut {
    fn set_time_out(&self, time: Duration) -> io::Result<()>;
}

impl TimeOut for TcpStream {
    fn set_time_out(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl TimeOut for UnixStream {
    fn set_time_out(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl<S: TimeOut> Until<S> {
    fn wait(&self) -> io::Result<()> {
        match self.until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => self.stream.set_time_out(left),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl<S: Read + TimeOut> Read for Until<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        self.stream.read(into)
    }
}

impl<S: Write + TimeOut> Write for Until<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Probe {
    /// The status that `/ready` is answered with: 200 when the server takes requests, 503 when it
    /// drains or its database has failed.
    ///
    /// # Errors
    /// When nobody answers, or not as a server.
    pub fn ask(&self) -> Result<u16, ProbeError> {
        let stream = self.send("/ready", None)?;
        let mut line = String::new();
        BufReader::new(stream.take(LINE_LEN_MAX)).read_line(&mut line)?;
        status_in(&line)
    }

    /// The status and the body that a path is answered with, for who has this token.
    ///
    /// # Errors
    /// When nobody answers, or not as a server: with a body of a known size, of up to 8 MiB. A
    /// token is not sent to another machine without TLS.
    pub fn get(&self, path: &str, token: Option<&str>) -> Result<(u16, Vec<u8>), ProbeError> {
        let mut stream = BufReader::new(self.send(path, token)?);
        let (mut status, mut sizes) = (None, Vec::new());
        let mut left = HEAD_SIZE_MAX;
        loop {
            let mut line = Vec::new();
            left -= (&mut stream).take(left).read_until(b'\n', &mut line)? as u64;
            let line = String::from_utf8_lossy(&line);
            let Some(line) = line.strip_suffix('\n').map(str::trim_end) else {
                return Err(ProbeError::NotHttp);
            };
            match line.split_once(':') {
                _ if status.is_none() => status = Some(status_in(line)?),
                None if line.is_empty() => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    sizes.push(digits(value.trim()).filter(|size| *size <= BODY_SIZE_MAX));
                }
                _ => {}
            }
        }
        let status = status.ok_or(ProbeError::NotHttp)?;
        let [Some(size)] = sizes[..] else { return Err(ProbeError::NoSize) };
        let mut body = Vec::new();
        stream.take(size).read_to_end(&mut body)?;
        match body.len() as u64 == size {
            true => Ok((status, body)),
            false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    fn send(&self, path: &str, token: Option<&str>) -> Result<Box<dyn Both>, ProbeError> {
        let (mut stream, authority) = match self.url.strip_prefix("unix:") {
            Some(path) => (self.connect_by_path(path)?, "localhost"),
            None => {
                let (is_tls, authority) = self.parts()?;
                let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let secrecy = if token.is_some() { Secrecy::Needed } else { Secrecy::Nothing };
                (self.connect(authority, (is_tls, secrecy), host)?, authority)
            }
        };
        let mut request =
            format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n");
        if let Some(token) = token {
            request += &format!("authorization: Bearer {token}\r\n");
        }
        request += "\r\n";
        stream.write_all(request.as_bytes())?;
        stream.flush()?;
        Ok(stream)
    }

    /// Whether it is by TLS, and `HOST:PORT`.
    fn parts(&self) -> Result<(bool, &str), ProbeError> {
        let wrong = |what: &str| ProbeError::Url { what: format!("{:?}: {what}", self.url) };
        let (scheme, rest) = self
            .url
            .split_once("://")
            .ok_or_else(|| wrong("http://HOST:PORT or unix:PATH is expected"))?;
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

    fn connect_by_path(&self, path: &str) -> Result<Box<dyn Both>, ProbeError> {
        let stream = UnixStream::connect(path)?;
        Ok(Box::new(Until { stream, until: self.until() }))
    }

    fn until(&self) -> Instant {
        Instant::now() + self.patience.min(PATIENCE_MAX)
    }

    fn connect(
        &self,
        authority: &str,
        (is_tls, secrecy): (bool, Secrecy),
        host: &str,
    ) -> Result<Box<dyn Both>, ProbeError> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        let until = self.until();
        for address in authority.to_socket_addrs()? {
            if secrecy == Secrecy::Needed && !is_tls && !is_own(address.ip()) {
                let what = format!("{:?}: a token goes to other machines by https", self.url);
                return Err(ProbeError::Url { what });
            }
            let left = until.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
                Err(error) => failed = error,
                Ok(stream) => {
                    let stream = Until { stream, until };
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
        stream: Until<TcpStream>,
        host: &str,
    ) -> Result<StreamOwned<ClientConnection, Until<TcpStream>>, ProbeError> {
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

fn status_in(line: &str) -> Result<u16, ProbeError> {
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| digits(rest.get(..3)?));
    status.and_then(|status| status.try_into().ok()).ok_or(ProbeError::NotHttp)
}

/// A number of digits alone.
fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
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
    fn a_body_is_read_as_long_as_it_says_and_not_longer_than_it_may_be() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\na: b\r\nContent-Length: 2\r\n\r\nok", Some((200, "ok"))),
            ("HTTP/1.1 401 No\r\ncontent-length:0\r\n\r\n", Some((401, ""))),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nok", None),
            ("HTTP/1.1 200 OK\r\n\r\nok", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok", None),
            ("HTTP/1.1 +20 OK\r\ncontent-length: 2\r\n\r\nok", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 1\r\n\r\nok", None),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2", None),
        ] {
            let probe = answered_with(answer);
            let got = probe.get("/", Some("token")).ok();
            let expected = expected.map(|(status, body)| (status, body.as_bytes().to_vec()));
            assert_eq!(got, expected, "{answer}");
        }
    }

    /// Asks somebody who says this to whatever comes, once.
    fn answered_with(answer: &'static str) -> Probe {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        Probe { url, patience: Duration::from_secs(10), ..Probe::default() }
    }

    #[test]
    fn a_token_is_not_sent_in_the_clear_to_another_machine() {
        let url = "http://192.0.2.1:80".to_owned();
        let probe = Probe { url, patience: Duration::from_secs(10), ..Probe::default() };
        assert!(matches!(probe.get("/", Some("token")), Err(ProbeError::Url { .. })));
    }

    #[test]
    fn who_says_too_little_at_a_time_is_not_waited_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Until it is gone.
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let probe = Probe { url, patience: Duration::from_millis(100), ..Probe::default() };
        assert!(matches!(probe.get("/", None), Err(ProbeError::Io(_))));
        server.join().unwrap();
    }

    #[test]
    fn the_status_is_read_and_what_is_no_answer_is_told() {
        for (answer, status) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Some(200)),
            ("HTTP/1.1 503 Service Unavailable\r\n", Some(503)),
            ("-ERR unknown command\r\n", None),
            ("", None),
        ] {
            assert_eq!(answered_with(answer).ask().ok(), status, "{answer}");
        }
    }
}
