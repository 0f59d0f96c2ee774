//! The wire: Kafka's messages and their bounded reading.
//!
//! Public only for the workspace's other crates.

pub mod fetch;

/// The codec, so that the workspace holds one copy of it.
pub use kafka_protocol as protocol;
