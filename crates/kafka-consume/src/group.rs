//! A member of a consumer group under KIP-848: the broker computes the assignment, the client reconciles it.
//!
//! The public type is [`GroupConsumer`]; the protocol is `group/membership.rs`, pure; the rest of a member is
//! `member/`, shared with the classic protocol.

use kafka_meta::{Cluster, Error, ErrorKind, Result};

use crate::config::ConsumerConfig;
use crate::member::protocol::Protocol;
use crate::member::{Builder, Wanted};

mod membership;

use membership::{Membership, Settings};

/// Reads what its group assigns to it, by the protocol of Kafka 4.0 and later (KIP-848).
///
/// `subscribe` describes the member; the first [`poll`](GroupConsumer::poll) joins. Nothing is owned until the
/// group has answered, which may take a second or more: a first empty poll is normal.
///
/// Members may share a [`Cluster`]: each has its own connections to the coordinator.
#[derive(Debug)]
pub struct GroupConsumer {
    pub(crate) member: Builder,
}

impl GroupConsumer {
    /// The broker matches; it says what is wrong with one it cannot parse.
    fn check_pattern(pattern: &str) -> Result<()> {
        if pattern.is_empty() {
            return Err(
                Error::new(ErrorKind::InvalidRequest, "subscribe").with_detail("the pattern is empty")
            );
        }
        Ok(())
    }

    async fn start(cluster: Cluster, config: ConsumerConfig, group: String, wanted: Wanted) -> Result<Self> {
        let member = Builder::new(cluster, config, group, wanted, make)?;
        if !crate::negotiated::serves_848(&member).await? {
            return Err(crate::negotiated::not_served());
        }
        Ok(GroupConsumer { member })
    }

    /// Which of the broker's assignors the group is asked to use (`group.remote.assignor`): `"uniform"` or
    /// `"range"`. Default: the broker's choice.
    pub fn remote_assignor(mut self, name: impl Into<String>) -> Self {
        self.member.warn_if_joined("remote_assignor");
        self.member.remote_assignor = Some(name.into());
        self
    }
}

member_methods!(GroupConsumer);

/// The protocol core of what a builder describes.
pub(crate) fn make(member: &Builder) -> Result<Box<dyn Protocol>> {
    let rack = member.config().rack.as_deref().or(member.shared().cluster.config().rack());
    Ok(Box::new(Membership::new(
        Settings {
            group: member.group.clone(),
            instance_id: member.instance_id.clone(),
            assignor: member.remote_assignor.clone(),
            rack: rack.map(str::to_owned),
            rebalance_timeout_ms: member.config().rebalance_timeout_ms,
        },
        new_id(),
    )))
}

fn new_id() -> uuid::Uuid {
    // A test's seed decides everything that is drawn.
    if cfg!(test) {
        return uuid::Uuid::from_u128(fastrand::u128(..));
    }
    uuid::Uuid::new_v4()
}
