//! What is in a Kafka log.
pub use kafka_meta::Result;
