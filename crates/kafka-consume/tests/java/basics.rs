//! The Java suites' basics: PlaintextConsumerTest and its kin, the parts for manual assignment.
//!
//! What is shared with its neighbours is in `real_java_cases.rs`.

use super::*;

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
