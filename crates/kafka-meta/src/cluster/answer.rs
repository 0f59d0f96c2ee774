//! A metadata answer in this crate's own words, whatever its version.
//!
//! What it is not: merged. Epochs of brokers that cannot be trusted with them are already gone (-1 and anything
//! below Metadata version 9, where a broker may answer an epoch of its own invention).

use std::collections::BTreeMap;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use uuid::Uuid;

use super::snapshot::{Broker, Partition, Topic};
use crate::wire::topic_name;
use crate::{ErrorCode, TopicName};

/// From this version on, the leader epochs in the answer are the controller's.
const RELIABLE_EPOCHS: i16 = 9;

/// From this version on, topics can be asked about by id.
pub(crate) const BY_ID: i16 = 12;

/// From here on a request can say that no topic is to be created by asking about it.
pub(crate) const FROM: i16 = 4;

/// A request about topics known by name, or about every topic.
pub(crate) fn request<'a>(topics: Option<impl IntoIterator<Item = &'a TopicName>>) -> MetadataRequest {
    let topics = topics.map(|topics| {
        let named = topics
            .into_iter()
            .map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(*topic))));
        named.collect()
    });
    MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false)
}

/// A request about topics known by id.
pub(crate) fn request_by_id(ids: &[Uuid]) -> MetadataRequest {
    let topics = ids.iter().map(|id| MetadataRequestTopic::default().with_topic_id(*id).with_name(None));
    MetadataRequest::default().with_topics(Some(topics.collect())).with_allow_auto_topic_creation(false)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The whole answer's error (version 13).
    pub(crate) error: ErrorCode,
    pub(crate) cluster_id: Option<String>,
    pub(crate) controller: Option<i32>,
    pub(crate) brokers: BTreeMap<i32, Broker>,
    pub(crate) topics: Vec<Topic>,
}

impl Answer {
    pub(crate) fn read(version: i16, response: MetadataResponse) -> Answer {
        let brokers = response.brokers.into_iter().filter_map(|broker| {
            let id = broker.node_id.0;
            // A port outside 16 bits cannot be connected to; as good as absent.
            let port = u16::try_from(broker.port).ok()?;
            let rack = broker.rack.map(|rack| rack.to_string()).filter(|rack| !rack.is_empty());
            Some((id, Broker { id, host: broker.host.to_string(), port, rack }))
        });
        Answer {
            error: ErrorCode::from(response.error_code),
            cluster_id: response.cluster_id.map(|id| id.to_string()),
            controller: known(response.controller_id.0),
            brokers: brokers.collect(),
            topics: response.topics.into_iter().filter_map(|topic| read_topic(version, topic)).collect(),
        }
    }
}

fn known(id: i32) -> Option<i32> {
    (id >= 0).then_some(id)
}

fn read_topic(version: i16, topic: MetadataResponseTopic) -> Option<Topic> {
    // Null in answers about an id no topic has.
    let name = TopicName::new(topic.name?.as_str());
    let mut partitions: Vec<_> =
        topic.partitions.into_iter().map(|partition| read_partition(version, partition)).collect();
    partitions.sort_by_key(|partition| partition.index);
    partitions.dedup_by_key(|partition| partition.index);
    Some(Topic {
        name,
        id: topic.topic_id,
        internal: topic.is_internal,
        error: ErrorCode::from(topic.error_code),
        partitions,
    })
}

fn read_partition(version: i16, partition: MetadataResponsePartition) -> Partition {
    let ids = |ids: Vec<kafka_protocol::messages::BrokerId>| ids.into_iter().map(|id| id.0).collect();
    Partition {
        index: partition.partition_index,
        leader: known(partition.leader_id.0),
        leader_epoch: known(partition.leader_epoch).filter(|_| version >= RELIABLE_EPOCHS),
        replicas: ids(partition.replica_nodes),
        isr: ids(partition.isr_nodes),
        offline: ids(partition.offline_replicas),
        error: ErrorCode::from(partition.error_code),
    }
}
