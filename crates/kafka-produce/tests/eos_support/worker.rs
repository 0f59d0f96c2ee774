//! A worker as the guide says one is written: poll, produce, offsets into the transaction, commit; and what it does
//! about errors.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt;
use futures::future::join_all;
use kafka_consume::{Cluster, ConsumerConfig, Records, TopicName};
use kafka_produce::{Error, Producer, ProducerConfig, ProducerRecord, Result};

use super::Names;
use super::source::{Kind, Source};

/// What is got wrong on purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sabotage {
    None,
    /// The consumer commits, before the transaction does.
    CommitOutside,
    /// After an abort the worker reads on, in place of reading again.
    ForgetToRewind,
    /// The consumer polls once more before the positions are taken.
    PollAgain,
}

#[derive(Clone)]
pub struct Plan {
    pub kind: Kind,
    pub cluster: Cluster,
    pub consumer: ConsumerConfig,
    pub producer: ProducerConfig,
    pub id: String,
    pub names: Names,
    pub partitions: Vec<i32>,
    pub outputs: i32,
    /// Futures are dropped and the calls made again.
    pub impatient: bool,
    pub sabotage: Sabotage,
    pub seed: u64,
    /// Somebody else has been started in its place: once it is fenced, it is over.
    pub retired: Arc<AtomicBool>,
    pub stop: Arc<AtomicBool>,
    pub committed: Arc<AtomicU64>,
    pub fenced: Arc<AtomicU64>,
}

/// Calls again what has run out of time, and what an impatient worker dropped.
macro_rules! patient {
    ($worker:expr, $call:expr) => {
        loop {
            let wait = Duration::from_millis($worker.rng.u64(1..400));
            let result = if $worker.plan.impatient && $worker.rng.u8(..3) == 0 {
                match tokio::time::timeout(wait, $call).await {
                    Ok(result) => result,
                    Err(_) => continue,
                }
            } else {
                $call.await
            };
            match result {
                Err(error) if error.is_retriable() => tracing::debug!(%error, "called again"),
                result => break result,
            }
        }
    };
}

struct Worker {
    plan: Plan,
    rng: Rng,
}

/// Runs until it is told to stop or, retired, is fenced.
pub async fn work(plan: Plan) {
    let rng = Rng::with_seed(plan.seed);
    let mut worker = Worker { plan, rng };
    loop {
        match worker.live().await {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(id = worker.plan.id, %error, "a worker begins anew");
                if worker.plan.stop.load(Ordering::Relaxed) {
                    return;
                }
                if error.is_fatal() {
                    worker.plan.fenced.fetch_add(1, Ordering::Relaxed);
                    if worker.plan.retired.load(Ordering::Relaxed) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Where a batch begins in each partition.
fn starts(records: &Records) -> HashMap<(TopicName, i32), i64> {
    let mut starts = HashMap::new();
    for record in records.iter() {
        starts.entry((record.topic, record.partition)).or_insert(record.offset);
    }
    starts
}

impl Worker {
    /// One producer and one consumer, until an error that neither survives.
    async fn live(&mut self) -> Result<()> {
        let Plan { kind, cluster, consumer, producer, id, names, partitions, .. } = self.plan.clone();
        // Before the first position is read: what an earlier one left open is decided by now.
        let producer = Producer::transactional(cluster.clone(), producer, &id).await?;
        let mut source = Source::start(kind, &cluster, consumer, &names, &partitions).await?;
        while !self.plan.stop.load(Ordering::Relaxed) {
            let records = match source.poll().await {
                Ok(records) => records,
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a poll failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            if records.is_empty() {
                continue;
            }
            let starts = starts(&records);
            match self.copy(&producer, &mut source, records).await {
                Ok(()) => {
                    self.plan.committed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "a transaction is aborted");
                    self.abort(&producer).await?;
                    if self.plan.sabotage == Sabotage::ForgetToRewind {
                    } else if self.rng.bool() {
                        // One that fails has moved nothing: the worker begins anew.
                        source.seek_to_committed().await?;
                    } else {
                        for ((topic, partition), offset) in starts {
                            // One that has gone meanwhile is read by its new owner.
                            let _ = source.seek(topic.as_str(), partition, offset);
                        }
                    }
                }
            }
        }
        source.leave().await?;
        producer.close().await
    }

    async fn copy(&mut self, producer: &Producer, source: &mut Source, records: Records) -> Result<()> {
        patient!(self, producer.begin_transaction())?;
        let mut sends = Vec::new();
        for record in records {
            let out = ProducerRecord::new(self.plan.names.output.as_str())
                .partition(record.partition % self.plan.outputs)
                .key(record.partition.to_string())
                .value(record.value.unwrap_or_default());
            // The order of the records is that of the first polls.
            let mut send = Box::pin(producer.send(out));
            match send.as_mut().now_or_never() {
                Some(sent) => drop(sent?),
                // Sent whatever becomes of the future: the commit knows how it went.
                None if self.plan.impatient && self.rng.u8(..8) == 0 => {}
                None => sends.push(send),
            }
        }
        for sent in join_all(sends).await {
            sent?;
        }
        if self.plan.sabotage == Sabotage::CommitOutside {
            source.commit().await?;
        }
        if self.plan.sabotage == Sabotage::PollAgain {
            drop(source.poll().await?);
        }
        let (positions, group) = (source.positions(), source.group_metadata()?);
        patient!(self, producer.send_offsets_to_transaction(positions.clone(), &group))?;
        patient!(self, producer.commit_transaction())
    }

    async fn abort(&mut self, producer: &Producer) -> Result<()> {
        patient!(self, producer.abort_transaction())
    }
}

/// For assertions about what an error allows.
pub fn describe(error: &Error) -> &'static str {
    match (error.is_fatal(), error.needs_abort(), error.is_retriable()) {
        (true, false, false) => "fatal",
        (false, true, false) => "abort",
        (false, false, true) => "again",
        (false, false, false) => "caller",
        _ => "contradictory",
    }
}
