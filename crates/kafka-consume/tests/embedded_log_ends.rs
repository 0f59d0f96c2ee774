//! Logs that end in nothing to hand out: the position reaches the end, the lag is 0, and the consumer is idle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use bytes::Bytes;
use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;
use tokio::time::{Instant, timeout};

const LIMIT: Duration = Duration::from_secs(120);

async fn reaches_the_end(records: usize, write: impl FnOnce(&Embedded)) {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    broker.append_records("t", 0, [("k", "first"), ("k", "second")]);
    write(&broker);
    let end = broker.log_end("t", 0);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new().partition_max_bytes(10_000));
    consumer.assign([("t".to_owned(), 0)], Position::Earliest).await.unwrap();
    let mut seen = 0;
    timeout(LIMIT, async {
        while consumer.position("t", 0) != Some(end) {
            seen += consumer.poll().await.unwrap().len();
        }
    })
    .await
    .unwrap_or_else(|_| panic!("the position stays at {:?} of {end}", consumer.position("t", 0)));
    assert_eq!(seen, records);
    consumer.poll().await.unwrap();
    assert_eq!(consumer.lag("t", 0), Some(0));
    assert!(consumer.caught_up());
    broker.clear_requests();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        assert!(consumer.poll().await.unwrap().is_empty());
    }
    let fetches = broker.requests_of(ApiKey::Fetch).len();
    assert!(fetches <= 22, "{fetches} fetches in ten idle seconds");
}

#[tokio::test(start_paused = true)]
async fn in_a_commit_marker() {
    reaches_the_end(3, |broker| {
        let mut open = broker.begin("txn");
        open.append("t", 0, ["committed"]);
        open.commit();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_an_abort_marker() {
    reaches_the_end(2, |broker| {
        let mut open = broker.begin("txn");
        open.append("t", 0, ["aborted"]);
        open.abort();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_an_aborted_stretch_longer_than_one_fetch() {
    reaches_the_end(2, |broker| {
        let mut open = broker.begin("txn");
        for _ in 0..200 {
            open.append("t", 0, [vec![7_u8; 1_000]]);
        }
        open.abort();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_a_hole_left_by_compaction() {
    reaches_the_end(2, |broker| {
        broker.append_records("t", 0, (0..10).map(|n| (n.to_string(), "v")));
        let stored = broker.stored("t", 0);
        // Compaction keeps the last batch with its offsets and none of its records.
        let mut last = stored.last().unwrap().to_vec();
        last.truncate(61);
        last[8..12].copy_from_slice(&49_i32.to_be_bytes());
        last[57..61].copy_from_slice(&0_i32.to_be_bytes());
        kafka_read::batch::write::seal(&mut last);
        broker.replace("t", 0, 2, 12, Bytes::from(last));
    })
    .await;
}
