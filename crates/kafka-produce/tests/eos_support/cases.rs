//! Cases of Kafka's own transaction suite, for the embedded broker and for real ones. The names are those of
//! `docs/testing.md`.

use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use kafka_consume::{
    Cluster, CommittedOffset, Consumer, ConsumerConfig, GroupMetadata, Position, Visibility,
};
use kafka_produce::{ErrorKind, Positions, Producer, ProducerConfig, ProducerRecord};
use testkit::Kafka;
use testkit::embedded::Embedded;

/// Where a case runs.
#[derive(Clone)]
pub enum Bench<'a> {
    Real(&'a Kafka),
    Embedded(Embedded),
}

impl Bench<'_> {
    pub async fn topic(&self, name: &str, partitions: i32) {
        match self {
            Bench::Real(kafka) => drop(kafka.create_topic(name, partitions, 1, &[]).await.unwrap()),
            Bench::Embedded(kafka) => assert!(kafka.create_topic(name, partitions)),
        }
    }
}

/// A record that a partition is given.
fn record(topic: &str, partition: i32, value: impl ToString) -> ProducerRecord {
    ProducerRecord::new(topic).partition(partition).value(value.to_string())
}

async fn producer(cluster: &Cluster, id: &str) -> Producer {
    Producer::transactional(cluster.clone(), ProducerConfig::new(), id).await.unwrap()
}

