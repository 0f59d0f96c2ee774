//! Copies a topic in transactions while one worker crashes in the middle of one and another takes its place: each
//! record arrives once.
//!
//! Runs on the embedded broker; nothing else is needed.

use std::collections::BTreeMap;

use futures::future::join_all;
use kafka_consume::{Consumer, ConsumerConfig, GroupConsumer, Position, Records};
use kafka_produce::{Cluster, Error, Producer, ProducerConfig, ProducerRecord, Result};
use testkit::embedded::Embedded;

/// Reads a batch; none when nothing has come for a while.
async fn next_batch(consumer: &mut GroupConsumer) -> Result<Option<Records>> {
    for _ in 0..10 {
        let records = consumer.poll().await?;
        if !records.is_empty() {
            return Ok(Some(records));
        }
    }
    Ok(None)
}

/// Produces a batch and puts its offsets into the transaction; the commit is the caller's.
async fn produce(producer: &Producer, consumer: &GroupConsumer, records: Records) -> Result<()> {
    producer.begin_transaction().await?;
    let sends = records.into_iter().map(|record| {
        let out = ProducerRecord::new("shipments").key(record.key.unwrap_or_default());
        producer.send(out.value(record.value.unwrap_or_default()))
    });
    for sent in join_all(sends).await {
        sent?;
    }
    producer.send_offsets_to_transaction(consumer.positions(), &consumer.group_metadata()?).await
}

/// One life of the worker: it crashes before its commit number `crash`, or ends with the input.
async fn work(cluster: &Cluster, crash: Option<usize>) -> Result<usize> {
    let producer = Producer::transactional(cluster.clone(), ProducerConfig::new(), "shipping-0").await?;
    let config = ConsumerConfig::new().max_poll_records(20).max_wait_ms(100);
    let mut consumer =
        GroupConsumer::subscribe(cluster.clone(), config, "shipping", ["orders"]).await?.auto_commit(false);
    let mut commits = 0;
    while let Some(records) = next_batch(&mut consumer).await? {
        // Where the batch begins in each partition, to read it again after an abort.
        let mut starts = BTreeMap::new();
        for record in records.iter() {
            starts.entry((record.topic, record.partition)).or_insert(record.offset);
        }
        let done = match produce(&producer, &consumer, records).await {
            Ok(()) if crash == Some(commits) => {
                println!("crashed after {commits} commits, with a transaction open");
                // A real crash would leave the group waiting for its session to end.
                consumer.leave_without_commit().await?;
                return Ok(commits);
            }
            Ok(()) => producer.commit_transaction().await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => commits += 1,
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                println!("aborted: {error}");
                producer.abort_transaction().await?;
                for ((topic, partition), offset) in starts {
                    // One that has gone meanwhile is its new owner's.
                    let _ = consumer.seek(&topic, partition, offset);
                }
            }
        }
    }
    consumer.leave().await?;
    producer.close().await?;
    Ok(commits)
}

/// How often each value is in the committed output.
async fn count(cluster: &Cluster) -> Result<BTreeMap<Vec<u8>, usize>> {
    let mut reader = Consumer::new(cluster.clone(), ConsumerConfig::new().max_wait_ms(100));
    let partitions = cluster.partitions("shipments").await?;
    let all = partitions.into_iter().map(|partition| ("shipments".to_owned(), partition));
    reader.assign(all, Position::Earliest).await?;
    let mut seen = BTreeMap::new();
    while !reader.caught_up() {
        for record in reader.poll().await? {
            *seen.entry(record.value.unwrap_or_default().to_vec()).or_default() += 1;
        }
    }
    Ok(seen)
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let broker = Embedded::tcp(3).await?;
    broker.create_topic("orders", 3);
    broker.create_topic("shipments", 2);
    for partition in 0..3 {
        let orders = (0..100).map(|n| (format!("customer-{}", n % 7), format!("order {partition}-{n}")));
        broker.append_records("orders", partition, orders);
    }
    let cluster = Cluster::connect_with(broker.config()).await?;
    let first = work(&cluster, Some(4)).await?;
    let second = work(&cluster, None).await?;
    let seen = count(&cluster).await?;
    println!("{first} and {second} commits, {} records", seen.len());
    let once = seen.len() == 300 && seen.values().all(|times| *times == 1);
    if once { Ok(()) } else { Err(Error::other("not exactly once").into()) }
}
