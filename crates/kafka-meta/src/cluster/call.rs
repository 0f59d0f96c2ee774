//! One request, one answer: which connection, which version, how long.
//!
//! Nothing is sent twice. A connection that turns out to be over before a byte was written is replaced; from
//! then on a failure is the caller's to judge, who alone knows whether asking again is harmless.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::protocol::{HeaderVersion, Request};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::shared::{Shared, address};
use crate::client::{RawAnswer, To};
use crate::net::{self, Address, AnswerShape, Connection, Peer, Submission, Via};
use crate::wire::{api_name, guard, versions};
use crate::{Error, ErrorKind, Result};

/// Somebody who may be asked.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) peer: Peer,
    pub(crate) address: Address,
    /// As an answer names it: negative for a bootstrap address.
    pub(crate) node: i32,
}

/// Everybody who may be asked, best first: open connections, then others, then those that failed a moment ago;
/// the bootstrap addresses last, or first when `rebootstrap`: the brokers known may be back when the bootstrap
/// list is long out of date. Equals take turns.
pub(crate) fn candidates(shared: &Shared, via: &Via, rebootstrap: bool) -> Vec<Candidate> {
    let room = via.room(&shared.room);
    let snapshot = shared.snapshot();
    let mut brokers: Vec<_> = snapshot
        .brokers
        .values()
        .map(|broker| Candidate { peer: Peer::Node(broker.id), address: address(broker), node: broker.id })
        .collect();
    let mut bootstrap: Vec<_> = (1..)
        .zip(&shared.bootstrap)
        .map(|(at, address)| Candidate {
            peer: Peer::Bootstrap(address.clone()),
            address: address.clone(),
            node: -at,
        })
        .collect();
    let turn = shared.turn();
    for list in [&mut brokers, &mut bootstrap] {
        let by = turn.checked_rem(list.len()).unwrap_or(0);
        list.rotate_left(by);
        list.sort_by_key(|candidate| {
            let connected = room.is_connected(&candidate.peer, via.lane());
            (!connected, shared.dialer.is_held_back(&candidate.address))
        });
    }
    let (mut first, mut then) = if rebootstrap { (bootstrap, brokers) } else { (brokers, bootstrap) };
    first.append(&mut then);
    first
}

/// A question any broker can answer is not worth waiting longer for while others can be asked.
const IMPATIENCE: Duration = Duration::from_secs(10);

/// Asks a question any broker can answer over the shared connection. A broker that takes too long loses the
/// connection: it is frozen, or close to it, and would be the first to be asked again.
pub(crate) async fn ask_shared<R, F>(
    shared: &Shared,
    candidate: &Candidate,
    versions: RangeInclusive<i16>,
    build: F,
) -> Result<(i16, R::Response)>
where
    R: Request + Send,
    R::Response: Send,
    F: FnOnce(i16) -> Result<R> + Send,
{
    let via = Via::control();
    let deadline = Instant::now() + shared.config.request_timeout.min(IMPATIENCE);
    let answer = ask(shared, candidate, &via, deadline, versions, build).await;
    if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) {
        shared.room.give_up(&candidate.peer, via.lane());
    }
    answer
}

/// As [`ask_raw`], decoded.
async fn ask<R, F>(
    shared: &Shared,
    candidate: &Candidate,
    via: &Via,
    deadline: Instant,
    versions: RangeInclusive<i16>,
    build: F,
) -> Result<(i16, R::Response)>
where
    R: Request + Send,
    R::Response: Send,
    F: FnOnce(i16) -> Result<R> + Send,
{
    let (version, body) = ask_raw(shared, candidate, via, deadline, versions, build).await?;
    Ok((version, guard::decode(R::KEY, version, body)?))
}

/// Sends one request to one candidate and waits for the answer's body.
async fn ask_raw<R, F>(
    shared: &Shared,
    candidate: &Candidate,
    via: &Via,
    deadline: Instant,
    own: RangeInclusive<i16>,
    build: F,
) -> Result<(i16, Bytes)>
where
    R: Request + Send,
    F: FnOnce(i16) -> Result<R> + Send,
{
    let placing = Placing { answered: true, behind: None };
    let submitted = submit_to(shared, candidate, via, deadline, own, placing, build).await?;
    let answer = submitted.answer().await?;
    Ok((answer.version, answer.body))
}

/// A request that has its place on a connection: what is submitted later goes out later. The answer is yet to come.
/// Dropping it leaves no half frame on the wire; the answer is thrown away.
#[derive(Debug)]
pub struct Submitted {
    api_key: i16,
    version: i16,
    node: i32,
    address: Address,
    connection: Arc<Connection>,
    deadline: Instant,
    answer: oneshot::Receiver<Result<Bytes>>,
}

