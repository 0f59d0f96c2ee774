//! Bounds, ends, losses and troubles: what decides where a partition begins and when it is over. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use kafka_meta::client::{Snapshot, Topic};
use kafka_meta::{Error, ErrorCode, ErrorKind, TopicName};
use tracing::{info, warn};
use uuid::Uuid;

use super::Loss;
use super::bounds::Bounds;
use super::core::Core;
use super::last::{Counted, Search};
use super::partition::{ABSENT_FOR, Absent, Partition, Pending, Phase, Reason, Stage, Trouble, What};
use super::work::Part;
use crate::fetch::{Leader, Pos};

impl Core {
    /// Partitions to be looked up together: those of one leader, so that none waits for another's.
    pub(super) fn poll_resolve(&mut self, now: Instant) -> Option<Vec<i32>> {
        let due = |one: &Partition| one.stage == Stage::Resolving { asked: false } && one.retry.is_due(now);
        let first = self.partitions.values().find(|one| due(one))?;
        let (index, leader) = (first.index, first.leader.map(|leader| leader.node));
        let mut group = Vec::new();
        for one in self.partitions.values_mut().filter(|one| due(one)) {
            let same = leader.is_some() && one.leader.map(|leader| leader.node) == leader;
            if same || one.index == index {
                one.stage = Stage::Resolving { asked: true };
                group.push(one.index);
            }
        }
        Some(group)
    }

    /// A look-up came to nothing. What it says of one partition is that one's alone.
    pub(super) fn handle_unresolved(&mut self, now: Instant, group: &[i32], error: &Error) {
        let named = error.partition().filter(|index| group.contains(index));
        let alone = named.filter(|_| error.kind() != ErrorKind::Timeout);
        for index in group {
            let Some(partition) = self.partitions.get_mut(index) else { continue };
            if partition.stage != (Stage::Resolving { asked: true }) {
                continue;
            }
            partition.stage = Stage::Resolving { asked: false };
            if alone.is_some_and(|alone| alone != *index) {
                continue;
            }
            let error = error.clone().with_partition(self.topic, *index);
            if self.order.follows() && error.is_retriable() && error.kind() != ErrorKind::UnknownTopic {
                // A tail goes on trying; each try has taken its time already.
                partition.push(What::Error(error));
                partition.retry.fail(now, 0.5);
            } else {
                self.fail(*index, error);
            }
        }
    }

    /// A partition's bounds are known.
    pub(super) fn begin(&mut self, index: i32, bounds: &Bounds) {
        let Some(partition) = self.partitions.get_mut(&index) else { return };
        if partition.stage == Stage::Done {
            return;
        }
        let (mut start, mut end) = bounds.stretch(&self.order, index);
        if let (Some(fixed), Some(found)) = (partition.end, end) {
            // Begun again: what was written meanwhile is not read for that.
            end = Some(found.min(fixed.max(start)));
        }
        let mut last = self.order.last;
        if partition.late {
            (start, last) = (bounds.earliest, None);
        }
        partition.stage = Stage::Reading;
        partition.retry.clear();
        partition.log_end = bounds.latest;
        partition.end = end;
        let limit = end.unwrap_or(bounds.latest);
        let from = match last {
            // Nothing to look behind: the shortest stretch is the whole one.
            Some(wanted) if wanted > 0 && start < limit => {
                let search = Search::new(wanted, start, limit);
                let low = search.low();
                partition.phase = Phase::Counting(search);
                low
            }
            Some(_) => limit,
            None => start,
        };
        let parts = partition.jump(Pos::at(from));
        partition.position = from;
        if !matches!(partition.phase, Phase::Counting(_)) {
            partition.open(self.topic, from, 0);
        }
        self.discharge(parts);
        self.effects.news = true;
        self.settle(index);
    }

    /// Draws the conclusions of what has just happened to a partition: a window counted, the end reached, all
    /// worked on that was to be before something else.
    pub(super) fn settle(&mut self, index: i32) {
        let topic = self.topic;
        let Some(partition) = self.partitions.get_mut(&index) else { return };
        if !partition.is_reading() {
            return;
        }
        if partition.position >= partition.limit() {
            let parts = match &mut partition.phase {
                Phase::Counting(search) => match search.finish() {
                    Counted::Further(low) => {
                        partition.position = low;
                        partition.jump(Pos::at(low))
                    }
                    Counted::Begin { offset, skip } => {
                        let parts = partition.jump(Pos::at(offset));
                        partition.position = offset;
                        partition.open(topic, offset, skip);
                        parts
                    }
                },
                Phase::Giving { .. } => partition.finish(topic),
            };
            partition.pending = None;
            self.effects.news = true;
            self.discharge(parts);
            // A stretch that begins at its end.
            if let Some(partition) = self.partitions.get_mut(&index)
                && partition.is_reading()
                && partition.position >= partition.limit()
                && matches!(partition.phase, Phase::Giving { .. })
            {
                let parts = partition.finish(topic);
                self.discharge(parts);
            }
            return;
        }
        if partition.is_settled()
            && let Some(Pending::Fail(error)) = &partition.pending
        {
            let error = error.clone();
            let parts = partition.fail(error);
            self.discharge(parts);
            self.effects.news = true;
        }
    }

