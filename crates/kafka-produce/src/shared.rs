//! The engine behind one short lock, and what follows each step: outcomes told, senders woken.
//!
//! What it is not: a decision. A step is synchronous and never waits with the lock held. **Lock order: the engine's,
//! then the transaction's.**
//!
//! After a step, with the lock free: the transaction hears of outcomes, then the records do, so that whoever has
//! seen a record fail sees a transaction that knows.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kafka_meta::client::{Endpoint, Interest, Owner};
use kafka_meta::{Cluster, Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{Instrument, debug_span};

use crate::config::ProducerConfig;
use crate::delivery::Place;
use crate::engine::{Effects, Engine, Next, Outstanding, Sent, Settings};
use crate::record::ProducerRecord;
use crate::transaction::{Admit, Transactions};
use crate::{courier, supervisor};

/// See the module's head.
pub(crate) struct Shared {
    pub cluster: Cluster,
    pub config: ProducerConfig,
    pub owner: Owner,
    pub settings: Settings,
    pub transactions: Option<Transactions>,
    engine: Mutex<Engine>,
    interest: Interest,
    /// The supervisor waits here.
    pub supervisor: Notify,
    bells: Mutex<HashMap<i32, Arc<Notify>>>,
    tasks: Mutex<Tasks>,
    /// Whether the supervisor runs; asked with every send.
    alive: AtomicBool,
}

/// Goes with the supervisor: it never ends by itself, but its runtime may, and the producer may be closed.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.store(false, Ordering::Release);
    }
}

#[derive(Default)]
struct Tasks {
    over: bool,
    supervisor: Option<AbortHandle>,
    couriers: HashMap<i32, AbortHandle>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the transaction what is lost, and the callers that it can only be aborted.
fn tell_of_failures(transactions: &Transactions, effects: &mut Effects) {
    for finish in &mut effects.finished {
        if let Some(error) = finish.outcome.error() {
            transactions.batch_failed(error);
            finish.outcome.mark_abort_needed();
        }
    }
    for (_, place) in &mut effects.placed {
        if let Err(error) = place {
            transactions.batch_failed(error);
            *error = error.clone().with_abort_needed();
        }
    }
}

impl Shared {
    pub fn new(
        cluster: Cluster,
        config: ProducerConfig,
        transactions: Option<Transactions>,
        owner: Owner,
    ) -> Arc<Shared> {
        let settings = Settings::new(&config, transactions.is_some());
        Arc::new(Shared {
            interest: cluster.interest(),
            engine: Mutex::new(Engine::new(settings.clone(), fastrand::u64(..))),
            supervisor: Notify::new(),
            bells: Mutex::default(),
            tasks: Mutex::default(),
            alive: AtomicBool::new(false),
            owner,
            settings,
            transactions,
            config,
            cluster,
        })
    }

    /// One step of the engine, and what follows from it.
    pub fn with<T>(self: &Arc<Self>, step: impl FnOnce(&mut Engine) -> T) -> T {
        let (result, effects, topics) = {
            let mut engine = lock(&self.engine);
            let result = step(&mut engine);
            let mut effects = std::mem::take(&mut engine.effects);
            // Still under the lock: a flush that finds nothing outstanding must not be overtaken by the failure of
            // what it no longer finds, or its commit would leave records out.
            if let Some(transactions) = &self.transactions {
                tell_of_failures(transactions, &mut effects);
            }
            let topics = effects.interest.then(|| engine.topics());
            (result, effects, topics)
        };
        if let Some(topics) = topics {
            self.interest.set(topics);
        }
        self.follow(effects);
        result
    }

    fn follow(self: &Arc<Self>, effects: Effects) {
        let Effects { finished, placed, wake, start, supervisor, interest, refresh, hints } = effects;
        for finish in finished {
            finish.tell();
        }
        for (placement, place) in placed {
            placement.tell(place);
        }
        for hint in hints {
            let endpoint =
                hint.endpoint.map(|(host, port, rack)| Endpoint { id: hint.node, host, port, rack });
            self.cluster.leader_hint(hint.topic, hint.partition, hint.node, hint.epoch, endpoint);
        }
        if refresh {
            self.cluster.refresh();
        }
        for node in start {
            self.start_courier(node);
        }
        if !wake.is_empty() {
            let bells = lock(&self.bells);
            for node in wake {
                if let Some(bell) = bells.get(&node) {
                    bell.notify_one();
                }
            }
        }
        if supervisor || interest {
            self.supervisor.notify_one();
        }
    }

