//! What one request asks of a session, and the message it becomes once the version is known.
//!
//! A plan is a value: it can be turned into a request more than once, and knows nothing of answers. Which session
//! and epoch it belongs to was decided by the session that built it.

use std::ops::RangeInclusive;

use kafka_meta::TopicName;
use kafka_meta::wire::fetch::{MAX_VERSION, MIN_VERSION};
use kafka_meta::wire::protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_meta::wire::protocol::messages::{FetchRequest, TopicName as WireName};
use kafka_meta::wire::protocol::protocol::StrBytes;
use uuid::Uuid;

/// The epoch of a full request that opens a session.
const OPEN: i32 = 0;
/// The epoch of a full request that closes one.
pub(super) const CLOSE: i32 = -1;

/// First version with sessions.
const SESSIONS: i16 = 7;
/// Last version that names topics; later ones know ids only.
const LAST_BY_NAME: i16 = 12;

/// A partition to be fetched: everything a broker's session keeps of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Want {
    /// The topic.
    pub(crate) topic: TopicName,
    /// The topic's id; nil when it is not known, which keeps the whole session to names.
    pub(crate) topic_id: Uuid,
    /// The partition's index.
    pub(crate) partition: i32,
    /// The offset to read from.
    pub(crate) offset: i64,
    /// The epoch the leader is believed to lead in.
    pub(crate) leader_epoch: Option<i32>,
    /// The epoch of the last record read, which lets the broker tell where the log has parted since.
    pub(crate) last_fetched_epoch: Option<i32>,
    /// At most this many bytes, the first batch apart.
    pub(crate) max_bytes: i32,
}

/// A partition the broker's session is to drop.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Forget {
    /// The topic.
    pub(crate) topic: TopicName,
    /// The id it is held under.
    pub(crate) topic_id: Uuid,
    /// The partition's index.
    pub(crate) partition: i32,
    /// The same name is sent under its new id. By name the two are one entry, and a broker forgets after it adds:
    /// it must not be told to forget it.
    replaced: bool,
}

impl Forget {
    pub(super) fn dropped(want: &Want) -> Self {
        Forget { topic: want.topic, topic_id: want.topic_id, partition: want.partition, replaced: false }
    }

    pub(super) fn replaced(want: &Want) -> Self {
        Forget { replaced: true, ..Forget::dropped(want) }
    }
}

/// What the consumer says in every request, whatever it fetches.
#[derive(Clone, Debug)]
pub(crate) struct FetchSettings {
    /// How long the broker may wait for `min_bytes`.
    pub(crate) max_wait_ms: i32,
    /// How many bytes end the wait.
    pub(crate) min_bytes: i32,
    /// At most this many bytes for all partitions, the first batch apart.
    pub(crate) max_bytes: i32,
    /// Leave out what transactions have not decided, and name the aborted ones.
    pub(crate) committed_only: bool,
    /// The consumer's rack; empty for none.
    pub(crate) rack: String,
}

/// One request of a session.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The session's id; 0 opens one.
    pub(crate) session_id: i32,
    /// The session's epoch: 0 opens one anew, -1 closes it.
    pub(crate) epoch: i32,
    /// Whether every topic has an id. If not, names have to do, which version 12 is the last to know.
    pub(crate) by_id: bool,
    /// What the broker is to add to the session or to change in it; in a full plan, all of it.
    pub(crate) send: Vec<Want>,
    /// What the broker is to drop from the session.
    pub(crate) forget: Vec<Forget>,
    pub(super) ticket: u64,
}

impl Plan {
    /// Whether `send` is all there is, and nothing of an earlier session counts.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.epoch, OPEN | CLOSE)
    }

    /// The versions this plan can be said in.
    pub(crate) fn versions(&self) -> RangeInclusive<i16> {
        MIN_VERSION..=if self.by_id { MAX_VERSION } else { LAST_BY_NAME }
    }

    /// The message of `version`, which has to be one of [`versions`](Self::versions). Below version 7 there are no
    /// sessions: the full list goes out each time, because no answer ever names one.
    pub(crate) fn request(&self, version: i16, settings: &FetchSettings) -> FetchRequest {
        let mut request = FetchRequest::default()
            .with_max_wait_ms(settings.max_wait_ms)
            .with_min_bytes(settings.min_bytes)
            .with_max_bytes(settings.max_bytes)
            .with_isolation_level(i8::from(settings.committed_only))
            .with_topics(self.topics(version));
        if version >= SESSIONS {
            request.session_id = self.session_id;
            request.session_epoch = self.epoch;
            request.forgotten_topics_data = self.forgotten(version);
        }
        if version >= 11 {
            request.rack_id = StrBytes::from_string(settings.rack.clone());
        }
        request
    }

    /// Neighbours of one topic share an entry; the order stays as wanted, so a topic may come more than once.
    fn topics(&self, version: i16) -> Vec<FetchTopic> {
        self.send
            .chunk_by(|a, b| a.topic == b.topic && a.topic_id == b.topic_id)
            .map(|wants| {
                let partitions = wants.iter().map(|want| partition(want, version)).collect();
                let topic = FetchTopic::default().with_partitions(partitions);
                match wants.first() {
                    Some(want) if version > LAST_BY_NAME => topic.with_topic_id(want.topic_id),
                    Some(want) => topic.with_topic(name(want.topic)),
                    None => topic,
                }
            })
            .collect()
    }

    fn forgotten(&self, version: i16) -> Vec<ForgottenTopic> {
        let by_name = version <= LAST_BY_NAME;
        let forgets: Vec<&Forget> =
            self.forget.iter().filter(|forget| !(by_name && forget.replaced)).collect();
        forgets
            .chunk_by(|a, b| a.topic == b.topic && a.topic_id == b.topic_id)
            .map(|forgets| {
                let partitions = forgets.iter().map(|forget| forget.partition).collect();
                let topic = ForgottenTopic::default().with_partitions(partitions);
                match forgets.first() {
                    Some(forget) if by_name => topic.with_topic(name(forget.topic)),
                    Some(forget) => topic.with_topic_id(forget.topic_id),
                    None => topic,
                }
            })
            .collect()
    }
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

fn name(topic: TopicName) -> WireName {
    WireName(StrBytes::from_static_str(topic.as_str()))
}
