//! A scan or tail as a whole: its partitions, the brokers they are read from, the byte budget, and what to do
//! next. Pure: `plan` makes fetches, `answer` takes what they bring, `settle` looks after bounds and ends.
//!
//! Four doors: `handle_…` for what happened, [`Core::poll_output`] for what to do, [`Core::next_deadline`] for when
//! to look again, [`Core::take`] for what the caller gets.
//!
//! Invariants
//! - One fetch in flight per broker; each broker has an equal share of the budget, so that none waits for another.
//!   A share may be exceeded by one answer, alone.
//! - An answer is charged whole until the last piece of it has been taken, since a piece keeps all of it in memory.
//! - A partition ends with exactly one of `PartitionDone` and an error, and nothing of it follows.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use kafka_meta::client::{Endpoint, Snapshot};
use kafka_meta::{Error, ErrorKind, TopicName};
use uuid::Uuid;

use super::bounds::Bounds;
use super::partition::{ABSENT_FOR, Item, Partition, Pending, Phase, Stage, What};
use super::plan::FetchOrder;
use super::spec::Order;
use super::work::{Part, Piece, Settings, Worked, is_heavy};
use crate::batch::Limits;
use crate::fetch::{Pos, Retry};

/// How long a broker may hold an empty fetch back.
pub(super) const WIRE_WAIT: Duration = Duration::from_millis(500);
/// Parts that are worked on at a time.
const WORKERS: usize = 2;

/// What the driver is to do.
#[derive(Debug)]
pub(super) enum Output {
    /// Find out which partitions the topic has.
    List,
    /// Ask about the topic once more.
    Confirm,
    /// Look the bounds of these partitions up.
    Resolve(Vec<i32>),
    /// Look the ends of this partition's log up.
    Look {
        partition: i32,
        ticket: u64,
    },
    Fetch(Box<FetchOrder>),
    /// `heavy`: on a thread where it holds up nobody, if there is one.
    Work {
        part: Box<Part>,
        heavy: bool,
    },
}

/// What a step left to be told to the cluster, or to the caller's task.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub refresh: bool,
    pub hints: Vec<Hint>,
    /// Something for the caller is there.
    pub news: bool,
    /// There is room again for what was held back.
    pub room: bool,
}

/// A leader named in an answer (KIP-951).
#[derive(Debug)]
pub(super) struct Hint {
    pub partition: i32,
    pub node: i32,
    pub epoch: i32,
    pub endpoint: Option<Endpoint>,
}

/// A broker that partitions are read from.
#[derive(Debug)]
pub(super) struct Node {
    pub in_flight: bool,
    pub retry: Retry,
    pub muted: Option<Instant>,
    /// Early answers in a row that brought nothing.
    pub hollow: u32,
    /// Bytes reserved for its answer, and those of its answers that are not handed over.
    pub used: usize,
}

/// An answer in memory.
#[derive(Debug)]
struct Held {
    node: i32,
    bytes: usize,
    pieces: usize,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) order: Order,
    pub(super) settings: Settings,
    pub(super) rack: String,
    pub(super) replica_lease: Duration,
    pub(super) topic: TopicName,
    pub(super) topic_id: Uuid,
    listed: bool,
    listing: bool,
    closed: bool,
    pub(super) partitions: BTreeMap<i32, Partition>,
    pub(super) nodes: BTreeMap<i32, Node>,
    answers: HashMap<u64, Held>,
    last_answer: u64,
    working: usize,
    inflated: usize,
    /// Something was held back for want of room.
    pub(super) starved: bool,
    pub(super) served: u64,
    /// The partition whose turn it is to be handed over.
    turn: i32,
    /// Errors that concern no partition.
    errors: VecDeque<Error>,
    pub(super) effects: Effects,
}

