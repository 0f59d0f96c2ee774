//! The raw writers and the Java programs agree: what one writes the other reads, byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::{Duration, Instant};

use kafka_read::batch::Codec;
use kafka_read::batch::write::BatchOptions;
use testkit::java::{Java, ProducePlan};
use testkit::produce::{Message, Writer, batch, numbered};
use testkit::txn::Transactions;
use testkit::{Kafka, kafka};

#[tokio::test]
async fn java_reads_what_the_raw_writers_write() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().start().await.unwrap();
    kafka.create_topic("plain", 2, 1, &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    let message = Message::value("v").key("k").header("h", "1").null_header("h").at(17);
    assert_eq!(writer.send("plain", 0, [message.clone(), Message::tombstone("k")]).await.unwrap(), 0);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        writer.send_as("plain", 0, options, numbered(0, 0..50)).await.unwrap();
    }
    writer.numbers("plain", 1, 0..1234).await.unwrap();

    let java = Java::new(&kafka).await.unwrap();
    let read = java.read(&["plain"], true).await.unwrap();
    let first: Vec<_> = read.iter().filter(|record| record.partition == 0).collect();
    assert_eq!(first.len(), 2 + 4 * 50);
    assert_eq!(
        (first[0].offset, first[0].timestamp, first[0].timestamp_type.as_str()),
        (0, 17, "CreateTime")
    );
    assert_eq!(first[0].key, message.key);
    assert_eq!(first[0].headers, message.headers);
    assert_eq!(first[1].value, None);
    let second: Vec<_> = read.iter().filter(|record| record.partition == 1).collect();
    assert_eq!(second.len(), 1234);
    assert!(
        (0..).zip(&second).all(|(number, record)| record.value == Some(format!("1-{number}").into_bytes()))
    );

    // A refusal is told.
    let mut broken = batch(BatchOptions::default(), [Message::value("x")]).unwrap().to_vec();
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let refused = writer.offer("plain", 0, broken.into()).await.unwrap();
    assert_ne!(refused.error.value(), 0);
}

#[tokio::test]
async fn transactions_end_as_told_and_offsets_go_with_them() {
    if !kafka::enabled() {
        return;
    }
    for version in ["4.3.1", "3.9.1"] {
        let kafka = Kafka::builder().version(version).start().await.unwrap();
        kafka.create_topic("t", 2, 1, &[]).await.unwrap();
        let started = Instant::now();
        let mut txn = Transactions::init(&kafka.bootstrap(), "tx").await.unwrap();
        txn.send("t", 0, numbered(0, 0..5)).await.unwrap();
        txn.send_offsets("group", &[("t", 1, 3)]).await.unwrap();
        txn.commit().await.unwrap();
        txn.send("t", 0, numbered(0, 100..105)).await.unwrap();
        txn.send("t", 1, numbered(1, 100..105)).await.unwrap();
        txn.abort().await.unwrap();
        txn.send("t", 0, numbered(0, 5..9)).await.unwrap();
        txn.send("t", 0, numbered(0, 9..10)).await.unwrap();
        txn.commit().await.unwrap();
        let mut open = Transactions::init(&kafka.bootstrap(), "open").await.unwrap();
        assert_ne!(open.producer_id(), txn.producer_id());
        open.send("t", 0, numbered(0, 200..203)).await.unwrap();
        println!("{version}: transactions took {:?}", started.elapsed());

        let java = Java::new(&kafka).await.unwrap();
        let committed = java.read(&["t"], true).await.unwrap();
        let values: Vec<_> = committed
            .iter()
            .map(|record| String::from_utf8(record.value.clone().unwrap()).unwrap())
            .collect();
        assert_eq!(values, (0..10).map(|number| format!("0-{number}")).collect::<Vec<_>>(), "{version}");
        let all = java.read(&["t"], false).await.unwrap();
        assert_eq!(all.len(), 23, "{version}");
        let groups = java.consumer_groups(&["--describe", "--group", "group"]).await.unwrap();
        assert!(groups.iter().any(|line| line.contains(" t ") && line.contains(" 3 ")), "{groups:?}");
    }
}

