//! The producer as callers hold it. Every future here only waits: what it waits for was handed to the engine at its first
//! poll.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kafka_meta::{Cluster, Error, ErrorKind, GroupMetadata, Positions, Result};

use crate::engine::Sent;
use crate::sender::Sender;
use crate::shared::{Shared, settled};
use crate::transaction::Transactions;
use crate::{ProducerConfig, ProducerMetrics, ProducerRecord, RecordMetadata};

/// Writes records: idempotent by default, transactional when made by [`Producer::transactional`].
///
/// Cheap to clone; all clones are one producer, to be shared by every task that writes. Nothing runs before the
/// first async call. Dropping the last clone never blocks, needs no runtime, and sends nothing more:
/// [`Producer::close`] or [`Producer::flush`] first.
#[derive(Clone, Debug)]
pub struct Producer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (bytes, records) = self.shared.unsent();
        if bytes > 0 || records > 0 {
            tracing::warn!(bytes, records, "a producer was dropped with records that have no outcome");
        }
        self.shared.stop();
    }
}

impl Producer {
    /// A producer without transactions. Contradictory settings are reported by its first async call.
    pub fn new(cluster: Cluster, config: ProducerConfig) -> Producer {
        let owner = cluster.owner();
        Producer { inner: Arc::new(Inner { shared: Shared::new(cluster, config, None, owner) }) }
    }

    /// A producer whose records are committed in transactions, under an id that is its alone: whoever had it
    /// before is fenced, and the transaction it left open is aborted. The id has to be the same after a restart,
    /// and another for each worker that runs at the same time. The loop that needs it is
    /// in `docs/exactly-once.md`.
    ///
    /// Bounded by `max_block_ms`. Dropping the future abandons the producer; the fencing may have happened.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` for an empty id or contradictory settings, or when `transaction_timeout_ms` is above what
    /// the broker allows; `Authorization`; `Timeout`.
    pub async fn transactional(
        cluster: Cluster,
        config: ProducerConfig,
        transactional_id: &str,
    ) -> Result<Producer> {
        config.check(true)?;
        let transactions = Transactions::new(cluster.clone(), &config, transactional_id);
        let owner = cluster.owner();
        let shared = Shared::new(cluster, config, Some(transactions.clone()), owner);
        let producer = Producer { inner: Arc::new(Inner { shared: Arc::clone(&shared) }) };
        shared.start()?;
        transactions.init(Sender::new(&shared)).await?;
        Ok(producer)
    }

    /// Sends a record; the result comes when the brokers have acknowledged it, as `acks` asks. The record is
    /// queued at the first poll of the future and sent whatever happens to the future afterwards; records of one
    /// partition are written in the order of those polls.
    ///
    /// While `buffer_memory` is used up the record waits for room, first come first served, and while the topic is
    /// not known it waits for that: together for `max_block_ms` at most. It waits whether or not the future is
    /// dropped; a caller that drops futures has no back-pressure.
    ///
    /// # Errors
    ///
    /// `Timeout` when there was no room, or when `delivery_timeout_ms` has passed: the record may have been
    /// written; `UnknownTopic` when the topic or the partition does not exist; `BatchTooLarge`;
    /// `InvalidRequest` for contradictory settings; `Closed`; what a broker refused. What heals by itself (leaders
    /// that move, connections that break, brokers that restart) is never one.
    pub async fn send(&self, record: ProducerRecord) -> Result<RecordMetadata> {
        let shared = &self.inner.shared;
        let topic = record.topic;
        shared.start().map_err(|error| error.with_topic(topic))?;
        let timestamp = record.timestamp.unwrap_or_else(now);
        let place = match shared.send(record, timestamp)? {
            Sent::Placed(place) => place,
            Sent::Waiting(placement) => placement.place().await?,
        };
        let written = place.delivery.outcome(place.index).await?;
        Ok(RecordMetadata {
            topic,
            partition: place.partition,
            offset: written.offset,
            timestamp: written.append_time.unwrap_or(timestamp),
        })
    }

    /// Sends what lingers and waits until every record queued before the call has its outcome. Dropping the
    /// future stops the waiting alone.
    ///
    /// # Errors
    ///
    /// That of the first record, among those it waited for, that failed.
    pub async fn flush(&self) -> Result<()> {
        let shared = &self.inner.shared;
        shared.start()?;
        settled(shared.with(|engine| engine.handle_flush())).await
    }