/// Everything in the topic's partitions, sorted.
pub async fn read(cluster: &Cluster, topic: &str, visibility: Visibility) -> Vec<String> {
    let config = ConsumerConfig::new().visibility(visibility).max_wait_ms(50);
    let mut reader = Consumer::new(cluster.clone(), config);
    let partitions = cluster.partitions(topic).await.unwrap();
    let all: Vec<_> = partitions.into_iter().map(|partition| (topic.to_owned(), partition)).collect();
    let mut values = Vec::new();
    let reading = async {
        // Until the last marker is written: then the committed end is the end.
        loop {
            let ends = reader.end_offsets(all.clone()).await.unwrap();
            let config = ConsumerConfig::new().visibility(Visibility::All);
            let bare = Consumer::new(cluster.clone(), config).end_offsets(all.clone()).await.unwrap();
            if ends == bare {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        reader.assign(all.clone(), Position::Earliest).await.unwrap();
        while !reader.caught_up() {
            for record in reader.poll().await.unwrap() {
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the topic ends");
    values.sort();
    values
}

pub async fn e01_an_aborted_and_a_committed_transaction(bench: &Bench<'_>, cluster: &Cluster) {
    bench.topic("e01", 2).await;
    let producer = producer(cluster, "e01").await;
    producer.begin_transaction().await.unwrap();
    producer.send(record("e01", 0, "a1")).await.unwrap();
    producer.send(record("e01", 1, "a2")).await.unwrap();
    producer.abort_transaction().await.unwrap();
    producer.begin_transaction().await.unwrap();
    producer.send(record("e01", 0, "c1")).await.unwrap();
    producer.send(record("e01", 1, "c2")).await.unwrap();
    producer.commit_transaction().await.unwrap();
    assert_eq!(read(cluster, "e01", Visibility::CommittedOnly).await, ["c1", "c2"]);
    assert_eq!(read(cluster, "e01", Visibility::All).await, ["a1", "a2", "c1", "c2"]);
    // Many one after another: each waits for the markers of the one before.
    for number in 0..10 {
        producer.begin_transaction().await.unwrap();
        producer.send(record("e01", number % 2, format!("n{number}"))).await.unwrap();
        if number % 3 == 0 {
            producer.abort_transaction().await.unwrap();
        } else {
            producer.commit_transaction().await.unwrap();
        }
    }
    let all = read(cluster, "e01", Visibility::CommittedOnly).await;
    assert_eq!(all, ["c1", "c2", "n1", "n2", "n4", "n5", "n7", "n8"]);
    producer.close().await.unwrap();
}

fn nobody(group: &str) -> GroupMetadata {
    GroupMetadata::anonymous(group).unwrap()
}

fn at(topic: &str, offset: i64) -> Positions {
    [((topic.to_owned(), 0), CommittedOffset::new(offset))].into_iter().collect()
}

pub async fn committed(cluster: &Cluster, group: &str, topic: &str) -> Option<CommittedOffset> {
    let mut reader = Consumer::new(cluster.clone(), ConsumerConfig::new().group_id(group));
    reader.assign([(topic.to_owned(), 0)], Position::Offset(0)).await.unwrap();
    reader.committed().await.unwrap().remove(&(topic.to_owned(), 0))
}

pub async fn e05_the_metadata_of_an_offset_travels(bench: &Bench<'_>, cluster: &Cluster) {
    bench.topic("e05", 1).await;
    let producer = producer(cluster, "e05").await;
    producer.begin_transaction().await.unwrap();
    producer.send(record("e05", 0, "x")).await.unwrap();
    let offset = CommittedOffset::new(1).with_metadata("some words").with_leader_epoch(0);
    let offsets: Positions = [(("e05".to_owned(), 0), offset.clone())].into_iter().collect();
    producer.send_offsets_to_transaction(offsets, &nobody("e05")).await.unwrap();
    producer.commit_transaction().await.unwrap();
    assert_eq!(committed(cluster, "e05", "e05").await, Some(offset));
    // An abort leaves it.
    producer.begin_transaction().await.unwrap();
    producer.send_offsets_to_transaction(at("e05", 9), &nobody("e05")).await.unwrap();
    producer.abort_transaction().await.unwrap();
    assert_eq!(committed(cluster, "e05", "e05").await.unwrap().offset, 1);
    // Offsets alone are a transaction.
    producer.begin_transaction().await.unwrap();
    producer.send_offsets_to_transaction(at("e05", 5), &nobody("e05")).await.unwrap();
    producer.commit_transaction().await.unwrap();
    assert_eq!(committed(cluster, "e05", "e05").await.unwrap().offset, 5);
}

/// Two producers of one id: the first has a transaction open when the second comes.
async fn two(bench: &Bench<'_>, cluster: &Cluster, name: &str) -> (Producer, Producer) {
    bench.topic(name, 3).await;
    let older = producer(cluster, name).await;
    older.begin_transaction().await.unwrap();
    older.send(record(name, 0, "older")).await.unwrap();
    let newer = producer(cluster, name).await;
    newer.begin_transaction().await.unwrap();
    newer.send(record(name, 0, "newer")).await.unwrap();
    (older, newer)
}

/// The newer one goes on undisturbed, and only its records are seen.
async fn newer_wins(cluster: &Cluster, name: &str, older: &Producer, newer: &Producer) {
    let over = older.begin_transaction().await.unwrap_err();
    assert!(over.is_fatal(), "{over}");
    assert_eq!(over.kind(), ErrorKind::Fenced);
    newer.send(record(name, 1, "newer too")).await.unwrap();
    newer.commit_transaction().await.unwrap();
    assert_eq!(read(cluster, name, Visibility::CommittedOnly).await, ["newer", "newer too"]);
    older.close().await.unwrap();
}

pub async fn e06_a_fenced_producer_cannot_commit(bench: &Bench<'_>, cluster: &Cluster) {
    let (older, newer) = two(bench, cluster, "e06").await;
    let error = older.commit_transaction().await.unwrap_err();
    assert!(error.is_fatal() && error.kind() == ErrorKind::Fenced, "{error}");
    newer_wins(cluster, "e06", &older, &newer).await;
}

/// What a fenced producer is told by a broker that cannot know it: to abort. The abort finds out.
async fn finds_out(older: &Producer, error: kafka_produce::Error) {
    if !error.is_fatal() {
        assert!(error.needs_abort() && error.kind() == ErrorKind::Fenced, "{error}");
        let error = older.abort_transaction().await.unwrap_err();
        assert!(error.is_fatal() && error.kind() == ErrorKind::Fenced, "{error}");
    }
}

pub async fn e07_a_fenced_producer_cannot_send_offsets(bench: &Bench<'_>, cluster: &Cluster) {
    let (older, newer) = two(bench, cluster, "e07").await;
    let error = older.send_offsets_to_transaction(at("e07", 3), &nobody("e07")).await.unwrap_err();
    finds_out(&older, error).await;
    newer_wins(cluster, "e07", &older, &newer).await;
    assert_eq!(committed(cluster, "e07", "e07").await, None);
}

pub async fn e08_a_fenced_producer_cannot_send(bench: &Bench<'_>, cluster: &Cluster) {
    let (older, newer) = two(bench, cluster, "e08").await;
    let sent = older.send(record("e08", 0, "late")).await.unwrap_err();
    assert!(!sent.is_retriable(), "{sent}");
    let error = older.commit_transaction().await.unwrap_err();
    finds_out(&older, error).await;
    newer_wins(cluster, "e08", &older, &newer).await;
}

pub async fn e09_a_fenced_producer_cannot_add_partitions(bench: &Bench<'_>, cluster: &Cluster) {
    let (older, newer) = two(bench, cluster, "e09").await;
    let sent = older.send(record("e09", 2, "late")).await.unwrap_err();
    assert!(!sent.is_retriable(), "{sent}");
    let error = older.commit_transaction().await.unwrap_err();
    finds_out(&older, error).await;
    newer_wins(cluster, "e09", &older, &newer).await;
}

/// The coordinator looks for transactions that took too long each half second (a broker property, in this test).
pub async fn e10_a_transaction_that_takes_too_long(bench: &Bench<'_>, cluster: &Cluster, recovers: bool) {
    bench.topic("e10", 1).await;
    let config = ProducerConfig::new().transaction_timeout_ms(1_000);
    let producer = Producer::transactional(cluster.clone(), config, "e10").await.unwrap();
    producer.begin_transaction().await.unwrap();
    producer.send(record("e10", 0, "late")).await.unwrap();
    assert!(read(cluster, "e10", Visibility::CommittedOnly).await.is_empty(), "aborted by the coordinator");
    let error = producer.commit_transaction().await.unwrap_err();
    let mut next = producer;
    if recovers {
        assert!(error.needs_abort(), "{error}");
        next.abort_transaction().await.unwrap();
    } else {
        // Older brokers do not tell it from a fence.
        assert!(error.is_fatal(), "{error}");
        next = producer_anew(cluster).await;
    }
    next.begin_transaction().await.unwrap();
    next.send(record("e10", 0, "on time")).await.unwrap();
    next.commit_transaction().await.unwrap();
    assert_eq!(read(cluster, "e10", Visibility::CommittedOnly).await, ["on time"]);
}

async fn producer_anew(cluster: &Cluster) -> Producer {
    producer(cluster, "e10").await
}

pub async fn e11_many_markers_at_one_leader(bench: &Bench<'_>, cluster: &Cluster) {
    bench.topic("e11-a", 10).await;
    bench.topic("e11-b", 10).await;
    let producer = producer(cluster, "e11").await;
    for (commit, value) in [(true, "committed"), (false, "aborted"), (true, "committed")] {
        producer.begin_transaction().await.unwrap();
        let sends = (0..2_000).map(|number| {
            let topic = if number % 2 == 0 { "e11-a" } else { "e11-b" };
            producer.send(record(topic, (number / 2) % 10, value))
        });
        for sent in join_all(sends).await {
            sent.unwrap();
        }
        if commit {
            producer.commit_transaction().await.unwrap();
        } else {
            producer.abort_transaction().await.unwrap();
        }
    }
    for topic in ["e11-a", "e11-b"] {
        let seen = read(cluster, topic, Visibility::CommittedOnly).await;
        assert_eq!(seen.len(), 2_000);
        assert!(seen.iter().all(|value| value == "committed"));
    }
}

async fn one_transaction(producer: &Producer, value: &str) -> kafka_produce::Result<()> {
    producer.begin_transaction().await?;
    for partition in 0..2 {
        producer.send(record("e12", partition, value)).await?;
    }
    producer.commit_transaction().await
}

/// `stop` and `go` freeze the brokers: a batch runs out of time in the middle of a transaction.
pub async fn e12_a_batch_that_runs_out_of_time(
    bench: &Bench<'_>,
    cluster: &Cluster,
    stop: impl FnOnce(),
    go: impl FnOnce(),
) {
    bench.topic("e12", 2).await;
    let config = ProducerConfig::new().request_timeout_ms(1_000).delivery_timeout_ms(1_500).linger_ms(0);
    let producer = Producer::transactional(cluster.clone(), config, "e12").await.unwrap();
    producer.begin_transaction().await.unwrap();
    producer.send(record("e12", 0, "before")).await.unwrap();
    producer.commit_transaction().await.unwrap();
    producer.begin_transaction().await.unwrap();
    producer.send(record("e12", 0, "with it")).await.unwrap();
    stop();
    let lost = producer.send(record("e12", 0, "lost")).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Timeout, "{lost}");
    let error = producer.commit_transaction().await.unwrap_err();
    assert!(error.needs_abort(), "{error}");
    go();
    producer.abort_transaction().await.unwrap();
    for value in ["after", "and after"] {
        let mut tries = 0;
        while let Err(error) = one_transaction(&producer, value).await {
            // 3.9 may still be at work on what it was sent before it froze, and says 120 meanwhile.
            assert!(error.needs_abort() && tries < 5, "{error}");
            tries += 1;
            producer.abort_transaction().await.unwrap();
        }
    }
    let seen = read(cluster, "e12", Visibility::CommittedOnly).await;
    assert_eq!(seen, ["after", "after", "and after", "and after", "before"]);
}

/// Four transactions of records and offsets, every other one aborted; `trouble` is made before each of them.
pub async fn four_transactions<T>(bench: &Bench<'_>, cluster: &Cluster, name: &str, trouble: impl Fn() -> T) {
    bench.topic(name, 1).await;
    let producer = producer(cluster, name).await;
    for number in 0..4 {
        let _trouble = trouble();
        producer.begin_transaction().await.unwrap();
        producer.send(record(name, 0, number)).await.unwrap();
        producer.send_offsets_to_transaction(at(name, number), &nobody(name)).await.unwrap();
        if number % 2 == 0 {
            producer.commit_transaction().await.unwrap();
        } else {
            producer.abort_transaction().await.unwrap();
        }
    }
    assert_eq!(read(cluster, name, Visibility::CommittedOnly).await, ["0", "2"], "{name}");
    assert_eq!(committed(cluster, name, name).await.map(|at| at.offset), Some(2), "{name}");
}

/// A commit whose future is dropped at once, and the next transaction.
pub async fn a_dropped_commit_is_finished_by_the_next_begin(bench: &Bench<'_>, cluster: &Cluster) {
    bench.topic("dropped", 1).await;
    let producer = producer(cluster, "dropped").await;
    for number in 0..5 {
        producer.begin_transaction().await.unwrap();
        producer.send(record("dropped", 0, number)).await.unwrap();
        // Polled once.
        assert!(producer.commit_transaction().now_or_never().is_none(), "a commit takes some time");
    }
    producer.commit_transaction().await.unwrap();
    assert_eq!(read(cluster, "dropped", Visibility::CommittedOnly).await, ["0", "1", "2", "3", "4"]);
}
