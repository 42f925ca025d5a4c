//! The protocol within TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::client::frame;
use super::{Served, token_file};
use crate::http::files_in;

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn served(change: impl FnOnce(&mut lithe_server::Config)) -> (Served, Arc<ClientConfig>) {
    let dir = tempfile::tempdir().unwrap();
    let files = files_in(dir.path());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.certificates).unwrap()).unwrap();
    let served = Served::start(|config| {
        config.tls = Some(files);
        change(config);
    });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (served, Arc::new(config))
}

fn connect(served: &Served, config: &Arc<ClientConfig>) -> Stream {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::clone(config), name).unwrap();
    let socket = TcpStream::connect(served.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    StreamOwned::new(session, socket)
}

fn expect(stream: &mut Stream, commands: &[u8], said: &[u8]) {
    stream.write_all(commands).unwrap();
    stream.flush().unwrap();
    let mut found = vec![0; said.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(said));
}

#[test]
fn commands_are_done_within_tls_and_nothing_without() {
    let (_dir, path, tokens) = token_file(&[("ada", &["*:all"])]);
    let (served, config) = served(|config| config.tokens = Some(path));
    let mut stream = connect(&served, &config);
    expect(&mut stream, &frame(&["GET", "a"]), b"-NOAUTH Authentication required.\r\n");
    expect(&mut stream, &frame(&["AUTH", &tokens[0]]), b"+OK\r\n");
    let pipeline = [frame(&["SET", "a", "1"]), frame(&["INCR", "a"]), frame(&["INCR", "a"])];
    expect(&mut stream, &pipeline.concat(), b"+OK\r\n:2\r\n:3\r\n");
    // Of many records each way, and by pieces that end anywhere.
    let large = "x".repeat(1 << 20);
    let set = frame(&["SET", "large", &large]);
    set.chunks(7_919).for_each(|part| stream.write_all(part).unwrap());
    expect(&mut stream, &frame(&["STRLEN", "large"]), b"+OK\r\n:1048576\r\n");
    let said = format!("$1048576\r\n{large}\r\n");
    expect(&mut stream, &frame(&["GET", "large"]), said.as_bytes());
    expect(&mut stream, &frame(&["QUIT"]), b"+OK\r\n");
    assert!(matches!(stream.read(&mut [0]), Ok(0)), "it is told that this is the end");
    // In the clear.
    let mut plain = TcpStream::connect(served.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    plain.write_all(&frame(&["AUTH", &tokens[0]])).unwrap();
    let mut said = Vec::new();
    let _it_may_be_reset = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"+") && !said.starts_with(b"-"), "{said:?}");
}

#[test]
fn who_does_not_shake_hands_in_time_is_closed() {
    let (served, config) = served(|config| config.limits.first_byte = Duration::from_millis(200));
    let mut silent = TcpStream::connect(served.address).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)));
    let mut stream = connect(&served, &config);
    expect(&mut stream, b"PING\r\n", b"+PONG\r\n");
}
