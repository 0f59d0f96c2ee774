//! The long-running read path of Kafka: one engine, and three ways to decide what it reads.
//!
//! A [`Consumer`] reads the partitions it is assigned by hand. It keeps an incremental fetch session (KIP-227)
//! and one fetch in flight per broker, buffers within a byte budget, and hands out records with
//! [`Consumer::poll`] or as a [`futures::Stream`]. Commits borrow a group's offset storage without joining it.
//!
//! ```no_run
//! use kafka_consume::{Consumer, ConsumerConfig, Position};
//!
//! # async fn example() -> kafka_consume::Result<()> {
//! let mut consumer = Consumer::connect("127.0.0.1:9092", ConsumerConfig::new()).await?;
//! consumer.assign([("orders".to_owned(), 0)], Position::Earliest).await?;
//! loop {
//!     for record in &consumer.poll().await? {
//!         println!("{}-{} @{}: {:?}", record.topic, record.partition, record.offset, record.value);
//!     }
//! }
//! # }
//! ```
//!
//! What this crate is not: a bounded look into a topic, or an administration client.
//!
//! # Cancel safety
//!
//! A poll owns no request: look-ups, fetches and inflation run in the background and leave their results as
//! state. A poll dropped at any point has handed out nothing and moved no position, so a `select!` with a tick
//! shorter than any of those steps still makes progress. Every other async method says what dropping its future
//! leaves behind.

// First, for its macro.
#[macro_use]
mod member;

mod assign;
mod buffer;
mod classic;
mod config;
mod consumer;
mod coordinator;
mod driver;
mod engine;
mod fetcher;
mod group;
mod handle;
mod inflate;
mod metrics;
mod negotiated;
mod offsets;
mod position;
mod rebalance;
mod session;
mod shared;
mod stream;

pub use assign::Assignor;
pub use classic::ClassicConsumer;
pub use config::{ConsumerConfig, GroupProtocol, OffsetReset, Position};
pub use consumer::Consumer;
pub use group::GroupConsumer;
pub use handle::ConsumerHandle;
#[cfg(feature = "oidc")]
pub use kafka_meta::ClientCredentials;
#[cfg(feature = "tls")]
pub use kafka_meta::TlsConfig;
pub use kafka_meta::{
    Cluster, ClusterConfig, CommittedOffset, Error, ErrorCode, ErrorKind, GroupMetadata, Positions, Result,
    Sasl, Secret, Token, TokenProvider, TopicName, parse_properties,
};
pub use kafka_read::{Header, Headers, Record, RecordRef, Records, Timestamp, TimestampType, Visibility};
pub use metrics::{ConsumerMetrics, PartitionMetrics};
pub use negotiated::NegotiatedConsumer;
pub use rebalance::{RebalanceListener, RevokedPartition};
pub use stream::{OwnedRecordStream, RecordStream};

// The samples in the guides are compiled with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/groups.md")]
    struct Groups;
    #[doc = include_str!("../../../docs/properties.md")]
    struct Properties;
    #[cfg(all(feature = "tls", feature = "scram"))]
    #[doc = include_str!("../../../docs/security.md")]
    #[doc = include_str!("../../../docs/security/tls.md")]
    #[doc = include_str!("../../../docs/security/mutual-tls.md")]
    #[doc = include_str!("../../../docs/security/plain.md")]
    #[doc = include_str!("../../../docs/security/scram.md")]
    #[doc = include_str!("../../../docs/security/oauthbearer.md")]
    struct Security;
}