/// Which connection a request went out on, and whether the next one is answered.
#[derive(Clone, Debug)]
pub struct Placing {
    /// False for the one request that brokers do not answer (Produce without acknowledgement): its answer comes,
    /// empty, when it goes out.
    pub answered: bool,
    /// Go out on this connection or not at all.
    pub behind: Option<Lease>,
}

/// A connection that something was submitted on.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Connection>);

impl Submitted {
    /// The connection it is on: what must not overtake it is submitted behind it.
    pub fn lease(&self) -> Lease {
        Lease(self.connection.clone())
    }

    /// The answer, undecoded. Dropping the future drops the answer.
    pub async fn answer(self) -> Result<RawAnswer> {
        let operation = api_name(self.api_key);
        match tokio::time::timeout_at(self.deadline, self.answer).await {
            Ok(Ok(Ok(body))) => Ok(RawAnswer { version: self.version, body, node: self.node }),
            Ok(Ok(Err(error))) => Err(error.with_operation(operation)),
            Ok(Err(_)) => {
                Err(Error::new(ErrorKind::Closed, operation).with_detail("the runtime has been shut down"))
            }
            Err(_) if self.connection.is_held() => {
                Err(late(self.api_key, &self.address, "the broker throttles this client (quota) for longer"))
            }
            Err(_) => Err(late(self.api_key, &self.address, "no answer in time")),
        }
    }
}

