//! What a consumer, its handles and its background tasks share: the engine's core behind one short lock, and
//! the bells that are rung after a step.
//!
//! The lock is held for one synchronous step of the core, never across an await. Whatever the step asks for
//! (wake this one, refresh the metadata) is done once the lock is free.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kafka_meta::client::{Endpoint, Interest, Owner};
use kafka_meta::{Cluster, Error, ErrorKind, GroupMetadata, Result};
use kafka_read::Records;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{Instrument, debug_span};

use crate::config::ConsumerConfig;
use crate::engine::{Core, Effects, Settings, Taken};
use crate::member::cell::Cell;
use crate::offsets::{GroupOffsets, Identity};
use crate::{driver, inflate};

pub(crate) struct Shared {
    pub cluster: Cluster,
    pub owner: Owner,
    pub config: ConsumerConfig,
    pub offsets: Option<GroupOffsets>,
    core: Mutex<Core>,
    interest: Interest,
    /// A poll waits here.
    pub polls: Notify,
    /// Fetchers without a request in flight wait here.
    pub fetchers: Notify,
    /// The supervisor waits here.
    pub supervisor: Notify,
    /// The inflater waits here.
    pub inflater: Notify,
    /// Calls that need a position wait here.
    pub settled: Notify,
    /// A handle has asked the poll to return.
    woken: AtomicBool,
    tasks: Mutex<Tasks>,
    /// The group membership that decides the assignment; none for a manual consumer.
    pub member: OnceLock<Cell>,
    /// A stream has yielded since the member's driver looked last.
    touched: AtomicBool,
}

#[derive(Debug, Default)]
struct Tasks {
    started: bool,
    handles: Vec<AbortHandle>,
}

/// What one look of a poll came to.
pub(crate) enum Look {
    Done(Result<Records>),
    /// Nothing is there; look again when the bell rings, or at this time.
    Wait(Instant),
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Arc<Shared> {
        let owner = cluster.owner();
        let settings = Settings::new(&config, cluster.config().rack(), cluster.config().metadata_max_age());
        let offsets =
            config.group_id.as_ref().map(|group| GroupOffsets::new(cluster.clone(), &owner, group.clone()));
        Arc::new(Shared {
            interest: cluster.interest(),
            owner,
            offsets,
            core: Mutex::new(Core::new(settings, fastrand::u64(..))),
            polls: Notify::new(),
            fetchers: Notify::new(),
            supervisor: Notify::new(),
            inflater: Notify::new(),
            settled: Notify::new(),
            woken: AtomicBool::new(false),
            tasks: Mutex::default(),
            member: OnceLock::new(),
            touched: AtomicBool::new(false),
            config,
            cluster,
        })
    }

