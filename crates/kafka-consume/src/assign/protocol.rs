//! The two formats members exchange through the broker: what a member tells the leader (subscription) and what the
//! leader tells it (assignment). A version, then one of Kafka's own schemas.
//!
//! The broker passes these bytes on unread, so they are another client's word: they are read through
//! [`kafka_meta::wire::guard`], which holds every count against the bytes that are left. Version 3 is written.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_meta::wire::guard;
use kafka_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, consumer_protocol_assignment,
    consumer_protocol_subscription,
};
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::{Decoded, java, malformed};

/// The version Java writes.
pub(crate) const VERSION: i16 = guard::CONSUMER_PROTOCOL;

/// What a member wants and owns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub topics: Vec<String>,
    pub user_data: Option<Bytes>,
    pub owned: Vec<(String, i32)>,
    /// The generation `owned` comes from. A negative one on the wire is none.
    pub generation: Option<i32>,
    /// An empty one on the wire is none.
    pub rack: Option<String>,
}

impl Subscription {
    /// The bytes for JoinGroup.
    pub(crate) fn encode(&self) -> Decoded<Bytes> {
        self.encode_as(VERSION)
    }

    pub(super) fn encode_as(&self, version: i16) -> Decoded<Bytes> {
        let mut topics = self.topics.clone();
        topics.sort_by(|a, b| java::compare(a, b));
        let mut owned: Vec<&(String, i32)> = self.owned.iter().collect();
        owned.sort_by(|a, b| java::compare(&a.0, &b.0).then(a.1.cmp(&b.1)));
        let mut groups: Vec<(&str, Vec<i32>)> = Vec::new();
        for (topic, partition) in owned {
            match groups.last_mut() {
                Some((last, partitions)) if *last == topic => partitions.push(*partition),
                _ => groups.push((topic, vec![*partition])),
            }
        }
        let owned = groups.into_iter().map(|(topic, partitions)| {
            consumer_protocol_subscription::TopicPartition::default()
                .with_topic(StrBytes::from_string(topic.to_owned()).into())
                .with_partitions(partitions)
        });
        let message = ConsumerProtocolSubscription::default()
            .with_topics(topics.into_iter().map(StrBytes::from_string).collect())
            .with_user_data(self.user_data.clone())
            .with_owned_partitions(owned.collect())
            .with_generation_id(self.generation.unwrap_or(-1))
            .with_rack_id(self.rack.clone().map(StrBytes::from_string));
        encode(&message, version, "writing a subscription")
    }

    /// Reads what a member wrote.
    pub(crate) fn decode(bytes: &Bytes) -> Decoded<Self> {
        let message = guard::subscription(bytes)?;
        let mut owned = Vec::new();
        for group in message.owned_partitions {
            owned.extend(group.partitions.into_iter().map(|index| (group.topic.to_string(), index)));
        }
        Ok(Self {
            topics: message.topics.iter().map(ToString::to_string).collect(),
            user_data: message.user_data.map(detached),
            owned,
            generation: Some(message.generation_id).filter(|generation| *generation >= 0),
            rack: message.rack_id.filter(|rack| !rack.is_empty()).map(|rack| rack.to_string()),
        })
    }
}

/// What a member is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub partitions: Vec<(String, i32)>,
    pub user_data: Option<Bytes>,
}

impl Assignment {
    /// The bytes for SyncGroup.
    pub(crate) fn encode(&self) -> Decoded<Bytes> {
        self.encode_as(VERSION)
    }

    pub(super) fn encode_as(&self, version: i16) -> Decoded<Bytes> {
        let mut places = std::collections::HashMap::new();
        let mut groups: Vec<(&str, Vec<i32>)> = Vec::new();
        for (topic, partition) in &self.partitions {
            let place = *places.entry(topic.as_str()).or_insert(groups.len());
            match groups.get_mut(place) {
                Some((_, partitions)) => partitions.push(*partition),
                None => groups.push((topic, vec![*partition])),
            }
        }
        let groups = groups.into_iter().map(|(topic, partitions)| {
            consumer_protocol_assignment::TopicPartition::default()
                .with_topic(StrBytes::from_string(topic.to_owned()).into())
                .with_partitions(partitions)
        });
        let message = ConsumerProtocolAssignment::default()
            .with_assigned_partitions(groups.collect())
            .with_user_data(self.user_data.clone());
        encode(&message, version, "writing an assignment")
    }

    /// Reads what the leader, or a broker in its place, wrote.
    pub(crate) fn decode(bytes: &Bytes) -> Decoded<Self> {
        let message = guard::assignment(bytes)?;
        let mut partitions = Vec::new();
        for group in message.assigned_partitions {
            partitions.extend(group.partitions.into_iter().map(|index| (group.topic.to_string(), index)));
        }
        Ok(Self { partitions, user_data: message.user_data.map(detached) })
    }
}

fn encode<M: Encodable>(message: &M, version: i16, operation: &'static str) -> Decoded<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(version);
    message
        .encode(&mut bytes, version)
        .map_err(|source| malformed(operation, "does not fit its schema").with_source(source))?;
    Ok(bytes.freeze())
}

/// User data is kept with the member; it must not pin the whole answer it came in.
fn detached(bytes: Bytes) -> Bytes {
    Bytes::copy_from_slice(&bytes)
}