impl Core {
    pub(super) fn new(order: Order, rack: Option<&str>, replica_lease: Duration) -> Self {
        let settings = Settings {
            topic: order.topic,
            key: order.key.clone(),
            limits: Limits { max_batch_bytes: order.limits.max_batch_bytes },
            check_crcs: order.check_crcs,
        };
        Core {
            topic: order.topic,
            settings,
            rack: rack.unwrap_or_default().to_owned(),
            replica_lease,
            topic_id: Uuid::nil(),
            listed: false,
            listing: false,
            closed: false,
            partitions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            answers: HashMap::new(),
            last_answer: 0,
            working: 0,
            inflated: 0,
            starved: false,
            served: 0,
            turn: i32::MIN,
            errors: VecDeque::new(),
            effects: Effects::default(),
            order,
        }
    }

    /// The caller is gone.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether the topic's partitions are known.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// Whether nothing is left to do but to hand over what is there.
    pub(super) fn is_over(&self) -> bool {
        self.closed || self.listed && self.partitions.values().all(|one| one.stage == Stage::Done)
    }

    /// Takes the topic's partitions, or why they are not known. An error here ends all.
    pub(super) fn handle_listed(
        &mut self,
        result: Result<Vec<i32>, Error>,
        snapshot: &Snapshot,
        now: Instant,
    ) {
        self.listed = true;
        self.effects.news = true;
        match result {
            Ok(found) => {
                let wanted = self.order.partitions.clone().unwrap_or(found);
                for index in wanted {
                    self.partitions.entry(index).or_insert_with(|| Partition::new(index, false));
                }
                if let Some(topic) = snapshot.topic(self.topic) {
                    self.topic_id = topic.id;
                }
                self.handle_snapshot(now, snapshot);
            }
            Err(error) => self.errors.push_back(error),
        }
    }

    /// What to do now; to be asked until it says nothing.
    pub(super) fn poll_output(&mut self, now: Instant, random: f64) -> Option<Output> {
        if self.closed {
            return None;
        }
        if !self.listed {
            return (!std::mem::replace(&mut self.listing, true)).then_some(Output::List);
        }
        self.check_troubles(now);
        if self.poll_confirm(now) {
            return Some(Output::Confirm);
        }
        if let Some(partitions) = self.poll_resolve(now) {
            return Some(Output::Resolve(partitions));
        }
        if let Some(output) = self.poll_look(now) {
            return Some(output);
        }
        // Fetches first: the broker works while this side does.
        if let Some(order) = self.poll_fetch(now, random) {
            return Some(Output::Fetch(Box::new(order)));
        }
        self.poll_work()
    }

    fn poll_look(&mut self, now: Instant) -> Option<Output> {
        for (index, partition) in &mut self.partitions {
            if partition.is_reading()
                && partition.is_settled()
                && let Some(Pending::Look { asked }) = &mut partition.pending
                && !*asked
                && partition.retry.is_due(now)
            {
                *asked = true;
                return Some(Output::Look { partition: *index, ticket: partition.ticket });
            }
        }
        None
    }

    fn poll_work(&mut self) -> Option<Output> {
        if self.working >= WORKERS {
            return None;
        }
        let idle = self.partitions.values().all(|one| one.items.is_empty());
        let room = self.inflated < self.order.buffer_bytes / 2 || idle && self.working == 0;
        let ready = self.partitions.values_mut().filter(|one| !one.working);
        self.starved |= !room;
        let next = ready
            .filter(|one| one.parts.front().is_some_and(|part| room || part.packed() == 0))
            // Whoever has the least to hand over is worked for first.
            .min_by_key(|one| one.items.len())?;
        let part = next.parts.pop_front()?;
        next.working = true;
        self.working += 1;
        let heavy = is_heavy(part.packed());
        Some(Output::Work { part: Box::new(part), heavy })
    }