#[tokio::test]
async fn javas_own_programs_write_and_read() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder().start().await.unwrap();
    kafka.create_topic("t", 3, 1, &[]).await.unwrap();
    let started = Instant::now();
    let java = Java::new(&kafka).await.unwrap();
    println!("Java is ready after {:?}", started.elapsed());

    let plan = ProducePlan {
        partitions: 3,
        count: 600,
        size: 40,
        headers: 5,
        keys: 7,
        tombstones: 50,
        transaction: 100,
        aborts: 3,
        timestamp: Some(1000),
        ..ProducePlan::new("t")
    };
    let started = Instant::now();
    let written = java
        .produce(plan.producer("compression.type", "zstd").producer("transactional.id", "tx"))
        .await
        .unwrap();
    println!("JavaProducer took {:?}", started.elapsed());
    assert_eq!(written.len(), 600);
    assert_eq!(written.iter().filter(|record| record.committed).count(), 400);
    let started = Instant::now();
    let read = java.read(&["t"], true).await.unwrap();
    println!("JavaReader took {:?}", started.elapsed());
    assert_eq!(read.len(), 400);
    for record in &read {
        let same =
            written.iter().find(|one| (one.partition, one.offset) == (record.partition, record.offset));
        let same = same.unwrap();
        assert_eq!((&same.key, &same.value, &same.headers), (&record.key, &record.value, &record.headers));
        assert_eq!((same.timestamp, record.leader_epoch), (record.timestamp, Some(0)));
        assert!(same.committed);
    }

    // The console tools, the performance tool, the log dump.
    kafka.create_topic("console", 1, 1, &[]).await.unwrap();
    java.console_produce("console", &["one", "two"], &[]).await.unwrap();
    assert_eq!(java.console_consume("console", 2, &[]).await.unwrap(), ["one", "two"]);
    let said = java.producer_performance("console", 1000, 100, &["linger.ms=5"]).await.unwrap();
    assert!(said.contains("1000 records sent"), "{said}");
    let segment = kafka.data_folder(1).unwrap().join("console-0/00000000000000000000.log");
    let dump = java.dump_log(&[segment]).await.unwrap();
    assert!(dump.iter().any(|line| line.contains("payload: two")), "{dump:?}");

    // A member of Kafka's own, until it has everything; then a second one, and both know.
    kafka.create_topic("shared", 2, 1, &[]).await.unwrap();
    let mut writer = Writer::new(&kafka.bootstrap());
    writer.numbers("shared", 0, 0..100).await.unwrap();
    let mut member = java.verifiable_consumer("shared", "g", &["--reset-policy", "earliest"]).unwrap();
    let patience = Duration::from_secs(60);
    member
        .wait_for(patience, |events| {
            let counts = events.iter().filter(|event| event["name"] == "records_consumed");
            (counts.filter_map(|event| event["count"].as_u64()).sum::<u64>() == 100).then_some(())
        })
        .await
        .unwrap();
    let mut second = java.verifiable_consumer("shared", "g", &[]).unwrap();
    let assigned = |events: &[serde_json::Value]| {
        let last = events.iter().rfind(|event| event["name"] == "partitions_assigned")?;
        (last["partitions"].as_array()?.len() == 1).then_some(())
    };
    second.wait_for(patience, assigned).await.unwrap();
    member.terminate().unwrap();
    member.end(patience).await.unwrap();
    second.kill();

    let mut producer = java.verifiable_producer("shared", &["--max-messages", "20"]).unwrap();
    let sent = producer
        .wait_for(patience, |events| {
            let count = events.iter().filter(|event| event["name"] == "producer_send_success").count();
            (count == 20).then_some(count)
        })
        .await
        .unwrap();
    assert_eq!(sent, 20);
}