    /// Begins a transaction. Purely local: the coordinator hears of it with the first record. A commit or an abort
    /// whose future was dropped is finished first. Records sent from now on belong to the transaction; outside of
    /// one a transactional producer refuses them.
    ///
    /// Bounded by `max_block_ms`. Dropping the future before it is ready begins nothing.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` inside a transaction, and for a producer without transactions; `Timeout` while the last
    /// transaction has not ended; `Closed`. One with [`Error::needs_abort`] says that the last transaction has to be
    /// aborted, one with [`Error::is_fatal`] that this producer can do nothing more.
    pub async fn begin_transaction(&self) -> Result<()> {
        self.of("begin transaction")?.begin().await
    }

    /// Makes a group's offsets part of the transaction, so that they are stored if and only if it commits. Take
    /// them with `positions()` and `group_metadata()` from the consumer, in this order, after its records were
    /// handed to [`send`](Self::send) and before its next poll. Empty positions do nothing.
    ///
    /// The member's identity travels along: a member whose partitions have been given away cannot commit them.
    ///
    /// Bounded by `max_block_ms`. When the future is dropped, or runs out of time, the offsets stay on their way:
    /// the commit waits for them. To call it again does no harm; the later offset of a partition is stored.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` outside a transaction, for a negative offset or an empty group id: nothing has changed.
    /// `Timeout`: undecided, see above. Everything else has [`Error::needs_abort`] or [`Error::is_fatal`]: `Fenced`
    /// for a member whose generation has passed or a producer that was replaced, `Authorization`, `UnknownTopic`.
    pub async fn send_offsets_to_transaction(&self, offsets: Positions, group: &GroupMetadata) -> Result<()> {
        self.of("send offsets to transaction")?.send_offsets(offsets, group).await
    }

    /// Commits the transaction: waits for its records and offsets, then for the coordinator. Records that others
    /// try to send meanwhile are refused. When one record or offset has failed nothing is committed.
    ///
    /// Bounded by `max_block_ms`. Dropping the future does not stop the commit. Called again, it goes on with the
    /// same commit and tells its outcome; [`begin_transaction`](Self::begin_transaction) finishes it first.
    ///
    /// # Errors
    ///
    /// `Timeout`: undecided; call it again. With [`Error::needs_abort`]: nothing is committed, the transaction has
    /// to be aborted. With [`Error::is_fatal`]: this producer was fenced, or nobody can tell how the transaction
    /// ended. `InvalidRequest` without a transaction.
    pub async fn commit_transaction(&self) -> Result<()> {
        self.of("commit transaction")?.commit().await
    }

    /// Aborts the transaction: nothing of it is ever seen by readers of committed records. What was not sent is
    /// dropped, what was is waited for. To abort again does no harm.
    ///
    /// A commit that the coordinator has been asked for cannot be taken back: its outcome is waited for, and if it
    /// is committed this is an error that says so.
    ///
    /// Bounded by `max_block_ms`. Dropping the future does not stop the abort; called again, it goes on.
    ///
    /// # Errors
    ///
    /// `Timeout`: undecided; call it again. `InvalidRequest` without a transaction, or when it turned out to be
    /// committed. With [`Error::is_fatal`]: this producer was fenced.
    pub async fn abort_transaction(&self) -> Result<()> {
        self.of("abort transaction")?.abort().await
    }

    /// What the producer counts.
    pub fn metrics(&self) -> ProducerMetrics {
        self.inner.shared.read(ProducerMetrics::of)
    }

    /// Takes no more records, sends what is there, waits for every outcome and ends the background work; an open
    /// transaction is aborted. Later sends are `Closed`. Dropping the future leaves the producer closing: call it
    /// again to wait again.
    ///
    /// # Errors
    ///
    /// As [`Producer::flush`]; the producer is closed all the same.
    pub async fn close(&self) -> Result<()> {
        let shared = &self.inner.shared;
        let outstanding = shared.with(|engine| {
            engine.handle_close();
            engine.handle_flush()
        });
        let mut outcome = settled(outstanding).await;
        if let Some(transactions) = &shared.transactions {
            outcome = outcome.and(transactions.close().await);
        }
        shared.stop();
        outcome
    }

    fn of(&self, operation: &'static str) -> Result<&Transactions> {
        self.inner.shared.transactions.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, operation)
                .with_detail("the producer was not made by Producer::transactional")
        })
    }
}

/// Milliseconds since the epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