    /// The ends of a log that a position was outside of, or that is shorter than it was.
    pub(super) fn handle_looked(
        &mut self,
        now: Instant,
        random: f64,
        index: i32,
        ticket: u64,
        result: Result<Bounds, Error>,
    ) {
        let topic = self.topic;
        let Some(partition) = self.partitions.get_mut(&index) else { return };
        if !partition.is_reading() || partition.ticket != ticket {
            return;
        }
        let Some(Pending::Look { .. }) = partition.pending else { return };
        let bounds = match result {
            Ok(bounds) => bounds,
            Err(error) if error.is_retriable() && error.kind() != ErrorKind::UnknownTopic => {
                partition.suffer(now, Reason::Error(error));
                partition.pending = Some(Pending::Look { asked: false });
                partition.retry.fail(now, random);
                return;
            }
            Err(error) => return self.fail(index, error),
        };
        partition.pending = None;
        partition.log_end = bounds.latest;
        let at = partition.position;
        let counting = matches!(partition.phase, Phase::Counting(_));
        let shrunk = partition.end.is_some_and(|end| bounds.latest < end);
        if counting && (at < bounds.earliest || at > bounds.latest || shrunk) {
            // Nothing has been handed over: start again.
            let parts = partition.jump(Pos::at(at));
            partition.stage = Stage::Resolving { asked: false };
            self.discharge(parts);
            return;
        }
        let parts = if at > bounds.latest {
            partition.end = partition.end.map(|end| end.min(bounds.latest));
            partition.jump_back(topic, bounds.latest, Loss::Truncated)
        } else if at < bounds.earliest {
            let to = bounds.earliest.min(partition.limit());
            info!(%topic, partition = index, from = at, to, "the log's start has moved past the reader");
            partition.position = to;
            partition.push_lost(topic, at..to, Loss::Deleted);
            partition.jump(Pos::at(to))
        } else if let Some(end) = partition.end.filter(|end| bounds.latest < *end) {
            partition.end = Some(bounds.latest);
            partition.push_lost(topic, bounds.latest..end, Loss::Truncated);
            VecDeque::new()
        } else {
            // As it should be: what was wrong has passed, or will be waited for.
            partition.retry.fail(now, random);
            return;
        };
        partition.trouble = None;
        partition.push_progress(topic);
        self.discharge(parts);
        self.effects.news = true;
        self.settle(index);
    }

    /// Partitions that have not got on for too long.
    pub(super) fn check_troubles(&mut self, now: Instant) {
        let (timeout, topic, follows) = (self.order.timeout, self.topic, self.order.follows());
        let operation = self.order.operation();
        let late: Vec<(i32, Trouble)> = self
            .partitions
            .values()
            .filter_map(|one| Some((one.index, one.trouble.clone()?)))
            .filter(|(_, trouble)| now >= trouble.since + timeout)
            .collect();
        for (index, trouble) in late {
            let Some(partition) = self.partitions.get_mut(&index) else { continue };
            partition.trouble = None;
            // What waits for a slow caller is not out of reach.
            if !partition.is_reading() || !partition.is_settled() {
                continue;
            }
            match trouble.reason {
                Reason::Nothing => self.give_up(index),
                Reason::Error(source) => {
                    let error = Error::new(ErrorKind::Timeout, operation)
                        .with_partition(topic, index)
                        .with_offset(partition.position)
                        .with_source(source);
                    if follows {
                        partition.push(What::Error(error));
                        self.effects.news = true;
                    } else {
                        self.fail(index, error);
                    }
                }
            }
        }
    }

    /// Whether metadata has to be asked a second time about partitions that it denied a while ago.
    pub(super) fn poll_confirm(&mut self, now: Instant) -> bool {
        let mut due = false;
        for partition in self.partitions.values_mut().filter(|one| one.stage != Stage::Done) {
            if let Some(absent) = &mut partition.absent
                && !absent.asked
                && now >= absent.since + ABSENT_FOR
            {
                absent.asked = true;
                due = true;
            }
        }
        due
    }

    /// The second answer about partitions that metadata denied; without one they are asked about once more.
    pub(super) fn handle_confirmed(&mut self, now: Instant, snapshot: Option<&Snapshot>) {
        if let Some(snapshot) = snapshot {
            self.handle_snapshot(now, snapshot);
        }
        let operation = self.order.operation();
        let mut gone = Vec::new();
        for partition in self.partitions.values_mut() {
            match &mut partition.absent {
                Some(absent) if absent.asked && snapshot.is_some() => gone.push(partition.index),
                Some(absent) if absent.asked => *absent = Absent { since: now, asked: false },
                _ => {}
            }
        }
        for index in gone {
            let error = Error::new(ErrorKind::UnknownTopic, operation).with_partition(self.topic, index);
            self.fail(index, error);
        }
    }