    /// One step of the core; rings whoever it concerns once the lock is free.
    pub fn with<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let result = step(&mut core);
        let effects = std::mem::take(&mut core.effects);
        let topics = effects.interest.then(|| core.assigned_topics());
        drop(core);
        if let Some(topics) = topics {
            self.interest.set(topics);
        }
        self.ring(effects);
        result
    }

    fn ring(&self, effects: Effects) {
        let Effects { poll, fetchers, supervisor, inflater, settled, refresh, interest, hints } = effects;
        for hint in hints {
            let endpoint =
                hint.endpoint.map(|(host, port, rack)| Endpoint { id: hint.node, host, port, rack });
            self.cluster.leader_hint(hint.topic, hint.partition, hint.node, hint.epoch, endpoint);
        }
        if refresh {
            self.cluster.refresh();
        }
        if poll {
            self.polls.notify_one();
        }
        if fetchers {
            self.fetchers.notify_waiters();
        }
        if supervisor || interest {
            self.supervisor.notify_one();
        }
        if inflater {
            self.inflater.notify_one();
        }
        if settled {
            self.settled.notify_waiters();
        }
    }

    /// Starts the background tasks with the first async call; before that a consumer needs no runtime.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` for settings that cannot work, before any I/O; `Closed`.
    pub fn start(self: &Arc<Self>) -> Result<()> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !tasks.started {
            self.config.check()?;
            tasks.started = true;
            let group = self.config.group_id.as_deref();
            let span = debug_span!("consumer", client_id = self.cluster.config().client_id(), group);
            let supervisor = self.cluster.spawn(driver::run(Arc::clone(self)).instrument(span.clone()));
            let inflater = self.cluster.spawn(inflate::run(Arc::clone(self)).instrument(span.clone()));
            tasks.handles = vec![supervisor.abort_handle(), inflater.abort_handle()];
            if self.member.get().is_some() {
                let member = self.cluster.spawn(
                    crate::member::driver::run(Arc::clone(self))
                        .instrument(debug_span!(parent: &span, "member")),
                );
                tasks.handles.push(member.abort_handle());
            }
        }
        drop(tasks);
        self.check_open()
    }

    /// One step of a poll: hands over what is there, or says until when to wait for the bell.
    pub fn look(&self, deadline: Instant) -> Look {
        let now = Instant::now();
        let most = self.config.max_poll_records;
        let (taken, next_fault, closed) = self.with(|core| {
            if core.is_closed() {
                return (Taken::default(), None, true);
            }
            let taken = core.take(now.into_std(), most);
            (taken, core.next_fault_at(), false)
        });
        if closed {
            return Look::Done(Err(Error::new(ErrorKind::Closed, "poll")));
        }
        // A wake is over with the poll that returns after it, whatever that returns.
        let woken = self.take_woken();
        if !taken.slices.is_empty() {
            return Look::Done(Ok(Records::from_slices(taken.slices)));
        }
        if let Some(error) = taken.error {
            return Look::Done(Err(error));
        }
        if taken.moved || woken || now >= deadline {
            return Look::Done(Ok(Records::default()));
        }
        Look::Wait(next_fault.map_or(deadline, |at| deadline.min(Instant::from_std(at))))
    }

    pub fn check_open(&self) -> Result<()> {
        if self.with(|core| core.is_closed()) {
            return Err(Error::new(ErrorKind::Closed, "poll").with_detail("the consumer was closed"));
        }
        Ok(())
    }

    /// A task that ends with the consumer.
    pub fn keep(&self, handle: AbortHandle) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.handles.retain(|handle| !handle.is_finished());
        tasks.handles.push(handle);
    }

    /// Whether every background task has ended.
    pub fn is_quiet(&self) -> bool {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.handles.iter().all(AbortHandle::is_finished)
    }

    /// Ends every background task at once, from anywhere: no runtime is needed and nothing is waited for.
    pub fn abort(&self) {
        self.with(|core| {
            core.close();
            core.clear();
        });
        let handles = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.started = true;
            std::mem::take(&mut tasks.handles)
        };
        for handle in handles {
            handle.abort();
        }
    }

    /// In whose name offsets are stored.
    pub fn identity(&self, operation: &'static str) -> Result<Identity> {
        self.member.get().map_or_else(|| Ok(Identity::anonymous()), |member| member.identity(operation))
    }

    /// In whose name committed offsets are read: a KIP-848 member's own, so that a stale epoch is noticed.
    pub fn reader_identity(&self) -> Result<Option<Identity>> {
        match self.member.get() {
            Some(member) if member.fetch_as_member.load(Ordering::Acquire) => {
                member.identity("committed offsets").map(Some)
            }
            _ => Ok(None),
        }
    }

    pub fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    pub fn take_touched(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    pub fn is_closed(&self) -> bool {
        self.with(|core| core.is_closed())
    }

    pub fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.polls.notify_one();
    }

    pub fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    /// By when a call that asks the cluster must have ended.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.config.api_timeout()
    }

    /// The group's storage.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` when the consumer has no `group_id`.
    pub fn group(&self, operation: &'static str) -> Result<&GroupOffsets> {
        self.offsets.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, operation).with_detail("the consumer has no group_id")
        })
    }

    /// Who the consumer is in its group: a member, or nobody.
    pub fn group_metadata(&self) -> Result<GroupMetadata> {
        if let Some(member) = self.member.get() {
            return member.group_metadata();
        }
        GroupMetadata::anonymous(self.group("group metadata")?.group_id())
    }
}
