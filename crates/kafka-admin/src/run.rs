//! Carries a plan out: finds who is to be asked, asks everybody at the same time, and asks again what is open
//! until the deadline. The plan decides, this waits.
//!
//! Invariants
//! - Every round after a failure is preceded by a jittered pause of 100 ms to 1 s: no loop spins, whatever the
//!   brokers answer.
//! - One broker that is silent keeps nobody else's items from being asked about again.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use futures::stream::{self, FuturesUnordered, StreamExt};
use kafka_meta::client::{Backoff, CoordinatorKind, Leader, Snapshot, To, passes};
use kafka_meta::{Cluster, Error, ErrorCode, ErrorKind, Result};
use tokio::time::Instant;

use crate::plan::{Asked, Place, Plan, Route, Settled};

/// First pause after a passing failure.
const BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// How long a round waits for coordinators. A group that has none keeps the others waiting no longer; its own
/// look-up goes on in the background.
const LOCATE: Duration = Duration::from_secs(2);

/// Look-ups of coordinators at the same time.
const LOOKUPS: usize = 32;

/// One request's worth of a plan.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Whom to ask.
    pub to: To,
    /// When the answer has to be there.
    pub deadline: Instant,
    /// Which items.
    pub items: Vec<usize>,
}

impl Batch {
    /// What a broker may take, for requests that carry it.
    pub(crate) fn timeout_ms(&self) -> i32 {
        let left = self.deadline.saturating_duration_since(Instant::now()).as_millis();
        i32::try_from(left).unwrap_or(i32::MAX).max(1)
    }
}

/// Runs `ask` until every item of the plan is settled or `deadline` has passed. Dropping the future abandons the
/// call; what was sent may still be carried out.
pub(crate) async fn run<T, F, Fut>(
    cluster: &Cluster,
    deadline: Instant,
    mut plan: Plan<T>,
    ask: F,
) -> Vec<Settled<T>>
where
    F: Fn(Batch) -> Fut,
    Fut: Future<Output = Asked<T>>,
{
    let mut backoff = Backoff::new(BACKOFF, BACKOFF_MAX);
    let mut flight = FuturesUnordered::new();
    let mut due = Instant::now();
    while !plan.is_done() && Instant::now() < deadline {
        if plan.is_waiting() && due <= Instant::now() {
            forget(cluster, &mut plan);
            let fresh = plan.is_stale();
            match locate(cluster, &plan, deadline).await {
                Ok(places) => {
                    let place = |route: &Route| places.of(route);
                    for (node, items) in plan.poll_output(Instant::now().into_std(), fresh, place) {
                        let to = node.map_or(To::Any, To::Node);
                        let batch = Batch { to, deadline: attempt(cluster, deadline), items: items.clone() };
                        let answer = ask(batch);
                        flight.push(async move { (items, answer.await) });
                    }
                    // An old picture is no reason to wait for a new one; a new one without an answer is.
                    if plan.is_waiting() && (fresh || !plan.is_stale()) {
                        due = Instant::now() + backoff.next(fastrand::f64());
                    }
                }
                Err(error) => {
                    plan.handle_no_metadata(&error);
                    due = Instant::now() + backoff.next(fastrand::f64());
                }
            }
            continue;
        }
        tokio::select! {
            Some((items, answer)) = flight.next() => {
                match answer {
                    Ok(answers) => plan.handle_answers(Instant::now().into_std(), &items, answers),
                    Err(failure) => {
                        tracing::debug!(operation = plan.operation(), error = %failure.error, "no answer");
                        plan.handle_failure(&items, &failure);
                    }
                }
                if plan.is_waiting() && due <= Instant::now() {
                    due = Instant::now() + backoff.next(fastrand::f64());
                }
            }
            () = tokio::time::sleep_until(due.min(deadline)), if plan.is_waiting() => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    }
    // Also at the end: the next call must not begin with a coordinator that this one found to be none.
    forget(cluster, &mut plan);
    plan.into_settled()
}

fn forget<T>(cluster: &Cluster, plan: &mut Plan<T>) {
    for (group, node) in plan.take_forgotten() {
        cluster.forget_coordinator(CoordinatorKind::Group, &group, node);
    }
}

/// When one attempt has to be answered: a broker that says nothing must not use up the whole call.
fn attempt(cluster: &Cluster, deadline: Instant) -> Instant {
    deadline.min(Instant::now() + cluster.config().request_timeout())
}

/// What is known of where to ask.
struct Places {
    snapshot: std::sync::Arc<Snapshot>,
    coordinators: BTreeMap<String, Result<i32>>,
}

async fn locate<T>(cluster: &Cluster, plan: &Plan<T>, deadline: Instant) -> Result<Places> {
    let (mut topics, mut groups) = (Vec::new(), Vec::new());
    for route in plan.routes() {
        match route {
            Route::Leader(topic, _) => topics.push(*topic),
            Route::Group(group) => groups.push(group.clone()),
            Route::Any | Route::Controller | Route::Node(_) => {}
        }
    }
    topics.dedup();
    let snapshot = match plan.is_stale() {
        true => cluster.refreshed(&topics, attempt(cluster, deadline)).await?,
        false => cluster.snapshot(),
    };
    let by = attempt(cluster, deadline).min(Instant::now() + LOCATE);
    let lookups = stream::iter(groups).map(|group| async move {
        let found = cluster.coordinator(CoordinatorKind::Group, &group, by).await;
        (group, found)
    });
    let coordinators = lookups.buffer_unordered(LOOKUPS).collect().await;
    Ok(Places { snapshot, coordinators })
}

impl Places {
    fn of(&self, route: &Route) -> Place {
        match route {
            Route::Any => Place::Any,
            Route::Controller => self.snapshot.controller.map_or(Place::Any, Place::Node),
            Route::Node(node) if self.snapshot.brokers.contains_key(node) => Place::Node(*node),
            Route::Node(_) => Place::Absent,
            Route::Leader(topic, partition) => match Leader::of(&self.snapshot, *topic, *partition) {
                Leader::Node(node, _) => Place::Node(node),
                Leader::None => Place::Later(no_leader(ErrorCode::LEADER_NOT_AVAILABLE)),
                Leader::Absent => Place::Absent,
                Leader::Refused(code) => Place::Never(no_leader(code)),
            },
            Route::Group(group) => match self.coordinators.get(group) {
                Some(Ok(node)) => Place::Node(*node),
                Some(Err(error)) if passes(error) => Place::Later(error.clone()),
                Some(Err(error)) => Place::Never(error.clone()),
                None => Place::Later(Error::new(ErrorKind::Timeout, "find the coordinator")),
            },
        }
    }
}

fn no_leader(code: ErrorCode) -> Error {
    Error::broker(code, "find the leader")
}
