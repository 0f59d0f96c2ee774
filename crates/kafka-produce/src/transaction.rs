//! Transactions: the boundary between the sender, which moves batches, and the transaction, which decides whether
//! they may move.
//!
//! What the sender does with it, always while it holds its own lock (**lock order: the sender's, then the
//! transaction's**; nothing here calls a [`Sender`] method with the transaction's lock held):
//! - [`Transactions::may_send`] when a record is queued: outside a transaction it is refused on the spot;
//! - [`Transactions::admit`] when a batch is about to leave;
//! - [`Transactions::batch_failed`] and [`Transactions::batch_done`] when a batch has its outcome, **before** the
//!   record's own future and before `flush` see it, so that a commit that has flushed knows of every failure.
//!
//! What the transaction does with the sender, through [`Sender`]: `flush` before it ends, `fail_unsent` when it
//! aborts, `new_identity` when an epoch begins, `wake` when an [`Admit::Wait`] may have ended.

use kafka_meta::{Cluster, Error, ErrorKind, GroupMetadata, Positions, Result, TopicName};

use crate::ProducerConfig;
use crate::sender::Sender;

/// Whether a batch may leave.
#[derive(Debug)]
pub(crate) enum Admit {
    /// It may, in a Produce request no newer than this (11 under transaction version 1, 12 and above add the
    /// partition to the transaction by themselves).
    Go { max_produce_version: i16, transactional: bool },
    /// Not yet: the partition has to be in the transaction first. The transaction takes the partition down and
    /// calls [`Sender::wake`] when it is in.
    Wait,
    /// Never: the batch fails with this.
    No(Error),
}

/// The transactions of one transactional id.
#[derive(Clone, Debug)]
pub(crate) struct Transactions {
    id: std::sync::Arc<str>,
}

fn missing(operation: &'static str) -> Error {
    Error::new(ErrorKind::UnsupportedApi, operation).with_detail("transactions are not there yet")
}

impl Transactions {
    /// Asks for nothing yet.
    pub fn new(_cluster: Cluster, _config: &ProducerConfig, id: &str) -> Transactions {
        Transactions { id: id.into() }
    }

    /// Gets an identity, fencing whoever had the transactional id before. Called once, before any send; `sender`
    /// is kept.
    pub async fn init(&self, _sender: Sender) -> Result<()> {
        Err(missing("InitProducerId"))
    }

    /// What Produce requests name.
    pub fn transactional_id(&self) -> &str {
        &self.id
    }

    /// Whether a record may be queued now.
    pub fn may_send(&self) -> Result<()> {
        Err(missing("send"))
    }

    /// Whether a batch of this partition may leave now.
    pub fn admit(&self, _topic: TopicName, _partition: i32) -> Admit {
        Admit::No(missing("send"))
    }

    /// A batch sent within the transaction was acknowledged.
    pub fn batch_done(&self) {}

    /// A batch of the transaction failed; it can only be aborted, if even that.
    pub fn batch_failed(&self, _error: &Error) {}

    /// See [`Producer::begin_transaction`](crate::Producer::begin_transaction).
    pub async fn begin(&self) -> Result<()> {
        Err(missing("begin transaction"))
    }

    /// See [`Producer::send_offsets_to_transaction`](crate::Producer::send_offsets_to_transaction).
    pub async fn send_offsets(&self, _offsets: Positions, _group: &GroupMetadata) -> Result<()> {
        Err(missing("send offsets to transaction"))
    }

    /// See [`Producer::commit_transaction`](crate::Producer::commit_transaction).
    pub async fn commit(&self) -> Result<()> {
        Err(missing("commit transaction"))
    }

    /// See [`Producer::abort_transaction`](crate::Producer::abort_transaction).
    pub async fn abort(&self) -> Result<()> {
        Err(missing("abort transaction"))
    }

    /// The producer is being closed, its records flushed: an open transaction is aborted.
    pub async fn close(&self) -> Result<()> {
        Ok(())
    }
}
