//! The state of the engine and the caller's commands. Pure.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_meta::{Error, ErrorKind, Result, TopicName};
use kafka_read::Visibility;
use kafka_read::batch::Limits;

use super::marks::Marks;
use crate::buffer::{Budget, Queue, Slot};
use crate::config::{ConsumerConfig, OffsetReset, Position};
use crate::position::{Fault, Partition, Pos, REMIND_AFTER, State, Target, Why};
use crate::session::FetchSession;

/// A partition's place in the engine; reused after the partition has left, so it always goes with a ticket.
pub(crate) type Id = usize;

/// What the engine needs of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub committed_only: bool,
    pub wire_wait: Duration,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
    pub budget: usize,
    pub reset: OffsetReset,
    pub check_crcs: bool,
    pub limits: Limits,
    pub rack: String,
    /// How long a preferred replica is asked before the leader is again (`metadata.max.age.ms`).
    pub replica_lease: Duration,
}

impl Settings {
    pub fn new(config: &ConsumerConfig, rack: Option<&str>, replica_lease: Duration) -> Self {
        Settings {
            committed_only: config.visibility == Visibility::CommittedOnly,
            wire_wait: config.wire_wait(),
            min_bytes: config.min_bytes.max(1),
            max_bytes: config.max_bytes,
            partition_max_bytes: config.partition_max_bytes,
            budget: config.fetch_buffer_bytes,
            reset: config.auto_offset_reset.clone(),
            check_crcs: config.check_crcs,
            limits: Limits { max_batch_bytes: config.max_batch_bytes },
            rack: config.rack.as_deref().or(rack).unwrap_or_default().to_owned(),
            replica_lease,
        }
    }
}

/// A leader a broker named in an error answer (KIP-951).
#[derive(Clone, Debug)]
pub(crate) struct Hint {
    pub topic: TopicName,
    pub partition: i32,
    pub node: i32,
    pub epoch: i32,
    pub endpoint: Option<(String, u16, Option<String>)>,
}

/// Who has to be told after a step; the lock's owner tells them once it is free.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// A waiting poll may find something.
    pub poll: bool,
    /// A fetcher without a request in flight may find one.
    pub fetchers: bool,
    /// Look-ups are due, or a fetcher has to be started.
    pub supervisor: bool,
    /// Something can be inflated.
    pub inflater: bool,
    /// A start position was found, or a fault: whoever waits for positions looks again.
    pub settled: bool,
    /// The picture of the cluster is wrong.
    pub refresh: bool,
    /// The set of topics changed.
    pub interest: bool,
    pub hints: Vec<Hint>,
}

/// How a step ended that the caller waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    Open,
    Closed,
}

/// Counts kept since the consumer was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub records: u64,
    pub bytes: u64,
    pub fetches: u64,
    pub fetch_errors: u64,
    pub fetch_nanos: u64,
    pub last_fetch_nanos: u64,
    pub sessions_reopened: u64,
    pub skipped_batches: u64,
    pub refetched_batches: u64,
    pub retries: u64,
    pub resets: u64,
    pub truncations: u64,
    pub dropped_buffers: u64,
}

/// One broker as this consumer sees it.
#[derive(Debug)]
pub(crate) struct Node {
    pub session: FetchSession,
    pub in_flight: bool,
    pub retry: crate::position::Retry,
    /// A quota mutes the connection until then: a request sent now would spend its time in the queue.
    pub muted: Option<Instant>,
    /// Answers in a row that came early and brought nothing.
    pub hollow: u32,
    /// A fetcher was started for it.
    pub running: bool,
}

impl Node {
    pub fn new() -> Self {
        Node {
            session: FetchSession::new(),
            in_flight: false,
            retry: crate::position::Retry::default(),
            muted: None,
            hollow: 0,
            running: false,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub settings: Settings,
    pub(super) partitions: Vec<Option<Partition>>,
    pub(super) index: HashMap<(TopicName, i32), Id>,
    pub(super) vacant: Vec<Id>,
    pub(super) nodes: BTreeMap<i32, Node>,
    pub(super) budget: Budget,
    /// Partitions with something to hand out, next first.
    pub(super) ring: VecDeque<Id>,
    /// Partitions with something to inflate.
    pub(super) to_inflate: VecDeque<Id>,
    pub(super) inflated: usize,
    /// Some partition may have a fault. Each poll and each batch of a stream asks when one is due; looking through
    /// a thousand partitions for it costs more than handing out a small batch.
    pub(super) faulty: bool,
    /// A fetcher waits for room in the buffer.
    pub(super) starved: bool,
    /// Left the assignment, and still in a session.
    pub(super) departed: HashMap<(TopicName, i32), Marks>,
    pub(super) random: fastrand::Rng,
    pub(super) stop: Stop,
    pub counts: Counts,
    pub effects: Effects,
    last_ticket: u64,
    last_seq: u64,
    pub(super) served: u64,
}

impl Core {
    /// An engine with nothing assigned. `seed` feeds the jitter.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Core {
            budget: Budget::new(settings.budget),
            settings,
            partitions: Vec::new(),
            index: HashMap::new(),
            vacant: Vec::new(),
            nodes: BTreeMap::new(),
            ring: VecDeque::new(),
            to_inflate: VecDeque::new(),
            inflated: 0,
            faulty: false,
            starved: false,
            departed: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
            stop: Stop::Open,
            counts: Counts::default(),
            effects: Effects::default(),
            last_ticket: 0,
            last_seq: 0,
            served: 0,
        }
    }

