//! From PEM to what the handshake uses.
//!
//! Errors name the file and say what is wrong with it; never any of its content.

use std::io;
use std::sync::{Arc, PoisonError};

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Pem, TlsConfig, verify};
use crate::{Error, ErrorKind, Result, Secret};

/// What was read, and what was made of it.
pub(super) struct Loaded {
    read: Vec<Arc<[u8]>>,
    config: Arc<ClientConfig>,
}

impl TlsConfig {
    /// What to shake hands with now. Reads files: for a thread that may block.
    pub(super) fn load(&self) -> Result<Arc<ClientConfig>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.read().and_then(|read| match &*loaded {
            Some(before) if before.read == read => Ok(None),
            _ => {
                let config = Arc::new(self.make(&read)?);
                Ok(Some(Loaded { read, config }))
            }
        });
        match (made, &mut *loaded) {
            (Ok(Some(made)), place) => {
                if place.is_some() {
                    tracing::info!("certificates have changed on disk and are used from now on");
                }
                let config = made.config.clone();
                *place = Some(made);
                Ok(config)
            }
            (Ok(None), Some(before)) => Ok(before.config.clone()),
            (Err(error), Some(before)) => {
                tracing::warn!(%error, "certificates on disk cannot be used; those read before are");
                Ok(before.config.clone())
            }
            (Err(error), None) => Err(error),
            (Ok(None), None) => Err(wrong("certificates", "could not be read")),
        }
    }

    fn sources(&self) -> impl Iterator<Item = &Pem> {
        let own = self.identity.iter().flat_map(|identity| [&identity.chain, &identity.key]);
        self.authorities.iter().chain(own)
    }

    /// The bytes of every source, in the order of [`TlsConfig::sources`].
    fn read(&self) -> Result<Vec<Arc<[u8]>>> {
        self.sources().map(Pem::read).collect()
    }

    fn make(&self, read: &[Arc<[u8]>]) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for (source, bytes) in self.authorities.iter().zip(read) {
            let before = roots.len();
            for certificate in certificates(source, bytes)? {
                roots
                    .add(certificate)
                    .map_err(|error| wrong(source.name(), "authority").with_source(error))?;
            }
            if roots.len() == before {
                return Err(wrong(source.name(), "there is no certificate in it"));
            }
        }
        if self.system_roots && self.checks != super::Checks::Nothing {
            let found = rustls_native_certs::load_native_certs();
            // One odd certificate among a system's hundreds must not stop the others.
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let error = wrong("system authorities", "none was found; name one with with_ca_file");
                return Err(match found.errors.into_iter().next() {
                    Some(source) => error.with_source(source),
                    None => error,
                });
            }
        }
        let verifier = verify::verifier(self.checks, roots, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("protocol versions", "").with_source(error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let Some(identity) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let mut own = read.iter().skip(self.authorities.len());
        let (Some(chain), Some(key)) = (own.next(), own.next()) else {
            return Err(wrong("client certificate", "could not be read"));
        };
        let chain = certificates(&identity.chain, chain)?;
        if chain.is_empty() {
            return Err(wrong(identity.chain.name(), "there is no certificate in it"));
        }
        let key = private_key(&identity.key, key)?;
        let key = loadable(&identity.key, &provider, key)?;
        let certified = tokio_rustls::rustls::sign::CertifiedKey::new(chain, key);
        // Told here: a broker would only say that it has been shown nothing good.
        if let Err(tokio_rustls::rustls::Error::InconsistentKeys(
            tokio_rustls::rustls::InconsistentKeys::KeyMismatch,
        )) = certified.keys_match()
        {
            return Err(wrong(identity.key.name(), "the key does not belong to the client certificate"));
        }
        Ok(builder.with_client_cert_resolver(Arc::new(tokio_rustls::rustls::sign::SingleCertAndKey::from(
            certified,
        ))))
    }
}

fn loadable(
    source: &Pem,
    provider: &CryptoProvider,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<dyn tokio_rustls::rustls::sign::SigningKey>> {
    // The underlying error is left out: it may describe the key.
    provider
        .key_provider
        .load_private_key(key)
        .map_err(|_| wrong(source.name(), "the key is of a kind that is not supported"))
}

fn certificates(source: &Pem, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(bytes)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| wrong(source.name(), because(&error)))
}

fn private_key(source: &Pem, bytes: &[u8]) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| {
        let encrypted = String::from_utf8_lossy(bytes).contains("ENCRYPTED");
        let why = match error {
            pem::Error::NoItemsFound if encrypted => "the key has a password; keys without one are read",
            pem::Error::NoItemsFound => "there is no private key in it",
            error => because(&error),
        };
        wrong(source.name(), why)
    })
}

/// Without the error's own words, which quote the input.
fn because(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a PEM section does not end",
        pem::Error::Base64Decode(_) => "a PEM section is not base64",
        _ => "it is not PEM",
    }
}

impl Pem {
    fn name(&self) -> String {
        match self {
            Pem::File(path) => path.display().to_string(),
            Pem::Text(_) => "PEM from memory".to_owned(),
        }
    }

    fn read(&self) -> Result<Arc<[u8]>> {
        match self {
            Pem::File(path) => {
                let unreadable = |error: io::Error| wrong(self.name(), "cannot be read").with_source(error);
                Ok(std::fs::read(path).map_err(unreadable)?.into())
            }
            Pem::Text(text) => Ok(Secret::expose(text).as_bytes().into()),
        }
    }
}

pub(super) fn wrong(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidRequest, "TLS settings").with_detail(format!("{what}: {why}"))
}
