//! A broker's side of fetch sessions, written from what real brokers were seen to do and sharing no code with the
//! client's side.
//!
//! It also is the judge of manners: what a real broker puts up with silently but a client should not do (forgetting
//! what is not there, saying again what has not changed, the sentinel (0, -1)) goes into `complaints`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kafka_meta::wire::protocol::messages::fetch_request::FetchPartition;
use kafka_meta::wire::protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_meta::wire::protocol::messages::{FetchRequest, FetchResponse, TopicName};
use kafka_meta::wire::protocol::protocol::StrBytes;
use uuid::Uuid;

/// A topic as a request names it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Named {
    Name(String),
    Id(Uuid),
}

#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) id: Uuid,
    /// End offset of each partition.
    pub(super) ends: Vec<i64>,
}

/// A partition in a session.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    pub(super) topic: Named,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) last_fetched_epoch: i32,
    pub(super) max_bytes: i32,
    /// The topic its id stood for when it was added: later the id may stand for nothing, or for another.
    resolved: Option<String>,
    /// The high watermark last told; none for what was never answered.
    told: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    /// The epoch the next request must have.
    pub(super) epoch: i32,
    pub(super) by_id: bool,
    pub(super) parts: Vec<Cached>,
}

#[derive(Debug, Default)]
pub(super) struct Broker {
    pub(super) topics: BTreeMap<String, Topic>,
    pub(super) sessions: BTreeMap<i32, Session>,
    /// No session is given to anybody.
    pub(super) cache_full: bool,
    /// The next answer is throttled.
    pub(super) throttle: bool,
    /// A session whose last partition is forgotten is closed, and the answer says so with session id 0.
    pub(super) closes_empty: bool,
    pub(super) complaints: Vec<String>,
    pub(super) last_id: i32,
}

/// What stands in for records: it shows which topic, partition and offset they were read from.
pub(super) fn records(id: Uuid, partition: i32, offset: i64) -> Bytes {
    Bytes::from(format!("{id} {partition} {offset}"))
}

impl Broker {
    pub(super) fn handle(&mut self, version: i16, request: &FetchRequest) -> FetchResponse {
        if version < 7 {
            return self.sessionless(version, request);
        }
        self.check_manners(version, request);
        let (id, epoch) = (request.session_id, request.session_epoch);
        match epoch {
            -1 => {
                if id == 0 {
                    self.complain("the sentinel (0, -1) was sent");
                }
                self.sessions.remove(&id);
                self.sessionless(version, request)
            }
            0 => {
                self.sessions.remove(&id);
                self.open(version, request)
            }
            _ => self.go_on(version, request),
        }
    }

    fn complain(&mut self, what: impl Into<String>) {
        self.complaints.push(what.into());
    }

    fn check_manners(&mut self, version: i16, request: &FetchRequest) {
        let full = matches!(request.session_epoch, -1 | 0);
        if request.session_epoch < -1 {
            self.complain(format!("epoch {}", request.session_epoch));
        }
        if full && !request.forgotten_topics_data.is_empty() {
            self.complain("a full request forgets");
        }
        let mut sent = BTreeSet::new();
        for topic in &request.topics {
            if version >= 13 && topic.topic_id.is_nil() {
                self.complain("a nil topic id was sent");
            }
            for partition in &topic.partitions {
                if !sent.insert((named(version, &topic.topic, topic.topic_id), partition.partition)) {
                    self.complain("a partition was sent twice");
                }
            }
        }
        for (topic, partition) in forgotten(version, request) {
            if sent.contains(&(topic, partition)) {
                self.complain("a partition was sent and forgotten in one request");
            }
        }
    }

    fn open(&mut self, version: i16, request: &FetchRequest) -> FetchResponse {
        if self.throttle {
            return FetchResponse::default().with_throttle_time_ms(900);
        }
        let mut response = self.sessionless(version, request);
        if self.cache_full {
            return response;
        }
        let mut parts = self.cached(version, request);
        for part in &mut parts {
            part.told = Some(self.read(version, part).0.high_watermark);
        }
        self.last_id += 1;
        self.sessions.insert(self.last_id, Session { epoch: 1, by_id: version >= 13, parts });
        response.session_id = self.last_id;
        response
    }

