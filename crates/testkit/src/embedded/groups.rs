//! What a coordinator keeps of every group: where it is, its offsets, and which kind its members are of.
//!
//! The membership protocols have files of their own. A group without members can be declared live, which is
//! enough to see anonymous commits refused.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetFetchRequest, OffsetFetchResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::api::{Api, Call, Started};
use super::classic_group::ClassicGroup;
use super::consumer_group::{ConsumerGroup, Timing};
use super::world::World;

/// Longest metadata a broker stores with an offset.
pub(super) const MAX_METADATA: usize = 4096;

/// A committed offset as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Stored {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
    /// Its place among all commits: of two the later one wins, whenever its transaction ends.
    pub order: u64,
}

/// Offsets of one transaction that has not ended.
pub(super) type Pending = BTreeMap<(String, i32), Stored>;

/// Whose protocol a group's members speak.
#[derive(Debug, Default)]
pub(super) enum Kind {
    /// Nobody has ever joined.
    #[default]
    Simple,
    Classic(ClassicGroup),
    Consumer(ConsumerGroup),
}

#[derive(Debug, Default)]
pub(super) struct Group {
    pub offsets: BTreeMap<(String, i32), Stored>,
    pub kind: Kind,
    /// Declared to have members.
    pub live: bool,
    /// Partitions declared to have an offset of a transaction that has not ended.
    pub unstable: HashSet<(String, i32)>,
    /// Producer id → its offsets until the transaction ends.
    pub pending: BTreeMap<i64, Pending>,
}

impl Group {
    fn is_unstable(&self, place: &(String, i32)) -> bool {
        self.unstable.contains(place) || self.pending.values().any(|pending| pending.contains_key(place))
    }

