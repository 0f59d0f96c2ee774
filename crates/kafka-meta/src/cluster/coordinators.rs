//! Who coordinates a group or a transaction: a cache, and one look-up at a time per key.
//!
//! A look-up is a task of its own that goes on until it has an answer or nobody waits for one. It asks again,
//! with back-off, while the cluster has no coordinator for the key (15, right after a fresh start) or nobody
//! answers. Error 0 does not mean that the coordinator is ready: what follows 16 and 14 is the caller's
//! business.
//!
//! Look-ups of one key that follow each other closely are spaced: a caller that forgets and asks in a loop makes
//! no storm.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kafka_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::call;
use super::shared::Shared;
use super::snapshot::Broker;
use crate::client::{Backoff, CoordinatorKind, To};
use crate::net::Via;
use crate::{Error, ErrorCode, ErrorKind, Result};

type Key = (CoordinatorKind, String);

/// Look-ups of a key this far apart have nothing to do with each other.
const CALM: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Entry {
    node: Option<i32>,
    looking: Option<watch::Receiver<Option<Result<i32>>>>,
    spacing: Backoff,
    last: Option<Instant>,
}

/// The cache.
#[derive(Debug, Default)]
pub(crate) struct Coordinators {
    entries: Mutex<HashMap<Key, Entry>>,
}

impl Coordinators {
    fn with<T>(&self, key: Key, then: impl FnOnce(&mut Entry) -> T) -> T {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        then(entries.entry(key).or_insert_with(|| Entry {
            node: None,
            looking: None,
            spacing: Backoff::new(Duration::from_millis(100), Duration::from_secs(1)),
            last: None,
        }))
    }

    /// Forgets a coordinator if it is still this one.
    pub(crate) fn forget(&self, kind: CoordinatorKind, key: &str, node: i32) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(&(kind, key.to_owned()))
            && entry.node == Some(node)
        {
            entry.node = None;
        }
    }
}

impl Entry {
    /// How long the next look-up has to wait.
    fn space(&mut self, now: Instant) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let since = now.saturating_duration_since(last);
        if since >= CALM {
            self.spacing.reset();
            return Duration::ZERO;
        }
        self.spacing.next(fastrand::f64()).saturating_sub(since)
    }
}

/// The coordinator's node id, from the cache or by asking.
pub(crate) async fn find(
    shared: &Arc<Shared>,
    kind: CoordinatorKind,
    key: &str,
    deadline: Instant,
) -> Result<i32> {
    let cache_key = (kind, key.to_owned());
    let started = shared.coordinators.with(cache_key.clone(), |entry| {
        if let Some(node) = entry.node {
            return Err(node);
        }
        match &entry.looking {
            Some(looking) if looking.has_changed().is_ok() => Ok(looking.clone()),
            _ => {
                let (sender, receiver) = watch::channel(None);
                let space = entry.space(Instant::now());
                let task = look(shared.clone(), cache_key, space, sender);
                match &shared.config.runtime {
                    Some(runtime) => drop(runtime.spawn(task)),
                    None => drop(tokio::spawn(task)),
                }
                entry.looking = Some(receiver.clone());
                Ok(receiver)
            }
        }
    });
    let mut looking = match started {
        Ok(looking) => looking,
        Err(node) => return Ok(node),
    };
    let waiting = looking.wait_for(Option::is_some);
    match tokio::time::timeout_at(deadline, waiting).await {
        Ok(Ok(found)) => found.clone().unwrap_or_else(|| Err(closed())),
        Ok(Err(_)) => Err(closed()),
        Err(_) => Err(Error::new(ErrorKind::Timeout, "find the coordinator")
            .with_detail(format!("no coordinator for {key:?} in time"))),
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "find the coordinator")
}

