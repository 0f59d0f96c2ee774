//! A `select!` loop that ends on a signal: the poll in progress is dropped, and nothing is lost by it.
//!
//! Runs on the embedded broker, and stops itself after half a second in place of Ctrl-C.

use std::time::Duration;

use kafka_consume::{Cluster, ConsumerConfig, GroupConsumer};
use testkit::embedded::Embedded;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Embedded::tcp(1).await?;
    broker.create_topic("orders", 2);
    broker.append_records("orders", 0, (0..1_000).map(|n| (format!("k{n}"), format!("v{n}"))));
    let cluster = Cluster::connect_with(broker.config()).await?;

    let mut consumer =
        GroupConsumer::subscribe(cluster, ConsumerConfig::new().max_poll_records(100), "billing", ["orders"])
            .await?;
    // In a service: tokio::signal::ctrl_c()
    let mut shutdown = std::pin::pin!(tokio::time::sleep(Duration::from_millis(500)));
    let mut read = 0;
    loop {
        let records = tokio::select! {
            biased;
            () = &mut shutdown => break,
            records = consumer.poll() => records?,
        };
        for record in &records {
            read += usize::from(record.value.is_some());
        }
    }
    // Listener, commit, goodbye; bounded even if the coordinator is gone.
    consumer.leave().await?;
    println!("read {read}, committed {:?}", broker.committed("billing", "orders", 0));
    Ok(())
}
