//! What an answer says before any payload is looked at: errors, ends, where the batches end. Pure.
//!
//! The batch headers alone give the next fetch position, so the next request can leave before a checksum is
//! computed; what the batches turn out to be comes back through `Core::handle_worked`.

use std::time::{Duration, Instant};

use kafka_meta::client::Endpoint;
use kafka_meta::wire::fetch::{EpochEnd, FetchAnswer, FetchedPartition, TopicRef};
use kafka_meta::{Error, ErrorCode, ErrorKind};
use tracing::{debug, info, warn};

use super::Loss;
use super::core::{Core, Hint, WIRE_WAIT};
use super::partition::{Pending, Phase, Reason};
use super::plan::FetchOrder;
use super::work::Part;
use crate::batch::{self, AbortedFilter};
use crate::fetch::{Pos, TAILS};

/// One partition of an answer and what it came with.
struct Arrival<'a> {
    order: &'a FetchOrder,
    answer: u64,
    /// Nothing else in the answer carries records.
    alone: bool,
    random: f64,
}

impl Core {
    /// Takes the answer to `order`, of `bytes` in all.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        random: f64,
        order: &FetchOrder,
        answer: FetchAnswer,
        (bytes, took): (usize, Duration),
    ) {
        self.release(order);
        let Some(node) = self.nodes.get_mut(&order.node) else { return };
        node.muted = (!answer.throttle.is_zero()).then(|| now + answer.throttle);
        if !answer.error.is_none() {
            self.effects.refresh = true;
            let error = Error::broker(answer.error, "fetch").with_topic(self.topic);
            self.node_failed(now, random, order, &error);
            return;
        }
        node.retry.clear();
        let id = self.next_answer();
        let carrying = answer.partitions.iter().filter(|part| !part.records.is_empty()).count();
        let clean = answer.partitions.iter().all(|part| part.error.is_none());
        let throttled = !answer.throttle.is_zero();
        let arrival = Arrival { order, answer: id, alone: carrying == 1, random };
        let mut parts = Vec::new();
        let mut missing: Vec<i32> = order.wants.iter().map(|want| want.partition).collect();
        for part in answer.partitions {
            let ours = match &part.topic {
                TopicRef::Name(name) => name.as_str() == self.topic.as_str(),
                TopicRef::Id(id) => *id == order.topic_id,
            };
            let Some(place) = missing.iter().position(|index| ours && *index == part.partition) else {
                continue;
            };
            missing.swap_remove(place);
            if let Some(hint) = part.current_leader {
                let endpoint = answer.endpoints.iter().find(|end| end.node == hint.node);
                self.effects.hints.push(Hint {
                    partition: part.partition,
                    node: hint.node,
                    epoch: hint.epoch,
                    endpoint: endpoint.map(|end| Endpoint {
                        id: end.node,
                        host: end.host.clone(),
                        port: end.port,
                        rack: end.rack.clone(),
                    }),
                });
            }
            let index = part.partition;
            if let Some(part) = self.apply(now, &arrival, part, carrying, throttled) {
                parts.push(part);
            }
            self.settle(index);
        }
        for index in missing {
            // A throttled answer may come without any partition.
            if let Some(partition) = self.partitions.get_mut(&index).filter(|_| !throttled) {
                partition.retry.fail(now, random);
            }
        }
        let brought = !parts.is_empty();
        self.charge(order.node, id, bytes, parts.len());
        for part in parts {
            if let Some(partition) = self.partitions.get_mut(&part.partition) {
                partition.queued += part.left;
                partition.parts.push_back(part);
            }
        }
        // Brokers hold an empty fetch back; one that does not would be asked as fast as it answers. Kafka 3.9 is
        // one, for a position between the last stable offset and the high watermark.
        let early = took < WIRE_WAIT / 4;
        if let Some(node) = self.nodes.get_mut(&order.node) {
            node.hollow = if !brought && clean && early { node.hollow + 1 } else { 0 };
            if node.hollow >= 3 {
                node.retry.at = Some(now + WIRE_WAIT);
            }
        }
    }

    /// The request failed, or its answer cannot be read.
    pub(super) fn handle_fetch_failure(
        &mut self,
        now: Instant,
        random: f64,
        order: &FetchOrder,
        error: &Error,
    ) {
        self.release(order);
        self.node_failed(now, random, order, error);
    }

    fn release(&mut self, order: &FetchOrder) {
        if let Some(node) = self.nodes.get_mut(&order.node) {
            node.in_flight = false;
            node.used = node.used.saturating_sub(order.reserved);
        }
    }

    fn node_failed(&mut self, now: Instant, random: f64, order: &FetchOrder, error: &Error) {
        debug!(node = order.node, %error, "a fetch failed and will be repeated");
        if let Some(node) = self.nodes.get_mut(&order.node) {
            node.retry.fail(now, random);
        }
        self.effects.refresh = true;
        let lasting = matches!(
            error.kind(),
            ErrorKind::Authentication
                | ErrorKind::Authorization
                | ErrorKind::Tls
                | ErrorKind::UnsupportedApi
                | ErrorKind::BatchTooLarge
        );
        for want in &order.wants {
            let Some(partition) = self.partitions.get_mut(&want.partition) else { continue };
            partition.asked.take_if(|asked| asked.node == order.node);
            partition.shun_replica(now);
            let error =
                error.clone().with_partition(self.topic, want.partition).with_offset(partition.position);
            if lasting {
                self.fail(want.partition, error);
            } else if partition.is_wanting() {
                partition.suffer(now, Reason::Error(error));
            }
        }
    }

    fn apply(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        part: FetchedPartition,
        carrying: usize,
        throttled: bool,
    ) -> Option<Part> {
        let committed_only = self.order.committed_only;
        let follows = self.order.follows();
        let node = arrival.order.node;
        let topic = self.topic;
        self.served += 1;
        let served = self.served;
        let partition = self.partitions.get_mut(&part.partition)?;
        let asked = partition.asked.take_if(|asked| asked.node == node)?;
        if asked.ticket != partition.ticket
            || asked.offset != partition.fetch.offset
            || !partition.is_wanting()
        {
            return None;
        }
        partition.served = served;
        if !part.error.is_none() {
            self.handle_partition_error(now, arrival, part.partition, part.error);
            return None;
        }
        partition.retry.clear();
        if let Some(end) = part.diverging {
            self.handle_divergence(now, arrival.random, part.partition, end);
            return None;
        }
        let replica = part.preferred_read_replica.filter(|replica| *replica != node);
        if let Some(replica) = replica {
            partition.preferred = Some((replica, now + self.replica_lease));
            return None;
        }
        let from_leader = partition.leader.is_some_and(|leader| leader.node == node);
        let log_end = if committed_only { part.last_stable_offset } else { part.high_watermark };
        if log_end >= 0 && (from_leader || log_end > partition.log_end) {
            partition.log_end = log_end;
        }
        if part.records.is_empty() {
            if follows {
                partition.trouble = None;
                if partition.is_settled() && matches!(partition.phase, Phase::Giving { .. }) {
                    partition.push_progress(topic);
                    self.effects.news = true;
                }
            } else if !from_leader {
                // The follower may lag behind the end; the leader does not.
                partition.shun_replica(now);
            } else if log_end >= 0 && log_end < partition.limit() {
                partition.pending = Some(Pending::Look { asked: false });
                partition.suffer(now, Reason::Nothing);
            } else if carrying == 0 && !throttled {
                partition.suffer(now, Reason::Nothing);
            }
            return None;
        }
        let mut found = batch::stretch(part.records.clone(), partition.fetch.offset, partition.fetch.epoch);
        if found.is_cut() {
            let cut = (partition.fetch.offset, part.records.len());
            let times = match partition.cut {
                Some((seen, times)) if seen == cut => times + 1,
                _ => 1,
            };
            partition.cut = Some((cut, times));
            let tail = if times >= TAILS && arrival.alone { found.tail_as_damage() } else { None };
            if tail.is_none() {
                if arrival.alone {
                    partition.suffer(now, Reason::Nothing);
                }
                return None;
            }
            found.damage = tail;
        }
        partition.cut = None;
        partition.trouble = None;
        partition.suspect = found.damage.is_some();
        let from = partition.fetch;
        partition.fetch = Pos { offset: found.next, epoch: found.next_epoch };
        let aborted = part.aborted.iter().map(|aborted| (aborted.producer_id, aborted.first_offset));
        Some(Part {
            partition: part.partition,
            ticket: partition.ticket,
            answer: arrival.answer,
            pos: from,
            end: partition.limit(),
            left: found.batches.iter().map(|raw| raw.header.size).sum(),
            batches: found.batches.into(),
            damage: found.damage,
            records: part.records,
            filter: committed_only.then(|| AbortedFilter::new(aborted.collect())),
            doubted: partition.doubted,
            high_watermark: part.high_watermark,
            last_stable_offset: part.last_stable_offset,
            log_start_offset: part.log_start_offset,
        })
    }

    fn handle_partition_error(&mut self, now: Instant, arrival: &Arrival<'_>, index: i32, code: ErrorCode) {
        let (topic, node) = (self.topic, arrival.order.node);
        let Some(partition) = self.partitions.get_mut(&index) else { return };
        let offset = partition.fetch.offset;
        let from_leader = partition.leader.is_some_and(|leader| leader.node == node);
        let error = Error::broker(code, "fetch").with_partition(topic, index).with_offset(offset);
        match code {
            ErrorCode::OFFSET_OUT_OF_RANGE if !from_leader => {
                // The follower may only lag: the leader decides.
                partition.shun_replica(now);
                return;
            }
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                info!(%topic, partition = index, offset, "the position is outside the log");
                partition.suffer(now, Reason::Error(error));
                partition.pending = Some(Pending::Look { asked: false });
                return;
            }
            ErrorCode::UNKNOWN_LEADER_EPOCH => {
                debug!(%topic, partition = index, node, "the broker does not know this leader epoch yet");
            }
            ErrorCode::UNKNOWN_SERVER_ERROR => {
                warn!(%topic, partition = index, node, "the broker failed without saying why");
                partition.shun_replica(now);
            }
            code if code.is_retriable() || code.kind() == ErrorKind::UnknownTopic => {
                debug!(%topic, partition = index, node, %code, "the broker does not serve the partition");
                partition.shun_replica(now);
                self.effects.refresh = true;
            }
            _ => {
                self.fail(index, error);
                return;
            }
        }
        partition.suffer(now, Reason::Error(error));
        partition.retry.fail(now, arrival.random);
    }

    /// The leader's log parts from what was read at `end` (KIP-595). What was fetched and not worked on is dropped;
    /// what was handed over of the rest is void.
    fn handle_divergence(&mut self, now: Instant, random: f64, index: i32, end: EpochEnd) {
        let topic = self.topic;
        let Some(partition) = self.partitions.get_mut(&index) else { return };
        warn!(%topic, partition = index, position = partition.fetch.offset, end = end.end_offset,
            "the log was truncated");
        let parts = if partition.position <= end.end_offset {
            let at = Pos { offset: partition.position, epoch: Some(end.epoch) };
            partition.jump(at)
        } else {
            partition.jump_back(topic, end.end_offset, Loss::Truncated)
        };
        // A log is cut once; a broker that says so again and again must not be asked as fast as it answers.
        partition.retry.fail(now, random);
        self.discharge(parts);
        self.effects.news = true;
    }
}
