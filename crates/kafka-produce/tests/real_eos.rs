//! Exactly once on real brokers: workers of every consumer kind copy topics in transactions while they crash, are
//! replaced while they live on, and a broker dies and comes back. Kafka's own consumer reads the result.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod eos_support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eos_support::source::{self, Kind};
use eos_support::worker::{Plan, Sabotage, work};
use eos_support::{Names, oracle, value};
use fastrand::Rng;
use futures::future::join_all;
use kafka_consume::{Cluster, Consumer, ConsumerConfig, Position};
use kafka_produce::ProducerConfig;
use testkit::java::Java;
use testkit::produce::{Message, Writer};
use testkit::{Kafka, kafka};
use tokio::task::JoinHandle;

const INPUTS: i32 = 3;
const OUTPUTS: i32 = 2;
const WORKERS: usize = 2;

/// One group of workers.
struct Copying {
    plan: Plan,
    each: i64,
    rng: Rng,
    running: Vec<(usize, Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Copying {
    /// Topics with `each` records in every partition of the input.
    async fn new(kafka: &Kafka, kind: Kind, replicas: i16, each: i64) -> Copying {
        let names = Names::of(&format!("{kind:?}").to_lowercase());
        kafka.create_topic(&names.input, INPUTS, replicas, &[]).await.unwrap();
        kafka.create_topic(&names.output, OUTPUTS, replicas, &[]).await.unwrap();
        let mut writer = Writer::new(&kafka.bootstrap());
        for partition in 0..INPUTS {
            let all = (0..each).map(|number| Message::value(value(partition, number)));
            writer.send(&names.input, partition, all).await.unwrap();
        }
        let plan = Plan {
            kind,
            cluster: Cluster::connect(&kafka.bootstrap()).await.unwrap(),
            consumer: source::config().max_poll_records(10),
            producer: ProducerConfig::new().transaction_timeout_ms(20_000),
            id: String::new(),
            names,
            partitions: Vec::new(),
            outputs: OUTPUTS,
            impatient: true,
            sabotage: Sabotage::None,
            seed: 0,
            retired: Arc::default(),
            stop: Arc::default(),
            committed: Arc::new(AtomicU64::new(0)),
            fenced: Arc::new(AtomicU64::new(0)),
        };
        Copying { plan, each, rng: Rng::with_seed(7), running: Vec::new() }
    }

    fn start(&mut self, worker: usize) {
        let partitions = (0..INPUTS).filter(|one| *one as usize % WORKERS == worker).collect();
        let plan = Plan {
            id: format!("{}-{worker}", self.plan.names.group),
            partitions,
            seed: self.rng.u64(..),
            retired: Arc::default(),
            ..self.plan.clone()
        };
        let retired = plan.retired.clone();
        self.running.push((worker, retired, tokio::spawn(work(plan))));
    }

    /// A crash, or somebody in the place of one that lives on.
    fn replace(&mut self, zombie: bool) {
        let at = self.rng.usize(..self.running.len());
        let worker = self.running[at].0;
        if zombie {
            self.running[at].1.store(true, Ordering::Relaxed);
        } else {
            self.running.swap_remove(at).2.abort();
        }
        self.start(worker);
    }

    async fn committed(&self) -> BTreeMap<i32, i64> {
        let config = ConsumerConfig::new().group_id(self.plan.names.group.clone());
        let mut reader = Consumer::new(self.plan.cluster.clone(), config);
        let all = (0..INPUTS).map(|partition| (self.plan.names.input.clone(), partition));
        reader.assign(all, Position::Offset(0)).await.unwrap();
        let stored = reader.committed().await.unwrap_or_default();
        let at =
            |partition| stored.get(&(self.plan.names.input.clone(), partition)).map_or(0, |at| at.offset);
        (0..INPUTS).map(|partition| (partition, at(partition))).collect()
    }

    async fn finish(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let committed = self.committed().await;
            if committed.values().all(|at| *at == self.each) {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{:?} stands at {committed:?} of {}",
                self.plan.kind,
                self.each
            );
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        self.plan.stop.store(true, Ordering::Relaxed);
        for (_, _, task) in self.running.drain(..) {
            tokio::time::timeout(Duration::from_secs(60), task).await.expect("a worker that ends").unwrap();
        }
    }
}

/// Crashes and zombies, in the middle of them `break_it`, at their end `mend_it`; then the judgement.
async fn copy_all(
    kafka: &Kafka,
    kinds: &[Kind],
    (replicas, each): (i16, i64),
    break_it: impl FnOnce(),
    mend_it: impl AsyncFnOnce(),
) {
    kafka.ready_for_groups().await.unwrap();
    kafka.ready_for_transactions().await.unwrap();
    let mut all = join_all(kinds.iter().map(|kind| Copying::new(kafka, *kind, replicas, each))).await;
    for copying in &mut all {
        (0..WORKERS).for_each(|worker| copying.start(worker));
    }
    let mut rng = Rng::with_seed(11);
    let mut break_it = Some(break_it);
    for round in 0..3 {
        if round == 1
            && let Some(break_it) = break_it.take()
        {
            break_it();
        }
        for (at, copying) in all.iter_mut().enumerate() {
            tokio::time::sleep(Duration::from_millis(rng.u64(100..700))).await;
            copying.replace((round + at) % 3 == 1);
        }
    }
    mend_it().await;
    let copied: u64 = all.iter().map(|copying| copying.plan.committed.load(Ordering::Relaxed)).sum();
    join_all(all.iter_mut().map(Copying::finish)).await;

    let java = Java::new(kafka).await.unwrap();
    let topics: Vec<&str> = all.iter().map(|copying| copying.plan.names.output.as_str()).collect();
    let records = java.read(&topics, true).await.unwrap();
    let mut fences = 0;
    for copying in &all {
        let Plan { kind, names, committed, fenced, .. } = &copying.plan;
        let mut seen = BTreeMap::new();
        for record in records.iter().filter(|record| record.topic == names.output) {
            oracle::note(&mut seen, record.value.as_ref().unwrap());
        }
        println!(
            "{kind:?}: {committed:?} transactions, {fenced:?} fatal errors, {copied} in all before the end"
        );
        fences += fenced.load(Ordering::Relaxed);
        let offsets = copying.committed().await;
        if let Err(wrong) = oracle::judge(&seen, &offsets) {
            panic!("{kind:?}: {wrong}");
        }
        assert!(offsets.values().all(|at| *at == each));
    }
    assert!(fences > 0, "somebody lived on after another had taken its id");
    // The console consumer agrees about the number: one more would let it run into its time limit.
    let count = usize::try_from(each * i64::from(INPUTS)).unwrap();
    let first = &all[0].plan.names.output;
    let isolation = ["--isolation-level", "read_committed"];
    let mut lines = java.console_consume(first, count, &isolation).await.unwrap();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_copies_exactly_once_while_workers_crash_and_a_broker_dies() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .nodes(3)
        .quick_groups()
        .quick_failover()
        .property("transaction.state.log.num.partitions", "6")
        .property("offsets.topic.num.partitions", "6")
        .start()
        .await
        .unwrap();
    let kinds = [Kind::Group, Kind::Classic, Kind::Negotiated, Kind::Manual];
    let kill = || kafka.kill_node(2).unwrap();
    let restart = async || kafka.restart_node(2).await.unwrap();
    copy_all(&kafka, &kinds, (3, 400), kill, restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_1_of_the_protocol_copies_exactly_once_as_well() {
    if !kafka::enabled() {
        return;
    }
    let kafka = Kafka::builder()
        .version("3.9.1")
        .property("transaction.state.log.num.partitions", "2")
        .property("offsets.topic.num.partitions", "2")
        .property("group.min.session.timeout.ms", "1000")
        .start()
        .await
        .unwrap();
    let kinds = [Kind::Classic, Kind::Negotiated, Kind::Manual];
    copy_all(&kafka, &kinds, (1, 300), || {}, async || {}).await;
}
