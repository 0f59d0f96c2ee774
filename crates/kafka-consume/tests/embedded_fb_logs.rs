//! Field bugs about what is in a log, on the embedded broker under the paused clock: holes, markers, packed
//! batches nobody can read, timestamps, headers, large records. Names begin with the ids of `docs/testing.md`.
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

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use kafka_consume::{
    Cluster, Consumer, ConsumerConfig, ErrorKind, Position, Record, TimestampType, Visibility,
};
use kafka_protocol::messages::fetch_response::AbortedTransaction;
use kafka_protocol::messages::{ApiKey, FetchResponse};
use kafka_read::batch::Codec;
use kafka_read::batch::write::{BatchOptions, BatchWriter, seal};
use support::{LIMIT, Offsets, Oracle, partitions, read_some, read_to};
use testkit::embedded::{Embedded, TopicSpec};
use testkit::produce::{Message, batch};
use tokio::time::timeout;

fn fill(broker: &Embedded, topic: &str, partition: i32, batches: usize, each: usize) {
    for _ in 0..batches {
        broker.append_records(topic, partition, (0..each).map(|n| (format!("k{n}"), format!("v{n}"))));
    }
}

async fn consumer(broker: &Embedded, config: ConsumerConfig) -> Consumer {
    Consumer::new(Cluster::connect_with(broker.config()).await.unwrap(), config)
}

async fn from_start(broker: &Embedded, topic: &str, count: i32, config: ConsumerConfig) -> Consumer {
    let mut consumer = consumer(broker, config).await;
    consumer.assign(partitions(topic, count), Position::Earliest).await.unwrap();
    consumer
}

fn at(topic: &str, offset: i64) -> Offsets {
    [((topic.to_owned(), 0), offset)].into()
}

/// A batch as compaction leaves it: these offsets of `[base, base + span)`.
fn compacted(base: i64, span: i32, kept: impl IntoIterator<Item = i32>) -> Bytes {
    let options = BatchOptions {
        base_offset: base,
        leader_epoch: 0,
        last_offset_delta: Some(span - 1),
        ..BatchOptions::default()
    };
    let mut writer = BatchWriter::new(options);
    for delta in kept {
        writer.push_at(delta, 0, Some(b"k"), Some(b"v"), &[]).unwrap();
    }
    writer.finish().unwrap().freeze()
}

