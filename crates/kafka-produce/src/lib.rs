//! Kafka's write path: a producer that loses nothing, doubles nothing and keeps the order of a partition.
//!
//! ```no_run
//! use kafka_produce::{Cluster, Producer, ProducerConfig, ProducerRecord};
//!
//! # async fn example() -> kafka_produce::Result<()> {
//! let cluster = Cluster::connect("127.0.0.1:9092").await?;
//! let producer = Producer::new(cluster, ProducerConfig::new());
//! let sent = producer.send(ProducerRecord::new("orders").key("customer-7").value("{}")).await?;
//! println!("{}-{} @{}", sent.topic, sent.partition, sent.offset);
//! producer.close().await
//! # }
//! ```
//!
//! A send queues its record at the first poll of its future; batches are made per partition and sent to each leader
//! over a connection of its own, so no broker waits for another. Producers are idempotent unless
//! told otherwise: a batch whose answer is lost is sent again under the same sequence, and brokers recognise it.
//!
//! Batches are written by `kafka-read`'s writer, hidden there: one definition of the format serves the reader,
//! the producer and the tests.
//!
//! What this crate is not: a reader, or an administration client.

mod config;
mod courier;
mod delivery;
mod engine;
mod metrics;
mod partitioner;
mod producer;
mod producer_id;
mod record;
mod sender;
mod sequence;
mod shared;
mod supervisor;
mod transaction;

pub use config::{Acks, Compression, Partitioner, ProducerConfig};
#[cfg(feature = "oidc")]
pub use kafka_meta::ClientCredentials;
#[cfg(feature = "tls")]
pub use kafka_meta::TlsConfig;
pub use kafka_meta::{
    Cluster, ClusterConfig, CommittedOffset, Error, ErrorCode, ErrorKind, GroupMetadata, Positions, Result,
    Sasl, Secret, Token, TokenProvider, TopicName, parse_properties,
};
pub use metrics::ProducerMetrics;
pub use producer::Producer;
pub use record::{ProducerRecord, RecordMetadata};

// The samples in the guide are compiled with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/exactly-once.md")]
    mod exactly_once {}
}
