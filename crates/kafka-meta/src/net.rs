//! Connections: who may use which, and how they come and go.
//!
//! One connection per (node, lane, owner). A broker answers a socket's requests strictly in turn, so nothing
//! that can park shares a socket with something that must not wait, and two owners never wait for each other.
//!
//! `dial` opens a stream and shakes hands, `login` logs in, `connection` runs it, `renewal` logs in again, `pipeline` decides what is sent and whose
//! answer came, `gate` holds back attempts at addresses that fail, `pool` keeps track.

mod connection;
mod dial;
mod gate;
mod login;
mod pipeline;
mod pool;
mod renewal;

use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorKind};

pub(crate) use connection::Connection;
pub(crate) use dial::{encode, is_late};
pub(crate) use pipeline::{AnswerShape, Submission};
pub(crate) use pool::{Dialer, Peer, Room};

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
    room: Arc<Room>,
}

impl Owner {
    pub(crate) fn new(room: Arc<Room>) -> Owner {
        Owner { room }
    }

    /// This owner's connections of one lane.
    pub fn via(&self, lane: Lane) -> Via {
        Via { owner: Some(self.clone()), lane }
    }
}

/// Which connection of a node a request goes through.
#[derive(Clone, Debug)]
pub struct Via {
    owner: Option<Owner>,
    lane: Lane,
}

impl Via {
    /// The connections shared by everybody on the cluster.
    pub fn control() -> Via {
        Via { owner: None, lane: Lane::Control }
    }

    /// The lane.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The room this goes through; `shared` where it has none of its own.
    pub(crate) fn room<'a>(&'a self, shared: &'a Arc<Room>) -> &'a Arc<Room> {
        self.owner.as_ref().map_or(shared, |owner| &owner.room)
    }
}

/// Whether the other side hung up during the TLS handshake: a port without TLS, but also a broker on its way down,
/// or a balancer with nobody behind it.
pub(crate) fn is_hang_up(error: &Error) -> bool {
    use std::error::Error as _;
    error.kind() == ErrorKind::Tls && error.source().is_some_and(|source| source.is::<std::io::Error>())
}

/// Whether credentials or certificates were refused, by either side.
pub(crate) fn is_refused(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Authentication => true,
        ErrorKind::Tls => !is_hang_up(error),
        _ => false,
    }
}

/// Where a node listens.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