#[tokio::test(start_paused = true)]
async fn fb26_every_shape_of_hole_is_stepped_over() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 12, 10);
    // Batch n keeps its first n records; the tenth is gone with its header, the eleventh is full.
    for n in 0..10 {
        let base = i64::from(n) * 10;
        broker.replace("t", 0, base, base + 10, compacted(base, 10, 0..n));
    }
    broker.replace("t", 0, 100, 110, Bytes::new());
    // A gap of a million offsets.
    broker.append("t", 0, compacted(0, 1_000_000, [0]));
    fill(&broker, "t", 0, 1, 3);
    let end = broker.high_watermark("t", 0);
    assert_eq!(end, 120 + 1_000_000 + 3);
    for visibility in [Visibility::CommittedOnly, Visibility::All] {
        for config in [ConsumerConfig::new(), ConsumerConfig::new().partition_max_bytes(200)] {
            let mut consumer = from_start(&broker, "t", 1, config.visibility(visibility)).await;
            let mut oracle = Oracle::rising();
            read_to(&mut consumer, &at("t", end), &mut oracle).await;
            assert_eq!(oracle.count, 45 + 10 + 1 + 3);
            assert_eq!(consumer.lag("t", 0), Some(0));
            for offset in (0..=125).chain([500_000, 1_000_119, end - 1, end]) {
                consumer.seek("t", 0, offset).unwrap();
                let mut oracle = Oracle::rising();
                oracle.expect_from("t", 0, offset);
                read_to(&mut consumer, &at("t", end), &mut oracle).await;
            }
            assert_eq!(consumer.metrics().skipped_batches, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb29_a_marker_without_its_transaction() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let mut txn = broker.begin("tx");
    assert_eq!(txn.append("t", 0, ["aborted"]), 0);
    txn.abort();
    fill(&broker, "t", 0, 1, 3);
    // An empty aborted transaction leaves a marker alone.
    let mut txn = broker.begin("tx");
    txn.append::<&str>("t", 0, []);
    txn.abort();
    let end = broker.high_watermark("t", 0);
    let shapes: [fn() -> Option<Vec<AbortedTransaction>>; 3] = [
        || None,
        || Some(Vec::new()),
        || Some(vec![AbortedTransaction::default().with_producer_id(999.into()).with_first_offset(0)]),
    ];
    for shape in shapes {
        let fault = broker.fault(ApiKey::Fetch).always().map(move |answer: &mut FetchResponse| {
            for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                partition.aborted_transactions = shape();
            }
        });
        let mut consumer = from_start(&broker, "t", 1, ConsumerConfig::new()).await;
        consumer.seek("t", 0, 1).unwrap();
        let mut oracle = Oracle::rising();
        oracle.expect_from("t", 0, 1);
        read_to(&mut consumer, &at("t", end), &mut oracle).await;
        assert_eq!(oracle.count, 3);
        fault.remove();
    }
}

/// Reads partition 0 up to its error while partition 1 goes on.
async fn stopped_at(consumer: &mut Consumer, others: usize) -> (kafka_consume::Error, Vec<Record>) {
    let (mut records, mut found) = (Vec::new(), None);
    let read = timeout(LIMIT, async {
        while found.is_none() || records.iter().filter(|one: &&Record| one.partition == 1).count() < others {
            match consumer.poll().await {
                Ok(more) => records.extend(more),
                Err(error) => found = Some(error),
            }
        }
    });
    read.await.unwrap();
    (found.unwrap(), records)
}

#[tokio::test(start_paused = true)]
async fn fb31_a_batch_that_cannot_be_read_is_named_and_may_be_skipped() {
    let unknown = {
        let mut bytes = batch(BatchOptions::default(), [Message::value("x")]).unwrap().to_vec();
        bytes[22] |= 5;
        seal(&mut bytes);
        Bytes::from(bytes)
    };
    let bomb = {
        let options = BatchOptions { codec: Codec::Zstd, ..BatchOptions::default() };
        batch(options, [Message::value(vec![0; 20 << 20])]).unwrap()
    };
    assert!(bomb.len() < 64 * 1024);
    for (bytes, kind) in [(unknown, ErrorKind::UnsupportedCodec), (bomb, ErrorKind::BatchTooLarge)] {
        let broker = Embedded::start(1);
        broker.create_topic("t", 2);
        fill(&broker, "t", 0, 1, 5);
        assert_eq!(broker.append("t", 0, bytes), 5);
        fill(&broker, "t", 0, 1, 5);
        fill(&broker, "t", 1, 50, 5);
        let mut consumer = from_start(&broker, "t", 2, ConsumerConfig::new().max_batch_bytes(1 << 20)).await;
        let (error, records) = stopped_at(&mut consumer, 250).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!((error.topic(), error.partition(), error.offset()), (Some("t"), Some(0), Some(5)));
        assert_eq!(records.iter().filter(|record| record.partition == 0).count(), 5);
        assert_eq!(consumer.stopped(), [(("t".to_owned(), 0), kind)]);
        assert_eq!(consumer.position("t", 0), Some(5), "a commit does not pass it");
        consumer.seek("t", 0, 6).unwrap();
        assert_eq!(read_some(&mut consumer, 5).await[0].offset, 6);
    }
}

#[tokio::test(start_paused = true)]
async fn fb31_a_damaged_payload_is_passed_over_whole() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let broker = Embedded::start(1);
        broker.create_topic("t", 1);
        fill(&broker, "t", 0, 1, 5);
        let options = BatchOptions { codec, ..BatchOptions::default() };
        let mut bytes =
            batch(options, (0..7).map(|n| Message::value(format!("a longer value {n}")))).unwrap().to_vec();
        for byte in bytes.iter_mut().skip(61) {
            *byte ^= 0x5a;
        }
        seal(&mut bytes);
        broker.append("t", 0, Bytes::from(bytes));
        fill(&broker, "t", 0, 1, 5);
        let mut consumer = from_start(&broker, "t", 1, ConsumerConfig::new()).await;
        let mut oracle = Oracle::rising();
        read_to(&mut consumer, &at("t", 17), &mut oracle).await;
        assert_eq!((oracle.count, consumer.metrics().skipped_batches), (10, 1), "{codec:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fb33_timestamps_are_the_brokers_or_the_producers() {
    let broker = Embedded::start(1);
    broker.create_topic_with("append", TopicSpec::new(1).with_log_append_time());
    broker.create_topic("create", 1);
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for count in [1, 500] {
            let options = BatchOptions { codec, ..BatchOptions::default() };
            let far =
                (0..count).map(|n| Message::value("v").at(if n % 2 == 0 { 1 } else { 9_000_000_000_000 }));
            broker.append("append", 0, batch(options, far).unwrap());
        }
    }
    let mut consumer = from_start(&broker, "append", 1, ConsumerConfig::new()).await;
    let records = read_some(&mut consumer, 5 * 501).await;
    let first = records[0].timestamp.millis();
    assert!(first > 1);
    for record in &records {
        assert_eq!(
            (record.timestamp.kind(), record.timestamp.millis()),
            (TimestampType::LogAppendTime, first)
        );
    }

    let times = [-1, -1, 0, 5, 3, i64::MAX - 1, 17];
    let options = BatchOptions { base_timestamp: Some(-1), ..BatchOptions::default() };
    broker.append("create", 0, batch(options, times.map(|time| Message::value("v").at(time))).unwrap());
    let options = BatchOptions { base_timestamp: Some(i64::MAX - 1), ..BatchOptions::default() };
    broker.append("create", 0, batch(options, times.map(|time| Message::value("v").at(time))).unwrap());
    let mut consumer = from_start(&broker, "create", 1, ConsumerConfig::new()).await;
    let records = read_some(&mut consumer, 14).await;
    for (record, time) in records.iter().zip(times.iter().cycle()) {
        assert_eq!((record.timestamp.kind(), record.timestamp.millis()), (TimestampType::CreateTime, *time));
    }
}

