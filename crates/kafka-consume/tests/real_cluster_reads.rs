//! The engine on a cluster of three: 200,000 records that Java wrote, in every compression, read while nodes
//! die, sessions are lost, and one broker has none to give. Each offset once and in order, no error surfaces.
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

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position, RecordRef, Records, TimestampType};
use kafka_protocol::messages::{ApiKey, BrokerId, FetchRequest};
use support::{Key, Offsets, Oracle, fetches, partitions, read_to, read_with};
use testkit::java::{Java, JavaRecord, ProducePlan};
use testkit::{Kafka, Proxy, kafka};

const PARTITIONS: i32 = 12;
const TOPICS: [&str; 2] = ["checked", "bulk"];
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PER_RUN: u64 = 20_000;
const TOTAL: usize = 200_000;
/// The broker that gives no sessions: its few slots are divided among eight shards.
const SESSIONLESS: i32 = 3;

type Written = BTreeMap<(String, i32, i64), JavaRecord>;

async fn write(kafka: &Kafka) -> Written {
    let java = Java::new(kafka).await.unwrap();
    let mut written = Written::new();
    for (run, codec) in CODECS.into_iter().enumerate() {
        let plan = |topic: &str| ProducePlan {
            count: PER_RUN,
            partitions: PARTITIONS,
            size: 40,
            keys: 1_000,
            ..ProducePlan::new(topic)
                .producer("compression.type", codec)
                .producer("linger.ms", "20")
                .producer("acks", "all")
        };
        let checked = ProducePlan {
            headers: 3,
            tombstones: 17,
            timestamp: Some(1_000_000_000_000 + run as i64 * 1_000_000),
            ..plan("checked")
        };
        let bulk = ProducePlan { print: false, ..plan("bulk") };
        let (checked, bulk) = tokio::join!(java.produce(checked), java.produce(bulk));
        bulk.unwrap();
        written.extend(
            checked.unwrap().into_iter().map(|one| ((one.topic.clone(), one.partition, one.offset), one)),
        );
    }
    written
}

fn same_as_java(record: &RecordRef<'_>, written: &Written) {
    let key = (record.topic.to_string(), record.partition, record.offset);
    let java = written.get(&key).unwrap_or_else(|| panic!("Java never wrote {key:?}"));
    assert_eq!(record.key, java.key.as_deref(), "{key:?}");
    assert_eq!(record.value, java.value.as_deref(), "{key:?}");
    assert_eq!(record.timestamp.millis(), java.timestamp, "{key:?}");
    assert_eq!(record.timestamp.kind(), TimestampType::CreateTime);
    let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = record
        .headers
        .iter()
        .map(|header| (header.key.as_bytes().to_vec(), header.value.as_ref().map(|value| value.to_vec())))
        .collect();
    assert_eq!(headers, java.headers, "{key:?}");
}

async fn consumer(bootstrap: &str, config: ConsumerConfig) -> Consumer {
    let cluster = Cluster::connect(bootstrap).await.unwrap();
    let mut consumer = Consumer::new(cluster, config);
    let all = TOPICS.into_iter().flat_map(|topic| partitions(topic, PARTITIONS));
    consumer.assign(all, Position::Earliest).await.unwrap();
    consumer
}

/// Many small fetches: so that there is something in the middle of which things can happen.
fn small() -> ConsumerConfig {
    ConsumerConfig::new().fetch_buffer_bytes(512 * 1024).partition_max_bytes(16 * 1024).max_bytes(64 * 1024)
}

async fn ends(kafka: &Kafka) -> Offsets {
    let consumer = Consumer::connect(&kafka.bootstrap(), ConsumerConfig::new()).await.unwrap();
    let all = TOPICS.into_iter().flat_map(|topic| partitions(topic, PARTITIONS));
    let ends: Offsets = consumer.end_offsets(all).await.unwrap().into_iter().collect();
    assert_eq!(ends.values().sum::<i64>(), TOTAL as i64);
    ends
}

async fn every_record_is_what_java_wrote(kafka: &Kafka, ends: &Offsets, written: &Written) {
    let mut consumer = consumer(&kafka.bootstrap(), ConsumerConfig::new()).await;
    let (mut oracle, mut compared) = (Oracle::strict(), 0);
    read_with(&mut consumer, ends, async |records: &Records| {
        for record in records {
            oracle.take(&record);
            if &*record.topic == "checked" {
                same_as_java(&record, written);
                compared += 1;
            }
        }
    })
    .await;
    assert_eq!((oracle.count, compared), (TOTAL, TOTAL / 2));
    for (topic, partition) in ends.keys() {
        assert_eq!(consumer.lag(topic, *partition), Some(0), "{topic}-{partition}");
    }
    assert!(consumer.caught_up());
    consumer.close().await.unwrap();
}