    /// The leader has nothing up to the end, and has had time enough.
    fn give_up(&mut self, index: i32) {
        let topic = self.topic;
        let Some(partition) = self.partitions.get_mut(&index) else { return };
        let limit = partition.limit();
        if limit == i64::MAX || !partition.is_settled() {
            return;
        }
        warn!(%topic, partition = index, from = partition.position, to = limit, "the log has nothing here");
        let lost = partition.position..limit;
        let parts = partition.jump(Pos::at(limit));
        partition.position = limit;
        if matches!(partition.phase, Phase::Giving { .. }) {
            partition.push_lost(topic, lost, Loss::Missing);
        }
        self.discharge(parts);
        self.settle(index);
    }

    /// Takes a new picture of the cluster.
    pub(super) fn handle_snapshot(&mut self, now: Instant, snapshot: &Snapshot) {
        if !self.is_listed() {
            return;
        }
        let (name, operation) = (self.topic, self.order.operation());
        let Some(topic) = snapshot.topic(name) else { return };
        match topic.error {
            ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::INVALID_TOPIC_EXCEPTION => {
                let error = Error::broker(topic.error, operation).with_topic(name);
                return self.fail_all(&error);
            }
            _ => {}
        }
        if topic.error.is_none() && !topic.id.is_nil() && topic.id != self.topic_id {
            let was = std::mem::replace(&mut self.topic_id, topic.id);
            if !was.is_nil() {
                self.handle_recreated(was);
            }
        }
        self.add_late(topic);
        let known = topic.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION || topic.error.is_none();
        for partition in self.partitions.values_mut().filter(|one| one.stage != Stage::Done) {
            let Some(found) = topic.partition(partition.index) else {
                partition.leader = None;
                partition.preferred = None;
                if known {
                    partition.absent.get_or_insert(Absent { since: now, asked: false });
                    self.effects.refresh = true;
                }
                continue;
            };
            partition.absent = None;
            let leader = found.leader.map(|node| Leader { node, epoch: found.leader_epoch });
            let gone = |node: &i32| {
                !snapshot.brokers.contains_key(node)
                    || found.offline.contains(node)
                    || !found.replicas.contains(node)
            };
            partition.preferred.take_if(|(node, _)| gone(node));
            if partition.leader != leader {
                partition.leader = leader;
                partition.preferred = None;
                if leader.is_some() {
                    partition.retry.clear();
                }
            }
        }
    }

    /// A tail of the whole topic takes partitions in that were added meanwhile.
    fn add_late(&mut self, topic: &Topic) {
        if !self.order.follows() || self.order.partitions.is_some() || !topic.error.is_none() {
            return;
        }
        for found in &topic.partitions {
            self.partitions.entry(found.index).or_insert_with(|| Partition::new(found.index, true));
        }
    }

    /// Another id under the same name is another topic.
    fn handle_recreated(&mut self, was: Uuid) {
        let (topic, follows) = (self.topic, self.order.follows());
        info!(%topic, %was, "the topic was deleted and created again");
        if !follows {
            let error = Error::new(ErrorKind::UnknownTopic, self.order.operation())
                .with_topic(topic)
                .with_detail("the topic was deleted and created again while it was read");
            return self.fail_all(&error);
        }
        let mut dropped = Vec::new();
        let mut by_index: BTreeMap<i32, Partition> = std::mem::take(&mut self.partitions);
        for partition in by_index.values_mut().filter(|one| one.stage != Stage::Done) {
            partition.late = true;
            partition.pending = None;
            partition.leader = None;
            if partition.is_reading() && matches!(partition.phase, Phase::Giving { .. }) {
                dropped.extend(partition.jump_back(topic, 0, Loss::Recreated));
            } else {
                dropped.extend(partition.jump(Pos::at(0)));
                partition.stage = Stage::Resolving { asked: false };
            }
        }
        self.partitions = by_index;
        self.discharge(dropped);
        self.effects.news = true;
    }
}

impl Partition {
    /// What is read from here on is handed over, but for the first `skip` records.
    fn open(&mut self, topic: TopicName, start: i64, skip: u64) {
        self.phase = Phase::Giving { skip };
        self.start = start;
        self.push_progress(topic);
    }

    /// What was handed over from `to` on is void; reading goes on there.
    #[must_use]
    pub(super) fn jump_back(&mut self, topic: TopicName, to: i64, loss: Loss) -> VecDeque<Part> {
        let void = to..self.position.max(to);
        let parts = self.jump(Pos::at(to));
        if matches!(self.phase, Phase::Counting(_)) {
            // Nothing has been handed over: start again.
            self.stage = Stage::Resolving { asked: false };
            return parts;
        }
        self.position = to;
        self.start = self.start.min(to);
        self.log_end = self.log_end.min(to);
        self.push_lost(topic, void, loss);
        self.push_progress(topic);
        parts
    }
}
