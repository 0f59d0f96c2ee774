//! What every reader of partitions has, whoever it is: a consumer in a session, or a reader without one. What a
//! Fetch request says, and what is kept of a partition between two of them. Pure.
//!
//! [`request`] is the whole request of a reader that holds no session: session id 0 and epoch −1, "none at all".
//! Nothing of it stays at the broker. A session fills its own numbers in and sends less. What this is not: it
//! chooses no partitions, sends nothing and knows nothing of answers.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use kafka_meta::client::Backoff;
use kafka_meta::wire::fetch::{MAX_VERSION, MIN_VERSION};
use kafka_meta::wire::protocol::messages::FetchRequest;
use kafka_meta::wire::protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_meta::wire::protocol::protocol::StrBytes;
use kafka_meta::wire::topic_name;
use kafka_meta::{CommittedOffset, TopicName};
use uuid::Uuid;

/// First version with sessions.
pub const SESSIONS: i16 = 7;
/// Last version that names topics; later ones know ids only.
pub const LAST_BY_NAME: i16 = 12;

/// How long the leader is not asked for a redirect after a replica has failed. A leader goes on naming a dead
/// follower until its session ends (9 s by default), and it answers such fetches at once.
pub const SHUN_FOR: Duration = Duration::from_secs(10);
/// How often the same cut head of a batch may come, the last time alone, before it counts as damage.
pub const TAILS: u32 = 3;

/// The next offset to read, and the leader epoch of the batch before it where known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pos {
    /// The offset.
    pub offset: i64,
    /// The epoch.
    pub epoch: Option<i32>,
}

impl Pos {
    /// A plain offset: nothing is known of the record before it.
    pub fn at(offset: i64) -> Self {
        Pos { offset, epoch: None }
    }
}

impl From<Pos> for CommittedOffset {
    fn from(pos: Pos) -> Self {
        CommittedOffset::new(pos.offset).with_leader_epoch(pos.epoch)
    }
}

/// A partition's leader as of the newest metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Leader {
    /// Its node id.
    pub node: i32,
    /// The epoch it leads in, where brokers tell it.
    pub epoch: Option<i32>,
}

/// What the fetch in flight asked for: an answer that does not match is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whom.
    pub node: i32,
    /// Under which ticket of the partition.
    pub ticket: u64,
    /// From where.
    pub offset: i64,
}

/// Doubling delay after faults, without a clock: jitter comes from the caller.
#[derive(Debug)]
pub struct Retry {
    /// When the next attempt is due; at once when there is none.
    pub at: Option<Instant>,
    backoff: Backoff,
}

impl Default for Retry {
    /// Java's `retry.backoff.ms` and `retry.backoff.max.ms`.
    fn default() -> Self {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        Retry { at: None, backoff }
    }
}

impl Retry {
    /// One more failure: the next attempt is due 100 ms to 1 s later, give or take a fifth.
    pub fn fail(&mut self, now: Instant, random: f64) {
        self.at = Some(now + self.backoff.next(random));
    }

    /// The last attempt has succeeded.
    pub fn clear(&mut self) {
        self.at = None;
        self.backoff.reset();
    }

    /// Whether the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.backoff.failures() > 0
    }

    /// Whether the next attempt may be made.
    pub fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| at <= now)
    }
}

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
