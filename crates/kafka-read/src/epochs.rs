//! Where a leader epoch ends in a log (OffsetForLeaderEpoch): how a reader notices that the log was cut.
//!
//! What this is not: it judges no position; the caller compares.

use std::collections::HashMap;

use kafka_meta::client::{To, Via};
use kafka_meta::wire::protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_meta::wire::protocol::messages::{BrokerId, OffsetForLeaderEpochRequest};
use kafka_meta::wire::topic_name;
use kafka_meta::{Cluster, ErrorCode, Result, TopicName};
use tokio::time::Instant;

pub use kafka_meta::wire::fetch::EpochEnd;

/// Below 3 only brokers may ask.
const VERSIONS: std::ops::RangeInclusive<i16> = 3..=4;

/// One partition's question to its leader.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AskEpoch {
    /// Topic.
    pub topic: TopicName,
    /// Partition.
    pub partition: i32,
    /// The leader's epoch as we know it.
    pub current_leader_epoch: Option<i32>,
    /// The epoch of the last record read.
    pub leader_epoch: i32,
}

/// One partition's answer. Epoch and end are −1 where the leader knows no such epoch: not an error, and no
/// offset.
pub type Answer = std::result::Result<EpochEnd, ErrorCode>;

/// Sends one OffsetForLeaderEpoch request. The result has one entry per ask, in their order; a partition the
/// broker left out has `UNKNOWN_SERVER_ERROR`.
///
/// Dropping the future abandons the wait.
///
/// # Errors
///
/// `UnsupportedApi` where the node serves no version a client may send, and whatever prevents an answer.
pub async fn ask_epochs(
    cluster: &Cluster,
    via: &Via,
    node: i32,
    asks: Vec<AskEpoch>,
    deadline: Instant,
) -> Result<Vec<(TopicName, i32, Answer)>> {
    let topics = topics(&asks);
    let build = |_version| {
        let request = OffsetForLeaderEpochRequest::default();
        Ok(request.with_replica_id(BrokerId(-1)).with_topics(topics))
    };
    let (_, answer) = cluster.call_with(To::Node(node), via, deadline, VERSIONS, build).await?;
    let mut answers = HashMap::new();
    for topic in &answer.topics {
        for part in &topic.partitions {
            let code = ErrorCode::from(part.error_code);
            let end = EpochEnd { epoch: part.leader_epoch, end_offset: part.end_offset };
            answers.insert((topic.topic.as_str(), part.partition), code.check().map(|()| end));
        }
    }
    let results = asks.into_iter().map(|ask| {
        let answer = answers.remove(&(ask.topic.as_str(), ask.partition));
        (ask.topic, ask.partition, answer.unwrap_or(Err(ErrorCode::UNKNOWN_SERVER_ERROR)))
    });
    Ok(results.collect())
}

fn topics(asks: &[AskEpoch]) -> Vec<OffsetForLeaderTopic> {
    let mut topics: Vec<OffsetForLeaderTopic> = Vec::new();
    let mut places: HashMap<TopicName, usize> = HashMap::new();
    for ask in asks {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(ask.partition)
            .with_current_leader_epoch(ask.current_leader_epoch.unwrap_or(-1))
            .with_leader_epoch(ask.leader_epoch);
        let place = *places.entry(ask.topic).or_insert_with(|| {
            topics.push(OffsetForLeaderTopic::default().with_topic(topic_name(ask.topic)));
            topics.len() - 1
        });
        if let Some(topic) = topics.get_mut(place) {
            topic.partitions.push(partition);
        }
    }
    topics
}
