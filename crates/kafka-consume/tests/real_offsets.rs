//! Commits, stored offsets and offset look-ups against real brokers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use kafka_consume::{
    Cluster, ClusterConfig, CommittedOffset, Consumer, ConsumerConfig, ErrorCode, ErrorKind, Position,
    Visibility,
};
use testkit::java::Java;
use testkit::produce::{Message, Writer};
use testkit::txn::Transactions;
use testkit::{Kafka, kafka};

const PARTITIONS: i32 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Anonymous commits are for groups without members; reading is for everybody.
async fn a_live_java_group_refuses_an_anonymous_commit_per_partition(
    kafka: &Kafka,
    java: &Java,
    protocol: &str,
) {
    let name = topic(kafka, &format!("live-{protocol}")).await;
    let group = format!("live-{protocol}");
    let mut consumer = consumer(kafka, &group, &name).await;
    assert!(consumer.commit_offsets([at(&name, 0, 1)]).await.unwrap()[0].1.is_ok());

    let mut member = java.verifiable_consumer(&name, &group, &["--group-protocol", protocol]).unwrap();
    let assigned = |events: &[serde_json::Value]| {
        events.iter().any(|event| event["name"] == "partitions_assigned").then_some(())
    };
    member.wait_for(PATIENCE, assigned).await.unwrap();
    let results = consumer.commit_offsets([at(&name, 0, 5), at(&name, 1, 6)]).await.unwrap();
    assert_eq!(results.len(), 2);
    for (_, result) in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Broker(ErrorCode::UNKNOWN_MEMBER_ID));
    }
    assert!(consumer.committed().await.is_ok(), "a null member id may always read");

    member.terminate().unwrap();
    member.end(PATIENCE).await.unwrap();
    let start = Instant::now();
    loop {
        let results = consumer.commit_offsets([at(&name, 0, 7), at(&name, 1, 8)]).await.unwrap();
        if results.iter().all(|(_, result)| result.is_ok()) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{results:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let told = java.consumer_groups(&["--describe", "--group", &group, "--offsets"]).await.unwrap();
    let told: Vec<Vec<&str>> = told.iter().map(|line| line.split_whitespace().collect()).collect();
    for (partition, offset) in [("0", "7"), ("1", "8")] {
        let shown = told.iter().any(|words| {
            let after = words.iter().position(|word| *word == name).map(|at| &words[at + 1..]);
            after.is_some_and(|after| {
                after.first() == Some(&partition) && after.get(1..3).unwrap().contains(&offset)
            })
        });
        assert!(shown, "{told:?}");
    }
}

async fn offsets_of_an_open_transaction_are_waited_for(kafka: &Kafka) {
    let name = topic(kafka, "stable").await;
    let mut consumer = consumer(kafka, "stable", &name).await;
    consumer.commit_offsets([at(&name, 0, 3), at(&name, 1, 4)]).await.unwrap();
    kafka.ready_for_transactions().await.unwrap();
    let mut writer = Transactions::init(&kafka.bootstrap(), "stable").await.unwrap();

    writer.send_offsets("stable", &[(&name, 0, 17)]).await.unwrap();
    let config = ConsumerConfig::new().group_id("stable").api_timeout_ms(2_000);
    let mut hasty = Consumer::connect(&kafka.bootstrap(), config).await.unwrap();
    hasty.assign([(name.clone(), 0)], Position::Offset(0)).await.unwrap();
    let error = hasty.committed().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("UNSTABLE_OFFSET_COMMIT"), "{error}");

    let start = Instant::now();
    let (stored, ()) = tokio::join!(consumer.committed(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        writer.commit().await.unwrap();
    });
    assert!(start.elapsed() >= Duration::from_secs(1));
    let stored = stored.unwrap();
    assert_eq!((stored[&(name.clone(), 0)].offset, stored[&(name.clone(), 1)].offset), (17, 4));

    writer.send_offsets("stable", &[(&name, 0, 99)]).await.unwrap();
    let (stored, ()) = tokio::join!(consumer.committed(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        writer.abort().await.unwrap();
    });
    assert_eq!(stored.unwrap()[&(name.clone(), 0)].offset, 17);
}

