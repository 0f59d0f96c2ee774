//! Cases of Kafka's own Java suites that concern manual assignment, on one node: basics, assignment, fetching,
//! transactions. Names begin with the ids of `docs/testing.md`, which also says what does not apply and why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod support;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use kafka_consume::{
    Cluster, CommittedOffset, Consumer, ConsumerConfig, ErrorCode, ErrorKind, OffsetReset, Position, Record,
    TimestampType, Visibility,
};
use kafka_protocol::messages::FetchRequest;
use kafka_read::batch::Codec;
use kafka_read::batch::write::BatchOptions;
use support::{
    LIMIT, Offsets, Oracle, fetches, one, partitions, poll_error, poll_until, read_some, read_to, stay_empty,
};
use testkit::produce::{Message, Writer, numbered};
use testkit::txn::Transactions;
use testkit::{Kafka, Proxy, kafka};
use tokio::time::timeout;

/// One node for the whole file, or `None` without real brokers.
async fn shared() -> Option<&'static Kafka> {
    if !kafka::enabled() {
        return None;
    }
    let kafka = Kafka::shared(|| {
        Kafka::builder()
            .property("auto.create.topics.enable", "true")
            // Many a record here is from the year 1970.
            .property("log.retention.ms", "-1")
            .property("transaction.state.log.num.partitions", "1")
            .property("offsets.topic.num.partitions", "1")
    })
    .await
    .unwrap();
    Some(kafka)
}

macro_rules! cluster {
    () => {
        match shared().await {
            Some(kafka) => kafka,
            None => return,
        }
    };
}

async fn topic(kafka: &Kafka, name: &str) -> Writer {
    topic_with(kafka, name, &[]).await
}

async fn topic_with(kafka: &Kafka, name: &str, config: &[(&str, &str)]) -> Writer {
    kafka.create_topic(name, 2, 1, config).await.unwrap();
    Writer::new(&kafka.bootstrap())
}

async fn consumer(kafka: &Kafka, config: ConsumerConfig) -> Consumer {
    Consumer::new(Cluster::connect(&kafka.bootstrap()).await.unwrap(), config)
}

async fn assigned(kafka: &Kafka, name: &str, position: Position, config: ConsumerConfig) -> Consumer {
    let mut consumer = consumer(kafka, config).await;
    consumer.assign(one(name, 0), position).await.unwrap();
    consumer
}

/// Record n has timestamp n.
fn stamped(count: u64) -> impl Iterator<Item = Message> {
    numbered(0, 0..count).zip(0..).map(|(message, time)| message.at(time))
}

fn offsets(records: &[Record]) -> Vec<i64> {
    records.iter().map(|record| record.offset).collect()
}

fn key(name: &str) -> (String, i32) {
    (name.to_owned(), 0)
}

fn wall() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

#[path = "java/assign.rs"]
mod assign;
#[path = "java/basics.rs"]
mod basics;
#[path = "java/fetch.rs"]
mod fetch;
#[path = "java/transactions.rs"]
mod transactions;