    fn go_on(&mut self, version: i16, request: &FetchRequest) -> FetchResponse {
        let id = request.session_id;
        let Some(mut session) = self.sessions.get(&id).cloned() else {
            return FetchResponse::default().with_error_code(70);
        };
        if session.epoch != request.session_epoch {
            return FetchResponse::default().with_error_code(71);
        }
        if session.by_id != (version >= 13) {
            return FetchResponse::default().with_error_code(106);
        }
        for part in self.cached(version, request) {
            match session.parts.iter_mut().find(|held| same(held, &part)) {
                Some(held) => {
                    // By name a new id is a change that does not show.
                    if version >= 13 && unchanged(held, &part) {
                        self.complain(format!("{part:?} was sent again unchanged"));
                    }
                    *held = Cached { resolved: held.resolved.clone(), told: held.told, ..part };
                }
                None => session.parts.push(part),
            }
        }
        for (topic, partition) in forgotten(version, request) {
            let before = session.parts.len();
            session.parts.retain(|held| !(held.topic == topic && held.partition == partition));
            if session.parts.len() == before {
                self.complain(format!("{topic:?}-{partition} was forgotten but not held"));
            }
        }
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        let mut response = FetchResponse::default().with_session_id(id);
        if session.parts.is_empty() && self.closes_empty {
            self.sessions.remove(&id);
            return response.with_session_id(0);
        }
        if self.throttle {
            response.throttle_time_ms = 900;
        } else {
            for part in &mut session.parts {
                let (data, _) = self.read(version, part);
                if data.error_code != 0
                    || data.records.as_ref().is_some_and(|records| !records.is_empty())
                    || part.told != Some(data.high_watermark)
                {
                    part.told = Some(data.high_watermark);
                    response.responses.push(entry(version, &part.topic, data));
                }
            }
        }
        self.sessions.insert(id, session);
        response
    }

    fn sessionless(&mut self, version: i16, request: &FetchRequest) -> FetchResponse {
        let parts = self.cached(version, request);
        let responses =
            parts.iter().map(|part| entry(version, &part.topic, self.read(version, part).0)).collect();
        FetchResponse::default().with_responses(responses)
    }

    fn cached(&self, version: i16, request: &FetchRequest) -> Vec<Cached> {
        let mut parts = Vec::new();
        for topic in &request.topics {
            let named = named(version, &topic.topic, topic.topic_id);
            let resolved = match &named {
                Named::Name(name) => Some(name.clone()),
                Named::Id(id) => {
                    self.topics.iter().find(|(_, topic)| topic.id == *id).map(|(name, _)| name.clone())
                }
            };
            parts.extend(topic.partitions.iter().map(|part| cached(&named, resolved.clone(), part)));
        }
        parts
    }

    /// The partition as it is now, and the id its records come from.
    fn read(&self, version: i16, part: &Cached) -> (PartitionData, Uuid) {
        let mut data = PartitionData::default()
            .with_partition_index(part.partition)
            .with_high_watermark(-1)
            .with_last_stable_offset(-1)
            .with_records(Some(Bytes::new()));
        let topic = part.resolved.as_ref().and_then(|name| self.topics.get(name));
        let error = match (&part.topic, topic) {
            (Named::Id(_), _) if part.resolved.is_none() => 100,
            (_, None) => 3,
            (Named::Id(id), Some(topic)) if topic.id != *id => 103,
            (_, Some(topic)) => match topic.ends.get(part.partition as usize) {
                None => 3,
                Some(&end) if part.offset > end || part.offset < 0 => 1,
                Some(&end) => {
                    data.high_watermark = end;
                    data.last_stable_offset = end;
                    if version >= 5 {
                        data.log_start_offset = 0;
                    }
                    if end > part.offset {
                        data.records = Some(records(topic.id, part.partition, part.offset));
                    }
                    0
                }
            },
        };
        (data.with_error_code(error), topic.map(|topic| topic.id).unwrap_or_default())
    }
}

fn named(version: i16, name: &TopicName, id: Uuid) -> Named {
    if version >= 13 { Named::Id(id) } else { Named::Name(name.to_string()) }
}

fn forgotten(version: i16, request: &FetchRequest) -> Vec<(Named, i32)> {
    let topics = request.forgotten_topics_data.iter();
    topics
        .flat_map(|topic| {
            let named = named(version, &topic.topic, topic.topic_id);
            topic.partitions.iter().map(move |&partition| (named.clone(), partition))
        })
        .collect()
}

fn cached(topic: &Named, resolved: Option<String>, part: &FetchPartition) -> Cached {
    Cached {
        topic: topic.clone(),
        partition: part.partition,
        offset: part.fetch_offset,
        leader_epoch: part.current_leader_epoch,
        last_fetched_epoch: part.last_fetched_epoch,
        max_bytes: part.partition_max_bytes,
        resolved,
        told: None,
    }
}

fn same(a: &Cached, b: &Cached) -> bool {
    a.topic == b.topic && a.partition == b.partition
}

fn unchanged(a: &Cached, b: &Cached) -> bool {
    (a.offset, a.leader_epoch, a.last_fetched_epoch, a.max_bytes)
        == (b.offset, b.leader_epoch, b.last_fetched_epoch, b.max_bytes)
}

/// One entry a partition: real brokers group neighbours, readers must not care.
fn entry(version: i16, topic: &Named, data: PartitionData) -> FetchableTopicResponse {
    let entry = FetchableTopicResponse::default().with_partitions(vec![data]);
    match topic {
        Named::Name(name) if version < 13 => entry.with_topic(TopicName(StrBytes::from_string(name.clone()))),
        Named::Id(id) => entry.with_topic_id(*id),
        Named::Name(name) => panic!("{name} in version {version}"),
    }
}
