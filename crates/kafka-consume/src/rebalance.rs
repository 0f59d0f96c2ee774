//! One reconciliation: from what is owned to what the group wants owned, in the only safe order. Pure, but for
//! the listener's trait.
//!
//! ```text
//! listener.on_revoke → auto-commit → drop the partitions → acknowledge → listener.on_assign
//! ```
//!
//! | stage | whose turn | leaves by |
//! |---|---|---|
//! | `Revoke` | the caller's poll runs the callback | the callback's end, however it ends |
//! | `Commit` | the driver stores what was done | the answer, or its deadline |
//! | `Assign` | the caller's poll runs the callback | the callback's end, however it ends |
//!
//! Dropping and acknowledging need no turn: they follow the commit in the same step. A poll that is dropped
//! repeats at most the callback it was in, never an earlier stage: the stage is state, not a place in a future.
//!
//! Invariants
//! - A reconciliation is frozen from its first callback on; a newer target waits beside it.
//! - What is to go is not delivered any more from the moment it is known, and not given up before its listener
//!   and its commit have had their turn.
//! - What was added is neither looked up nor fetched before `on_assign` has returned, so a seek there wins.

use futures::future::BoxFuture;
use kafka_meta::{Result, TopicName};

use crate::member::protocol::{Partitions, Purpose};

/// A partition that is being taken away, and how far it was read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RevokedPartition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset of the next record to read, which is what auto-commit is about to store; −1 while the start
    /// position was still being looked up.
    pub position: i64,
    /// Whether it is still this member's: false under `on_lost`, where another member may have it already.
    pub owned: bool,
}

/// What a group member is told when its partitions change. All callbacks run inside the caller's `poll` or
/// `leave`, one at a time.
///
/// **At least once.** A poll that is dropped while a callback runs runs it again with the same partitions; keep
/// one poll future pinned across the rounds of a `select!` loop where that would hurt.
///
/// ```no_run
/// # use std::pin::pin;
/// # use std::time::Duration;
/// # async fn example(consumer: &mut kafka_consume::GroupConsumer) -> kafka_consume::Result<()> {
/// let mut tick = tokio::time::interval(Duration::from_millis(10));
/// loop {
///     let mut poll = pin!(consumer.poll());
///     let records = loop {
///         tokio::select! {
///             records = &mut poll => break records?,
///             _ = tick.tick() => println!("still alive"),
///         }
///     };
///     for record in &records {
///         println!("{}", record.offset);
///     }
/// }
/// # }
/// ```
///
/// An error does not stop the rebalance: the group has moved on already. It is logged.
pub trait RebalanceListener: Send {
    /// These partitions are about to go; they are still this member's, and offsets can still be committed.
    /// Whatever is kept per partition is to be flushed here. Auto-commit follows, but for partitions whose offsets
    /// this callback committed itself.
    fn on_revoke(&mut self, revoked: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>>;

    /// These partitions have come; none of their records is delivered before this returns, and a seek through a
    /// handle decides where they start.
    fn on_assign(&mut self, assigned: Vec<(String, i32)>) -> BoxFuture<'_, Result<()>> {
        let _ = assigned;
        Box::pin(async { Ok(()) })
    }

    /// These partitions are gone: another member may own them already, and commits are refused. Calls
    /// `on_revoke` unless overridden.
    fn on_lost(&mut self, lost: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        self.on_revoke(lost)
    }
}

/// Why partitions change hands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// The group assigned a set.
    Target,
    /// The protocol gives partitions up before it joins.
    Prepare,
    /// The member leaves.
    Leave,
}

impl From<Purpose> for Cause {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Target => Cause::Target,
            Purpose::Prepare => Cause::Prepare,
        }
    }
}

/// Where a reconciliation stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    Revoke,
    Commit,
    Assign,
}

/// A reconciliation that has been computed and not finished.
#[derive(Debug)]
pub(crate) struct Pending {
    pub number: u64,
    pub cause: Cause,
    pub stage: Stage,
    pub revoke: Partitions,
    pub add: Partitions,
    /// A callback has begun: nothing replaces it any more.
    pub frozen: bool,
    /// What the application committed itself while `on_revoke` ran: auto-commit leaves it alone.
    pub stored_by_caller: Partitions,
    /// Times in a row the present callback was begun and not finished.
    pub restarts: u32,
}

impl Pending {
    /// From `owned` to `target`.
    pub fn new(number: u64, cause: Cause, owned: &Partitions, target: &Partitions) -> Self {
        let revoke: Partitions = owned.difference(target).copied().collect();
        let add: Partitions = match cause {
            Cause::Target => target.difference(owned).copied().collect(),
            Cause::Prepare | Cause::Leave => Partitions::new(),
        };
        let stage = if revoke.is_empty() { Stage::Commit } else { Stage::Revoke };
        Pending {
            number,
            cause,
            stage,
            revoke,
            add,
            frozen: false,
            stored_by_caller: Partitions::new(),
            restarts: 0,
        }
    }

    /// What is owned once it is done.
    pub fn outcome(&self, owned: &Partitions) -> Partitions {
        owned.difference(&self.revoke).chain(&self.add).copied().collect()
    }

    /// A callback begins; the third time in a row without an end deserves a warning.
    pub fn begin(&mut self) {
        self.frozen = true;
        self.restarts += 1;
    }
}

pub(crate) fn to_names(partitions: &Partitions) -> Vec<(String, i32)> {
    partitions.iter().map(|(topic, index): &(TopicName, i32)| (topic.as_str().to_owned(), *index)).collect()
}
