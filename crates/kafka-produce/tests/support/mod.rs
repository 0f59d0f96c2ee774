//! What the tests of the producer share.
#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Duration;

use kafka_produce::{Cluster, Producer, ProducerConfig};
use kafka_read::batch::{Limits, scan};
use testkit::embedded::Embedded;

/// A record as it lies in a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// What the embedded broker has of a partition.
pub fn log(broker: &Embedded, topic: &str, partition: i32) -> Vec<Stored> {
    let mut all = Vec::new();
    for bytes in broker.stored(topic, partition) {
        for raw in scan(bytes) {
            let set = raw.unwrap().open(&Limits::default(), i64::MIN).unwrap();
            all.extend(set.iter().map(|record| {
                Stored {
                    offset: record.offset,
                    timestamp: record.timestamp.millis(),
                    key: record.key.map(<[u8]>::to_vec),
                    value: record.value.map(<[u8]>::to_vec),
                    headers: record
                        .headers
                        .iter()
                        .map(|header| (header.key.into_owned(), header.value.map(|value| value.to_vec())))
                        .collect(),
                }
            }));
        }
    }
    all
}

/// The values of a partition, as text.
pub fn values(broker: &Embedded, topic: &str, partition: i32) -> Vec<String> {
    let text = |stored: Stored| String::from_utf8(stored.value.unwrap()).unwrap();
    log(broker, topic, partition).into_iter().map(text).collect()
}

/// A producer on a cluster of its own.
pub async fn producer(broker: &Embedded, config: ProducerConfig) -> Producer {
    Producer::new(Cluster::connect_with(broker.config()).await.unwrap(), config)
}

/// Waits for a condition, at most a minute of the test's own clock.
pub async fn eventually(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the condition never came");
}
