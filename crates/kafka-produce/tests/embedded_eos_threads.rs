//! Transactions on several threads and the real clock: what the paused clock's single thread cannot interleave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod eos_support;

use std::collections::BTreeMap;
use std::time::Duration;

use eos_support::cases::read;
use kafka_consume::{Cluster, Visibility};
use kafka_produce::{Producer, ProducerConfig, ProducerRecord};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;

const TRANSACTIONS: usize = 300;
const RECORDS: usize = 6;

/// Sends of a transaction run in tasks of their own while it is committed; some batches are refused. Nobody looks at
/// what a send returned: the commit alone has to know.
async fn all_or_nothing(version: i16) {
    let kafka = Embedded::tcp(2).await.unwrap();
    kafka.set_transaction_version(Some(version));
    kafka.create_topic("t", 3);
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    let config = ProducerConfig::new().linger_ms(0);
    let producer = Producer::transactional(cluster.clone(), config, "threads").await.unwrap();
    kafka.fault(ApiKey::Produce).every(5).always().error(87);
    let mut committed = BTreeMap::new();
    for number in 0..TRANSACTIONS {
        producer.begin_transaction().await.unwrap();
        for record in 0..RECORDS {
            let producer = producer.clone();
            let (ready, started) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let partition = i32::try_from(record % 3).unwrap();
                let record = ProducerRecord::new("t").partition(partition).value(format!("{number}"));
                let mut send = std::pin::pin!(producer.send(record));
                // Queued at the first poll.
                let first = futures::poll!(send.as_mut());
                let _ = ready.send(());
                if first.is_pending() {
                    let _ = send.await;
                }
            });
            started.await.unwrap();
        }
        match producer.commit_transaction().await {
            Ok(()) => drop(committed.insert(number, RECORDS)),
            Err(error) => {
                assert!(error.needs_abort(), "{error}");
                producer.abort_transaction().await.unwrap();
            }
        }
    }
    let mut seen = BTreeMap::new();
    for value in read(&cluster, "t", Visibility::CommittedOnly).await {
        *seen.entry(value.parse::<usize>().unwrap()).or_insert(0) += 1;
    }
    assert_eq!(seen, committed, "version {version}");
    assert!(!committed.is_empty() && committed.len() < TRANSACTIONS, "{} committed", committed.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_transaction_is_committed_with_all_its_records_or_not_at_all() {
    for version in [1, 2] {
        tokio::time::timeout(Duration::from_secs(120), all_or_nothing(version)).await.expect("in time");
    }
}
