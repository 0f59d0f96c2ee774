//! Cases of Kafka's own transaction suite, on one real node of each version of the transaction protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod eos_support;

use eos_support::cases::{self, Bench};
use futures::future::join_all;
use kafka_consume::{Cluster, ClusterConfig};
use kafka_protocol::messages::ApiKey;
use testkit::kafka::{self, Builder};
use testkit::{Kafka, Proxy};

const APIS: [ApiKey; 6] = [
    ApiKey::Produce,
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::TxnOffsetCommit,
    ApiKey::EndTxn,
    ApiKey::InitProducerId,
];

/// Each kind of request is lost once in each transaction, before the broker has it or after it has answered.
async fn lost_requests_and_answers(kafka: &Kafka) {
    let proxy = Proxy::start(&kafka.bootstrap()).await.unwrap();
    let bench = Bench::Real(kafka);
    let all = APIS.into_iter().flat_map(|api| [(api, true), (api, false)]).map(async |(api, after)| {
        let name = format!("lost-{api:?}-{}", if after { "answer" } else { "request" });
        // Rules tell the cases apart by their client.
        let config = ClusterConfig::new(&proxy.bootstrap()).with_client_id(name.as_str());
        let cluster = Cluster::connect_with(config).await.unwrap();
        cases::four_transactions(&bench, &cluster, &name, || {
            let rule = proxy.on(api).client(name.as_str()).times(1);
            if after { rule.cut_after() } else { rule.cut_before() }
        })
        .await;
    });
    join_all(all).await;
}

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
    lost_requests_and_answers(&kafka).await;
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
