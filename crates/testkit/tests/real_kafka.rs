//! The kit's own brokers: they start, stop, die and come back, and administration takes effect everywhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use testkit::{Client, Kafka, kafka};

#[tokio::test]
async fn one_node_starts_and_is_gone_when_dropped() {
    if !kafka::enabled() {
        return;
    }
    let started = Instant::now();
    let kafka = Kafka::builder().start().await.unwrap();
    println!("one node took {:?}", started.elapsed());
    assert_eq!(kafka.brokers().await.unwrap().len(), 1);
    let address = kafka.bootstrap();
    drop(kafka);
    assert!(Client::connect(&address).await.is_err());
}

#[tokio::test]
async fn a_killed_node_of_three_comes_back_with_its_data() {
    if !kafka::enabled() {
        return;
    }
    let started = Instant::now();
    let kafka = Kafka::builder()
        .nodes(3)
        .rack(1, "a")
        .rack(2, "b")
        .quick_failover()
        .property("message.max.bytes", "2000000")
        .start()
        .await
        .unwrap();
    println!("three nodes took {:?}", started.elapsed());
    let brokers = kafka.brokers().await.unwrap();
    assert_eq!(brokers.len(), 3);
    assert!(brokers.iter().any(|broker| broker.rack.as_deref() == Some("b")));

    let id = kafka.create_topic("t", 3, 3, &[("cleanup.policy", "compact")]).await.unwrap();
    kafka.create_topic_on("placed", &[&[2, 3], &[3, 1]], &[]).await.unwrap();
    assert_eq!(kafka.leader("placed", 0).await.unwrap(), 2);
    assert_eq!(kafka.leader("placed", 1).await.unwrap(), 3);

    let killed = Instant::now();
    kafka.kill_node(2).unwrap();
    assert!(kafka.stop_node(2).await.is_err(), "a dead node cannot be stopped");
    while kafka.leader("placed", 0).await.unwrap_or(-1) != 3 {
        assert!(killed.elapsed() < Duration::from_secs(60), "no failover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("failover took {:?}", killed.elapsed());

    let again = Instant::now();
    kafka.restart_node(2).await.unwrap();
    println!("a restart took {:?}", again.elapsed());
    assert_eq!(kafka.topic_id("t").await.unwrap(), id);
    kafka.wait_in_sync("t").await.unwrap();

    kafka.move_leader("placed", 0, 2).await.unwrap();
    assert_eq!(kafka.leader("placed", 0).await.unwrap(), 2);
    // Node 1 is no replica yet.
    kafka.move_leader("placed", 0, 1).await.unwrap();
    assert_eq!(kafka.leader("placed", 0).await.unwrap(), 1);

    kafka.create_partitions("placed", 4).await.unwrap();
    assert_eq!(kafka.partitions("placed").await.unwrap().len(), 4);
    kafka.alter_topic_config("placed", &[("retention.ms", "1000"), ("segment.ms", "")]).await.unwrap();
    let refused = kafka.alter_topic_config("placed", &[("no.such.setting", "1")]).await.unwrap_err();
    assert!(refused.to_string().contains("configure placed"), "{refused}");
    kafka.delete_topic("placed").await.unwrap();
    assert!(kafka.partitions("placed").await.is_err());

    let ready = Instant::now();
    kafka.ready_for_groups().await.unwrap();
    println!("groups took {:?}", ready.elapsed());
    let ready = Instant::now();
    kafka.ready_for_transactions().await.unwrap();
    println!("transactions took {:?}", ready.elapsed());
}

#[tokio::test]
async fn a_frozen_node_answers_nothing_until_it_is_thawed() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().start().await.unwrap();
    let address = kafka.bootstrap();
    kafka.freeze_node(1).unwrap();
    let asked = tokio::time::timeout(Duration::from_millis(500), Client::connect(&address)).await;
    assert!(asked.is_err(), "a frozen node answered");
    assert!(kafka.brokers().await.is_err(), "nobody is left to ask");
    kafka.thaw_node(1).unwrap();
    assert_eq!(kafka.brokers().await.unwrap().len(), 1);
    kafka.stop_node(1).await.unwrap();
    kafka.restart_node(1).await.unwrap();
    assert_eq!(kafka.brokers().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_start_that_cannot_work_says_why() {
    if !kafka::enabled() {
        return;
    }
    let failure = Kafka::builder().property("log.retention.ms", "not a number").start().await.err().unwrap();
    assert!(failure.to_string().contains("not a number"), "{failure}");
}

#[tokio::test]
async fn every_version_of_the_matrix_starts() {
    if !kafka::enabled() {
        return;
    }
    for version in ["3.7.0", "3.9.1", "4.0.0", "4.4.0"] {
        let started = Instant::now();
        let kafka = Kafka::builder().version(version).nodes(2).start().await.unwrap();
        kafka.create_topic("t", 2, 2, &[]).await.unwrap();
        println!("{version} took {:?}", started.elapsed());
    }
}
