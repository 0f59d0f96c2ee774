//! What went over the wire: one entry per request, with its body and, once answered, its answer.
//!
//! Bodies are decoded when asked for, not when seen. Invariants: entries are in the order of arrival; small
//! bodies only are kept, so that a log of a long run fits into memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::protocol::{Decodable, Request};
use uuid::Uuid;

/// Larger bodies are not kept.
const LARGEST_KEPT: usize = 256 * 1024;
/// The oldest entries go beyond this.
const MOST_ENTRIES: usize = 500_000;

/// A request that went through the proxy.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its place in the log, from 0.
    pub number: u64,
    /// When it came, since the proxy's start.
    pub at: Duration,
    /// The client connection it came on, from 0.
    pub connection: u64,
    /// The broker it was sent to.
    pub node: i32,
    /// The API's key.
    pub api: i16,
    /// The request's version.
    pub version: i16,
    /// Its correlation id.
    pub correlation: i32,
    /// The client's id.
    pub client_id: Option<String>,
    /// When its answer went to the client, since the proxy's start; `None` if it has not, or was swallowed.
    pub answered: Option<Duration>,
    body: Option<Bytes>,
    answer: Option<Bytes>,
}

impl Seen {
    /// The request, if it is of this kind, was small enough to be kept, and our codec knows its version.
    pub fn request<R: Request>(&self) -> Option<R> {
        let mut body = self.body.clone().filter(|_| self.api == R::KEY)?;
        R::decode(&mut body, self.version).ok()
    }

    /// The answer as the client got it, under the same conditions.
    pub fn answer<R: Request>(&self) -> Option<R::Response> {
        let mut body = self.answer.clone().filter(|_| self.api == R::KEY)?;
        R::Response::decode(&mut body, self.version).ok()
    }

    /// The request's body; `None` if it was too large to be kept.
    pub fn body(&self) -> Option<&Bytes> {
        self.body.as_ref()
    }

    /// For a fetch: session id and epoch.
    pub fn fetch_session(&self) -> Option<(i32, i32)> {
        self.request::<FetchRequest>().map(|request| (request.session_id, request.session_epoch))
    }

    /// For a fetch: the partitions named in it with the offsets asked for.
    pub fn fetched(&self) -> BTreeMap<(TopicRef, i32), i64> {
        let Some(request) = self.request::<FetchRequest>() else { return BTreeMap::new() };
        let mut partitions = BTreeMap::new();
        for topic in &request.topics {
            let name = TopicRef::new(&topic.topic, topic.topic_id);
            for partition in &topic.partitions {
                partitions.insert((name.clone(), partition.partition), partition.fetch_offset);
            }
        }
        partitions
    }

    /// For a fetch: the partitions that leave the session.
    pub fn forgotten(&self) -> Vec<(TopicRef, i32)> {
        let Some(request) = self.request::<FetchRequest>() else { return Vec::new() };
        let topics = request.forgotten_topics_data.iter();
        topics
            .flat_map(|topic| {
                let name = TopicRef::new(&topic.topic, topic.topic_id);
                topic.partitions.iter().map(move |&partition| (name.clone(), partition))
            })
            .collect()
    }
}

/// A topic as a fetch names it: by name up to v12, by id from v13 on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicRef {
    /// By its name.
    Name(String),
    /// By its id.
    Id(Uuid),
}

impl TopicRef {
    pub(super) fn new(name: &kafka_protocol::messages::TopicName, id: Uuid) -> Self {
        if id.is_nil() { Self::Name(name.0.to_string()) } else { Self::Id(id) }
    }
}

/// A request's facts, as they come off the wire.
pub(super) struct Arrived {
    pub(super) connection: u64,
    pub(super) node: i32,
    pub(super) api: i16,
    pub(super) version: i16,
    pub(super) correlation: i32,
    pub(super) client_id: Option<String>,
    pub(super) body: Bytes,
}

pub(super) struct Log {
    started: Instant,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// By their number.
    all: BTreeMap<u64, Seen>,
    next: u64,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arrived(&self, arrived: &Arrived) -> u64 {
        let mut entries = self.entries();
        let number = entries.next;
        entries.next += 1;
        let seen = Seen {
            number,
            at: self.started.elapsed(),
            connection: arrived.connection,
            node: arrived.node,
            api: arrived.api,
            version: arrived.version,
            correlation: arrived.correlation,
            client_id: arrived.client_id.clone(),
            answered: None,
            body: kept(&arrived.body),
            answer: None,
        };
        entries.all.insert(number, seen);
        if entries.all.len() > MOST_ENTRIES {
            entries.all.pop_first();
        }
        number
    }

    pub(super) fn answered(&self, number: u64, body: &Bytes) {
        let at = self.started.elapsed();
        if let Some(seen) = self.entries().all.get_mut(&number) {
            seen.answered = Some(at);
            seen.answer = kept(body);
        }
    }

    pub(super) fn all(&self) -> Vec<Seen> {
        self.entries().all.values().cloned().collect()
    }

    pub(super) fn clear(&self) {
        self.entries().all.clear();
    }

    pub(super) fn count(&self, api: i16) -> usize {
        self.entries().all.values().filter(|seen| seen.api == api).count()
    }
}

fn kept(body: &Bytes) -> Option<Bytes> {
    (body.len() <= LARGEST_KEPT).then(|| body.clone())
}