    /// Whether anybody is in it.
    pub fn is_live(&mut self, now: Instant) -> bool {
        match &mut self.kind {
            Kind::Simple => self.live,
            Kind::Classic(group) => {
                group.advance(now);
                self.live || !group.members.is_empty()
            }
            Kind::Consumer(group) => {
                group.expire(now);
                self.live || !group.members.is_empty()
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Groups {
    pub groups: BTreeMap<String, Group>,
    pub timing: Timing,
    /// Shortest and longest session a classic member may ask for, ms.
    pub session_limits: (i32, i32),
    /// How long an empty classic group waits for more members (`group.initial.rebalance.delay.ms`).
    pub initial_delay: Duration,
    pub ids_made: u64,
    commits: u64,
    /// Off: the new protocol is listed and refused, as by `group.coordinator.rebalance.protocols=classic`.
    pub consumer_protocol: bool,
    /// Key (group or transactional id) → node, where it is not the default one.
    coordinators: HashMap<String, i32>,
    /// How many look-ups still find no coordinator.
    pub not_available: u32,
    /// How many group requests are still answered "not coordinator" and "loading" after a move.
    pub warming: Vec<i16>,
}

impl Default for Groups {
    fn default() -> Self {
        Groups {
            groups: BTreeMap::new(),
            timing: Timing::default(),
            session_limits: (6000, 1_800_000),
            initial_delay: Duration::ZERO,
            ids_made: 0,
            commits: 0,
            consumer_protocol: true,
            coordinators: HashMap::new(),
            not_available: 0,
            warming: Vec::new(),
        }
    }
}

impl Groups {
    /// The place of the next commit among all.
    pub fn next_order(&mut self) -> u64 {
        self.commits = self.commits.saturating_add(1);
        self.commits
    }

    /// Makes a transaction's offsets the group's, or drops them.
    pub fn end_transaction(&mut self, group: &str, producer_id: i64, commit: bool) {
        let Some(group) = self.groups.get_mut(group) else { return };
        for (place, stored) in group.pending.remove(&producer_id).unwrap_or_default() {
            let newer = group.offsets.get(&place).is_some_and(|known| known.order > stored.order);
            if commit && !newer {
                group.offsets.insert(place, stored);
            }
        }
    }

    pub fn forget_topic(&mut self, topic: &str) {
        for group in self.groups.values_mut() {
            group.offsets.retain(|(name, _), _| name != topic);
        }
    }

    pub fn place(&mut self, key: &str, node: i32, now: Instant) {
        self.coordinators.insert(key.to_owned(), node);
        match self.groups.get_mut(key).map(|group| &mut group.kind) {
            Some(Kind::Consumer(group)) => group.restart_sessions(now, &self.timing),
            Some(Kind::Classic(group)) => group.restart_sessions(now),
            Some(Kind::Simple) | None => {}
        }
    }

    /// Gives up a node's coordinators. Whoever takes a group over starts its sessions anew.
    pub fn fail_over(&mut self, from: i32, to: Option<i32>, now: Instant) {
        for group in self.groups.values_mut() {
            match &mut group.kind {
                Kind::Consumer(group) => group.restart_sessions(now, &self.timing),
                Kind::Classic(group) => group.restart_sessions(now),
                Kind::Simple => {}
            }
        }
        for node in self.coordinators.values_mut() {
            if *node == from
                && let Some(to) = to
            {
                *node = to;
            }
        }
    }
}

/// The node that coordinates `key`: a placed one, else the same running node for the same key.
pub(super) fn coordinator(world: &World, key: &str) -> Option<i32> {
    if let Some(node) = world.groups.coordinators.get(key) {
        return Some(*node);
    }
    let nodes: Vec<i32> = world.nodes.values().filter(|node| node.listed).map(|node| node.id).collect();
    let sum = key.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    nodes.get(sum.checked_rem(nodes.len())?).copied()
}

/// Whether this node may answer for the group, and the code it answers with when not.
pub(super) fn admit(world: &mut World, call: &Call, group: &str) -> Result<(), i16> {
    if coordinator(world, group) != Some(call.node) {
        return Err(16);
    }
    if world.groups.warming.is_empty() { Ok(()) } else { Err(world.groups.warming.remove(0)) }
}

impl Api for FindCoordinatorRequest {
    fn refuse(&self, call: &Call, code: i16) -> FindCoordinatorResponse {
        let mut response = FindCoordinatorResponse::default();
        if call.version >= 4 {
            for key in &self.coordinator_keys {
                let entry =
                    Coordinator::default().with_key(key.clone()).with_node_id((-1).into()).with_port(-1);
                response
                    .coordinators
                    .push(entry.with_error_code(code).with_error_message(Some(StrBytes::new())));
            }
            return response;
        }
        response.with_error_code(code).with_node_id((-1).into()).with_port(-1)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<FindCoordinatorResponse> {
        if !(0..=1).contains(&self.key_type) {
            return Started::Done(self.refuse(call, 42));
        }
        if world.groups.not_available > 0 {
            world.groups.not_available -= 1;
            return Started::Done(self.refuse(call, 15));
        }
        let mut response = FindCoordinatorResponse::default();
        let keys = if call.version >= 4 { self.coordinator_keys.clone() } else { vec![self.key.clone()] };
        for key in keys {
            let node = coordinator(world, &key).and_then(|id| world.node(id));
            let Some(node) = node else { return Started::Done(self.refuse(call, 15)) };
            let (id, host, port) = (node.id, StrBytes::from_string(node.host.clone()), i32::from(node.port));
            if call.version >= 4 {
                let entry = Coordinator::default().with_key(key).with_node_id(id.into());
                response.coordinators.push(entry.with_host(host).with_port(port));
            } else {
                response = response.with_node_id(id.into()).with_host(host).with_port(port);
                if call.version >= 1 {
                    response.error_message = Some(StrBytes::from_static_str("NONE"));
                }
            }
        }
        Started::Done(response)
    }

    fn throttle(response: &mut FindCoordinatorResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for OffsetCommitRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> OffsetCommitResponse {
        let mut response = OffsetCommitResponse::default();
        for topic in &self.topics {
            let mut answer = OffsetCommitResponseTopic::default().with_name(topic.name.clone());
            for partition in &topic.partitions {
                let entry =
                    OffsetCommitResponsePartition::default().with_partition_index(partition.partition_index);
                answer.partitions.push(entry.with_error_code(code));
            }
            response.topics.push(answer);
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<OffsetCommitResponse> {
        if let Err(code) = admit(world, call, &self.group_id) {
            return Started::Done(self.refuse(call, code));
        }
        let id = |topic: &str| world.topics.get(topic).map(|topic| topic.id);
        let ids: Vec<Option<Uuid>> = self.topics.iter().map(|topic| id(&topic.name)).collect();
        let group = world.groups.groups.entry(self.group_id.to_string()).or_default();
        if !group.is_live(call.now) {
            // Without members the epoch alone makes a commit anonymous, whatever the member id says.
            if self.generation_id_or_member_epoch >= 0 {
                return Started::Done(self.refuse(call, 25));
            }
        } else if let Kind::Consumer(group) = &group.kind
            && !group.members.is_empty()
        {
            let (member, epoch) = (self.member_id.as_str(), self.generation_id_or_member_epoch);
            if group.members.contains_key(member) && call.version < 9 {
                return Started::Done(self.refuse(call, 35));
            }
            let mut response = self.refuse(call, 0);
            for ((topic, answer), id) in self.topics.iter().zip(&mut response.topics).zip(ids) {
                for (asked, entry) in topic.partitions.iter().zip(&mut answer.partitions) {
                    let place = id.map(|id| (id, asked.partition_index));
                    entry.error_code = group.may_commit(member, epoch, place);
                }
            }
            return Started::Done(store(&self, world, call, response));
        } else if let Kind::Classic(group) = &mut group.kind
            && !group.members.is_empty()
        {
            let instance = self.group_instance_id.as_deref().filter(|_| call.version >= 7);
            let code =
                group.may_commit(&self.member_id, instance, self.generation_id_or_member_epoch, call.now);
            if code != 0 {
                return Started::Done(self.refuse(call, code));
            }
        } else {
            return Started::Done(self.refuse(call, 25));
        }
        let response = self.refuse(call, 0);
        Started::Done(store(&self, world, call, response))
    }

    fn throttle(response: &mut OffsetCommitResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

/// Stores what `response` has not refused yet.
fn store(
    request: &OffsetCommitRequest,
    world: &mut World,
    call: &Call,
    mut response: OffsetCommitResponse,
) -> OffsetCommitResponse {
    for (topic, answer) in request.topics.iter().zip(&mut response.topics) {
        for (asked, entry) in topic.partitions.iter().zip(&mut answer.partitions) {
            let metadata = asked.committed_metadata.as_ref().map(ToString::to_string).unwrap_or_default();
            if entry.error_code != 0 {
            } else if world.partition(&topic.name, asked.partition_index).is_none() {
                entry.error_code = 3;
            } else if metadata.len() > MAX_METADATA {
                entry.error_code = 12;
            } else {
                let leader_epoch = if call.version >= 6 { asked.committed_leader_epoch } else { -1 };
                let order = world.groups.next_order();
                let stored = Stored { offset: asked.committed_offset, leader_epoch, metadata, order };
                let group = world.groups.groups.entry(request.group_id.to_string()).or_default();
                group.offsets.insert((topic.name.to_string(), asked.partition_index), stored);
            }
        }
    }
    world.touch();
    response
}

/// One partition of an OffsetFetch answer: index, offset, epoch, metadata, code.
type Fetched = (i32, i64, i32, String, i16);

/// The offsets of a group: of the wanted partitions, or of all that have one.
fn offsets(
    world: &World,
    group: &str,
    wanted: Option<Vec<(String, Vec<i32>)>>,
    stable: bool,
) -> Vec<(String, Vec<Fetched>)> {
    let empty = Group::default();
    let group = world.groups.groups.get(group).unwrap_or(&empty);
    let wanted = wanted.unwrap_or_else(|| {
        let mut all: Vec<(String, Vec<i32>)> = Vec::new();
        for (topic, partition) in group.offsets.keys() {
            match all.last_mut().filter(|(last, _)| last == topic) {
                Some((_, partitions)) => partitions.push(*partition),
                None => all.push((topic.clone(), vec![*partition])),
            }
        }
        all
    });
    let one = |topic: &str, partition: i32| {
        let key = (topic.to_owned(), partition);
        if stable && group.is_unstable(&key) {
            return (partition, -1, -1, String::new(), 88);
        }
        match group.offsets.get(&key) {
            Some(stored) => (partition, stored.offset, stored.leader_epoch, stored.metadata.clone(), 0),
            None => (partition, -1, -1, String::new(), 0),
        }
    };
    wanted
        .into_iter()
        .map(|(topic, partitions)| {
            let found = partitions.into_iter().map(|partition| one(&topic, partition)).collect();
            (topic, found)
        })
        .collect()
}

impl Api for OffsetFetchRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        let single = self.topics.iter().flatten().map(|topic| topic.name.to_string());
        let grouped = self.groups.iter().flat_map(|group| group.topics.iter().flatten());
        single.chain(grouped.map(|topic| topic.name.to_string())).collect()
    }

    fn refuse(&self, call: &Call, code: i16) -> OffsetFetchResponse {
        let mut response = OffsetFetchResponse::default();
        if call.version >= 8 {
            for group in &self.groups {
                let entry = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
                response.groups.push(entry.with_error_code(code));
            }
            return response;
        }
        if call.version >= 2 {
            return response.with_error_code(code);
        }
        for topic in self.topics.iter().flatten() {
            let entry = |index: &i32| {
                OffsetFetchResponsePartition::default().with_partition_index(*index).with_error_code(code)
            };
            let partitions = topic.partition_indexes.iter().map(entry).collect();
            let answer = OffsetFetchResponseTopic::default().with_name(topic.name.clone());
            response.topics.push(answer.with_partitions(partitions));
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<OffsetFetchResponse> {
        let mut response = OffsetFetchResponse::default();
        if call.version < 8 {
            if let Err(code) = admit(world, call, &self.group_id) {
                return Started::Done(self.refuse(call, code));
            }
            let wanted = self.topics.as_ref().map(|topics| {
                topics.iter().map(|topic| (topic.name.to_string(), topic.partition_indexes.clone())).collect()
            });
            for (topic, found) in offsets(world, &self.group_id, wanted, self.require_stable) {
                let mut answer =
                    OffsetFetchResponseTopic::default().with_name(StrBytes::from_string(topic).into());
                for (index, offset, epoch, metadata, code) in found {
                    let mut entry = OffsetFetchResponsePartition::default()
                        .with_partition_index(index)
                        .with_committed_offset(offset)
                        .with_metadata(Some(StrBytes::from_string(metadata)))
                        .with_error_code(code);
                    if call.version >= 5 {
                        entry.committed_leader_epoch = epoch;
                    }
                    answer.partitions.push(entry);
                }
                response.topics.push(answer);
            }
            return Started::Done(response);
        }
        for group in &self.groups {
            let mut entry = OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
            let refused = admit(world, call, &group.group_id).err().or_else(|| {
                let known = world.groups.groups.get_mut(group.group_id.as_str())?;
                // A null member id is anonymous and always allowed; any other one is checked while members exist.
                let member = group.member_id.as_ref().filter(|_| call.version >= 9)?;
                if !known.is_live(call.now) {
                    return None;
                }
                match &known.kind {
                    // A classic member's fetch is not checked at all.
                    Kind::Classic(_) => None,
                    Kind::Consumer(members) => {
                        Some(members.may_commit(member, group.member_epoch, None)).filter(|code| *code != 0)
                    }
                    Kind::Simple => Some(25),
                }
            });
            if let Some(code) = refused {
                response.groups.push(entry.with_error_code(code));
                continue;
            }
            let wanted = group.topics.as_ref().map(|topics| {
                topics.iter().map(|topic| (topic.name.to_string(), topic.partition_indexes.clone())).collect()
            });
            for (topic, found) in offsets(world, &group.group_id, wanted, self.require_stable) {
                let mut answer =
                    OffsetFetchResponseTopics::default().with_name(StrBytes::from_string(topic).into());
                for (index, offset, epoch, metadata, code) in found {
                    let found = OffsetFetchResponsePartitions::default()
                        .with_partition_index(index)
                        .with_committed_offset(offset)
                        .with_committed_leader_epoch(epoch)
                        .with_metadata(Some(StrBytes::from_string(metadata)))
                        .with_error_code(code);
                    answer.partitions.push(found);
                }
                entry.topics.push(answer);
            }
            response.groups.push(entry);
        }
        Started::Done(response)
    }

    fn throttle(response: &mut OffsetFetchResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}
