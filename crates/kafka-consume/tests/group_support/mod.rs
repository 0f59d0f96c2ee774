//! A group of members under observation: who owned what from callback to callback, and every record each was
//! given.
//!
//! Ownership is recorded where it changes, in the listener: a poll that gives partitions up goes on waiting for
//! records afterwards, and what is seen when it ends is old news.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use kafka_consume::{
    Assignor, ClassicConsumer, Cluster, ConsumerConfig, ErrorKind, GroupConsumer, GroupProtocol,
    NegotiatedConsumer, RebalanceListener, Records, Result, RevokedPartition,
};
use testkit::Kafka;
use testkit::produce::Writer;
use tokio::sync::watch;

pub type Owned = BTreeSet<(String, i32)>;

/// What the members tell the observer.
#[derive(Default)]
pub struct Seen {
    pub owned: BTreeMap<usize, Owned>,
    /// Every moment two members owned a partition.
    pub shared: Vec<String>,
    pub records: BTreeMap<(String, i32), BTreeMap<i64, u32>>,
    /// Per member: calls of `on_assign`, `on_revoke`, `on_lost`.
    pub calls: BTreeMap<usize, (u32, u32, u32)>,
    /// What each member speaks.
    pub protocols: BTreeMap<usize, GroupProtocol>,
    /// What each member gave up, in order.
    pub revoked: BTreeMap<usize, Vec<RevokedPartition>>,
}

impl Seen {
    fn gain(&mut self, member: usize, gained: impl IntoIterator<Item = (String, i32)>) {
        for partition in gained {
            for (other, theirs) in &self.owned {
                if *other != member && theirs.contains(&partition) {
                    self.shared.push(format!("{member} and {other} own {partition:?}"));
                }
            }
            self.owned.entry(member).or_default().insert(partition);
        }
    }

    fn give_up(&mut self, member: usize, gone: Vec<RevokedPartition>) {
        let owned = self.owned.entry(member).or_default();
        for one in &gone {
            owned.remove(&(one.topic.clone(), one.partition));
        }
        self.revoked.entry(member).or_default().extend(gone);
    }

    pub fn of(&self, member: usize) -> Owned {
        self.owned.get(&member).cloned().unwrap_or_default()
    }

    pub fn union(&self) -> Owned {
        self.owned.values().flatten().cloned().collect()
    }

    pub fn read(&self) -> usize {
        self.records.values().map(BTreeMap::len).sum()
    }

    pub fn take(&mut self, records: &Records) {
        for record in records {
            let partition = (record.topic.to_string(), record.partition);
            *self.records.entry(partition).or_default().entry(record.offset).or_default() += 1;
        }
    }

    /// Each partition's records from 0 to `each`, once.
    pub fn assert_each_once(&self, all: &Owned, each: usize) {
        for partition in all {
            let offsets = self.records.get(partition).cloned().unwrap_or_default();
            let twice: Vec<_> = offsets.iter().filter(|(_, times)| **times != 1).collect();
            assert!(twice.is_empty(), "{partition:?} gave records twice: {twice:?}");
            assert_eq!(offsets.len(), each, "{partition:?}");
        }
    }
}

/// Tells the observer.
pub struct Watching {
    pub member: usize,
    pub seen: Arc<Mutex<Seen>>,
}

