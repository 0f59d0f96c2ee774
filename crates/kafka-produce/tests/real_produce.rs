//! The producer on real brokers of two generations: what Kafka's own consumer reads of it, where its keys land,
//! and three nodes that die, move and refuse while it writes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use kafka_consume::{Consumer, ConsumerConfig, Position};
use kafka_produce::{
    Acks, Cluster, ClusterConfig, Compression, Producer, ProducerConfig, ProducerRecord, RecordMetadata,
    Result,
};
use kafka_protocol::messages::ApiKey;
use testkit::java::Java;
use testkit::{Kafka, Proxy, kafka};
use tokio::task::JoinHandle;

const CODECS: [(&str, Compression); 5] = [
    ("none", Compression::None),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

async fn producer(bootstrap: &str, config: ProducerConfig) -> Producer {
    let cluster = ClusterConfig::new(bootstrap).with_request_timeout(Duration::from_secs(10));
    Producer::new(Cluster::connect_with(cluster).await.unwrap(), config)
}

type Part = Option<Vec<u8>>;

/// What a record is made of.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shape {
    key: Part,
    value: Part,
    headers: Vec<(Vec<u8>, Part)>,
}

/// A record of every shape, and what it is made of.
fn shaped(topic: &str, n: usize) -> (ProducerRecord, Shape) {
    let mut record = ProducerRecord::new(topic).timestamp(1_000_000_000_000 + n as i64);
    let mut shape = Shape::default();
    if !n.is_multiple_of(3) {
        let key = format!("key-{}", n % 20).into_bytes();
        record = record.key(key.clone());
        shape.key = Some(key);
    }
    if !n.is_multiple_of(7) {
        let value = if n.is_multiple_of(11) { Vec::new() } else { vec![n as u8; n * 3] };
        record = record.value(value.clone());
        shape.value = Some(value);
    }
    for at in 0..n % 4 {
        // Names come twice, and one value is null.
        let name = format!("h{}", at / 2);
        if at == 1 {
            record = record.null_header(name.clone());
            shape.headers.push((name.into_bytes(), None));
        } else {
            record = record.header(name.clone(), vec![at as u8, 0xff]);
            shape.headers.push((name.into_bytes(), Some(vec![at as u8, 0xff])));
        }
    }
    (record, shape)
}

async fn java_reads_what_was_written(kafka: &Kafka) {
    kafka.create_topic("codecs", 3, 1, &[]).await.unwrap();
    let mut written: BTreeMap<(i32, i64), (RecordMetadata, Shape)> = BTreeMap::new();
    for (_, codec) in CODECS {
        let producer = producer(&kafka.bootstrap(), ProducerConfig::new().compression(codec)).await;
        let sends = (0..200).map(|n| {
            let (record, shape) = shaped("codecs", n);
            let producer = &producer;
            async move { (producer.send(record).await.unwrap(), shape) }
        });
        for one in join_all(sends).await {
            written.insert((one.0.partition, one.0.offset), one);
        }
        producer.close().await.unwrap();
    }
    assert_eq!(written.len(), 5 * 200, "an offset was told twice");
    let java = Java::new(kafka).await.unwrap();
    let read = java.read(&["codecs"], true).await.unwrap();
    assert_eq!(read.len(), written.len());
    for one in read {
        let (sent, shape) = &written[&(one.partition, one.offset)];
        let read = Shape { key: one.key, value: one.value, headers: one.headers };
        assert_eq!(read, *shape);
        assert_eq!((one.timestamp, one.timestamp_type.as_str()), (sent.timestamp, "CreateTime"));
    }
}

