//! A group's stored offsets: writing them and reading them, as a member or as one who only borrows the storage.
//!
//! The decisions about commits are made by the pure [`core`]; this file sends what it says and wakes the
//! callers. Reading is in [`fetch`]. What this is not: it knows no positions and no membership. Who commits is
//! an argument ([`Identity`]), and [`GroupOffsets::adopt`] is where a membership tells that it has changed.
//!
//! Invariants
//! - A request belongs to a background task, not to the future of the call that caused it: dropping that future
//!   cuts no request in two and loses no answer another caller waits for.
//! - The task lives only while something is queued or in flight.
//! - A request in flight is waited for until it is answered or the connection's own time limit has passed, even
//!   when its callers have gone: until then its fate is unknown, and a second commit could overtake it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kafka_meta::client::{CoordinatorKind, Lane, Owner, To, Via};
use kafka_meta::wire::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_meta::wire::protocol::messages::offset_commit_response::OffsetCommitResponse;
use kafka_meta::wire::protocol::messages::{self, OffsetCommitRequest};
use kafka_meta::wire::protocol::protocol::StrBytes;
use kafka_meta::wire::topic_name;
use kafka_meta::{Cluster, CommittedOffset, Error, ErrorCode, ErrorKind, Result, TopicName};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::coordinator::attempt_deadline;

pub(crate) mod codes;
mod core;
mod fetch;
#[cfg(test)]
mod tests;

pub(crate) use self::core::Key;
use self::core::{CallId, Core, OPERATION, Outcome, Plan};
use self::fetch::{Until, Wanted};

/// OffsetCommit from the first version without a retention time a broker would have to be asked about, to the
/// last one the codec can write (10 names topics by id).
const COMMIT_VERSIONS: std::ops::RangeInclusive<i16> = 2..=9;
/// `group.instance.id` travels from here on; without it a static member would not be fenced.
const COMMIT_STATIC_MEMBER: i16 = 7;

/// In whose name offsets are stored and read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identity {
    /// Member epoch (KIP-848) or generation (classic); −1 for one who is not a member.
    pub generation: i32,
    /// Empty for one who is not a member.
    pub member_id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// Counts the lives of a membership: raised at every join after a fence or a leave. Offsets never pass
    /// from one life to the next. 0 for one who is not a member.
    pub incarnation: u64,
}

impl Identity {
    /// One who borrows the storage without being a member; brokers accept it while the group has no members.
    pub(crate) fn anonymous() -> Self {
        Identity { generation: -1, member_id: String::new(), instance_id: None, incarnation: 0 }
    }

    /// Whether this is nobody's identity.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.generation < 0 && self.member_id.is_empty()
    }

    /// Whether this is a later stage of the same membership, or a later membership.
    pub(crate) fn is_newer_than(&self, other: &Identity) -> bool {
        (self.incarnation, self.generation) > (other.incarnation, other.generation)
    }
}

/// The offsets a group has stored, as one consumer uses them. Cheap to clone; clones share one queue of commits.
///
/// When the last clone is dropped the background task ends at once: what was not sent never will be.
#[derive(Clone, Debug)]
pub(crate) struct GroupOffsets {
    shared: Arc<Shared>,
    _guard: Arc<Guard>,
}

/// Ends the task, which holds [`Shared`] itself, with the last handle.
#[derive(Debug)]
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        let task = self.0.lock().task.take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

#[derive(Debug)]
struct Shared {
    cluster: Cluster,
    via: Via,
    group_id: String,
    state: Mutex<State>,
    /// Something was queued, or what waits may go out under a newer epoch.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    core: Core,
    callers: HashMap<CallId, oneshot::Sender<Outcome>>,
    running: bool,
    task: Option<AbortHandle>,
}

impl GroupOffsets {
    /// The offsets of `group_id`, through `owner`'s own group lane.
    pub(crate) fn new(cluster: Cluster, owner: &Owner, group_id: impl Into<String>) -> Self {
        let state = State { core: Core::new(), callers: HashMap::new(), running: false, task: None };
        let shared = Arc::new(Shared {
            cluster,
            via: owner.via(Lane::Group),
            group_id: group_id.into(),
            state: Mutex::new(state),
            changed: Notify::new(),
        });
        GroupOffsets { _guard: Arc::new(Guard(shared.clone())), shared }
    }

    /// The group's id.
    pub(crate) fn group_id(&self) -> &str {
        &self.shared.group_id
    }

