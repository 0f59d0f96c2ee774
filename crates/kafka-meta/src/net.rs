//! Connections: who may use which.

use std::sync::Arc;

/// What a connection is used for. A broker answers a socket's requests strictly in turn, so what can park has a
/// lane of its own.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Lane {
    /// Metadata and look-ups: short requests that may be shared by everybody.
    Control,
    /// Fetches, parked by the broker until data comes.
    Fetch,
    /// JoinGroup and SyncGroup, parked for as long as a rebalance takes.
    Join,
    /// Heartbeats, commits, committed offsets, leave.
    Group,
    /// Produce requests.
    Produce,
    /// The transaction coordinator's requests.
    Txn,
}

/// Whose connections: one consumer, member, scan or producer. Cheap to clone; when the last clone and the last
/// [`Via`] made from it are dropped, its connections close.
#[derive(Clone, Debug)]
pub struct Owner {
    _room: Arc<Room>,
}

impl Owner {
    /// This owner's connections of one lane.
    pub fn via(&self, lane: Lane) -> Via {
        Via { _owner: Some(self.clone()), lane }
    }
}

/// Which connection of a node a request goes through.
#[derive(Clone, Debug)]
pub struct Via {
    _owner: Option<Owner>,
    lane: Lane,
}

impl Via {
    /// The connections shared by everybody on the cluster.
    pub fn control() -> Via {
        Via { _owner: None, lane: Lane::Control }
    }

    /// The lane.
    pub fn lane(&self) -> Lane {
        self.lane
    }
}

#[derive(Debug, Default)]
pub(crate) struct Room {}

impl Owner {
    pub(crate) fn new() -> Owner {
        Owner { _room: Arc::default() }
    }
}
