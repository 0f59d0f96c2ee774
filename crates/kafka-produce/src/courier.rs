//! One node's courier: packs what the engine hands out, sends it over a connection of its own, brings answers back.
//!
//! What it is not: a decision, nor a wait for any other node. Requests go out in the order they were handed out,
//! on one connection: one that would have to go out on another while answers are due comes back unsent, so that
//! nothing overtakes what may have been lost.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kafka_meta::client::{Lane, Lease, Placing, RawAnswer, Submitted, To};
use kafka_meta::wire::{self, guard};
use kafka_meta::{Error, ErrorCode, ErrorKind, Result, TopicName};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse, TopicName as WireName, TransactionalId};
use kafka_protocol::protocol::{Request, StrBytes};
use std::pin::pin;
use tokio::time::Instant;
use uuid::Uuid;

use crate::config::Acks;
use crate::engine::{Answer, Hint, Next, Parcel, Reply, Shipment, Verdicts, pack};
use crate::shared::Shared;

/// Below it, brokers would have to unpack batches of an older format.
const LEAST: i16 = 3;
/// The last version that names topics; from the next one on they go by id.
const BY_NAME: i16 = 12;
const NEWEST: i16 = 13;

/// A broker that says nothing for this long may have been replaced: metadata tells, long before the request's own
/// time is over.
const NAG: Duration = Duration::from_secs(3);

/// Whose answer is whose.
#[derive(Clone, Debug)]
struct Label {
    part: usize,
    ticket: u64,
    topic: TopicName,
    id: Uuid,
    partition: i32,
}

/// A shipment that left, or could not.
struct Sent {
    labels: Vec<Label>,
    /// What never made it into the request.
    failed: Verdicts,
    submitted: Result<Submitted>,
}

struct Back {
    labels: Vec<Label>,
    failed: Verdicts,
    answer: Result<RawAnswer>,
}

/// Runs until the node leads nothing any more, or the producer ends.
pub(crate) async fn run(shared: Arc<Shared>, node: i32) {
    let bell = shared.bell(node);
    let mut submitting: Option<BoxFuture<'_, Sent>> = None;
    let mut answers: FuturesUnordered<BoxFuture<'_, Back>> = FuturesUnordered::new();
    let mut lease: Option<Lease> = None;
    let mut heard = Instant::now();
    loop {
        let mut rung = pin!(bell.notified());
        rung.as_mut().enable();
        let mut wake_at = None;
        if submitting.is_none() {
            match shared.poll_request(node) {
                Next::Send(shipment) => {
                    let behind = lease.clone().filter(|_| !answers.is_empty());
                    if answers.is_empty() {
                        heard = Instant::now();
                    }
                    submitting = Some(Box::pin(submit(&shared, node, shipment, behind)));
                }
                Next::Wait(at) => wake_at = at,
                Next::Retire => return,
            }
        }
        let idle = submitting.is_none();
        let waiting = !answers.is_empty() || !idle;
        let sending = async {
            match submitting.as_mut() {
                Some(submitting) => submitting.await,
                None => std::future::pending().await,
            }
        };
        let until = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(Instant::from_std(at)).await,
                None => std::future::pending().await,
            }
        };
        let nag = tokio::time::sleep_until(heard + NAG);
        tokio::select! {
            biased;
            Some(back) = answers.next(), if !answers.is_empty() => {
                heard = Instant::now();
                take_in(&shared, node, back);
            }
            sent = sending => {
                submitting = None;
                let Sent { labels, failed, submitted } = sent;
                match submitted {
                    Ok(submitted) => {
                        lease = Some(submitted.lease());
                        answers.push(Box::pin(async {
                            Back { labels, failed, answer: submitted.answer().await }
                        }));
                    }
                    Err(error) => {
                        let unsent = |label: Label| (label.part, label.ticket, Answer::Unsent(error.clone()));
                        let verdicts = failed.into_iter().chain(labels.into_iter().map(unsent)).collect();
                        deliver(&shared, node, verdicts, Duration::ZERO);
                    }
                }
            }
            () = rung, if idle => {}
            () = until, if idle => {}
            () = nag, if waiting => {
                heard = Instant::now();
                tracing::debug!(node, "a broker is silent: who leads now?");
                shared.cluster.refresh();
            }
        }
    }
}

fn deliver(shared: &Arc<Shared>, node: i32, verdicts: Verdicts, mute: Duration) {
    let now = Instant::now().into_std();
    shared.with(|engine| engine.handle_answers(now, node, verdicts, mute));
}