    /// Replaces the assignment: every named partition starts at its position, kept ones included.
    pub fn assign(&mut self, now: Instant, wanted: Vec<((TopicName, i32), Position)>) {
        let kept: HashSet<(TopicName, i32)> = wanted.iter().map(|(key, _)| *key).collect();
        let gone: Vec<(TopicName, i32)> =
            self.index.keys().filter(|key| !kept.contains(key)).copied().collect();
        for key in gone {
            self.remove(key);
        }
        self.assign_more(now, wanted);
    }

    /// Adds partitions, or starts assigned ones anew at their position; a pause survives only where the
    /// partition was assigned before.
    pub fn assign_more(&mut self, now: Instant, wanted: Vec<((TopicName, i32), Position)>) {
        for (key, position) in wanted {
            let id = self.insert(key);
            let committed_only = self.settings.committed_only;
            if let Some(partition) = self.get_mut(id) {
                // What is known: a session that goes on holding the partition does not tell it again.
                partition.end_at_start = partition.end(committed_only);
            }
            self.begin(now, id, position);
        }
        self.effects.interest = true;
    }

    /// Takes partitions out of the assignment. Those that are not in it are ignored.
    pub fn unassign(&mut self, gone: impl IntoIterator<Item = (TopicName, i32)>) {
        for key in gone {
            self.remove(key);
        }
        self.effects.interest = true;
    }

    /// Adds partitions that are neither looked up nor fetched until they are released; they start at the
    /// group's committed offset, else by the reset policy.
    pub fn add_held(&mut self, now: Instant, added: impl IntoIterator<Item = (TopicName, i32)>) {
        for key in added {
            let id = self.insert(key);
            if let Some(partition) = self.get_mut(id) {
                partition.held = true;
            }
            self.seek_by_lookup(now, id, Target::Committed(None), Why::Asked);
        }
        self.effects.interest = true;
    }

    /// Neither hands out nor fetches these partitions; their positions stay, and their buffers, unless a stream
    /// is in the middle of them.
    pub fn hold(&mut self, held: impl IntoIterator<Item = (TopicName, i32)>) {
        for (topic, index) in held {
            let Some(id) = self.named(topic, index) else { continue };
            let Some(partition) = self.get_mut(id) else { continue };
            partition.held = true;
            let lent = partition.lease.is_some();
            self.leave_ring(id);
            if lent {
                self.drop_buffer(id);
            }
        }
    }

    /// Lifts a hold.
    pub fn release(&mut self, released: impl IntoIterator<Item = (TopicName, i32)>) {
        for (topic, index) in released {
            let Some(id) = self.named(topic, index) else { continue };
            let Some(partition) = self.get_mut(id) else { continue };
            partition.held = false;
            self.enter_ring(id);
            self.want_inflation(id);
        }
        self.effects.fetchers = true;
        self.effects.supervisor = true;
    }

    fn insert(&mut self, key: (TopicName, i32)) -> Id {
        if let Some(id) = self.index.get(&key) {
            return *id;
        }
        let ticket = self.next_ticket();
        let mut partition = Partition::new(key.0, key.1, ticket);
        self.come_back(&mut partition);
        let id = match self.vacant.pop() {
            Some(id) => {
                if let Some(place) = self.partitions.get_mut(id) {
                    *place = Some(partition);
                }
                id
            }
            None => {
                self.partitions.push(Some(partition));
                self.partitions.len() - 1
            }
        };
        self.index.insert(key, id);
        id
    }

    fn remove(&mut self, key: (TopicName, i32)) {
        let Some(id) = self.index.remove(&key) else { return };
        self.renew(id);
        if let Some(partition) = self.partitions.get_mut(id).and_then(Option::take) {
            self.depart(&partition);
        }
        self.vacant.push(id);
        self.effects.fetchers = true;
        self.effects.supervisor = true;
        self.effects.settled = true;
    }

