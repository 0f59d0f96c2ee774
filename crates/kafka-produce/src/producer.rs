//! The producer as callers hold it.

use kafka_meta::{Cluster, Error, ErrorKind, GroupMetadata, Positions, Result};

use crate::sender::Sender;
use crate::transaction::Transactions;
use crate::{ProducerConfig, ProducerRecord, RecordMetadata};

/// Writes records: idempotent by default, transactional when made by [`Producer::transactional`].
///
/// Cheap to clone; all clones are one producer, to be shared by every task that writes. Nothing runs before the
/// first async call. Dropping the last clone never blocks and sends nothing more: [`Producer::close`] or
/// [`Producer::flush`] first.
#[derive(Clone, Debug)]
pub struct Producer {
    config: std::sync::Arc<ProducerConfig>,
    transactions: Option<Transactions>,
}

impl Producer {
    /// A producer without transactions. Contradictory settings are reported by its first async call.
    pub fn new(_cluster: Cluster, config: ProducerConfig) -> Producer {
        Producer { config: config.into(), transactions: None }
    }

    /// A producer whose records are committed in transactions, under an id that is its alone: whoever had it
    /// before is fenced, and its open transaction aborted. Dropping the future abandons the producer; the
    /// fencing may have happened.
    pub async fn transactional(
        cluster: Cluster,
        config: ProducerConfig,
        transactional_id: &str,
    ) -> Result<Producer> {
        config.check(true)?;
        let transactions = Transactions::new(cluster.clone(), &config, transactional_id);
        transactions.init(Sender { owner: cluster.owner() }).await?;
        Ok(Producer { config: config.into(), transactions: Some(transactions) })
    }

    /// Sends a record; the result comes when the broker has acknowledged it. The record is queued at the first
    /// poll of the future and sent whatever happens to the future afterwards.
    pub async fn send(&self, _record: ProducerRecord) -> Result<RecordMetadata> {
        self.config.check(self.transactions.is_some())?;
        Err(Error::new(ErrorKind::UnsupportedApi, "send"))
    }

    /// Waits until everything queued before the call has its outcome; the error is that of the first record
    /// that failed. Dropping the future stops the waiting alone.
    pub async fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Begins a transaction. Purely local: the coordinator hears of it with the first record.
    pub async fn begin_transaction(&self) -> Result<()> {
        self.of("begin transaction")?.begin().await
    }

    /// Makes a group's offsets part of the transaction, so that they are stored if and only if it commits.
    pub async fn send_offsets_to_transaction(&self, offsets: Positions, group: &GroupMetadata) -> Result<()> {
        self.of("send offsets to transaction")?.send_offsets(offsets, group).await
    }

    /// Commits the transaction: waits for its records, then for the coordinator.
    pub async fn commit_transaction(&self) -> Result<()> {
        self.of("commit transaction")?.commit().await
    }

    /// Aborts the transaction: nothing of it is ever seen by readers of committed records.
    pub async fn abort_transaction(&self) -> Result<()> {
        self.of("abort transaction")?.abort().await
    }

    /// Flushes and ends the producer; an open transaction is aborted. Later sends are `Closed`. Dropping the
    /// future leaves the producer closing: call it again to wait again.
    pub async fn close(&self) -> Result<()> {
        match &self.transactions {
            Some(transactions) => transactions.close().await,
            None => Ok(()),
        }
    }

    fn of(&self, operation: &'static str) -> Result<&Transactions> {
        self.transactions.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, operation)
                .with_detail("the producer was not made by Producer::transactional")
        })
    }
}
