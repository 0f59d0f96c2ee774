//! Every behaviour row on real Kafka: what holds the embedded broker to the truth.
//!
//! One cluster for all rows, one test: a cluster start costs more than all of them together.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kafka_meta::transport::{Connector, Tcp};
use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::{AlterPartitionReassignmentsRequest, ElectLeadersRequest};
use testkit::Kafka;

mod behaviours;
use behaviours::raw::{RawBroker, View, name};
use behaviours::{
    classic_groups, config_admin, consumer_groups, coordinated, epochs, group_admin, listing, offsets,
    producers, ranges, sessions, topic_admin, topic_ids, transactions, versions,
};

struct Real(Kafka);

impl RawBroker for Real {
    fn bootstrap(&self) -> String {
        self.0.bootstrap()
    }

    fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(Tcp)
    }

    fn racks(&self) -> Vec<String> {
        (1..=3).map(|node| format!("r{node}")).collect()
    }

    fn move_leader<'a>(&'a mut self, topic: &'a str, to: i32) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let view = View::of(self).await;
            let mut replicas: Vec<i32> =
                view.topic(topic).await.partitions[0].replica_nodes.iter().map(|id| id.0).collect();
            // The preferred leader is the first replica: put it there, then elect it.
            replicas.retain(|id| *id != to);
            replicas.insert(0, to);
            let partition = ReassignablePartition::default()
                .with_partition_index(0)
                .with_replicas(Some(replicas.iter().map(|id| (*id).into()).collect()));
            let wanted = ReassignableTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
            let request = AlterPartitionReassignmentsRequest::default()
                .with_timeout_ms(10_000)
                .with_topics(vec![wanted]);
            let answer = view.any().await.call(0, &request).await;
            assert_eq!((answer.error_code, answer.responses[0].partitions[0].error_code), (0, 0));
            loop {
                let wanted = TopicPartitions::default().with_topic(name(topic)).with_partitions(vec![0]);
                let request = ElectLeadersRequest::default()
                    .with_election_type(0)
                    .with_topic_partitions(Some(vec![wanted]))
                    .with_timeout_ms(10_000);
                view.any().await.call(2, &request).await;
                // Every node has to know, not only the one asked.
                if view.leaders_everywhere(topic).await.iter().all(|leader| *leader == to) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

/// The first release a row holds on, as far as it is not every one.
fn since(module: &str, row: &str) -> (u32, u32) {
    match row {
        "a_transactions_offset_is_unstable_until_it_ends" => (3, 9),
        "each_target_finds_its_offset" | "a_target_above_the_version_is_35" => (3, 9),
        "a_partition_that_was_not_added_is_48_then_120_then_added_by_itself"
        | "ending_by_the_new_protocol_raises_the_epoch"
        | "an_abort_of_nothing_by_the_new_protocol_raises_the_epoch"
        | "a_members_identity_is_checked_inside_a_transaction"
        | "finalized_features_are_listed_from_v3_on" => (4, 0),
        "a_committed_reader_waits_above_the_last_stable_offset" => (4, 0),
        "a_transaction_that_takes_too_long_is_aborted" => (4, 3),
        "after_an_acknowledgement_the_old_epoch_commits_only_what_is_kept" => (4, 3),
        "a_groups_settings_have_the_brokers_limits" | "a_groups_heartbeat_interval_is_in_force_at_once" => {
            (4, 0)
        }
        _ if module == "consumer_groups" || module == "group_admin" => (4, 0),
        _ => (3, 7),
    }
}

/// Whether the release under test has what a row shows.
fn has(module: &str, row: &str) -> bool {
    let version = std::env::var("TESTKIT_KAFKA_VERSION").unwrap_or_else(|_| "4.3.1".to_owned());
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= since(module, row)
}

macro_rules! rows {
    ($($module:ident :: $row:ident),* $(,)?) => {
        /// Name and outcome of every row.
        async fn run_all(cluster: &mut Real) -> Vec<(&'static str, bool)> {
            let only = std::env::var("TESTKIT_ROW").unwrap_or_default();
            let mut outcomes = Vec::new();
            $(if (stringify!($row).contains(&only) || stringify!($module).contains(&only)) && (!only.is_empty() || has(stringify!($module), stringify!($row))) {
                let run = tokio::time::timeout(Duration::from_secs(120), $module::$row(cluster));
                let held = AssertUnwindSafe(run).catch_unwind().await;
                let held = matches!(held, Ok(Ok(())));
                eprintln!("{} {}", if held { "holds " } else { "BROKEN" }, stringify!($row));
                outcomes.push((stringify!($row), held));
            })*
            outcomes
        }
    };
}

every_row!(rows);

#[tokio::test]
async fn every_row_holds_on_real_kafka() {
    if !testkit::kafka::enabled() {
        return;
    }
    let mut builder = Kafka::builder()
        .nodes(3)
        .property("auto.create.topics.enable", "false")
        .property("group.consumer.assignment.interval.ms", "0")
        .property("group.initial.rebalance.delay.ms", "0")
        // Ten seconds by default; a look that comes to nothing is made up for by the next.
        .property("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500");
    for node in 1..=3 {
        builder = builder.rack(node, format!("r{node}"));
    }
    let mut cluster = Real(builder.start().await.unwrap());
    let broken: Vec<&str> =
        run_all(&mut cluster).await.into_iter().filter(|(_, held)| !held).map(|(row, _)| row).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
