//! HTTP within TLS. The certificate in `localhost/` is of the name `localhost`, signed by itself,
//! for a hundred years: `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes
//! -days 36500 -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext
//! basicConstraints=critical,CA:FALSE`.

use std::fs::{Permissions, set_permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lithe_server::{ClientFiles, Config, Probe, ServeError, Server, TlsFiles};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Client, Running};

/// Certificate and key in a directory, as a server takes them.
pub fn files_in(dir: &Path) -> TlsFiles {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/http/localhost");
    let copy = |name: &str, mode: u32| {
        let path = dir.join(name);
        std::fs::copy(from.join(name), &path).unwrap();
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    };
    let (certificates, key) = (copy("certificate.pem", 0o644), copy("key.pem", 0o600));
    TlsFiles { certificates, key, client_roots: None }
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let files = files_in(dir.path());
    let key = files.key.clone();
    let set = |mode: u32| set_permissions(&key, Permissions::from_mode(mode)).unwrap();
    let bind = || {
        let mut config = Config::default();
        config.http = Some("127.0.0.1:0".parse().unwrap());
        config.tls = Some(files.clone());
        let db = lithedb::Db::builder()
            .storage(Arc::new(lithedb::storage::MemoryStorage::new()))
            .open("/db");
        Server::bind(db.unwrap(), config)
    };
    for mode in [0o644, 0o640, 0o602, 0o620] {
        set(mode);
        let Err(ServeError::Tls(what)) = bind() else { panic!("{mode:o} is refused") };
        assert!(what.contains("key.pem: others than its owner can read"), "{what}");
    }
    set(0o400);
    let server = bind().unwrap();
    server.reload().now().unwrap();
}

#[test]
fn with_a_certificate_only_tls_is_spoken() {
    let dir = tempfile::tempdir().unwrap();
    let files = files_in(dir.path());
    let certificate = CertificateDer::from_pem_file(&files.certificates).unwrap();
    let server = Running::start_with(|config| config.tls = Some(files.clone()));
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = StreamOwned::new(session, TcpStream::connect(server.address).unwrap());
    let mut client = Client::over(stream, server.address);
    assert_eq!(client.put("/key/a", r#"{"value":"1"}"#).status, 200);
    assert_eq!(client.get("/key/a").json()["value"], "1");
    let origin = format!("https://{}", server.address);
    let own = client.send("DELETE", "/key/a", &[("origin", &origin)], b"");
    assert_eq!(own.status, 200);
    // Read again while others can read it: what was read before stays in use.
    set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(server.reload.now(), Err(ServeError::Tls(_))));
    let mut plain = server.client();
    plain.send_only("GET", "/health", &[], b"");
    assert!(!plain.until_closed().starts_with(b"HTTP"));
    assert_eq!(client.get("/health").status, 200);
}

#[test]
fn a_probe_shows_its_certificate_and_knows_the_server_by_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let files = files_in(dir.path());
    let server = Running::start_with(|config| {
        let client_roots = Some(files.certificates.clone());
        config.tls = Some(TlsFiles { client_roots, ..files.clone() });
    });
    let ask = |name: Option<&str>, client: Option<ClientFiles>| {
        let probe = Probe {
            url: format!("https://{}", server.address),
            roots: Some(files.certificates.clone()),
            name: name.map(str::to_owned),
            client,
            patience: Duration::from_secs(60),
        };
        probe.ask().ok()
    };
    let own = ClientFiles { certificates: files.certificates.clone(), key: files.key.clone() };
    assert_eq!(ask(Some("localhost"), Some(own.clone())), Some(200));
    assert_eq!(ask(Some("localhost"), None), None);
    assert_eq!(ask(None, Some(own)), None, "the certificate is not of the address");
}
