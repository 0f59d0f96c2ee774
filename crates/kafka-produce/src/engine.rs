//! What is queued, what is in flight, and what each answer means. Pure: time, answers and pictures of the cluster come
//! in, requests and outcomes come out; a seed stands for randomness.
//!
//! What it is not: it packs nothing, asks nobody and wakes nobody. `effects` says what the driver is to do after
//! each step.
//!
//! A record's way: *refused*, or *waiting* for room (`line`, first come first served) or for its topic to be
//! known, then *placed* in an open batch of its partition. A batch's way: *open* (records are added), *queued*
//! (closed, or due), *in flight* under a ticket, then *done*; or back to *queued* in its old place, to be sent again.
//!
//! Invariants:
//! - Batches of a partition leave in the order they were begun. One that is sent again goes alone, before all
//!   that were begun after it.
//! - A partition with batches in flight to one broker sends nothing to another.
//! - With idempotence a batch is sent again under the sequences it had, until an answer proves that it was never
//!   written (`sequence`).
//! - The bytes of every placed record are charged until its outcome is known; the first in line is let in first.
//! - Every record gets one outcome, within the delivery timeout of its batch.
//! - An answer whose ticket is not in flight is dropped.

mod accumulate;
mod answer;
mod drain;
mod orders;
mod pack;
mod partition;
mod picture;
mod split;
mod time;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_meta::{Error, TopicName};
use kafka_read::batch::Codec;
use uuid::Uuid;

pub(crate) use accumulate::Sent;
pub(crate) use answer::{Answer, Reply, Verdicts};
pub(crate) use drain::{Next, Parcel, Shipment, Stamp};
pub(crate) use orders::Outstanding;
pub(crate) use pack::pack;
pub(crate) use partition::Content;
use partition::{Batch, Part};

use crate::config::{Acks, Partitioner, ProducerConfig};
use crate::delivery::{Finish, Place, Placement};
use crate::partitioner::Sticky;
use crate::producer_id::Identity;
use crate::record::ProducerRecord;

/// What of the configuration decides.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub idempotent: bool,
    pub transactional: bool,
    pub linger: Duration,
    pub batch_size: usize,
    pub buffer_memory: usize,
    pub max_request_size: usize,
    pub delivery_timeout: Duration,
    pub max_in_flight: usize,
    pub backoff: (Duration, Duration),
    pub max_block: Duration,
    pub partitioner: Partitioner,
    pub acks: Acks,
    pub codec: Codec,
    pub level: Option<i32>,
}

impl Settings {
    pub fn new(config: &ProducerConfig, transactional: bool) -> Settings {
        let millis = |millis: u32| Duration::from_millis(u64::from(millis));
        Settings {
            idempotent: config.is_idempotent(),
            transactional,
            linger: millis(config.linger_ms),
            batch_size: config.batch_size,
            buffer_memory: config.buffer_memory,
            max_request_size: config.max_request_size,
            delivery_timeout: millis(config.delivery_timeout_ms),
            max_in_flight: config.max_in_flight,
            backoff: (millis(config.retry_backoff_ms), millis(config.retry_backoff_max_ms)),
            max_block: millis(config.max_block_ms),
            partitioner: config.partitioner,
            acks: config.acks,
            codec: config.compression.codec(),
            level: config.compression_level,
        }
    }
}

/// What a step has left for the driver to do.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Outcomes to be told, after the transaction has been told.
    pub finished: Vec<Finish>,
    /// Places to be told.
    pub placed: Vec<(Arc<Placement>, Result<Place, Error>)>,
    /// Nodes whose senders have something to look at.
    pub wake: Vec<i32>,
    /// Nodes that need a sender.
    pub start: Vec<i32>,
    /// The supervisor has something to look at.
    pub supervisor: bool,
    /// The set of topics has changed.
    pub interest: bool,
    /// The picture of the cluster is out of date.
    pub refresh: bool,
    /// Who leads now, as brokers said.
    pub hints: Vec<Hint>,
}

/// A broker said who leads a partition (KIP-951).
#[derive(Clone, Debug)]
pub(crate) struct Hint {
    pub topic: TopicName,
    pub partition: i32,
    pub node: i32,
    pub epoch: i32,
    pub endpoint: Option<(String, u16, Option<String>)>,
}

/// Counters, to be read by whoever exports them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub records: u64,
    pub bytes: u64,
    pub batches: u64,
    pub requests: u64,
    pub retries: u64,
    pub errors: u64,
    pub splits: u64,
    pub epoch_bumps: u64,
}

/// A record that waits for room or for its topic.
#[derive(Debug)]
struct Waiting {
    record: ProducerRecord,
    timestamp: i64,
    charge: usize,
    until: Instant,
    urgent: bool,
    placement: Arc<Placement>,
}

impl Waiting {
    /// The error, about this record.
    fn blame(&self, error: Error) -> Error {
        match self.record.partition {
            Some(partition) => error.with_partition(self.record.topic, partition),
            None => error.with_topic(self.record.topic),
        }
    }
}

