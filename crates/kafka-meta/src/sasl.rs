//! Who this client says it is: the SASL mechanisms, and the conversation each of them leads.
//!
//! [`Sasl`] is what a caller configures. A [`Conversation`] is one login without its transport: bytes of the broker
//! in, bytes to send out. What this is not: it sends nothing (`net::login` does).
//!
//! Invariant: passwords and tokens are [`Secret`]s up to the moment they are written into a message; no error and
//! no log line is made from such a message.

mod json;
mod oauth;
#[cfg(feature = "oidc")]
mod oidc;
#[cfg(feature = "scram")]
mod scram;

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use oauth::{Bearer, Tokens};
pub use oauth::{Token, TokenProvider};
#[cfg(feature = "oidc")]
pub use oidc::ClientCredentials;
#[cfg(feature = "scram")]
use scram::{Hash, Scram};

use crate::{Error, ErrorKind, Result, Secret};

/// How this client logs in.
///
/// ```
/// use kafka_meta::{ClusterConfig, Sasl, TlsConfig};
///
/// let config = ClusterConfig::new("kafka.example:9093")
///     .with_tls(TlsConfig::new())
///     .with_sasl(Sasl::scram_sha_512("billing", "a password"));
/// // Nothing of a password is ever printed.
/// assert!(!format!("{config:?}").contains("a password"));
/// ```
///
/// Where a broker limits how long a login lasts (`connections.max.reauth.ms`, or the life of a token), the client
/// logs in again before that, on the same connection; requests wait for it meanwhile and none is lost.
#[derive(Clone, Debug)]
pub struct Sasl(Mechanism);

#[derive(Clone, Debug)]
enum Mechanism {
    Plain {
        user: String,
        password: Secret,
    },
    #[cfg(feature = "scram")]
    Scram {
        hash: Hash,
        user: String,
        password: Secret,
    },
    OAuthBearer(Arc<Tokens>),
}

impl Sasl {
    /// User and password as they are: over TLS only, unless the network can be trusted.
    pub fn plain(user: impl Into<String>, password: impl Into<Secret>) -> Sasl {
        Sasl(Mechanism::Plain { user: user.into(), password: password.into() })
    }

    /// SCRAM-SHA-256: the password never leaves this client, and the broker proves that it knows it as well.
    #[cfg(feature = "scram")]
    pub fn scram_sha_256(user: impl Into<String>, password: impl Into<Secret>) -> Sasl {
        Sasl(Mechanism::Scram { hash: Hash::Sha256, user: user.into(), password: password.into() })
    }

    /// SCRAM-SHA-512; see [`scram_sha_256`](Self::scram_sha_256).
    #[cfg(feature = "scram")]
    pub fn scram_sha_512(user: impl Into<String>, password: impl Into<Secret>) -> Sasl {
        Sasl(Mechanism::Scram { hash: Hash::Sha512, user: user.into(), password: password.into() })
    }

    /// OAUTHBEARER: tokens of an identity provider. A token is used for every connection until four fifths of its
    /// life are over, then the provider is asked for another.
    pub fn oauthbearer(provider: impl TokenProvider + 'static) -> Sasl {
        Sasl(Mechanism::OAuthBearer(Arc::new(Tokens::new(provider))))
    }

    /// The mechanism's name, as brokers list it.
    pub fn mechanism(&self) -> &'static str {
        match &self.0 {
            Mechanism::Plain { .. } => "PLAIN",
            #[cfg(feature = "scram")]
            Mechanism::Scram { hash, .. } => hash.mechanism(),
            Mechanism::OAuthBearer(_) => "OAUTHBEARER",
        }
    }

    /// One login. Asks for a token where one is needed; dropping the future abandons that. `outlives`: when the
    /// session ends that is to be renewed; a token that ends with it is of no use then.
    pub(crate) async fn begin(&self, outlives: Option<SystemTime>) -> Result<Conversation> {
        Ok(match &self.0 {
            Mechanism::Plain { user, password } => {
                if user.is_empty() || user.contains('\0') || password.expose().contains('\0') {
                    return Err(Error::new(ErrorKind::InvalidRequest, "SASL settings")
                        .with_detail("PLAIN: the user name is empty, or a NUL is in it or in the password"));
                }
                Conversation::Plain(format!("\0{user}\0{}", password.expose()).into())
            }
            #[cfg(feature = "scram")]
            Mechanism::Scram { hash, user, password } => {
                Conversation::Scram(Box::new(Scram::new(*hash, user, password.clone(), &scram::nonce()?)))
            }
            Mechanism::OAuthBearer(tokens) => {
                Conversation::Bearer(Bearer::new(&tokens.current(outlives).await?)?)
            }
        })
    }

    /// The broker has refused what [`Sasl::begin`] gave.
    pub(crate) async fn refused(&self) {
        if let Mechanism::OAuthBearer(tokens) = &self.0 {
            tokens.forget().await;
        }
    }
}

/// One login.
pub(crate) enum Conversation {
    Plain(Bytes),
    #[cfg(feature = "scram")]
    Scram(Box<Scram>),
    Bearer(Bearer),
}

/// What follows a broker's message.
pub(crate) enum Next {
    Send(Bytes),
    Done,
}

impl Conversation {
    /// What to send first.
    pub(crate) fn open(&self) -> Bytes {
        match self {
            Conversation::Plain(message) => message.clone(),
            #[cfg(feature = "scram")]
            Conversation::Scram(scram) => scram.open(),
            Conversation::Bearer(bearer) => bearer.open(),
        }
    }

    /// The broker has answered without an error. A refusal in words is an `Err`.
    pub(crate) fn handle(&mut self, answer: &[u8]) -> std::result::Result<Next, String> {
        match self {
            Conversation::Plain(_) => Ok(Next::Done),
            #[cfg(feature = "scram")]
            Conversation::Scram(scram) => scram.handle(answer),
            Conversation::Bearer(bearer) => bearer.handle(answer),
        }
    }

    /// Whether answering takes long enough to be done elsewhere.
    pub(crate) fn is_heavy(&self) -> bool {
        match self {
            #[cfg(feature = "scram")]
            Conversation::Scram(scram) => scram.is_heavy(),
            _ => false,
        }
    }
}
