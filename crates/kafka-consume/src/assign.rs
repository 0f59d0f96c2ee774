//! The classic protocol's client-side assignors: what the leader of a group computes, and the two formats that
//! carry it through the broker.
//!
//! Pure functions: no clock, no randomness, no I/O. A leader may be any client, so both the bytes and the result
//! are those of Kafka's Java client, down to the order in which its hash maps are walked. Where Java's own result
//! is wrong (a partition given twice, a topic nobody asked for, an exception) ours is valid and balanced instead.
//!
//! What this is not: the membership. When to join, what to revoke and when to join again is decided elsewhere.
//!
//! Invariants, for every input:
//! - every partition of a topic somebody subscribes to goes to exactly one subscriber, except those withheld;
//! - a member is given only topics it subscribes to, and every member is in the result, maybe with nothing;
//! - under [`Assignor::CooperativeSticky`] no partition goes to a member that did not claim it while another claims
//!   it: those are withheld and come in the rebalance that follows the revocation;
//! - what others wrote into their subscriptions (vanished topics, negative partitions, repeated claims) is input
//!   to be judged, never an index.

mod cooperative_sticky;
mod group;
mod java;
mod protocol;
mod racks;
mod range;
mod round_robin;
mod sticky;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_meta::{Error, ErrorKind, Result};

// Written and read by the membership.
#[allow(unused_imports)]
pub(crate) use protocol::{Assignment, Subscription};

use group::Group;

/// How the leader of a classic group spreads partitions over its members.
///
/// The names on the wire are those of the Java client, so that groups may mix clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Assignor {
    /// `range`: per topic, each member takes a contiguous run. Topics with as many partitions and the same
    /// subscribers are split alike. Eager.
    Range,
    /// `roundrobin`: all partitions in one row, dealt out in turn. Eager.
    RoundRobin,
    /// `cooperative-sticky`: balanced, moving as little as possible; a partition that changes hands is given to
    /// nobody until its old owner has let go of it (KIP-429).
    CooperativeSticky,
}

impl Assignor {
    /// What a member offers unless told otherwise, the preferred one first.
    pub(crate) const DEFAULT: [Self; 2] = [Self::Range, Self::CooperativeSticky];

    /// The name used on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::RoundRobin => "roundrobin",
            Self::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// The assignor of that name, if it is one of ours.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Range, Self::RoundRobin, Self::CooperativeSticky].into_iter().find(|a| a.name() == name)
    }

    /// What this assignor adds to a member's subscription: cooperative-sticky repeats the generation the owned
    /// partitions come from, for leaders that read no newer field. -1 before the first assignment.
    pub(crate) fn user_data(self, generation: i32) -> Option<Bytes> {
        match self {
            Self::CooperativeSticky => Some(Bytes::copy_from_slice(&generation.to_be_bytes())),
            Self::Range | Self::RoundRobin => None,
        }
    }
}

impl std::fmt::Display for Assignor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a member gives everything back before a rebalance or only what it lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RebalanceProtocol {
    Eager,
    Cooperative,
}

impl RebalanceProtocol {
    /// Fixed by the member's list, as in Java: cooperative only if every listed assignor is. An eager assignor may
    /// be what the group agrees on, and it hands partitions over at once.
    pub(crate) fn of(assignors: &[Assignor]) -> Self {
        let cooperative = |assignor: &Assignor| matches!(assignor, Assignor::CooperativeSticky);
        if !assignors.is_empty() && assignors.iter().all(cooperative) {
            Self::Cooperative
        } else {
            Self::Eager
        }
    }
}

/// A member as the JoinGroup answer shows it to the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub id: String,
    pub instance_id: Option<String>,
    pub subscription: Subscription,
}

/// The partitions of a topic: indices 0 up to `count`, and the racks of each one's replicas where they are known
/// (brokers without a rack left out; offline replicas count).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TopicPartitions {
    pub count: i32,
    pub racks: Vec<Vec<String>>,
}

/// What the leader's metadata says about the group's topics. One that is missing is given to nobody.
pub(crate) type Topics = BTreeMap<String, TopicPartitions>;

/// What a leader remembers from one assignment to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AssignorState {
    /// The newest generation any claim came from; never goes down, so that a group of only stale members is still
    /// known to be stale.
    pub max_generation: i32,
    /// Rounds in a row that withheld something. Nearness and stickiness can pull a partition to and fro for ever
    /// (Java's rule drops claims without a nearby replica); a group that does not come to rest is spread without
    /// regard to racks until it does.
    pub restless: u32,
}

/// A move takes two rounds; more than this many in a row is no move but a swing.
const RESTLESS: u32 = 4;

impl Default for AssignorState {
    fn default() -> Self {
        Self { max_generation: -1, restless: 0 }
    }
}

/// The leader's decision, one entry per member in the order they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub members: Vec<(String, Vec<(String, i32)>)>,
    /// Partitions given to nobody in this round because their old owner has yet to let go.
    pub withheld: usize,
}

/// Spreads the partitions of `topics` over `members`.
pub(crate) fn assign(
    assignor: Assignor,
    members: &[Member],
    topics: &Topics,
    state: &mut AssignorState,
) -> Assigned {
    let group = Group::new(members, topics);
    let (lists, withheld) = match assignor {
        Assignor::Range => (range::assign(&group), 0),
        Assignor::RoundRobin => (round_robin::assign(&group), 0),
        Assignor::CooperativeSticky => cooperative_sticky::assign(&group, state),
    };
    Assigned { members: group.named(lists), withheld }
}

/// The error for bytes of another member that are not what they claim to be.
fn malformed(operation: &'static str, what: &'static str) -> Error {
    Error::new(ErrorKind::Other, operation).with_detail(what)
}

/// Shorthand of the decoders.
type Decoded<T> = Result<T>;
