//! The two formats members exchange through the broker: what a member tells the leader (subscription) and what the
//! leader tells it (assignment). A version, then one of Kafka's own schemas.
//!
//! The broker passes these bytes on unread, so they are another client's word: every count is held against the
//! bytes that are left before the codec may reserve for it. Version 3 is written; 0 to 3 are read, newer ones as 3
//! with whatever follows ignored.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, consumer_protocol_assignment,
    consumer_protocol_subscription,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use super::{Decoded, java, malformed};

/// The version Java writes.
pub(crate) const VERSION: i16 = 3;

const READ_SUBSCRIPTION: &str = "reading a subscription";
const READ_ASSIGNMENT: &str = "reading an assignment";

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
        let (version, body) = open(bytes, READ_SUBSCRIPTION)?;
        let mut walk = Walk::new(&body, READ_SUBSCRIPTION);
        walk.strings()?;
        let user_data = walk.bytes()?;
        if version >= 1 {
            walk.topic_partitions()?;
        }
        let mut body = without_odd_null(body, user_data);
        let message = ConsumerProtocolSubscription::decode(&mut body, version)
            .map_err(|source| malformed(READ_SUBSCRIPTION, "does not fit its schema").with_source(source))?;
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
        let (version, body) = open(bytes, READ_ASSIGNMENT)?;
        let mut walk = Walk::new(&body, READ_ASSIGNMENT);
        walk.topic_partitions()?;
        let user_data = walk.bytes()?;
        let mut body = without_odd_null(body, user_data);
        let message = ConsumerProtocolAssignment::decode(&mut body, version)
            .map_err(|source| malformed(READ_ASSIGNMENT, "does not fit its schema").with_source(source))?;
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

/// The version to read by, and the body.
fn open(bytes: &Bytes, operation: &'static str) -> Decoded<(i16, Bytes)> {
    let version = bytes.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
    match version {
        None => Err(malformed(operation, "ends inside its version")),
        Some(version) if version < 0 => Err(malformed(operation, "has a negative version")),
        Some(version) => Ok((version.min(VERSION), bytes.slice(2..))),
    }
}

/// User data is kept with the member; it must not pin the whole answer it came in.
fn detached(bytes: Bytes) -> Bytes {
    Bytes::copy_from_slice(&bytes)
}

/// A length below -1 means null to Java and an error to the codec: such a one, at this place, becomes -1.
fn without_odd_null(body: Bytes, place: Option<usize>) -> Bytes {
    let Some(place) = place else { return body };
    let mut copy = body.to_vec();
    if let Some(length) = copy.get_mut(place..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *length = (-1_i32).to_be_bytes();
    }
    copy.into()
}

/// Walks the bytes without reserving anything.
struct Walk<'a> {
    bytes: &'a [u8],
    position: usize,
    operation: &'static str,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], operation: &'static str) -> Self {
        Self { bytes, position: 0, operation }
    }

    fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    fn skip(&mut self, len: usize) -> Decoded<()> {
        if len > self.left() {
            return Err(malformed(self.operation, "is shorter than a length in it says"));
        }
        self.position += len;
        Ok(())
    }

    fn chunk<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let found = self.bytes.get(self.position..).and_then(|rest| rest.first_chunk().copied());
        let found = found.ok_or_else(|| malformed(self.operation, "ends too early"))?;
        self.position += N;
        Ok(found)
    }

    /// A count of items of at least `least` bytes each.
    fn count(&mut self, least: usize) -> Decoded<usize> {
        let count = i32::from_be_bytes(self.chunk()?);
        usize::try_from(count)
            .ok()
            .filter(|count| count.checked_mul(least).is_some_and(|bytes| bytes <= self.left()))
            .ok_or_else(|| malformed(self.operation, "has a count that its bytes do not bear out"))
    }

    fn string(&mut self) -> Decoded<()> {
        let len = i16::from_be_bytes(self.chunk()?);
        let len = usize::try_from(len).map_err(|_| malformed(self.operation, "has a null topic name"))?;
        self.skip(len)
    }

    fn strings(&mut self) -> Decoded<()> {
        for _ in 0..self.count(2)? {
            self.string()?;
        }
        Ok(())
    }

    fn topic_partitions(&mut self) -> Decoded<()> {
        for _ in 0..self.count(6)? {
            self.string()?;
            let partitions = self.count(4)?;
            self.skip(partitions.saturating_mul(4))?;
        }
        Ok(())
    }

    /// Where the length is if it is one that only Java accepts.
    fn bytes(&mut self) -> Decoded<Option<usize>> {
        let place = self.position;
        let len = i32::from_be_bytes(self.chunk()?);
        match usize::try_from(len) {
            Ok(len) => self.skip(len).map(|()| None),
            Err(_) => Ok((len < -1).then_some(place)),
        }
    }
}