#[tokio::test(start_paused = true)]
async fn fb34_headers_are_a_list_and_null_is_not_empty() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    let many =
        (0..1_000).fold(Message::value("many"), |message, n| message.header(format!("h{n}"), n.to_string()));
    let messages = vec![
        Message::default(),
        Message::value("").key(""),
        Message::value("1").key("1"),
        Message::tombstone("gone"),
        Message::value("v").header("same", "1").null_header("same").header("same", ""),
        Message::value("v").header("", [0xff, 0xfe, 0]).null_header(""),
        many,
    ];
    for codec in [Codec::None, Codec::Lz4] {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        broker.append("t", 0, batch(options, messages.clone()).unwrap());
    }
    let mut consumer = from_start(&broker, "t", 1, ConsumerConfig::new()).await;
    let records = read_some(&mut consumer, messages.len() * 2).await;
    for (record, message) in records.iter().zip(messages.iter().cycle()) {
        assert_eq!(record.key.as_deref(), message.key.as_deref());
        assert_eq!(record.value.as_deref(), message.value.as_deref());
        let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = record
            .headers
            .iter()
            .map(|header| (header.key.as_bytes().to_vec(), header.value.map(|value| value.to_vec())))
            .collect();
        assert_eq!(headers, message.headers);
    }
}

