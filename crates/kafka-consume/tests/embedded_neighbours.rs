//! Nobody waits for a neighbour: an idle leader, an idle consumer on the same cluster handle, a paused or full
//! partition. Times are those of the paused clock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::{Embedded, TopicSpec};
use tokio::time::{Instant, timeout};

const LIMIT: Duration = Duration::from_secs(300);

fn fill(broker: &Embedded, topic: &str, partition: i32, batches: i32) {
    for _ in 0..batches {
        broker.append_records(topic, partition, (0..100).map(|_| ("k", vec![7_u8; 500])));
    }
}

/// Virtual time it takes to read `topic` to its end.
async fn read(consumer: &mut Consumer, topic: &str, partition: i32, end: i64) -> Duration {
    let begun = Instant::now();
    let mut next = consumer.position(topic, partition).unwrap();
    timeout(LIMIT, async {
        while next < end {
            for record in &consumer.poll().await.unwrap() {
                if record.topic == topic && record.partition == partition {
                    assert_eq!(record.offset, next);
                    next += 1;
                }
            }
        }
    })
    .await
    .expect("it stands still");
    begun.elapsed()
}

/// Every fetch takes 3 ms, so that a wait for somebody's long poll would show.
fn slow_network(broker: &Embedded) {
    broker.fault(ApiKey::Fetch).always().delay(Duration::from_millis(3));
}

#[tokio::test(start_paused = true)]
async fn a_busy_leader_does_not_wait_for_an_idle_one() {
    let mut took = Vec::new();
    for idle in [false, true] {
        let broker = Embedded::start(2);
        broker.create_topic_with("busy", TopicSpec::new(1).with_placement(vec![vec![1]]));
        broker.create_topic_with("idle", TopicSpec::new(1).with_placement(vec![vec![2]]));
        fill(&broker, "busy", 0, 400);
        slow_network(&broker);
        let cluster = Cluster::connect_with(broker.config()).await.unwrap();
        let mut consumer = Consumer::new(cluster, ConsumerConfig::new());
        let mut wanted = vec![("busy".to_owned(), 0)];
        wanted.extend(idle.then(|| ("idle".to_owned(), 0)));
        consumer.assign(wanted, Position::Earliest).await.unwrap();
        took.push(read(&mut consumer, "busy", 0, 40_000).await);
    }
    assert!(took[1] <= took[0] + Duration::from_millis(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_busy_consumer_does_not_wait_for_idle_ones_on_the_same_cluster() {
    let broker = Embedded::start(1);
    broker.create_topic("busy", 1);
    broker.create_topic("idle", 1);
    fill(&broker, "busy", 0, 400);
    slow_network(&broker);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let mut alone = Consumer::new(cluster.clone(), ConsumerConfig::new());
    alone.assign([("busy".to_owned(), 0)], Position::Earliest).await.unwrap();
    let alone_took = read(&mut alone, "busy", 0, 40_000).await;
    drop(alone);
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut consumer = Consumer::new(cluster.clone(), ConsumerConfig::new());
        consumer.assign([("idle".to_owned(), 0)], Position::Earliest).await.unwrap();
        idle.push(consumer);
    }
    let mut busy = Consumer::new(cluster, ConsumerConfig::new());
    busy.assign([("busy".to_owned(), 0)], Position::Earliest).await.unwrap();
    let took = read(&mut busy, "busy", 0, 40_000).await;
    assert!(
        took <= alone_took + Duration::from_millis(10),
        "{took:?} beside idle ones, {alone_took:?} alone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_paused_partition_with_data_neither_spins_nor_slows() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker, "t", 0, 50);
    fill(&broker, "t", 1, 50);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let mut consumer = Consumer::new(cluster, ConsumerConfig::new());
    let both = [("t".to_owned(), 0), ("t".to_owned(), 1)];
    consumer.assign(both, Position::Earliest).await.unwrap();
    consumer.pause("t", 0);
    read(&mut consumer, "t", 1, 5_000).await;
    broker.clear_requests();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        assert!(consumer.poll().await.unwrap().is_empty());
    }
    let seen = broker.requests_of(ApiKey::Fetch);
    let forgotten: usize =
        seen.iter().filter_map(|seen| seen.fetch.as_ref()).map(|fetch| fetch.forgotten.len()).sum();
    assert!(seen.len() <= 125, "{} fetches in an idle minute", seen.len());
    assert!(forgotten <= 1, "{forgotten} forgotten entries");
    consumer.resume("t", 0);
    read(&mut consumer, "t", 0, 5_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_partition_neither_spins_nor_slows() {
    let broker = Embedded::start(1);
    broker.create_topic("t", 2);
    fill(&broker, "t", 0, 400);
    let cluster = Cluster::connect_with(broker.config()).await.unwrap();
    let config = ConsumerConfig::new().fetch_buffer_bytes(8 << 20).partition_max_bytes(100_000);
    let mut consumer = Consumer::new(cluster, config);
    let both = [("t".to_owned(), 0), ("t".to_owned(), 1)];
    consumer.assign(both, Position::Earliest).await.unwrap();
    // Nobody polls: partition 0 fills up.
    tokio::time::sleep(Duration::from_secs(5)).await;
    broker.clear_requests();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let seen = broker.requests_of(ApiKey::Fetch);
    assert!((60..=125).contains(&seen.len()), "{} fetches in an idle minute", seen.len());
    let written = Instant::now();
    broker.append_records("t", 1, [("k", "v")]);
    timeout(LIMIT, async {
        while consumer.poll().await.unwrap().iter().all(|record| record.partition != 1) {}
    })
    .await
    .expect("the neighbour is never read");
    assert!(written.elapsed() < Duration::from_millis(600), "{:?}", written.elapsed());
    read(&mut consumer, "t", 0, 40_000).await;
}
