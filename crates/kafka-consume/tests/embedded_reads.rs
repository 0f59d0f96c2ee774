//! A manual consumer on the embedded broker under the paused clock: what it reads, where it stands, what it
//! sends while there is nothing to read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;
use tokio::time::{Instant, timeout};

const LIMIT: Duration = Duration::from_secs(120);

async fn consumer(broker: &Embedded, config: ConsumerConfig) -> Consumer {
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    Consumer::new(cluster, config)
}

fn partitions(topic: &str, count: i32) -> Vec<(String, i32)> {
    (0..count).map(|partition| (topic.to_owned(), partition)).collect()
}

/// Reads until every partition's position is at its end; each offset exactly once and in order.
async fn read_all(consumer: &mut Consumer, ends: &BTreeMap<(String, i32), i64>) -> usize {
    let mut next: BTreeMap<(String, i32), i64> = BTreeMap::new();
    let mut total = 0;
    timeout(LIMIT, async {
        while ends.iter().any(|((topic, partition), end)| consumer.position(topic, *partition) != Some(*end))
        {
            for record in &consumer.poll().await.unwrap() {
                let key = (record.topic.to_string(), record.partition);
                let next = next.entry(key).or_insert(0);
                assert_eq!(record.offset, *next, "{}-{}", record.topic, record.partition);
                *next += 1;
                total += 1;
            }
        }
    })
    .await
    .expect("the log is read to its end");
    total
}

#[tokio::test(start_paused = true)]
async fn three_nodes_are_read_to_the_end_in_order() {
    let broker = Embedded::start(3);
    broker.create_topic("orders", 12);
    let mut ends = BTreeMap::new();
    for partition in 0..12 {
        for batch in 0..10 {
            let records = (0..50).map(|n| (format!("k{n}"), format!("v{batch}-{n}")));
            broker.append_records("orders", partition, records);
        }
        ends.insert(("orders".to_owned(), partition), 500);
    }
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(partitions("orders", 12), Position::Earliest).await.unwrap();
    assert_eq!(read_all(&mut consumer, &ends).await, 6_000);
    for partition in 0..12 {
        assert_eq!(consumer.lag("orders", partition), Some(0));
    }
    assert!(consumer.caught_up());
    assert!(consumer.poll().await.unwrap().is_empty(), "an empty poll is a normal answer");
    consumer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_consumer_sends_at_most_one_fetch_per_leader_and_wire_wait() {
    let broker = Embedded::start(3);
    broker.create_topic("quiet", 12);
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(partitions("quiet", 12), Position::Earliest).await.unwrap();
    consumer.poll().await.unwrap();
    broker.clear_requests();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        assert!(consumer.poll().await.unwrap().is_empty());
    }
    let fetches = broker.requests_of(ApiKey::Fetch).len();
    assert!(fetches <= 3 * 121, "{fetches} fetches in a minute of nothing");
    assert!(fetches >= 3 * 100, "{fetches}: the fetchers stand still");
}

#[tokio::test(start_paused = true)]
async fn latest_misses_nothing_written_after_assign() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 1);
    broker.append_records("t", 0, [("k", "old")]);
    let mut consumer = consumer(&broker, ConsumerConfig::new()).await;
    consumer.assign(partitions("t", 1), Position::Latest).await.unwrap();
    assert_eq!(consumer.position("t", 0), Some(1));
    broker.append_records("t", 0, [("k", "new")]);
    let records = timeout(LIMIT, async {
        loop {
            let records = consumer.poll().await.unwrap();
            if !records.is_empty() {
                break records;
            }
        }
    })
    .await
    .unwrap();
    let records: Vec<_> = records.into_iter().collect();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].value.as_deref(), Some(&b"new"[..]));
}
