//! A member's core behind its lock, and the steps the caller's side takes through it.
//!
//! Lock order: the member's core first, then the engine's. The engine never asks the member anything, so what a
//! step of the member says about the assignment is applied to the engine before anybody else can look.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kafka_meta::client::Interest;
use kafka_meta::{CommittedOffset, Error, ErrorKind, GroupMetadata, Result, TopicName};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use super::core::Core;
use super::orders::{Op, Step};
use super::protocol::{Partitions, Protocol};
use crate::offsets::Identity;
use crate::rebalance::{RebalanceListener, RevokedPartition, to_names};
use crate::shared::Shared;

/// The listener; a lock because a stream's step owns a share of it. Nobody else ever waits for it.
pub(crate) type Listener = Arc<tokio::sync::Mutex<Option<Box<dyn RebalanceListener>>>>;

/// Makes the other protocol's core, for the one switch a negotiated member may make.
pub(crate) type Fallback = Box<dyn Fn() -> Option<Result<Box<dyn Protocol>>> + Send + Sync>;

pub(crate) struct Cell {
    core: Mutex<Core>,
    pub bell: Notify,
    pub interest: Interest,
    pub fallback: Option<Fallback>,
    pub group: String,
    pub instance_id: Option<String>,
    /// The coordinator asked last.
    pub coordinator: AtomicI32,
    /// KIP-848 members read committed offsets under their own epoch.
    pub fetch_as_member: AtomicBool,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Cell {
    pub fn new(core: Core, interest: Interest, group: String, instance_id: Option<String>) -> Self {
        Cell {
            core: Mutex::new(core),
            bell: Notify::new(),
            interest,
            fallback: None,
            group,
            instance_id,
            coordinator: AtomicI32::new(-1),
            fetch_as_member: AtomicBool::new(true),
        }
    }

    /// One step of the member; what it says about the assignment is applied before the lock is free.
    pub fn with<T>(&self, shared: &Shared, step: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let result = step(&mut core);
        let ops = std::mem::take(&mut core.ops);
        if !ops.is_empty() {
            let now = Instant::now().into_std();
            shared.with(|engine| {
                for op in ops {
                    #[cfg(test)]
                    if super::sabotage::withholds_nothing(engine, now, &op) {
                        continue;
                    }
                    match op {
                        Op::Hold(partitions) => engine.hold(partitions),
                        Op::Drop(partitions) => engine.unassign(partitions),
                        Op::Add(partitions) => engine.add_held(now, partitions),
                        Op::Release(partitions) => engine.release(partitions),
                    }
                }
            });
        }
        // Rung only for news: two sides that ring each other at every look would never rest.
        let (driver, caller) = (core.has_orders(), std::mem::take(&mut core.tell_caller));
        drop(core);
        if driver {
            self.bell.notify_one();
        }
        if caller {
            shared.polls.notify_one();
        }
        result
    }

    /// A look that changes nothing and rings nobody.
    pub fn look<T>(&self, look: impl FnOnce(&Core) -> T) -> T {
        look(&self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whose name offsets are stored in.
    pub fn identity(&self, operation: &'static str) -> Result<Identity> {
        self.look(|core| core.identity(operation))
    }

    pub fn group_metadata(&self) -> Result<GroupMetadata> {
        let identity = self.identity("group metadata")?;
        Ok(GroupMetadata::member(
            self.group.clone(),
            identity.generation,
            identity.member_id,
            self.instance_id.clone(),
        ))
    }
}

/// A poll under way: the caller is alive as long as it lasts.
pub(crate) struct Polling {
    shared: Arc<Shared>,
}

impl Polling {
    pub fn begin(shared: &Arc<Shared>) -> Option<Polling> {
        let cell = shared.member.get()?;
        let done = done(shared);
        let now = Instant::now().into_std();
        cell.with(shared, |core| core.poll_began(now, done));
        Some(Polling { shared: Arc::clone(shared) })
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        if let Some(cell) = self.shared.member.get() {
            // Not through the paused or real clock of a runtime that may be gone: a plain reading will do.
            let now = Instant::now().into_std();
            cell.with(&self.shared, |core| core.poll_ended(now));
        }
    }
}

/// What has been handed out so far.
pub(crate) fn done(shared: &Shared) -> BTreeMap<(TopicName, i32), CommittedOffset> {
    #[cfg(test)]
    if super::sabotage::is(super::sabotage::Sabotage::CommitFromBuffer) {
        return shared.with(|engine| engine.fetched_by_name());
    }
    shared.with(|engine| engine.positions_by_name())
}

/// Carries the membership on as far as it needs the caller: callbacks are run here. True when the member fell
/// back to the other protocol, and this poll is to return no records.
///
/// Cancel safe: a callback that is dropped is begun again by the next poll, and nothing else is repeated.
pub(crate) async fn prepare(shared: Arc<Shared>, listener: Listener) -> Result<bool> {
    let Some(cell) = shared.member.get() else { return Ok(false) };
    loop {
        let now = Instant::now().into_std();
        match cell.with(&shared, |core| core.step(now)) {
            Step::Nothing => return Ok(false),
            Step::Switched => return Ok(true),
            Step::Error(error) => {
                if let Some(fallback) = &cell.fallback
                    && cell.look(Core::wants_switch)
                {
                    let Some(protocol) = fallback().transpose()? else { return Err(error) };
                    cell.fetch_as_member.store(false, Ordering::Release);
                    let snapshot = shared.cluster.snapshot();
                    cell.with(&shared, |core| core.switch(now, protocol, &snapshot));
                    tracing::info!(%error, "the KIP-848 protocol was refused: going on with the classic one");
                    continue;
                }
                return Err(error);
            }
            Step::Revoke { number, partitions } => {
                let ended = Ended { shared: &shared, number, callback: Callback::Revoke, armed: true };
                let revoked = revoked(&shared, &partitions, true);
                if let Some(listener) = listener.lock().await.as_mut() {
                    report("on_revoke", listener.on_revoke(revoked).await);
                }
                ended.end();
            }
            Step::Lost { number, partitions } => {
                let ended = Ended { shared: &shared, number, callback: Callback::Lost, armed: true };
                let lost = revoked(&shared, &partitions, false);
                if let Some(listener) = listener.lock().await.as_mut() {
                    report("on_lost", listener.on_lost(lost).await);
                }
                ended.end();
            }
            Step::Assign { number, partitions } => {
                let ended = Ended { shared: &shared, number, callback: Callback::Assign, armed: true };
                if let Some(listener) = listener.lock().await.as_mut() {
                    report("on_assign", listener.on_assign(to_names(&partitions)).await);
                }
                ended.end();
            }
        }
    }
}

/// An error of the listener does not stop a rebalance: the group has moved on, and waits for the acknowledgement.
fn report(callback: &'static str, result: Result<()>) {
    if let Err(error) = result {
        warn!(%error, callback, "the rebalance listener failed; the rebalance goes on");
    }
}

fn revoked(shared: &Shared, partitions: &Partitions, owned: bool) -> Vec<RevokedPartition> {
    shared.with(|engine| {
        partitions
            .iter()
            .map(|(topic, index)| RevokedPartition {
                topic: topic.as_str().to_owned(),
                partition: *index,
                position: engine
                    .partition(topic, *index)
                    .and_then(|partition| partition.position())
                    .map_or(-1, |position| position.offset),
                owned,
            })
            .collect()
    })
}

#[derive(Clone, Copy)]
enum Callback {
    Revoke,
    Assign,
    Lost,
}

/// Ends a callback's stage: when it returned, and when it panicked, but not when its future was dropped.
struct Ended<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    callback: Callback,
    armed: bool,
}

impl Ended<'_> {
    fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        let Some(cell) = self.shared.member.get() else { return };
        let (number, callback) = (self.number, self.callback);
        let now = Instant::now().into_std();
        cell.with(self.shared, |core| match callback {
            Callback::Revoke => core.revoke_done(now, number),
            Callback::Assign => core.assign_done(now, number),
            Callback::Lost => core.lost_done(now, number),
        });
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.finish();
        }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "poll").with_detail("the member has left its group")
}