    /// Takes a stretch of work back.
    pub(super) fn handle_worked(&mut self, part: Part, worked: Worked) {
        self.working = self.working.saturating_sub(1);
        let topic = self.topic;
        let Some(partition) = self.partitions.get_mut(&part.partition) else { return };
        partition.working = false;
        let mut part = part;
        let index = part.partition;
        part.left = part.left.saturating_sub(worked.bytes);
        if part.ticket != partition.ticket || !partition.is_reading() {
            partition.queued = partition.queued.saturating_sub(worked.bytes);
            self.discharge([part]);
            self.settle(index);
            return;
        }
        let answer = part.answer;
        let Worked { pieces, refetch, bytes } = worked;
        let mut pinned = Vec::new();
        if let Phase::Counting(search) = &mut partition.phase {
            for (first, count) in pieces.iter().filter_map(Piece::run) {
                search.take(first, count);
            }
        } else {
            partition.bytes = partition.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            for mut piece in pieces {
                if let Phase::Giving { skip } = &mut partition.phase
                    && *skip > 0
                {
                    *skip -= piece.skip(*skip);
                }
                let malformed = matches!(piece, Piece::Malformed { .. });
                let Some((_, count)) =
                    piece.run().filter(|(_, count)| *count > 0).or(malformed.then_some((0, 0)))
                else {
                    continue;
                };
                partition.records = partition.records.saturating_add(count);
                let inflated = piece.inflated();
                pinned.push(inflated);
                let what = match piece {
                    Piece::Malformed { offsets, bytes, error } => What::Event(super::ScanEvent::Malformed {
                        topic,
                        partition: index,
                        offsets,
                        bytes,
                        error,
                    }),
                    piece => What::Piece(piece),
                };
                partition.items.push_back(Item { what, answer: Some(answer), inflated, bytes: 0 });
            }
        }
        partition.position = part.pos.offset.min(partition.limit()).max(partition.position);
        let position = partition.position;
        partition.doubted.take_if(|doubted| *doubted < position);
        if matches!(partition.phase, Phase::Giving { .. }) {
            partition.push_progress(topic);
        }
        match partition.items.back_mut() {
            Some(last) => last.bytes += bytes,
            None => partition.queued = partition.queued.saturating_sub(bytes),
        }
        let mut parts = VecDeque::new();
        if let Some(refetch) = refetch {
            parts = partition.jump(Pos::at(refetch.offset));
            partition.doubted = refetch.doubted.then_some(refetch.offset);
        }
        self.inflated += pinned.iter().sum::<usize>();
        if let Some(held) = self.answers.get_mut(&answer) {
            held.pieces += pinned.len();
            if let Some(node) = self.nodes.get_mut(&held.node) {
                node.used += pinned.iter().sum::<usize>();
            }
        }
        self.discharge(parts);
        if part.is_done() || refetch.is_some() {
            self.discharge([part]);
        } else if let Some(partition) = self.partitions.get_mut(&index) {
            partition.parts.push_front(part);
        }
        self.effects.news = true;
        self.settle(index);
    }

    /// Books an answer of `bytes` in `parts`.
    pub(super) fn charge(&mut self, node: i32, answer: u64, bytes: usize, parts: usize) {
        if parts == 0 {
            return;
        }
        self.answers.insert(answer, Held { node, bytes, pieces: parts });
        if let Some(node) = self.nodes.get_mut(&node) {
            node.used += bytes;
        }
    }

    pub(super) fn next_answer(&mut self) -> u64 {
        self.last_answer += 1;
        self.last_answer
    }

    /// Parts that nothing more comes of.
    pub(super) fn discharge(&mut self, parts: impl IntoIterator<Item = Part>) {
        for part in parts {
            if let Some(partition) = self.partitions.get_mut(&part.partition) {
                partition.queued = partition.queued.saturating_sub(part.left);
            }
            self.let_go(part.answer, 0);
        }
    }

