//! Field bugs of partitions that come late (F11) and of many members that come at once (F12): where they start, and
//! that nothing is left out. Embedded broker, paused clock. Names begin with the bug's id.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{BoxFuture, join_all};
use kafka_consume::{
    Cluster, ConsumerConfig, ConsumerHandle, GroupProtocol, NegotiatedConsumer, OffsetReset,
    RebalanceListener, Result, RevokedPartition,
};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::Embedded;
use tokio::time::Instant;

const BOTH: [GroupProtocol; 2] = [GroupProtocol::Consumer, GroupProtocol::Classic];
const LIMIT: Duration = Duration::from_secs(300);

/// Topic, partition, offset → how often it was handed out.
type Read = BTreeMap<(String, i32, i64), u32>;

struct Group {
    kafka: Embedded,
    members: Vec<NegotiatedConsumer>,
    read: Read,
}

impl Group {
    fn new() -> Group {
        let kafka = Embedded::start(3);
        kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
        Group { kafka, members: Vec::new(), read: Read::new() }
    }

    async fn cluster(&self) -> Cluster {
        let config = self.kafka.config().with_metadata_max_age(Duration::from_secs(5));
        Cluster::connect_with(config).await.unwrap()
    }

    /// So many records to each partition, stamped by the clock that "no older than" is measured with.
    fn write(&self, topic: &str, partitions: i32, count: usize) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = vec![i64::try_from(now.as_millis()).unwrap(); count];
        for partition in 0..partitions {
            self.kafka.append_at(topic, partition, &now);
        }
    }

    async fn poll(&mut self) {
        for records in join_all(self.members.iter_mut().map(NegotiatedConsumer::poll)).await {
            for record in &records.unwrap() {
                let key = (record.topic.to_string(), record.partition, record.offset);
                *self.read.entry(key).or_default() += 1;
            }
        }
    }

    /// Polls until the members own so many partitions, everyone some of them, and no two the same.
    async fn settle(&mut self, wanted: usize) {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.poll().await;
            let mut all: Vec<_> = self.members.iter().flat_map(NegotiatedConsumer::assignment).collect();
            let given = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), given, "owned twice");
            if given == wanted && self.members.iter().all(|member| !member.assignment().is_empty()) {
                return;
            }
            let shares: Vec<_> = self.members.iter().map(NegotiatedConsumer::assignment).collect();
            assert!(Instant::now() < deadline, "{given} of {wanted}: {shares:?}");
        }
    }

    async fn reads(&mut self, wanted: usize, what: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.read.len() < wanted {
            assert!(Instant::now() < deadline, "{what}: {} of {wanted}", self.read.len());
            self.poll().await;
        }
        self.poll().await;
        self.poll().await;
        assert_eq!(self.read.len(), wanted, "{what}");
        let twice: Vec<_> = self.read.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "{what}: {twice:?}");
    }

    fn first_of(&self, topic: &str, partition: i32) -> Option<i64> {
        let of = |key: &&(String, i32, i64)| key.0 == topic && key.1 == partition;
        self.read.keys().find(of).map(|key| key.2)
    }
}

/// Starts what comes late at its first record: the topic began with two partitions.
struct FromTheStart(ConsumerHandle);