async fn submit_to<R, F>(
    shared: &Shared,
    candidate: &Candidate,
    via: &Via,
    deadline: Instant,
    own: RangeInclusive<i16>,
    placing: Placing,
    build: F,
) -> Result<Submitted>
where
    R: Request + Send,
    F: FnOnce(i16) -> Result<R> + Send,
{
    let named = |error: Error| error.with_operation(api_name(R::KEY));
    let mut connection = connect(shared, candidate, via, deadline).await.map_err(named)?;
    // A connection may be over by the time its queue is reached: nothing has been written, so another one will
    // do. Twice is enough: it has failed for a reason then.
    let mut again = 2;
    loop {
        if placing.behind.as_ref().is_some_and(|Lease(first)| !Arc::ptr_eq(first, &connection)) {
            return Err(Error::new(ErrorKind::Disconnected, api_name(R::KEY))
                .with_detail(format!("{}: the connection has been replaced", candidate.address)));
        }
        let place = tokio::time::timeout_at(deadline, connection.place())
            .await
            .map_err(|_| late(R::KEY, &candidate.address, "the connection's queue is full"))?;
        if let Some(place) = place {
            let version = connection.versions.choose::<R>(own)?;
            let request = build(version)?;
            let frame = net::encode(&request, version, &shared.config.client_id)?;
            let (reply, answer) = oneshot::channel();
            let shape = AnswerShape {
                tagged_header: R::Response::header_version(version) >= 1,
                throttles: versions::throttles(R::KEY, version),
                absent: !placing.answered,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = patience(shared.config.request_timeout, left);
            place.send(Submission { frame, shape, patience, reply });
            return Ok(Submitted {
                api_key: R::KEY,
                version,
                node: candidate.node,
                address: candidate.address.clone(),
                connection,
                deadline,
                answer,
            });
        }
        if again == 0 {
            return Err(Error::new(ErrorKind::Disconnected, api_name(R::KEY))
                .with_detail(format!("{}: the connection breaks at once", candidate.address)));
        }
        again -= 1;
        connection = connect(shared, candidate, via, deadline).await.map_err(named)?;
    }
}

/// A caller in a hurry does not make a connection a bad one; a caller with patience (a join) does not either.
fn patience(request_timeout: Duration, left: Duration) -> Duration {
    request_timeout.max(left)
}

fn late(api_key: i16, address: &Address, why: &'static str) -> Error {
    Error::new(ErrorKind::Timeout, api_name(api_key)).with_detail(format!("{address}: {why}"))
}

pub(crate) async fn connect(
    shared: &Shared,
    candidate: &Candidate,
    via: &Via,
    deadline: Instant,
) -> Result<Arc<Connection>> {
    let room = via.room(&shared.room);
    room.connection(&shared.dialer, &candidate.peer, &candidate.address, via.lane(), deadline).await
}

/// The one to ask. For [`To::Any`], somebody who can be connected to; for a node that is not known yet,
/// metadata is asked first.
pub(crate) async fn choose(shared: &Shared, to: To, via: &Via, deadline: Instant) -> Result<Candidate> {
    match to {
        To::Node(node) => {
            let peer = Peer::Node(node);
            // A broker missing from metadata (fenced for a moment, shutting down) often still answers.
            let open = || via.room(&shared.room).address(&peer, via.lane());
            if let Some(address) = shared.address(node).or_else(open) {
                return Ok(Candidate { peer, address, node });
            }
            // Also what keeps a caller that insists on an unknown node from spinning.
            let round = shared.want(&[]);
            wait_for_round(shared, round, deadline, false).await?;
            let address = shared.address(node).ok_or_else(|| {
                Error::new(ErrorKind::Disconnected, "connect")
                    .with_detail(format!("node {node} is not among the brokers"))
            })?;
            Ok(Candidate { peer: Peer::Node(node), address, node })
        }
        To::Any => {
            let mut last = None;
            for candidate in candidates(shared, via, false) {
                match connect(shared, &candidate, via, deadline).await {
                    Ok(_) => return Ok(candidate),
                    Err(error) => last = Some(error),
                }
            }
            Err(last.unwrap_or_else(|| {
                Error::new(ErrorKind::Disconnected, "connect").with_detail("there is no address to ask")
            }))
        }
    }
}

/// Waits until a round of the refresh has an answer. A refusal (credentials, certificates) ends the wait, as
/// KIP-152 wants it, though later rounds go on trying; with `fail_early` any error no later round will cure does.
pub(crate) async fn wait_for_round(
    shared: &Shared,
    round: u64,
    deadline: Instant,
    fail_early: bool,
) -> Result<()> {
    let mut progress = shared.progress.subscribe();
    let waiting = progress.wait_for(|progress| {
        progress.answered >= round
            || progress.failed.as_ref().is_some_and(|(failed, error)| {
                *failed >= round && (net::is_refused(error) || fail_early && is_hopeless(error))
            })
    });
    let failed = match tokio::time::timeout_at(deadline, waiting).await {
        Ok(Ok(progress)) if progress.answered >= round => return Ok(()),
        Ok(Ok(progress)) => return Err(progress.failed.clone().map_or_else(stopped, |(_, error)| error)),
        Ok(Err(_)) => return Err(stopped()),
        Err(_) => shared.progress.borrow().failed.clone(),
    };
    let error = Error::new(ErrorKind::Timeout, "metadata").with_detail("no broker has answered in time");
    Err(match failed {
        Some((failed, cause)) if failed >= round => {
            // Somebody who connects wants to know what is wrong, not that it took time to find out.
            let kind = if fail_early && !net::is_late(&cause) { cause.kind() } else { ErrorKind::Timeout };
            error.with_kind(kind).with_source(cause)
        }
        // Nobody has failed yet, so nobody is named: somebody takes a connection, or a question, and says nothing.
        _ => {
            let asked: Vec<String> = candidates(shared, &Via::control(), false)
                .iter()
                .map(|one| one.address.to_string())
                .collect();
            error.with_detail(format!(
                "no broker has answered in time; asked or to be asked: {}",
                asked.join(", ")
            ))
        }
    })
}

fn stopped() -> Error {
    Error::new(ErrorKind::Closed, "metadata")
}

/// Errors of the configuration rather than of the moment.
pub(crate) fn is_hopeless(error: &Error) -> bool {
    if net::is_hang_up(error) {
        // A balancer in front of brokers that are only starting does the same.
        return false;
    }
    matches!(
        error.kind(),
        ErrorKind::Authentication
            | ErrorKind::InvalidRequest
            | ErrorKind::Tls
            | ErrorKind::UnsupportedApi
            | ErrorKind::Closed
    )
}

pub(crate) async fn call_raw<R, F>(
    shared: &Shared,
    to: To,
    via: &Via,
    deadline: Instant,
    versions: RangeInclusive<i16>,
    build: F,
) -> Result<RawAnswer>
where
    R: Request + Send,
    F: FnOnce(i16) -> Result<R> + Send,
{
    let asking = async {
        let placing = Placing { answered: true, behind: None };
        let submitted = submit(shared, to, via, deadline, versions, placing, build).await?;
        submitted.answer().await
    };
    asking.await.inspect_err(|error| suspicious(shared, error))
}

/// The first half of [`call_raw`]: until the request has its place.
pub(crate) async fn submit<R, F>(
    shared: &Shared,
    to: To,
    via: &Via,
    deadline: Instant,
    versions: RangeInclusive<i16>,
    placing: Placing,
    build: F,
) -> Result<Submitted>
where
    R: Request + Send,
    F: FnOnce(i16) -> Result<R> + Send,
{
    let named = |error: Error| error.with_operation(api_name(R::KEY));
    let candidate = choose(shared, to, via, deadline).await.map_err(named)?;
    submit_to(shared, &candidate, via, deadline, versions, placing, build).await
}

/// The node may have gone or moved.
pub(crate) fn suspicious(shared: &Shared, error: &Error) {
    if error.kind() == ErrorKind::Disconnected {
        shared.suspect();
    }
}