    /// Starts one partition at `position`, forgetting whatever was asked or buffered.
    pub(super) fn begin(&mut self, now: Instant, id: Id, position: Position) {
        let state = match position {
            Position::Offset(offset) => {
                self.place_anew(id, Pos::at(offset));
                return;
            }
            Position::Earliest => Target::Earliest,
            Position::Latest => Target::Latest,
            Position::Timestamp(millis) => Target::Timestamp(millis),
            Position::Committed(otherwise) => Target::Committed(Some(otherwise)),
        };
        self.seek_by_lookup(now, id, state, Why::Asked);
    }

    /// Voids the partition's past and looks its position up.
    pub(super) fn seek_by_lookup(&mut self, _now: Instant, id: Id, target: Target, why: Why) {
        self.renew(id);
        if let Some(partition) = self.partitions.get_mut(id).and_then(Option::as_mut) {
            partition.state = State::Seeking { target, why };
            partition.consumed = None;
            partition.fetch = None;
            partition.origin = None;
            partition.fault = None;
            partition.retry.clear();
        }
        self.effects.supervisor = true;
        self.effects.fetchers = true;
    }

    /// Voids the partition's past and puts it at a known position.
    pub(super) fn place_anew(&mut self, id: Id, pos: Pos) {
        self.renew(id);
        if let Some(partition) = self.partitions.get_mut(id).and_then(Option::as_mut) {
            partition.state = State::Fetching;
            partition.consumed = Some(pos);
            partition.fetch = Some(pos);
            partition.origin = Some(pos);
            partition.fault = None;
            partition.retry.clear();
        }
        self.effects.fetchers = true;
        self.effects.supervisor = true;
        self.effects.settled = true;
    }

    /// A new ticket for the partition; its buffer is dropped.
    pub(super) fn renew(&mut self, id: Id) {
        let ticket = self.next_ticket();
        let Some(partition) = self.partitions.get_mut(id).and_then(Option::as_mut) else { return };
        let queue = partition.renew(ticket);
        self.leave_ring(id);
        self.to_inflate.retain(|other| *other != id);
        self.discard(queue);
    }

    /// Un-charges what a queue held.
    pub(super) fn discard(&mut self, queue: Queue) {
        for slot in queue.slots {
            self.let_go(&slot);
        }
    }

    /// Un-charges one slot that is gone.
    pub(super) fn let_go(&mut self, slot: &Slot) {
        self.inflated = self.inflated.saturating_sub(slot.inflated);
        let rest_is_small = self.budget.release(slot.answer, slot.bytes, slot.inflated);
        if rest_is_small {
            self.copy_out(slot.answer);
        }
        self.freed();
    }

    /// There is more room than before: whoever waits for it looks again.
    pub(super) fn freed(&mut self) {
        self.effects.fetchers |= std::mem::take(&mut self.starved);
    }

    /// The room set aside for an answer is free again.
    pub(super) fn unreserve(&mut self, bytes: usize) {
        self.budget.unreserve(bytes);
        self.freed();
    }

