//! Two members of a classic group, one leading, with cooperative rebalances; a third member would only add lines.
//!
//! Runs on the embedded broker.

use std::time::Duration;

use kafka_consume::{Assignor, ClassicConsumer, Cluster, ConsumerConfig, Result};
use testkit::embedded::Embedded;

async fn work(cluster: Cluster, records: usize) -> Result<(usize, Vec<(String, i32)>)> {
    let mut consumer = ClassicConsumer::subscribe(cluster, ConsumerConfig::new(), "billing", ["orders"])
        .await?
        // A vote, not a demand: the group uses what most members prefer among what all of them offer. Listing
        // nothing but cooperative-sticky makes rebalances incremental.
        .assignors([Assignor::CooperativeSticky]);
    let (mut read, mut idle) = (0, 0);
    while read < records && idle < 10 {
        let polled = consumer.poll().await?;
        idle = if polled.is_empty() { idle + 1 } else { 0 };
        read += polled.len();
    }
    let owned = consumer.assignment();
    consumer.leave().await?;
    Ok((read, owned))
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let broker = Embedded::tcp(3).await?;
    broker.create_topic("orders", 6);
    for partition in 0..6 {
        broker.append_records("orders", partition, (0..100).map(|n| (format!("k{n}"), format!("v{n}"))));
    }
    let cluster = Cluster::connect_with(broker.config()).await?;
    let first = tokio::spawn(work(cluster.clone(), 200));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = tokio::spawn(work(cluster, 600));
    let (first, second) = (first.await??, second.await??);
    println!("first read {} and owned {:?}", first.0, first.1);
    println!("second read {} and owned {:?}, together {}", second.0, second.1, first.0 + second.0);
    Ok(())
}
