//! Which group protocol to speak, found out by asking the coordinator.

use kafka_meta::client::{CoordinatorKind, Lane};
use kafka_meta::{ErrorKind, Result};
use kafka_protocol::messages::ApiKey;
use tokio::time::Instant;

use crate::member::Builder;

/// Whether the group's coordinator serves ConsumerGroupHeartbeat v1, the first that counts as finished. What it
/// lists is asked anew at each subscribe: it is the coordinator that decides, not just any broker.
pub(crate) async fn serves_848(member: &Builder) -> Result<bool> {
    let shared = member.shared();
    let deadline = Instant::now() + shared.config.api_timeout();
    let via = shared.owner.via(Lane::Group);
    loop {
        let node = shared.cluster.coordinator(CoordinatorKind::Group, &member.group, deadline).await?;
        match shared.cluster.versions(node, &via, deadline).await {
            Ok(versions) => {
                let key = ApiKey::ConsumerGroupHeartbeat as i16;
                return Ok(versions.range(key).is_some_and(|range| *range.end() >= 1));
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Timeout)
                    && Instant::now() < deadline =>
            {
                // A coordinator that was killed is named for some seconds more.
                shared.cluster.forget_coordinator(CoordinatorKind::Group, &member.group, node);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error),
        }
    }
}