/// Packs a shipment and puts it on the wire.
async fn submit(shared: &Arc<Shared>, node: i32, shipment: Shipment, behind: Option<Lease>) -> Sent {
    let Shipment { parcels, max_version } = shipment;
    let transactional = parcels.first().is_some_and(|parcel| parcel.stamp.transactional);
    let by_id = parcels.iter().all(|parcel| !parcel.id.is_nil());
    let (mut labels, mut failed, mut topics) = (Vec::new(), Vec::new(), Vec::<TopicProduceData>::new());
    let mut packed = Vec::new();
    for parcel in parcels {
        let Parcel { ticket, part, topic, id, partition, content, stamp } = parcel;
        match pack(content, stamp) {
            Ok(bytes) => {
                packed.push((part, ticket, bytes.clone(), stamp));
                let name = wire::topic_name(topic);
                let data = PartitionProduceData::default().with_index(partition).with_records(Some(bytes));
                match topics.iter_mut().find(|one| one.name == name && one.topic_id == id) {
                    Some(one) => one.partition_data.push(data),
                    None => topics.push(
                        TopicProduceData::default()
                            .with_name(name)
                            .with_topic_id(id)
                            .with_partition_data(vec![data]),
                    ),
                }
                labels.push(Label { part, ticket, topic, id, partition });
            }
            Err(error) => {
                let error = error.with_partition(topic, partition);
                failed.push((part, ticket, Answer::Unpackable(error)));
            }
        }
    }
    shared.with(|engine| {
        for (part, ticket, bytes, stamp) in packed {
            engine.handle_packed(part, ticket, bytes, stamp);
        }
    });
    let timeout = shared.config.request_timeout();
    let acks = shared.config.acks;
    let id = shared.transactions.as_ref().filter(|_| transactional);
    let id = id.map(|one| TransactionalId(StrBytes::from_string(one.transactional_id().to_owned())));
    let request = ProduceRequest::default()
        .with_transactional_id(id)
        .with_acks(match acks {
            Acks::All => -1,
            Acks::Leader => 1,
            Acks::None => 0,
        })
        .with_timeout_ms(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    let build = move |version: i16| {
        for topic in &mut topics {
            // The codec refuses a field that the version has not got.
            if version > BY_NAME {
                topic.name = WireName::default();
            } else {
                topic.topic_id = Uuid::nil();
            }
        }
        Ok(request.with_topic_data(topics))
    };
    let newest = max_version.min(if by_id { NEWEST } else { BY_NAME });
    let via = shared.owner.via(Lane::Produce);
    let placing = Placing { answered: acks != Acks::None, behind };
    let deadline = Instant::now() + timeout;
    let submitted = if labels.is_empty() {
        Err(Error::new(ErrorKind::UnsupportedCodec, "produce"))
    } else {
        shared.cluster.submit(To::Node(node), &via, deadline, LEAST..=newest, placing, build).await
    };
    Sent { labels, failed, submitted }
}

/// Hands an answer to the engine.
fn take_in(shared: &Arc<Shared>, node: i32, back: Back) {
    let Back { labels, failed: mut verdicts, answer } = back;
    let mut mute = Duration::ZERO;
    let answer = answer.and_then(|answer| {
        if shared.config.acks == Acks::None {
            return Ok(None);
        }
        let version = answer.version;
        guard::decode::<ProduceResponse>(ProduceRequest::KEY, version, answer.body).map(Some)
    });
    match answer {
        Ok(None) => {
            let done =
                labels.into_iter().map(|label| (label.part, label.ticket, Answer::Replied(Reply::default())));
            verdicts.extend(done);
        }
        Ok(Some(response)) => {
            mute = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
            for label in labels {
                let answer = match reply(&label, &response) {
                    Some(reply) => Answer::Replied(reply),
                    None => Answer::Lost(
                        Error::broker(ErrorCode::UNKNOWN_SERVER_ERROR, "produce")
                            .with_partition(label.topic, label.partition)
                            .with_detail("the broker's answer leaves the partition out"),
                    ),
                };
                verdicts.push((label.part, label.ticket, answer));
            }
        }
        Err(error) => {
            tracing::debug!(node, %error, "a produce request has no answer");
            let lost = |label: Label| (label.part, label.ticket, Answer::Lost(error.clone()));
            verdicts.extend(labels.into_iter().map(lost));
        }
    }
    deliver(shared, node, verdicts, mute);
}

/// The label's part of an answer.
fn reply(label: &Label, response: &ProduceResponse) -> Option<Reply> {
    let topics = response.responses.iter();
    let mut topics = topics.filter(|topic| {
        if topic.name.is_empty() { topic.topic_id == label.id } else { label.topic == topic.name.as_str() }
    });
    let partition =
        topics.find_map(|topic| topic.partition_responses.iter().find(|one| one.index == label.partition))?;
    let leader = &partition.current_leader;
    let hint = (leader.leader_id.0 >= 0 && leader.leader_epoch >= 0).then(|| {
        let endpoint = response.node_endpoints.iter().find(|endpoint| endpoint.node_id == leader.leader_id);
        Hint {
            topic: label.topic,
            partition: label.partition,
            node: leader.leader_id.0,
            epoch: leader.leader_epoch,
            endpoint: endpoint.and_then(|endpoint| {
                let port = u16::try_from(endpoint.port).ok()?;
                Some((endpoint.host.to_string(), port, endpoint.rack.as_ref().map(ToString::to_string)))
            }),
        }
    });
    let errors = partition.record_errors.iter();
    Some(Reply {
        error: ErrorCode::from(partition.error_code),
        base_offset: partition.base_offset,
        append_time: partition.log_append_time_ms,
        message: partition.error_message.as_ref().map(ToString::to_string),
        record_errors: errors
            .map(|one| (one.batch_index, one.batch_index_error_message.as_ref().map(ToString::to_string)))
            .collect(),
        hint,
    })
}
