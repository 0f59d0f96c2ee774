//! A reader slower than its broker: what it holds in memory.

use std::time::Duration;

use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};

use crate::endless::TOPIC;
use crate::usage::high_water;

/// What was held, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The most the process held before it read anything.
    pub before: u64,
    /// The most it held while reading.
    pub most: u64,
    /// The most the consumer said it had buffered.
    pub buffered: usize,
}

/// Reads `wanted` bytes of values with a pause after each poll, on six partitions.
pub async fn read(port: u16, config: ConsumerConfig, wanted: usize, pause: Duration) -> Held {
    let cluster = Cluster::connect(&format!("127.0.0.1:{port}")).await.unwrap();
    let mut consumer = Consumer::new(cluster, config);
    let before = high_water();
    let partitions = (0..6).map(|partition| (TOPIC.to_owned(), partition));
    consumer.assign(partitions, Position::Earliest).await.unwrap();
    let mut read = 0;
    let mut buffered = 0;
    while read < wanted {
        let records = consumer.poll().await.unwrap();
        read += records.iter().map(|record| record.value.map_or(0, <[u8]>::len)).sum::<usize>();
        drop(records);
        tokio::time::sleep(pause).await;
        buffered = buffered.max(consumer.metrics().buffered_bytes);
    }
    Held { before, most: high_water(), buffered }
}
