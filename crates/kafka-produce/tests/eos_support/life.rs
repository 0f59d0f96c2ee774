//! One seeded life of a group of workers on the embedded broker: what happens to them, and the judgement.
//!
//! Phases: trouble, then everybody is killed and the open transactions are taken over; the judgement there is the sharp
//! one, for offsets and records must agree at any moment. At last workers without trouble finish the input, and the
//! judgement is about all of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use kafka_meta::Cluster;
use kafka_produce::{Producer, ProducerConfig};
use kafka_protocol::messages::ApiKey;
use testkit::embedded::{Embedded, TopicSpec};
use tokio::task::JoinHandle;

use super::source::{self, Kind};
use super::worker::{Plan, Sabotage, work};
use super::{Names, oracle, value};

const IN: &str = "in";
const OUT: &str = "out";
const GROUP: &str = "copy";

const NODES: i32 = 3;

pub struct Life {
    rng: Rng,
    kafka: Embedded,
    cluster: Cluster,
    inputs: i32,
    outputs: i32,
    written: Vec<i64>,
    plan: Plan,
    workers: usize,
    running: Vec<(usize, Arc<AtomicBool>, JoinHandle<()>)>,
    down: Option<i32>,
}

/// What a life came to.
#[derive(Debug, Default)]
pub struct Sum {
    pub committed: u64,
    pub fenced: u64,
}

impl Life {
    pub async fn new(seed: u64, kind: Kind, sabotage: Sabotage) -> Life {
        let mut rng = Rng::with_seed(seed);
        let kafka = Embedded::start(NODES);
        kafka.set_group_timing(Duration::from_secs(6), Duration::from_secs(1));
        let (inputs, outputs) = (rng.i32(1..=4), rng.i32(1..=3));
        kafka.create_topic_with(IN, TopicSpec::new(inputs).with_replicas(3));
        kafka.create_topic_with(OUT, TopicSpec::new(outputs).with_replicas(3));
        kafka.set_transaction_version(Some(if rng.bool() { 2 } else { 1 }));
        kafka.delay_markers(Duration::from_millis(if rng.bool() { rng.u64(..300) } else { 0 }));
        let config = kafka.config().with_request_timeout(Duration::from_secs(3));
        let cluster = Cluster::connect_with(config).await.unwrap();
        let workers = if kind == Kind::Manual { rng.usize(1..=inputs as usize) } else { rng.usize(1..=3) };
        let plan = Plan {
            kind,
            cluster: cluster.clone(),
            consumer: source::config().max_poll_records(rng.usize(1..12)),
            producer: ProducerConfig::new()
                .linger_ms(rng.u32(..20))
                .request_timeout_ms(3_000)
                .delivery_timeout_ms(rng.u32(4_000..20_000))
                .max_block_ms(rng.u32(2_000..20_000))
                .transaction_timeout_ms(rng.u32(8_000..60_000)),
            id: String::new(),
            names: Names { input: IN.into(), output: OUT.into(), group: GROUP.into() },
            partitions: Vec::new(),
            outputs,
            impatient: rng.bool(),
            sabotage,
            seed: 0,
            retired: Arc::default(),
            stop: Arc::default(),
            committed: Arc::new(AtomicU64::new(0)),
            fenced: Arc::new(AtomicU64::new(0)),
        };
        let written = vec![0; inputs as usize];
        let mut life = Life {
            rng,
            kafka,
            cluster,
            inputs,
            outputs,
            written,
            plan,
            workers,
            running: Vec::new(),
            down: None,
        };
        life.write(40);
        life
    }

    fn write(&mut self, about: usize) {
        for partition in 0..self.inputs {
            let first = self.written[partition as usize];
            let count = self.rng.i64(0..=about as i64);
            let values = (first..first + count).map(|number| ("", value(partition, number)));
            if count > 0 {
                self.kafka.append_records(IN, partition, values);
            }
            self.written[partition as usize] += count;
        }
    }

    fn id(worker: usize) -> String {
        format!("copy-{worker}")
    }

    fn start(&mut self, worker: usize) {
        let partitions = (0..self.inputs).filter(|one| *one as usize % self.workers == worker).collect();
        let plan = Plan {
            id: Life::id(worker),
            partitions,
            seed: self.rng.u64(..),
            retired: Arc::default(),
            ..self.plan.clone()
        };
        let retired = plan.retired.clone();
        self.running.push((worker, retired, tokio::spawn(work(plan))));
    }

