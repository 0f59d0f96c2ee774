//! Transactions: the boundary between the sender, which moves batches, and the transaction, which decides whether
//! they may move.
//!
//! What the sender does with it, always while it holds its own lock (**lock order: the sender's, then the
//! transaction's**; nothing here calls a [`Sender`] method with the transaction's lock held):
//! - [`Transactions::may_send`] when a record is queued: outside a transaction it is refused on the spot;
//! - [`Transactions::admit`] when a batch is about to leave;
//! - [`Transactions::batch_failed`] when a batch is lost, **before** the record's own future and before `flush` see
//!   it, so that a commit that has flushed knows of every failure.
//!
//! What the transaction does with the sender, through [`Sender`]: `flush` before it ends, `fail_unsent` when it
//! aborts, `new_identity` when an epoch begins, `wake` when an [`Admit::Wait`] may have ended.
//!
//! The decisions are the pure [`core`]'s; [`driver`] carries them out in a task of its own, so that no future of a
//! caller owns any progress; [`requests`] speaks the wire, and [`codes`] says what its codes mean.

use std::sync::Arc;
use std::time::Duration;

use kafka_meta::{Cluster, Error, ErrorKind, GroupMetadata, Positions, Result, TopicName};
use tokio::time::Instant;

use self::core::calls;
use self::driver::Shared;
use crate::ProducerConfig;
use crate::sender::Sender;

mod codes;
mod core;
mod driver;
mod requests;
#[cfg(test)]
mod tests;

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

/// The transactions of one transactional id. Clones share them; with the last one the task that serves them ends.
#[derive(Clone, Debug)]
pub(crate) struct Transactions {
    shared: Arc<Shared>,
    max_block: Duration,
    _guard: Arc<Guard>,
}

/// Ends the task, which holds [`Shared`] itself, with the last handle.
#[derive(Debug)]
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Transactions {
    /// Asks for nothing yet.
    pub fn new(cluster: Cluster, config: &ProducerConfig, id: &str) -> Transactions {
        let timeout = Duration::from_millis(u64::from(config.transaction_timeout_ms));
        let shared = Arc::new(Shared::new(cluster, id, timeout));
        Transactions { _guard: Arc::new(Guard(shared.clone())), shared, max_block: config.max_block() }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.max_block
    }

    /// Gets an identity, fencing whoever had the transactional id before. Called once, before any send; `sender`
    /// is kept.
    pub async fn init(&self, sender: Sender) -> Result<()> {
        const OPERATION: &str = "InitProducerId";
        if self.shared.id.is_empty() {
            return Err(
                Error::new(ErrorKind::InvalidRequest, OPERATION).with_detail("an empty transactional id")
            );
        }
        if self.shared.sender.set(sender).is_err() {
            return Err(Error::new(ErrorKind::InvalidRequest, OPERATION).with_detail("initialized already"));
        }
        let deadline = self.deadline();
        self.shared.step(|core| core.handle_init(deadline.into_std()));
        self.shared.wait(deadline, OPERATION, |core| core.outcome_of_init()).await
    }

    /// What Produce requests name.
    pub fn transactional_id(&self) -> &str {
        &self.shared.id
    }

    /// Whether a record may be queued now.
    pub fn may_send(&self) -> Result<()> {
        self.shared.look(core::Core::may_send)
    }

    /// Whether a batch of this partition may leave now.
    pub fn admit(&self, topic: TopicName, partition: i32) -> Admit {
        let admitted = self.shared.step_quietly(|core| core.admit(topic, partition));
        if matches!(admitted, Admit::Wait) {
            self.shared.wake();
        }
        admitted
    }

    /// A batch of the transaction failed; it can only be aborted, if even that.
    pub fn batch_failed(&self, error: &Error) {
        self.shared.step_and_ring(|core| core.batch_failed(error));
    }

    /// See [`Producer::begin_transaction`](crate::Producer::begin_transaction).
    pub async fn begin(&self) -> Result<()> {
        let deadline = self.deadline();
        self.shared.step(|core| core.handle_begin(deadline.into_std()));
        self.shared.wait(deadline, calls::BEGIN, core::Core::outcome_of_begin).await
    }

    /// See [`Producer::send_offsets_to_transaction`](crate::Producer::send_offsets_to_transaction).
    pub async fn send_offsets(&self, offsets: Positions, group: &GroupMetadata) -> Result<()> {
        let deadline = self.deadline();
        let queued = self.shared.step(|core| core.handle_offsets(deadline.into_std(), offsets, group))?;
        let Some(call) = queued else { return Ok(()) };
        let _forget = Forget { shared: &self.shared, call };
        let look = |core: &mut core::Core| core.outcome_of_offsets(call);
        self.shared.wait(deadline, calls::SEND_OFFSETS, look).await
    }

    /// See [`Producer::commit_transaction`](crate::Producer::commit_transaction).
    pub async fn commit(&self) -> Result<()> {
        let deadline = self.deadline();
        let number = self.shared.step(|core| core.handle_commit(deadline.into_std()))?;
        self.shared.wait(deadline, calls::COMMIT, |core| core.outcome_of_commit(number)).await
    }

    /// See [`Producer::abort_transaction`](crate::Producer::abort_transaction).
    pub async fn abort(&self) -> Result<()> {
        let deadline = self.deadline();
        let begun = self.shared.step_and_ring(|core| core.handle_abort(deadline.into_std()))?;
        let Some(number) = begun else { return Ok(()) };
        let look = |core: &mut core::Core| core.outcome_of_abort(number, deadline.into_std());
        self.shared.wait(deadline, calls::ABORT, look).await
    }

    /// The producer is being closed, its records flushed: an open transaction is aborted.
    pub async fn close(&self) -> Result<()> {
        let deadline = self.deadline();
        self.shared.step_and_ring(|core| core.handle_close(deadline.into_std()));
        let look = |core: &mut core::Core| core.outcome_of_close(deadline.into_std());
        self.shared.wait(deadline, calls::CLOSE, look).await
    }
}

/// Tells the core when nobody waits for the offsets' outcome any more.
struct Forget<'a> {
    shared: &'a Shared,
    call: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.step(|core| core.forget_offsets(self.call));
    }
}
