//! Logging in again on a connection in use (KIP-368), before the broker ends the session.
//!
//! States: *fresh* (nothing to do until `due`), *due* (waits for the connection to be used: an idle one need not
//! log in), *running*. While a login's messages are on the wire no other request may be; they wait in the
//! pipeline, which is held. Getting a token comes before that and holds nothing, unless the session has already
//! run out.
//!
//! Progress lives here: the future of [`Renewal::step`] may be dropped at any point.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Address;
use super::connection::Answer;
use super::login::{self, Wire};
use super::pipeline::{AnswerShape, Submission};
use crate::wire::versions::ApiVersions;
use crate::{ClusterConfig, Error, ErrorKind, Result};

/// How soon a login is tried again when its credentials could not be had.
const AGAIN: Duration = Duration::from_secs(1);

/// Brokers refuse a second login within a second of the last (34).
const SPACING: Duration = Duration::from_millis(1_100);

/// See the module's head.
pub(super) struct Renewal {
    login: Arc<Login>,
    session: Option<Session>,
    running: Option<BoxFuture<'static, Result<Option<Duration>>>>,
    sender: mpsc::Sender<Submission<Answer>>,
    messages: mpsc::Receiver<Submission<Answer>>,
    /// A message of the running login has been handed out.
    speaking: bool,
}

struct Session {
    due: Instant,
    ends: Instant,
}

struct Login {
    config: Arc<ClusterConfig>,
    versions: Arc<ApiVersions>,
    address: Address,
}

/// What a connection's task has to do next.
pub(super) enum Step {
    /// Send this before anything else, and hold everything else.
    Send(Submission<Answer>),
    /// The login is over: let the others go on.
    Renewed,
    /// The login has failed: the connection is of no more use.
    Failed(Error),
}

impl Renewal {
    pub(super) fn new(
        config: Arc<ClusterConfig>,
        versions: Arc<ApiVersions>,
        address: Address,
        lifetime: Option<Duration>,
    ) -> Renewal {
        let (sender, messages) = mpsc::channel(1);
        let login = Arc::new(Login { config, versions, address });
        let session = lifetime.map(Session::new);
        Renewal { login, session, running: None, sender, messages, speaking: false }
    }

    /// Starts a login if it is time. Answers whether other requests have to wait.
    pub(super) fn begin(&mut self, in_use: bool) -> bool {
        let Some(session) = &self.session else { return false };
        let now = Instant::now();
        if self.running.is_none() && in_use && now >= session.due {
            let login = self.login.clone();
            let wire = Inside { messages: self.sender.clone(), patience: login.config.request_timeout };
            let left = session.ends.saturating_duration_since(now);
            self.running = Some(Box::pin(async move { login.run(wire, left).await }));
        }
        self.running.is_some() && (self.speaking || now >= session.ends)
    }

    /// When [`Renewal::begin`] may have something to do.
    pub(super) fn next_deadline(&self, in_use: bool) -> Option<Instant> {
        let session = self.session.as_ref()?;
        match self.running {
            None => Some(session.due).filter(|_| in_use),
            Some(_) => Some(session.ends).filter(|ends| !self.speaking && Instant::now() < *ends),
        }
    }

    /// What comes of a login that runs; never, while none does.
    pub(super) async fn step(&mut self) -> Step {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let outcome = tokio::select! {
            biased;
            Some(message) = self.messages.recv() => {
                self.speaking = true;
                return Step::Send(message);
            }
            outcome = running => outcome,
        };
        self.running = None;
        let spoke = std::mem::take(&mut self.speaking);
        match outcome {
            Ok(lifetime) => {
                tracing::debug!(address = %self.login.address, ?lifetime, "logged in again");
                self.session = lifetime.map(Session::new);
                Step::Renewed
            }
            // Nothing was said: the session goes on as long as it lasts.
            Err(error)
                if !spoke && self.session.as_ref().is_some_and(|session| Instant::now() < session.ends) =>
            {
                tracing::warn!(address = %self.login.address, %error, "cannot log in again yet");
                if let Some(session) = &mut self.session {
                    session.due = (Instant::now() + AGAIN).min(session.ends);
                }
                Step::Renewed
            }
            Err(error) => Step::Failed(error),
        }
    }
}

impl Session {
    fn new(lifetime: Duration) -> Session {
        let now = Instant::now();
        // As Java: early enough for a slow answer, and not all connections at once.
        let part = 0.85 + 0.1 * fastrand::f64();
        let due = lifetime.mul_f64(part).max(SPACING).min(lifetime);
        Session { due: now + due, ends: now + lifetime }
    }
}

impl Login {
    async fn run(&self, mut wire: Inside, left: Duration) -> Result<Option<Duration>> {
        let Some(sasl) = &self.config.sasl else { return Ok(None) };
        let at = self.address.to_string();
        let ends = SystemTime::now() + left;
        let login = login::login(&mut wire, sasl, &self.config.client_id, &self.versions, &at, Some(ends));
        // Generous where the network is slow; it is the token provider that needs a bound.
        let limit = self.config.connect_timeout + self.config.request_timeout;
        tokio::time::timeout(limit, login).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, "connect (SASL)")
                .with_detail(format!("{at}: no new login in time")))
        })
    }
}

/// Carries a login's requests through the connection's own pipeline.
struct Inside {
    messages: mpsc::Sender<Submission<Answer>>,
    patience: Duration,
}

impl Wire for Inside {
    async fn ask(&mut self, frame: BytesMut, shape: AnswerShape) -> Result<Bytes> {
        let closed = || Error::new(ErrorKind::Closed, "connect (SASL)");
        let (reply, answer) = oneshot::channel();
        let submission = Submission { frame, shape, patience: self.patience, reply };
        self.messages.send(submission).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}