    /// The membership changed: a new epoch, a new life, or fewer partitions. Never waits. Commits that wait
    /// follow a newer epoch of their own life as long as their partition is in `owned`; the others are refused.
    pub(crate) fn adopt(&self, identity: Identity, owned: BTreeSet<Key>) {
        let mut state = self.shared.lock();
        state.core.adopt(identity, owned);
        state.deliver();
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Stores offsets. One request of this consumer is in flight at a time; what is asked meanwhile waits and
    /// merges per partition, and an offset that a later call replaces shares that one's result.
    ///
    /// Dropping the future leaves it open whether the offsets were stored: they are sent at most once and never
    /// again.
    ///
    /// # Errors
    ///
    /// Where nothing can be said per partition: `InvalidRequest` for an empty group id, `Timeout` with the last
    /// reason as its source, `Authorization` on the group, `Fenced` when the identity's life is over.
    pub(crate) async fn commit(
        &self,
        offsets: Vec<(Key, CommittedOffset)>,
        identity: Identity,
        deadline: Instant,
    ) -> Outcome {
        self.check_group(OPERATION)?;
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let (call, mut result) = self.submit(offsets, identity, deadline)?;
        let guard = Abandon { shared: &self.shared, call };
        let outcome = tokio::select! {
            biased;
            outcome = &mut result => outcome.ok(),
            () = tokio::time::sleep_until(deadline) => {
                let expired = guard.shared.lock().expire(call);
                // None: it finished between the two looks.
                expired.or_else(|| result.try_recv().ok())
            }
        };
        let outcome = outcome.unwrap_or_else(|| Err(Error::new(ErrorKind::Timeout, OPERATION)));
        let named = |error: Error| error.with_group(self.group_id());
        let results = outcome.map_err(named)?;
        Ok(results.into_iter().map(|(key, result)| (key, result.map_err(named))).collect())
    }

    fn submit(
        &self,
        offsets: Vec<(Key, CommittedOffset)>,
        identity: Identity,
        deadline: Instant,
    ) -> Result<(CallId, oneshot::Receiver<Outcome>)> {
        let mut state = self.shared.lock();
        let call = state.core.submit(offsets, identity, deadline.into_std())?;
        let (sender, result) = oneshot::channel();
        state.callers.insert(call, sender);
        state.deliver();
        let start = !state.core.is_idle() && !state.running;
        state.running |= start;
        // Without the lock: a runtime that is shutting down drops the task at once, and the task's end takes it.
        drop(state);
        self.shared.changed.notify_one();
        if start {
            let task = Running { shared: self.shared.clone(), done: false };
            let task = self.shared.cluster.spawn(task.run());
            self.shared.lock().task = Some(task.abort_handle());
        }
        Ok((call, result))
    }

    fn check_group(&self, operation: &'static str) -> Result<()> {
        if self.shared.group_id.is_empty() {
            // A broker would accept it and store the offsets under no name.
            return Err(Error::new(ErrorKind::InvalidRequest, operation).with_detail("the group id is empty"));
        }
        Ok(())
    }

    /// Reads stored offsets: the offset, or `None` where the group has stored none. A partition the broker
    /// cannot tell about yet (missing from the answer, held by an open transaction) is asked for again.
    /// `identity` is a KIP-848 member's; `None` reads without one, which is always allowed.
    ///
    /// Dropping the future has no effect on anything stored.
    ///
    /// # Errors
    ///
    /// `Timeout` with the reason as its source when a partition stayed unknown, `Authorization`, or, for a
    /// member, `Fenced`. "Not known" is never reported as "none stored".
    pub(crate) async fn committed(
        &self,
        partitions: Vec<Key>,
        identity: Option<Identity>,
        deadline: Instant,
    ) -> Result<HashMap<Key, Option<CommittedOffset>>> {
        self.fetch(partitions, identity, deadline, Until::All).await
    }

    /// As [`GroupOffsets::committed`], but returns with the first answer that tells about any partition: one that
    /// an open transaction holds keeps no other one waiting. What is absent from the result is not known yet.
    ///
    /// # Errors
    ///
    /// As there; `Timeout` only when nothing at all was told.
    pub(crate) async fn committed_some(
        &self,
        partitions: Vec<Key>,
        identity: Option<Identity>,
        deadline: Instant,
    ) -> Result<HashMap<Key, Option<CommittedOffset>>> {
        self.fetch(partitions, identity, deadline, Until::Any).await
    }

    async fn fetch(
        &self,
        partitions: Vec<Key>,
        identity: Option<Identity>,
        deadline: Instant,
        until: Until,
    ) -> Result<HashMap<Key, Option<CommittedOffset>>> {
        self.check_group(fetch::OPERATION)?;
        let Shared { cluster, via, group_id, .. } = &*self.shared;
        let wanted = Wanted::new(partitions, identity.is_none(), until);
        fetch::committed(cluster, via, group_id, wanted, identity, deadline).await
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Hands finished calls to whoever waits for them.
    fn deliver(&mut self) {
        while let Some((call, outcome)) = self.core.poll_finished() {
            if let Some(caller) = self.callers.remove(&call) {
                // The future may have been dropped an instant ago; then nobody wants to know.
                drop(caller.send(outcome));
            }
        }
    }

    fn expire(&mut self, call: CallId) -> Option<Outcome> {
        self.callers.remove(&call);
        let outcome = self.core.expire(call);
        self.deliver();
        outcome
    }
}

/// Tells the core when a call's future ends, whatever ends it.
struct Abandon<'a> {
    shared: &'a Shared,
    call: CallId,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.callers.remove(&self.call).is_some() {
            state.core.abandon(self.call);
            state.deliver();
        }
    }
}

