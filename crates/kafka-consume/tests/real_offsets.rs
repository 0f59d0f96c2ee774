//! Commits, stored offsets and offset look-ups against real brokers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use kafka_consume::{
    Cluster, ClusterConfig, CommittedOffset, Consumer, ConsumerConfig, ErrorCode, ErrorKind, Position,
};
use testkit::{Kafka, kafka};

const PARTITIONS: i32 = 3;

/// A consumer of `group`, assigned every partition of `topic` at its end.
async fn consumer(kafka: &Kafka, group: &str, topic: &str) -> Consumer {
    let config = ClusterConfig::new(&kafka.bootstrap()).with_request_timeout(Duration::from_secs(10));
    let cluster = Cluster::connect_with(config).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().group_id(group));
    let partitions = (0..PARTITIONS).map(|index| (topic.to_owned(), index));
    consumer.assign(partitions, Position::Latest).await.unwrap();
    consumer
}

async fn topic(kafka: &Kafka, name: &str) -> String {
    let name = format!("{name}-{}", kafka.version().unwrap_or("any").replace('.', "-"));
    kafka.create_topic(&name, PARTITIONS, 1, &[]).await.unwrap();
    name
}

fn at(topic: &str, partition: i32, offset: i64) -> ((String, i32), CommittedOffset) {
    ((topic.to_owned(), partition), CommittedOffset::new(offset))
}

/// No group was ever used here: FindCoordinator answers 15, then the coordinator 16 and 14.
async fn the_first_commit_of_a_fresh_cluster_waits_for_the_coordinator(kafka: &Kafka) {
    let topic = topic(kafka, "fresh").await;
    let mut consumer = consumer(kafka, "fresh", &topic).await;
    let start = Instant::now();
    let results = consumer.commit_offsets([at(&topic, 0, 5), at(&topic, 1, 6)]).await.unwrap();
    println!("the first commit took {:?}", start.elapsed());
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    let stored = consumer.committed().await.unwrap();
    assert_eq!(stored.len(), 2, "none is stored for the third: {stored:?}");
    assert_eq!(stored[&(topic.clone(), 0)].offset, 5);
}

async fn offset_epoch_and_metadata_come_back_as_stored(kafka: &Kafka) {
    let topic = topic(kafka, "forms").await;
    let mut consumer = consumer(kafka, "forms", &topic).await;
    assert!(consumer.committed().await.unwrap().is_empty(), "a group nobody has used");
    let full = CommittedOffset::new(5).with_leader_epoch(15).with_metadata("foo");
    let list = [((topic.clone(), 0), full.clone()), at(&topic, 1, 10)];
    consumer.commit_offsets(list).await.unwrap();
    let stored = consumer.committed().await.unwrap();
    assert_eq!(stored[&(topic.clone(), 0)], full);
    assert_eq!(stored[&(topic.clone(), 1)], CommittedOffset::new(10));

    let longest = CommittedOffset::new(6).with_metadata("x".repeat(4096));
    let too_long = CommittedOffset::new(7).with_metadata("x".repeat(4097));
    let list = [((topic.clone(), 0), longest), ((topic.clone(), 1), too_long), at(&topic, 2, -1)];
    let results = consumer.commit_offsets(list).await.unwrap();
    let kind = |partition: i32| {
        let found = results.iter().find(|((_, index), _)| *index == partition).unwrap();
        found.1.as_ref().err().map(kafka_consume::Error::kind)
    };
    assert_eq!(kind(0), None);
    assert_eq!(kind(1), Some(ErrorKind::Broker(ErrorCode::OFFSET_METADATA_TOO_LARGE)));
    assert_eq!(kind(2), Some(ErrorKind::InvalidRequest));
    assert_eq!(consumer.committed().await.unwrap()[&(topic.clone(), 1)].offset, 10);
}

