//! What one request asks of a session, and the message it becomes once the version is known.
//!
//! A plan is a value: it can be turned into a request more than once, and knows nothing of answers. Which session
//! and epoch it belongs to was decided by the session that built it.

use std::ops::RangeInclusive;

use kafka_meta::TopicName;
use kafka_meta::wire::protocol::messages::FetchRequest;
use kafka_meta::wire::protocol::messages::fetch_request::ForgottenTopic;
use kafka_meta::wire::topic_name;
use kafka_read::fetch::{self, LAST_BY_NAME, SESSIONS};
pub(crate) use kafka_read::fetch::{FetchSettings, Want};
use uuid::Uuid;

/// The epoch of a full request that opens a session.
const OPEN: i32 = 0;
/// The epoch of a full request that closes one.
pub(super) const CLOSE: i32 = -1;

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
        fetch::versions(self.by_id)
    }

    /// The message of `version`, which has to be one of [`versions`](Self::versions). Below version 7 there are no
    /// sessions: the full list goes out each time, because no answer ever names one.
    pub(crate) fn request(&self, version: i16, settings: &FetchSettings) -> FetchRequest {
        let mut request = fetch::request(version, &self.send, settings);
        if version >= SESSIONS {
            request.session_id = self.session_id;
            request.session_epoch = self.epoch;
            request.forgotten_topics_data = self.forgotten(version);
        }
        request
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
                    Some(forget) if by_name => topic.with_topic(topic_name(forget.topic)),
                    Some(forget) => topic.with_topic_id(forget.topic_id),
                    None => topic,
                }
            })
            .collect()
    }
}