#[tokio::test(start_paused = true)]
async fn fb35_large_records_stop_nobody() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 8);
    for large in [vec![3], (0..8).collect::<Vec<i32>>()] {
        for partition in 0..8 {
            fill(&broker, "t", partition, 20, 10);
            if large.contains(&partition) {
                let record = Message::value(vec![b'x'; 900 * 1024]);
                broker.append("t", partition, batch(BatchOptions::default(), [record]).unwrap());
            }
            fill(&broker, "t", partition, 20, 10);
        }
    }
    let ends: Offsets = partitions("t", 8)
        .into_iter()
        .map(|(topic, partition)| {
            let end = broker.high_watermark(&topic, partition);
            ((topic, partition), end)
        })
        .collect();
    for config in [
        ConsumerConfig::new().partition_max_bytes(64 * 1024),
        ConsumerConfig::new().partition_max_bytes(64 * 1024).max_bytes(64 * 1024),
        ConsumerConfig::new().partition_max_bytes(64 * 1024).fetch_buffer_bytes(256 * 1024),
    ] {
        let mut consumer = from_start(&broker, "t", 8, config).await;
        let mut oracle = Oracle::strict();
        read_to(&mut consumer, &ends, &mut oracle).await;
        assert_eq!(oracle.count as i64, ends.values().sum::<i64>());
    }
}

#[tokio::test(start_paused = true)]
async fn fb35_answers_cut_at_every_byte_lose_nothing() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    fill(&broker, "t", 0, 400, 1);
    for bytes in 0..160 {
        // Every second one, so that back-off does not add up.
        broker.fault(ApiKey::Fetch).skip(bytes * 2).times(1).cut_answer(bytes as usize);
    }
    let mut consumer = from_start(&broker, "t", 1, ConsumerConfig::new().partition_max_bytes(300)).await;
    let mut oracle = Oracle::strict();
    read_to(&mut consumer, &at("t", 400), &mut oracle).await;
    assert_eq!(oracle.count, 400);
}

#[tokio::test(start_paused = true)]
async fn fb35_one_hot_partition_starves_nobody() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 100);
    fill(&broker, "t", 0, 3_000, 20);
    let config =
        || ConsumerConfig::new().max_poll_records(20).partition_max_bytes(16 * 1024).max_bytes(64 * 1024);
    let mut consumer = from_start(&broker, "t", 100, config()).await;
    for _ in 0..5 {
        consumer.poll().await.unwrap();
    }
    for partition in 1..100 {
        fill(&broker, "t", partition, 1, 1);
    }
    let (mut quiet, mut polls) = (BTreeSet::new(), 0);
    let read = timeout(Duration::from_secs(30), async {
        while quiet.len() < 99 {
            polls += 1;
            quiet.extend(
                consumer
                    .poll()
                    .await
                    .unwrap()
                    .iter()
                    .map(|record| record.partition)
                    .filter(|index| *index != 0),
            );
        }
    });
    assert!(read.await.is_ok(), "{} of 99 quiet partitions in {polls} polls", quiet.len());
    assert!(consumer.lag("t", 0).unwrap() > 0, "the hot one is still behind");
    assert!(polls < 400, "{polls} polls until every quiet one had its turn");
}

/// Limits far below one batch: an answer has one batch of one partition, and nobody waits for anything.
#[tokio::test(start_paused = true)]
async fn fb35_limits_below_a_batch_cost_no_waiting() {
    for nodes in [1, 3] {
        let broker = Embedded::start(nodes);
        broker.create_topic("t", 3);
        for partition in 0..3 {
            fill(&broker, "t", partition, 20, 500);
        }
        let config =
            ConsumerConfig::new().partition_max_bytes(4_000).max_bytes(8_000).fetch_buffer_bytes(64_000);
        let mut consumer = from_start(&broker, "t", 3, config).await;
        let ends: Offsets = partitions("t", 3).into_iter().map(|key| (key, 10_000)).collect();
        let start = tokio::time::Instant::now();
        for round in 0..3 {
            for partition in 0..3 {
                consumer.seek("t", partition, 0).unwrap();
            }
            let mut oracle = Oracle::strict();
            read_to(&mut consumer, &ends, &mut oracle).await;
            assert_eq!(oracle.count, 30_000);
            println!(
                "{nodes} nodes, round {round}: {:?}, {} fetches",
                start.elapsed(),
                consumer.metrics().fetches
            );
        }
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
}
