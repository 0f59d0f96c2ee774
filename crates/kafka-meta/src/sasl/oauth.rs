//! OAUTHBEARER (RFC 7628): tokens, where they come from, and the login.
//!
//! [`Tokens`] keeps one token for all connections: with a node per broker and several connections to each, asking
//! the identity provider for every login would be a storm after every restart. Only one caller asks at a time.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::{Next, json};
use crate::{Error, ErrorKind, Result, Secret};

/// Gives tokens for [`Sasl::oauthbearer`](super::Sasl::oauthbearer). A closure that returns a future is one.
///
/// ```
/// use kafka_meta::{Result, Sasl, Token};
///
/// let sasl = Sasl::oauthbearer(|| async {
///     // From a file that a sidecar renews, or from an identity provider's client library.
///     let token = std::fs::read_to_string("/run/token").map_err(kafka_meta::Error::other)?;
///     Ok(Token::new(token.trim()))
/// });
/// # let _ = sasl;
/// ```
pub trait TokenProvider: Send + Sync {
    /// A token that is good now. Called again when four fifths of its life are over, when a broker has refused
    /// it, and for each connection when it does not say how long it lives. Bounded by the connect timeout: the
    /// future is dropped then. A failure is [`Error::other`]; while the last token is good, that one is used.
    fn token(&self) -> BoxFuture<'_, Result<Token>>;
}

impl<F, T> TokenProvider for F
where
    F: Fn() -> T + Send + Sync,
    T: Future<Output = Result<Token>> + Send + 'static,
{
    fn token(&self) -> BoxFuture<'_, Result<Token>> {
        Box::pin(self())
    }
}

/// An access token. Nothing of it is printed.
#[derive(Clone)]
pub struct Token {
    value: Secret,
    expires: Option<SystemTime>,
    extensions: Vec<(String, String)>,
}

impl Token {
    /// A token as the identity provider gave it. If it is a JWT, its end is read from it.
    pub fn new(value: impl Into<Secret>) -> Token {
        let value = value.into();
        let expires = jwt_end(value.expose());
        Token { value, expires, extensions: Vec::new() }
    }

    /// When it ends, where that cannot be read from the token.
    pub fn with_expiry(mut self, expires: SystemTime) -> Token {
        self.expires = Some(expires);
        self
    }

    /// Adds an extension (KIP-342): a name of letters and a text the broker's own code understands.
    pub fn with_extension(mut self, name: impl Into<String>, value: impl Into<String>) -> Token {
        self.extensions.push((name.into(), value.into()));
        self
    }

    /// When it ends, as far as is known.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// The claim `exp` of a JWT. Nothing is verified: that is the broker's business.
fn jwt_end(token: &str) -> Option<SystemTime> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let seconds = json::number(std::str::from_utf8(&claims).ok()?, "exp")?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// Ends are told in whole seconds, of two clocks: a session may end this much before the token it came from seems to.
const ROUNDING: Duration = Duration::from_secs(2);

/// One provider's tokens, for all connections.
pub(super) struct Tokens {
    provider: Box<dyn TokenProvider>,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    token: Token,
    /// When to ask for another.
    stale: SystemTime,
    ends: SystemTime,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    pub(super) fn new(provider: impl TokenProvider + 'static) -> Tokens {
        Tokens { provider: Box::new(provider), kept: Mutex::default() }
    }

    /// A token that is good now, and beyond the end of a session to be renewed.
    pub(super) async fn current(&self, outlives: Option<SystemTime>) -> Result<Token> {
        let mut kept = self.kept.lock().await;
        let asked = SystemTime::now();
        let outlives = outlives.map(|end| end + ROUNDING);
        let lasts = |kept: &&Kept| asked < kept.stale && outlives.is_none_or(|end| kept.ends > end);
        if let Some(kept) = kept.as_ref().filter(lasts) {
            return Ok(kept.token.clone());
        }
        match self.provider.token().await {
            Ok(token) => {
                *kept = token.expires.and_then(|ends| {
                    // A token that has ended, by this clock: the broker's may be the right one.
                    let life = ends.duration_since(asked).ok()?;
                    Some(Kept { token: token.clone(), stale: asked + life.mul_f64(0.8), ends })
                });
                Ok(token)
            }
            Err(error) => match kept.as_ref().filter(|kept| asked < kept.ends) {
                Some(kept) => {
                    tracing::warn!(%error, "no new token; the one before is still good and used");
                    Ok(kept.token.clone())
                }
                None => Err(Error::new(ErrorKind::Authentication, "connect (SASL)")
                    .with_detail("the token provider gives no token")
                    .with_source(error)),
            },
        }
    }

    /// The broker does not take the token.
    pub(super) async fn forget(&self) {
        *self.kept.lock().await = None;
    }
}

/// One login.
pub(crate) struct Bearer {
    message: Bytes,
    refused: bool,
}

impl Bearer {
    pub(super) fn new(token: &Token) -> Result<Bearer> {
        let bad = |why: &'static str| {
            Err(Error::new(ErrorKind::InvalidRequest, "SASL settings")
                .with_detail(format!("OAUTHBEARER: {why}")))
        };
        let value = token.value.expose();
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return bad("the token is empty, or not of visible ASCII characters only");
        }
        let mut message = format!("n,,\x01auth=Bearer {value}\x01");
        for (name, value) in &token.extensions {
            let letters = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
            let printable =
                |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            if !letters || name == "auth" || !value.bytes().all(printable) {
                return bad("an extension's name or value is not allowed");
            }
            message.push_str(&format!("{name}={value}\x01"));
        }
        message.push('\x01');
        Ok(Bearer { message: message.into(), refused: false })
    }

    pub(super) fn open(&self) -> Bytes {
        self.message.clone()
    }

    /// A refused token comes without an error: as JSON, to be confirmed with one byte before the broker says so
    /// with a code.
    pub(super) fn handle(&mut self, answer: &[u8]) -> std::result::Result<Next, String> {
        if answer.is_empty() && !self.refused {
            return Ok(Next::Done);
        }
        if self.refused {
            let status = std::str::from_utf8(answer).ok().and_then(|answer| json::text(answer, "status"));
            return Err(status.unwrap_or_else(|| "the token is refused".to_owned()));
        }
        self.refused = true;
        Ok(Next::Send(Bytes::from_static(b"\x01")))
    }
}

#[cfg(test)]
mod tests;
