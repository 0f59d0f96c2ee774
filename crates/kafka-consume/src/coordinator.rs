//! Asking a group's coordinator, and asking again when it turned out to be somebody else.
//!
//! A coordinator that has moved does not make a request fail: the round trip succeeds and NOT_COORDINATOR
//! stands inside the answer, for the whole of it or for one partition. So whoever decodes the answer says
//! "again", and the loop is here, above the decoding. It is bounded by a deadline and not by a number of
//! attempts, because the condition is not "this request failed" but "ask in a moment": after a fresh start
//! FindCoordinator names a broker that answers 16 for up to two seconds, and after a kill it names the dead one
//! for twelve.
//!
//! What this is not: it decides nothing about members or commits, and keeps no state between calls; the
//! cluster caches who the coordinator is.
//!
//! Invariants
//! - Every failure that passes by itself is followed by a jittered pause of 100 ms to 1 s: no loop spins,
//!   whatever the broker answers.
//! - The cached coordinator is forgotten on 15, 16, 7 and lost connections, and kept on 14 (it is loading).

use std::future::Future;

use kafka_meta::client::{Backoff, CoordinatorKind};
use kafka_meta::{Cluster, Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::offsets::codes;

/// What an answer of the coordinator comes to.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    /// This is the result.
    Done(T),
    /// Nothing final yet; ask the same broker again.
    Again(Error),
    /// The coordinator is another one; look it up and ask again.
    Rediscover(Error),
}

/// Runs `ask` against the group's coordinator until it is done, fails for good, or `deadline` has passed. `ask`
/// is given the node and the instant its request has to be answered by.
///
/// Dropping the future abandons the wait; what was sent may still reach the broker.
///
/// # Errors
///
/// The final failure, or `Timeout` with the last passing one as its source.
pub(crate) async fn with_coordinator<T, F, Fut>(
    cluster: &Cluster,
    operation: &'static str,
    group: &str,
    deadline: Instant,
    mut ask: F,
) -> Result<T>
where
    F: FnMut(i32, Instant) -> Fut,
    Fut: Future<Output = Result<Reply<T>>>,
{
    let mut backoff = Backoff::new(codes::BACKOFF, codes::BACKOFF_MAX);
    let mut last = None;
    loop {
        let node =
            cluster.coordinator(CoordinatorKind::Group, group, attempt_deadline(cluster, deadline)).await;
        let (forget, error) = match node {
            Ok(node) => match ask(node, attempt_deadline(cluster, deadline)).await {
                Ok(Reply::Done(result)) => return Ok(result),
                Ok(Reply::Again(error)) => (None, error),
                Ok(Reply::Rediscover(error)) => (Some(node), error),
                Err(error) if codes::passes(&error) => (Some(node), error),
                Err(error) => return Err(error),
            },
            Err(error) if codes::passes(&error) => (None, error),
            Err(error) => return Err(error),
        };
        if let Some(node) = forget {
            cluster.forget_coordinator(CoordinatorKind::Group, group, node);
        }
        let pause = backoff.next(fastrand::f64());
        tracing::debug!(group, %error, ?pause, "asking the coordinator again");
        let error = codes::more_telling(last.take(), error);
        if Instant::now() + pause >= deadline {
            return Err(timed_out(operation, error));
        }
        last = Some(error);
        tokio::time::sleep(pause).await;
    }
}

/// When one attempt has to be answered: a broker that says nothing must not use up the whole call.
pub(crate) fn attempt_deadline(cluster: &Cluster, deadline: Instant) -> Instant {
    deadline.min(Instant::now() + cluster.config().request_timeout())
}

fn timed_out(operation: &'static str, last: Error) -> Error {
    if last.kind() == ErrorKind::Timeout && last.operation() == operation {
        return last;
    }
    Error::new(ErrorKind::Timeout, operation).with_source(last)
}
