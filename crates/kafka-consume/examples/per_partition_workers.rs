//! One worker task per partition behind one member: the loop keeps polling, workers commit through a handle, and a
//! worker that falls behind pauses its partition instead of growing a queue.
//!
//! Runs on the embedded broker.

use std::collections::HashMap;
use std::time::Duration;

use kafka_consume::{Cluster, ConsumerConfig, ConsumerHandle, GroupConsumer, Record};
use testkit::embedded::Embedded;
use tokio::sync::mpsc;

const PARTITIONS: i32 = 3;
const RECORDS: usize = 200;

/// Works in order, and commits after every batch: the offset of the next record, never of the last.
async fn worker(handle: ConsumerHandle, mut inbox: mpsc::Receiver<Vec<Record>>, done: mpsc::Sender<usize>) {
    while let Some(batch) = inbox.recv().await {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let Some(last) = batch.last() else { continue };
        let partition = (last.topic.to_string(), last.partition);
        if let Err(error) = handle.commit_offsets([(partition.clone(), last.next_offset())]).await {
            eprintln!("{partition:?}: {error}");
        }
        handle.resume(&partition.0, partition.1);
        let _ = done.send(batch.len()).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Embedded::tcp(1).await?;
    broker.create_topic("orders", PARTITIONS);
    for partition in 0..PARTITIONS {
        broker.append_records("orders", partition, (0..RECORDS).map(|n| (format!("k{n}"), format!("v{n}"))));
    }
    let cluster = Cluster::connect_with(broker.config()).await?;
    let mut consumer = GroupConsumer::subscribe(cluster, ConsumerConfig::new(), "workers", ["orders"])
        .await?
        .auto_commit(false);
    let (done, mut finished) = mpsc::channel(64);
    let mut workers: HashMap<(String, i32), mpsc::Sender<Vec<Record>>> = HashMap::new();
    let mut processed = 0;
    while processed < RECORDS * usize::try_from(PARTITIONS)? {
        let mut batches: HashMap<(String, i32), Vec<Record>> = HashMap::new();
        for record in consumer.poll().await? {
            batches.entry((record.topic.to_string(), record.partition)).or_default().push(record);
        }
        for (partition, batch) in batches {
            // Nothing more of it until this batch is done; the poll loop itself never waits for a worker.
            consumer.pause(&partition.0, partition.1);
            let worker = workers.entry(partition).or_insert_with(|| {
                let (inbox, batches) = mpsc::channel(1);
                tokio::spawn(worker(consumer.handle(), batches, done.clone()));
                inbox
            });
            worker.send(batch).await?;
        }
        while let Ok(count) = finished.try_recv() {
            processed += count;
        }
    }
    consumer.leave().await?;
    let committed: Vec<_> = (0..PARTITIONS).map(|p| broker.committed("workers", "orders", p)).collect();
    println!("processed {processed}, committed {committed:?}");
    Ok(())
}
