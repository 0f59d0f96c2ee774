//! Groups that Rust and Java members share: either of them leading, under both assignors; and a live group that
//! moves from the classic protocol to KIP-848 and back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod group_support;

use std::sync::{Arc, Mutex};

use group_support::{Kind, Member, PATIENCE, Seen, Topics, settled, start, until};
use kafka_consume::{Assignor, Cluster};
use testkit::java::{Java, Running};
use testkit::{Kafka, kafka};

async fn kafka() -> Kafka {
    let kafka = Kafka::builder()
        .quick_groups()
        .property("group.initial.rebalance.delay.ms", "0")
        .property("group.consumer.migration.policy", "bidirectional")
        .start()
        .await
        .unwrap();
    kafka.ready_for_groups().await.unwrap();
    kafka
}

fn java_member(java: &Java, topic: &str, group: &str, more: &[&str]) -> Running {
    let mut arguments = vec!["--reset-policy", "earliest", "--session-timeout", "10000"];
    arguments.extend(more);
    java.verifiable_consumer(topic, group, &arguments).unwrap()
}

/// How many partitions the Java member has after its last assignment.
async fn java_has(member: &mut Running, wanted: usize) {
    let has = |events: &[serde_json::Value]| {
        let mut has = 0_usize;
        for event in events {
            let count = event["partitions"].as_array().map_or(0, Vec::len);
            match event["name"].as_str() {
                Some("partitions_assigned") => has += count,
                Some("partitions_revoked" | "partitions_lost") => has = has.saturating_sub(count),
                _ => {}
            }
        }
        (has == wanted).then_some(())
    };
    member.wait_for(PATIENCE, has).await.unwrap();
}

/// What the Java member has read, as its events tell: partition and number of records.
fn java_read(member: &mut Running) -> u64 {
    let events = member.events().iter().filter(|event| event["name"] == "records_consumed");
    events.filter_map(|event| event["count"].as_u64()).sum()
}

struct Group<'a> {
    kafka: &'a Kafka,
    name: String,
    topics: Topics,
    seen: Arc<Mutex<Seen>>,
}

impl<'a> Group<'a> {
    async fn new(kafka: &'a Kafka, name: &str) -> Group<'a> {
        let topics = Topics::create(kafka, &[name], 4, 1).await;
        Group { kafka, name: name.to_owned(), topics, seen: Arc::default() }
    }

    async fn rust(&self, number: usize, kind: Kind) -> Member {
        let cluster = Cluster::connect(&self.kafka.bootstrap()).await.unwrap();
        start(number, kind, cluster, &self.name, &self.topics.names, Arc::clone(&self.seen))
    }

    async fn rust_has(&self, number: usize, wanted: usize) {
        until("a Rust member's share", PATIENCE, || self.seen.lock().unwrap().of(number).len() == wanted)
            .await;
    }

    async fn all_read(&self, java: &mut Running) {
        let total = u64::try_from(self.topics.total()).unwrap();
        // A Java member commits after each batch, which a rebalance may refuse: it may see some twice.
        until("everything is read", PATIENCE, || {
            u64::try_from(self.seen.lock().unwrap().read()).unwrap() + java_read(java) >= total
        })
        .await;
    }
}

const STRATEGIES: [(Assignor, &str); 2] = [
    (Assignor::Range, "org.apache.kafka.clients.consumer.RangeAssignor"),
    (Assignor::CooperativeSticky, "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classic_rust_and_java_members_share_a_group_whoever_leads() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    let java = Java::new(&kafka).await.unwrap();
    for (assignor, class) in STRATEGIES {
        // Who is there first leads.
        for rust_leads in [true, false] {
            let mut group = Group::new(&kafka, &format!("{assignor:?}-{rust_leads}")).await;
            group.topics.write(20).await;
            let kind = Kind::Classic(vec![assignor]);
            let more = ["--assignment-strategy", class];
            let (rust, mut javas) = if rust_leads {
                let rust = group.rust(0, kind).await;
                group.rust_has(0, 4).await;
                (rust, java_member(&java, &group.topics.names[0], &group.name, &more))
            } else {
                let mut javas = java_member(&java, &group.topics.names[0], &group.name, &more);
                java_has(&mut javas, 4).await;
                (group.rust(0, kind).await, javas)
            };
            java_has(&mut javas, 2).await;
            group.rust_has(0, 2).await;
            group.topics.write(20).await;
            group.all_read(&mut javas).await;
            rust.leave().await;
            java_has(&mut javas, 4).await;
            group.topics.write(20).await;
            group.all_read(&mut javas).await;
            javas.terminate().unwrap();
            javas.end(PATIENCE).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_group_moves_from_java_on_the_classic_protocol_to_kip_848_and_back() {
    if !kafka::enabled() {
        return;
    }
    let kafka = kafka().await;
    let java = Java::new(&kafka).await.unwrap();
    let mut group = Group::new(&kafka, "moving").await;
    group.topics.write(20).await;
    let mut javas = java_member(&java, "moving", "moving", &[]);
    java_has(&mut javas, 4).await;
    let first = group.rust(0, Kind::Consumer).await;
    group.rust_has(0, 2).await;
    java_has(&mut javas, 2).await;
    group.topics.write(20).await;
    group.all_read(&mut javas).await;
    javas.terminate().unwrap();
    javas.end(PATIENCE).await.unwrap();
    let second = group.rust(1, Kind::Consumer).await;
    settled("KIP-848 alone", &group.seen, &group.topics.all, &[0, 1]).await;
    group.topics.write(20).await;
    group.all_read(&mut javas).await;
    // And back: a classic member joins, the others go.
    second.leave().await;
    let third = group.rust(2, Kind::Classic(vec![Assignor::Range, Assignor::CooperativeSticky])).await;
    settled("both protocols", &group.seen, &group.topics.all, &[0, 2]).await;
    first.leave().await;
    settled("classic alone", &group.seen, &group.topics.all, &[2]).await;
    group.topics.write(20).await;
    group.all_read(&mut javas).await;
    third.leave().await;
    let seen = group.seen.lock().unwrap();
    assert_eq!(seen.shared, Vec::<String>::new(), "two members owned a partition");
    assert!(seen.records.values().flat_map(|offsets| offsets.values()).all(|times| *times == 1));
}
