//! What a group protocol is to the rest of a member: the questions and answers between the two. Pure.
//!
//! Two cores speak it: `group::Membership` (KIP-848) and `classic::Membership` (JoinGroup, SyncGroup). What is
//! true of both (reconciliation, callbacks, commits, liveness) lives beside this file and exists once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kafka_meta::client::{Lane, Snapshot};
use kafka_meta::{Error, Result, TopicName};
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, SyncGroupRequest, SyncGroupResponse,
};

use crate::offsets::Identity;

/// Partitions in order.
pub(crate) type Partitions = BTreeSet<(TopicName, i32)>;

/// What a member wants to read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Subscription {
    /// Topics by name; for a pattern that the client evaluates, what matches now.
    pub topics: BTreeSet<TopicName>,
    /// A pattern in RE2 syntax that the broker evaluates.
    pub pattern: Option<String>,
}

/// Why a member goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Goodbye {
    /// The application leaves; a static member parks.
    Leave,
    /// The application has not polled for the rebalance timeout; a later join begins a new life.
    PollTimeout,
}

/// What is told to a protocol core.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    /// The caller polls and nothing stands in the way: join, if neither joined nor joining.
    Join,
    /// The subscription, now or from now on.
    Subscription(Subscription),
    /// A new picture of the cluster.
    Metadata(&'a Snapshot),
    /// The answer to a request, or that it is lost. Answers to old tickets are ignored.
    Answer {
        ticket: u64,
        answer: Result<Answer>,
        /// From 0 to 1, for the jitter of a back-off.
        random: f64,
    },
    /// That reconciliation is done as far as the group is concerned: what had to go was flushed, committed and
    /// dropped, and `owned` is owned now.
    Reconciled { number: u64, owned: &'a Partitions },
    /// Everything owned was told lost and dropped: the next join begins a new life.
    LostDone,
    /// Leave the group.
    Leave { goodbye: Goodbye },
}

/// Why a set of partitions is to be owned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// The group assigned it.
    Target,
    /// The protocol needs partitions given up before it joins; nothing is assigned by it.
    Prepare,
}

/// What a protocol core wants done.
// One of these exists at a time, for as long as it takes to carry it out.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum Output {
    /// Send a request to the coordinator.
    Send { ticket: u64, lane: Lane, within: Duration, request: Request },
    /// Own exactly these partitions. Of several that wait only the newest counts.
    Reconcile { number: u64, target: Partitions, purpose: Purpose },
    /// The membership is gone: nothing more is delivered, and everything owned is told lost.
    Lost(Error),
    /// Told to the caller by the next poll.
    Fault(Error),
    /// Refused before ever being admitted, in a way that means the group or the broker speaks the other
    /// protocol.
    Refused(Error),
    /// The coordinator asked last is not the coordinator.
    ForgetCoordinator,
    /// Topics whose metadata is needed beyond those assigned.
    Interest(BTreeSet<TopicName>),
    /// Topic ids were named that the metadata does not know.
    NeedIds,
    /// The member has left, or given up trying to say so.
    Left,
}

/// A request to the coordinator, in terms of the newest version; what an older one lacks is cleared on the way.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    ConsumerHeartbeat(ConsumerGroupHeartbeatRequest),
    Join(JoinGroupRequest),
    Sync(SyncGroupRequest),
    Heartbeat(HeartbeatRequest),
    Leave(LeaveGroupRequest),
    /// Of the member's own group, by one that leads it.
    Describe(DescribeGroupsRequest),
}

/// A coordinator's answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    ConsumerHeartbeat(ConsumerGroupHeartbeatResponse),
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    Describe(DescribeGroupsResponse),
    /// Whatever it says: who wants to go is gone.
    Leave,
}

/// A group protocol as a pure state machine.
pub(crate) trait Protocol: Send + std::fmt::Debug {
    /// Takes news.
    fn handle(&mut self, now: Instant, input: Input<'_>);

    /// What to do next; asked until it answers `None`.
    fn poll_output(&mut self, now: Instant) -> Option<Output>;

    /// When to ask again even if nothing happens.
    fn next_deadline(&self) -> Option<Instant>;

    /// Who the member is: `None` while it is not one.
    fn identity(&self) -> Option<Identity>;

    /// The member's id, empty while it has none.
    fn member_id(&self) -> &str;
}