async fn a_node_killed_and_restarted_in_the_middle_costs_nothing(kafka: &Kafka, ends: &Offsets) {
    let mut consumer = consumer(&kafka.bootstrap(), small()).await;
    let (mut oracle, mut killed, mut back) = (Oracle::strict(), false, false);
    read_with(&mut consumer, ends, async |records: &Records| {
        oracle.take_all(records);
        if !killed && oracle.count > TOTAL / 4 {
            killed = true;
            kafka.kill_node(2).unwrap();
        }
        if !back && oracle.count > TOTAL / 2 {
            back = true;
            kafka.launch_node(2).unwrap();
        }
    })
    .await;
    assert!(killed && back);
    assert_eq!(oracle.count, TOTAL);
    kafka.restart_node(2).await.unwrap();
    for topic in TOPICS {
        kafka.wait_in_sync(topic).await.unwrap();
    }
}

async fn lost_sessions_on_every_tenth_fetch_cost_nothing(proxy: &Proxy, ends: &Offsets) {
    let unknown = proxy.on(ApiKey::Fetch).every(10).error(70);
    let epoch = proxy.on(ApiKey::Fetch).skip(5).every(10).error(71);
    let mut consumer = consumer(&proxy.bootstrap(), small()).await;
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, ends, &mut oracle).await;
    assert_eq!(oracle.count, TOTAL);
    assert!(unknown.hits() > 5 && epoch.hits() > 5, "{} and {}", unknown.hits(), epoch.hits());
    proxy.clear_rules();
}

async fn a_broker_without_sessions_is_read_without_them(proxy: &Proxy, ends: &Offsets) {
    proxy.clear_log();
    let mut consumer = consumer(&proxy.bootstrap(), small()).await;
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, ends, &mut oracle).await;
    assert_eq!(oracle.count, TOTAL);
    let (mut held, mut none) = (0, 0);
    for seen in fetches(proxy) {
        let (id, _) = seen.fetch_session().expect("a fetch is small");
        if seen.node == SESSIONLESS {
            assert_eq!(id, 0, "it gave no session");
            none += 1;
        } else if id != 0 {
            held += 1;
        }
    }
    assert!(held > 10 && none > 10, "{held} in sessions, {none} without");
}

/// Sessions are not bound to sockets: anybody can close one.
async fn sessions_closed_behind_the_back_are_opened_anew(kafka: &Kafka, proxy: &Proxy, ends: &Offsets) {
    proxy.clear_log();
    let mut consumer = consumer(&proxy.bootstrap(), small()).await;
    let (mut oracle, mut closed) = (Oracle::strict(), BTreeSet::<(i32, i32)>::new());
    let mut at = TOTAL / 8;
    read_with(&mut consumer, ends, async |records: &Records| {
        oracle.take_all(records);
        if oracle.count < at {
            return;
        }
        at += TOTAL / 8;
        let held: BTreeSet<(i32, i32)> = fetches(proxy)
            .iter()
            .filter_map(|seen| Some((seen.node, seen.fetch_session()?.0)))
            .filter(|(_, id)| *id != 0)
            .collect();
        let open: Vec<(i32, i32)> = held.difference(&closed).copied().collect();
        for (node, id) in open {
            let request = FetchRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_max_wait_ms(500)
                .with_min_bytes(1)
                .with_session_id(id)
                .with_session_epoch(-1);
            let mut client = kafka.client(node).await.unwrap();
            let answer = client.call(13, &request).await.unwrap();
            assert_eq!(answer.error_code, 0);
            closed.insert((node, id));
        }
    })
    .await;
    assert_eq!(oracle.count, TOTAL);
    assert!(closed.len() > 3, "{closed:?}");
    assert!(consumer.metrics().sessions_reopened > 3, "{:?}", consumer.metrics().sessions_reopened);
}

fn timed(what: &str, since: &mut Instant) {
    println!("{what}: {:?}", since.elapsed());
    *since = Instant::now();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_offset_once_and_in_order_whatever_happens() {
    if !kafka::enabled() {
        return;
    }
    let mut clock = Instant::now();
    let kafka = Kafka::builder()
        .nodes(3)
        .quick_failover()
        .node_property(SESSIONLESS, "max.incremental.fetch.session.cache.slots", "1")
        .start()
        .await
        .unwrap();
    for topic in TOPICS {
        // The records' timestamps are long past.
        kafka.create_topic(topic, PARTITIONS, 3, &[("retention.ms", "-1")]).await.unwrap();
    }
    timed("the cluster", &mut clock);
    let written = write(&kafka).await;
    timed("writing", &mut clock);
    let ends = ends(&kafka).await;
    let keys: BTreeSet<&Key> = ends.keys().collect();
    assert_eq!(keys.len(), 24);
    every_record_is_what_java_wrote(&kafka, &ends, &written).await;
    timed("as Java wrote it", &mut clock);
    a_node_killed_and_restarted_in_the_middle_costs_nothing(&kafka, &ends).await;
    timed("a node killed", &mut clock);
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    lost_sessions_on_every_tenth_fetch_cost_nothing(&proxy, &ends).await;
    timed("lost sessions", &mut clock);
    a_broker_without_sessions_is_read_without_them(&proxy, &ends).await;
    timed("no sessions", &mut clock);
    sessions_closed_behind_the_back_are_opened_anew(&kafka, &proxy, &ends).await;
    timed("sessions closed", &mut clock);
}
