//! Connections to Kafka and the picture of the cluster.
//!
//! [`Cluster`] is the handle every client of the workspace shares: it knows the brokers, finds leaders and
//! coordinators, and keeps one connection per (node, lane, owner), so that nothing that can park ever shares a
//! socket with something that must not wait.
//!
//! What this crate is not: it reads no record batches (that is `kafka-read`) and keeps no positions or
//! memberships (that is `kafka-consume`).
//!
//! ```no_run
//! # async fn example() -> kafka_meta::Result<()> {
//! use kafka_meta::{Cluster, ClusterConfig};
//!
//! let config = ClusterConfig::new("one:9092,two:9092").with_client_id("billing").with_rack("eu-1a");
//! let cluster = Cluster::connect_with(config).await?;
//! println!("{:?}", cluster.partitions("orders").await?);
//! # Ok(())
//! # }
//! ```
//!
//! What a caller can rely on:
//! - Nothing is spawned before the first async call; dropping a [`Cluster`] never blocks and needs no runtime.
//! - A request is sent at most once. Dropping the future of a call leaves no half frame on the wire; the answer,
//!   when it comes, is thrown away.
//! - Whatever fails, nobody is hammered: attempts at an address that fails, metadata rounds and look-ups of
//!   coordinators are each spaced out by a jittered back-off, however insistent the callers are.
//! - Leader epochs never go back, and a topic made anew under an old name is another topic.
//! - No answer can make the client reserve more than its own size accounts for: lengths are capped before a frame
//!   is read, counts are checked before it is decoded.
//!
//! `Cluster` and [`ClusterConfig`] are the public surface. The modules hidden from this page serve the other
//! crates of the workspace and change without notice.

mod cluster;
mod config;
mod error;
mod name;
mod net;
mod positions;
mod sasl;
mod secret;
#[cfg(feature = "tls")]
mod tls;

#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod properties;
#[doc(hidden)]
pub mod transport;
#[doc(hidden)]
pub mod wire;

pub use cluster::Cluster;
pub use config::ClusterConfig;
pub use error::{Error, ErrorCode, ErrorKind, Result};
pub use name::TopicName;
pub use positions::{CommittedOffset, GroupMetadata, Positions};
pub use properties::parse as parse_properties;
#[cfg(feature = "oidc")]
pub use sasl::ClientCredentials;
pub use sasl::{Sasl, Token, TokenProvider};
pub use secret::Secret;
#[cfg(feature = "tls")]
pub use tls::TlsConfig;
