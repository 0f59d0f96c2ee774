//! The log of what clients sent: for counting requests and looking into fetch sessions.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tokio::time::Instant;

/// One request as a node received it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestSeen {
    /// When it was taken off its connection.
    pub at: Instant,
    /// The node that received it.
    pub node: i32,
    /// The connection it came on; numbers are unique within a cluster.
    pub connection: u64,
    /// The API asked for.
    pub api: ApiKey,
    /// The version of the request.
    pub version: i16,
    /// The correlation id.
    pub correlation: i32,
    /// The client id, empty when none was sent.
    pub client_id: String,
    /// Topics it is about, resolved from ids where they are known; of an incremental Fetch the session's as well.
    pub topics: Vec<String>,
    /// What a Fetch asked for.
    pub fetch: Option<FetchSeen>,
}

/// What a Fetch asked for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FetchSeen {
    /// Session id.
    pub session_id: i32,
    /// Session epoch.
    pub session_epoch: i32,
    /// Partitions named in the request: topic, partition, offset.
    pub partitions: Vec<(String, i32, i64)>,
    /// Partitions in the forgotten list.
    pub forgotten: Vec<(String, i32)>,
    /// How long the node may hold the request back.
    pub max_wait: Duration,
    /// Bytes that end the wait.
    pub min_bytes: i32,
    /// Limit of the whole answer.
    pub max_bytes: i32,
    /// Whether only committed records were asked for.
    pub read_committed: bool,
    /// The client's rack.
    pub rack: String,
}