async fn look(shared: Arc<Shared>, key: Key, space: Duration, found: watch::Sender<Option<Result<i32>>>) {
    let looking = async {
        tokio::time::sleep(space).await;
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            match ask(&shared, &key).await {
                Ok(broker) => return Ok(broker),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, key = key.1, "no coordinator yet");
                    tokio::time::sleep(backoff.next(fastrand::f64())).await;
                }
            }
        }
    };
    let result = tokio::select! {
        result = looking => result,
        // The cache keeps a receiver of its own, so it is the callers that are counted, and now and then.
        () = abandoned(&found) => {
            shared.coordinators.with(key, |entry| entry.looking = None);
            return;
        }
    };
    let node = match result {
        Ok(broker) => {
            let node = broker.id;
            shared.state().picture.learn_broker(broker);
            shared.published();
            Ok(node)
        }
        Err(error) => Err(error),
    };
    shared.coordinators.with(key, |entry| {
        entry.node = node.as_ref().ok().copied();
        entry.looking = None;
        entry.last = Some(Instant::now());
        found.send_replace(Some(node));
    });
}

/// Returns once nobody but the cache has been listening for a while.
async fn abandoned(found: &watch::Sender<Option<Result<i32>>>) {
    let mut alone = 0;
    while alone < 4 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        alone = if found.receiver_count() <= 1 { alone + 1 } else { 0 };
    }
}

/// Asking again would bring the same answer.
fn is_final(error: &Error) -> bool {
    call::is_hopeless(error)
        || match error.kind() {
            ErrorKind::Broker(code) => !code.is_retriable(),
            ErrorKind::Authorization => true,
            _ => false,
        }
}

async fn ask(shared: &Shared, (kind, key): &Key) -> Result<Broker> {
    let deadline = Instant::now() + shared.config.request_timeout;
    let via = Via::control();
    let candidate = call::choose(shared, To::Any, &via, deadline).await?;
    let build = |version: i16| {
        let kind = match kind {
            CoordinatorKind::Group => 0,
            CoordinatorKind::Transaction => 1,
        };
        let key = StrBytes::from_string(key.clone());
        let request = FindCoordinatorRequest::default();
        if version < 1 && kind != 0 {
            return Err(Error::new(ErrorKind::UnsupportedApi, "find the coordinator"));
        }
        let request = if version >= 1 { request.with_key_type(kind) } else { request };
        Ok(if version >= 4 { request.with_coordinator_keys(vec![key]) } else { request.with_key(key) })
    };
    let (version, response) = call::ask_shared(shared, &candidate, 0..=6, build).await?;
    read(version, *kind, key, response)
}

fn read(version: i16, kind: CoordinatorKind, key: &str, response: FindCoordinatorResponse) -> Result<Broker> {
    const OPERATION: &str = "find the coordinator";
    let (code, id, host, port, message) = if version >= 4 {
        let Some(found) = response.coordinators.into_iter().find(|found| found.key.as_str() == key) else {
            return Err(Error::new(ErrorKind::Other, OPERATION).with_detail("the answer lacks the key"));
        };
        (found.error_code, found.node_id.0, found.host, found.port, found.error_message)
    } else {
        (response.error_code, response.node_id.0, response.host, response.port, response.error_message)
    };
    let code = ErrorCode::from(code);
    if !code.is_none() {
        let message = message.filter(|message| !message.is_empty() && message.as_str() != "NONE");
        let error = match message {
            Some(message) => Error::broker(code, OPERATION).with_detail(format!("{code}: {message}")),
            None => Error::broker(code, OPERATION),
        };
        return Err(match kind {
            CoordinatorKind::Group => error.with_group(key),
            CoordinatorKind::Transaction => error.with_transactional_id(key),
        });
    }
    match u16::try_from(port) {
        Ok(port) if id >= 0 && !host.is_empty() => {
            Ok(Broker { id, host: host.to_string(), port, rack: None })
        }
        // As good as COORDINATOR_NOT_AVAILABLE.
        _ => Err(Error::broker(ErrorCode::COORDINATOR_NOT_AVAILABLE, OPERATION)),
    }
}
