//! Tokens from an OpenID Connect provider, by the grant of client credentials (RFC 6749, 4.4).
//!
//! One HTTP request per token, on a connection of its own: a provider is asked about once an hour. What this is
//! not: a general HTTP client. It follows no redirect and reads at most 1 MiB.
//!
//! Invariant: the secret is in the request and nowhere else; of an answer only the provider's `error` and
//! `error_description` get into an error of ours.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;

use super::json;
use super::oauth::{Token, TokenProvider};
use crate::transport::{Connector, Tcp};
use crate::{Error, ErrorKind, Result, Secret, TlsConfig};

const OPERATION: &str = "token request";
const LARGEST: usize = 1 << 20;

/// A client's credentials at an identity provider; gives tokens for [`Sasl::oauthbearer`](super::Sasl::oauthbearer).
///
/// ```
/// use kafka_meta::{ClientCredentials, Sasl};
///
/// let provider = ClientCredentials::new("https://login.example/oauth2/token", "billing", "a secret").with_scope("kafka");
/// let sasl = Sasl::oauthbearer(provider);
/// # let _ = sasl;
/// ```
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    endpoint: String,
    client: String,
    secret: Secret,
    scope: Option<String>,
    tls: TlsConfig,
}

impl ClientCredentials {
    /// `endpoint` is the provider's token endpoint, `https://…`; `http://` sends the secret in clear text.
    pub fn new(endpoint: impl Into<String>, client: impl Into<String>, secret: impl Into<Secret>) -> Self {
        ClientCredentials {
            endpoint: endpoint.into(),
            client: client.into(),
            secret: secret.into(),
            scope: None,
            tls: TlsConfig::new(),
        }
    }

    /// The scope to ask for, where the provider wants one.
    pub fn with_scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Whom to believe to be the provider; the system's authorities unless said.
    pub fn with_tls(mut self, tls: TlsConfig) -> Self {
        self.tls = tls;
        self
    }

    async fn ask(&self) -> Result<Token> {
        let failed = |why: &dyn fmt::Display| {
            Error::new(ErrorKind::Authentication, OPERATION).with_detail(format!("{}: {why}", self.endpoint))
        };
        let place = Place::of(&self.endpoint).ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, OPERATION)
                .with_detail(format!("{:?} is no http or https address", self.endpoint))
        })?;
        let stream = Tcp.connect(&place.host, place.port).await.map_err(|error| failed(&error))?;
        let stream =
            if place.tls { self.tls.wrap(stream, &place.host, &self.endpoint).await? } else { stream };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let request = self.request(&place).map_err(|_| failed(&"the request cannot be made"))?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), LARGEST).collect().await;
            let body = body.map_err(|_| failed(&"the answer cannot be read to its end"))?.to_bytes();
            Ok((status, body))
        };
        let (status, body) = tokio::select! {
            answer = exchange => answer?,
            // The connection ends after the answer, or is the reason that none comes.
            error = async { match connection.await { Err(error) => error, Ok(()) => std::future::pending().await } } => {
                return Err(failed(&error));
            }
        };
        token(status, &body).map_err(|why| failed(&why))
    }

    fn request(&self, place: &Place) -> hyper::http::Result<Request<Full<Bytes>>> {
        // As RFC 6749 wants it: each part form-encoded before they are joined.
        let login = format!("{}:{}", encoded(&self.client), encoded(self.secret.expose()));
        let mut body = "grant_type=client_credentials".to_owned();
        if let Some(scope) = &self.scope {
            body = format!("{body}&scope={}", encoded(scope));
        }
        Request::builder()
            .method(Method::POST)
            .uri(&place.path)
            .header(header::HOST, &place.authority)
            .header(header::AUTHORIZATION, format!("Basic {}", STANDARD.encode(login)))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
    }
}

impl TokenProvider for ClientCredentials {
    fn token(&self) -> BoxFuture<'_, Result<Token>> {
        Box::pin(self.ask())
    }
}

/// Where the endpoint is.
struct Place {
    tls: bool,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl Place {
    fn of(endpoint: &str) -> Option<Place> {
        let uri: Uri = endpoint.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        if authority.contains('@') {
            return None;
        }
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Some(Place { tls, host, port, authority: authority.to_owned(), path })
    }
}

/// What an answer says; the error is what is wrong with it.
fn token(status: StatusCode, body: &[u8]) -> std::result::Result<Token, String> {
    let body = std::str::from_utf8(body).unwrap_or_default();
    if status != StatusCode::OK {
        let words = ["error", "error_description"].map(|field| json::text(body, field).unwrap_or_default());
        let words: String = words.join(" ").chars().filter(|char| !char.is_control()).take(300).collect();
        return Err(format!("{status} {words}").trim().to_owned());
    }
    let Some(value) = json::text(body, "access_token").filter(|value| !value.is_empty()) else {
        return Err("there is no access_token in the answer".to_owned());
    };
    let token = Token::new(value);
    let seconds = json::number(body, "expires_in").and_then(|life| Duration::try_from_secs_f64(life).ok());
    let ends = seconds.and_then(|life| SystemTime::now().checked_add(life));
    Ok(match (token.expires(), ends) {
        // By this machine's clock, which is the one that counts here.
        (_, Some(ends)) => token.with_expiry(ends),
        _ => token,
    })
}

/// As `application/x-www-form-urlencoded`.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests;
