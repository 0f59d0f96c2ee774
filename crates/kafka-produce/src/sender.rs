//! What a transaction may do with the sender of its producer. A handle: clone it freely; it keeps nothing alive, and
//! after the producer has gone every method is `Closed`.
//!
//! What it is not: a way to send. Records come in through [`Producer::send`](crate::Producer::send).

use std::sync::{Arc, Weak};

use kafka_meta::client::Owner;
use kafka_meta::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::producer_id::Identity;
use crate::shared::{Shared, settled};

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    shared: Weak<Shared>,
    owner: Owner,
}

impl Sender {
    pub fn new(shared: &Arc<Shared>) -> Sender {
        Sender { shared: Arc::downgrade(shared), owner: shared.owner.clone() }
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        self.shared.upgrade().ok_or_else(|| Error::new(ErrorKind::Closed, "producer"))
    }

    /// The producer's own connections; transactions use `Lane::Txn` of them.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Waits until everything queued before the call has its outcome. Whether those were good is told by
    /// [`Transactions::batch_failed`](crate::transaction::Transactions::batch_failed) and by the error here,
    /// the first one's. Dropping the future stops the waiting alone.
    pub async fn flush(&self) -> Result<()> {
        let shared = self.shared()?;
        // The runtime its tasks were on may have gone.
        shared.start()?;
        let outstanding = shared.with(|engine| engine.handle_flush());
        drop(shared);
        settled(outstanding).await
    }

    /// Fails what is not in flight (batches, and records still waiting) with `error`, at the first poll, and waits
    /// until what is has its outcome, which may be an error as well: nothing is sent again meanwhile. Dropping the
    /// future stops the waiting alone.
    pub async fn fail_unsent(&self, error: Error) -> Result<()> {
        let now = Instant::now().into_std();
        let shared = self.shared()?;
        shared.start()?;
        let outstanding = shared.with(|engine| engine.handle_fail_unsent(now, &error));
        // It lives as long as the producer, not as this wait.
        drop(shared);
        // Each record has been told its own; here only the end counts.
        let _ = settled(outstanding).await;
        self.shared()?.with(crate::engine::Engine::handle_dropped);
        Ok(())
    }

    /// Sequences of all partitions start again at 0 under this identity.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` while batches sent under the old one have no outcome.
    pub fn new_identity(&self, identity: Identity) -> Result<()> {
        self.shared()?.with(|engine| engine.handle_new_identity(identity))
    }

    /// Whether the sequences of every partition go on where the brokers' do: false after a batch with sequences
    /// was given up. The epoch has to be bumped then, before the next batch of that partition; until then its new
    /// batches stay.
    pub fn is_in_sequence(&self) -> bool {
        self.shared().is_ok_and(|shared| shared.read(crate::engine::Engine::is_in_sequence))
    }

    /// An [`Admit::Wait`](crate::transaction::Admit::Wait) may have ended.
    pub fn wake(&self) {
        if let Ok(shared) = self.shared() {
            shared.wake();
        }
    }
}
