//! Cases of Kafka's own Java suites that concern manual assignment, on one node: basics, assignment, fetching,
//! transactions. Names begin with the ids of `docs/testing.md`, which also says what does not apply and why.
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

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use kafka_consume::{
    Cluster, CommittedOffset, Consumer, ConsumerConfig, ErrorCode, ErrorKind, OffsetReset, Position, Record,
    TimestampType, Visibility,
};
use kafka_protocol::messages::FetchRequest;
use kafka_read::batch::Codec;
use kafka_read::batch::write::BatchOptions;
use support::{
    LIMIT, Offsets, Oracle, fetches, one, partitions, poll_error, poll_until, read_some, read_to, stay_empty,
};
use testkit::produce::{Message, Writer, numbered};
use testkit::txn::Transactions;
use testkit::{Kafka, Proxy, kafka};
use tokio::time::timeout;

/// One node for the whole file, or `None` without real brokers.
async fn shared() -> Option<&'static Kafka> {
    if !kafka::enabled() {
        return None;
    }
    let kafka = Kafka::shared(|| {
        Kafka::builder()
            .property("auto.create.topics.enable", "true")
            // Many a record here is from the year 1970.
            .property("log.retention.ms", "-1")
            .property("transaction.state.log.num.partitions", "1")
            .property("offsets.topic.num.partitions", "1")
    })
    .await
    .unwrap();
    Some(kafka)
}

macro_rules! cluster {
    () => {
        match shared().await {
            Some(kafka) => kafka,
            None => return,
        }
    };
}

async fn topic(kafka: &Kafka, name: &str) -> Writer {
    topic_with(kafka, name, &[]).await
}

async fn topic_with(kafka: &Kafka, name: &str, config: &[(&str, &str)]) -> Writer {
    kafka.create_topic(name, 2, 1, config).await.unwrap();
    Writer::new(&kafka.bootstrap())
}

async fn consumer(kafka: &Kafka, config: ConsumerConfig) -> Consumer {
    Consumer::new(Cluster::connect(&kafka.bootstrap()).await.unwrap(), config)
}

async fn assigned(kafka: &Kafka, name: &str, position: Position, config: ConsumerConfig) -> Consumer {
    let mut consumer = consumer(kafka, config).await;
    consumer.assign(one(name, 0), position).await.unwrap();
    consumer
}

/// Record n has timestamp n.
fn stamped(count: u64) -> impl Iterator<Item = Message> {
    numbered(0, 0..count).zip(0..).map(|(message, time)| message.at(time))
}

fn offsets(records: &[Record]) -> Vec<i64> {
    records.iter().map(|record| record.offset).collect()
}

fn key(name: &str) -> (String, i32) {
    (name.to_owned(), 0)
}

