//! What a Fetch request says, whoever sends it: a consumer in a session, or a reader without one.
//!
//! [`request`] is the whole request of a reader that holds no session: session id 0 and epoch −1, "none at all".
//! Nothing of it stays at the broker. A session fills its own numbers in and sends less. What this is not: it
//! chooses no partitions, sends nothing and knows nothing of answers.

use std::ops::RangeInclusive;

use kafka_meta::TopicName;
use kafka_meta::wire::fetch::{MAX_VERSION, MIN_VERSION};
use kafka_meta::wire::protocol::messages::FetchRequest;
use kafka_meta::wire::protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_meta::wire::protocol::protocol::StrBytes;
use kafka_meta::wire::topic_name;
use uuid::Uuid;

/// First version with sessions.
pub const SESSIONS: i16 = 7;
/// Last version that names topics; later ones know ids only.
pub const LAST_BY_NAME: i16 = 12;

/// A partition to be fetched: everything a broker's session keeps of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Want {
    /// The topic.
    pub topic: TopicName,
    /// The topic's id; nil when it is not known, which keeps the whole request to names.
    pub topic_id: Uuid,
    /// The partition's index.
    pub partition: i32,
    /// The offset to read from.
    pub offset: i64,
    /// The epoch the leader is believed to lead in.
    pub leader_epoch: Option<i32>,
    /// The epoch of the last record read, which lets the broker tell where the log has parted since.
    pub last_fetched_epoch: Option<i32>,
    /// At most this many bytes, the first batch apart.
    pub max_bytes: i32,
}

/// What the reader says in every request, whatever it fetches.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// How long the broker may wait for `min_bytes`.
    pub max_wait_ms: i32,
    /// How many bytes end the wait.
    pub min_bytes: i32,
    /// At most this many bytes for all partitions, the first batch apart.
    pub max_bytes: i32,
    /// Leave out what transactions have not decided, and name the aborted ones.
    pub committed_only: bool,
    /// The reader's rack; empty for none.
    pub rack: String,
}

/// The versions a request can be said in: without an id for every topic names have to do.
pub fn versions(by_id: bool) -> RangeInclusive<i16> {
    MIN_VERSION..=if by_id { MAX_VERSION } else { LAST_BY_NAME }
}

/// The request of `version` for `wants` in their order, outside any session.
pub fn request(version: i16, wants: &[Want], settings: &FetchSettings) -> FetchRequest {
    let request = FetchRequest::default()
        .with_max_wait_ms(settings.max_wait_ms)
        .with_min_bytes(settings.min_bytes)
        .with_max_bytes(settings.max_bytes)
        .with_isolation_level(i8::from(settings.committed_only))
        // The codec's defaults are the same; here they are the point.
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(topics(version, wants));
    if version >= 11 { request.with_rack_id(StrBytes::from_string(settings.rack.clone())) } else { request }
}

/// Neighbours of one topic share an entry; the order stays as wanted, so a topic may come more than once.
fn topics(version: i16, wants: &[Want]) -> Vec<FetchTopic> {
    wants
        .chunk_by(|a, b| a.topic == b.topic && a.topic_id == b.topic_id)
        .map(|wants| {
            let partitions = wants.iter().map(|want| partition(want, version)).collect();
            let topic = FetchTopic::default().with_partitions(partitions);
            match wants.first() {
                Some(want) if version > LAST_BY_NAME => topic.with_topic_id(want.topic_id),
                Some(want) => topic.with_topic(topic_name(want.topic)),
                None => topic,
            }
        })
        .collect()
}

fn partition(want: &Want, version: i16) -> FetchPartition {
    let mut partition = FetchPartition::default()
        .with_partition(want.partition)
        .with_fetch_offset(want.offset)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(want.max_bytes);
    if version >= 9 {
        partition.current_leader_epoch = want.leader_epoch.unwrap_or(-1);
    }
    if version >= 12 {
        partition.last_fetched_epoch = want.last_fetched_epoch.unwrap_or(-1);
    }
    partition
}
