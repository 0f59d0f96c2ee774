//! Two workers of one group (KIP-848) share a topic; one leaves, the other takes over what it had.
//!
//! Runs on the embedded broker; nothing else is needed.

use std::time::Duration;

use futures::future::BoxFuture;
use kafka_consume::{Cluster, ConsumerConfig, GroupConsumer, RebalanceListener, Result, RevokedPartition};
use testkit::embedded::Embedded;

/// Prints what comes and goes; a real worker flushes its state in `on_revoke`.
struct Report(&'static str);

impl RebalanceListener for Report {
    fn on_revoke(&mut self, revoked: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for gone in revoked {
                println!("{}: {}-{} goes at {}", self.0, gone.topic, gone.partition, gone.position);
            }
            Ok(())
        })
    }

    fn on_assign(&mut self, assigned: Vec<(String, i32)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            println!("{}: {assigned:?} came", self.0);
            Ok(())
        })
    }
}

async fn work(cluster: Cluster, name: &'static str, records: usize) -> Result<usize> {
    let mut consumer = GroupConsumer::subscribe(cluster, ConsumerConfig::new(), "billing", ["orders"])
        .await?
        .on_rebalance(Report(name));
    let (mut read, mut idle) = (0, 0);
    // Until its share is done, or nothing has come for a while.
    while read < records && idle < 10 {
        let polled = consumer.poll().await?;
        idle = if polled.is_empty() { idle + 1 } else { 0 };
        read += polled.len();
    }
    consumer.leave().await?;
    Ok(read)
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let broker = Embedded::tcp(3).await?;
    broker.create_topic("orders", 6);
    for partition in 0..6 {
        broker.append_records("orders", partition, (0..100).map(|n| (format!("k{n}"), format!("v{n}"))));
    }
    let cluster = Cluster::connect_with(broker.config()).await?;
    // Members may share a cluster handle: each has its own connections to the coordinator.
    let first = tokio::spawn(work(cluster.clone(), "first", 150));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = tokio::spawn(work(cluster, "second", 600));
    let (first, second) = (first.await??, second.await??);
    println!("first read {first}, second read {second}, together {}", first + second);
    Ok(())
}