/// The background task.
struct Running {
    shared: Arc<Shared>,
    /// It stopped by itself; another task may be running already.
    done: bool,
}

enum Step {
    Ask(std::time::Instant),
    Wait(std::time::Instant),
    Stop,
}

impl Running {
    async fn run(mut self) {
        loop {
            match self.next_step() {
                Step::Stop => return,
                Step::Wait(until) => tokio::select! {
                    () = tokio::time::sleep_until(until.into()) => {}
                    () = self.shared.changed.notified() => {}
                },
                Step::Ask(horizon) => self.attempt(horizon.into()).await,
            }
        }
    }

    fn next_step(&mut self) -> Step {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let now = Instant::now().into_std();
        let step = match (state.core.is_due(now), state.core.horizon(), state.core.next_deadline()) {
            (true, Some(horizon), _) => Step::Ask(horizon),
            (false, Some(_), Some(until)) => Step::Wait(until),
            _ => {
                state.running = false;
                self.done = true;
                Step::Stop
            }
        };
        state.deliver();
        step
    }

    async fn attempt(&self, horizon: Instant) {
        let Shared { cluster, via, group_id, .. } = &*self.shared;
        let kind = CoordinatorKind::Group;
        let node = match cluster.coordinator(kind, group_id, attempt_deadline(cluster, horizon)).await {
            Ok(node) => node,
            Err(error) => {
                tracing::debug!(group = group_id, %error, "no coordinator to commit to");
                return self.handle(|core, now| core.handle_no_coordinator(now, &error, fastrand::f64()));
            }
        };
        let Some(plan) = self.handle(Core::poll_output) else { return };
        let deadline = Instant::now() + cluster.config().request_timeout();
        let lowest = match plan.identity.instance_id {
            Some(_) => COMMIT_STATIC_MEMBER,
            None => *COMMIT_VERSIONS.start(),
        };
        let build = |_version| Ok(request(group_id, &plan));
        let answer =
            cluster.call_with(To::Node(node), via, deadline, lowest..=*COMMIT_VERSIONS.end(), build).await;
        let rediscover = match answer {
            Ok((_, answer)) => {
                let codes = codes_of(&plan, &answer);
                self.handle(|core, now| core.handle_answer(now, plan.ticket, codes, fastrand::f64()))
            }
            Err(error) => {
                tracing::debug!(group = group_id, node, %error, "a commit got no answer");
                self.handle(|core, now| core.handle_failure(now, plan.ticket, &error, fastrand::f64()));
                true
            }
        };
        if rediscover {
            cluster.forget_coordinator(kind, group_id, node);
        }
    }

    fn handle<T>(&self, input: impl FnOnce(&mut Core, std::time::Instant) -> T) -> T {
        let mut state = self.shared.lock();
        let output = input(&mut state.core, Instant::now().into_std());
        state.deliver();
        output
    }
}

impl Drop for Running {
    /// The runtime may go down under the task; the next call starts another one elsewhere.
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.shared.lock();
            state.running = false;
            let lost = Error::new(ErrorKind::Disconnected, OPERATION).with_detail("the runtime shut down");
            state.core.handle_interruption(std::time::Instant::now(), &lost);
            state.deliver();
        }
    }
}

fn request(group_id: &str, plan: &Plan) -> OffsetCommitRequest {
    let mut topics: BTreeMap<TopicName, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for ((topic, partition), offset) in &plan.offsets {
        let metadata = offset.metadata.clone().unwrap_or_default();
        topics.entry(*topic).or_default().push(
            OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(offset.offset)
                .with_committed_leader_epoch(offset.leader_epoch.unwrap_or(-1))
                .with_committed_metadata(Some(StrBytes::from_string(metadata))),
        );
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(partitions)
    });
    OffsetCommitRequest::default()
        .with_group_id(messages::GroupId(StrBytes::from_string(group_id.to_owned())))
        .with_generation_id_or_member_epoch(plan.identity.generation)
        .with_member_id(StrBytes::from_string(plan.identity.member_id.clone()))
        .with_group_instance_id(plan.identity.instance_id.clone().map(StrBytes::from_string))
        .with_topics(topics.collect())
}

/// The codes of the answer. Topics nobody asked about are left out, so that an answer interns no names.
fn codes_of(plan: &Plan, answer: &OffsetCommitResponse) -> Vec<(Key, ErrorCode)> {
    let asked: HashMap<&str, TopicName> =
        plan.offsets.iter().map(|((topic, _), _)| (topic.as_str(), *topic)).collect();
    let topics = answer.topics.iter().filter_map(|topic| Some((asked.get(topic.name.as_str())?, topic)));
    topics
        .flat_map(|(name, topic)| {
            let codes = topic.partitions.iter();
            codes.map(|part| ((*name, part.partition_index), ErrorCode::from(part.error_code)))
        })
        .collect()
}