impl RebalanceListener for FromTheStart {
    fn on_revoke(&mut self, _: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn on_assign(&mut self, assigned: Vec<(String, i32)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for (topic, partition) in assigned.into_iter().filter(|(_, partition)| *partition >= 2) {
                self.0.seek(&topic, partition, 0)?;
            }
            Ok(())
        })
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Policy {
    Earliest,
    Latest,
    LatestAndSeek,
    LastHour,
}

impl Policy {
    fn reset(self) -> OffsetReset {
        match self {
            Policy::Earliest => OffsetReset::Earliest,
            Policy::Latest | Policy::LatestAndSeek => OffsetReset::Latest,
            Policy::LastHour => OffsetReset::ByDuration(Duration::from_secs(3_600)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb11_partitions_that_come_while_records_do_start_where_the_policy_says() {
    for protocol in BOTH {
        for policy in [Policy::Earliest, Policy::Latest, Policy::LatestAndSeek, Policy::LastHour] {
            for fixed in [false, true] {
                let what = format!("{protocol:?}, {policy:?}, static: {fixed}");
                let mut group = Group::new();
                group.kafka.create_topic("t", 2);
                for number in 0..2 {
                    let config = ConsumerConfig::new()
                        .max_wait_ms(100)
                        .auto_offset_reset(policy.reset())
                        .with_session_timeout_ms(6_000)
                        .with_heartbeat_interval_ms(1_000)
                        .with_group_protocol(protocol);
                    let cluster = group.cluster().await;
                    let mut member =
                        NegotiatedConsumer::subscribe(cluster, config, "g", ["t"]).await.unwrap();
                    if fixed {
                        member = member.instance_id(format!("i{number}"));
                    }
                    if policy == Policy::LatestAndSeek {
                        let handle = member.handle();
                        member = member.on_rebalance(FromTheStart(handle));
                    }
                    group.members.push(member);
                    group.settle(2.min(2 * (number + 1))).await;
                }
                // Positions are known before anything is written: nothing of these two partitions is passed over.
                let deadline = Instant::now() + LIMIT;
                while group.members.iter().any(|member| member.positions().is_empty()) {
                    assert!(Instant::now() < deadline, "{what}");
                    group.poll().await;
                }
                group.write("t", 2, 3);
                group.reads(6, &what).await;
                group.kafka.add_partitions("t", 6);
                // Written before any member can know of the partitions.
                group.write("t", 6, 3);
                group.settle(6).await;
                let known = |group: &Group| {
                    group.members.iter().map(|member| member.positions().len()).sum::<usize>() == 6
                };
                while !known(&group) {
                    assert!(Instant::now() < deadline, "{what}");
                    group.poll().await;
                }
                group.write("t", 6, 3);
                // Two partitions with nine records each, four with six; or three, where the first were passed over.
                let passed_over = policy == Policy::Latest;
                group.reads(if passed_over { 18 + 12 } else { 18 + 24 }, &what).await;
                for partition in 2..6 {
                    assert_eq!(
                        group.first_of("t", partition),
                        Some(if passed_over { 3 } else { 0 }),
                        "{what}"
                    );
                }
                for mut member in std::mem::take(&mut group.members) {
                    member.leave().await.unwrap();
                }
                for partition in 2..6 {
                    assert_eq!(group.kafka.committed("g", "t", partition), Some(6), "{what}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fb11_a_partition_that_the_group_assigns_before_the_metadata_has_it_is_read_within_seconds() {
    // With a position stored and without: only a look-up of the latter needs the leader by itself.
    for stored in [true, false] {
        let mut group = Group::new();
        group.kafka.create_topic("t", 2);
        let config = ConsumerConfig::new()
            .max_wait_ms(100)
            .auto_offset_reset(OffsetReset::Earliest)
            .with_group_protocol(GroupProtocol::Consumer);
        let cluster = group.kafka.config().with_metadata_max_age(Duration::from_secs(3_600));
        let cluster = Cluster::connect_with(cluster).await.unwrap();
        group.members.push(NegotiatedConsumer::subscribe(cluster, config, "g", ["t"]).await.unwrap());
        group.settle(2).await;
        group.write("t", 2, 3);
        group.reads(6, "before").await;
        group.kafka.add_partitions("t", 3);
        group.write("t", 3, 3);
        if stored {
            group.kafka.commit("g", "t", 2, 1);
        }
        let start = Instant::now();
        group.reads(if stored { 6 + 6 + 2 } else { 6 + 9 }, "late").await;
        assert!(start.elapsed() < Duration::from_secs(10), "stored: {stored}: {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn fb11_a_pattern_takes_topics_in_and_lets_deleted_ones_go() {
    for protocol in BOTH {
        let what = format!("{protocol:?}");
        let mut group = Group::new();
        group.kafka.create_topic("ta", 2);
        group.kafka.create_topic("tb", 2);
        group.kafka.create_topic("other", 2);
        for _ in 0..2 {
            let config = ConsumerConfig::new()
                .max_wait_ms(100)
                .auto_offset_reset(OffsetReset::Earliest)
                .with_session_timeout_ms(6_000)
                .with_heartbeat_interval_ms(1_000)
                .with_group_protocol(protocol);
            let cluster = group.cluster().await;
            group
                .members
                .push(NegotiatedConsumer::subscribe_pattern(cluster, config, "g", "t.").await.unwrap());
            group.settle(4).await;
        }
        group.write("ta", 2, 3);
        group.write("tb", 2, 3);
        group.reads(12, &what).await;
        group.kafka.create_topic("tc", 3);
        group.write("tc", 3, 3);
        group.settle(7).await;
        group.reads(21, &what).await;
        group.kafka.delete_topic("tb");
        group.settle(5).await;
        group.write("ta", 2, 3);
        group.write("tc", 3, 3);
        group.reads(36, &what).await;
        assert_eq!(group.first_of("other", 0), None);
    }
}

#[tokio::test(start_paused = true)]
async fn fb12_fifty_members_that_start_together_begin_where_the_group_stopped() {
    for protocol in BOTH {
        let mut group = Group::new();
        group.kafka.create_topic("t", 300);
        group.write("t", 300, 4);
        for partition in 0..300 {
            group.kafka.commit("g", "t", partition, 2);
        }
        // Epochs move while fifty members join; and on top of that the coordinator calls every fourth stale.
        let stale = group.kafka.fault(ApiKey::OffsetFetch).always().every(4).error(113);
        for _ in 0..50 {
            let config = ConsumerConfig::new()
                .max_wait_ms(100)
                .auto_offset_reset(OffsetReset::Latest)
                .with_session_timeout_ms(45_000)
                .with_group_protocol(protocol);
            let cluster = group.cluster().await;
            group.members.push(NegotiatedConsumer::subscribe(cluster, config, "g", ["t"]).await.unwrap());
        }
        group.settle(300).await;
        group.reads(600, &format!("{protocol:?}")).await;
        assert!(stale.hits() > 10, "{}", stale.hits());
        assert!(group.read.keys().all(|(_, _, offset)| *offset >= 2));
        for mut member in std::mem::take(&mut group.members) {
            member.leave().await.unwrap();
        }
        assert!((0..300).all(|partition| group.kafka.committed("g", "t", partition) == Some(4)));
    }
}
