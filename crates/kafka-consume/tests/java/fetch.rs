//! The Java suites' fetching: PlaintextConsumerFetchTest.
//!
//! What is shared with its neighbours is in `real_java_cases.rs`.

use super::*;

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