impl RebalanceListener for Watching {
    fn on_revoke(&mut self, revoked: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut seen = self.seen.lock().unwrap();
            seen.calls.entry(self.member).or_default().1 += 1;
            seen.give_up(self.member, revoked);
            Ok(())
        })
    }

    fn on_assign(&mut self, assigned: Vec<(String, i32)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut seen = self.seen.lock().unwrap();
            seen.calls.entry(self.member).or_default().0 += 1;
            seen.gain(self.member, assigned);
            Ok(())
        })
    }

    fn on_lost(&mut self, lost: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut seen = self.seen.lock().unwrap();
            seen.calls.entry(self.member).or_default().2 += 1;
            seen.give_up(self.member, lost);
            Ok(())
        })
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

    pub fn on_rebalance(self, listener: impl RebalanceListener + 'static) -> AnyMember {
        match self {
            AnyMember::Consumer(member) => AnyMember::Consumer(member.on_rebalance(listener)),
            AnyMember::Classic(member) => AnyMember::Classic(member.on_rebalance(listener)),
            AnyMember::Negotiated(member) => AnyMember::Negotiated(member.on_rebalance(listener)),
        }
    }

    pub fn instance_id(self, id: &str) -> AnyMember {
        match self {
            AnyMember::Consumer(member) => AnyMember::Consumer(member.instance_id(id)),
            AnyMember::Classic(member) => AnyMember::Classic(member.instance_id(id)),
            AnyMember::Negotiated(member) => AnyMember::Negotiated(member.instance_id(id)),
        }
    }

    pub fn protocol(&self) -> GroupProtocol {
        match self {
            AnyMember::Consumer(_) => GroupProtocol::Consumer,
            AnyMember::Classic(_) => GroupProtocol::Classic,
            AnyMember::Negotiated(member) => member.protocol(),
        }
    }

    pub fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        match self {
            AnyMember::Consumer(member) => member.position(topic, partition),
            AnyMember::Classic(member) => member.position(topic, partition),
            AnyMember::Negotiated(member) => member.position(topic, partition),
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

/// A member in a task of its own that polls until it is told to leave.
pub fn start(
    number: usize,
    kind: Kind,
    cluster: Cluster,
    group: &str,
    topics: &[String],
    seen: Arc<Mutex<Seen>>,
) -> Member {
    start_as(number, kind, None, cluster, group, topics, seen)
}

/// As [`start`], as a static member if it has an instance id; it waits for the id where it is still claimed.
pub fn start_as(
    number: usize,
    kind: Kind,
    instance: Option<String>,
    cluster: Cluster,
    group: &str,
    topics: &[String],
    seen: Arc<Mutex<Seen>>,
) -> Member {
    let (stop, mut stopped) = watch::channel(false);
    let (group, topics) = (group.to_owned(), topics.to_vec());
    let task = tokio::spawn(async move {
        let config = ConsumerConfig::new().max_wait_ms(50).with_session_timeout_ms(10_000);
        let mut member = AnyMember::subscribe(kind, cluster, config, &group, &topics).await?;
        if let Some(instance) = instance {
            member = member.instance_id(&instance);
        }
        let mut member = member.on_rebalance(Watching { member: number, seen: Arc::clone(&seen) });
        while !*stopped.borrow_and_update() {
            let records = match member.poll().await {
                Err(error) if error.kind() == ErrorKind::UnreleasedInstanceId => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                records => records?,
            };
            let mut seen = seen.lock().unwrap();
            seen.take(&records);
            seen.protocols.insert(number, member.protocol());
        }
        member.leave().await
    });
    Member { stop, task }
}

impl Member {
    pub async fn leave(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

pub async fn until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the load of a machine may cost.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Topics with as many partitions, and what writes to all of them.
pub struct Topics {
    pub names: Vec<String>,
    pub all: Owned,
    writer: Writer,
    pub each: usize,
}

impl Topics {
    pub async fn create(kafka: &Kafka, names: &[&str], partitions: i32, replicas: i16) -> Topics {
        for name in names {
            kafka.create_topic(name, partitions, replicas, &[]).await.unwrap();
        }
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let all = names.iter().flat_map(|name| (0..partitions).map(move |p| (name.clone(), p))).collect();
        Topics { names, all, writer: Writer::new(&kafka.bootstrap()), each: 0 }
    }

    /// After a node died: connections to it are of no use.
    pub fn reconnect(&mut self, kafka: &Kafka) {
        self.writer = Writer::new(&kafka.bootstrap());
    }

    /// So many more records to each partition.
    pub async fn write(&mut self, count: usize) {
        for (topic, partition) in &self.all {
            let range = u64::try_from(self.each).unwrap()..u64::try_from(self.each + count).unwrap();
            self.writer.numbers(topic, *partition, range).await.unwrap();
        }
        self.each += count;
    }

    /// Records to partitions that were made later.
    pub async fn write_to(&mut self, later: &Owned, count: u64) {
        for (topic, partition) in later {
            self.writer.numbers(topic, *partition, 0..count).await.unwrap();
        }
    }

    pub fn total(&self) -> usize {
        self.each * self.all.len()
    }
}

/// Waits until these members share all partitions, each having some.
pub async fn settled(what: &str, seen: &Arc<Mutex<Seen>>, all: &Owned, members: &[usize]) {
    until(what, PATIENCE, || {
        let seen = seen.lock().unwrap();
        seen.union() == *all && members.iter().all(|member| !seen.of(*member).is_empty())
    })
    .await;
}

pub async fn three_members(kafka: &Kafka, name: &str, kind: Kind) {
    let (first, second) = (format!("{name}-1"), format!("{name}-2"));
    let mut topics = Topics::create(kafka, &[&first, &second], 3, 1).await;
    topics.write(50).await;
    let cluster = Cluster::connect(&kafka.bootstrap()).await.unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut members = Vec::new();
    for number in 0..3 {
        let seen = Arc::clone(&seen);
        members.push(start(number, kind.clone(), cluster.clone(), name, &topics.names, Arc::clone(&seen)));
        settled("a join", &seen, &topics.all, &(0..=number).collect::<Vec<_>>()).await;
        topics.write(50).await;
    }
    until("everything is read", PATIENCE, || seen.lock().unwrap().read() == topics.total()).await;
    // One leaves: the others take over.
    members.remove(0).leave().await;
    settled("a leave", &seen, &topics.all, &[1, 2]).await;
    for member in members {
        member.leave().await;
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.shared, Vec::<String>::new(), "two members owned a partition");
    seen.assert_each_once(&topics.all, topics.each);
    assert!(seen.calls.values().all(|(_, _, lost)| *lost == 0), "{:?}", seen.calls);
}
