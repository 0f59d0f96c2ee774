//! What a member's core asks of the engine, of the driver and of the caller. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_meta::client::Lane;
use kafka_meta::{CommittedOffset, Error, Result, TopicName};

use super::protocol::{Partitions, Request};
use crate::offsets::Identity;

/// What the engine has to do about its assignment.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Op {
    /// Neither deliver nor fetch these any more.
    Hold(Partitions),
    /// They are gone.
    Drop(Partitions),
    /// They are owned, and wait for `on_assign`.
    Add(Partitions),
    /// Look them up and read them.
    Release(Partitions),
}

/// What the driver has to do.
#[derive(Debug)]
pub(crate) enum Order {
    Send {
        ticket: u64,
        lane: Lane,
        within: Duration,
        request: Request,
    },
    Commit(CommitOrder),
    ForgetCoordinator,
    Interest(BTreeSet<TopicName>),
    Refresh,
    /// The identity or the owned set changed: waiting commits follow or are refused.
    Adopt {
        identity: Identity,
        owned: Partitions,
    },
}

/// What a commit came to, per partition.
pub(crate) type Stored = Result<Vec<((TopicName, i32), Result<()>)>>;

/// Offsets to store in the member's name.
#[derive(Debug)]
pub(crate) struct CommitOrder {
    pub number: u64,
    pub offsets: Vec<((TopicName, i32), CommittedOffset)>,
    pub identity: Identity,
    pub within: Duration,
}

/// What the caller's poll has to do before it looks for records.
#[derive(Debug)]
pub(crate) enum Step {
    Revoke {
        number: u64,
        partitions: Partitions,
    },
    Assign {
        number: u64,
        partitions: Partitions,
    },
    Lost {
        number: u64,
        partitions: Partitions,
    },
    Error(Error),
    /// Fell back to the classic protocol: this poll returns no records.
    Switched,
    Nothing,
}

/// Settings that both kinds share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub auto_commit: bool,
    pub auto_commit_interval: Duration,
    pub rebalance_timeout: Duration,
    pub api_timeout: Duration,
    /// Whether a refusal before admission means "speak classic".
    pub may_switch: bool,
    /// Whether patterns are evaluated here, the classic protocol knowing only names.
    pub matches_patterns: bool,
}

/// Counts of a membership.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub rebalances: u64,
    pub lost: u64,
    pub callback_restarts: u64,
    pub commits: u64,
    pub commit_failures: u64,
}