    /// Queues a record. A transaction is asked under the engine's lock, so that what comes after its end is not
    /// queued.
    pub fn send(self: &Arc<Self>, record: ProducerRecord, timestamp: i64) -> Result<Sent> {
        let topic = record.topic;
        let may_send = || match &self.transactions {
            Some(transactions) => transactions.may_send().map_err(|error| error.with_topic(topic)),
            None => Ok(()),
        };
        {
            let mut engine = lock(&self.engine);
            may_send()?;
            if let Some(place) = engine.append_open(&record, timestamp) {
                return Ok(Sent::Placed(place));
            }
        }
        let now = Instant::now().into_std();
        self.with(|engine| {
            may_send()?;
            engine.handle_send(now, record, timestamp).map_err(|error| {
                let Some(transactions) = &self.transactions else { return error };
                transactions.batch_failed(&error);
                error.with_abort_needed()
            })
        })
    }

    pub fn poll_request(self: &Arc<Self>, node: i32) -> Next {
        let now = Instant::now().into_std();
        self.with(|engine| {
            engine.poll_request(now, node, &mut |topic, partition| match &self.transactions {
                Some(transactions) => transactions.admit(topic, partition),
                None => Admit::Go { max_produce_version: i16::MAX, transactional: false },
            })
        })
    }

    /// The bell of a node's courier.
    pub fn bell(&self, node: i32) -> Arc<Notify> {
        Arc::clone(lock(&self.bells).entry(node).or_default())
    }

    /// Wakes every courier.
    pub fn wake(&self) {
        for bell in lock(&self.bells).values() {
            bell.notify_one();
        }
    }

    /// Starts the background work with the first async call; before that a producer needs no runtime.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` or `UnsupportedCodec` for settings that cannot work, before any I/O; `Closed`.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        if self.alive.load(Ordering::Acquire) {
            return Ok(());
        }
        let again = {
            let mut tasks = lock(&self.tasks);
            if tasks.over {
                return Err(Error::new(ErrorKind::Closed, "send"));
            }
            let again = match &tasks.supervisor {
                Some(_) if self.alive.load(Ordering::Acquire) => return Ok(()),
                Some(_) => true,
                None => {
                    self.config.check(self.transactions.is_some())?;
                    false
                }
            };
            let span = debug_span!("producer", client_id = self.cluster.config().client_id());
            self.alive.store(true, Ordering::Release);
            let alive = Alive(Arc::clone(self));
            let work = async move { supervisor::run(&alive.0).await };
            let task = self.cluster.spawn(work.instrument(span));
            tasks.supervisor = Some(task.abort_handle());
            again
        };
        if again {
            let now = Instant::now().into_std();
            self.with(|engine| engine.handle_lost_senders(now));
        }
        Ok(())
    }

    fn start_courier(self: &Arc<Self>, node: i32) {
        let bell = self.bell(node);
        let mut tasks = lock(&self.tasks);
        if tasks.over {
            return;
        }
        let span = debug_span!("courier", client_id = self.cluster.config().client_id(), node);
        let task = self.cluster.spawn(courier::run(Arc::clone(self), node).instrument(span));
        tasks.couriers.insert(node, task.abort_handle());
        // A wake-up before it listens is kept.
        bell.notify_one();
    }

    /// Ends the background work, whatever it is doing.
    pub fn stop(&self) {
        let mut tasks = lock(&self.tasks);
        tasks.over = true;
        for task in tasks.supervisor.take().into_iter().chain(tasks.couriers.drain().map(|(_, task)| task)) {
            task.abort();
        }
    }

    /// What is lost when the producer goes now: bytes in batches, and records that wait for room.
    pub fn unsent(&self) -> (usize, usize) {
        let engine = lock(&self.engine);
        (engine.buffered(), engine.waiting())
    }

    /// Reads the engine.
    pub fn read<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&lock(&self.engine))
    }
}

/// Waits until everything that was outstanding has its outcome; the first error among them.
pub(crate) async fn settled(outstanding: Vec<Outstanding>) -> Result<()> {
    let mut first = Ok(());
    for one in outstanding {
        let outcome = match one {
            Outstanding::Batch(delivery) => delivery.all().await,
            Outstanding::Record(placement) => match placement.place().await {
                Ok(Place { delivery, index, .. }) => delivery.outcome(index).await.map(drop),
                Err(error) => Err(error),
            },
        };
        if first.is_ok() {
            first = outcome;
        }
    }
    first
}
