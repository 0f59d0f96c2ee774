//! What a manual consumer does while real brokers move, die and come back: the Java suites' cases that need
//! three nodes, and the field bugs that need real brokers. Names begin with the ids of `docs/testing.md`.
//!
//! One cluster in three racks; the tests take turns on it and leave it whole.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod support;

use std::time::{Duration, Instant};

use kafka_consume::{
    Cluster, ClusterConfig, CommittedOffset, Consumer, ConsumerConfig, ErrorKind, OffsetReset, Position,
};
use kafka_protocol::messages::metadata_response::MetadataResponsePartition;
use kafka_protocol::messages::{ApiKey, MetadataRequest};
use support::{LIMIT, Offsets, Oracle, one, partitions, poll_error, read_some, read_to, until};
use testkit::produce::{Writer, numbered};
use testkit::{Kafka, Proxy, kafka};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

static TURN: Mutex<()> = Mutex::const_new(());

/// The cluster with all its nodes up, and a turn on it; `None` without real brokers.
async fn cluster() -> Option<(&'static Kafka, MutexGuard<'static, ()>)> {
    if !kafka::enabled() {
        return None;
    }
    let turn = TURN.lock().await;
    let kafka = Kafka::shared(|| {
        Kafka::builder()
            .nodes(3)
            .rack(1, "a")
            .rack(2, "b")
            .rack(3, "c")
            .quick_failover()
            .property("offsets.topic.replication.factor", "3")
            .property("offsets.topic.num.partitions", "3")
            .property("replica.fetch.wait.max.ms", "100")
    })
    .await
    .unwrap();
    for node in kafka.nodes().unwrap() {
        if kafka.pid(node).is_none() {
            kafka.restart_node(node).await.unwrap();
        } else {
            // A test before this one may have failed with a node frozen.
            kafka.thaw_node(node).unwrap();
        }
    }
    Some((kafka, turn))
}

macro_rules! cluster {
    () => {
        match cluster().await {
            Some(found) => found,
            None => return,
        }
    };
}

async fn consumer(bootstrap: &str, config: ConsumerConfig) -> Consumer {
    let cluster = ClusterConfig::new(bootstrap).with_request_timeout(Duration::from_secs(10));
    Consumer::new(Cluster::connect_with(cluster).await.unwrap(), config)
}

fn at(topic: &str, offset: i64) -> Offsets {
    [((topic.to_owned(), 0), offset)].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b37_leader_epoch() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic_on("b37", &[&[1, 2, 3]], &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.send("b37", 0, numbered(0, 0..10)).await.unwrap();
    let mut consumer = consumer(&kafka.bootstrap(), ConsumerConfig::new()).await;
    consumer.assign(one("b37", 0), Position::Earliest).await.unwrap();
    let before = read_some(&mut consumer, 10).await;
    kafka.stop_node(1).await.unwrap();
    // A raw writer never tries again on a broken connection.
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.send("b37", 0, numbered(0, 10..20)).await.unwrap();
    let after = read_some(&mut consumer, 10).await;
    assert_eq!((before[9].offset, after[0].offset), (9, 10));
    assert!(before[0].leader_epoch.is_some() && after[0].leader_epoch > before[0].leader_epoch);
    let position = consumer.positions().get("b37", 0).cloned().unwrap();
    assert_eq!((position.offset, position.leader_epoch), (20, after[9].leader_epoch));
    kafka.restart_node(1).await.unwrap();
}

/// A reader in rack b whose leader is in rack a.
async fn in_rack_b(kafka: &Kafka, topic: &str) -> (Writer, Consumer) {
    kafka.create_topic_on(topic, &[&[1, 2, 3]], &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.send(topic, 0, numbered(0, 0..10)).await.unwrap();
    let mut consumer = consumer(&kafka.bootstrap(), ConsumerConfig::new().rack("b")).await;
    consumer.assign(one(topic, 0), Position::Earliest).await.unwrap();
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 0);
    (writer, consumer)
}

async fn reads_from(consumer: &mut Consumer, node: Option<i32>) {
    let there = timeout(LIMIT, async {
        while consumer.metrics().partitions[0].preferred_read_replica != node {
            assert!(consumer.poll().await.unwrap().is_empty());
        }
    });
    assert!(there.await.is_ok(), "{:?}", consumer.metrics());
}

#[tokio::test(flavor = "multi_thread")]
async fn java_y01_a_fetch_waiting_at_the_follower_ends_with_the_replication() {
    let (kafka, _turn) = cluster!();
    let (mut writer, mut consumer) = in_rack_b(kafka, "y01").await;
    reads_from(&mut consumer, Some(2)).await;
    for n in 0..5 {
        writer.send("y01", 0, numbered(0, n..n + 1)).await.unwrap();
        assert_eq!(read_some(&mut consumer, 1).await[0].offset, 10 + n as i64);
    }
    assert_eq!(consumer.metrics().partitions[0].preferred_read_replica, Some(2));
    assert_eq!(consumer.metrics().resets, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_y02_y03_a_follower_goes_and_comes_back() {
    let (kafka, _turn) = cluster!();
    let (mut writer, mut consumer) = in_rack_b(kafka, "y02").await;
    reads_from(&mut consumer, Some(2)).await;
    kafka.kill_node(2).unwrap();
    writer.send("y02", 0, numbered(0, 10..20)).await.unwrap();
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 10);
    kafka.restart_node(2).await.unwrap();
    kafka.wait_in_sync("y02").await.unwrap();
    writer.send("y02", 0, numbered(0, 20..30)).await.unwrap();
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 20);
    reads_from(&mut consumer, Some(2)).await;
    writer.send("y02", 0, numbered(0, 30..40)).await.unwrap();
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 30);
    assert_eq!((consumer.metrics().resets, consumer.metrics().truncations), (0, 0));
}

