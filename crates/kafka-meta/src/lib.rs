//! Connections to Kafka and the picture of the cluster.
//!
//! [`Cluster`] is the handle every client of the workspace shares: it knows the brokers, finds leaders and
//! coordinators, and keeps one connection per (node, lane, owner), so that nothing that can park ever shares a
//! socket with something that must not wait.
//!
//! What this crate is not: it reads no record batches (that is `kafka-read`) and keeps no positions or
//! memberships (that is `kafka-consume`).
//!
//! `Cluster` and [`ClusterConfig`] are the public surface. The modules hidden from this page serve the other
//! crates of the workspace and change without notice.

mod cluster;
mod config;
mod error;
mod name;
mod net;
mod positions;

#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod transport;
#[doc(hidden)]
pub mod wire;

pub use cluster::Cluster;
pub use config::ClusterConfig;
pub use error::{Error, ErrorCode, ErrorKind, Result};
pub use name::TopicName;
pub use positions::{CommittedOffset, GroupMetadata, Positions};
