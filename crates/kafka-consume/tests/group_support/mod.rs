//! A group of members under observation: who owned what after each poll, and every record each was given.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kafka_consume::{
    Assignor, ClassicConsumer, Cluster, ConsumerConfig, GroupConsumer, NegotiatedConsumer, Records, Result,
};
use testkit::Kafka;
use testkit::produce::Writer;
use tokio::sync::watch;

pub type Owned = BTreeSet<(String, i32)>;

/// What a member tells the observer: what it owns after each poll, and every record it was given.
#[derive(Default)]
pub struct Seen {
    pub owned: BTreeMap<usize, Owned>,
    /// Every moment two members owned a partition.
    pub shared: Vec<String>,
    pub records: BTreeMap<(String, i32), BTreeMap<i64, u32>>,
}

impl Seen {
    pub fn own(&mut self, member: usize, owned: Owned) {
        for (other, theirs) in &self.owned {
            if *other != member {
                self.shared
                    .extend(theirs.intersection(&owned).map(|p| format!("{member} and {other} own {p:?}")));
            }
        }
        self.owned.insert(member, owned);
    }

    pub fn union(&self) -> Owned {
        self.owned.values().flatten().cloned().collect()
    }

    pub fn read(&self) -> usize {
        self.records.values().map(BTreeMap::len).sum()
    }
}

pub struct Member {
    pub stop: watch::Sender<bool>,
    pub task: tokio::task::JoinHandle<Result<()>>,
}

/// Which kind of member.
#[derive(Clone, Debug)]
pub enum Kind {
    Consumer,
    Classic(Vec<Assignor>),
    Negotiated,
}

/// One member of any kind.
pub enum AnyMember {
    Consumer(GroupConsumer),
    Classic(ClassicConsumer),
    Negotiated(NegotiatedConsumer),
}

impl AnyMember {
    pub async fn subscribe(
        kind: Kind,
        cluster: Cluster,
        config: ConsumerConfig,
        group: &str,
        topics: &[String],
    ) -> Result<AnyMember> {
        let topics = topics.to_vec();
        Ok(match kind {
            Kind::Consumer => {
                AnyMember::Consumer(GroupConsumer::subscribe(cluster, config, group, topics).await?)
            }
            Kind::Classic(order) => AnyMember::Classic(
                ClassicConsumer::subscribe(cluster, config, group, topics).await?.assignors(order),
            ),
            Kind::Negotiated => {
                AnyMember::Negotiated(NegotiatedConsumer::subscribe(cluster, config, group, topics).await?)
            }
        })
    }

    pub async fn poll(&mut self) -> Result<Records> {
        match self {
            AnyMember::Consumer(member) => member.poll().await,
            AnyMember::Classic(member) => member.poll().await,
            AnyMember::Negotiated(member) => member.poll().await,
        }
    }

    pub async fn leave(&mut self) -> Result<()> {
        match self {
            AnyMember::Consumer(member) => member.leave().await,
            AnyMember::Classic(member) => member.leave().await,
            AnyMember::Negotiated(member) => member.leave().await,
        }
    }

    pub fn assignment(&self) -> Vec<(String, i32)> {
        match self {
            AnyMember::Consumer(member) => member.assignment(),
            AnyMember::Classic(member) => member.assignment(),
            AnyMember::Negotiated(member) => member.assignment(),
        }
    }
}

pub fn start(
    number: usize,
    kind: Kind,
    cluster: Cluster,
    group: &str,
    topics: &[String],
    seen: Arc<Mutex<Seen>>,
) -> Member {
    let (stop, mut stopped) = watch::channel(false);
    let (group, topics) = (group.to_owned(), topics.to_vec());
    let task = tokio::spawn(async move {
        let config = ConsumerConfig::new().max_wait_ms(50).with_session_timeout_ms(10_000);
        let mut consumer = AnyMember::subscribe(kind, cluster, config, &group, &topics).await?;
        while !*stopped.borrow_and_update() {
            let records = consumer.poll().await?;
            let mut seen = seen.lock().unwrap();
            seen.own(number, consumer.assignment().into_iter().collect());
            for record in &records {
                let partition = (record.topic.to_string(), record.partition);
                *seen.records.entry(partition).or_default().entry(record.offset).or_default() += 1;
            }
        }
        consumer.leave().await?;
        seen.lock().unwrap().own(number, Owned::new());
        Ok(())
    });
    Member { stop, task }
}

pub async fn until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub async fn three_members(kafka: &Kafka, name: &str, kind: Kind, own_clusters: bool) {
    const PARTITIONS: i32 = 6;
    const EACH: u64 = 300;
    let topics: Vec<String> = (1..=2).map(|n| format!("{name}-{n}")).collect();
    let mut producer = Writer::new(&kafka.bootstrap());
    for topic in &topics {
        kafka.create_topic(topic, PARTITIONS, 1, &[]).await.unwrap();
        for partition in 0..PARTITIONS {
            producer.numbers(topic, partition, 0..EACH).await.unwrap();
        }
    }
    let all: Owned = topics.iter().flat_map(|t| (0..PARTITIONS).map(move |p| (t.clone(), p))).collect();
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut members = Vec::new();
    for number in 0..3 {
        let cluster =
            if own_clusters { Cluster::connect(&kafka.bootstrap()).await.unwrap() } else { cluster.clone() };
        members.push(start(number, kind.clone(), cluster, name, &topics, Arc::clone(&seen)));
        until("the group settles after a join", Duration::from_secs(40), || {
            let seen = seen.lock().unwrap();
            seen.union() == all
                && (0..=number).all(|n| seen.owned.get(&n).is_some_and(|owned| !owned.is_empty()))
        })
        .await;
        for topic in &topics {
            for partition in 0..PARTITIONS {
                producer.numbers(topic, partition, 0..EACH).await.unwrap();
            }
        }
    }
    let total = usize::try_from(EACH).unwrap() * 4 * all.len();
    until("everything is read", Duration::from_secs(40), || seen.lock().unwrap().read() == total).await;
    // One leaves: the others take over.
    let first = members.remove(0);
    first.stop.send(true).unwrap();
    first.task.await.unwrap().unwrap();
    until("the group settles after a leave", Duration::from_secs(40), || seen.lock().unwrap().union() == all)
        .await;
    for member in members {
        member.stop.send(true).unwrap();
        member.task.await.unwrap().unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.shared, Vec::<String>::new(), "two members owned a partition");
    for (partition, offsets) in &seen.records {
        assert!(offsets.values().all(|times| *times == 1), "{partition:?} gave a record twice");
        assert_eq!(offsets.len(), usize::try_from(EACH).unwrap() * 4, "{partition:?}");
    }
}
