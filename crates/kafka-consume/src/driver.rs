//! The supervisor: one task per consumer that brings metadata in, carries look-ups out and starts a fetcher
//! for each broker that needs one. It decides nothing; the core does.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kafka_meta::client::Via;
use kafka_meta::{Error, ErrorCode, ErrorKind};
use kafka_read::lookup;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, debug_span};

use crate::engine::{LookupOrder, Question};
use crate::fetcher;
use crate::shared::Shared;

/// See the module. Ends when the consumer is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut generations = shared.cluster.watch();
    let mut lookups: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
    loop {
        let mut rung = pin!(shared.supervisor.notified());
        rung.as_mut().enable();
        generations.borrow_and_update();
        let snapshot = shared.cluster.snapshot();
        let now = Instant::now();
        let (closed, fetchers, orders, next) = shared.with(|core| {
            core.handle_snapshot(now.into_std(), &snapshot);
            // What the step itself rings for is done below.
            core.effects.supervisor = false;
            let fetchers = core.poll_fetchers(now.into_std());
            let orders = core.poll_lookups(now.into_std(), wall());
            core.effects.supervisor = false;
            (core.is_closed(), fetchers, orders, core.next_supervision_at())
        });
        if closed {
            return;
        }
        for node in fetchers {
            let fetcher = fetcher::run(Arc::clone(&shared), node).instrument(debug_span!("fetcher", node));
            let task = shared.cluster.spawn(fetcher);
            shared.keep(task.abort_handle());
        }
        for order in orders {
            lookups.push(Box::pin(look_up(Arc::clone(&shared), order)));
        }
        tokio::select! {
            () = rung => {}
            changed = generations.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(()) = lookups.next() => {}
            () = until(next.map(Instant::from_std)) => {}
        }
    }
}

/// Sends one question and gives the core its answers.
async fn look_up(shared: Arc<Shared>, order: LookupOrder) {
    match order {
        LookupOrder::Offsets { node, questions, asks } => {
            let deadline = Instant::now() + shared.cluster.config().request_timeout();
            let visibility = shared.config.visibility;
            let answer =
                lookup::ask_node(&shared.cluster, &Via::control(), node, visibility, asks, deadline).await;
            let now = Instant::now().into_std();
            match answer {
                Ok(answers) => shared.with(|core| {
                    // In the order of the asks.
                    for (question, (_, _, answer)) in questions.iter().zip(answers) {
                        core.handle_found(now, question, answer);
                    }
                }),
                Err(error) => fail(&shared, &questions, &error),
            }
        }
        LookupOrder::Committed { questions } => {
            let Some(offsets) = &shared.offsets else {
                let error = Error::new(ErrorKind::InvalidRequest, "committed offsets")
                    .with_detail("the consumer has no group_id");
                fail(&shared, &questions, &error);
                return;
            };
            let keys = questions.iter().map(|question| (question.topic, question.partition)).collect();
            let identity = match shared.reader_identity() {
                Ok(identity) => identity,
                Err(error) => return fail(&shared, &questions, &error),
            };
            match offsets.committed_some(keys, identity, shared.deadline()).await {
                Ok(stored) => {
                    let now = Instant::now().into_std();
                    shared.with(|core| {
                        for question in &questions {
                            match stored.get(&(question.topic, question.partition)) {
                                Some(stored) => core.handle_committed(now, question, stored.as_ref()),
                                None => core.handle_lookup_failure(
                                    now,
                                    std::slice::from_ref(question),
                                    &Error::broker(ErrorCode::UNKNOWN_SERVER_ERROR, "committed offsets"),
                                ),
                            }
                        }
                    });
                }
                Err(error) => fail(&shared, &questions, &error),
            }
        }
    }
}

fn fail(shared: &Shared, questions: &[Question], error: &Error) {
    let now = Instant::now().into_std();
    shared.with(|core| core.handle_lookup_failure(now, questions, error));
}

/// Ends at `at`, or never.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
