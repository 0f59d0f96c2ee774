//! The control side of an embedded cluster: nodes, sessions, coordinators, offsets, faults, the request log.
//!
//! Every method acts at once and wakes whatever waits. A method that names a node the cluster does not have does
//! nothing and says so by its result.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use tokio::time::Instant;

use super::Embedded;
use super::faults::FaultBuilder;
use super::groups;
use super::requests::RequestSeen;
use super::versions::{Release, Versions};
use super::world::Node;

/// How often a waiting test looks again when nothing happens.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Embedded {
    fn halt(&self, node: i32) -> bool {
        let mut world = self.shared.world();
        let Some(found) = world.nodes.get_mut(&node) else { return false };
        found.running = false;
        found.incarnation = found.incarnation.wrapping_add(1);
        found.sessions.clear();
        world.touch();
        true
    }

    /// Stops a node and hands its leaderships over: connections drop, new ones are refused (over TCP: closed at
    /// once, so that the port stays the node's), the cluster knows.
    pub fn stop_node(&self, node: i32) -> bool {
        let halted = self.halt(node);
        self.fail_over(node);
        halted
    }

    /// Kills a node: connections drop and new ones are refused, but the cluster goes on naming it until
    /// [`Embedded::fail_over`].
    pub fn kill_node(&self, node: i32) -> bool {
        self.halt(node)
    }

    /// Lets the cluster notice that a node is gone: its leaderships and coordinators move.
    pub fn fail_over(&self, node: i32) {
        self.shared.world().fail_over(node, Instant::now());
    }

    /// Starts a stopped node. Partitions that have no leader get one again.
    pub fn start_node(&self, node: i32) -> bool {
        let mut world = self.shared.world();
        let Some(found) = world.nodes.get_mut(&node) else { return false };
        found.running = true;
        found.listed = true;
        found.frozen = false;
        for topic in world.topics.values_mut() {
            for partition in
                topic.partitions.iter_mut().filter(|partition| partition.replicas.contains(&node))
            {
                if !partition.isr.contains(&node) {
                    partition.isr.push(node);
                }
                if partition.leader.is_none() {
                    partition.set_leader(Some(node));
                }
            }
        }
        world.touch();
        true
    }

    /// Freezes a node: connections stay open and new ones are accepted, but nothing is read or answered.
    pub fn freeze_node(&self, node: i32) -> bool {
        self.node(node, |node| node.frozen = true)
    }

    /// Lets a frozen node go on where it was.
    pub fn thaw_node(&self, node: i32) -> bool {
        self.node(node, |node| node.frozen = false)
    }

    /// Closes every connection to a node that goes on running.
    pub fn drop_connections(&self, node: i32) -> bool {
        self.node(node, |node| node.incarnation = node.incarnation.wrapping_add(1))
    }

    fn node(&self, node: i32, change: impl FnOnce(&mut Node)) -> bool {
        let mut world = self.shared.world();
        let found = world.nodes.get_mut(&node).map(change).is_some();
        world.touch();
        found
    }

    /// Keeps a node's Metadata answers at the leaders of this moment, as of a broker that has not heard of an
    /// election; `false` lets it catch up. Topics made later are not affected.
    pub fn set_stale_metadata(&self, node: i32, stale: bool) -> bool {
        let mut world = self.shared.world();
        let partitions =
            world.topics.values().flat_map(|topic| topic.partitions.iter().map(move |one| (topic, one)));
        let leaders = partitions
            .filter(|_| stale)
            .map(|(topic, one)| ((topic.name.clone(), one.index), (one.leader, one.leader_epoch)))
            .collect();
        world.nodes.get_mut(&node).map(|node| node.stale = leaders).is_some()
    }

    /// Sets a node's rack.
    pub fn set_rack(&self, node: i32, rack: &str) -> bool {
        self.node(node, |node| node.rack = Some(rack.to_owned()))
    }

    /// Turns the rack-aware replica selector on or off; it is off at the start, as in a real broker.
    pub fn set_rack_aware(&self, on: bool) {
        self.shared.world().rack_aware = on;
    }

    /// Whether Metadata makes unknown topics when the request allows it; off at the start.
    pub fn set_auto_create(&self, on: bool) {
        self.shared.world().auto_create = on;
    }

    /// Gives a node another advertised address (in memory only): the old one refuses from now on, connections
    /// drop.
    pub fn set_address(&self, node: i32, host: &str, port: u16) -> bool {
        self.in_memory
            && self.node(node, |node| {
                node.host = host.to_owned();
                node.port = port;
                node.addresses = vec![(host.to_owned(), port)];
                node.incarnation = node.incarnation.wrapping_add(1);
            })
    }

    /// Lets every node imitate the version table of a release. Connections that exist keep what they learnt.
    pub fn set_release(&self, release: Release) {
        let mut world = self.shared.world();
        world.release = release;
        world.groups.timing.rejoin_always = release == Release::V4_3;
        world.groups.consumer_protocol = matches!(release, Release::V4_0 | Release::V4_3);
        for node in world.nodes.values_mut() {
            node.versions = Versions::of(release);
        }
    }

    /// Lets one node imitate the version table of a release.
    pub fn set_node_release(&self, node: i32, release: Release) -> bool {
        self.node(node, |node| node.versions = Versions::of(release))
    }

    /// Overrides one API's range on a node; `None` takes the API out of the list and out of service.
    pub fn set_versions(&self, node: i32, api: ApiKey, range: Option<(i16, i16)>) -> bool {
        self.node(node, |node| {
            match range {
                Some(range) => node.versions.ranges.insert(api as i16, range),
                None => node.versions.ranges.remove(&(api as i16)),
            };
        })
    }

    /// Drops every fetch session of a node: the next request of each is answered 70.
    pub fn expire_sessions(&self, node: i32) -> bool {
        self.node(node, |node| node.sessions.clear())
    }

    /// How many fetch sessions a node keeps; 0 makes it give none out, as a broker whose cache is full.
    pub fn set_session_slots(&self, node: i32, slots: usize) -> bool {
        self.node(node, |node| node.sessions.slots = slots)
    }

    /// How many fetch sessions a node holds.
    pub fn sessions(&self, node: i32) -> usize {
        self.shared.world().node(node).map_or(0, |node| node.sessions.len())
    }

    /// The node that coordinates a group or a transactional id.
    pub fn coordinator(&self, key: &str) -> Option<i32> {
        groups::coordinator(&self.shared.world(), key)
    }

    /// Moves the coordinator of a group or a transactional id; what it keeps moves along.
    pub fn move_coordinator(&self, key: &str, node: i32) {
        let mut world = self.shared.world();
        world.groups.place(key, node, Instant::now());
        world.touch();
    }

    /// Lets the next `times` coordinator look-ups answer "not available" (15), as just after a start.
    pub fn set_coordinator_not_available(&self, times: u32) {
        self.shared.world().groups.not_available = times;
    }

    /// Lets the next requests to any group's coordinator be answered with these codes, in turn: 16 and 14 are
    /// what a coordinator says while it loads.
    pub fn set_coordinator_warming(&self, codes: &[i16]) {
        self.shared.world().groups.warming = codes.to_vec();
    }

    /// Declares that a group has members: anonymous commits are refused with 25.
    pub fn set_group_live(&self, group: &str, live: bool) {
        self.shared.world().groups.groups.entry(group.to_owned()).or_default().live = live;
    }

    /// Declares that a transaction with an offset for this partition is open: OffsetFetch that asks for stable
    /// offsets is answered 88.
    pub fn set_offset_unstable(&self, group: &str, topic: &str, partition: i32, unstable: bool) {
        let mut world = self.shared.world();
        let group = world.groups.groups.entry(group.to_owned()).or_default();
        if unstable {
            group.unstable.insert((topic.to_owned(), partition));
        } else {
            group.unstable.remove(&(topic.to_owned(), partition));
        }
    }

    /// The offset a group has committed.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        self.committed_with(group, topic, partition).map(|(offset, _, _)| offset)
    }

    /// The offset, leader epoch (−1: none) and metadata a group has committed.
    pub fn committed_with(&self, group: &str, topic: &str, partition: i32) -> Option<(i64, i32, String)> {
        let world = self.shared.world();
        let stored = world.groups.groups.get(group)?.offsets.get(&(topic.to_owned(), partition))?;
        Some((stored.offset, stored.leader_epoch, stored.metadata.clone()))
    }

    /// Stores an offset for a group as if it had been committed.
    pub fn commit(&self, group: &str, topic: &str, partition: i32, offset: i64) {
        let mut world = self.shared.world();
        let order = world.groups.next_order();
        let stored = groups::Stored { offset, leader_epoch: -1, metadata: String::new(), order };
        let group = world.groups.groups.entry(group.to_owned()).or_default();
        group.offsets.insert((topic.to_owned(), partition), stored);
        world.touch();
    }

    /// A fault for requests of this API; nothing happens before it is finished.
    pub fn fault(&self, api: ApiKey) -> FaultBuilder {
        FaultBuilder::new(Arc::clone(&self.shared), api)
    }

    /// Removes every fault. Held requests go on only if their fault's handle releases them.
    pub fn clear_faults(&self) {
        self.shared.world().faults.clear();
    }

    /// Every request received so far, in order; of more than 200 000 the last ones.
    pub fn requests(&self) -> Vec<RequestSeen> {
        self.shared.world().requests.iter().cloned().collect()
    }

    /// How many requests of one API have been received so far.
    pub fn count(&self, api: ApiKey) -> usize {
        self.shared.world().requests.iter().filter(|seen| seen.api == api).count()
    }

    /// The requests of one API received so far, in order.
    pub fn requests_of(&self, api: ApiKey) -> Vec<RequestSeen> {
        self.shared.world().requests.iter().filter(|seen| seen.api == api).cloned().collect()
    }

    /// Forgets the requests received so far.
    pub fn clear_requests(&self) {
        self.shared.world().requests.clear();
    }

    /// How many connections have been opened so far.
    pub fn connections(&self) -> u64 {
        self.shared.world().connections
    }

    /// Waits until `condition` holds, looking again at each change of the cluster, each request and every 20 ms; `false` when it did not come
    /// to hold within `limit`. Dropping the future changes nothing.
    pub async fn until(&self, limit: Duration, mut condition: impl FnMut(&Embedded) -> bool) -> bool {
        let mut changes = self.shared.changes();
        let mut received = self.shared.received.subscribe();
        let waited = tokio::time::timeout(limit, async {
            loop {
                changes.borrow_and_update();
                received.borrow_and_update();
                if condition(self) {
                    return;
                }
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = received.changed() => {}
                    // Sessions of members end by time alone.
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
            }
        });
        let _ = waited.await;
        condition(self)
    }
}
