//! A classic group whose static leader goes away and comes back: what happened meanwhile is noticed, and nothing
//! else makes the group rebalance.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use kafka_consume::{Assignor, ClassicConsumer, Cluster, ConsumerConfig, OffsetReset};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(120);
const ASSIGNORS: [Assignor; 3] = [Assignor::Range, Assignor::RoundRobin, Assignor::CooperativeSticky];

struct Group {
    kafka: Embedded,
    assignor: Assignor,
    members: Vec<ClassicConsumer>,
    read: BTreeMap<(String, i32, i64), u32>,
}

impl Group {
    /// Three static members, the first of which leads; what they read is "t" and, but for the first, "u".
    async fn new(assignor: Assignor) -> Group {
        let kafka = Embedded::start(2);
        kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
        kafka.create_topic("t", 4);
        kafka.create_topic("u", 3);
        let mut group = Group { kafka, assignor, members: Vec::new(), read: BTreeMap::new() };
        for number in 0..3 {
            group.join(number).await;
            group.settle(4 + if number > 0 { 3 } else { 0 }).await;
        }
        group
    }

    async fn join(&mut self, number: usize) {
        // Refreshed seldom: what happened while a member was away has to be noticed at its return.
        let cluster = self.kafka.config().with_metadata_max_age(Duration::from_secs(3_600));
        let cluster = Cluster::connect_with(cluster).await.unwrap();
        let config = ConsumerConfig::new()
            .max_wait_ms(100)
            .auto_offset_reset(OffsetReset::Earliest)
            .with_session_timeout_ms(20_000)
            .with_heartbeat_interval_ms(1_000);
        let topics: &[&str] = if number == 0 { &["t"] } else { &["t", "u"] };
        let member = ClassicConsumer::subscribe(cluster, config, "g", topics.iter().copied()).await.unwrap();
        let member = member.assignors([self.assignor]).instance_id(format!("i{number}"));
        self.members.insert(number, member);
    }

    async fn poll(&mut self) {
        for records in join_all(self.members.iter_mut().map(ClassicConsumer::poll)).await {
            for record in &records.unwrap() {
                let key = (record.topic.to_string(), record.partition, record.offset);
                *self.read.entry(key).or_default() += 1;
            }
        }
    }

    /// Polls until so many partitions are owned, none of them twice, and everybody has some.
    async fn settle(&mut self, wanted: usize) {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.poll().await;
            let mut all: Vec<_> = self.members.iter().flat_map(ClassicConsumer::assignment).collect();
            let given = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), given, "{:?}: owned twice", self.assignor);
            if given == wanted && self.members.iter().all(|member| !member.assignment().is_empty()) {
                return;
            }
            assert!(Instant::now() < deadline, "{:?}: {wanted} wanted: {all:?}", self.assignor);
        }
    }

    fn generations(&self) -> Vec<i32> {
        let one = |member: &ClassicConsumer| member.group_metadata().unwrap().generation_id;
        self.members.iter().map(one).collect()
    }

    async fn leader_goes(&mut self) {
        let mut leader = self.members.remove(0);
        leader.leave().await.unwrap();
        drop(leader);
        self.poll().await;
    }
}

#[tokio::test(start_paused = true)]
async fn partitions_made_while_the_leader_was_away_are_read_after_its_return() {
    for assignor in ASSIGNORS {
        for topic in ["t", "u"] {
            let mut group = Group::new(assignor).await;
            group.leader_goes().await;
            group.kafka.add_partitions(topic, 6);
            for partition in 0..6 {
                group.kafka.append_records(topic, partition, (0..5).map(|n| ("k", n.to_string())));
            }
            group.join(0).await;
            group.settle(if topic == "t" { 9 } else { 10 }).await;
            let deadline = Instant::now() + LIMIT;
            while group.read.len() < 30 {
                assert!(Instant::now() < deadline, "{assignor:?}, {topic}: {} of 30", group.read.len());
                group.poll().await;
            }
            group.poll().await;
            assert!(group.read.values().all(|times| *times == 1), "{assignor:?}, {topic}: {:?}", group.read);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_return_to_an_unchanged_group_moves_nothing() {
    for assignor in ASSIGNORS {
        let mut group = Group::new(assignor).await;
        let (before, shares) = (group.generations(), group.members[0].assignment());
        group.leader_goes().await;
        group.join(0).await;
        group.kafka.clear_requests();
        group.settle(7).await;
        let later = Instant::now() + Duration::from_secs(15);
        while Instant::now() < later {
            group.poll().await;
        }
        assert_eq!(group.generations(), before, "{assignor:?}");
        assert_eq!(group.members[0].assignment(), shares, "{assignor:?}");
        assert_eq!(group.kafka.count(ApiKey::JoinGroup), 1, "{assignor:?}");
        assert_eq!(group.kafka.count(ApiKey::DescribeGroups), 1, "{assignor:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_does_not_answer_the_question_is_asked_again() {
    let mut group = Group::new(Assignor::Range).await;
    group.leader_goes().await;
    group.kafka.add_partitions("u", 6);
    group.kafka.fault(ApiKey::DescribeGroups).times(1).drop_connection_before();
    group.kafka.fault(ApiKey::DescribeGroups).skip(1).times(2).error(14);
    group.join(0).await;
    group.settle(10).await;
    assert!(group.kafka.count(ApiKey::DescribeGroups) >= 3);
}
