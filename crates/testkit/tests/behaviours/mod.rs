//! Behaviour functions: what a broker does, written once and run on the embedded cluster and on real Kafka.
//!
//! Each function is one row of the facts about real brokers and reaches its cluster only over the wire.

#![allow(dead_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

pub mod raw;
pub mod sessions;
