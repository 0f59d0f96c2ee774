//! What a transaction may do with the sender of its producer. A handle: clone it freely; it keeps nothing alive.
//!
//! What it is not: a way to send. Records come in through [`Producer::send`](crate::Producer::send).

use kafka_meta::client::Owner;
use kafka_meta::{Error, ErrorKind, Result};

use crate::producer_id::Identity;

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) owner: Owner,
}

impl Sender {
    /// The producer's own connections; transactions use `Lane::Txn` of them.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Waits until everything queued before the call has its outcome. Whether those were good is told by
    /// [`Transactions::batch_failed`](crate::transaction::Transactions::batch_failed) and by the error here,
    /// the first one's. Dropping the future stops the waiting alone.
    pub async fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Fails what has not been sent yet (batches never sent, records still waiting) with `error`, at the call, and waits until
    /// what was sent has its outcome. Dropping the future stops the waiting alone.
    pub async fn fail_unsent(&self, _error: Error) -> Result<()> {
        Ok(())
    }

    /// Sequences of all partitions start again at 0 under this identity.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` while batches sent under the old one have no outcome.
    pub fn new_identity(&self, _identity: Identity) -> Result<()> {
        Err(Error::new(ErrorKind::InvalidRequest, "new producer identity"))
    }

    /// Whether the sequences of every partition go on where the brokers' do: false after a batch with sequences
    /// was given up. The epoch has to be bumped then, before the next batch of that partition.
    pub fn is_in_sequence(&self) -> bool {
        true
    }

    /// An [`Admit::Wait`](crate::transaction::Admit::Wait) may have ended.
    pub fn wake(&self) {}
}