async fn keys_land_where_java_puts_them(kafka: &Kafka) {
    kafka.create_topic("keys", 7, 1, &[]).await.unwrap();
    let keys: Vec<String> = (0..60).map(|n| format!("{}-{n}", "k".repeat(n % 9))).collect();
    let lines: Vec<String> = keys.iter().map(|key| format!("{key}:java")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let java = Java::new(kafka).await.unwrap();
    let parse = ["--property", "parse.key=true", "--property", "key.separator=:"];
    java.console_produce("keys", &lines, &parse).await.unwrap();
    let producer = producer(&kafka.bootstrap(), ProducerConfig::new()).await;
    let sends =
        keys.iter().map(|key| producer.send(ProducerRecord::new("keys").key(key.clone()).value("ours")));
    for sent in join_all(sends).await {
        sent.unwrap();
    }
    let mut places: HashMap<Vec<u8>, Vec<i32>> = HashMap::new();
    for one in java.read(&["keys"], true).await.unwrap() {
        places.entry(one.key.unwrap()).or_default().push(one.partition);
    }
    assert_eq!(places.len(), 60);
    for (key, places) in places {
        assert!(places.len() == 2 && places[0] == places[1], "{key:?}: {places:?}");
    }
}

async fn log_append_time_and_fewer_acks(kafka: &Kafka) {
    let log_append = [("message.timestamp.type", "LogAppendTime")];
    kafka.create_topic("append-time", 1, 1, &log_append).await.unwrap();
    for acks in [Acks::All, Acks::Leader, Acks::None] {
        let producer = producer(&kafka.bootstrap(), ProducerConfig::new().acks(acks)).await;
        let sent = producer.send(ProducerRecord::new("append-time").value("x").timestamp(1)).await.unwrap();
        assert_eq!(sent.timestamp > 1, acks != Acks::None);
        assert_eq!(sent.offset >= 0, acks != Acks::None);
        producer.close().await.unwrap();
    }
    let mut consumer = Consumer::connect(&kafka.bootstrap(), ConsumerConfig::new()).await.unwrap();
    consumer.assign([("append-time".to_owned(), 0)], Position::Earliest).await.unwrap();
    let mut seen = 0;
    while seen < 3 {
        seen += consumer.poll().await.unwrap().len();
    }
}

async fn one_node(version: &str) {
    if !kafka::enabled() {
        return;
    }
    let builder = Kafka::builder().version(version).property("auto.create.topics.enable", "true");
    let kafka = builder.start().await.unwrap();
    java_reads_what_was_written(&kafka).await;
    keys_land_where_java_puts_them(&kafka).await;
    log_append_time_and_fewer_acks(&kafka).await;
    // A new topic, by sending to it.
    let producer = producer(&kafka.bootstrap(), ProducerConfig::new()).await;
    producer.send(ProducerRecord::new("by-sending").value("x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_of_today() {
    one_node("4.3.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_of_yesterday() {
    one_node("3.9.1").await;
}

const PARTITIONS: i32 = 6;

/// Writes numbered records to every partition until told to stop; each send's outcome in order.
fn keep_writing(
    producer: &Producer,
    topic: &'static str,
    stop: &Arc<AtomicBool>,
) -> JoinHandle<Vec<(i32, u64, Result<RecordMetadata>)>> {
    let (producer, stop) = (producer.clone(), stop.clone());
    tokio::spawn(async move {
        let mut outcomes = Vec::new();
        let mut n = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let sends: Vec<_> = (0..20)
                .flat_map(|_| {
                    n += 1;
                    (0..PARTITIONS).map(move |partition| (partition, n))
                })
                .collect();
            let results = join_all(sends.iter().map(|(partition, n)| {
                producer.send(ProducerRecord::new(topic).partition(*partition).value(n.to_string()))
            }));
            let results = results.await;
            outcomes.extend(
                sends.into_iter().zip(results).map(|((partition, n), result)| (partition, n, result)),
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        outcomes
    })
}

/// Every acknowledged record is where it was said to be, none is twice, and each partition is in order.
async fn check(kafka: &Kafka, topic: &str, outcomes: &[(i32, u64, Result<RecordMetadata>)]) {
    let mut consumer = Consumer::connect(&kafka.bootstrap(), ConsumerConfig::new()).await.unwrap();
    let all: Vec<_> = (0..PARTITIONS).map(|partition| (topic.to_owned(), partition)).collect();
    let ends = consumer.end_offsets(all.clone()).await.unwrap();
    consumer.assign(all, Position::Earliest).await.unwrap();
    let total: i64 = ends.values().sum();
    let mut logs: BTreeMap<i32, Vec<(i64, u64)>> = BTreeMap::new();
    let mut count = 0;
    while count < total {
        for record in &consumer.poll().await.unwrap() {
            let n = std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap();
            logs.entry(record.partition).or_default().push((record.offset, n));
            count += 1;
        }
    }
    for (partition, log) in &logs {
        assert!(
            log.windows(2).all(|pair| pair[0].1 < pair[1].1),
            "{topic}-{partition}: twice, or out of order"
        );
    }
    let mut acknowledged = 0;
    for (partition, n, result) in outcomes {
        let sent = result.as_ref().unwrap();
        let at = usize::try_from(sent.offset).unwrap();
        assert_eq!(logs[partition][at], (sent.offset, *n));
        acknowledged += 1;
    }
    assert_eq!(acknowledged, total, "{topic}: more is written than was acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_that_die_move_and_refuse() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().nodes(3).quick_failover().start().await.unwrap();
    let replicas: Vec<Vec<i32>> =
        (0..PARTITIONS).map(|at| (0..3).map(|one| (at + one) % 3 + 1).collect()).collect();
    let placed: Vec<&[i32]> = replicas.iter().map(Vec::as_slice).collect();
    for topic in ["die", "cut", "isr"] {
        kafka.create_topic_on(topic, &placed, &[("min.insync.replicas", "2")]).await.unwrap();
        kafka.wait_in_sync(topic).await.unwrap();
    }
    let small = || ProducerConfig::new().batch_size(1_000).linger_ms(1);

    // Leaders move by hand, then one broker is killed and comes back, while one more dies politely.
    let stop = Arc::<AtomicBool>::default();
    let writer = producer(&kafka.bootstrap(), small().compression(Compression::Lz4)).await;
    let writing = keep_writing(&writer, "die", &stop);
    for partition in 0..PARTITIONS {
        let leader = kafka.leader("die", partition).await.unwrap();
        kafka.move_leader("die", partition, leader % 3 + 1).await.unwrap();
    }
    kafka.kill_node(2).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    kafka.restart_node(2).await.unwrap();
    kafka.wait_in_sync("die").await.unwrap();
    kafka.stop_node(3).await.unwrap();
    kafka.restart_node(3).await.unwrap();
    kafka.wait_in_sync("die").await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let outcomes = writing.await.unwrap();
    assert!(outcomes.len() > 1_000 && writer.metrics().retries > 0, "{:?}", writer.metrics());
    check(&kafka, "die", &outcomes).await;

    // A proxy takes answers and requests away.
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let stop = Arc::<AtomicBool>::default();
    let writer = producer(&proxy.bootstrap(), small()).await;
    let after = proxy.on(ApiKey::Produce).chance(0.1, 1).cut_after();
    let before = proxy.on(ApiKey::Produce).chance(0.05, 2).cut_before();
    let writing = keep_writing(&writer, "cut", &stop);
    after.hit(25).await.unwrap();
    before.hit(10).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let outcomes = writing.await.unwrap();
    proxy.clear_rules();
    check(&kafka, "cut", &outcomes).await;

    // Too few replicas: refused until a second one is back.
    let stop = Arc::<AtomicBool>::default();
    let writer = producer(&kafka.bootstrap(), small()).await;
    let writing = keep_writing(&writer, "isr", &stop);
    kafka.alter_topic_config("isr", &[("min.insync.replicas", "3")]).await.unwrap();
    kafka.kill_node(3).unwrap();
    let before = writer.metrics().retries;
    let waiting = async {
        while writer.metrics().retries < before + 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), waiting).await.expect("nothing was refused");
    kafka.restart_node(3).await.unwrap();
    kafka.wait_in_sync("isr").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    check(&kafka, "isr", &writing.await.unwrap()).await;
}