async fn many_commits_in_flight_end_with_the_last_one(kafka: &Kafka) {
    let topic = topic(kafka, "many").await;
    let consumer = consumer(kafka, "many", &topic).await;
    let handle = consumer.handle();
    let commits = (1..=500).map(|offset| handle.commit_offsets([at(&topic, 0, offset)]));
    for outcome in futures::future::join_all(commits).await {
        assert!(outcome.unwrap()[0].1.is_ok());
    }
    assert_eq!(consumer.committed().await.unwrap()[&(topic.clone(), 0)].offset, 500);
}

async fn a_deleted_topic_is_refused_and_the_others_are_stored(kafka: &Kafka) {
    let (kept, gone) = (topic(kafka, "kept").await, topic(kafka, "gone").await);
    let mut consumer = consumer(kafka, "deleted", &kept).await;
    consumer.assign_more([((gone.clone(), 0), Position::Offset(0))]).await.unwrap();
    kafka.delete_topic(&gone).await.unwrap();
    let start = Instant::now();
    let results = consumer.commit_offsets([at(&kept, 0, 1), at(&gone, 0, 1)]).await.unwrap();
    println!("a commit with a deleted topic took {:?}", start.elapsed());
    for ((name, _), result) in &results {
        match result {
            Ok(()) => assert_eq!(*name, kept),
            Err(error) => assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some(&*gone))),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(results.iter().filter(|(_, result)| result.is_ok()).count(), 1, "{results:?}");
}

async fn an_unknown_topic_or_partition_is_named_soon(kafka: &Kafka) {
    let topic = topic(kafka, "lookup").await;
    let consumer = consumer(kafka, "lookup", &topic).await;
    for (name, partition) in [("no-such-topic", 0), (topic.as_str(), 77)] {
        let start = Instant::now();
        let error = consumer.end_offsets([(name.to_owned(), partition)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownTopic, "{error}");
        assert_eq!((error.topic(), error.partition()), (Some(name), Some(partition)));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

async fn everything_on_one_node(version: &str) {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().version(version).start().await.unwrap();
    the_first_commit_of_a_fresh_cluster_waits_for_the_coordinator(&kafka).await;
    offset_epoch_and_metadata_come_back_as_stored(&kafka).await;
    many_commits_in_flight_end_with_the_last_one(&kafka).await;
    a_deleted_topic_is_refused_and_the_others_are_stored(&kafka).await;
    an_unknown_topic_or_partition_is_named_soon(&kafka).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_of_4_3_1() {
    everything_on_one_node("4.3.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_of_3_9_1() {
    everything_on_one_node("3.9.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_survive_the_death_of_their_coordinator() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .nodes(3)
        .quick_failover()
        .property("offsets.topic.replication.factor", "3")
        .property("offsets.topic.num.partitions", "3")
        .start()
        .await
        .unwrap();
    kafka.create_topic("orders", PARTITIONS, 3, &[]).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    kafka.wait_in_sync("__consumer_offsets").await.unwrap();
    let mut consumer = consumer(&kafka, "movers", "orders").await;
    let mut last = 0;
    for round in 0..2 {
        let coordinator = kafka.group_coordinator("movers").await.unwrap();
        let start = Instant::now();
        let mut slowest = Duration::ZERO;
        let mut killed = false;
        while start.elapsed() < Duration::from_secs(12) {
            last += 1;
            let one = Instant::now();
            let results = consumer.commit_offsets([at("orders", 0, last)]).await.unwrap();
            assert!(results[0].1.is_ok(), "{results:?}");
            slowest = slowest.max(one.elapsed());
            if !killed && start.elapsed() > Duration::from_millis(500) {
                killed = true;
                if round == 0 {
                    kafka.kill_node(coordinator).unwrap();
                } else {
                    kafka.stop_node(coordinator).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("round {round}: slowest commit {slowest:?}, {last} commits");
        assert_eq!(consumer.committed().await.unwrap()[&("orders".to_owned(), 0)].offset, last);
        kafka.restart_node(coordinator).await.unwrap();
        kafka.wait_in_sync("__consumer_offsets").await.unwrap();
    }
}
