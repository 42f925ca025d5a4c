//! What connections of clients that are not known take of the server's memory: ten thousand each
//! that say nothing, that do not come to the end of a head or of a body, that were refused for want
//! of a token, and that have begun TLS or come to its end.
//!
//! ```text
//! just http-connections
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::{Running, files_in};

const COUNT: usize = 10_000;
const BYTES_MAX: u64 = 64 << 10;
/// In the environment of the other process: how it is to be served.
const TRANSPORT: &str = "LITHE_TEST_TRANSPORT";

fn localhost(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/http/localhost").join(name)
}

/// A server in a process of its own, whose memory is its own. Ends with its standard input.
struct Apart {
    child: Child,
    _input: ChildStdin,
    address: SocketAddr,
}

impl Apart {
    fn start(transport: &str) -> Apart {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["http::connections::serve_apart", "--exact", "--ignored", "--nocapture"])
            .env(TRANSPORT, transport)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let said = output.lines().map_while(Result::ok);
        let mut found = said.filter_map(|line| Some(line.split_once("served at ")?.1.to_owned()));
        let address = found.next().unwrap().parse().unwrap();
        let input = child.stdin.take().unwrap();
        Apart { child, _input: input, address }
    }

    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _it_is_gone_already = self.child.kill();
        let _it_ends = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of the test below"]
fn serve_apart() {
    let Some(transport) = std::env::var_os(TRANSPORT) else { return };
    let dir = tempfile::tempdir().unwrap();
    let files = files_in(dir.path());
    let (server, _) = Running::with_tokens_and([&["*:all"]], |config| {
        config.limits.first_byte = Duration::from_secs(3600);
        config.limits.idle = Duration::from_secs(3600);
        config.tls = (transport == "tls").then_some(files);
    });
    println!("served at {}", server.address);
    let _until_its_end = std::io::stdin().read_to_end(&mut Vec::new());
}

fn tls_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(localhost("certificate.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Opens that many connections, each as `begin` does, and says what they take.
fn measure((name, server): (&str, &Apart), begin: &mut dyn FnMut(&mut TcpStream)) -> (String, u64) {
    let before = server.resident();
    let mut open = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let mut stream = TcpStream::connect(server.address).unwrap();
        begin(&mut stream);
        open.push(stream);
    }
    // They are served in time: until it takes no more.
    let mut known = server.resident();
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = server.resident();
        if now <= known {
            break;
        }
        known = now;
    }
    let each = known.saturating_sub(before) / COUNT as u64;
    println!("{name}: {each} bytes of resident memory a connection, of {COUNT}");
    (name.to_owned(), each)
}

#[test]
#[ignore = "opens ten thousand connections: just http-connections"]
fn ten_thousand_connections_of_nobody_take_little() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut found = Vec::new();
    // A process each, as memory that was given back to the allocator is not seen to be free.
    let mut plain = |name: &str, sent: &[u8], is_answered: bool| {
        let server = Apart::start("plain");
        found.push(measure((name, &server), &mut |stream| {
            stream.write_all(sent).unwrap();
            if is_answered {
                stream.read_exact(&mut [0; 12]).unwrap();
            }
        }));
    };
    plain("nothing sent", b"", false);
    plain("a head that has begun", b"GET /v1/keyspaces HTTP/1.1\r\n", false);
    let long = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}", "x".repeat(15_000));
    plain("15 KiB of a head", long.as_bytes(), false);
    let refused = b"GET /v1/keyspaces HTTP/1.1\r\nhost: localhost\r\n\r\n";
    plain("refused, and kept open", refused, true);
    let body = b"PUT /key/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n{";
    plain("a body that does not come", body, false);
    let config = tls_config();
    let name = ServerName::try_from("localhost").unwrap();
    for (what, is_whole) in [("TLS that has begun", false), ("TLS, and nothing sent", true)] {
        let server = Apart::start("tls");
        found.push(measure((what, &server), &mut |stream| {
            let session = ClientConnection::new(Arc::clone(&config), name.clone());
            let mut session = session.unwrap();
            session.write_tls(stream).unwrap();
            while is_whole && session.is_handshaking() {
                session.complete_io(stream).unwrap();
            }
        }));
    }
    let most = found.iter().max_by_key(|(_, bytes)| *bytes).unwrap();
    assert!(most.1 <= BYTES_MAX, "{most:?}");
}
