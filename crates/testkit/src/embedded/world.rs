//! The cluster as one pure state: nodes, topics, partitions, sessions, offsets, faults and the request log.
//!
//! No async, no clock: time comes in as an argument, answers come out as values. One mutex guards it; whoever
//! changes something that a parked request may wait for calls [`World::touch`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::configs::Configs;
use super::faults::Faults;
use super::groups::Groups;
use super::log::Log;
use super::requests::RequestSeen;
use super::session::Cache;
use super::txn::Transactions;
use super::versions::{Release, Versions};

/// Wall-clock milliseconds at which an embedded cluster starts: fixed, so that runs are alike.
const EPOCH_MS: i64 = 1_750_000_000_000;

/// Entries of the request log: a cluster that runs for days must not grow without end.
pub(super) const REQUESTS_KEPT: usize = 200_000;

#[derive(Debug)]
pub(super) struct Node {
    pub id: i32,
    pub host: String,
    pub port: u16,
    pub rack: Option<String>,
    /// Accepts connections.
    pub running: bool,
    /// The cluster knows it is there; a killed node stays listed until it is given up.
    pub listed: bool,
    pub frozen: bool,
    /// Raised when every connection of the node has to go.
    pub incarnation: u64,
    pub versions: Versions,
    /// Leaders and their epochs as the node still believes them to be, where it has not heard the news.
    pub stale: HashMap<(String, i32), (Option<i32>, i32)>,
    pub sessions: Cache,
    /// Addresses a connection reaches this node by.
    pub addresses: Vec<(String, u16)>,
}

/// What holds a follower back behind the leader's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lag {
    pub end: i64,
    pub high_watermark: i64,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub index: i32,
    pub leader: Option<i32>,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub log: Log,
    /// Set: the high watermark stays at or below this.
    pub held: Option<i64>,
    pub lags: BTreeMap<i32, Lag>,
}

impl Partition {
    /// An empty partition led by the first of its replicas.
    pub fn new(index: i32, replicas: Vec<i32>) -> Self {
        let mut log = Log::default();
        log.begin_epoch(0);
        Partition {
            index,
            leader: replicas.first().copied(),
            leader_epoch: 0,
            isr: replicas.clone(),
            replicas,
            log,
            held: None,
            lags: BTreeMap::new(),
        }
    }

    pub fn high_watermark(&self) -> i64 {
        self.held.map_or(self.log.end, |held| held.clamp(self.log.start, self.log.end))
    }

    pub fn last_stable_offset(&self) -> i64 {
        self.log.stable(self.high_watermark())
    }

    pub fn set_leader(&mut self, leader: Option<i32>) {
        self.leader = leader;
        self.leader_epoch = self.leader_epoch.saturating_add(1);
        if leader.is_some() {
            self.log.begin_epoch(self.leader_epoch);
        }
    }
}

#[derive(Debug)]
pub(super) struct Topic {
    pub name: String,
    pub id: Uuid,
    pub internal: bool,
    pub partitions: Vec<Partition>,
}

impl Topic {
    pub fn partition(&self, index: i32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    pub fn partition_mut(&mut self, index: i32) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::try_from(index).ok()?)
    }
}

pub(super) struct World {
    started: Instant,
    pub cluster_id: String,
    pub release: Release,
    pub nodes: BTreeMap<i32, Node>,
    pub controller: i32,
    pub topics: BTreeMap<String, Topic>,
    pub ids: HashMap<Uuid, String>,
    ids_made: u64,
    pub rack_aware: bool,
    pub auto_create: bool,
    pub configs: Configs,
    pub groups: Groups,
    pub transactions: Transactions,
    pub faults: Faults,
    pub requests: VecDeque<RequestSeen>,
    pub connections: u64,
    changes: tokio::sync::watch::Sender<u64>,
}

impl World {
    pub fn new(nodes: i32, now: Instant, changes: tokio::sync::watch::Sender<u64>) -> Self {
        let release = Release::default();
        let nodes = (1..=nodes)
            .map(|id| {
                let host = format!("node-{id}.embedded");
                let node = Node {
                    id,
                    addresses: vec![(host.clone(), 9092)],
                    host,
                    port: 9092,
                    rack: None,
                    running: true,
                    listed: true,
                    frozen: false,
                    incarnation: 0,
                    versions: Versions::of(release),
                    stale: HashMap::new(),
                    sessions: Cache::new(1000, id),
                };
                (id, node)
            })
            .collect();
        World {
            started: now,
            cluster_id: "embedded".to_owned(),
            release,
            nodes,
            controller: 1,
            topics: BTreeMap::new(),
            ids: HashMap::new(),
            ids_made: 0,
            rack_aware: false,
            auto_create: false,
            configs: Configs::default(),
            groups: Groups::default(),
            transactions: Transactions::default(),
            faults: Faults::default(),
            requests: VecDeque::new(),
            connections: 0,
            changes,
        }
    }