    pub(super) fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// Every assigned partition with its id, in a fixed order.
    pub(super) fn each(&self) -> impl Iterator<Item = (Id, &Partition)> {
        self.partitions.iter().enumerate().filter_map(|(id, place)| Some((id, place.as_ref()?)))
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (Id, &mut Partition)> {
        self.partitions.iter_mut().enumerate().filter_map(|(id, place)| Some((id, place.as_mut()?)))
    }

    pub(super) fn get(&self, id: Id) -> Option<&Partition> {
        self.partitions.get(id)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Partition> {
        self.partitions.get_mut(id)?.as_mut()
    }

    /// The partition of that id, if its past has not been voided since `ticket`.
    pub(super) fn current(&mut self, id: Id, ticket: u64) -> Option<&mut Partition> {
        self.get_mut(id).filter(|partition| partition.ticket == ticket)
    }

    pub(super) fn random(&mut self) -> f64 {
        self.random.f64()
    }

    /// The partition of that name.
    pub fn partition(&self, topic: &str, index: i32) -> Option<&Partition> {
        self.get(*self.index.get(&(TopicName::new(topic), index))?)
    }

    pub(super) fn named(&self, topic: TopicName, index: i32) -> Option<Id> {
        self.index.get(&(topic, index)).copied()
    }

    /// Moves the position; what is buffered is dropped.
    ///
    /// # Errors
    ///
    /// `NotAssigned` naming the partition; `InvalidRequest` for a negative offset.
    pub fn seek(&mut self, topic: &str, index: i32, offset: i64) -> Result<()> {
        if offset < 0 {
            return Err(Error::new(ErrorKind::InvalidRequest, "seek")
                .with_partition(topic, index)
                .with_offset(offset)
                .with_detail("an offset is never negative"));
        }
        let id = self.owned("seek", topic, index)?;
        self.place_anew(id, Pos::at(offset));
        Ok(())
    }

    /// As [`Core::seek`], with the epoch a committed offset was stored with.
    pub fn seek_to(&mut self, topic: TopicName, index: i32, ticket: u64, pos: Pos) {
        if let Some(id) = self.named(topic, index)
            && self.current(id, ticket).is_some()
        {
            self.place_anew(id, pos);
        }
    }

    /// Back to where reading began, unless nothing has been handed out since.
    pub fn seek_to_origin(&mut self, topic: TopicName, index: i32, ticket: u64) {
        let Some(id) = self.named(topic, index) else { return };
        let Some(partition) = self.current(id, ticket) else { return };
        if let Some(origin) = partition.origin
            && partition.position().is_some_and(|pos| pos.offset > origin.offset)
        {
            self.place_anew(id, origin);
        }
    }

    /// Moves partitions to where a look-up says.
    ///
    /// # Errors
    ///
    /// `NotAssigned` for the first that is not assigned; then none has moved.
    pub fn seek_to_target(
        &mut self,
        now: Instant,
        partitions: &[(TopicName, i32)],
        target: &Target,
    ) -> Result<()> {
        let mut ids = Vec::with_capacity(partitions.len());
        for (topic, index) in partitions {
            ids.push(self.owned("seek", topic, *index)?);
        }
        for id in ids {
            self.seek_by_lookup(now, id, target.clone(), Why::Asked);
        }
        Ok(())
    }

    fn owned(&self, operation: &'static str, topic: &str, index: i32) -> Result<Id> {
        self.named(TopicName::new(topic), index).ok_or_else(|| {
            Error::new(ErrorKind::NotAssigned, operation)
                .with_partition(topic, index)
                .with_detail("the partition is not assigned to this consumer")
        })
    }

    /// Stops fetching and handing out a partition; its buffer and its place are kept.
    pub fn pause(&mut self, topic: &str, index: i32) {
        let Some(id) = self.named(TopicName::new(topic), index) else { return };
        let Some(partition) = self.get_mut(id) else { return };
        partition.paused = true;
        let lent = partition.lease.is_some();
        self.leave_ring(id);
        if lent {
            // What a stream holds of it must not be yielded either; it is fetched again after the pause.
            self.drop_buffer(id);
        }
    }

    /// Drops what is buffered or lent and keeps the position: it will be fetched again. The ticket stays, so that
    /// records handed out before can still be put back.
    pub(super) fn drop_buffer(&mut self, id: Id) {
        let Some(partition) = self.get_mut(id) else { return };
        partition.end_lease();
        if partition.consumed.is_none() {
            return;
        }
        let queue = std::mem::take(&mut partition.queue);
        partition.state = State::Fetching;
        partition.fetch = partition.consumed;
        partition.asked = None;
        partition.full = false;
        partition.doubted = None;
        partition.inflating = false;
        self.leave_ring(id);
        self.to_inflate.retain(|other| *other != id);
        self.discard(queue);
        self.effects.fetchers = true;
    }

    /// Lifts a pause.
    pub fn resume(&mut self, topic: &str, index: i32) {
        if let Some(id) = self.named(TopicName::new(topic), index)
            && let Some(partition) = self.get_mut(id)
            && std::mem::replace(&mut partition.paused, false)
        {
            self.enter_ring(id);
            self.want_inflation(id);
            self.effects.fetchers = true;
            self.effects.supervisor = true;
        }
    }

    /// The partitions among `asked` whose position is still being looked up; an error if one cannot be.
    pub fn unresolved(&mut self, asked: &[(TopicName, i32)]) -> Result<bool> {
        let mut open = false;
        for (topic, index) in asked {
            let Some(id) = self.named(*topic, *index) else { continue };
            let Some(partition) = self.get_mut(id) else { continue };
            if partition.held || matches!(partition.state, State::Fetching) {
                continue;
            }
            let stopped = matches!(partition.state, State::Stopped);
            // A fault told here is not told again by the next poll; one that stops the partition is, in a minute.
            if let Some(Fault { error, tell_at }) = &mut partition.fault
                && let Some(at) = tell_at.take()
            {
                *tell_at = stopped.then(|| at + REMIND_AFTER);
                return Err(error.clone());
            }
            open |= !stopped;
        }
        Ok(open)
    }

    /// Nothing is fetched, looked up or handed out from now on.
    pub fn close(&mut self) {
        self.stop = Stop::Closed;
        self.effects.fetchers = true;
        self.effects.supervisor = true;
        self.effects.inflater = true;
        self.effects.poll = true;
        self.effects.settled = true;
    }

    /// The consumer is gone: handles that outlive it hold neither its assignment nor its records.
    pub fn clear(&mut self) {
        let all: Vec<(TopicName, i32)> = self.index.keys().copied().collect();
        for key in all {
            self.remove(key);
        }
    }

    pub fn is_closed(&self) -> bool {
        self.stop == Stop::Closed
    }
}
