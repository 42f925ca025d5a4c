//! Certificates and keys for TLS, from files, which may be read again while connections are served.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::TlsFiles;
use crate::secret::is_exposed;

/// Why there is no TLS by these files.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    what: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for TlsError {}

fn wrong(path: &Path, what: impl fmt::Display) -> TlsError {
    TlsError { path: path.to_owned(), what: what.to_string() }
}

/// What handshakes are made with.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    pub fn read(files: &TlsFiles) -> Result<Tls, TlsError> {
        Ok(Tls { files: files.clone(), config: RwLock::new(config_of(files)?) })
    }

    /// Reads them again, for connections from now on. As before if that fails.
    pub fn reload(&self) -> Result<(), TlsError> {
        let read = config_of(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// What the next handshake is made with.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, pem::Error> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = read.map_err(|error| wrong(path, error))?;
    if found.is_empty() {
        return Err(wrong(path, "there is no certificate in it"));
    }
    Ok(found)
}

/// Whoever has it can pretend to be the server, or to be a client: it is for its owner alone.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    if is_exposed(path).map_err(|error| wrong(path, error))? {
        return Err(wrong(path, "others than its owner can read or write it: chmod 600"));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(path, error))
}

fn config_of(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.certificates)?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&files.certificates, error))?;
    let builder = match &files.client_roots {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(path, error))?;
            }
            let roots = Arc::new(roots);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| wrong(path, error))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|error| wrong(&files.certificates, error))?;
    config.alpn_protocols = Vec::new(); // HTTP/1.1 and the Redis protocol need none.
    Ok(Arc::new(config))
}