async fn timestamps_and_ends_are_found(kafka: &Kafka) {
    let name = topic(kafka, "times").await;
    let mut writer = Writer::new(&kafka.bootstrap());
    let stamped = [1000, 1001, 9000, 9001, 5000, 5001].map(|millis| Message::value("v").at(millis));
    writer.send(&name, 0, stamped).await.unwrap();
    let consumer = consumer(kafka, "times", &name).await;
    let key = |partition: i32| (name.clone(), partition);
    for (millis, found) in
        [(0, Some((0, 1000))), (1002, Some((2, 9000))), (5001, Some((2, 9000))), (9002, None)]
    {
        let times = consumer.offsets_for_times([(key(0), millis), (key(1), millis)]).await.unwrap();
        assert_eq!((times[&key(0)], times[&key(1)]), (found, None), "{millis}");
    }
    kafka.delete_records(&name, 0, 4).await.unwrap();
    let first = consumer.beginning_offsets([key(0), key(1)]).await.unwrap();
    assert_eq!((first[&key(0)], first[&key(1)]), (4, 0));

    let mut open = Transactions::init(&kafka.bootstrap(), "times").await.unwrap();
    open.send(&name, 2, [Message::value("a"), Message::value("b")]).await.unwrap();
    let config = ConsumerConfig::new().visibility(Visibility::All);
    let all = Consumer::connect(&kafka.bootstrap(), config).await.unwrap();
    assert_eq!(consumer.end_offsets([key(0), key(2)]).await.unwrap(), [(key(0), 6), (key(2), 0)].into());
    assert_eq!(all.end_offsets([key(2)]).await.unwrap()[&key(2)], 2);
    assert_eq!(consumer.offsets_for_times([(key(2), 0)]).await.unwrap()[&key(2)], None);
    open.commit().await.unwrap();
    let start = Instant::now();
    while consumer.end_offsets([key(2)]).await.unwrap()[&key(2)] != 3 {
        assert!(start.elapsed() < PATIENCE, "the last stable offset stays behind");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn everything_on_one_node(version: &str) {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().version(version).start().await.unwrap();
    let java = Java::new(&kafka).await.unwrap();
    the_first_commit_of_a_fresh_cluster_waits_for_the_coordinator(&kafka).await;
    offset_epoch_and_metadata_come_back_as_stored(&kafka).await;
    many_commits_in_flight_end_with_the_last_one(&kafka).await;
    a_deleted_topic_is_refused_and_the_others_are_stored(&kafka).await;
    an_unknown_topic_or_partition_is_named_soon(&kafka).await;
    offsets_of_an_open_transaction_are_waited_for(&kafka).await;
    timestamps_and_ends_are_found(&kafka).await;
    a_live_java_group_refuses_an_anonymous_commit_per_partition(&kafka, &java, "classic").await;
    if version.starts_with('4') {
        a_live_java_group_refuses_an_anonymous_commit_per_partition(&kafka, &java, "consumer").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_of_4_3_1() {
    everything_on_one_node("4.3.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_of_3_9_1() {
    everything_on_one_node("3.9.1").await;
}

async fn leaders_that_move_are_followed_by_look_ups(kafka: &Kafka, consumer: &Consumer) {
    Writer::new(&kafka.bootstrap()).numbers("orders", 0, 0..10).await.unwrap();
    for _ in 0..3 {
        let leader = kafka.leader("orders", 0).await.unwrap();
        kafka.move_leader("orders", 0, leader % 3 + 1).await.unwrap();
        let start = Instant::now();
        let ends = consumer.end_offsets([("orders".to_owned(), 0), ("orders".to_owned(), 1)]).await.unwrap();
        println!("a look-up after a move took {:?}", start.elapsed());
        assert_eq!(ends[&("orders".to_owned(), 0)], 10);
    }
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
    leaders_that_move_are_followed_by_look_ups(&kafka, &consumer).await;
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
