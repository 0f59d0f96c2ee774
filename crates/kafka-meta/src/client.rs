//! What the other crates of the workspace need to ask a cluster: which connection, which node, what came back.
//!
//! Not part of the public surface. The methods that take these types are inherent methods of
//! [`Cluster`](crate::Cluster).

mod backoff;
pub mod offsets;

pub use crate::cluster::{Broker, Endpoint, Interest, Lease, Partition, Placing, Snapshot, Submitted, Topic};
pub use crate::net::{Lane, Owner, Via};
pub use crate::wire::versions::ApiVersions;
pub use backoff::Backoff;

use bytes::Bytes;

use crate::{Error, ErrorCode, ErrorKind, TopicName};

/// Which node a request goes to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum To {
    /// The broker of this id.
    Node(i32),
    /// Any node that can be reached, the bootstrap addresses included.
    Any,
}

/// Which kind of coordinator is looked for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CoordinatorKind {
    /// A consumer group's coordinator; the key is the group id.
    Group,
    /// A transaction's coordinator; the key is the transactional id.
    Transaction,
}

/// An answer whose body has not been decoded.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    /// The version the request was sent in.
    pub version: i16,
    /// What follows the response header.
    pub body: Bytes,
    /// The node that answered; negative for a bootstrap address whose id is not known.
    pub node: i32,
}

/// What metadata says of a partition's leader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Leader {
    /// It is led by this node, in this epoch.
    Node(i32, Option<i32>),
    /// It exists, and nobody leads it now.
    None,
    /// It is not there.
    Absent,
    /// The brokers will not tell, and asking again cannot change that.
    Refused(ErrorCode),
}

impl Leader {
    /// What this picture says.
    pub fn of(snapshot: &Snapshot, name: TopicName, index: i32) -> Self {
        let Some(topic) = snapshot.topic(name) else { return Leader::Absent };
        match topic.error {
            ErrorCode::NONE => {}
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => return Leader::Absent,
            code if code.is_retriable() => return Leader::None,
            code => return Leader::Refused(code),
        }
        let Some(partition) = topic.partition(index) else { return Leader::Absent };
        partition.leader.map_or(Leader::None, |node| Leader::Node(node, partition.leader_epoch))
    }
}

/// Whether a failure to get any answer passes by itself.
pub fn passes(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Disconnected | ErrorKind::Timeout => true,
        ErrorKind::Broker(code) => code.is_retriable(),
        _ => false,
    }
}
