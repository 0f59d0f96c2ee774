//! Live groups that move between the protocols while they read, on a broker that lets them (`bidirectional`): eager
//! and cooperative, dynamic and static classic members, one of them Java's, with KIP-848 members, through to a group
//! of only those, and back; and negotiated members on either side of Java's. At every sampled moment the partitions
//! are complete and disjoint; each record comes once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod group_support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use group_support::{Kind, Member, Owned, PATIENCE, Seen, Topics, start_as, until};
use kafka_consume::{Assignor, Cluster, GroupProtocol};
use testkit::java::{Java, Running};
use testkit::{Kafka, kafka};

const EACH: usize = 20;

/// One group, its Rust members by number and the Java member that is in it now.
struct Group<'a> {
    kafka: &'a Kafka,
    java: &'a Java,
    name: String,
    topics: Topics,
    seen: Arc<Mutex<Seen>>,
    members: BTreeMap<usize, Member>,
    javas: Option<Running>,
    /// What Java's members read that are gone.
    java_read: BTreeMap<(String, i32), BTreeMap<i64, u32>>,
}

impl<'a> Group<'a> {
    async fn new(kafka: &'a Kafka, java: &'a Java, name: &str) -> Group<'a> {
        let topics = Topics::create(kafka, &[name], 6, 1).await;
        Group {
            kafka,
            java,
            name: name.to_owned(),
            topics,
            seen: Arc::default(),
            members: BTreeMap::new(),
            javas: None,
            java_read: BTreeMap::new(),
        }
    }

    async fn join(&mut self, number: usize, kind: Kind, instance: Option<&str>) {
        let cluster = Cluster::connect(&self.kafka.bootstrap()).await.unwrap();
        let instance = instance.map(str::to_owned);
        let seen = Arc::clone(&self.seen);
        let member = start_as(number, kind, instance, cluster, &self.name, &self.topics.names, seen);
        self.members.insert(number, member);
    }

    fn java_joins(&mut self, more: &[&str]) {
        let mut arguments = vec!["--reset-policy", "earliest", "--session-timeout", "10000"];
        arguments.extend(more);
        let running = self.java.verifiable_consumer(&self.topics.names[0], &self.name, &arguments).unwrap();
        self.javas = Some(running);
    }

    async fn leave(&mut self, number: usize) {
        self.members.remove(&number).unwrap().leave().await;
    }

    async fn java_leaves(&mut self) {
        let Some(mut running) = self.javas.take() else { return };
        running.terminate().unwrap();
        running.end(PATIENCE).await.unwrap();
        take_java(&mut running, &mut self.java_read);
    }

    /// Until those who are in the group, Java included, share all partitions, everyone having some. A partition
    /// two of them own for longer than it takes to be told of it fails.
    async fn settle(&mut self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut shares: Vec<Owned> = Vec::new();
            if let Some(running) = &mut self.javas {
                shares.push(java_owns(running));
            }
            {
                let seen = self.seen.lock().unwrap();
                shares.extend(self.members.keys().map(|number| seen.of(*number)));
                assert_eq!(seen.shared, Vec::<String>::new(), "{} {what}", self.name);
            }
            let all: Owned = shares.iter().flatten().cloned().collect();
            let sum: usize = shares.iter().map(Owned::len).sum();
            if all == self.topics.all && sum == all.len() && shares.iter().all(|share| !share.is_empty()) {
                return;
            }
            let errors = self.javas.as_ref().map(Running::errors).unwrap_or_default();
            assert!(Instant::now() < deadline, "{} {what}: {shares:?}\n{errors}", self.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn all_taken(&mut self) -> BTreeMap<(String, i32), BTreeMap<i64, u32>> {
        let mut all = self.seen.lock().unwrap().records.clone();
        let mut java = self.java_read.clone();
        if let Some(running) = &mut self.javas {
            take_java(running, &mut java);
        }
        for (partition, offsets) in java {
            for (offset, times) in offsets {
                *all.entry(partition.clone()).or_default().entry(offset).or_default() += times;
            }
        }
        all
    }

    /// Writes to a group at rest, and waits until each record so far has come, once.
    async fn reads(&mut self, what: &str) {
        self.topics.write(EACH).await;
        let total = self.topics.total();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let all = self.all_taken();
            if all.values().map(BTreeMap::len).sum::<usize>() >= total {
                let twice: Vec<_> = all
                    .iter()
                    .flat_map(|(partition, offsets)| offsets.iter().map(move |of| (partition, of)))
                    .filter(|(_, (_, times))| **times != 1)
                    .collect();
                assert!(twice.is_empty(), "{} {what}: {twice:?}", self.name);
                return;
            }
            assert!(Instant::now() < deadline, "{} {what}: not all of {total} are read", self.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn speak(&self, numbers: &[usize], protocol: GroupProtocol) {
        until("the protocol", PATIENCE, || {
            let seen = self.seen.lock().unwrap();
            numbers.iter().all(|number| seen.protocols.get(number) == Some(&protocol))
        })
        .await;
    }
}

fn java_owns(running: &mut Running) -> Owned {
    let mut owns = Owned::new();
    for event in running.events() {
        let named = event["partitions"].as_array().into_iter().flatten().filter_map(|named| {
            let partition = i32::try_from(named["partition"].as_i64()?).ok()?;
            Some((named["topic"].as_str()?.to_owned(), partition))
        });
        match event["name"].as_str() {
            Some("partitions_assigned") => owns.extend(named),
            Some("partitions_revoked" | "partitions_lost") => {
                for gone in named {
                    owns.remove(&gone);
                }
            }
            _ => {}
        }
    }
    owns
}

fn take_java(running: &mut Running, read: &mut BTreeMap<(String, i32), BTreeMap<i64, u32>>) {
    for event in running.events().iter().filter(|event| event["name"] == "records_consumed") {
        for part in event["partitions"].as_array().into_iter().flatten() {
            let topic = part["topic"].as_str().unwrap().to_owned();
            let partition = i32::try_from(part["partition"].as_i64().unwrap()).unwrap();
            let offsets = read.entry((topic, partition)).or_default();
            let (first, last) = (part["minOffset"].as_i64().unwrap(), part["maxOffset"].as_i64().unwrap());
            for offset in first..=last {
                *offsets.entry(offset).or_default() += 1;
            }
        }
    }
}

/// G07 to G10: classic → mixed → KIP-848 alone → mixed → classic alone.
async fn moves(kafka: &Kafka, java: &Java, assignor: Assignor, fixed: bool) {
    let name = format!("moves-{}-{fixed}", assignor.name());
    let class = match assignor {
        Assignor::Range => "org.apache.kafka.clients.consumer.RangeAssignor",
        _ => "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    };
    let mut group = Group::new(kafka, java, &name).await;
    let classic = || Kind::Classic(vec![assignor]);
    let instance = |id: &'static str| fixed.then_some(id);
    group.join(0, classic(), instance("a")).await;
    group.settle("alone").await;
    let mut more = vec!["--assignment-strategy", class];
    if fixed {
        more.extend(["--group-instance-id", "java"]);
    }
    group.java_joins(&more);
    group.settle("classic").await;
    group.reads("classic").await;

    group.join(1, Kind::Consumer, instance("b")).await;
    group.settle("on the way there").await;
    group.reads("on the way there").await;

    group.java_leaves().await;
    group.leave(0).await;
    // A static member takes the place of its classic self as soon as that one's session is over.
    group.join(2, Kind::Consumer, instance("a")).await;
    group.settle("KIP-848 alone").await;
    group.reads("KIP-848 alone").await;

    group.join(3, classic(), instance("c")).await;
    group.settle("on the way back").await;
    group.reads("on the way back").await;

    // One at a time: the group's epoch is the classic group's first generation, and a member that had no time to
    // follow it is fenced (22), which costs it what it had not stored.
    group.leave(1).await;
    group.settle("one of the old ones less").await;
    group.leave(2).await;
    group.settle("none of the old ones").await;
    group.join(4, classic(), instance("b")).await;
    group.settle("classic again").await;
    group.reads("classic again").await;
    group.leave(3).await;
    group.leave(4).await;
}

/// Negotiated members join Java's classic group, which moves it; are left alone; are joined by Java's again; and
/// leave it to them, until one comes back.
async fn negotiated(kafka: &Kafka, java: &Java) {
    let mut group = Group::new(kafka, java, "negotiated").await;
    let more = ["--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"];
    group.java_joins(&more);
    group.settle("Java alone").await;
    group.reads("Java alone").await;
    group.join(0, Kind::Negotiated, None).await;
    group.join(1, Kind::Negotiated, None).await;
    group.settle("with Java").await;
    group.speak(&[0, 1], GroupProtocol::Consumer).await;
    group.reads("with Java").await;
    group.java_leaves().await;
    group.settle("without Java").await;
    group.reads("without Java").await;
    group.java_joins(&more);
    group.settle("Java again").await;
    group.reads("Java again").await;
    group.leave(0).await;
    group.settle("one less beside Java").await;
    group.leave(1).await;
    group.settle("back with Java").await;
    group.reads("back with Java").await;
    group.join(2, Kind::Negotiated, None).await;
    group.settle("and there again").await;
    group.speak(&[2], GroupProtocol::Consumer).await;
    group.reads("and there again").await;
    group.leave(2).await;
    group.java_leaves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_groups_move_between_the_protocols_and_each_record_comes_once() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .quick_groups()
        .property("group.initial.rebalance.delay.ms", "0")
        .property("group.consumer.migration.policy", "bidirectional")
        .property("group.consumer.assignment.interval.ms", "0")
        .start()
        .await
        .unwrap();
    kafka.ready_for_groups().await.unwrap();
    let java = Java::new(&kafka).await.unwrap();
    // Side by side: most of the time is spent waiting for heartbeats and sessions.
    tokio::join!(
        moves(&kafka, &java, Assignor::Range, false),
        moves(&kafka, &java, Assignor::Range, true),
        moves(&kafka, &java, Assignor::CooperativeSticky, false),
        moves(&kafka, &java, Assignor::CooperativeSticky, true),
        negotiated(&kafka, &java),
    );
}