#[derive(Debug, Default)]
struct Topic {
    known: bool,
    id: Uuid,
    /// By partition index.
    parts: Vec<usize>,
    sticky: Sticky,
    /// Records whose partition is not known yet, charged.
    waiting: VecDeque<Waiting>,
    error: kafka_meta::ErrorCode,
}

/// Names are interned: a topic is hashed by its address, which one multiplication spreads well enough. Every record
/// is looked up by it.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, word: usize) {
        let mixed = (self.0 ^ u64::try_from(word).unwrap_or(0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed.rotate_left(26);
    }
}

#[derive(Debug, Default)]
struct Node {
    /// Whether it has a sender.
    running: bool,
    in_flight: usize,
    muted_until: Option<Instant>,
    /// Which of the busy is asked first.
    turn: usize,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Engine {
    settings: Settings,
    random: fastrand::Rng,
    identity: Identity,
    topics: HashMap<TopicName, Topic, BuildHasherDefault<Spread>>,
    parts: Vec<Part>,
    /// Partitions with something queued.
    busy: Vec<usize>,
    line: VecDeque<Waiting>,
    used: usize,
    nodes: BTreeMap<i32, Node>,
    /// Batches begun so far.
    born: u64,
    tickets: u64,
    closing: bool,
    /// The transaction is being aborted: what comes back to be sent again fails with this instead.
    dropping: Option<Error>,
    over: Option<Error>,
    timer: Option<Instant>,
    counts: Counts,
    pub effects: Effects,
    /// Makes the simulation's oracle fail: a batch that is sent again takes new sequences.
    #[cfg(test)]
    pub forgetful: bool,
}

impl Engine {
    pub fn new(settings: Settings, seed: u64) -> Engine {
        Engine {
            settings,
            random: fastrand::Rng::with_seed(seed),
            identity: Identity::NONE,
            topics: HashMap::default(),
            parts: Vec::new(),
            busy: Vec::new(),
            line: VecDeque::new(),
            used: 0,
            nodes: BTreeMap::new(),
            born: 0,
            tickets: 0,
            closing: false,
            dropping: None,
            over: None,
            timer: None,
            counts: Counts::default(),
            effects: Effects::default(),
            #[cfg(test)]
            forgetful: false,
        }
    }

    /// The topics records were sent to.
    pub fn topics(&self) -> Vec<TopicName> {
        self.topics.keys().copied().collect()
    }

    /// Topics that records wait for.
    pub fn unresolved(&self) -> Vec<TopicName> {
        let waiting = self.topics.iter().filter(|(_, topic)| !topic.waiting.is_empty());
        waiting.map(|(name, _)| *name).collect()
    }

    /// Those of them that do not exist as far as is known.
    pub fn missing(&self) -> Vec<TopicName> {
        let unknown = |topic: &Topic| {
            !topic.waiting.is_empty() && topic.error == kafka_meta::ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        };
        self.topics.iter().filter(|(_, topic)| unknown(topic)).map(|(name, _)| *name).collect()
    }

    /// Whether batches wait for an identity that the driver is to ask for.
    pub fn wants_identity(&self) -> bool {
        self.settings.idempotent
            && !self.settings.transactional
            && !self.identity.is_some()
            && self.over.is_none()
            && (self.parts.iter().any(|part| !part.queue.is_empty())
                || self.topics.values().any(|topic| !topic.waiting.is_empty()))
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Bytes of records that have no outcome yet; those that wait for room are not among them.
    pub fn buffered(&self) -> usize {
        self.used
    }

    /// Records that wait for room.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    fn wake(&mut self, node: Option<i32>) {
        let Some(node) = node else { return };
        if !self.effects.wake.contains(&node) {
            self.effects.wake.push(node);
        }
    }

    fn wake_all(&mut self) {
        let leaders: Vec<_> = self.busy.iter().filter_map(|at| self.parts.get(*at)?.leader).collect();
        for leader in leaders {
            self.wake(Some(leader));
        }
    }

    /// A partition has something queued: its leader's sender is to look.
    fn touch(&mut self, at: usize) {
        let Some(part) = self.parts.get_mut(at) else { return };
        if !part.busy && !part.queue.is_empty() {
            part.busy = true;
            self.busy.push(at);
        }
        let leader = part.leader;
        let Some(node) = leader else { return };
        let sender = self.nodes.entry(node).or_default();
        if !sender.running {
            sender.running = true;
            self.effects.start.push(node);
        }
        self.wake(leader);
    }

    /// A batch has its outcome.
    fn finish(&mut self, batch: &Batch, outcome: crate::delivery::Outcome) {
        self.used = self.used.saturating_sub(batch.charge);
        if outcome.error().is_some() {
            self.counts.errors += u64::from(batch.count);
        } else {
            self.counts.records += u64::from(batch.count);
        }
        self.effects.finished.push(Finish {
            delivery: Arc::clone(&batch.delivery),
            first: batch.first,
            count: batch.count,
            total: batch.total.unwrap_or(batch.count),
            outcome,
        });
    }
}

#[cfg(test)]
mod tests;
