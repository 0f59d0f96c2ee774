//! Cases of Kafka's own transaction suite on the embedded broker, with both versions of the transaction protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod eos_support;

use std::time::Duration;

use eos_support::cases::{self, Bench};
use kafka_consume::Cluster;
use testkit::embedded::Embedded;

/// A cluster with markers that take a moment, in version 1 or 2.
async fn bench(version: i16) -> (Embedded, Bench<'static>, Cluster) {
    let kafka = Embedded::start(1);
    kafka.set_transaction_version(Some(version));
    kafka.delay_markers(Duration::from_millis(30));
    let cluster = Cluster::connect_with(kafka.config()).await.unwrap();
    (kafka.clone(), Bench::Embedded(kafka), cluster)
}

macro_rules! cases {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $case() {
            for version in [1, 2] {
                let (_kafka, bench, cluster) = bench(version).await;
                cases::$case(&bench, &cluster).await;
            }
        }
    )*};
}

cases! {
    e01_an_aborted_and_a_committed_transaction,
    e05_the_metadata_of_an_offset_travels,
    e06_a_fenced_producer_cannot_commit,
    e07_a_fenced_producer_cannot_send_offsets,
    e08_a_fenced_producer_cannot_send,
    e09_a_fenced_producer_cannot_add_partitions,
    e11_many_markers_at_one_leader,
    a_dropped_commit_is_finished_by_the_next_begin,
}

#[tokio::test(start_paused = true)]
async fn e10_a_transaction_that_takes_too_long() {
    for version in [1, 2] {
        let (_kafka, bench, cluster) = bench(version).await;
        cases::e10_a_transaction_that_takes_too_long(&bench, &cluster, version == 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn e12_a_batch_that_runs_out_of_time() {
    for version in [1, 2] {
        let (kafka, bench, cluster) = bench(version).await;
        let freeze = || assert!(kafka.freeze_node(1));
        let thaw = || assert!(kafka.thaw_node(1));
        cases::e12_a_batch_that_runs_out_of_time(&bench, &cluster, freeze, thaw).await;
    }
}