    /// Something happens.
    fn trouble(&mut self) {
        let rng = &mut self.rng;
        let apis = [
            ApiKey::Produce,
            ApiKey::Produce,
            ApiKey::InitProducerId,
            ApiKey::AddPartitionsToTxn,
            ApiKey::AddOffsetsToTxn,
            ApiKey::TxnOffsetCommit,
            ApiKey::TxnOffsetCommit,
            ApiKey::EndTxn,
            ApiKey::EndTxn,
            ApiKey::EndTxn,
            ApiKey::FindCoordinator,
            ApiKey::OffsetFetch,
        ];
        let api = apis[rng.usize(..apis.len())];
        let (times, node) = (rng.u64(1..4), rng.i32(1..=NODES));
        let partition = rng.i32(..self.outputs);
        match rng.u8(..16) {
            0..=2 => drop(self.kafka.fault(api).times(times).drop_connection_after()),
            3..=4 => drop(self.kafka.fault(api).times(times).drop_connection_before()),
            5 => drop(self.kafka.fault(api).times(times).delay(Duration::from_millis(rng.u64(..4_000)))),
            6 => {
                drop(self.kafka.fault(api).times(times).delay_answer(Duration::from_millis(rng.u64(..4_000))))
            }
            14..=15 => {
                drop(self.kafka.fault(api).times(times).arrive_late(Duration::from_millis(rng.u64(..6_000))))
            }
            7 => {
                let codes: &[i16] = match api {
                    ApiKey::Produce => &[6, 7, 19, 51],
                    ApiKey::FindCoordinator => &[15],
                    ApiKey::OffsetFetch => &[14, 16],
                    _ => &[14, 15, 16, 51],
                };
                let code = codes[rng.usize(..codes.len())];
                drop(self.kafka.fault(api).times(times).error(code));
            }
            8 => self.kafka.move_coordinator(&Life::id(rng.usize(..self.workers)), node),
            9 => self.kafka.move_coordinator(GROUP, node),
            10 => drop(self.kafka.move_leader(OUT, partition, node)),
            11 if self.down.is_none() => {
                self.kafka.kill_node(node);
                if rng.bool() {
                    self.kafka.fail_over(node);
                }
                self.down = Some(node);
            }
            11 => self.up(),
            12 => {
                // A crash: dropped wherever it stood.
                let at = rng.usize(..self.running.len());
                let (worker, _, task) = self.running.swap_remove(at);
                task.abort();
                self.start(worker);
            }
            _ => {
                // A zombie: it lives on while another has its id.
                let at = rng.usize(..self.running.len());
                let (worker, retired, _) = &self.running[at];
                retired.store(true, Ordering::Relaxed);
                let worker = *worker;
                self.start(worker);
            }
        }
    }

    fn up(&mut self) {
        if let Some(node) = self.down.take() {
            self.kafka.fail_over(node);
            self.kafka.start_node(node);
        }
    }

    pub async fn run(mut self) -> Result<Sum, String> {
        for worker in 0..self.workers {
            self.start(worker);
        }
        for _ in 0..self.rng.usize(5..25) {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..3_000))).await;
            self.trouble();
            if self.rng.u8(..4) == 0 {
                self.write(10);
            }
        }
        for (_, _, task) in self.running.drain(..) {
            task.abort();
        }
        self.up();
        self.kafka.clear_faults();
        self.judge("when everybody was killed").await?;

        let finished: Vec<i64> = self.written.clone();
        for worker in 0..self.workers {
            self.start(worker);
        }
        let done = |kafka: &Embedded| {
            finished
                .iter()
                .enumerate()
                .all(|(partition, end)| kafka.committed(GROUP, IN, partition as i32).unwrap_or(0) >= *end)
        };
        let complete = self.kafka.until(Duration::from_secs(300), done).await;
        self.plan.stop.store(true, Ordering::Relaxed);
        for (_, _, task) in self.running.drain(..) {
            let _ = tokio::time::timeout(Duration::from_secs(60), task).await;
        }
        if !complete {
            let at: Vec<_> =
                (0..self.inputs).map(|partition| self.kafka.committed(GROUP, IN, partition)).collect();
            return Err(format!("the input is not finished: {at:?} of {finished:?}"));
        }
        self.judge("at the end").await?;
        Ok(Sum {
            committed: self.plan.committed.load(Ordering::Relaxed),
            fenced: self.plan.fenced.load(Ordering::Relaxed),
        })
    }

    async fn judge(&self, when: &str) -> Result<(), String> {
        for worker in 0..self.workers {
            let config = ProducerConfig::new();
            Producer::transactional(self.cluster.clone(), config, &Life::id(worker))
                .await
                .map_err(|error| format!("{when}: {error}"))?;
        }
        let settled = |kafka: &Embedded| {
            (0..self.outputs).all(|at| kafka.last_stable_offset(OUT, at) == kafka.log_end(OUT, at))
        };
        if !self.kafka.until(Duration::from_secs(60), settled).await {
            return Err(format!("{when}: a transaction stays open"));
        }
        let committed: BTreeMap<i32, i64> = (0..self.inputs)
            .map(|partition| (partition, self.kafka.committed(GROUP, IN, partition).unwrap_or(0)))
            .collect();
        let seen = oracle::read_output(&self.cluster, OUT, self.outputs).await;
        oracle::judge(&seen, &committed).map_err(|wrong| format!("{when}: {wrong}"))
    }
}
