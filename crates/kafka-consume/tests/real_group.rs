//! Members of all kinds against real brokers: complete and disjoint ownership at every sampled moment, and each
//! record exactly once over joins and clean leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod group_support;

use group_support::{Kind, three_members};
use kafka_consume::{
    Assignor, ClassicConsumer, Cluster, ConsumerConfig, ErrorKind, GroupConsumer, GroupProtocol,
    NegotiatedConsumer,
};
use testkit::{Kafka, kafka};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_of_each_kind_share_without_overlap() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .quick_groups()
        .property("group.initial.rebalance.delay.ms", "0")
        .start()
        .await
        .unwrap();
    kafka.ready_for_groups().await.unwrap();
    three_members(&kafka, "consumer", Kind::Consumer).await;
    three_members(&kafka, "range", Kind::Classic(vec![Assignor::Range])).await;
    three_members(&kafka, "cooperative", Kind::Classic(vec![Assignor::CooperativeSticky])).await;
}

/// What a negotiated member runs on against this cluster, once it owns its topic.
async fn negotiated(kafka: &Kafka) -> GroupProtocol {
    kafka.create_topic("negotiated", 2, 1, &[]).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let config = ConsumerConfig::new().max_wait_ms(100);
    let mut member =
        NegotiatedConsumer::subscribe(cluster, config, "negotiated", ["negotiated"]).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while member.assignment().len() < 2 {
        assert!(std::time::Instant::now() < deadline, "no assignment: {member:?}");
        member.poll().await.unwrap();
    }
    let protocol = member.protocol();
    member.leave().await.unwrap();
    protocol
}

/// A group that classic members live in, on a broker that will not move it: whoever comes speaks classic too.
async fn falls_back_into_a_classic_group(kafka: &Kafka) {
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let config = || ConsumerConfig::new().max_wait_ms(50).with_heartbeat_interval_ms(500);
    let mut classic =
        ClassicConsumer::subscribe(cluster.clone(), config(), "settled", ["negotiated"]).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while classic.assignment().len() < 2 {
        assert!(std::time::Instant::now() < deadline, "no assignment: {classic:?}");
        classic.poll().await.unwrap();
    }
    let mut member =
        NegotiatedConsumer::subscribe(cluster.clone(), config(), "settled", ["negotiated"]).await.unwrap();
    assert_eq!(member.protocol(), GroupProtocol::Consumer, "the coordinator serves it");
    while member.assignment().len() != 1 || classic.assignment().len() != 1 {
        assert!(std::time::Instant::now() < deadline, "{member:?} {classic:?}");
        let (one, other) = tokio::join!(member.poll(), classic.poll());
        one.unwrap();
        other.unwrap();
    }
    assert_eq!(member.protocol(), GroupProtocol::Classic);
    let mut pinned = GroupConsumer::subscribe(cluster, config(), "settled", ["negotiated"]).await.unwrap();
    let refused = loop {
        assert!(std::time::Instant::now() < deadline);
        if let Err(error) = pinned.poll().await {
            break error;
        }
    };
    assert!(refused.to_string().contains("settled"), "{refused}");
    member.leave().await.unwrap();
    classic.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_protocol_follows_what_the_coordinator_serves() {
    if !kafka::enabled() {
        return;
    }
    let kafka =
        Kafka::builder().property("group.consumer.migration.policy", "disabled").start().await.unwrap();
    assert_eq!(negotiated(&kafka).await, GroupProtocol::Consumer);
    falls_back_into_a_classic_group(&kafka).await;
    drop(kafka);

    // Advertised all the same: only the refusal of the first heartbeat tells.
    let kafka =
        Kafka::builder().property("group.coordinator.rebalance.protocols", "classic").start().await.unwrap();
    assert_eq!(negotiated(&kafka).await, GroupProtocol::Classic);
    drop(kafka);

    let kafka = Kafka::builder().version("3.9.1").start().await.unwrap();
    assert_eq!(negotiated(&kafka).await, GroupProtocol::Classic);
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let refused =
        GroupConsumer::subscribe(cluster, ConsumerConfig::new(), "pinned", ["negotiated"]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UnsupportedApi);
}
