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