    /// One piece of an answer less. Answers whether it was the last.
    fn let_go(&mut self, answer: u64, inflated: usize) -> bool {
        self.inflated = self.inflated.saturating_sub(inflated);
        let Some(held) = self.answers.get_mut(&answer) else { return false };
        held.pieces = held.pieces.saturating_sub(1);
        let (id, gone) = (held.node, held.pieces == 0);
        let bytes = inflated + if gone { held.bytes } else { 0 };
        if gone {
            self.answers.remove(&answer);
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.used = node.used.saturating_sub(bytes);
        }
        gone
    }

    /// The next thing for the caller, partitions in turn; its charge ends here.
    pub(super) fn take(&mut self) -> Option<What> {
        if let Some(error) = self.errors.pop_front() {
            return Some(What::Error(error));
        }
        let after = self.partitions.range(self.turn..).find(|(_, one)| !one.items.is_empty());
        let next = after.or_else(|| self.partitions.iter().find(|(_, one)| !one.items.is_empty()));
        let index = *next?.0;
        let partition = self.partitions.get_mut(&index)?;
        let item = partition.items.pop_front()?;
        partition.queued = partition.queued.saturating_sub(item.bytes);
        // Its progress goes with the records it tells of.
        if matches!(item.what, What::Event(_)) {
            self.turn = index.saturating_add(1);
        } else {
            self.turn = index;
        }
        let mut freed = item.bytes > 0 || item.inflated > 0;
        if let Some(answer) = item.answer {
            freed |= self.let_go(answer, item.inflated);
        }
        // With nothing left to take, what was held back for want of room comes alone.
        if self.starved && (freed || self.partitions.values().all(|one| one.items.is_empty())) {
            self.starved = false;
            self.effects.room = true;
        }
        Some(item.what)
    }

    /// When to look again though nothing has happened.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let timeout = self.order.timeout;
        let partitions = self.partitions.values().filter(|one| one.stage != Stage::Done);
        let of_partition = partitions.flat_map(|one| {
            let trouble = one.trouble.as_ref().map(|trouble| trouble.since + timeout);
            let absent = one.absent.map(|absent| absent.since + ABSENT_FOR);
            let preferred = one.preferred.map(|(_, until)| until);
            [trouble, absent, preferred, one.retry.at]
        });
        let of_node = self.nodes.values().flat_map(|node| [node.retry.at, node.muted]);
        of_partition.chain(of_node).flatten().filter(|at| *at > now).min()
    }

    /// Every partition ends with this error.
    pub(super) fn fail_all(&mut self, error: &Error) {
        let indices: Vec<i32> = self.partitions.keys().copied().collect();
        for index in indices {
            self.fail(index, error.clone().with_partition(self.topic, index));
        }
    }

    /// A partition ends with an error, behind all that was fetched of it.
    pub(super) fn fail(&mut self, index: i32, error: Error) {
        let Some(partition) = self.partitions.get_mut(&index) else { return };
        match partition.stage {
            Stage::Done => {}
            Stage::Resolving { .. } => {
                let parts = partition.fail(error);
                self.discharge(parts);
            }
            Stage::Reading => partition.pending = Some(Pending::Fail(error)),
        }
        self.effects.news = true;
        self.settle(index);
    }

    /// The bounds of partitions that were resolved together, or what prevented it.
    pub(super) fn handle_resolved(
        &mut self,
        now: Instant,
        partitions: &[i32],
        result: Result<BTreeMap<i32, Bounds>, Error>,
    ) {
        self.effects.news = true;
        match result {
            Ok(found) => {
                for index in partitions {
                    match found.get(index) {
                        Some(bounds) => self.begin(*index, bounds),
                        None => self.fail(
                            *index,
                            Error::new(ErrorKind::Other, self.order.operation())
                                .with_partition(self.topic, *index)
                                .with_detail("its offsets were not told"),
                        ),
                    }
                }
            }
            Err(error) => self.handle_unresolved(now, partitions, &error),
        }
    }
}
