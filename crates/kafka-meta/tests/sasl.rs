//! Logins against a scripted broker, under a paused clock: order of messages, refusals, sessions that end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_sign_loss
)]

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kafka_meta::client::{To, Via};
use kafka_meta::{Cluster, ClusterConfig, Error, ErrorKind, Sasl, Token};
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use support::{MODERN, Reaction, Request, Script, answer, api_versions, basics};

const BROKERS: &[(i32, &str, u16)] = &[(1, "one", 9092)];
const PASSWORD: &str = "correct horse";

/// What a broker makes of a login's messages.
type Judge = dyn Fn(usize, &[u8]) -> SaslAuthenticateResponse + Send + Sync;

#[derive(Clone, Copy, Default)]
struct Session {
    named: bool,
    ends: Option<Instant>,
    open: bool,
}

/// A broker that wants a login, and hangs up on whoever does not renew it.
struct Guarded {
    sessions: Mutex<HashMap<usize, Session>>,
    logins: AtomicUsize,
    judge: Box<Judge>,
}

impl Guarded {
    fn new(judge: impl Fn(usize, &[u8]) -> SaslAuthenticateResponse + Send + Sync + 'static) -> Arc<Guarded> {
        Arc::new(Guarded { sessions: Mutex::default(), logins: AtomicUsize::new(0), judge: Box::new(judge) })
    }

    fn script(self: &Arc<Self>) -> Arc<Script> {
        let guarded = self.clone();
        Script::new(move |request| guarded.serve(request))
    }

    fn serve(&self, request: &Request) -> Reaction {
        let mut sessions = self.sessions.lock().unwrap();
        let session = sessions.entry(request.connection).or_default();
        match request.key {
            18 if !session.open => {
                let mut ranges = MODERN.to_vec();
                ranges.extend([(17, 0, 1), (36, 0, 2)]);
                answer(request, &api_versions(&ranges))
            }
            17 => {
                assert!(!session.named, "a handshake inside a handshake");
                let asked: SaslHandshakeRequest = request.decode();
                let offered =
                    vec![StrBytes::from_static_str("PLAIN"), StrBytes::from_static_str("OAUTHBEARER")];
                session.named = offered.contains(&asked.mechanism);
                let code = if session.named { 0 } else { 33 };
                let response =
                    SaslHandshakeResponse::default().with_error_code(code).with_mechanisms(offered);
                answer(request, &response)
            }
            36 => {
                assert!(session.named, "a login without a handshake");
                let asked: SaslAuthenticateRequest = request.decode();
                let login = self.logins.fetch_add(1, Ordering::SeqCst);
                let response = (self.judge)(login, &asked.auth_bytes);
                if response.error_code == 0 && response.auth_bytes.is_empty() {
                    session.named = false;
                    session.open = true;
                    let lifetime = response.session_lifetime_ms;
                    session.ends =
                        (lifetime > 0).then(|| Instant::now() + Duration::from_millis(lifetime as u64));
                }
                answer(request, &response)
            }
            _ if session.named || !session.open => panic!("request {} before the login", request.key),
            _ if session.ends.is_some_and(|ends| Instant::now() > ends) => Reaction::Close,
            12 => answer(request, &HeartbeatResponse::default()),
            _ => basics(request, BROKERS).unwrap(),
        }
    }
}

fn passed(lifetime: i64) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::default().with_session_lifetime_ms(lifetime)
}

fn refused(words: &'static str) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::default()
        .with_error_code(58)
        .with_error_message(Some(StrBytes::from_static_str(words)))
}

