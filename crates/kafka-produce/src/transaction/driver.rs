//! What the core says is sent and done here, by one task; nothing is decided.
//!
//! The task belongs to the producer, not to any call: it ends with the last handle on the transactions. What it has
//! in flight is at most one request per coordinator and one word to the sender.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use kafka_meta::client::{CoordinatorKind, Lane};
use kafka_meta::{Cluster, Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::core::{Answer, Core, Output, Plan};
use super::requests::Asking;
use crate::sender::Sender;

#[derive(Debug)]
pub(super) struct Shared {
    pub cluster: Cluster,
    pub id: Arc<str>,
    /// `transaction.timeout.ms`.
    pub timeout: Duration,
    pub sender: OnceLock<Sender>,
    state: Mutex<Inner>,
    /// For the task: there may be something to do.
    changed: Notify,
    /// For the callers: look again.
    bell: Notify,
}

#[derive(Debug)]
struct Inner {
    core: Core,
    running: bool,
    task: Option<AbortHandle>,
}

/// Something that was started has ended.
enum Done {
    Answered {
        ticket: u64,
        node: Option<i32>,
        coordinator: (CoordinatorKind, String),
        answer: Result<Answer>,
    },
    Settled {
        ticket: u64,
        result: Result<()>,
    },
}

impl Shared {
    pub fn new(cluster: Cluster, id: &str, timeout: Duration) -> Shared {
        Shared {
            cluster,
            id: id.into(),
            timeout,
            sender: OnceLock::new(),
            state: Mutex::new(Inner { core: Core::new(), running: false, task: None }),
            changed: Notify::new(),
            bell: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step of the core on behalf of a caller or the sender.
    pub fn step<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        let done = self.step_quietly(step);
        self.wake();
        done
    }

    /// A step that leaves the task nothing to do: one per batch is not worth waking it for.
    pub fn step_quietly<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        step(&mut self.lock().core)
    }

    /// Lets the task look.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// As [`Shared::step`], where callers may be waiting for its effect.
    pub fn step_and_ring<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        let done = self.step(step);
        self.bell.notify_waiters();
        done
    }

    /// Looks only.
    pub fn look<T>(&self, look: impl FnOnce(&Core) -> T) -> T {
        look(&self.lock().core)
    }

    /// Waits until `look` tells something, at most until `deadline`.
    pub async fn wait<T>(
        self: &Arc<Self>,
        deadline: Instant,
        operation: &'static str,
        look: impl FnMut(&mut Core) -> Option<Result<T>>,
    ) -> Result<T> {
        self.wait_unnamed(deadline, operation, look).await.map_err(|error| match error.group() {
            Some(_) => error,
            None => error.with_transactional_id(&*self.id),
        })
    }

    async fn wait_unnamed<T>(
        self: &Arc<Self>,
        deadline: Instant,
        operation: &'static str,
        mut look: impl FnMut(&mut Core) -> Option<Result<T>>,
    ) -> Result<T> {
        loop {
            let mut rung = std::pin::pin!(self.bell.notified());
            rung.as_mut().enable();
            // Each time: the runtime the task was on may go down while this waits on another.
            self.start();
            if let Some(result) = self.step(&mut look) {
                return result;
            }
            tokio::select! {
                () = rung => {}
                () = tokio::time::sleep_until(deadline) => {
                    let late = self.step(&mut look);
                    return late.unwrap_or_else(|| Err(self.look(|core| core.timed_out(operation))));
                }
            }
        }
    }

    /// Sees to it that the task runs.
    fn start(self: &Arc<Self>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.running, true) {
            return;
        }
        // Without the lock: a runtime that is shutting down drops the task at once, and its end takes the lock.
        drop(state);
        let task = self.cluster.spawn(Running { shared: Arc::clone(self) }.run());
        self.lock().task = Some(task.abort_handle());
    }

    /// Ends the task.
    pub fn stop(&self) {
        let task = self.lock().task.take();
        if let Some(task) = task {
            task.abort();
        }
    }

    async fn ask(self: Arc<Self>, plan: Plan) -> Done {
        let (kind, key) = plan.ask.coordinator(&self.id);
        let coordinator = (kind, key.to_owned());
        let deadline = Instant::now() + self.cluster.config().request_timeout();
        let node = self.cluster.coordinator(kind, key, deadline).await;
        let (node, answer) = match (node, self.sender.get()) {
            (Ok(node), Some(sender)) => {
                let via = sender.owner().via(Lane::Txn);
                let asking =
                    Asking { cluster: &self.cluster, via: &via, id: &self.id, timeout: self.timeout };
                (Some(node), asking.send(node, &plan, deadline).await)
            }
            (Ok(_), None) => (None, Err(Error::new(ErrorKind::Closed, "transaction"))),
            (Err(error), _) => (None, Err(error)),
        };
        Done::Answered { ticket: plan.ticket, node, coordinator, answer }
    }

    fn handle(&self, done: Done) {
        let (now, random) = (Instant::now().into_std(), fastrand::f64());
        match done {
            Done::Settled { ticket, result } => {
                let in_sequence = self.sender.get().is_none_or(Sender::is_in_sequence);
                self.step_and_ring(|core| core.handle_settled(ticket, result, in_sequence));
            }
            Done::Answered { ticket, node, coordinator: (kind, key), answer } => {
                let forget = match answer {
                    Ok(answer) => self.step_and_ring(|core| core.handle_answer(now, ticket, answer, random)),
                    Err(error) => {
                        self.step_and_ring(|core| core.handle_failure(now, ticket, &error, random));
                        true
                    }
                };
                if let Some(node) = node.filter(|_| forget) {
                    self.cluster.forget_coordinator(kind, &key, node);
                }
            }
        }
    }

    /// Does what the core says; what takes time is added to `work`.
    fn carry_out(self: &Arc<Self>, output: Output, work: &FuturesUnordered<BoxFuture<'static, Done>>) {
        let Some(sender) = self.sender.get().cloned() else { return };
        match output {
            Output::Ask(plan) => work.push(Arc::clone(self).ask(plan).boxed()),
            Output::Flush(ticket) => {
                work.push(async move { Done::Settled { ticket, result: sender.flush().await } }.boxed())
            }
            Output::Drop(ticket, error) => work.push(
                async move { Done::Settled { ticket, result: sender.fail_unsent(error).await } }.boxed(),
            ),
            Output::Adopt(identity) => {
                let result = sender.new_identity(identity);
                self.step_and_ring(|core| core.handle_adopted(identity, result));
            }
            Output::Wake => sender.wake(),
        }
    }
}

