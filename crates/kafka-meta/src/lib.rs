//! Connections to Kafka and the picture of the cluster.
//!
//! [`Cluster`](crate) is the handle every client of the workspace shares: it knows the brokers, finds leaders
//! and coordinators, and keeps one connection per (node, lane, owner), so that nothing that can park ever
//! shares a socket with something that must not wait.
//!
//! What this crate is not: it reads no record batches (that is `kafka-read`) and keeps no positions or
//! memberships (that is `kafka-consume`).

mod error;
mod name;
mod positions;
#[doc(hidden)]
pub mod wire;

pub use error::{Error, ErrorCode, ErrorKind, Result};
pub use name::TopicName;
pub use positions::{CommittedOffset, GroupMetadata, Positions};