fn plain(script: &Arc<Script>) -> ClusterConfig {
    script.config("boot:1").with_sasl(Sasl::plain("alice", PASSWORD))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

async fn beat(cluster: &Cluster, via: &Via) -> kafka_meta::Result<HeartbeatResponse> {
    cluster.call(To::Node(1), via, soon(), HeartbeatRequest::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_login_comes_before_everything_but_the_versions() {
    let guarded = Guarded::new(|_, message| {
        assert_eq!(message, b"\0alice\0correct horse");
        passed(0)
    });
    let script = guarded.script();
    let cluster = Cluster::connect_with(plain(&script)).await.unwrap();
    beat(&cluster, &Via::control()).await.unwrap();
    // No limit, no renewal.
    tokio::time::sleep(Duration::from_secs(300)).await;
    beat(&cluster, &Via::control()).await.unwrap();
    assert_eq!(guarded.logins.load(Ordering::SeqCst), script.requests(17).len());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_the_attempt_at_once_in_the_brokers_words() {
    let guarded = Guarded::new(|_, _| refused("Authentication failed: Invalid username or password"));
    let script = guarded.script();
    let start = Instant::now();
    let error = Cluster::connect_with(plain(&script)).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert!(!error.is_retriable());
    let text = format!("{error} {error:?} {:?}", plain(&script));
    assert!(text.contains("Invalid username or password"), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_mechanism_that_is_not_offered_is_named_with_those_that_are() {
    let guarded = Guarded::new(|_, _| passed(0));
    let script = guarded.script();
    let config = script.config("boot:1").with_sasl(Sasl::scram_sha_256("alice", PASSWORD));
    let error = Cluster::connect_with(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication);
    let text = error.to_string();
    assert!(text.contains("SCRAM-SHA-256") && text.contains("PLAIN, OAUTHBEARER"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_port_without_logins_says_so() {
    let script = Script::new(|request| match request.key {
        17 => answer(request, &SaslHandshakeResponse::default().with_error_code(34)),
        18 => answer(request, &api_versions(&[(3, 0, 13), (17, 0, 1), (18, 0, 4), (36, 0, 2)])),
        _ => basics(request, BROKERS).unwrap(),
    });
    let error = Cluster::connect_with(plain(&script)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert!(error.to_string().contains("no SASL login"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_silent_in_the_login_costs_the_connect_timeout() {
    let script = Script::new(|request| match request.key {
        36 => Reaction::Silence,
        17 => answer(request, &SaslHandshakeResponse::default()),
        18 => answer(request, &api_versions(&[(3, 0, 13), (17, 0, 1), (18, 0, 4), (36, 0, 2)])),
        _ => basics(request, BROKERS).unwrap(),
    });
    let start = Instant::now();
    let config = plain(&script)
        .with_connect_timeout(Duration::from_secs(2))
        .with_request_timeout(Duration::from_secs(5));
    let error = Cluster::connect_with(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("SASL"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn sessions_are_renewed_in_time_and_no_request_is_lost() {
    let guarded = Guarded::new(|_, _| passed(5_000));
    let script = guarded.script();
    let cluster = Cluster::connect_with(plain(&script)).await.unwrap();
    let via = Via::control();
    let mut tasks = Vec::new();
    for task in 0..4 {
        let (cluster, via) = (cluster.clone(), via.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..600 {
                beat(&cluster, &via).await.unwrap();
                tokio::time::sleep(Duration::from_millis(90 + task)).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let logins = guarded.logins.load(Ordering::SeqCst);
    assert!((11..=16).contains(&logins), "{logins} logins in 54 s of 5 s sessions");
    let connections: std::collections::BTreeSet<usize> =
        script.requests(12).iter().map(|request| request.connection).collect();
    assert_eq!(connections.len(), 1, "renewed on the same connection");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_renewed_when_it_is_used_again() {
    let guarded = Guarded::new(|_, _| passed(5_000));
    let script = guarded.script();
    let config = plain(&script).with_metadata_max_age(Duration::MAX);
    let cluster = Cluster::connect_with(config).await.unwrap();
    beat(&cluster, &Via::control()).await.unwrap();
    let before = guarded.logins.load(Ordering::SeqCst);
    // Past the session's end: the broker would hang up on anything but a login.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(guarded.logins.load(Ordering::SeqCst), before);
    beat(&cluster, &Via::control()).await.unwrap();
    assert_eq!(guarded.logins.load(Ordering::SeqCst), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_an_authentication_error_and_is_not_repeated_in_haste() {
    let allowed = Arc::new(Mutex::new(true));
    let gate = allowed.clone();
    let guarded =
        Guarded::new(move |_, _| if *gate.lock().unwrap() { passed(5_000) } else { refused("revoked") });
    let script = guarded.script();
    let cluster = Cluster::connect_with(plain(&script)).await.unwrap();
    let via = Via::control();
    beat(&cluster, &via).await.unwrap();
    *allowed.lock().unwrap() = false;
    let (mut errors, start) = (0, Instant::now());
    let before = guarded.logins.load(Ordering::SeqCst);
    while start.elapsed() < Duration::from_secs(60) {
        match beat(&cluster, &via).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => {
                errors += 1;
                assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
            }
        }
    }
    let attempts = guarded.logins.load(Ordering::SeqCst) - before;
    assert!(errors > 5, "{errors}");
    // Two addresses may be tried, each ever more rarely.
    assert!(attempts < 60, "{attempts} logins in a minute");
    *allowed.lock().unwrap() = true;
    let healed = async { while beat(&cluster, &via).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(10), healed).await.expect("heals once the login is granted");
}

#[tokio::test(start_paused = true)]
async fn a_token_provider_that_fails_for_a_while_does_not_end_a_session_that_lasts() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let provider = move || {
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move {
            // The second and third time the provider is away.
            if (1..3).contains(&number) {
                Err(Error::other("away"))
            } else {
                Ok(Token::new(format!("t{number}")))
            }
        }
    };
    let guarded = Guarded::new(|_, message| {
        assert!(message.starts_with(b"n,,\x01auth=Bearer t"));
        passed(60_000)
    });
    let script = guarded.script();
    let config = script.config("one:9092").with_sasl(Sasl::oauthbearer(provider));
    let cluster = Cluster::connect_with(config).await.unwrap();
    let via = Via::control();
    for _ in 0..1_000 {
        beat(&cluster, &via).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(asked.load(Ordering::SeqCst) >= 4);
    assert_eq!(script.attempts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_understood_and_replaced() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let provider = move || {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let ends = SystemTime::now() + Duration::from_secs(3600);
        async move { Ok(Token::new(format!("secret{number}")).with_expiry(ends)) }
    };
    let guarded = Guarded::new(|_, message| {
        let json = "{\"status\":\"invalid_token\"}";
        if message == b"\x01" {
            refused(json)
        } else if message.windows(7).any(|part| part == b"secret0") {
            SaslAuthenticateResponse::default().with_auth_bytes(Bytes::from_static(json.as_bytes()))
        } else {
            passed(0)
        }
    });
    let script = guarded.script();
    let config = script.config("one:9092").with_sasl(Sasl::oauthbearer(provider));
    let error = Cluster::connect_with(config.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert!(error.to_string().contains("invalid_token"), "{error}");
    assert!(!format!("{error:?} {config:?}").contains("secret"), "{error:?}");
    // The token that was refused is not offered again, however long it claims to live.
    Cluster::connect_with(config).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