/// Restarts nodes, hard and in good order by turns, until `times` are done.
async fn roll(kafka: &'static Kafka, times: i32) {
    for n in 0..times {
        let node = n % 3 + 1;
        if n % 2 == 0 {
            kafka.kill_node(node).unwrap();
        } else {
            kafka.stop_node(node).await.unwrap();
        }
        kafka.restart_node(node).await.unwrap();
        for topic in ["__consumer_offsets", "x01"] {
            kafka.wait_in_sync(topic).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_x01_x02_consumption_seeks_and_commits_while_brokers_restart() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic("x01", 1, 3, &[]).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    Writer::new(&kafka.bootstrap()).numbers("x01", 0, 0..1_000).await.unwrap();
    let config = ConsumerConfig::new().group_id("x01").max_poll_records(100);
    let mut reader = consumer(&kafka.bootstrap(), config).await;
    reader.assign(one("x01", 0), Position::Earliest).await.unwrap();
    let mut seeker = consumer(&kafka.bootstrap(), ConsumerConfig::new().group_id("x02")).await;
    seeker.assign(one("x01", 0), Position::Earliest).await.unwrap();

    let rolling = tokio::spawn(roll(kafka, 3));
    let (mut rounds, mut seeks) = (0, 0);
    let mut random = fastrand::Rng::with_seed(1);
    while !rolling.is_finished() {
        // X01: over and over from the start, each batch committed.
        reader.seek("x01", 0, 0).unwrap();
        let mut oracle = Oracle::strict();
        while reader.position("x01", 0) != Some(1_000) {
            let records = timeout(LIMIT, reader.poll()).await.unwrap().expect("no error surfaces");
            oracle.take_all(&records);
            if !records.is_empty() {
                let stored = reader.commit().await.unwrap();
                assert!(stored[0].1.is_ok(), "{stored:?}");
                let stored = reader.committed().await.unwrap()[&("x01".to_owned(), 0)].offset;
                assert_eq!(Some(stored), reader.position("x01", 0));
            }
        }
        assert_eq!(oracle.count, 1_000);
        rounds += 1;
        // X02: to the end, somewhere, or a commit of where it stands.
        match random.u8(0..3) {
            0 => {
                seeker.seek_to_end(one("x01", 0)).await.unwrap();
                assert_eq!(seeker.position("x01", 0), Some(1_000));
            }
            1 => {
                let offset = random.i64(0..1_000);
                seeker.seek("x01", 0, offset).unwrap();
                assert_eq!(seeker.position("x01", 0), Some(offset));
            }
            _ => {
                seeker.commit().await.unwrap();
                let stored = seeker.committed().await.unwrap()[&("x01".to_owned(), 0)].offset;
                assert_eq!(Some(stored), seeker.position("x01", 0));
            }
        }
        seeks += 1;
    }
    rolling.await.unwrap();
    println!("{rounds} rounds and {seeks} seeks while three nodes were restarted");
    assert!(rounds > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fb20_records_deleted_below_the_committed_offset() {
    let (kafka, _turn) = cluster!();
    kafka.ready_for_groups().await.unwrap();
    for (reset, wanted) in
        [(OffsetReset::Earliest, Some(8)), (OffsetReset::Latest, Some(20)), (OffsetReset::None, None)]
    {
        let topic = format!("fb20-{}", wanted.unwrap_or(0));
        kafka.create_topic(&topic, 1, 1, &[]).await.unwrap();
        let mut writer = Writer::new(&kafka.bootstrap());
        for n in 0..10 {
            writer.send(&topic, 0, numbered(0, n * 2..n * 2 + 2)).await.unwrap();
        }
        let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
        let config = ConsumerConfig::new().group_id(&topic).auto_offset_reset(reset);
        let mut consumer = consumer(&proxy.bootstrap(), config).await;
        consumer.assign(one(&topic, 0), Position::Latest).await.unwrap();
        consumer.commit_offsets([((topic.clone(), 0), CommittedOffset::new(5))]).await.unwrap();
        kafka.delete_records(&topic, 0, 8).await.unwrap();
        proxy.clear_log();
        let position = Position::Committed(Box::new(Position::Latest));
        consumer.assign(one(&topic, 0), position).await.unwrap();
        match wanted {
            Some(wanted) => {
                let mut oracle = Oracle::strict();
                oracle.expect_from(&topic, 0, wanted);
                let moved = timeout(LIMIT, async {
                    while consumer.metrics().resets == 0 || consumer.position(&topic, 0) != Some(20) {
                        oracle.take_all(&consumer.poll().await.unwrap());
                    }
                });
                moved.await.unwrap();
                assert_eq!(oracle.count as i64, 20 - wanted);
            }
            None => {
                let error = poll_error(&mut consumer).await;
                assert_eq!((error.kind(), error.offset()), (ErrorKind::OffsetOutOfRange, Some(5)), "{error}");
            }
        }
        let below =
            support::fetches(&proxy).iter().any(|seen| seen.fetched().values().any(|offset| *offset < 0));
        assert!(!below, "nothing is asked for at -1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fb36_a_new_address_while_the_old_port_stays_open_and_silent() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic_on("fb36", &[&[1, 2], &[2, 3], &[3, 1]], &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let cluster = ClusterConfig::new(&proxy.bootstrap()).with_request_timeout(Duration::from_secs(3));
    let mut consumer = Consumer::new(Cluster::connect_with(cluster).await.unwrap(), ConsumerConfig::new());
    consumer.assign(partitions("fb36", 3), Position::Earliest).await.unwrap();
    let mut oracle = Oracle::strict();
    for round in 0..3 {
        for partition in 0..3 {
            writer.send("fb36", partition, numbered(partition, 0..10)).await.unwrap();
        }
        let ends: Offsets = partitions("fb36", 3).into_iter().map(|key| (key, (round + 1) * 10)).collect();
        let start = Instant::now();
        read_to(&mut consumer, &ends, &mut oracle).await;
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        // The connections there are go silent, without a FIN; the old address is never told again.
        proxy.readdress(2).unwrap();
        proxy.blackhole(2);
        proxy.heal(2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fb39_a_topic_deleted_and_created_again() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic("fb39-other", 1, 1, &[]).await.unwrap();
    kafka.ready_for_groups().await.unwrap();
    for (name, reset, partitions_then) in
        [("fb39-fewer", OffsetReset::Earliest, 1), ("fb39-more", OffsetReset::Latest, 4)]
    {
        kafka.create_topic(name, 2, 3, &[]).await.unwrap();
        let mut writer = Writer::new(&kafka.bootstrap());
        writer.numbers(name, 0, 0..1_000).await.unwrap();
        let config = ConsumerConfig::new().group_id(name).auto_offset_reset(reset.clone());
        let mut consumer = consumer(&kafka.bootstrap(), config).await;
        let all =
            [((name.to_owned(), 0), Position::Earliest), (("fb39-other".to_owned(), 0), Position::Latest)];
        consumer.assign_each(all).await.unwrap();
        read_to(&mut consumer, &at(name, 1_000), &mut Oracle::rising()).await;
        let since = Instant::now();
        kafka.delete_topic(name).await.unwrap();
        kafka.create_topic(name, partitions_then, 3, &[]).await.unwrap();
        // Whatever is told meanwhile names the topic; then the position is in the new one.
        let moved = timeout(LIMIT, async {
            while consumer.position(name, 0) != Some(0) {
                if let Err(error) = consumer.poll().await {
                    assert_eq!((error.kind(), error.topic()), (ErrorKind::UnknownTopic, Some(name)));
                }
            }
        });
        moved.await.unwrap();
        println!("{name}: found again after {:?}", since.elapsed());
        let mut writer = Writer::new(&kafka.bootstrap());
        writer.numbers(name, 0, 0..100).await.unwrap();
        let mut oracle = Oracle::strict();
        oracle.expect_from("fb39-other", 0, consumer.position("fb39-other", 0).unwrap());
        read_to(&mut consumer, &at(name, 100), &mut oracle).await;
        assert_eq!(oracle.count, 100, "{reset:?}");
        consumer.commit().await.unwrap();
        assert_eq!(consumer.committed().await.unwrap()[&(name.to_owned(), 0)].offset, 100);
        writer.send("fb39-other", 0, numbered(0, 0..5)).await.unwrap();
        assert_eq!(read_some(&mut consumer, 5).await[0].topic, "fb39-other");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fb42_a_leader_without_replicas_dies_beside_busy_neighbours() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic_on("fb42", &[&[2], &[1], &[3]], &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let mut consumer = consumer(&proxy.bootstrap(), ConsumerConfig::new()).await;
    consumer.assign(partitions("fb42", 3), Position::Earliest).await.unwrap();
    writer.send("fb42", 0, numbered(0, 0..10)).await.unwrap();
    read_some(&mut consumer, 10).await;
    kafka.kill_node(2).unwrap();
    until("the leader's death to be seen", async || kafka.leader("fb42", 0).await.is_err()).await;
    proxy.clear_log();
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(10) {
        for partition in [1, 2] {
            writer.send("fb42", partition, numbered(partition, sent..sent + 1)).await.unwrap();
        }
        sent += 1;
        read_some(&mut consumer, 2).await;
    }
    let seconds = start.elapsed().as_secs() as usize;
    let asked = |node: Option<i32>, api: ApiKey| {
        let log = proxy.log();
        log.iter().filter(|seen| seen.api == api as i16 && node.is_none_or(|node| node == seen.node)).count()
    };
    let (fetches, metadata) = (asked(Some(2), ApiKey::Fetch), asked(None, ApiKey::Metadata));
    assert!(fetches <= seconds * 5, "{fetches} fetches sent to the dead in {seconds} s");
    assert!(metadata <= seconds * 2 + 5, "{metadata} metadata requests in {seconds} s");
    kafka.restart_node(2).await.unwrap();
    until("the leader", async || kafka.leader("fb42", 0).await.is_ok()).await;
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.send("fb42", 0, numbered(0, 10..20)).await.unwrap();
    let back = Instant::now();
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 10);
    println!("resumed after {:?}; {metadata} metadata requests in {seconds} s", back.elapsed());
}

/// Metadata goes on naming a leader that denies it: the answers' hints are older than what is known.
#[tokio::test(flavor = "multi_thread")]
async fn fb42_metadata_that_names_a_stale_leader() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic_on("fb42-stale", &[&[1, 2, 3]], &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let mut consumer = consumer(&proxy.bootstrap(), ConsumerConfig::new()).await;
    consumer.assign(one("fb42-stale", 0), Position::Earliest).await.unwrap();
    writer.send("fb42-stale", 0, numbered(0, 0..10)).await.unwrap();
    read_some(&mut consumer, 10).await;
    let stale = proxy.on(ApiKey::Metadata).edit::<MetadataRequest>(|_, answer| {
        let mut changed = false;
        let named = |topic: &&mut kafka_protocol::messages::metadata_response::MetadataResponseTopic| {
            topic.name.as_ref().is_some_and(|name| &*name.0 == "fb42-stale")
        };
        for topic in answer.topics.iter_mut().filter(|topic| named(topic)) {
            for partition in &mut topic.partitions {
                let partition: &mut MetadataResponsePartition = partition;
                partition.leader_id = 1.into();
                partition.leader_epoch = 0;
                changed = true;
            }
        }
        changed
    });
    kafka.move_leader("fb42-stale", 0, 2).await.unwrap();
    proxy.clear_log();
    writer.send("fb42-stale", 0, numbered(0, 10..20)).await.unwrap();
    // The hint in the fetch answer is newer than the metadata.
    let start = Instant::now();
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 10);
    println!("the hint led on after {:?}, {} stale answers", start.elapsed(), stale.hits());
    assert!(support::fetches(&proxy).len() < 60);
}

/// Connections stay open and say nothing; when it thaws, it still thinks that it leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_leader_is_left_and_what_it_says_late_is_of_no_use() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic_on("frozen", &[&[2, 3], &[1, 3]], &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    for partition in 0..2 {
        writer.send("frozen", partition, numbered(partition, 0..10)).await.unwrap();
    }
    let cluster = ClusterConfig::new(&kafka.bootstrap()).with_request_timeout(Duration::from_secs(2));
    let mut consumer = Consumer::new(Cluster::connect_with(cluster).await.unwrap(), ConsumerConfig::new());
    consumer.assign(partitions("frozen", 2), Position::Earliest).await.unwrap();
    let mut oracle = Oracle::strict();
    let ends = |end: i64| -> Offsets { partitions("frozen", 2).into_iter().map(|key| (key, end)).collect() };
    read_to(&mut consumer, &ends(10), &mut oracle).await;
    kafka.freeze_node(2).unwrap();
    // The neighbour goes on at once.
    writer.send("frozen", 1, numbered(1, 10..20)).await.unwrap();
    let only: Offsets = [(("frozen".to_owned(), 1), 20)].into();
    let start = Instant::now();
    read_to(&mut consumer, &only, &mut oracle).await;
    println!("the neighbour waited {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5));
    until("another leader", async || {
        let seen = kafka
            .client(1)
            .await
            .unwrap()
            .call(12, &MetadataRequest::default().with_topics(None))
            .await
            .unwrap();
        let topic =
            seen.topics.iter().find(|topic| topic.name.as_ref().is_some_and(|name| &*name.0 == "frozen"));
        topic.is_some_and(|topic| {
            topic
                .partitions
                .iter()
                .any(|partition| partition.partition_index == 0 && partition.leader_id.0 == 3)
        })
    })
    .await;
    // The other one may not have heard of it yet, and would send the writer to the frozen one.
    let mut writer = Writer::new(&kafka.node(1).unwrap());
    writer.send("frozen", 0, numbered(0, 10..20)).await.unwrap();
    read_to(&mut consumer, &ends(20), &mut oracle).await;
    kafka.thaw_node(2).unwrap();
    kafka.wait_in_sync("frozen").await.unwrap();
    for partition in 0..2 {
        writer.send("frozen", partition, numbered(partition, 20..30)).await.unwrap();
    }
    read_to(&mut consumer, &ends(30), &mut oracle).await;
    assert_eq!((oracle.count, consumer.metrics().resets, consumer.metrics().truncations), (60, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_that_move_under_the_reader_cost_nothing() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic("moves", 3, 3, &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    for partition in 0..3 {
        writer.numbers("moves", partition, 0..10_000).await.unwrap();
    }
    kafka.wait_in_sync("moves").await.unwrap();
    let config = ConsumerConfig::new().partition_max_bytes(4_000).max_bytes(8_000).fetch_buffer_bytes(64_000);
    let mut consumer = consumer(&kafka.bootstrap(), config).await;
    consumer.assign(partitions("moves", 3), Position::Earliest).await.unwrap();
    let moving = tokio::spawn(async move {
        for n in 0..12 {
            let partition = n % 3;
            let leader = kafka.leader("moves", partition).await.unwrap();
            kafka.move_leader("moves", partition, leader % 3 + 1).await.unwrap();
        }
    });
    let (mut rounds, ends) =
        (0, partitions("moves", 3).into_iter().map(|key| (key, 10_000)).collect::<Offsets>());
    while !moving.is_finished() {
        for partition in 0..3 {
            consumer.seek("moves", partition, 0).unwrap();
        }
        let mut oracle = Oracle::strict();
        read_to(&mut consumer, &ends, &mut oracle).await;
        assert_eq!(oracle.count, 30_000);
        rounds += 1;
    }
    moving.await.unwrap();
    println!("{rounds} rounds while leaders moved twelve times; {} retries", consumer.metrics().retries);
    assert_eq!((consumer.metrics().resets, consumer.metrics().truncations), (0, 0));
}

/// KIP-320 on real brokers: an unclean election takes records away that had been read.
#[tokio::test(flavor = "multi_thread")]
async fn an_unclean_election_leads_back_to_where_the_logs_part() {
    let (kafka, _turn) = cluster!();
    let settings = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    kafka.create_topic_on("unclean", &[&[2, 3]], &settings).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.send("unclean", 0, numbered(0, 0..10)).await.unwrap();
    kafka.wait_in_sync("unclean").await.unwrap();
    kafka.kill_node(3).unwrap();
    writer.send("unclean", 0, numbered(0, 10..20)).await.unwrap();
    let mut readers = Vec::new();
    for reset in [OffsetReset::Earliest, OffsetReset::None] {
        let config = ConsumerConfig::new().auto_offset_reset(reset);
        let mut consumer = consumer(&kafka.bootstrap(), config).await;
        consumer.assign(one("unclean", 0), Position::Earliest).await.unwrap();
        assert_eq!(read_some(&mut consumer, 20).await.len(), 20);
        readers.push(consumer);
    }
    kafka.kill_node(2).unwrap();
    kafka.restart_node(3).await.unwrap();
    until("the unclean leader", async || kafka.leader("unclean", 0).await.is_ok_and(|node| node == 3)).await;
    let mut writer = Writer::new(&kafka.bootstrap());
    assert_eq!(writer.send("unclean", 0, numbered(0, 100..105)).await.unwrap(), 10);

    let mut refused = readers.pop().unwrap();
    let mut led_back = readers.pop().unwrap();
    let records = read_some(&mut led_back, 5).await;
    assert_eq!((records[0].offset, records[0].value.as_deref()), (10, Some(&b"0-100"[..])));
    assert_eq!(led_back.metrics().truncations, 1);
    let error = poll_error(&mut refused).await;
    assert_eq!((error.kind(), error.offset()), (ErrorKind::LogTruncated, Some(10)), "{error}");
    assert_eq!(refused.position("unclean", 0), Some(20), "nothing moves without the caller");
    refused.seek("unclean", 0, 10).unwrap();
    assert_eq!(read_some(&mut refused, 5).await[0].offset, 10);
    kafka.restart_node(2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fb44_polls_dropped_at_random_break_no_connection() {
    let (kafka, _turn) = cluster!();
    kafka.create_topic("fb44", 4, 1, &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    for partition in 0..4 {
        writer.numbers("fb44", partition, 0..2_000).await.unwrap();
    }
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let config = ConsumerConfig::new().partition_max_bytes(2_000).max_bytes(4_000).max_poll_records(20);
    let mut consumer = consumer(&proxy.bootstrap(), config).await;
    consumer.assign(partitions("fb44", 4), Position::Earliest).await.unwrap();
    consumer.end_offsets(partitions("fb44", 4)).await.unwrap();
    let mut random = fastrand::Rng::with_seed(44);
    let ends: Offsets = partitions("fb44", 4).into_iter().map(|key| (key, 2_000)).collect();
    let mut oracle = Oracle::strict();
    let read = timeout(LIMIT, async {
        while !support::is_at(&consumer, &ends) {
            let patience = Duration::from_micros(random.u64(0..3_000));
            if random.u8(0..6) == 0 {
                drop(timeout(patience, consumer.end_offsets(one("fb44", 0))).await);
            } else if let Ok(records) = timeout(patience, consumer.poll()).await {
                oracle.take_all(&records.unwrap());
            }
        }
    });
    read.await.unwrap();
    assert_eq!(oracle.count, 8_000);
    let sockets: std::collections::BTreeSet<u64> = proxy.log().iter().map(|seen| seen.connection).collect();
    assert!(sockets.len() <= 3 * 3, "{} connections: some broke", sockets.len());
    assert_eq!(consumer.metrics().fetch_errors, 0);
}
