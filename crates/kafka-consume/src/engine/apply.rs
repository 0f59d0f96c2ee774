//! What an answer says before any payload is looked at: watermarks, errors, where the batches end. Pure.
//!
//! The batch headers alone give the next fetch position, so the next request can leave before a checksum is
//! computed; what the batches turn out to be comes back through `fill.rs`.

use std::time::{Duration, Instant};

use kafka_meta::wire::fetch::{EpochEnd, FetchAnswer, FetchedPartition, TopicRef};
use kafka_meta::{Error, ErrorCode, ErrorKind};
use kafka_read::batch;
use kafka_read::fetch::TAILS;
use tracing::{debug, info, warn};

use super::check::Work;
use super::core::{Core, Hint, Id};
use super::plan::FetchOrder;
use crate::buffer::{Kind, Slot};
use crate::config::OffsetReset;
use crate::position::{Pos, Preferred, State};
use crate::session::{Fetched, Outcome};

impl Core {
    /// Takes the answer to `order`; what it returns is to be checked outside the lock and given to
    /// [`Core::fill`](Core::fill). `bytes` is the size of the whole answer.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        order: &FetchOrder,
        answer: FetchAnswer,
        bytes: usize,
        took: Duration,
    ) -> Vec<Work> {
        self.unreserve(order.reserved);
        self.count_fetch(took);
        let endpoints: Vec<_> = answer
            .endpoints
            .iter()
            .map(|end| (end.node, (end.host.clone(), end.port, end.rack.clone())))
            .collect();
        let early = took < self.settings.wire_wait / 4;
        let Some(node) = self.nodes.get_mut(&order.node) else { return Vec::new() };
        node.in_flight = false;
        node.muted = (!answer.throttle.is_zero()).then(|| now + answer.throttle);
        let fetched = match node.session.handle_answer(&order.plan, answer) {
            Outcome::Use(fetched) => {
                node.retry.clear();
                fetched
            }
            Outcome::Throttled => return Vec::new(),
            Outcome::Reopen { reason, refresh } => {
                debug!(node = order.node, reason, "the fetch session is opened anew");
                self.counts.sessions_reopened += 1;
                self.effects.refresh |= refresh;
                // Once is normal after a restart or an eviction; a broker that always says so must not spin us.
                let random = self.random();
                if let Some(node) = self.nodes.get_mut(&order.node)
                    && node.session.lost_in_a_row() > 1
                {
                    node.retry.fail(now, random);
                }
                return Vec::new();
            }
        };
        if fetched.is_empty() {
            if !order.parting {
                self.hollow_answer(now, order.node, early);
            }
            return Vec::new();
        }
        let answer = self.next_seq();
        let mut works = Vec::new();
        let mut pinned = 0;
        // Records that are of no use and come again as fast as they are asked for.
        let carrying = fetched.iter().filter(|fetched| !fetched.part.records.is_empty()).count();
        let useless = fetched.iter().all(|fetched| fetched.part.error.is_none())
            && fetched.iter().any(|fetched| !fetched.part.records.is_empty());
        for Fetched { topic, part } in fetched {
            let Some(id) = self.named(topic, part.partition) else {
                self.learn_of_departed(topic, &part);
                continue;
            };
            if let Some(hint) = part.current_leader {
                let endpoint =
                    endpoints.iter().find(|(node, _)| *node == hint.node).map(|(_, end)| end.clone());
                self.effects.hints.push(Hint {
                    topic,
                    partition: part.partition,
                    node: hint.node,
                    epoch: hint.epoch,
                    endpoint,
                });
            }
            if let Some(work) = self.apply(now, order.node, id, part, answer, carrying == 1) {
                pinned += work.bytes;
                works.push(work);
            }
        }
        self.budget.charge(answer, bytes, pinned);
        if works.is_empty() && useless {
            self.hollow_answer(now, order.node, early);
        } else if let Some(node) = self.nodes.get_mut(&order.node) {
            node.hollow = 0;
        }
        works
    }

    /// The request failed, or its answer cannot be read: nothing is known but that it may have arrived.
    pub fn handle_fetch_failure(&mut self, now: Instant, order: &FetchOrder, error: &Error) {
        self.unreserve(order.reserved);
        self.counts.fetch_errors += 1;
        let random = self.random();
        let Some(node) = self.nodes.get_mut(&order.node) else { return };
        node.in_flight = false;
        node.session.handle_failure(&order.plan);
        node.retry.fail(now, random);
        for (_, partition) in self.each_mut() {
            if partition.preferred.is_some_and(|preferred| preferred.node == order.node) {
                partition.shun_replica(now);
            }
        }
        self.effects.refresh = true;
        self.effects.fetchers = true;
        self.effects.supervisor = true;
        let lasting = matches!(
            error.kind(),
            ErrorKind::Authentication | ErrorKind::Tls | ErrorKind::UnsupportedApi | ErrorKind::BatchTooLarge
        );
        if lasting {
            let affected: Vec<Id> = self
                .each()
                .filter(|(_, partition)| partition.source(now) == Some(order.node))
                .map(|(id, _)| id)
                .collect();
            for id in affected {
                let Some(partition) = self.get(id) else { continue };
                let error = error.clone().with_partition(partition.topic, partition.index);
                self.tell(now, id, error, true);
            }
        }
        debug!(node = order.node, %error, "a fetch failed and will be repeated");
    }

    fn count_fetch(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts.fetch_nanos = self.counts.fetch_nanos.saturating_add(nanos);
        self.counts.last_fetch_nanos = nanos;
    }

    /// An answer that brought nothing. Brokers hold an empty fetch back; one that does not would be asked as
    /// fast as it answers, so after three early ones in a row the next waits as long as a broker should have.
    /// Kafka 3.9 is one, for a position between the last stable offset and the high watermark.
    fn hollow_answer(&mut self, now: Instant, node: i32, early: bool) {
        let wire_wait = self.settings.wire_wait;
        let Some(node) = self.nodes.get_mut(&node) else { return };
        node.hollow = if early { node.hollow + 1 } else { 0 };
        if node.hollow >= 3 {
            node.retry.at = Some(now + wire_wait);
        }
    }

    fn apply(
        &mut self,
        now: Instant,
        node: i32,
        id: Id,
        part: FetchedPartition,
        answer: u64,
        alone: bool,
    ) -> Option<Work> {
        let committed_only = self.settings.committed_only;
        let served = self.served + 1;
        let partition = self.get_mut(id)?;
        // An incremental answer repeats no watermark: they are taken from an overtaken answer as well.
        let same_topic = match part.topic {
            TopicRef::Id(topic) => topic == partition.topic_id,
            TopicRef::Name(_) => true,
        };
        if same_topic && partition.source(now) == Some(node) {
            partition.learn(&part, committed_only);
        }
        let asked = partition.asked.take_if(|asked| asked.node == node)?;
        let fetch = partition.fetch?;
        // What was asked for before a pause is kept: thrown away, it would be fetched again after each pause.
        let takes = matches!(partition.state, State::Fetching) && !partition.held;
        if asked.ticket != partition.ticket || asked.offset != fetch.offset || !takes {
            return None;
        }
        if !part.error.is_none() {
            partition.served = served;
            self.served = served;
            self.handle_partition_error(now, id, node, part.error);
            return None;
        }
        partition.retry.clear();
        partition.strays.clear();
        partition.fault = None;
        if let Some(end) = part.diverging {
            self.handle_divergence(now, id, end);
            return None;
        }
        if let Some(replica) = part.preferred_read_replica.filter(|replica| *replica != node) {
            let lease = self.settings.replica_lease;
            let partition = self.get_mut(id)?;
            partition.preferred = Some(Preferred { node: replica, until: now + lease });
            self.effects.fetchers = true;
            self.effects.supervisor = true;
            return None;
        }
        if part.records.is_empty() {
            return None;
        }
        let seq = self.next_seq();
        let high = self.high_mark();
        let partition = self.get_mut(id)?;
        let mut found = batch::stretch(part.records.clone(), fetch.offset, fetch.epoch);
        if found.is_cut() {
            // The cut head of a batch that fits no more behind another partition's data. A broker keeps the order
            // of its session and may send the same head again and again; the first batch of an answer it always
            // sends whole (KIP-74). So one that comes cut though nothing came with it was not cut: its length is
            // wrong.
            let tail = (fetch.offset, part.records.len());
            let times = match partition.tail {
                Some((seen, times)) if seen == tail => times + 1,
                _ => 1,
            };
            partition.tail = Some((tail, times));
            found.damage = Some(if times >= TAILS && alone { found.tail_as_damage()? } else { return None });
        }
        partition.tail = None;
        partition.served = served;
        partition.fetch = Some(Pos { offset: found.next, epoch: found.next_epoch });
        let bytes = part.records.len();
        partition.queue.push_back(Slot {
            seq,
            answer,
            bytes,
            inflated: 0,
            end: found.next,
            kind: Kind::Reserved,
        });
        if partition.queue.bytes >= high {
            partition.full = true;
        }
        let work = Work {
            id,
            ticket: partition.ticket,
            seq,
            answer,
            bytes,
            topic: partition.topic,
            partition: partition.index,
            from: fetch,
            batches: found.batches,
            damage: found.damage,
            records: part.records,
            aborted: part.aborted,
            doubted: partition.doubted,
            high_watermark: part.high_watermark,
            last_stable_offset: part.last_stable_offset,
            log_start_offset: part.log_start_offset,
        };
        self.served = served;
        Some(work)
    }

    /// Bytes a partition may buffer before it is fetched no more.
    pub(super) fn high_mark(&self) -> usize {
        let least = usize::try_from(self.settings.partition_max_bytes).unwrap_or(1).saturating_mul(2);
        let fair = self.settings.budget / self.index.len().max(4);
        least.max(fair)
    }

    /// Bytes below which a full partition is fetched again: at least one answer's worth lower.
    pub(super) fn low_mark(&self) -> usize {
        self.high_mark() / 2
    }

    fn handle_partition_error(&mut self, now: Instant, id: Id, node: i32, code: ErrorCode) {
        let Some(partition) = self.get_mut(id) else { return };
        let (topic, index) = (partition.topic, partition.index);
        let offset = partition.fetch.map_or(-1, |fetch| fetch.offset);
        // Whether it was sent to the leader: a preference may have ended while the answer was on its way.
        let from_leader = partition.leader.is_some_and(|leader| leader.node == node);
        let error = || Error::broker(code, "fetch").with_partition(topic, index).with_offset(offset);
        self.counts.retries += 1;
        match code {
            ErrorCode::OFFSET_OUT_OF_RANGE if !from_leader => {
                // The follower may only lag: the leader decides.
                self.forget_replica(now, id);
                self.effects.fetchers = true;
                self.effects.supervisor = true;
                return;
            }
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                info!(%topic, partition = index, offset, "the position is outside the log");
                self.reset(now, id, error());
                return;
            }
            ErrorCode::UNKNOWN_LEADER_EPOCH => {
                debug!(%topic, partition = index, node, "the broker does not know this leader epoch yet");
            }
            ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::REPLICA_NOT_AVAILABLE
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::OFFSET_NOT_AVAILABLE
            | ErrorCode::LEADER_NOT_AVAILABLE => {
                debug!(%topic, partition = index, node, %code, "the broker does not lead the partition");
                self.forget_replica(now, id);
                self.effects.refresh = true;
            }
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::UNKNOWN_TOPIC_ID
            | ErrorCode::INCONSISTENT_TOPIC_ID => {
                warn!(%topic, partition = index, node, %code, "the broker does not know the topic");
                self.forget_replica(now, id);
                self.effects.refresh = true;
            }
            ErrorCode::UNKNOWN_SERVER_ERROR => {
                warn!(%topic, partition = index, node, "the broker failed without saying why");
            }
            _ => self.tell(now, id, error(), true),
        }
        self.retry_later(now, id);
    }

    fn forget_replica(&mut self, now: Instant, id: Id) {
        if let Some(partition) = self.get_mut(id) {
            partition.shun_replica(now);
        }
    }

    /// The leader's log parts from ours at `end` (KIP-595): what lies above was never committed, or was lost.
    fn handle_divergence(&mut self, now: Instant, id: Id, end: EpochEnd) {
        let none = self.settings.reset == OffsetReset::None;
        let Some(partition) = self.get_mut(id) else { return };
        let (topic, index) = (partition.topic, partition.index);
        let Some(fetch) = partition.fetch else { return };
        let at = Pos { offset: end.end_offset.min(fetch.offset), epoch: Some(end.epoch) };
        if end.end_offset < 0 || end.epoch < 0 {
            let error = Error::new(ErrorKind::LogTruncated, "fetch")
                .with_partition(topic, index)
                .with_offset(fetch.offset);
            self.reset(now, id, error);
            return;
        }
        self.counts.truncations += 1;
        warn!(%topic, partition = index, position = fetch.offset, end = end.end_offset, epoch = end.epoch,
            "the log was truncated");
        let Some(partition) = self.get_mut(id) else { return };
        if partition.lent().is_some_and(|lent| lent.offset > at.offset) {
            // Some of what a stream has and has not yielded may be gone.
            partition.end_lease();
        }
        let Some(lent) = partition.lent() else { return };
        // Behind a jump the log is another one than what was handed out.
        let jumps = partition.queue.slots.iter().any(|slot| matches!(slot.kind, Kind::Jump(_)));
        if jumps || lent.offset <= at.offset {
            // Nothing handed out is gone: only the buffer is.
            let cut = partition.queue.cut(at.offset);
            let tail = match partition.queue.slots.back_mut() {
                Some(Slot { kind: Kind::Jump(to), end, .. }) => {
                    if to.offset > at.offset {
                        *to = at;
                        *end = at.offset;
                    }
                    *to
                }
                Some(slot) => slot.after(at.epoch),
                None => lent,
            };
            partition.fetch = Some(if tail.offset < at.offset { tail } else { at });
            if partition.is_drained() {
                partition.consumed = partition.fetch;
            }
            for slot in cut {
                self.let_go(&slot);
            }
            self.unfill(id);
            self.effects.fetchers = true;
            return;
        }
        let consumed = lent;
        if none {
            let error = Error::new(ErrorKind::LogTruncated, "fetch")
                .with_partition(topic, index)
                .with_offset(at.offset)
                .with_detail(format!("read up to {}, the log parts at the offset named", consumed.offset));
            self.renew(id);
            if let Some(partition) = self.get_mut(id) {
                partition.fetch = Some(consumed);
            }
            self.halt(now, id, error);
            return;
        }
        // What was read before the logs parted may still have to be read again.
        let origin = self.get(id).and_then(|partition| partition.origin);
        self.place_anew(id, at);
        if let Some(partition) = self.get_mut(id)
            && let Some(origin) = origin.filter(|origin| origin.offset < at.offset)
        {
            partition.origin = Some(origin);
        }
    }
}