    /// Wakes every parked request and every waiting test.
    pub fn touch(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Adds to the request log, dropping the oldest entry of a full one.
    pub fn note(&mut self, seen: RequestSeen) {
        if self.requests.len() >= REQUESTS_KEPT {
            self.requests.pop_front();
        }
        self.requests.push_back(seen);
    }

    /// Milliseconds since the epoch, as this cluster's brokers see them.
    pub fn wall_ms(&self, now: Instant) -> i64 {
        let passed: Duration = now.saturating_duration_since(self.started);
        EPOCH_MS.saturating_add(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX))
    }

    /// The last instant at which something that runs each `every` ran.
    pub fn last_tick(&self, now: Instant, every: Duration) -> Instant {
        let passed = now.saturating_duration_since(self.started);
        let over = passed.as_nanos().checked_rem(every.as_nanos()).unwrap_or(0);
        now - Duration::from_nanos(u64::try_from(over).unwrap_or(0))
    }

    pub fn node(&self, id: i32) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub fn partition(&self, topic: &str, index: i32) -> Option<&Partition> {
        self.topics.get(topic)?.partition(index)
    }

    pub fn partition_mut(&mut self, topic: &str, index: i32) -> Option<&mut Partition> {
        self.topics.get_mut(topic)?.partition_mut(index)
    }

    /// The topic of a request that names it by id, or by name when the id is nil.
    pub fn resolve(&self, name: &str, id: Uuid) -> Option<String> {
        if id.is_nil() {
            return self.topics.contains_key(name).then(|| name.to_owned());
        }
        self.ids.get(&id).cloned()
    }

    /// An id that no topic has had.
    pub fn make_id(&mut self) -> Uuid {
        self.ids_made = self.ids_made.wrapping_add(1);
        Uuid::from_u64_pair(0x0E0B_EDDE_D000_4000, 0x8000_0000_0000_0000 | self.ids_made)
    }

    /// Makes a topic whose partition `i` lives on `replicas(i)`, the first of them its leader. `false` when the
    /// name is taken.
    pub fn create_topic(&mut self, name: &str, partitions: i32, replicas: impl Fn(i32) -> Vec<i32>) -> bool {
        if self.topics.contains_key(name) {
            return false;
        }
        let id = self.make_id();
        let partitions = (0..partitions).map(|index| Partition::new(index, replicas(index))).collect();
        let topic = Topic { name: name.to_owned(), id, internal: name.starts_with("__"), partitions };
        self.ids.insert(id, name.to_owned());
        self.topics.insert(name.to_owned(), topic);
        self.touch();
        true
    }

    /// Appends as the leader does; the first offset, `None` without such a partition or whole batches.
    pub fn append(&mut self, topic: &str, index: i32, batches: &Bytes, now: Instant) -> Option<i64> {
        let now_ms = self.wall_ms(now);
        let partition = self.partition_mut(topic, index)?;
        let epoch = partition.leader_epoch;
        let first = partition.log.append(batches, epoch, now_ms);
        self.touch();
        first
    }

    /// Makes a topic stamp its batches with the time of the append.
    pub fn set_stamps(&mut self, topic: &str, stamps: bool) {
        for partition in self.topics.get_mut(topic).into_iter().flat_map(|topic| &mut topic.partitions) {
            partition.log.stamps = stamps;
        }
    }

    /// Round-robin placement of `factor` replicas over the nodes.
    pub fn placement(&self, index: i32, factor: usize) -> Vec<i32> {
        let nodes: Vec<i32> = self.nodes.keys().copied().collect();
        let skip = usize::try_from(index).unwrap_or(0);
        let count = nodes.len().max(1);
        nodes
            .iter()
            .cycle()
            .skip(skip.checked_rem(count).unwrap_or(0))
            .take(factor.min(count))
            .copied()
            .collect()
    }

    pub fn delete_topic(&mut self, name: &str) -> bool {
        let Some(topic) = self.topics.remove(name) else { return false };
        self.ids.remove(&topic.id);
        self.groups.forget_topic(name);
        self.configs.forget_topic(name);
        self.touch();
        true
    }

    /// Moves every partition led by `node` to another running replica, or leaves it without a leader.
    pub fn fail_over(&mut self, node: i32, now: Instant) {
        let running: Vec<i32> = self.nodes.values().filter(|node| node.running).map(|node| node.id).collect();
        for topic in self.topics.values_mut() {
            for partition in &mut topic.partitions {
                if partition.isr.len() > 1 {
                    partition.isr.retain(|replica| *replica != node);
                }
                if partition.leader == Some(node) {
                    let next = partition.replicas.iter().copied().find(|replica| running.contains(replica));
                    partition.set_leader(next);
                }
            }
        }
        if self.controller == node
            && let Some(next) = running.first()
        {
            self.controller = *next;
        }
        self.groups.fail_over(node, running.first().copied(), now);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.listed = node.running;
        }
        self.touch();
    }
}
