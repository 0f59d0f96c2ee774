//! Against real brokers: the handshake of each line of versions, leaders that move, nodes that die and freeze,
//! topics made anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use kafka_meta::client::{CoordinatorKind, Lane, Snapshot, Via};
use kafka_meta::{Cluster, ClusterConfig, ErrorKind, TopicName};
use testkit::{Kafka, kafka};
use tokio::time::Instant;

fn soon(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

async fn until(cluster: &Cluster, what: &str, condition: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let mut watch = cluster.watch();
    let waiting = async {
        loop {
            let snapshot = cluster.snapshot();
            if condition(&snapshot) {
                return snapshot;
            }
            cluster.refresh();
            let _ = tokio::time::timeout(Duration::from_millis(200), watch.changed()).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, waiting).await.unwrap_or_else(|_| panic!("never: {what}"))
}

async fn the_basics(version: &str) {
    let kafka = Kafka::builder().version(version).start().await.unwrap();
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    assert_eq!(cluster.snapshot().brokers.len(), 1, "{version}");
    let error = cluster.partitions("nope").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{version}: {error}");

    let id = kafka.create_topic("orders", 3, 1, &[]).await.unwrap();
    assert_eq!(cluster.partitions("orders").await.unwrap(), [0, 1, 2], "{version}");
    let snapshot = cluster.snapshot();
    let topic = snapshot.topic_by_id(id).unwrap();
    assert_eq!(topic.name, "orders");
    assert!(topic.partitions.iter().all(|partition| partition.leader == Some(1)));
    assert!(topic.partitions.iter().all(|partition| partition.leader_epoch == Some(0)));
    let names = cluster.topic_names(&[id, uuid::Uuid::from_u128(5)], soon(10)).await.unwrap();
    assert_eq!(names.len(), 1, "{version}");

    // Nobody has used a group yet: the first look-up creates what coordinators need.
    assert_eq!(cluster.coordinator(CoordinatorKind::Group, "g", soon(60)).await.unwrap(), 1);
    assert_eq!(cluster.coordinator(CoordinatorKind::Transaction, "t", soon(60)).await.unwrap(), 1);

    let owner = cluster.owner();
    let versions = cluster.versions(1, &owner.via(Lane::Fetch), soon(10)).await.unwrap();
    assert!(*versions.range(1).unwrap().end() >= 16, "{version}");
    assert!(versions.finalized("metadata.version") > 0, "{version}");
    assert_eq!(versions.finalized("group.version"), i16::from(!version.starts_with('3')), "{version}");

    kafka.delete_topic("orders").await.unwrap();
    let new = kafka.create_topic("orders", 2, 1, &[]).await.unwrap();
    let interest = cluster.interest();
    interest.set([TopicName::new("orders")]);
    until(&cluster, "the new topic", |snapshot| snapshot.topic_by_id(new).is_some()).await;
    assert!(cluster.snapshot().topic_by_id(id).is_none());
}

#[tokio::test]
async fn every_line_of_versions_is_understood() {
    if !kafka::enabled() {
        return;
    }
    for version in ["3.7.0", "3.9.1", "4.0.0", "4.3.1"] {
        the_basics(version).await;
    }
}

#[tokio::test]
async fn leaders_are_followed_when_nodes_die_freeze_and_come_back() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().nodes(3).quick_failover().start().await.unwrap();
    kafka.create_topic_on("orders", &[&[2, 3]], &[]).await.unwrap();
    let orders = TopicName::new("orders");
    let config = ClusterConfig::new(&kafka.bootstrap()).with_request_timeout(Duration::from_secs(10));
    let cluster = Cluster::connect_with(config).await.unwrap();
    let interest = cluster.interest();
    interest.set([orders]);
    let leads = |node: i32| {
        move |snapshot: &Snapshot| {
            snapshot.partition(orders, 0).is_some_and(|partition| partition.leader == Some(node))
        }
    };
    let before = until(&cluster, "the first leader", leads(2)).await;
    kafka.kill_node(2).unwrap();
    let after = until(&cluster, "the second leader", leads(3)).await;
    let epoch = |snapshot: &Snapshot| snapshot.partition(orders, 0).unwrap().leader_epoch.unwrap();
    assert!(epoch(&after) > epoch(&before));

    kafka.restart_node(2).await.unwrap();
    kafka.wait_in_sync("orders").await.unwrap();
    until(&cluster, "node 2 among the brokers", |snapshot| snapshot.brokers.contains_key(&2)).await;
    cluster.versions(2, &Via::control(), soon(20)).await.unwrap();

    // A frozen node keeps its sockets open and says nothing; the others are asked.
    kafka.freeze_node(3).unwrap();
    until(&cluster, "the leader after the freeze", leads(2)).await;
    kafka.thaw_node(3).unwrap();
}
