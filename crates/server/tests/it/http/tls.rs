//! HTTP within TLS. The certificate in `localhost/` is of the name `localhost`, signed by itself,
//! for a hundred years: `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes
//! -days 36500 -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext
//! basicConstraints=critical,CA:FALSE`.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use lithe_server::TlsFiles;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Client, Running};

#[test]
fn with_a_certificate_only_tls_is_spoken() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/http/localhost");
    let (certificates, key) = (files.join("certificate.pem"), files.join("key.pem"));
    let certificate = CertificateDer::from_pem_file(&certificates).unwrap();
    let server = Running::start_with(|config| {
        config.tls = Some(TlsFiles { certificates, key, client_roots: None });
    });
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
    let mut plain = server.client();
    plain.send_only("GET", "/health", &[], b"");
    assert!(!plain.until_closed().starts_with(b"HTTP"));
    assert_eq!(client.get("/health").status, 200);
}
