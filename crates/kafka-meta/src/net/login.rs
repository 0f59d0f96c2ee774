//! SASL over a connection: the handshake that names a mechanism, then the mechanism's own conversation (KIP-152).
//!
//! The same for a new connection and for one in use (KIP-368): a [`Wire`] carries frames either way. Nothing is
//! retried here.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest, SaslHandshakeResponse};
use kafka_protocol::protocol::{HeaderVersion, Request, StrBytes};
use std::time::{Duration, SystemTime};

use super::dial::encode;
use super::pipeline::AnswerShape;
use crate::sasl::{Conversation, Next};
use crate::wire::guard;
use crate::wire::versions::{self, ApiVersions};
use crate::{Error, ErrorCode, ErrorKind, Result, Sasl};

const LOGIN: &str = "connect (SASL)";

/// No mechanism takes more messages than this; a broker that goes on is not followed.
const MESSAGES: usize = 4;

/// Carries one request at a time.
pub(super) trait Wire: Send {
    /// Sends a whole frame and answers the body of what comes back.
    fn ask(&mut self, frame: BytesMut, shape: AnswerShape) -> impl Future<Output = Result<Bytes>> + Send;
}

/// Logs in. Answers how long that lasts, where the broker limits it. `at` names the other side in errors, `renews` is
/// the end of the session that this login is to follow, on a connection in use.
pub(super) async fn login<W: Wire>(
    wire: &mut W,
    sasl: &Sasl,
    client_id: &str,
    versions: &ApiVersions,
    at: &str,
    renews: Option<SystemTime>,
) -> Result<Option<Duration>> {
    // Before the handshake: from then on the broker waits for us, and requests may wait behind us.
    let conversation = sasl.begin(renews).await?;
    let outcome = converse(wire, conversation, sasl, client_id, versions, at, renews.is_some()).await;
    if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Authentication) {
        sasl.refused().await;
    }
    outcome
}

async fn converse<W: Wire>(
    wire: &mut W,
    mut conversation: Conversation,
    sasl: &Sasl,
    client_id: &str,
    versions: &ApiVersions,
    at: &str,
    again: bool,
) -> Result<Option<Duration>> {
    let mechanism = sasl.mechanism();
    let refused =
        |why: String| Error::new(ErrorKind::Authentication, LOGIN).with_detail(format!("{at}: {why}"));
    // Version 0 would mean raw messages outside Kafka's framing.
    let version = versions.choose::<SaslHandshakeRequest>(1..=1)?;
    let handshake = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism));
    let answer = ask(wire, &handshake, version, client_id).await?;
    if again && ErrorCode::from(answer.error_code) == ErrorCode::ILLEGAL_SASL_STATE {
        // Says nothing about the credentials: a new connection takes them.
        return Err(Error::new(ErrorKind::Disconnected, LOGIN)
            .with_detail(format!("{at}: the broker takes no second login on this connection for now")));
    }
    check_handshake(&answer, mechanism).map_err(refused)?;

    let mut message = conversation.open();
    for _ in 0..MESSAGES {
        let version =
            versions.choose::<SaslAuthenticateRequest>(versions::usable::<SaslAuthenticateRequest>())?;
        let request = SaslAuthenticateRequest::default().with_auth_bytes(message);
        let answer = ask(wire, &request, version, client_id).await?;
        let code = ErrorCode::from(answer.error_code);
        if !code.is_none() {
            // The broker's own words; null or empty from some.
            let words = answer.error_message.as_deref().filter(|words| !words.is_empty());
            let words = words.map_or_else(|| code.to_string(), ToOwned::to_owned);
            return Err(refused(format!("{mechanism}: {words}")));
        }
        let heavy = conversation.is_heavy();
        let (returned, next) = if heavy {
            let work = move || {
                let next = conversation.handle(&answer.auth_bytes);
                (conversation, next)
            };
            tokio::task::spawn_blocking(work).await.map_err(|_| Error::new(ErrorKind::Closed, LOGIN))?
        } else {
            let next = conversation.handle(&answer.auth_bytes);
            (conversation, next)
        };
        conversation = returned;
        match next.map_err(|why| refused(format!("{mechanism}: {why}")))? {
            Next::Send(next) => message = next,
            Next::Done => {
                let lifetime = u64::try_from(answer.session_lifetime_ms).unwrap_or(0);
                return Ok(Some(Duration::from_millis(lifetime)).filter(|lifetime| !lifetime.is_zero()));
            }
        }
    }
    Err(refused(format!("{mechanism}: the broker does not come to an end")))
}

fn check_handshake(answer: &SaslHandshakeResponse, mechanism: &str) -> std::result::Result<(), String> {
    match ErrorCode::from(answer.error_code) {
        ErrorCode::NONE => Ok(()),
        ErrorCode::UNSUPPORTED_SASL_MECHANISM => {
            let offered: Vec<&str> = answer.mechanisms.iter().map(|offered| &**offered).collect();
            Err(format!("the broker does not offer {mechanism}, but {}", offered.join(", ")))
        }
        ErrorCode::ILLEGAL_SASL_STATE => Err("this port takes no SASL login".to_owned()),
        code => Err(code.to_string()),
    }
}

async fn ask<W: Wire, R: Request>(
    wire: &mut W,
    request: &R,
    version: i16,
    client_id: &str,
) -> Result<R::Response> {
    let frame = encode(request, version, client_id)?;
    let shape = AnswerShape {
        tagged_header: R::Response::header_version(version) >= 1,
        throttles: false,
        absent: false,
    };
    let body = wire.ask(frame, shape).await?;
    guard::decode(R::KEY, version, body)
}