/// The task.
struct Running {
    shared: Arc<Shared>,
}

impl Running {
    async fn run(self) {
        let shared = &self.shared;
        let mut work = FuturesUnordered::new();
        loop {
            let now = Instant::now().into_std();
            // Not `step`: the task need not wake itself.
            let (output, deadline, ended) = {
                let core = &mut shared.lock().core;
                let was_ready = core.is_ready();
                let output = core.poll_output(now);
                (output, core.next_deadline(now), core.is_ready() && !was_ready)
            };
            if ended {
                // A transaction with nothing in it ends without an answer to ring for.
                shared.bell.notify_waiters();
            }
            if let Some(output) = output {
                shared.carry_out(output, &work);
                continue;
            }
            let timer = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = work.next(), if !work.is_empty() => shared.handle(done),
                () = shared.changed.notified() => {}
                () = timer => {}
            }
        }
    }
}

impl Drop for Running {
    /// The runtime may go down under the task; the next call starts another one elsewhere.
    fn drop(&mut self) {
        let lost = Error::new(ErrorKind::Disconnected, "transaction").with_detail("the runtime shut down");
        let mut state = self.shared.lock();
        state.running = false;
        state.core.handle_interruption(Instant::now().into_std(), &lost);
        drop(state);
        self.shared.bell.notify_waiters();
    }
}
