//! Cases of Kafka's own transaction suite, on one real node of each version of the transaction protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod eos_support;

use eos_support::cases::{self, Bench};
use kafka_consume::Cluster;
use testkit::Kafka;
use testkit::kafka::{self, Builder};

async fn every_case(builder: Builder, recovers: bool) {
    let kafka = builder
        .property("transaction.state.log.num.partitions", "2")
        .property("offsets.topic.num.partitions", "2")
        .property("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500")
        .start()
        .await
        .unwrap();
    kafka.ready_for_groups().await.unwrap();
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let bench = Bench::Real(&kafka);
    cases::e01_an_aborted_and_a_committed_transaction(&bench, &cluster).await;
    cases::e05_the_metadata_of_an_offset_travels(&bench, &cluster).await;
    cases::e06_a_fenced_producer_cannot_commit(&bench, &cluster).await;
    cases::e07_a_fenced_producer_cannot_send_offsets(&bench, &cluster).await;
    cases::e08_a_fenced_producer_cannot_send(&bench, &cluster).await;
    cases::e09_a_fenced_producer_cannot_add_partitions(&bench, &cluster).await;
    cases::e10_a_transaction_that_takes_too_long(&bench, &cluster, recovers).await;
    cases::e11_many_markers_at_one_leader(&bench, &cluster).await;
    let node = kafka.nodes().unwrap()[0];
    let freeze = || {
        kafka.freeze_node(node).unwrap();
        // The signal needs a moment to reach every thread.
        let stat = format!("/proc/{}/stat", kafka.pid(node).unwrap());
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
    };
    cases::e12_a_batch_that_runs_out_of_time(&bench, &cluster, freeze, || kafka.thaw_node(node).unwrap())
        .await;
    cases::a_dropped_commit_is_finished_by_the_next_begin(&bench, &cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_holds_under_version_2() {
    if kafka::enabled() {
        every_case(Kafka::builder().version("4.3.1"), true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_holds_under_version_1() {
    if kafka::enabled() {
        every_case(Kafka::builder().version("3.9.1"), false).await;
    }
}

/// The versions listed are those of version 2; only the finalized feature tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_holds_where_version_1_is_finalized() {
    if kafka::enabled() {
        let builder = Kafka::builder().version("4.3.1").format(["--feature", "transaction.version=1"]);
        every_case(builder, false).await;
    }
}
