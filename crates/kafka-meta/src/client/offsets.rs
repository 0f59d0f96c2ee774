//! Asking one broker for offsets: the ends of a log, and where a timestamp falls in it (ListOffsets).
//!
//! One request, one answer. What this is not: it knows no leader, asks nothing again and moves no position; who
//! does stands above it (`kafka_read::lookup`, `kafka_admin`).
//!
//! Invariants
//! - An answer of "no such offset" (−1, or 43 from a log too old for timestamps) is `None`, never an offset.
//! - The sentinels are sent only in versions that know them: 3.7.0 takes an unknown one for a plain timestamp and
//!   answers the first record. A negative timestamp is refused here for the same reason.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest};
use tokio::time::Instant;

use crate::client::{To, Via};
use crate::wire::topic_name;
use crate::{Cluster, Error, ErrorCode, ErrorKind, Result, TopicName};

/// What errors name.
pub const OPERATION: &str = "look up offsets";

/// The last version the codec can write.
const NEWEST: i16 = 10;
const ISOLATION_FROM: i16 = 2;
const MAX_TIMESTAMP_FROM: i16 = 7;

/// Which offset of a partition is wanted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// The first one still in the log.
    Earliest,
    /// The one the next record will get; where only committed records count the last stable offset.
    Latest,
    /// The first record, in log order, whose timestamp is not older than this (milliseconds since the epoch).
    Timestamp(i64),
    /// The first record that has the largest timestamp of the log.
    MaxTimestamp,
}

impl Target {
    /// The number that stands for it on the wire; `None` for a negative timestamp.
    pub fn wire(self) -> Option<i64> {
        match self {
            Target::Earliest => Some(-2),
            Target::Latest => Some(-1),
            Target::Timestamp(millis) => (millis >= 0).then_some(millis),
            Target::MaxTimestamp => Some(-3),
        }
    }
}

/// One partition's question to its leader.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ask {
    /// Topic.
    pub topic: TopicName,
    /// Partition.
    pub partition: i32,
    /// The leader's epoch as we know it; a leader of another epoch refuses instead of answering for a log we do
    /// not mean.
    pub leader_epoch: Option<i32>,
    /// What is wanted.
    pub target: Target,
}

/// An offset that was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Found {
    /// The offset.
    pub offset: i64,
    /// Timestamp of the record there; −1 where none was asked for.
    pub timestamp: i64,
    /// Leader epoch of the record there, where the broker tells it.
    pub leader_epoch: Option<i32>,
}

/// One partition's answer: an offset, `None` where there is no such offset, or the broker's error code.
pub type Answer = std::result::Result<Option<Found>, ErrorCode>;

/// Sends one ListOffsets request. The result has one entry per ask, in their order; a partition the broker left
/// out has `UNKNOWN_SERVER_ERROR`. No partition may be asked about twice.
///
/// Dropping the future abandons the wait.
///
/// # Errors
///
/// `UnsupportedApi` where the node is too old for a target or for `committed_only`, `InvalidRequest` for a
/// negative timestamp, and whatever prevents an answer.
pub async fn ask(
    cluster: &Cluster,
    via: &Via,
    to: To,
    committed_only: bool,
    asks: Vec<Ask>,
    deadline: Instant,
) -> Result<Vec<(TopicName, i32, Answer)>> {
    let versions = versions(committed_only, &asks);
    let topics = topics(&asks)?;
    let build = |version: i16| {
        // The broker may hold the request for tiered storage; it must not hold it for longer than we wait.
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let request = ListOffsetsRequest::default()
            // The codec's default is a broker's id.
            .with_replica_id(BrokerId(-1))
            .with_topics(topics)
            .with_timeout_ms(i32::try_from(left).unwrap_or(i32::MAX).max(1));
        Ok(match committed_only {
            true if version >= ISOLATION_FROM => request.with_isolation_level(1),
            _ => request,
        })
    };
    let (_, answer) = cluster.call_with(to, via, deadline, versions, build).await?;
    let mut answers = HashMap::new();
    for topic in &answer.topics {
        for part in &topic.partitions {
            let answer = match ErrorCode::from(part.error_code) {
                ErrorCode::NONE if part.offset < 0 => Ok(None),
                ErrorCode::NONE => Ok(Some(Found {
                    offset: part.offset,
                    timestamp: part.timestamp,
                    leader_epoch: Some(part.leader_epoch).filter(|epoch| *epoch >= 0),
                })),
                ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT => Ok(None),
                code => Err(code),
            };
            answers.insert((topic.name.as_str(), part.partition_index), answer);
        }
    }
    let results = asks.into_iter().map(|ask| {
        let answer = answers.remove(&(ask.topic.as_str(), ask.partition));
        let answer = answer.unwrap_or(Err(ErrorCode::UNKNOWN_SERVER_ERROR));
        if let Ok(Some(Found { leader_epoch: Some(epoch), .. })) = answer {
            cluster.epoch_seen(ask.topic, ask.partition, epoch);
        }
        (ask.topic, ask.partition, answer)
    });
    Ok(results.collect())
}

fn versions(committed_only: bool, asks: &[Ask]) -> RangeInclusive<i16> {
    let oldest = if asks.iter().any(|ask| ask.target == Target::MaxTimestamp) {
        MAX_TIMESTAMP_FROM
    } else if committed_only {
        ISOLATION_FROM
    } else {
        1
    };
    oldest..=NEWEST
}

fn topics(asks: &[Ask]) -> Result<Vec<ListOffsetsTopic>> {
    let mut topics: Vec<ListOffsetsTopic> = Vec::new();
    let mut places: HashMap<TopicName, usize> = HashMap::new();
    for ask in asks {
        let timestamp = ask.target.wire().ok_or_else(|| negative(ask.topic, ask.partition))?;
        let partition = ListOffsetsPartition::default()
            .with_partition_index(ask.partition)
            .with_current_leader_epoch(ask.leader_epoch.unwrap_or(-1))
            .with_timestamp(timestamp);
        let place = *places.entry(ask.topic).or_insert_with(|| {
            let name = topic_name(ask.topic);
            topics.push(ListOffsetsTopic::default().with_name(name));
            topics.len() - 1
        });
        if let Some(topic) = topics.get_mut(place) {
            topic.partitions.push(partition);
        }
    }
    Ok(topics)
}

/// The refusal of a negative timestamp.
pub fn negative(topic: TopicName, partition: i32) -> Error {
    Error::new(ErrorKind::InvalidRequest, OPERATION)
        .with_partition(topic, partition)
        .with_detail("the timestamp is negative")
}

#[cfg(test)]
mod tests;
