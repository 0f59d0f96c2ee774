//! A member of a consumer group under the classic protocol: JoinGroup and SyncGroup, with the assignment computed
//! by whichever member leads.
//!
//! The public type is [`ClassicConsumer`]; the protocol is `classic/`, pure; the assignors are `assign/`; the
//! rest of a member is `member/`, shared with KIP-848.

use std::time::Duration;

use kafka_meta::{Cluster, Error, ErrorKind, Result};

use crate::assign::Assignor;
use crate::config::ConsumerConfig;
use crate::member::protocol::Protocol;
use crate::member::{Builder, Wanted};

mod membership;

use membership::{Membership, Settings};

/// Reads what its group assigns to it, by the protocol of Kafka before 4.0; for groups with members that speak
/// nothing else. On Kafka 4.x [`GroupConsumer`](crate::GroupConsumer) is less work for everybody.
///
/// `subscribe` describes the member; the first [`poll`](ClassicConsumer::poll) joins. Under a list that contains
/// an eager assignor (the default does) every rebalance hands the listener the whole assignment.
///
/// Members may share a [`Cluster`]: a join that waits at the coordinator has a connection of its own.
#[derive(Debug)]
pub struct ClassicConsumer {
    pub(crate) member: Builder,
}

impl ClassicConsumer {
    fn check_pattern(pattern: &str) -> Result<()> {
        check_pattern(pattern)
    }

    async fn start(cluster: Cluster, config: ConsumerConfig, group: String, wanted: Wanted) -> Result<Self> {
        let member = Builder::new(cluster, config, group, wanted, make)?;
        check_timeouts(member.config())?;
        Ok(ClassicConsumer { member })
    }

    /// Which assignors this member offers, the preferred one first (`partition.assignment.strategy`). The group
    /// uses the one most members prefer among those all of them offer. Rebalances are cooperative only if every
    /// assignor listed is. Default: `[Range, CooperativeSticky]`, Java's, which is eager.
    pub fn assignors(mut self, order: impl IntoIterator<Item = Assignor>) -> Self {
        self.member.warn_if_joined("assignors");
        self.member.assignors = order.into_iter().collect();
        self
    }
}

member_methods!(ClassicConsumer);

/// The pattern as the client matches it.
pub(crate) fn check_pattern(pattern: &str) -> Result<()> {
    let refuse = |detail: String| Error::new(ErrorKind::InvalidRequest, "subscribe").with_detail(detail);
    if pattern.is_empty() {
        return Err(refuse("the pattern is empty".to_owned()));
    }
    regex::Regex::new(pattern).map(drop).map_err(|error| refuse(error.to_string()))
}

/// A broker accepts an inverted pair and then evicts members in the middle of a rebalance.
pub(crate) fn check_timeouts(config: &ConsumerConfig) -> Result<()> {
    let refuse = |detail: String| Err(Error::new(ErrorKind::InvalidRequest, "subscribe").with_detail(detail));
    let (session, rebalance, beat) =
        (config.session_timeout_ms, config.rebalance_timeout_ms, config.heartbeat_interval_ms);
    if session > rebalance {
        return refuse(format!("session_timeout_ms ({session}) is over rebalance_timeout_ms ({rebalance})"));
    }
    if beat < 1 || beat >= session {
        return refuse(format!(
            "heartbeat_interval_ms ({beat}) must be below session_timeout_ms ({session})"
        ));
    }
    Ok(())
}

/// The protocol core of what a builder describes.
pub(crate) fn make(member: &Builder) -> Result<Box<dyn Protocol>> {
    let config = member.config();
    check_timeouts(config)?;
    if member.assignors.is_empty() {
        return Err(Error::new(ErrorKind::InvalidRequest, "subscribe").with_detail("no assignor is listed"));
    }
    let rack = config.rack.as_deref().or(member.shared().cluster.config().rack());
    Ok(Box::new(Membership::new(Settings {
        group: member.group.clone(),
        instance_id: member.instance_id.clone(),
        assignors: member.assignors.clone(),
        session_timeout: millis(config.session_timeout_ms),
        rebalance_timeout: millis(config.rebalance_timeout_ms),
        heartbeat_interval: millis(config.heartbeat_interval_ms),
        rack: rack.map(str::to_owned),
    })))
}

fn millis(millis: i32) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
