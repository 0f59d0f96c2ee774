//! The TLS handshake over a stream that is open, and what its failures mean to a caller.

use std::io;

use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

use super::TlsConfig;
use super::material::wrong;
use crate::transport::BoxStream;
use crate::{Error, ErrorKind, Result};

const HANDSHAKE: &str = "connect (TLS)";

impl TlsConfig {
    /// Shakes hands. `at` names the other side in errors. The caller bounds the time.
    pub(crate) async fn wrap(&self, stream: BoxStream, host: &str, at: &str) -> Result<BoxStream> {
        let own = self.clone();
        let loaded = tokio::task::spawn_blocking(move || own.load()).await;
        let config = loaded.map_err(|_| Error::new(ErrorKind::Closed, HANDSHAKE))??;
        let name = self.server_name.as_deref().unwrap_or(host);
        // A name may end with the root's dot; certificates never do.
        let name = name.strip_suffix('.').unwrap_or(name);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| wrong(name, "cannot be the name of a certificate"))?;
        match TlsConnector::from(config).connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(failed(HANDSHAKE, at, error)),
        }
    }
}

/// What a stream's error means where TLS is configured, the handshake or later: a broker of TLS 1.3 refuses a
/// client's certificate only after the handshake is over on the client's side.
pub(crate) fn failed(operation: &'static str, at: &str, error: io::Error) -> Error {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        let detail = match hint(tls) {
            Some(hint) => format!("{at}: {hint}"),
            None => at.to_owned(),
        };
        return Error::new(ErrorKind::Tls, operation).with_detail(detail).with_source(tls.clone());
    }
    if operation == HANDSHAKE
        && matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
    {
        return Error::new(ErrorKind::Tls, operation)
            .with_detail(format!(
                "{at}: the other side hung up during the handshake; does this port speak TLS?"
            ))
            .with_source(error);
    }
    Error::new(ErrorKind::Disconnected, operation).with_detail(at.to_owned()).with_source(error)
}

fn hint(error: &TlsError) -> Option<&'static str> {
    Some(match error {
        TlsError::InvalidCertificate(certificate) => match certificate {
            // A bad signature is what another authority of the same name comes to.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "no trusted authority has signed the broker's certificate (with_ca_file names one)"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the broker's certificate bears another name (with_server_name tells which to expect)"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the broker's certificate has expired, or this machine's clock is wrong"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the broker's certificate is not valid yet, or this machine's clock is wrong"
            }
            _ => return None,
        },
        TlsError::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied,
        ) => "the broker refuses this client's certificate, or misses one (with_identity_files gives one)",
        TlsError::AlertReceived(AlertDescription::ProtocolVersion) => {
            "no TLS version in common; 1.2 and 1.3 are spoken"
        }
        TlsError::InvalidMessage(_) => "what came is not TLS; does this port speak TLS?",
        _ => return None,
    })
}
