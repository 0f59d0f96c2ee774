//! Commits and OffsetFetch against the embedded broker, on a paused clock.

mod cancel;
mod commit;
mod committed;
mod coordinator;
mod stuck;

use std::time::Duration;

use kafka_meta::client::Owner;
use kafka_meta::wire::protocol::messages::ApiKey;
use kafka_meta::{Cluster, CommittedOffset};
use testkit::embedded::Embedded;
use tokio::time::Instant;

use super::{Key, offsets};
use crate::offsets::{GroupOffsets, Identity, Outcome};

const GROUP: &str = "g";

/// A cluster of three nodes with the topic `orders`, and one consumer's view of the group's offsets.
struct Setup {
    kafka: Embedded,
    cluster: Cluster,
    _owner: Owner,
    group: GroupOffsets,
}

async fn setup() -> Setup {
    let kafka = Embedded::start(3);
    kafka.create_topic("orders", 4);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    let owner = cluster.owner();
    let group = GroupOffsets::new(cluster.clone(), &owner, GROUP);
    Setup { kafka, cluster, _owner: owner, group }
}

fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

impl Setup {
    /// Commits as nobody's member, within a minute.
    async fn commit(&self, list: &[(i32, i64)]) -> Outcome {
        self.group.commit(offsets(list), Identity::anonymous(), within(60)).await
    }

    async fn commit_all(&self, list: &[(i32, i64)]) {
        for (key, result) in self.commit(list).await.unwrap() {
            result.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        }
    }

    fn stored(&self, partition: i32) -> Option<i64> {
        self.kafka.committed(GROUP, "orders", partition)
    }

    fn sent(&self, api: ApiKey) -> usize {
        self.kafka.requests_of(api).len()
    }

    fn commits_sent(&self) -> usize {
        self.sent(ApiKey::OffsetCommit)
    }

    async fn committed(&self, partitions: &[i32]) -> kafka_meta::Result<Vec<Option<i64>>> {
        let keys: Vec<Key> = partitions.iter().map(|index| super::key(*index)).collect();
        let found = self.group.committed(keys.clone(), None, within(60)).await?;
        assert_eq!(found.len(), keys.len());
        Ok(keys.iter().map(|key| found[key].as_ref().map(|stored| stored.offset)).collect())
    }

    fn coordinator(&self) -> i32 {
        self.kafka.coordinator(GROUP).unwrap()
    }

    fn another_node(&self) -> i32 {
        self.coordinator() % 3 + 1
    }
}

fn committed_offset(offset: i64) -> CommittedOffset {
    CommittedOffset::new(offset)
}
