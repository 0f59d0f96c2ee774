//! What a TLS connection trusts, shows and checks.
//!
//! Infallible to build: what is wrong with a file is reported by the first attempt to connect. Files are read
//! again for every connection, and what was made from them is used again while their bytes are the same, so
//! that certificates replaced on disk are used by the next connection and sessions are resumed until then. A file
//! that cannot be used at that moment (half written, its key not there yet) is passed over with a warning while
//! something good was read before.
//!
//! What this is not: it opens no sockets. `verify` holds the checks that may be switched off, `material` reads PEM.

mod connect;
mod material;
mod verify;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) use connect::failed;
use material::Loaded;

use crate::Secret;

/// How brokers are reached over TLS: whom to believe, and what to show.
///
/// ```
/// use kafka_meta::{ClusterConfig, TlsConfig};
///
/// // The system's authorities.
/// let config = ClusterConfig::new("kafka.example:9093").with_tls(TlsConfig::new());
/// // An authority of one's own, and a certificate for brokers that ask for one.
/// let tls = TlsConfig::new().with_ca_file("/etc/kafka/ca.pem").with_identity_files("/etc/kafka/me.pem", "/etc/kafka/me.key");
/// let config = ClusterConfig::new("kafka.example:9093").with_tls(tls);
/// ```
///
/// TLS 1.2 and 1.3 are spoken. Keys are PEM (PKCS#8, PKCS#1 or SEC 1) without a password; Java's key stores
/// (JKS, PKCS#12) are not read: `openssl pkcs12 -in store.p12 -nodes` makes PEM of them.
#[derive(Clone)]
pub struct TlsConfig {
    authorities: Vec<Pem>,
    system_roots: bool,
    identity: Option<Identity>,
    server_name: Option<String>,
    checks: Checks,
    loaded: Arc<Mutex<Option<Loaded>>>,
}

/// PEM, there or to be read.
#[derive(Clone, Debug)]
enum Pem {
    File(PathBuf),
    /// May hold a key.
    Text(Secret),
}

/// The client's own certificate and key.
#[derive(Clone, Debug)]
struct Identity {
    chain: Pem,
    key: Pem,
}

/// What of a broker's certificate is checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Checks {
    All,
    ChainOnly,
    Nothing,
}

impl Default for TlsConfig {
    fn default() -> Self {
        TlsConfig::new()
    }
}

impl TlsConfig {
    /// Believes the operating system's authorities (and `SSL_CERT_FILE`, `SSL_CERT_DIR`), shows no certificate.
    pub fn new() -> Self {
        TlsConfig {
            authorities: Vec::new(),
            system_roots: true,
            identity: None,
            server_name: None,
            checks: Checks::All,
            loaded: Arc::default(),
        }
    }

    /// Believes the authorities of a PEM file, and no longer the system's unless
    /// [`with_system_roots`](Self::with_system_roots) follows. Read again for every connection. May be called
    /// for several files.
    pub fn with_ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.authorities.push(Pem::File(path.as_ref().to_owned()));
        self.without_system_roots()
    }

    /// As [`with_ca_file`](Self::with_ca_file), from memory.
    pub fn with_ca_pem(mut self, pem: impl Into<String>) -> Self {
        self.authorities.push(Pem::Text(Secret::new(pem)));
        self.without_system_roots()
    }

    /// Believes the operating system's authorities beside those that were named.
    pub fn with_system_roots(mut self) -> Self {
        self.system_roots = true;
        self.forget()
    }

    /// Shows a certificate to brokers that ask for one (mutual TLS): PEM files of the certificate with its
    /// chain, and of the key. Both may be the same file. Read again for every connection.
    pub fn with_identity_files(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        let (chain, key) = (certificate.as_ref().to_owned(), key.as_ref().to_owned());
        self.identity = Some(Identity { chain: Pem::File(chain), key: Pem::File(key) });
        self.forget()
    }

    /// As [`with_identity_files`](Self::with_identity_files), from memory.
    pub fn with_identity_pem(mut self, certificate: impl Into<String>, key: impl Into<Secret>) -> Self {
        let chain = Pem::Text(Secret::new(certificate));
        self.identity = Some(Identity { chain, key: Pem::Text(key.into()) });
        self.forget()
    }

    /// The name brokers' certificates have to bear, in place of the host each is reached by: for brokers
    /// behind a proxy or a tunnel. It is also the name asked for (SNI).
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Takes a broker's certificate whatever name it bears, as Java does with an empty
    /// `ssl.endpoint.identification.algorithm`. **Whoever holds any certificate of a trusted authority can
    /// stand in for a broker then**; [`with_server_name`](Self::with_server_name) is the safe way where names
    /// merely differ.
    pub fn danger_skip_server_name_check(mut self) -> Self {
        if self.checks == Checks::All {
            self.checks = Checks::ChainOnly;
        }
        self.forget()
    }

    /// Takes any certificate, expired and self-made ones included. **The connection is private against
    /// listeners only: anybody on the way can stand in for a broker and read passwords.** For tests.
    pub fn danger_accept_any_certificate(mut self) -> Self {
        self.checks = Checks::Nothing;
        self.forget()
    }

    fn without_system_roots(mut self) -> Self {
        self.system_roots = false;
        self.forget()
    }

    /// Clones share what was loaded; a change begins anew.
    fn forget(mut self) -> Self {
        self.loaded = Arc::default();
        self
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig")
            .field("authorities", &self.authorities)
            .field("system_roots", &self.system_roots)
            .field("identity", &self.identity)
            .field("server_name", &self.server_name)
            .field("checks", &self.checks)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
