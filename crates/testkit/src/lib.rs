//! What the workspace's tests stand on: real Kafka brokers from their published jars, a fault-injecting proxy
//! in front of them, raw writers, Java's own tools as children, and an embedded broker for everything that
//! must not need a JVM.
//!
//! What it is not: published, or used by anything but tests, examples and benches. It may use `kafka-meta`
//! and `kafka-read`, so those two may use it only from their `tests/` folders.

mod client;
pub mod embedded;
pub mod endless;
mod failure;
pub mod java;
pub mod kafka;
pub mod produce;
pub mod proxy;
pub mod recode;
mod routes;
pub mod txn;

pub use client::Client;
pub use failure::{Failure, Result};
pub use kafka::{Builder, Kafka};
pub use proxy::Proxy;