fn wall() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b01_simple_consumption() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b01").await;
    writer.send("b01", 0, stamped(10_000)).await.unwrap();
    let config = ConsumerConfig::new().group_id("b01");
    let mut consumer = assigned(kafka, "b01", Position::Earliest, config).await;
    for (n, record) in read_some(&mut consumer, 10_000).await.into_iter().enumerate() {
        assert_eq!((record.offset, record.timestamp.millis()), (n as i64, n as i64));
        assert_eq!(record.key.as_deref(), Some(n.to_string().as_bytes()));
        assert_eq!(record.value.as_deref(), Some(format!("0-{n}").as_bytes()));
    }
    let stored = consumer.commit().await.unwrap();
    assert!(stored[0].1.is_ok(), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b02_headers() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b02").await;
    writer.send("b02", 0, [Message::value("v").header("headerKey", "headerValue")]).await.unwrap();
    let mut consumer = assigned(kafka, "b02", Position::Earliest, ConsumerConfig::new()).await;
    let records = read_some(&mut consumer, 1).await;
    let headers: Vec<_> = records[0].headers.iter().collect();
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[0].key, "headerKey");
    assert_eq!(headers[0].value.as_deref(), Some(&b"headerValue"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b04_auto_offset_reset() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b04").await;
    writer.send("b04", 0, numbered(0, 0..1)).await.unwrap();
    let config = ConsumerConfig::new().group_id("b04");
    let position = Position::Committed(Box::new(Position::Earliest));
    let mut consumer = assigned(kafka, "b04", position, config).await;
    assert_eq!(offsets(&read_some(&mut consumer, 1).await), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b06_b07_b08_partitions_for() {
    let kafka = cluster!();
    topic(kafka, "b06").await;
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    assert_eq!(cluster.partitions("b06").await.unwrap(), [0, 1]);
    // Asking never makes a topic, on brokers that would make one too.
    let absent = cluster.partitions("b07").await.unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::UnknownTopic, "{absent}");
    let illegal = cluster.partitions(";3# ads,{234").await.unwrap_err();
    assert_eq!(illegal.kind(), ErrorKind::Broker(ErrorCode::INVALID_TOPIC_EXCEPTION), "{illegal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b10_seek() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b10").await;
    writer.send("b10", 0, numbered(0, 0..50)).await.unwrap();
    let gzip = BatchOptions { codec: Codec::Gzip, ..BatchOptions::default() };
    writer.send_as("b10", 1, gzip, numbered(1, 0..50)).await.unwrap();
    let mut consumer = consumer(kafka, ConsumerConfig::new()).await;
    for partition in 0..2 {
        consumer.assign(one("b10", partition), Position::Earliest).await.unwrap();
        consumer.seek_to_end(one("b10", partition)).await.unwrap();
        assert_eq!(consumer.position("b10", partition), Some(50));
        assert!(consumer.poll().await.unwrap().is_empty());
        consumer.seek_to_beginning(one("b10", partition)).await.unwrap();
        assert_eq!(consumer.position("b10", partition), Some(0));
        assert_eq!(offsets(&read_some(&mut consumer, 50).await), (0..50).collect::<Vec<i64>>());
        consumer.seek("b10", partition, 25).unwrap();
        assert_eq!(consumer.position("b10", partition), Some(25));
        assert_eq!(offsets(&read_some(&mut consumer, 25).await), (25..50).collect::<Vec<i64>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b11_seek_of_what_is_not_assigned() {
    let kafka = cluster!();
    topic(kafka, "b11").await;
    let mut consumer = assigned(kafka, "b11", Position::Earliest, ConsumerConfig::new()).await;
    let errors = [
        consumer.seek("b11", 1, 0).unwrap_err(),
        consumer.seek_to_beginning(one("b11", 1)).await.unwrap_err(),
        consumer.seek_to_end(one("b11", 1)).await.unwrap_err(),
        consumer.seek_to_timestamp(one("b11", 1), 0).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotAssigned, "{error}");
        assert_eq!((error.topic(), error.partition()), (Some("b11"), Some(1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b12_end_offsets() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b12").await;
    writer.numbers("b12", 0, 0..10_000).await.unwrap();
    let consumer = consumer(kafka, ConsumerConfig::new()).await;
    let ends = consumer.end_offsets(one("b12", 0)).await.unwrap();
    assert_eq!((ends.len(), ends[&key("b12")]), (1, 10_000));
    let starts = consumer.beginning_offsets(partitions("b12", 2)).await.unwrap();
    assert_eq!((starts.len(), starts[&key("b12")]), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b13_offsets_for_times() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b13").await;
    for partition in 0..2 {
        writer.send("b13", partition, stamped(100)).await.unwrap();
    }
    let consumer = consumer(kafka, ConsumerConfig::new()).await;
    let asked = [(("b13".to_owned(), 0), 0), (("b13".to_owned(), 1), 20)];
    let found = consumer.offsets_for_times(asked).await.unwrap();
    assert_eq!(found[&("b13".to_owned(), 0)], Some((0, 0)));
    assert_eq!(found[&("b13".to_owned(), 1)], Some((20, 20)));
    let young = consumer.offsets_for_times([(key("b13"), 100)]).await.unwrap();
    assert_eq!(young[&key("b13")], None, "no record is that young");
    let error = consumer.offsets_for_times([(key("b13"), -1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b15_position_of_an_absent_partition_is_an_error_soon() {
    let kafka = cluster!();
    topic(kafka, "b15").await;
    let mut consumer = consumer(kafka, ConsumerConfig::new().api_timeout_ms(20_000)).await;
    let start = Instant::now();
    let error = consumer.assign(one("b15", 15), Position::Earliest).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnknownTopic | ErrorKind::Timeout), "{error}");
    assert_eq!((error.topic(), error.partition()), (Some("b15"), Some(15)));
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    // The assignment stands, and heals when the partition comes.
    kafka.create_partitions("b15", 16).await.unwrap();
    Writer::new(&kafka.bootstrap()).send("b15", 15, [Message::value("v")]).await.unwrap();
    let read = timeout(LIMIT, async {
        loop {
            match consumer.poll().await {
                Ok(records) if records.is_empty() => {}
                Ok(records) => return records.len(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::UnknownTopic),
            }
        }
    });
    assert_eq!(read.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b16_a_waiting_call_can_be_ended_by_its_caller() {
    let kafka = cluster!();
    topic(kafka, "b16").await;
    let mut consumer = consumer(kafka, ConsumerConfig::new().max_wait_ms(60_000)).await;
    // Instead of a wakeup: the future is dropped, and the consumer is used on.
    let absent = consumer.assign(one("b16-absent", 0), Position::Earliest);
    let _ = timeout(Duration::from_millis(50), absent).await;
    consumer.assign(one("b16", 0), Position::Earliest).await.unwrap();
    let handle = consumer.handle();
    let start = Instant::now();
    let (records, ()) = tokio::join!(consumer.poll(), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        handle.wake();
    });
    assert!(records.unwrap().is_empty());
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b17_no_broker_answers() {
    let start = Instant::now();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let connecting = Consumer::connect(&closed, ConsumerConfig::new());
    let outcome = timeout(Duration::from_secs(1), connecting).await;
    assert!(outcome.is_err() || outcome.is_ok_and(|result| result.is_err()));
    assert!(start.elapsed() < Duration::from_secs(30), "a dropped connect ends at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b18_pause_and_resume() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b18").await;
    writer.send("b18", 0, numbered(0, 0..5)).await.unwrap();
    let mut consumer = assigned(kafka, "b18", Position::Earliest, ConsumerConfig::new()).await;
    read_some(&mut consumer, 5).await;
    consumer.pause("b18", 0);
    assert_eq!(consumer.paused(), one("b18", 0));
    writer.send("b18", 0, numbered(0, 5..10)).await.unwrap();
    stay_empty(&mut consumer, Duration::from_millis(1_200)).await;
    consumer.resume("b18", 0);
    assert_eq!(offsets(&read_some(&mut consumer, 5).await), [5, 6, 7, 8, 9]);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b22_create_time() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b22").await;
    for (partition, codec) in [(0, Codec::None), (1, Codec::Gzip)] {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        writer.send_as("b22", partition, options, stamped(50)).await.unwrap();
        let mut consumer = consumer(kafka, ConsumerConfig::new()).await;
        consumer.assign(one("b22", partition), Position::Earliest).await.unwrap();
        for (n, record) in (0..).zip(read_some(&mut consumer, 50).await) {
            assert_eq!((record.timestamp.kind(), record.timestamp.millis()), (TimestampType::CreateTime, n));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b23_log_append_time() {
    let kafka = cluster!();
    let mut writer = topic_with(kafka, "b23", &[("message.timestamp.type", "LogAppendTime")]).await;
    for (partition, codec) in [(0, Codec::None), (1, Codec::Gzip)] {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        let before = wall();
        writer.send_as("b23", partition, options, stamped(50)).await.unwrap();
        let after = wall();
        let mut consumer = consumer(kafka, ConsumerConfig::new()).await;
        consumer.assign(one("b23", partition), Position::Earliest).await.unwrap();
        for record in read_some(&mut consumer, 50).await {
            assert_eq!(record.timestamp.kind(), TimestampType::LogAppendTime);
            assert!((before..=after).contains(&record.timestamp.millis()), "{:?}", record.timestamp);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b26_b27_b28_metrics_follow_the_assignment() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b26").await;
    writer.send("b26", 0, numbered(0, 0..10)).await.unwrap();
    for visibility in [Visibility::All, Visibility::CommittedOnly] {
        let config = ConsumerConfig::new().visibility(visibility);
        let mut consumer = assigned(kafka, "b26", Position::Earliest, config).await;
        read_some(&mut consumer, 10).await;
        let metrics = consumer.metrics();
        assert_eq!((metrics.partitions[0].lag, metrics.partitions[0].lead), (Some(0), Some(10)));
        assert_eq!(metrics.records, 10);
        consumer.assign(one("b26", 1), Position::Earliest).await.unwrap();
        let metrics = consumer.metrics();
        let named: Vec<i32> = metrics.partitions.iter().map(|one| one.partition).collect();
        assert_eq!(named, [1], "nothing is left of the other partition");
        assert_eq!(consumer.lag("b26", 0), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b30_consuming_without_a_group() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b30").await;
    writer.send("b30", 0, numbered(0, 0..2)).await.unwrap();
    let mut earliest = assigned(kafka, "b30", Position::Earliest, ConsumerConfig::new()).await;
    let mut latest = assigned(kafka, "b30", Position::Latest, ConsumerConfig::new()).await;
    let mut sought = assigned(kafka, "b30", Position::Earliest, ConsumerConfig::new()).await;
    sought.seek("b30", 0, 1).unwrap();
    assert_eq!(read_some(&mut earliest, 2).await.len(), 2);
    assert!(latest.poll().await.unwrap().is_empty());
    assert_eq!(offsets(&read_some(&mut sought, 1).await), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b31_no_commit_without_a_group() {
    let kafka = cluster!();
    topic(kafka, "b31").await;
    let mut consumer = assigned(kafka, "b31", Position::Earliest, ConsumerConfig::new()).await;
    assert_eq!(consumer.commit().await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(consumer.committed().await.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b33_cluster_id() {
    let kafka = cluster!();
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    assert!(cluster.snapshot().cluster_id.as_deref().is_some_and(|id| !id.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b36_polls_do_not_stall() {
    let kafka = cluster!();
    kafka.create_topic("b36", 6, 1, &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    let mut consumer = consumer(kafka, ConsumerConfig::new().max_wait_ms(30_000)).await;
    consumer.assign(partitions("b36", 6), Position::Earliest).await.unwrap();
    let writing = tokio::spawn(async move {
        for n in 0.. {
            writer.send("b36", n % 6, [Message::value([b'x'; 64])]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let start = Instant::now();
    for _ in 0..2 {
        assert!(!consumer.poll().await.unwrap().is_empty());
    }
    // Java asks for 2 s on an idle machine; what is meant is that no poll waits for its own end.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    writing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b38_rapid_assign_and_commit() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b38").await;
    for partition in 0..2 {
        writer.send("b38", partition, numbered(partition, 0..10)).await.unwrap();
    }
    let config = ConsumerConfig::new().group_id("b38").max_poll_records(1);
    let mut consumer = consumer(kafka, config).await;
    for round in 0..10 {
        for partition in 0..2 {
            let position = Position::Committed(Box::new(Position::Earliest));
            consumer.assign(one("b38", partition), position).await.unwrap();
            let record = read_some(&mut consumer, 1).await;
            assert_eq!((record[0].partition, record[0].offset), (partition, round));
            assert!(consumer.commit().await.unwrap()[0].1.is_ok());
        }
    }
    consumer.assign(partitions("b38", 2), Position::Earliest).await.unwrap();
    let stored = consumer.committed().await.unwrap();
    assert!(stored.len() == 2 && stored.values().all(|stored| stored.offset == 10), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn java_b43_b44_close_is_quick() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "b43").await;
    writer.send("b43", 0, numbered(0, 0..10)).await.unwrap();
    let mut consumer = assigned(kafka, "b43", Position::Earliest, ConsumerConfig::new()).await;
    read_some(&mut consumer, 10).await;
    let start = Instant::now();
    consumer.close().await.unwrap();
    consumer.close().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(consumer.poll().await.unwrap_err().kind(), ErrorKind::Closed);
    let mut consumer = assigned(kafka, "b43", Position::Earliest, ConsumerConfig::new()).await;
    let start = Instant::now();
    let _ = timeout(Duration::from_millis(100), consumer.close()).await;
    drop(consumer);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn java_a01_a02_nothing_is_committed_before_a_position_is_known() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a01").await;
    writer.numbers("a01", 0, 0..10_000).await.unwrap();
    let mut consumer = consumer(kafka, ConsumerConfig::new().group_id("a01")).await;
    // Dropped before the look-up can have been answered.
    assert!(consumer.assign(one("a01", 0), Position::Earliest).now_or_never().is_none());
    let stored = consumer.commit_offsets(std::iter::empty()).await.unwrap();
    assert!(stored.is_empty());
    assert!(consumer.committed().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn java_a03_commit_of_all_consumed() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a03").await;
    writer.numbers("a03", 0, 0..10_000).await.unwrap();
    let config = ConsumerConfig::new().group_id("a03");
    let mut consumer = assigned(kafka, "a03", Position::Latest, config).await;
    consumer.seek("a03", 0, 0).unwrap();
    read_some(&mut consumer, 10_000).await;
    consumer.commit().await.unwrap();
    assert_eq!(consumer.committed().await.unwrap()[&key("a03")].offset, 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_a04_a05_assign_and_consume_without_a_group() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a04").await;
    writer.send("a04", 0, numbered(0, 0..10)).await.unwrap();
    let mut consumer = assigned(kafka, "a04", Position::Earliest, ConsumerConfig::new()).await;
    assert_eq!(read_some(&mut consumer, 10).await[0].offset, 0);
    assert_eq!(consumer.position("a04", 0), Some(10));
    consumer.seek("a04", 0, 1).unwrap();
    assert_eq!(read_some(&mut consumer, 9).await[0].offset, 1);
    assert_eq!(consumer.position("a04", 0), Some(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_a06_a07_a08_committed_offsets_of_another_consumer() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "a06").await;
    writer.send("a06", 0, numbered(0, 0..110)).await.unwrap();
    let config = || ConsumerConfig::new().group_id("a06").max_poll_records(100);
    let mut first = assigned(kafka, "a06", Position::Earliest, config()).await;
    read_some(&mut first, 100).await;
    first.commit().await.unwrap();
    let second = assigned(kafka, "a06", Position::Earliest, config()).await;
    for _ in 0..2 {
        assert_eq!(second.committed().await.unwrap()[&key("a06")].offset, 100);
    }
    first.commit_offsets([(key("a06"), CommittedOffset::new(10))]).await.unwrap();
    first.close().await.unwrap();
    let position = Position::Committed(Box::new(Position::Latest));
    let mut third = assigned(kafka, "a06", position, config()).await;
    assert_eq!(third.position("a06", 0), Some(10));
    assert_eq!(read_some(&mut third, 100).await[0].offset, 10);
    third.seek_to_committed().await.unwrap();
    assert_eq!(read_some(&mut third, 100).await[0].offset, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_f01_invalid_offset_without_a_policy() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "f01").await;
    writer.send("f01", 0, numbered(0, 0..10)).await.unwrap();
    writer.send("f01", 1, numbered(1, 0..10)).await.unwrap();
    let config = ConsumerConfig::new().auto_offset_reset(OffsetReset::None);
    let mut consumer = assigned(kafka, "f01", Position::Offset(11), config).await;
    let error = poll_error(&mut consumer).await;
    assert_eq!(error.kind(), ErrorKind::OffsetOutOfRange, "{error}");
    assert_eq!((error.topic(), error.partition(), error.offset()), (Some("f01"), Some(0), Some(11)));
    assert_eq!(consumer.stopped(), [(key("f01"), ErrorKind::OffsetOutOfRange)]);
    // The others go on, and a seek heals it.
    consumer.assign_more([(("f01".to_owned(), 1), Position::Earliest)]).await.unwrap();
    assert_eq!(read_some(&mut consumer, 10).await.len(), 10);
    consumer.seek("f01", 0, 8).unwrap();
    assert_eq!(offsets(&read_some(&mut consumer, 2).await), [8, 9]);
    assert!(consumer.stopped().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn java_f02_out_of_range_resets_to_the_earliest() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "f02").await;
    writer.send("f02", 0, numbered(0, 0..10)).await.unwrap();
    let mut consumer = assigned(kafka, "f02", Position::Earliest, ConsumerConfig::new()).await;
    read_some(&mut consumer, 10).await;
    consumer.seek("f02", 0, 11).unwrap();
    assert_eq!(offsets(&read_some(&mut consumer, 10).await)[0], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_f03_out_of_range_resets_to_the_latest() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "f03").await;
    writer.send("f03", 0, numbered(0, 0..10)).await.unwrap();
    let config = ConsumerConfig::new().auto_offset_reset(OffsetReset::Latest).max_poll_records(5);
    let mut consumer = assigned(kafka, "f03", Position::Earliest, config).await;
    read_some(&mut consumer, 5).await;
    consumer.seek("f03", 0, 27).unwrap();
    poll_until(&mut consumer, "the reset", |consumer| consumer.position("f03", 0) == Some(10)).await;
    writer.send("f03", 0, numbered(0, 10..15)).await.unwrap();
    assert_eq!(offsets(&read_some(&mut consumer, 5).await), [10, 11, 12, 13, 14]);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_f04_out_of_range_resets_by_duration() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "f04").await;
    let now = wall();
    // Hourly, the newest half an hour old; and ten fresh ones.
    let hourly = (0..25).map(|n| Message::value("v").at(now - (24 - n) * 3_600_000 - 1_800_000));
    writer.send("f04", 0, hourly).await.unwrap();
    writer.send("f04", 1, numbered(1, 0..10)).await.unwrap();
    let reset = OffsetReset::ByDuration(Duration::from_secs(3_600));
    let config = ConsumerConfig::new().auto_offset_reset(reset);
    let mut consumer = consumer(kafka, config).await;
    consumer.assign(partitions("f04", 2), Position::Offset(1_000)).await.unwrap();
    let mut first = [None; 2];
    let read = timeout(LIMIT, async {
        while first.contains(&None) {
            for record in &consumer.poll().await.unwrap() {
                first[record.partition as usize].get_or_insert(record.offset);
            }
        }
    });
    read.await.unwrap();
    assert_eq!(first, [Some(24), Some(0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_f05_f06_a_record_over_the_limits_is_delivered() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "f05").await;
    writer.send("f05", 0, [Message::value(vec![b'x'; 40 * 1024])]).await.unwrap();
    let limit = 10 * 1024;
    for config in [
        ConsumerConfig::new().max_bytes(limit),
        ConsumerConfig::new().partition_max_bytes(limit),
        ConsumerConfig::new().fetch_buffer_bytes(limit as usize),
    ] {
        let mut consumer = assigned(kafka, "f05", Position::Earliest, config).await;
        let record = read_some(&mut consumer, 1).await;
        assert_eq!(record[0].value.as_ref().map(bytes::Bytes::len), Some(40 * 1024));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_f07_f08_limits_hold_when_the_large_record_is_not_the_first() {
    let kafka = cluster!();
    let mut writer = topic(kafka, "f07").await;
    writer.send("f07", 0, [Message::value("small")]).await.unwrap();
    writer.send("f07", 0, [Message::value(vec![b'x'; 40 * 1024])]).await.unwrap();
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let limit = 10 * 1024;
    for config in [ConsumerConfig::new().max_bytes(limit), ConsumerConfig::new().partition_max_bytes(limit)] {
        proxy.clear_log();
        let mut consumer = Consumer::new(Cluster::connect(&proxy.bootstrap()).await.unwrap(), config);
        consumer.assign(one("f07", 0), Position::Earliest).await.unwrap();
        let records = read_some(&mut consumer, 2).await;
        assert_eq!(records[0].value.as_deref(), Some(&b"small"[..]));
        let answer = fetches(&proxy)[0].answer::<FetchRequest>().expect("a small answer");
        let bytes = answer.responses[0].partitions[0].records.as_ref().map_or(0, bytes::Bytes::len);
        assert!(bytes < 2 * limit as usize, "{bytes} bytes in the first answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_f09_low_limits_and_many_partitions() {
    let kafka = cluster!();
    let names = ["f09a", "f09b", "f09c"];
    for name in names {
        kafka.create_topic(name, 30, 1, &[]).await.unwrap();
    }
    let writing = names.map(|name| async move {
        let mut writer = Writer::new(&kafka.bootstrap());
        for partition in 0..30 {
            for n in 0..3 {
                writer.send(name, partition, numbered(partition, n * 10..n * 10 + 10)).await.unwrap();
            }
        }
    });
    futures::future::join_all(writing).await;
    let config = ConsumerConfig::new().max_bytes(500).partition_max_bytes(100);
    let mut consumer = consumer(kafka, config).await;
    let all: Vec<_> = names.into_iter().flat_map(|name| partitions(name, 30)).collect();
    consumer.assign(all.clone(), Position::Earliest).await.unwrap();
    let ends: Offsets = all.into_iter().map(|key| (key, 30)).collect();
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, &ends, &mut oracle).await;
    assert_eq!(oracle.count, 2_700);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_e01_e02_committed_readers_see_what_is_decided() {
    let kafka = cluster!();
    kafka.ready_for_transactions().await.unwrap();
    let mut writer = topic(kafka, "e01").await;
    let mut txn = Transactions::init(&kafka.bootstrap(), "e01").await.unwrap();
    let mark = |status: &str| Message::value("v").header("transactionStatus", status);
    txn.send("e01", 0, [mark("aborted"), mark("aborted")]).await.unwrap();
    txn.abort().await.unwrap();
    txn.send("e01", 0, [mark("committed"), mark("committed")]).await.unwrap();
    txn.commit().await.unwrap();
    let committed = ConsumerConfig::new();
    let mut consumer = assigned(kafka, "e01", Position::Earliest, committed.clone()).await;
    for record in read_some(&mut consumer, 2).await {
        assert_eq!(
            record.headers.find("transactionStatus").unwrap().value.as_deref(),
            Some(&b"committed"[..])
        );
    }
    let all = ConsumerConfig::new().visibility(Visibility::All);
    let mut everything = assigned(kafka, "e01", Position::Earliest, all).await;
    assert_eq!(read_some(&mut everything, 4).await.len(), 4);

    // Undecided: later records wait behind it, and look-ups answer as if nothing came after.
    let soon = wall() + 600_000;
    let open = txn.send("e01", 0, [Message::value("open").at(soon)]).await.unwrap();
    writer.send("e01", 0, [Message::value("behind").at(soon + 1)]).await.unwrap();
    assert_eq!(consumer.end_offsets(one("e01", 0)).await.unwrap()[&key("e01")], open);
    let ask = [(key("e01"), soon)];
    assert_eq!(consumer.offsets_for_times(ask.clone()).await.unwrap()[&key("e01")], None);
    poll_until(&mut consumer, "the end", |consumer| consumer.position("e01", 0) == Some(open)).await;
    stay_empty(&mut consumer, Duration::from_millis(700)).await;
    consumer.seek_to_end(one("e01", 0)).await.unwrap();
    assert_eq!(consumer.position("e01", 0), Some(open));
    txn.commit().await.unwrap();
    assert_eq!(offsets(&read_some(&mut consumer, 2).await), [open, open + 1]);
    let found = consumer.offsets_for_times(ask).await.unwrap();
    assert_eq!(found[&key("e01")], Some((open, soon)));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_e03_a_waiting_fetch_learns_of_aborted_data() {
    let kafka = cluster!();
    kafka.ready_for_transactions().await.unwrap();
    topic(kafka, "e03").await;
    let mut txn = Transactions::init(&kafka.bootstrap(), "e03").await.unwrap();
    let config = ConsumerConfig::new().min_bytes(100_000).partition_max_bytes(200_000);
    let mut consumer = assigned(kafka, "e03", Position::Earliest, config).await;
    // The fetch is at the broker by now, or will be: it waits for more bytes than there are.
    assert!(consumer.poll().await.unwrap().is_empty());
    txn.send("e03", 0, [Message::value("aborted")]).await.unwrap();
    txn.abort().await.unwrap();
    txn.send("e03", 0, [Message::value("committed"), Message::value("committed")]).await.unwrap();
    txn.commit().await.unwrap();
    for record in read_some(&mut consumer, 2).await {
        assert_eq!(record.value.as_deref(), Some(&b"committed"[..]));
    }
    poll_until(&mut consumer, "the end", |consumer| consumer.position("e03", 0) == Some(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn java_e14_committed_waits_for_offsets_in_open_transactions() {
    let kafka = cluster!();
    kafka.ready_for_transactions().await.unwrap();
    topic(kafka, "e14").await;
    let mut txn = Transactions::init(&kafka.bootstrap(), "e14").await.unwrap();
    let config = ConsumerConfig::new().group_id("e14").api_timeout_ms(2_000);
    let hasty = assigned(kafka, "e14", Position::Earliest, config).await;
    let config = ConsumerConfig::new().group_id("e14");
    let patient = assigned(kafka, "e14", Position::Earliest, config).await;
    txn.send_offsets("e14", &[("e14", 0, 7)]).await.unwrap();
    let error = hasty.committed().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let (stored, ()) = tokio::join!(patient.committed(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        txn.commit().await.unwrap();
    });
    assert_eq!(stored.unwrap()[&key("e14")].offset, 7);
}
