//! What a producer does beside sending: pictures of the cluster in, identities and unknown topics asked for, time
//! told.
//!
//! What it is not: a decision; the engine makes those. One task, one loop, at most one question of each kind at a
//! time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kafka_meta::client::{Backoff, To, Via};
use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName, wire};
use kafka_protocol::messages::MetadataRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use tokio::time::Instant;

use crate::producer_id::{self, Identity};
use crate::shared::Shared;

/// How long one question may take before it is asked anew.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs until the producer ends.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let mut generations = shared.cluster.watch();
    let mut identity: Option<BoxFuture<'_, Result<Identity, Error>>> = None;
    let mut topics: Option<BoxFuture<'_, ()>> = None;
    loop {
        let mut rung = pin!(shared.supervisor.notified());
        rung.as_mut().enable();
        generations.mark_unchanged();
        let picture = shared.cluster.snapshot();
        let now = Instant::now().into_std();
        let (deadline, wants_identity, unresolved, missing) = shared.with(|engine| {
            engine.handle_picture(now, &picture);
            engine.handle_time(now);
            let deadline = engine.next_deadline();
            (deadline, engine.wants_identity(), engine.unresolved(), engine.missing())
        });
        if wants_identity && identity.is_none() {
            identity = Some(Box::pin(ask_identity(shared)));
        }
        if !unresolved.is_empty() && topics.is_none() {
            let missing = if shared.config.allow_auto_create_topics { missing } else { Vec::new() };
            topics = Some(Box::pin(ask_topics(shared, unresolved, missing)));
        }
        let until = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(Instant::from_std(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = rung => {}
            changed = generations.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            outcome = wait(&mut identity) => {
                identity = None;
                let now = Instant::now().into_std();
                shared.with(|engine| match outcome {
                    Ok(found) => engine.handle_identity(found),
                    Err(error) => engine.handle_no_identity(now, &error),
                });
            }
            () = wait(&mut topics) => topics = None,
            () = until => {}
        }
    }
}

async fn wait<T>(question: &mut Option<BoxFuture<'_, T>>) -> T {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}

/// Asks for a producer id until somebody gives one, or refuses for good.
async fn ask_identity(shared: &Shared) -> Result<Identity, Error> {
    let mut backoff = Backoff::new(shared.settings.backoff.0, shared.settings.backoff.1);
    loop {
        let deadline = Instant::now() + PATIENCE.min(shared.config.request_timeout());
        let error = match producer_id::init(&shared.cluster, To::Any, &Via::control(), deadline, None).await {
            Ok(Ok(identity)) => {
                tracing::debug!(producer_id = identity.producer_id, epoch = identity.epoch, "producer id");
                return Ok(identity);
            }
            Ok(Err(code)) if code.is_retriable() => Error::broker(code, "InitProducerId"),
            Ok(Err(code)) => return Err(Error::broker(code, "InitProducerId")),
            Err(error) => match error.kind() {
                ErrorKind::Disconnected | ErrorKind::Timeout => error,
                ErrorKind::Broker(code) if code == ErrorCode::UNKNOWN_SERVER_ERROR => error,
                _ => return Err(error),
            },
        };
        tracing::warn!(%error, "no producer id yet");
        tokio::time::sleep(backoff.next(fastrand::f64())).await;
    }
}

/// Asks for topics that records wait for; brokers create the missing ones if they may.
async fn ask_topics(shared: &Shared, unresolved: Vec<TopicName>, missing: Vec<TopicName>) {
    let deadline = Instant::now() + PATIENCE;
    if !missing.is_empty() {
        let topics = missing
            .iter()
            .map(|topic| MetadataRequestTopic::default().with_name(Some(wire::topic_name(*topic))));
        let request = MetadataRequest::default()
            .with_topics(Some(topics.collect()))
            .with_allow_auto_topic_creation(true);
        let versions = 4..=12;
        let via = Via::control();
        let asked = shared.cluster.call_with(To::Any, &via, deadline, versions, |_| Ok(request));
        if let Err(error) = asked.await {
            tracing::debug!(%error, "cannot ask for missing topics");
        }
    }
    if let Err(error) = shared.cluster.refreshed(&unresolved, deadline).await {
        tracing::debug!(%error, "nothing learnt about topics that records wait for");
        // A refusal comes back at once; nobody is to be asked in a tight circle.
        tokio::time::sleep(shared.settings.backoff.1).await;
    }
}
