//! A group member that finds out which protocol to speak.
//!
//! The coordinator's ApiVersions decide first; but a broker may list KIP-848 and refuse it, since advertisement
//! follows the software and not the configuration. So the first refusal before admission decides again, once,
//! for the classic protocol. A refusal after that is a broker that changed underneath a live group, and stays an
//! error: members of the other protocol may be waiting on this one's partitions.

use kafka_meta::client::Lane;
use kafka_meta::{Cluster, Error, ErrorKind, Result};
use kafka_protocol::messages::ApiKey;
use tokio::time::Instant;

use crate::assign::Assignor;
use crate::config::{ConsumerConfig, GroupProtocol};
use crate::coordinator::{Reply, with_coordinator};
use crate::member::{Builder, Wanted};
use crate::{classic, group};

/// A group member on KIP-848 where the coordinator serves it, else on the classic protocol; pinned by
/// [`ConsumerConfig::with_group_protocol`].
///
/// Falls back at most once and only before it was ever admitted: that poll returns no records, and subscription,
/// instance id, auto-commit, listener, assignors, handles and pauses carry over.
#[derive(Debug)]
pub struct NegotiatedConsumer {
    pub(crate) member: Builder,
}

impl NegotiatedConsumer {
    fn check_pattern(pattern: &str) -> Result<()> {
        classic::check_pattern(pattern)
    }

    async fn start(cluster: Cluster, config: ConsumerConfig, group: String, wanted: Wanted) -> Result<Self> {
        let pinned = config.group_protocol;
        let mut member = Builder::new(cluster, config, group, wanted, classic::make)?;
        let serves = pinned != GroupProtocol::Classic && serves_848(&member).await?;
        match pinned {
            GroupProtocol::Consumer if !serves => return Err(not_served()),
            GroupProtocol::Consumer => member.make = group::make,
            GroupProtocol::Auto if serves => {
                member.make = group::make;
                member.fallback = Some(classic::make);
            }
            GroupProtocol::Auto | GroupProtocol::Classic => classic::check_timeouts(member.config())?,
        }
        Ok(NegotiatedConsumer { member })
    }

    /// As [`ClassicConsumer::assignors`](crate::ClassicConsumer::assignors); used on the classic protocol.
    pub fn assignors(mut self, order: impl IntoIterator<Item = Assignor>) -> Self {
        self.member.warn_if_joined("assignors");
        self.member.assignors = order.into_iter().collect();
        self
    }

    /// As [`GroupConsumer::remote_assignor`](crate::GroupConsumer::remote_assignor); used on KIP-848.
    pub fn remote_assignor(mut self, name: impl Into<String>) -> Self {
        self.member.warn_if_joined("remote_assignor");
        self.member.remote_assignor = Some(name.into());
        self
    }

    /// What it runs on now: never [`GroupProtocol::Auto`].
    pub fn protocol(&self) -> GroupProtocol {
        if self.member.speaks_848() { GroupProtocol::Consumer } else { GroupProtocol::Classic }
    }
}

member_methods!(NegotiatedConsumer);

/// KIP-848 was asked for, and the coordinator is too old.
pub(crate) fn not_served() -> Error {
    Error::new(ErrorKind::UnsupportedApi, "subscribe").with_detail(
        "the coordinator does not serve ConsumerGroupHeartbeat v1 (Kafka 4.0): use the classic protocol",
    )
}

/// Whether the group's coordinator serves ConsumerGroupHeartbeat v1, the first that counts as finished. What it
/// lists is asked anew at each subscribe: it is the coordinator that decides, not just any broker.
pub(crate) async fn serves_848(member: &Builder) -> Result<bool> {
    let shared = member.shared();
    let deadline = Instant::now() + shared.config.api_timeout();
    let via = shared.owner.via(Lane::Group);
    with_coordinator(&shared.cluster, "subscribe", &member.group, deadline, |node, within| {
        let (cluster, via) = (&shared.cluster, &via);
        async move {
            let versions = cluster.versions(node, via, within).await?;
            let key = ApiKey::ConsumerGroupHeartbeat as i16;
            Ok(Reply::Done(versions.range(key).is_some_and(|range| *range.end() >= 1)))
        }
    })
    .await
}
